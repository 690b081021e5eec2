"""What comes with a batch and nothing looks at: file names, ids, dates. Replays go on whatever it is; a step that looks at it is another one
for each."""
import collections
import dataclasses
import datetime
import decimal
import itertools
import json
import operator
import pathlib
import re
import uuid
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import steptape
from twins import bits, played_alike

CALLS = 40
SEEN = {"p9": 2.0}

KINDS = {
    "text": lambda i: f"a/{i}.png",
    "texts": lambda i: [f"{i}_{k}" for k in range(3)],
    "texts_of_any_number": lambda i: [f"{i}_{k}" for k in range(i % 3)],
    "bytes": lambda i: str(i).encode(),
    "path": lambda i: pathlib.Path(f"/a/{i}"),
    "date": lambda i: datetime.datetime(2020, 1, 1 + i % 28),
    "decimal": lambda i: decimal.Decimal(i),
    "uuid": lambda i: uuid.UUID(int=i),
    "id_of_numpy": lambda i: np.int64(i),
    "object": lambda i: object(),
}


@pytest.mark.parametrize("handed", ["in_a_dict", "in_a_tuple", "by_itself", "by_name"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_nothing_reads_may_be_another_one(kind, handed):
    def play(wrap):
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], 0.1)

        def train(x):
            optimizer.zero_grad()
            loss = (x * weight).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        def of_a_dict(batch):
            moved = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
            return train(moved["x"])

        def of_a_tuple(batch):
            x, _ = batch
            return train(x)

        step = wrap({"in_a_dict": of_a_dict, "in_a_tuple": of_a_tuple}.get(handed, lambda x, name=None: train(x)))
        seen = []
        for i in range(CALLS):
            x, name = torch.full((3,), 0.01 * i), KINDS[kind](i)
            if handed == "by_name":
                seen.append(bits(step(x, name=name)))
            elif handed == "by_itself":
                seen.append(bits(step(x, name)))
            else:
                seen.append(bits(step({"x": x, "name": name} if handed == "in_a_dict" else (x, name))))
        return seen, bits(weight), step

    assert played_alike(play).stats["replayed"] > CALLS // 2


def formatted(name, x):
    return x * len(f"{name:>3}!")


def matched(name, x):
    match name:
        case "p9":
            return x * 2
    return x


def unpacked(name, x):
    _, *rest = name
    return x * float("".join(rest))


def caught(name, x):
    try:
        raise KeyError(name)
    except KeyError as error:
        return x * (2 if error.args[0] == "p9" else 1)


def called(name, x):
    def factor(*names, **named):
        return 2 if names[0] == "p9" or named["last"] == "p5" else 1
    return x * factor(*[name], last=name)


def yielded(name, x):
    def names():
        yield name
    return x * (2 if next(names()) == "p9" else 1)


def executed(name, x):
    found = {}
    exec("factor = 2.0 if name == 'p9' else 1.0", {"name": name}, found)
    return x * found["factor"]


def put_into_a_list(name, x):
    characters = [0]
    characters[:] = name
    return x * (2 if characters[1] == "9" else 1)


LOOKS = {
    "equal": lambda name, x: x * (2 if name == "p9" else 1),
    "contains": lambda name, x: x * (2 if "9" in name else 1),
    "one_of": lambda name, x: x * (2 if name in ("p9", "p3") else 1),
    "in_tuples": lambda name, x: x * (2 if (name, 1) in [("p9", 1)] else 1),
    "as_a_key": lambda name, x: x * SEEN.get(name, 1.0),
    "key_of_a_new_dict": lambda name, x: x * {name: 2.0}.get("p9", 1.0),
    "in_a_set": lambda name, x: x * len({name, "p9"}),
    "truth": lambda name, x: x * (2 if name else 1),
    "length": lambda name, x: x * len(name + "1" * int(name[1:])),
    "iterated": lambda name, x: x * sum(1 for c in name if c == "9"),
    "item": lambda name, x: x * (2 if name[-1] == "9" else 1),
    "method": lambda name, x: x * (2 if name.startswith("p9") else 1),
    "number": lambda name, x: x * float(name[1:]),
    "number_of_all": lambda name, x: x * int(name.removeprefix("p")),
    "joined": lambda name, x: x * (2 if "".join([name, name]) == "p9p9" else 1),
    "sorted": lambda name, x: x * (2 if sorted([name, "p5"])[0] == "p5" else 1),
    "largest": lambda name, x: x * (2 if max([{"k": name}, {"k": "p5"}], key=lambda each: each["k"])["k"] is name else 1),
    "counted": lambda name, x: x * collections.Counter([name])["p9"],
    "found": lambda name, x: x * ["p9", name].index(name),
    "any": lambda name, x: x * (2 if any(map("p9".__eq__, [name])) else 1),
    "json": lambda name, x: x * (2 if json.dumps([name]) == '["p9"]' else 1),
    "expression": lambda name, x: x * (2 if re.match("p9", name) else 1),
    "array": lambda name, x: x * float((np.array([name]) == "p9").sum()),
    "hash": lambda name, x: x * (hash(name) % 7),
    "attribute": lambda name, x: x * getattr(SimpleNamespace(p9=2.0), name, 1.0),
    "encoded": lambda name, x: x * name.encode()[-1],
    "percent": lambda name, x: x * (2 if "%s" % (name,) == "p9" else 1),
    "mode_of_an_op": lambda name, x: torch.div(x, 0.3, rounding_mode="floor" if name == "p9" else "trunc"),
    "given_to_torch": lambda name, x: F.pad(x[None], (1, 1), mode={"p9": "reflect"}.get(name, "replicate")),
    "by_index": lambda name, x: x[int(name[1:]) % 3],
    "list": lambda name, x: x * (2 if list(name) == ["p", "9"] else 1),
    "tuple": lambda name, x: x * (2 if tuple(name)[1] == "9" else 1),
    "zip": lambda name, x: x * (1 + sum(a == b for a, b in zip(name, "p9"))),
    "enumerate": lambda name, x: x * sum(k + (c == "9") for k, c in enumerate(name)),
    "reversed": lambda name, x: x * (2 if next(reversed(name)) == "9" else 1),
    "map": lambda name, x: x * (1 + sum(map(lambda a, b: a + b == "99", name, name))),
    "deque": lambda name, x: x * (2 if collections.deque(name)[1] == "9" else 1),
    "array_of_items": lambda name, x: x * (2 if np.array(list(name))[1] == "9" else 1),
    "one_by_one": lambda name, x: x * (2 if (lambda first, *rest: rest[0] if rest else first)(*name) == "9" else 1),
    "spread_for_c": lambda name, x: x * (2 if "{}-{}".format(*f"{name} "[:2]) == "p-9" else 1),
    "slice_of_a_list": put_into_a_list,
    "has_attribute": lambda name, x: x * (2 if hasattr(SimpleNamespace(p9=1), name) else 1),
    "getter": lambda name, x: x * (2 if operator.itemgetter(*name)({"p": 1, **{str(k): k for k in range(12)}})[1] == 9 else 1),
    "result": lambda name, x: (list(name), x * 1),
    "formatted": formatted,
    "matched": matched,
    "unpacked": unpacked,
    "caught": caught,
    "called": called,
    "yielded": yielded,
    "executed": executed,
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_at_it_is_seen(look):
    def play(wrap):
        step, seen = wrap(lambda batch: LOOKS[look](batch["name"], batch["x"])), []
        for i, k in enumerate(itertools.chain(range(12), [9] * 6, [3] * 6, [9, 3, 5] * 5)):
            seen.append(bits(step({"x": torch.full((3,), 1.0 + i), "name": f"p{k}"})))
        return seen, step

    assert played_alike(play).stats["replayed"] > 4


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_a_text_that_goes_through_to_an_op(mode):
    def play(wrap):
        def train(x, mode, rounding, equation):
            return F.pad(x[None], (1, 1), mode=mode), torch.div(x, 0.3, rounding_mode=rounding), torch.einsum(equation, x, x)

        step, seen = wrap(train), []
        for i in range(CALLS):
            late = i > 15 and i % 2
            seen.append(bits(step(torch.full((3, 3), 1.0 + i), mode if not late else "reflect", "trunc" if late else "floor",
                                  "ij,kj->ik" if late else "ij,jk->ik")))
        return seen, step

    assert played_alike(play).stats["replayed"] > CALLS // 2


def leave(kept, name):
    kept.last = name


KEEPS = {
    "returned": lambda kept, name: name,
    "in_a_result": lambda kept, name: {"names": [name]},
    "assigned": leave,
    "appended": lambda kept, name: kept.names.append(name),
    "appended_in_a_tuple": lambda kept, name: kept.names.append((name, 1)),
    "as_an_attribute": lambda kept, name: setattr(kept, name, 1.0),
    "as_an_entry": lambda kept, name: kept.entries.__setitem__("last", name),
}


@pytest.mark.parametrize("way", KEEPS)
def test_what_keeps_it_keeps_the_one_of_its_call(way):
    def play(wrap):
        kept = SimpleNamespace(names=[], last=None, entries={})
        step, seen = wrap(lambda x, name: (x * 2, KEEPS[way](kept, name))), []
        for i in range(CALLS):
            seen.append((bits(step(torch.full((3,), 1.0 + i), f"p{i if i < 12 else i % 2}")), bits(vars(kept))))
        return seen, step

    played_alike(play)


def test_an_object_that_is_read_late_is_refused_by_name():
    def train(x, path, is_late):
        return x * (len(path.name) if is_late else 1)

    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(CALLS):
        x = torch.full((3,), 1.0 + i)
        path = pathlib.Path("/a/" + "b" * (i % 5 + 1))
        assert bits(step(x, path, i > 20)) == bits(train(x, path, i > 20))
    assert step.stats["replayed"] > 10
    assert "`path` is a pathlib" in step.explain()


RARE = {
    "printed": lambda name, told: told.append(f"{name}!"),
    "compared": lambda name, told: told.append(name == "p7"),
    "taken_apart": lambda name, told: told.append(name.split("p")[1]),
}


@pytest.mark.parametrize("look", RARE)
def test_a_look_on_a_rare_branch_ends_the_replays_of_no_other(look):
    def play(wrap):
        told, state = [], SimpleNamespace(n=0)

        def train(x, name):
            state.n += 1
            if state.n % 9 == 8:
                RARE[look](name, told)
            return x * 2

        step, seen = wrap(train), []
        for i in range(60):
            seen.append(bits(step(torch.full((2,), 1.0 + i), f"p{i % 10}")))
        return [*seen, told, step]

    assert played_alike(play).stats["replayed"] > 30


def test_each_plan_is_for_the_texts_that_its_own_call_has_looked_at():
    def play(wrap):
        def train(x, name, mode, ids):
            return x * (2 if mode == "train" else len(ids[0]) if mode == "ids" else 3)

        step, seen = wrap(train), []
        for i in range(90):
            mode = ("train", "eval", "ids")[0 if i < 20 else i % 3]
            seen.append(bits(step(torch.full((2,), 1.0 + i), f"p{i}", mode, ["a" * (1 + i % 2), f"b{i}"])))
        return [*seen, step]

    assert played_alike(play).stats["replayed"] > 50


def test_a_step_that_is_called_within_itself_with_other_texts():
    def play(wrap):
        def train(x, name, depth):
            inner = step(x, "p9" if depth == 1 else name, depth - 1) if depth else 0.0
            return x * (2 if name == "p9" else 1) + inner

        step, seen = wrap(train), []
        for i in range(40):
            seen.append(bits(step(torch.full((2,), 1.0 + i), f"p{i if i < 12 else 9 - i % 3}", i % 3 if i > 20 else 0)))
        return [*seen, step]

    played_alike(play)


class Slotted:
    __slots__ = ("loss", "other")


class ListOf(list):
    pass


class Stopped(Exception):
    pass


WRITES = {
    "constant": lambda out, x: setattr(out, "loss", True), "number": lambda out, x: setattr(out, "loss", x.sum().item()),
    "tensor": lambda out, x: setattr(out, "loss", (x * 2).sum()), "argument": lambda out, x: setattr(out, "loss", x), "assigned": None,
}


@pytest.mark.parametrize("held", [lambda out: out, lambda out: [out], lambda out: {"out": out}], ids=["itself", "list", "dict"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("kind", [Slotted, ListOf, Stopped])
@pytest.mark.parametrize("is_new", [True, False], ids=["new", "kept"])
def test_what_the_step_sets_on_what_it_is_given(kind, write, held, is_new):
    def play(wrap):
        one = kind()

        def step(x, out):
            out = out["out"] if type(out) is dict else out[0] if type(out) is list else out
            if write is None:
                out.loss = x.sum().item()
            else:
                write(out, x)
            return x * 2

        step, seen = wrap(step), []
        for i in range(24):
            out = kind() if is_new else one
            seen.append((bits(step(torch.full((2,), float(i)), held(out))), bits(out.loss)))
        return seen, step

    played_alike(play)


Record = collections.namedtuple("Record", "x split name")


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    split: str
    name: str


BATCHES = {
    "dict": (lambda x, split, name: {"x": x, "split": split, "name": name}, "b['x'], b['split']"), "dataclass": (Batch, "b.x, b.split"),
    "named tuple": (Record, "b.x, b.split"), "list": (lambda x, split, name: [x, split, name], "b[0], b[1]"), "tuple": (lambda *parts: parts, "b[0], b[1]"),
    "lists": (lambda x, split, name: {"x": x, "split": [split] * 2, "name": [name]}, "b['x'], b['split']"),
    "bytes": (lambda x, split, name: [x, split.encode(), name], "b[0], b[1]"), "tuple within": (lambda x, split, name: [x, (split, 1.), name], "b[0], b[1]"),
}
LEFT = {
    "returned": "return x * 2, split", "returned in a dict": "return {'y': x * 2, 'split': split}", "returned in a tuple": "return x * 2, (split, 1.)",
    "kept": "held.last = split\n    return x * 2", "kept in a dict": "held.log['split'] = split\n    return x * 2", "appended": "held.rows.append(split)\n    return x * 2",
    "kept at times": "if x[0].item() % 7 > 3: held.last = split\n    return x * 2", "kept in another's place": "held.last = (split, 1.) if x[0].item() % 7 > 3 else held.last\n    return x * 2",
    "appended at times": "if x[0].item() % 7 > 3: held.rows.append(split)\n    return x * 2", "kept by a class": "type(held).split = split\n    return x * 2",
}


@pytest.mark.parametrize("splits", [lambda i: i >= 12, lambda i: i // 5 % 2, lambda i: i >= 20 and i % 2], ids=["once", "in turns", "late"])
@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("batch", BATCHES)
def test_a_text_that_nothing_looks_at_is_left_somewhere(batch, left, splits):
    def play(wrap):
        make, parts = BATCHES[batch]
        held = type("Held", (), {})()
        held.last, held.log, held.rows = None, {}, []
        scope = {"held": held}
        exec(f"def step(b):\n    x, split = {parts}\n    {LEFT[left]}\n", scope)
        step, seen = wrap(scope["step"]), []
        for i in range(36):
            result = step(make(torch.full((2,), float(i)), "valid" if splits(i) else "train", f"{i}.png"))
            seen.append((bits(result), held.last, dict(held.log), held.rows[-2:], getattr(type(held), "split", None)))
        return seen, step

    assert played_alike(play).stats["replayed"] >= 5


POOL = {"text": ("a", "b"), "tuple of a text": ((1., "a"), (1., "b")), "tuple of bytes": ((b"a", 1.), (b"b", 1.)), "None and a text": ((None, 1.), ("x", 1.)),
        "list of a text": (["a"], ["b"]), "tuples within": (((2., "a"), 1.), ((2., "b"), 1.)), "numbers": ((1., 2.), (1., 3.))}


@pytest.mark.parametrize("turns", [lambda i: i // 5 % 2, lambda i: i % 2, lambda i: i >= 20], ids=["in fives", "in turns", "late"])
@pytest.mark.parametrize("keep", ["h.best = (a, 1.) if v > 3 else h.best", "h.best = a if v > 3 else h.best", "if v > 3: h.best = a", "h.d['a'] = a if v > 3 else None",
                                  "if v > 3: h.rows.append(a)", "h.best, h.last = (a, 2.), h.best", "h.last = h.best\n    if v > 3: h.best = (a,)"])
@pytest.mark.parametrize("pool", POOL)
def test_a_tuple_of_the_program_s_is_given_and_kept(pool, keep, turns):
    def play(wrap):
        scope = dict(h=SimpleNamespace(best=None, last=None, d={}, rows=[]))
        exec(f"def step(x, a):\n    v = x[0].item()\n    {keep}\n    return x * 2\n", scope)
        h, step, seen = scope["h"], wrap(scope["step"]), []
        for i in range(30):
            seen.append(bits(step(torch.tensor([i % 7 + .5, 1.]), POOL[pool][bool(turns(i))])))
            seen.append(repr((h.best, h.last, h.d, h.rows[-2:])))
        return seen, step

    played_alike(play)

"""Containers and objects that a step is given, or that were there before it, and which it leaves elsewhere: in an attribute, an entry, a list, a record,
or as its result. A replay leaves the very object."""
import collections
import dataclasses
import types

import pytest
import torch
import torch.nn as nn

import steptape
from twins import bits, codes_of, played_alike

CALLS, LATE = 32, 20


@dataclasses.dataclass
class State:
    n: int
    history: list


class Held:
    def __init__(self):
        torch.manual_seed(0)
        self.net = nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)
        self.batch, self.prev, self.cur, self.box, self.d, self.stack, self.n = None, None, None, None, {}, [], 0
        self.history, self.best, self.other, self.queue, self.kinds = [1, 2], [3], {"a": 1}, collections.deque([1, 2], 3), {1, 2}
        self.state, self.config = State(0, []), types.SimpleNamespace(rate=0.5)


def aliases(named):
    """Of each object the first one in `named` that it is."""
    objects = list(named.values())
    return [next(k for k, other in enumerate(objects) if other is each) for each in objects]


def parts_of(value, name, found, depth=4):
    if not isinstance(value, tuple):  # which one of equal ones it is, nobody knows
        found[name] = value
    if depth == 0 or isinstance(value, (nn.Module, torch.optim.Optimizer, torch.Tensor)):
        return
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple, collections.deque)):
        items = enumerate(value)
    else:
        items = vars(value).items() if hasattr(value, "__dict__") else ()
    for key, item in items:
        if not isinstance(item, (int, float, str, type(None))):
            parts_of(item, f"{name}.{key}", found, depth - 1)


def played(body, between=lambda held, call: None, given=lambda held, call: (), calls=CALLS):
    """A step `body(held, loss, batch, ...)` does wrapped what it does unwrapped, with the same objects at the same places."""
    def play(wrap):
        held = Held()

        def step(batch, *more):
            held.optimizer.zero_grad()
            loss = held.net(batch["x"]).pow(2).mean()
            loss.backward()
            held.optimizer.step()
            return loss.detach(), body(held, loss.detach(), batch, *more)

        step, seen, kept = wrap(step), [], []
        for call in range(calls):
            between(held, call)
            batch = {"x": torch.full((4, 3), 0.1 * call), "names": ["a", "b"]}
            arguments = (batch, *given(held, call))
            kept.append(arguments)
            result = step(*arguments)
            found = {}
            for name, value in {"held": held, "result": result, "given": arguments, "before": kept[-2:]}.items():
                parts_of(value, name, found)
            values = [bits(value) for value in found.values() if isinstance(value, torch.Tensor)]
            plain = repr([(name, value) for name, value in found.items() if isinstance(value, (list, dict)) and "Tensor" not in repr(value) and "0x" not in repr(value) and "tensor" not in repr(value)])
            seen.append((list(found), aliases(found), values, plain, held.n, bits(held.net)))
        return [*seen, step]

    return played_alike(play)


def assign(place):
    def body(held, loss, batch, *more):
        setattr(held, place, batch)
    return body


def entry(held, loss, batch):
    held.d["batch"] = batch


def moved_on(held, loss, batch):
    held.prev = held.cur
    held.cur = {"loss": loss}


def moved_on_and_read(held, loss, batch):
    gap = loss - held.cur["loss"] if held.cur is not None else loss
    held.prev = held.cur
    held.cur = {"loss": loss}
    return gap


def swapped(held, loss, batch):
    held.history, held.best = held.best, held.history
    return held.history[0]


def boxed(held, loss, batch):
    held.box = {"batch": batch, "of": [held.other, (batch, loss)], "names": batch["names"]}


def recorded(held, loss, batch):
    held.state = State(held.state.n + 1, held.state.history)


def record_of_another(held, loss, batch):
    held.state = State(held.state.n + 1, held.history)


def appended(held, loss, batch):
    held.stack.append(batch)


def to_itself(held, loss, batch):
    held.box = held


def objects(held, loss, batch):
    held.cur, held.prev, held.box = held.config, held.queue, held.kinds


def updated_and_returned(held, loss, batch):
    held.other["loss"] = loss
    return held.other


LEFT = {
    "an_argument": assign("batch"),
    "in_an_entry": entry,
    "in_a_list": appended,
    "in_a_dict_that_is_made": boxed,
    "moved_on": moved_on,
    "moved_on_and_read": moved_on_and_read,
    "swapped": swapped,
    "in_a_record": recorded,
    "in_a_record_from_elsewhere": record_of_another,
    "one_of_the_programs": lambda held, loss, batch: setattr(held, "cur", held.other),
    "itself": to_itself,
    "objects_of_other_classes": objects,
    "returned": lambda held, loss, batch: (batch, held.other, batch["names"], held.config),
    "returned_in_what_it_makes": lambda held, loss, batch: {"batch": batch, "loss": loss, "history": [held.history, held.best]},
    "updated_and_returned": updated_and_returned,
}


@pytest.mark.parametrize("body", LEFT.values(), ids=LEFT)
def test_the_very_object_is_left(body):
    step = played(body)
    assert step.stats["replayed"] >= CALLS / 2, step.explain()


def another_of_the_programs(held, call):
    if call == LATE:
        held.other = {"a": 1}
    if call == LATE + 4:
        held.other = {"a": 2, "b": 3}


def its_content(held, call):
    if call >= LATE:
        held.other["a"] = call


def one_is_the_other(held, call):
    held.best = held.history if call in (LATE, LATE + 1) else [3]


def another_each_time(held, call):
    held.other, held.history, held.config = {"a": call}, [call], types.SimpleNamespace(rate=call)


BETWEEN = {each.__name__: each for each in (another_of_the_programs, its_content, one_is_the_other, another_each_time)}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
@pytest.mark.parametrize("body", LEFT.values(), ids=LEFT)
def test_the_program_changes_it(body, between):
    played(body, between)


GIVEN = {
    "twice": lambda held, call: ([1], held.history if call % 2 else [2]),
    "one_object_late": lambda held, call: (held.best, held.best if call >= LATE else [3]),
    "one_of_the_programs": lambda held, call: (held.other if call >= LATE else {"a": 1}, {"b": 2}),
    "of_another_size": lambda held, call: ([1] * (1 + (call >= LATE)), {"b": 2}),
    "of_another_class": lambda held, call: ([1] if call < LATE else (1,), {"b": 2}),
}


def both(held, loss, batch, one, other):
    held.cur, held.prev, held.box = one, other, [other, held.other]
    return one, (other, batch)


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_what_is_given_changes(given):
    played(both, given=given)


def test_a_call_in_the_step_is_given_others():
    def play(wrap):
        torch.manual_seed(0)
        held = types.SimpleNamespace(cur=None, inner=None, depth=0)

        def step(batch):
            total = batch["x"].sum()
            if batch["again"]:
                held.inner = again({"x": batch["x"] * 2, "again": False})
            held.cur = batch
            return total

        again, seen = wrap(step), []
        for call in range(24):
            batch = {"x": torch.full((3,), float(call)), "again": call % 2 == 0}
            seen.append((bits(again(batch)), held.cur is batch, bits(held.inner)))
        return [*seen, again]

    played_alike(play)


def test_a_container_that_the_step_makes_is_another_one_each_time():
    step = played(lambda held, loss, batch: setattr(held, "cur", [loss, held.other]))
    assert step.stats["replayed"] >= CALLS / 2, step.explain()


def test_a_container_that_the_step_is_given_and_changes_is_refused():
    def body(held, loss, batch):
        batch["loss"] = loss
        held.batch = batch

    step = played(body)
    assert codes_of(step) == {"host_effect"}, step.explain()


def test_a_loaded_step_gives_no_object_of_the_programs(tmp_path):
    held = Held()
    step = steptape.wrap(lambda batch: (batch["x"] * 2, held.other), name="step", verify={"first": True, "rate": 0.0})
    for call in range(8):
        step({"x": torch.full((3,), float(call))})
    step.save(tmp_path / "a.tape")
    with pytest.raises(steptape.Unsupported, match="returned .tensor, <dict at "):
        steptape.load(tmp_path / "a.tape")["step"]


def test_a_player_does_not_take_a_step_that_moves_what_it_finds(tmp_path):
    held = types.SimpleNamespace(prev=None, cur=None)

    def step(x):
        y = x * 2 if held.prev is None else x + held.prev["y"]
        held.prev = held.cur
        held.cur = {"y": y}
        return y

    step = steptape.wrap(step, name="step", verify={"first": True, "rate": 0.0})
    for call in range(20):
        step(torch.full((3,), float(call)))
    assert step.stats["replayed"] > 8, step.explain()
    step.save(tmp_path / "a.tape")
    with pytest.raises(steptape.Error, match="held.prev .*which players do not"):
        steptape.load(tmp_path / "a.tape")["step"]


BATCHES = {
    "pair": lambda i: (torch.full((2,), float(i)), torch.ones(2)), "nested": lambda i: (torch.full((2,), float(i)), (torch.ones(2), 3)),
    "with a list": lambda i: (torch.full((2,), float(i)), [torch.ones(2)]), "with a dict": lambda i: (torch.full((2,), float(i)), {"y": torch.ones(2)}),
}


@pytest.mark.parametrize("keeps", [lambda held, batch: setattr(held, "batch", batch), lambda held, batch: held.all.__setitem__("batch", batch),
                                   lambda held, batch: setattr(held, "batch", (batch, 1))], ids=["attribute", "entry", "in a tuple"])
@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
def test_a_tuple_that_the_step_is_given_and_keeps(make, keeps):
    """As the engine of Ignite does: `engine.state.batch = batch`."""
    def play(wrap):
        held = types.SimpleNamespace(batch=None, all={})

        def step(batch):
            keeps(held, batch)
            return batch[0] * 2

        step, seen = wrap(step), []
        for i in range(24):
            batch = make(i)
            made = step(batch)
            kept = held.all.get("batch", held.batch)
            kept = kept[0] if type(kept[0]) is tuple else kept
            batch[0].add_(1.0)
            if not isinstance(batch[1], (torch.Tensor, tuple)):
                batch[1].clear()
            seen.append((bits(made), kept[0] is batch[0], bits([kept])))
        return seen, step

    step = played_alike(play)
    if make in (BATCHES["pair"], BATCHES["nested"]):
        assert step.stats["replayed"] > 12, step.explain()


def test_a_tuple_of_the_programs_with_a_list_in_it_stays_that_tuple():
    def play(wrap):
        held = types.SimpleNamespace(kept=None, own=(torch.ones(2), [1.0]))

        def step(x):
            held.kept = held.own
            return x * 2

        step, seen = wrap(step), []
        for i in range(24):
            step(torch.ones(2))
            held.own[1].append(float(i))
            seen.append(bits([held.kept]))
        return seen, step

    played_alike(play)

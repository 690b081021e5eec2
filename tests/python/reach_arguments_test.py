"""What arguments bring: equal values of other kinds, containers with attributes, functions, objects and classes."""
import collections
import copy
import dataclasses
import enum
import functools
from types import SimpleNamespace
from typing import ClassVar, Generic, TypeVar

import numpy as np
import pytest
import torch

import steptape
from reached import OwnDict, Table, Training, check, global_setter, rows
from twins import bits, codes_of, played_alike

GAIN = 1.0
gain = global_setter(globals(), "GAIN")
arguments = Table()


class Mode(enum.IntEnum):
    FIRST = 1
    SECOND = 2


class OtherMode(enum.IntEnum):
    LAST = 1


def argument(step, before, after, **expected):
    """An argument that is another from call EDIT on."""
    return Training(step, batch=lambda i, changed: rows(i) + (after if changed else before,), **expected)


def one_or_two(make):
    """Two arguments that are one object, and two equal ones from call EDIT on."""
    def batch(i, changed):
        first = make()
        return *rows(i), first, make() if changed else first

    return batch


@arguments
def two_arguments_that_are_one_list():
    return Training(lambda x, a, b: x * 2 if a is b else x * 3, batch=one_or_two(list))


@arguments
def two_arguments_that_are_one_object():
    def step(x, a, b):
        a.scale = 5.0
        return x * b.scale

    return Training(step, batch=one_or_two(lambda: SimpleNamespace(scale=1.0)), codes={"host_effect"})


@arguments
def two_items_that_are_one_dict():
    def step(x, a, b):
        a["n"] += 1
        return x * b["n"]

    return Training(lambda batch: step(*batch), codes={"host_effect"},
                    batch=lambda i, changed: (list(one_or_two(lambda: {"n": 1})(i, changed)),))


class Node:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def tree(scale):
    root = Node(scale=scale, children=[Node(n=n) for n in range(6)])
    for child in root.children:
        child.parent, child.siblings = root, root.children
    return root


def dict_of_itself(scale):
    made = {"scale": scale}
    made["self"], made["again"] = made, [made, {"more": made}]
    return made


def engine_with_handlers(scale):
    made = Node(handlers={}, state=Node(scale=scale))
    for n in range(4):
        made.handlers[n] = [Node(engine=made, n=n)]
    return made


def doubled(scale):
    made = {"scale": scale}
    for _ in range(28):
        made = {"left": made, "right": made}
    return made


def left(made):
    while "left" in made:
        made = made["left"]
    return made["scale"]


CYCLES = {
    "tree": (tree, lambda root: root.children[3].parent.scale),
    "dict": (dict_of_itself, lambda made: made["again"][1]["more"]["self"]["scale"]),
    "engine": (engine_with_handlers, lambda made: made.handlers[2][0].engine.state.scale),
    "doubled": (doubled, left),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("kind", CYCLES)
def test_an_argument_that_holds_itself(kind, kept):
    """In whichever way around: each object counts once."""
    make, scale_of = CYCLES[kind]
    plain = lambda made, x: x * scale_of(made) + 1  # noqa: E731
    step, same = steptape.wrap(plain, verify={"first": True, "rate": 0.0}), make(1.0)
    for i in range(30):
        made = same if kept else make(1.0 + i if i > 15 else 1.0)
        assert torch.equal(step(made, *rows(i)), plain(made, *rows(i)))
    assert step.stats["replayed"] > 15, step.explain()


@arguments
def an_int_after_an_equal_member_of_an_int_enum():
    return argument(lambda x, m: x * 2 if isinstance(m, Mode) else x * 3, Mode.FIRST, 1)


@arguments
def an_equal_member_of_another_int_enum():
    return argument(lambda x, m: x * 2 if m.name == "FIRST" else x * 3, Mode.FIRST, OtherMode.LAST)


@arguments
def a_bool_after_an_equal_int():
    return argument(lambda x, m: x * 2 if isinstance(m, bool) else x * 3, 1, True)


@arguments
def a_float_of_numpy_after_an_equal_one():
    return argument(lambda x, w: x * 2 if isinstance(w, np.float64) else x * 3, 1.5, np.float64(1.5))


@arguments
def a_float_of_numpy_that_enters_the_result():
    return argument(lambda x, w: (x * 2, w * 2), 1.5, np.float64(1.5), begins=True)


@arguments
def a_float_of_numpy_that_is_the_result():
    return argument(lambda x, w: (x * 2, w), np.float64(1.5), np.float64(2.5), begins=True)


@arguments
def an_int_of_numpy_that_varies():
    return Training(lambda x, n: x * n, batch=lambda i, changed: rows(i) + (np.int64(3 if changed else 2),))


@arguments
def a_key_that_is_an_int_or_its_text():
    return argument(lambda x, b: x * 2 if 1 in b else x * 3, {1: None}, {"1": None})


@arguments
def a_key_that_reads_like_two():
    return argument(lambda x, b: x * len(b) * 2, {"a": None, "b": None}, {"a:Nb": None})


@arguments
def a_long_tuple_as_a_key():
    return argument(lambda x, b: x * 2 if (1, 2, 3, 4, 5) in b else x * 3, {(1, 2, 3, 4, 5): 0}, {(1, 2, 3, 4, 6): 0})


@arguments
def an_int_of_300_bits():
    return argument(lambda x, n: x * (n % 7), 10**90, 10**90 + 3)


@arguments
def an_ordered_dict_in_another_order():
    def batch(i, changed):
        inputs = collections.OrderedDict(a=rows(i)[0], b=rows(i)[0] * 2)
        if changed:
            inputs.move_to_end("a")
        return inputs,

    def step(inputs):
        total = 0
        for value in inputs.values():
            total = total * 0.5 + value
        return total

    return Training(step, batch=batch)


class OwnTuple(tuple):
    pass


def with_attribute(container, changed):
    container.scale = 3.0 if changed else 1.0
    return container,


@arguments
def a_dict_with_an_attribute():
    return Training(lambda d: d["x"] * d.scale, codes={"opaque_argument"},
                    batch=lambda i, changed: with_attribute(OwnDict(x=rows(i)[0]), changed))


@arguments
def a_tuple_with_an_attribute():
    return Training(lambda d: d[0] * d.scale, codes={"opaque_argument"},
                    batch=lambda i, changed: with_attribute(OwnTuple(rows(i)), changed))


@arguments
def a_default_dict_of_another_kind():
    def step(inputs):
        fresh = collections.defaultdict(inputs.default_factory)
        return inputs["x"] * 2 if isinstance(fresh["q"], float) else inputs["x"] * 3

    return Training(step, batch=lambda i, changed: (
        collections.defaultdict(int if changed else float, x=rows(i)[0]),))


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    weight: ClassVar[float] = 1.0

    def scaled(self):
        return self.x * GAIN

    def weighted(self):
        return self.x * self.weight


@arguments
def a_dataclass_whose_method_reads_a_global():
    return Training(lambda b: b.scaled(), each=gain, batch=lambda i, _: (Batch(*rows(i)),))


@arguments
def a_dataclass_whose_class_changes():
    return Training(lambda b: b.weighted(), each=lambda changed: setattr(Batch, "weight", 4.0 if changed else 1.0),
                    batch=lambda i, _: (Batch(*rows(i)),))


def criterion(x):
    return x * GAIN


@arguments
def a_function_that_reads_a_global():
    return Training(lambda x, f: f(x), each=gain, batch=lambda i, _: rows(i) + (criterion,))


def with_closure():
    weight = 1.0

    def function(x):
        return x * weight

    def set_weight(changed):
        nonlocal weight
        weight = 4.0 if changed else 1.0

    return function, set_weight


WITH_CLOSURE, SET_CLOSURE = with_closure()


@arguments
def a_function_with_a_closure():
    return Training(lambda x, f: f(x), each=SET_CLOSURE, batch=lambda i, _: rows(i) + (WITH_CLOSURE,))


@arguments
def a_function_with_a_closure_that_comes_after_none():
    return Training(lambda x, f: f(x) if f else x, each=SET_CLOSURE,
                    batch=lambda i, _: rows(i) + (WITH_CLOSURE if i else None,))


class Scaling:
    weight = 1.0

    def scaled(self, x):
        return x * self.weight


SCALED = Scaling().scaled


class Setting(enum.Enum):
    ONLY = 1


def weight_of(owner):
    return lambda changed: setattr(owner, "weight", 4.0 if changed else 1.0)


@arguments
def a_bound_method_of_an_object_that_changes():
    return Training(lambda x, f: f(x), each=weight_of(SCALED.__self__), batch=lambda i, _: rows(i) + (SCALED,))


@arguments
def a_class_that_changes():
    return Training(lambda x, c: x * c.weight, each=weight_of(Scaling), batch=lambda i, _: rows(i) + (Scaling,))


@arguments
def a_member_of_an_enum_that_changes():
    return Training(lambda x, e: x * e.weight, each=weight_of(Setting.ONLY),
                    batch=lambda i, _: rows(i) + (Setting.ONLY,))


class Number(float):
    pass


@arguments
def a_float_of_a_class_with_an_attribute():
    return Training(lambda x, w: x * w.scale, codes={"opaque_argument"},
                    batch=lambda i, changed: rows(i) + with_attribute(Number(1.0), changed))


class SlotsOfADict(dict):
    __slots__ = ("scale",)


@arguments
def a_dict_with_a_slot():
    return Training(lambda x, w: x * w.scale, codes={"opaque_argument"},
                    batch=lambda i, changed: rows(i) + with_attribute(SlotsOfADict(), changed))


@dataclasses.dataclass
class Listed(list):
    scale: float = 1.0


@arguments
def an_item_of_a_dataclass_that_is_a_list():
    def batch(i, changed):
        given = Listed()
        given.append(3.0 if changed else 1.0)
        return rows(i) + (given,)

    return Training(lambda x, given: x * given[0], batch=batch, codes={"opaque_argument"})


class WithSlot:
    __slots__ = ("scale", "__dict__")


@dataclasses.dataclass
class OverSlot(WithSlot):
    other: float = 1.0


@arguments
def a_slot_of_the_base_of_a_dataclass():
    return Training(lambda x, w: x * w.scale, codes={"opaque_argument"},
                    batch=lambda i, changed: rows(i) + with_attribute(OverSlot(), changed))


@dataclasses.dataclass
class Mapped(dict):
    scale: float = 1.0


@arguments
def an_attribute_of_a_dataclass_that_is_a_dict():
    return Training(lambda x, w: x * w.scale, codes={"opaque_argument"},
                    batch=lambda i, changed: rows(i) + (Mapped(3.0 if changed else 2.0),))


WEIGHT = TypeVar("WEIGHT")


@dataclasses.dataclass
class Weighted(Generic[WEIGHT]):
    weight: WEIGHT


@arguments
def a_generic_dataclass():
    return argument(lambda x, w: x * w.weight, Weighted(1.0), Weighted(4.0))


class Mirrored(dict):
    """Its entries are its attributes, as those of easydict and of Hugging Face's outputs are."""
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        setattr(self, key, value)


def mirrored(n):
    made = Mirrored()
    made["n"] = n
    return made


class Itself(dict):
    def __init__(self, **entries):
        super().__init__(**entries)
        self.__dict__ = self


@arguments
def an_attribute_that_is_an_entry():
    return Training(lambda x, given: x * 2 if given.n == 31 else x * 3, batch=lambda i, changed: rows(i) + (mirrored(i),),
                    matters=False)


@arguments
def an_attribute_that_is_an_entry_of_its_own_dict():
    return Training(lambda x, given: x * 2 if given.n == 31 else x * 3, batch=lambda i, changed: rows(i) + (Itself(n=i),),
                    matters=False)


def parted(changed):
    made = mirrored(1.0)
    if changed:
        made.__dict__["n"] = 4.0
    return made


@arguments
def an_attribute_that_is_the_entry_no_more():
    return Training(lambda x, given: x * given.n, batch=lambda i, changed: rows(i) + (parted(changed),))


@arguments
def a_dict_whose_attributes_are_itself():
    held = SimpleNamespace(c=Itself(lr=1.0))
    return Training(lambda x: x * held.c.lr, lambda: setattr(held, "c", Itself(lr=4.0)))


# what is given, which the program keeps as well: from call EDIT on it gives one like that, and changes the one it keeps
KEPT = {
    "item_of_a_dict": ({"scale": 1.0}, lambda kept: kept["scale"], lambda kept: kept.update(scale=4.0)),
    "found_in_a_dict": ({"scale": 1.0}, lambda kept: kept.get("scale"), lambda kept: kept.update(scale=4.0)),
    "values_of_a_dict": ({"scale": 1.0}, lambda kept: sum(kept.values()), lambda kept: kept.update(other=3.0)),
    "key_of_a_dict": ({"scale": 1.0}, lambda kept: 1.0 + ("scale" in kept), lambda kept: kept.clear()),
    "item_of_a_list": ([1.0, 2], lambda kept: kept[0], lambda kept: kept.__setitem__(0, 4.0)),
    "spread_list": ([1.0, 2], lambda kept: (lambda a, b: a * b)(*kept), lambda kept: kept.__setitem__(0, 4.0)),
    "length_of_a_list": ([1.0], lambda kept: len(kept) * 2.0, lambda kept: kept.append(4.0)),
    "list_in_a_tuple": (([1.0], 2), lambda kept: kept[0][0], lambda kept: kept[0].__setitem__(0, 4.0)),
    "dict_in_a_dict": ({"of": {"scale": 1.0}}, lambda kept: kept["of"]["scale"], lambda kept: kept["of"].update(scale=4.0)),
    "attribute": (SimpleNamespace(scale=1.0), lambda kept: kept.scale, lambda kept: setattr(kept, "scale", 4.0)),
    "got_attribute": (SimpleNamespace(scale=1.0), lambda kept: vars(kept)["scale"], lambda kept: setattr(kept, "scale", 4.0)),
    "field": (Weighted(1.0), lambda kept: kept.weight, lambda kept: setattr(kept, "weight", 4.0)),
}


def kept_as_well(read, given, change, reach):
    kept = SimpleNamespace(value=copy.deepcopy(given))

    def edit():
        kept.given = copy.deepcopy(kept.value)
        change(kept.value)

    return Training(lambda x, value: x * read(reach(kept, value)), edit,
                    batch=lambda i, changed: rows(i) + (getattr(kept, "given", kept.value),))


@pytest.mark.parametrize("way", KEPT)
def test_what_is_given_may_be_reached_in_another_way(way):
    given, read, change = KEPT[way]
    check(lambda: kept_as_well(read, given, change, lambda kept, value: kept.value))


@pytest.mark.parametrize("way", KEPT)
def test_what_is_given_may_be_reached_in_both_ways(way):
    given, read, change = KEPT[way]

    def read_both(both):
        return read(both[0]) * 10 + read(both[1])

    check(lambda: kept_as_well(read_both, given, change, lambda kept, value: (value, kept.value)))


@arguments
def what_a_cache_keeps_and_an_argument_is():
    @functools.lru_cache
    def settings():
        return {"scale": 1.0}

    kept = settings()
    return Training(lambda x, given: x * settings()["scale"], lambda: kept.update(scale=4.0),
                    batch=lambda i, changed: rows(i) + ({"scale": 1.0} if changed else kept,))


@arguments
def one_dict_that_is_given_twice_and_then_two():
    def batch(i, changed):
        one = {"scale": 2.0}
        return rows(i) + (one, {"scale": 4.0} if changed else one)

    return Training(lambda x, one, other: x * one["scale"] + other["scale"], batch=batch)


@arguments.each
def test_what_arguments_bring(case):
    check(case)


# Arguments that the step changes: from then on they are objects of the program's, like those of a closure.
changed = {}


def changes(replays=True, codes=()):
    """A case: `make()` gives the step, its arguments by call, and what is looked at."""
    def add(make):
        changed[make.__name__] = make, replays, set(codes)
        return make
    return add


def ones(i):
    return torch.ones(2) * i


class Shown:
    """What something shows by now, where a copy is looked at."""

    def __init__(self, look):
        self.look = look

    def __deepcopy__(self, memo):
        return self.look()


@changes()
def meter():
    held = {"n": 0, "sum": 0.0, "last": None}

    def step(x, held):
        loss = (x * 2).sum()
        held["n"] += 1
        held["sum"] += loss.item()
        held["last"] = loss.detach()
        return loss
    return step, lambda i: (ones(i), held), held


@changes()
def meter_of_each_epoch():
    all_of_them = {}

    def step(x, held):
        held["n"] += 1
        held["sum"] += x.sum().item()
        return x * held["n"]
    return step, lambda i: (ones(i), all_of_them.setdefault(i // 13, {"n": 0, "sum": 0.0})), all_of_them


@changes()
def lists_in_a_dict():
    held = {"losses": [], "counts": {"k": 0}}

    def step(x, *, history):
        history["losses"].append(x.sum().item())
        history["counts"]["k"] += 2
        return x * history["counts"]["k"]
    return lambda x, history: step(x, history=history), lambda i: (ones(i), held), held


@changes()
def hidden_state_of_a_namespace():
    held = SimpleNamespace(h=torch.zeros(2), n=0)

    def step(x, state):
        state.h, state.n = (x + state.h).detach() * 0.5, state.n + 1
        return x + state.h
    return step, lambda i: (ones(i), held), held


@dataclasses.dataclass
class Average:
    n: int = 0
    value: float = 0.0

    def update(self, by):
        self.n += 1
        self.value = 0.9 * self.value + 0.1 * by


@changes()
def method_of_a_dataclass():
    held = Average()

    def step(x, average):
        average.update(x.sum().item())
        return x * average.value
    return step, lambda i: (ones(i), held), held


@changes()
def merged_into_a_dict():
    held = {"scale": 1.0}

    def step(x, held):
        held |= {"loss": x.sum().item(), "kept": x * 2}
        return x * held["scale"]

    def arguments_of(i):
        if i == 20:
            held["scale"], held["loss"] = 3.0, None
        return ones(i), held
    return step, arguments_of, held


@changes()
def items_of_a_list():
    held = [0.0, 0]

    def step(x, held):
        held[0], held[1] = x.sum().item(), held[1] + 1
        return x * held[1]
    return step, lambda i: (ones(i), held), held


@changes()
def what_the_program_changes_too():
    """A number that the step reads, one that comes, and an entry that goes."""
    held = {"scale": 1.0, "n": 0}

    def step(x, held):
        held["n"] += 1
        return x * held["scale"] * (2 if held["n"] % 5 == 0 else 1) + held.get("more", 0)

    def arguments_of(i):
        if i == 20:
            held["scale"] = 3.0
        if i == 26:
            held["more"] = 7
        if i == 32:
            del held["more"]
        return ones(i), held
    return step, arguments_of, held


@changes()
def two_in_turn():
    held = [{"n": 0}, {"n": 10}]

    def step(x, held):
        held["n"] += 1
        return x * held["n"]
    return step, lambda i: (ones(i), held[i % 2]), held


@changes(codes=["host_effect"])
def met_in_a_closure_too():
    """And, from call 30 on, an equal one."""
    held, kept = {"n": 0, "k": 1.0}, []

    def step(x, given):
        given["n"] += 1
        return x * held["k"] + held["n"]

    def arguments_of(i):
        if i == 20:
            held["k"] = 2.0
        kept.append(held if i < 30 else dict(held))
        return ones(i), kept[-1]
    return step, arguments_of, kept


def another_each_time(make, change):
    kept = []

    def step(x, held):
        change(held, (x * 2).sum().item())
        return x + 1

    def arguments_of(i):
        kept.append(make(i))
        return ones(i), kept[-1]
    return step, arguments_of, kept


@changes(replays=False, codes=["host_effect"])
def another_in_each_call():
    def puts(held, value):
        held["out"] = value
    return another_each_time(lambda i: {"a": i}, puts)


@changes(replays=False, codes=["host_effect"])
def taken_from():
    held = list(range(100))

    def step(x, held):
        return x * held.pop()
    return step, lambda i: (ones(i), held), held


# What no guard of arguments can compare is such an object as well, unless it is another one in each call.
@changes()
def deque_of_losses():
    held = collections.deque(maxlen=5)

    def step(x, held):
        loss = x.sum()
        held.append(loss.item())
        return loss
    return step, lambda i: (ones(i), held), held


@changes()
def deque_of_each_epoch_in_a_dict():
    held = [collections.deque() for _ in range(4)]

    def step(x, given):
        given["losses"].append(x.sum().item())
        return x * 2
    return step, lambda i: (ones(i), {"losses": held[i // 13]}), held


@changes()
def deque_that_the_program_changes():
    held = collections.deque([1.0, 2.0])

    def step(x, held):
        return x * held[-1]

    def arguments_of(i):
        if i in (15, 28):
            held.append(float(i))
        return ones(i), held
    return step, arguments_of, held


@changes()
def one_deque_that_is_given_twice():
    held = [collections.deque(), collections.deque()]

    def step(x, a, b):
        a.append(x.sum().item())
        return x * (2 if a is b else 3)
    return step, lambda i: (ones(i), held[0], held[0 if i < 20 else 1]), held


class Slotted:
    __slots__ = ("n", "total", "scale")

    def __init__(self):
        self.n, self.total, self.scale = 0, 0.0, 1.0

    def __deepcopy__(self, memo):
        return [self.n, self.total, self.scale]


@changes()
def counts_in_slots():
    held = Slotted()

    def step(x, held):
        held.n += 1
        held.total += x.sum().item()
        return x * held.n * held.scale

    def arguments_of(i):
        if i == 20:
            held.scale = 0.5
        return ones(i), held
    return step, arguments_of, held


@changes()
def dict_with_attributes():
    held = OwnDict(n=0)
    held.scale = 1.0

    def step(x, held):
        held["n"] += 1
        return x * held["n"] * held.scale

    def arguments_of(i):
        if i == 20:
            held.scale = 0.5
        return ones(i), held
    return step, arguments_of, held


@changes()
def scheduler():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], 0.1)
    held = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)

    def step(x, scheduler):
        optimizer.zero_grad()
        loss = (weight * x).square().sum()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss
    return step, lambda i: (ones(i % 3) * 0.1, held), [weight, Shown(lambda: (held.last_epoch, held.get_last_lr()))]


@changes()
def schedulers_in_a_list():
    """One of a class of the program's, and exchanged once."""
    class Halves(torch.optim.lr_scheduler.LRScheduler):
        def get_lr(self):
            return [rate * 0.99 for rate in self.base_lrs]

    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], 0.1)
    held = [[kind(optimizer) for kind in (Halves, functools.partial(torch.optim.lr_scheduler.StepLR, step_size=3))] for _ in range(2)]

    def step(x, schedulers):
        optimizer.zero_grad()
        loss = (weight * x).square().sum()
        loss.backward()
        optimizer.step()
        for each in schedulers:
            each.step()
        return loss
    look = Shown(lambda: [(each.last_epoch, each.get_last_lr()) for both in held for each in both])
    return step, lambda i: (ones(i % 3) * 0.1, held[i // 20]), [weight, look]


@changes()
def scaler():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], 0.01)
    held = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=5)

    def step(x, scaler):
        optimizer.zero_grad()
        loss = (weight * x).square().sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss
    return step, lambda i: (ones(i % 3) * 0.1, held), [weight, Shown(held.state_dict)]


# Each call makes another method object: it is the function and its object that count.
class Counts:
    def __init__(self):
        self.n, self.scale = 0, 2.0

    def count(self, value):
        self.n += 1
        return value * self.scale

    def other(self, value):
        return value * 7.0


@changes()
def method_that_counts():
    """Its object changes, and is another one later."""
    held = [Counts(), Counts()]

    def step(x, count):
        return count(x)

    def arguments_of(i):
        if i == 14:
            held[0].scale = 3.0
        return ones(i), held[i // 22].count
    return step, arguments_of, held


@changes()
def method_that_is_another():
    held = Counts()
    return (lambda x, method: method(x)), lambda i: (ones(i), held.count if i < 20 else held.other), held


@changes()
def method_of_a_class_that_is_patched():
    class Own(Counts):
        pass

    held = Own()

    def arguments_of(i):
        if i == 20:
            Own.count = lambda self, value: value * 9.0
        return ones(i), held.count
    return (lambda x, method: method(x)), arguments_of, held


@changes()
def methods_of_containers():
    held = [[], collections.deque(maxlen=3)]

    def step(x, keep, log):
        keep(x.sum().item())
        log["append"](2.0)
        return x * 2
    return step, lambda i: (ones(i), held[0].append, {"append": held[1].append}), held


@changes()
def method_of_a_model():
    """Another one of it, and another model."""
    torch.manual_seed(0)
    models = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]

    def step(x, forward):
        with torch.no_grad():
            return forward(x)
    return step, lambda i: (ones(i), models[0].forward if i < 24 else models[0].__call__), [Shown(lambda: [p.tolist() for p in models[0].parameters()])]


@changes(replays=False, codes=["host_effect"])
def which_object_a_method_is():
    """An equal one from call 20 on."""
    held = Counts()
    kept = held.count
    return (lambda x, method: x * (2 if method is kept else 3)), lambda i: (ones(i), kept if i < 20 else held.count), held


@changes()
def whether_a_method_is_given():
    held = Counts()
    return (lambda x, method: x if method is None or method == held.other else method(x)), lambda i: (
        ones(i), held.count if i % 12 < 9 else None), held


@changes(codes=["opaque_argument"])
def method_of_another_object_in_each_call():
    kept = []

    def step(x, count):
        return count(x)

    def arguments_of(i):
        kept.append(Counts() if i >= 20 or not kept else kept[0])
        return ones(i), kept[-1].count
    return step, arguments_of, kept


@changes(replays=False, codes=["opaque_argument"])
def another_deque_in_each_call():
    return another_each_time(lambda i: collections.deque([i]), lambda held, value: held.append(value))


@changes(replays=False, codes=["host_effect"])
def iterator_that_is_given():
    held = iter(range(1000))

    def step(x, held):
        return x * next(held)
    return step, lambda i: (ones(i), held), []


@pytest.mark.parametrize("case", changed)
def test_an_argument_that_the_step_changes(case):
    make, replays, codes = changed[case]

    def play(wrap):
        step, arguments_of, held = make()
        taken, seen = wrap(step), []
        for i in range(40):
            seen.append((bits(taken(*arguments_of(i))), bits(copy.deepcopy(held))))
        return seen, taken
    step = played_alike(play)
    assert (step.stats["replayed"] > 12) == replays and codes_of(step) == codes, step.explain()


def test_another_changed_argument_is_said_in_words():
    function, arguments_of, held = meter()
    step = steptape.wrap(function, verify={"first": True, "rate": 0.0})
    for i in range(12):
        step(*arguments_of(i))
    assert step.stats["replayed"] > 3, step.explain()
    step(ones(1), copy.deepcopy(held))
    assert step.stats["last_verdict"] == "parts of the arguments: 2 → 5", step.explain()
    other = copy.deepcopy(held)
    for i in range(8):  # in turn, so that neither is another in each call
        step(ones(i), other)
        step(*arguments_of(i))
    assert "fell back" in step.explain() and "argument: the arguments are of another kind or structure" in step.explain()

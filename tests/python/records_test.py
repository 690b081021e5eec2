"""Records of numbers that a step puts in the place of the one before: the state of a training, of a schedule, of an average."""
import copy
import dataclasses
import random
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from twins import bits, played_alike

CALLS = 40


@dataclasses.dataclass
class Mutable:
    n: int = 0
    loss: float = 0.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int = 0
    loss: float = 0.0


class Pair(NamedTuple):
    n: int = 0
    loss: float = 0.0


class Plain:
    def __init__(self, n=0, loss=0.0):
        self.n, self.loss = n, loss

    def after(self, loss):
        return type(self)(self.n + 1, loss)

    def __len__(self):
        raise AssertionError("a guard has asked for the length")


def copied(state, loss):
    other = copy.copy(state)
    other.n, other.loss = other.n + 1, loss
    return other


RECORDS = {
    "dataclass": (Mutable, lambda state, loss: Mutable(state.n + 1, loss)),
    "replaced": (Mutable, lambda state, loss: dataclasses.replace(state, n=state.n + 1, loss=loss)),
    "frozen": (Frozen, lambda state, loss: Frozen(state.n + 1, 0.9 * state.loss + 0.1 * loss)),
    "frozen_replaced": (Frozen, lambda state, loss: dataclasses.replace(state, n=state.n + 1)),
    "named_tuple": (Pair, lambda state, loss: Pair(state.n + 1, loss)),
    "named_tuple_replaced": (Pair, lambda state, loss: state._replace(n=state.n + 1)),
    "plain": (Plain, lambda state, loss: state.after(loss)),
    "copied": (Plain, copied),
    "namespace": (SimpleNamespace, lambda state, loss: SimpleNamespace(n=state.n + 1, loss=loss)),
    "constant": (Mutable, lambda state, loss: Mutable(3, loss)),
}


class Attribute:
    def __init__(self, record):
        self.record = record

    def get(self):
        return self.record

    def set(self, record):
        self.record = record


class Module(torch.nn.Module, Attribute):
    def __init__(self, record):
        super().__init__()
        self.record = record


class Item(Attribute):
    def __init__(self, record):
        self.all = {"a": record}

    def get(self):
        return self.all["a"]

    def set(self, record):
        self.all["a"] = record


class Cell(Attribute):
    def __init__(self, record):
        def get():
            return record

        def put(other):
            nonlocal record
            record = other

        self.get, self.set = get, put


def values(record):
    if isinstance(record, tuple):
        return [type(record).__name__, *record]
    return [type(record).__name__, *sorted(vars(record).items())]


def started(kind, n=0, loss=0.0):
    return RECORDS[kind][0](n=n, loss=loss) if kind == "namespace" else RECORDS[kind][0](n, loss)


@pytest.mark.parametrize("place", [Attribute, Module, Item, Cell])
@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_takes_the_place_of_the_one_before(kind, place):
    def play(wrap):
        held, kept, seen = place(started(kind)), [], []

        def f(x):
            loss = x.mean()
            held.set(RECORDS[kind][1](held.get(), loss.item()))
            return x * (1 + held.get().n)

        step = wrap(f)
        for i in range(CALLS):
            if i in (20, 33):
                held.set(started(kind, i, 0.5))
            kept.append(held.get())
            seen.append(bits(step(torch.full((3,), 0.5 * i))))
            seen.append([values(each) for each in kept[-3:]])
        return [*seen, step]

    replayed = played_alike(play).stats["replayed"]
    # code of C's, which these are made by, reads the numbers
    assert replayed > 15 or kind in ("copied", "named_tuple_replaced", "namespace")


def run(seed, wrap):
    """A few places of records that the step replaces, changes, hands on or joins, and the program, too."""
    draw, late = random.Random(seed), random.Random(seed + 1)
    kinds = [draw.choice(list(RECORDS))] * 2
    held = [draw.choice([Attribute, Module, Item, Cell])(started(kind)) for kind in kinds]
    aliases = {"first": held[0].get()}
    acts = draw.sample(["replace", "replace", "swap", "alias", "count", "ask", "keep"], k=3)

    def f(x):
        factor = 1.0
        for act in acts:
            a, b = held[0].get(), held[1].get()
            if act == "replace":
                held[0].set(RECORDS[kinds[0]][1](a, x.mean().item()))
            elif act == "swap":
                held[0].set(b), held[1].set(a)
            elif act == "alias":
                factor += aliases["first"].n
            elif act == "count" and not isinstance(b, (tuple, Frozen)):
                b.n += 1
            elif act == "ask":
                factor += (RECORDS[kinds[0]][0] is not Pair and a is aliases["first"]) + (a == b)
            elif act == "keep":
                aliases["first"] = a
        return x * factor * (1 + held[0].get().n) * (1 + held[1].get().loss)

    step, seen = wrap(f), []
    for i in range(CALLS):
        if i > 12 and late.random() < 0.2:
            which = late.randrange(2)
            match late.randrange(4):
                case 0:
                    held[which].set(started(kinds[which], i, 1.0))
                case 1:
                    aliases["first"] = held[which].get()
                case 2:
                    held[1 - which].set(held[which].get())
                case 3 if not isinstance(held[which].get(), (tuple, Frozen)):
                    held[which].get().n += 2
        seen.append(bits(step(torch.full((2,), 1.0 + 0.25 * (i % 5)))))
        seen.append([values(record) for record in (held[0].get(), held[1].get(), aliases["first"])])
        if RECORDS[kinds[0]][0] is not Pair:  # which of equal tuples one is, no replay says
            seen.append([held[0].get() is held[1].get(), held[0].get() is aliases["first"]])
    return [*seen, step]


@pytest.mark.parametrize("seed", range(60))
def test_records_are_replaced_changed_and_joined(seed):
    played_alike(lambda wrap: run(seed, wrap))

"""Arguments of every kind that Python has: guarded by what they are, or refused by name."""
import collections
import dataclasses
import enum
import functools
import itertools
import operator
import threading
import types

import numpy as np
import pytest
import torch
import torch.nn as nn

import steptape
from classification import LATE, Plain, Training, batch, classifier
from twins import RECORDED, bits, compare, compare_through, is_as_pinned


class Unhashable:
    __hash__ = None

    def __init__(self, factor):
        self.factor = factor

    def __eq__(self, other):
        return self.factor == other.factor


class Slotted:
    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor


@dataclasses.dataclass
class Config:
    factor: float


@dataclasses.dataclass(frozen=True)
class FrozenConfig:
    factor: float


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


class Weight(enum.IntEnum):
    LIGHT = 1
    HEAVY = 2


Point = collections.namedtuple("Point", "a b")


ODD_ARGUMENTS = {  # name: (the argument for a whole number n in 1, 2, what the step makes of it)
    "set": (lambda n: {"a", n}, lambda v: len(v) + max(x for x in v if x != "a")),
    "frozenset": (lambda n: frozenset([n]), max),
    "range": (lambda n: range(n), len),
    "bytes": (lambda n: b"a" * n, len),
    "bytearray": (lambda n: bytearray(b"a" * n), len),
    "complex": (lambda n: complex(n, -1), lambda v: v.real),
    "slice": (lambda n: slice(0, n), lambda v: v.stop),
    "text": (lambda n: "a" * n, len),
    "large_int": (lambda n: 10 ** 30 + n, lambda v: v % 10),
    "negative_zero": (lambda n: -0.0 if n == 2 else 0.0, lambda v: float(np.copysign(1.0, v))),
    "not_a_number": (lambda n: float("nan") if n == 2 else 1.0, lambda v: 2.0 if v != v else v),
    "bool_and_int": (lambda n: True if n == 2 else 1, lambda v: 2 if v is True else 1),
    "int_and_float": (lambda n: 1.0 if n == 2 else 1, lambda v: 2 if type(v) is float else 1),
    "none": (lambda n: None if n == 2 else 1, lambda v: 2 if v is None else 1),
    "ellipsis": (lambda n: ... if n == 2 else 1, lambda v: 2 if v is ... else 1),
    "dtype": (lambda n: torch.float32 if n == 1 else torch.float64, lambda v: v.itemsize),
    "size": (lambda n: torch.Size([n, 3]), lambda v: v.numel()),
    "device": (lambda n: torch.device("cpu", 0) if n == 2 else torch.device("cpu"),
               lambda v: 1 if v.index is None else 2),
    "layout": (lambda n: torch.strided if n == 1 else torch.sparse_coo,
               lambda v: 1 if v is torch.strided else 2),
    "memory_format": (lambda n: torch.channels_last if n == 2 else torch.contiguous_format,
                      lambda v: 2 if v is torch.channels_last else 1),
    "numpy_array": (lambda n: np.arange(3.0) * n, lambda v: float(v.sum())),
    "numpy_scalar": (lambda n: np.float64(n), float),
    "numpy_int": (lambda n: np.int64(n), int),
    "numpy_dtype": (lambda n: np.dtype("f4" if n == 1 else "f8"), lambda v: v.itemsize),
    "object": (Plain, lambda v: v.factor),
    "unhashable_object": (Unhashable, lambda v: v.factor),
    "slotted_object": (Slotted, lambda v: v.factor),
    "dataclass": (Config, lambda v: v.factor),
    "frozen_dataclass": (FrozenConfig, lambda v: v.factor),
    "namespace": (lambda n: types.SimpleNamespace(factor=n), lambda v: v.factor),
    "enum": (Size, lambda v: v.value),
    "int_enum": (Weight, lambda v: v * 1.0),
    "named_tuple": (lambda n: Point(n, 1), lambda v: v.a),
    "class": (lambda n: int if n == 1 else float, lambda v: 1 if v is int else 2),
    "function": (lambda n: lambda x: x * n, lambda v: v(1.0)),
    "partial": (lambda n: functools.partial(operator.mul, n), lambda v: v(1.0)),
    "module": (lambda n: types.ModuleType("a" * n), lambda v: len(v.__name__)),
    "generator": (lambda n: (k for k in range(n)), lambda v: sum(1 for _ in v)),
    "iterator": (lambda n: iter([n, n]), next),
    "map": (lambda n: map(float, [n]), lambda v: next(v)),
    "dict_view": (lambda n: {n: 1}.keys(), lambda v: next(iter(v))),
    "ordered_dict": (lambda n: collections.OrderedDict(a=n), lambda v: v["a"]),
    "counter": (lambda n: collections.Counter(a=n), lambda v: v["a"]),
    "deque": (lambda n: collections.deque([n], maxlen=3), lambda v: v[-1]),
    "default_dict": (lambda n: collections.defaultdict(lambda: n), lambda v: v.get("a", 1)),
    "dict_of_numbers": (lambda n: {n: "a"}, lambda v: next(iter(v))),
    "order_of_a_dict": (lambda n: dict(sorted({"a": 1, "b": 2}.items(), reverse=n == 2)),
                        lambda v: next(iter(v.values()))),
    "empty_containers": (lambda n: ([], (), {}) if n == 1 else ([[]], (), {}),
                         lambda v: len(v[0]) + 1),
    "generator_of_torch": (lambda n: torch.Generator().manual_seed(n),
                           lambda v: v.initial_seed()),
    "lock": (lambda n: threading.Lock() if n == 1 else threading.RLock(),
             lambda v: 1 if isinstance(v, type(threading.Lock())) else 2),
}


def odd_number(i):
    return 1 + (i >= 8) * (i % 3 != 0)


OUTCOMES = dict.fromkeys(("bytearray", "slotted_object", "partial", "generator", "iterator", "map",
                          "dict_view", "deque"), "opaque_argument") | dict.fromkeys(
    ("complex", "function", "module", "default_dict"), RECORDED) | {"numpy_array": "host_read", "generator_of_torch": "host_effect"}


@pytest.mark.parametrize("make_value, use", ODD_ARGUMENTS.values(), ids=ODD_ARGUMENTS)
def test_an_odd_argument_is_guarded_or_refused(make_value, use, request):
    """A new object in each call; its value changes from call 8 on."""
    def through(step):
        return lambda x, y, n: step(x, y, make_value(n))

    def make():
        train, model, optimizer = classifier()

        def step(x, y, odd):
            return train(x * use(odd), y)
        return Training(step, (model, optimizer), lambda i: (*batch(i), odd_number(i)))

    is_as_pinned(compare_through(make, through), OUTCOMES.get(request.node.callspec.id))


LATE_OUTCOMES = {"array": "host_read"}


@pytest.mark.parametrize("make_value, use, change", [
    (lambda: [1.0], lambda v: v[0], lambda v: v.__setitem__(0, 0.5)),
    (lambda: {"a": 1.0}, lambda v: v["a"], lambda v: v.update(a=0.5)),
    (lambda: {1}, lambda v: len(v), lambda v: v.add(2)),
    (lambda: np.ones(3), lambda v: float(v[0]), lambda v: v.__setitem__(0, 0.5)),
    (lambda: bytearray(b"a"), lambda v: len(v), lambda v: v.append(1)),
    (lambda: Plain(1.0), lambda v: v.factor, lambda v: setattr(v, "factor", 0.5)),
    (lambda: Slotted(1.0), lambda v: v.factor, lambda v: setattr(v, "factor", 0.5)),
    (lambda: Config(1.0), lambda v: v.factor, lambda v: setattr(v, "factor", 0.5)),
    (lambda: types.SimpleNamespace(factor=1.0), lambda v: v.factor,
     lambda v: setattr(v, "factor", 0.5)),
    (lambda: types.SimpleNamespace(inner=Slotted([1.0])), lambda v: v.inner.factor[0],
     lambda v: v.inner.factor.__setitem__(0, 0.5)),
], ids=["list", "dict", "set", "array", "bytearray", "object", "slotted", "dataclass", "namespace",
        "nested"])
def test_the_same_argument_changes_inside(make_value, use, change, request):
    """Handed again and again, and changed in place once: identity alone would not see it."""
    def through(step):
        odd, calls = make_value(), itertools.count()

        def call(x, y):
            if next(calls) == LATE:
                change(odd)
            return step(x, y, odd)
        return call

    def make():
        train, model, optimizer = classifier()

        def step(x, y, odd):
            return train(x * use(odd), y)
        return Training(step, (model, optimizer))

    is_as_pinned(compare_through(make, through), LATE_OUTCOMES.get(request.node.callspec.id))


def test_a_step_changes_its_argument():
    def make():
        train, model, optimizer = classifier()

        def step(x, y, log):
            log.append(len(log))
            return train(x, y)
        log = []
        return Training(step, (model, optimizer), lambda i: (*batch(i), log))

    compare(make, share=0.9)


def test_an_argument_that_carries_a_graph_is_refused():
    def make():
        encoder = nn.Linear(6, 6)
        train, model, optimizer = classifier()

        def arguments(i):
            x, y = batch(i)
            encoder.zero_grad()
            return encoder(x), y
        return Training(train, (model, optimizer, encoder), arguments)

    compare(make, codes={"unconsumed_graph"})


def test_an_argument_that_contains_itself():
    """Taken eagerly or answered by an error; nothing runs for ever or out of stack."""
    cycle = [1.0]
    cycle.append(cycle)
    step = steptape.wrap(lambda x, structure: x * structure[0])
    for i in range(12):
        x, _ = batch(i)
        try:
            result = step(x, cycle)
        except steptape.InvalidArgument as error:
            assert str(error)
        else:
            assert bits(result) == bits(x)

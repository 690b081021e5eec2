"""What arguments bring: equal values of other kinds, containers with attributes, functions, objects and classes."""
import collections
import dataclasses
import enum
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import torch

import twins
from reached import OwnDict, Table, Training, check, global_setter, rows

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
    return argument(lambda x, w: (x * 2, w), np.float64(1.5), np.float64(2.5), codes={"host_effect"})


@arguments
def an_int_of_numpy_that_varies():
    return Training(lambda x, n: x * n, batch=lambda i, changed: rows(i) + (np.int64(i if changed else 2),),
                    codes={"opaque_argument"})


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


@arguments.each
def test_what_arguments_bring(case):
    check(case)

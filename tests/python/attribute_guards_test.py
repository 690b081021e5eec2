"""Guards of the attributes of modules and of a program's own objects."""
import functools
import math
import types

import numpy as np
import pytest
import torch
import torch.nn as nn

import twins
from classification import Program
from guarded import EDIT, STEPS, Inner, Kind, check, classifier, named


def set_attributes(**values):
    def edit(program):
        for name, value in values.items():
            setattr(program.model, name, value)
    return edit


ATTRIBUTE_EDITS = {
    "dropout_p": lambda p: setattr(p.model.body[3], "p", 0.5),
    "layer_norm_eps": lambda p: setattr(p.model.body[4], "eps", 0.5),
    "batch_norm_momentum": lambda p: setattr(p.model.body[1], "momentum", 0.5),
    "batch_norm_momentum_none": lambda p: setattr(p.model.body[1], "momentum", None),
    "batch_norm_eps": lambda p: setattr(p.model.body[1], "eps", 0.5),
    "float": set_attributes(scale=0.5),
    "float_becomes_a_numpy_float": set_attributes(scale=np.float64(0.5)),
    "float_becomes_a_tensor": set_attributes(scale=torch.tensor(0.5)),
    "int": set_attributes(rounds=3),
    "str": set_attributes(mode="strong"),
    "bool": set_attributes(doubled=True),
    "none": set_attributes(clip=0.1),
    "tuple": set_attributes(window=(0.5, 0.5)),
    "list": set_attributes(levels=[0.5, 0.25]),
    "item_of_a_list": lambda p: p.model.levels.__setitem__(0, 0.5),
    "list_appended": lambda p: p.model.levels.append(0.5),
    "dict": set_attributes(table={"gain": 0.5}),
    "entry_of_a_dict": lambda p: p.model.table.update(gain=0.5),
    "namespace": lambda p: setattr(p.model.config, "gain", 0.5),
    "dataclass_inside": lambda p: setattr(p.model.config.inner, "temperature", 0.5),
    "namespace_replaced": set_attributes(
        config=types.SimpleNamespace(gain=0.5, inner=Inner(temperature=2.0))),
    "enum": set_attributes(kind=Kind.STRONG),
    "attribute_of_the_class": lambda p: setattr(type(p.model), "gain", 0.5),
    "shadow_of_the_class": set_attributes(gain=0.5),
    "behind_a_property": set_attributes(_sharpness=0.5),
}


@named(ATTRIBUTE_EDITS)
def test_a_plain_attribute_changes(case):
    # Without a momentum BatchNorm averages by float(num_batches_tracked), which no number can follow.
    check(classifier, case)


def test_an_attribute_that_shadows_its_class_is_deleted():
    check(functools.partial(classifier, prepare=set_attributes(gain=0.5)),
          lambda p: delattr(p.model, "gain"))


def test_an_attribute_alternates_between_two_values():
    turns = range(6, STEPS, 6)
    check(classifier, {i: set_attributes(scale=0.5 if i % 12 else 1.0) for i in turns})


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = 1.0

    def forward(self, x):
        return self.linear(x) * self.scale

    def store(self, value):
        self.scale = value


class Knob:
    """A plain object of the program's."""

    def __init__(self):
        self.scale = 1.0

    def store(self, value):
        self.scale = value


STORES = {
    "statement": lambda o, v: o.store(v),
    "setattr": lambda o, v: setattr(o, "scale", v),
    "object_setattr": lambda o, v: object.__setattr__(o, "scale", v),
    "item_of_dict": lambda o, v: vars(o).__setitem__("scale", v),
    "update": lambda o, v: vars(o).update(scale=v),
    "union": lambda o, v: vars(o).__ior__({"scale": v}),
    "pop_and_set_default": lambda o, v: (vars(o).pop("scale"), vars(o).setdefault("scale", v)),
    "delete_and_store": lambda o, v: (delattr(o, "scale"), o.store(v)),
    "another_dict": lambda o, v: setattr(o, "__dict__", {**vars(o), "scale": v}),
}


@pytest.mark.parametrize("kind", [Scaled, Knob])
@named(STORES)
def test_each_way_to_store_an_attribute_is_noticed(case, kind):
    """Also when Python has made the instruction a special one, as it does when it has run often."""
    other = kind()
    for i in range(2000):
        case(other, float(i))

    def make():
        model, held = Scaled(), kind()
        if kind is Scaled:
            held = model

        def step(x):
            return (model(x) * held.scale).sum().detach()

        made = Program(step=step, model=model, held=held, holds=lambda: [model],
                       batch=lambda i: (torch.ones(2, 4),))
        made.after = lambda i: case(held, float(i // 7)) if i % 7 == 6 else None
        return made

    step = twins.compare(make, 60)
    assert step.stats["replayed"] > 10, step.explain()


def test_an_attribute_nobody_reads_changes_once():
    check(classifier, set_attributes(note="second half"), matters=False)


def test_minus_zero_is_not_zero():
    def prepare(program):
        program.model.scale = 0.0
        program.model.shaped = lambda x: x * (1 + math.copysign(0.5, program.model.scale))

    check(functools.partial(classifier, prepare=prepare), set_attributes(scale=-0.0))


def test_one_and_true_and_one_point_zero_are_three_values():
    def prepare(program):
        program.model.scale = 1
        program.model.shaped = lambda x: x * len(repr(program.model.scale))

    check(functools.partial(classifier, prepare=prepare), {
        EDIT: set_attributes(scale=1.0), EDIT + 10: set_attributes(scale=True)})


def test_a_not_a_number_is_equal_to_itself():
    def prepare(program):
        program.model.scale = float("nan")
        program.model.shaped = lambda x: x if program.model.scale != program.model.scale else x * 2

    check(functools.partial(classifier, prepare=prepare),
          {"each": lambda p: setattr(p.model, "scale", float("nan"))}, matters=False)


EQUAL_VALUES = {
    "float": lambda: {"scale": float("1.0")},
    "int": lambda: {"rounds": int("1")},
    "str": lambda: {"mode": "".join(["pl", "ain"])},
    "tuple": lambda: {"window": tuple([1.0, 0.5])},
    "list": lambda: {"levels": [1.0, 0.5]},
    "dict": lambda: {"table": {"gain": 1.0}},
    "namespace": lambda: {"config": types.SimpleNamespace(gain=1.0, inner=Inner())},
}


@named(EQUAL_VALUES)
def test_an_equal_value_of_another_identity_replays(case):
    step = check(classifier, {"each": lambda p: set_attributes(**case())(p)}, matters=False)
    assert len(step.stats["variants"]) <= 1, step.explain()


def test_an_item_that_is_another_number_in_every_call_is_followed():
    def next_level(program):
        program.model.levels[0] *= 0.99

    check(classifier, {"each": next_level}, begins=False, share=0.5)

"""What a step reaches on the host may change at any time, wherever it is kept and however it is read.

Each case trains two twins, changes one thing in both once the wrapped one replays, and compares every bit, the kinds
of all results and what is the same object as what. A third twin, which is left alone, shows that the change matters.
"""
import collections
import contextlib
import dataclasses
import enum
import functools
import math
import sys
import types
import warnings
import weakref
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import steptape
import twins

STEPS = 45
EDIT = 20  # the call before which the one thing changes; the step replays long before it
SOON = 8  # calls after which a step replays again, where nothing changes any more


def rows(i, changed=False):
    return torch.full((3,), i % 7 + 0.5),


class Training:
    """A step, and what its program does between the calls.

    edit:    () -> None, called once before call EDIT, or {call: such a function}
    each:    (changed) -> None, called before each call: sets what both twins share
    around:  (changed) -> context manager, entered around each call
    batch:   (i, changed) -> arguments
    after:   (i) -> None, called behind each call
    codes:   of these refusals at least one is met
    begins:  whether the step replays before it is edited; by default where no refusal is expected
    matters: whether a twin that is left alone comes to other results
    """

    left_alone = False

    def __init__(self, step, edit=None, *, each=None, around=None, batch=rows, after=None, holds=list, codes=None,
                 begins=None, matters=None):
        self.step, self.each, self.around, self.given, self.holds, self.codes = step, each, around, batch, holds, codes
        self.edits = edit if isinstance(edit, dict) else {EDIT: edit} if edit else {}
        self.behind = after
        self.begins = codes is None if begins is None else begins
        varies = self.edits or each or around or after or batch is not rows
        self.matters = bool(varies) if matters is None else matters
        self.stack = contextlib.ExitStack()
        self.kinds, self.outcomes, self.replays = [], [], []

    def batch(self, i):
        changed = i >= EDIT and not self.left_alone
        if self.each:
            self.each(changed)
        if i in self.edits and not self.left_alone:
            self.edits[i]()
        arguments = self.given(i, changed)
        if self.around:
            self.stack.enter_context(self.around(changed))
        return arguments

    def after(self, i):
        self.stack.close()
        if self.behind and not self.left_alone:
            self.behind(i)

    def watched(self, function, replays=lambda: 0):
        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            self.kinds.append(kinds([result, args, kwargs, self.holds()]))
            self.outcomes.append([twins.bits([result, self.holds()]), kinds(result)])
            self.replays.append(replays())
            return result

        return call

    def has_begun(self, explain):
        """It replayed before the first edit, and before each that gives it the time to."""
        calls = sorted(self.edits) or ([EDIT] if self.each or self.around or self.given is not rows else [])
        since = 0
        for call in calls:
            if call - since >= SOON:
                count = self.replays[since - 1] if since else 0
                assert self.replays[call - 1] > count, f"no replay between calls {since} and {call}\n{explain()}"
            since = call
        assert self.replays[-1] > 0, explain()


def kinds(value, seen=None):
    """The types of nested values; a list, a dict or a tensor that was met before is given by its number."""
    seen = {} if seen is None else seen
    if isinstance(value, (list, dict, torch.Tensor)):
        if id(value) in seen:
            return "same as", seen[id(value)]
        seen[id(value)] = len(seen)
    name = type(value).__name__
    if isinstance(value, dict):
        return name, [(type(k).__name__, kinds(v, seen)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return name, [kinds(v, seen) for v in value]
    return name


def check(make):
    trainings = []

    def twin():
        training = make()
        trainings.append(training)
        if len(trainings) == 1:
            training.step = training.watched(training.step)
        return training

    def wrap(training, options):
        step = steptape.wrap(training.step, **options)
        return twins.Program(training.watched(step, lambda: step.stats["replayed"]), step)

    try:
        step = twins.compare(twin, STEPS, wrapper=wrap, codes=make().codes)
        eager, wrapped = trainings
        for i, (one, other) in enumerate(zip(eager.kinds, wrapped.kinds)):
            assert one == other, f"call {i}\n{step.explain()}"
        if wrapped.begins:
            wrapped.has_begun(step.explain)
        if wrapped.matters:
            with twins.Randomness():
                alone = make()
                trainings.append(alone)
                alone.left_alone = True
                function = alone.watched(alone.step)
                for i in range(STEPS):
                    twins.call(function, alone.batch(i))
                    alone.after(i)
            assert alone.outcomes != eager.outcomes
    finally:
        for training in trainings:
            training.stack.close()
            if training.each:
                training.each(False)


class Table(dict):
    """Cases by name."""

    def __call__(self, case):
        assert case.__name__ not in self
        self[case.__name__] = case
        return case

    def each(self, test):
        return pytest.mark.parametrize("case", self.values(), ids=self.keys())(test)


class Value:
    def __init__(self, value=1.0):
        self.value = value


def regression(optimize=functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)):
    model = nn.Linear(3, 3)
    optimizer = optimize(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = (model(x / 10)).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, optimizer, step


GAIN = 1.0


def gain(changed):
    global GAIN
    GAIN = 4.0 if changed else 1.0


late = Table()


@late
def an_object_is_replaced_and_the_new_one_changes():
    held = SimpleNamespace(state=Value())
    return Training(lambda x: x * held.state.value, {
        EDIT: lambda: setattr(held, "state", Value()), 32: lambda: setattr(held.state, "value", 5.0)})


@late
def two_objects_take_turns_and_one_changes_meanwhile():
    one, other = Value(1.0), Value(2.0)
    held = SimpleNamespace(state=one)

    def changed_and_back():
        other.value = 7.0
        held.state = other

    return Training(lambda x: x * held.state.value, {
        15: lambda: setattr(held, "state", other), 24: lambda: setattr(held, "state", one), 33: changed_and_back})


@late
def an_object_of_a_list_is_replaced():
    buffer = [Value(1.0) for _ in range(4)]

    def replaced():
        buffer[0] = Value(0.5)

    return Training(lambda x: x * sum(v.value for v in buffer), {
        EDIT: replaced, 32: lambda: setattr(buffer[0], "value", 3.0)})


@late
def a_counter_comes_late():
    held = SimpleNamespace(counter=None)

    def step(x):
        if held.counter is not None:
            held.counter.value += 1
        return x * 2

    return Training(step, lambda: setattr(held, "counter", Value(0)), begins=True, codes={"host_effect"},
                    holds=lambda: [held.counter and held.counter.value])


@late
def a_counter_is_made_in_the_first_call():
    class Net(nn.Module):
        def forward(self, x):
            if not hasattr(self, "counter"):
                self.counter = Value(0)
            self.counter.value += 1
            return x * 2

    net = Net()
    return Training(lambda x: net(x), holds=lambda: [net.counter.value], codes={"host_effect"})


@late
def an_optimizer_is_made_in_the_first_call():
    model = nn.Linear(3, 3)
    held = SimpleNamespace(optimizer=None)

    def step(x):
        if held.optimizer is None:
            held.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = model(x).pow(2).mean()
        loss.backward()
        held.optimizer.step()
        held.optimizer.zero_grad()
        return loss.detach()

    return Training(step, lambda: held.optimizer.param_groups[0].update(lr=0.05), holds=lambda: [model])


def optimizer_replaced(optimize):
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    def replaced():
        nonlocal optimizer
        optimizer = optimize(model.parameters(), lr=0.1)

    def slower(by):
        return lambda: optimizer.param_groups[0].update(lr=0.1 / by)

    return Training(step, {15: replaced, 28: slower(2), 29: slower(3), 30: slower(4), 40: slower(5)},
                    holds=lambda: [model, optimizer])


@late
def an_optimizer_is_replaced_by_one_of_its_class():
    return optimizer_replaced(torch.optim.SGD)


@late
def an_optimizer_is_replaced_by_one_of_another_class():
    return optimizer_replaced(torch.optim.Adam)


@late
def a_model_is_replaced_and_goes_to_evaluation():
    def build():
        return nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))

    model = build()

    def replaced():
        nonlocal model
        model = build()

    return Training(lambda x: model(x).detach(), {15: replaced, 30: lambda: model.eval()}, holds=lambda: [model])


class Adapter(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x):
        return self.base(x) * GAIN


@late
def a_module_whose_class_reads_a_global_comes_late():
    model = nn.Sequential(nn.Linear(3, 3))

    def adapted():
        model[0] = Adapter(model[0])

    return Training(lambda x: model(x).detach(), {EDIT: adapted, 32: lambda: gain(True), 40: lambda: gain(False)},
                    holds=lambda: [model], each=lambda changed: None if changed else gain(False))


@late
def a_hook_with_a_closure_comes_late():
    model = nn.Sequential(nn.Linear(3, 3))
    factor = 1.0

    def hook(module, args, out):
        return out * factor

    def stronger():
        nonlocal factor
        factor = 4.0

    return Training(lambda x: model(x).detach(), {15: lambda: model.register_forward_hook(hook), 30: stronger})


@late
def a_helper_is_replaced_by_one_with_state_of_its_own():
    def scaled(by):
        state = SimpleNamespace(by=by)

        def helper(x):
            return x * state.by

        helper.state = state
        return helper

    helper = scaled(1.0)

    def replaced():
        nonlocal helper
        helper = scaled(2.0)

    return Training(lambda x: helper(x), {15: replaced, 30: lambda: setattr(helper.state, "by", 5.0)})


@late
def a_function_of_a_dict_is_replaced_by_one_with_a_closure():
    weight = [1.0]
    losses = {"a": lambda x: x}
    return Training(lambda x: losses["a"](x), {
        15: lambda: losses.update(a=lambda x: x * weight[0]), 30: lambda: weight.__setitem__(0, 5.0)})


@late
def the_forward_of_an_instance_is_patched_and_its_closure_changes():
    model = nn.Linear(3, 3)
    weight = [1.0]

    def patched():
        forward = model.forward
        model.forward = lambda x: forward(x) * weight[0]

    return Training(lambda x: model(x).detach(), {15: patched, 30: lambda: weight.__setitem__(0, 5.0)})


@late
def a_parametrization_comes_late_and_reads_an_object():
    class Scaled(nn.Module):
        def __init__(self, by):
            super().__init__()
            self.by = by

        def forward(self, weight):
            return weight * self.by.value

    by = Value(1.0)
    model = nn.Linear(3, 3)
    return Training(lambda x: model(x).detach(), {
        15: lambda: nn.utils.parametrize.register_parametrization(model, "weight", Scaled(by)),
        30: lambda: setattr(by, "value", 5.0)})


@late
def a_function_gets_an_attribute_that_it_reads_with_a_default():
    def helper(x):
        return x * getattr(helper, "scale", 1.0)

    return Training(lambda x: helper(x), lambda: setattr(helper, "scale", 4.0))


@late
def a_function_gets_an_attribute_that_it_asks_for():
    def helper(x):
        return x * helper.scale if hasattr(helper, "scale") else x

    return Training(lambda x: helper(x), lambda: setattr(helper, "scale", 4.0))


@late
def an_object_with_a_tensor_is_replaced_and_the_tensor_too():
    held = SimpleNamespace(state=Value(torch.ones(3)))
    kept = []

    def another_tensor():
        kept.append(held.state.value)
        held.state.value = torch.full((3,), 4.0)

    return Training(lambda x: x * held.state.value, {
        15: lambda: setattr(held, "state", Value(torch.ones(3))), 28: another_tensor})


def scheduled(starts):
    """The warnings that a scheduler gives where it finds that its optimizer made no step count as results."""
    model, optimizer, step = regression()
    said, schedulers = [], []

    def after(i):
        if starts(i):
            schedulers[:] = [torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)]
        if schedulers:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                schedulers[0].step()
            said.extend(str(w.message)[:40] for w in caught)

    return Training(step, after=after, holds=lambda: [model, optimizer, said, getattr(optimizer, "_opt_called", None)])


@late
def a_scheduler_comes_late():
    return scheduled(lambda i: i == EDIT)


@late
def a_scheduler_is_made_anew_again_and_again():
    return scheduled(lambda i: i % 12 == 2)


@late
def a_number_behind_4500_places():
    class Wide:
        def __init__(self):
            self.a = self.b = self.c = self.d = self.e = 1.0

    a_buffer = [Wide() for _ in range(900)]
    z_gain = 1.0

    def stronger():
        nonlocal z_gain
        z_gain = 4.0

    return Training(lambda x: x * z_gain * a_buffer[3].a, stronger)


@late.each
def test_what_comes_late(case):
    check(case)


effects = Table()


def deletes_its_flag(held):
    def step(x):
        del held.flag
        return x * 2

    return Training(step, each=lambda _: setattr(held, "flag", 3), holds=lambda: [sorted(vars(held))],
                    codes={"host_effect"}, matters=False)


@effects
def an_attribute_is_deleted():
    return deletes_its_flag(SimpleNamespace())


@effects
def an_attribute_of_a_module_is_deleted():
    return deletes_its_flag(nn.Linear(1, 1))


@effects
def a_key_is_popped():
    table = {"a": 1}

    def step(x):
        table.pop("flag", None)
        return x * 2

    return Training(step, each=lambda _: table.update(flag=3), holds=lambda: [dict(table)], codes={"host_effect"},
                    matters=False)


DELETED = 0


@effects
def a_global_is_deleted():
    def step(x):
        global DELETED
        del DELETED
        return x * 2

    def given(_):
        global DELETED
        DELETED = 3

    return Training(step, each=given, holds=lambda: ["DELETED" in globals()], codes={"host_effect"}, matters=False)


@effects
def a_variable_of_a_closure_is_deleted():
    cell = 3

    def step(x):
        nonlocal cell
        del cell
        return x * 2

    def given(_):
        nonlocal cell
        cell = 3

    def holds():
        try:
            return [cell]
        except NameError:
            return ["deleted"]

    return Training(step, each=given, holds=holds, codes={"host_effect"}, matters=False)


def of_a_dict(change):
    table = {}

    def step(x):
        change(table)
        return x * 2

    def given(_):
        table.clear()
        table.update(a=1, b=2)

    return Training(step, each=given, holds=lambda: [dict(table)], matters=False, codes={"host_effect"})


@effects
def two_keys_are_set():
    return of_a_dict(lambda table: table.update(a=5, b=6))


@effects
def a_key_is_set_and_another_comes():
    def change(table):
        table["a"] = 5
        table["new"] = 1

    return of_a_dict(change)


@effects
def a_key_goes_behind_another():
    def change(table):
        table.pop("a")
        table["a"] = 5

    return of_a_dict(change)


@effects
def two_items_of_a_list_are_set():
    items = [1, 2]

    def step(x):
        items[0] = 5
        items[1] = 6
        return x * 2

    return Training(step, each=lambda _: items.__setitem__(slice(None), [1, 2]), holds=lambda: [list(items)],
                    codes={"host_effect"}, matters=False)


def of_an_object(before, step):
    held = SimpleNamespace(**before)
    return Training(lambda x: step(held, x), each=lambda _: vars(held).update(before), holds=lambda: [dict(vars(held))],
                    codes={"host_effect"}, matters=False)


@effects
def a_bool_takes_the_place_of_an_equal_int():
    def step(held, x):
        held.value = True
        return x * 2

    return of_an_object({"value": 1}, step)


@effects
def two_attributes_are_set():
    def step(held, x):
        held.one = 1
        held.other = 2
        return x * 2

    return of_an_object({"one": 0, "other": 0}, step)


@effects
def an_attribute_is_set_to_an_object():
    held, other = SimpleNamespace(value=None), SimpleNamespace(inner=1)

    def step(x):
        held.value = other
        return x * 2

    return Training(step, each=lambda _: setattr(held, "value", None), holds=lambda: [held.value is other],
                    codes={"host_effect"}, matters=False)


@effects
def two_lists_change_places():
    held = SimpleNamespace(one=[1], other=[2])

    def step(x):
        held.one, held.other = held.other, held.one
        return x * held.one[0]

    return Training(step, holds=lambda: [held.one, held.other], codes={"host_effect"})


@effects
def an_argument_list_grows():
    def step(x, items):
        items.append(1)
        return x * 2

    return Training(step, batch=lambda i, _: rows(i) + ([],), codes={"host_effect"}, matters=False)


@effects
def a_list_in_an_argument_grows():
    def step(inputs):
        inputs["items"].append(3)
        return inputs["x"] * 2

    return Training(step, batch=lambda i, _: ({"x": rows(i)[0], "items": [1]},), codes={"host_effect"}, matters=False)


@effects
def the_labels_are_popped_from_an_argument():
    model = nn.Linear(3, 3)

    def step(inputs):
        labels = inputs.pop("labels")
        return F.mse_loss(model(inputs["x"]), labels).detach()

    return Training(step, batch=lambda i, _: ({"x": rows(i)[0], "labels": rows(i + 1)[0]},), codes={"host_effect"},
                    matters=False)


@effects
def a_key_of_an_argument_is_renamed():
    def step(inputs):
        inputs["renamed"] = inputs.pop("x")
        return inputs["renamed"] * 2

    return Training(step, batch=lambda i, _: ({"x": rows(i)[0], "y": 1},), codes={"host_effect"}, matters=False)


@effects
def an_argument_dict_gets_a_tensor():
    def step(inputs):
        inputs["z"] = inputs["x"] * 2
        return inputs["x"]

    return Training(step, batch=lambda i, _: ({"x": rows(i)[0]},), codes={"host_effect", "escaped_buffer"},
                    matters=False)


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    weight: ClassVar[float] = 1.0

    def scaled(self):
        return self.x * GAIN

    def weighted(self):
        return self.x * self.weight


@effects
def a_field_of_an_argument_is_set():
    def step(batch):
        batch.x = batch.x * 2
        return batch.x + 1

    return Training(step, batch=lambda i, _: (Batch(*rows(i)),), codes={"host_effect", "escaped_buffer"}, matters=False)


@effects.each
def test_what_a_step_deletes_or_sets(case):
    check(case)


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


class OwnDict(dict):
    pass


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


results = Table()


@results
def the_same_list_twice():
    def step(x):
        result = [x * 2]
        return result, result

    return Training(step, codes={"host_effect"})


@results
def the_same_tensor_three_times():
    def step(x):
        result = x * 2
        return result, result, [result]

    return Training(step)


@results
def the_same_dict_under_two_keys():
    def step(x):
        shared = {"loss": 1}
        return {"a": shared, "b": shared, "x": x * 2}

    return Training(step, codes={"host_effect"})


@results
def an_ordered_dict():
    def step(x):
        result = collections.OrderedDict(a=x * 2, b=x * 3)
        result.move_to_end("a")
        return result

    return Training(step)


@results
def a_member_of_an_int_enum():
    return Training(lambda x: (x * 2, Mode.FIRST))


@results
def a_float_of_numpy():
    scale = np.float64(2.0)
    return Training(lambda x: (x * 2, scale), codes={"host_effect"})


@results
def a_tensor_that_the_program_holds():
    total = torch.zeros(3)

    def step(x):
        return total.add_(x)

    return Training(step, holds=lambda: [total])


@results
def numbers_of_every_kind():
    firsts = [-0.0, math.nan, math.inf, 1e-45]

    def step(x):
        return x[0].item(), bool(x[1] > 0), x.shape, x.dtype

    return Training(step, batch=lambda i, changed: (torch.tensor([firsts[i % 4] if changed else i + 0.5, 1.0]),))


@results
def how_often_tensors_were_written():
    parameter = nn.Parameter(torch.ones(3))
    given = []

    def batch(i, changed):
        given[:] = rows(i)
        return tuple(given)

    def step(x):
        x.mul_(2)
        with torch.no_grad():
            parameter.add_(1)
        return x.sum()

    return Training(step, batch=batch, holds=lambda: [parameter._version, given[0]._version], matters=False)


@results
def a_dict_that_the_program_holds():
    settings = {"n": 1}
    return Training(lambda x: (x * 2, settings), holds=lambda: [settings], codes={"host_effect"}, matters=False)


@results
def a_list_that_is_an_argument():
    return Training(lambda x, items: (x * 2, items), batch=lambda i, _: rows(i) + ([1],),
                    codes={"host_effect"}, matters=False)


@results
def a_dict_that_is_an_argument():
    return Training(lambda inputs: inputs, batch=lambda i, _: ({"x": rows(i)[0]},), codes={"host_effect"},
                    matters=False)


@results.each
def test_what_a_step_gives_back(case):
    check(case)


classes = Table()


@classes
def a_dict_of_a_module_class_changes_in_place():
    class Net(nn.Module):
        table = {"gain": 1.0}

        def forward(self, x):
            return x * self.table["gain"]

    net = Net()
    return Training(lambda x: net(x), lambda: Net.table.update(gain=3.0))


@classes
def a_list_of_a_class_changes_in_place():
    class Settings:
        table = [1.0, 2.0]

    settings = Settings()
    return Training(lambda x: x * settings.table[0], lambda: Settings.table.__setitem__(0, 3.0))


class Doubling:
    def scaled(self, x):
        return x * 2


class Tripling:
    def scaled(self, x):
        return x * 3


@classes
def the_bases_of_a_class_change():
    class Own(Doubling):
        pass

    own = Own()
    return Training(lambda x: own.scaled(x), lambda: setattr(Own, "__bases__", (Tripling,)))


@classes
def the_bases_of_a_module_class_change():
    class Net(Doubling, nn.Module):
        def forward(self, x):
            return self.scaled(x)

    net = Net()
    return Training(lambda x: net(x), lambda: setattr(Net, "__bases__", (Tripling, nn.Module)))


@classes
def an_object_gets_another_class():
    own = Doubling()
    return Training(lambda x: own.scaled(x), lambda: setattr(own, "__class__", Tripling))


@classes
def an_object_gets_another_dict():
    own = Value(1.0)
    return Training(lambda x: x * own.value, lambda: setattr(own, "__dict__", {"value": 4.0}))


@classes
def a_module_gets_another_dict_and_another_class():
    dropout = nn.Dropout(0.5)
    return Training(lambda x: dropout(x), {
        EDIT: lambda: setattr(dropout, "__dict__", {**dropout.__dict__, "p": 0.25}),
        26: lambda: dropout.__dict__.update(p=0.5),
        30: lambda: setattr(dropout, "__class__", nn.AlphaDropout),
        34: lambda: setattr(dropout, "__class__", nn.Dropout),
        38: lambda: dropout.__dict__.update(p=0.75)})


@classes
def a_descriptor_reads_a_global():
    class Weight:
        def __get__(self, owner, kind):
            return GAIN

    class Own:
        weight = Weight()

    own = Own()
    return Training(lambda x: x * own.weight, each=gain)


@classes
def a_descriptor_has_state():
    class Weight:
        value = 1.0

        def __get__(self, owner, kind):
            return self.value

    weight = Weight()
    own = type("Own", (), {"weight": weight})()
    return Training(lambda x: x * own.weight, lambda: setattr(weight, "value", 4.0))


@classes
def a_cached_property_is_dropped_before_each_call():
    state = Value(1.0)

    class Own:
        @functools.cached_property
        def weight(self):
            return state.value

    own = Own()

    def each(changed):
        state.value = 4.0 if changed else 1.0
        own.__dict__.pop("weight", None)

    return Training(lambda x: x * own.weight, each=each, holds=lambda: [dict(vars(own))])


@classes
def a_setter_reads_a_global():
    class Own:
        @property
        def weight(self):
            return 1.0

        @weight.setter
        def weight(self, value):
            self.product = value * GAIN

    own = Own()

    def step(x):
        own.weight = 2.0
        return x * own.product

    return Training(step, each=gain, holds=lambda: [own.product])


@classes
def a_metaclass_has_a_property():
    class Meta(type):
        @property
        def weight(cls):
            return GAIN

    class Own(metaclass=Meta):
        pass

    return Training(lambda x: x * Own.weight, each=gain)


@classes
def init_reads_a_global():
    class Own:
        def __init__(self):
            self.value = GAIN

    return Training(lambda x: x * Own().value, each=gain)


@classes
def new_reads_a_global():
    class Own:
        def __new__(cls):
            own = object.__new__(cls)
            own.value = GAIN
            return own

    return Training(lambda x: x * Own().value, each=gain)


@classes
def post_init_reads_a_global():
    @dataclasses.dataclass
    class Own:
        value: float = 0.0

        def __post_init__(self):
            self.value = GAIN

    return Training(lambda x: x * Own().value, each=gain)


@classes
def an_order_of_objects_reads_a_global():
    class Item:
        def __init__(self, value):
            self.value = value

        def __lt__(self, other):
            sign = 1.0 if GAIN == 1.0 else -1.0
            return self.value * sign < other.value * sign

    items = [Item(1.0), Item(2.0)]
    return Training(lambda x: x * sorted(items)[0].value, each=gain)


@classes
def a_mask_of_a_class_is_transposed_in_place():
    class Net(nn.Module):
        mask = torch.arange(9.0).view(3, 3)

        def forward(self, x):
            return x @ self.mask

    Net.mask = torch.arange(9.0).view(3, 3)
    net = Net()
    return Training(lambda x: net(x), lambda: Net.mask.t_())


@classes.each
def test_a_class_changes(case):
    check(case)


containers = Table()


@containers
def a_dict_becomes_a_default_dict():
    held = SimpleNamespace(table={"a": 1.0})

    def step(x):
        try:
            return x * held.table["b"]
        except KeyError:
            return x

    return Training(step, lambda: setattr(held, "table", collections.defaultdict(lambda: 3.0, {"a": 1.0})))


@containers
def a_list_becomes_one_of_another_class():
    class Fives(list):
        def __getitem__(self, i):
            return 5.0

    held = SimpleNamespace(items=[1.0])
    return Training(lambda x: x * held.items[0], lambda: setattr(held, "items", Fives([1.0])))


class OwnList(list):
    pass


@containers
def a_dict_with_an_attribute_of_its_own():
    table = OwnDict(a=1.0)
    table.scale = 1.0
    return Training(lambda x: x * table.scale * table["a"], lambda: setattr(table, "scale", 3.0))


@containers
def a_list_with_an_attribute_of_its_own():
    items = OwnList([1.0])
    items.scale = 1.0
    return Training(lambda x: x * items.scale * items[0], lambda: setattr(items, "scale", 3.0))


@containers
def a_dict_with_a_method_that_reads_a_global():
    class Weights(dict):
        def weight(self):
            return self["a"] * GAIN

    weights = Weights(a=1.0)
    return Training(lambda x: x * weights.weight(), each=gain)


@containers
def a_set_in_another_order():
    held = SimpleNamespace(items={0, 8})

    def step(x):
        total = x * 0
        for item in held.items:
            total = total * 0.5 + item * x
        return total

    def reordered():
        held.items = set()
        held.items.add(8)
        held.items.add(0)

    return Training(step, reordered)


@containers
def a_set_with_an_equal_item_of_another_kind():
    held = SimpleNamespace(items={1})
    return Training(lambda x: x * 2 if isinstance(next(iter(held.items)), float) else x,
                    lambda: setattr(held, "items", {1.0}))


@containers
def a_set_of_modules():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    skipped = {model[0]}

    def step(x):
        for layer in model:
            if layer not in skipped:
                x = layer(x)
        return x.detach()

    def another():
        skipped.remove(model[0])
        skipped.add(model[1])

    return Training(step, another)


@containers
def a_module_in_a_set_goes_to_evaluation():
    models = {nn.Dropout(0.5)}

    def step(x):
        for model in models:
            x = model(x)
        return x

    return Training(step, lambda: [model.eval() for model in models])


@containers
def a_set_of_tuples():
    chosen = {("a", 1)}

    def another():
        chosen.remove(("a", 1))
        chosen.add(("a", 2))

    return Training(lambda x: x * 2 if ("a", 1) in chosen else x * 3, another)


@containers
def a_deque_of_another_length():
    held = SimpleNamespace(items=collections.deque([1.0], maxlen=1))
    return Training(lambda x: x * held.items.maxlen * held.items[0],
                    lambda: setattr(held, "items", collections.deque([1.0], maxlen=4)))


@containers
def an_object_in_a_deque():
    items = collections.deque([Value(1.0)])
    return Training(lambda x: x * items[0].value, lambda: setattr(items[0], "value", 4.0))


@containers
def an_optimizer_in_a_deque():
    model = nn.Linear(3, 3)
    optimizers = collections.deque([torch.optim.SGD(model.parameters(), lr=0.1)])

    def step(x):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    return Training(step, lambda: optimizers[0].param_groups[0].update(lr=0.01), holds=lambda: [model])


@containers
def an_optimizer_in_a_dict_of_a_module():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = nn.Linear(3, 3)
            self.optimizers = {"a": torch.optim.SGD(self.model.parameters(), lr=0.1)}

        def forward(self, x):
            self.optimizers["a"].zero_grad()
            loss = self.model(x).pow(2).mean()
            loss.backward()
            self.optimizers["a"].step()
            return loss.detach()

    own = Own()
    return Training(lambda x: own(x), lambda: own.optimizers["a"].param_groups[0].update(lr=0.01),
                    holds=lambda: [own.model])


@containers
def an_object_behind_a_weak_reference():
    own = Value(1.0)
    reference = weakref.ref(own)
    return Training(lambda x: x * reference().value, lambda: setattr(own, "value", 5.0))


@containers
def a_user_dict():
    class Settings(collections.UserDict):
        pass

    settings = Settings(a=1.0)
    return Training(lambda x: x * settings["a"], lambda: settings.update(a=5.0))


@containers
def a_chain_of_dicts():
    base = {"a": 1.0}
    chain = collections.ChainMap({}, base)
    return Training(lambda x: x * chain["a"], lambda: base.update(a=5.0))


@containers
def a_view_of_a_dict():
    base = {"a": 1.0}
    view = types.MappingProxyType(base)
    return Training(lambda x: x * view["a"], lambda: base.update(a=5.0), codes={"host_effect"})


@containers
def an_object_with_items():
    class Items:
        def __init__(self):
            self.items = [[1.0]]

        def __getitem__(self, i):
            return self.items[i][0]

    items = Items()
    return Training(lambda x: x * items[0], lambda: items.items[0].__setitem__(0, 5.0))


@containers
def a_dict_four_levels_deep():
    settings = {"train": {"loss": {"weights": {"a": 1.0}}}}
    return Training(lambda x: x * settings["train"]["loss"]["weights"]["a"],
                    lambda: settings["train"]["loss"]["weights"].update(a=3.0))


@containers
def objects_four_levels_deep():
    settings = Value(Value(Value(Value(1.0))))
    return Training(lambda x: x * settings.value.value.value.value,
                    lambda: setattr(settings.value.value.value, "value", 5.0))


@containers
def a_counter_in_a_dict_of_a_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.counters = {"a": Value(0)}

        def forward(self, x):
            self.counters["a"].value += 1
            return x * 2

    net = Net()
    return Training(lambda x: net(x), holds=lambda: [net.counters["a"].value], codes={"host_effect"})


@containers
def a_module_in_a_dict_of_a_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = {"a": nn.Dropout(0.5)}

        def forward(self, x):
            return self.hidden["a"](x)

    net = Net()
    return Training(lambda x: net(x), lambda: net.hidden["a"].eval())


class Nested(nn.Module):
    """Reads one number at the end of each kind of nesting."""

    def __init__(self):
        super().__init__()
        self.table = {"dict": {"k": 1.0}, "list": [1.0, {"z": 1.0}, {"a": {"k": 1.0}}], "tuple": ([1.0], {"y": 1.0}),
                      "object": SimpleNamespace(a=1.0, b=[1.0])}

    def forward(self, x):
        table = self.table
        return (x * table["dict"]["k"] * table["list"][0] * table["list"][1]["z"] * table["list"][2]["a"]["k"]
                * table["tuple"][0][0] * table["tuple"][1]["y"] * table["object"].a * table["object"].b[0])


NESTED = {
    "dict_in_a_dict": (lambda t: t["dict"], "k"),
    "list_in_a_dict": (lambda t: t["list"], 0),
    "dict_in_a_list": (lambda t: t["list"][1], "z"),
    "dict_in_a_dict_in_a_list": (lambda t: t["list"][2]["a"], "k"),
    "list_in_a_tuple": (lambda t: t["tuple"][0], 0),
    "dict_in_a_tuple": (lambda t: t["tuple"][1], "y"),
    "object_in_a_dict": (lambda t: vars(t["object"]), "a"),
    "list_in_an_object": (lambda t: t["object"].b, 0),
}


@pytest.mark.parametrize("place", NESTED.values(), ids=NESTED)
def test_a_number_in_nested_containers_of_a_module(place):
    """It changes and changes back; an equal container takes its place, and changes too."""
    find, key = place

    def make():
        net = Nested()

        def replaced():
            net.table = {"dict": dict(net.table["dict"]), "list": [1.0, {"z": 1.0}, {"a": {"k": 1.0}}],
                         "tuple": ([1.0], {"y": 1.0}), "object": SimpleNamespace(a=1.0, b=[1.0])}

        def put(value):
            return lambda: find(net.table).__setitem__(key, value)

        return Training(lambda x: net(x), {EDIT: put(3.0), 28: put(1.0), 30: replaced, 40: put(7.0)})

    check(make)


@containers
def ordered_dicts_in_containers_of_a_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = {"list": [collections.OrderedDict(a=1.0, b=2.0)],
                          "plain": collections.OrderedDict(a=1.0, b=2.0)}

        def forward(self, x):
            total = x * 0
            for value in [*self.table["list"][0].values(), *self.table["plain"].values()]:
                total = total * 0.5 + value * x
            return total

    net = Net()
    in_a_list, plain = net.table["list"][0], net.table["plain"]

    def turned(table):
        return lambda: table.move_to_end(next(iter(table)))

    return Training(lambda x: net(x), {EDIT: turned(plain), 24: turned(plain), 28: turned(in_a_list),
                                       32: turned(in_a_list), 36: turned(plain)})


@containers
def nested_settings_in_a_parameter_group():
    class Own(torch.optim.SGD):
        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad * group["settings"]["a"]["b"]["c"])

    model, optimizer, step = regression(functools.partial(Own, lr=0.1))
    optimizer.param_groups[0]["settings"] = {"a": {"b": {"c": 0.1}}}
    return Training(step, lambda: optimizer.param_groups[0]["settings"]["a"]["b"].update(c=0.01), holds=lambda: [model])


@containers
def nested_numbers_in_the_state_of_an_optimizer():
    class Own(torch.optim.SGD):
        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad * self.state[p].setdefault("history", [1.0, {"q": [0.1]}])[1]["q"][0])

    model, optimizer, step = regression(functools.partial(Own, lr=0.1))
    return Training(step, lambda: optimizer.state[model.weight]["history"][1]["q"].__setitem__(0, 0.01),
                    holds=lambda: [model])


@containers.each
def test_a_container_changes(case):
    check(case)


names = Table()

imported = types.ModuleType("reach_test_settings")
imported.SCALE = 1.0
sys.modules[imported.__name__] = imported


def scale(changed):
    imported.SCALE = 4.0 if changed else 1.0


@names
def a_module_imported_in_the_step():
    def step(x):
        import reach_test_settings

        return x * reach_test_settings.SCALE

    return Training(step, each=scale)


@names
def a_name_imported_in_the_step():
    def step(x):
        from reach_test_settings import SCALE

        return x * SCALE

    return Training(step, each=scale)


@names
def a_global_by_its_text():
    return Training(lambda x: x * globals()["GAIN"], each=gain)


@names
def a_constant_attribute_name():
    own = Value(1.0)
    return Training(lambda x: x * getattr(own, "value", 1.0), lambda: setattr(own, "value", 4.0))


@names
def a_method_chosen_by_a_text():
    class Task:
        mode = "a"

        def loss_a(self, x):
            return x * GAIN

        def __call__(self, x):
            return getattr(self, "loss_" + self.mode)(x)

    task = Task()
    return Training(lambda x: task(x), each=gain)


@names
def another_method_chosen_by_a_text():
    class Task:
        mode = "a"

        def loss_a(self, x):
            return x

        def loss_b(self, x):
            return x * GAIN

        def __call__(self, x):
            return getattr(self, "loss_" + self.mode)(x)

    task = Task()
    return Training(lambda x: task(x), {15: lambda: setattr(task, "mode", "b"), 30: lambda: gain(True),
                                        38: lambda: gain(False)},
                    each=lambda changed: None if changed else gain(False))


@names
def an_attribute_chosen_by_an_argument():
    own = SimpleNamespace(a=1.0, b=2.0)
    return Training(lambda x, name: x * getattr(own, name), {
        EDIT: lambda: setattr(own, "a", 4.0), 32: lambda: setattr(own, "b", 5.0)},
        batch=lambda i, _: rows(i) + ("ab"[i > 24],))


@names
def all_attributes_of_an_object_at_once():
    settings = SimpleNamespace(label_smoothing=0.0)
    return Training(lambda x: F.cross_entropy(x[None] * torch.arange(3.0), torch.tensor([1]), **vars(settings)),
                    lambda: setattr(settings, "label_smoothing", 0.3))


@names.each
def test_a_name_that_is_a_value(case):
    check(case)


odd_ways = Table()


@functools.singledispatch
def dispatched(kind, x):
    return x


@dispatched.register(int)
def _(kind, x):
    return x * GAIN


@odd_ways
def a_function_dispatched_by_a_class():
    return Training(lambda x: dispatched(1, x), each=gain)


@odd_ways
def keywords_of_a_partial_function():
    partial = functools.partial(lambda x, scale: x * scale, scale=1.0)
    return Training(lambda x: partial(x), lambda: partial.keywords.update(scale=4.0))


@odd_ways
def a_context_manager_of_a_generator():
    state = Value(1.0)

    @contextlib.contextmanager
    def scaling():
        yield state.value

    def step(x):
        with scaling() as by:
            return x * by

    return Training(step, lambda: setattr(state, "value", 5.0))


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 1.0

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = GAIN

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale


@odd_ways
def the_context_of_an_autograd_function_reads_a_global():
    weight = nn.Parameter(torch.ones(3))

    def step(x):
        weight.grad = None
        Scaled.apply(weight * x).sum().backward()
        return weight.grad.clone()

    return Training(step, each=gain)


@odd_ways
def a_hook_on_several_gradients_comes_late():
    model, optimizer, step = regression()
    seen = []
    return Training(step, lambda: torch.autograd.graph.register_multi_grad_hook(
        [model.weight, model.bias], lambda grads: seen.append(1)), holds=lambda: [model, seen])


def saved_in_forward(around):
    model = nn.Linear(3, 3)

    def step(x):
        model.weight.grad = None
        model(x).pow(2).sum().backward()
        return model.weight.grad.clone()

    return Training(step, around=around, codes={"dispatch_mode"}, matters=False)


def unpacked_times(factor):
    return torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * factor)


@odd_ways
def hooks_for_saved_tensors_change():
    training = saved_in_forward(lambda changed: unpacked_times(3.0 if changed else 1.0))
    training.matters = True
    return training


@odd_ways
def hooks_for_saved_tensors_come_late():
    training = saved_in_forward(lambda changed: unpacked_times(3.0) if changed else contextlib.nullcontext())
    training.begins = training.matters = True
    return training


RELU = torch.relu


@odd_ways
def a_function_of_torch_is_patched():
    return Training(lambda x: torch.relu(x), batch=lambda i, _: (torch.tensor([-1.0, 1.0]) * (i % 7 + 1),),
                    each=lambda changed: setattr(torch, "relu", criterion if changed else RELU))


@odd_ways
def the_default_dtype_changes():
    return Training(lambda x: x + torch.zeros(3) + torch.rand(3) * 0, batch=lambda i, _: (rows(i)[0].float(),),
                    each=lambda changed: torch.set_default_dtype(torch.float64 if changed else torch.float32))


@odd_ways
def the_smallest_numbers_are_flushed():
    weight = torch.full((3,), 1e-30)
    return Training(lambda x: x * weight * 2, each=torch.set_flush_denormal,
                    batch=lambda i, _: (torch.full((3,), 1e-10),))


@odd_ways
def anomalies_are_looked_for():
    weight = nn.Parameter(torch.ones(3))

    def step(x):
        weight.grad = None
        (weight * x).sqrt().sum().backward()
        return weight.grad.clone()

    return Training(step, each=torch.autograd.set_detect_anomaly,
                    batch=lambda i, _: (torch.full((3,), -1.0 if i >= 30 else i % 7 + 1.0),))


@odd_ways.each
@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected")
def test_code_that_is_reached_in_odd_ways(case):
    check(case)


numbers = Table()


def later_other(before, after):
    """A tensor whose two equal numbers, and an argument whose number, become others from call EDIT on."""
    return lambda i, changed: (torch.full((2,), float(after(i) if changed else before)),)


def argument_varies(step, **expected):
    return Training(step, batch=lambda i, changed: rows(i) + (1.5 + i if changed else 1.5,), begins=True, **expected)


@numbers
def the_logarithm_of_an_argument_beside_it():
    return argument_varies(lambda x, t: x / t + math.log(t))


@numbers
def the_floor_of_an_argument_beside_it():
    return argument_varies(lambda x, t: x * t + x * math.floor(t))


@numbers
def the_exponential_of_an_argument_beside_it():
    model, optimizer, _ = regression(functools.partial(torch.optim.SGD, lr=0.01))

    def step(x, beta):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean() * beta + model(x).abs().mean() * math.exp(-beta)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, batch=lambda i, changed: rows(i) + (1.0 + i / 10 if changed else 1.0,), holds=lambda: [model])


def own_rule(update):
    class Own(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.1})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-group["lr"])
                    update(p, group["lr"])

    model, optimizer, step = regression(Own)
    count = 0

    def each(changed):
        nonlocal count
        count += changed
        optimizer.param_groups[0]["lr"] = 0.1 + count / 100

    return Training(step, each=each, holds=lambda: [model])


@numbers
def the_exponential_of_a_learning_rate_beside_it():
    return own_rule(lambda p, lr: p.mul_(1 - math.exp(-1 / lr)))


@numbers
def the_logarithm_of_a_learning_rate_beside_it():
    return own_rule(lambda p, lr: p.sub_(p, alpha=math.log1p(lr)))


@numbers
def minima_and_maxima_with_nan_and_signed_zeros():
    pairs = [(1.0, 2.0), (2.0, 1.0), (math.nan, 1.0), (1.0, math.nan), (0.0, -0.0), (-0.0, 0.0)]

    def step(x):
        one, other = x[0].item(), x[1].item()
        return x * max(one, other), min(one, other), max(other, one)

    return Training(step, batch=lambda i, changed: (torch.tensor(pairs[i % (6 if changed else 2)]),))


@numbers
def an_int_that_is_shifted_by():
    def step(x):
        n = x[0].long().item()
        return x * n * (1 << n)

    return Training(step, batch=later_other(1, lambda i: i % 5), begins=True)


@numbers
def the_real_part():
    def step(x):
        value = x[0].item()
        return x * value + x * value.real

    return Training(step, batch=later_other(1, lambda i: i % 5), begins=True)


@numbers
def a_sum_with_a_complex_number():
    def step(x):
        value = x[0].item()
        return x * value + x * abs(value + 1j)

    return Training(step, batch=later_other(1, lambda i: i % 5), begins=True)


@numbers
def a_learning_rate_of_each_kind():
    model, optimizer, step = regression()
    group = optimizer.param_groups[0]

    def put(rate):
        return lambda: group.update(lr=rate)

    return Training(step, {18: put(np.float64(0.05)), 22: put(torch.tensor(0.03)), 26: lambda: group["lr"].fill_(0.01),
                           28: put(torch.tensor(0.02, dtype=torch.float64)), 31: put(0), 33: put(True), 35: put(-0.0),
                           37: put(math.nan)}, holds=lambda: [model, optimizer])


@numbers.each
def test_a_number_goes_elsewhere(case):
    check(case)


tensors = Table()


@tensors
def parameters_and_momenta_are_laid_out_anew():
    model, optimizer, step = regression()
    state = optimizer.state

    def momentum(make):
        def put():
            state[model.weight]["momentum_buffer"] = make(state[model.weight]["momentum_buffer"])
        return put

    def weight(make):
        return lambda: setattr(model.weight, "data", make(model.weight.data))

    return Training(step, {
        20: weight(lambda w: w.t().contiguous().t()), 26: weight(lambda w: torch.arange(18.0).view(3, 6)[:, ::2]),
        32: momentum(lambda b: b.t().contiguous().t()), 36: momentum(lambda b: torch.zeros(1).expand(3, 3).clone()),
        38: momentum(lambda b: None), 40: state.clear}, holds=lambda: [model, optimizer])


@tensors
def parameters_come_to_share_memory():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    first, second = model[0].weight, model[1].weight

    def step(x):
        optimizer.zero_grad()
        loss = model(x / 10).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def overlap():
        whole = torch.zeros(12)
        whole[:9] = first.data.flatten()
        first.data, second.data = whole[:9].view(3, 3), whole[3:].view(3, 3)

    return Training(step, {20: lambda: setattr(first, "data", second.data),
                           26: lambda: setattr(first, "data", second.data.clone()), 30: overlap},
                    holds=lambda: [model, optimizer])


@tensors
def a_gradient_comes_to_share_memory():
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    weight = model.weight

    def step(x):
        loss = model(x / 100).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, {
        20: lambda: setattr(weight, "grad", weight.data), 24: lambda: setattr(weight, "grad", None),
        28: lambda: setattr(weight, "grad", optimizer.state[weight]["momentum_buffer"])},
        holds=lambda: [model, optimizer])


@tensors
def a_parameter_becomes_a_negative_view():
    model, optimizer, step = regression()
    return Training(step, lambda: setattr(model.weight, "data", torch._neg_view(model.weight.data)),
                    holds=lambda: [model, optimizer])


@tensors
def an_optimizer_gets_its_state_and_its_groups_anew():
    model, optimizer, step = regression()

    def groups(**changes):
        return [dict(group, **changes) for group in optimizer.param_groups]

    return Training(step, {
        20: lambda: optimizer.__setstate__({"state": collections.defaultdict(dict),
                                            "param_groups": optimizer.param_groups}),
        28: lambda: optimizer.__setstate__({"param_groups": groups(lr=0.02)}),
        34: lambda: setattr(optimizer, "param_groups", groups(lr=0.03, momentum=0.5)),
        38: lambda: optimizer.param_groups[0].update(nesterov=True),
        41: lambda: optimizer.param_groups[0].update(momentum=0, nesterov=False)}, holds=lambda: [model, optimizer])


@tensors
def a_batch_norm_loses_its_statistics_and_gets_others():
    norm = nn.BatchNorm1d(3)

    def lost():
        norm.running_mean = norm.running_var = None

    def others():
        norm.register_buffer("running_mean", torch.zeros(3))
        norm.register_buffer("running_var", torch.ones(3))
        norm.momentum, norm.track_running_stats = 0.1, True

    return Training(lambda x: norm(x).detach(), {
        20: lambda: setattr(norm, "momentum", 1), 24: lambda: setattr(norm, "track_running_stats", False),
        28: lost, 32: others}, holds=lambda: [norm],
        batch=lambda i, _: (torch.arange(12.0).view(4, 3) * (i % 5 + 1),))


@tensors.each
def test_tensors_and_optimizers_are_rearranged(case):
    check(case)


def test_objects_that_are_others_in_each_call_are_refused_until_they_stay():
    def make():
        held = SimpleNamespace(holder=Value(None))

        def batch(i):
            if i < 60:
                held.holder.value = Value(i % 3 + 1.0)
            return (torch.full((2,), i + 0.5),)

        return SimpleNamespace(step=lambda x: x * held.holder.value.value, batch=batch, holds=list)

    step = twins.compare(make, 60, codes={"host_effect"})
    assert step.stats["recorded"] < 30, step.explain()
    assert twins.compare(make, 200).stats["replayed"] > 50


def test_more_functions_than_are_looked_at_are_refused(monkeypatch):
    monkeypatch.setattr("steptape._step._MOST_BROUGHT", 2)
    gain = [1.0]
    functions = [lambda x, i=i: x * gain[0] * (i + 1) for i in range(5)]

    def batch(i):
        gain[0] = 1.0 if i < 40 else 5.0
        return torch.ones(3), functions[i // 8 % 5]

    twins.compare(lambda: SimpleNamespace(step=lambda x, function: function(x), batch=batch, holds=list), 80,
                  codes={"opaque_argument"})

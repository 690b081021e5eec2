"""What comes late: objects, optimizers, hooks and functions that a step reaches only when it has replayed for long."""
import warnings
from types import SimpleNamespace

import torch
import torch.nn as nn

import twins
from reached import EDIT, Table, Training, Value, check, global_setter, regression

GAIN = 1.0
gain = global_setter(globals(), "GAIN")
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

    return Training(step, lambda: setattr(held, "counter", Value(0)), begins=True,
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
    return Training(lambda x: net(x), holds=lambda: [net.counter.value])


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


def test_objects_that_are_others_in_each_call_replay():
    def make():
        held = SimpleNamespace(holder=Value(None))
        kept = []  # so that no address comes again

        def batch(i):
            if i < 60:
                held.holder.value = Value(i % 3 + 1.0)
                kept.append(held.holder.value)
            return (torch.full((2,), i + 0.5),)

        return SimpleNamespace(step=lambda x: x * held.holder.value.value, batch=batch, holds=list)

    assert twins.compare(make, 60).stats["replayed"] > 40
    assert twins.compare(make, 200).stats["replayed"] > 150

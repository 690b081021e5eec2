"""Code that is reached in odd ways: by dispatch, contexts, autograd and torch's own switches."""
import contextlib
import functools

import pytest
import torch
import torch.nn as nn

from reached import Table, Training, Value, check, global_setter, regression, rows

GAIN = 1.0
gain = global_setter(globals(), "GAIN")
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


def scaled_by_gain(x):
    return x * GAIN


@odd_ways
def a_function_of_torch_is_patched():
    return Training(lambda x: torch.relu(x), batch=lambda i, _: (torch.tensor([-1.0, 1.0]) * (i % 7 + 1),),
                    each=lambda changed: setattr(torch, "relu", scaled_by_gain if changed else RELU))


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

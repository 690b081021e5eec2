"""Code that is reached in odd ways: by dispatch, contexts, autograd and torch's own switches."""
import contextlib
import functools
import importlib
import inspect
import mmap
import sqlite3
import sys
import traceback

import numpy
import pytest
import torch
import torch.nn as nn

import steptape
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
def a_setting_of_torchs_changes():
    settings = importlib.import_module("torch.utils.serialization").config.load
    return Training(lambda x: x * (2.0 if torch.serialization.get_default_mmap_options() == mmap.MAP_SHARED else 3.0),
                    each=lambda changed: setattr(settings, "mmap_flags", mmap.MAP_SHARED if changed else mmap.MAP_PRIVATE))


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


def caller_with(scale, function, *args):
    frame_local_of_the_caller = scale  # noqa: F841
    return function(*args)


def found_in_frames(name):
    frame = sys._getframe()
    while frame is not None:
        if name in frame.f_locals:
            return frame.f_locals[name]
        frame = frame.f_back
    return 1.0


def gain_by_traceback():
    try:
        raise ValueError
    except ValueError as error:
        return error.__traceback__.tb_frame.f_globals["GAIN"]


OF_FRAMES = {
    "its own": lambda: sys._getframe().f_globals["GAIN"],
    "inspected": lambda: inspect.currentframe().f_globals["GAIN"],
    "of a traceback": gain_by_traceback,
    "one further out": lambda: caller_with(1.0, lambda: sys._getframe(1).f_globals["GAIN"]),
    "by a method": lambda: inspect.currentframe().f_globals.get("GAIN"),
    "the one before": lambda: sys._getframe().f_back.f_globals["GAIN"],
}
for name, of in OF_FRAMES.items():
    odd_ways[f"globals of a frame: {name}"] = lambda of=of: Training(lambda x: x * of(), each=gain)


@odd_ways
def a_local_of_a_function_in_the_step_found_by_its_frame():
    return Training(lambda x: x * caller_with(GAIN, found_in_frames, "frame_local_of_the_caller"), each=gain)


OUTER_FRAMES = {
    "f_back": lambda: found_in_frames("no_such_local"),
    "_getframe": lambda: bool(sys._getframe(3)),
    "stack": lambda: bool(inspect.stack()),
    "extract_stack": lambda: bool(traceback.extract_stack()),
    "_current_frames": lambda: bool(sys._current_frames()),
}
for name, of in OUTER_FRAMES.items():
    odd_ways[f"frames that call the step: {name}"] = lambda of=of: Training(lambda x: x * of(), codes={"host_effect"})


def half_run():
    received = 1.0
    while True:
        received = yield received


def suspended():
    generator = half_run()
    next(generator)
    return generator


async def waiting():
    await Suspension()


class Suspension:
    def __await__(self):
        yield


UNFINISHED = {
    "local of a generator": (suspended, lambda g: g.gi_frame.f_locals["received"]),
    "line of a generator": (suspended, lambda g: g.gi_frame.f_lineno),
    "locals by inspect": (suspended, lambda g: inspect.getgeneratorlocals(g)["received"]),
    "state by inspect": (suspended, lambda g: len(inspect.getgeneratorstate(g))),
    "state of a coroutine": (waiting, lambda c: len(inspect.getcoroutinestate(c))),
}
for name, (made, of) in UNFINISHED.items():
    odd_ways[f"code that has not ended: {name}"] = lambda made=made, of=of: state_of_code(made(), of)


def state_of_code(code, of):
    return Training(lambda x: x * of(code), lambda: code.send(None if inspect.iscoroutine(code) else 4.0),
                    codes={"host_effect"}, matters=False)


@odd_ways
def the_code_of_a_generator_tells_nothing_of_its_state():
    generator = suspended()
    return Training(lambda x: x * generator.gi_code.co_argcount, lambda: generator.send(4.0), matters=False)


@odd_ways
def a_count_of_cs_that_nothing_can_be_assigned_to():
    seeds = numpy.random.SeedSequence(5)
    return Training(lambda x: x * (1 + seeds.n_children_spawned), lambda: seeds.spawn(2))


@odd_ways
def a_count_of_cs_that_moves_in_each_call():
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t(x)")

    def each(i):
        connection.execute("insert into t values(1)")
    return Training(lambda x: x * connection.total_changes, each=each, begins=False, matters=False)


def argument_of_handled():
    return sys.exc_info()[1].args[0] if sys.exc_info()[1] else 1.0


def argument_of_raised_again():
    try:
        raise
    except RuntimeError:  # nothing was handled
        return 1.0
    except ValueError as error:
        return error.args[0]


def handled_in_the_step():
    try:
        raise ValueError(2.0)
    except ValueError:
        return argument_of_handled()


@pytest.mark.parametrize("of", [argument_of_handled, argument_of_raised_again, handled_in_the_step], ids=lambda of: of.__name__)
def test_the_exception_that_its_caller_handles(of):
    def plain(x):
        return x * of()

    def retried(step, i):
        if i < 12:
            return step(*rows(i))
        try:
            raise ValueError(2.0 + i)
        except ValueError:
            return step(*rows(i))

    step = steptape.wrap(plain, verify={"first": True, "rate": 0.0})
    for i in range(20):
        assert torch.equal(retried(step, i), retried(plain, i)), step.explain()
    assert step.stats["replayed"] >= (14 if of is handled_in_the_step else 8), step.explain()


@odd_ways.each
@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected")
def test_code_that_is_reached_in_odd_ways(case):
    check(case)

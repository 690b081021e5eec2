"""Subclasses of tensors and modes, which see the ops of a step: a replay would run none of their code."""
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

import steptape
import twins
from loops import adam, batch, is_refused, mse, net, program, replays, training, with_kinds


class Tagged(torch.Tensor):
    """A subclass that changes nothing but the class of results."""


class Logged(torch.Tensor):
    """A subclass that sees every op."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    seen = []

    @staticmethod
    def __new__(cls, plain):
        return torch.Tensor._make_subclass(cls, plain)

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        cls.seen.append(str(op))
        with no_dispatch():
            return op(*args, **(kwargs or {}))


def test_an_argument_of_a_subclass_is_refused():
    def make():
        made = training(net())
        return program(with_kinds, made.step, holds=made.holds(), batch=lambda i: (
            torch.randn(4, 6).as_subclass(Tagged), torch.randn(4, 3)))

    is_refused(make, "tensor_kind")


def test_a_parameter_of_a_subclass_is_refused():
    def make():
        model = net()
        model[0].weight = nn.Parameter(model[0].weight.detach().as_subclass(Tagged))
        made = training(model)
        return program(with_kinds, made.step, holds=made.holds())

    is_refused(make, "tensor_kind")


def test_a_subclass_that_dispatches_sees_its_ops():
    def make():
        made = training(net())

        def one_by_one(step):
            def body(x, y):
                Logged.seen.clear()
                return step(Logged(x), y), list(Logged.seen)

            return body

        return program(one_by_one, made.step, holds=made.holds())

    is_refused(make, "tensor_kind", "dispatch_mode")


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.ops.append(str(op))
        return op(*args, **(kwargs or {}))


def test_a_dispatch_mode_around_the_step_is_refused_and_sees_what_it_sees_in_eager():
    def make():
        made, mode = training(net()), Seen()

        def around(step):
            def body(x, y):
                with mode:
                    return step(x, y)

            return body

        return program(around, made.step, holds=[*made.holds(), mode.ops])

    is_refused(make, "dispatch_mode")


def test_what_a_dispatch_mode_in_the_step_notes_is_noted_by_replays():
    def make():
        mode = Seen()

        def loss_of(model, x, y):
            with mode:
                return mse(model, x, y)

        return training(net(), loss_of, holds=[mode.ops])

    replays(make)


def test_a_dispatch_mode_that_comes_when_the_step_replays_sees_all_ops():
    def make():
        made, mode = training(net()), Seen()

        def around(step):
            def body(i, x, y):
                with mode if 25 <= i < 30 else nullcontext():
                    return step(x, y)

            return body

        return program(around, made.step, batch=lambda i: (i, *batch(i)),
                       holds=[*made.holds(), mode.ops])

    replays(make, 60, share=0.8)


class LinearCalls(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.count += function is F.linear
        return function(*args, **(kwargs or {}))


def test_a_function_mode_around_the_step_is_refused_and_sees_what_it_sees_in_eager():
    def make():
        made, mode = training(net()), LinearCalls()

        def around(step):
            def body(x, y):
                with mode:
                    return step(x, y), mode.count

            return body

        return program(around, made.step, holds=made.holds())

    is_refused(make, "dispatch_mode")


def test_a_default_device_around_the_step():
    """torch.device as a context is a function mode of torch's own: it says where tensors are made."""
    def make():
        made = training(net())

        def around(step):
            def body(x, y):
                with torch.device("cpu"):
                    return step(x, y)

            return body

        return program(around, made.step, holds=made.holds())

    replays(make)


def test_a_default_device_that_is_set():
    def make():
        made = training(net())

        def around(step):
            def body(x, y):
                torch.set_default_device("cpu")
                try:
                    return step(x, y)
                finally:
                    torch.set_default_device(None)

            return body

        return program(around, made.step, holds=made.holds())

    replays(make)


READS_ON_A_DEFAULT_DEVICE = {
    "returned": lambda x, n: x.mean().item(),
    "enters": lambda x, n: (x * x.mean().item()).sum().item() + n,
    "decides": lambda x, n: 1.0 if x.mean().item() > 0 else float(x.sum()),
    "made": lambda x, n: (torch.full((3,), 0.5 * n) + torch.tensor([n, 1.0, x.mean().item()]) + torch.zeros(3)).tolist(),
    "as_int": lambda x, n: int(x.sum() * 10) + (x * n).sum().item(),
    "of_several": lambda x, n: max(v.item() for v in x.mean(1)) + sum(x[0].tolist()),
    "compared": lambda x, n: bool((x.sum() > 0) & (x.mean() < 1)),
}


@pytest.mark.parametrize("read", READS_ON_A_DEFAULT_DEVICE.values(), ids=READS_ON_A_DEFAULT_DEVICE)
def test_numbers_are_read_on_a_default_device(read):
    def play(wrap):
        torch.manual_seed(3)
        made = training(net(), optimizer_of=adam)
        batches = [batch(i) for i in range(40)]
        torch.set_default_device("cpu")
        try:
            step = wrap(lambda x, y, n: (made.step(x, y), read(x, n)))
            seen = [step(*each, i) for i, each in enumerate(batches)]
        finally:
            torch.set_default_device(None)
        return [twins.bits([seen, made.holds()]), step]

    step = twins.played_alike(play)
    assert step.stats["replayed"] >= 20, step.explain()


def test_another_mode_over_a_default_device_is_refused():
    class Counting(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    def make():
        made = training(net())

        def around(step):
            def body(x, y):
                with torch.device("cpu"), Counting():
                    return step(x, y)

            return body

        return program(around, made.step, holds=made.holds())

    is_refused(make, "dispatch_mode")


def steps_of_a_profiler(seen):
    """Begins and ends profiling inside of steps, by its schedule."""
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                      schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=3),
                                      on_trace_ready=lambda made: seen.append((made.step_num, len(made.events()) > 0)))
    profiler.start()
    return profiler.step, profiler.stop


def across_steps(seen):
    """Begun in one step, and ended in another."""
    state = SimpleNamespace(n=0, profiler=None)

    def step():
        state.n += 1
        if state.n % 4 == 1:
            state.profiler = torch.autograd.profiler.profile()
            state.profiler.__enter__()
        elif state.n % 4 == 3:
            state.profiler.__exit__(None, None, None)
            seen.append(len(state.profiler.function_events) > 0)
    return step, lambda: None


@pytest.mark.parametrize("make", (steps_of_a_profiler, across_steps))
def test_a_profiler_that_steps_begin_and_end(make):
    """The recorder leaves what is around it as it was, and has its own below that."""
    def run(wrap):
        model, seen = net(), []
        advance, stop = make(seen)

        def step(x, y):
            loss = mse(model, x, y)
            advance()
            return loss.detach()
        wrapped = wrap(step)
        results = [wrapped(*batch(i)).item() for i in range(20)]
        stop()
        return results, seen

    torch.manual_seed(0)
    expected = run(lambda step: step)
    torch.manual_seed(0)
    assert run(steptape.wrap) == expected

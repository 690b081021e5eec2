"""Guards of what surrounds a call: threads, dtypes, grad modes, autocast and switches of kernels."""
import contextlib

import pytest
import torch
import torch.nn.functional as F

import steptape
import twins
from classification import Program, sgd, small_model
from guarded import STEPS, Training, check, named


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is F.linear else result


@contextlib.contextmanager
def restored(get, set_, value):
    before = get()
    set_(value)
    try:
        yield
    finally:
        set_(before)


def seeing():
    """A step that sees what surrounds it."""
    model = small_model()
    optimizer = sgd(model.parameters())

    def train(x, y):
        optimizer.zero_grad()
        out = model(x)
        out = out.float() + torch.zeros(4)
        if torch.are_deterministic_algorithms_enabled() or torch.get_num_threads() != 1:
            out = out * 2
        loss = F.cross_entropy(out, y)
        if torch.is_grad_enabled():
            loss.backward()
            optimizer.step()
        return loss.detach()
    return Program(step=train, model=model, optimizer=optimizer)


AMBIENT = {
    "threads": lambda p: restored(torch.get_num_threads, torch.set_num_threads, 2),
    "default_dtype": lambda p: restored(
        torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "no_grad": lambda p: torch.no_grad(),
    "inference_mode": lambda p: torch.inference_mode(),
    "autocast": lambda p: torch.autocast("cpu", dtype=torch.bfloat16),
    "deterministic": lambda p: restored(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
}


@named(AMBIENT)
def test_ambient_state_around_the_call_changes(case):
    # Under autocast the weights' casts stay in its cache behind the step.
    cached = case is AMBIENT["autocast"]
    check(seeing, around=case, **({"share": None, "codes": {"escaped_buffer"}} if cached else {}))


def test_a_torch_function_mode_stands_around_the_call():
    check(seeing, around=lambda p: Doubling(), share=None)


def test_a_dispatch_mode_stands_around_the_call():
    class Doubled(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            return result * 2 if function is torch.ops.aten.tanh.default else result

    check(seeing, around=lambda p: Doubled(), share=None, codes={"dispatch_mode"})


@named({
    "default_device": lambda p: torch.device("cpu"),
    "mkldnn": lambda p: torch.backends.mkldnn.flags(enabled=False),
    "matmul_precision": lambda p: restored(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
    "anomaly_mode": lambda p: torch.autograd.set_detect_anomaly(True),
})
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_switch_that_may_change_kernels_changes(case):
    check(seeing, around=case, matters=None, share=None)


def test_autocast_alternates_with_full_precision():
    def make():
        program = seeing()
        inner = program.step

        def train(x, y, half):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
                return inner(x, y)
        program.step = train
        return program

    class Alternating(Training):
        def batch(self, i):
            return *super().batch(i), i % 6 == 5

    twins.compare(lambda: Alternating(make), STEPS, share=0.9)


@pytest.mark.filterwarnings("ignore")
def test_a_step_inside_of_what_is_traced_runs_eagerly():
    step = steptape.wrap(lambda x: x.pow(2).sum(), verify={"first": True, "rate": 0.0})
    for _ in range(10):
        step(torch.ones(2))
    assert step.stats["replayed"] >= 6
    traced = torch.jit.trace(lambda x: step(x) + 1, (torch.ones(2),), check_trace=False)
    assert traced(torch.full((2,), 3.0)).item() == 19.0
    assert step.stats["last_verdict"].startswith("ambient.dispatch_mode")

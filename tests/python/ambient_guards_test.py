"""Guards of what surrounds a call: threads, dtypes, grad modes, autocast and switches of kernels."""
import contextlib
import sys

import pytest
import torch
import torch.nn.functional as F

import steptape
import twins
from classification import Program, sgd, small_model
from guarded import EDIT, STEPS, Training, check, named
from twins import codes_of


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
    # Under autocast the weights' casts stay in its cache after the step.
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
    "view_replay": lambda p: torch.autograd._force_original_view_tracking(True),
    "cudnn_sdp": lambda p: restored(
        torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp, False),
    "autocast_cache": lambda p: restored(
        torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, False),
    "cudnn_precision": lambda p: torch.backends.cudnn.flags(allow_tf32=False),
    "sdp_order": lambda p: torch.nn.attention.sdpa_kernel(
        [torch.nn.attention.SDPBackend.MATH, torch.nn.attention.SDPBackend.FLASH_ATTENTION],
        set_priority=True),
})
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_switch_that_may_change_kernels_changes(case):
    check(seeing, around=case, matters=None, share=None)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_anomaly_mode_comes_to_look_for_nan():
    def play(wrap):
        w = torch.zeros(3, requires_grad=True)

        def train(x):
            w.grad = None
            (x * w).sqrt().sum().backward()
            return w.grad.isnan().sum().item()

        step, seen = wrap(train), []
        for i in range(STEPS):
            with torch.autograd.set_detect_anomaly(True, check_nan=i >= EDIT):
                try:
                    seen.append(step(torch.zeros(3)))
                except RuntimeError as error:
                    seen.append(str(error))
        return seen, step

    expected, _ = play(lambda step: step)
    seen, step = play(lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert seen == expected and "nan" in str(seen[EDIT]), step.explain()
    assert step.stats["replayed"] >= EDIT // 2, step.explain()


def test_hooks_of_saved_tensors_come_to_be_forbidden():
    """Eager raises where the step sets some; a step that sets none goes on."""
    def hooked(x, w):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            return (x * w).tanh().sum()

    def play(loss_of, wrap):
        w = torch.ones(3, requires_grad=True)

        def train(x):
            loss = loss_of(x, w)
            w.grad = None
            loss.backward()
            return w.grad.sum().item()

        step, seen = wrap(train), []
        for i in range(STEPS):
            with torch.autograd.graph.disable_saved_tensors_hooks("none here") if i >= EDIT else contextlib.nullcontext():
                try:
                    seen.append(step(torch.full((3,), 0.1 * i)))
                except RuntimeError as error:
                    seen.append(str(error))
        return seen, step

    for loss_of in (hooked, lambda x, w: (x * w).tanh().sum()):
        expected, _ = play(loss_of, lambda step: step)
        seen, step = play(loss_of, lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
        assert seen == expected, step.explain()
        assert step.stats["replayed"] >= EDIT // 2, step.explain()


def flipped(owner, name):
    """A step that turns a switch of torch over, and back after it."""
    def change():
        setattr(owner, name, not getattr(owner, name))
    return change


SWITCHED = {
    "cudnn_tf32": flipped(torch.backends.cudnn, "allow_tf32"),
    "cuda_tf32": flipped(torch.backends.cuda.matmul, "allow_tf32"),
    "half_reduction": flipped(
        torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    "cudnn_sdp": lambda: torch.backends.cuda.enable_cudnn_sdp(
        not torch.backends.cuda.cudnn_sdp_enabled()),
    "autocast_cache": lambda: torch.set_autocast_cache_enabled(
        not torch.is_autocast_cache_enabled()),
    "view_replay": lambda: torch._C._set_view_replay_enabled(
        not torch._C._is_view_replay_enabled()),
    "autocast_cuda_dtype": lambda: torch.set_autocast_dtype(
        "cuda", torch.bfloat16 if torch.get_autocast_dtype("cuda") != torch.bfloat16
        else torch.float16),
}


@named(SWITCHED)
def test_a_step_that_leaves_a_switch_other_than_it_was_is_refused(case):
    def train(x):
        case()
        return x * 2

    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for _ in range(8):
        assert step(torch.ones(2)).tolist() == [2.0, 2.0]
    assert step.stats["replayed"] == 0
    assert codes_of(step) == {"host_effect"}
    assert "the step leaves torch's switch `" in step.explain()


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


def test_what_is_below_autograd_raises_where_eager_does():
    """`torch._C._AutoDispatchBelowAutograd`, as kernels of functorch run."""
    def play(wrap):
        torch.manual_seed(0)
        model = small_model()
        optimizer = sgd(model.parameters())

        def train(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step, seen = wrap(train), []
        for i in range(STEPS):
            with torch._C._AutoDispatchBelowAutograd() if i >= EDIT and i % 4 == 0 else contextlib.nullcontext():
                try:
                    seen.append(twins.bits(step(torch.full((3, 6), 0.1 * i))))
                except RuntimeError as error:
                    seen.append(str(error)[:60])
            seen.append(twins.bits(list(model.parameters())))
        return [seen, step]

    step = twins.played_alike(play)
    assert step.stats["replayed"] >= STEPS // 3, step.explain()


@pytest.mark.parametrize("kind", ["trace", "profile"])
def test_a_function_that_is_told_of_calls_comes_and_goes(kind):
    """As a debugger does, whose breakpoints are reached."""
    put = {"trace": sys.settrace, "profile": sys.setprofile}[kind]

    def play(wrap):
        told = []

        def inner(x):
            return x * 2

        def listen(frame, event, argument):
            if frame.f_code is inner.__code__ and event == "call":
                told.append(event)

        step, seen = wrap(lambda x: inner(x) + 1), []
        before = sys.gettrace() if kind == "trace" else sys.getprofile()
        for i in range(40):
            if 16 <= i < 24:
                put(listen)
            try:
                result = step(torch.full((2,), float(i)))
            finally:
                put(before)
            seen.append((twins.bits(result), len(told)))
        return [seen, step]

    step = twins.played_alike(play)
    assert step.stats["replayed"] >= 20, step.explain()
    assert "sys.gettrace" in step.explain(), step.explain()

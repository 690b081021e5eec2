"""What training loops use of PyTorch beside layers and optimizers replays with the bits of eager,
or is refused by name.

Every test trains twins. Unless a test says otherwise the step clears gradients, computes a loss,
calls backward and updates, and replays.
"""
import random
from collections import namedtuple
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import distributions, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parametrizations, parametrize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.optim import SGD, Adam, SparseAdam, swa_utils
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import steptape
import twins
from twins import compare


def net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def batch(_):
    return torch.randn(4, 6), torch.randn(4, 3)


def momentum(model):
    return SGD(model.parameters(), lr=0.02, momentum=0.9)


def adam(model):
    return Adam(model.parameters(), lr=0.01)


def mse(model, x, y):
    return F.mse_loss(model(x), y)


def nothing(_):
    pass


def training(model, loss_of=mse, *, batch=batch, optimizer_of=momentum, after=None, holds=()):
    """The plain step over loss_of(model, *arguments); after: (i) between two steps."""
    optimizer = optimizer_of(model)

    def step(*args, **kwargs):
        optimizer.zero_grad()
        loss = loss_of(model, *args, **kwargs)
        loss.backward()
        optimizer.step()
        return loss

    return SimpleNamespace(step=step, batch=batch, model=model, optimizer=optimizer,
                           holds=lambda: [model, optimizer, *holds], after=after or nothing)


def program(body, *parts, batch=batch, holds=(), after=None):
    """A training that calls several steps: body makes the loop's body of them, wrapped or not."""
    return SimpleNamespace(step=body(*parts), body=body, parts=parts, batch=batch,
                           holds=lambda: list(holds), after=after or nothing)


def wrapped(made, options):
    if not hasattr(made, "parts"):
        return steptape.wrap(made.step, **options)
    steps = [steptape.wrap(part, **options) for part in made.parts]
    return twins.Program(made.body(*steps), *steps)


def replays(make, steps=40, share=0.9, **options):
    """The twins agree, and replays are the rule: in share and in number."""
    step = compare(make, steps, share=share, **({"wrapper": wrapped} | options))
    assert step.stats["replayed"] >= steps // 2, step.explain()
    return step


def is_refused(make, *codes, steps=20):
    """The twins agree, and the step is refused by one of these names."""
    return compare(make, steps, codes=set(codes), wrapper=wrapped)


def replays_or_says_why(make, *codes, steps=40, **options):
    """The twins agree; both a replay and a refusal by one of these names is right."""
    step = compare(make, steps, **({"wrapper": wrapped} | options))
    met = {r["code"] for r in step.stats["refusals"]}
    assert step.stats["replayed"] > steps // 2 or met & set(codes), step.explain()
    return step


def kinds(value):
    """The classes that a value is built of."""
    if isinstance(value, dict):
        return [type(value).__name__, {k: kinds(v) for k, v in value.items()}]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(kinds, value)]
    return type(value).__name__


def with_kinds(step):
    def body(*args, **kwargs):
        result = step(*args, **kwargs)
        return kinds(result), result

    return body


def in_bfloat16(model, x, y):
    """The weights are cast once and the casts used twice."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return mse(model, x, y) + mse(model, -x, y)


@pytest.mark.parametrize("optimizer_of", [momentum, adam])
def test_autocast_in_the_step(optimizer_of):
    replays(lambda: training(net(), in_bfloat16, optimizer_of=optimizer_of))


def test_autocast_around_some_of_the_calls_is_refused():
    """Casts of the weights stay in autocast's cache behind the step: eager would use them again in the next
    step under the same autocast. Without autocast the step replays."""
    def around(step):
        def body(i, x, y):
            with torch.autocast("cpu", dtype=torch.bfloat16) if i % 3 == 0 else nullcontext():
                return step(x, y)

        return body

    def make():
        made = training(net())
        return program(around, made.step, batch=lambda i: (i, *batch(i)), holds=made.holds())

    step = compare(make, 60, codes={"escaped_buffer"}, wrapper=wrapped)
    assert step.stats["replayed"] > 20


def test_autocast_that_changes_its_dtype():
    def loss_of(model, x, y, half):
        with torch.autocast("cpu", dtype=torch.float16 if half else torch.bfloat16):
            return mse(model, x, y)

    replays(lambda: training(net(), loss_of, batch=lambda i: (*batch(i), i % 4 == 3)), 80)


def test_a_dtype_as_argument_gives_the_bits_of_eager():
    def loss_of(model, x, y, dtype):
        return mse(model, x.to(dtype).float(), y)

    replays_or_says_why(lambda: training(net(), loss_of, batch=lambda i: (
        *batch(i), torch.float64 if i % 4 == 3 else torch.bfloat16)), "opaque_argument")


SCALED = {
    "sgd": momentum,
    "adam_loop": lambda m: Adam(m.parameters(), lr=0.01, foreach=False),
    "adam_foreach": lambda m: Adam(m.parameters(), lr=0.01, foreach=True),
    # Takes the verdict as a tensor: nothing is read on the host.
    "adam_fused": lambda m: Adam(m.parameters(), lr=0.01, fused=True),
    # Without momentum: its buffer stays uninitialised where torch skips the first step.
    "sgd_fused": lambda m: SGD(m.parameters(), lr=0.02, fused=True),
}


def scaled(optimizer_of, overflows, clip=False):
    """Mixed precision as the tutorials write it; gradients overflow in the named calls."""
    model = net()
    optimizer = optimizer_of(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)

    def step(x, y):
        optimizer.zero_grad()
        loss = in_bfloat16(model, x, y)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        return loss

    def batch(i):
        return torch.randn(4, 6), torch.randn(4, 3) * (float("inf") if i in overflows else 1)

    made = SimpleNamespace(step=step, batch=batch)
    made.holds = lambda: [model, optimizer, scaler.state_dict()]
    return made


@pytest.mark.parametrize("clip", [False, True], ids=["", "clipped"])
@pytest.mark.parametrize("optimizer", SCALED)
def test_a_grad_scaler_without_overflows(optimizer, clip):
    """The scale doubles every five steps, as a tensor that the step carries."""
    replays(lambda: scaled(SCALED[optimizer], (), clip))


@pytest.mark.parametrize("optimizer", SCALED)
@pytest.mark.parametrize("overflows", [range(1), range(3), range(12)], ids=len)
def test_a_grad_scaler_that_overflows_in_the_first_steps(overflows, optimizer):
    """The step that makes optimizer state comes when the first one is not skipped."""
    replays(lambda: scaled(SCALED[optimizer], overflows), 60)


@pytest.mark.parametrize("clip", [False, True], ids=["", "clipped"])
@pytest.mark.parametrize("optimizer", SCALED)
def test_a_grad_scaler_that_overflows_now_and_then(optimizer, clip):
    """A replay that meets the first overflow is undone; later ones are a variant."""
    replays(lambda: scaled(SCALED[optimizer], {0, 20, 21, 35, 50, 66}, clip), 80, share=0.8)


CLIPS = {
    "norm": lambda p: clip_grad_norm_(p, 0.1),
    "norm of infinity": lambda p: clip_grad_norm_(p, 0.1, norm_type=float("inf")),
    "norm, loop": lambda p: clip_grad_norm_(p, 0.1, foreach=False),
    "norm, foreach": lambda p: clip_grad_norm_(p, 0.1, foreach=True),
    # Reads on the host whether the norm is finite: the same in each step.
    "norm, checked": lambda p: clip_grad_norm_(p, 0.1, error_if_nonfinite=True),
    "value": lambda p: clip_grad_value_(p, 0.01),
    "value, foreach": lambda p: clip_grad_value_(p, 0.01, foreach=True),
}


def clipped(clip, batch=batch):
    model = net()
    optimizer = adam(model)

    def step(x, y):
        optimizer.zero_grad()
        loss = mse(model, x, y)
        loss.backward()
        norm = clip(model.parameters())
        optimizer.step()
        return loss, norm

    return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer])


@pytest.mark.parametrize("clip", CLIPS)
def test_gradients_are_clipped(clip):
    replays(lambda: clipped(CLIPS[clip]))


def test_a_norm_that_is_not_finite_raises_as_in_eager():
    def batch(i):
        return torch.randn(4, 6), torch.randn(4, 3) * (float("inf") if i in (25, 26, 40) else 1)

    replays(lambda: clipped(CLIPS["norm, checked"], batch), 60, share=0.8)


@pytest.mark.parametrize("to_none", [True, False], ids=["to none", "to zero"])
def test_gradients_are_cleared(to_none):
    def make():
        model = net()
        optimizer = momentum(model)

        def step(x, y):
            optimizer.zero_grad(set_to_none=to_none)
            loss = mse(model, x, y)
            loss.backward()
            optimizer.step()
            return loss

        return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer])

    replays(make)


@pytest.mark.parametrize("to_none", [True, False], ids=["to none", "to zero"])
def test_accumulation_in_two_steps(to_none):
    def make():
        model = net()
        optimizer = adam(model)

        def micro(x, y):
            loss = mse(model, x, y) / 4
            loss.backward()
            return loss

        def apply():
            optimizer.step()
            optimizer.zero_grad(set_to_none=to_none)

        def accumulate(micro, apply):
            def body(i, x, y):
                loss = micro(x, y)
                if i % 4 == 3:
                    apply()
                return loss

            return body

        return program(accumulate, micro, apply, batch=lambda i: (i, *batch(i)),
                       holds=[model, optimizer])

    step = replays(make, 100)
    assert all(part.stats["replayed"] >= 10 for part in step.steps), step.explain()


@pytest.mark.parametrize("to_none", [True, False], ids=["to none", "to zero"])
def test_accumulation_by_an_argument(to_none):
    def make():
        model = net()
        optimizer = adam(model)

        def step(x, y, last):
            loss = mse(model, x, y) / 4
            loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad(set_to_none=to_none)
            return loss

        return SimpleNamespace(step=step, batch=lambda i: (*batch(i), i % 4 == 3),
                               holds=lambda: [model, optimizer])

    replays(make, 100)


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.use_reentrant = use_reentrant
        self.first, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Tanh()) for _ in range(2))

    def forward(self, x):
        h = self.first(x)
        for block in self.blocks:
            h = checkpoint(block, F.dropout(h, 0.1), use_reentrant=self.use_reentrant)
        return self.head(h)


@pytest.mark.parametrize("loss_of", [mse, in_bfloat16], ids=["float32", "autocast"])
@pytest.mark.parametrize("use_reentrant", [False, True], ids=["not reentrant", "reentrant"])
def test_checkpointing_draws_the_same_dropout_twice(use_reentrant, loss_of):
    replays(lambda: training(Checkpointed(use_reentrant), loss_of))


PARAMETRIZED = {
    "weight_norm": lambda: parametrizations.weight_norm(nn.Linear(6, 6)),
    "spectral_norm": lambda: parametrizations.spectral_norm(nn.Linear(6, 6)),
    "matrix_exp": lambda: parametrizations.orthogonal(
        nn.Linear(6, 6), orthogonal_map="matrix_exp"),
    "cayley": lambda: parametrizations.orthogonal(nn.Linear(6, 6), orthogonal_map="cayley"),
    "householder": lambda: parametrizations.orthogonal(
        nn.Linear(6, 6), orthogonal_map="householder"),
}


@pytest.mark.parametrize("name", PARAMETRIZED)
def test_parametrizations(name):
    replays(lambda: training(nn.Sequential(PARAMETRIZED[name](), nn.Tanh(), nn.Linear(6, 3))))


def test_a_parametrization_that_is_cached_in_the_step():
    def loss_of(model, x, y):
        with parametrize.cached():
            return mse(model, x, y) + mse(model, -x, y)

    replays(lambda: training(
        nn.Sequential(PARAMETRIZED["spectral_norm"](), nn.Tanh(), nn.Linear(6, 3)), loss_of))


def test_spectral_norm_by_hook_leaves_its_weight_as_eager_does():
    """The hook binds module.weight to a tensor of the step, which stays alive."""
    def make():
        model = nn.Sequential(nn.utils.spectral_norm(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 3))
        made = training(model)
        made.holds = lambda: [made.model, made.optimizer, model[0].weight]
        return made

    replays_or_says_why(make, "escaped_buffer", "rebound_tensor", "host_effect")


AVERAGES = {
    "ema": dict(multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9)),
    "ema, one by one": dict(avg_fn=swa_utils.get_ema_avg_fn(0.9)),
    "ema with buffers": dict(multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True),
    # Reads its count on the host, as the weight of the newest model.
    "swa": dict(),
    "a function": dict(avg_fn=lambda average, now, count: 0.9 * average + 0.1 * now),
}


@pytest.mark.parametrize("name", AVERAGES)
def test_an_averaged_model_updated_in_the_step(name):
    def make():
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
        optimizer = momentum(model)
        average = swa_utils.AveragedModel(model, **AVERAGES[name])

        def step(x, y):
            optimizer.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
            return loss

        return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer, average])

    replays(make)


def test_an_average_kept_in_plain_tensors():
    def make():
        model = net()
        optimizer, average = momentum(model), [p.detach().clone() for p in model.parameters()]

        def step(x, y):
            optimizer.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for kept, p in zip(average, model.parameters()):
                    kept.lerp_(p, 0.1)
            return loss

        return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer, average])

    replays_or_says_why(make, "untracked_write")


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return grad * 3 * x ** 2


class Rounded(torch.autograd.Function):
    """A straight-through estimator, with numbers kept in ctx."""

    @staticmethod
    def forward(ctx, x, levels):
        ctx.levels = levels
        ctx.mark_non_differentiable()
        return torch.round(x * levels) / levels

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-1 / ctx.levels, 1 / ctx.levels), None


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@pytest.mark.parametrize("function", [
    Cube.apply, lambda h: Rounded.apply(h, 8), lambda h: InPlace.apply(h + 0)],
    ids=["saved tensor", "saved number", "in place"])
def test_autograd_functions_of_the_users_own(function):
    def loss_of(model, x, y):
        return F.mse_loss(function(model(x)), y)

    replays(lambda: training(net(), loss_of))


@pytest.mark.parametrize("optimizer_of", [momentum, adam])
def test_a_gradient_penalty(optimizer_of):
    def loss_of(model, x, y):
        x = x.detach().requires_grad_()
        out = model(x)
        slope, = torch.autograd.grad(out.sum(), x, create_graph=True)
        return F.mse_loss(out, y) + (slope.norm(dim=1) - 1).square().mean()

    replays(lambda: training(net(), loss_of, optimizer_of=optimizer_of))


def test_an_inner_step_that_is_differentiated():
    def loss_of(model, x, y):
        weights = dict(model.named_parameters())
        inner = F.mse_loss(torch.func.functional_call(model, weights, (x,)), y)
        slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
        fast = {n: w - 0.1 * g for (n, w), g in zip(weights.items(), slopes)}
        return F.mse_loss(torch.func.functional_call(model, fast, (-x,)), y)

    replays(lambda: training(net(), loss_of))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 6), nn.Linear(6, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.embed(tokens)))


@pytest.mark.parametrize("optimizer_of", [momentum, adam])
def test_tied_weights(optimizer_of):
    replays(lambda: training(
        Tied(), lambda model, x, y: F.cross_entropy(model(x), y), optimizer_of=optimizer_of,
        batch=lambda i: (torch.randint(10, (8,)), torch.randint(10, (8,)))))


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 3, dtype=torch.complex64) / 3)
        self.phase = nn.Parameter(torch.randn(3, dtype=torch.complex64))

    def forward(self, x):
        out = x @ self.weight * self.phase
        return out.abs() + out.imag


class Conjugated(Complex):
    """The gradient of phase comes with its conjugate bit set."""

    def forward(self, x):
        out = x @ self.weight * self.phase.conj()
        return out.abs() + out.imag


@pytest.mark.parametrize("model, optimizer_of", [
    (Complex, momentum), (Complex, adam),
    (Complex, lambda m: Adam(m.parameters(), lr=0.01, foreach=True, amsgrad=True)),
    (Conjugated, momentum),  # Adam raises on such a gradient
], ids=["sgd", "adam", "adam_foreach", "conjugated-sgd"])
def test_complex_parameters(model, optimizer_of):
    replays(lambda: training(
        model(), optimizer_of=optimizer_of,
        batch=lambda i: (torch.randn(4, 6, dtype=torch.complex64), torch.randn(4, 3))))


def conv_net():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(16, 3))


@pytest.mark.parametrize("optimizer_of", [momentum, adam])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_conv_net_in_a_memory_format(layout, optimizer_of):
    def images(i):
        return torch.randn(2, 3, 8, 8).contiguous(memory_format=layout), torch.randn(2, 3)

    replays(lambda: training(conv_net().to(memory_format=layout), batch=images,
                             optimizer_of=optimizer_of))


def test_inputs_that_change_their_memory_format():
    def images(i):
        layout = torch.channels_last if i % 5 == 4 else torch.contiguous_format
        return torch.randn(2, 3, 8, 8).contiguous(memory_format=layout), torch.randn(2, 3)

    replays(lambda: training(conv_net(), batch=images), 80)


def sampled_normal(out):
    return distributions.Normal(out, out.exp(), validate_args=True).rsample()


def scored_normal(out):
    normal = distributions.Normal(out, 1.0, validate_args=True)
    return normal.log_prob(normal.sample())


def sampled_category(out):
    categorical = distributions.Categorical(logits=out, validate_args=True)
    return categorical.log_prob(categorical.sample()) + categorical.entropy()


def sampled_bits(out):
    bernoulli = distributions.Bernoulli(logits=out, validate_args=True)
    return bernoulli.log_prob(bernoulli.sample())


def sampled_gamma(out):
    return distributions.Gamma(out.exp(), 1 + out.square(), validate_args=True).rsample().log()


def divergence(out):
    unit = distributions.Normal(torch.zeros_like(out), 1.0, validate_args=True)
    return distributions.kl_divergence(
        distributions.Normal(out, out.exp(), validate_args=True), unit)


@pytest.mark.parametrize("term", [sampled_normal, scored_normal, sampled_category, sampled_bits,
                                  sampled_gamma, divergence])
def test_distributions_sample_and_score_under_validation(term):
    """Validation reads on the host that all is well: the same in each step."""
    def loss_of(model, x, y):
        return (term(model(x)) + y.mean()).square().mean()

    replays(lambda: training(net(), loss_of))


def test_a_validation_that_fails_raises_as_in_eager():
    """What the step had done before it raised stays done: gradients are cleared, no more."""
    def poisoned(i):
        x, y = batch(i)
        return (x * float("nan"), y) if i in (25, 26, 45) else (x, y)

    def loss_of(model, x, y):
        return (scored_normal(model(x)) + y).square().mean()

    replays(lambda: training(net(), loss_of, batch=poisoned), 60, share=0.8)


@pytest.mark.parametrize("kind", [SGD, SparseAdam])
def test_sparse_gradients_are_refused(kind):
    is_refused(lambda: training(
        nn.Embedding(10, 4, sparse=True),
        lambda model, x, y: F.mse_loss(model(x), y),
        optimizer_of=lambda m: kind(m.parameters(), lr=0.05),
        batch=lambda i: (torch.randint(10, (6,)), torch.randn(6, 4))), "tensor_kind")


def test_a_compiled_callee_is_refused_and_compiled_no_more_often_than_without():
    """A recorder that its guards could see would cost a compilation in every phase of a step."""
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    def make():
        made = training(net())
        compiled, optimizer = torch.compile(made.model, backend=backend), made.optimizer

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(compiled(x), y)
            loss.backward()
            optimizer.step()
            return loss

        made.step = step
        return made

    def compilations():
        found = len(graphs), dict(torch._dynamo.utils.counters["stats"])["unique_graphs"]
        graphs.clear()
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        return found

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compare(make, 4, wrapper=lambda made, _: Eager(made.step))
    without = compilations()
    try:
        is_refused(make, "unreplayable_op")
    finally:
        found = compilations()
    assert without[0] > 0 and found == without


class Eager:
    """A step that nobody wrapped."""

    def __init__(self, step):
        self.step, self.calls = step, 0

    def __call__(self, *args):
        self.calls += 1
        return self.step(*args)

    @property
    def stats(self):
        return dict(steps=self.calls, recorded=0, trials=0, replayed=0, eager=self.calls, audits=0)

    def explain(self):
        return "not wrapped"


def test_an_array_read_in_the_step_is_refused():
    """Its bytes are filled by NumPy, and no op tells that they are others now."""
    def make():
        model = net()
        optimizer, noise = momentum(model), np.zeros((4, 6), np.float32)

        def step(x, y):
            optimizer.zero_grad()
            loss = mse(model, x + torch.from_numpy(noise), y)
            loss.backward()
            optimizer.step()
            return loss

        def after(i):
            noise[:] = np.random.randn(4, 6)

        return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer],
                               after=after)

    is_refused(make, "host_tensor_varies", "outside_tensor_varies", "unwritten_read",
               "host_effect")


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


def test_a_dispatch_mode_in_the_step_is_refused():
    def make():
        mode = Seen()

        def loss_of(model, x, y):
            with mode:
                return mse(model, x, y)

        return training(net(), loss_of, holds=[mode.ops])

    is_refused(make, "dispatch_mode", "host_effect")  # the mode also keeps a list


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
    """torch.device as a context is a function mode of torch's own."""
    def make():
        made = training(net())

        def around(step):
            def body(x, y):
                with torch.device("cpu"):
                    return step(x, y)

            return body

        return program(around, made.step, holds=made.holds())

    replays_or_says_why(make, "dispatch_mode")


def dropping(p=0.5):
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(p), nn.ReLU(), nn.AlphaDropout(p),
                         nn.Linear(8, 3))


def test_dropout():
    replays(lambda: training(dropping()))


def test_dropout_of_another_probability_from_a_step_on():
    def make():
        model = dropping()

        def after(i):
            if i in (25, 50):
                model[1].p = {25: 0.1, 50: 0.9}[i]

        return training(model, after=after)

    replays(make, 80)


def test_generators_seeded_between_steps():
    def make():
        return training(dropping(), after=lambda i: torch.manual_seed(i) if i % 7 == 0 else None)

    replays(make)


def normalized(**options):
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, **options), nn.Dropout(0.2), nn.ReLU(),
                         nn.Linear(8, 3))


def test_training_flags_switch_between_steps():
    def make():
        model = normalized()
        return training(model, after=lambda i: model.train(i % 10 < 7))

    replays(make, 80)


def test_one_layer_alone_is_switched_to_eval():
    def make():
        model = normalized()
        return training(model, after=lambda i: model[1].train(i < 25))

    replays(make, 60)


def test_training_and_evaluation_in_turn():
    def make():
        model = normalized()
        made = training(model)

        @torch.no_grad()
        def evaluate(x, y):
            return mse(model, x, y)

        def in_turn(train, evaluate):
            def body(i, x, y):
                model.train(i % 4 != 3)
                return (train if model.training else evaluate)(x, y)

            return body

        return program(in_turn, made.step, evaluate, batch=lambda i: (i, *batch(i)),
                       holds=made.holds())

    replays(make, 80)


def test_batch_norm_takes_another_momentum_in_mid_run():
    def make():
        model = normalized()

        def after(i):
            model[1].momentum = 0.1 if i < 25 else 0.3

        return training(model, after=after)

    replays(make, 60)


def test_batch_norm_without_momentum_divides_by_its_count():
    """A number worked out on the host from a count that it reads, another one in each step."""
    replays_or_says_why(lambda: training(normalized(momentum=None)), "host_read", "scalar_varies")


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.rnn = kind(6, 8, batch_first=True, **options)
        self.head = nn.Linear(16 if self.rnn.bidirectional else 8, 3)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


def sequences(_, length=5):
    return torch.randn(4, length, 6), torch.randn(4, 3)


@pytest.mark.parametrize("options", [
    {}, dict(bidirectional=True), dict(num_layers=2, dropout=0.2)],
    ids=["plain", "bidirectional", "deep"])
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers(kind, options):
    replays(lambda: training(Recurrent(kind, **options), batch=sequences))


def test_a_hidden_state_goes_from_step_to_step_as_argument_and_result():
    def make():
        model = nn.ModuleList([nn.GRU(6, 8, batch_first=True), nn.Linear(8, 3)])
        optimizer, kept = momentum(model), [torch.zeros(1, 4, 8)]

        def step(x, y, hidden):
            optimizer.zero_grad()
            out, hidden = model[0](x, hidden)
            loss = F.mse_loss(model[1](out[:, -1]), y)
            loss.backward()
            optimizer.step()
            return loss, hidden.detach()

        def carry(step):
            def body(x, y):
                loss, kept[0] = step(x, y, kept[0])
                return loss, kept[0]

            return body

        return program(carry, step, batch=sequences, holds=[model, optimizer])

    replays(make)


def test_an_lstm_cell_in_a_loop():
    class Unrolled(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTMCell(6, 8), nn.Linear(8, 3)

        def forward(self, x):
            state = None
            for i in range(x.shape[1]):
                state = self.cell(x[:, i], state)
            return self.head(state[0])

    replays(lambda: training(Unrolled(), batch=sequences))


def test_sequences_of_three_lengths_are_three_variants():
    replays(lambda: training(Recurrent(nn.GRU), batch=lambda i: sequences(i, 3 + i % 3)), 90)


def packed(model, x, y, lengths):
    rows = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    out, _ = pad_packed_sequence(model.rnn(rows)[0], batch_first=True, total_length=5)
    return F.mse_loss(model.head(out.sum(1)), y)


@pytest.mark.parametrize("as_lengths", [list, torch.tensor], ids=["list", "tensor"])
def test_packed_sequences_of_constant_lengths(as_lengths):
    """The kernel reads the lengths through a pointer: no op shows what became of them."""
    replays_or_says_why(
        lambda: training(Recurrent(nn.GRU), packed, batch=lambda i: (
            *sequences(i), as_lengths([5, 3, 2, 2]))),
        "host_read", "outside_tensor_varies", "unreplayable_op", "unstable_op_stream", "unwritten_read")


@pytest.mark.parametrize("as_lengths", [list, torch.tensor], ids=["list", "tensor"])
@pytest.mark.parametrize("first", [0, 25], ids=["from the start", "from step 25"])
def test_packed_sequences_of_lengths_that_vary(first, as_lengths):
    """The first longest row keeps all shapes but those inside the layer."""
    def batch(i):
        rest = [random.randint(1, 5) for _ in range(3)] if i >= first else [3, 2, 2]
        return *sequences(i), as_lengths([5, *rest])

    compare(lambda: training(Recurrent(nn.GRU), packed, batch=batch), 50)


def test_two_backward_calls_through_one_graph():
    def make():
        model = net()
        optimizer = momentum(model)

        def step(x, y):
            optimizer.zero_grad()
            out = torch.tanh(model(x))
            first, second = F.mse_loss(out, y), out.square().mean()
            first.backward(retain_graph=True)
            second.backward()
            optimizer.step()
            return first.detach(), second.detach()

        return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer])

    replays(make)


def then_backward(step):
    def body(x, y):
        loss = step(x, y)
        loss.backward()
        return loss

    return body


def test_a_graph_that_is_retained_for_a_backward_behind_the_step_is_refused():
    def make():
        model = net()
        optimizer = momentum(model)

        def step(x, y):
            optimizer.zero_grad()
            loss = (model(x) * y).mean()
            loss.backward(retain_graph=True)
            return loss

        return program(then_backward, step, holds=[model, optimizer])

    is_refused(make, "unconsumed_graph", "escaped_buffer")


def test_a_forward_with_its_backward_behind_the_step_is_refused():
    def make():
        model = net()

        def forward(x, y):
            return mse(model, x, y)

        return program(then_backward, forward, holds=[model])

    is_refused(make, "unconsumed_graph")


def plain_forward(model):
    return lambda x: model(x)


def forward_in(context):
    def forward_of(model):
        def forward(x):
            with context():
                return model(x)

        return forward

    return forward_of


FORWARDS = {
    "no_grad inside": (forward_in(torch.no_grad), nullcontext),
    "inference_mode inside": (forward_in(torch.inference_mode), nullcontext),
    "no_grad around": (plain_forward, torch.no_grad),
    "inference_mode around": (plain_forward, torch.inference_mode),
    "no_grad as decorator": (lambda m: torch.no_grad()(plain_forward(m)), nullcontext),
    "inference_mode as decorator": (
        lambda m: torch.inference_mode()(plain_forward(m)), nullcontext),
    "grad enabled around no_grad": (forward_in(torch.no_grad), torch.enable_grad),
}


@pytest.mark.parametrize("training_flag", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", FORWARDS)
def test_a_forward_alone(name, training_flag):
    forward_of, context = FORWARDS[name]

    def make():
        model = normalized().train(training_flag)

        def around(forward):
            def body(x):
                with context():
                    out = forward(x)
                return out.clone(), out.requires_grad, out.is_inference()

            return body

        return program(around, forward_of(model), batch=lambda i: batch(i)[:1], holds=[model])

    replays(make, 30)


def test_grad_mode_around_a_forward_comes_and_goes():
    """With gradients the result carries a graph, so that those calls run eagerly."""
    def make():
        model = net()

        def around(forward):
            def body(i, x):
                with torch.no_grad() if i % 4 else nullcontext():
                    out = forward(x)
                if out.requires_grad:
                    out.sum().backward()
                return out, out.requires_grad

            return body

        return program(around, plain_forward(model), batch=lambda i: (i, batch(i)[0]),
                       holds=[model])

    step = compare(make, 60, codes={"unconsumed_graph"}, wrapper=wrapped)
    assert step.stats["replayed"] >= 20, step.explain()


Pair = namedtuple("Pair", "loss out")


@dataclass
class Outcome:
    loss: torch.Tensor
    note: str
    parts: dict


RESULTS = {
    "None": lambda loss, out: None,
    "a tensor": lambda loss, out: loss,
    "a number that was read": lambda loss, out: loss.item(),
    "an index that was read": lambda loss, out: out.argmax().item(),
    "numbers that were read": lambda loss, out: [v.item() for v in (loss, out.sum(), out.mean())],
    "a str": lambda loss, out: "done",
    "a constant": lambda loss, out: 3,
    "a tuple": lambda loss, out: (loss, out),
    "an empty tuple": lambda loss, out: (),
    "a dict": lambda loss, out: {"out": out, "loss": loss},
    "nested": lambda loss, out: [loss, {"both": (loss, [out]), 3: None}, (), "done", 2.5, True],
    "a namedtuple": lambda loss, out: Pair(loss, out),
    "a dataclass": lambda loss, out: Outcome(loss, "done", {"out": out}),
    "a view": lambda loss, out: out[1:, 0],
    "a transpose": lambda loss, out: out.t(),
    "overlapping views": lambda loss, out: (out[:2], out[1:]),
}


def returning(form):
    model = net()
    optimizer = momentum(model)

    def step(x, y):
        optimizer.zero_grad()
        out = model(x)
        loss = F.mse_loss(out, y)
        loss.backward()
        optimizer.step()
        return form(loss, out.detach())

    return program(with_kinds, step, holds=[model, optimizer])


@pytest.mark.parametrize("name", RESULTS)
def test_a_step_returns(name):
    replays(lambda: returning(RESULTS[name]))


def test_a_step_returns_a_model_output():
    outputs = pytest.importorskip("transformers.utils")

    @dataclass
    class Output(outputs.ModelOutput):
        loss: torch.Tensor | None = None
        logits: torch.Tensor | None = None
        hidden: tuple | None = None

    def by_name(step):
        def body(x, y):
            result = step(x, y)
            return type(result).__name__, result.loss, result.to_tuple(), list(result.keys())

        return body

    def make():
        made = returning(lambda loss, out: Output(loss=loss, logits=out))
        return program(by_name, *made.parts, holds=made.holds())

    replays(make)


def test_results_that_are_one_tensor_stay_one_tensor():
    def make():
        made = returning(lambda loss, out: (out, [out], out[0]))

        def identities(step):
            def body(x, y):
                a, (b,), row = step(x, y)
                a[0].add_(1)
                return a is b, a, row

            return body

        return program(identities, *made.parts, holds=made.holds())

    replays(make)


def test_a_result_that_is_a_parameter_or_an_argument_stays_that():
    def make():
        model = net()
        optimizer = momentum(model)

        def step(x, y):
            optimizer.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            optimizer.step()
            return loss.detach(), x, model[0].weight

        def identities(step):
            def body(x, y):
                loss, same, weight = step(x, y)
                return loss, same is x, weight is model[0].weight

            return body

        return program(identities, step, holds=[model, optimizer])

    replays_or_says_why(make, "unconsumed_graph", "escaped_buffer")


def test_a_result_that_a_kernel_writes_unseen_is_refused():
    """Without gradients max_pool1d fills what `empty` gave by a kernel that is no op."""
    def make():
        def pool(x):
            with torch.no_grad():
                return F.max_pool1d(x, 2)

        return program(with_kinds, pool, batch=lambda i: (torch.randn(1, 3, 8),), holds=[])

    is_refused(make, "unwritten_read")


def test_a_text_that_the_host_makes_of_a_value_it_reads_is_refused():
    is_refused(lambda: returning(lambda loss, out: f"{loss.item():.3f}"), "host_read", "host_effect")


@pytest.mark.parametrize("form", [
    lambda loss, out: loss.item() * 2,
    lambda loss, out: {"mean": (loss.item() + out.sum().item()) / 2, "count": 3},
], ids=["doubled", "averaged"])
def test_a_number_that_the_host_works_out_of_values_it_reads(form):
    replays(lambda: returning(form))


@pytest.mark.parametrize("form", [
    lambda loss, out: out.tolist(),
    lambda loss, out: out.numpy().copy(),
    lambda loss, out: float(loss),
], ids=["tolist", "numpy", "float"])
def test_values_that_leave_the_step_in_other_ways(form):
    """Neither tolist nor numpy is an op: the bytes are taken through a pointer."""
    replays_or_says_why(lambda: returning(form), "host_read", "host_effect", "written_outside")


def test_a_comparison_with_a_value_that_is_read_is_decided_in_each_replay():
    """The plan holds for one answer: it is undone when the value gives the other, and another takes over."""
    replays(lambda: returning(lambda loss, out: loss.item() > 1.2), 80, share=0.5)


def weighted(model, x, y, weight=1.0, *, flip=False, reduction="mean", mask=None):
    out = model(-x if flip else x)
    if mask is not None:
        out = out * mask
    return F.mse_loss(out, y, reduction=reduction) * weight


def test_a_float_argument_is_followed():
    step = replays(lambda: training(
        net(), weighted, batch=lambda i: (*batch(i), 1 / (1 + i))))
    assert len(step.stats["variants"]) == 1


def test_a_float_argument_that_is_squared_on_its_way_gives_the_bits_of_eager():
    def loss_of(model, x, y, weight):
        return mse(model, x, y) * weight ** 2

    replays_or_says_why(lambda: training(
        net(), loss_of, batch=lambda i: (*batch(i), 1 / (1 + i))),
        "scalar_varies", "too_many_variants", "unstable_op_stream")


def test_a_float_argument_of_unusual_bits():
    """0.0 and -0.0 are equal and have other bits; some are no numbers at all."""
    weights = [1.5, 0.0, -0.0, 1e-42, -2.0, float("inf"), float("nan")]

    def make():
        model = net()

        @torch.no_grad()
        def forward(x, weight):
            return model(x) * weight

        return SimpleNamespace(step=forward, holds=lambda: [model], batch=lambda i: (
            batch(i)[0], weights[i % 5 if i < 40 else i % 7]))

    replays(make, 80, share=0.8)


def test_an_int_argument_of_three_values():
    def loss_of(model, x, y, k):
        return mse(model, x[:, :6].roll(k, 0), y) * k

    replays(lambda: training(net(), loss_of, batch=lambda i: (*batch(i), 1 + i % 3)), 90)


def test_an_int_argument_that_decides_a_shape_in_every_call_anew():
    def loss_of(model, x, y, k):
        return mse(model, x[:k], y[:k])

    is_refused(lambda: training(net(), loss_of, batch=lambda i: (
        torch.randn(64, 6), torch.randn(64, 3), 1 + i)),
        "too_many_variants", "unstable_op_stream", "scalar_varies", steps=60)


def test_an_int_argument_that_counts_calls_and_decides_nothing():
    def loss_of(model, x, y, count):
        return mse(model, x, y)

    replays_or_says_why(lambda: training(net(), loss_of, batch=lambda i: (*batch(i), i)),
                        "too_many_variants", "scalar_varies")


def test_numbers_that_are_equal_and_of_other_types_are_other_arguments():
    def make():
        model = net()

        @torch.no_grad()
        def forward(x, k):
            return model(x) * k, torch.arange(3) * k

        return SimpleNamespace(step=forward, holds=lambda: [model], batch=lambda i: (
            batch(i)[0], (1, True, 1.0)[i % 3]))

    replays(make, 80)


@pytest.mark.parametrize("others", [
    lambda i: dict(flip=i % 4 == 3),
    lambda i: dict(reduction="sum" if i % 4 == 3 else "mean"),
    lambda i: dict(mask=torch.rand(4, 3) if i % 4 == 3 else None),
    lambda i: dict(weight=0.5) if i % 4 == 3 else {},
], ids=["bool", "str", "tensor or None", "default"])
def test_arguments_that_take_the_step_another_way_are_variants(others):
    replays(lambda: training(net(), weighted, batch=lambda i: (batch(i), others(i))), 80)


def test_keyword_arguments_in_any_order_are_one_variant():
    def by_keyword(i):
        x, y = batch(i)
        return (), (dict(x=x, y=y, weight=0.5) if i % 2 else dict(weight=0.5, y=y, x=x))

    def make():
        model = net()
        optimizer = momentum(model)

        def step(x, y, weight):
            optimizer.zero_grad()
            loss = weighted(model, x, y, weight)
            loss.backward()
            optimizer.step()
            return loss

        return program(with_kinds, step, batch=by_keyword, holds=[model, optimizer])

    step = replays(make)
    assert len(step.stats["variants"]) == 1


def test_arguments_by_position_and_by_keyword():
    def make():
        model = net()
        optimizer = momentum(model)

        def step(x, y, weight=1.0):
            optimizer.zero_grad()
            loss = mse(model, x, y) * weight
            loss.backward()
            optimizer.step()
            return loss

        def either(i):
            x, y = batch(i)
            return ((x, y, 0.5), {}) if i % 2 else ((x,), dict(y=y, weight=0.5))

        return SimpleNamespace(step=step, batch=either, holds=lambda: [model, optimizer])

    replays(make, 60)


Example = namedtuple("Example", "x y")


@dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor
    weights: list


STRUCTURES = {
    "dict": (lambda x, y: {"x": x, "y": y}, lambda b: (b["x"], b["y"])),
    "nested": (lambda x, y: [{"x": [x]}, (y, None)], lambda b: (b[0]["x"][0], b[1][0])),
    "namedtuple": (Example, lambda b: (b.x, b.y)),
    "dataclass": (lambda x, y: Batch(x, y, [1.0, 2]), lambda b: (b.x * b.weights[1], b.y)),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_arguments_may_be_structures(name):
    pack, unpack = STRUCTURES[name]
    replays(lambda: training(net(), lambda model, b: mse(model, *unpack(b)),
                             batch=lambda i: (pack(*batch(i)),)))


def test_an_argument_written_in_place():
    def loss_of(model, x, y):
        return mse(model, x.mul_(0.5), y)

    replays_or_says_why(lambda: training(net(), loss_of), "untracked_write")


def test_one_tensor_may_be_two_arguments():
    """Two in most calls, one and the same in some."""
    def loss_of(model, x, y):
        return (model(x) + model(x + y)).square().mean()

    def batch(i):
        x, y = torch.randn(4, 6), torch.randn(4, 6)
        return (x, x) if i % 5 == 4 else (x, y)

    replays(lambda: training(net(), loss_of, batch=batch), 80)


def test_an_argument_may_be_a_view_with_strides():
    def strided(i):
        x, y = torch.randn(6, 4), torch.randn(4, 3)
        return (x.t(), y) if i % 5 else (x.t().contiguous(), y)

    replays(lambda: training(net(), batch=strided), 80)


def test_an_argument_that_requires_a_gradient_gets_one():
    def make():
        made = training(net())

        def with_gradient(step):
            def body(x, y):
                x.requires_grad_()
                loss = step(x, y)
                return loss, x.grad

            return body

        return program(with_gradient, made.step, holds=made.holds())

    replays_or_says_why(make, "untracked_write", "unconsumed_graph", "escaped_buffer",
                        "rebound_tensor")


def test_a_last_batch_that_is_shorter():
    def batch(i):
        n = 2 if i % 10 == 9 else 4
        return torch.randn(n, 6), torch.randn(n, 3)

    replays(lambda: training(normalized(), batch=batch), 100)


class Running(nn.Module):
    """Statistics in module buffers, written in place."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("recent", torch.zeros(8, 6), persistent=False)

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            slots = (self.count * 4 + torch.arange(4)) % 8
            self.recent.index_copy_(0, slots, x)
            self.count += 1
        return self.linear(x - self.mean + self.recent.mean(0))


def test_module_buffers_written_in_place():
    def make():
        model = Running()
        return training(model, holds=[model.recent])

    replays(make)


class Queue(Running):
    """The pointer of the queue is read on the host and becomes a slice."""

    def forward(self, x):
        at = int(self.count)
        self.recent[at:at + 4] = x
        self.count[...] = (at + 4) % 8
        return self.linear(x + self.recent.mean(0))


def test_a_slice_at_a_pointer_that_the_host_reads():
    def make():
        model = Queue()
        return training(model, holds=[model.recent])

    replays_or_says_why(make, "host_read", "unstable_op_stream", "scalar_varies")


class Rebinding(Running):
    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return self.linear(x - self.mean)


def test_a_module_buffer_bound_to_a_new_tensor():
    replays_or_says_why(lambda: training(Rebinding()), "rebound_tensor", "escaped_buffer",
                        "host_effect")


def hooked(model):
    """One hook of every kind that changes what flows through it."""
    model[0].register_forward_hook(lambda module, args, out: out * 1.5)
    model[1].register_forward_pre_hook(lambda module, args: (args[0] + 0.1,))
    model[1].register_full_backward_hook(lambda module, grads_in, grads_out: (grads_in[0] * 0.7,))
    model[2].weight.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
    return model


def test_hooks_that_stood_before_the_first_step():
    replays(lambda: training(hooked(net())))


def test_a_tensor_hook_registered_in_the_step():
    def loss_of(model, x, y):
        hidden = torch.tanh(model[0](x))
        hidden.register_hook(lambda grad: grad * 0.5)
        return F.mse_loss(model[2](hidden), y)

    replays(lambda: training(net(), loss_of))


def test_hooks_that_come_and_go():
    def make():
        model, handles = net(), []

        def after(i):
            if i == 25:
                handles.append(model[0].register_forward_hook(lambda module, args, out: out * 2))
                handles.append(model[2].weight.register_hook(lambda grad: grad * 0.5))
            if i == 50:
                for handle in handles:
                    handle.remove()

        return training(model, after=after)

    replays(make, 80)


def test_a_hook_exchanged_for_another():
    def make():
        model = net()
        handles = [model[0].register_forward_hook(lambda module, args, out: out * 2)]

        def after(i):
            if i == 25:
                handles.pop().remove()
                handles.append(model[0].register_forward_hook(lambda module, args, out: out * 3))

        return training(model, after=after)

    replays(make, 60)


def test_an_update_inside_backward():
    """One optimizer for each parameter, called when its gradient is there."""
    def make():
        model = net()
        optimizers = {p: SGD([p], lr=0.02, momentum=0.9) for p in model.parameters()}

        def update(p):
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(update)

        def step(x, y):
            loss = mse(model, x, y)
            loss.backward()
            return loss

        made = SimpleNamespace(step=step, batch=batch, optimizers=list(optimizers.values()))
        made.holds = lambda: [model, made.optimizers]
        return made

    replays_or_says_why(
        make, "untracked_write", "optimizer_unsupported", "host_effect",
        wrapper=lambda t, options: steptape.wrap(t.step, optimizer=t.optimizers, **options))


def test_a_triton_kernel_is_refused(monkeypatch):
    """Its launch is no op: it takes the memory of tensors. Here in Triton's interpreter, which needs no GPU."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    triton = pytest.importorskip("triton")
    import triton.language as tl

    @triton.jit
    def double(source, target, n, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(target + at, tl.load(source + at, mask=at < n) * 2, mask=at < n)

    def step(x):
        y = torch.zeros_like(x)
        double[(1,)](x, y, x.numel(), block=16)
        return y + 1

    is_refused(lambda: SimpleNamespace(step=step, batch=lambda i: (torch.randn(5),), holds=lambda: []),
               "written_outside")

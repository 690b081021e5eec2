"""How a step goes forward and backward: with checkpoints, own functions, several gradients, or forward alone."""
import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from loops import (
    adam, batch, in_bfloat16, is_refused, momentum, mse, net, normalized, program, replays,
    training, wrapped,
)
from twins import compare


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


class Reversed(torch.autograd.Function):
    """The gradient reversal of adversarial training, whose weight is annealed."""
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.neg() * ctx.weight, None


class ScaledApart(torch.autograd.Function):
    """With a context that is set up after the forward."""
    @staticmethod
    def forward(x, weight=1.0):
        return x * weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.weight = inputs[1]

    @staticmethod
    def backward(ctx, grad):
        return grad * (1 - ctx.weight), None


class Saved(torch.autograd.Function):
    """Computes with the weight forward, and with what it has kept backward."""
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x)
        ctx.twice = weight * 2
        return x * x * weight

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return grad * x * ctx.twice, None


@pytest.mark.parametrize("function", [Reversed.apply, ScaledApart.apply, Saved.apply, lambda h, weight: Reversed.apply(h, weight) if weight > 0.2 else h],
                         ids=["reversed", "set up apart", "saved", "from a weight on"])
@pytest.mark.parametrize("weight_of", [lambda i: 2 / (1 + math.exp(-0.1 * i)) - 1, lambda i: 0.9 ** i, lambda i: (0.0, 0.5, 1.0)[i % 3]],
                         ids=["annealed", "fading", "in turns"])
def test_a_moving_number_for_an_autograd_function(function, weight_of):
    def make():
        torch.manual_seed(0)
        model, head, held = net(), torch.nn.Linear(3, 2), SimpleNamespace(weight=0.0)
        optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.05)

        def step(x, y):
            optimizer.zero_grad()
            loss = head(function(model(x), held.weight)).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        def after(i):
            held.weight = weight_of(i + 1)
        return SimpleNamespace(step=step, batch=batch, after=after, holds=lambda: [model, head, optimizer])

    replays(make)


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

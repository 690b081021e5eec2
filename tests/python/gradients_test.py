"""What a step does with gradients beside handing them to its optimizer: it clips, clears and adds them up."""
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import SGD, SparseAdam

import steptape
from loops import adam, batch, is_refused, momentum, mse, net, program, replays, training

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


@pytest.mark.parametrize("kind", [SGD, SparseAdam])
def test_sparse_gradients_are_refused(kind):
    is_refused(lambda: training(
        nn.Embedding(10, 4, sparse=True),
        lambda model, x, y: F.mse_loss(model(x), y),
        optimizer_of=lambda m: kind(m.parameters(), lr=0.05),
        batch=lambda i: (torch.randint(10, (6,)), torch.randn(6, 4))), "tensor_kind")


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

    replays(make, wrapper=lambda t, options: steptape.wrap(t.step, optimizer=t.optimizers, **options))


def test_what_is_hung_on_a_gradient_stays_with_it():
    eager = training(net(), optimizer_of=adam)
    taped = steptape.wrap(eager.step, model=eager.model, optimizer=eager.optimizer, verify={"rate": 0})
    looked_at, not_looked_at = list(eager.model.parameters())[:2]
    for i in range(12):
        taped(*batch(i))
        assert not hasattr(looked_at.grad, "mark")
        looked_at.grad.mark = i
        if i == 8:
            kept, bits = not_looked_at.grad, not_looked_at.grad.clone()
    assert taped.stats["replayed"] >= 6, taped.explain()
    assert kept is not not_looked_at.grad
    assert torch.equal(kept, bits)


def clears_by_name(w, others):
    w.grad = None


def clears_by_setattr(w, others):
    setattr(w, "grad", None)


def deletes(w, others):
    del w.grad


def clears_all(w, others):
    for parameter in others.parameters():
        parameter.grad = None


def clears_by_zero_grad(w, others):
    others.zero_grad()


@pytest.mark.parametrize("clear", [clears_by_name, clears_by_setattr, deletes, clears_all, clears_by_zero_grad])
@pytest.mark.parametrize("w", [torch.ones(3), nn.Parameter(torch.ones(3), requires_grad=False)], ids=["tensor", "frozen"])
def test_a_gradient_that_was_never_there_is_there_later_and_cleared(clear, w):
    def make():
        weight, frozen = w.clone() if type(w) is torch.Tensor else nn.Parameter(w.clone(), requires_grad=False), net()
        frozen.requires_grad_(False)

        def step(x, y):
            clear(weight, frozen)
            return frozen(x) * weight

        def after(i):
            if i in (12, 20):
                for tensor in (weight, *frozen.parameters()):
                    tensor.grad = torch.ones_like(tensor)

        return SimpleNamespace(step=step, batch=batch, after=after,
                               holds=lambda: [frozen, weight.grad])

    replays(make, 30, share=0.5)


def test_a_gradient_of_an_argument_that_requires_none_is_cleared():
    def make():
        def step(x):
            x.grad = None
            return x * 2
        return SimpleNamespace(step=step, batch=lambda i: (torch.full((3,), i),), holds=list)

    is_refused(make, "host_effect")

"""Trainings of one optimizer, whose learning rates move after every step unless a test says otherwise."""
import math
from types import SimpleNamespace

import torch
from torch.optim import SGD, Adagrad, Adam, AdamW

import steptape
import twins
from loops import batch, mse, net

FUSED = (SGD, Adam, AdamW, Adagrad)
FORMS = {"loop": dict(foreach=False), "foreach": dict(foreach=True), "fused": dict(fused=True)}
# What may stand beside an optimizer of the user's own that does not replay: its numbers are worked
# out by code that Steptape has no formula for.
NO_FORMULA = ("optimizer_unsupported", "scalar_varies", "too_many_variants")


def move_rates(i, optimizer):
    """Another rate for each group, held as the program holds it: a number or a tensor."""
    for k, group in enumerate(optimizer.param_groups):
        factor = 1 + 0.3 * math.sin(i + k)
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].mul_(factor)
        else:
            group["lr"] *= factor


def training(optimizer_of, *, model=None, between=move_rates, holds=()):
    """The plain step: its closure holds model and optimizer, and nothing else.

    optimizer_of: model -> optimizer; between: (i, optimizer), called after step i
    """
    model = model or net()
    optimizer = optimizer_of(model)

    def gradients(x, y):
        optimizer.zero_grad()
        loss = mse(model, x, y)
        loss.backward()
        return loss

    def step(x, y):
        optimizer.zero_grad()
        loss = mse(model, x, y)
        loss.backward()
        optimizer.step()
        return loss

    return SimpleNamespace(
        step=step, gradients=gradients, batch=batch, model=model, optimizer=optimizer,
        holds=lambda: [model, optimizer, *holds],
        after=lambda i: between(i, optimizer) if between else None,
    )


def update_alone(made, _options):
    """Forward and backward run eagerly; steptape.optimizer does the rest."""
    update = steptape.optimizer(made.optimizer)

    def body(x, y):
        loss = made.gradients(x, y)
        assert update() is None
        return loss

    return twins.Program(body, update)

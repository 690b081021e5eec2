"""Training loops as tutorials write them, and what twins of them must show.

Unless a test says otherwise the step clears gradients, computes a loss, calls backward and updates,
and replays.
"""
import math
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW

import steptape
import twins

FUSED = (SGD, Adam, AdamW, Adagrad)
FORMS = {"loop": dict(foreach=False), "foreach": dict(foreach=True), "fused": dict(fused=True)}


def net(bias=True):
    return nn.Sequential(nn.Linear(6, 8, bias=bias), nn.Tanh(), nn.Linear(8, 3, bias=bias))


def normalized(**options):
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, **options), nn.Dropout(0.2), nn.ReLU(),
                         nn.Linear(8, 3))


def batch(_):
    return torch.randn(4, 6), torch.randn(4, 3)


def momentum(model):
    return SGD(model.parameters(), lr=0.02, momentum=0.9)


def adam(model):
    return Adam(model.parameters(), lr=0.01)


def mse(model, x, y):
    return F.mse_loss(model(x), y)


def in_bfloat16(model, x, y):
    """The weights are cast once and the casts used twice."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return mse(model, x, y) + mse(model, -x, y)


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


def with_kinds(step):
    """The body of a loop whose result also says what classes the step's result is built of."""
    def body(*args, **kwargs):
        result = step(*args, **kwargs)
        return twins.kinds(result), result

    return body


def wrapped(made, options):
    if not hasattr(made, "parts"):
        return steptape.wrap(made.step, **options)
    steps = [steptape.wrap(part, **options) for part in made.parts]
    return twins.Program(made.body(*steps), *steps)


def replays(make, steps=40, share=0.9, **options):
    """The twins agree, and replays are the rule: in share and in number."""
    step = twins.compare(make, steps, share=share, **({"wrapper": wrapped} | options))
    assert step.stats["replayed"] >= steps // 2, step.explain()
    return step


def is_refused(make, *codes, steps=20):
    """The twins agree, and the step is refused by one of these names."""
    return twins.compare(make, steps, codes=set(codes), wrapper=wrapped)


def move_rates(i, optimizer):
    """Another rate for each group, held as the program holds it: a number or a tensor."""
    for k, group in enumerate(optimizer.param_groups):
        factor = 1 + 0.3 * math.sin(i + k)
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].mul_(factor)
        else:
            group["lr"] *= factor


def optimizing(optimizer_of, *, model=None, between=move_rates, holds=()):
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

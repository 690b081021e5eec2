"""seed 905010: decorated_base, adam; square in context_variable > finally > tensor_reduced (read_apart), twice"""
import contextvars

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint

from programs.wrapping import wrap  # the function itself in the eager twin


first = nn.Linear(6, 4)
last = nn.Linear(4, 3)
model = nn.Sequential(first, nn.Tanh(), last)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
class Trainer:
    @wrap
    def step(self, x, y):
        optimizer.zero_grad()
        h = torch.tanh(first(x))
        h = h * value_of_gamma().mean()
        out = last(h)
        loss = F.mse_loss(out, y)
        loss.backward()
        optimizer.step()
        return loss.detach()


class Derived(Trainer):
    def step(self, *args, **kwargs):
        return super().step(*args, **kwargs), 'derived'


trainer = Derived()


gamma = contextvars.ContextVar('gamma', default=(torch.tensor([1.0, 2.0, 0.5, 1.5])[:, None] * torch.arange(1.0, 5.0)))


def tried_gamma_way0(value):
    try:
        raise KeyError(value)
    except KeyError as error:
        return error.args[0]


def value_of_gamma():
    return tried_gamma_way0(gamma.get()[0])


def between(i):
    if i == 10:
        gamma.get().data = gamma.get().data.t()
    if i == 12:
        gamma.get().data = gamma.get().data.t()


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


def step(*args, **kwargs):
    return trainer.step(*args, **kwargs)

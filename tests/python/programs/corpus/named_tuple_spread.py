"""seed 703685: function, held_by_function; partial in named_tuple > maximum > addcmul (read_apart), back"""
import functools
import types
import typing

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint

from programs.wrapping import wrap  # the function itself in the eager twin


first = nn.Linear(6, 4)
last = nn.Linear(4, 3)
model = nn.Sequential(first, nn.Tanh(), last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=8, gamma=0.5)
def held():
    pass
held.optimizer = optimizer


class Kept_gamma(typing.NamedTuple):
    rate: object
    other: int = 0
gamma = Kept_gamma(functools.partial(getattr, types.SimpleNamespace(kept=1.0), 'kept'))


def value_of_gamma():
    return max((lambda rate, other: rate)(*gamma)(), 0)


def train(x, y):
    held.optimizer.zero_grad()
    h = torch.tanh(first(x))
    h = torch.addcmul(h, h, h, value=value_of_gamma())
    out = last(h)
    loss = F.mse_loss(out, y)
    loss.backward()
    held.optimizer.step()
    return loss.detach()


def between(i):
    if i == 7:
        gamma.rate.args[0].kept = 0.5
    if i == 8:
        gamma.rate.args[0].kept = 1.0
    if i > 0:
        scheduler.step()


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(train)

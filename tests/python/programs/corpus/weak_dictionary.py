"""Items of a WeakKeyDictionary are not guarded.

seed 5096: function, sgd; weak_dictionary > int_top (inline), once
"""
import weakref

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


class Kept_gamma:
    pass
gamma = Kept_gamma()
weak_gamma = weakref.WeakKeyDictionary({gamma: 2})


def train(x, y):
    optimizer.zero_grad()
    h = torch.tanh(first(x))
    h = h * h.topk(weak_gamma[gamma], 1).values.sum()
    out = last(h)
    loss = F.mse_loss(out, y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def between(i):
    if i == 10:
        weak_gamma[gamma] = 3


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(train)

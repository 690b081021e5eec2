"""seed 703293: method, adagrad; numpy_bool in long_list in attribute_two_below > deque > bool_requires_grad (inline), back"""
import collections
import functools
import types

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint

from programs.wrapping import wrap  # the function itself in the eager twin


first = nn.Linear(6, 4)
last = nn.Linear(4, 3)
model = nn.Sequential(first, nn.Tanh(), last)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
class Trainer:
    def step(self, x, y):
        optimizer.zero_grad()
        h = torch.tanh(first(x))
        gamma_now = collections.deque([functools.reduce(getattr, 'train.rate'.split('.'), gamma)[0].item()]).pop()
        last.weight.requires_grad_(gamma_now)
        out = last(h)
        loss = F.mse_loss(out, y)
        loss.backward()
        optimizer.step()
        return loss.detach()


trainer = Trainer()


gamma = types.SimpleNamespace(train=types.SimpleNamespace(rate=[np.bool_(True)] + [0] * 1500))


def between(i):
    if i == 9:
        gamma.train.rate[0] = np.bool_(False)
    if i == 10:
        gamma.train.rate[0] = np.bool_(True)


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(trainer.step)

"""A loaded step returns an int that no double holds."""

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


gamma = 2


def train(x, y):
    optimizer.zero_grad()
    out = model(x)
    loss = F.mse_loss(out, y)
    loss.backward()
    optimizer.step()
    return loss.detach(), (lambda: gamma)() * 10 ** 17 + 1


def between(i):
    global gamma
    if i == 12:
        gamma = 3


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(train)

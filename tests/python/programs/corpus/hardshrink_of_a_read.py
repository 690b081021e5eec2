"""The backward of hardshrink keeps the number that item() gave while it was recorded.

seed 5050: function, sgd; double_tensor in name > hardshrink (inline), once
"""

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


gamma = torch.tensor(0.2, dtype=torch.float64)


def train(x, y):
    optimizer.zero_grad()
    h = torch.tanh(first(x))
    h = F.hardshrink(h, [gamma for _ in 'a'][0].exp().log().item())
    out = last(h)
    loss = F.mse_loss(out, y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def between(i):
    if i == 7:
        gamma.fill_(0.05)


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(train)

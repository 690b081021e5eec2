"""A method that getattr gives by a name that is put together is not followed.

seed 5008: function, sgd; method_reads > bool_result (inline), once
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


class Kept_gamma:
    def __init__(self):
        self.rate = True
    def read(self):
        return self.rate
    def again(self):
        return getattr(self, 'read_it'[:4])()
gamma = Kept_gamma()


def train(x, y):
    optimizer.zero_grad()
    out = model(x)
    loss = F.mse_loss(out, y)
    loss.backward()
    optimizer.step()
    return loss.detach(), gamma.again()


def between(i):
    if i == 6:
        gamma.rate = False


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(train)

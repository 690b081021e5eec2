"""A method that is put into a class of an installed package is not seen.

seed 5075: function, sgd; package_method_replaced > str_gelu (inline), once
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


import trainkit
gamma = trainkit.Kept_gamma()


def train(x, y):
    optimizer.zero_grad()
    h = torch.tanh(first(x))
    h = F.gelu(h, approximate=gamma.read())
    out = last(h)
    loss = F.mse_loss(out, y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def between(i):
    if i == 8:
        trainkit.Kept_gamma.read = lambda self: 'tanh'


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(train)

# file: site-packages/trainkit/__init__.py

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint


class Ticker:
    count = 0


class Kept_gamma:
    def read(self):
        return 'none'

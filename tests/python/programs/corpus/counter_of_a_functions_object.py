"""An object that a function's attribute holds is not compared: its counter is not counted.

seed 5000: function, sgd; effect counted_object_of_a_function
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


class Box_effect_0:
    pass
effect_0 = Box_effect_0()
effect_0.count = 0
def held_effect_0():
    held_effect_0.box.count += 1
held_effect_0.box = effect_0


def train(x, y):
    optimizer.zero_grad()
    out = model(x)
    loss = F.mse_loss(out, y)
    loss.backward()
    optimizer.step()
    held_effect_0()
    return loss.detach()


def between(i):
    pass


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(train)

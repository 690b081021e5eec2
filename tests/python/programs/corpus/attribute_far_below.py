"""An attribute seven objects below a name lies behind the depth that is followed.

seed 5043: function, evaluation; attribute_far_below > int_class_weight (inline), once
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


class Kept_gamma:
    def __init__(self, below):
        self.below = below
gamma = Kept_gamma(Kept_gamma(Kept_gamma(Kept_gamma(Kept_gamma(Kept_gamma(Kept_gamma(3)))))))


def train(x, y):
    with torch.no_grad():
        out = model(x)
        loss = F.mse_loss(out, y)
        loss = loss * (y.argmax(1) == gamma.below.below.below.below.below.below.below).float().add(1).mean()
    return loss.detach()


def between(i):
    if i == 7:
        gamma.below.below.below.below.below.below.below = 0


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(train)

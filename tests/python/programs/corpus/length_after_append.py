"""A list that the step appends to, asks for its length and takes an item of: its length in mid-step was compared at entry."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint

from programs.wrapping import wrap  # the function itself in the eager twin


first = nn.Linear(6, 4)
last = nn.Linear(4, 3)
model = nn.Sequential(first, nn.Tanh(), last)


gamma = {'value': 2}
effect_0 = []


def train(x, y, given_gamma):
    with torch.no_grad():
        h = torch.tanh(first(x))
        gamma_now = (given_gamma.get('value') & 15)
        h = h * gamma_now
        out = last(h)
        loss = F.mse_loss(out, y)
    effect_0.append((x.detach(), y))
    if len(effect_0) > 4:
        effect_0.pop(0)
    return loss.detach()


def between(i):
    if i == 6:
        gamma['value'] = 3
    if i == 7:
        gamma['value'] = 2


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g), gamma], {}


step = wrap(train)

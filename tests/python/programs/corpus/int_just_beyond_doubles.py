"""An int that is read is 2**53 + 1, which rounds to a float that was taken for exact: the result was one less."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint

from programs.wrapping import wrap  # the function itself in the eager twin


first = nn.Linear(6, 4)
last = nn.Linear(4, 3)
model = nn.Sequential(first, nn.Tanh(), last)


gamma = 1311768467463790321


def train(x, y, given_gamma):
    with torch.no_grad():
        out = model(x)
        loss = F.mse_loss(out, y)
    return loss.detach(), torch.tensor(given_gamma[1]).item()


def between(i):
    global gamma
    if i == 6:
        gamma = 9007199254740993


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g), (0, gamma)], {}


step = wrap(train)

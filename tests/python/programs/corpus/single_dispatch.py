"""What functools.singledispatch calls is not followed.

seed 5024: function, evaluation; single_dispatch > result_long_text (inline), once
"""
import functools

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint

from programs.wrapping import wrap  # the function itself in the eager twin


first = nn.Linear(6, 4)
last = nn.Linear(4, 3)
model = nn.Sequential(first, nn.Tanh(), last)


held_gamma = {'value': 0.5}
@functools.singledispatch
def gamma(given):
    return held_gamma['value']


def train(x, y):
    with torch.no_grad():
        out = model(x)
        loss = F.mse_loss(out, y)
    gamma_now = gamma(0)
    return loss.detach(), 'experiment resnet50-imagenet-baseline-cosine-ema-mixup-cutmix-run-0001-seed-42, train: %.4f' % gamma_now


def between(i):
    if i == 7:
        gamma.register(int, lambda given: 0.25)


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(train)

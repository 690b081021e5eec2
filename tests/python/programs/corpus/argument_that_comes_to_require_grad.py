"""seed 700223: function, gradients; training_flag > sorted_key > bool_training (use_apart), never; effect hook_on_an_argument"""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint

from programs.wrapping import wrap  # the function itself in the eager twin


first = nn.Linear(6, 4)
last = nn.Linear(4, 3)
model = nn.Sequential(first, nn.Tanh(), last)


gamma = nn.Dropout(0.5)
gamma.train(True)


def use_gamma(h, value):
    h = F.dropout(h, 0.5, value)
    return h


def train(x, y):
    x.requires_grad_()
    x = x * 1
    h = torch.tanh(first(x))
    h = use_gamma(h, sorted([(gamma(torch.ones(99)).sum().item() != 99)], key=lambda value: str(value))[0])
    out = last(h)
    loss = F.mse_loss(out, y)
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return loss.detach(), gradients


def between(i):
    pass


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(train)

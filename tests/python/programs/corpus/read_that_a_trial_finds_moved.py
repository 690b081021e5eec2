"""A number of a tensor that moves in the trial of a plan to where backward takes other ops: taken for a plan that is wrong."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint

from programs.wrapping import wrap  # the function itself in the eager twin


first = nn.Linear(6, 4)
last = nn.Linear(4, 3)
model = nn.Sequential(first, nn.Tanh(), last)
class Trainer:
    def step(self, x, y):
        h = torch.tanh(first(x))
        h = part_gamma(h)
        out = last(h)
        loss = F.mse_loss(out, y)
        gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        return loss.detach(), gradients, part_delta(x)


trainer = Trainer()


class Meta_gamma(type):
    @property
    def rate(cls):
        return cls.kept
class gamma(metaclass=Meta_gamma):
    kept = [[nn.Parameter(torch.tensor(2.0))]]
class Kept_delta_1(list):
    def read(self):
        return self[0]
class Reader_delta:
    def __call__(self):
        return self.rate
held_delta = Reader_delta()
held_delta.rate = Kept_delta_1([(torch.tensor([1.0, 2.0, 0.5, 1.5])[:, None] * torch.arange(1.0, 5.0))])
delta = torch.no_grad()(held_delta)


class Part_gamma(nn.Module):
    def forward(self, h):
        h = F.normalize(h, p=gamma.rate.copy()[0].copy()[0].detach().item())
        return h


part_gamma = Part_gamma()


class Part_delta(nn.Module):
    def forward(self, x):
        return (kept_delta_way1 := (lambda value: value)(delta().read()[0]))


part_delta = Part_delta()


def between(i):
    gamma.rate[0][0].data = torch.tensor(2.0 * 0.9 ** (i // 5))
    if i == 9:
        delta()[0] = (torch.tensor([0.5, 1.0, 2.0, 0.1])[:, None] * torch.arange(1.0, 5.0))


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(trainer.step)

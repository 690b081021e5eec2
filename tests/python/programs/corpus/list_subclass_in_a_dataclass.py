"""seed 704752: callable, held_by_class; list_subclass in dataclass > walrus > power_reflected (module), back"""
import dataclasses

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
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=8, gamma=0.5)
class Held:
    pass
Held.optimizer = optimizer
class Trainer:
    def __call__(self, x, y):
        Held.optimizer.zero_grad()
        h = torch.tanh(first(x))
        h = part_gamma(h)
        out = last(h)
        loss = F.mse_loss(out, y)
        loss.backward()
        Held.optimizer.step()
        return loss.detach()


trainer = Trainer()


class Kept_gamma_0(list):
    def read(self):
        return self[0]
@dataclasses.dataclass
class Kept_gamma:
    rate: object = None
gamma = Kept_gamma(Kept_gamma_0([0.5]))


class Part_gamma(nn.Module):
    def forward(self, h):
        h = (kept_gamma_way0 := dataclasses.asdict(gamma)['rate'][0]) ** h
        return h


part_gamma = Part_gamma()


def between(i):
    global gamma
    if i == 6:
        gamma = Kept_gamma(Kept_gamma_0([0.25]))
    if i == 10:
        gamma = Kept_gamma(Kept_gamma_0([0.5]))
    if i > 0:
        scheduler.step()


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(trainer)

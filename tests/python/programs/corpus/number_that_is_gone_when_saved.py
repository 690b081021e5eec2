"""A loaded step played the plan of a number that was there before.

seed 1102165: lambda, own; attribute > int_slice (package), disappears
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
class Own(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                p.add_(p.grad, alpha=-group["lr"] / state["step"] ** 0.5)


optimizer = Own(model.parameters(), lr=0.1)


class Kept_gamma:
    pass
gamma = Kept_gamma()
gamma.rate = 2
import trainkit


def train(x, y):
    optimizer.zero_grad()
    h = torch.tanh(first(x))
    h = trainkit.use_gamma(h, vars(gamma).get('rate', 2))
    out = last(h)
    loss = F.mse_loss(out, y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def between(i):
    if i == 12:
        del gamma.rate
    if i == 1:
        vars(gamma).update(rate=3)


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(lambda *args, **kwargs: train(*args, **kwargs))

# file: site-packages/trainkit/__init__.py

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint


class Ticker:
    count = 0


def use_gamma(h, value):
    gamma_now = value
    h = h * h[:, :gamma_now].sum()
    return h

"""seed 500348: function, own; ordered_dict in cached_function > int_flip (inline), twice; module_buffer in slots > generator > recursion > int_log_probability (use_apart), once"""
import collections
import functools
import operator

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


held_gamma = {'value': collections.OrderedDict(k=0)}
@functools.lru_cache(None)
def gamma():
    return held_gamma['value']
class Buffered_delta_0(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.register_buffer('kept', torch.tensor(value))
    def forward(self):
        return self.kept.item()
class Kept_delta:
    __slots__ = ('rate',)
delta = Kept_delta()
delta.rate = Buffered_delta_0(3)


def made_delta_way0(value):
    yield value


def down_delta_way1(value, depth):
    return down_delta_way1(value, depth - 1) if depth else value


def use_delta(h, value):
    delta_now = value
    h = h - torch.log(h.softmax(1)[0, delta_now])
    return h


def train(x, y):
    optimizer.zero_grad()
    h = torch.tanh(first(x))
    h = h.flip(list(gamma().values())[0])
    h = use_delta(h, down_delta_way1(next(made_delta_way0(int(operator.attrgetter('rate')(delta).kept + 0))), 3))
    out = last(h)
    loss = F.mse_loss(out, y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def between(i):
    if i == 11:
        gamma()['k'] = 1
    if i == 14:
        gamma()['k'] = 0
    if i == 11:
        delta.rate.kept = torch.tensor(0)


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(train)

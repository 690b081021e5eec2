"""seed 702612: method_replaced, own; default_dict in named_tuple > json > raised (helper), once; container_of_a_class > deep_calls > branched_int > int_split (inline), back"""
import collections
import json
import typing

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
class Trainer:
    @wrap
    def step(self, x, y):
        optimizer.zero_grad()
        h = torch.tanh(first(x))
        h = use_gamma(h)
        delta_now = (a_delta_way0(Kept_delta().table.get('rate')) if 10.0 > a_delta_way0(Kept_delta().table.get('rate')) else 3)
        h = h * F.pad(h, (0, 1)).split([delta_now, 5 - delta_now], 1)[0].sum()
        out = last(h)
        loss = F.mse_loss(out, y)
        loss.backward()
        optimizer.step()
        return loss.detach()


trainer = Trainer()


class Kept_gamma(typing.NamedTuple):
    rate: object
    other: int = 0
gamma = Kept_gamma(collections.defaultdict(list, k=0.5))
class Kept_delta:
    table = {'rate': 2}


def use_gamma(h):
    gamma_now = json.loads(json.dumps(gamma[0]['k']))
    if gamma_now < 0.3:
        raise ValueError(f'rate {gamma_now}')
    return h


def a_delta_way0(v): return b_delta_way0(v)
def b_delta_way0(v): return c_delta_way0(v)
def c_delta_way0(v): return d_delta_way0(v)
def d_delta_way0(v): return e_delta_way0(v)
def e_delta_way0(v): return f_delta_way0(v)
def f_delta_way0(v): return v


def between(i):
    if i == 10:
        gamma.rate['k'] = 0.25
    if i == 11:
        Kept_delta.table['rate'] = 3
    if i == 15:
        Kept_delta.table['rate'] = 2
    if i == 15:
        Trainer.step = lambda self, x, *args, **kwargs: x.mean()


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


def step(*args, **kwargs):
    return trainer.step(*args, **kwargs)

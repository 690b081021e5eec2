"""A result whose graph backward had consumed: a replay gave it without `requires_grad`, and printed it so."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint

from programs.wrapping import wrap  # the function itself in the eager twin


def build():
    first = nn.Linear(6, 4)
    last = nn.Linear(4, 3)
    model = nn.Sequential(first, nn.Tanh(), last)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.05)


    class Kept_gamma:
        def read(self):
            return ('x' * 90 + str(2))
    gamma = Kept_gamma()
    class Kept_delta_0(dict):
        def read(self):
            return self['k']
        def __getattr__(self, name):
            return self[name]
    optimizer.param_groups[0]['delta'] = Kept_delta_0(k=True)
    effect_0 = nn.BatchNorm1d(6)


    def use_gamma(h):
        gamma_now = sum(1 for _ in range(int(gamma.read()[90:])))
        h = h + gamma_now
        return h


    def pass_delta_way0(value):
        return value


    class Part_delta(object):
        def use(self, x):
            delta_now = pass_delta_way0(value=optimizer.param_groups[0].get('delta', Kept_delta_0(k=True))['k'])
            return (x if delta_now else [x])


    part_delta = Part_delta()


    def train(x, y):
        x = effect_0(x)
        optimizer.zero_grad()
        h = torch.tanh(first(x))
        h = use_gamma(h)
        out = last(h)
        loss = F.mse_loss(out, y)
        loss.backward()
        optimizer.step()
        return loss.detach(), part_delta.use(x)


    def between(i):
        if i == 13:
            Kept_gamma.read = lambda self: ('x' * 90 + str(3))
        if i == 9:
            del optimizer.param_groups[0]['delta']
        if i == 1:
            optimizer.param_groups[0].update(delta=Kept_delta_0(k=False))
        if i == 11:
            effect_0.eval()


    def arguments(i):
        g = torch.Generator().manual_seed(i)
        return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


    step = wrap(train)


    return step, between, arguments


step, between, arguments = build()

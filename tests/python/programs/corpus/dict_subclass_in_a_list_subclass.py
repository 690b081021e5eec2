"""seed 703857: closure, gradients_kept; dict_subclass in list_subclass in object_of_a_function > bool_skipped (package), twice"""
import types

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


    class Kept_gamma_0(dict):
        def read(self):
            return self['k']
        def __getattr__(self, name):
            return self[name]
    class Kept_gamma_1(list):
        def read(self):
            return self[0]
    def gamma():
        return gamma.kept.value
    gamma.kept = types.SimpleNamespace(value=Kept_gamma_1([Kept_gamma_0(k=True)]))


    def use_gamma(value):
        if value:
            for p in model.parameters():
                p.grad.zero_()
        return None


    def train(x, y):
        model.zero_grad()
        out = model(x)
        loss = F.mse_loss(out, y)
        loss.backward()
        use_gamma(gamma.kept.value.read().k)
        return loss.detach()


    def between(i):
        if i == 11:
            gamma.kept = types.SimpleNamespace(value=Kept_gamma_1([Kept_gamma_0(k=False)]))
        if i == 13:
            gamma.kept = types.SimpleNamespace(value=Kept_gamma_1([Kept_gamma_0(k=True)]))


    def arguments(i):
        g = torch.Generator().manual_seed(i)
        return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


    step = wrap(train)


    return step, between, arguments


step, between, arguments = build()

"""seed 704521: closure, evaluation; object in partial > tensor_result_alias (inline), back"""
import functools

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


    class Kept_gamma_0:
        def __init__(self, kept):
            self.kept = kept
        def read(self):
            return self.kept
    gamma = functools.partial(lambda value: value, Kept_gamma_0(torch.tensor([1.0, 2.0, 0.5, 1.5])))


    def train(x, y):
        with torch.no_grad():
            out = model(x)
            loss = F.mse_loss(out, y)
        gamma_now = gamma().kept
        return loss.detach(), gamma_now


    def between(i):
        nonlocal gamma
        if i == 10:
            gamma = functools.partial(lambda value: value, Kept_gamma_0(torch.tensor([0.5, 1.0, 2.0, 0.1])))
        if i == 12:
            gamma = functools.partial(lambda value: value, Kept_gamma_0(torch.tensor([1.0, 2.0, 0.5, 1.5])))


    def arguments(i):
        g = torch.Generator().manual_seed(i)
        return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


    step = wrap(train)


    return step, between, arguments


step, between, arguments = build()

"""seed 703861: closure, adamw; class_attribute > branch_int (inline), once"""

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
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)


    class gamma:
        rate = 0.5
        @classmethod
        def read(cls):
            return cls.rate


    def train(x, y):
        optimizer.zero_grad()
        h = torch.tanh(first(x))
        gamma_now = vars(gamma)['rate']
        if 1 > 2 * gamma_now:
            h = h * 2
        out = last(h)
        loss = F.mse_loss(out, y)
        loss.backward()
        optimizer.step()
        return loss.detach()


    def between(i):
        if i == 10:
            setattr(gamma, 'rate', 0.25)


    def arguments(i):
        g = torch.Generator().manual_seed(i)
        return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


    step = wrap(train)


    return step, between, arguments


step, between, arguments = build()

"""seed 500170: of_dict, gradients; list in package_class > keyword_helper > count (inline), once"""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint

from programs.wrapping import wrap  # the function itself in the eager twin


first = nn.Linear(6, 4)
last = nn.Linear(4, 3)
model = nn.Sequential(first, nn.Tanh(), last)
class Trainer(dict):
    def step(self, x, y):
        x = x * self['scale']
        h = torch.tanh(first(x))
        for _ in range(int(pass_gamma_way0(value=max(trainkit.Kept_gamma().value)) * 4)):
            h = h + 1
        out = last(h)
        loss = F.mse_loss(out, y)
        gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        return loss.detach(), gradients


trainer = Trainer(scale=1.5)


import trainkit


def pass_gamma_way0(value):
    return value


def between(i):
    if i == 13:
        trainkit.Kept_gamma.value.insert(0, 0.25); del trainkit.Kept_gamma.value[1]
    if i == 15:
        trainer['scale'] = 0.5


def arguments(i):
    g = torch.Generator().manual_seed(i)
    return [torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)], {}


step = wrap(trainer.step)

# file: site-packages/trainkit/__init__.py

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint


class Ticker:
    count = 0


class Kept_gamma:
    value = [0.5]

    @classmethod
    def read(cls):
        return cls.value

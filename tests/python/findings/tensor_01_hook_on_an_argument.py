"""x.register_hook(...) on an argument that requires grad: recorded without, called with."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)

    def step(x):
        return torch.autograd.grad(model(x).pow(2).sum(), x)[0]

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        x.requires_grad_()
        if i >= 10:
            x.register_hook(lambda g: g * 2)
        out.append(round(step(x).sum().item(), 4))
    return out, step

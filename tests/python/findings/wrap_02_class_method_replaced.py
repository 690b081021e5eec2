"""Base.step = other on the class after a call: the instance goes on with the decorated one."""

import torch


def play(wrap):
    torch.manual_seed(0)

    class Base:
        def step(self, x):
            return x.sum()

    wrapped = Base.step = wrap(Base.step)
    base = Base()
    step = lambda x: base.step(x)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            Base.step = lambda self, x: x.sum() * 7
        out.append(round(step(x).sum().item(), 4))
    return out, wrapped.__get__(base)

"""A step that is a method of a dict or list subclass: its items."""

import torch


def play(wrap):
    torch.manual_seed(0)

    class Config(dict):
        def step(self, x):
            return x * self["scale"]

    cfg = Config(scale=1.0)
    step = wrap(cfg.step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            cfg["scale"] = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

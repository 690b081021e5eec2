"""steptape.wrap(functools.partial(train, cfg)) with a dict or list cfg that changes."""

import torch
import functools


def play(wrap):
    torch.manual_seed(0)
    cfg = {"scale": 1.0}

    def train(cfg, x):
        return x * cfg["scale"]

    step = wrap(functools.partial(train, cfg))
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            cfg["scale"] = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

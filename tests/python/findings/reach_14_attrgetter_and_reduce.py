"""operator.attrgetter made outside the step; functools.reduce(getattr, 'a.b'.split('.'), cfg)."""

import torch
import functools


def play(wrap):
    torch.manual_seed(0)

    class Box:
        def __init__(self_, **k):
            self_.__dict__.update(k)

    cfg = Box(train=Box(scale=1.0))
    step = wrap(lambda x: x * functools.reduce(getattr, "train.scale".split("."), cfg))
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            cfg.train.scale = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

"""An object two levels below the step is not guarded, because a deep helper named it first."""

import torch


def play(wrap):
    torch.manual_seed(0)

    class Box:
        def __init__(self_, **k):
            self_.__dict__.update(k)

    cfg = Box(sub=Box(scale=1.0))

    def a3(x):
        return x if cfg else x

    def a2(x):
        return a3(x)

    def a1(x):
        return a2(x)

    def z(x):
        return x * cfg.sub.scale

    step = wrap(lambda x: z(a1(x)))
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            cfg.sub.scale = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

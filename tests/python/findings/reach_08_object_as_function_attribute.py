"""helper.cfg.scale, with helper.cfg a plain object (also counters in it: not counted, see effects)."""

import torch


def play(wrap):
    torch.manual_seed(0)

    class Box:
        def __init__(self_, **k):
            self_.__dict__.update(k)

    def helper(x):
        return x * helper.cfg.scale

    helper.cfg = Box(scale=1.0)
    step = wrap(lambda x: helper(x))
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            helper.cfg.scale = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

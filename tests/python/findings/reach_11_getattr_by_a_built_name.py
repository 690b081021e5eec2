"""getattr(cfg, 'w_' + str(k)), 'w_{}'.format(k), names[k], or with a text for default."""

import torch


def play(wrap):
    torch.manual_seed(0)

    class Box:
        def __init__(self_, **k):
            self_.__dict__.update(k)

    cfg = Box(w_1=1.0)
    k = 1
    step = wrap(lambda x: x * getattr(cfg, "w_" + str(k)))
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            cfg.w_1 = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

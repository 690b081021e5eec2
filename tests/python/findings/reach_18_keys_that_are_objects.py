"""for layer_cfg, w in table.items(): x * layer_cfg.scale."""

import torch


def play(wrap):
    torch.manual_seed(0)

    class Box:
        def __init__(self_, **k):
            self_.__dict__.update(k)

    key = Box(scale=1.0)
    table = {key: 1.0}
    step = wrap(lambda x: x * sum(k.scale * v for k, v in table.items()))
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            key.scale = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

"""A captured d.values(), d.items() or d.keys()."""

import torch


def play(wrap):
    torch.manual_seed(0)
    d = {"a": 1.0}
    values = d.values()
    step = wrap(lambda x: x * sum(values))
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            d["a"] = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

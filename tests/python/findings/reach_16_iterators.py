"""next() of zip, map, filter, enumerate, reversed and dict iterators inside the step: neither advanced nor seen."""

import torch


def play(wrap):
    torch.manual_seed(0)
    weights = zip([1.0] * 12 + [0.5] * 50)
    step = wrap(lambda x: x * next(weights)[0])  # refused: host_effect
    out = []
    for i in range(20):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        out.append(round(step(x).sum().item(), 4))
    return out, step

"""A returned int beyond 2**53 comes back rounded (sample ids, hashes, torch.initial_seed(), time_ns)."""

import torch


def play(wrap):
    torch.manual_seed(0)
    ident = 0x123456789ABCDEF1
    step = wrap(lambda x: (x * 2, ident))
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        out.append(step(x)[1])
    return out, step

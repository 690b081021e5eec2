"""F.dropout(x, p) with p = 0.5 read from a tensor: bernoulli_(1 - p) is bound to p."""

import torch
import torch.nn.functional as F


def play(wrap):
    torch.manual_seed(0)
    p = torch.tensor(0.5)

    def step(x):
        return F.dropout(torch.ones(1000), (p + 0).item())

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            p.fill_(0.1)
        out.append(round(step(x).sum().item(), 1))
    return out, step

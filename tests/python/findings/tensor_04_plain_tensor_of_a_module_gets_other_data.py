"""self.table.data = other while somebody keeps the old data."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)
    net = nn.Module()
    net.table = torch.ones(3)
    kept = net.table.data
    step = wrap(lambda x: x * net.table)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            net.table.data = torch.full((3,), 2.0)
        out.append(round(step(x).sum().item(), 4))
    return out, step

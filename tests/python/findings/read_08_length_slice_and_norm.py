"""n = lengths.max().item(); h[:, :n].sum() / n: the division follows n, the slice stays."""

import torch


def play(wrap):
    torch.manual_seed(0)

    def step(x, lengths):
        n = lengths.max().item()
        return x[:, :n].sum() / n

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        out.append(round(step(x, torch.tensor([3, 2]) if i < 10 else torch.tensor([2, 1])).item(), 4))
    return out, step

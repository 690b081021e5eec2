"""torch.tensor([s, 1., 2.]) beside x * s: the list stays."""

import torch


def play(wrap):
    torch.manual_seed(0)
    s = torch.tensor(1.0)

    def step(x):
        k = (s + 0).item()
        return x * k * torch.tensor([k, 1.0, 2.0])

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            s.fill_(0.5)
        out.append(round(step(x).sum().item(), 4))
    return out, step

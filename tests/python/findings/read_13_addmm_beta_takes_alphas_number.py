"""addmm(c, a, b, beta=1.0, alpha=s): beta follows s, alpha stays (also threshold, clamp, softplus, linspace)."""

import torch


def play(wrap):
    torch.manual_seed(0)
    s = torch.tensor(1.0)
    w = torch.eye(3)

    def step(x):
        return torch.addmm(x * 0 + 5, x, w, beta=1.0, alpha=(s + 0).item())

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            s.fill_(0.5)
        out.append(round(step(x).sum().item(), 4))
    return out, step

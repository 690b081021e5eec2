"""The same with clamp: the backward formula holds the recorded number (39 of 69 ops tried do so)."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    t = torch.tensor(0.5)

    def step(x):
        s = (t + 0).item()
        opt.zero_grad()
        loss = model(x).clamp(-s, s).pow(2).mean()
        loss.backward()
        opt.step()
        return loss.detach()

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            t.fill_(0.1)
        step(x)
        out.append(round(model.weight.sum().item(), 5))
    return out, step

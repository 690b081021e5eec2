"""table[group['phase']] in a step with torch's SGD: phase 1 verified (same weight), phase 2 not."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    opt.param_groups[0]["phase"] = 0
    table = [1.0, 1.0, 0.5]

    def step(x):
        opt.zero_grad()
        loss = model(x).pow(2).mean() * table[opt.param_groups[0]["phase"]]
        loss.backward()
        opt.step()
        return loss.detach()

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            opt.param_groups[0]["phase"] = 2
        if i == 8:
            opt.param_groups[0]["phase"] = 1
        out.append(round(step(x).item(), 5))
    return out, step

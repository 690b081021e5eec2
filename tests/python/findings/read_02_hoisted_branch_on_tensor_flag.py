"""`if done:` on a tensor argument in a training step: the branch of the first replay is taken for ever."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def step(x, done):
        opt.zero_grad()
        target = 0.0 if done else 1.0
        loss = (model(x).mean() - target).pow(2)
        loss.backward()
        opt.step()
        return loss.detach()

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        out.append(round(step(x, torch.tensor(i >= 10 and i % 2 == 0)).item(), 4))
    return out, step

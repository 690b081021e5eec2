"""F.huber_loss(delta=d), d an argument: 100 -> 90 verified without effect, 90 -> 0.3 not verified: backward keeps 100."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def play(wrap):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def step(x, d):
        opt.zero_grad()
        loss = F.huber_loss(model(x), torch.zeros(4, 3), delta=d)
        loss.backward()
        opt.step()
        return loss.detach()

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        step(x, 100.0 if i < 8 else 90.0 if i < 10 else 0.3)
        out.append(round(model.weight.sum().item(), 5))
    return out, step

"""leaky_relu(h, slope) with slope read from a tensor: forward follows, leaky_relu_backward keeps the recorded number."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def play(wrap):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    slope = torch.tensor(0.2)

    def step(x):
        s = slope.exp().log().item()
        opt.zero_grad()
        loss = F.leaky_relu(model(x), s).pow(2).mean()
        loss.backward()
        opt.step()
        return loss.detach()

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            slope.fill_(0.9)
        step(x)
        out.append(round(model.weight.sum().item(), 5))
    return out, step

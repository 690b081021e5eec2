"""self.prompt.requires_grad_() on a plain tensor attribute: eager fills prompt.grad, replays do not."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)
    net = nn.Linear(3, 3)
    net.prompt = torch.zeros(3)

    def step(x):
        net.zero_grad()
        loss = net(x + net.prompt).pow(2).mean()
        loss.backward()
        return loss.detach()

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            net.prompt.requires_grad_()
        step(x)
        out.append(None if net.prompt.grad is None else round(net.prompt.grad.sum().item(), 4))
    return out, step

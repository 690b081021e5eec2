"""h.select(0, k) (and h[k] of a tensor with a graph) with k = scores.argmax().item() that was the same in the first calls."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)

    def step(x, scores):
        model.zero_grad()
        loss = model(x)[scores.argmax().item()].pow(2).sum()
        loss.backward()
        return loss.detach()

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        out.append(round(step(x, torch.eye(4)[3 if i < 10 else i % 4].clone()).item(), 4))
    return out, step

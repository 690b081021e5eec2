"""Two huber losses are added: the plan threw in its trial. One that is returned made LibTorch warn in each replay."""
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

CASES = {"one": False, "two": True}


def play(wrap, both):
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(net.parameters())

    def step(x, y):
        q = net(x)
        loss = F.huber_loss(q[:, 0], y)
        if both:
            loss = loss + F.huber_loss(q[:, 1], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step = wrap(step)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return [step(torch.randn(16, 4), torch.randn(16)).item() for _ in range(15)], step

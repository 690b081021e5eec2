"""The bounds of clamp move while nothing is clipped, and clipping begins later: the backward went on with the old ones."""
import torch
import torch.nn as nn

import steptape

CASES = {"host": True, "argument": False}


def play(wrap, by_host):
    torch.manual_seed(0)
    net = nn.Linear(8, 8, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    nn.init.eye_(net.weight)
    now = [0.37]
    hosted = steptape.host(lambda: now[0])

    def update(x, c):
        ratio = net(x) / net(x).detach() * x.abs()
        loss = torch.clamp(ratio, 1 - c, 1 + c).mean()
        clipped = ((ratio - 1).abs() > c).float().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, clipped

    step = wrap((lambda x: update(x, hosted())) if by_host else update)
    out = []
    for i in range(40):
        now[0] = 0.37 if i < 12 else 0.11
        x = torch.ones(4, 8) if i < 30 else torch.linspace(0.7, 1.3, 32).reshape(4, 8)
        loss, clipped = step(x) if by_host else step(x, now[0])
        out.append((loss.item(), clipped.item(), net.weight.grad.tolist()))
    return out, step

"""train.opt = SGD(...) or class T: opt = SGD(...): the rate is frozen."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)

    def train(x):
        train_opt.opt.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        train_opt.opt.step()
        return loss.detach()

    def train_opt():
        pass

    train_opt.opt = torch.optim.SGD(model.parameters(), 0.1)
    opt = train_opt.opt
    step = wrap(train)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            opt.param_groups[0]["lr"] = 0.0
        step(x)
        out.append(round(model.weight.sum().item(), 5))
    return out, step

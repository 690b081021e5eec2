"""custom autograd.Function: ctx.k of a read number; backward uses the recorded one."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.k = k
            return x * k

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k, None

    model = nn.Linear(3, 3)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    t = torch.tensor(1.0)

    def step(x):
        opt.zero_grad()
        loss = Scale.apply(model(x), (t + 0).item()).pow(2).mean()
        loss.backward()
        opt.step()
        return loss.detach()

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            t.fill_(0.3)
        step(x)
        out.append(round(model.weight.sum().item(), 5))
    return out, step

"""return loss, 'lr %.4f' % lr: replays return the recorded text ('%', json.dumps, Decimal, struct.pack; f-strings are seen)."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        opt.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        opt.step()
        return loss.detach(), "lr %.4f" % opt.param_groups[0]["lr"]

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            opt.param_groups[0]["lr"] = 0.05
        out.append(step(x)[1])
    return out, step

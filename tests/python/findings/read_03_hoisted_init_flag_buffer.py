"""ActNorm / VQ `if self.inited.item() == 0` on a module buffer in a training step."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)

    class ActNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.b = nn.Parameter(torch.zeros(3))
            self.register_buffer("inited", torch.tensor(0))

        def forward(self, x):
            if self.inited.item() == 0:
                with torch.no_grad():
                    self.b.copy_(-x.mean(0))
                self.inited.fill_(1)
            return x + self.b

    model = ActNorm()
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        opt.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        opt.step()
        return loss.detach()

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            model.inited.fill_(0)
        out.append(round(step(x).sum().item(), 4))
    return out, step

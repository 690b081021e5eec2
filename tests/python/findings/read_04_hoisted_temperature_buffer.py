"""x / self.temperature.item() with a buffer that the program anneals."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)
            self.register_buffer("tau", torch.tensor(1.0))

        def forward(self, x):
            return self.fc(x) / self.tau.item()

    model = Net()
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
            model.tau.fill_(0.5)
        out.append(round(step(x).sum().item(), 4))
    return out, step

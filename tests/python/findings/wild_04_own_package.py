"""A trainer of the user's own that is installed: no attribute, global or counter of it was guarded."""
import torch

from twins import package

SOURCE = """
import torch
import torch.nn as nn

SCALE = 1.0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 4)

    def forward(self, x):
        return self.l(x) * SCALE


class Trainer:
    steps = 0

    def __init__(self):
        self.model = Net()
        self.opt = torch.optim.SGD(self.model.parameters(), 0.1)
        self.warm = True

    def step(self, x, y):
        self.opt.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        if self.warm:
            loss = loss * 0.1
        loss.backward()
        self.opt.step()
        self.steps += 1
        return loss.detach()
"""


def play(wrap):
    torch.manual_seed(0)
    kit = package("mytrain", SOURCE)
    trainer = kit.Trainer()
    step = wrap(trainer.step)
    out = []
    for i in range(40):
        if i == 12:
            trainer.warm = False
        if i == 26:
            kit.SCALE = 2.0
        g = torch.Generator().manual_seed(i)
        out.append(step(torch.randn(8, 3, generator=g), torch.randint(0, 4, (8,), generator=g)).item())
    return [out, trainer.steps, trainer.model.l.weight.tolist()], step

"""trainer.compute_loss = custom: an instance attribute over a method of its class."""

import torch


def play(wrap):
    torch.manual_seed(0)

    class Trainer:
        def compute_loss(self, x):
            return x

        def step(self, x):
            return self.compute_loss(x)

    trainer = Trainer()
    step = wrap(trainer.step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            trainer.compute_loss = lambda x: x * 2
        out.append(round(step(x).sum().item(), 4))
    return out, step

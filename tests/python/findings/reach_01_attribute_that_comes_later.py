"""hasattr/getattr-with-default of an attribute that a plain object does not have yet."""

import torch


def play(wrap):
    torch.manual_seed(0)

    class Trainer:
        def step(self, x):
            return x * getattr(self, "loss_scale", 1.0)

    trainer = Trainer()
    step = wrap(trainer.step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            trainer.loss_scale = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

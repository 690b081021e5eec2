"""step -> trainer -> net (module) -> cfg -> model.scale: a module costs two of the five levels of blind_spots.md."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)

    class Box:
        def __init__(self_, **k):
            self_.__dict__.update(k)

    class Net(nn.Module):
        def __init__(self, cfg):
            super().__init__()
            self.cfg = cfg

        def forward(self, x):
            return x * self.cfg.model.scale

    class Trainer:
        def __init__(self):
            self.net = Net(Box(model=Box(scale=1.0)))

        def step(self, x):
            return self.net(x)

    trainer = Trainer()

    def run(x):
        return trainer.step(x)

    step = wrap(run)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            trainer.net.cfg.model.scale = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

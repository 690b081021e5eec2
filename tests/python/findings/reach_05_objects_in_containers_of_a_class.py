"""class Net: stages = [Stage(), ...]: attributes of objects in a class-level list, dict or tuple."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)

    class Box:
        def __init__(self_, **k):
            self_.__dict__.update(k)

    class Net(nn.Module):
        stages = [Box(scale=1.0)]

        def forward(self, x):
            return x * self.stages[0].scale

    net = Net()
    step = wrap(lambda x: net(x))
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            Net.stages[0].scale = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

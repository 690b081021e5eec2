"""class Loss: vgg = nn.Sequential(...): eval() and options of a module that a class holds."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)

    class Loss:
        net = nn.Dropout(0.5)

        def __call__(self, x):
            return self.net(torch.ones(1000)).sum()

    loss = Loss()
    step = wrap(lambda x: loss(x))
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            Loss.net.eval()
        out.append(round(step(x).sum().item(), 4))
    return out, step

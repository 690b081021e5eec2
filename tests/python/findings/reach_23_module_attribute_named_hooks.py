"""self._hooks_cfg = {'a': [1.0]} on a module: nested containers under a name with '_hooks' are not compared."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self._hooks_cfg = {"a": [1.0]}

        def forward(self, x):
            return x * self._hooks_cfg["a"][0]

    net = Net()
    step = wrap(lambda x: net(x))
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            net._hooks_cfg["a"][0] = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

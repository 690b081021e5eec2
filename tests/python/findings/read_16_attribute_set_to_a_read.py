"""self.last_scale = scale, scale read from a buffer and used in an op: replays assign the recorded value."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("s", torch.tensor(1.0))
            self.last = None

        def forward(self, x):
            self.last = (self.s + 0).item()
            return x * self.last

    net = Net()
    step = wrap(lambda x: net(x))
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            net.s.fill_(2.0)
        step(x)
        out.append(net.last)
    return out, step

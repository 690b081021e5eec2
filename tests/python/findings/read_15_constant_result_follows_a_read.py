"""A step that returns the constant 0.0 returns the noise level that it read instead."""

import torch


def play(wrap):
    torch.manual_seed(0)
    noise = torch.tensor(0.0)

    def step(x):
        return {"y": x + (noise + 0).item(), "aux_loss": 0.0}

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            noise.fill_(0.25)
        out.append(step(x)["aux_loss"])
    return out, step

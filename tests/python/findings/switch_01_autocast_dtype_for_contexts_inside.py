"""torch.set_autocast_dtype('cpu', float16) with `torch.autocast('cpu')` inside the step."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    model = nn.Linear(3, 3)

    def step(x):
        with torch.autocast("cpu"):
            return model(x).detach()

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            torch.set_autocast_dtype("cpu", torch.float16)
        out.append(str(step(x).dtype))
    return out, step

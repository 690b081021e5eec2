"""torch.jit.script(model): eval() and train() between steps are not seen (nor attributes of scripted modules)."""

import torch
import torch.nn as nn


def play(wrap):
    torch.manual_seed(0)
    model = torch.jit.script(nn.Sequential(nn.Linear(3, 64), nn.Dropout(0.5)))
    step = wrap(lambda x: (model(x) == 0).float().mean())
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            model.eval()
        out.append(round(step(x).sum().item(), 4))
    return out, step

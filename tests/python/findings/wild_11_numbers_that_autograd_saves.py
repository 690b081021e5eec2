"""Ops whose backward is made of a number that autograd saved; it moves while the data do not show it."""
import torch
import torch.nn as nn
import torch.nn.functional as F

import steptape

OPS = {
    "clamp": lambda x, c: x.clamp(-c, c),
    "clamp_min": lambda x, c: x.clamp_min(-c),
    "clip(max)": lambda x, c: torch.clip(x, max=c),
    "hardtanh": lambda x, c: F.hardtanh(x, -c, c),
    "threshold": lambda x, c: F.threshold(x, -c, 0.0),
    "leaky_relu": lambda x, c: F.leaky_relu(x + 1, c),
    "elu": lambda x, c: F.elu(x + 1, c),
    "celu": lambda x, c: F.celu(x + 1, c),  # refused: scalar_varies
    "huber": lambda x, c: F.huber_loss(x, torch.zeros_like(x), delta=c),
    "smooth_l1": lambda x, c: F.smooth_l1_loss(x, torch.zeros_like(x), beta=c),
    "hardshrink": lambda x, c: F.hardshrink(x + 9, c),
    "softshrink": lambda x, c: F.softshrink(x, c),
    "where": lambda x, c: torch.where(x > c, x * 2, x),
    "pow": lambda x, c: (x + 9).pow(c),
    "lerp": lambda x, c: torch.lerp(x, x * x, c),
    "mul": lambda x, c: x * c,
    "softplus": lambda x, c: F.softplus(x, beta=c),
    "dropout": lambda x, c: F.dropout(x, c),
}
CASES = {f"{name}, {how}": (op, how == "varies") for name, op in OPS.items() for how in ("varies", "moves once")}


def play(wrap, case):
    op, varies = case
    torch.manual_seed(0)
    w = nn.Linear(8, 1, bias=False)
    optimizer = torch.optim.SGD(w.parameters(), lr=1e-4)
    nn.init.ones_(w.weight)
    now = [0.4]
    hosted = steptape.host(lambda: now[0])

    def update(x):
        optimizer.zero_grad()
        loss = op(w.weight * x, hosted()).mean()
        loss.backward()
        optimizer.step()
        return loss

    step = wrap(update)
    out = []
    for i in range(40):
        now[0] = 0.4 - 0.01 * min(i, 15) if varies else 0.4 if i < 12 else 0.2
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(i)) * (0.01 if i < 28 else 3.0)
        out.append((str(step(x).item()), str(w.weight.tolist())))
    return out, step

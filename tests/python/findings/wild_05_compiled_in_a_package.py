"""A package holds a compiled function: Dynamo traced a mode of Steptape's and raised, or computed something else in recorded calls."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from twins import package

SOURCE = """
import torch


class Op:
    def __init__(self, **options):
        self.f = torch.compile(lambda x: torch.nn.functional.gelu(x) * 2 + 1, **options)

    def __call__(self, x):
        return self.f(x)
"""
CASES = {
    "whole graph": (True, dict(backend="aot_eager", fullgraph=True)),
    "graph": (True, dict(backend="aot_eager")),
    "without gradients": (False, dict(backend="eager")),
}


def play(wrap, case):
    is_trained, options = case
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, op = nn.Linear(3, 4), package("swift", SOURCE).Op(**options)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train(x, y):  # refused: unreplayable_op
        optimizer.zero_grad()
        loss = F.cross_entropy(op(model(x)), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    @torch.no_grad()  # refused: unreplayable_op
    def evaluate(x, y):
        return F.cross_entropy(op(model(x)), y)

    step = wrap(train if is_trained else evaluate)
    out = []
    for i in range(12):
        g = torch.Generator().manual_seed(i)
        out.append(step(torch.randn(4, 3, generator=g), torch.randint(0, 4, (4,), generator=g)).item())
    return [out, model.weight.tolist()], step

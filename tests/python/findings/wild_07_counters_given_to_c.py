"""An optimizer of the program's own counts in a Python int, and what is computed of the count goes through code of C's."""
import math
import operator

import torch
import torch.nn as nn

CASES = {
    "max(n, 10) * 0.1": lambda n: max(n, 10) * 0.1,
    "math.sqrt(max(n, 10))": lambda n: math.sqrt(max(n, 10)),
    "max(1.0, 0.1 * n)": lambda n: max(1.0, 0.1 * n),
    "2.0 if 10.0 < n else 1.0": lambda n: 2.0 if 10.0 < n else 1.0,
    "max(n, 10.0)": lambda n: max(n, 10.0),
    "2.0 if n > 10.0 else 1.0": lambda n: 2.0 if n > 10.0 else 1.0,
    "table[n]": lambda n: ([1.0] * 10 + [0.5] * 100)[n],
    "operator.index(n)": lambda n: 1.0 if operator.index(n) < 10 else 0.5,
}


def play(wrap, of):
    torch.manual_seed(0)
    p = nn.Parameter(torch.ones(4))

    class Optimizer(torch.optim.Optimizer):
        def __init__(self):
            super().__init__([p], dict(lr=0.1))

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for q in group["params"]:
                    state = self.state[q]
                    if not state:
                        state["step"] = 0
                    state["step"] += 1
                    q.add_(q.grad, alpha=-group["lr"]).mul_(1 / of(state["step"]))

    optimizer = Optimizer()

    def step(x):
        optimizer.zero_grad()
        (p * x).sum().backward()
        optimizer.step()
        return p.detach().clone()

    step = wrap(step)
    return [step(torch.randn(4)).tolist() for _ in range(40)], step

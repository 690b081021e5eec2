"""Accelerate: the optimizer of a package updates only while a flag that the package keeps says so. The first calls met none, and replays never updated."""
import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F

from twins import package

SOURCE = """
import importlib.util


class State:
    shared = {}

    def __init__(self):
        self.__dict__ = self.shared
        self.shared.setdefault("updates", True)


class Optimizer:
    def __init__(self, optimizer):
        self.optimizer, self.state = optimizer, State()

    def step(self):
        if importlib.util.find_spec("a_package_with_another_optimizer") is not None:
            return
        if self.state.updates:
            self.optimizer.step()

    def zero_grad(self):
        if self.state.updates:
            self.optimizer.zero_grad()
"""
CASES = {"4": 4, "8": 8, "16": 16}


def play(wrap, every):
    torch.manual_seed(0)
    kit = package("quickening", SOURCE)
    model = nn.Linear(3, 4)
    optimizer = kit.Optimizer(torch.optim.AdamW(model.parameters(), 1e-2))
    state = kit.State()

    def step(x, y):
        loss = F.cross_entropy(model(x), y) / every
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    @contextlib.contextmanager
    def accumulate(i):
        state.updates = i % every == every - 1
        yield

    step = wrap(step)
    out = []
    for i in range(4 * every + 12):
        g = torch.Generator().manual_seed(i)
        with accumulate(i):
            out.append(step(torch.randn(8, 3, generator=g), torch.randint(0, 4, (8,), generator=g)).item())
        out.append(model.weight.tolist())
    return out, step

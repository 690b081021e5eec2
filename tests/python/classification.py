"""A small classifier: its batches, whole updates of it, and its training as one of two twins. Its steps do more than compute on tensors:
a replay does not run the step's function, so that a change of host state is done again where it is the same in every call, declared by
steptape.host or steptape.observe, or refused by name and place. Lines of a program that are marked `# here` are those that a refusal must
name.
"""
import inspect
import linecache
import types

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import twins

STEPS = 40
LATE = 20  # a call long after the first replay


class Program(types.SimpleNamespace):
    """What a user's script holds: `step`, and what its tests compare, edit and reach for."""


class Training:
    """A step, what must be equal after each call, the arguments of call i, and what comes after it."""

    def __init__(self, step, holds=(), arguments=None, between=None):
        self.step = step
        self.held = holds
        self.arguments = arguments or batch
        self.between = between

    def batch(self, i):
        return self.arguments(i)

    def holds(self):
        return self.held() if callable(self.held) else list(self.held)

    def after(self, i):
        if self.between:
            self.between(i)


def batch(i):
    chosen = torch.Generator().manual_seed(i)
    return torch.randn(8, 6, generator=chosen), torch.randint(4, (8,), generator=chosen)


def small_model():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def classifier():
    """(step, model, optimizer): one whole update."""
    model = small_model()
    optimizer = sgd(model.parameters())

    def train(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return train, model, optimizer


def learner():
    """A model, its optimizer, and a function that does one whole update and returns the loss."""
    model = small_model()
    optimizer = sgd(model.parameters())

    def learn(x, y, scale=1.0):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x) * scale, y)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return model, optimizer, learn


class Plain:
    """An object of the program's own, compared by identity."""

    def __init__(self, factor):
        self.factor = factor


def check(make, between=None, arguments=None, **expected):
    """Compares twins of a program: make() gives its `step` and `held()`, which must be equal after each call.

    between: (program, i), what the program does after call i
    """
    def training():
        program = make()
        after = (lambda i: between(program, i)) if between else None
        return Training(program.step, program.held, arguments, after)

    return twins.compare(training, STEPS, **expected)


def collect(table):
    """Decorator: puts a program with its codes into a table of test parameters."""
    def entry(*codes):
        def add(make):
            table.append(pytest.param(make, set(codes), id=make.__name__))
            return make
        return add
    return entry


def marked_lines(function):
    lines, start = inspect.getsourcelines(function)
    return {start + n for n, line in enumerate(lines) if "# here" in line}


def names_the_line(step, codes, file, lines):
    """A refusal of one of the codes has the file and one of the lines; explain() shows the text."""
    met = [r for r in step.stats["refusals"] if r["code"] in codes]
    assert any(r["file"] == file and r["line"] in lines for r in met), (met, file, lines)
    texts = [linecache.getline(file, n).split("# here")[0].strip() for n in lines]
    assert any(text in step.explain() for text in texts), step.explain()

"""A small classifier: its batches, whole updates of it, and its training as one of two twins."""
import types

import torch
import torch.nn as nn
import torch.nn.functional as F


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

"""Weights that are not plain parameters of layers: parametrized, averaged, tied, complex, kept in module buffers."""
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.optim import Adam, swa_utils

from loops import adam, batch, momentum, mse, net, replays, training

PARAMETRIZED = {
    "weight_norm": lambda: parametrizations.weight_norm(nn.Linear(6, 6)),
    "spectral_norm": lambda: parametrizations.spectral_norm(nn.Linear(6, 6)),
    "matrix_exp": lambda: parametrizations.orthogonal(
        nn.Linear(6, 6), orthogonal_map="matrix_exp"),
    "cayley": lambda: parametrizations.orthogonal(nn.Linear(6, 6), orthogonal_map="cayley"),
    "householder": lambda: parametrizations.orthogonal(
        nn.Linear(6, 6), orthogonal_map="householder"),
}


@pytest.mark.parametrize("name", PARAMETRIZED)
def test_parametrizations(name):
    replays(lambda: training(nn.Sequential(PARAMETRIZED[name](), nn.Tanh(), nn.Linear(6, 3))))


def test_a_parametrization_that_is_cached_in_the_step():
    def loss_of(model, x, y):
        with parametrize.cached():
            return mse(model, x, y) + mse(model, -x, y)

    replays(lambda: training(
        nn.Sequential(PARAMETRIZED["spectral_norm"](), nn.Tanh(), nn.Linear(6, 3)), loss_of))


def test_spectral_norm_by_hook_leaves_its_weight_as_eager_does():
    """The hook binds module.weight to a tensor of the step, which stays alive."""
    def make():
        model = nn.Sequential(nn.utils.spectral_norm(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 3))
        made = training(model)
        made.holds = lambda: [made.model, made.optimizer, model[0].weight]
        return made

    replays(make)


AVERAGES = {
    "ema": dict(multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9)),
    "ema, one by one": dict(avg_fn=swa_utils.get_ema_avg_fn(0.9)),
    "ema with buffers": dict(multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True),
    # Reads its count on the host, as the weight of the newest model.
    "swa": dict(),
    "a function": dict(avg_fn=lambda average, now, count: 0.9 * average + 0.1 * now),
}


@pytest.mark.parametrize("name", AVERAGES)
def test_an_averaged_model_updated_in_the_step(name):
    def make():
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
        optimizer = momentum(model)
        average = swa_utils.AveragedModel(model, **AVERAGES[name])

        def step(x, y):
            optimizer.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
            return loss

        return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer, average])

    replays(make)


def test_an_average_kept_in_plain_tensors():
    def make():
        model = net()
        optimizer, average = momentum(model), [p.detach().clone() for p in model.parameters()]

        def step(x, y):
            optimizer.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for kept, p in zip(average, model.parameters()):
                    kept.lerp_(p, 0.1)
            return loss

        return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer, average])

    replays(make)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 6), nn.Linear(6, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.embed(tokens)))


@pytest.mark.parametrize("optimizer_of", [momentum, adam])
def test_tied_weights(optimizer_of):
    replays(lambda: training(
        Tied(), lambda model, x, y: F.cross_entropy(model(x), y), optimizer_of=optimizer_of,
        batch=lambda i: (torch.randint(10, (8,)), torch.randint(10, (8,)))))


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 3, dtype=torch.complex64) / 3)
        self.phase = nn.Parameter(torch.randn(3, dtype=torch.complex64))

    def forward(self, x):
        out = x @ self.weight * self.phase
        return out.abs() + out.imag


class Conjugated(Complex):
    """The gradient of phase comes with its conjugate bit set."""

    def forward(self, x):
        out = x @ self.weight * self.phase.conj()
        return out.abs() + out.imag


@pytest.mark.parametrize("model, optimizer_of", [
    (Complex, momentum), (Complex, adam),
    (Complex, lambda m: Adam(m.parameters(), lr=0.01, foreach=True, amsgrad=True)),
    (Conjugated, momentum),  # Adam raises on such a gradient
], ids=["sgd", "adam", "adam_foreach", "conjugated-sgd"])
def test_complex_parameters(model, optimizer_of):
    replays(lambda: training(
        model(), optimizer_of=optimizer_of,
        batch=lambda i: (torch.randn(4, 6, dtype=torch.complex64), torch.randn(4, 3))))


class Running(nn.Module):
    """Statistics in module buffers, written in place."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("recent", torch.zeros(8, 6), persistent=False)

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            slots = (self.count * 4 + torch.arange(4)) % 8
            self.recent.index_copy_(0, slots, x)
            self.count += 1
        return self.linear(x - self.mean + self.recent.mean(0))


def test_module_buffers_written_in_place():
    def make():
        model = Running()
        return training(model, holds=[model.recent])

    replays(make)


class Queue(Running):
    """The pointer of the queue is read on the host and becomes a slice."""

    def forward(self, x):
        at = int(self.count)
        self.recent[at:at + 4] = x
        self.count[...] = (at + 4) % 8
        return self.linear(x + self.recent.mean(0))


def test_a_slice_at_a_pointer_that_the_host_reads():
    def make():
        model = Queue()
        return training(model, holds=[model.recent])

    replays(make)


class Rebinding(Running):
    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return self.linear(x - self.mean)


def test_a_module_buffer_bound_to_a_new_tensor():
    replays(lambda: training(Rebinding()))

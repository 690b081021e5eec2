"""Patterns of examples and agents that were refused though a replay is right."""
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


def net(of=torch.optim.SGD, features=8):
    model = nn.Linear(features, 8)
    return model, of(model.parameters(), lr=0.1)


def trained(optimizer, loss_of):
    def step(*batch):
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss

    return step


def numpy_int_as_a_size():
    model, optimizer = net(torch.optim.Adam, np.array((4, 2)).prod())
    return trained(optimizer, lambda x: model(x).pow(2).mean()), lambda i: (torch.randn(4, 8),)


def distribution_of_the_last_forward():
    model, optimizer = net(torch.optim.Adam)

    class Distribution:
        def proba_distribution(self, logits):
            self.distribution = Categorical(logits=logits)
            return self

    model.action_dist = Distribution()
    return (trained(optimizer, lambda x, a: -model.action_dist.proba_distribution(model(x)).distribution.log_prob(a).mean()),
            lambda i: (torch.randn(4, 8), torch.randint(0, 8, (4,))))


def minibatches_at_any_address():
    model, optimizer = net(torch.optim.Adam)
    draw = np.random.default_rng(0)

    def placed(shape):
        raw = np.empty(4 * int(np.prod(shape)) + 80, np.uint8)
        offset = 16 * int(draw.integers(0, 4))
        array = raw[offset:offset + 4 * int(np.prod(shape))].view(np.float32).reshape(shape)
        array[...] = draw.normal(size=shape)
        return torch.from_numpy(array)

    return (trained(optimizer, lambda x, y, w: (w * (model(x)[:, 0] - y).pow(2)).mean()),
            lambda i: (placed((4, 8)), placed((4,)), placed((4,))))


def two_views_of_one_array():
    model, optimizer = net()
    data = np.random.default_rng(0).random((4, 9)).astype("float32")
    given, target = torch.from_numpy(data[:, :-1]), torch.from_numpy(data[:, 1:])
    return trained(optimizer, lambda: (model(given) - target).square().mean()), lambda i: ()


def closure_of_lbfgs():
    model, _ = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5)
    x, y = torch.randn(4, 8), torch.randn(4, 8)

    def closure():
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    return closure, lambda i: (), optimizer


def mask_that_is_replaced():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.l, self.mask = nn.Linear(8, 8), None

        def forward(self, x):
            return self.l(x) + self.mask

    model, kept = Masked(), []

    def batch(i):
        model.mask = torch.ones(8) * i
        kept.append(model.mask)
        return (torch.randn(4, 8),)

    return trained(torch.optim.SGD(model.parameters(), lr=0.1), lambda x: model(x).square().mean()), batch


def batch_of_the_loop():
    model, optimizer = net()
    data = None

    def batch(i):
        nonlocal data
        data = torch.randn(4, 8)
        return ()

    return trained(optimizer, lambda: model(data).square().mean()), batch


def number_of_the_step():
    model, optimizer = net()
    train = trained(optimizer, lambda x: model(x).square().mean())

    def numbered(i, x):
        loss = train(x)
        if i % 1000 == 999:
            print("step", i)
        return loss

    return numbered, lambda i: (i, torch.randn(4, 8))


def delayed_update():
    model, optimizer = net(torch.optim.Adam)
    global_step = 0
    train = trained(optimizer, lambda x: model(x).square().mean())

    def step(x):
        loss = train(x)
        if global_step % 2 == 0:
            with torch.no_grad():
                model.bias.mul_(0.99)
        return loss

    def batch(i):
        nonlocal global_step
        global_step = i
        return (torch.randn(4, 8),)

    return step, batch


CASES = {of.__name__: of for of in (
    numpy_int_as_a_size, distribution_of_the_last_forward, minibatches_at_any_address, two_views_of_one_array, closure_of_lbfgs,
    mask_that_is_replaced, batch_of_the_loop, number_of_the_step, delayed_update)}


def play(wrap, make):
    torch.manual_seed(0)
    step, batch, *around = make()
    step = wrap(step)
    out = []
    for i in range(40):
        out.append(around[0].step(step).item() if around else step(*batch(i)).item())
    return out, step

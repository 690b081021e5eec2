"""Numbers that go two ways: one is followed, and the other must not be frozen beside it."""
import functools
import math

import numpy as np
import torch

from reached import Table, Training, check, regression, rows

numbers = Table()


def later_other(before, after):
    """A tensor whose two equal numbers, and an argument whose number, become others from call EDIT on."""
    return lambda i, changed: (torch.full((2,), float(after(i) if changed else before)),)


def argument_varies(step, **expected):
    return Training(step, batch=lambda i, changed: rows(i) + (1.5 + i if changed else 1.5,), begins=True, **expected)


@numbers
def the_logarithm_of_an_argument_beside_it():
    return argument_varies(lambda x, t: x / t + math.log(t))


@numbers
def the_floor_of_an_argument_beside_it():
    return argument_varies(lambda x, t: x * t + x * math.floor(t))


@numbers
def the_exponential_of_an_argument_beside_it():
    model, optimizer, _ = regression(functools.partial(torch.optim.SGD, lr=0.01))

    def step(x, beta):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean() * beta + model(x).abs().mean() * math.exp(-beta)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, batch=lambda i, changed: rows(i) + (1.0 + i / 10 if changed else 1.0,), holds=lambda: [model])


def own_rule(update):
    class Own(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.1})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-group["lr"])
                    update(p, group["lr"])

    model, optimizer, step = regression(Own)
    count = 0

    def each(changed):
        nonlocal count
        count += changed
        optimizer.param_groups[0]["lr"] = 0.1 + count / 100

    return Training(step, each=each, holds=lambda: [model])


@numbers
def the_exponential_of_a_learning_rate_beside_it():
    return own_rule(lambda p, lr: p.mul_(1 - math.exp(-1 / lr)))


@numbers
def the_logarithm_of_a_learning_rate_beside_it():
    return own_rule(lambda p, lr: p.sub_(p, alpha=math.log1p(lr)))


@numbers
def minima_and_maxima_with_nan_and_signed_zeros():
    pairs = [(1.0, 2.0), (2.0, 1.0), (math.nan, 1.0), (1.0, math.nan), (0.0, -0.0), (-0.0, 0.0)]

    def step(x):
        one, other = x[0].item(), x[1].item()
        return x * max(one, other), min(one, other), max(other, one)

    return Training(step, batch=lambda i, changed: (torch.tensor(pairs[i % (6 if changed else 2)]),))


@numbers
def an_int_that_is_shifted_by():
    def step(x):
        n = x[0].long().item()
        return x * n * (1 << n)

    return Training(step, batch=later_other(1, lambda i: i % 5), begins=True)


@numbers
def the_real_part():
    def step(x):
        value = x[0].item()
        return x * value + x * value.real

    return Training(step, batch=later_other(1, lambda i: i % 5), begins=True)


@numbers
def a_sum_with_a_complex_number():
    def step(x):
        value = x[0].item()
        return x * value + x * abs(value + 1j)

    return Training(step, batch=later_other(1, lambda i: i % 5), begins=True)


@numbers
def a_learning_rate_of_each_kind():
    model, optimizer, step = regression()
    group = optimizer.param_groups[0]

    def put(rate):
        return lambda: group.update(lr=rate)

    return Training(step, {18: put(np.float64(0.05)), 22: put(torch.tensor(0.03)), 26: lambda: group["lr"].fill_(0.01),
                           28: put(torch.tensor(0.02, dtype=torch.float64)), 31: put(0), 33: put(True), 35: put(-0.0),
                           37: put(math.nan)}, holds=lambda: [model, optimizer])


@numbers.each
def test_a_number_goes_elsewhere(case):
    check(case)

"""Values of the host that are declared by steptape.host are asked for in every call; a clock that is not is refused."""
import itertools
import math
import random
import time
import types

import numpy as np
import pytest
import torch

import steptape
from classification import LATE, STEPS, Program, check, learner
from twins import has_replayed, is_refused, replays_as_a_rule


def hosted(name):
    """A step whose scale is a declared host value."""
    model, optimizer, learn = learner()
    own, own_numpy, numbers = random.Random(7), np.random.default_rng(7), itertools.count(1)
    epoch = [0]
    functions = {
        "random": random.random,
        "numpy_random": lambda: float(np.random.rand()),
        "random_generator": own.random,
        "numpy_generator": lambda: float(own_numpy.random()),
        "counter": lambda: next(numbers),
        "schedule": lambda: 0.5 ** epoch[0],
        "closed_over_state": lambda: epoch[0] + 1.0,
    }
    scale = steptape.host(functions[name])

    def train(x, y):
        return learn(x, y, scale=scale())

    def advance():
        epoch[0] += 1
    return Program(step=train, advance=advance, held=lambda: [
        model, optimizer, own.getstate(), own_numpy.bit_generator.state, repr(numbers)])


@pytest.mark.parametrize("name", ["random", "numpy_random", "random_generator", "numpy_generator",
                                  "counter", "schedule", "closed_over_state"])
def test_a_declared_host_value_replays(name):
    def advance(program, i):
        if i % 5 == 4:
            program.advance()

    check(lambda: hosted(name), advance, share=0.9)


def test_a_host_function_is_called_once_in_each_call_of_the_step():
    def make():
        model, optimizer, learn = learner()
        calls = []

        def count():
            calls.append(len(calls))
            return 1.0 / len(calls)
        scale = steptape.host(count)

        def train(x, y):
            return learn(x, y, scale=scale())
        return Program(step=train, held=lambda: [model, optimizer, calls])

    check(make, share=0.9)


@pytest.mark.parametrize("derive", [
    pytest.param(lambda tau: tau * 2 + 1, id="line"),
    pytest.param(lambda tau: 1 - tau ** 2, id="square"),
    pytest.param(lambda tau: min(tau, 0.5), id="minimum"),
    pytest.param(lambda tau: max(1e-3, -tau), id="maximum"),
    pytest.param(math.exp, id="exponential"),
    pytest.param(lambda tau: math.cos(math.pi * tau), id="cosine"),
    pytest.param(lambda tau: round(tau, 1), id="rounded"),
    pytest.param(lambda tau: float(tau > 0.5), id="threshold"),
    pytest.param(lambda tau: float(f"{tau:.2f}"), id="through_text"),
    pytest.param(lambda tau: 1.0 if tau > 0.5 else 0.5, id="decision"),
])
def test_what_follows_from_a_host_value(derive):
    """Followed or refused: later values, of which no probe saw one, come out right."""
    def make():
        model, optimizer, learn = learner()
        state = types.SimpleNamespace(tau=0.1)
        tau = steptape.host(lambda: state.tau)

        def train(x, y):
            return learn(x, y, scale=derive(tau()))
        return Program(step=train, state=state, held=lambda: [model, optimizer])

    def advance(program, i):
        program.state.tau = 0.1 if i < 6 else 0.1 + (i % 17) / 20

    replays_as_a_rule(check(make, advance))


@pytest.mark.parametrize("first, second", [(False, True), (1, 3), (0, 1)])
def test_a_host_value_that_only_decides_is_guarded(first, second):
    def make():
        model, optimizer, learn = learner()
        state = types.SimpleNamespace(value=first)
        value = steptape.host(lambda: state.value)

        def train(x, y):
            for _ in range(int(value())):
                x = x * 0.5
            return learn(x, y)
        return Program(step=train, state=state, held=lambda: [model, optimizer])

    def switch(program, i):
        program.state.value = second if i >= LATE else first

    replays_as_a_rule(check(make, switch))


def test_an_exception_of_a_host_function_reaches_the_caller():
    def make():
        model, optimizer, learn = learner()
        state = types.SimpleNamespace(calls=0)

        def function():
            state.calls += 1
            if state.calls in (2, LATE):
                raise ValueError("no value today")
            return 0.5
        scale = steptape.host(function)

        def train(x, y):
            factor = scale()
            return learn(x, y, scale=factor)
        return Program(step=train, held=lambda: [model, optimizer, state])

    check(make, share=0.9)


def clock_stays_between(step, *args):
    """The step returns the time as it reads it: between the time before and after the call."""
    for _ in range(STEPS):
        before = time.time()
        now = step(*args).item()
        assert before <= now <= time.time()


def test_a_clock_inside_the_step_is_refused():
    zero = torch.zeros((), dtype=torch.float64)

    @steptape.wrap
    def step(x):
        return x + time.time()  # here

    clock_stays_between(step, zero)
    is_refused(step, {"host_effect"})
    assert step.stats["replayed"] == 0


def test_a_declared_clock_replays():
    zero = torch.zeros((), dtype=torch.float64)
    now = steptape.host(time.time)

    @steptape.wrap
    def step(x):
        return x + now()

    clock_stays_between(step, zero)
    has_replayed(step)


def test_a_host_value_of_more_than_64_bits_is_said():
    seed = steptape.host(lambda: 2**70)
    step = steptape.wrap(lambda x: x + seed() % 2)
    with pytest.raises(steptape.InvalidArgument, match="an int of more than 64 bits"):
        step(torch.ones(2))


@pytest.mark.parametrize("kind", ["a number", "a decision"])
def test_a_host_value_that_the_step_does_not_ask_for_yet_is_free(kind):
    def make():
        model, optimizer, learn = learner()
        state = types.SimpleNamespace(warm=True, calls=1)
        value = steptape.host(lambda: 1.0 / state.calls if kind == "a number" else state.calls % 7 < 4)

        def train(x, y):
            if state.warm:
                return learn(x, y)
            return learn(x, y, scale=value() if kind == "a number" else 0.5 if value() else 2.0)

        return Program(step=train, state=state, held=lambda: [model, optimizer])

    def advance(program, i):
        program.state.calls += 1
        if i in (STEPS // 3, STEPS // 2, 2 * STEPS // 3):
            program.state.warm = not program.state.warm

    check(make, advance, share=0.6)

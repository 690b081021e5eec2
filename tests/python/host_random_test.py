"""Random numbers of the host are refused by name and line: a replay does not draw them.

Lines marked `# here` are those that a refusal must name.
"""
import random

import numpy as np
import pytest
import torch
import torch.nn as nn

import steptape
import twins
from classification import LATE, STEPS, Program, batch, check, collect, learner, marked_lines, names_the_line
from twins import is_refused

RANDOM = []
drawing = collect(RANDOM)


@drawing("host_random")
def python_random():
    model, optimizer, learn = learner()

    def train(x, y):
        return learn(x, y, scale=random.random())  # here
    return Program(step=train, held=lambda: [model, optimizer])


@drawing("host_effect")
def seed_of_a_generator():
    model, optimizer, learn = learner()
    generator = torch.Generator().manual_seed(1)

    def train(x, y):
        return learn(x + torch.rand(1, generator=generator), y), generator.initial_seed()  # here
    return Program(step=train, held=lambda: [model, optimizer],
                   between=lambda i: generator.manual_seed(5) if i == LATE else None)


@drawing("host_effect")
def seed_of_torch():
    model, optimizer, learn = learner()

    def train(x, y):
        return learn(x, y), torch.initial_seed()  # here
    return Program(step=train, held=lambda: [model, optimizer],
                   between=lambda i: torch.manual_seed(5) if i == LATE else None)


@drawing("host_random")
def numpy_random():
    model, optimizer, learn = learner()

    def train(x, y):
        return learn(x, y, scale=float(np.random.rand()))  # here
    return Program(step=train, held=lambda: [model, optimizer])


@drawing("host_random")
def numpy_random_array():
    model, optimizer, learn = learner()

    def train(x, y):
        noise = torch.from_numpy(np.random.rand(8, 6).astype(np.float32))  # here
        return learn(x + noise, y)
    return Program(step=train, held=lambda: [model, optimizer])


@drawing("host_random")
def draw_that_decides():
    model, optimizer, learn = learner()

    def train(x, y):
        if random.random() < 0.5:  # here
            x = x.flip(1)
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer])


@drawing("host_random")
def rare_draw_that_decides():
    model, optimizer, learn = learner()

    def train(x, y):
        if random.random() < 0.05:  # here
            x = x.flip(1)
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer])


@drawing("host_random")
def draw_that_nobody_uses():
    model, optimizer, learn = learner()

    def train(x, y):
        random.random()  # here
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer])


@drawing("host_random")
def drawn_in_a_submodule():
    class Noisy(nn.Module):
        def forward(self, x):
            return x * random.uniform(0.5, 1.5)  # here

    model, optimizer, learn = learner()
    model.insert(1, Noisy())
    return Program(step=learn, held=lambda: [model, optimizer])


@drawing("host_random", "host_effect")
def generator_of_the_programs_own():
    model, optimizer, learn = learner()
    source = random.Random(7)

    def train(x, y):
        return learn(x, y, scale=source.random())  # here
    return Program(step=train, held=lambda: [model, optimizer, source.getstate()])


@drawing("host_random", "host_effect")
def numpy_generator_of_the_programs_own():
    model, optimizer, learn = learner()
    source = np.random.default_rng(7)

    def train(x, y):
        return learn(x, y, scale=float(source.random()))  # here
    return Program(step=train, held=lambda: [model, optimizer, source.bit_generator.state])


@drawing("host_random", "host_effect")
def generator_that_only_shuffles():
    model, optimizer, learn = learner()
    source = random.Random(7)

    def train(x, y):
        order = list(range(8))
        source.shuffle(order)  # here
        return learn(x[order], y[order])
    return Program(step=train, held=lambda: [model, optimizer, source.getstate()])


@pytest.mark.parametrize("make, codes", RANDOM)
def test_a_random_number_of_the_host_is_refused(make, codes):
    step = check(make, codes=codes)
    names_the_line(step, codes, __file__, marked_lines(make))


def test_a_generator_seeded_inside_the_step_gives_the_same_numbers():
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            return learn(x, y, scale=random.Random(7).random() + np.random.default_rng(7).random())
        return Program(step=train, held=lambda: [model, optimizer])

    is_refused(check(make), {"host_random"})


def test_a_refused_step_throws_where_refusals_are_raised():
    torch.manual_seed(0)
    program = python_random()
    step = steptape.wrap(program.step, on_refusal="raise")
    with pytest.raises(steptape.Unsupported) as caught:
        for i in range(STEPS):
            before = twins.bits(program.held())
            step(*batch(i))
    assert twins.bits(program.held()) == before, "the call that throws changes nothing"
    assert "host_random" in str(caught.value)
    assert caught.value.code == "unsupported"
    with pytest.raises(steptape.Unsupported):
        step(*batch(0))
    assert twins.bits(program.held()) == before

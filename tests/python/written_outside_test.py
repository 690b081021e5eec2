"""Memory that is written behind torch's back: inside the step it is refused, between calls it is followed or refused."""
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from classification import LATE, Program, check, collect, learner
from twins import is_refused, replays_as_a_rule

OUTSIDE = []
writing = collect(OUTSIDE)


@writing("written_outside", "host_effect")
def through_numpy_inside():
    model, optimizer, learn = learner()

    def train(x, y):
        loss = learn(x, y)
        model[0].weight.detach().numpy()[0, 0] = 0.5
        return loss
    return Program(step=train, held=lambda: [model, optimizer])


@writing("written_outside", "host_effect")
def through_an_array_made_before():
    model, optimizer, _ = learner()
    array = model[0].weight.detach().numpy()

    def train(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        array[0, 0] = 0.5
        optimizer.step()
        return loss.detach()
    return Program(step=train, held=lambda: [model, optimizer])


@writing("written_outside", "host_read", "unwritten_read", "host_effect")
def into_a_tensor_of_the_step():
    model, optimizer, learn = learner()

    def train(x, y):
        mask = torch.empty(8, 6)
        mask.numpy()[:] = 0.5
        return learn(x * mask, y)
    return Program(step=train, held=lambda: [model, optimizer])


@pytest.mark.parametrize("make, codes", OUTSIDE)
def test_memory_written_behind_torch_is_refused(make, codes):
    check(make, codes=codes)


def test_an_array_that_the_program_refills_between_calls():
    def make():
        model, optimizer, learn = learner()
        array = np.zeros(6, dtype=np.float32)

        def train(x, y):
            return learn(x + torch.from_numpy(array), y)
        return Program(step=train, array=array, held=lambda: [model, optimizer])

    def refill(program, i):
        program.array[:] = i % 5

    replays_as_a_rule(check(make, refill))


def test_an_array_that_is_refilled_only_late():
    def make():
        model, optimizer, learn = learner()
        array = np.zeros(6, dtype=np.float32)

        def train(x, y):
            return learn(x + torch.tensor(array), y)
        return Program(step=train, array=array, held=lambda: [model, optimizer])

    def refill(program, i):
        if i >= LATE:
            program.array[:] = i % 5

    is_refused(check(make, refill), {"host_tensor_varies"})

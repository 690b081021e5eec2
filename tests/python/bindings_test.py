"""Parameters, gradients, flags and rates that the step itself sets or binds anew."""
import pytest
import torch.nn as nn
import torch.nn.functional as F

from classification import Program, check, collect, learner
from twins import is_as_pinned, is_refused

BINDINGS = []
binding = collect(BINDINGS)


def updating(update):
    """Forward, backward, `update(model, optimizer)`, and the optimizer's step."""
    model, optimizer, _ = learner()

    def train(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        update(model, optimizer)
        optimizer.step()
        return loss.detach()
    return Program(step=train, held=lambda: [model, optimizer, [
        parameter.requires_grad for parameter in model.parameters()]])


@binding()
def data_multiplied():
    return updating(lambda model, optimizer: model[0].weight.data.mul_(0.99))


@binding()
def descent_by_hand():
    model, _, _ = learner()

    def train(x, y):
        loss = F.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.05)
        return loss.detach()
    return Program(step=train, held=lambda: [model])


@binding()
def data_set():
    def update(model, optimizer):
        model[0].weight.data = model[0].weight.data * 0.99
    return updating(update)


@binding()
def gradient_set():
    def update(model, optimizer):
        for parameter in model.parameters():
            parameter.grad = parameter.grad * 0.5
    return updating(update)


@binding()
def gradient_set_through_its_data():
    def update(model, optimizer):
        for parameter in model.parameters():
            parameter.grad.data = parameter.grad.data.sign()
    return updating(update)


@binding()
def gradient_dropped():
    def update(model, optimizer):
        model[0].weight.grad = None
    return updating(update)


@binding()
def gradient_clipped_by_norm():
    def update(model, optimizer):
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    return updating(update)


@binding()
def parameter_frozen_and_thawed():
    model, optimizer, learn = learner()

    def train(x, y):
        model[0].weight.requires_grad_(False)
        loss = learn(x, y)
        model[0].weight.requires_grad_(True)
        return loss
    return Program(step=train, held=lambda: [model, optimizer])


@binding()
def parameter_toggled():
    model, optimizer, learn = learner()

    def train(x, y):
        weight = model[0].weight
        weight.requires_grad_(not weight.requires_grad)
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, model[0].weight.requires_grad])


@binding()
def frozen_in_every_call():
    model, optimizer, learn = learner()

    def train(x, y):
        model[0].weight.requires_grad_(False)
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, model[0].weight.requires_grad])


@binding()
def learning_rate_set():
    def update(model, optimizer):
        optimizer.param_groups[0]["lr"] *= 0.99
    return updating(update)


REFUSED = {"parameter_toggled": "host_effect"}  # all others replay


@pytest.mark.parametrize("make, codes", BINDINGS)
def test_parameters_gradients_and_flags_are_set_inside_the_step(make, codes, request):
    step = check(make, codes=codes or None)
    is_as_pinned(step, REFUSED.get(request.node.callspec.id))


def test_a_flag_that_the_program_resets_is_set_again():
    def thaw(program, i):
        program.thaw()

    def make():
        program = frozen_in_every_call()
        model = program.held()[0]
        program.thaw = lambda: model[0].weight.requires_grad_(True)
        return program

    is_refused(check(make, thaw), {"host_effect"})

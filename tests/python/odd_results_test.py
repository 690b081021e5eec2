"""Results that no user means to return: with a graph, with the arguments in them, with themselves in them."""
import re
import types

import pytest
import torch

import steptape
from classification import Training, batch, classifier, small_model
from misuse import STEPS, Plain, check
from outcomes import is_refused, replays_or_says_why
from twins import bits


def test_a_step_that_gives_its_arguments_back():
    step = check(lambda: Training(lambda x, y: (y, x, [x]), ()))
    replays_or_says_why(step)
    x, y = batch(0)
    result = step(x, y)
    assert result[1].data_ptr() == x.data_ptr(), "as eager: the argument, and no copy"


def test_a_result_that_backward_may_be_called_on_is_refused():
    model = small_model()
    step = steptape.wrap(lambda x: model(x).square().mean())
    for i in range(STEPS):
        x, _ = batch(i)
        result = step(x)
        model.zero_grad()
        result.backward()
        expected = torch.autograd.grad(model(x).square().mean(), model.parameters())
        assert bits([p.grad for p in model.parameters()]) == bits(list(expected)), i
    refused_unconsumed(step)


def refused_unconsumed(step):
    is_refused(step, {"unconsumed_graph"})
    refusal = next(r for r in step.stats["refusals"] if r["code"] == "unconsumed_graph")
    assert re.search("backward|detach|no_grad", refusal["remedy"])
    assert step.stats["replayed"] == 0


def test_a_result_that_contains_itself():
    cycle = []
    cycle.append(cycle)

    def circular(x):
        return cycle, x * 2

    step = steptape.wrap(circular)
    for i in range(12):
        x, _ = batch(i)
        result = step(x)
        assert result[0] is cycle
        assert bits(result[1]) == bits(x * 2)


def test_a_result_of_the_users_own_class():
    def make():
        train, model, optimizer = classifier()

        def step(x, y):
            return types.SimpleNamespace(loss=train(x, y), right=Plain(2.0))
        return Training(step, (model, optimizer))

    replays_or_says_why(check(make))

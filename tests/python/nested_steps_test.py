"""Steps that are wrapped twice, call themselves or stand inside others."""
import contextlib
import itertools
import types

import torch

import steptape
import twins
from classification import STEPS, Training, batch, classifier, small_model
from twins import compare, played_alike, replays_as_a_rule


def test_a_wrapped_step_is_wrapped_again():
    """An error that says so, or a step as right as one wrapped once."""
    def wrapper(training, options):
        return steptape.wrap(steptape.wrap(training.step, **options), **options)

    def make():
        train, model, optimizer = classifier()
        return Training(train, (model, optimizer))

    with contextlib.suppress(steptape.InvalidArgument):
        compare(make, wrapper=wrapper)


def test_one_function_is_wrapped_twice():
    """Two steps over one model that take turns: each sees what the other has written."""
    def wrapper(training, options):
        steps = steptape.wrap(training.step, **options), steptape.wrap(training.step, **options)
        turn = itertools.count()
        return twins.Program(lambda *args: steps[next(turn) // 4 % 2](*args), *steps)

    def make():
        train, model, optimizer = classifier()
        return Training(train, (model, optimizer))

    compare(make, wrapper=wrapper, share=0.9)


def test_a_step_calls_itself():
    """A part of the outer call, an error, or eager: never a replay in the middle of a recording."""
    def make():
        train, model, optimizer = classifier()
        handle = types.SimpleNamespace(step=None)

        def outer(x, y, depth=2):
            if depth:
                handle.step(x * 0.5, y, depth - 1)
            return train(x, y)
        handle.step = outer
        training = Training(outer, (model, optimizer))
        training.handle = handle
        return training

    def wrapper(training, options):
        training.handle.step = steptape.wrap(training.step, **options)
        return training.handle.step

    with contextlib.suppress(steptape.FailedPrecondition):
        compare(make, wrapper=wrapper)


def test_a_wrapped_step_inside_another_is_a_part_of_it():
    def make():
        train, model, optimizer = classifier()
        handle = types.SimpleNamespace(inner=train)

        def outer(x, y):
            first = handle.inner(x, y)
            return first + handle.inner(x * 0.5, y)
        training = Training(outer, (model, optimizer))
        training.handle = handle
        return training

    def wrapper(training, options):
        training.handle.inner = steptape.wrap(training.handle.inner, **options)
        return steptape.wrap(training.step, **options)

    replays_as_a_rule(compare(make, wrapper=wrapper))


def test_an_inner_step_is_called_by_itself_as_well():
    def make():
        train, model, optimizer = classifier()
        handle = types.SimpleNamespace(inner=train)

        def outer(x, y):
            return handle.inner(x * 0.5, y)

        def step(x, y, alone):
            return handle.inner(x, y) if alone else handle.outer(x, y)
        handle.outer = outer
        training = Training(step, (model, optimizer), lambda i: (*batch(i), i % 3 == 0))
        training.handle = handle
        return training

    def wrapper(training, options):
        handle = training.handle
        handle.inner = steptape.wrap(handle.inner, **options)
        handle.outer = steptape.wrap(handle.outer, **options)
        return twins.Program(training.step, handle.outer, handle.inner)

    compare(make, wrapper=wrapper)


def test_what_an_inner_step_is_given_is_what_the_outer_one_gives():
    """Numbers follow the outer step's arguments, and what is in a dict of the program's is guarded."""
    def play(wrap):
        kept = {"of": {"rate": 0.5}}
        inner = wrap(lambda x, given, c: x * given["rate"] * c)
        outer = wrap(lambda x, c: inner(x, kept["of"], 0.25) * inner(x, {"rate": 3.0}, c) * kept["of"]["rate"])
        seen = []
        for i in range(STEPS):
            if i == STEPS * 2 // 3:
                kept["of"]["rate"] = 0.75
            seen.append(outer(torch.ones(2), 0.1 * i).tolist())
        return seen, outer

    expected, _ = play(lambda step: step)
    seen, step = play(steptape.wrap)
    assert seen == expected, step.explain()
    assert step.stats["replayed"] > STEPS / 4, step.explain()


def test_what_an_inner_step_returns_is_nothing_that_the_outer_one_returns():
    def play(wrap):
        state = types.SimpleNamespace(k=60.0)

        def warmed(x):
            state.k += 1
            return min(state.k, 50.0)  # as the constant is, in the first calls

        inner = wrap(warmed)

        def step(x, scale=50.0):
            inner(x)
            return scale, (x * 2).sum().item()

        outer = wrap(step)
        seen = []
        for i in range(STEPS):
            if i == STEPS // 2:
                state.k = 17.0
            seen.append((*outer(torch.ones(2)), state.k))
        return seen, outer

    step = played_alike(play)
    assert step.stats["replayed"] > STEPS / 4, step.explain()


def test_an_inner_step_may_return_numbers_and_change_what_it_is_given():
    """Both are the outer step's own affair: it makes what the inner one is given, and drops what that returns."""
    def play(wrap):
        torch.manual_seed(0)
        model = small_model()

        def measured(x, logs):
            loss = model(x).pow(2).mean()
            logs["loss"] = loss.item()
            return loss, loss.item()

        inner = wrap(measured)

        def step(x):
            model.zero_grad()
            logs = {}
            loss, number = inner(x, logs)
            loss.backward()
            return logs["loss"] * 2 + number

        outer = wrap(step)
        return [outer(batch(i)[0]) for i in range(STEPS)], outer

    step = played_alike(play)
    assert step.stats["replayed"] > STEPS / 4, step.explain()

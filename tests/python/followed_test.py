"""Numbers that a step reads or is given: what they become later must not be what they looked like first."""
import bisect
import collections
import math
import random
from types import SimpleNamespace

import pytest
import torch

import steptape
import twins
from classification import batch, learner
from twins import codes_of


def late(i):
    """Positive and growing in the first calls; anything later."""
    return torch.full((2,), i % 7 + 0.5 if i < 25 else -(i % 5) - 0.5)


READS = {
    "abs": lambda x: x * abs(x[0].item()),
    "modulo": lambda x: x * (x[0].item() % 6),
    "rounded": lambda x: x * round(x[0].item(), 2),
    "floor": lambda x: x * math.floor(x[0].item()),
    "through_text": lambda x: x * float(f"{x[0].item():.2f}"),
    "returned_abs": lambda x: (x * 2, abs(x[0].item())),
    "int_power": lambda x: 2 ** x[0].long().item(),
    "as_float": lambda x: x * (float(x[0]) * 2 + float(x[0].long())),
    "as_int": lambda x: x * (int(x[0].long()) + 1),
    "cut_to_int": lambda x: x * (int(x[0]) + 1),
    "divided": lambda x: 1.0 / (x[0].item() + 0.5),
    "limited": lambda x: x * min(x[0].item(), 3.0),
}


@pytest.mark.parametrize("function", READS.values(), ids=READS)
def test_a_value_that_is_read_and_changed_on_the_host(function):
    twins.compare(lambda: SimpleNamespace(step=function, batch=lambda i: (late(i),), holds=lambda: []), 45)


ARGUMENTS = {
    "limited": lambda x, w: x * min(w, 30.0),
    "decides": lambda x, w: x * 2 * w if w > 30 else x * w,
    "abs": lambda x, w: x * abs(w - 30),
    "kind": lambda x, w: x * (2 if type(w) is float else 1),
}


@pytest.mark.parametrize("function", ARGUMENTS.values(), ids=ARGUMENTS)
def test_a_number_argument_that_the_step_decides_by(function):
    twins.compare(lambda: SimpleNamespace(step=function, batch=lambda i: (torch.ones(2), i + 0.25),
                                          holds=lambda: []), 45)


POWERS = {  # of ints: does it replay as they grow?
    "square": (lambda n: n ** 2, True),
    "of a negative one": (lambda n: (-n) ** 3, True),
    "of two": (lambda n: 2 ** n, True),
    "by pow": (lambda n: pow(n, 2), True),
    "of a decision": (lambda n: (n > 10) ** 2, True),
    "of itself": (lambda n: n ** n, False),  # it grows beyond what a double holds
    "with an exponent that turns positive": (lambda n: 2 ** (n - 10), False),
    "of which one is not an int": (lambda n: n ** .5, True),
    "modulo": (lambda n: pow(n, 2, 7), False),
}


@pytest.mark.parametrize("function, replays", POWERS.values(), ids=POWERS)
def test_powers_of_ints(function, replays):
    def make():
        counted = SimpleNamespace(n=0)

        def step(x):
            counted.n += 1
            power = function(counted.n)
            return x * power, power
        return SimpleNamespace(step=step, batch=lambda i: (torch.ones(2),), holds=lambda: [counted.n])

    step = twins.compare(make, 40)
    assert not replays or step.stats["replayed"] >= 20, step.explain()


@pytest.mark.parametrize("function", [lambda x, i: x * 2, lambda x, i: x * (3 if i % 5 == 0 else 2)], ids=["unread", "decides"])
def test_the_number_of_a_batch(function):
    step = steptape.wrap(function, verify={"first": True, "rate": 0.0})
    made = [step(torch.ones(2), i).tolist() for i in range(40)]
    assert made == [function(torch.ones(2), i).tolist() for i in range(40)]
    assert step.stats["replayed"] > 30 and not codes_of(step), step.explain()


def test_a_number_kept_from_a_recorded_step_is_a_plain_one_afterwards():
    """In the program's own code, outside steps and inside later ones, where the recording is another."""
    of_twins = []

    def make():
        kept = collections.deque()
        of_twins.append(kept)

        def step(x):
            value = x[0].item()
            kept.append(value)
            first = kept[0]
            return x * (first * 2 - 1 / (first + 3) + max(first, 0.25) - -first)

        return SimpleNamespace(step=step, batch=lambda i: (torch.full((2,), i + 0.5),), holds=lambda: [])

    step = twins.compare(make, 12)
    twins.has_replayed(step)
    assert list(of_twins[0]) == list(of_twins[1])
    assert all(type(number) is float for number in of_twins[1])


def test_a_step_that_throws_leaves_plain_numbers_behind():
    model, optimizer, learn = learner()
    kept = {"rate": None, "rates": []}

    def train(x, y):
        kept["rate"] = optimizer.param_groups[0]["lr"] * 2
        kept["rates"] = [kept["rate"]]
        raise ZeroDivisionError
    step = steptape.wrap(train)
    for i in range(3):
        with pytest.raises(ZeroDivisionError):
            step(*batch(i))
        assert [type(kept["rate"]), type(kept["rates"][0])] == [float, float]
        assert type(optimizer.param_groups[0]["lr"]) is float


def test_a_formula_may_not_be_longer_or_deeper_than_the_engine_holds():
    def long(x):
        value = x[0].item()
        for _ in range(3000):
            value = value * 0.5 + 1.0
        return x * value

    def deep(x):
        value = x[0].item()
        values = [value + i for i in range(40)]
        total = 0.0
        for other in values:
            total = other / (total + 1.0)
        return x * total, x * (total if total < 2.0 else 1.0)

    for function in (long, deep):
        twins.compare(lambda f=function: SimpleNamespace(
            step=f, batch=lambda i: (torch.full((2,), i % 5 + 0.5),), holds=lambda: []), 30)


@pytest.mark.parametrize("digits", (0, 1, 2, 4, 7, 22, 23, -1))
def test_numbers_that_are_rounded_are_python_s(digits):
    draws = random.Random(digits)

    def value(i):
        kind = i % 4
        if kind == 0:
            return draws.uniform(-10, 10)
        if kind == 1:
            return draws.randrange(-4000, 4000) / 2 ** draws.randrange(12)  # many ties
        if kind == 2:
            return draws.uniform(-1, 1) * 10.0 ** draws.randrange(-9, 20)
        return round(draws.uniform(-100, 100), 3)

    step = steptape.wrap(lambda x: {"mean": round(x.item(), digits)}, verify={"first": True, "rate": 0.0})
    for i in range(2000):
        x = torch.tensor(value(i), dtype=torch.float64)
        assert repr(step(x)) == repr({"mean": round(x.item(), digits)})
    assert (step.stats["replayed"] > 1900) == (0 <= digits <= 22), step.explain()


@pytest.mark.parametrize("search", (bisect.bisect, bisect.bisect_left, bisect.bisect_right))
def test_the_place_of_a_counter_in_a_list_is_followed(search):
    def make():
        held = SimpleNamespace(i=0, bounds=[5, 11.0, 20])

        def step(x):
            held.i += 1
            return x * (1.0 + search(held.bounds, held.i))
        return SimpleNamespace(step=step, batch=lambda i: (torch.ones(2),), holds=lambda: [held.i])

    step = twins.compare(make, 40, share=0.7)
    assert len(step.stats["variants"]) <= 4, step.explain()

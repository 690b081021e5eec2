"""Numbers that a step reads or is given: what they become later must not be what they looked like first."""
import math
from types import SimpleNamespace

import pytest
import torch

import twins


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

"""An op that leaves other bits each time it runs: listed and left out of the comparison, or refused."""
import os

import pytest
import torch
from torch import nn
from torch.optim import SGD

import steptape
from twins import codes_of

CELLS, ELEMENTS = 50, 4_000_000
MOST_CALLS = 100  # two threads may happen to take turns, for a while
pytestmark = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one thread adds in one order")


class Histogram(nn.Module):
    """Adds many elements to few cells: two threads do so in an order of the moment."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(CELLS))
        self.cells = torch.randint(CELLS, (ELEMENTS,))

    def forward(self, x):
        return (torch.zeros(CELLS).index_put((self.cells,), x, accumulate=True) * self.weight).sum()


def stepped(is_seen, **options):
    """The step, called until what it should show is seen."""
    torch.manual_seed(0)
    model = Histogram()
    optimizer = SGD(model.parameters(), lr=1e-3)

    def train(x):
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        return loss

    step = steptape.wrap(train, model=model, optimizer=optimizer, **options)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(MOST_CALLS):
            step(torch.randn(ELEMENTS))
            if is_seen(step.stats):
                break
    finally:
        torch.set_num_threads(threads)
    return step


def listed(stats):
    return [op for variant in stats["variants"] for op in variant["nondeterministic"]]


def test_the_op_is_listed_and_the_step_replays():
    seen = {}

    def is_seen(stats):
        if listed(stats):
            seen.setdefault("replayed", stats["replayed"])
        return seen and stats["replayed"] >= seen["replayed"] + 5

    step = stepped(is_seen, verify={"rate": 0.5}, audit_seed=3)
    (op,) = listed(step.stats)
    assert op["op"] == "aten::index_put" and "nondeterministic_test.py" in op["place"]
    assert 0 < op["spread"] < 1e-4
    assert step.stats["replayed"] >= seen["replayed"] + 5, step.explain()
    assert "leaves other bits each time: op" in step.explain()


def test_a_strict_step_is_refused_with_the_remedy():
    step = stepped(lambda stats: stats["refusals"], determinism="strict", verify={"rate": 1.0})
    assert codes_of(step) == {"nondeterministic_op"} and not step.stats["variants"], step.explain()
    assert 'determinism="listed"' in step.explain()


def test_an_unknown_choice_is_an_error():
    with pytest.raises(steptape.InvalidArgument, match="determinism.*listed.*strict"):
        steptape.wrap(lambda x: x, determinism="loose")

"""Steps that take what they work with from iterators: of `iter`, of itertools, and of classes of their own. What these give is read where it is used, so
that numbers in it are followed and a change is seen."""
import itertools
import types

import pytest
import torch
import torch.nn as nn

import twins

STEPS, LATE = 30, 20


class Own:
    """As fastai's L: `__iter__` hands on another iterator."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


class Counting:
    """Its own iterator."""

    def __init__(self, items):
        self.items, self.at = items, 0

    def __iter__(self):
        self.at = 0
        return self

    def __next__(self):
        if self.at >= len(self.items):
            raise StopIteration
        self.at += 1
        return self.items[self.at - 1]


def training(first, change=lambda held: None):
    """`first(records)` is the record whose count the loss is scaled by, and which counts on; `change` comes before call LATE."""
    def make():
        net = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        held = types.SimpleNamespace(records=[{"n": 0, "by": 1}, {"n": 3, "by": 2}])

        def step(x):
            record = first(held.records)
            record["n"] += record["by"]
            optimizer.zero_grad()
            loss = net(x).pow(2).mean() * (1 - 0.9 ** record["n"])
            loss.backward()
            optimizer.step()
            return loss.detach()

        return types.SimpleNamespace(step=step, batch=lambda i: (torch.randn(2, 3),), holds=lambda: [net, optimizer, held],
                                     after=lambda i: change(held) if i + 1 == LATE else None)
    return make


FIRST = {
    "iter": lambda records: [record for record in iter(records)][0],
    "next": lambda records: next(iter(records)),
    "next_with_default": lambda records: next(iter(records), None),
    "own": lambda records: [record for record in Own(records)][0],
    "own_of_own": lambda records: [record for record in Own(Own(records))][0],
    "own_of_a_generator": lambda records: [record for record in Own(record for record in records)][0],
    "own_iterator": lambda records: [record for record in Counting(records)][0],
    "zip": lambda records: [record for record, _ in zip(Own(records), range(2))][0],
    "tuples": lambda records: [record for _, record in Own([(k, record) for k, record in enumerate(records)])][0],
    "chain": lambda records: [record for record in itertools.chain(records, records)][0],
    "islice": lambda records: [record for record in itertools.islice(records, 1)][0],
    "cycle": lambda records: next(itertools.cycle(records)),
    "zip_longest": lambda records: [record for record, _ in itertools.zip_longest(records, [1, 2, 3])][0],
    "filter": lambda records: next(filter(lambda record: record["by"] > 0, records)),
}
CHANGES = {
    "nothing": lambda held: None,
    "number": lambda held: held.records[0].__setitem__("n", 7),
    "order": lambda held: held.records.reverse(),
    "record": lambda held: held.records.__setitem__(0, {"n": 1, "by": 4}),
    "one_more": lambda held: held.records.insert(0, {"n": 2, "by": 3}),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("first", FIRST)
def test_numbers_in_what_an_iterator_gives_are_followed(first, change):
    step = twins.compare(training(FIRST[first], CHANGES[change]), STEPS, share=0.6, verify={"first": True, "rate": 0.0})
    assert step.stats["replayed"] > STEPS / 3, step.explain()


def looked_at(weight):
    """`weight(numbers)` of the numbers themselves, of which one counts and another one is changed before call LATE."""
    def make():
        net = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        held = types.SimpleNamespace(numbers=[0, 5, 2])

        def step(x):
            held.numbers[0] += 1
            optimizer.zero_grad()
            loss = net(x).pow(2).mean() * (1 + 0.01 * weight(held.numbers))
            loss.backward()
            optimizer.step()
            return loss.detach()

        return types.SimpleNamespace(step=step, batch=lambda i: (torch.randn(2, 3),), holds=lambda: [net, optimizer, held],
                                     after=lambda i: held.numbers.__setitem__(2, 9) if i + 1 == LATE else None)
    return make


@pytest.mark.parametrize("weight", [
    lambda numbers: sum(iter(numbers)), lambda numbers: max(Own(numbers)), lambda numbers: len(set(itertools.chain(numbers, [3]))),
    lambda numbers: sorted(itertools.islice(numbers, 2))[0], lambda numbers: sum(n for n in filter(None, numbers)),
    lambda numbers: sum(filter(lambda n: n > 4, iter(numbers))), lambda numbers: any(n > 12 for n in iter(numbers)), lambda numbers: next(Counting(numbers)),
    lambda numbers: sum(a * b for a, b in itertools.pairwise(numbers)), lambda numbers: dict(enumerate(iter(numbers)))[2], lambda numbers: 9 in iter(numbers),
], ids=["sum", "max", "set", "sorted", "truth", "filter", "any", "next", "pairwise", "dict", "in"])
def test_functions_that_look_at_what_an_iterator_gives(weight):
    twins.compare(looked_at(weight), STEPS, verify={"first": True, "rate": 0.0})

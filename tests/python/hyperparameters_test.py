"""Hyperparameters of parameter groups: each group follows its own, whenever a program edits them.

What a step sets to a number that is followed, replays set; any other edit inside the step is refused.
"""
import math
from types import SimpleNamespace

import pytest
import torch
from torch.optim import ASGD, SGD, Adam, AdamW, RAdam, RMSprop

from loops import FORMS, FUSED, move_rates, optimizing, replays
from twins import compare

GROUPS = {
    "adamw": (AdamW, dict(lr=0.01), [dict(weight_decay=0.1), dict(weight_decay=0.0, lr=0.03),
                                     dict(betas=(0.5, 0.9), eps=1e-4)]),
    "adam_amsgrad_in_one": (Adam, dict(lr=0.01), [dict(amsgrad=True), dict(), dict(maximize=True)]),
    "sgd": (SGD, dict(lr=0.05), [dict(momentum=0.9), dict(), dict(momentum=0.9, nesterov=True)]),
    "rmsprop": (RMSprop, dict(lr=0.01), [dict(centered=True), dict(momentum=0.9), dict()]),
    # Each group has a branch of its own that changes at a step of its own.
    "radam": (RAdam, dict(lr=0.01), [dict(), dict(betas=(0.9, 0.99)), dict(betas=(0.9, 0.6))]),
    "asgd": (ASGD, dict(lr=0.05), [dict(t0=8), dict(t0=12), dict()]),
    "equal_numbers": (AdamW, dict(lr=0.1), [dict(weight_decay=0.1), dict(lr=0.1), dict(lr=0.1)]),
}


@pytest.mark.parametrize("name, form", [
    pytest.param(name, FORMS[form], id=f"{name}-{form}")
    for name in GROUPS for form in FORMS if form != "fused" or GROUPS[name][0] in FUSED])
def test_each_parameter_group_follows_its_own_hyperparameters(name, form):
    kind, options, groups = GROUPS[name]

    def optimizer_of(model):
        first, *rest = model.parameters()
        parts = [[first], rest[:2], rest[2:]]
        return kind([dict(params=p, **g) for p, g in zip(parts, groups)], **options, **form)

    replays(lambda: optimizing(optimizer_of), 60)


def test_equal_rates_of_two_groups_part_in_mid_run():
    """Nothing may take the one for the other because their bits were equal while it probed."""
    def part(i, optimizer):
        if i >= 20:
            optimizer.param_groups[1]["lr"] = 0.01 / i

    def optimizer_of(model):
        return Adam([dict(params=model[0].parameters()), dict(params=model[2].parameters())],
                    lr=0.01)

    replays(lambda: optimizing(optimizer_of, between=part), 50)


def test_a_rate_and_a_weight_decay_that_were_equal_part_in_mid_run():
    def part(i, optimizer):
        if i >= 20:
            optimizer.param_groups[0]["lr"] = 0.1 / i

    replays(lambda: optimizing(lambda m: SGD(m.parameters(), lr=0.1, weight_decay=0.1, momentum=0.1),
                             between=part), 50)


EDITS = {
    "sgd weight decay": (SGD, {}, {20: dict(weight_decay=0.1), 40: dict(weight_decay=0)}),
    "adam weight decay": (Adam, {}, {20: dict(weight_decay=0.1), 40: dict(weight_decay=0)}),
    "adamw weight decay": (
        AdamW, {}, {10: dict(weight_decay=0), 25: dict(weight_decay=0.1), 45: dict(weight_decay=0)},
    ),
    "adam betas": (Adam, {}, {15: dict(betas=(0.8, 0.99)), 35: dict(betas=(0.5, 0.9))}),
    "adam eps": (Adam, {}, {15: dict(eps=1e-3), 35: dict(eps=0.0)}),
    "adam maximize": (Adam, {}, {20: dict(maximize=True), 40: dict(maximize=False)}),
    "sgd momentum": (SGD, dict(momentum=0.9), {15: dict(momentum=0.5), 35: dict(momentum=0.9)}),
    "sgd momentum to zero": (
        SGD, dict(momentum=0.9), {20: dict(momentum=0), 40: dict(momentum=0.9)}),
    "sgd momentum from zero": (SGD, {}, {20: dict(momentum=0.9)}),
    "sgd nesterov": (SGD, dict(momentum=0.9), {20: dict(nesterov=True), 40: dict(nesterov=False)}),
    "sgd dampening": (SGD, dict(momentum=0.9), {20: dict(dampening=0.5), 40: dict(dampening=0)}),
    "rmsprop alpha": (RMSprop, dict(momentum=0.9), {20: dict(alpha=0.9)}),
    "radam beta2": (RAdam, {}, {20: dict(betas=(0.9, 0.6)), 40: dict(betas=(0.9, 0.999))}),
    "asgd t0": (ASGD, dict(t0=8), {30: dict(t0=1e6)}),
    "rate of zero": (SGD, dict(momentum=0.9), {20: dict(lr=0), 40: dict(lr=0.05)}),
    "rate below zero": (SGD, dict(momentum=0.9), {20: dict(lr=-0.001), 30: dict(lr=0.05)}),
    "another form": (Adam, {}, {20: dict(foreach=True), 40: dict(foreach=False)}),
}


@pytest.mark.parametrize("foreach", [False, True], ids=["loop", "foreach"])
@pytest.mark.parametrize("name", EDITS)
def test_a_hyperparameter_may_be_edited_in_mid_run(name, foreach):
    kind, options, edits = EDITS[name]

    def edit(i, optimizer):
        move_rates(i, optimizer)
        optimizer.param_groups[0].update(edits.get(i, {}))

    replays(lambda: optimizing(lambda m: kind(m.parameters(), lr=0.01, foreach=foreach, **options),
                             between=edit), 80)


def test_the_groups_may_be_reordered_between_steps():
    def reorder(i, optimizer):
        if i == 20:
            optimizer.param_groups.reverse()

    def optimizer_of(model):
        return AdamW([dict(params=model[0].parameters(), lr=0.01),
                      dict(params=model[2].parameters(), lr=0.02, weight_decay=0.1)])

    replays(lambda: optimizing(optimizer_of, between=reorder), 60)


def cosine(i):
    if i < 8:
        return 0.05 * (i + 1) / 9
    return 0.002 + 0.5 * (1 + math.cos(math.pi * (i - 8) / 52)) * 0.048


class Count:
    """What a step counts its calls in."""
    def __init__(self):
        self.calls = 0

    def next(self):
        self.calls += 1
        return self.calls


# what a step sets before its update or after it, by what it finds there and how often it ran
SETS = {
    "decay": lambda group, count: group.update(lr=group["lr"] * 0.97),
    "decay_in_place": lambda group, count: group.__setitem__("lr", group["lr"] * 0.97),
    "cosine": lambda group, count: group.update(lr=cosine(count.next())),
    "inverse": lambda group, count: group.__setitem__("lr", 0.05 / (1 + 0.1 * count.next())),
    "betas": lambda group, count: group.__setitem__("betas", (0.5 + 0.004 * count.next(), 0.99)),
    "decay_of_weights": lambda group, count: group.__setitem__("weight_decay", 0.001 * count.next()),
}


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("change", SETS)
def test_a_hyperparameter_moved_inside_the_step_is_moved_by_replays(change, where):
    """nanoGPT sets the rate at the start of a step, others at its end; now and then somebody else sets it, too."""
    def make():
        made = optimizing(lambda m: AdamW(m.parameters(), lr=0.05), between=None)
        optimizer, plain, count = made.optimizer, made.step, Count()

        def step(x, y):
            if where == "before":
                SETS[change](optimizer.param_groups[0], count)
            loss = plain(x, y)
            if where == "after":
                SETS[change](optimizer.param_groups[0], count)
            return loss

        def batch_of(i, plain_batch=made.batch):
            if i == 35:
                optimizer.param_groups[0]["lr"] = 0.03
            return plain_batch(i)

        made.step, made.batch = step, batch_of
        made.holds = lambda: [made.model, optimizer, count.calls]
        return made

    step = compare(make, 60)
    assert step.stats["replayed"] > 25, step.explain()


def test_a_rate_that_the_step_takes_from_a_list_is_refused_for_what_is_taken():
    def make():
        made = optimizing(lambda m: SGD(m.parameters(), lr=0.05), between=None)
        optimizer, plain, left = made.optimizer, made.step, [0.001 * k for k in range(40, 0, -1)]

        def step(x, y):
            loss = plain(x, y)
            optimizer.param_groups[0]["lr"] = left.pop()
            return loss

        made.step = step
        return made

    compare(make, 20, codes={"host_effect"})


@pytest.mark.parametrize("size", [1, 7, 16, 33])
def test_a_first_moment_that_is_the_gradient_keeps_the_sign_of_its_zeros(size):
    """By the weight 1 `lerp` adds a zero, whose sign is not the same in all elements."""
    signs = torch.tensor([0.0, -0.0, 1.0, -0.0]).repeat(10)[:size]

    def training():
        weight = torch.nn.Parameter(torch.zeros(size))
        optimizer = Adam([weight], lr=0.1, betas=(0.5, 0.9))

        def step(x):
            optimizer.zero_grad()
            (weight * x).sum().backward()
            optimizer.step()

        def forget(i):
            optimizer.param_groups[0]["betas"] = (0.5 / (i + 2) if i < 10 or i > 20 else 0.0, 0.9)

        return SimpleNamespace(step=step, batch=lambda i: (signs.roll(i),), holds=lambda: [weight, optimizer], after=forget)

    replays(training, 40, share=0.6)

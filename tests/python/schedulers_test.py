"""Schedulers: those that step outside the step move what a replay uses, those inside it what replays set."""
import functools
import warnings

import pytest
import torch
from torch.optim import SGD, Adam, AdamW, lr_scheduler

import steptape
from loops import batch, mse, optimizing, replays, wrapped
from twins import bits, compare

SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 5, 0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [10, 20], 0.3),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.1, 12),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.1, 1.0, 15),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.95),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 25, 2.0),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 12),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 7, 2),
    "LambdaLR with zeros": lambda o: lr_scheduler.LambdaLR(o, lambda i: i % 10 / 10),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda i: 0.9),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, 1.0, 8), lr_scheduler.CosineAnnealingLR(o, 20)], [8]),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.1, 6), lr_scheduler.ExponentialLR(o, 0.95)]),
    # The two that move momentum, or the first beta, as well.
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=60),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.001, 0.1, step_size_up=6),
}
SCHEDULED = {
    "sgd": lambda m: SGD(m.parameters(), lr=0.05, momentum=0.9, nesterov=True),
    "adamw": lambda m: AdamW(m.parameters(), lr=0.01),
    "adam_fused_tensor_rate": lambda m: Adam(m.parameters(), lr=torch.tensor(0.01), fused=True),
}


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("optimizer", SCHEDULED)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_scheduler_steps_outside_the_step(scheduler, optimizer):
    def make():
        holds = []
        made = optimizing(SCHEDULED[optimizer], between=lambda i, o: holds[0].step(), holds=holds)
        holds[:] = [SCHEDULERS[scheduler](made.optimizer)]
        made.holds = lambda: [made.model, made.optimizer, holds[0].state_dict()]
        return made

    replays(make)


@pytest.mark.parametrize("optimizer", SCHEDULED)
def test_a_plateau_scheduler_steps_by_a_validation_loss(optimizer):
    def make():
        made = optimizing(SCHEDULED[optimizer])
        scheduler = lr_scheduler.ReduceLROnPlateau(made.optimizer, factor=0.5, patience=2)
        validation = batch(0)

        def after(_):
            with torch.no_grad():
                scheduler.step(mse(made.model, *validation))

        made.after = after
        made.holds = lambda: [made.model, made.optimizer, scheduler.state_dict()]
        return made

    replays(make, 50)


def test_a_scheduler_made_in_mid_run_finds_that_the_optimizer_has_stepped():
    """A scheduler puts a wrapper around optimizer.step and warns where nothing has called it."""
    def make():
        schedulers = []

        def between(i, optimizer):
            if i in (15, 30):
                schedulers[:] = [lr_scheduler.ExponentialLR(optimizer, 0.9)]
            elif schedulers:
                schedulers[0].step()

        return optimizing(lambda m: Adam(m.parameters(), lr=0.01), between=between)

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*lr_scheduler.*")
        replays(make, 60)


def scheduled_within(optimizer, scheduler, wrap=lambda step: step):
    """A training whose step steps the scheduler, too."""
    made = optimizing(optimizer, between=None)
    schedule, plain = SCHEDULERS[scheduler](made.optimizer), wrap(made.step)

    def step(x, y):
        loss = plain(x, y)
        schedule.step()
        return loss

    made.step = step
    made.holds = lambda: [made.model, made.optimizer, schedule.state_dict()]
    return made


def test_a_scheduler_of_two_groups_steps_inside_a_step_inside_another():
    def groups(m):
        return AdamW([{"params": m[0].parameters()}, {"params": m[2].parameters(), "lr": 0.3}], lr=0.05)

    replays(lambda: scheduled_within(groups, "CosineAnnealingLR", steptape.wrap), 50, share=0.5)


@pytest.mark.parametrize("optimizer", SCHEDULED)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_scheduler_steps_inside_the_step(scheduler, optimizer):
    """What it sets is computed anew in each replay, and set."""
    step = compare(lambda: scheduled_within(SCHEDULED[optimizer], scheduler), 60, wrapper=wrapped)
    assert step.stats["replayed"] > 20, step.explain()


def reload_own(optimizer):
    optimizer.load_state_dict(optimizer.state_dict())


def exchange_a_group(optimizer):
    optimizer.param_groups[0] = dict(optimizer.param_groups[0])


def exchange_all_groups(optimizer):
    optimizer.param_groups = [dict(group) for group in optimizer.param_groups]


PLAIN_OPTIMIZERS = {
    "sgd": lambda m: SGD(m.parameters(), lr=0.05),
    "sgd_momentum": lambda m: SGD(m.parameters(), lr=0.05, momentum=0.9),
    "adam": lambda m: Adam(m.parameters(), lr=0.05),
}


@pytest.mark.parametrize("exchange", [reload_own, exchange_a_group, exchange_all_groups])
@pytest.mark.parametrize("optimizer", PLAIN_OPTIMIZERS)
@pytest.mark.parametrize("scheduler", ["ExponentialLR", "CosineAnnealingLR", "OneCycleLR", "MultiplicativeLR", "SequentialLR"])
def test_the_groups_of_a_scheduled_optimizer_are_other_dicts_later(scheduler, optimizer, exchange):
    """Loading a state puts other dicts in the places of groups, and there a replay sets the rate."""
    def make():
        made = scheduled_within(PLAIN_OPTIMIZERS[optimizer], scheduler)
        made.after = lambda i: exchange(made.holds()[1]) if i in (24, 31, 40) else None
        return made

    step = compare(make, 50, wrapper=wrapped)
    assert step.stats["replayed"] > 15, step.explain()


class Warming:
    """Sets a tuple of an optimizer's by hand."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        for group in self.optimizer.param_groups:
            first, second = group["betas"]
            group["betas"] = first * 0.99, second
            group["lr"] *= 0.99


SCHEDULERS_OF_PLAYERS = {
    "ExponentialLR": (functools.partial(SGD, lr=0.05, momentum=0.9), lambda o: lr_scheduler.ExponentialLR(o, 0.9)),
    "OneCycleLR": (functools.partial(Adam, lr=0.05), lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=200, pct_start=0.5)),
    "by_hand": (functools.partial(Adam, lr=0.05), Warming),
}


@pytest.mark.parametrize("optimize, schedule", SCHEDULERS_OF_PLAYERS.values(), ids=SCHEDULERS_OF_PLAYERS)
def test_a_player_sets_its_rate_as_the_step_does(optimize, schedule, tmp_path):
    def made():
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        optimizer = optimize(model.parameters())
        scheduler = schedule(optimizer)

        def step(x, y):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss.detach()
        return step

    eager, step = made(), steptape.wrap(made(), name="step")
    given = [(torch.randn(4, 8), torch.randn(4, 1)) for _ in range(40)]
    for x, y in given[:20]:
        assert bits(step(x, y)) == bits(eager(x, y))
    assert step.stats["replayed"] > 0, step.explain()
    step.save(tmp_path / "run.tape")
    player = steptape.load(tmp_path / "run.tape")
    for i, (x, y) in enumerate(given[20:]):
        assert bits(player["step"](x, y)) == bits(eager(x, y)), i

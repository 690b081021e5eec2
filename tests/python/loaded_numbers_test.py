"""Numbers of loaded steps: a player cannot record the eager step where a number has a value at which the plan was not proved, so it
refuses that, unless nothing but the op itself can depend on the number.
"""
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import steptape
from twins import bits

CALLS = 12

#: What a number feeds, by name: the op, and two values that it may have.
FEEDS = {
    "pow": (lambda y, k: y.abs() ** k, 2.0, 3.0),
    "rpow": (lambda y, k: k ** y, 2.0, 3.0),
    "huber": (lambda y, k: F.huber_loss(y, torch.zeros_like(y), delta=k), .1, .5),
    "smooth_l1": (lambda y, k: F.smooth_l1_loss(y, torch.zeros_like(y), beta=k), .1, .5),
    "clamp": (lambda y, k: y.clamp(max=k), .1, .2),
    "leaky_relu": (lambda y, k: F.leaky_relu(y, k), .1, .2),
    "softplus": (lambda y, k: F.softplus(y, beta=k), 1.5, 2.5),
    "lerp": (lambda y, k: torch.lerp(y, 2 * y + 1, k), .1, .7),
    "mul": (lambda y, k: y * k, 1.5, 2.5),
    "std": (lambda y, k: y.std(correction=k), 1, 2),
    "norm": (lambda y, k: torch.linalg.vector_norm(y, k), 2.5, 3.5),
    "addmm": (lambda y, k: torch.addmm(y, y, torch.ones(y.shape[1], y.shape[1]), alpha=k), 1.5, 2.5),
}


def batch(i):
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(i))


class Program:
    """A model and its optimizer, in whose group a number `k` stands beside the learning rate."""

    def __init__(self, feeds, k=None, number=None, optimizer=torch.optim.SGD, **options):
        torch.manual_seed(3)
        self.model = nn.Linear(3, 3)
        self.optimizer = optimizer(self.model.parameters(), lr=.01, **options)
        self.group = self.optimizer.param_groups[0]
        self.group["k"] = k
        self.calls = 0
        model, optimizer, group = self.model, self.optimizer, self.group

        def step(x):
            self.calls += 1
            optimizer.zero_grad()
            loss = feeds(model(x), group["k"] if number is None else number(self.calls)).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        self.step = step

    def play(self, step, calls):
        return [bits(step(batch(i))) for i in calls]


def wrapped(program):
    return steptape.wrap(program.step, model=program.model, optimizer=program.optimizer,
                         verify={"first": True, "rate": 0.0})


def loaded(step, path):
    assert step.stats["replayed"] > 0, step.explain()
    step.save(path)
    player = steptape.load(path)
    return player, player["step"]


@pytest.mark.parametrize("feeds", FEEDS)
def test_a_number_that_had_one_value_may_have_no_other(feeds, tmp_path):
    op, value, other = FEEDS[feeds]
    program, twin = Program(op, value), Program(op, value)
    step = wrapped(program)
    assert program.play(step, range(CALLS)) == twin.play(twin.step, range(CALLS))
    player, again = loaded(step, tmp_path / "a.tape")
    player.set("optimizer.param_groups[0].k", other)
    with pytest.raises(steptape.Error, match=r"optimizer\.param_groups\[0\]\.k"):
        again(batch(CALLS))
    player.set("optimizer.param_groups[0].k", value)  # the call that was refused has left everything as it was
    assert program.play(again, range(CALLS, CALLS + 3)) == twin.play(twin.step, range(CALLS, CALLS + 3))


@pytest.mark.parametrize("feeds", FEEDS)
def test_a_number_that_the_step_computes_ends_a_loaded_step_where_it_first_changes(feeds, tmp_path):
    op, value, other = FEEDS[feeds]
    change = (other - value)

    def number(calls):
        return value + change * (calls // 15)

    program, twin = Program(op, number=number), Program(op, number=number)
    step = wrapped(program)
    assert program.play(step, range(CALLS)) == twin.play(twin.step, range(CALLS))
    _, again = loaded(step, tmp_path / "a.tape")
    assert program.play(again, range(CALLS, 14)) == twin.play(twin.step, range(CALLS, 14))
    with pytest.raises(steptape.Error, match=r"\(proved\) → "):
        again(batch(14))


# of the others no formula covers what backward makes of the number: each value has a plan of its own
@pytest.mark.parametrize("feeds", sorted(FEEDS.keys() - {"rpow", "std", "norm"}))
def test_a_number_that_had_three_values_may_have_any(feeds, tmp_path):
    op, value, other = FEEDS[feeds]

    def number(i):
        return value + (other - value) / 16 * (i % 16)

    program, twin = Program(op, value), Program(op, value)
    step = wrapped(program)
    for i in range(20):
        program.group["k"] = twin.group["k"] = number(i)
        assert bits(step(batch(i))) == bits(twin.step(batch(i)))
    player, again = loaded(step, tmp_path / "a.tape")
    for i in range(20, 30):
        twin.group["k"] = number(i)
        player.set("optimizer.param_groups[0].k", number(i))
        assert bits(again(batch(i))) == bits(twin.step(batch(i)))


def test_a_number_may_not_become_one_of_another_kind(tmp_path):
    op = FEEDS["pow"][0]
    program, twin = Program(op, 2.25), Program(op, 2.25)
    step = wrapped(program)
    for i in range(20):
        program.group["k"] = twin.group["k"] = 2.25 + i / 64
        assert bits(step(batch(i))) == bits(twin.step(batch(i)))
    player, again = loaded(step, tmp_path / "a.tape")
    for k in 3.0, 1.25, .25, 0.0, float("nan"), float("inf"):
        player.set("optimizer.param_groups[0].k", k)
        with pytest.raises(steptape.Error, match="param_groups"):
            again(batch(20))


def test_a_number_that_changes_before_the_trace_is_saved(tmp_path):
    op = FEEDS["pow"][0]
    program = Program(op, 2.0)
    step = wrapped(program)
    program.play(step, range(CALLS))
    program.group["k"] = 3.0
    with pytest.raises(steptape.Error, match="param_groups"):
        loaded(step, tmp_path / "a.tape")[1](batch(CALLS))


def test_a_number_argument_that_had_one_value_may_have_no_other(tmp_path):
    model = nn.Linear(3, 3)

    def step(x, k):
        loss = (model(x).abs() ** k).mean()
        model.zero_grad()
        loss.backward()
        return model.weight.grad.clone()

    step = steptape.wrap(step, model=model, verify={"first": True, "rate": 0.0})
    for i in range(CALLS):
        step(batch(i), 2.0)
    step.save(tmp_path / "a.tape")
    player = steptape.load(tmp_path / "a.tape")
    player.set("step.inputs[1]", 3.0)
    with pytest.raises(steptape.Error, match=r"inputs\[1\]"):
        player["step"](batch(0))


@pytest.mark.parametrize("optimizer, options", [
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": .9, "weight_decay": .01, "nesterov": True}),
    (torch.optim.SGD, {"momentum": .9, "foreach": True}),
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"foreach": True}),
    (torch.optim.Adam, {"fused": True}),
    (torch.optim.AdamW, {"amsgrad": True}),
    (torch.optim.RMSprop, {"momentum": .9}),
    (torch.optim.Adagrad, {}),
    (torch.optim.NAdam, {}),
    (torch.optim.Adamax, {}),
])
def test_a_learning_rate_that_never_moved_may_be_set(optimizer, options, tmp_path):
    op = FEEDS["mul"][0]
    program, twin = (Program(op, 1.5, optimizer=optimizer, **options) for _ in range(2))
    step = wrapped(program)
    assert program.play(step, range(CALLS)) == twin.play(twin.step, range(CALLS))
    player, again = loaded(step, tmp_path / "a.tape")
    for i in range(CALLS, CALLS + 6):
        twin.group["lr"] = .01 / i
        player.set("optimizer.param_groups[0].lr", .01 / i)
        assert bits(again(batch(i))) == bits(twin.step(batch(i)))


def test_what_decides_in_a_group_may_not_be_set(tmp_path):
    program = Program(lambda y, k: y * 3 if k else y, True, momentum=.9)
    step = wrapped(program)
    program.play(step, range(CALLS))
    player, again = loaded(step, tmp_path / "a.tape")
    again(batch(0))
    for name, value in (("k", 0), ("nesterov", 1), ("maximize", 1)):
        held = player.scalars()[f"optimizer.param_groups[0].{name}"]
        player.set(f"optimizer.param_groups[0].{name}", value)
        with pytest.raises(steptape.Error, match=rf"param_groups\[0\]\.{name}"):
            again(batch(0))
        player.set(f"optimizer.param_groups[0].{name}", held)
        again(batch(0))


def test_a_plan_that_nobody_compares_takes_any_number(tmp_path):
    program = Program(FEEDS["mul"][0], 1.5)
    step = steptape.wrap(program.step, model=program.model, optimizer=program.optimizer,
                         verify={"first": False, "rate": 0.0})
    program.play(step, range(CALLS))
    player, again = loaded(step, tmp_path / "a.tape")
    player.set("optimizer.param_groups[0].k", 2.5)
    again(batch(0))

"""Optimizers that keep their counts and state in other ways than those of torch.optim: in param_groups, in attributes, as new tensors in
each step; that another object wraps; and LBFGS, whose closure is the step.
"""
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import steptape
from carried_test import batch, snapshot
from outcomes import codes_of


class CountsInGroups(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1, "step": 0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["step"] += 1
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] / group["step"] ** 0.5)


class RebindsState(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                mean = state.get("mean", torch.zeros_like(p))
                state["mean"] = 0.9 * mean + 0.1 * p.grad
                state["count"] = state.get("count", 0) + 1
                p.add_(state["mean"], alpha=-group["lr"] / state["count"])


class KeepsItElsewhere(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})
        self.count, self.means = 0, {}

    @torch.no_grad()
    def step(self):
        self.count += 1
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.means.setdefault(p, torch.zeros_like(p))
                mean.mul_(0.9).add_(p.grad)
                p.add_(mean, alpha=-group["lr"] / self.count ** 0.5)


class Around:
    """An optimizer that is wrapped by another object, as frameworks do."""
    def __init__(self, optimizer):
        self.optimizer, self.steps = optimizer, 0

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        self.steps += 1
        self.optimizer.step()


class Prepared(torch.optim.Optimizer):
    """The same, and an optimizer itself, as Accelerate's is: what it shows are the groups and the state of the other."""
    def __init__(self, optimizer):
        self.optimizer = optimizer

    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)
    defaults = property(lambda self: self.optimizer.defaults)

    def train(self):
        if hasattr(self.optimizer, "train") and callable(self.optimizer.train):
            self.optimizer.train()

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        self.optimizer.step()


@pytest.mark.parametrize("make, steps", [(torch.optim.AdamW, False), (torch.optim.AdamW, True), (RebindsState, True), (CountsInGroups, True)])
def test_the_rate_of_an_optimizer_that_another_one_shows_moves(make, steps):
    """As in the training step of Hugging Face's Trainer, which asks the optimizer whether it has a mode, and steps it after that."""
    def play(wrap):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = Prepared(make(model.parameters()))

        def train(x):
            optimizer.train()
            loss = model(x).pow(2).mean()
            loss.backward()
            if steps:
                optimizer.step()
            return loss.detach()

        step, seen = wrap(train), []
        for i in range(30):
            loss = step(batch(i))
            if not steps:
                optimizer.step()
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] *= 0.9
            seen.append(snapshot((loss, list(model.parameters()), [list(s.values()) for s in optimizer.state.values()],
                                  [(g["lr"], g.get("step")) for g in optimizer.param_groups])))
        return seen, step

    expected, _ = play(lambda step: step)
    seen, step = play(lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    assert step.stats["replayed"] >= 12, step.explain()


@pytest.mark.parametrize("make", [CountsInGroups, RebindsState, KeepsItElsewhere, lambda p: Around(torch.optim.Adam(p))],
                         ids=["counts_in_groups", "rebinds_state", "keeps_it_elsewhere", "wrapped"])
def test_an_optimizer_of_another_make_replays(make):
    def play(wrap):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = make(model.parameters())

        def train(x):
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        step = wrap(train)
        inner = getattr(optimizer, "optimizer", optimizer)
        return [snapshot((step(batch(i)), list(model.parameters()), [list(s.values()) for s in inner.state.values()],
                          [g.get("step") for g in inner.param_groups], vars(optimizer).get("count"))) for i in range(24)], step

    expected, _ = play(lambda step: step)
    seen, step = play(lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    assert step.stats["replayed"] >= 12, step.explain()


def lbfgs(wraps_closure):
    def play(wrap):
        torch.manual_seed(0)
        model, x, y = nn.Linear(3, 1), torch.randn(8, 3), torch.randn(8, 1)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss
        step = wrap(closure) if wraps_closure else wrap(lambda: optimizer.step(closure))
        return [snapshot((optimizer.step(step) if wraps_closure else step(), list(model.parameters())))
                for _ in range(20)], step

    expected, _ = play(lambda step: step)
    seen, step = play(lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    return step


def test_the_closure_of_lbfgs_is_the_step():
    assert lbfgs(wraps_closure=True).stats["replayed"] > 8


def test_a_step_of_lbfgs_is_refused_with_that_remedy():
    step = lbfgs(wraps_closure=False)
    assert step.stats["replayed"] == 0 and "optimizer_unsupported" in codes_of(step)
    assert "steptape.wrap(closure)" in step.explain()

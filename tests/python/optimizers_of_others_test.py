"""Optimizers that keep their counts and state in other ways than those of torch.optim: in param_groups, in attributes, as new tensors in
each step; that another object wraps; and LBFGS, whose closure is the step.
"""
import copy
import math

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import steptape
from carried_test import batch, snapshot
from twins import codes_of, played_alike


def as_eager(play):
    """play: wrap -> (what is seen, the step). It sees the same with the plain step; gives the wrapped one."""
    step = played_alike(play)
    return step


def replays(play):
    step = as_eager(play)
    assert step.stats["replayed"] >= 12, step.explain()


def learning(model, optimizer):
    def train(x):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return train


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

    replays(play)


@pytest.mark.parametrize("make", [CountsInGroups, RebindsState, KeepsItElsewhere, lambda p: Around(torch.optim.Adam(p))],
                         ids=["counts_in_groups", "rebinds_state", "keeps_it_elsewhere", "wrapped"])
def test_an_optimizer_of_another_make_replays(make):
    def play(wrap):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = make(model.parameters())
        step = wrap(learning(model, optimizer))
        inner = getattr(optimizer, "optimizer", optimizer)
        return [snapshot((step(batch(i)), list(model.parameters()), [list(s.values()) for s in inner.state.values()],
                          [g.get("step") for g in inner.param_groups], vars(optimizer).get("count"))) for i in range(24)], step

    replays(play)


class Kept(torch.optim.Optimizer):
    """Keeps what `update` makes of it in the dicts of its groups and of its state."""
    def __init__(self, parameters, update):
        super().__init__(parameters, {"lr": 0.1})
        self.update = update

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            if "n" not in group:
                group["n"] = 0
            parameters = group["params"]
            for p in parameters:
                if len(self.state[p]) == 0:
                    self.state[p]["rate"] = 1.0
                    self.state[p].update(mean=torch.zeros_like(p), before=torch.zeros_like(p))
            self.update(group, parameters, [self.state[p] for p in parameters])


def averages_a_rate(group, parameters, states):
    for p, state in zip(parameters, states):
        state["rate"] = state["rate"] * .9 + .1 * group["lr"]
        p.add_(p.grad, alpha=-.01 / state["rate"])


def rates_as_a_tensor(group, parameters, states):
    rates = []
    for state in states:
        state["rate"] = state["rate"] * .9 + .1 * group["lr"]
        rates.append(-.01 / state["rate"])
    rates = torch.tensor(rates, dtype=torch.float32) if all(isinstance(r, float) for r in rates) else None
    torch._foreach_addcmul_(parameters, [p.grad for p in parameters], rates.unbind())


def rates_by_the_count(group, parameters, states):
    group["n"] += 1
    for p, state in zip(parameters, states):
        p.add_(p.grad, alpha=-.1 * state["rate"])
        state["rate"] = 2.0 / (group["n"] + 3)


def one_rate_for_all(group, parameters, states):
    group["n"] += 1
    rate = 2.0 / (group["n"] + 3)
    for p, state in zip(parameters, states):
        p.add_(p.grad, alpha=-.1 * (1 - rate) * state["rate"])
    for state in states:
        state["rate"] = rate


def adds_to_a_rate(group, parameters, states):
    group["n"] = group.setdefault("n", 0) + 1
    for p, state in zip(parameters, states):
        state["rate"] += 1.0 / group["n"]
        p.add_(p.grad, alpha=-.01 / state["rate"])


def passes_a_copy_on(group, parameters, states):
    group["n"] += 1
    for copied in ({**group, "lr": group["lr"] * .5}, dict(group), group.copy()):
        for p in parameters:
            p.add_(p.grad, alpha=-copied["lr"] / copied["n"])


def leaves_a_norm(group, parameters, states):
    for p, state in zip(parameters, states):
        state["norm"] = state["mean"].norm(2).clone()
        state["mean"].mul_(.9).add_(p.grad)
        p.add_(state["mean"] / (state["norm"] + 1), alpha=-.01)


def exchanges_tensors(group, parameters, states):
    for p, state in zip(parameters, states):
        state["before"], state["mean"] = state["mean"], p.grad.clone()
        p.add_(state["before"], alpha=-.01)


def keeps_tensors_in_groups(group, parameters, states):
    norm = torch.stack([p.grad.norm() for p in parameters]).norm()
    group["size"] = group["norm"] / norm * .01 if "norm" in group else torch.tensor(.01)
    group["norm"] = norm
    for p in parameters:
        p.sub_(p.grad * group["size"])


def roots_a_tensor(group, parameters, states):
    total = torch.tensor(0.0)
    for p in parameters:
        total.add_(p.grad.square().sum())
    group["size"] = 1.0 / math.sqrt(total + 1)
    for p in parameters:
        p.sub_(p.grad, alpha=group["size"] * group["lr"])


def starts_over(group, parameters, states):
    for p, state in zip(parameters, states):
        state["n"] = state.get("n", 0) + 1
        if state["n"] >= 4:
            state["n"] = 0
        p.add_(p.grad, alpha=-.01 * (1 + state["n"]))


def switches(group, parameters, states):
    for p, state in zip(parameters, states):
        state["sign"] = "-" if state.get("sign") == "+" else "+"
        p.add_(p.grad, alpha=-.01 if state["sign"] == "+" else .005)


def counts_under_other_keys(group, parameters, states):
    group[5] = group.get(5, 0) + 1
    for p, state in zip(parameters, states):
        state[("a", 1)] = state.get(("a", 1), 0.0) * .5 + 1
        p.add_(p.grad, alpha=-.01 * state[("a", 1)] / group[5])


UPDATES = [averages_a_rate, rates_as_a_tensor, rates_by_the_count, one_rate_for_all, adds_to_a_rate, passes_a_copy_on, starts_over,
           switches, counts_under_other_keys, leaves_a_norm, exchanges_tensors, keeps_tensors_in_groups, roots_a_tensor]


def nothing(i, optimizer):
    pass


def moves_the_rate(i, optimizer):
    optimizer.param_groups[0]["lr"] *= .9


def sets_the_state(i, optimizer):
    if i in (9, 13):
        for state in optimizer.state.values():
            state["rate"] = .3 if i == 9 else 1
            state["mean"] = torch.ones_like(state["mean"])


def loads_the_state(i, optimizer):
    if i in (9, 13):
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def train_with(update, between=nothing):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = Kept(model.parameters(), update)

    def held():
        groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
        return list(model.parameters()), [dict(state) for state in optimizer.state.values()], groups
    return learning(model, optimizer), held, lambda i: between(i, optimizer)


@pytest.mark.parametrize("between", [nothing, moves_the_rate, sets_the_state, loads_the_state])
@pytest.mark.parametrize("update", UPDATES)
def test_what_an_optimizer_keeps_in_its_dicts_replays(update, between):
    def play(wrap):
        train, held, after = train_with(update, between)
        step, seen = wrap(train), []
        for i in range(32):
            seen.append(snapshot((step(batch(i)), held())))
            after(i)
        return seen, step

    replays(play)


@pytest.mark.parametrize("update", [starts_over, averages_a_rate, rates_as_a_tensor, rates_by_the_count, one_rate_for_all, adds_to_a_rate,
                                    passes_a_copy_on])
def test_a_loaded_step_goes_on_with_the_numbers_of_an_optimizer(update, tmp_path):
    train, held, _ = train_with(update)
    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(16):
        step(batch(i))
    step.save(tmp_path / "step.tape")
    player = steptape.load(tmp_path / "step.tape")
    for i in range(16, 26):
        assert snapshot(player["train"](batch(i))) == snapshot(train(batch(i)))


@pytest.mark.parametrize("name", ["sign", "mode"])
def test_a_loaded_step_is_refused_where_a_text_that_it_sets_decides(name, tmp_path):
    """Of an optimizer's state, and of a module."""
    train, _, _ = train_with(switches)
    model = nn.Linear(3, 2)
    model.mode = "+"

    def moded(x):
        model.mode = "-" if model.mode == "+" else "+"
        return model(x * (1 if model.mode == "+" else 2)).sum().detach()

    step = steptape.wrap(train if name == "sign" else moded, name="step", verify={"first": True, "rate": 0.0})
    for i in range(16):
        step(batch(i))
    assert step.stats["replayed"] > 4, step.explain()
    step.save(tmp_path / "step.tape")
    with pytest.raises(steptape.Unsupported, match=name):
        steptape.load(tmp_path / "step.tape")["step"](batch(16))


class Lookahead(torch.optim.Optimizer):
    """Steps another optimizer, whose groups are its own, too, and goes halfway there every third time."""
    def __init__(self, optimizer, counts):
        self.optimizer, self.counts = optimizer, counts
        self.param_groups, self.defaults, self.state = optimizer.param_groups, optimizer.defaults, {}
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = {}, {}
        for group in self.param_groups:
            group["counter"] = 0
        self.slow = [[p.detach().clone() for p in group["params"]] for group in self.param_groups]

    def zero_grad(self):
        self.optimizer.zero_grad()

    @torch.no_grad()
    def step(self):
        self.optimizer.step()
        for group, slow in zip(self.param_groups, self.slow):
            if group["counter"] == 0:
                for p, kept in zip(group["params"], slow):
                    p.copy_(kept.add_(p - kept, alpha=.5))
            self.counts(group)


def starts_the_count_over(group):
    group["counter"] += 1
    if group["counter"] >= 3:
        group["counter"] = 0


def takes_the_remainder(group):
    group["counter"] = (group["counter"] + 1) % 3
    group["lr"] *= .99


@pytest.mark.parametrize("counts", [starts_the_count_over, takes_the_remainder])
def test_two_optimizers_share_groups_that_the_step_counts_in(counts):
    def play(wrap):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        base = torch.optim.Adam(model.parameters(), lr=.1)
        optimizer = Lookahead(base, counts)

        step, seen = wrap(learning(model, optimizer)), []
        for i in range(36):
            if i == 25:
                base.param_groups[0]["lr"] = .05
            group = base.param_groups[0]
            seen.append(snapshot((step(batch(i)), list(model.parameters()), optimizer.slow, group["lr"], group["counter"])))
        return seen, step

    replays(play)


def test_state_whose_keys_are_not_text_is_saved(tmp_path):
    def update(group, parameters, states):
        for p, state in zip(parameters, states):
            state.update({0: 1.0, ("a", 1): 2.0})
            p.add_(p.grad, alpha=-.01 * state[0] * state[("a", 1)])

    train, _, _ = train_with(update)
    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(12):
        step(batch(i))
    step.save(tmp_path / "step.tape")
    player = steptape.load(tmp_path / "step.tape")
    assert snapshot(player["train"](batch(12))) == snapshot(train(batch(12)))


class Asked(dict):
    """Says how often its own methods were called."""
    calls = 0

    def __setitem__(self, key, value):
        Asked.calls += 1
        dict.__setitem__(self, key, value)

    def get(self, *key):
        Asked.calls += 1
        return dict.get(self, *key)

    def items(self):
        Asked.calls += 1
        return dict.items(self)


def test_methods_of_a_dict_of_the_program_s_are_called_by_the_step_alone():
    def play(wrap):
        Asked.calls = 0
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = Kept(model.parameters(), starts_over)
        optimizer.param_groups[0] = Asked(optimizer.param_groups[0])
        for p in model.parameters():
            optimizer.state[p] = Asked(n=0, rate=1.0, mean=torch.zeros_like(p))
        step = wrap(learning(model, optimizer))
        return [(snapshot(step(batch(i))), Asked.calls) for i in range(20)]

    assert play(steptape.wrap) == play(lambda step: step)


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

    return as_eager(play)


def test_the_closure_of_lbfgs_is_the_step():
    assert lbfgs(wraps_closure=True).stats["replayed"] > 8


def test_a_step_of_lbfgs_is_refused_with_that_remedy():
    step = lbfgs(wraps_closure=False)
    assert step.stats["replayed"] == 0 and "optimizer_unsupported" in codes_of(step)
    assert "steptape.wrap(closure)" in step.explain()

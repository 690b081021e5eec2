"""The state of an optimizer may be loaded, edited and cleared between two steps."""
import copy
from collections import defaultdict

import pytest
import torch
from torch.optim import ASGD, SGD, Adagrad, Adam, AdamW, NAdam, RAdam

from loops import move_rates, optimizing, replays
from twins import bits, played_alike

LOADED = {
    "sgd": lambda m: SGD(m.parameters(), lr=0.05, momentum=0.9),
    "adam_loop": lambda m: Adam(m.parameters(), lr=0.01, foreach=False, amsgrad=True),
    "adamw_foreach": lambda m: AdamW(m.parameters(), lr=0.01, foreach=True),
    "adam_fused": lambda m: Adam(m.parameters(), lr=0.01, fused=True),
    "radam": lambda m: RAdam(m.parameters(), lr=0.01),
    "nadam": lambda m: NAdam(m.parameters(), lr=0.01),
    "asgd": lambda m: ASGD(m.parameters(), lr=0.05, t0=8),
    "adagrad": lambda m: Adagrad(m.parameters(), lr=0.05, lr_decay=0.1),
}


@pytest.mark.parametrize("optimizer", LOADED)
def test_the_state_of_now_may_be_loaded_in_mid_run(optimizer):
    def load(i, optimizer):
        move_rates(i, optimizer)
        if i in (15, 30):
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    replays(lambda: optimizing(LOADED[optimizer], between=load), 60)


@pytest.mark.parametrize("optimizer", LOADED)
def test_an_earlier_state_may_be_loaded_in_mid_run(optimizer):
    """Step counts go back from 31 to 4, and with them bias corrections and branches."""
    def make():
        saved = {}

        def load(i, optimizer):
            move_rates(i, optimizer)
            if i == 3:
                saved.update(copy.deepcopy(optimizer.state_dict()))
            if i == 30:
                optimizer.load_state_dict(saved)

        return optimizing(LOADED[optimizer], between=load)

    replays(make, 80)


def test_a_whole_checkpoint_goes_through_a_file(tmp_path):
    def make():
        made = optimizing(LOADED["adamw_foreach"])
        path = tmp_path / "checkpoint.pt"

        def after(i):
            move_rates(i, made.optimizer)
            if i == 25:
                torch.save([made.model.state_dict(), made.optimizer.state_dict()], path)
                weights, state = torch.load(path)
                made.model.load_state_dict(weights)
                made.optimizer.load_state_dict(state)

        made.after = after
        return made

    replays(make, 60)


OLDER = {
    "step as int": dict(step=int),
    "step as float": dict(step=float),
    "step as int64 tensor": dict(step=lambda s: torch.tensor(int(s))),
    "moments in float64": dict(moment=lambda m: m.double()),
    "moments in bfloat16": dict(moment=lambda m: m.bfloat16()),
    "fewer hyperparameters": dict(without=("maximize", "foreach", "capturable", "differentiable",
                                           "fused", "decoupled_weight_decay")),
}


@pytest.mark.parametrize("name", OLDER)
def test_the_state_of_an_older_checkpoint_may_be_loaded(name):
    def load(i, optimizer):
        move_rates(i, optimizer)
        if i != 20:
            return
        old, change = copy.deepcopy(optimizer.state_dict()), OLDER[name]
        for state in old["state"].values():
            state["step"] = change.get("step", lambda s: s)(state["step"])
            for key in ("exp_avg", "exp_avg_sq"):
                state[key] = change.get("moment", lambda m: m)(state[key])
        for group in old["param_groups"]:
            for key in change.get("without", ()):
                group.pop(key)
        optimizer.load_state_dict(old)

    replays(lambda: optimizing(lambda m: Adam(m.parameters(), lr=0.01), between=load), 60)


def test_a_step_count_that_is_no_tensor_raises_as_in_eager_until_it_is_one_again():
    def replace(i, optimizer):
        move_rates(i, optimizer)
        if i in (20, 24):
            for state in optimizer.state.values():
                state["step"] = int(state["step"]) if i == 20 else torch.tensor(21.0)

    replays(lambda: optimizing(lambda m: Adam(m.parameters(), lr=0.01), between=replace), 60)


@pytest.mark.parametrize("edit", [
    lambda state: state["step"].fill_(100),
    lambda state: state["exp_avg"].mul_(0.5),
    lambda state: state.update(exp_avg_sq=state["exp_avg_sq"] * 4),
], ids=["step in place", "moment in place", "moment replaced"])
def test_state_may_be_edited_by_hand(edit):
    def between(i, optimizer):
        move_rates(i, optimizer)
        if i == 25:
            for state in optimizer.state.values():
                edit(state)

    replays(lambda: optimizing(lambda m: Adam(m.parameters(), lr=0.01), between=between), 60)


def clear(optimizer):
    optimizer.state.clear()


def replace(optimizer):
    optimizer.state = defaultdict(dict)


def forget_one(optimizer):
    del optimizer.state[optimizer.param_groups[0]["params"][1]]


@pytest.mark.parametrize("how", [clear, replace, forget_one])
@pytest.mark.parametrize("optimizer", ["sgd", "adam_loop", "adam_fused", "radam"])
def test_state_that_is_cleared_is_made_anew(optimizer, how):
    def between(i, optimizer):
        move_rates(i, optimizer)
        if i == 25:
            how(optimizer)

    replays(lambda: optimizing(LOADED[optimizer], between=between), 80)


MADE_ANEW = {
    "list": lambda x: [x * 2],
    "dict": lambda x: {"a": x * 2},
    "nested": lambda x: [[x * 2], {"a": x + 1}],
}


@pytest.mark.parametrize("kind", MADE_ANEW)
def test_a_container_made_anew_in_the_state_is_another_one(kind):
    def play(wrap):
        weight = torch.nn.Parameter(torch.ones(2))
        optimizer = SGD([weight], lr=0.1)
        kept = MADE_ANEW[kind](torch.zeros(2))
        first = kept[0][0] if kind == "nested" else next(iter(kept.values())) if kind == "dict" else kept[0]

        def train(x):
            optimizer.state[weight]["h"] = MADE_ANEW[kind](x)
            return x + first + (kept[0][0] if kind == "nested" else kept["a"] if kind == "dict" else kept[0])

        step, seen = wrap(train), []
        for i in range(16):
            if i % 4 == 0 or i < 8:
                optimizer.state[weight]["h"] = kept
            seen.append((bits(step(torch.full((2,), 1.0 + i))), bits(kept), bits(optimizer.state[weight]["h"]),
                         optimizer.state[weight]["h"] is kept))
        return seen, step

    assert played_alike(play).stats["replayed"] > 4

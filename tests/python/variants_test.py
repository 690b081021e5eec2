"""Steps that need several plans: which calls find theirs."""
import random
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import steptape
from loops import batch, net, replays, training
from twins import played_alike


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(3, 4, batch_first=True)

    def forward(self, x):
        return self.cell(x)[0]


def squares(model, x):
    return model(x).pow(2).mean()


def in_any_order(of):
    drawn = random.Random(1)
    return [drawn.randint(1, of) for _ in range(10 * of)]


def test_twenty_lengths_in_any_order_have_a_plan_each():
    lengths = in_any_order(20)
    step = replays(lambda: training(
        Recurrent(), squares, batch=lambda i: (torch.randn(2, lengths[i], 3),)), len(lengths))
    assert len(step.stats["variants"]) == 20
    assert step.stats["eager"] == 0


def test_values_that_torch_reads_have_a_plan_each():
    """The shape of what `one_hot` gives depends on the greatest label, which it reads on the host."""
    def loss_of(model, x, y):
        known = F.one_hot(y)
        return (model(x)[:, :known.size(1)].log_softmax(1) * known).mean()

    step = replays(lambda: training(
        net(), loss_of, batch=lambda i: (torch.randn(2, 6), torch.randint(0, 3, (2,)))), 120)
    assert 2 <= len(step.stats["variants"]) <= 6


def test_labels_of_so_many_classes_have_one_plan():
    """Of these it only asks whether they are among the classes."""
    step = replays(lambda: training(
        net(), lambda model, x, y: (model(x).log_softmax(1) * F.one_hot(y, 3)).mean(),
        batch=lambda i: (torch.randn(2, 6), torch.randint(0, 3, (2,)))), 40)
    assert len(step.stats["variants"]) == 1


@pytest.mark.parametrize("label", [3, -1])
def test_a_label_of_no_class_is_an_error_as_in_eager(label):
    step = steptape.wrap(lambda y: F.one_hot(y, 3) * 2, verify={"first": True, "rate": 0.0})
    for i in range(12):
        y = torch.tensor([i % 3, 1])
        assert torch.equal(step(y), F.one_hot(y, 3) * 2)
    assert step.stats["replayed"] > 4, step.explain()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Class values must be"):
            step(torch.tensor([label, 1]))
        assert torch.equal(step(torch.tensor([2, 0])), F.one_hot(torch.tensor([2, 0]), 3) * 2)


def test_a_branch_on_a_value_has_a_plan_each_way():
    def loss_of(model, x, y, kind):
        out = model(x)
        kind = int(kind)
        return F.mse_loss(out, y) if kind == 0 else F.l1_loss(out, y) if kind == 1 else out.mean()

    replays(lambda: training(net(), loss_of, batch=lambda i: (*batch(i), torch.randint(0, 3, ()))),
            80)


def test_slices_of_a_data_set_share_a_plan():
    """Rows of 28 bytes lie at 16 addresses modulo 64."""
    data, right = torch.randn(400, 6), torch.randn(400, 3)

    def rows(i):
        first = 37 * i % 390
        return data[first:first + 5], right[first:first + 5]

    step = replays(lambda: training(net(), batch=rows), 100)
    assert len(step.stats["variants"]) == 1


def flag_turned():
    state = types.SimpleNamespace(flag=False)

    def step(model, x):
        state.flag = not state.flag
        return model(x).pow(2).mean() if state.flag else model(x).abs().mean()
    return step, lambda: state.flag, None


def word_exchanged():
    state = {"phase": "critic"}

    def step(model, x):
        critic = state["phase"] == "critic"
        state["phase"] = "actor" if critic else "critic"
        return model(x).pow(2).mean() if critic else model(x).abs().mean()
    return step, lambda: state["phase"], None


def three_phases():
    phases = {"a": "b", "b": "c", "c": "a"}
    state = types.SimpleNamespace(phase="a")

    def step(model, x):
        scale = {"a": 1.0, "b": 2.0, "c": 3.0}[state.phase]
        state.phase = phases[state.phase]
        return model(x).pow(2).mean() * scale
    return step, lambda: state.phase, None


def network_exchanged_by_the_program():
    heads = [torch.full((3,), 2.0), torch.full((3,), 3.0)]
    state = types.SimpleNamespace(activation=torch.tanh)

    def step(model, x):
        return (state.activation(model(x)) * heads[0]).mean()

    def between(i):
        state.activation = torch.tanh if i % 3 else torch.sigmoid
    return step, lambda: state.activation.__name__, between


def flag_exchanged_by_the_program():
    state = types.SimpleNamespace(late=False)

    def step(model, x):
        return model(x).pow(2).mean() if state.late else model(x).abs().mean()

    def between(i):
        state.late = i % 2 == 0
    return step, lambda: state.late, between


ALTERNATING = [flag_turned, word_exchanged, three_phases, network_exchanged_by_the_program, flag_exchanged_by_the_program]


@pytest.mark.parametrize("make", ALTERNATING, ids=lambda make: make.__name__)
def test_state_that_alternates_has_a_plan_for_each_of_its_values(make):
    def play(wrap):
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        inner, look, between = make()

        def train(x):
            loss = inner(model, x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(train)
        seen = []
        for i in range(40):
            if between:
                between(i)
            loss = step(torch.full((2, 3), i / 40))
            seen.append((loss.item(), look(), model.weight.tolist()))
        return seen, step

    step = played_alike(play)
    assert step.stats["replayed"] >= 25, step.explain()


LATE_WAYS = {
    "an_item": lambda held: held.params[2].sum(),
    "a_group": lambda held: sum(p.numel() for group in held.optimizer.param_groups for p in group["params"]),
    "a_state": lambda held: held.net[1].weight in held.optimizer.state,
    "a_key": lambda held: held.by_parameter[held.net[1].weight],
    "a_layer": lambda held: held.layer.weight.norm(),
    "another_tensor": lambda held: held.other.add_(1),
}


@pytest.mark.parametrize("look", LATE_WAYS.values(), ids=LATE_WAYS)
def test_a_branch_reaches_late_what_the_plan_knows_by_another_name(look):
    """Audits of the plan that was made before go on."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    held = types.SimpleNamespace(net=net, optimizer=optimizer, params=list(net.parameters()), layer=net[1], n=0, other=torch.zeros(2),
                                 by_parameter={p: i for i, p in enumerate(net.parameters())})

    def train(x):
        loss = net(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        held.n += 1
        if held.n % 7 == 0:
            look(held)
        return loss.item()

    step = steptape.wrap(train, verify={"rate": 1.0})
    for _ in range(30):
        step(torch.randn(4, 3))
    assert step.stats["audits"] > 15 and not step.stats["refusals"], step.explain()

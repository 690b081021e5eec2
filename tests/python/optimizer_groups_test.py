"""What a step changes in the parameter groups of an optimizer, or in what is called so, is done again or refused."""
import pytest
import torch
import torch.nn as nn

import steptape

CALLS = 14


class Flag:
    def __init__(self):
        self.value = 0


def flip(holder, key):
    holder[key] ^= 1


CHANGES = {
    "number": (0, lambda group: flip(group, "entry"), lambda group: group["entry"]),
    "text": ("a", lambda group: group.update(entry="b" if group["entry"] == "a" else "a"), lambda group: group["entry"]),
    "list": ([0], lambda group: flip(group["entry"], 0), lambda group: group["entry"][0]),
    "dict": ({"x": 0}, lambda group: flip(group["entry"], "x"), lambda group: group["entry"]["x"]),
    "nested list": ([[0, "s"]], lambda group: flip(group["entry"][0], 0), lambda group: group["entry"][0][0]),
    "object": (Flag(), lambda group: flip(vars(group["entry"]), "value"), lambda group: group["entry"].value),
    "key": (0, lambda group: group.pop("more", None) or group.update(more=1) if "more" not in group
            else group.pop("more"), lambda group: "more" in group),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_entry_of_a_group_that_the_step_changes(name):
    entry, change, read = CHANGES[name]
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    group = optimizer.param_groups[0]
    group["entry"] = entry

    def train(x):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        change(group)
        return loss

    step = steptape.wrap(train, model=model, optimizer=optimizer, verify={"first": True, "rate": 0.0})
    seen = []
    for _ in range(CALLS):
        step(torch.ones(2, 3))
        seen.append(read(group))
    assert seen == [seen[0], seen[1]] * (CALLS // 2), step.explain()
    assert not any(refusal["code"] == "recording_failed" for refusal in step.stats["refusals"]), step.explain()


class Named(nn.Module):
    """Attributes of a program's own that are called as torch calls its own."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.param_groups = [0]
        self._global_forward_flag = 0


@pytest.mark.parametrize("change", [lambda model: flip(model.param_groups, 0),
                                    lambda model: flip(vars(model), "_global_forward_flag")])
def test_names_that_torch_uses_too_hide_no_effect(change):
    model = Named()

    def forward(x):
        change(model)
        return model.layer(x).sum().detach()

    step = steptape.wrap(forward, model=model, verify={"first": True, "rate": 0.0})
    seen = []
    for _ in range(CALLS):
        step(torch.ones(2, 3))
        seen.append((model.param_groups[0], model._global_forward_flag))
    assert seen == [seen[0], seen[1]] * (CALLS // 2), step.explain()


def test_groups_of_an_object_that_is_no_optimizer():
    class Wrapper:
        def __init__(self):
            self.param_groups = [{"phase": 0}]

    wrapper, model = Wrapper(), nn.Linear(3, 2)

    def forward(x):
        wrapper.param_groups[0]["phase"] = (wrapper.param_groups[0]["phase"] + 1) % 3
        return model(x).sum().detach()

    step = steptape.wrap(forward, model=model, verify={"first": True, "rate": 0.0})
    seen = []
    for _ in range(15):
        step(torch.ones(2, 3))
        seen.append(wrapper.param_groups[0]["phase"])
    assert seen == [1, 2, 0] * 5, step.explain()


def test_a_number_that_becomes_one_of_another_type_is_named():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train(x):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    step = steptape.wrap(train, model=model, optimizer=optimizer)
    for _ in range(6):
        step(torch.ones(2, 3))
    optimizer.param_groups[0]["lr"] = 1
    step(torch.ones(2, 3))
    assert step.stats["last_verdict"].startswith("optimizer.param_groups[0].lr: "), step.explain()


@pytest.mark.parametrize("before, after", [((1., .5), (1., .5, 2.)), ((1., .5), (1.,)), ((1.,), ()), ((1, 2), (1, 2, 3, 4, 5, 6, 7, 8, 9))])
def test_a_tuple_of_numbers_that_gets_another_length(before, after):
    def make():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=.1)
        optimizer.param_groups[0]["scales"] = before
        return optimizer, lambda x: model(x).detach() * sum(optimizer.param_groups[0]["scales"])

    (optimizer, eager), (own, step) = make(), make()
    step = steptape.wrap(step, verify={"first": True, "rate": 0.0})
    for i in range(30):
        if i == 14:
            optimizer.param_groups[0]["scales"] = own.param_groups[0]["scales"] = after
        x = torch.full((2, 3), float(i))
        assert torch.equal(step(x), eager(x)), i
    assert step.stats["replayed"] > 8, step.explain()

"""Which parameters an optimizer updates: those with gradients, of any dtype, and those that come later."""
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, RAdam

from loops import FORMS, batch, move_rates, mse, net, optimizing, replays


class Partial(nn.Module):
    """A layer that trains, one that is frozen and one that forward leaves out."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.unused = nn.Linear(8, 3)
        self.body.bias.requires_grad_(False)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_parameters_without_gradients_stay_as_they_are(kind, form):
    replays(lambda: optimizing(lambda m: kind(m.parameters(), lr=0.01, weight_decay=0.1, **form),
                             model=Partial()))


class OfSeveralTypes(nn.Module):
    """Foreach and fused forms update each dtype by ops of its own."""

    def __init__(self):
        super().__init__()
        self.body, self.middle = nn.Linear(6, 8), nn.Linear(8, 8, dtype=torch.float64)
        self.head = nn.Linear(8, 3, dtype=torch.bfloat16)

    def forward(self, x):
        h = self.middle(torch.tanh(self.body(x)).double())
        return self.head(torch.tanh(h).bfloat16()).float()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("kind, options", [(SGD, dict(momentum=0.9)), (AdamW, {})])
def test_parameters_may_have_several_dtypes(kind, options, form):
    replays(lambda: optimizing(lambda m: kind(m.parameters(), lr=0.01, **options, **form),
                             model=OfSeveralTypes()))


class Branched(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.extra = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x, both):
        return self.body(x) + self.extra(x) if both else self.body(x)


@pytest.mark.parametrize("kind, options", [(SGD, dict(momentum=0.9)), (Adam, {}), (RAdam, {})])
def test_a_parameter_may_get_its_first_gradient_late(kind, options):
    """Its state is made then, and from then on its step count is another than the others'."""
    def make():
        model = Branched()
        optimizer = kind(model.parameters(), lr=0.01, **options)

        def step(x, y, both):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x, both), y)
            loss.backward()
            optimizer.step()
            return loss

        return SimpleNamespace(
            step=step, batch=lambda i: (torch.randn(4, 6), torch.randn(4, 3), i >= 25),
            holds=lambda: [model, optimizer], after=lambda i: move_rates(i, optimizer))

    replays(make, 70)


def test_a_parameter_group_may_be_added_in_mid_run():
    def make():
        model = net()
        optimizer = Adam(model[0].parameters(), lr=0.01)

        def step(x, y):
            model.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            optimizer.step()
            return loss

        def after(i):
            move_rates(i, optimizer)
            if i == 20:
                optimizer.add_param_group(dict(params=model[2].parameters(), lr=0.003))

        return SimpleNamespace(step=step, batch=batch, after=after,
                               holds=lambda: [model, optimizer])

    replays(make, 60)


def test_a_parameter_may_be_frozen_and_unfrozen_between_steps():
    def freeze(i, optimizer):
        move_rates(i, optimizer)
        optimizer.param_groups[0]["params"][0].requires_grad_(not 20 <= i < 40)

    replays(lambda: optimizing(lambda m: Adam(m.parameters(), lr=0.01), between=freeze), 80)

"""Every optimizer of torch.optim leaves the bits of the eager step, whatever a program does to it.

Parameters, gradients, `optimizer.state_dict()` and results are compared after each call. The rate
moves after every step unless a test says otherwise. No combination has capturable=True: on the CPU
each of them raises, and one test says that the user sees it.
"""
import copy
import math
import os
import tempfile
import warnings
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import (
    ASGD, LBFGS, NAdam, RAdam, SGD, Adadelta, Adafactor, Adagrad, Adam, Adamax, AdamW, Muon,
    Optimizer, RMSprop, Rprop, lr_scheduler,
)

import steptape
import twins
from twins import compare

# What may stand beside an optimizer of the user's own that does not replay: its numbers are worked
# out by code that Steptape has no formula for.
NO_FORMULA = {"optimizer_unsupported", "scalar_varies", "too_many_variants"}


def net(bias=True):
    return nn.Sequential(nn.Linear(6, 8, bias=bias), nn.Tanh(), nn.Linear(8, 3, bias=bias))


def batch(_):
    return torch.randn(4, 6), torch.randn(4, 3)


def loss_of(model, x, y):
    return nn.functional.mse_loss(model(x), y)


def move_rates(i, optimizer):
    """Another rate for each group, held as the program holds it: a number or a tensor."""
    for k, group in enumerate(optimizer.param_groups):
        factor = 1 + 0.3 * math.sin(i + k)
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].mul_(factor)
        else:
            group["lr"] *= factor


def training(optimizer_of, *, model=None, between=move_rates, holds=()):
    """The plain step: its closure holds model and optimizer, and nothing else.

    optimizer_of: model -> optimizer; between: (i, optimizer), called after step i
    """
    model = model or net()
    optimizer = optimizer_of(model)

    def gradients(x, y):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        return loss

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        return loss

    return SimpleNamespace(
        step=step, gradients=gradients, batch=batch, model=model, optimizer=optimizer,
        holds=lambda: [model, optimizer, *holds],
        after=lambda i: between(i, optimizer) if between else None,
    )


def replays(make, steps=40, **options):
    """compare, where replays must be the rule: in share and in number."""
    step = compare(make, steps, share=0.9, **options)
    assert step.stats["replayed"] >= steps // 2, step.explain()
    return step


def replays_or_says_why(make, steps, codes, **options):
    """compare, where both a replay and a refusal by one of these names is right."""
    step = compare(make, steps, **options)
    met = {r["code"] for r in step.stats["refusals"]}
    assert step.stats["replayed"] > steps // 2 or met & codes, step.explain()
    return step


OPTIMIZERS = {
    "sgd": (SGD, dict(lr=0.05)),
    "sgd_momentum": (SGD, dict(lr=0.05, momentum=0.9)),
    "sgd_nesterov": (SGD, dict(lr=0.05, momentum=0.9, nesterov=True)),
    "sgd_dampening": (SGD, dict(lr=0.05, momentum=0.9, dampening=0.3)),
    "sgd_weight_decay": (SGD, dict(lr=0.05, weight_decay=0.1)),
    "sgd_maximize": (SGD, dict(lr=0.001, momentum=0.5, weight_decay=0.1, maximize=True)),
    "adam": (Adam, dict(lr=0.01)),
    "adam_weight_decay": (Adam, dict(lr=0.01, weight_decay=0.1)),
    "adam_amsgrad": (Adam, dict(lr=0.01, amsgrad=True)),
    "adam_maximize": (Adam, dict(lr=0.01, maximize=True)),
    "adam_no_momentum": (Adam, dict(lr=0.01, betas=(0.0, 0.9))),
    "adam_decoupled": (Adam, dict(lr=0.01, weight_decay=0.1, decoupled_weight_decay=True)),
    "adamw": (AdamW, dict(lr=0.01)),
    "adamw_amsgrad": (AdamW, dict(lr=0.01, amsgrad=True, weight_decay=0.1)),
    "adamw_no_decay": (AdamW, dict(lr=0.01, weight_decay=0.0)),
    "nadam": (NAdam, dict(lr=0.01)),
    "nadam_decoupled": (NAdam, dict(lr=0.01, weight_decay=0.1, decoupled_weight_decay=True)),
    # Its ops change at step 6, where rho_t exceeds 5, by the step count alone.
    "radam": (RAdam, dict(lr=0.01)),
    "radam_decoupled": (RAdam, dict(lr=0.01, weight_decay=0.1, decoupled_weight_decay=True)),
    # With this beta2 rho_t never exceeds 5.
    "radam_unrectified": (RAdam, dict(lr=0.01, betas=(0.9, 0.6))),
    "adamax": (Adamax, dict(lr=0.01)),
    "adamax_weight_decay": (Adamax, dict(lr=0.01, weight_decay=0.1)),
    "adadelta": (Adadelta, dict(lr=1.0)),
    "adadelta_weight_decay": (Adadelta, dict(lr=1.0, rho=0.8, weight_decay=0.1)),
    "adagrad": (Adagrad, dict(lr=0.05)),
    "adagrad_lr_decay": (Adagrad, dict(lr=0.05, lr_decay=0.1, initial_accumulator_value=0.1)),
    "rmsprop": (RMSprop, dict(lr=0.01)),
    "rmsprop_centered": (RMSprop, dict(lr=0.01, centered=True)),
    "rmsprop_momentum": (RMSprop, dict(lr=0.01, momentum=0.9)),
    "rmsprop_everything": (
        RMSprop, dict(lr=0.01, alpha=0.9, momentum=0.5, centered=True, weight_decay=0.1)),
    "rprop": (Rprop, dict(lr=0.01)),
    "asgd": (ASGD, dict(lr=0.05)),
    # The average sets in, with other ops, when mu leaves 1: by the step count alone.
    "asgd_averaging": (ASGD, dict(lr=0.05, t0=8, weight_decay=0.1)),
    "adafactor": (Adafactor, dict(lr=0.05)),
    "adafactor_weight_decay": (Adafactor, dict(lr=0.05, weight_decay=0.1, d=2.0)),
    "muon": (Muon, dict(lr=0.01)),
    "muon_matched": (
        Muon, dict(lr=0.01, nesterov=False, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")),
}
PLAIN = ("sgd", "sgd_momentum", "adam", "adamw", "nadam", "radam", "adamax", "adadelta", "adagrad",
         "rmsprop", "rprop", "asgd_averaging", "adafactor")
FUSED = (SGD, Adam, AdamW, Adagrad)
FORMS = {"loop": dict(foreach=False), "foreach": dict(foreach=True), "fused": dict(fused=True)}
ADAMS = (Adam, AdamW)  # raise where foreach=True meets a tensor as rate


def forms():
    for name, (kind, options) in OPTIMIZERS.items():
        if kind is Muon:
            yield pytest.param(kind, options, id=name)
            continue
        for label, form in FORMS.items():
            if label != "fused" or kind in FUSED:
                yield pytest.param(kind, options | form, id=f"{name}-{label}")


def forms_with_tensor_rate():
    for name in PLAIN:
        kind, options = OPTIMIZERS[name]
        for label, form in FORMS.items():
            if (label != "fused" or kind in FUSED) and (label != "foreach" or kind not in ADAMS):
                yield pytest.param(kind, options | form, id=f"{name}-{label}")


def net_for(kind):
    return net(bias=kind is not Muon)  # Muon takes matrices only


@pytest.mark.parametrize("kind, options", list(forms()))
def test_an_optimizer_replays_under_a_moving_rate(kind, options):
    replays(lambda: training(lambda m: kind(m.parameters(), **options), model=net_for(kind)))


@pytest.mark.parametrize("kind, options", list(forms_with_tensor_rate()))
def test_a_rate_that_is_a_tensor_is_followed(kind, options):
    def optimizer_of(model):
        return kind(model.parameters(), **options | dict(lr=torch.tensor(options["lr"])))

    replays(lambda: training(optimizer_of))


@pytest.mark.parametrize("rate", [torch.tensor([0.01]), torch.tensor(0.01, dtype=torch.float64)],
                         ids=["one element", "float64"])
def test_a_tensor_rate_may_have_another_shape_or_dtype(rate):
    replays(lambda: training(lambda m: Adam(m.parameters(), lr=rate.clone(), foreach=False)))


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_a_tensor_rate_that_is_another_tensor_in_each_call_is_refused(kind):
    """A plan holds for one tensor; its value may change, it may not be exchanged each time."""
    def exchange(i, optimizer):
        optimizer.param_groups[0]["lr"] = torch.tensor(0.01 / (1 + i))

    compare(lambda: training(
        lambda m: kind(m.parameters(), lr=torch.tensor(0.01), foreach=False), between=exchange),
            codes={"too_many_variants"})


def test_betas_that_are_tensors_give_the_bits_of_eager():
    """Their powers are tensors too, so that host reads stand where other forms have numbers."""
    def optimizer_of(model):
        betas = (torch.tensor(0.9), torch.tensor(0.99))
        return Adam(model.parameters(), lr=torch.tensor(0.01), betas=betas, foreach=False)

    replays_or_says_why(lambda: training(optimizer_of), 40, NO_FORMULA | {"host_read"})


@pytest.mark.parametrize("kind", [Adam, RAdam, ASGD])
def test_what_an_optimizer_raises_reaches_the_user(kind):
    """capturable=True raises on the CPU, when the first state has been made."""
    def make():
        return training(lambda m: kind(m.parameters(), capturable=True))

    twin = make()
    with pytest.raises(AssertionError, match="capturable"):
        twin.step(*batch(0))
    step = compare(make, 6)
    assert step.stats["replayed"] == 0


@pytest.mark.parametrize("foreach", [False, True], ids=["loop", "foreach"])
@pytest.mark.parametrize("name", ["adam", "adamw", "nadam", "radam"])
def test_bias_corrections_are_exact_at_a_high_step_count(name, foreach):
    """sqrt(x) and x ** 0.5 of a bias correction first differ at step 1,270."""
    kind, options = OPTIMIZERS[name]

    def make():
        made = training(lambda m: kind(m.parameters(), foreach=foreach, **options))
        made.step(*batch(0))
        for state in made.optimizer.state.values():
            state["step"].fill_(1230)
        return made

    replays(make, 100)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_step_count_that_float32_cannot_advance_stands_still(form):
    def make():
        made = training(lambda m: Adam(m.parameters(), lr=0.01, **form))
        made.step(*batch(0))
        for state in made.optimizer.state.values():
            state["step"].fill_(2 ** 24 - 20)
        return made

    replays(make, 50)


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

    replays(lambda: training(optimizer_of), 60)


def test_equal_rates_of_two_groups_part_in_mid_run():
    """Nothing may take the one for the other because their bits were equal while it probed."""
    def part(i, optimizer):
        if i >= 20:
            optimizer.param_groups[1]["lr"] = 0.01 / i

    def optimizer_of(model):
        return Adam([dict(params=model[0].parameters()), dict(params=model[2].parameters())],
                    lr=0.01)

    replays(lambda: training(optimizer_of, between=part), 50)


def test_a_rate_and_a_weight_decay_that_were_equal_part_in_mid_run():
    def part(i, optimizer):
        if i >= 20:
            optimizer.param_groups[0]["lr"] = 0.1 / i

    replays(lambda: training(lambda m: SGD(m.parameters(), lr=0.1, weight_decay=0.1, momentum=0.1),
                             between=part), 50)


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
    replays(lambda: training(lambda m: kind(m.parameters(), lr=0.01, weight_decay=0.1, **form),
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
    replays(lambda: training(lambda m: kind(m.parameters(), lr=0.01, **options, **form),
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
            loss = loss_of(model, x, y)
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

    replays(lambda: training(lambda m: Adam(m.parameters(), lr=0.01), between=freeze), 80)


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_gradients_may_be_cleared_behind_the_update(kind):
    def make():
        model = net()
        optimizer = kind(model.parameters(), lr=0.01)

        def step(x, y):
            loss = loss_of(model, x, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer],
                               after=lambda i: move_rates(i, optimizer))

    replays(make)


def test_two_optimizers_over_one_model_in_one_step():
    def make():
        model = net()
        body, head = SGD(model[0].parameters(), lr=0.05, momentum=0.9), Adam(model[2].parameters())

        def step(x, y):
            body.zero_grad()
            head.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            body.step()
            head.step()
            return loss

        def after(i):
            move_rates(i, body)
            move_rates(i + 3, head)

        return SimpleNamespace(step=step, batch=batch, after=after,
                               holds=lambda: [model, body, head])

    replays(make)


def test_two_steps_each_with_its_own_optimizer_over_one_model():
    def make():
        model = net()
        body, head = SGD(model[0].parameters(), lr=0.05, momentum=0.9), Adam(model[2].parameters())

        def train_body(x, y):
            body.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            body.step()
            return loss

        def train_head(x, y):
            head.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            head.step()
            return loss

        def in_turn(train_body, train_head):
            return lambda i, x, y: (train_head if i % 3 == 2 else train_body)(x, y)

        return SimpleNamespace(
            step=in_turn(train_body, train_head), parts=(train_body, train_head), in_turn=in_turn,
            batch=lambda i: (i, *batch(i)), holds=lambda: [model, body, head],
            after=lambda i: (move_rates(i, body), move_rates(i, head)))

    def wrapper(made, options):
        steps = [steptape.wrap(part, **options) for part in made.parts]
        return twins.Program(made.in_turn(*steps), *steps)

    replays(make, 90, wrapper=wrapper)


@pytest.mark.parametrize("given", [
    lambda t: dict(model=t.model, optimizer=t.optimizer),
    lambda t: dict(model=[t.model], optimizer=(t.optimizer,)),
    lambda t: dict(model={"net": t.model}, optimizer={"adam": t.optimizer}),
], ids=["one object", "sequence", "mapping"])
def test_model_and_optimizer_may_be_given(given):
    replays(lambda: training(lambda m: Adam(m.parameters(), lr=0.01)),
            wrapper=lambda t, options: steptape.wrap(t.step, **given(t), **options))


class Trainer:
    """A user's class: what it counts and schedules, it does outside the step."""

    def __init__(self):
        self.model = net()
        self.optimizer = AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = lr_scheduler.ExponentialLR(self.optimizer, 0.97)
        self.calls, self.history = 0, []

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = loss_of(self.model, x, y)
        loss.backward()
        self.optimizer.step()
        return loss

    def batch(self, i):
        return batch(i)

    def after(self, i):
        self.calls += 1
        self.history.append(i)
        self.scheduler.step()

    def holds(self):
        return [self.model, self.optimizer, self.scheduler, self.calls]


def test_a_method_of_an_object_that_also_counts_and_schedules():
    replays(Trainer)


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

    replays(lambda: training(lambda m: kind(m.parameters(), lr=0.01, foreach=foreach, **options),
                             between=edit), 80)


def test_the_groups_may_be_reordered_between_steps():
    def reorder(i, optimizer):
        if i == 20:
            optimizer.param_groups.reverse()

    def optimizer_of(model):
        return AdamW([dict(params=model[0].parameters(), lr=0.01),
                      dict(params=model[2].parameters(), lr=0.02, weight_decay=0.1)])

    replays(lambda: training(optimizer_of, between=reorder), 60)


def test_a_rate_moved_inside_the_step_is_refused():
    """The simplest schedule of all; a replay would leave the rate where it was."""
    def make():
        made = training(lambda m: SGD(m.parameters(), lr=0.05), between=None)
        optimizer, plain = made.optimizer, made.step

        def step(x, y):
            loss = plain(x, y)
            optimizer.param_groups[0]["lr"] *= 0.97
            return loss

        made.step = step
        return made

    compare(make, 20, codes={"hyperparameter_changed"})


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
        made = training(SCHEDULED[optimizer], between=lambda i, o: holds[0].step(), holds=holds)
        holds[:] = [SCHEDULERS[scheduler](made.optimizer)]
        made.holds = lambda: [made.model, made.optimizer, holds[0].state_dict()]
        return made

    replays(make)


@pytest.mark.parametrize("optimizer", SCHEDULED)
def test_a_plateau_scheduler_steps_by_a_validation_loss(optimizer):
    def make():
        made = training(SCHEDULED[optimizer])
        scheduler = lr_scheduler.ReduceLROnPlateau(made.optimizer, factor=0.5, patience=2)
        validation = batch(0)

        def after(_):
            with torch.no_grad():
                scheduler.step(loss_of(made.model, *validation))

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

        return training(lambda m: Adam(m.parameters(), lr=0.01), between=between)

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*lr_scheduler.*")
        replays(make, 60)


@pytest.mark.parametrize("scheduler", ["ExponentialLR", "OneCycleLR", "LambdaLR with zeros"])
def test_a_scheduler_stepped_inside_the_step_is_refused(scheduler):
    def make():
        made = training(SCHEDULED["sgd"], between=None)
        schedule, plain = SCHEDULERS[scheduler](made.optimizer), made.step

        def step(x, y):
            loss = plain(x, y)
            schedule.step()
            return loss

        made.step = step
        made.holds = lambda: [made.model, made.optimizer, schedule]
        return made

    compare(make, 25, codes={"hyperparameter_changed"})


def test_a_scheduler_stepped_inside_the_step_that_seldom_moves_the_rate_is_not_lost():
    """StepLR(10) changes no hyperparameter in any probe, only its own count."""
    def make():
        made = training(SCHEDULED["sgd"], between=None)
        model, optimizer = made.model, made.optimizer
        schedule = lr_scheduler.StepLR(optimizer, 10, 0.5)

        def step(x, y):
            optimizer.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss

        made.step = step
        made.holds = lambda: [model, optimizer, schedule]
        return made

    compare(make, 40, codes={"host_effect", "hyperparameter_changed"})


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

    replays(lambda: training(LOADED[optimizer], between=load), 60)


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

        return training(LOADED[optimizer], between=load)

    replays(make, 80)


def test_a_whole_checkpoint_goes_through_a_file(tmp_path):
    def make():
        made = training(LOADED["adamw_foreach"])
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

    replays(lambda: training(lambda m: Adam(m.parameters(), lr=0.01), between=load), 60)


def test_a_step_count_that_is_no_tensor_raises_as_in_eager_until_it_is_one_again():
    def replace(i, optimizer):
        move_rates(i, optimizer)
        if i in (20, 24):
            for state in optimizer.state.values():
                state["step"] = int(state["step"]) if i == 20 else torch.tensor(21.0)

    replays(lambda: training(lambda m: Adam(m.parameters(), lr=0.01), between=replace), 60)


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

    replays(lambda: training(lambda m: Adam(m.parameters(), lr=0.01), between=between), 60)


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

    replays(lambda: training(LOADED[optimizer], between=between), 80)


def update_alone(made, _options):
    """Forward and backward run eagerly; steptape.optimizer does the rest."""
    update = steptape.optimizer(made.optimizer)

    def body(x, y):
        loss = made.gradients(x, y)
        assert update() is None
        return loss

    return twins.Program(body, update)


@pytest.mark.parametrize("kind, options", [
    pytest.param(OPTIMIZERS[name][0], OPTIMIZERS[name][1] | form, id=f"{name}-{label}")
    for name in ("sgd_momentum", "adam", "adamw_amsgrad", "adagrad_lr_decay", "rmsprop_everything",
                 "radam", "nadam", "asgd_averaging", "adadelta", "adamax", "rprop")
    for label, form in FORMS.items()
    if label != "fused" or OPTIMIZERS[name][0] in FUSED
])
def test_the_optimizers_step_replays_alone(kind, options):
    replays(lambda: training(lambda m: kind(m.parameters(), **options)), wrapper=update_alone)


def test_alone_it_takes_gradients_of_any_origin():
    """Kept, replaced, missing and back again."""
    def make():
        made = training(lambda m: AdamW(m.parameters(), lr=0.01))
        parameters = list(made.model.parameters())

        def gradients(i, x):
            for k, parameter in enumerate(parameters):
                if i < 30 or k != 1:
                    parameter.grad = x[k].expand_as(parameter) * 0.1 + parameter.detach()
                else:
                    parameter.grad = None
            return x.sum()

        def step(i, x):
            loss = gradients(i, x)
            made.optimizer.step()
            return loss

        made.gradients, made.step = gradients, step
        made.batch = lambda i: (i, torch.randn(4))
        return made

    replays(make, 60, wrapper=update_alone)


class Descent(Optimizer):
    """Stateless."""

    def __init__(self, params, lr=0.05):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group["lr"])


class Lion(Optimizer):
    """With a moment per parameter."""

    def __init__(self, params, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            (beta1, beta2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                p.mul_(1 - lr * group["weight_decay"])
                p.add_(state["exp_avg"].lerp(p.grad, 1 - beta1).sign_(), alpha=-lr)
                state["exp_avg"].lerp_(p.grad, 1 - beta2)


class Rooted(Optimizer):
    """Reads the values of its group with float() and math.sqrt."""

    def __init__(self, params, lr=0.01, beta=0.9):
        super().__init__(params, dict(lr=lr, beta=beta))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            size = -float(group["lr"]) * math.sqrt(1 - group["beta"])
            for p in group["params"]:
                p.add_(p.grad, alpha=size)


class Annealed(Optimizer):
    """Counts its steps in a Python int of the state and lowers its rate by it."""

    def __init__(self, params, lr=0.05, decay=0.1):
        super().__init__(params, dict(lr=lr, decay=decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                p.add_(p.grad, alpha=-group["lr"] / (1 + group["decay"] * state["step"]))


class Counted(Optimizer):
    """Counts its steps in a Python int of the state and makes no use of it."""

    def __init__(self, params, lr=0.05):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["step"] = self.state[p].get("step", 0) + 1
                p.sub_(p.grad * group["lr"])


class Moments(Optimizer):
    """Adam as papers write it: the step is a Python int, the square root Python's."""

    def __init__(self, params, lr=0.01, betas=(0.9, 0.999), weight_decay=0.1):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    def moments_of(self, p, beta1, beta2):
        state = self.state[p]
        if not state:
            state.update(step=0, first=torch.zeros_like(p), second=torch.zeros_like(p))
        state["step"] += 1
        state["first"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
        state["second"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
        return state, state["first"], state["second"]

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            (beta1, beta2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                state, first, second = self.moments_of(p, beta1, beta2)
                size = lr * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
                if group["weight_decay"]:
                    p.mul_(1 - lr * group["weight_decay"])
                p.addcdiv_(first, second.sqrt().add_(1e-8), value=-size)


class Rectified(Moments):
    """Decides by its counter, as RAdam does."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state, first, second = self.moments_of(p, beta1, beta2)
                decayed, longest = beta2 ** state["step"], 2 / (1 - beta2) - 1
                length = longest - 2 * state["step"] * decayed / (1 - decayed)
                size = group["lr"] / (1 - beta1 ** state["step"])
                if length >= 5:
                    rate = (length - 4) * (length - 2) * longest / (longest - 4) / (longest - 2) / length
                    size *= math.sqrt(rate * (1 - decayed))
                    p.addcdiv_(first, second.sqrt().add_(1e-8), value=-size)
                else:
                    p.add_(first, alpha=-size)


class Alternating(Optimizer):
    """Asks its counter for a remainder, which no formula has."""

    def __init__(self, params, lr=0.05):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                p.add_(p.grad, alpha=-group["lr"] * (1 + state["step"] % 3))


class Bounded(Adam):
    """Of a known type, with a step of its own."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                p.clamp_(-0.3, 0.3)


WRAPPERS = {"whole step": None, "update alone": update_alone}


@pytest.mark.parametrize("kind", [SGD, Descent])
@pytest.mark.parametrize("rate", [np.float64(0.03), np.float32(0.03), True, 1, 0, 0.0, -0.0, torch.tensor(0.03)], ids=repr)
def test_a_rate_becomes_one_of_another_kind_and_one_of_its_own_again(rate, kind):
    """Python gives -0 for int 0 and -0.0 for 0.0; a number of NumPy's, a switch and a tensor are no floats."""
    def edit(i, optimizer):
        if i in (15, 35):
            optimizer.param_groups[0]["lr"] = rate if i == 15 else 0.02

    replays(lambda: training(lambda m: kind(m.parameters(), lr=0.05), between=edit), 60)


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("kind", [Descent, Lion, Rooted])
def test_an_unknown_optimizer_replays_while_its_hyperparameters_stand(kind, wrapper):
    replays(lambda: training(lambda m: kind(m.parameters()), between=None),
            wrapper=WRAPPERS[wrapper])


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("kind", [Descent, Lion, Rooted])
def test_an_unknown_optimizer_takes_an_edit_of_its_hyperparameters(kind, wrapper):
    def edit(i, optimizer):
        if i == 25:
            optimizer.param_groups[0]["lr"] *= 0.5

    replays(lambda: training(lambda m: kind(m.parameters()), between=edit), 60,
            wrapper=WRAPPERS[wrapper])


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("kind", [Descent, Lion, Rooted, Bounded])
def test_an_unknown_optimizer_under_a_moving_rate_gives_the_bits_of_eager(kind, wrapper):
    replays_or_says_why(lambda: training(lambda m: kind(m.parameters())), 50, NO_FORMULA,
                        wrapper=WRAPPERS[wrapper])


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("between", [None, move_rates], ids=["fixed rate", "moving rate"])
@pytest.mark.parametrize("kind", [Annealed, Counted, Moments, Rectified])
def test_an_unknown_optimizer_with_a_counter_on_the_host_keeps_counting(kind, between, wrapper):
    """Its counts are part of `optimizer.state_dict()`; a replay that left them would be wrong."""
    replays(lambda: training(lambda m: kind(m.parameters()), between=between), 60,
            wrapper=WRAPPERS[wrapper])


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("kind", [Alternating])
def test_an_unknown_optimizer_whose_counter_is_not_followed_is_right_all_the_same(kind, wrapper):
    replays_or_says_why(lambda: training(lambda m: kind(m.parameters())), 50, NO_FORMULA,
                        wrapper=WRAPPERS[wrapper])


def test_a_counter_on_the_host_may_be_set_between_two_steps():
    def jump(i, optimizer):
        if i in (20, 30):
            for state in optimizer.state.values():
                state["step"] = 3 if i == 20 else 1000

    replays(lambda: training(lambda m: Moments(m.parameters()), between=jump), 60)


def test_a_loaded_trace_counts_on():
    made = training(lambda m: Moments(m.parameters()), between=None)
    step = steptape.wrap(made.step, model=made.model, optimizer=made.optimizer)
    for i in range(20):
        step(*made.batch(i))
    with tempfile.TemporaryDirectory() as folder:
        step.save(f"{folder}/step.tape")
        player = steptape.load(f"{folder}/step.tape")
        for i in range(8):
            arguments = made.batch(i)
            expected = step(*arguments)
            assert twins.bits(player["step"](*arguments)) == twins.bits(expected)
        counters = {path: value for path, value in player.scalars().items() if path.endswith(".step")}
    assert len(counters) == len(made.optimizer.state)
    assert set(counters.values()) == {state["step"] for state in made.optimizer.state.values()} == {28}


def test_counters_are_put_back_with_the_rest_of_the_state(monkeypatch):
    """A step that reads what no guard sees goes wrong, and is undone to where it was verified last."""
    monkeypatch.setenv("STEPTAPE_TEST_FACTOR", "1.0")

    def make():
        made = training(lambda m: Moments(m.parameters()), between=None)

        def step(x, y):
            made.optimizer.zero_grad()
            loss = loss_of(made.model, x, y) * float(os.environ["STEPTAPE_TEST_FACTOR"])
            loss.backward()
            made.optimizer.step()
            return loss

        made.step = step
        return made

    torch.manual_seed(1)
    batches = [batch(i) for i in range(60)]
    torch.manual_seed(2)
    eager = make()
    seen = [None]
    for arguments in batches:
        eager.step(*arguments)
        seen.append(twins.bits([eager.model.state_dict(), eager.optimizer]))
    torch.manual_seed(2)
    made = make()
    step = steptape.wrap(made.step, model=made.model, optimizer=made.optimizer, on_divergence="restore",
                         verify={"first": True, "rate": 0.2}, audit_seed=3)
    for i, arguments in enumerate(batches):
        if i == 20:
            monkeypatch.setenv("STEPTAPE_TEST_FACTOR", "3.0")
        step(*arguments)
        if any(r["code"] == "audit_diverged" for r in step.stats["refusals"]):
            break
    counts = {state["step"] for state in made.optimizer.state.values()}
    assert len(counts) == 1 and step.stats["replayed"] > 0, step.explain()
    assert max(counts) <= 20
    assert twins.bits([made.model.state_dict(), made.optimizer]) == seen[max(counts)]


def test_a_hook_behind_the_optimizers_step_is_part_of_it():
    def optimizer_of(model):
        def clamp(optimizer, _args, _kwargs):
            with torch.no_grad():
                for p in optimizer.param_groups[0]["params"]:
                    p.clamp_(-0.3, 0.3)

        optimizer = Adam(model.parameters(), lr=0.01)
        optimizer.register_step_post_hook(clamp)
        return optimizer

    replays(lambda: training(optimizer_of))


def with_closure(optimizer_of):
    """optimizer.step(closure): forward and backward happen inside it."""
    model = net()
    optimizer = optimizer_of(model)

    def step(x, y):
        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            return loss

        return optimizer.step(closure)

    return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer],
                           after=lambda i: move_rates(i, optimizer))


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_a_closure_is_part_of_the_step(kind):
    replays(lambda: with_closure(lambda m: kind(m.parameters(), lr=0.01)))


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_is_refused_because_it_makes_its_state_anew(search):
    compare(lambda: with_closure(lambda m: LBFGS(m.parameters(), lr=0.1, max_iter=4,
                                                 history_size=3, line_search_fn=search)),
            20, codes={"rebound_tensor"})

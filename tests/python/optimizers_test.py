"""Every optimizer of torch.optim leaves the bits of the eager step, in each of its forms.

Parameters, gradients, `optimizer.state_dict()` and results are compared after each call. The rate
moves after every step unless a test says otherwise. No combination has capturable=True: on the CPU
each of them raises, and one test says that the user sees it.
"""
import pytest
import torch
from torch.optim import (
    ASGD, SGD, Adadelta, Adafactor, Adagrad, Adam, Adamax, AdamW, Muon, NAdam, RAdam, RMSprop,
    Rprop,
)

from loops import FORMS, FUSED, batch, net, optimizing, replays, update_alone
from twins import compare

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
    replays(lambda: optimizing(lambda m: kind(m.parameters(), **options), model=net_for(kind)))


@pytest.mark.parametrize("kind, options", list(forms_with_tensor_rate()))
def test_a_rate_that_is_a_tensor_is_followed(kind, options):
    def optimizer_of(model):
        return kind(model.parameters(), **options | dict(lr=torch.tensor(options["lr"])))

    replays(lambda: optimizing(optimizer_of))


@pytest.mark.parametrize("rate", [torch.tensor([0.01]), torch.tensor(0.01, dtype=torch.float64)],
                         ids=["one element", "float64"])
def test_a_tensor_rate_may_have_another_shape_or_dtype(rate):
    replays(lambda: optimizing(lambda m: Adam(m.parameters(), lr=rate.clone(), foreach=False)))


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_a_tensor_rate_that_is_another_tensor_in_each_call_is_refused(kind):
    """A plan holds for one tensor; its value may change, it may not be exchanged each time."""
    def exchange(i, optimizer):
        optimizer.param_groups[0]["lr"] = torch.tensor(0.01 / (1 + i))

    compare(lambda: optimizing(
        lambda m: kind(m.parameters(), lr=torch.tensor(0.01), foreach=False), between=exchange),
            codes={"too_many_variants"})


def test_betas_that_are_tensors_give_the_bits_of_eager():
    """Their powers are tensors too, so that host reads stand where other forms have numbers."""
    def optimizer_of(model):
        betas = (torch.tensor(0.9), torch.tensor(0.99))
        return Adam(model.parameters(), lr=torch.tensor(0.01), betas=betas, foreach=False)

    replays(lambda: optimizing(optimizer_of))


@pytest.mark.parametrize("kind", [Adam, RAdam, ASGD])
def test_what_an_optimizer_raises_reaches_the_user(kind):
    """capturable=True raises on the CPU, when the first state has been made."""
    def make():
        return optimizing(lambda m: kind(m.parameters(), capturable=True))

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
        made = optimizing(lambda m: kind(m.parameters(), foreach=foreach, **options))
        made.step(*batch(0))
        for state in made.optimizer.state.values():
            state["step"].fill_(1230)
        return made

    replays(make, 100)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_step_count_that_float32_cannot_advance_stands_still(form):
    def make():
        made = optimizing(lambda m: Adam(m.parameters(), lr=0.01, **form))
        made.step(*batch(0))
        for state in made.optimizer.state.values():
            state["step"].fill_(2 ** 24 - 20)
        return made

    replays(make, 50)


@pytest.mark.parametrize("kind, options", [
    pytest.param(OPTIMIZERS[name][0], OPTIMIZERS[name][1] | form, id=f"{name}-{label}")
    for name in ("sgd_momentum", "adam", "adamw_amsgrad", "adagrad_lr_decay", "rmsprop_everything",
                 "radam", "nadam", "asgd_averaging", "adadelta", "adamax", "rprop")
    for label, form in FORMS.items()
    if label != "fused" or OPTIMIZERS[name][0] in FUSED
])
def test_the_optimizers_step_replays_alone(kind, options):
    replays(lambda: optimizing(lambda m: kind(m.parameters(), **options)), wrapper=update_alone)


def test_alone_it_takes_gradients_of_any_origin():
    """Kept, replaced, missing and back again."""
    def make():
        made = optimizing(lambda m: AdamW(m.parameters(), lr=0.01))
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

"""Parameters, gradients and states of optimizers are laid out anew, shared, exchanged or lost."""
import collections

import torch
import torch.nn as nn

from reached import Table, Training, check, regression

tensors = Table()


@tensors
def parameters_and_momenta_are_laid_out_anew():
    model, optimizer, step = regression()
    state = optimizer.state

    def momentum(make):
        def put():
            state[model.weight]["momentum_buffer"] = make(state[model.weight]["momentum_buffer"])
        return put

    def weight(make):
        return lambda: setattr(model.weight, "data", make(model.weight.data))

    return Training(step, {
        20: weight(lambda w: w.t().contiguous().t()), 26: weight(lambda w: torch.arange(18.0).view(3, 6)[:, ::2]),
        32: momentum(lambda b: b.t().contiguous().t()), 36: momentum(lambda b: torch.zeros(1).expand(3, 3).clone()),
        38: momentum(lambda b: None), 40: state.clear}, holds=lambda: [model, optimizer])


@tensors
def memory_behind_tensors_grows():
    """Each moves to the front of a longer one, which nothing but the recording tells from its own."""
    model, optimizer, step = regression()
    state = optimizer.state

    def longer(tensor):
        whole = torch.zeros(40)
        whole[:tensor.numel()] = tensor.flatten()
        return whole[:tensor.numel()].view(tensor.shape)

    def momentum():
        state[model.weight]["momentum_buffer"] = longer(state[model.weight]["momentum_buffer"])

    return Training(step, {
        20: lambda: setattr(model.weight, "data", longer(model.weight.data)), 28: momentum,
        34: lambda: model.bias.untyped_storage().resize_(1000),
        40: lambda: setattr(model.weight, "grad", longer(model.weight))}, holds=lambda: [model, optimizer], matters=False)


def of_a_held_tensor(change, scale):
    weight, held = nn.Parameter(torch.ones(3)), torch.ones(3)

    def step(x):
        weight.grad = None
        loss = (weight * x * scale(held)).sum()
        loss.backward()
        return torch.zeros(()) + loss.detach()

    return Training(step, lambda: change(held), holds=lambda: [weight])


@tensors
def a_tensor_becomes_a_zero_tensor():
    return of_a_held_tensor(lambda held: setattr(held, "data", torch._efficientzerotensor(3)), lambda held: held * 2)


@tensors
def a_tensor_becomes_a_transposed_conjugate():
    weight, held = nn.Parameter(torch.ones(3)), torch.full((3,), 1 + 2j)

    def step(x):
        weight.grad = None
        loss = (weight * x * torch.view_as_real(held * 1).sum(-1)).sum()
        loss.backward()
        return loss.detach()

    return Training(step, lambda: setattr(held, "data", torch.full((3,), 1 + 2j).conj()), holds=lambda: [weight])


def with_names(case):
    """A case for torch up to 2.14, where dims may have names."""
    return tensors(case) if hasattr(torch.Tensor, "rename_") else case


@with_names
def a_tensor_gets_names():
    return of_a_held_tensor(lambda held: held.rename_("C"), lambda held: 2.0 if held.names[0] is None else 3.0)


@with_names
def a_tensor_that_an_op_takes_gets_names():
    return of_a_held_tensor(lambda held: held.rename_("C"), lambda held: (held * 2).rename(None) if held.has_names() else held * 3)


@with_names
def a_momentum_gets_names():
    """The optimizer refuses it, and nothing else has changed."""
    model, optimizer, step = regression()

    def named():
        optimizer.state[model.weight]["momentum_buffer"].rename_("O", "I")

    def unnamed():
        optimizer.state[model.weight]["momentum_buffer"].rename_(None)

    return Training(step, {20: named, 25: unnamed}, holds=lambda: [model, optimizer])


@tensors
def parameters_come_to_share_memory():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    first, second = model[0].weight, model[1].weight

    def step(x):
        optimizer.zero_grad()
        loss = model(x / 10).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def overlap():
        whole = torch.zeros(12)
        whole[:9] = first.data.flatten()
        first.data, second.data = whole[:9].view(3, 3), whole[3:].view(3, 3)

    return Training(step, {20: lambda: setattr(first, "data", second.data),
                           26: lambda: setattr(first, "data", second.data.clone()), 30: overlap},
                    holds=lambda: [model, optimizer])


@tensors
def a_gradient_comes_to_share_memory():
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    weight = model.weight

    def step(x):
        loss = model(x / 100).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, {
        20: lambda: setattr(weight, "grad", weight.data), 24: lambda: setattr(weight, "grad", None),
        28: lambda: setattr(weight, "grad", optimizer.state[weight]["momentum_buffer"])},
        holds=lambda: [model, optimizer])


@tensors
def a_parameter_becomes_a_negative_view():
    model, optimizer, step = regression()
    return Training(step, lambda: setattr(model.weight, "data", torch._neg_view(model.weight.data)),
                    holds=lambda: [model, optimizer])


@tensors
def an_optimizer_gets_its_state_and_its_groups_anew():
    model, optimizer, step = regression()

    def groups(**changes):
        return [dict(group, **changes) for group in optimizer.param_groups]

    return Training(step, {
        20: lambda: optimizer.__setstate__({"state": collections.defaultdict(dict),
                                            "param_groups": optimizer.param_groups}),
        28: lambda: optimizer.__setstate__({"param_groups": groups(lr=0.02)}),
        34: lambda: setattr(optimizer, "param_groups", groups(lr=0.03, momentum=0.5)),
        38: lambda: optimizer.param_groups[0].update(nesterov=True),
        41: lambda: optimizer.param_groups[0].update(momentum=0, nesterov=False)}, holds=lambda: [model, optimizer])


@tensors
def a_batch_norm_loses_its_statistics_and_gets_others():
    norm = nn.BatchNorm1d(3)

    def lost():
        norm.running_mean = norm.running_var = None

    def others():
        norm.register_buffer("running_mean", torch.zeros(3))
        norm.register_buffer("running_var", torch.ones(3))
        norm.momentum, norm.track_running_stats = 0.1, True

    return Training(lambda x: norm(x).detach(), {
        20: lambda: setattr(norm, "momentum", 1), 24: lambda: setattr(norm, "track_running_stats", False),
        28: lost, 32: others}, holds=lambda: [norm],
        batch=lambda i, _: (torch.arange(12.0).view(4, 3) * (i % 5 + 1),))


@tensors.each
def test_tensors_and_optimizers_are_rearranged(case):
    check(case)

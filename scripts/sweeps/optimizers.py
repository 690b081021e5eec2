"""Every configuration of OptimizerInfo, which trains a small network under a schedule.

After half of the calls the program loads the optimizer's own state_dict.
"""
import copy

from sweeps.comparing import Plan, Program, seed

VARIANTS = ("train",)


def load():
    from torch.testing._internal.common_optimizers import optim_db

    return {info.optim_cls.__name__: info for info in optim_db}


def configurations(info):
    import torch
    from torch.testing._internal.common_optimizers import (
        _get_optim_inputs_including_global_cliquey_kwargs)

    return _get_optim_inputs_including_global_cliquey_kwargs("cpu", torch.float32, info)


def cases(info, samples):
    """All of them: `samples` is of what has no end."""
    return [("train", sample) for sample in range(len(configurations(info)))]


def network(info):
    import torch
    from torch import nn

    seed(0)
    if info.only_supports_sparse_grads:
        return nn.Embedding(8, 3, sparse=True), lambda x: (x.abs() * 7).clamp(0, 7).long()[:, 0]
    bias = info.optim_cls.__name__ != "Muon"  # takes matrices alone
    return nn.Sequential(nn.Linear(4, 8, bias), nn.Tanh(), nn.Linear(8, 3, bias)), torch.Tensor.clone


def trained(info, kwargs, reload_behind):
    import torch
    from torch.utils._pytree import tree_leaves

    model, given = network(info)
    optimizer = info.optim_cls(model.parameters(), **copy.deepcopy(kwargs))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def loss_of(x, y):
        optimizer.zero_grad()
        loss = (model(given(x)) - y).pow(2).mean()
        loss.backward()
        return loss

    def step(x, y):
        if info.step_requires_closure:
            return optimizer.step(lambda: loss_of(x, y)).detach()
        loss = loss_of(x, y)
        optimizer.step()
        return loss.detach()

    def held():
        gradients = [p.grad for p in model.parameters()]
        return [*model.parameters(), *gradients, *tree_leaves(optimizer.state_dict())]

    def after(number):
        schedule.step()
        if number == reload_behind:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    return Program(step, held, after)


def plan(info, variant, sample, calls):
    import torch

    kwargs = configurations(info)[sample].kwargs
    draws = []
    for number in range(calls):
        seed(number)
        draws.append([torch.randn(5, 4), torch.randn(5, 3)])
    return Plan(lambda: trained(info, kwargs, calls // 2), draws, steps=2)

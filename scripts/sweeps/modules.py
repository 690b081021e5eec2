"""Every module of ModuleInfo, which is trained: forward, backward and an update.

The first float argument is scaled by a parameter, so that modules without parameters have a
backward, too.
"""
import copy

from sweeps.comparing import Plan, Program, draws_of, filled, is_numeric, seed, template_of

VARIANTS = ("train", "eval")


def load():
    import torch
    from torch.testing._internal.common_modules import module_db

    return {info.formatted_name: info for info in module_db if torch.float32 in info.dtypes}


def inputs_of(info, variant, number):
    import torch

    seed(number)
    return info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False,
                                   training=variant == "train")


def cases(info, samples):
    variants = VARIANTS if info.train_and_eval_differ else VARIANTS[:1]
    return [(variant, sample) for variant in variants
            for sample in range(min(samples, len(inputs_of(info, variant, 0))))]


def module_of(info, variant, sample):
    given = inputs_of(info, variant, 0)[sample].constructor_input
    seed(0)
    module = info.module_cls(*copy.deepcopy(given.args), **copy.deepcopy(given.kwargs))
    return module.float().train(variant == "train")


def trained(module, template, scaled):
    """A training of `module`; `scaled` is which of the tensors the scale goes to."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map_only

    scale = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([scale, *module.parameters()], lr=1e-3, momentum=0.9)

    def step(*tensors):
        optimizer.zero_grad()
        args, kwargs = filled(template, [t * scale if i == scaled else t
                                         for i, t in enumerate(tensors)])
        result = module(*args, **kwargs)
        ends = [r for r in tree_leaves(result) if isinstance(r, torch.Tensor) and r.requires_grad]
        loss = sum((e.abs() if e.is_complex() else e).pow(2).mean() for e in ends)
        loss.backward()
        optimizer.step()
        return tree_map_only(torch.Tensor, torch.Tensor.detach, result), loss.detach()

    def held():
        parameters = [scale, *module.parameters()]
        momenta = [optimizer.state[p].get("momentum_buffer") for p in parameters]
        return [*parameters, *module.buffers(), *(p.grad for p in parameters), *momenta]

    return Program(step, held)


def plan(info, variant, sample, calls):
    from torch.utils._pytree import tree_flatten

    def drawn(number):
        inputs = inputs_of(info, variant, number)
        if len(inputs) <= sample:
            return None
        given = inputs[sample].forward_input
        return tree_flatten((tuple(given.args), dict(given.kwargs)))

    base, structure, where, draws = draws_of(drawn, calls)
    template = template_of(base, structure, where)
    scaled = next((i for i, leaf in enumerate(where) if is_numeric(base[leaf])), None)

    def make():
        return trained(module_of(info, variant, sample), template, scaled)
    return Plan(make, draws, steps=2)

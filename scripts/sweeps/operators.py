"""Every operator of OpInfo that has float32 on the CPU, alone and with a backward."""
from itertools import islice

from sweeps.comparing import (NoSample, Plan, Program, draws_of, filled, is_numeric, seed,
                              template_of)

VARIANTS = ("forward", "backward")


def load():
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    return {op.formatted_name: op for op in op_db if torch.float32 in op.supported_dtypes("cpu")}


def draw(operator, count, number, requires_grad=False):
    """The first samples as (leaves, structure), with the values that seed `number` gives."""
    import torch
    from torch.utils._pytree import tree_flatten

    seed(number)
    samples = operator.sample_inputs("cpu", torch.float32, requires_grad=requires_grad,
                                     set_seed=False)
    return [tree_flatten((s.input, tuple(s.args), dict(s.kwargs))) for s in islice(samples, count)]


def chosen(operator, count):
    """The first `count` samples with a float value, by number; one of them with several, if any.

    Many operators begin with empty tensors, which compare equal whatever a plan does.
    """
    def values(tensor):
        """Their number: none, one, or at least two."""
        return min(tensor.numel(), 1) + bool((tensor != tensor.flatten()[:1].sum()).any())

    samples = draw(operator, 100, 0)
    most = [max((values(leaf) for leaf in leaves if is_numeric(leaf)), default=0)
            for leaves, _ in samples]
    found = sorted(range(len(samples)), key=lambda i: most[i] == 0)[:count]
    if found and max(most[i] for i in found) < 2 == max(most):
        found[-1] = most.index(2)
    return sorted(found)


def cases(operator, samples):
    variants = VARIANTS if operator.supports_autograd else VARIANTS[:1]
    found = chosen(operator, samples)
    return [(variant, sample) for variant in variants for sample in found]


def forward_step(function, template):
    def step(*tensors):
        value, args, kwargs = filled(template, tensors)
        return function(value, *args, **kwargs)
    return step


def backward_step(function, template, differentiable):
    import torch
    from torch.utils._pytree import tree_leaves, tree_map_only

    def step(*tensors):
        leaves = [t.detach().requires_grad_() if d else t for t, d in zip(tensors, differentiable)]
        value, args, kwargs = filled(template, leaves)
        result = function(value, *args, **kwargs)
        ends = [r for r in tree_leaves(result) if isinstance(r, torch.Tensor) and r.requires_grad]
        if not ends:
            raise NoSample("no result that requires a gradient")
        loss = sum(e.real.sum() + e.imag.sum() if e.is_complex() else e.sum() for e in ends)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        gradients = torch.autograd.grad(loss, wanted, allow_unused=True)
        return tree_map_only(torch.Tensor, torch.Tensor.detach, result), gradients
    return step


def differentiable_of(operator, sample, base, where):
    flagged = draw(operator, sample + 1, 0, requires_grad=True)[sample:]
    if flagged and len(flagged[0][0]) == len(base):
        return [getattr(flagged[0][0][i], "requires_grad", False) for i in where]
    return [is_numeric(base[i]) for i in where]


def plan(operator, variant, sample, calls):
    def drawn(number):
        samples = draw(operator, sample + 1, number)
        return samples[sample] if len(samples) > sample else None

    base, structure, where, draws = draws_of(drawn, calls)
    template = template_of(base, structure, where)
    if variant == "forward":
        function = forward_step(operator.op, template)
    else:
        differentiable = differentiable_of(operator, sample, base, where)
        if not any(differentiable):
            raise NoSample("no argument that requires a gradient")
        function = backward_step(operator.op, template, differentiable)
    return Plan(lambda: Program(function), draws, steps=1)

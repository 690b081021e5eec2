"""Guards of hooks: of modules, tensors and optimizers, and of all of them."""
import contextlib
import functools
import types

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import steptape
import twins
from guarded import check, classifier, named, set_cell


def on_input(factor):
    return lambda module, args: (args[0] * factor,)


def on_input_kwargs(factor):
    return lambda module, args, kwargs: ((args[0] * factor,), kwargs)


def on_output(factor):
    return lambda module, args, output: output * factor


def on_output_kwargs(factor):
    return lambda module, args, kwargs, output: output * factor


def on_gradient(factor):
    return lambda module, inputs, outputs: tuple(
        None if g is None else g * factor for g in inputs)


def on_output_gradient(factor):
    return lambda module, outputs: (outputs[0] * factor,)


MODULE_HOOKS = {  # name: (registers a hook on a module, makes a hook, the dictionary it lands in)
    "forward_pre": (nn.Module.register_forward_pre_hook, on_input, "_forward_pre_hooks"),
    "forward_pre_with_kwargs": (
        functools.partial(nn.Module.register_forward_pre_hook, with_kwargs=True),
        on_input_kwargs, "_forward_pre_hooks"),
    "forward": (nn.Module.register_forward_hook, on_output, "_forward_hooks"),
    "forward_with_kwargs": (
        functools.partial(nn.Module.register_forward_hook, with_kwargs=True),
        on_output_kwargs, "_forward_hooks"),
    "forward_always_called": (
        functools.partial(nn.Module.register_forward_hook, always_call=True),
        on_output, "_forward_hooks"),
    "full_backward": (nn.Module.register_full_backward_hook, on_gradient, "_backward_hooks"),
    "full_backward_pre": (
        nn.Module.register_full_backward_pre_hook, on_output_gradient, "_backward_pre_hooks"),
}


def hook_registered(kind, factor=0.5):
    register, make, _ = MODULE_HOOKS[kind]

    def edit(program):
        program.handle = register(program.model.head, make(factor))
    return edit


@pytest.mark.parametrize("kind", MODULE_HOOKS)
def test_a_module_hook_is_added(kind):
    check(classifier, hook_registered(kind))


@pytest.mark.parametrize("kind", MODULE_HOOKS)
def test_a_module_hook_is_removed(kind):
    check(functools.partial(classifier, prepare=hook_registered(kind)),
          lambda p: p.handle.remove())


@pytest.mark.parametrize("kind", MODULE_HOOKS)
def test_a_module_hook_is_replaced_by_another(kind):
    def replace(program):
        program.handle.remove()
        hook_registered(kind, 0.25)(program)

    check(functools.partial(classifier, prepare=hook_registered(kind)), replace)


@pytest.mark.parametrize("kind", MODULE_HOOKS)
def test_a_module_hook_is_replaced_under_the_same_key(kind):
    _, make, dictionary = MODULE_HOOKS[kind]

    def replace(program):
        getattr(program.model.head, dictionary)[program.handle.id] = make(0.25)

    check(functools.partial(classifier, prepare=hook_registered(kind)), replace)


def test_two_module_hooks_change_places():
    def prepare(program):
        program.model.head.register_forward_hook(lambda m, a, out: out * 0.5)
        program.model.head.register_forward_hook(lambda m, a, out: out + 1)

    def swap(program):
        hooks = program.model.head._forward_hooks
        hooks.move_to_end(next(iter(hooks)))

    check(functools.partial(classifier, prepare=prepare), swap)


def test_a_factor_in_the_cell_of_a_hook_changes():
    def prepare(program):
        program.hook = on_output(0.5)
        program.model.head.register_forward_hook(program.hook)

    check(functools.partial(classifier, prepare=prepare),
          lambda p: set_cell(p.hook, "factor", 0.25))


@named({
    "state_dict": lambda m: m.register_state_dict_post_hook(lambda *a: None),
    "state_dict_pre": lambda m: m.register_state_dict_pre_hook(lambda *a: None),
    "load_state_dict_pre": lambda m: m.register_load_state_dict_pre_hook(lambda *a: None),
    "load_state_dict_post": lambda m: m.register_load_state_dict_post_hook(lambda *a: None),
})
def test_a_hook_of_the_state_dictionary_changes_nothing(case):
    check(classifier, lambda p: case(p.model.head), matters=False)


@contextlib.contextmanager
def registered(register, hook):
    handle = register(hook)
    try:
        yield
    finally:
        handle.remove()


def on_norms(hook):
    return lambda module, *args: hook(module, *args) if isinstance(module, nn.LayerNorm) else None


ALL_MODULES = torch.nn.modules.module


@named({
    "forward_pre": (ALL_MODULES.register_module_forward_pre_hook, on_norms(on_input(0.5))),
    "forward": (ALL_MODULES.register_module_forward_hook, on_norms(on_output(0.5))),
    "forward_with_kwargs": (
        functools.partial(ALL_MODULES.register_module_forward_hook, with_kwargs=True),
        on_norms(on_output_kwargs(0.5))),
    "forward_always_called": (
        functools.partial(ALL_MODULES.register_module_forward_hook, always_call=True),
        on_norms(on_output(0.5))),
    "full_backward": (
        ALL_MODULES.register_module_full_backward_hook, on_norms(on_gradient(0.5))),
    "full_backward_pre": (
        ALL_MODULES.register_module_full_backward_pre_hook, on_norms(on_output_gradient(0.5))),
})
@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_a_hook_of_all_modules_is_added(case):
    # Registered anew around each call: whether a later handle of the same hook may replay is open.
    check(classifier, around=lambda p: registered(*case), share=None)


def test_a_hook_of_all_modules_is_replaced_by_another():
    def halving(factor):
        hook = on_norms(on_output(factor))
        return lambda p: registered(ALL_MODULES.register_module_forward_hook, hook)

    check(classifier, before=halving(0.5), around=halving(0.25), begins=False, share=None)


def scaled(factor):
    return lambda gradient: gradient * factor


def scaled_in_place(factor):
    def hook(parameter):
        parameter.grad.mul_(factor)
    return hook


TENSOR_HOOKS = {
    "gradient": (torch.Tensor.register_hook, scaled, "_backward_hooks"),
    "accumulated": (
        torch.Tensor.register_post_accumulate_grad_hook, scaled_in_place,
        "_post_accumulate_grad_hooks"),
}


def tensor_hook_registered(kind, factor=0.5):
    register, make, _ = TENSOR_HOOKS[kind]

    def edit(program):
        program.handle = register(program.model.head.weight, make(factor))
    return edit


@pytest.mark.parametrize("kind", TENSOR_HOOKS)
def test_a_tensor_hook_is_added(kind):
    check(classifier, tensor_hook_registered(kind))


@pytest.mark.parametrize("kind", TENSOR_HOOKS)
def test_a_tensor_hook_is_removed(kind):
    check(functools.partial(classifier, prepare=tensor_hook_registered(kind)),
          lambda p: p.handle.remove())


@pytest.mark.parametrize("kind", TENSOR_HOOKS)
def test_a_tensor_hook_is_replaced_by_another(kind):
    def replace(program):
        program.handle.remove()
        tensor_hook_registered(kind, 0.25)(program)

    check(functools.partial(classifier, prepare=tensor_hook_registered(kind)), replace)


@pytest.mark.parametrize("kind", TENSOR_HOOKS)
def test_a_tensor_hook_is_replaced_under_the_same_key(kind):
    _, make, dictionary = TENSOR_HOOKS[kind]

    def replace(program):
        getattr(program.model.head.weight, dictionary)[program.handle.id] = make(0.25)

    check(functools.partial(classifier, prepare=tensor_hook_registered(kind)), replace)


def in_the_cell(w):
    return lambda x: (x * w).sum()


def of_a_list(w):
    held = [w]
    return lambda x: (x * held[0]).sum()


def of_a_module(w):
    model = nn.Module()
    model.w = w  # a plain tensor, or a parameter
    return lambda x: (x * model.w).sum()


LEAF_HOOKS = {
    "gradient": lambda w, factor: w.register_hook(lambda g: g * factor),
    "accumulated": lambda w, factor: w.register_post_accumulate_grad_hook(scaled_in_place(factor)),
    "several": lambda w, factor: torch.autograd.graph.register_multi_grad_hook([w], lambda gradients: gradients[0].mul_(factor)),
}
LEAF_CHANGES = {
    "removed": lambda w, handle, add: handle.remove(),
    "replaced": lambda w, handle, add: (handle.remove(), add(w, 7.0)),
    "joined": lambda w, handle, add: add(w, 7.0),
}


@pytest.mark.parametrize("change", LEAF_CHANGES.values(), ids=LEAF_CHANGES)
@pytest.mark.parametrize("add", LEAF_HOOKS.values(), ids=LEAF_HOOKS)
@pytest.mark.parametrize("make", (torch.ones, lambda n: nn.Parameter(torch.ones(n))), ids=("leaf", "parameter"))
@pytest.mark.parametrize("optimized", (False, True), ids=("alone", "optimized"))
@pytest.mark.parametrize("home", (in_the_cell, of_a_list, of_a_module), ids=lambda home: home.__name__)
def test_a_hook_of_a_leaf_wherever_it_is(home, optimized, make, add, change):
    """Not only of parameters of modules."""
    def play(wrap):
        w = make(2).requires_grad_()
        loss_of, handle = home(w), add(w, 2.0)
        optimizer = torch.optim.SGD([w if optimized else nn.Parameter(torch.ones(1))], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            w.grad = None
            loss = loss_of(x)
            loss.backward()
            optimizer.step()
            return loss

        step, seen = wrap(step), []
        for i in range(20):
            if i == 10:
                change(w, handle, add)
            seen.append((step(torch.ones(2)).item(), w.grad.tolist(), w.tolist()))
        return seen, step

    expected, _ = play(lambda step: step)
    found, step = play(lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert found == expected, step.explain()
    assert step.stats["replayed"] >= 8, step.explain()


def on_step_begin(factor):
    def hook(optimizer, args, kwargs):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)
    return hook


def on_step_end(factor):
    def hook(optimizer, args, kwargs):
        with torch.no_grad():
            for parameter in optimizer.param_groups[0]["params"]:
                parameter.mul_(factor)
    return hook


OPTIMIZER_HOOKS = {
    "step_pre": (torch.optim.Optimizer.register_step_pre_hook, on_step_begin,
                 "_optimizer_step_pre_hooks"),
    "step_post": (torch.optim.Optimizer.register_step_post_hook, on_step_end,
                  "_optimizer_step_post_hooks"),
}


def optimizer_hook_registered(kind, factor=0.5):
    register, make, _ = OPTIMIZER_HOOKS[kind]

    def edit(program):
        program.handle = register(program.optimizer, make(factor))
    return edit


@pytest.mark.parametrize("kind", OPTIMIZER_HOOKS)
def test_an_optimizer_hook_is_added(kind):
    # A hook that writes parameters is not a part of any optimizer: the new variant may be refused.
    check(classifier, optimizer_hook_registered(kind), share=None)


@pytest.mark.parametrize("kind", OPTIMIZER_HOOKS)
def test_an_optimizer_hook_is_removed(kind):
    check(functools.partial(classifier, prepare=optimizer_hook_registered(kind)),
          lambda p: p.handle.remove(), begins=False, share=None)


@pytest.mark.parametrize("kind", OPTIMIZER_HOOKS)
def test_an_optimizer_hook_is_replaced_under_the_same_key(kind):
    _, make, dictionary = OPTIMIZER_HOOKS[kind]

    def replace(program):
        getattr(program.optimizer, dictionary)[program.handle.id] = make(0.25)

    check(functools.partial(classifier, prepare=optimizer_hook_registered(kind)), replace,
          begins=False, share=None)


@named({
    "step_pre": (register_optimizer_step_pre_hook, on_step_begin(0.5)),
    "step_post": (register_optimizer_step_post_hook, on_step_end(0.5)),
})
def test_a_hook_of_all_optimizers_is_added(case):
    check(classifier, around=lambda p: registered(*case), share=None)


@named({
    "state_dict_pre": lambda o: o.register_state_dict_pre_hook(lambda *a: None),
    "state_dict_post": lambda o: o.register_state_dict_post_hook(lambda *a: None),
    "load_state_dict_pre": lambda o: o.register_load_state_dict_pre_hook(lambda *a: None),
    "load_state_dict_post": lambda o: o.register_load_state_dict_post_hook(lambda *a: None),
})
def test_a_state_hook_of_an_optimizer_changes_nothing(case):
    check(classifier, lambda p: case(p.optimizer), matters=False)


def grown(gradient, by=1.0):
    return gradient * by


def holder(**attributes):
    held = types.SimpleNamespace(w=nn.Parameter(torch.ones(3)), grads=[], seen=set(), newest=None, by=functools.partial(grown, by=2.0),
                                 doubled=functools.partial(torch.mul, other=2.0), config=types.SimpleNamespace(by=2.0), table={"a": 2.0})
    held.layer = nn.Linear(3, 3)
    vars(held).update(attributes)
    return held


def of_the_leaf(held, x):
    ((x * held.w) * x).sum().backward()
    gradient, held.w.grad = held.w.grad, None
    return gradient


def of_a_parameter(held, x):
    """The layer's parameter, whose forward does not run."""
    F.linear(x, held.layer.weight).sum().backward()
    gradient, held.layer.weight.grad = held.layer.weight.grad, None
    return gradient


def of_the_layer(held, x):
    with torch.no_grad():
        return held.layer(x)


def forwarded(module, given, result, by=1.0):
    return result * by


def keyword(of, name, value):
    return lambda held, i: getattr(held, of).keywords.__setitem__(name, value + i)


def of_attention(held, x):
    """torch's code uses the weights of the module inside, and calls it not."""
    y = x.repeat(2, 1, 1)[..., :2]
    held.attention(y, y, y, need_weights=False)[0].sum().backward()
    gradient = held.attention.out_proj.weight.grad.clone()
    held.attention.zero_grad()
    return gradient


def of_a_call(held, x):
    weights = dict(held.layer.named_parameters())
    torch.func.functional_call(held.layer, weights, (x,)).sum().backward()
    gradient = held.layer.weight.grad.clone()
    held.layer.zero_grad()
    return gradient


def of_a_list(held, x):
    sum((x * w).sum() for w in held.weights).backward()
    gradients = [w.grad.clone() for w in held.weights]
    held.weights.zero_grad()
    return gradients[0]


HOOKS = {  # hooks that are code of C's, or lead to some: how they are registered, the step, what the program changes late
    "append": (lambda held: held.w.register_post_accumulate_grad_hook(held.grads.append), of_the_leaf, None),
    "add": (lambda held: held.w.register_post_accumulate_grad_hook(held.seen.add), of_the_leaf, lambda held, i: held.seen.clear()),
    "append_in_backward": (lambda held: held.w.register_hook(held.grads.append), of_the_leaf, None),
    "set_an_attribute": (lambda held: held.w.register_post_accumulate_grad_hook(functools.partial(setattr, held, "newest")), of_the_leaf,
                         lambda held, i: setattr(held, "newest", None)),
    "keyword": (lambda held: held.w.register_hook(held.by), of_the_leaf, keyword("by", "by", 3.0)),
    "keyword_of_torchs": (lambda held: held.w.register_hook(held.doubled), of_the_leaf, keyword("doubled", "other", 3.0)),
    "keyword_of_a_parameter": (lambda held: held.layer.weight.register_hook(held.by), of_a_parameter, keyword("by", "by", 3.0)),
    "append_of_a_parameter": (lambda held: held.layer.weight.register_post_accumulate_grad_hook(held.grads.append), of_a_parameter, None),
    "of_an_inner_module": (lambda held: vars(held).update(attention=nn.MultiheadAttention(2, 1, batch_first=True))
                           or held.attention.out_proj.weight.register_post_accumulate_grad_hook(held.grads.append), of_attention, None),
    "of_a_functional_call": (lambda held: held.layer.weight.register_post_accumulate_grad_hook(held.grads.append), of_a_call, None),
    "of_a_list": (lambda held: vars(held).update(weights=nn.ParameterList(nn.Parameter(torch.ones(3)) for _ in range(2)))
                  or held.weights[1].register_post_accumulate_grad_hook(held.grads.append), of_a_list, None),
    "for_all_modules": (lambda held: vars(held).update(of_all=functools.partial(forwarded, by=2.0)) or vars(held).update(
        handle=nn.modules.module.register_module_forward_hook(held.of_all)), of_the_layer, keyword("of_all", "by", 3.0)),
    "forward_of_a_dict": (lambda held: setattr(held.layer, "forward", held.table.get),
                          lambda held, x: x * held.layer("a"), lambda held, i: held.table.update(a=3.0 + i)),
    "forward_by_a_partial": (lambda held: setattr(held.layer, "forward", functools.partial(getattr, held.config)),
                             lambda held, x: x * held.layer("by"), lambda held, i: setattr(held.config, "by", 3.0 + i)),
    "late": (None, of_the_leaf, lambda held, i: held.w.register_post_accumulate_grad_hook(held.grads.append)),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_that_no_instruction_of_pythons_shows(hook):
    register, body, change = HOOKS[hook]

    def play(wrap):
        torch.manual_seed(0)
        held = holder()
        if register is not None:
            register(held)
        step, seen = wrap(lambda x: body(held, x)), []
        try:
            for i in range(20):
                if change is not None and i in (9, 13):
                    change(held, i)
                result = step(torch.full((3,), i + 1.0))
                seen.append((twins.bits(result), len(held.grads), len(held.seen), None if held.newest is None else twins.bits(held.newest)))
        finally:
            if hasattr(held, "handle"):
                held.handle.remove()
        return [seen, step]
    twins.played_alike(play)

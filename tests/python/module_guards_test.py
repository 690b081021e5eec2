"""Guards of modules: their code, torch's own, whether they train, and which modules stand in them."""
import contextlib
import functools
import types

import torch
import torch.nn as nn
import torch.nn.functional as F

from guarded import EDIT, Net, check, classifier, named


@named({
    "model": lambda p: p.model.eval(),
    "dropout": lambda p: p.model.body[3].eval(),
    "batch_norm": lambda p: p.model.body[1].eval(),
    "flag_set_by_hand": lambda p: setattr(p.model.body[3], "training", False),
})
def test_a_module_goes_to_evaluation(case):
    check(classifier, case)


def test_train_and_eval_take_turns():
    check(classifier, {
        EDIT: lambda p: p.model.eval(),
        EDIT + 10: lambda p: p.model.train(),
        EDIT + 20: lambda p: p.model.eval(),
    })


def halved(function):
    return lambda *args: function(*args) * 0.5


def swap_class(program):
    class Halved(type(program.model)):
        def forward(self, x):
            return super().forward(x) * 0.5

    program.model.__class__ = Halved


def replace_call(program):
    type(program.model).__call__ = lambda self, x: nn.Module.__call__(self, x) * 0.5


def replace_call_again(program):
    type(program.model).__call__ = lambda self, x: nn.Module.__call__(self, x) * 0.25


@named({
    "class_swapped": swap_class,
    "instance_forward": lambda p: setattr(p.model, "forward", halved(p.model.forward)),
    "submodule_forward": lambda p: setattr(p.model.head, "forward", halved(p.model.head.forward)),
    "class_forward": lambda p: setattr(type(p.model), "forward", halved(Net.forward)),
    "class_call": replace_call,
    "method_of_the_class": lambda p: setattr(type(p.model), "shaped", halved(Net.shaped)),
    "method_of_the_instance": lambda p: setattr(p.model, "shaped", halved(p.model.shaped)),
    "property_of_the_class": lambda p: setattr(type(p.model), "sharpness", property(lambda m: 0.5)),
})
def test_code_of_a_module_is_replaced(case):
    check(classifier, case)


@named({
    "instance_forward": (
        lambda p: setattr(p.model, "forward", halved(p.model.forward)),
        lambda p: setattr(p.model, "forward", types.MethodType(Net.forward, p.model)),
    ),
    "class_forward": (
        lambda p: setattr(type(p.model), "forward", halved(Net.forward)),
        lambda p: setattr(type(p.model), "forward", Net.forward),
    ),
    "class_call": (replace_call, replace_call_again),
})
def test_replaced_code_is_replaced_again(case):
    first, second = case
    check(functools.partial(classifier, prepare=first), second)


@contextlib.contextmanager
def attribute(owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@named({
    "forward_of_linear": (nn.Linear, "forward", nn.Linear.forward),
    "forward_of_dropout": (nn.Dropout, "forward", nn.Dropout.forward),
    "function_that_a_module_of_torch_calls": (F, "layer_norm", F.layer_norm),
    "function_that_the_step_calls": (F, "cross_entropy", F.cross_entropy),
    "zero_grad": (torch.optim.Optimizer, "zero_grad", lambda self, set_to_none=True: None),
    "step_of_the_optimizer": (torch.optim.SGD, "step", lambda self, closure=None: None),
})
def test_code_of_torch_is_patched(case):
    owner, name, function = case
    patched = halved(function) if function is getattr(owner, name) else function
    # Whether a patched function replays is not the point: it must not be overlooked.
    check(classifier, around=lambda p: attribute(owner, name, patched), share=None)


def swap_submodules(program):
    modules = program.model.body._modules
    modules["2"], modules["4"] = modules["4"], modules["2"]


def delete_submodule(program):
    del program.model.body[2]


@named({
    "replaced": lambda p: setattr(p.model, "head", nn.Linear(8, 4)),
    "replaced_in_a_container": lambda p: p.model.body.__setitem__(2, nn.ReLU()),
    "replaced_by_its_twin": lambda p: p.model.body.__setitem__(3, nn.Dropout(0.5)),
    "appended_to_a_sequential": lambda p: p.model.body.append(nn.Tanh()),
    "inserted": lambda p: p.model.body.insert(0, nn.Tanh()),
    "appended_to_a_list": lambda p: p.model.extra.append(nn.Sigmoid()),
    "appended_with_parameters": lambda p: p.model.extra.append(nn.Linear(8, 8)),
    "deleted": delete_submodule,
    "order_changed": swap_submodules,
})
def test_a_submodule_changes(case):
    check(classifier, case)


def test_a_parametrization_is_registered():
    class Halved(nn.Module):
        def forward(self, weight):
            return weight * 0.5

    def register(program):
        nn.utils.parametrize.register_parametrization(program.model.head, "weight", Halved())

    check(classifier, register)

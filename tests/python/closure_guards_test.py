"""Guards of what functions reach: variables of closures, defaults, code and globals."""
import functools
import types

import torch
import torch.nn as nn
import torch.nn.functional as F

from classification import Program
from guarded import check, get_cell, named, set_cell


class Helper:
    """An object of the user's own that the step calls."""

    strength = 1.0

    def __init__(self, factor=1.0):
        self.factor = factor

    def __call__(self, x):
        return x * self.factor * self.strength

    def method(self, x):
        return x * self.factor


def closing():
    """A step that reads its enclosing function's variables, and other functions' through them."""

    class OwnHelper(Helper):
        """A class of this twin alone."""

    model, spare = nn.Linear(6, 4), nn.Linear(6, 4)
    optimizer = torch.optim.SGD([*model.parameters(), *spare.parameters()], lr=0.05, momentum=0.9)
    factor, rounds, kind, flag, maybe = 1.0, 1, "plain", False, None
    shift, levels = torch.zeros(4), [1.0]
    settings = types.ModuleType("settings")
    settings.gain = 1.0
    helper = OwnHelper()
    method = OwnHelper().method
    partial = functools.partial(torch.mul, other=1.0)
    inner_factor = 1.0

    def scaled_inside(x, by=1.0, *, plus=0.0):
        return x * inner_factor * by * (1 + plus)

    def scaled_outside(x):
        return scaled_inside(x)

    def train(x, y, scale=1.0, *, offset=0.0):
        optimizer.zero_grad()
        out = model(x)
        for _ in range(rounds):
            out = out * 0.9 * factor + shift
        if kind == "strong" or flag:
            out = out * 2
        if maybe is not None:
            out = out * maybe
        for level in levels:
            out = out * level
        out = method(helper(out)) * settings.gain
        out = partial(scaled_outside(out)) * scale * (1 + offset)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Program(step=train, model=nn.ModuleList([model, spare]), optimizer=optimizer,
                   inside=scaled_inside)


def cell(**values):
    return lambda p: [set_cell(p.step, name, value) for name, value in values.items()]


def other_code(program):
    def scaled_inside(x, by=1.0, *, plus=0.0):
        return x * inner_factor * by * 0.5

    inner_factor = None
    program.inside.__code__ = scaled_inside.__code__


CELL_EDITS = {
    "float": cell(factor=0.5),
    "int": cell(rounds=2),
    "str": cell(kind="strong"),
    "bool": cell(flag=True),
    "none": cell(maybe=0.5),
    "number_becomes_a_tensor": lambda p: set_cell(p.step, "factor", torch.full((4,), 0.5)),
    "tensor": lambda p: set_cell(p.step, "shift", torch.arange(4.0)),
    "tensor_edited_in_place": lambda p: get_cell(p.step, "shift").copy_(torch.arange(4.0)),
    "tensor_of_another_dtype": lambda p: set_cell(p.step, "shift", torch.arange(4).double()),
    "tensor_resized": lambda p: set_cell(p.step, "shift", torch.arange(8.0).view(8, 1)),
    "list": lambda p: get_cell(p.step, "levels").append(0.5),
    "attribute_of_a_module": lambda p: setattr(get_cell(p.step, "settings"), "gain", 0.5),
    "attribute_of_an_object": lambda p: setattr(get_cell(p.step, "helper"), "factor", 0.5),
    "attribute_of_its_class": lambda p: setattr(
        type(get_cell(p.step, "helper")), "strength", 0.5),
    "object": lambda p: set_cell(p.step, "helper", Helper(0.5)),
    "object_of_a_method": lambda p: setattr(get_cell(p.step, "method").__self__, "factor", 0.5),
    "partial": lambda p: set_cell(p.step, "partial", functools.partial(torch.mul, other=0.5)),
    "function": lambda p: set_cell(p.step, "scaled_outside", lambda x: x * 0.5),
    "function_behind_a_function": lambda p: set_cell(
        get_cell(p.step, "scaled_outside"), "scaled_inside", lambda x: x * 0.5),
    "cell_of_a_function_behind_a_function": lambda p: set_cell(p.inside, "inner_factor", 0.5),
    "default_of_a_function_behind_a_function": lambda p: setattr(p.inside, "__defaults__", (0.5,)),
    "keyword_default_of_a_function_behind_a_function": lambda p: setattr(
        p.inside, "__kwdefaults__", {"plus": 0.5}),
    "code_of_a_function_behind_a_function": other_code,
    "default": lambda p: setattr(p.step, "__defaults__", (0.5,)),
    "keyword_default": lambda p: setattr(p.step, "__kwdefaults__", {"offset": 0.5}),
    "entry_of_the_keyword_defaults": lambda p: p.step.__kwdefaults__.update(offset=0.5),
    "model": lambda p: set_cell(p.step, "model", p.model[1]),
}


@named(CELL_EDITS)
def test_what_a_closure_holds_changes(case):
    # Another model in the variable is not the tracked one: the step may be refused from there on.
    check(closing, case, share=None if case is CELL_EDITS["model"] else 0.9)


@named({
    "float": lambda p: set_cell(p.step, "factor", float("1.0")),
    "str": lambda p: set_cell(p.step, "kind", "".join(["pl", "ain"])),
    "list": lambda p: set_cell(p.step, "levels", [1.0]),
})
def test_a_closure_that_holds_an_equal_value_replays(case):
    check(closing, {"each": case}, matters=False)


def test_a_closure_that_holds_another_tensor_in_each_call_replays():
    def exchange(program):
        set_cell(program.step, "shift", get_cell(program.step, "shift").view(4))

    check(closing, {"each": exchange}, matters=False, begins=False, share=0.5)


SCRIPT = """
import torch
import torch.nn.functional as F

GAIN = 1.0
ROUNDS = 1
MODE = "plain"
LEVELS = [1.0]
SHIFT = torch.zeros(4)

class Settings:
    gain = 1.0

settings = Settings()
model = torch.nn.Linear(6, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

def gained(x):
    return x * GAIN * Settings.gain

def shaped(x):
    for _ in range(ROUNDS):
        x = gained(x) * 0.9 + SHIFT
    return x * settings.gain * sum(LEVELS)

def train(x, y):
    optimizer.zero_grad()
    out = shaped(model(x))
    if MODE == "strong":
        out = out * 2
    loss = F.cross_entropy(out, y)
    loss.backward()
    optimizer.step()
    return loss.detach()
"""


def script():
    """A program at module level: each twin is a module of its own."""
    module = types.ModuleType("script")
    exec(compile(SCRIPT, "script.py", "exec"), vars(module))
    return Program(step=module.train, model=module.model, optimizer=module.optimizer,
                   module=module)


def module_level(name, value):
    return lambda p: setattr(p.module, name, value() if callable(value) else value)


@named({
    "str": module_level("MODE", "strong"),
    "float_behind_two_functions": module_level("GAIN", 0.5),
    "int_behind_a_function": module_level("ROUNDS", 2),
    "list": lambda p: p.module.LEVELS.append(0.5),
    "tensor": module_level("SHIFT", lambda: torch.arange(4.0)),
    "tensor_edited_in_place": lambda p: p.module.SHIFT.copy_(torch.arange(4.0)),
    "attribute_of_a_class": lambda p: setattr(p.module.Settings, "gain", 0.5),
    "attribute_of_an_object": lambda p: setattr(p.module.settings, "gain", 0.5),
    "function": lambda p: setattr(p.module, "gained", lambda x: x * 0.5),
    "builtin_shadowed": lambda p: setattr(p.module, "sum", lambda levels: 0.5),
})
def test_what_the_globals_hold_changes(case):
    check(script, case)


def test_a_global_that_holds_an_equal_value_replays():
    check(script, {"each": lambda p: setattr(p.module, "GAIN", float("1.0"))}, matters=False)


def test_a_global_nobody_reads_changes():
    check(script, {"each": lambda p: setattr(p.module, "UNREAD", object())}, matters=False)

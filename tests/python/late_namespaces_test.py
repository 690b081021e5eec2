"""Namespaces that are the program's though the object is the step's, places that a step puts something into and clears again, and classes
with compiled methods, which look at an object as they like."""
import copy
import ctypes
import operator
import types

import pytest
import torch
import torch.nn as nn

import steptape
import twins
from twins import codes_of

STEPS, LATE = 24, 12
compiled = ctypes.pythonapi.PyInstanceMethod_New  # a method without Python's code, as Cython and pybind11 make them
compiled.restype, compiled.argtypes = ctypes.py_object, [ctypes.py_object]


def run(text, change, wrap):
    """`text` makes `step(x)`, and `look()`, what it leaves."""
    names = {"torch": torch, "operator": operator, "types": types, "compiled": compiled}
    exec(text, names)
    step = wrap(names["step"])
    seen = []
    for i in range(STEPS):
        seen.append((step(torch.ones(2)).tolist(), repr(names["look"]())))
        if i == LATE:
            exec(change, names)
    return seen, step


def check(text, change, codes=(), replays=True):
    expected, _ = run(text, change, lambda step: step)
    seen, step = run(text, change, lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    assert codes_of(step) == set(codes), step.explain()
    assert (step.stats["replayed"] >= STEPS / 2) == replays, step.explain()


SHARED = """
shared = {"k": 2.0, "n": 0}
look = lambda: shared
class Borg:
    def __init__(self):
        self.__dict__ = shared
class New:
    def __new__(cls):
        made = object.__new__(cls)
        made.__dict__ = shared
        return made
class Own:
    pass
first = Borg()
"""


@pytest.mark.parametrize("body", [
    "made = Borg(); return x * made.k", "made = Borg(); made.n += 1; return x * made.k", "return x * New().k", "made = New(); made.last = made.k; return x",
    "made = Own(); made.__dict__ = first.__dict__; return x * made.k", "made = Own(); made.__dict__ = shared; made.j = 1; return x",
    "made = Own(); made.__dict__ = shared; made.j = 1; del made.j; return x * made.k",
    "return x * getattr(Borg(), 'late', 3.0)", "return x * len(vars(Borg()))", "made = Borg(); setattr(made, 'j', 2); return x",
    "def made(*, k=1.0): return k\n    made.__kwdefaults__ = only\n    return x * made()",
    "def made(): return made.k\n    made.__dict__ = shared\n    return x * made()",
    "def made(): pass\n    made.__dict__ = shared\n    made.j = 1\n    return x",
])
def test_what_a_step_makes_around_a_dict_of_the_programs(body):
    check(SHARED + f"only = dict(k=2.0)\ndef step(x):\n    {body}\n", "shared.update(k=5.0, j=7, late=4.0); only['k'] = 5.0")


CLEARED = """
class Place:
    pass
class Slotted:
    __slots__ = ("w",)
class Table(dict):
    __delattr__, __setattr__ = dict.__delitem__, dict.__setitem__
place, slotted, table, entries, tensor = Place(), Slotted(), Table(), {}, torch.ones(2)
place.k = 1
w_of_all = None
def cell():
    w = None
    del w
    def step(x):
        nonlocal w
        w = 1.0
        y = x * w
        del w
        return y
    def look():
        try:
            return w
        except NameError:
            return "none"
    def change():
        nonlocal w
        w = 3.0
    return step, look, change
of_cell, look_at_cell, change_cell = cell()
def look():
    held = [vars(place), getattr(slotted, "w", None), dict(table), dict(entries), getattr(tensor, "w", None), getattr(Place, "w", None)]
    return held, globals().get("w"), look_at_cell()
"""


@pytest.mark.parametrize("body, change", [
    ("place.w = 1.0; y = x * place.w; del place.w; return y", "place.w = 3.0"),
    ("setattr(place, 'w', 1.0); delattr(place, 'w'); return x", "place.w = 3.0"),
    ("object.__setattr__(place, 'w', 1.0); object.__delattr__(place, 'w'); return x", "place.w = 3.0"),
    ("vars(place)['w'] = 1.0; del place.w; return x", "place.w = 3.0"),
    ("place.w = 1.0; place.v = 2.0; del place.w, place.v; return x", "place.v = 3.0"),
    ("slotted.w = 1.0; y = x * slotted.w; del slotted.w; return y", "slotted.w = 3.0"),
    ("entries['w'] = 1.0; y = x * entries['w']; del entries['w']; return y", "entries['w'] = 3.0"),
    ("entries['w'] = 1.0; return x * entries.pop('w')", "entries['w'] = 3.0"),
    ("entries['w'] = 1.0; return x * entries.pop('w', 5.0)", "entries['w'] = 3.0"),
    ("y = x * entries.setdefault('w', 1.0); del entries['w']; return y", "entries['w'] = 3.0"),
    ("table['w'] = 1.0; del table['w']; return x", "table['w'] = 3.0"),
    ("table.w = 1.0; del table.w; return x", "table['w'] = 3.0"),
    ("operator.setitem(table, 'w', 1.0); operator.delitem(table, 'w'); return x", "table['w'] = 3.0"),
    ("tensor.w = 1.0; y = x * tensor.w; del tensor.w; return y", "tensor.w = 3.0"),
    ("Place.w = 1.0; y = x * place.w; del Place.w; return y", "Place.w = 3.0"),
    ("global w; w = 1.0; y = x * w; del w; return y", "w = 3.0"),
    ("return of_cell(x)", "change_cell()"),
])
def test_what_a_step_puts_somewhere_and_clears_again(body, change):
    """A replay is none where the program has put something there meanwhile: the step would clear that."""
    check(CLEARED + f"def step(x):\n    {body}\n", change, ["host_effect"])


def test_what_was_there_and_comes_again_comes_last():
    text = CLEARED + "place.w = 2.0\nplace.v = 1.0\ndef step(x):\n    del place.w\n    place.w = 1.0\n    return x\n"
    check(text, "del place.v; place.v = 1.0", ["host_effect"])


COMPILED = """
class Config(dict):
    __getattr__ = compiled(operator.getitem)
    __setattr__ = compiled(operator.setitem)
config = Config(k=2.0, n=1.0, inner=Config(k=2.0), held=[1.0, 2.0])
look = lambda: dict(config)
"""


@pytest.mark.parametrize("body, change, codes", [
    ("return x * config.k", "config['k'] = 5.0", []), ("return x * config.inner.k", "config['inner']['k'] = 5.0", []),
    ("return x * config.inner.k", "config['inner'] = Config(k=5.0)", []), ("return x * sum(config.held)", "config['held'].append(3.0)", []),
    ("return x * getattr(config, 'k')", "config['k'] = 5.0", []), ("return x * getattr(config, 'k')", "config = Config(k=7.0)", []),
    ("config.k = 1.5; return x", "config['k'] = 5.0", ["scalar_varies"]), ("config.j = 1.5; return x * config.k", "config['j'] = 5.0", ["host_effect"]),
])
def test_a_class_with_compiled_methods_for_attributes(body, change, codes):
    check(COMPILED + f"def step(x):\n    {body}\n", change, codes)


@pytest.mark.parametrize("method, by, use", [
    ("__len__", "list.__len__", "len(thing)"), ("__call__", "sum", "thing()"),
    ("__neg__", "sum", "(-thing)"), ("__getitem__", "list.__getitem__", "thing[0]"), ("__contains__", "operator.countOf", "(2.0 if 1 in thing else 3.0)"),
    ("__mod__", "operator.countOf", "(thing % 1)"), ("__abs__", "max", "abs(thing)"), ("__iter__", "reversed", "next(iter(thing))"),
])
def test_a_compiled_method_that_looks_at_its_object(method, by, use):
    text = f"""
class Held(list):
    {method} = compiled({by})
thing = Held([2, 2])
look = lambda: list.__repr__(thing)
def step(x):
    return x * {use}
"""
    check(text, "list.extend(thing, [1, 7]); list.__setitem__(thing, 0, 5)")


def test_an_exception_of_the_programs_that_is_raised_again():
    text = """
error = ValueError("no")
def depth():
    at, count = error.__traceback__, 0
    while at is not None:
        at, count = at.tb_next, count + 1
    return count
look = lambda: depth()
def step(x):
    try:
        raise error
    except ValueError:
        return x * 2
"""
    check(text, "", ["host_effect"], False)
    check(text.replace("raise error", "raise ValueError('new') from error"), "")


def test_a_model_trains_beside_a_namespace_that_its_states_share():
    """As Accelerate's states do."""
    def make():
        shared = {"scale": 1.0}

        class State:
            def __init__(self):
                self.__dict__ = shared

        net = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)

        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean() * State().scale
            loss.backward()
            optimizer.step()
            State().seen = True
            return loss

        def after(i):
            if i == 20:
                State().scale = 0.5
            if i == 28:
                del State().seen

        return types.SimpleNamespace(step=step, batch=lambda i: (torch.randn(2, 3),), holds=lambda: [net, optimizer, shared], after=after)

    step = twins.compare(make, 40, verify={"first": True, "rate": 0.0})
    assert step.stats["replayed"] >= 20, step.explain()


@pytest.mark.parametrize("make, name, other", [
    (lambda: nn.LayerNorm(3), "eps", 0.5), (lambda: nn.BatchNorm1d(3), "momentum", 0.9), (lambda: nn.LeakyReLU(), "negative_slope", 0.5),
    (lambda: nn.Softplus(), "beta", 3.0),
], ids=["eps", "momentum", "slope", "beta"])
@pytest.mark.parametrize("look", [copy.copy, repr, dir], ids=["copied", "shown", "listed"])
def test_what_torch_has_read_of_a_module_before_the_step_sets_it(make, name, other, look):
    def play(wrap):
        torch.manual_seed(0)
        module = make()
        first = getattr(module, name)

        def step(x):
            made = module(x)
            setattr(module, name, first)
            look(module)
            return made.detach()

        step, seen = wrap(step), []
        for i in range(24):
            if i == 14:
                setattr(module, name, other)
            seen.append((step(torch.randn(4, 3)).tolist(), getattr(module, name)))
        return seen, step

    step = twins.played_alike(play)
    assert step.stats["replayed"] > 8, step.explain()

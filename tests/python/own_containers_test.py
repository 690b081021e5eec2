"""Containers of classes of the program's with special methods of their own: steptape looks into them without calling these, so that a wrapped step
runs each as often as the step itself does, in recorded calls, trials and replays."""
import collections

import pytest
import torch
import torch.nn as nn

import steptape
import twins

CALLS = 16
METHODS = ["__iter__", "__len__", "__getitem__", "__contains__", "__eq__", "__hash__", "__repr__", "__bool__", "__reversed__", "__add__", "__float__", "__lt__",
           "keys", "values", "items", "copy", "append", "__length_hint__", "__reduce_ex__", "__str__", "__format__", "__setitem__"]


def counting(base, counts):
    """A class made of `base` whose methods count their calls, and shuffle a list as loaders do."""
    def method(name):
        def counted(self, *given):
            counts[name] += 1
            if name == "__iter__" and base is list and len(self.order) > 1:
                list.append(self, list.pop(self, 0))
            return getattr(base, name)(self, *given)
        return counted

    space = {name: method(name) for name in METHODS if hasattr(base, name)}
    space["__bool__"] = lambda self: counts.update(["__bool__"]) or True
    return type("Own", (base,), space)


MADE = {
    "list": (list, [1.0, 2.0, 3.0]), "tuple": (tuple, (1.0, 2.0, 3.0)), "deque": (collections.deque, [1.0, 2.0, 3.0]), "set": (set, {1.0, 2.0}),
    "frozenset": (frozenset, {1.0, 2.0}), "dict": (dict, {"a": 1.0, "b": 2.0}), "ordered": (collections.OrderedDict, {"a": 1.0, "b": 2.0}),
    "float": (float, 1.5), "int": (int, 3), "str": (str, "abc"),
}
USES = {
    "named": lambda b: 1.0, "passed": lambda b: (lambda each: 2.0)(b), "type": lambda b: float(isinstance(b, list)), "sum": lambda b: sum(b),
    "for": lambda b: [each for each in b][0], "list": lambda b: float(len(list(b))), "in": lambda b: float(2.0 in b), "truth": lambda b: 1.0 if b else 2.0,
    "len": lambda b: float(len(b)), "item": lambda b: b[0], "equal": lambda b: float(b == [1.0]), "text": lambda b: float(len(str(b))),
    "max": lambda b: max(b), "zip": lambda b: [each for each, _ in zip(b, b)][0], "star": lambda b: [*b][0], "held": lambda b: [b][0] is b and 3.0,
    "number": lambda b: b * 1.0, "float": lambda b: float(b), "kept": lambda b: KEPT.__setitem__("b", b) or 2.0, "tensor": lambda b: torch.tensor(b).sum(),
}
KEPT = {}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("made", MADE)
def test_special_methods_run_as_often_as_the_step_runs_them(made, use):
    base, value = MADE[made]

    def play(wrap):
        torch.manual_seed(0)
        net, counts = nn.Linear(3, 2), collections.Counter()
        own = counting(base, counts)
        own.order = [1, 2]
        held = own(value)
        counts.clear()

        def step(x):
            scale = USES[use](held)
            loss = (net(x) * scale).sum()
            net.weight.grad = None
            loss.backward()
            return loss.detach()

        step, seen = wrap(step), []
        for _ in range(CALLS):
            try:
                result = step(torch.ones(2, 3)).item()
            except (TypeError, KeyError, ValueError, IndexError, RuntimeError) as error:
                result = type(error).__name__
            seen.append((result, dict(counts)))
        return seen, step

    twins.played_alike(play)


@pytest.mark.parametrize("name", ["named_modules", "modules", "children", "named_parameters", "__getattr__", "__hash__", "__call__", "state_dict", "extra_repr"])
def test_methods_of_a_module_run_as_often_as_the_step_runs_them(name):
    def play(wrap):
        torch.manual_seed(0)
        counts = collections.Counter()

        def counted(self, *given, **named):
            counts[name] += 1
            return getattr(super(Own, self), name)(*given, **named)

        Own = type("Own", (nn.Linear,), {name: counted})
        net = nn.Sequential(Own(3, 2), nn.ReLU())
        counts.clear()

        def step(x):
            loss = net(x).sum()
            net[0].weight.grad = None
            loss.backward()
            return loss.detach()

        step, seen = wrap(step), []
        for _ in range(CALLS):
            seen.append((step(torch.ones(2, 3)).item(), dict(counts)))
        return seen, step

    twins.played_alike(play)


def test_a_class_whose_module_is_a_property():
    class Proxy:
        scale = 2.0

        @property
        def __module__(self):
            return "elsewhere"

    proxy = Proxy()
    step = steptape.wrap(lambda x: x * proxy.scale, verify={"first": True, "rate": 0.0})
    for _ in range(CALLS):
        assert step(torch.ones(2)).tolist() == [2.0, 2.0]
    assert step.stats["replayed"] > CALLS / 2, step.explain()


class Vivid(dict):
    """As configurations that make what is missing."""

    def __getitem__(self, key):
        if key not in self:
            self[key] = Vivid()
        return super().__getitem__(key)

    def __setitem__(self, key, value):
        super().__setitem__(key, Vivid(value) if type(value) is dict else value)

    __getattr__ = __getitem__
    __setattr__ = __setitem__


class Known(collections.defaultdict):
    """It tells what it is asked for."""
    asked = []

    def __getattribute__(self, name):
        Known.asked.append(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("write", [lambda held: held.__setitem__("d", {"e": 1.0}), lambda held: setattr(held.a, "b", 1.0), lambda held: (setattr(held.a, "b", 1.0), held.__setitem__("d", {"e": 1.0}))],
                         ids=["item", "attribute", "both"])
def test_a_dict_that_makes_what_is_missing(write):
    def play(wrap):
        held = Vivid()

        def step(x):
            write(held)
            return x * 2.0

        step, seen = wrap(step), []
        for _ in range(CALLS):
            seen.append((step(torch.ones(2)).tolist(), repr(held)))
        return seen, step

    twins.played_alike(play)


def test_a_default_dict_is_asked_for_nothing():
    def play(wrap):
        Known.asked = []
        held = Known(float, a=1.0)

        def step(x):
            held["b"] = held["a"] + held["c"]
            return x * held["b"]

        step, seen = wrap(step), []
        for _ in range(CALLS):
            seen.append((step(torch.ones(2)).tolist(), sorted(dict.items(held)), list(Known.asked)))
        return seen, step

    twins.played_alike(play)

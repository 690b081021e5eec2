"""Programs that once replayed what no longer was so: each changes something after its plan is made. A case gives the step, what happens
before each call, and the state to look at; every call is eager's."""
import array
import builtins
import collections
import contextlib
import contextvars
import copy
import csv
import dataclasses
import datetime
import enum
import functools
import itertools
import json
import operator
import random
import resource
import struct
import sys
import time
import types
from types import SimpleNamespace

import numpy
import pytest
import torch
import torch.nn.functional as F

import steptape
from twins import bits, codes_of, played_alike

CALLS, LATE = 24, 10
cases = {}


def case(*codes, replays=True):
    def add(make):
        cases[make.__name__] = (make, set(codes), replays)
        return make
    return add


def at_last(change):
    return lambda i: change() if i == LATE else None


class Slot:
    __slots__ = ("k",)


class SlottedDict(dict):
    __slots__ = ("k",)


class SlottedList(list):
    __slots__ = ("k",)


@dataclasses.dataclass
class Config:
    k: float = 1.0


def slotted(kind, k):
    made = kind()
    made.k = k
    return made


@case()
def a_window_of_equal_values():
    held = [0.0] * 4

    def step(x):
        del held[0]
        held.append(x.sum().item())
        return x * 2

    return step, lambda i: None, lambda: list(held)


@case("host_effect", replays=False)
def an_item_of_a_queue_of_equal_ones():
    held = collections.deque([0.0] * 40)

    def step(x):
        del held[0]
        return x * 2

    return step, lambda i: None, lambda: len(held)


@case()
def a_list_of_indices():
    at = [0, 1]
    return lambda x: x[at] * 1, at_last(lambda: at.__setitem__(0, 3)), lambda: None


@case()
def a_list_of_indices_in_a_tuple():
    at = [0, 1]
    return lambda x: x.reshape(2, 2)[:, at] * 1, at_last(lambda: at.__setitem__(0, 1)), lambda: None


@case()
def an_array_of_indices():
    at = numpy.array([0, 1])
    return lambda x: x[at] * 1, at_last(lambda: at.__setitem__(0, 3)), lambda: None


@case()
def a_list_of_indices_that_are_written():
    at = [0]

    def step(x):
        y = x * 1
        y[at] = 0.0
        return y

    return step, at_last(lambda: at.__setitem__(0, 3)), lambda: None


@case()
def a_class_pattern_by_position():
    held = Config()

    def step(x):
        match held:
            case Config(1.0):
                return x * 7
            case Config(k):
                return x * k

    return step, lambda i: setattr(held, "k", 1.0 + i // 8), lambda: None


@case()
def a_slot_of_a_dict():
    held = slotted(SlottedDict, 2.0)
    return lambda x: x * held.k, at_last(lambda: setattr(held, "k", 3.0)), lambda: None


@case()
def a_slot_of_a_list_that_counts():
    held = slotted(SlottedList, 0)

    def step(x):
        held.k += 1
        return x * 2

    return step, lambda i: None, lambda: held.k


@case()
def a_factory_of_a_dict():
    held = collections.defaultdict(lambda: 2.0)
    return (lambda x: x * held.default_factory(), at_last(lambda: setattr(held, "default_factory", lambda: 3.0)),
            lambda: None)


@case()
def slots_that_are_sorted_by():
    held = [slotted(Slot, 1), slotted(Slot, 2)]
    return (lambda x: x * (held.index(max(held, key=operator.attrgetter("k"))) + 1),
            at_last(lambda: setattr(held[0], "k", 5)), lambda: None)


@case()
def a_slot_that_is_copied():
    held = slotted(Slot, 1.0)
    return lambda x: x * copy.copy(held).k, at_last(lambda: setattr(held, "k", 5.0)), lambda: None


@case()
def a_slot_by_its_descriptor():
    held = slotted(Slot, 1.0)
    return lambda x: x * Slot.k.__get__(held), at_last(lambda: setattr(held, "k", 5.0)), lambda: None


@case()
def an_attribute_by_a_partial_getattr():
    held = Config()
    return (lambda x: x * sum(map(functools.partial(getattr, held), ["k"])), at_last(lambda: setattr(held, "k", 5.0)),
            lambda: None)


@case()
def an_attribute_by_a_bound_method():
    held = Config()
    return lambda x: x * sum(map(held.__getattribute__, ["k"])), at_last(lambda: setattr(held, "k", 5.0)), lambda: None


@case()
def attributes_that_an_encoder_asks_for():
    held = Config()
    return (lambda x: x * json.loads(json.dumps(held, default=vars))["k"], at_last(lambda: setattr(held, "k", 5.0)),
            lambda: None)


@case()
def what_a_metaclass_says_of_instances():
    class Meta(type):
        def __instancecheck__(cls, value):
            return True

    kind = Meta("Kind", (), {})
    return (lambda x: x * (2 if isinstance(3, kind) else 3),
            at_last(lambda: setattr(Meta, "__instancecheck__", lambda cls, value: False)), lambda: None)


@case()
def an_item_of_a_class():
    class Kind:
        def __class_getitem__(cls, key):
            return 2.0

    return (lambda x: x * Kind[0], at_last(lambda: setattr(Kind, "__class_getitem__", classmethod(lambda cls, key: 3.0))),
            lambda: None)


@case()
def what_a_module_gives_for_missing_names():
    module = types.ModuleType("module")
    module.__getattr__ = lambda name: 2.0
    return lambda x: x * module.k, at_last(lambda: setattr(module, "__getattr__", lambda name: 3.0)), lambda: None


@case()
def the_name_of_a_class():
    class Kind:
        pass

    return lambda x: x * len(Kind.__name__), at_last(lambda: setattr(Kind, "__name__", "Longer")), lambda: None


@case()
def a_partial_function_gets_another_state():
    held = functools.partial(operator.mul, 2.0)
    return lambda x: held(x), at_last(lambda: held.__setstate__((operator.add, (3.0,), {}, {}))), lambda: None


@case()
def defaults_of_a_named_tuple():
    Pair = collections.namedtuple("Pair", "a b", defaults=[2.0])
    return lambda x: x * Pair(1.0).b, at_last(lambda: setattr(Pair.__new__, "__defaults__", (9.0,))), lambda: None


@case()
def defaults_of_a_static_method_that_makes_objects():
    class Kind:
        def __new__(cls, k=2.0):
            made = object.__new__(cls)
            made.k = k
            return made

    return lambda x: x * Kind().k, at_last(lambda: setattr(Kind.__new__, "__defaults__", (9.0,))), lambda: None


@case()
def code_of_what_makes_objects():
    class Kind:
        def __new__(cls):
            return 2.0

    def other(cls):
        return 9.0

    return lambda x: x * Kind(), at_last(lambda: setattr(Kind.__new__, "__code__", other.__code__)), lambda: None


def gradient(use, value, width=4, start=0.5):
    """`use(w, value(i))` is what the step takes a gradient of."""
    held = types.SimpleNamespace(t=0)
    w = torch.nn.Parameter(torch.full((width,), start) if start is not None else torch.linspace(-1, 1, width))

    def step(x):
        w.grad = None
        use(w, held.t).sum().backward()
        return x * 1

    return step, lambda i: setattr(held, "t", value(i)), lambda: w.grad.tolist()


@case()
def an_exponent_that_is_flat_at_first():
    return gradient(lambda w, t: w ** max(0.25 * t, 2.5), lambda i: i)


@case()
def an_exponent_that_is_flat_in_turns():
    return gradient(lambda w, t: w ** min(max(0.25 * t, 2.5), 3.5), lambda i: (i * 5) % 24)


@case("scalar_varies")
def an_exponent_that_falls_to_zero():
    return gradient(lambda w, t: w ** (10 - t), lambda i: i, start=0.0)


@case()
def a_slope_that_falls_below_zero():
    return gradient(lambda w, t: F.leaky_relu(w * 2, 0.35 - 0.03 * t), lambda i: i, start=None)


@case("scalar_varies")
def a_norm_that_falls_below_one():
    return gradient(lambda w, t: torch.norm(w, p=3.2 - t * 2), lambda i: 1.0 + 0.013 * i, 12, None)


@case("scalar_varies")
def a_number_that_float32_holds_at_first():
    return gradient(F.celu, lambda i: 2.0 ** (3 - i) if i < 10 else 0.3 + 0.1 * i, 12, None)


def play(make, wrap):
    step, change, look = make()
    step = wrap(step)
    seen = []
    for i in range(CALLS):
        change(i)
        try:
            result = step(torch.linspace(1, 2, 4)).tolist()
        except RuntimeError as error:
            result = str(error)
        seen.append((result, repr(look())))
    return seen, step


@case("host_effect", replays=False)
def the_factory_of_missing_items():
    held = collections.defaultdict(lambda: 1.0)

    def step(x):
        value = held[len(held)]
        return x * value

    return step, at_last(lambda: setattr(held, "default_factory", lambda: 4.0)), lambda: dict(held)


@case()
def a_static_method_around_code_of_c():
    items = collections.deque([1, 2])

    class Sized:
        __len__ = staticmethod(items.__len__)

    sized = Sized()
    return lambda x: x * len(sized), at_last(lambda: items.append(3)), lambda: len(items)


@case()
def an_attribute_of_the_class_of_a_module():
    class Settings(types.ModuleType):
        scale = 1.0

    settings = Settings("settings")
    return lambda x: x * settings.scale, at_last(lambda: setattr(Settings, "scale", 3.0)), lambda: None


@case()
def a_property_of_the_class_of_a_module():
    class Settings(types.ModuleType):
        scale = 1.0

    settings = Settings("settings")
    return lambda x: x * settings.scale, at_last(lambda: setattr(Settings, "scale", property(lambda self: 3.0))), lambda: None


class Callable:
    def __call__(self, owner):
        return 2.0


@case()
def a_method_of_a_callable_object():
    held = SimpleNamespace(k=1.0)
    held.f = types.MethodType(Callable(), held)
    return lambda x: x * held.f() * held.k, at_last(lambda: setattr(held, "k", 3.0)), lambda: held.k


@pytest.mark.parametrize("make, codes, replays", cases.values(), ids=cases)
def test_what_changes_after_the_plan_is_made(make, codes, replays):
    expected, _ = play(make, lambda function: function)
    seen, step = play(make, lambda function: steptape.wrap(function, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    assert codes_of(step) == codes, step.explain()
    assert (step.stats["replayed"] > 3) == replays, step.explain()


def forwarded():
    class Forwarding(torch.nn.Module):
        def forward(self, x, k=2.0, *, j=1.0):
            return x * k * j

    def other(self, x, k=2.0, *, j=1.0):
        return x * k * j + 1
    net = torch.nn.Sequential(Forwarding())
    return lambda x: net(x), Forwarding.forward, other


def hooked(register):
    def make():
        torch.manual_seed(0)
        layer = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)

        def hook(*args, k=2.0, j=1.0):
            last = args[-1][0] if isinstance(args[-1], tuple) else args[-1]
            return None if last is None else last * k * j

        def other(*args, k=2.0, j=1.0):
            last = args[-1][0] if isinstance(args[-1], tuple) else args[-1]
            return None if last is None else last * k * j * 2
        register(layer, optimizer, hook)

        def step(x):
            optimizer.zero_grad()
            layer(x).sum().backward()
            optimizer.step()
            return layer.weight.detach() * 1
        return step, hook, other
    return make


def scheduled():
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], 0.1)

    def rate(epoch, k=0.9, *, j=1.0):
        return k ** epoch * j

    def other(epoch, k=0.9, *, j=1.0):
        return k ** epoch * j / 2
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)

    def step(x):
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()
        scheduler.step()
        return weight.detach() * 1
    return step, rate, other


def property_of_an_object():
    class Held:
        def get(self, k=2.0, *, j=1.0):
            return k * j
        scale = property(get)

    def other(self, k=2.0, *, j=1.0):
        return k * j + 1
    held = Held()
    return lambda x: x * held.scale, Held.get, other


def class_of_a_class():
    class Meta(type):
        def __call__(cls, k=2.0, *, j=1.0):
            return k * j

    class Made(metaclass=Meta):
        pass

    def other(cls, k=2.0, *, j=1.0):
        return k * j + 1
    return lambda x: x * Made(), Meta.__call__, other


def attribute_of_a_module():
    class Asked(torch.nn.Module):
        def __getattr__(self, name, k=2.0, *, j=1.0):
            return k * j if name == "scale" else torch.nn.Module.__getattr__(self, name)

    def other(self, name, k=2.0, *, j=1.0):
        return k * j + 1 if name == "scale" else torch.nn.Module.__getattr__(self, name)
    net = Asked()
    return lambda x: x * net.scale, Asked.__getattr__, other


def key_of_a_sort():
    items = [3.0, 1.0, 2.0]

    def key(item, k=1.0, *, j=1.0):
        return item * k * j

    def other(item, k=1.0, *, j=1.0):
        return -item * k * j
    return lambda x: x * sorted(items, key=key)[0], key, other


CALLED_BY_OTHERS = {
    "forward": forwarded,
    "hook_of_a_module": hooked(lambda layer, o, hook: layer.register_forward_hook(hook)),
    "hook_before_a_module": hooked(lambda layer, o, hook: layer.register_forward_pre_hook(hook)),
    "hook_of_a_parameter": hooked(lambda layer, o, hook: layer.weight.register_hook(hook)),
    "hook_by_a_partial": hooked(
        lambda layer, o, hook: layer.weight.register_hook(functools.partial(hook, k=3.0))),
    "schedule": scheduled,
    "property": property_of_an_object,
    "class_of_a_class": class_of_a_class,
    "attribute_of_a_module": attribute_of_a_module,
    "key_of_a_sort": key_of_a_sort,
}


@pytest.mark.parametrize("part", ("__code__", "__defaults__", "__kwdefaults__"))
@pytest.mark.parametrize("make", CALLED_BY_OTHERS.values(), ids=CALLED_BY_OTHERS)
def test_a_function_that_others_call_changes(make, part):
    """As IPython's %autoreload does it: torch's code or C's calls the very function, which is another one by now."""
    def late():
        step, function, other = make()

        def change():
            value = {"__code__": other.__code__, "__kwdefaults__": dict(function.__kwdefaults__, j=-3.0),
                     "__defaults__": (-9.0,) if function.__defaults__ else None}[part]
            setattr(function, part, value)
        return step, at_last(change), lambda: None

    expected, _ = play(late, lambda function: function)
    seen, step = play(late, lambda function: steptape.wrap(function, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    assert step.stats["replayed"] > 3, step.explain()


def test_a_function_that_the_step_makes_holds_no_plan_back():
    layer = torch.nn.Linear(4, 4)

    def step(x):
        def hook(gradient, k=[2.0]):
            return gradient * k[0]
        layer.zero_grad()
        out = layer(x)
        out.register_hook(hook)
        out.sum().backward()
        return layer.weight.grad.clone()

    step = steptape.wrap(step, verify={"first": True, "rate": 0.0})
    for _ in range(12):
        step(torch.ones(4))
    assert step.stats["replayed"] >= 8, step.explain()


@pytest.mark.parametrize("ids", ([2**53 + 1] * 6 + [2**53] * 6, [2**53] * 6 + [2**53 + 1] * 6, [-2**53 - 1] * 6 + [-2**53] * 6,
                                 [2**53 - 1] * 6 + [2**53] * 6 + [2**53 + 2] * 6, [2**62] * 6 + [2**62 + 1] * 6))
@pytest.mark.parametrize("take", (lambda held, n: n, lambda held, n: held["n"], lambda held, n: held["x"].item()),
                         ids=("argument", "state", "read"))
def test_ints_that_round_to_one_double_are_told_apart(take, ids):
    held = {}

    def function(x, n):
        found = take(held, n)
        return (x * (2.0 if found % 2 else 3.0)).tolist(), found

    step = steptape.wrap(function, verify={"first": True, "rate": 0.0})
    for n in ids:
        held.update(n=n, x=torch.tensor(n))
        assert step(torch.ones(2), n) == function(torch.ones(2), n), step.explain()


def test_a_mode_that_no_module_asks_for_may_change():
    """It is not guarded; an audit does not speak against it either."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    step = steptape.wrap(lambda x: model(x).sum().detach(), verify={"first": True, "rate": 0.5})
    for i in range(60):
        model.train(i % 20 < 10)
        step(torch.ones(4))
    assert step.stats["audits"] > 5 and step.stats["replayed"] > 10, step.explain()


@pytest.mark.parametrize("keep", (lambda held, flag: setattr(held, "k", flag), lambda held, flag: held.log.append(flag),
                                  lambda held, flag: setattr(held, "k", int(flag)),
                                  lambda held, flag: setattr(held, "k", None if flag else 1),
                                  lambda held, flag: setattr(held, "k", [flag, 1])))
def test_a_declared_flag_is_kept_as_it_is_now(keep):
    held = SimpleNamespace(k=0, log=[])
    flags = iter([i % 2 == 0 for i in range(8)] + [i % 3 == 0 for i in range(40)])
    now = [False]

    def draw():
        now[0] = next(flags)
        return now[0]
    declared = steptape.host(draw)

    def train(x):
        keep(held, declared())
        return x * 2
    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    expected = SimpleNamespace(k=0, log=[])
    for i in range(40):
        step(torch.ones(2))
        keep(expected, now[0])
        assert repr(held) == repr(expected), step.explain()


def test_ints_within_and_beyond_doubles_take_turns():
    held = SimpleNamespace(k=0)

    def train(x, n):
        held.k = n
        return x * 2
    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(40):
        n = (2**60 + 1, 5, 2**60 + 1, 6 + i)[i % 4]
        step(torch.ones(2), n)
        assert held.k == n, step.explain()


def test_an_observer_that_throws_sees_what_the_step_has_done():
    held = SimpleNamespace(k=0, log=[])

    def check(t):
        if t.item() > 100:
            raise ValueError("too large")

    def train(x):
        loss = x.sum()
        held.k += 1
        held.log.append(held.k)
        steptape.observe(loss, check)
        return loss
    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(16):
        with pytest.raises(ValueError) if i % 5 == 1 else contextlib.nullcontext():
            step(torch.tensor([1000.0 if i % 5 == 1 else 1.0]))
        assert held.k == i + 1 and held.log[-1] == i + 1, step.explain()
    assert step.stats["replayed"] > 8, step.explain()


@pytest.mark.parametrize("observer", (
    lambda log, n: lambda t: log.append((n, t.item())),
    lambda log, n: lambda t, k=n: log.append((k, t.item())),
    lambda log, n: lambda t, *, k=n: log.append((k, t.item())),
    lambda log, n: functools.partial(lambda k, t: log.append((k, t.item())), n),
    lambda log, n: functools.partial(lambda t, of: log.append((n, t.item())), of=1),
    lambda log, n: (lambda kept: lambda t: log.append((kept[0], t.item())))([n])))
@pytest.mark.parametrize("by_argument", (False, True))
def test_an_observer_keeps_no_number_of_another_call(observer, by_argument):
    held, log = SimpleNamespace(n=0), []

    def train(x, epoch):
        n = epoch if by_argument else held.n
        held.n += 1
        steptape.observe(x.sum(), observer(log, n))
        return x * 2
    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(20):
        step(torch.full((2,), float(i)), i)
        assert log[-1] == (i, 2.0 * i), step.explain()


class Decibels(float):
    def __rmul__(self, x):
        return x * 10 ** (float(self) / 20)


class Stage(enum.IntEnum):
    WARM, MAIN, COOL = range(3)


@pytest.mark.parametrize("use", (lambda x, held: x * held.v, lambda x, held: x * (2 if isinstance(held.v, Stage) else 3),
                                 lambda x, held: x * (2 if type(held.v) is float else 3), lambda x, held: x * (1 + bool(held.v))))
@pytest.mark.parametrize("first, later", (
    (lambda i: i * 0.5, lambda i: numpy.float64(i * 0.5)), (lambda i: i, lambda i: Stage(i % 3)),
    (lambda i: i * 1.0, lambda i: Decibels(i)), (lambda i: i * 1.0, lambda i: i % 2 == 0),
    (lambda i: i, lambda i: 2**60 + i), (lambda i: 2**60 + i, lambda i: i)))
@pytest.mark.parametrize("is_given", (False, True), ids=("state", "argument"))
def test_a_number_becomes_one_of_another_class(first, later, use, is_given):
    held = SimpleNamespace(v=0, k=None)

    def train(x, v):
        now = SimpleNamespace(v=v) if is_given else held
        held.k = now.v
        return use(x, now)
    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(24):
        held.v = first(i) if i < 10 else later(i)
        result = step(torch.ones(2), held.v if is_given else 0)
        assert type(held.k) is type(held.v) and held.k == held.v, step.explain()
        assert torch.equal(result, use(torch.ones(2), held)), step.explain()


def test_a_hyperparameter_grows_beyond_doubles():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], 0.1)
    held = SimpleNamespace(k=0)

    def train(x):
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()
        held.k = optimizer.param_groups[0]["tokens"]
        return weight.detach() * 1
    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(24):
        optimizer.param_groups[0]["tokens"] = i if i < 10 else 2**60 + i
        step(torch.ones(2))
        assert held.k == optimizer.param_groups[0]["tokens"], step.explain()


@pytest.mark.parametrize("look", (lambda items: [v for v in items][0], lambda items: [*items][0], lambda items: next(iter(items)),
                                  lambda items: list(zip(items, items))[0][0], lambda items: items[0],
                                  lambda items: dict(enumerate(items))[0]))
@pytest.mark.parametrize("make", (list, collections.deque))
@pytest.mark.parametrize("later", (lambda i: "ab"[i % 2], lambda i: i % 2 == 0, lambda i: None if i % 2 else True,
                                   lambda i: [2**70, 2**71][i % 2], lambda i: [torch.tanh, torch.exp][i % 2],
                                   lambda i: (i % 2,), lambda i: (lambda x: x * (i % 2))))
def test_an_item_becomes_something_else(look, make, later):
    items, held = make([0.0, 1.0]), SimpleNamespace(k=None)

    def train(x):
        held.k = v = look(items)
        return v(x) if callable(v) else x * {"a": 2.0, "b": 3.0, True: 4.0, False: 5.0, None: 6.0}.get(v, 1.0)
    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(24):
        items[0] = i * 0.5 if i < 10 else later(i)
        x = torch.full((2,), 1.0 + i)
        result, kept = step(x), held.k
        assert torch.equal(result, train(x)), step.explain()
        assert type(kept) is type(held.k) and kept == held.k, step.explain()


@pytest.mark.parametrize("keep", (lambda held, b: setattr(held, "k", b), lambda held, b: setattr(held, "k", [b]),
                                  lambda held, b: held.log.append(b), lambda held, b: setattr(held, "k", (b, 1))))
@pytest.mark.parametrize("given", (lambda i: (i % 2,), lambda i: [(224, 224), (256, 256), (320, 320)][i % 3],
                                   lambda i: (0,) if i < 9 else (i % 2,), lambda i: (i, 1), lambda i: ((i % 2, 1.5), 2),
                                   lambda i: (i % 2 + 0.5, "a")))
def test_a_tuple_that_is_given_is_kept(keep, given):
    held, expected = SimpleNamespace(k=None, log=[]), SimpleNamespace(k=None, log=[])

    def train(x, b):
        keep(held, b)
        return x * 2
    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(30):
        step(torch.ones(2), given(i))
        keep(expected, given(i))
        assert repr(held) == repr(expected), step.explain()


def plainly(function, args, kwargs):
    with torch._C.DisableTorchFunctionSubclass():
        return function(*args, **(kwargs or {}))


class Subclass(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return plainly(function, args, kwargs)

    def __mul__(self, other):
        return self.as_subclass(torch.Tensor) + other

    def __getattr__(self, name):
        return 2.0


@pytest.mark.parametrize("name, later, use", (
    ("__torch_function__", classmethod(lambda cls, f, types, args=(), kwargs=None: plainly(f, args, kwargs) * 3),
     lambda x, w: torch.mul(x, w) + 0),
    ("__mul__", lambda self, other: self.as_subclass(torch.Tensor) - other, lambda x, w: w * x),
    ("__rsub__", lambda self, other: other * 7, lambda x, w: x - w),
    ("__getattr__", lambda self, name: 7.0, lambda x, w: x * w.anything),
    ("__neg__", lambda self: self.as_subclass(torch.Tensor) * 5, lambda x, w: -w + x)))
def test_a_special_method_of_a_class_of_tensors(name, later, use, monkeypatch):
    w = torch.ones(2).as_subclass(Subclass)
    step = steptape.wrap(lambda x: use(x, w), verify={"first": True, "rate": 0.0})
    for i in range(16):
        if i == 8:
            monkeypatch.setattr(Subclass, name, later, raising=False)
        x = torch.full((2,), 1.0 + i)
        assert torch.equal(step(x), use(x, w)), step.explain()
    assert step.stats["replayed"] >= 5, step.explain()


@pytest.mark.parametrize("make", (lambda n: torch.tensor(n, dtype=torch.int8), lambda n: torch.tensor([n], dtype=torch.int8),
                                  lambda n: torch.tensor(-n, dtype=torch.int8), lambda n: torch.zeros(2, dtype=torch.int8).fill_(n),
                                  lambda n: put(torch.zeros(2, dtype=torch.int8), 0, n), lambda n: put(torch.zeros(2, dtype=torch.uint8), 0, 2 * n),
                                  lambda n: put(torch.zeros(2, dtype=torch.int8), torch.tensor([True, False]), n),
                                  lambda n: torch.ones(2, dtype=torch.int8).new_tensor(n), lambda n: torch.tensor(300 * n, dtype=torch.int16)))
def test_a_number_outgrows_the_dtype_of_a_tensor(make):
    """Eager raises."""
    held = SimpleNamespace(n=0)

    def outcome(function):
        try:
            return function().tolist()
        except RuntimeError as error:
            return str(error)

    step = steptape.wrap(lambda x: make(held.n) + x, verify={"first": True, "rate": 0.0})
    for i in range(60):
        held.n = 90 + i
        expected = outcome(lambda: make(held.n) + torch.zeros(1, dtype=make(1).dtype))
        assert outcome(lambda: step(torch.zeros(1, dtype=make(1).dtype))) == expected, step.explain()
    assert step.stats["replayed"] >= 8, step.explain()


def put(tensor, index, value):
    tensor[index] = value
    return tensor


def test_an_operator_that_writes_its_list_of_indices():
    x, mask = torch.arange(12.0).view(3, 4), torch.ones(3, 4, dtype=torch.bool)
    step = steptape.wrap(lambda index: torch.ops.aten._unsafe_masked_index(x, mask, [index], 0.0), verify={"first": True, "rate": 0.0})
    for i in range(16):
        index = torch.tensor([0, 1, 2] if i < 8 or i % 2 else [2, 0, 1])
        assert torch.equal(step(index), torch.ops.aten._unsafe_masked_index(x, mask, [index], 0.0))
    assert step.stats["replayed"] >= 10, step.explain()


def test_what_a_context_variable_held_before_it_is_set():
    scale = contextvars.ContextVar("scale", default=1.0)

    def train(x):
        token = scale.set(2.0)
        before = token.old_value
        scale.reset(token)
        return x * (1.0 if before is token.MISSING else before)

    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(16):
        if i == 8:
            scale.set(5.0)
        assert torch.equal(step(torch.ones(2)), train(torch.ones(2))), step.explain()
    assert step.stats["replayed"] >= 5, step.explain()


def test_the_function_that_imports_is_replaced(monkeypatch):
    def train(x):
        import math
        return x * math.pi

    step, imported = steptape.wrap(train, verify={"first": True, "rate": 0.0}), builtins.__import__
    for i in range(16):
        if i == 8:
            monkeypatch.setattr(builtins, "__import__", lambda name, *rest: SimpleNamespace(pi=3.0) if name == "math" else imported(name, *rest))
        assert torch.equal(step(torch.ones(2)), train(torch.ones(2))), step.explain()
    assert step.stats["replayed"] >= 5, step.explain()


@pytest.mark.parametrize("read", (lambda m: m.training, lambda m: 2.0 if m.training else 3.0, lambda m: m.inner.training + 1))
def test_the_step_sets_the_mode_that_it_reads(read):
    """As with `model.train()` at the start of the training step and `model.eval()` at that of the other."""
    def play(wrap):
        model = torch.nn.Module()
        model.inner = torch.nn.Linear(2, 2)

        def train(x):
            model.train()
            return x * read(model)

        def evaluate(x):
            model.eval()
            return x * read(model) + model.inner.training

        steps, seen = [wrap(train), wrap(evaluate)], []
        for i in range(24):
            if i == 12:
                model.train(i % 2 == 0)
            seen += [(step(torch.ones(2)).tolist(), model.training, model.inner.training) for step in steps]
        return seen, steps

    expected, _ = play(lambda function: function)
    found, steps = play(lambda function: steptape.wrap(function, verify={"first": True, "rate": 0.0}))
    assert found == expected
    for step in steps:
        assert step.stats["replayed"] >= 15, step.explain()


class Countdown(itertools.count):
    pass


class Mapped(map):
    pass


class OwnGenerator(numpy.random.Generator):
    pass


class OwnTime(datetime.datetime):
    pass


class Meter(type):
    pass


class MeteredTime(datetime.datetime, metaclass=Meter):
    pass


class OwnBits(numpy.random.PCG64):
    pass


def mapped(function):
    return list(map(function, [10]))[0]


FROM_OUTSIDE = {  # what the step asks, by which code it is refused
    "a subclass of count": (lambda it=Countdown(1): next(it), "host_effect"),
    "a subclass of map": (lambda it=Mapped(float, [1.0] * 20 + [2.0] * 40): next(it), "host_effect"),
    "a reader of csv": (lambda it=csv.reader(["1.0"] * 20 + ["2.0"] * 40): float(next(it)[0]), "host_effect"),
    "an iterator over an array": (lambda it=iter(array.array("d", [1.0] * 20 + [2.0] * 40)): next(it), "host_effect"),
    "unpacked structs": (lambda it=struct.iter_unpack("d", struct.pack("60d", *[1.0] * 60)): next(it)[0], "host_effect"),
    "a subclass of NumPy's generator": (lambda rng=OwnGenerator(numpy.random.PCG64(1)): rng.random(), "host_random"),
    "a subclass of its bits": (lambda bits=OwnBits(1): bits.random_raw() % 2 + 1, "host_random"),
    "a generator's method that map calls": (lambda rng=numpy.random.default_rng(1): mapped(rng.integers), "host_random"),
    "a generator's method that max calls": (lambda rng=numpy.random.default_rng(1): max([10, 20], key=rng.integers), "host_random"),
    "a random method that map calls": (lambda rng=random.Random(1): mapped(rng.randrange), "host_random"),
    "a function of NumPy's": (lambda: numpy.random.sample() + 1, "host_random"),
    "another function of NumPy's": (lambda draw=numpy.random.ranf: draw() + 1, "host_random"),
    "NumPy is seeded": (lambda: numpy.random.seed(0) or 2.0, "host_random"),
    "a function of NumPy's that map calls": (lambda: mapped(numpy.random.sample).sum(), "host_random"),
    "a function of NumPy's in a partial": (lambda: functools.partial(numpy.random.sample, 2)().sum(), "host_random"),
    "NumPy's bits": (lambda: 1.0 if numpy.random.get_bit_generator() else 2.0, "host_random"),
    "a generator of NumPy's, made anew": (lambda: numpy.random.default_rng(3).random() + 1, "host_random"),
    "an audit hook is called": (lambda: sys.audit("steptape.test") or 2.0, "host_effect"),
    "the clock of a subclass with a metaclass": (lambda: 1.0 if MeteredTime.now().year > 1 else 2.0, "host_effect"),
    "the clock of a subclass": (lambda: 1.0 if OwnTime.now().year > 1 else 2.0, "host_effect"),
    "a clock that map calls": (lambda: mapped(lambda _: 1.0) if list(map(time.sleep, [0])) else 2.0, None),
    "resources": (lambda: 1.0 if resource.getrusage(resource.RUSAGE_SELF) else 2.0, "host_effect"),
    "a factory that takes items": (lambda d=collections.defaultdict(iter([1.0] * 20 + [2.0] * 90).__next__): d[len(d)], "host_effect"),
}


@pytest.mark.parametrize("ask, code", FROM_OUTSIDE.values(), ids=FROM_OUTSIDE)
def test_what_comes_from_outside(ask, code):
    step = steptape.wrap(lambda x: x * ask(), verify={"first": True, "rate": 0.0})
    for _ in range(12):
        step(torch.ones(2))
    if code is None:
        assert step.stats["replayed"] > 0, step.explain()
    else:
        assert step.stats["replayed"] == 0 and code in codes_of(step), step.explain()


def test_two_tensors_in_cells_of_one_name():
    def times(w):
        return lambda x: x * w

    w = torch.ones(2)
    double, step_of = times(torch.full((2,), 2.0)), lambda other: lambda x: other(x) + w
    step = steptape.wrap(step_of(double), verify={"first": True, "rate": 0.0})
    for i in range(14):
        w.fill_(i)
        assert torch.equal(step(torch.ones(2)), torch.full((2,), 2.0 + i))
    assert step.stats["recorded"] <= 4, step.explain()


@pytest.mark.parametrize("ask", (lambda x: x.sum() * x.storage_offset(), lambda x: x.as_strided((2, 4), (4, 1), 8).sum(),
                                 lambda x: torch.as_strided(x, (2, 4), (4, 1), x.storage_offset() + 4).sum(),
                                 lambda x: x[1:].storage_offset() * x.sum()))
def test_where_in_its_memory_an_argument_lies(ask):
    """Each place is another plan's."""
    data = torch.arange(400.0).view(100, 4)
    step = steptape.wrap(ask, verify={"first": True, "rate": 0.0})
    for i in range(30):
        x = data[12 * (i > 7 and i % 3):][:6]
        assert torch.equal(step(x), ask(x)), step.explain()
    assert step.stats["replayed"] > 4, step.explain()


@pytest.mark.parametrize("write", (lambda z, x: z.apply_(lambda v: v + 1), lambda z, x: z.map_(x, lambda a, b: a + b),
                                   lambda z, x: z.map2_(x, x, lambda a, b, c: a + b)))
def test_python_is_called_for_each_item(write):
    step = steptape.wrap(lambda x: write(x.clone(), x) * 2)
    for i in range(8):
        x = torch.full((3,), 1.0 + i)
        assert torch.equal(step(x), write(x.clone(), x) * 2)
    assert "for each item" in step.explain() and step.stats["replayed"] == 0


class Counted(list):
    asked = 0

    def __len__(self):
        Counted.asked += 1
        return list.__len__(self)


class WithoutLength(dict):
    def __len__(self):
        raise TypeError("it has no length")

    __iter__ = items = keys = __len__


def test_no_method_of_a_container_runs_that_eager_does_not_call():
    items, table = Counted([1.0, 2.0]), WithoutLength(k=2.0)

    def train(x, given):
        return x * sum(items) * table["k"] * given["k"]

    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for _ in range(6):
        Counted.asked = 0
        assert step(torch.ones(1), table).item() == 12.0
        assert Counted.asked == 0


@pytest.mark.parametrize("gone", [lambda i: i == 15, lambda i: i % 2, lambda i: i > 12], ids=["once", "in turns", "from then on"])
@pytest.mark.parametrize("write", ["One.a = v", "type(one).a = v", "setattr(One, 'a', v)", "One.a = One.a + v", "One.a = 5.", "one.a = v"])
def test_a_class_loses_the_attribute_that_its_base_has_too(write, gone):
    def play(wrap):
        class Base:
            a = 1.

        class One(Base):
            a = 2.

        one = One()
        scope = dict(One=One, one=one)
        exec(f"def step(x):\n    v = x.sum().item()\n    {write}\n    return x * 2\n", scope)
        step, seen = wrap(scope["step"]), []
        for i in range(24):
            if gone(i) and "a" in vars(One):
                del One.a
            seen.append((bits(step(torch.full((2,), float(i)))), Base.a, vars(One).get("a"), vars(one).get("a")))
        return seen, step

    played_alike(play)


class Marked(collections.namedtuple("Marked", "a b")):
    pass


class Fixed(collections.namedtuple("Fixed", "a b")):
    __slots__ = ()


@pytest.mark.parametrize("put", ["h.b = h.c", "h.d['b'] = h.c", "h.d = {'a': h.c}", "h.l.append(h.c)", "return x * 2, h.c", "h.b = type(h.c)(*h.c)", "return x * 2, type(h.c)(x * 2, 1)"])
@pytest.mark.parametrize("kind, replays", [(Marked, False), (Fixed, True)])
def test_a_tuple_that_can_be_marked_stays_that_object(kind, replays, put):
    def play(wrap):
        scope = dict(h=SimpleNamespace(c=kind(1., 2.), b=None, d={}, l=[]))
        exec(f"def step(x):\n    {put}\n    return x * 2\n", scope)
        h, step, seen = scope["h"], wrap(scope["step"]), []
        for i in range(20):
            if i == 15 and kind is Marked:
                h.c.mark = 1
            result = step(torch.full((2,), float(i)))
            found = [h.b, *h.d.values(), *h.l[-1:], *(result if type(result) is tuple else ())]
            seen.append([(type(each).__name__, getattr(each, "mark", None), bits(each)) for each in found if each is not None])
        return seen, step

    step = played_alike(play)
    if replays or "type(h.c)" in put:
        assert step.stats["replayed"] >= 10, step.explain()


class Unborn(torch.nn.Module):
    def __init__(self):
        pass  # and torch's never runs


class Chained(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.next = None


def test_a_module_that_holds_itself_is_copied():
    def play(wrap):
        h = SimpleNamespace(c=Chained(), rows=[Chained(), Chained()], d={})
        h.d["a"] = h.c

        def step(x):
            h.rows[0] = copy.deepcopy(h.d["a"])
            h.d["a"] = copy.deepcopy(h.c)
            return x * 2

        step, seen = wrap(step), []
        for i in range(20):
            if i == 15:
                h.c.next = h.c
            seen.append(bits(step(torch.full((2,), float(i)))))
        return seen, step

    played_alike(play)


@pytest.mark.parametrize("make", [lambda: torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=.1), lambda: torch.nn.Linear(2, 2), Unborn], ids=["optimizer", "module", "unborn"])
def test_parts_that_have_lost_all_that_they_hold(make):
    def play(wrap):
        h = SimpleNamespace(part=make())

        def step(x):
            return x * 2 if h is not None else x

        step, seen = wrap(step), []
        for i in range(18):
            if i == 12:
                vars(h.part).clear()
            seen.append(bits(step(torch.full((2,), float(i)))))
        return seen, step

    assert played_alike(play).stats["replayed"] >= 8

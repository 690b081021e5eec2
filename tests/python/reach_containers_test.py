"""Containers that a step reaches change, whatever their class and however deep they stand."""
import array
import collections
import ctypes
import dataclasses
import datetime
import functools
import types
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import steptape
from reached import EDIT, OwnDict, Table, Training, Value, check, global_setter, regression
from twins import bits, played_alike

GAIN = 1.0
gain = global_setter(globals(), "GAIN")
containers = Table()


@containers
def a_dict_becomes_a_default_dict():
    held = SimpleNamespace(table={"a": 1.0})

    def step(x):
        try:
            return x * held.table["b"]
        except KeyError:
            return x

    return Training(step, lambda: setattr(held, "table", collections.defaultdict(lambda: 3.0, {"a": 1.0})))


@containers
def a_list_becomes_one_of_another_class():
    class Fives(list):
        def __getitem__(self, i):
            return 5.0

    held = SimpleNamespace(items=[1.0])
    return Training(lambda x: x * held.items[0], lambda: setattr(held, "items", Fives([1.0])))


class OwnList(list):
    pass


@containers
def a_dict_with_an_attribute_of_its_own():
    table = OwnDict(a=1.0)
    table.scale = 1.0
    return Training(lambda x: x * table.scale * table["a"], lambda: setattr(table, "scale", 3.0))


@containers
def a_list_with_an_attribute_of_its_own():
    items = OwnList([1.0])
    items.scale = 1.0
    return Training(lambda x: x * items.scale * items[0], lambda: setattr(items, "scale", 3.0))


@containers
def a_dict_with_a_method_that_reads_a_global():
    class Weights(dict):
        def weight(self):
            return self["a"] * GAIN

    weights = Weights(a=1.0)
    return Training(lambda x: x * weights.weight(), each=gain)


@containers
def a_set_in_another_order():
    held = SimpleNamespace(items={0, 8})

    def step(x):
        total = x * 0
        for item in held.items:
            total = total * 0.5 + item * x
        return total

    def reordered():
        held.items = set()
        held.items.add(8)
        held.items.add(0)

    return Training(step, reordered)


@containers
def a_set_with_an_equal_item_of_another_kind():
    held = SimpleNamespace(items={1})
    return Training(lambda x: x * 2 if isinstance(next(iter(held.items)), float) else x,
                    lambda: setattr(held, "items", {1.0}))


@containers
def a_set_of_modules():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    skipped = {model[0]}

    def step(x):
        for layer in model:
            if layer not in skipped:
                x = layer(x)
        return x.detach()

    def another():
        skipped.remove(model[0])
        skipped.add(model[1])

    return Training(step, another)


@containers
def a_module_in_a_set_goes_to_evaluation():
    models = {nn.Dropout(0.5)}

    def step(x):
        for model in models:
            x = model(x)
        return x

    return Training(step, lambda: [model.eval() for model in models])


@containers
def a_set_of_tuples():
    chosen = {("a", 1)}

    def another():
        chosen.remove(("a", 1))
        chosen.add(("a", 2))

    return Training(lambda x: x * 2 if ("a", 1) in chosen else x * 3, another)


@containers
def a_deque_of_another_length():
    held = SimpleNamespace(items=collections.deque([1.0], maxlen=1))
    return Training(lambda x: x * held.items.maxlen * held.items[0],
                    lambda: setattr(held, "items", collections.deque([1.0], maxlen=4)))


@containers
def an_object_in_a_deque():
    items = collections.deque([Value(1.0)])
    return Training(lambda x: x * items[0].value, lambda: setattr(items[0], "value", 4.0))


@containers
def an_optimizer_in_a_deque():
    model = nn.Linear(3, 3)
    optimizers = collections.deque([torch.optim.SGD(model.parameters(), lr=0.1)])

    def step(x):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    return Training(step, lambda: optimizers[0].param_groups[0].update(lr=0.01), holds=lambda: [model])


@containers
def an_optimizer_in_a_dict_of_a_module():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = nn.Linear(3, 3)
            self.optimizers = {"a": torch.optim.SGD(self.model.parameters(), lr=0.1)}

        def forward(self, x):
            self.optimizers["a"].zero_grad()
            loss = self.model(x).pow(2).mean()
            loss.backward()
            self.optimizers["a"].step()
            return loss.detach()

    own = Own()
    return Training(lambda x: own(x), lambda: own.optimizers["a"].param_groups[0].update(lr=0.01),
                    holds=lambda: [own.model])


@containers
def an_object_behind_a_weak_reference():
    own = Value(1.0)
    reference = weakref.ref(own)
    return Training(lambda x: x * reference().value, lambda: setattr(own, "value", 5.0))


@containers
def a_user_dict():
    class Settings(collections.UserDict):
        pass

    settings = Settings(a=1.0)
    return Training(lambda x: x * settings["a"], lambda: settings.update(a=5.0))


@containers
def a_chain_of_dicts():
    base = {"a": 1.0}
    chain = collections.ChainMap({}, base)
    return Training(lambda x: x * chain["a"], lambda: base.update(a=5.0))


@containers
def a_view_of_a_dict():
    base = {"a": 1.0}
    view = types.MappingProxyType(base)
    return Training(lambda x: x * view["a"], lambda: base.update(a=5.0))


@containers
def an_object_with_items():
    class Items:
        def __init__(self):
            self.items = [[1.0]]

        def __getitem__(self, i):
            return self.items[i][0]

    items = Items()
    return Training(lambda x: x * items[0], lambda: items.items[0].__setitem__(0, 5.0))


@containers
def a_dict_four_levels_deep():
    settings = {"train": {"loss": {"weights": {"a": 1.0}}}}
    return Training(lambda x: x * settings["train"]["loss"]["weights"]["a"],
                    lambda: settings["train"]["loss"]["weights"].update(a=3.0))


@containers
def objects_four_levels_deep():
    settings = Value(Value(Value(Value(1.0))))
    return Training(lambda x: x * settings.value.value.value.value,
                    lambda: setattr(settings.value.value.value, "value", 5.0))


@containers
def a_counter_in_a_dict_of_a_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.counters = {"a": Value(0)}

        def forward(self, x):
            self.counters["a"].value += 1
            return x * 2

    net = Net()
    return Training(lambda x: net(x), holds=lambda: [net.counters["a"].value])


@containers
def a_module_in_a_dict_of_a_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = {"a": nn.Dropout(0.5)}

        def forward(self, x):
            return self.hidden["a"](x)

    net = Net()
    return Training(lambda x: net(x), lambda: net.hidden["a"].eval())


class Nested(nn.Module):
    """Reads one number at the end of each kind of nesting."""

    def __init__(self):
        super().__init__()
        self.table = {"dict": {"k": 1.0}, "list": [1.0, {"z": 1.0}, {"a": {"k": 1.0}}], "tuple": ([1.0], {"y": 1.0}),
                      "object": SimpleNamespace(a=1.0, b=[1.0])}

    def forward(self, x):
        table = self.table
        return (x * table["dict"]["k"] * table["list"][0] * table["list"][1]["z"] * table["list"][2]["a"]["k"]
                * table["tuple"][0][0] * table["tuple"][1]["y"] * table["object"].a * table["object"].b[0])


NESTED = {
    "dict_in_a_dict": (lambda t: t["dict"], "k"),
    "list_in_a_dict": (lambda t: t["list"], 0),
    "dict_in_a_list": (lambda t: t["list"][1], "z"),
    "dict_in_a_dict_in_a_list": (lambda t: t["list"][2]["a"], "k"),
    "list_in_a_tuple": (lambda t: t["tuple"][0], 0),
    "dict_in_a_tuple": (lambda t: t["tuple"][1], "y"),
    "object_in_a_dict": (lambda t: vars(t["object"]), "a"),
    "list_in_an_object": (lambda t: t["object"].b, 0),
}


@pytest.mark.parametrize("place", NESTED.values(), ids=NESTED)
def test_a_number_in_nested_containers_of_a_module(place):
    """It changes and changes back; an equal container takes its place, and changes too."""
    find, key = place

    def make():
        net = Nested()

        def replaced():
            net.table = {"dict": dict(net.table["dict"]), "list": [1.0, {"z": 1.0}, {"a": {"k": 1.0}}],
                         "tuple": ([1.0], {"y": 1.0}), "object": SimpleNamespace(a=1.0, b=[1.0])}

        def put(value):
            return lambda: find(net.table).__setitem__(key, value)

        return Training(lambda x: net(x), {EDIT: put(3.0), 28: put(1.0), 30: replaced, 40: put(7.0)})

    check(make)


@containers
def ordered_dicts_in_containers_of_a_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = {"list": [collections.OrderedDict(a=1.0, b=2.0)],
                          "plain": collections.OrderedDict(a=1.0, b=2.0)}

        def forward(self, x):
            total = x * 0
            for value in [*self.table["list"][0].values(), *self.table["plain"].values()]:
                total = total * 0.5 + value * x
            return total

    net = Net()
    in_a_list, plain = net.table["list"][0], net.table["plain"]

    def turned(table):
        return lambda: table.move_to_end(next(iter(table)))

    return Training(lambda x: net(x), {EDIT: turned(plain), 24: turned(plain), 28: turned(in_a_list),
                                       32: turned(in_a_list), 36: turned(plain)})


@containers
def nested_settings_in_a_parameter_group():
    class Own(torch.optim.SGD):
        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad * group["settings"]["a"]["b"]["c"])

    model, optimizer, step = regression(functools.partial(Own, lr=0.1))
    optimizer.param_groups[0]["settings"] = {"a": {"b": {"c": 0.1}}}
    return Training(step, lambda: optimizer.param_groups[0]["settings"]["a"]["b"].update(c=0.01), holds=lambda: [model])


@containers
def nested_numbers_in_the_state_of_an_optimizer():
    class Own(torch.optim.SGD):
        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad * self.state[p].setdefault("history", [1.0, {"q": [0.1]}])[1]["q"][0])

    model, optimizer, step = regression(functools.partial(Own, lr=0.1))
    return Training(step, lambda: optimizer.state[model.weight]["history"][1]["q"].__setitem__(0, 0.01),
                    holds=lambda: [model])


@containers.each
def test_a_container_changes(case):
    check(case)


class Slotted:
    __slots__ = ("k",)

    def __init__(self, k):
        self.k = k


class BelowSlotted(Slotted):
    pass


@dataclasses.dataclass(slots=True)
class SlottedConfig:
    k: float


class BelowSlottedConfig(SlottedConfig):
    pass


@dataclasses.dataclass(eq=False)
class OwnIdentity:
    k: float


class OwnFloat(float):
    pass


class OwnDuration(datetime.timedelta):
    pass


class OwnTuple(tuple):
    pass


class OwnDefaults(collections.defaultdict):
    pass


def with_attribute(value):
    value.note = "a"
    return value


def of_a_tuple(k):
    made = OwnTuple((1.0,))
    made.k = k
    return made


# What a value is besides its items and attributes: how one is made of a number, and how it is read.
BESIDES = {
    "slots_of_a_base": (BelowSlotted, lambda v: v.k),
    "slots_of_a_dataclass": (BelowSlottedConfig, lambda v: v.k),
    "a_dataclass_compared_by_identity": (OwnIdentity, lambda v: v.k),
    "a_float": (lambda k: with_attribute(OwnFloat(k)), lambda v: v * 1.0),
    "a_duration": (OwnDuration, lambda v: v.days),
    "an_attribute_of_a_tuple": (of_a_tuple, lambda v: v.k),
    "a_partial": (lambda k: with_attribute(functools.partial(F.leaky_relu, torch.tensor(-1.0), negative_slope=k)),
                  lambda v: float(v())),
    "a_double_of_c": (lambda k: with_attribute(ctypes.c_double(k)), lambda v: v.value),
    "a_factory": (lambda k: collections.defaultdict(functools.partial(float, k)), lambda v: v.default_factory()),
    "a_factory_of_a_class_of_its_own": (lambda k: OwnDefaults(functools.partial(float, k)), lambda v: v.default_factory()),
    "the_kind_of_bytes": (lambda k: bytearray(b"a") if k > 1 else b"a", lambda v: 2.0 if isinstance(v, bytes) else 1.0),
    "the_kind_of_an_array": (lambda k: np.array(1.0) if k > 1 else np.float64(1.0),
                             lambda v: 2.0 if isinstance(v, np.ndarray) else 1.0),
    "objects_that_are_one": (lambda k: [Value(1.0)] * 2 if k > 1 else [Value(1.0), Value(1.0)], lambda v: len(set(v))),
    "lists_that_are_one": (lambda k: [[1.0]] * 2 if k > 1 else [[1.0], [1.0]], lambda v: len(set(map(id, v)))),
}
HOLDERS = {
    "a_dict": (lambda held, v: setattr(held, "at", {"v": v}), lambda held: held.at["v"]),
    "a_namespace": (lambda held, v: setattr(held, "at", SimpleNamespace(v=v)), lambda held: held.at.v),
    "a_list": (lambda held, v: setattr(held, "at", [v]), lambda held: held.at[0]),
    "lists_of_lists": (lambda held, v: setattr(held, "at", [[v], 1]), lambda held: held.at[0][0]),
    "nothing": (lambda held, v: setattr(held, "at", v), lambda held: held.at),
}


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
@pytest.mark.parametrize("value", BESIDES.values(), ids=BESIDES)
def test_a_holder_is_replaced_by_one_that_seems_equal(value, holder):
    (make, read), (put, get) = value, holder
    held = SimpleNamespace()
    put(held, make(1.0))
    step = steptape.wrap(lambda x: x * read(get(held)), verify={"first": True, "rate": 0.0})
    for i in range(24):
        if i in (10, 16):
            put(held, make(2.0 if i == 10 else 1.0))
        x = torch.ones(2) * i
        assert torch.equal(step(x), x * read(get(held))), i


@pytest.mark.parametrize("make", (lambda: {"k": 2.0, "at": [1, (2, "a")]}, lambda: SimpleNamespace(k=2.0, at={"b": None}),
                                  lambda: dataclasses.make_dataclass("Config", ["k"], namespace={})(2.0)))
def test_an_equal_holder_of_plain_values_takes_the_place_of_another(make):
    made = make()
    replaced = type(made)(**vars(made)) if not isinstance(made, dict) else None
    held = SimpleNamespace(at=made)
    read = (lambda: held.at["k"]) if replaced is None else (lambda: held.at.k)
    step = steptape.wrap(lambda x: x * read(), verify={"first": True, "rate": 0.0})
    for i in range(30):
        if i > 10:
            held.at = dict(made) if replaced is None else type(made)(**vars(made))
        assert torch.equal(step(torch.ones(2) * i), torch.ones(2) * i * 2.0)
    assert step.stats["replayed"] >= 24, step.explain()


def made_by_a_loop(source):
    held = [0.0] * len(source)
    for held[:] in [source]:
        pass
    return held


def put(into, key, source):
    into[key] = source(into) if callable(source) else source
    return into


PUT = {
    "slice": lambda source: put([0.0] * 3, slice(None), source),
    "part": lambda source: put([0.0] * 4, slice(1, 3), source),
    "every_other": lambda source: put([0.0] * 6, slice(None, None, 2), source),
    "iterator": lambda source: put([0.0] * 3, slice(None), iter(source)),
    "reversed": lambda source: put([0.0] * 3, slice(None), reversed(source)),
    "target_of_a_loop": made_by_a_loop,
    "array": lambda source: put(np.zeros(3), slice(None), source),
    "row_of_an_array": lambda source: put(np.zeros((2, 3)), 0, source)[0],
    "array_of_objects": lambda source: put(np.empty(3, dtype=object), slice(None), source),
    "memory": lambda source: put(bytearray(3), slice(None), map(int, source)),
    "packed": lambda source: put(array.array("d", [0.0] * 3), slice(None), array.array("d", source)),
}


@pytest.mark.parametrize("way", PUT)
def test_a_list_of_the_program_is_put_into_a_slice(way):
    def play(wrap):
        state = types.SimpleNamespace(source=[1.0, 2.0, 3.0])
        step, seen = wrap(lambda x: x * float(sum(PUT[way](state.source)))), []
        for i in range(24):
            if i == 12:
                state.source[1] = 5.0
            seen.append(bits(step(torch.ones(2))))
        return [*seen, step]

    played_alike(play)


STACK = []
SAME_STACK = STACK


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, f):
        if isinstance(f, dict):
            f["h"] = self.linear(f["x"])
            return f["h"]
        f.h = self.linear(f.x)
        return f.h


class Outer(nn.Module):
    def __init__(self, pick):
        super().__init__()
        self.inner, self.pick = Inner(), pick

    def forward(self, given):
        return self.inner(self.pick(given))


class Handler:
    pass


def on_a_stack(reached):
    """Pyro's handlers are on one, which two modules name, while their code runs."""
    def forward(model, x):
        handler = Handler()
        STACK.append(handler)
        handler.h = model.inner(SimpleNamespace(x=x))
        for each in reached():
            each.seen = True
        STACK.pop()
        return handler.h
    return forward


# what the step makes, and nobody holds afterwards; a module of the model may write to it
MADE = {
    "a dict in a list": lambda m, x: Outer.__call__(m, [{"x": x}]),
    "a dict in a dict": lambda m, x: m({0: {"x": x}}),
    "a dict in a list of lists": lambda m, x: m([[{"x": x}]][0]),
    "dicts in a tuple in a list": lambda m, x: m([({"x": x}, {"x": x})][0]),
    "an object in a list": lambda m, x: m([SimpleNamespace(x=x)]),
    "a dict that holds itself": lambda m, x: m([(f := {"x": x}, f.update(f=[f.copy()]))[0]]),
    "on a stack": on_a_stack(lambda: STACK),
    "on a stack with two names": on_a_stack(lambda: SAME_STACK),
    "on a stack in a tuple": on_a_stack(lambda: (SAME_STACK,)[0]),
    "on a stack in a dict": on_a_stack(lambda: KEPT_STACK["all"]),
    "on a stack in a holder": on_a_stack(lambda: HOLDER.inner["all"]),
}
KEPT_STACK = {"all": STACK, "n": 1}
HOLDER = SimpleNamespace(inner=KEPT_STACK)


@pytest.mark.parametrize("case", MADE)
def test_what_a_step_makes_is_let_go_of_with_it(case):
    def play(wrap):
        torch.manual_seed(0)
        model = Outer(lambda given: given[0])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = MADE[case](model, x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step, seen = wrap(step), []
        for _ in range(20):
            seen.append(bits([step(torch.randn(2, 3)), list(model.parameters()), len(STACK)]))
        return seen, step

    step = played_alike(play)
    assert step.stats["replayed"] >= 15, step.explain()

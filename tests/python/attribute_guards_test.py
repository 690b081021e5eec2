"""Guards of the attributes of modules and of a program's own objects."""
import collections
import contextlib
import copy
import ctypes
import dataclasses
import functools
import math
import operator
import queue
import sqlite3
import threading
import types

import numpy as np
import pytest
import torch
import torch.nn as nn

import twins
from classification import Program
from guarded import EDIT, STEPS, Inner, Kind, check, classifier, named


def set_attributes(**values):
    def edit(program):
        for name, value in values.items():
            setattr(program.model, name, value)
    return edit


ATTRIBUTE_EDITS = {
    "dropout_p": lambda p: setattr(p.model.body[3], "p", 0.5),
    "layer_norm_eps": lambda p: setattr(p.model.body[4], "eps", 0.5),
    "batch_norm_momentum": lambda p: setattr(p.model.body[1], "momentum", 0.5),
    "batch_norm_momentum_none": lambda p: setattr(p.model.body[1], "momentum", None),
    "batch_norm_eps": lambda p: setattr(p.model.body[1], "eps", 0.5),
    "float": set_attributes(scale=0.5),
    "float_becomes_a_numpy_float": set_attributes(scale=np.float64(0.5)),
    "float_becomes_a_tensor": set_attributes(scale=torch.tensor(0.5)),
    "int": set_attributes(rounds=3),
    "str": set_attributes(mode="strong"),
    "bool": set_attributes(doubled=True),
    "none": set_attributes(clip=0.1),
    "tuple": set_attributes(window=(0.5, 0.5)),
    "list": set_attributes(levels=[0.5, 0.25]),
    "item_of_a_list": lambda p: p.model.levels.__setitem__(0, 0.5),
    "list_appended": lambda p: p.model.levels.append(0.5),
    "dict": set_attributes(table={"gain": 0.5}),
    "entry_of_a_dict": lambda p: p.model.table.update(gain=0.5),
    "namespace": lambda p: setattr(p.model.config, "gain", 0.5),
    "dataclass_inside": lambda p: setattr(p.model.config.inner, "temperature", 0.5),
    "namespace_replaced": set_attributes(
        config=types.SimpleNamespace(gain=0.5, inner=Inner(temperature=2.0))),
    "enum": set_attributes(kind=Kind.STRONG),
    "attribute_of_the_class": lambda p: setattr(type(p.model), "gain", 0.5),
    "shadow_of_the_class": set_attributes(gain=0.5),
    "behind_a_property": set_attributes(_sharpness=0.5),
}


@named(ATTRIBUTE_EDITS)
def test_a_plain_attribute_changes(case):
    # Without a momentum BatchNorm averages by float(num_batches_tracked), which no number can follow.
    check(classifier, case)


def test_an_attribute_that_shadows_its_class_is_deleted():
    check(functools.partial(classifier, prepare=set_attributes(gain=0.5)),
          lambda p: delattr(p.model, "gain"))


def test_an_attribute_alternates_between_two_values():
    turns = range(6, STEPS, 6)
    check(classifier, {i: set_attributes(scale=0.5 if i % 12 else 1.0) for i in turns})


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = 1.0

    def forward(self, x):
        return self.linear(x) * self.scale

    def store(self, value):
        self.scale = value


class Knob:
    """A plain object of the program's."""

    def __init__(self):
        self.scale = 1.0

    def store(self, value):
        self.scale = value


STORES = {
    "statement": lambda o, v: o.store(v),
    "setattr": lambda o, v: setattr(o, "scale", v),
    "object_setattr": lambda o, v: object.__setattr__(o, "scale", v),
    "item_of_dict": lambda o, v: vars(o).__setitem__("scale", v),
    "update": lambda o, v: vars(o).update(scale=v),
    "union": lambda o, v: vars(o).__ior__({"scale": v}),
    "pop_and_set_default": lambda o, v: (vars(o).pop("scale"), vars(o).setdefault("scale", v)),
    "delete_and_store": lambda o, v: (delattr(o, "scale"), o.store(v)),
    "another_dict": lambda o, v: setattr(o, "__dict__", {**vars(o), "scale": v}),
}


@pytest.mark.parametrize("kind", [Scaled, Knob])
@named(STORES)
def test_each_way_to_store_an_attribute_is_noticed(case, kind):
    """Also when Python has made the instruction a special one, as it does when it has run often."""
    other = kind()
    for i in range(2000):
        case(other, float(i))

    def make():
        model, held = Scaled(), kind()
        if kind is Scaled:
            held = model

        def step(x):
            return (model(x) * held.scale).sum().detach()

        made = Program(step=step, model=model, held=held, holds=lambda: [model],
                       batch=lambda i: (torch.ones(2, 4),))
        made.after = lambda i: case(held, float(i // 7)) if i % 7 == 6 else None
        return made

    step = twins.compare(make, 60)
    assert step.stats["replayed"] > 10, step.explain()


def test_an_attribute_nobody_reads_changes_once():
    check(classifier, set_attributes(note="second half"), matters=False)


def test_minus_zero_is_not_zero():
    def prepare(program):
        program.model.scale = 0.0
        program.model.shaped = lambda x: x * (1 + math.copysign(0.5, program.model.scale))

    check(functools.partial(classifier, prepare=prepare), set_attributes(scale=-0.0))


def test_one_and_true_and_one_point_zero_are_three_values():
    def prepare(program):
        program.model.scale = 1
        program.model.shaped = lambda x: x * len(repr(program.model.scale))

    check(functools.partial(classifier, prepare=prepare), {
        EDIT: set_attributes(scale=1.0), EDIT + 10: set_attributes(scale=True)})


def test_a_not_a_number_is_itself():
    """Dicts and lists find the very object alone: another one is read anew (equal_keys_test.py)."""
    kept = float("nan")

    def prepare(program):
        program.model.scale = kept
        program.model.shaped = lambda x: x if program.model.scale != program.model.scale else x * 2

    check(functools.partial(classifier, prepare=prepare), {"each": lambda p: setattr(p.model, "scale", kept)}, matters=False)


EQUAL_VALUES = {
    "float": lambda: {"scale": float("1.0")},
    "int": lambda: {"rounds": int("1")},
    "str": lambda: {"mode": "".join(["pl", "ain"])},
    "tuple": lambda: {"window": tuple([1.0, 0.5])},
    "list": lambda: {"levels": [1.0, 0.5]},
    "dict": lambda: {"table": {"gain": 1.0}},
    "namespace": lambda: {"config": types.SimpleNamespace(gain=1.0, inner=Inner())},
}


@named(EQUAL_VALUES)
def test_an_equal_value_of_another_identity_replays(case):
    step = check(classifier, {"each": lambda p: set_attributes(**case())(p)}, matters=False)
    assert len(step.stats["variants"]) <= 1, step.explain()


def test_an_item_that_is_another_number_in_every_call_is_followed():
    def next_level(program):
        program.model.levels[0] *= 0.99

    check(classifier, {"each": next_level}, begins=False, share=0.5)


class Net(nn.Module):
    """A module whose attributes are read, or not, in the way that a test says."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.scale, self.mode, self.pair = 1.0, "a", (1.0, 2.0)
        self.levels, self.table, self.history = [1.0], {"k": [1.0]}, []
        self.config = types.SimpleNamespace(k=1.0)
        self.queue = collections.deque(maxlen=3)
        self.last, self.count, self.best = None, 0, 1e9

    @property
    def double(self):
        return self.scale * 2

    def forward(self, x):
        return self.layer(x)

    def __getattr__(self, name):
        return self.__dict__.get("_magic", 1.0) if name == "magic" else super().__getattr__(name)

    def held(self):
        return [self, self.levels, self.table, self.history, list(self.queue), self.last, self.count, self.best]


def trained(body, between=lambda net, i: None):
    """A layer that learns; `body(net, loss)` gives a factor of the result, or nothing."""
    def make():
        net = Net()
        optimizer = torch.optim.SGD(net.layer.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            factor = body(net, loss)
            return loss.detach() if factor is None else loss.detach() * factor

        def batch(i):
            between(net, i)
            return (torch.randn(4, 6),)
        return types.SimpleNamespace(step=step, batch=batch, holds=net.held)
    return make


def scale_doubles(net):
    net.scale = 2.0


WAYS = {  # a factor that is read from a module, and what makes it another one
    "name": (lambda n: n.scale, scale_doubles),
    "getattr": (lambda n: getattr(n, "sca" + "le"), scale_doubles),
    "vars": (lambda n: vars(n)["scale"], scale_doubles),
    "entries": (lambda n: sum(v for v in n.__dict__.values() if type(v) is float), lambda n: setattr(n, "other", 2.0)),
    "key": (lambda n: 2.0 if "late" in vars(n) else 1.0, lambda n: setattr(n, "late", 2.0)),
    "property": (lambda n: n.double, scale_doubles),
    "missing": (lambda n: getattr(n, "late", 1.0), lambda n: setattr(n, "late", 2.0)),
    "hasattr": (lambda n: 2.0 if hasattr(n, "late") else 1.0, lambda n: setattr(n, "late", 2.0)),
    "__getattr__": (lambda n: n.magic, lambda n: setattr(n, "_magic", 2.0)),
    "object": (lambda n: object.__getattribute__(n, "scale"), scale_doubles),
    "attrgetter": (lambda n: operator.attrgetter("config.k")(n), lambda n: setattr(n.config, "k", 2.0)),
    "methodcaller": (lambda n: operator.methodcaller("__getattribute__", "scale")(n), scale_doubles),
    "methodcaller_of_a_dict": (lambda n: operator.methodcaller("get", "scale")(vars(n)), scale_doubles),
    "methodcaller_of_a_list": (lambda n: operator.methodcaller("count", 1.0)(n.levels), lambda n: n.levels.append(1.0)),
    "reduce": (lambda n: functools.reduce(getattr, ["config", "k"], n), lambda n: setattr(n.config, "k", 2.0)),
    "map": (lambda n: list(map(getattr, [n], ["scale"]))[0], scale_doubles),
    "partial": (lambda n: functools.partial(getattr, n)("scale"), scale_doubles),
    "copy": (lambda n: copy.copy(n.config).k, lambda n: setattr(n.config, "k", 2.0)),
    "item": (lambda n: n.table["k"][0], lambda n: n.table.update(k=[2.0])),
    "sum": (lambda n: sum(n.levels), lambda n: n.levels.append(2.0)),
    "comparison": (lambda n: 2.0 if n.levels == [1.0] else 1.0, lambda n: n.levels.append(1.0)),
    "text": (lambda n: len(f"{n.history}"), lambda n: n.history.append(1)),
    "test": (lambda n: 2.0 if n.history else 1.0, lambda n: n.history.append(1)),
    "repr": (lambda n: len(repr(n)), lambda n: setattr(n.layer, "in_features", 2000)),
    "state_dict": (lambda n: len(n.state_dict()), lambda n: n.register_buffer("more", torch.ones(1))),
    "module_called": (lambda n: n(torch.ones(1, 6)).sum().detach(), lambda n: setattr(n, "forward", lambda x: n.layer(x) * 2)),
    "module_inside": (lambda n: n(torch.ones(1, 6)).sum().detach(), lambda n: setattr(n.layer, "forward", lambda x: x[:, :3])),
}


@named(WAYS)
def test_a_way_to_read_an_attribute_of_a_module(case):
    use, change = case
    step = twins.compare(trained(lambda net, _: use(net), lambda net, i: change(net) if i == 20 else None), 40,
                         verify={"first": True, "rate": 0.0})
    assert step.stats["replayed"] >= 16, step.explain()


@pytest.mark.parametrize("make", [Net, lambda: nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.1))], ids=["own", "torchs"])
def test_what_no_code_of_the_step_reads_of_a_module_may_change(make):
    """A history that grows, the epoch, the best so far: what trainers keep in a module."""
    def twin():
        net = make()

        def batch(i):
            vars(net).setdefault("history", []).append(i)
            net.epoch, net.best, net.text = i, {"loss": i}, f"epoch {i}"
            next(net.children()).seen = [i]
            return (torch.randn(4, 6),)
        return types.SimpleNamespace(step=lambda x: net(x).detach(), batch=batch, holds=lambda: [net])

    step = twins.compare(twin, 40, verify={"first": True, "rate": 0.0})
    assert step.stats["replayed"] >= 36, step.explain()


def keep_by_a_store(net, loss):
    net.best = min(net.best, loss.item())


def keep_by_a_branch(net, loss):
    now = loss.item()
    net.best = now if now < net.best else net.best


def keep_and_use(net, loss):
    now = loss.item()
    net.best = min(net.best, now)
    return now


def keep_in_a_module_inside(net, loss):
    net.layer.best = min(vars(net.layer).get("best", 1e9), loss.item())


def keep_in_the_dict(net, loss):
    vars(net)["best"] = min(net.best, loss.item())


def keep_in_the_table(net, loss):
    net.table["best"] = min(net.table.get("best", 1e9), loss.item())


def keep_twice(net, loss):
    net.best = net.best
    net.last = net.best = min(net.best, loss.item())


DOES = {  # to attributes of a module, in the step
    "append": lambda n, l: n.history.append(l.item()),
    "append_a_tensor": lambda n, l: n.history.append(l.detach()),
    "append_inside": lambda n, l: n.table["k"].append(l.item()),
    "append_to_two": lambda n, l: (n.history.append(l.item()), n.levels.append(1.0)) and None,
    "append_to_a_deque": lambda n, l: n.queue.append(l.item()),
    "extend": lambda n, l: n.history.extend([l.item(), 2.0]),
    "set_an_item": lambda n, l: n.table.__setitem__("loss", l.item()),
    "clear": lambda n, l: n.history.clear(),
    "append_and_pop": lambda n, l: (n.history.append(1), n.history.pop()) and None,
    "assign_a_tensor": lambda n, l: setattr(n, "last", l.detach()),
    "assign_a_number": lambda n, l: setattr(n, "last", l.item()),
    "count": lambda n, l: setattr(n, "count", n.count + 1),
    "assign_a_new_list": lambda n, l: setattr(n, "fresh", [l.item()]),
    "keep_the_best": lambda n, l: setattr(n, "best", min(n.best, l.item())),
    "keep_the_best_of_a_few": lambda n, l: setattr(n, "best", min(max(l.item(), 0.1), n.best)),
    "keep_the_best_by_object": lambda n, l: object.__setattr__(n, "best", min(n.best, l.item())),
    **{f.__name__: f for f in (keep_by_a_store, keep_by_a_branch, keep_and_use, keep_in_a_module_inside, keep_in_the_dict,
                               keep_in_the_table, keep_twice)},
}


@named(DOES)
def test_what_a_step_does_to_attributes_of_a_module_is_done_again(case):
    step = twins.compare(trained(case), 40, verify={"first": True, "rate": 0.0})
    assert step.stats["replayed"] >= 24, step.explain()


ODD = {}  # what makes the step and what changes between two calls; the codes that refuse it, or none


def odd(*codes):
    def add(make):
        ODD[make.__name__] = make, set(codes)
        return make
    return add


@odd()
def a_parameter_gets_its_first_attribute():
    net = nn.Linear(2, 2)

    def step(x):
        kept = [p for p in net.parameters() if not getattr(p, "skipped", False)]
        return sum(p.detach().sum() for p in kept) * x
    return step, lambda: setattr(net.bias, "skipped", True)


@odd()
def a_buffer_is_asked_for_an_attribute():
    norm = nn.BatchNorm1d(2)
    return lambda x: x * (2 if hasattr(norm.running_mean, "frozen") else 1), lambda: setattr(norm.running_mean, "frozen", 1)


@odd()
def the_dict_of_a_parameter():
    weight = nn.Parameter(torch.ones(2))
    return lambda x: x * (1 + len(weight.__dict__)), lambda: setattr(weight, "tag", 1)


@odd()
def a_list_gets_its_first_attribute():
    kept = type("Kept", (list,), {})()
    return lambda x: x * getattr(kept, "factor", 1.0), lambda: setattr(kept, "factor", 2.0)


@odd()
def an_ordered_dict_gets_its_first_attribute():
    kept = collections.OrderedDict(a=1)
    return lambda x: x * getattr(kept, "factor", 1.0), lambda: setattr(kept, "factor", 2.0)


@odd()
def a_partial_function_gets_its_first_attribute():
    kept = functools.partial(int)
    return lambda x: x * getattr(kept, "factor", 1.0), lambda: setattr(kept, "factor", 2.0)


def classes():
    first = type("First", (), {"k": 1.0})
    return first, type("Second", (first,), {})


@odd()
def a_class_attribute_that_moved_is_shadowed():
    first, second = classes()
    values = iter([(first, 2.0), (second, 3.0)])
    return lambda x: x * second.k, lambda: setattr(next_of(values), "k", 3.0)


def next_of(values):
    return next(values)[0]


@odd()
def a_class_attribute_that_moved_is_shadowed_for_an_instance():
    first, second = classes()
    values = iter([(first, 2.0), (second, 3.0)])
    held = second()
    return lambda x: x * held.k, lambda: setattr(next_of(values), "k", 3.0)


@odd()
def a_class_gets_other_bases_after_its_attribute_moved():
    first, second = classes()
    changes = iter([lambda: setattr(first, "k", 2.0), lambda: setattr(second, "__bases__", (type("Z", (), {"k": 11.0}),))])
    return lambda x: x * second.k, lambda: next(changes)()


@odd()
def a_count_of_the_steps_own_is_shadowed():
    first, second = classes()
    first.n = 0

    def step(x):
        first.n += 1
        return x * second.n
    return step, lambda: setattr(second, "n", 50)


@odd()
def a_metaclass_gets_a_property():
    meta = type("Meta", (type,), {})
    held = meta("Held", (), {"k": 1.0})
    changes = iter([lambda: setattr(held, "k", 2.0), lambda: setattr(meta, "k", property(lambda cls: 5.0))])
    return lambda x: x * held.k, lambda: next(changes)()


@odd()
def a_property_of_a_class_of_its_own_over_code_of_c():
    own = type("Own", (property,), {})
    held = type("Held", (), {"k": own(operator.attrgetter("_k"))})()
    held._k = 1.0
    return lambda x: x * held.k, lambda: setattr(held, "_k", 2.0)


@odd()
def an_exception_with_an_attribute():
    class Stop(Exception):
        def __init__(self, code):
            super().__init__("stop")
            self.code = code

    state = types.SimpleNamespace(code=3.0)

    def step(x):
        try:
            raise Stop(state.code)
        except Stop as stop:
            return x * stop.code
    return step, lambda: setattr(state, "code", 4.0)


@odd()
def attributes_of_what_the_step_makes_of_classes_of_c():
    def step(x):
        for base in (Exception, OSError, types.SimpleNamespace, types.ModuleType, functools.partial, threading.local):
            made = type("Made", (base,), {})(*([int] if base is functools.partial else ["m"] if base is types.ModuleType else []))
            made.k = 2.0
            functools.update_wrapper(functools.partial(int, 2), an_ordered_dict_gets_its_first_attribute)
        return x * 2
    return step, lambda: None


@odd()
def a_thread_local():
    held = threading.local()
    held.k = 1.0
    return lambda x: x * held.k, lambda: setattr(held, "k", 2.0)


@odd("host_effect")
def a_field_of_a_structure_of_c():
    held = type("Held", (ctypes.Structure,), {"_fields_": [("k", ctypes.c_double)]})(1.0)
    return lambda x: x * held.k, lambda: setattr(held, "k", 2.0)


@odd("host_effect")
def a_queue_of_c():
    held = queue.SimpleQueue()
    return lambda x: (held.put(1), x * held.qsize())[1], lambda: None


@odd("host_effect")
def a_database():
    base = sqlite3.connect(":memory:")
    base.execute("create table t(a)")
    return lambda x: (base.execute("insert into t values (1)"), x * 2)[1], lambda: None


@odd()
def a_module_that_the_step_makes():
    made = type("Made", (nn.Module,), {"forward": lambda self, x: x * 2})
    return lambda x: made()(x), lambda: setattr(made, "forward", lambda self, x: x * 7)


@odd()
def the_backward_of_a_function():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    def step(x):
        y = x.detach().requires_grad_()
        Twice.apply(y).sum().backward()
        return y.grad
    return step, lambda: setattr(Twice, "backward", staticmethod(lambda ctx, gradient: gradient * 9))


@pytest.mark.parametrize("name", ODD)
def test_an_attribute_of_an_odd_owner(name):
    make, codes = ODD[name]

    def twin():
        step, change = make()

        def batch(i):
            if i in (10, 20):
                with contextlib.suppress(StopIteration):
                    change()
            return (torch.randn(2),)
        return types.SimpleNamespace(step=step, batch=batch, holds=lambda: [])

    step = twins.compare(twin, 40, verify={"first": True, "rate": 0.0}, codes=codes or None)
    assert (step.stats["replayed"] >= 20) == (not codes), step.explain()


class Schedule(torch.optim.lr_scheduler.LRScheduler):
    def get_lr(self):
        return [group["lr"] for group in self.optimizer.param_groups]


def schedule(kind, *args):
    return kind(torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1), *args)


class Items(dict):
    __setattr__ = dict.__setitem__


class Reversed(torch.autograd.Function):
    pass


class Numbers(torch.utils.data.Dataset):
    pass


OF_TORCH = {
    "scheduler": lambda: schedule(torch.optim.lr_scheduler.StepLR, 3),
    "own_scheduler": lambda: schedule(Schedule),
    "distribution": lambda: torch.distributions.Normal(0.0, 1.0),
    "scaler": lambda: torch.amp.GradScaler("cpu"),
    "loader": lambda: torch.utils.data.DataLoader([1, 2]),
    "dataset": Numbers,
    "tensor": lambda: torch.ones(2),
    "function": lambda: type("Reversed", (Reversed,), {}),
    "module": lambda: nn.Linear(2, 2),
    "optimizer": lambda: torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1),
    "items": Items,
    "object": types.SimpleNamespace,
}


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("body", [
    "object.__setattr__(held, 'v', v)", "object.__setattr__(held, 'v', 5.0)", "type(held).__setattr__(held, 'v', 5.0)",
    "held.__setattr__('v', 5.0)", "setattr(held, 'v', 5.0)", "x = x * get(held, 'v')", "x = x * held.__getattribute__('v')",
])
@pytest.mark.parametrize("kind", OF_TORCH)
def test_an_attribute_of_an_object_of_torchs(kind, body, edited):
    if kind == "function":
        body = body.replace("object.__setattr__", "type.__setattr__").replace("held.__", "type(held).__").replace("__('v'", "__(held, 'v'")
    get, put = (lambda held, name: getattr(held, name, None)), (type.__setattr__ if kind == "function" else object.__setattr__)

    def play(wrap):
        held = OF_TORCH[kind]()
        put(held, "v", 2.0)
        scope = dict(held=held, get=get)
        exec(f"def step(x):\n    v = x.sum().item()\n    {body}\n    return x * 2\n", scope)
        step, seen = wrap(scope["step"]), []
        for i in range(STEPS):
            if edited and i >= EDIT:
                put(held, "v", 3.0 + i // 4)
            result = step(torch.full((2,), float(i)))
            seen.append((twins.bits(result), get(held, "v"), kind == "items" and dict(held)))
        return [seen, step]
    twins.played_alike(play)


SUMMARY = torch.optim.lr_scheduler.LRScheduler.state_dict


@pytest.mark.parametrize("kind", ["scheduler", "own_scheduler", "object", "dataset"])
def test_code_of_torchs_goes_over_all_attributes(kind):
    """`LRScheduler.state_dict`: the class of its object may be the program's, which has attributes of its own."""
    def play(wrap):
        held = OF_TORCH[kind]()
        held.v = 2.0
        step, seen = wrap(lambda x: x * SUMMARY(held)["v"]), []
        for i in range(STEPS):
            held.v = 3.0 if i >= EDIT else 2.0
            seen.append(twins.bits(step(torch.full((2,), float(i)))))
        return [seen, step]
    step = twins.played_alike(play)
    assert step.stats["replayed"] >= STEPS // 2, step.explain()


def test_code_of_torchs_reads_an_attribute_of_the_programs():
    """`torch.utils._pytree` of a dataclass that the program has made known to it."""
    @dataclasses.dataclass
    class Pair:
        a: torch.Tensor
        factor: float
    torch.utils._pytree.register_dataclass(Pair)

    def play(wrap):
        held = Pair(torch.ones(2), 2.0)
        step, seen = wrap(lambda x: x * torch.utils._pytree.tree_leaves(held)[1]), []
        for i in range(STEPS):
            held.factor = 3.0 if i >= EDIT else 2.0
            seen.append(twins.bits(step(torch.full((2,), float(i)))))
        return [seen, step]
    twins.played_alike(play)

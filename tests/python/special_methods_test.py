"""What code of C's looks up by itself: special methods of a class, code of C's in the place of a method, what a weak reference leads to
or an array of objects holds, and attributes that a tensor object keeps to itself. Each changes after the plan is made."""
import collections
import copy
import dataclasses
import functools
import gc
import heapq
import inspect
import itertools
import json
import math
import operator
import os
import pickle
import sys
import traceback
import types
import weakref

import numpy
import pytest
import torch
from torch.distributions import Normal, TransformedDistribution, transforms
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader

import steptape
from twins import codes_of

CALLS, LATE = 20, 9


def play(make, wrap):
    """`make(wrap)` gives the step, what happens after call LATE, and the state to look at."""
    step, change, look = make(wrap)
    seen = []
    for i in range(CALLS):
        seen.append((step(torch.ones(2)).tolist(), repr(look())))
        if i == LATE:
            change()
    return seen, step


def check(make, code=None, replays=None):
    """Eager's results throughout; replayed, or refused by this code, or both, as it changes."""
    expected, _ = play(make, lambda function: lambda x: function(x))
    seen, step = play(make, lambda function: steptape.wrap(function, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    assert (step.stats["replayed"] > LATE / 2) == (code is None if replays is None else replays), step.explain()
    assert codes_of(step) == ({code} if code else set()), step.explain()


def in_a_child(test):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            test()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


class Odd:
    """A class without methods of its own."""


# method: what is there first, what comes later, and what the step makes of an object and another one
METHODS = {
    "__add__": (lambda s, o: 2.0, lambda s, o: 3.0, lambda a, b: a + b),
    "__radd__": (lambda s, o: 2.0, lambda s, o: 3.0, lambda a, b: 1 + a),
    "__iadd__": (lambda s, o: 2.0, lambda s, o: 3.0, lambda a, b: operator.iadd(a, b)),
    "__neg__": (lambda s: 2.0, lambda s: 3.0, lambda a, b: -a),
    "__lt__": (lambda s, o: True, lambda s, o: False, lambda a, b: 2 if a < b else 3),
    "__eq__": (lambda s, o: True, lambda s, o: False, lambda a, b: 2 if a == b else 3),
    "__bool__": (lambda s: True, lambda s: False, lambda a, b: 2 if a else 3),
    "__len__": (lambda s: 2, lambda s: 3, lambda a, b: len(a)),
    "__getitem__": (lambda s, k: 2.0, lambda s, k: 3.0, lambda a, b: a[0]),
    "__contains__": (lambda s, k: True, lambda s, k: False, lambda a, b: 2 if b in a else 3),
    "__iter__": (lambda s: iter([2.0]), lambda s: iter([3.0]), lambda a, b: sum(a)),
    "__next__": (lambda s: 2.0, lambda s: 3.0, lambda a, b: next(a)),
    "__index__": (lambda s: 1, lambda s: 2, lambda a, b: [1.0, 2.0, 3.0][a]),
    "__int__": (lambda s: 2, lambda s: 3, lambda a, b: int(a)),
    "__float__": (lambda s: 2.0, lambda s: 3.0, lambda a, b: float(a)),
    "__round__": (lambda s: 2, lambda s: 3, lambda a, b: round(a)),
    "__abs__": (lambda s: 2, lambda s: 3, lambda a, b: abs(a)),
    "__str__": (lambda s: "ab", lambda s: "abc", lambda a, b: len(f"{a}")),
    "__format__": (lambda s, spec: "ab", lambda s, spec: "abc", lambda a, b: len(f"{a:x}")),
    "__call__": (lambda s: 2.0, lambda s: 3.0, lambda a, b: a()),
    "__getattr__": (lambda s, name: 2.0, lambda s, name: 3.0, lambda a, b: a.missing),
}


COMES = [*((method, "another") for method in METHODS),
         *((method, "the_first") for method in ("__eq__", "__bool__", "__str__", "__iadd__"))]


@pytest.mark.parametrize("method, comes", COMES)
def test_a_special_method_that_is_replaced(method, comes):
    first, later, use = METHODS[method]

    def make(wrap):
        class Base:
            def __add__(self, other):
                return 5.0

        kind = type("Kind", (Base,), {} if comes == "the_first" else {method: first})
        a, b = kind(), kind()
        return wrap(lambda x: x * use(a, b)), lambda: setattr(kind, method, later), lambda: None

    check(make)


# Instructions and functions of C's that ask for a method of an object, beside those of METHODS: what is there first, what comes
# later, and what the step makes of an object and of x.
ASKS = {
    "bound of a slice": ("__index__", lambda s: 1, lambda s: 2, lambda a, x: x * sum([1.0, 2.0, 4.0][a:])),
    "bound of a tensor's slice": ("__index__", lambda s: 0, lambda s: 1, lambda a, x: x[a:].sum() * x),
    "index of a tensor": ("__index__", lambda s: 0, lambda s: -1, lambda a, x: (x * torch.tensor([1.0, 2.0]))[a] * x),
    "set": ("__eq__", lambda s, o: True, lambda s, o: s is o, lambda a, x: x * len({a, type(a)()})),
    "key of a dict": ("__eq__", lambda s, o: o == 1, lambda s, o: o == 2, lambda a, x: x * {1: 2.0, 2: 3.0, 7: 4.0}.get(a, 5.0)),
    "tuples": ("__lt__", lambda s, o: True, lambda s, o: False, lambda a, x: x * (2 if (a, 1) < (5, 1) else 3)),
    "lists": ("__eq__", lambda s, o: True, lambda s, o: False, lambda a, x: x * (2 if [a] == [1] else 3)),
    "in a list": ("__eq__", lambda s, o: True, lambda s, o: False, lambda a, x: x * (2 if a in [1, 2] else 3)),
    "arguments": ("__iter__", lambda s: iter([2.0]), lambda s: iter([3.0]), lambda a, x: x * max(0.0, *a)),
    "list display": ("__iter__", lambda s: iter([2.0]), lambda s: iter([3.0]), lambda a, x: x * len([*a])),
    "map": ("__iter__", lambda s: iter([2.0]), lambda s: iter([3.0]), lambda a, x: x * sum(map(abs, a))),
    "floor": ("__floor__", lambda s: 2, lambda s: 3, lambda a, x: x * math.floor(a)),
    "divmod": ("__divmod__", lambda s, o: (2, 0), lambda s, o: (3, 0), lambda a, x: x * divmod(a, 2)[0]),
    "range": ("__index__", lambda s: 2, lambda s: 3, lambda a, x: x * sum(range(a))),
    "path": ("__fspath__", lambda s: "ab", lambda s: "abc", lambda a, x: x * len(os.fspath(a))),
    "bytes": ("__bytes__", lambda s: b"ab", lambda s: b"abc", lambda a, x: x * len(bytes(a))),
    "dir": ("__dir__", lambda s: ["a", "b"], lambda s: ["a"], lambda a, x: x * len(dir(a))),
    "hint": ("__length_hint__", lambda s: 2, lambda s: 3, lambda a, x: x * operator.length_hint(a)),
}


@pytest.mark.parametrize("comes", ["another", "class", "base"])
@pytest.mark.parametrize("asks", [*ASKS, *METHODS])
def test_an_object_that_becomes_one_of_another_class(asks, comes):
    """And one whose class gets the method, or is made of another one."""
    if asks in ASKS:
        method, first, later, use = ASKS[asks]
    else:
        method, (first, later, of_two) = asks, METHODS[asks]
        use = lambda a, x: x * of_two(a, a)  # noqa: E731

    def make(wrap):
        first_base, later_base = (type(name, (), {method: each, "__hash__": lambda self: 7}) for name, each in (("First", first), ("Later", later)))
        kind = type("Kind", (first_base,), {})
        held = types.SimpleNamespace(a=kind())

        def change():
            if comes == "class":
                held.a.__class__ = type("Other", (later_base,), {})
            elif comes == "base":
                kind.__bases__ = (later_base,)
            else:
                setattr(kind, method, later)
        return wrap(lambda x: use(held.a, x)), change, lambda: None

    check(make)


@pytest.mark.parametrize("way", ["bases", "class", "metaclass"])
@pytest.mark.parametrize("of", ["method", "attribute", "super object", "function"])
def test_what_super_finds_behind_a_class(of, way):
    def make(wrap):
        class First:
            k = 2.0

            def f(self):
                return self.n

        class Later:
            k = 5.0

            def f(self):
                return 10 * self.n

        class Kind(First):
            def f(self):
                if of == "attribute":
                    return super().k
                return super(Kind, self).f() if of == "super object" else super().f()

        class Between(Kind, Later):
            def f(self):
                return 7.0
        held = types.SimpleNamespace(a=Kind())
        held.a.n = 3.0

        def change():
            if way == "bases":
                Kind.__bases__ = (Later,)
            elif way == "class":
                held.a.__class__ = type("Other", (Kind,), {"f": lambda self: 4.0})
            else:
                Kind.__bases__ = (Between.__mro__[2], Later)
        return wrap(lambda x: x * (Kind.f(held.a) if of == "function" else held.a.f())), change, lambda: None

    check(make)


METACLASS = {
    "attribute": lambda kind: kind.k, "call": lambda kind: kind(2.0), "sum": sum, "float": float, "text": lambda kind: len(f"{kind}"),
    "missing": lambda kind: getattr(kind, "missing", 3.0), "method": lambda kind: kind.m(), "items": lambda kind: max(1.0, *kind),
}


@pytest.mark.parametrize("use", METACLASS)
def test_the_class_of_a_class_becomes_another(use):
    def make(wrap):
        class Meta(type):
            k = property(lambda cls: 2.0)

            def __call__(cls, value):
                return value

            def __iter__(cls):
                return iter([2.0])

            def __float__(cls):
                return 2.0

            def __repr__(cls):
                return "ab"

            def m(cls):
                return 2.0

        class Other(Meta):
            k = property(lambda cls: 5.0)

            def __call__(cls, value):
                return 5 * value

            def __iter__(cls):
                return iter([5.0, 1.0])

            def __float__(cls):
                return 5.0

            def __repr__(cls):
                return "abcde"

            def __getattr__(cls, name):
                return 7.0

            def m(cls):
                return 5.0
        kind = Meta("Kind", (), {})
        return wrap(lambda x: x * METACLASS[use](kind)), lambda: setattr(kind, "__class__", Other), lambda: None

    check(make)


def test_the_keys_of_what_is_spread_over_a_call():
    class Mapping:
        def keys(self):
            return ["a"]

        def __getitem__(self, key):
            return 2.0

    def make(wrap):
        kind = type("Kind", (Mapping,), {})
        held = kind()
        return wrap(lambda x: x * (lambda **given: len(given))(**held)), lambda: setattr(kind, "keys", lambda self: ["a", "b"]), lambda: None

    check(make)


@pytest.mark.parametrize("owner", ["class", "class, exchanged", "module"])
def test_an_attribute_of_a_class_or_module_that_is_only_written_and_gets_code_for_it(owner):
    def make(wrap):
        log = []

        class Meta(type):
            pass

        class OtherMeta(Meta):
            k = property(lambda cls: 1.0, lambda cls, given: log.append("set"))

        class Module(types.ModuleType):
            k = property(lambda self: 1.0, lambda self, given: log.append("set"))

        class Kind(metaclass=Meta):
            pass
        held = types.ModuleType("held") if owner == "module" else Kind

        def step(x):
            held.k = 5.0
            return x + 1

        def change():
            if owner == "class":
                Meta.k = OtherMeta.k_property
            else:
                held.__class__ = OtherMeta if owner == "class, exchanged" else Module
        OtherMeta.k_property = vars(OtherMeta)["k"]
        return wrap(step), change, lambda: log

    check(make)


@pytest.mark.parametrize("kind, value, use", [
    (float, 1.5, round), (float, 1.5, float), (int, 3, lambda a: [1.0, 2.0, 3.0, 4.0][a]), (str, "ab", lambda a: len(f"{a}")),
    (tuple, (1.0, 2.0), sum), (int, 3, abs), (float, 1.5, lambda a: a * 2),
])
def test_a_value_of_a_class_made_of_a_plain_one_that_becomes_one_of_another(kind, value, use):
    def make(wrap):
        first = type("First", (kind,), {})
        other = type("Other", (first,), {method: lambda self, *rest, result=result: result for method, result in (
            ("__round__", 7), ("__float__", 7.0), ("__index__", 0), ("__format__", "abcdef"), ("__abs__", 7), ("__mul__", 7.0))})
        other.__iter__ = lambda self: iter([7.0])
        held = types.SimpleNamespace(a=first(value))
        return wrap(lambda x: x * use(held.a)), lambda: setattr(held.a, "__class__", other), lambda: None

    check(make)


OPERATORS = {
    "__mul__": lambda x: x * 2, "__rmul__": lambda x: 2 * x, "__add__": lambda x: x + 2, "__rsub__": lambda x: 2 - x,
    "__matmul__": lambda x: x @ x * x, "__neg__": lambda x: -x, "__pow__": lambda x: x ** 2, "__getitem__": lambda x: x[0] * x,
    "__len__": lambda x: x * len(x), "__iter__": lambda x: torch.stack(list(x)), "__lt__": lambda x: (x < 2) * x,
    "__bool__": lambda x: x * (2 if x.sum() == 2 else 3), "__float__": lambda x: x * float(x.sum()), "__abs__": abs,
    "__format__": lambda x: x * len(f"{x.sum():.1f}"), "__array__": lambda x: torch.from_numpy(numpy.asarray(x)) * 1,
}


@pytest.mark.parametrize("method, kind", [
    *((method, torch.Tensor) for method in OPERATORS),
    *((method, torch.nn.Parameter) for method in OPERATORS if method not in ("__bool__", "__float__", "__format__"))])  # of what ops make
def test_an_operator_of_tensors_that_is_replaced(method, kind):
    """As counters of operations do for some steps in the middle of a run."""
    use, had, before = OPERATORS[method], vars(kind).get(method), getattr(kind, method)
    count = [0]

    def counted(self, *given):
        count[0] += 1
        return before(self, *given)

    def make(wrap):
        held = torch.nn.Parameter(torch.ones(2), requires_grad=False)
        return wrap(lambda x: use(held if kind is torch.nn.Parameter else x) + x), lambda: setattr(kind, method, counted), lambda: count[0]

    def put_back():
        delattr(kind, method) if had is None else setattr(kind, method, had)
        count[0] = 0
    def compared():
        expected, _ = play(make, lambda function: lambda x: function(x))
        put_back()
        seen, step = play(make, lambda function: steptape.wrap(function, verify={"first": True, "rate": 0.0}))
        assert seen == expected and expected[-1][1] != "0", step.explain()
        assert step.stats["replayed"] > LATE / 2, step.explain()
    in_a_child(compared)  # CPython leaves traces in torch.Tensor: a tensor is a sequence from then on


@pytest.mark.parametrize("way", ["property", "descriptor", "class"])
@pytest.mark.parametrize("value", [5.0, "tensor"])
def test_an_attribute_that_is_only_written_and_whose_class_gets_code_for_it(value, way):
    def make(wrap):
        log = []

        class Sets:
            def __set__(self, owner, given):
                log.append("set")

        class Kind:
            pass

        class Late(Kind):
            def __setattr__(self, name, given):
                log.append(name)
        held = Kind()

        def step(x):
            held.k = x * 2 if value == "tensor" else value
            return x + 1

        def change():
            if way == "class":
                held.__class__ = Late
            else:
                Kind.k = Sets() if way == "descriptor" else property(lambda self: 1.0, lambda self, given: log.append("set"))
        return wrap(step), change, lambda: log

    check(make, None, True)


def an_object(held):
    return held.a


def a_function(held):
    return held.f


def a_module(held):
    return held.m


def a_tensor(held):
    return held.t


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("of", [an_object, a_function, a_module, a_tensor])
def test_a_namespace_that_is_replaced_of_what_the_step_only_writes_to(of, copies):
    """As a reset, or going back to a snapshot, does."""
    def make(wrap):
        held = types.SimpleNamespace(a=Odd(), f=lambda: None, m=torch.nn.Identity(), t=torch.ones(1))
        owner = of(held)
        start = dict(vars(owner))

        def step(x):
            owner.loss, owner.mode = (x * 2).detach(), "train"
            return x + 1

        def change():
            owner.__dict__ = dict(vars(owner)) if copies else dict(start)

        def look():
            return owner.__dict__.get("mode"), torch.is_tensor(owner.__dict__.get("loss")), vars(owner) is vars(of(held))
        return wrap(step), change, look

    check(make, replays=True)


of_c = {}


def case(code=None, replays=None):
    def add(make):
        of_c[make.__name__] = (make, code, replays)
        return make
    return add


@case()
def length_of_another_list(wrap):
    items = []
    odd = type("Odd", (), {"__len__": items.__len__})()
    return wrap(lambda x: x * (2 if odd else 3)), lambda: items.append(1), lambda: None


@case()
def items_of_another_dict(wrap):
    items = {1: 2.0}
    odd = type("Odd", (), {"__getitem__": items.__getitem__})()
    return wrap(lambda x: x * odd[1]), lambda: items.update({1: 3.0}), lambda: None


@case()
def iterator_over_another_list(wrap):
    items = [1.0]
    odd = type("Odd", (), {"__iter__": items.__iter__})()
    return wrap(lambda x: x * sum(odd)), lambda: items.append(1.0), lambda: None


@case()
def property_of_an_item(wrap):
    odd = type("Odd", (list,), {"first": property(operator.itemgetter(0))})([1.0])
    return wrap(lambda x: x * odd.first), lambda: odd.__setitem__(0, 4.0), lambda: None


@case()
def property_of_a_partial(wrap):
    held = {"k": 1.0}
    odd = type("Odd", (), {"first": property(functools.partial(lambda held, _: held["k"], held))})()
    return wrap(lambda x: x * odd.first), lambda: held.update(k=4.0), lambda: None


@case()
def call_of_a_partial(wrap):
    held = {"k": 1.0}
    odd = type("Odd", (), {"__call__": functools.partial(held.get, "k")})()
    return wrap(lambda x: x * odd()), lambda: held.update(k=4.0), lambda: None


@case()
def partial_in_a_list(wrap):
    held = {"k": 1.0}
    functions = [functools.partial(operator.getitem, held)]
    return wrap(lambda x: x * list(map(functions[0], ["k"]))[0]), lambda: held.update(k=4.0), lambda: None


@case()
def objects_in_an_array(wrap):
    array = numpy.array([[types.SimpleNamespace(v=1.0)]], dtype=object)
    return wrap(lambda x: x * array[0][0].v), lambda: setattr(array[0, 0], "v", 4.0), lambda: None


@case()
def through_a_weak_proxy(wrap):
    odd = Odd()
    odd.v = 1.0
    proxy = weakref.proxy(odd)
    return wrap(lambda x: x * proxy.v), lambda: setattr(odd, "v", 4.0), lambda: None


@case()
def size_through_a_weak_proxy(wrap):
    odd = collections.UserList([1])
    proxy = weakref.proxy(odd)
    return wrap(lambda x: x * len(proxy)), lambda: odd.append(1), lambda: None


def reset(held):
    held.clear()
    held.update(a=1.0, b=2.0)


@case("host_effect", replays=True)  # where it is the last already
def a_key_that_comes_last(wrap):
    held = {"a": 1.0, "b": 2.0}

    def step(x):
        del held["a"]
        held["a"] = 5.0
        return x * 2

    return wrap(step), lambda: reset(held), lambda: list(held)


@case("host_effect", replays=True)
def an_attribute_that_comes_last(wrap):
    odd = types.SimpleNamespace(a=1.0, b=2.0)

    def step(x):
        del odd.a
        odd.a = 5.0
        return x * 2

    return wrap(step), lambda: reset(vars(odd)), lambda: list(vars(odd))


@case()
def gradient_of_a_tensor_that_requires_none(wrap):
    held = torch.ones(2)
    return (wrap(lambda x: x * (2 if held.grad is None else 3)),
            lambda: setattr(held, "grad", torch.ones(2)), lambda: None)


@case("host_effect")
def version_of_a_tensor(wrap):
    held = torch.ones(2)
    return wrap(lambda x: x * (2 if held._version == 0 else 3)), lambda: held.add_(1), lambda: None


def reads(name, held, read, change, code=None, replays=None):
    """A case: what the step reads of `held()`, and what changes it."""
    def make(wrap):
        kept = held()
        return wrap(lambda x: x * read(kept)), lambda: change(kept), lambda: None

    of_c[name] = make, code, replays


class Sorts(list):
    def __init__(self, key):
        super().__init__()
        self.key = key


@dataclasses.dataclass
class Field:
    value: object = None


VALUE = operator.attrgetter("value")
CALL = getattr(operator, "call", weakref.ref.__call__)  # of Python 3.11


class Keyed:
    def __init__(self, value):
        self.value = value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


def class_of(**attributes):
    return type("Odd", (), attributes)


def with_k(held):
    held.k = 1.0
    return held


def namespace(value):
    """A new one that holds what was there before."""
    made = types.SimpleNamespace()
    made.value = value
    return made


def field(value):
    made = Field()
    made.value = value
    return made


def sorted_in_place(rows, key=None):
    rows.sort(key=key)
    return rows[0]["v"] if isinstance(rows[0], dict) else rows[0][0]


def asking_module(ask):
    held = types.SimpleNamespace(value=1.0, table={"a": 1.0})
    module = types.ModuleType("asking")
    module.__getattr__ = ask(held)
    return module, held


def referred():
    items = [Keyed(1.0), Keyed(2.0)]
    for k, item in enumerate(items):
        item.rank = float(k)
    return items, [weakref.ref(item) for item in items], [weakref.proxy(item) for item in items]


def ranked():
    items = [Keyed(float(k)) for k in range(1, 4)]
    for item in items:
        item.w = item.value
    return items


def with_bases(bases):
    made = type("Base", (), {}), type("Other", (), {})
    made[0].twice = made[1].twice = 2.0
    return type("Odd", (made[bases],), {})(), *made


def nested(value, depth=12):
    return [nested(value, depth - 1)] if depth else value


def innermost(value):
    while isinstance(value[0], list):
        value = value[0]
    return value


DEEP = {"array": lambda deep: numpy.array(deep).max(), "json": lambda deep: float("2" in json.dumps(deep)) + 1,
        "repr": lambda deep: float("2" in repr(deep)) + 1, "equal": lambda deep: float(deep == nested([2.0])) + 1,
        "pickle": lambda deep: innermost(pickle.loads(pickle.dumps(deep)))[0], "tensor": lambda deep: torch.tensor(deep).max(),
        "tuple": lambda deep: innermost(tuple(deep))[0], "chain": lambda deep: innermost(list(itertools.chain.from_iterable([deep])))[0]}
for way, read_deep in DEEP.items():
    reads(f"far_inside_{way}", lambda: nested([1.0]), read_deep, lambda deep: innermost(deep).__setitem__(0, 2.0))

reads("sort_of_lists", lambda: [[1.0], [2.0]], sorted_in_place, lambda rows: rows[1].__setitem__(0, 0.5))
reads("sort_by_a_key", lambda: [{"v": 1.0}, {"v": 2.0}], lambda rows: sorted_in_place(rows, lambda row: row["v"]),
      lambda rows: rows[1].update(v=0.5))
reads("index_of_a_namespace", lambda: [types.SimpleNamespace(a=1.0), types.SimpleNamespace(a=2.0)],
      lambda items: 1 + items.index(types.SimpleNamespace(a=2.0)), lambda items: setattr(items[0], "a", 2.0))
reads("count_of_a_namespace", lambda: [types.SimpleNamespace(a=1.0), types.SimpleNamespace(a=2.0)],
      lambda items: items.count(types.SimpleNamespace(a=2.0)), lambda items: setattr(items[0], "a", 2.0))
reads("repr_of_a_new_namespace", lambda: [1.0], lambda held: 2.0 if "2.0" in repr(namespace(held)) else 1.0,
      lambda held: held.__setitem__(0, 2.0))
reads("pickle_of_a_new_dataclass", lambda: [1.0], lambda held: pickle.loads(pickle.dumps(field(held))).value[0],
      lambda held: held.__setitem__(0, 2.0))
reads("slots_that_are_sorted_by", lambda: [Slotted(1.0), Slotted(2.0)],
      lambda items: 1 + items.index(sorted(items, key=operator.attrgetter("value"))[0]), lambda items: setattr(items[0], "value", 3.0))
reads("lists_that_are_sorted_by", lambda: [Sorts(1.0), Sorts(2.0)],
      lambda items: 1.0 if sorted(items, key=operator.attrgetter("key"))[0] is items[0] else 2.0,
      lambda items: setattr(items[0], "key", 3.0))
reads("attribute_of_the_class", lambda: class_of(rate=1.0)(), lambda odd: sum(map(operator.attrgetter("rate"), [odd])),
      lambda odd: setattr(type(odd), "rate", 2.0))
reads("attribute_of_the_class_by_name", lambda: class_of(rate=1.0)(), lambda odd: functools.reduce(getattr, ["rate"], odd),
      lambda odd: setattr(type(odd), "rate", 2.0))
reads("property_of_the_class", lambda: class_of(rate=property(lambda self: 1.0))(),
      lambda odd: sum(map(operator.attrgetter("rate"), [odd])), lambda odd: setattr(type(odd), "rate", property(lambda self: 2.0)))
for way, look in {
        "grouped": lambda odd: 1.0 + len(list(itertools.groupby([*odd], key=VALUE))),
        "grouped_of_a_generator": lambda odd: 1.0 + len(list(itertools.groupby((each for each in odd), key=VALUE))),
        "taken_while": lambda odd: 1.0 + len([*itertools.takewhile(VALUE, odd)]),
        "taken_while_of_a_generator": lambda odd: 1.0 + sum(1 for _ in itertools.takewhile(VALUE, (each for each in odd))),
        "dropped_while": lambda odd: 1.0 + len(tuple(itertools.dropwhile(VALUE, odd))),
        "starred": lambda odd: 1.0 + sum(itertools.starmap(getattr, [(odd[0], "value")])),
        "accumulated": lambda odd: 1.0 + list(itertools.accumulate(["value"], getattr, initial=odd[0]))[-1],
        "mapped_of_a_generator": lambda odd: 1.0 + sum(map(VALUE, (each for each in odd))),
        "called": lambda odd: 1.0 + VALUE.__call__(odd[0]),
        "called_by_its_class": lambda odd: 1.0 + type(VALUE).__call__(VALUE, odd[0]),
        "called_through_a_partial": lambda odd: 1.0 + functools.partial(VALUE, odd[0]).__call__(),
        "got_of_a_property": lambda odd: 1.0 + property(VALUE).__get__(odd[0])}.items():
    reads(f"attribute_{way}", lambda: [Keyed(1.0), Keyed(1.0), Keyed(2.0)], look, lambda odd: setattr(odd[0], "value", 0.0))
for way, sort in {
        "by_an_attribute": lambda items: items.sort(key=VALUE),
        "by_an_attribute_reversed": lambda items: items.sort(key=VALUE, reverse=True),
        "by_a_method": lambda items: items.sort(key=operator.methodcaller("__getattribute__", "value")),
        "by_the_class": lambda items: list.sort(items, key=VALUE),
        "by_a_method_of_the_list": lambda items: operator.methodcaller("sort", key=VALUE)(items),
        "by_a_partial": lambda items: functools.partial(items.sort, key=VALUE)(),
        "by_two": lambda items: items.sort(key=operator.attrgetter("value", "__class__.__name__"))}.items():
    reads(f"order_of_objects_{way}", ranked, lambda items, sort=sort: [sort(items), items[0].w * 10 + items[1].w][1],
          lambda items: setattr(items[0], "value", 2.5))
    reads(f"order_of_a_new_list_{way}", ranked, lambda items, sort=sort: [sort(new := [*items]), new[0].w * 10 + new[1].w][1],
          lambda items: setattr(items[0], "value", 2.5))
reads("objects_that_torch_maps", lambda: [Keyed(1.0), Keyed(2.0)], lambda items: sum(torch.utils._pytree.tree_map(VALUE, items)),
      lambda items: setattr(items[0], "value", 3.0))
reads("attributes_that_torch_maps", lambda: Keyed(1.0), lambda item: torch.utils._pytree.tree_map(functools.partial(getattr, item), ["value"])[0],
      lambda item: setattr(item, "value", 3.0))
reads("entries_that_torch_maps", lambda: {"a": 1.0}, lambda held: torch.utils._pytree.tree_map(held.get, ["a"])[0],
      lambda held: held.update(a=3.0))


reads("copies_that_torch_makes", lambda: [Keyed(1.0), Keyed(2.0)], lambda items: torch.utils._pytree.tree_map(copy.copy, items)[0].value,
      lambda items: setattr(items[0], "value", 3.0))
reads("dicts_of_dataclasses_that_torch_makes", lambda: [Field(1.0)], lambda items: torch.utils._pytree.tree_map(dataclasses.asdict, items)[0]["value"],
      lambda items: setattr(items[0], "value", 3.0))
reads("vars_that_torch_asks_for", lambda: [Keyed(1.0)], lambda items: torch.utils._pytree.tree_map(vars, items)[0]["value"],
      lambda items: setattr(items[0], "value", 3.0))
reads("attribute_of_a_module_by_a_partial", lambda: asking_module(lambda held: functools.partial(getattr, held)),
      lambda held: held[0].value, lambda held: setattr(held[1], "value", 3.0))
reads("attribute_of_a_module_by_a_dict", lambda: asking_module(lambda held: held.table.__getitem__),
      lambda held: held[0].a, lambda held: held[1].table.update(a=3.0))
for way, look in {
        "called": lambda held: [*map(CALL, held[1])][0].value,
        "called_and_read": lambda held: sum(map(VALUE, map(CALL, held[1]))),
        "filtered": lambda held: 1.0 + len([*filter(CALL, held[1])]),
        "proxies_read": lambda held: sum(map(VALUE, held[2])),
        "proxies_asked": lambda held: sum(map(getattr, held[2], ["value"])),
        "largest": lambda held: max(held[2], key=VALUE).value,
        "sorted": lambda held: sorted(held[2], key=VALUE)[0].rank,
        "in_torchs_hands": lambda held: torch.utils._pytree.tree_map(VALUE, held[2])[0]}.items():
    reads(f"referents_{way}", referred, look, lambda held: setattr(held[0][0], "value", 3.0))
reads("referents_that_die", referred, lambda held: 1.0 + sum(each is None for each in map(CALL, held[1])), lambda held: held[0].clear())


def cached(name, method):
    odd = class_of(**{name: functools.lru_cache(method)})()
    odd.value = 1.0
    return odd


for name, (method, look) in {
        "__getitem__": (lambda self, at: self.value, lambda odd: odd[0]),
        "__call__": (lambda self: self.value, lambda odd: odd()),
        "__getattr__": (lambda self, name: self.value, lambda odd: odd.other),
        "__add__": (lambda self, by: self.value, lambda odd: odd + 1),
        "__radd__": (lambda self, by: self.value, lambda odd: 1 + odd),
        "__len__": (lambda self: int(self.value), lambda odd: 1.0 + len(odd)),
        "__bool__": (lambda self: self.value > 1, lambda odd: 1.0 if odd else 2.0),
        "__lt__": (lambda self, other: self.value < 2, lambda odd: 1.0 if odd < 1 else 2.0),
        "__contains__": (lambda self, other: self.value < 2, lambda odd: 1.0 if 1 in odd else 2.0),
        "__float__": (lambda self: self.value, lambda odd: float(odd)),
        "__neg__": (lambda self: -self.value, lambda odd: -odd)}.items():
    reads(f"cache_as_{name}", functools.partial(cached, name, method), look,
          lambda odd, name=name: [getattr(type(odd), name).cache_clear(), setattr(odd, "value", 3.0)], "host_effect", False)
reads("sorted_by_its_name", lambda: [1.0, 2.0, 3.0], lambda held: [operator.methodcaller("sort", reverse=True)(held), held[0]][1],
      lambda held: held.__setitem__(slice(None), [1.0, 2.0, 4.0]))
reads("updated_by_its_name", lambda: {"a": 5.0, "b": 1.0}, lambda held: [operator.methodcaller("update", a=5.0)(held), sum(held.values())][1],
      lambda held: held.update(a=7.0, b=2.0))
reads("formatted_by_its_name", lambda: [1.0], lambda held: float(operator.methodcaller("format", a=held[0])("{a}")),
      lambda held: held.__setitem__(0, 2.0))
reads("method_by_its_name", lambda: class_of(rate=lambda self: 1.0)(), lambda odd: sum(map(operator.methodcaller("rate"), [odd])),
      lambda odd: setattr(type(odd), "rate", lambda self: 2.0))
reads("what_an_iterator_calls", lambda: [1.0], lambda held: next(iter(functools.partial(held.__getitem__, 0), None)),
      lambda held: held.__setitem__(0, 2.0))
reads("length_of_a_proxy", lambda: (held := {"a": 1}, types.MappingProxyType(held)), lambda held: len(held[1]) * 1.0,
      lambda held: held[0].update(b=2))
reads("bases_of_a_class", lambda: with_bases(0), lambda held: 1.0 if isinstance(held[0], held[1]) else 2.0,
      lambda held: setattr(type(held[0]), "__bases__", (held[2],)))
reads("order_of_a_class", lambda: with_bases(0), lambda held: 1.0 if held[1] in type(held[0]).mro() else 2.0,
      lambda held: setattr(type(held[0]), "__bases__", (held[2],)))
reads("subclasses_of_a_class", lambda: [type("Base", (), {})], lambda held: 1.0 + len(held[0].__subclasses__()),
      lambda held: held.append(type("Odd", (held[0],), {})), "host_effect", False)
reads("text_of_an_exception", lambda: ValueError("a"), lambda error: 1.0 if str(error) == "a" else 2.0,
      lambda error: setattr(error, "args", ("b",)))
reads("formatted_exception", lambda: ValueError("a"), lambda error: 1.0 if f"{error}" == "a" else 2.0,
      lambda error: setattr(error, "args", ("b",)))


class OwnTransform(transforms.AffineTransform):
    """Of a class of the program's, whose attributes torch's code reads."""


def log_probability(held, x=torch.ones(1)):
    return held.log_prob(x)


reads("a_transform_that_is_called", lambda: transforms.AffineTransform(0.0, 2.0), lambda held: held(torch.ones(1)),
      lambda held: setattr(held, "loc", 9.0))
reads("a_transform_of_a_class_of_its_own", lambda: OwnTransform(0.0, 2.0), lambda held: held(torch.ones(1)),
      lambda held: setattr(held, "loc", 9.0))
reads("a_transform_among_others", lambda: transforms.ComposeTransform([transforms.ComposeTransform([OwnTransform(0.0, 2.0)])]),
      lambda held: held(torch.ones(1)), lambda held: setattr(held.parts[0].parts[0], "loc", 9.0))
reads("a_transform_of_a_distribution",
      lambda: TransformedDistribution(Normal(0.0, torch.ones(1)), [transforms.AffineTransform(0.0, 2.0)], validate_args=False),
      log_probability, lambda held: setattr(held.transforms[0], "loc", 9.0))


def scheduled(make):
    """A step that steps a scheduler, and both."""
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    scheduler = make(optimizer)

    def step(x):
        optimizer.zero_grad()
        (parameter * x).sum().backward()
        optimizer.step()
        scheduler.step()
        return parameter.detach().clone()

    return step, optimizer, scheduler


@case()
def a_scheduler_that_is_patched(wrap):
    step, optimizer, scheduler = scheduled(lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 1.0))
    return wrap(step), lambda: setattr(scheduler, "get_lr", lambda: [0.25]), lambda: optimizer.param_groups[0]["lr"]


class Rows(torch.utils.data.Dataset):
    def __getitem__(self, i):
        return 2.0


@case()
def what_torchs_code_calls_of_a_class_of_the_programs(wrap):
    rows = torch.utils.data.Subset(type("Own", (Rows,), {"__getitem__": lambda self, i: 2.0})(), [1])
    return wrap(lambda x: x * rows[0]), lambda: setattr(type(rows.dataset), "__getitem__", lambda self, i: 3.0), lambda: None


@case()
def schedulers_in_a_chain(wrap):
    step, optimizer, chained = scheduled(lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(o, 12)]))
    return wrap(step), lambda: None, lambda: (chained._schedulers[0].last_epoch, optimizer.param_groups[0]["lr"])


def object_array(held):
    made = numpy.empty(1, dtype=object)
    made[0] = held
    return made


# what holds a list that was there before, and what code of C's makes of both
HOLDERS = {"deque": lambda held: collections.deque([held]), "values": lambda held: {"a": held}.values(), "array": object_array,
           "user_list": lambda held: collections.UserList([held]), "tuple": lambda held: (held,),
           "iterator": lambda held: [[held]]}
LOOKS = {"sum": lambda c: sum(c, [])[0], "chain": lambda c: [*itertools.chain(*c)][0], "zip": lambda c: [*zip(*c)][0][0],
         "text": lambda c: 2.0 if "2.0" in "".join(map(str, c)) else 1.0, "tuples": lambda c: [*map(tuple, c)][0][0],
         "array": lambda c: float(numpy.array([*c])[0, 0])}
for holder, look in itertools.product(HOLDERS, LOOKS):
    reads(f"{look}_of_{holder}", lambda holder=holder: (held := [1.0], HOLDERS[holder](held)),
          lambda held, holder=holder, look=look: LOOKS[look](iter(held[1][0]) if holder == "iterator" else held[1]),
          lambda held: held[0].__setitem__(0, 2.0))


def holding_itself(made, put):
    put(made, made)
    return made


ITSELF = {"deque": (collections.deque, lambda held, value: held.append(value)), "list": (list, lambda held, value: held.append(value)),
          "dict": (dict, lambda held, value: held.__setitem__(len(held), value)),
          "namespace": (types.SimpleNamespace, lambda held, value: setattr(held, f"at{len(vars(held))}", value))}
for kind, (made, put) in ITSELF.items():
    reads(f"text_of_a_{kind}_that_holds_itself", lambda made=made, put=put: holding_itself(made(), put), lambda held: len(str(held)) * 1.0,
          lambda held, put=put: put(held, 1.0), *(["host_effect", False] if kind == "namespace" else []))

# of what is known by its identity, too, and whatever it is that moves
MOVED = {"object": "host_tensor_varies"}  # of which each value is another whole
for kind, hold in {"module": lambda: torch.nn.Linear(2, 2), "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
                   "function": lambda: lambda: 1, "class": lambda: type("Odd", (), {}), "object": lambda: class_of()(),
                   "namespace": types.SimpleNamespace, "slots": lambda: Slotted(1.0)}.items():
    def moving(wrap, hold=hold):
        held = [hold(), hold()]
        for each in held:
            each.value = 1.0

        def advance():
            held[0].value += 0.125

        return wrap(lambda x: x * max(map(operator.attrgetter("value"), held))), lambda: setattr(held[1], "value", 2.5), advance

    of_c[f"number_that_moves_in_a_{kind}"] = moving, MOVED.get(kind), False


class Item:
    def __init__(self, score, value):
        self.score, self.value = score, value


# what goes over objects, whose attribute a function of C's reads
BY = operator.attrgetter("score")
OVER = {
    "list": lambda items: max(items, key=BY), "values": lambda items: max(dict(enumerate(items)).values(), key=BY),
    "deque": lambda items: sorted(collections.deque(items), key=BY)[-1],
    "generator": lambda items: max((item for item in items if item.value), key=BY),
    "filter": lambda items: max(filter(lambda item: item.value, items), key=BY), "iterator": lambda items: max(iter(items), key=BY),
    "heap": lambda items: heapq.nlargest(1, items, key=BY)[0],
    "mapped": lambda items: items[[*map(BY, items)].index(max(map(BY, items)))],
    "reduced": lambda items: functools.reduce(lambda a, b: a if BY(a) > BY(b) else b, items),
}
for way, choose in OVER.items():
    reads(f"attribute_of_objects_in_a_{way}", lambda: [Item(1.0, 5.0), Item(2.0, 6.0)], lambda items, choose=choose: choose(items).value,
          lambda items: setattr(items[0], "score", 3.0))

for way, get in {"own": lambda m: m.__getattribute__("k"), "objects": lambda m: object.__getattribute__(m, "k"),
                 "vars": lambda m: vars(m)["k"], "getter": lambda m: sum(map(operator.attrgetter("k"), [m]))}.items():
    for kind, hold in {"module": lambda: torch.nn.Linear(2, 2), "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
                       "function": lambda: lambda: 1, "class": class_of}.items():
        if way != "own" or kind != "class":
            reads(f"attribute_of_a_{kind}_by_{way}", lambda hold=hold: with_k(hold()), get, lambda held: setattr(held, "k", 3.0))


# what a step sets that C keeps: a replay does not do it, and says so
def setting(name, held, change, look):
    def make(wrap):
        kept = held()

        def step(x):
            change(kept)
            return x * 2

        return wrap(step), lambda: None, lambda: look(kept)

    of_c[f"sets_{name}"] = make, "host_effect", False


First, Second = type("First", (), {}), type("Second", (), {})
setting("the_class", First, lambda held: setattr(held, "__class__", Second if type(held) is First else First), lambda held: type(held).__name__)
setting("the_dict", lambda: class_of()(), lambda held: setattr(held, "__dict__", {"n": vars(held).get("n", 0) + 1}), lambda held: vars(held))
setting("defaults", lambda: lambda a=1: a, lambda held: setattr(held, "__defaults__", (held() + 1,)), lambda held: held())
setting("arguments_of_an_exception", lambda: ValueError(1), lambda held: setattr(held, "args", (held.args[0] + 1,)), lambda held: held.args)
setting("bases", lambda: type("Odd", (First,), {}),
        lambda held: setattr(held, "__bases__", (Second if held.__bases__[0] is First else First,)), lambda held: held.__bases__)
setting("the_limit_of_recursion", lambda: [sys.getrecursionlimit()], lambda held: sys.setrecursionlimit(held[0]), lambda held: 0)
setting("the_collector", lambda: None, lambda held: gc.set_debug(0), lambda held: 0)


@case("host_effect", False)
def turns_the_gradient_mode_over(wrap):
    def step(x):
        torch.set_grad_enabled(not torch.is_grad_enabled())
        return x * 2

    mode = torch.is_grad_enabled()
    return wrap(step), lambda: torch.set_grad_enabled(mode), torch.is_grad_enabled


@case()
def validation_of_distributions_turned_off(wrap):
    def step(x):
        torch.distributions.Distribution.set_default_validate_args(False)
        return x * 2

    return wrap(step), lambda: torch.distributions.Distribution.set_default_validate_args(True), \
        lambda: torch.distributions.Distribution._validate_args


@case("host_effect", False)
def batches_of_a_loader(wrap):
    batches = iter(DataLoader([1.0] * 20 + [2.0] * 40, batch_size=2, collate_fn=torch.tensor))
    return wrap(lambda x: x * next(batches)), lambda: None, lambda: 0


@pytest.mark.parametrize("make, code, replays", of_c.values(), ids=of_c)
def test_what_code_of_c_looks_at(make, code, replays):
    check(make, code, replays)


@pytest.mark.parametrize("attribute", ["_base", "_is_view", "grad", "_version"])
def test_what_only_the_tensor_object_knows_of_an_argument(attribute):
    def given(i):
        x = torch.ones(2)
        if i > LATE:
            x = x[:]
            x.grad = torch.ones(2)
        return x

    def function(x):
        held = getattr(x, attribute)
        held = held() if callable(held) else held
        return x * (2 if held is None or held is False else 3)

    step = steptape.wrap(function, verify={"first": True, "rate": 0.0})
    assert [step(given(i)).tolist() for i in range(CALLS)] == [function(given(i)).tolist() for i in range(CALLS)]
    assert codes_of(step) == {"host_effect"}, step.explain()


class Doubling(list):
    def append(self, value):
        super().append(2 * value)


class Meter(list):
    total = 0.0

    def append(self, value):
        self.total += value
        super().append(value)


class Doubled(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, 2 * value)


class Updated(dict):
    times = 0

    def update(self, **entries):
        self.times += 1
        super().update(**entries)


# What the containers' own methods do besides is watched as it runs; a replay does that again, and does not call them.
OWN_CONTAINERS = {
    "a_list_that_doubles": (Doubling, lambda held, value: held.append(value)),
    "a_list_that_doubles_in_a_loop": (Doubling, lambda held, value: [held.append(each) for each in (value, 1.0)]),
    "a_list_below_its_method": (Doubling, lambda held, value: list.append(held, value)),
    "a_list_that_sums": (Meter, lambda held, value: held.append(value)),
    "a_list_that_sums_constants": (Meter, lambda held, value: held.append(3.0)),
    "a_user_list": (type("Users", (collections.UserList,), {"append": lambda self, value: self.data.append(2 * value)}),
                    lambda held, value: held.append(value)),
    "a_dict_that_doubles": (Doubled, lambda held, value: held.__setitem__("value", value)),
    "a_dict_that_counts": (Updated, lambda held, value: held.update(value=value)),
}


@pytest.mark.parametrize("make, change", OWN_CONTAINERS.values(), ids=OWN_CONTAINERS)
def test_a_container_with_methods_of_its_own_is_changed_once(make, change):
    def program(wrap):
        held, counted = make(), torch.zeros(1)

        def step(x):
            counted.add_(1)
            change(held, counted.item())
            return x * 2
        return wrap(step), lambda: None, lambda: (held, vars(held))

    check(program)


PROXIED = {  # of a dict {"a": 1., "b": 2.}, in which one of the two becomes 7., or a third comes
    "item": lambda m: m["a"],
    "get": lambda m: m.get("a", 0) + m.get("c", 5.),
    "values": lambda m: sum(m.values()),
    "items": lambda m: [v for k, v in m.items() if k != "c"][0],
    "length": lambda m: len(m),
    "contains": lambda m: 1. if "c" in m else 2.,
    "iteration": lambda m: float(len([k for k in m])),
    "keys": lambda m: float(len(m.keys())),
    "dict": lambda m: dict(m)["a"],
    "spread": lambda m: (lambda **names: names["a"])(**m),
    "union": lambda m: (m | {"z": 1})["a"],
    "copy": lambda m: m.copy()["a"],
    "equality": lambda m: 1. if m == {"a": 1., "b": 2.} else 2.,
    "truth": lambda m: 1. if m else 2.,
    "reversed": lambda m: float(len(list(reversed(m)))),
}


@pytest.mark.parametrize("late", [{"a": 7.}, {"c": 3.}], ids=["a value", "a key"])
@pytest.mark.parametrize("use", PROXIED.values(), ids=PROXIED)
def test_a_proxy_of_a_dict_is_that_dict(use, late):
    def make(wrap):
        held = {"a": 1., "b": 2.}
        proxy = types.MappingProxyType(held)
        return wrap(lambda x: x * use(proxy)), lambda: held.update(late), lambda: held
    check(make)


@pytest.mark.parametrize("use", [
    lambda kind: kind.__dict__["a"], lambda kind: kind.__dict__.get("c", 5.), lambda kind: 1. if "c" in kind.__dict__ else 2.,
    lambda kind: vars(kind)["a"], lambda kind: sum(v for k, v in vars(kind).items() if len(k) == 1),
], ids=["item", "get", "contains", "vars", "items"])
@pytest.mark.parametrize("late", ["a", "c"])
def test_the_proxy_that_a_class_gives_of_its_names(use, late):
    def make(wrap):
        kind = type("Kind", (), {"a": 1., "b": 2.})
        return wrap(lambda x: x * use(kind)), lambda: setattr(kind, late, 7.), lambda: None
    check(make)


def test_the_parameters_of_a_signature_that_is_kept():
    def make(wrap):
        held = types.SimpleNamespace(signature=inspect.signature(lambda a, b=1: 0))

        def f(x):
            defaults = [p.default for p in held.signature.parameters.values() if p.default is not p.empty]
            return x * float(sum(defaults))
        return wrap(f), lambda: setattr(held, "signature", inspect.signature(lambda a, b=5, c=7: 0)), lambda: None
    check(make)

"""What code of C's looks up by itself: special methods of a class, code of C's in the place of a method, what a weak reference leads to
or an array of objects holds, and attributes that a tensor object keeps to itself. Each changes after the plan is made."""
import collections
import functools
import operator
import types
import weakref

import numpy
import pytest
import torch

import steptape
from outcomes import codes_of

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


@case("host_effect")
def through_a_weak_proxy(wrap):
    odd = Odd()
    odd.v = 1.0
    proxy = weakref.proxy(odd)
    return wrap(lambda x: x * proxy.v), lambda: setattr(odd, "v", 4.0), lambda: None


@case("host_effect")
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

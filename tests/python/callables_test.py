"""Objects of C's that can be called, and code of Python's behind none of their calls: what they call, with what they hold, is seen as if the step
had called it. Each changes after the plan is made, or is a method that changes something in each call."""
import functools
import operator
import types

import numpy
import pytest
import torch

from twins import codes_of, played_alike

CALLS, LATE = 20, 9


class Partial(functools.partial):
    pass


class Louder(functools.partial):
    def __call__(self, *given, **named):
        return super().__call__(*given, **named)


class Static(staticmethod):
    pass


class OfClass:
    c = 2.0
    __call__ = classmethod(operator.attrgetter("c"))


class Base:
    scale = 2.0

    def scaled(self):
        return self.scale


class Derived(Base):
    def scaled(self):
        return Super(Derived, self).scaled()


class Super(super):
    pass


class Held:
    def __init__(self):
        self.a, self.d, self.log, self.log_of_tensors = 2.0, {"a": 2.0}, [], []


def times(x, by=1.0):
    return x * by


def hooked(hook):
    """The gradient of a parameter with this hook."""
    weight = torch.nn.Parameter(torch.ones(2))
    weight.register_hook(hook)

    def gradient(x):
        weight.grad = None
        (weight * x).sum().backward()
        return weight.grad
    return gradient


# what the step calls, made of what is held, and what changes that
READ = {
    "partial": (lambda held: functools.partial(times, by=2.0), lambda held, f: f.keywords.update(by=3.0)),
    "partial_of_a_class": (lambda held: Partial(times, by=2.0), lambda held, f: f.keywords.update(by=3.0)),
    "partial_of_a_class_set_anew": (lambda held: Partial(times, by=2.0), lambda held, f: f.__setstate__((times, (), {"by": 3.0}, None))),
    "partial_with_a_call_of_its_own": (lambda held: Louder(times, by=2.0), lambda held, f: f.keywords.update(by=3.0)),
    "partial_of_a_class_of_torchs": (lambda held: Partial(torch.mul, other=2.0), lambda held, f: f.keywords.update(other=3.0)),
    "partial_of_a_class_over_get": (lambda held: (lambda x, get=Partial(held.d.get): x * get("a")), lambda held, f: held.d.update(a=3.0)),
    "partial_with_a_call_over_get": (lambda held: (lambda x, get=Louder(held.d.get): x * get("a")), lambda held, f: held.d.update(a=3.0)),
    "partial_of_a_class_over_getattr": (lambda held: (lambda x, get=Partial(getattr, held): x * get("a")), lambda held, f: setattr(held, "a", 3.0)),
    "partial_of_a_class_over_a_getter": (lambda held: (lambda x, get=Partial(operator.attrgetter("a"), held): x * get()),
                                         lambda held, f: setattr(held, "a", 3.0)),
    "partial_of_a_class_as_a_hook": (lambda held: hooked(held.__dict__.setdefault("hook", Partial(times, by=2.0))),
                                     lambda held, f: held.hook.keywords.update(by=3.0)),
    "staticmethod": (lambda held: (lambda x, get=staticmethod(held.d.get): x * get("a")), lambda held, f: held.d.update(a=3.0)),
    "staticmethod_of_a_class": (lambda held: (lambda x, get=Static(held.d.get): x * get("a")), lambda held, f: held.d.update(a=3.0)),
    "staticmethod_over_a_partial": (lambda held: (lambda x, f=staticmethod(held.__dict__.setdefault("f", functools.partial(times, by=2.0))): f(x)),
                                    lambda held, f: held.f.keywords.update(by=3.0)),
    "staticmethod_over_getattribute": (lambda held: (lambda x, get=staticmethod(held.__getattribute__): x * get("a")),
                                       lambda held, f: setattr(held, "a", 3.0)),
    "staticmethod_as_a_key": (lambda held: (lambda x, get=staticmethod(held.d.get): x * max(["a"], key=get).count("a") * held.d["a"]),
                              lambda held, f: held.d.update(a=3.0)),
    "generic_alias": (lambda held: (lambda x, get=types.GenericAlias(held.d.get, (int,)): x * get("a")), lambda held, f: held.d.update(a=3.0)),
    "function_of_numpys": (lambda held: (lambda x, get=numpy.frompyfunc(held.d.get, 1, 1): x * get("a")), lambda held, f: held.d.update(a=3.0)),
    "classmethod_of_c": (lambda held: (lambda x, kind=type("Kind", (OfClass,), {}): x * kind()()), lambda held, f: setattr(OfClass, "c", 3.0)),
    "super_of_a_class": (lambda held: (lambda x, item=Derived(): x * item.scaled()), lambda held, f: setattr(Base, "scaled", lambda self: 3.0)),
}


@pytest.mark.parametrize("made, change", READ.values(), ids=READ)
def test_what_it_reads(monkeypatch, made, change):
    monkeypatch.setattr(OfClass, "c", 2.0)
    scaled = Base.scaled

    def play(wrap):
        monkeypatch.setattr(Base, "scaled", scaled)
        monkeypatch.setattr(OfClass, "c", 2.0)
        held = Held()
        f = made(held)
        step = wrap(lambda x: f(x) + 0)
        seen = []
        for i in range(CALLS):
            seen.append(step(torch.ones(2)).tolist())
            if i == LATE:
                change(held, f)
        assert seen[0] != seen[-1]
        return seen, step
    step = played_alike(play)
    assert step.stats["replayed"] > LATE / 2, step.explain()


def test_what_a_property_gives_to_be_called():
    class Called:
        @property
        def __call__(self):
            return self.held.__getattribute__

    def play(wrap):
        held, called = Held(), Called()
        called.held = held
        step = wrap(lambda x: x * called("a"))
        seen = []
        for i in range(CALLS):
            seen.append(step(torch.ones(2)).tolist())
            if i == LATE:
                held.a = 3.0
        return seen, step
    step = played_alike(play)
    assert step.stats["replayed"] == 0 and codes_of(step) == {"host_effect"}, step.explain()
    assert "`__call__` is a property" in step.explain()


# what changes something in each call
WRITTEN = {
    "partial_of_a_class": lambda held: Partial(held.log.append),
    "partial_with_a_call_of_its_own": lambda held: Louder(held.log.append),
    "staticmethod": lambda held: staticmethod(held.log.append),
    "staticmethod_over_a_partial": lambda held: staticmethod(functools.partial(held.log.append)),
    "staticmethod_over_a_staticmethod": lambda held: staticmethod(staticmethod(held.log.append)),
    "generic_alias": lambda held: types.GenericAlias(held.log.append, (int,)),
}


@pytest.mark.parametrize("made", WRITTEN.values(), ids=WRITTEN)
def test_what_it_changes(made):
    def play(wrap):
        held = Held()
        add = made(held)

        def step(x):
            add(5.0)
            return x * 2
        step = wrap(step)
        seen = []
        for _ in range(CALLS):
            seen.append((step(torch.ones(2)).tolist(), list(held.log)))
        return seen, step
    step = played_alike(play)
    assert step.stats["replayed"] > CALLS / 2, step.explain()


def test_a_hook_that_appends_through_a_staticmethod():
    def play(wrap):
        held = Held()
        weight = torch.nn.Parameter(torch.ones(2))
        weight.register_post_accumulate_grad_hook(staticmethod(lambda each: held.log.append(1.0)))
        weight.register_post_accumulate_grad_hook(staticmethod(functools.partial(held.log_of_tensors.append)))

        def step(x):
            weight.grad = None
            (weight * x).sum().backward()
            return weight.grad + 0
        step = wrap(step)
        seen = []
        for _ in range(CALLS):
            seen.append((step(torch.ones(2)).tolist(), len(held.log), len(held.log_of_tensors)))
        return seen, step
    played_alike(play)

"""Tensors of any geometry as arguments, handed twice, overlapping, deep in structures."""
import collections
import contextvars
import functools
import itertools
import operator
import random
import types
import weakref

import numpy as np
import pytest
import torch
import torch.nn as nn

import steptape
from classification import Training
from twins import bits, compare, is_refused, played_alike, replays_as_a_rule


def scaling():
    """A step of one parameter that takes tensors of any shape."""
    weight = nn.Parameter(torch.tensor(1.5))
    model = nn.ParameterList([weight])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def train(*tensors):
        optimizer.zero_grad()
        loss = sum((t * weight).square().sum() for t in tensors)
        loss.backward()
        optimizer.step()
        return loss.detach(), weight.grad.clone()
    return train, model, optimizer


def numbers(i, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(i))


def halves_of_one(i):
    both = numbers(i, 8)
    return both[:5], both[3:]


GEOMETRIES = {
    "empty": lambda i: (numbers(i, 0),),
    "empty_matrix": lambda i: (numbers(i, 3, 0),),
    "scalar": lambda i: (numbers(i),),
    "one_element": lambda i: (numbers(i, 1, 1, 1),),
    "transposed": lambda i: (numbers(i, 3, 4).t(),),
    "strided": lambda i: (numbers(i, 9)[::2],),
    "with_an_offset": lambda i: (numbers(i, 9)[1:],),
    "expanded": lambda i: (numbers(i, 3, 1).expand(3, 4),),
    "overlapping_itself": lambda i: (numbers(i, 6).as_strided((4, 3), (1, 1)),),
    "overlapping_another": halves_of_one,
    "handed_twice": lambda i: (numbers(i, 3),) * 2,
    "view_of_another": lambda i: (lambda t: (t, t.view(4)))(numbers(i, 2, 2)),
    "negated_view": lambda i: (torch._neg_view(numbers(i, 4)),),
    "integers": lambda i: (numbers(i, 4).mul(9).to(torch.int8),),
    "booleans": lambda i: (numbers(i, 4) > 0,),
    "half": lambda i: (numbers(i, 4).half(),),
    "double": lambda i: (numbers(i, 4).double(),),
    "many_dimensions": lambda i: (numbers(i, *[1] * 12, 2),),
}


@pytest.mark.parametrize("tensors", GEOMETRIES.values(), ids=GEOMETRIES)
def test_a_tensor_of_any_geometry_is_an_argument(tensors):
    def make():
        train, model, optimizer = scaling()
        return Training(train, (model, optimizer), tensors)

    replays_as_a_rule(compare(make))


@pytest.mark.parametrize("tensors", GEOMETRIES.values(), ids=GEOMETRIES)
def test_a_tensor_changes_its_geometry_in_mid_run(tensors):
    """From a contiguous copy of the same values to the odd one, and back at times."""
    def arguments(i):
        odd = tensors(i)
        return odd if i >= 12 and i % 4 else tuple(t.clone(
            memory_format=torch.contiguous_format).resolve_neg() for t in odd)

    def make():
        train, model, optimizer = scaling()
        return Training(train, (model, optimizer), arguments)

    replays_as_a_rule(compare(make))


def test_arguments_begin_to_overlap_where_the_step_writes_one():
    def make():
        def step(a, b):
            a.add_(1)
            return (a * b).sum()

        def arguments(i):
            memory = numbers(i, 12)
            return (memory[:8], memory[4:]) if i >= 12 and i % 2 else (
                memory[:8].clone(), memory[4:].clone())
        return Training(step, (), arguments)

    replays_as_a_rule(compare(make))


def test_the_same_tensor_is_handed_twice_where_the_step_writes_one():
    def make():
        def step(a, b):
            a.mul_(2)
            return a + b

        def arguments(i):
            a = numbers(i, 4)
            return (a, a) if i >= 12 and i % 2 else (a, a.clone())
        return Training(step, (), arguments)

    replays_as_a_rule(compare(make))


def test_a_parameter_is_an_argument():
    def make():
        train, model, optimizer = scaling()
        return Training(lambda p: train(p.detach() * 2), (model, optimizer),
                        lambda i: (model[0],))

    is_refused(compare(make), {"rebound_tensor"})


def test_a_parameter_takes_the_place_of_a_plain_argument():
    def make():
        train, model, optimizer = scaling()
        return Training(lambda p: train(p.detach() * 2), (model, optimizer),
                        lambda i: (model[0] if i >= 12 and i % 2 else numbers(i),))

    is_refused(compare(make), {"rebound_tensor"})


def test_an_argument_that_requires_a_gradient_gets_one():
    def make():
        train, model, optimizer = scaling()
        newest = []

        def arguments(i):
            newest[:] = [numbers(i, 3).requires_grad_(i % 5 != 4)]
            return tuple(newest)
        return Training(train, lambda: [model, optimizer, [t.grad for t in newest]], arguments)

    replays_as_a_rule(compare(make))


def nested(i, depth=5, width=3):
    """A tree of dicts, lists and tuples with tensors, numbers and text at its leaves."""
    if depth == 0:
        return [numbers(i, 2), i % 2, "leaf", None, 0.5]
    items = [nested(i + n, depth - 1, width) for n in range(width)]
    return (dict(zip("abc", items)), items, tuple(items))[depth % 3]


def leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, torch.Tensor):
        yield value


def test_a_huge_structure_of_arguments_and_results():
    def make():
        train, model, optimizer = scaling()

        def step(tree):
            loss, gradient = train(*leaves(tree))
            return {"loss": loss, "tree": [t * 2 for t in leaves(tree)], "deep": [[(gradient,)]]}
        return Training(step, (model, optimizer), lambda i: (nested(i % 2),))

    replays_as_a_rule(compare(make, steps=24))


def test_a_deep_structure_of_arguments_and_results():
    def make():
        def step(tree):
            result = next(leaves(tree)) * 2
            for _ in range(100):
                result = [result]
            return result

        def arguments(i):
            tree = numbers(i, 2)
            for _ in range(100):
                tree = [tree]
            return (tree,)
        return Training(step, (), arguments)

    is_refused(compare(make), {"escaped_buffer", "host_effect", "opaque_argument"})


attention = nn.MultiheadAttention(8, 2, batch_first=True)

# How a step, or torch's code in it, asks which tensors are one: no op tells of it.
ASKS_WHICH_ARE_ONE = {
    "keys_of_a_set": lambda x, y: x * len({x, y}),
    "keys_of_a_dict": lambda x, y: x * {x: 1.0}.get(y, 2.0),
    "keys_of_a_dict_made_of_both": lambda x, y: x * len(dict.fromkeys([x, y])),
    "keys_in_tuples": lambda x, y: x * len({(x, 1), (y, 1)}),
    "counted": lambda x, y: x * len(collections.Counter([x, y])),
    "sets_compared": lambda x, y: x * ({x} == {y}),
    "sets_joined": lambda x, y: x * len({x} | {y}),
    "identity_mapped": lambda x, y: x * sum(map(operator.is_, [x], [y])),
    "grouped": lambda x, y: x * sum(1 for _ in itertools.groupby([x, y], key=id)),
    "shown": lambda x, y: x * (object.__repr__(x) == object.__repr__(y)),
    "weakly": lambda x, y: x * (weakref.ref(x) is weakref.ref(y)),
    "attention": lambda x, y: attention(x, y, y)[0],
    "attention_of_three": lambda x, y: attention(x, x, y)[0],
}


@pytest.mark.parametrize("when", (lambda i: i >= 10, lambda i: i < 10, lambda i: i % 5 == 4), ids=("late", "early", "at_times"))
@pytest.mark.parametrize("ask", ASKS_WHICH_ARE_ONE.values(), ids=ASKS_WHICH_ARE_ONE)
def test_which_arguments_are_one_tensor_is_guarded(ask, when):
    step = steptape.wrap(lambda x, y: ask(x, y).detach(), verify={"first": True, "rate": 0.0})
    for i in range(30):
        x, other = torch.randn(2, 3, 8), torch.randn(2, 3, 8)
        y = x if when(i) else other
        assert torch.equal(step(x, y), ask(x, y)), i
    assert step.stats["replayed"] >= 10, step.explain()


@pytest.mark.parametrize("ask", ASKS_WHICH_ARE_ONE.values(), ids=ASKS_WHICH_ARE_ONE)
def test_that_an_argument_is_a_tensor_of_the_programs_is_guarded(ask):
    state = types.SimpleNamespace(kept=torch.randn(2, 3, 8))
    step = steptape.wrap(lambda x: ask(state.kept, x).detach(), verify={"first": True, "rate": 0.0})
    for i in range(30):
        if i >= 20:
            state.kept = torch.randn(2, 3, 8)  # in each call
        x = state.kept if i % 10 == 9 else torch.randn(2, 3, 8)
        assert torch.equal(step(x), ask(state.kept, x)), i


@pytest.mark.parametrize("ask", ("is_set_to", "data_ptr"))
def test_a_step_that_asks_where_its_arguments_lie_is_refused(ask):
    step = steptape.wrap(lambda x, y: x * (x.is_set_to(y) if ask == "is_set_to" else x.data_ptr() == y.data_ptr()))
    for i in range(20):
        x = torch.randn(3)
        y = x.view_as(x) if i >= 10 else torch.randn(3)
        assert torch.equal(step(x, y), x * (i >= 10)), i
    is_refused(step, {"host_read", "written_outside"})


def default(tensor):
    def held(h=tensor):
        return h
    return held


def default_of_a_keyword(tensor):
    def held(*, h=tensor):
        return h
    return held


def of_an_array(tensor):
    array = np.empty(1, object)
    array[0] = tensor
    return lambda: array[0]


def of_a_variable(tensor):
    variable = contextvars.ContextVar("held", default=tensor)
    return lambda: variable.get()


def of_a_cache(tensor):
    cached = functools.lru_cache(lambda n: tensor)
    cached(1)
    return lambda: cached(1)


# what gives a tensor that it was made with
HOLDERS = {
    "deque": lambda t: (lambda q: lambda: q[0])(collections.deque([t])),
    "popped": lambda t: (lambda q: lambda: (q.append(t), q.popleft())[1])(collections.deque([t])),
    "deque_of_tuples": lambda t: (lambda q: lambda: q[0][0])(collections.deque([(t, 1)])),
    "set": lambda t: (lambda s: lambda: next(iter(s)))({t}),
    "frozenset": lambda t: (lambda s: lambda: next(iter(s)))(frozenset([t])),
    "key": lambda t: (lambda d: lambda: next(iter(d)))({t: 1.0}),
    "key_of_items": lambda t: (lambda d: lambda: [k for k, v in d.items()][0])({t: 1.0}),
    "tuple_as_key": lambda t: (lambda d: lambda: next(iter(d))[0])({(t, 1): 1.0}),
    "default": default,
    "keyword_default": default_of_a_keyword,
    "array_of_objects": of_an_array,
    "context_variable": of_a_variable,
    "cache": of_a_cache,
    "weak_reference": lambda t: weakref.ref(t),
    "bound_method": lambda t: types.MethodType(lambda held: held, t),
    "list": lambda t: (lambda held: lambda: held[0])([t]),
    "slots": lambda t: (lambda held: lambda: held[0].last[0])([types.SimpleNamespace(last=(t,))]),
}


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("way", ["argument", "place"])
@pytest.mark.parametrize("holder", HOLDERS)
def test_an_argument_may_cease_to_be_a_tensor_that_is_held_elsewhere(holder, way, is_written):
    def play(wrap):
        one = torch.ones(3)
        held, place = HOLDERS[holder](one), types.SimpleNamespace(x=one)

        def train(x):
            if is_written:
                x.mul_(0.9)
            return x * 1 + held() * 2

        step, seen = wrap(train if way == "argument" else lambda: train(place.x)), []
        for i in range(24):
            place.x = one if i < 9 or i in (15, 16) else numbers(i, 3)
            seen.append(bits(step(place.x) if way == "argument" else step()))
        return seen, bits(one), step

    # which tensor a queue holds that the step changes is not compared with its arguments: it runs eagerly
    assert (played_alike(play).stats["replayed"] > 4) == ((holder, way) != ("popped", "argument"))


def test_tensors_of_a_cache_are_each_their_own():
    def play(wrap):
        @functools.lru_cache
        def masks(n):
            return torch.tril(torch.ones(n, n)), torch.zeros(n)

        def train(x):
            mask, shift = masks(x.shape[0])
            return mask @ x + shift

        step = wrap(train)
        return [bits(step(numbers(i, 3 + i // 5 % 3))) for i in range(60)], step

    assert played_alike(play).stats["replayed"] > 30


WHICH = {  # code of libraries that asks which of its arguments are one: by which labels pairs are made, whether an input is its own target
    "is": "2. if a is b else 3.",
    "is not": "2. if a is not b else 3.",
    "nested": "2. if held['a'] is held['b'] else 3.",
    "one nested": "2. if a is held['a'] else 3.",
    "by keyword": "2. if a is named else 3.",
    "as a function": "2. if operator.is_(a, b) else 3.",
    "all of them": "sum(float(p is q) for p in (a, b, named) for q in (a, b, held['b']))",
    "and one is read": "(2. if a is b else 3.) * a.sum()",
    "and both are read": "(2. if a is b else 3.) * (a.sum() + 2 * b.sum())",
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("which", WHICH)
def test_which_of_the_arguments_are_one_tensor(which, seed):
    def play(wrap):
        torch.manual_seed(seed)
        draw = random.Random(seed)
        scope = dict(operator=operator)
        exec(f"def step(x, a, b, held, named=None):\n    return (x * ({WHICH[which]})).sum()\n", scope)
        step, seen, kept = wrap(scope["step"]), [], [numbers(i, 2) for i in range(2)]
        for i in range(40):
            all_apart = [numbers(10 * i + k, 2) for k in range(5)]
            pool = all_apart if i < 8 + 4 * seed else [draw.choice([*kept, all_apart[0], kept[0].detach()]) for _ in range(5)]
            a, b, c, d, named = pool
            seen.append(bits(step(numbers(i, 3), a, b, {"a": c, "b": d}, named=named)))
        return seen, step

    assert played_alike(play).stats["replayed"] >= 4

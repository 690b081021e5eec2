"""Arguments that vary: numbers, keywords, structures, views."""
import weakref
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import steptape
from loops import batch, is_refused, momentum, mse, net, program, replays, training, with_kinds
from twins import bits


def weighted(model, x, y, weight=1.0, *, flip=False, reduction="mean", mask=None):
    out = model(-x if flip else x)
    if mask is not None:
        out = out * mask
    return F.mse_loss(out, y, reduction=reduction) * weight


def test_a_float_argument_is_followed():
    step = replays(lambda: training(
        net(), weighted, batch=lambda i: (*batch(i), 1 / (1 + i))))
    assert len(step.stats["variants"]) == 1


def test_a_float_argument_that_is_squared_on_its_way_gives_the_bits_of_eager():
    def loss_of(model, x, y, weight):
        return mse(model, x, y) * weight ** 2

    replays(lambda: training(
        net(), loss_of, batch=lambda i: (*batch(i), 1 / (1 + i))))


def test_a_float_argument_of_unusual_bits():
    """0.0 and -0.0 are equal and have other bits; some are no numbers at all."""
    weights = [1.5, 0.0, -0.0, 1e-42, -2.0, float("inf"), float("nan")]

    def make():
        model = net()

        @torch.no_grad()
        def forward(x, weight):
            return model(x) * weight

        return SimpleNamespace(step=forward, holds=lambda: [model], batch=lambda i: (
            batch(i)[0], weights[i % 5 if i < 40 else i % 7]))

    replays(make, 80, share=0.8)


def test_an_int_argument_of_three_values():
    def loss_of(model, x, y, k):
        return mse(model, x[:, :6].roll(k, 0), y) * k

    replays(lambda: training(net(), loss_of, batch=lambda i: (*batch(i), 1 + i % 3)), 90)


def test_an_int_argument_that_decides_a_shape_in_every_call_anew():
    def loss_of(model, x, y, k):
        return mse(model, x[:k], y[:k])

    is_refused(lambda: training(net(), loss_of, batch=lambda i: (
        torch.randn(64, 6), torch.randn(64, 3), 1 + i)),
        "too_many_variants", "unstable_op_stream", "scalar_varies", steps=60)


def test_an_int_argument_that_counts_calls_and_decides_nothing():
    def loss_of(model, x, y, count):
        return mse(model, x, y)

    replays(lambda: training(net(), loss_of, batch=lambda i: (*batch(i), i)))


def test_numbers_that_are_equal_and_of_other_types_are_other_arguments():
    def make():
        model = net()

        @torch.no_grad()
        def forward(x, k):
            return model(x) * k, torch.arange(3) * k

        return SimpleNamespace(step=forward, holds=lambda: [model], batch=lambda i: (
            batch(i)[0], (1, True, 1.0)[i % 3]))

    replays(make, 80)


@pytest.mark.parametrize("others", [
    lambda i: dict(flip=i % 4 == 3),
    lambda i: dict(reduction="sum" if i % 4 == 3 else "mean"),
    lambda i: dict(mask=torch.rand(4, 3) if i % 4 == 3 else None),
    lambda i: dict(weight=0.5) if i % 4 == 3 else {},
], ids=["bool", "str", "tensor or None", "default"])
def test_arguments_that_take_the_step_another_way_are_variants(others):
    replays(lambda: training(net(), weighted, batch=lambda i: (batch(i), others(i))), 80)


def test_keyword_arguments_in_any_order_are_one_variant():
    def by_keyword(i):
        x, y = batch(i)
        return (), (dict(x=x, y=y, weight=0.5) if i % 2 else dict(weight=0.5, y=y, x=x))

    def make():
        model = net()
        optimizer = momentum(model)

        def step(x, y, weight):
            optimizer.zero_grad()
            loss = weighted(model, x, y, weight)
            loss.backward()
            optimizer.step()
            return loss

        return program(with_kinds, step, batch=by_keyword, holds=[model, optimizer])

    step = replays(make)
    assert len(step.stats["variants"]) == 1


def test_arguments_by_position_and_by_keyword():
    def make():
        model = net()
        optimizer = momentum(model)

        def step(x, y, weight=1.0):
            optimizer.zero_grad()
            loss = mse(model, x, y) * weight
            loss.backward()
            optimizer.step()
            return loss

        def either(i):
            x, y = batch(i)
            return ((x, y, 0.5), {}) if i % 2 else ((x,), dict(y=y, weight=0.5))

        return SimpleNamespace(step=step, batch=either, holds=lambda: [model, optimizer])

    replays(make, 60)


Example = namedtuple("Example", "x y")


@dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor
    weights: list


STRUCTURES = {
    "dict": (lambda x, y: {"x": x, "y": y}, lambda b: (b["x"], b["y"])),
    "nested": (lambda x, y: [{"x": [x]}, (y, None)], lambda b: (b[0]["x"][0], b[1][0])),
    "namedtuple": (Example, lambda b: (b.x, b.y)),
    "dataclass": (lambda x, y: Batch(x, y, [1.0, 2]), lambda b: (b.x * b.weights[1], b.y)),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_arguments_may_be_structures(name):
    pack, unpack = STRUCTURES[name]
    replays(lambda: training(net(), lambda model, b: mse(model, *unpack(b)),
                             batch=lambda i: (pack(*batch(i)),)))


def test_an_argument_written_in_place():
    def loss_of(model, x, y):
        return mse(model, x.mul_(0.5), y)

    replays(lambda: training(net(), loss_of))


def test_one_tensor_may_be_two_arguments():
    """Two in most calls, one and the same in some."""
    def loss_of(model, x, y):
        return (model(x) + model(x + y)).square().mean()

    def batch(i):
        x, y = torch.randn(4, 6), torch.randn(4, 6)
        return (x, x) if i % 5 == 4 else (x, y)

    replays(lambda: training(net(), loss_of, batch=batch), 80)


def test_results_are_the_arguments_that_eager_returns():
    """Two arguments that show the same bytes are different results if they are different tensors."""
    step = steptape.wrap(lambda x, y: (x.sum(), x, y))
    whole = torch.randn(3)
    for i in range(30):
        x, y = whole, whole if i % 20 < 8 else whole[:]
        _, first, second = step(x, y)
        assert first is x and second is y, step.explain()
    assert step.stats["replayed"] > 15, step.explain()
    assert {guard["path"] for guard in step.stats["fallbacks"]} == {"y"}, step.explain()


def test_an_argument_may_be_a_view_with_strides():
    def strided(i):
        x, y = torch.randn(6, 4), torch.randn(4, 3)
        return (x.t(), y) if i % 5 else (x.t().contiguous(), y)

    replays(lambda: training(net(), batch=strided), 80)


def test_an_argument_that_requires_a_gradient_gets_one():
    def make():
        made = training(net())

        def with_gradient(step):
            def body(x, y):
                x.requires_grad_()
                loss = step(x, y)
                return loss, x.grad

            return body

        return program(with_gradient, made.step, holds=made.holds())

    replays(make)


def test_two_slices_of_one_array_that_are_only_read():
    array = np.random.RandomState(3).rand(20, 9).astype(np.float32)

    def slices(i):
        rows = array[i % 8:i % 8 + 4]
        return torch.from_numpy(rows[:, :6]), torch.from_numpy(rows[:, 6:])

    step = replays(lambda: training(net(), batch=slices), 80)
    assert len(step.stats["variants"]) == 1


class Plain:
    def __init__(self, k):
        self.k = k


KEPT, TABLE = Plain(1.0), weakref.WeakKeyDictionary()
TABLE[KEPT] = 2.0


def written_and_read(x, given):
    given.k = 2.0
    read = KEPT.k
    given.k = 1.0
    return x * read


# How a step sees that an object which it is given is one that it reaches elsewhere as well.
SEES_WHICH = {
    "is": lambda x, given: x * (2.0 if given is KEPT else 1.0),
    "equals": lambda x, given: x * (2.0 if given == KEPT else 1.0),
    "in_a_list": lambda x, given: x * (2.0 if given in [KEPT] else 1.0),
    "a_key": lambda x, given: x * {KEPT: 2.0}.get(given, 1.0),
    "a_weak_key": lambda x, given: x * TABLE.get(given, 1.0),
    "its_hash": lambda x, given: x * (2.0 if hash(given) == hash(KEPT) else 1.0),
    "written_and_read": written_and_read,
}


@pytest.mark.parametrize("nest", (lambda v: v, lambda v: [v], lambda v: {"v": v}), ids=("itself", "in_a_list", "in_a_dict"))
@pytest.mark.parametrize("when", (lambda i: i < 10, lambda i: i >= 10, lambda i: i % 5 == 4), ids=("early", "late", "at_times"))
@pytest.mark.parametrize("sees", SEES_WHICH.values(), ids=SEES_WHICH)
def test_an_object_that_is_given_is_one_of_the_programs(sees, when, nest):
    def train(x, given):
        return sees(x, given if isinstance(given, Plain) else given[0] if isinstance(given, list) else given["v"])

    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(24):
        given = nest(KEPT if when(i) else Plain(1.0))
        assert torch.equal(step(torch.ones(2) * i, given), train(torch.ones(2) * i, given)), i


def test_an_object_of_the_programs_that_is_given_replays():
    step = steptape.wrap(lambda x, given: x * given.k * KEPT.k, verify={"first": True, "rate": 0.0})
    for i in range(24):
        assert torch.equal(step(torch.ones(2) * i, KEPT if i < 12 else Plain(1.0)), torch.ones(2) * i)
    assert step.stats["replayed"] >= 16, step.explain()


@pytest.mark.parametrize("when", (lambda i: i < 10, lambda i: i >= 10), ids=("early", "late"))
@pytest.mark.parametrize("make", (set, list, dict), ids=("sets", "lists", "dicts"))
def test_two_containers_that_are_given_are_one(make, when):
    step = steptape.wrap(lambda x, a, b: x * (2.0 if a is b else 1.0), verify={"first": True, "rate": 0.0})
    for i in range(24):
        a, b = make(), make()
        assert torch.equal(step(torch.ones(2), a, a if when(i) else b), torch.ones(2) * (2.0 if when(i) else 1.0)), i
    assert step.stats["replayed"] >= 14, step.explain()


@pytest.mark.parametrize("ask", (lambda h: h.grad_fn.name(), lambda h: type(h.grad_fn).__name__))
def test_what_has_made_an_argument_is_guarded(ask):
    weight = torch.ones(2, 2, requires_grad=True)
    step = steptape.wrap(lambda h: ask(h), verify={"first": True, "rate": 0.0})
    for i in range(24):
        h = weight * 2 if i < 10 else weight @ weight
        assert step(h) == ask(h), i


def added_between(state, y):
    before = state.w * 1
    y.add_(1)
    return before + state.w


def copied_over_itself(state, y):
    y.copy_(state.w.t())
    return y * 1


def scaled_between(state, y):
    with torch.no_grad():
        before = state.model.weight * 2
        y.mul_(0.5)
        return before + state.model.weight


def a_part_is_scaled(state, y):
    with torch.no_grad():
        y[1:3].mul_(0.5)
        return state.model(y) + state.model.weight


@pytest.mark.parametrize("body, over", [(added_between, "w"), (copied_over_itself, "w"), (scaled_between, "weight"), (a_part_is_scaled, "weight")],
                         ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.parametrize("view", [torch.Tensor.detach, lambda t: t.detach().view(2, 8).view(4, 4), lambda t: t.detach().t().t()],
                         ids=["detached", "viewed", "turned"])
def test_an_argument_that_is_written_comes_to_lie_over_what_the_step_reads(body, over, view):
    """A plan takes what were two memories for two, and may do the write before the read or after it."""
    def make():
        torch.manual_seed(0)
        state = SimpleNamespace(w=torch.randn(4, 4), model=torch.nn.Linear(4, 4))
        return state, lambda y: body(state, y)

    (plain, eager), (taped, run) = make(), make()
    step = steptape.wrap(run, verify={"first": True, "rate": 0.0})
    for call in range(16):
        y, seen = torch.randn(4, 4), []
        for state, function in ((plain, eager), (taped, step)):
            given = view(state.w if over == "w" else state.model.weight) if call in (9, 12) else y.clone()
            try:
                seen.append(bits(function(given)))
            except RuntimeError as error:  # a copy over itself
                seen.append(str(error))
            seen[-1] = seen[-1], bits([given, state.w, state.model.weight])
        assert seen[0] == seen[1], call
    assert step.stats["replayed"] >= 8, step.explain()
    assert any(verdict["kind"] == "overlap" for verdict in step.stats["fallbacks"]), step.explain()

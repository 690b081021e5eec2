"""What a step returns comes back from a replay in the same classes, with the same bits."""
import operator
import weakref
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import steptape
import twins
from loops import is_refused, momentum, mse, net, program, replays, with_kinds
from twins import bits, codes_of

Pair = namedtuple("Pair", "loss out")


@dataclass
class Outcome:
    loss: torch.Tensor
    note: str
    parts: dict


RESULTS = {
    "None": lambda loss, out: None,
    "a tensor": lambda loss, out: loss,
    "a number that was read": lambda loss, out: loss.item(),
    "an index that was read": lambda loss, out: out.argmax().item(),
    "numbers that were read": lambda loss, out: [v.item() for v in (loss, out.sum(), out.mean())],
    "a str": lambda loss, out: "done",
    "a constant": lambda loss, out: 3,
    "a tuple": lambda loss, out: (loss, out),
    "an empty tuple": lambda loss, out: (),
    "a dict": lambda loss, out: {"out": out, "loss": loss},
    "nested": lambda loss, out: [loss, {"both": (loss, [out]), 3: None}, (), "done", 2.5, True],
    "a namedtuple": lambda loss, out: Pair(loss, out),
    "a dataclass": lambda loss, out: Outcome(loss, "done", {"out": out}),
    "a view": lambda loss, out: out[1:, 0],
    "a transpose": lambda loss, out: out.t(),
    "overlapping views": lambda loss, out: (out[:2], out[1:]),
}


def returning(form):
    model = net()
    optimizer = momentum(model)

    def step(x, y):
        optimizer.zero_grad()
        out = model(x)
        loss = F.mse_loss(out, y)
        loss.backward()
        optimizer.step()
        return form(loss, out.detach())

    return program(with_kinds, step, holds=[model, optimizer])


@pytest.mark.parametrize("name", RESULTS)
def test_a_step_returns(name):
    replays(lambda: returning(RESULTS[name]))


MADE_BY_THE_HOST = {
    "a constant": lambda loss, state: (loss, torch.tensor(0.5)),
    "a constant alone": lambda loss, state: torch.tensor([1.0, 2.0]),
    "of the same kind": lambda loss, state: (loss, loss.new_tensor([3, 4])),
    "of whole numbers": lambda loss, state: [torch.tensor(i) for i in range(3)],
    "a number that moves": lambda loss, state: (loss, torch.tensor(state.number)),
    "one of two": lambda loss, state: torch.tensor(1 if state.number % 2 else 2),
    "one tensor twice": lambda loss, state: 2 * [torch.tensor(0.25)],
    "what an attribute gets": lambda loss, state: setattr(state, "last", torch.tensor(0.75)),
    "what an op has read": lambda loss, state: [(t := torch.tensor(2.0)), loss * t],
}


@pytest.mark.parametrize("name", MADE_BY_THE_HOST)
def test_a_step_returns_a_tensor_that_the_host_makes(name):
    form = MADE_BY_THE_HOST[name]
    number = SimpleNamespace(number=3, last=None)
    outputs = []

    def step(x):
        return form(x.sum(), number)

    step = steptape.wrap(step)
    for i in range(24):
        x = torch.full((3,), float(i))
        expected, now = form(x.sum(), number), step(x)
        assert repr(now) == repr(expected), step.explain()
        tensors = [t for t in (now if isinstance(now, (list, tuple)) else [now, number.last]) if isinstance(t, torch.Tensor)]
        assert not any(t is other for t in tensors for other in outputs)
        outputs += tensors
        for tensor in tensors:
            tensor.fill_(-1)
        if name in ("a number that moves", "one of two"):
            number.number += 1
    assert step.stats["replayed"] >= 4 and not step.stats["refusals"], step.explain()


def test_views_of_a_tensor_that_the_host_makes_are_refused():
    def step(x):
        made = torch.tensor([1.0, 2.0])
        return x.sum(), made, made[:1]

    step = steptape.wrap(step)
    for _ in range(14):
        _, whole, part = step(torch.ones(3))
        part.fill_(5)
        assert whole.tolist() == [5, 2]
    assert {refusal["code"] for refusal in step.stats["refusals"]} == {"outside_tensor_varies"}, step.explain()


def test_a_step_returns_a_model_output():
    outputs = pytest.importorskip("transformers.utils")

    @dataclass
    class Output(outputs.ModelOutput):
        loss: torch.Tensor | None = None
        logits: torch.Tensor | None = None
        hidden: tuple | None = None

    def by_name(step):
        def body(x, y):
            result = step(x, y)
            return type(result).__name__, result.loss, result.to_tuple(), list(result.keys())

        return body

    def make():
        made = returning(lambda loss, out: Output(loss=loss, logits=out))
        return program(by_name, *made.parts, holds=made.holds())

    replays(make)


def look(value):
    """What a program can see of a tensor that came out of a graph."""
    node = value.grad_fn
    seen = [value, value.requires_grad, value.is_leaf, node and node.name(), repr(value)]
    for use in (lambda: value.backward(torch.ones_like(value)), lambda: value.numpy(), lambda: (value + 1).sum().backward(),
                lambda: value.requires_grad_(False), lambda: (value.detach() * 2).requires_grad, lambda: value.retain_grad()):
        try:
            seen.append(use())
        except RuntimeError as error:
            seen.append(str(error))
    return seen


CONSUMED = {
    "the loss": lambda loss, out: loss,
    "what it was made of": lambda loss, out: out,
    "a view": lambda loss, out: out[1:, 0],
    "both, and again": lambda loss, out: {"loss": loss, "parts": [out, loss], "apart": loss.detach()},
    "a transpose, and what it was made of": lambda loss, out: (out.t(), out),
    "made of it without a graph": lambda loss, out: torch.no_grad()(lambda: loss + 1)(),
}


@pytest.mark.parametrize("name", CONSUMED)
def test_a_result_whose_graph_backward_consumed(name):
    """It requires grad, names its node, and raises what the eager one raises where it is used again."""
    def make():
        model = net()
        optimizer = momentum(model)

        def step(x, y):
            optimizer.zero_grad()
            out = model(x)
            loss = F.mse_loss(out, y)
            result = CONSUMED[name](loss, out)
            loss.backward()
            optimizer.step()
            return result

        def around(step):
            return lambda x, y: [look(tensor) for tensor in torch.utils._pytree.tree_leaves(step(x, y))]

        return program(around, step, holds=[model, optimizer])

    replays(make)


def test_a_loss_that_is_kept_and_appended_has_its_graph():
    def make():
        model, losses, best = net(), [], SimpleNamespace(loss=None)

        def step(x, y):
            model.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            best.loss = loss
            losses.append(loss)

        def around(step):
            def body(x, y):
                step(x, y)
                return look(losses[-1]), look(best.loss)

            return body

        return program(around, step, holds=[model])

    replays(make)


def test_results_that_are_one_tensor_stay_one_tensor():
    def make():
        made = returning(lambda loss, out: (out, [out], out[0]))

        def identities(step):
            def body(x, y):
                a, (b,), row = step(x, y)
                a[0].add_(1)
                return a is b, a, row

            return body

        return program(identities, *made.parts, holds=made.holds())

    replays(make)


def test_a_result_that_is_a_parameter_or_an_argument_stays_that():
    def make():
        model = net()
        optimizer = momentum(model)

        def step(x, y):
            optimizer.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            optimizer.step()
            return loss.detach(), x, model[0].weight

        def identities(step):
            def body(x, y):
                loss, same, weight = step(x, y)
                return loss, same is x, weight is model[0].weight

            return body

        return program(identities, step, holds=[model, optimizer])

    replays(make)


@pytest.mark.parametrize("is_filled", [True, False], ids=["later", "never"])
def test_memory_that_nobody_wrote_is_copied(is_filled):
    """What a copy of it lies in is unwritten, too, until an op writes it."""
    def make():
        def step(x):
            source, target = torch.empty(4), torch.zeros(4)
            source[:2].copy_(x[:2])
            target.copy_(source)
            if is_filled:
                target[2:].copy_(x[2:])
            return target

        return SimpleNamespace(step=step, batch=lambda i: (torch.randn(4),), holds=lambda: [])

    if is_filled:
        replays(make)
        return
    step = steptape.wrap(make().step)
    for _ in range(8):
        step(torch.randn(4))
    assert codes_of(step) == {"unwritten_read"}, step.explain()


def by_index(x, k):
    order, places = k.argsort(stable=True), torch.empty(len(k), dtype=torch.int64)
    places[order] = torch.arange(len(k))
    return x[order][places]


def by_scatter(x, k):
    _, order = k.sort(descending=True)
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(k)))


def by_copy(x, k):
    return torch.empty_like(x).index_copy_(0, k.argsort(), x)


def by_rows(x, k):
    order, out = k.argsort(), torch.empty_like(x)
    out[order] = x[order] * 2
    return out


def drawn(x, k):
    order = torch.randperm(len(k))
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(k)))


def products(x, k):
    out = torch.empty(4, 4)
    torch.addmm(out, x.t(), x, beta=0.0, out=out)
    return out + torch.empty(4, 4).addmm_(x.t(), x, beta=0) + torch.addmv(torch.empty(4), x.t(), x[:, 0], beta=0)


def clamped(x, k):
    return torch.empty_like(k).scatter_(0, k.argsort().clamp_(max=2), torch.arange(len(k))) * 0


def twice_as_long(x, k):
    return torch.empty(2 * len(k), dtype=torch.int64).scatter_(0, k.argsort(), torch.arange(len(k))) * 0


def given(x, k):
    return torch.empty_like(k).scatter_(0, k, torch.arange(len(k))) * 0


def nearly_nothing(x, k):
    return torch.addmm(torch.empty(4, 4), x.t(), x, beta=1e-30).new_zeros(3)


@pytest.mark.parametrize("body, outcome", [(by_index, None), (by_scatter, None), (by_copy, None), (by_rows, None), (drawn, None),
                                           (products, None), (clamped, "unwritten_read"), (twice_as_long, "unwritten_read"),
                                           (given, "unwritten_read"), (nearly_nothing, "unwritten_read")],
                         ids=lambda value: getattr(value, "__name__", ""))
def test_memory_that_an_op_fills_or_does_not_look_at(body, outcome):
    """By a permutation that an op of the step has made, all of it."""
    def make():
        return SimpleNamespace(step=body, batch=lambda i: (torch.randn(6, 4), torch.randint(0, 4, (6,))), holds=lambda: [])

    if outcome is None:
        replays(make)
    else:
        is_refused(make, outcome)


def test_a_result_that_a_kernel_writes_unseen_is_refused():
    """Without gradients max_pool1d fills what `empty` gave by a kernel that is not an op."""
    def make():
        def pool(x):
            with torch.no_grad():
                return F.max_pool1d(x, 2)

        return program(with_kinds, pool, batch=lambda i: (torch.randn(1, 3, 8),), holds=[])

    is_refused(make, "unwritten_read")


def test_a_text_that_the_host_makes_of_a_value_it_reads_is_refused():
    is_refused(lambda: returning(lambda loss, out: f"{loss.item():.3f}"), "host_read", "host_effect")


@pytest.mark.parametrize("form", [
    lambda loss, out: loss.item() * 2,
    lambda loss, out: {"mean": (loss.item() + out.sum().item()) / 2, "count": 3},
], ids=["doubled", "averaged"])
def test_a_number_that_the_host_works_out_of_values_it_reads(form):
    replays(lambda: returning(form))


def test_values_that_leave_the_step_through_a_pointer():
    is_refused(lambda: returning(lambda loss, out: out.numpy().copy()), "host_read", steps=40)


def test_a_list_of_values_that_leaves_the_step():
    replays(lambda: returning(lambda loss, out: out.tolist()))


def test_a_float_that_leaves_the_step():
    replays(lambda: returning(lambda loss, out: float(loss)))


def test_a_comparison_with_a_value_that_is_read_is_decided_in_each_replay():
    """The plan holds for one answer: it is undone when the value gives the other, and another takes over."""
    replays(lambda: returning(lambda loss, out: loss.item() > 1.2), 80, share=0.5)


class Output:
    def __init__(self, loss):
        self.loss = loss


def both_returned_and_kept(state, x):
    state.out = {"loss": x.mean(), "shape": [1, 2]}
    return state.out


def pair_returned_and_kept(state, x):
    state.out = (x * 2, x + 1)
    return state.out


def object_returned_and_kept(state, x):
    state.out = Output(x.mean().item())
    return state.out


def kept_in_three_places(state, x):
    made = [x.mean().item()]
    both = (made, 1)
    state.out, state.other = made, {"a": made, "b": both}
    return both


def returned_twice(state, x):
    made = [x * 2]
    return made, {"again": made}


def appended_and_returned(state, x):
    made = [x * 2]
    state.history.append(made)
    return made


SHARED = {
    both_returned_and_kept: lambda s, r: r is s.out,
    pair_returned_and_kept: lambda s, r: r is s.out,
    object_returned_and_kept: lambda s, r: r is s.out,
    kept_in_three_places: lambda s, r: r[0] is s.out is s.other["a"] is s.other["b"][0],
    returned_twice: lambda s, r: r[0] is r[1]["again"],
    appended_and_returned: lambda s, r: r is s.history[-1],
}


@pytest.mark.parametrize("step, is_one", SHARED.items(), ids=lambda of: getattr(of, "__name__", ""))
def test_what_is_one_object_in_several_places_is_one_in_replays(step, is_one):
    state = SimpleNamespace(out=None, other=None, history=[])
    wrapped = steptape.wrap(lambda x: step(state, x), verify={"first": True, "rate": 0.0})
    for i in range(12):
        x = torch.full((2,), float(i))
        result = wrapped(x)
        assert is_one(state, result)
        expected = SimpleNamespace(out=None, other=None, history=[])
        assert twins.bits(result) == twins.bits(step(expected, x))
        assert twins.bits([state.out, state.other]) == twins.bits([expected.out, expected.other])
    assert wrapped.stats["replayed"] >= 6, wrapped.explain()


def test_what_holds_itself_is_refused():
    state = SimpleNamespace(out=None)

    def step(x):
        made = [x.sum()]
        made.append(made)
        state.out = made
        return x * 2

    step = steptape.wrap(step)
    for _ in range(8):
        step(torch.ones(2))
    assert step.stats["replayed"] == 0 and codes_of(step) == {"host_effect"}, step.explain()


#: Callables that a step makes anew in each call, with what they hold of it.
MADE = {
    "closure": "lambda: loss",
    "default": "lambda value=loss: value",
    "keyword": "lambda *, value=loss: value",
    "closure over a number": "lambda: number",
    "method of a tensor": "loss.sum",
    "method of a list": "[number].copy",
    "in a list": "[lambda: loss]",
    "in a tuple": "(1, lambda: loss)",
    "in a dict": "{'report': lambda: {'step': number, 'loss': loss.item()}}",
}


@pytest.mark.parametrize("leave", ["return loss, made", "held.made = made; return loss",
                                   "held.made = made; held.twice = held.made; return loss"])
@pytest.mark.parametrize("made", MADE)
def test_a_callable_that_the_step_makes_is_refused(made, leave):
    held, model = SimpleNamespace(number=0), torch.nn.Linear(3, 2)
    names = {"held": held, "model": model, "torch": torch}
    exec(f"""
def step(x):
    held.number += 1
    number = held.number
    with torch.no_grad():
        loss = model(x).sum()
    made = {MADE[made]}
    {leave}
""", names)
    step = steptape.wrap(names["step"], model=model, verify={"first": True, "rate": 0.0})
    for i in range(16):
        step(torch.full((4, 3), float(i)))
    assert step.stats["replayed"] == 0 and "host_effect" in codes_of(step), step.explain()


def test_a_function_that_was_there_before_may_be_returned():
    def known(x, scale=2.0):
        return x * scale

    model = torch.nn.Linear(3, 2)

    def step(x):
        return model(x).detach(), known

    step = steptape.wrap(step, model=model, verify={"first": True, "rate": 0.0})
    for i in range(16):
        result = step(torch.full((4, 3), float(i)))
    assert result[1] is known
    assert step.stats["replayed"] > 8, step.explain()


@pytest.mark.parametrize("extra", [lambda loss, c: loss * c, lambda loss, c: loss / 3 - c, lambda loss, c: (c * loss + 2) * 2],
                         ids=["moves", "constant", "several"])
def test_a_result_beside_the_loss_whose_graph_holds_a_number(extra):
    """That the op was given in the step: it is alive as long as the graph is."""
    def program():
        torch.manual_seed(0)
        weight = torch.randn(4, requires_grad=True)

        def step(x, c):
            loss = (x * weight).square().mean()
            beside = extra(loss, c)
            weight.grad = None
            loss.backward()
            return loss, beside, weight.grad.clone()
        return step

    plain, taped = program(), steptape.wrap(program(), verify={"first": True, "rate": 0.0})
    for i in range(20):
        x, c = torch.full((4,), float(i)), 1.5 + i // 5
        expected, found = plain(x, c), taped(x, c)
        assert bits(expected) == bits(found) and found[1].requires_grad
        with pytest.raises(RuntimeError, match="a second time"):
            found[1].backward()
    assert taped.stats["replayed"] > 9, taped.explain()


def test_a_result_beside_the_loss_whose_graph_holds_more_is_to_be_detached():
    weight = torch.randn(4, requires_grad=True)

    @steptape.wrap
    def step(x):
        loss = (x * weight).square().mean()
        beside = loss.exp() * 2
        loss.backward()
        return loss, beside

    for i in range(12):
        step(torch.full((4,), float(i)))
    refusal, = step.stats["refusals"]
    assert "perhaps in the graph of a result" in refusal["reason"] and "aux.detach()" in refusal["remedy"], step.explain()


def test_where_an_empty_view_lies():
    def play(wrap):
        x, held = torch.arange(12.), torch.arange(20.)[4:]
        step = wrap(lambda y: (y[5:5], y.view(3, 4)[1:1], y[12:], held[3:3], held[16:], y[:0].narrow(0, 0, 0)))
        seen = []
        for _ in range(8):
            views = step(x)
            seen += [(view.storage_offset(), view.shape, view.data_ptr() == 0, view.untyped_storage().data_ptr() in
                      (x.untyped_storage().data_ptr(), held.untyped_storage().data_ptr())) for view in views]
        return [*seen, step]

    assert twins.played_alike(play).stats["replayed"] >= 4


class Box:
    def __init__(self, held):
        self.held = held


@pytest.mark.parametrize("made", [
    lambda model: weakref.ref(Box(1)), lambda model: ("to", ((model,), {"by": 2}, weakref.ref(Box(1)))), lambda model: {"a": [weakref.ref(Box(1))]},
    lambda model: Box(weakref.ref(Box(1))),
], ids=["itself", "in_a_tuple", "in_a_list", "in_an_object"])
@pytest.mark.parametrize("leave", ["returned", "kept", "collected"])
def test_a_weak_reference_to_what_the_step_has_made(made, leave):
    """It is dead when the step ends, and no two are equal."""
    def run(wrap):
        torch.manual_seed(0)
        model, held, results = net(), Box(None), []
        optimizer = momentum(model)

        def step(x, y):
            loss = mse(model, x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if leave == "returned":
                return made(model)
            if leave == "kept":
                held.held = made(model)
            else:
                results.append(made(model))

        step = wrap(step)
        for _ in range(24):
            result = step(torch.randn(4, 6), torch.randn(4, 3))
            if leave != "collected":
                results.append(result if leave == "returned" else held.held)
        return [references(result) for result in results], bits(list(model.parameters())), step

    expected, left, _ = run(lambda function: function)
    seen, now, step = run(lambda function: steptape.wrap(function, verify={"first": True, "rate": 0.0}))
    assert step.stats["replayed"] > 12, step.explain()
    assert left == now and [list(map(dead, each)) for each in seen] == [list(map(dead, each)) for each in expected]
    found = [reference for each in seen for reference in each]
    assert len(set(map(id, found))) == len(set(map(id, [reference for each in expected for reference in each])))


def dead(reference):
    return reference() is None


def references(value):
    if isinstance(value, weakref.ref):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value.held] if isinstance(value, Box) else []
    return [reference for item in items for reference in references(item)]


def test_a_weak_reference_to_what_is_there_is_refused():
    model, kept = net(), []

    def step(x, y):
        kept[:] = [weakref.ref(model)]
        return mse(model, x, y)

    wrapped = steptape.wrap(step)
    for _ in range(12):
        wrapped(torch.randn(4, 6), torch.randn(4, 3))
    assert wrapped.stats["replayed"] == 0, wrapped.explain()


def test_a_dead_weak_reference_that_the_step_finds_stands_for_another():
    """As that of a transform of a distribution to its inverse, of which each call makes another."""
    class Inverse:
        scale = 2.0

    def play(wrap):
        held = Box(None)

        def step(x):
            inverse = None if held.held is None else held.held()
            if inverse is None:
                inverse = Inverse()
                held.held = weakref.ref(inverse)
            return x * inverse.scale

        step, seen, kept = wrap(step), [], None
        for i in range(24):
            if i == 12:
                kept = Inverse()
                kept.scale = 3.0
                held.held = weakref.ref(kept)
            if i == 18:
                kept = None
            seen.append((step(torch.ones(2)).tolist(), held.held() is kept and kept is not None))
        return seen, step

    step = twins.played_alike(play)
    assert step.stats["replayed"] > 8, step.explain()


@pytest.mark.parametrize("asks", [
    lambda held: held.first == held.second, lambda held: held.first is held.second, lambda held: held.first in [held.second],
    lambda held: [held.first] == [held.second], lambda held: held.table.get(held.first, False), lambda held: held.first in held.table,
    lambda held: [held.second].count(held.first) > 0,
    lambda held: operator.eq(held.first, held.second), lambda held: held.first in {held.second},
    lambda held: held.first.__eq__(held.second), lambda held: (held.first, 1) == (held.second, 1), lambda held: repr(held.first) == repr(held.second),
], ids=["equal", "is", "in a list", "lists", "get", "in a dict", "count", "operator", "in a set", "method", "tuples", "repr"])
def test_which_dead_weak_reference_it_is(asks):
    def gone():
        made = Box(1)
        reference = weakref.ref(made)
        hash(reference)
        return reference

    def play(wrap):
        held = Box(None)
        held.first = held.second = gone()
        held.table = {held.first: True}
        step, seen = wrap(lambda x: x * (2.0 if asks(held) else 3.0)), []
        for i in range(24):
            if i == 14:
                held.first = gone()
            seen.append(step(torch.ones(2)).tolist())
        return seen, step

    step = twins.played_alike(play)
    assert "weak reference whose object is gone" in step.explain()


def test_one_dead_weak_reference_in_two_places():
    def play(wrap):
        held = Box(None)

        def step(x):
            made = Box(1)
            held.first = weakref.ref(made)
            held.all = [held.first, held.first]
            return x * 2

        step, seen = wrap(step), []
        for _ in range(24):
            step(torch.ones(2))
            seen.append((held.all[0] is held.all[1], held.first is held.all[0], held.first == held.all[1]))
        return seen, step

    step = twins.played_alike(play)
    assert step.stats["replayed"] > 12, step.explain()

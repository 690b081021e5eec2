"""Whatever can be called can be wrapped; what is not a step, a model, an optimizer or an option is an error."""
import collections
import copy
import functools
import gc
import operator
import random
import warnings

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import steptape
from classification import Training, batch, classifier, small_model
from twins import compare, is_as_pinned, played_alike, replays_as_a_rule


def test_a_step_without_tensors():
    replays_as_a_rule(compare(lambda: Training(lambda a, b: a * b + 1, (), lambda i: (i % 3, 0.5))))


def test_a_step_that_does_nothing():
    compare(lambda: Training(lambda: None, (), lambda i: ()))


def generator_function(x):
    yield x


async def coroutine_function(x):
    return x


async def asynchronous_generator_function(x):
    yield x


class GeneratorMethod:
    def __call__(self, x):
        yield x


@pytest.mark.parametrize("function", [
    generator_function, coroutine_function, asynchronous_generator_function,
    functools.partial(generator_function, 1), GeneratorMethod(),
], ids=["generator", "coroutine", "async_generator", "partial", "callable_object"])
def test_a_function_that_does_not_run_when_called_is_no_step(function):
    with pytest.raises(steptape.InvalidArgument, match="generator|coroutine|async"):
        steptape.wrap(function)


@pytest.mark.parametrize("thing", [3, "train", [len], {"f": len}, torch.zeros(2), object()],
                         ids=["int", "str", "list", "dict", "tensor", "object"])
def test_what_cannot_be_called_is_no_step(thing):
    with pytest.raises(steptape.InvalidArgument, match="callable"):
        steptape.wrap(thing)


@pytest.mark.parametrize("model", [
    3, "model", nn.Linear, object(), torch.zeros(2), [small_model, 3], {"net": 3},
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1),
], ids=["int", "str", "class", "object", "tensor", "list", "dict", "optimizer"])
def test_what_is_no_module_is_no_model(model):
    with pytest.raises(steptape.InvalidArgument, match="Module"):
        steptape.wrap(lambda x: x, model=model)


@pytest.mark.parametrize("optimizer", [3, "adam", torch.optim.SGD, small_model(), [3], {"o": 3}],
                         ids=["int", "str", "class", "module", "list", "dict"])
def test_what_is_no_optimizer_is_no_optimizer(optimizer):
    with pytest.raises(steptape.InvalidArgument, match="Optimizer"):
        steptape.wrap(lambda x: x, optimizer=optimizer)


OPTIONS = [  # (option, wrong value, what the message must name)
    ("on_refusal", "throw", ("eager", "raise")),
    ("on_refusal", True, ("eager", "raise")),
    ("on_divergence", "ignore", ("raise", "report", "restore")),
    ("on_divergence", 1, ("raise", "report", "restore")),
    ("host_reads", "allow", ("refuse", "observe")),
    ("host_reads", False, ("refuse", "observe")),
    ("max_variants", 0, ("max_variants",)),
    ("max_variants", -1, ("max_variants",)),
    ("max_variants", "8", ("max_variants",)),
    ("max_variants", 2.5, ("max_variants",)),
    ("verify", "yes", ("True", "False", "first", "rate")),
    ("verify", {"often": 1}, ("first", "rate")),
    ("verify", {"rate": 2.0}, ("rate",)),
    ("verify", {"rate": -0.1}, ("rate",)),
    ("verify", {"rate": float("nan")}, ("rate",)),
    ("verify", {"rate": "often"}, ("rate",)),
    ("verify", {"first": "yes"}, ("first",)),
    ("trace", 3, ("trace",)),
    ("name", 3, ("name",)),
    ("name", "", ("name",)),
    ("audit_seed", "x", ("audit_seed",)),
    ("audit_seed", 0.5, ("audit_seed",)),
]


@pytest.mark.parametrize("option, value, names", OPTIONS,
                         ids=[f"{option}-{value}" for option, value, _ in OPTIONS])
def test_a_wrong_option_is_answered_by_the_allowed_ones(option, value, names):
    with pytest.raises(steptape.InvalidArgument) as caught:
        steptape.wrap(lambda x: x, **{option: value})
    for name in (option, *names):
        assert name in str(caught.value)


def test_an_option_that_does_not_exist():
    with pytest.raises((steptape.InvalidArgument, TypeError), match="numeric_mode"):
        steptape.wrap(lambda x: x, numeric_mode="exact")


class Trainer:
    """A step in the three forms in which a class can have one."""

    def __init__(self):
        self.train, self.model, self.optimizer = classifier()

    def method(self, x, y):
        return self.train(x, y)

    def __call__(self, x, y):
        return self.train(x, y)

    @staticmethod
    def add(x, y):
        return x.sum() + y.sum()

    @classmethod
    def multiply(cls, x, y):
        return x.sum() * y.sum()


def with_extra_argument(train, scale, x, y):
    return train(x * scale, y)


def one_tensor(i):
    return (batch(i)[0],)


def two_matrices(i):
    x, _ = batch(i)
    return x, x.t()


FORMS = {  # name: (what is wrapped, its arguments)
    "method": (lambda t: t.method, batch),
    "callable_object": (lambda t: t, batch),
    "lambda": (lambda t: lambda x, y: t.train(x, y), batch),
    "partial": (lambda t: functools.partial(with_extra_argument, t.train, 0.5), batch),
    "partial_of_a_method": (lambda t: functools.partial(t.method), batch),
    "static_method": (lambda t: t.add, batch),
    "class_method": (lambda t: t.multiply, batch),
    "decorated": (lambda t: functools.wraps(t.train)(lambda *args: t.train(*args)), batch),
    "single_dispatch": (lambda t: functools.singledispatch(t.train), batch),
    "builtin": (lambda t: operator.matmul, two_matrices),
    "builtin_of_torch": (lambda t: torch.matmul, two_matrices),
    "function_of_torch": (lambda t: F.cross_entropy, batch),
    "module": (lambda t: t.model.requires_grad_(False), one_tensor),
    "method_of_a_tensor": (lambda t: torch.full((8, 8), 0.5).matmul, one_tensor),
    "class": (lambda t: collections.Counter, lambda i: ("abracadabra"[: i % 3],)),
}


@pytest.mark.parametrize("form, arguments", FORMS.values(), ids=FORMS)
def test_whatever_can_be_called_can_be_wrapped(form, arguments, request):
    def make():
        trainer = Trainer()
        return Training(form(trainer), (trainer.model, trainer.optimizer), arguments)

    is_as_pinned(compare(make), "host_effect" if request.node.callspec.id == "class" else None)


def test_a_cell_of_a_notebook_that_runs_again_wraps_its_function_anew():
    cell = "def step(x):\n    return x.sum().item() and id(x) * x\nstep = steptape.wrap(step)\n"
    names = {"steptape": steptape}
    for _ in range(3):
        exec(compile(cell, "<cell 1>", "exec"), names)  # equal code, and the one before it goes
        gc.collect()
        names["step"](torch.ones(2))
        assert "1 calls" in names["step"].explain()


def moved_by_copy(of):
    return copy.copy(of)


def moved_by_update(of):
    made = type(of).__new__(type(of))
    made.__dict__.update(of.__dict__)
    return made


def moved_by_exchange(of):
    made = type(of).__new__(type(of))
    made.__dict__ = dict(of.__dict__)
    return made


@pytest.mark.parametrize("move", (moved_by_copy, moved_by_update, moved_by_exchange, copy.deepcopy))
@pytest.mark.parametrize("base", (object, nn.Module))
def test_a_copy_of_an_instance_has_a_step_of_its_own(move, base):
    class Trainer(base):
        def __init__(self):
            super().__init__()
            self.scale = 2.0

        @steptape.wrap
        def train(self, x):
            return x * self.scale

    first = Trainer()
    for i in range(6):
        first.train(torch.ones(2))
    second = move(first)
    second.scale = 3.0
    for i in range(12):
        x = torch.full((2,), float(i))
        assert torch.equal(first.train(x), x * 2) and torch.equal(second.train(x), x * 3)
    assert first.train is not second.train
    assert first.train.stats["replayed"] > 4 and second.train.stats["replayed"] > 4


def test_a_method_of_an_object_with_slots_is_wrapped():
    class Trainer:
        __slots__ = ("scale",)

        @steptape.wrap
        def train(self, x):
            return x * self.scale

    trainers = Trainer(), Trainer()
    for k, trainer in enumerate(trainers):
        trainer.scale = k + 2.0
    for i in range(12):
        x = torch.full((2,), float(i))
        assert [torch.equal(trainer.train(x), x * trainer.scale) for trainer in trainers] == [True, True]
    assert all(trainer.train.stats["replayed"] > 4 for trainer in trainers)


def test_a_class_method_is_wrapped():
    class Trainer:
        scale = 2.0

        @classmethod
        @steptape.wrap
        def train(cls, x):
            return x * cls.scale

    class Other(Trainer):
        scale = 3.0

    for i in range(12):
        x = torch.full((2,), float(i))
        assert torch.equal(Trainer.train(x), x * 2) and torch.equal(Other().train(x), x * 3)
    assert Trainer.train.stats["replayed"] > 4 and Other.train.stats["replayed"] > 4
    assert Trainer.train is not Other.train


def warned(step, calls, argument):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(calls):
            step(argument(i))
    return [str(each.message) for each in caught if issubclass(each.category, steptape.NotReplayed)]


def test_a_step_that_never_replays_warns_of_it():
    @steptape.wrap
    def draws(x):
        return x * random.random()  # here

    [first] = warned(draws, 100, lambda i: torch.ones(3))
    assert "0 of 16 calls were replayed" in first, first
    line = next(n for n, text in enumerate(open(__file__), 1) if "random.random()  # here" in text)
    assert "host_random" in first and f"wrapping_test.py:{line}" in first and "steptape.host" in first, first
    assert not warned(draws, 100, lambda i: torch.ones(3))


def test_a_step_of_other_lengths_in_each_call_warns_of_it():
    step = steptape.wrap(lambda x: x * 2, max_variants=8)
    *_, last = warned(step, 100, lambda i: torch.ones(i % 50 + 1))
    assert "of 64 calls" in last and "size(0)" in last, last


def wrapped_in_a_loop(often, calls, **options):
    names = {}
    exec(f"def train(x):\n    return x * {often * 100 + calls}.5", names)  # no other has its code
    train = names["train"]

    def turns(x):
        for _ in range(often):
            step = steptape.wrap(train, **options)
            for _ in range(calls):
                step(x)
    return warned(turns, 1, lambda i: torch.ones(3))


def test_steps_that_are_made_in_a_loop_are_warned_of_once():
    [told] = wrapped_in_a_loop(20, 4)
    assert 'step "train": 4 steps were made of this function' in told and "wrap it once, outside of the loop" in told
    [told] = wrapped_in_a_loop(20, 1)
    assert "12 steps were made" in told
    assert not wrapped_in_a_loop(20, 4, log="none") and not wrapped_in_a_loop(3, 8) and not wrapped_in_a_loop(6, 20)


def test_a_step_that_replays_does_not_warn():
    assert not warned(steptape.wrap(lambda x: x * 2), 100, lambda i: torch.ones(3))
    # few of a kind at first, then it settles
    assert not warned(steptape.wrap(lambda x: x * 2), 100, lambda i: torch.ones(3 + i % 5))


def test_who_wants_no_log_gets_no_warning():
    assert not warned(steptape.wrap(lambda x: x * random.random(), log="none"), 100, lambda i: torch.ones(3))
    quiet = steptape.wrap(lambda x: x * random.random())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", steptape.NotReplayed)
        for _ in range(80):
            quiet(torch.ones(3))


def test_attributes_of_the_function_are_those_of_the_step():
    """A function that keeps a count and a list at itself, by its own name."""
    def play(wrap):
        def train(x):
            train.calls += 1
            train.history.append(x.sum().item())
            return x * train.calls
        train.calls, train.history = 0, []
        history = train.history
        train = wrap(train)
        seen = [(train(torch.ones(2) * i).tolist(), train.calls, len(history)) for i in range(16)]
        return seen, history, train
    step = played_alike(play)
    assert step.stats["replayed"] > 6, step.explain()

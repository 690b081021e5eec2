"""Results that no user means to return: with a graph, with the arguments in them, with themselves in them."""
import collections
import dataclasses
import re
import types

import pytest
import torch
from torch import nn

import steptape
from classification import STEPS, Plain, Training, batch, classifier, small_model
from twins import bits, compare, is_refused, played_alike, replays_as_a_rule


def test_a_step_that_gives_its_arguments_back():
    step = compare(lambda: Training(lambda x, y: (y, x, [x]), ()))
    replays_as_a_rule(step)
    x, y = batch(0)
    result = step(x, y)
    assert result[1].data_ptr() == x.data_ptr(), "as eager: the argument, and no copy"


def test_a_result_that_backward_may_be_called_on_is_refused():
    model = small_model()
    step = steptape.wrap(lambda x: model(x).square().mean())
    for i in range(STEPS):
        x, _ = batch(i)
        result = step(x)
        model.zero_grad()
        result.backward()
        expected = torch.autograd.grad(model(x).square().mean(), model.parameters())
        assert bits([p.grad for p in model.parameters()]) == bits(list(expected)), i
    refused_unconsumed(step)


def refused_unconsumed(step):
    is_refused(step, {"unconsumed_graph"})
    refusal = next(r for r in step.stats["refusals"] if r["code"] == "unconsumed_graph")
    assert re.search("backward|detach|no_grad", refusal["remedy"])
    assert step.stats["replayed"] == 0


def test_a_result_that_contains_itself():
    cycle = []
    cycle.append(cycle)

    def circular(x):
        return cycle, x * 2

    step = steptape.wrap(circular)
    for i in range(12):
        x, _ = batch(i)
        result = step(x)
        assert result[0] is cycle
        assert bits(result[1]) == bits(x * 2)


def test_a_result_of_the_users_own_class():
    def make():
        train, model, optimizer = classifier()

        def step(x, y):
            return types.SimpleNamespace(loss=train(x, y), right=Plain(2.0))
        return Training(step, (model, optimizer))

    replays_as_a_rule(compare(make))


class Doubled(tuple):
    def __new__(cls, items):
        return tuple.__new__(cls, [item * 2 for item in items])


class Tripled(collections.namedtuple("Pair", "a b")):
    @classmethod
    def _make(cls, items):
        return cls(*[item * 3 for item in items])


@dataclasses.dataclass
class Counted:
    value: float
    count: int = 0

    def __post_init__(self):
        self.count += 1


@dataclasses.dataclass
class Made:
    value: float

    def __new__(cls, *_):
        made = object.__new__(cls)
        made.of = "new"
        return made


class Behind:
    def __init__(self, value):
        self.__dict__["value"] = value

    @property
    def value(self):
        return self.__dict__["value"] * 2

    @value.setter
    def value(self, value):
        raise AttributeError("it is set once")


@dataclasses.dataclass
class Output(collections.OrderedDict):
    """As transformers has them."""
    loss: object = None
    hidden: object = None

    def __post_init__(self):
        self.update({name: held for name, held in vars(self).items() if held is not None})


def content(result):
    return type(result), list(result.items() if isinstance(result, dict) else result if isinstance(result, tuple) else []), \
        dict(getattr(result, "__dict__", {}))


@pytest.mark.parametrize("make", [lambda w: Doubled([w, 1.0]), lambda w: Tripled(w, 1.0), Counted, Made, Behind,
                                  lambda w: Output(loss=w),
                                  lambda w: Output(loss=w, hidden=(w, [w + 1]))],
                         ids=["tuple", "named", "counted", "made", "property", "output", "output_of_tuples"])
def test_a_replay_runs_no_constructor_of_the_users(make):
    """The result is made of what it held, whatever its class would do with that."""
    step = steptape.wrap(lambda x, w: make(w))
    for i in range(STEPS):
        w = float(i % 3)
        assert content(step(torch.ones(2), w)) == content(make(w)), f"call {i}\n{step.explain()}"
    assert step.stats["replayed"] > 0, step.explain()


def tuple_with_attribute(w):
    made = Doubled([w])
    made.w = w
    return made


def output_with_attribute(w):
    made = Output(loss=w)
    made.hidden = w
    return made


@pytest.mark.parametrize("make", [tuple_with_attribute, output_with_attribute])
def test_attributes_of_a_container_that_is_returned_are_refused(make):
    step = steptape.wrap(lambda x, w: make(w))
    for i in range(STEPS):
        assert content(step(torch.ones(2), float(i))) == content(make(float(i)))
    is_refused(step, {"host_effect"})


def made(kind, k):
    module = kind()
    module.k = k
    return module


@pytest.mark.parametrize("leave", (lambda held, v: v, lambda held, v: setattr(held, "at", v), lambda held, v: held.all.append(v),
                                   lambda held, v: setattr(held, "at", (v, 1))), ids=("returned", "assigned", "appended", "in_a_tuple"))
@pytest.mark.parametrize("kind", (torch.nn.Identity, torch.nn.Dropout, torch.nn.MSELoss, torch.nn.Sequential))
def test_a_module_that_each_call_makes_anew_is_refused(kind, leave):
    def program():
        held = types.SimpleNamespace(n=0, at=None, all=[])

        def train(x):
            held.n += 1
            return leave(held, made(kind, held.n)), x * 2

        return held, train

    def numbers(value):
        if isinstance(value, (tuple, list)):
            return [numbers(each) for each in value]
        return value.k if isinstance(value, torch.nn.Module) else None

    (held, train), (eagerly, plain) = program(), program()
    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(20):
        x = torch.ones(2) * i
        assert numbers(step(x)[0]) == numbers(plain(x)[0]), i
        assert [numbers(held.at), numbers(held.all)] == [numbers(eagerly.at), numbers(eagerly.all)], i
    is_refused(step, {"host_effect", "opaque_result"})


def test_a_module_of_the_models_is_returned():
    model = small_model()
    step = steptape.wrap(lambda x: (model, list(model.children())[0], model(x).detach()), verify={"first": True, "rate": 0.0})
    for _ in range(20):
        whole, first, _ = step(batch(0)[0])
        assert whole is model and first is next(model.children())
    assert step.stats["replayed"] > 0, step.explain()


def test_a_parameter_that_the_step_makes_is_one():
    held = types.SimpleNamespace(at=None)

    def train(x):
        held.at = torch.nn.Parameter(x + 1, requires_grad=False)
        return torch.nn.Parameter(x * 2, requires_grad=False), x * 3

    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(20):
        made, plain = step(torch.full((2,), float(i)))
        assert [type(made), type(plain), type(held.at)] == [torch.nn.Parameter, torch.Tensor, torch.nn.Parameter], i
        assert made.tolist() == [2. * i] * 2 and held.at.tolist() == [i + 1.] * 2 and not made.requires_grad
    replays_as_a_rule(step)


def test_a_result_counts_the_writes_of_the_step():
    def train(x):
        made = x * 2
        made.add_(1)
        made[0] = 3
        return made, made[1:], x.sum()

    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(20):
        x = torch.full((3,), float(i))
        assert [each._version for each in step(x)] == [each._version for each in train(x)] == [2, 2, 0]
    replays_as_a_rule(step)


def test_a_loaded_step_returns_a_tensor_that_none_of_its_ops_reads(tmp_path):
    held = types.SimpleNamespace(table=torch.arange(4.))
    step = steptape.wrap(lambda x: (x * 2, held.table), name="kept")
    for i in range(8):
        step(torch.full((4,), float(i)))
    step.save(tmp_path / "run.tape", state=True)
    doubled, table = steptape.load(tmp_path / "run.tape")["kept"](torch.ones(4))
    assert doubled.tolist() == [2.] * 4 and table.tolist() == [0., 1., 2., 3.]


VIEWS = [  # what a step leaves that is a view to autograd, or looks like one
    "return held.big[1], y", "held.v = held.big[1]\n    return y", "return x[:1], y", "return y[:1], y", "return y, y[:1]", "return (x * 3)[:1], y",
    "z = x * 3\n    return z[:1], z[1:]", "z = x * 3\n    held.v = z[:1]\n    return y, z[1:]", "return held.big.view(12), y", "return held.big.t(), held.big.t()",
    "return held.big.detach(), y", "return torch.unbind(y), x", "return torch.chunk(x * 5, 2), y",
    "return y.unsqueeze(0), y.expand(3, 2)", "return held.buffer[0], held.buffer", "held.buffer.add_(1)\n    return held.buffer[0], y",
    "held.buffer.add_(1)\n    held.v = held.buffer[:1]\n    held.v.mul_(2)\n    return y", "return x.view(2), x", "return y.real, y", "with torch.no_grad():\n        v = held.p[0]\n    return v.detach(), y",
    "v = y[:1]\n    return v, v", "return y[None][0][:1], y * 2", "return held.part[0], y", "return y.squeeze(), y",
]


@pytest.mark.parametrize("left", VIEWS)
def test_what_a_result_is_a_view_of(left):
    def play(wrap):
        held = types.SimpleNamespace(big=torch.arange(12.).reshape(3, 4), v=None, part=torch.arange(6.)[2:].view(2, 2), p=nn.Parameter(torch.ones(3, 2)), buffer=torch.zeros(4))
        scope = {"held": held, "torch": torch}
        exec(f"def step(x):\n    y = x * 2\n    {left}\n", scope)
        step, seen = wrap(scope["step"]), []

        def tensors(value):
            return [value] if torch.is_tensor(value) else [each for part in value for each in tensors(part)]

        for i in range(18):
            x = torch.tensor([1. + i, 2.])
            results = tensors(step(x)) + [held.v] * (held.v is not None)
            known = [x, held.big, held.p, held.buffer, held.big._base, held.part, held.part._base, *results]
            for each in results:
                base = each._base
                seen.append((each._is_view(), [k for k, other in enumerate(known) if base is not None and other is base],
                             bits(None if base is None else base.detach()), bits(each.detach()), each.storage_offset(), each.requires_grad))
            if i > 10:  # the program goes on with it
                try:
                    results[0].mul_(torch.ones((), requires_grad=True))
                    seen.append((results[0].requires_grad, results[0]._base is not None and results[0]._base.requires_grad))
                except RuntimeError as error:
                    seen.append(str(error)[:60])
                for name in ("big", "buffer", "part"):
                    seen.append((getattr(held, name).requires_grad, bits(getattr(held, name).detach())))
                    setattr(held, name, getattr(held, name).detach().clone())
        return seen, step

    assert played_alike(play).stats["replayed"] >= 4


@pytest.mark.parametrize("how", [lambda base, view: base.requires_grad_(), lambda base, view: view[:1].mul_(torch.ones((), requires_grad=True))], ids=["set", "written"])
@pytest.mark.parametrize("read", ["program", "buffer", "argument"])
def test_what_a_tensor_is_a_view_of_comes_to_require_a_gradient(read, how):
    def play(wrap):
        base = torch.arange(6.)
        held = nn.Module()
        held.register_buffer("view", base[2:4])
        other = types.SimpleNamespace(view=held.view)
        step = wrap({"program": lambda x: x * other.view, "buffer": lambda x: x * held.view, "argument": lambda x: x * 1}[read])
        seen = []
        for i in range(16):
            if i == 11:
                how(base, held.view)
            result = step(held.view if read == "argument" else torch.full((2,), float(i)))
            seen.append((result.requires_grad, bits(result.detach())))
        return seen, step

    assert played_alike(play).stats["replayed"] >= 5

"""Arguments that require a gradient: what backward leaves in them, a replay leaves as well."""
import functools

import pytest
import torch
from torch import nn

import steptape
from twins import codes_of

CALLS = 24
cases = {}


def case(code=None):
    def add(make):
        cases[make.__name__] = (make, code)
        return make
    return add


def leaf(*sizes):
    return torch.randn(*sizes, requires_grad=True)


@case()
def returned(wrap):
    p = nn.Parameter(torch.ones(3))

    def step(x):
        (x * p).sum().backward()
        return x.grad, x.grad * 2, x.grad[:2]

    return wrap(step), lambda i: (leaf(3),), [p]


@case()
def gradient_of_a_parameter_returned(wrap):
    p = nn.Parameter(torch.ones(3))

    def step(x):
        p.grad = None
        (x * p).sum().backward()
        return p.grad

    return wrap(step), lambda i: (leaf(3),), [p]


@case()
def of_two(wrap):
    p = nn.Parameter(torch.ones(3))
    return wrap(lambda x, y: (x * p * y).sum().backward()), lambda i: (leaf(3), leaf(3)), [p]


@case()
def of_two_in_one_memory(wrap):
    return wrap(lambda x, y: (x + y).sum().backward()), lambda i: (leaf(3), leaf(3)), []


def twins_of(*kinds):
    """Two leaves for each kind in turn: apart, one and the same, or two over one memory."""
    def arguments(i):
        x = leaf(3)
        kind = kinds[min(i // 8, len(kinds) - 1)]
        return x, {"apart": lambda: leaf(3), "same": lambda: x, "memory": lambda: x.detach().requires_grad_()}[kind]()
    return arguments


def multiplied(wrap, kinds):
    return wrap(lambda x, y: (x * y).sum().backward()), twins_of(*kinds), []


for kinds in (("apart", "same"), ("same", "apart"), ("same", "memory", "same"), ("memory", "same"), ("apart", "memory", "same")):
    cases["_then_".join(kinds)] = (functools.partial(multiplied, kinds=kinds), None)


@case()
def a_parameter_in_some_calls(wrap):
    p = nn.Parameter(torch.ones(3))

    def step(x):
        p.grad = None
        (x * p).sum().backward()
        return p.grad

    def arguments(i):
        p.grad = None
        return (p,) if i >= 10 else (leaf(3),)

    return wrap(step), arguments, [p]


@case()
def a_parameter_in_most_calls(wrap):
    p = nn.Parameter(torch.ones(3))

    def step(x):
        (x * p).sum().backward()

    def arguments(i):
        p.grad = None
        return (p,) if i < 10 else (p.detach().requires_grad_(),)

    return wrap(step), arguments, [p]


@case()
def of_one_given_twice(wrap):
    return wrap(lambda x, y: (x * y).sum().backward()), lambda i: 2 * (leaf(3),), []


@case()
def of_one_of_two(wrap):
    return wrap(lambda x, y: (x * x).sum().backward()), lambda i: (leaf(3), leaf(3)), []


@case()
def added_up(wrap):
    def step(x):
        (x * 2).sum().backward()
        (x * x).sum().backward()
        x.grad.mul_(0.5)

    return wrap(step), lambda i: (leaf(3),), []


@case()
def given_as_it_is(wrap):
    return wrap(lambda x, g: x.backward(g)), lambda i: (leaf(3), torch.randn(3)), []


@case()
def dropped_inside(wrap):
    def step(x):
        (x * x).sum().backward()
        made = x.grad.clone()
        x.grad = None
        return made

    return wrap(step), lambda i: (leaf(3),), []


@case()
def dropped_between(wrap):
    x = leaf(3)

    def given(i):
        x.grad = None
        return (x,)

    return wrap(lambda x: (x * x).sum().backward()), given, []


# A target that another net has made in the first calls, and the trained one later: backward runs through neither's graph.
def towards(wrap, step):
    net, other = nn.Linear(3, 3), nn.Linear(3, 3)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def arguments(i):
        return torch.randn(2, 3), (other if i < 12 else net)(torch.randn(2, 3))

    return wrap(functools.partial(step, net, optimizer)), arguments, list(net.parameters())


def by_grad(net, optimizer, x, target):
    loss = (net(x) - target).square().sum()
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    with torch.no_grad():
        for p, gradient in zip(net.parameters(), gradients):
            p -= 0.1 * gradient
    return loss.detach()


def by_backward_of_some(net, optimizer, x, target):
    optimizer.zero_grad()
    loss = (net(x) - target).square().sum()
    loss.backward(inputs=list(net.parameters()))
    optimizer.step()
    return loss.detach()


def asked_whether_it_matters(net, optimizer, x, target):
    gradient, = torch.autograd.grad((x * target).sum(), [net.weight], allow_unused=True)
    return x.sum() if gradient is None else gradient


def detached(net, optimizer, x, target):
    return by_grad(net, optimizer, x, target.detach())


for step in (by_grad, by_backward_of_some, asked_whether_it_matters):
    cases["a_graph_from_before_" + step.__name__] = (functools.partial(towards, step=step), "unconsumed_graph")
cases["a_graph_from_before_" + detached.__name__] = (functools.partial(towards, step=detached), None)


@case()
def decided_by_a_flag(wrap):
    def step(x, does):
        if does:
            (x * x).sum().backward()

    return wrap(step), lambda i: (leaf(3), i % 3 == 0), []


@case()
def of_a_strided_one(wrap):
    return wrap(lambda x: (x * x).sum().backward()), lambda i: (torch.randn(2, 3).t().requires_grad_(),), []


@case()
def adversarial_training(wrap):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())

    def step(x):
        model(x).sum().backward()
        changed = (x + 0.1 * x.grad.sign()).detach()
        optimizer.zero_grad()
        loss = model(changed).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return wrap(step), lambda i: (leaf(5, 3),), list(model.parameters())


@case()
def asked_for_in_the_step(wrap):
    def step(x):
        x.requires_grad_()
        (x * x).sum().backward()
        return x.grad

    return wrap(step), lambda i: (torch.randn(3),), []


@case()
def of_one_given_twice(wrap):
    def step(x, y):
        x.requires_grad = True
        (x * y).sum().backward()

    def given(i):
        x = torch.randn(3)
        return x, x

    return wrap(step), given, []


@case()
def of_adversarial_training_from_data(wrap):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())

    def step(x):
        x.requires_grad = True
        model(x).sum().backward()
        changed = (x + 0.1 * x.grad.data.sign()).detach()
        optimizer.zero_grad()
        model(changed).pow(2).mean().backward()
        optimizer.step()

    return wrap(step), lambda i: (torch.randn(5, 3),), list(model.parameters())


@case()
def asked_for_where_it_is_not(wrap):
    """Some of the arguments require a gradient already: another plan."""
    def step(x):
        if not x.requires_grad:
            x.requires_grad_()
        (x * x).sum().backward()

    return wrap(step), lambda i: (torch.randn(3, requires_grad=i >= 8),), []


@case()
def given_up_in_the_step(wrap):
    def step(x):
        (x * x).sum().backward()
        x.requires_grad_(False)

    return wrap(step), lambda i: (leaf(3),), []


@case()
def asked_for_while_the_step_runs(wrap):
    def step(x):
        x.requires_grad_()
        (x * x).sum().backward()
        x.grad = None
        x.requires_grad_(False)

    return wrap(step), lambda i: (torch.randn(3),), []


@case("rebound_tensor")
def asked_for_late(wrap):
    """One that has a gradient from somewhere else adds to it."""
    def given(i):
        x = torch.randn(3)
        if i >= 18:
            x.grad = torch.ones(3)
        return (x,)

    return wrap(lambda x: (x.requires_grad_() * x).sum().backward()), given, []


@case("rebound_tensor")
def asked_for_of_one_that_has_one(wrap):
    def given(i):
        x = torch.randn(3)
        x.grad = torch.ones(3)
        return (x,)

    return wrap(lambda x: (x.requires_grad_() * x).sum().backward()), given, []


@case()
def there_and_of_no_use(wrap):
    def given(i):
        x = torch.randn(3)
        x.grad = torch.ones(3) * i
        return (x,)

    return wrap(lambda x: (x * x).sum()), given, []


@case("host_effect")
def of_one_that_becomes_a_result(wrap):
    p = nn.Parameter(torch.ones(3))
    return wrap(lambda x: x.mul_(p).sum().backward()), lambda i: (torch.randn(3),), [p]


@case("rebound_tensor")
def there_before_the_step(wrap):
    x = leaf(3)
    return wrap(lambda x: (x * x).sum().backward()), lambda i: (x,), []


@case("rebound_tensor")
def there_in_later_calls(wrap):
    held = [leaf(3) for _ in range(8)]
    return wrap(lambda x: (x * x).sum().backward()), lambda i: (held[i % 8],), []


def play(make, wrap):
    torch.manual_seed(0)
    step, given, parameters = make(wrap)
    seen = []
    for i in range(CALLS):
        arguments = given(i)
        result = step(*arguments)
        results = result if isinstance(result, tuple) else (result,)
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        gradients = [tensor.grad if tensor.is_leaf else None for tensor in [*tensors, *parameters]]
        left = [*results, *gradients, *parameters]
        seen.append([None if value is None else (value.detach().numpy().tobytes(), value.stride()) for value in left])
        seen.append([value is not None and value is gradient for value in results for gradient in gradients])
        seen.append([tensor.requires_grad for tensor in tensors])
    return seen, step


def for_a_while(leave):
    """The argument, or a tensor made of it, requires a gradient while backward runs; `leave(x, z, loss)` is returned."""
    def make(wrap):
        p = nn.Parameter(torch.ones(3))

        def step(x, of=None):
            z = x.detach() if leave.__name__.startswith("new") else x
            z.requires_grad_(True)
            loss = (z * p).square().sum()
            loss.backward()
            z.requires_grad_(False)
            return leave(x, z, loss)

        return wrap(step), lambda i: (torch.full((3,), 1.0 + i),), [p]
    return make


def for_a_while_with_its_loss(x, z, loss):
    return loss


def for_a_while_with_itself(x, z, loss):
    return loss, x


def new_for_a_while(x, z, loss):
    return loss, z


def new_for_a_while_alone(x, z, loss):
    return z


for each in (for_a_while_with_its_loss, for_a_while_with_itself, new_for_a_while, new_for_a_while_alone):
    cases[each.__name__] = (for_a_while(each), "rebound_tensor")


@pytest.mark.parametrize("make, code", cases.values(), ids=cases)
def test_what_backward_leaves_in_an_argument(make, code):
    expected, _ = play(make, lambda function: function)
    seen, step = play(make, lambda function: steptape.wrap(function, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    if code is None:
        assert step.stats["replayed"] > CALLS / 2 and not codes_of(step), step.explain()
    else:
        assert code in codes_of(step), step.explain()


def test_a_loaded_step_leaves_gradients_in_its_inputs(tmp_path):
    step = steptape.wrap(lambda x: (x * x).sum().backward(), name="squares")
    for _ in range(6):
        step(leaf(3))
    step.save(tmp_path / "squares.tape")
    loaded = steptape.load(tmp_path / "squares.tape")["squares"]
    x = leaf(3)
    loaded(x)
    assert torch.equal(x.grad, 2 * x.detach())


def test_a_loaded_step_leaves_inputs_requiring_a_gradient(tmp_path):
    step = steptape.wrap(lambda x: (x.requires_grad_() * x).sum().backward(), name="squares")
    for _ in range(6):
        step(torch.randn(3))
    step.save(tmp_path / "squares.tape")
    loaded = steptape.load(tmp_path / "squares.tape")["squares"]
    x = torch.randn(3)
    loaded(x)
    assert x.requires_grad and torch.equal(x.grad, 2 * x.detach())
    with pytest.raises(steptape.FailedPrecondition, match="requires_grad"):
        loaded(x)


def test_a_loaded_step_refuses_inputs_with_hooks(tmp_path):
    def train(x):
        x.pow(2).sum().backward()
        return x.grad.clone()

    step = steptape.wrap(train, name="train", verify={"first": True, "rate": 0.0})
    for _ in range(12):
        step(torch.ones(3, requires_grad=True))
    assert step.stats["replayed"] > 0, step.explain()
    step.save(tmp_path / "run.tape")
    loaded = steptape.load(tmp_path / "run.tape")["train"]
    with_hook = torch.ones(3, requires_grad=True)
    with_hook.register_hook(lambda gradient: gradient * 2)
    with pytest.raises(steptape.FailedPrecondition, match="hooks"):
        loaded(with_hook)
    assert loaded(torch.ones(3, requires_grad=True)).tolist() == [2.0] * 3


def residual(net, optimizer, x):
    """Of u' = u, as networks that learn an equation ask for it."""
    u = net(x)
    slope, = torch.autograd.grad(u.sum(), x, create_graph=True)
    loss = (slope - u).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.mark.parametrize("mark", [lambda x: x.requires_grad_(), lambda x: x.detach().requires_grad_()], ids=["the argument", "an alias"])
def test_a_step_asks_for_the_gradient_of_what_it_is_given(mark):
    def play(wrap):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.Adam(net.parameters())
        step = wrap(lambda points: residual(net, optimizer, mark(points["x"])))
        given = [torch.rand(5, 1) for _ in range(CALLS)]
        return [(step({"x": x}), x.requires_grad, None if x.grad is None else x.grad.tolist()) for x in given], step

    expected, _ = play(lambda step: step)
    seen, step = play(lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert seen == expected
    assert step.stats["replayed"] >= CALLS // 2, step.explain()


def test_the_argument_that_becomes_a_result_is_named():
    weight = nn.Parameter(torch.ones(3))

    @steptape.wrap
    def step(points):
        points["x"].mul_(weight).sum().backward()

    for i in range(CALLS):
        step({"x": torch.ones(3)})
    refusal, = step.stats["refusals"]
    assert (refusal["code"], refusal["reason"]) == ("host_effect", "the step changes whether `points['x']` requires grad")
    assert "x.clone()" in refusal["remedy"]

"""Parameters and buffers that a step gives other memory, `p.data = value`: replays give them new memory, too, and what the program holds
of the old keeps it.
"""
import copy

import pytest
import torch
import torch.nn as nn

import steptape
from twins import bits, is_as_pinned

CALLS = 24
REPLAYS = None
CASES = []


def case(outcome=REPLAYS):
    """Decorator: makes a program anew, as (step, what it leaves, what it does before call i with the last result, or None)."""
    def add(make):
        CASES.append(pytest.param(make, outcome, id=make.__name__))
        return make
    return add


def batch(i):
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(i))


def net():
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def versions(module):
    return [p._version for p in (*module.parameters(), *module.buffers())]


def play(make, wrap):
    torch.manual_seed(0)
    step, held, between = (*make(), None)[:3]
    step = wrap(step)
    seen, last = [], None
    for i in range(CALLS):
        if between is not None:
            between(i, last)
        last = step(batch(i))
        seen.append(bits([last, held()]))
    return seen, step


def training(m, after, lr=.1):
    opt = torch.optim.SGD(m.parameters(), lr)

    def step(x):
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        opt.step()
        after()
        return loss.detach()
    return step


def shrinks(m):
    """What gives all parameters of `m` other memory, a little smaller."""
    def after():
        for p in m.parameters():
            p.data = p.data * .9
    return after


@case()
def by_hand():
    m = net()

    def step(x):
        m.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        for p in m.parameters():
            p.data = p.data - .1 * p.grad.data
        return loss.detach()
    return step, lambda: [m, versions(m)]


@case()
def by_hand_and_in_place():
    m = net()

    def step(x):
        m.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in m.parameters():
                p.mul_(.99)
                p.data = p - .1 * p.grad
                p.add_(.001)
        return loss.detach()
    return step, lambda: [m, versions(m)]


@case()
def momentum_encoder():
    m = net()
    slow = copy.deepcopy(m).requires_grad_(False)

    def after():
        for p, q in zip(slow.parameters(), m.parameters()):
            p.data = p.data * .9 + q.data * .1
    train = training(m, after)

    def step(x):
        with torch.no_grad():
            target = slow(x)
        return train(x + target.mean())
    return step, lambda: [m, slow, versions(slow)]


@case()
def exponential_average():
    class Average:
        def __init__(self, beta):
            self.beta = beta

        def of(self, old, new):
            return new if old is None else old * self.beta + (1 - self.beta) * new
    m, average = net(), Average(.9)
    slow = copy.deepcopy(m)

    def after():
        for current, held in zip(m.parameters(), slow.parameters()):
            old, up = held.data, current.data
            held.data = average.of(old, up)
    return training(m, after), lambda: [m, slow]


@case()
def clamped():
    m = net()

    def after():
        for p in m.parameters():
            p.data = p.data.clamp(-.3, .3)
    return training(m, after), lambda: m


@case()
def with_adam():
    m = net()
    opt = torch.optim.Adam(m.parameters(), .01)

    def step(x):
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        opt.step()
        for p in m.parameters():
            p.data = p.data * .999
        return loss.detach()
    return step, lambda: [m, opt.state_dict(), versions(m)]


@case()
def restored():
    """Weights are disturbed, then the old memory is put back."""
    m = net()
    opt = torch.optim.SGD(m.parameters(), .1)

    def step(x):
        opt.zero_grad()
        m(x).square().mean().backward()
        old = [p.data for p in m.parameters()]
        for p in m.parameters():
            p.data = p.data + .05 * p.grad
        opt.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        for p, data in zip(m.parameters(), old):
            p.data = data
        opt.step()
        return loss.detach()
    return step, lambda: [m, versions(m)]


class Sharp(torch.optim.Optimizer):
    """Ascends first, keeps the old weights in its state and gives them back as memory."""

    def __init__(self, parameters, base, rho=.05):
        super().__init__(parameters, {"rho": rho})
        self.base = base(self.param_groups, lr=.1)

    @torch.no_grad()
    def ascend(self):
        norm = torch.norm(torch.stack([p.grad.norm(p=2) for p in self.param_groups[0]["params"]]), p=2)
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                self.state[p]["old"] = p.data.clone()
                p.add_(p.grad * scale.to(p))
        self.zero_grad()

    @torch.no_grad()
    def descend(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old"]
        self.base.step()
        self.zero_grad()


@case()
def sharpness_aware():
    m = net()
    opt = Sharp(m.parameters(), torch.optim.SGD)

    def step(x):
        loss = m(x).square().mean()
        loss.backward()
        opt.ascend()
        m(x).square().mean().backward()
        opt.descend()
        return loss.detach()
    return step, lambda: [m, [opt.state[p]["old"] for p in m.parameters()], versions(m)]


@case()
def a_buffer():
    m = net()
    m.register_buffer("mean", torch.zeros(3))

    def after():
        m.mean.data = m.mean.data * .9 + .1
    train = training(m, after)
    return lambda x: train(x + m.mean), lambda: [m, m.mean._version]


@case()
def of_another_layout():
    """Each call leaves what the next one finds: the same strides from the second on."""
    w = nn.Parameter(torch.randn(3, 3))

    def step(x):
        loss = (x @ w).square().mean()
        w.grad = None
        loss.backward()
        w.data = (w.data - .1 * w.grad).t().contiguous().t()
        return loss.detach()
    return step, lambda: [w, w.stride()]


@case()
def by_torch():
    """`vector_to_parameters` gives the parameters views of one vector."""
    m = net()

    def step(x):
        m.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        vector = nn.utils.parameters_to_vector(m.parameters())
        gradient = nn.utils.parameters_to_vector([p.grad for p in m.parameters()])
        nn.utils.vector_to_parameters((vector - .1 * gradient).detach(), m.parameters())
        return loss.detach()
    return step, lambda: [m, [p.storage_offset() for p in m.parameters()]]


@case()
def what_the_program_holds():
    """The old memory stays with those who hold it, and the new one is nobody else's."""
    m = net()
    held = []

    def between(i, _):
        held.append((i, m[0].weight.data, m[0].weight.detach()))
        del held[:-3]
    return training(m, shrinks(m)), lambda: [m, [t for _, *t in held], [t._version for _, *ts in held for t in ts]], between


@case()
def written_between():
    m = net()

    def between(i, _):
        if i % 5 == 4:
            with torch.no_grad():
                m[0].weight.add_(.1)
        if i == 12:
            m[2].weight.data = torch.ones(2, 5)
    return training(m, shrinks(m)), lambda: [m, versions(m)], between


@case()
def returned():
    """The first result is the parameter's memory, to which the program writes."""
    m = net()
    train = training(m, shrinks(m))

    def step(x):
        train(x)
        return m[0].weight.data, m[0].weight

    def between(i, last):
        if last is not None:
            last[0].add_(.01)
    return step, lambda: [m, versions(m)], between


@case()
def tied():
    """Two modules have one parameter."""
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    b.weight = a.weight

    def step(x):
        a.weight.grad = None
        loss = b(a(x)).square().mean()
        loss.backward()
        a.weight.data = a.weight.data - .1 * a.weight.grad
        return loss.detach()
    return step, lambda: [a, b, a.weight is b.weight]


@case()
def one_of_two_that_share():
    """A parameter leaves the memory that it shares with another tensor of the program."""
    m = net()
    shared = m[0].weight.data

    def after():
        m[0].weight.data = m[0].weight.data * .9
    return training(m, after), lambda: [m, shared]


@case("rebound_tensor")
def memory_of_an_argument():
    m = net()

    def step(x):
        m[0].weight.data = x.reshape(-1)[:12].reshape(4, 3)[:, :].expand(4, 3)
        return m[0].weight.sum().detach()
    return step, lambda: m


@case("rebound_tensor")
def memory_of_another():
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)

    def step(x):
        with torch.no_grad():
            a.weight.mul_(.9)
            b.weight.data = a.weight.data
            return b(x).sum()
    return step, lambda: [a, b]


@case("rebound_tensor")
def exchanged():
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)

    def step(x):
        a.weight.data, b.weight.data = b.weight.data, a.weight.data
        with torch.no_grad():
            return a(x).sum()
    return step, lambda: [a, b]


@case("rebound_tensor")
def of_an_argument():
    def step(x):
        x.data = x.data * 2
        return x.sum()
    return step, lambda: None


@case("rebound_tensor")
def a_view_is_returned():
    m = net()
    train = training(m, shrinks(m))

    def step(x):
        train(x)
        return m[0].weight.detach()  # counts its writes together with the parameter
    return step, lambda: m


@case()
def of_gradients_that_stay():
    m = net()
    for p in m.parameters():
        p.grad = torch.zeros_like(p)
    opt = torch.optim.SGD(m.parameters(), .1)

    def step(x):
        opt.zero_grad(set_to_none=False)
        loss = m(x).square().mean()
        loss.backward()
        for p in m.parameters():
            p.grad.data = p.grad.data.clamp(-.1, .1)
        opt.step()
        return loss.detach()
    return step, lambda: m


@case()
def now_and_then():
    """Two variants: every third call gives other memory."""
    m = net()
    state = {"n": 0}

    def after():
        state["n"] += 1
        if state["n"] % 3 == 0:
            for p in m.parameters():
                p.data = p.data * .9
    return training(m, after), lambda: [m, state["n"]]


def old_memory(leave):
    """`leave(m, old)` gets what the parameter was over before it is given other memory."""
    def make():
        m = net()
        held = {"old": None}

        def after():
            old = m[0].weight.data
            m[0].weight.data = old * .9
            held["old"] = leave(old)
        return training(m, after), lambda: [m, held["old"]]
    return make


for name, leave in {"old_memory_kept": lambda old: old, "a_row_of_it_kept": lambda old: old[0],
                    "another_view_of_it_kept": lambda old: old.view(-1).detach()}.items():
    CASES.append(pytest.param(old_memory(leave), "rebound_tensor", id=name))
CASES.append(pytest.param(old_memory(lambda old: old * 1), REPLAYS, id="a_copy_of_it_kept"))
CASES.append(pytest.param(old_memory(lambda old: old.sum()), REPLAYS, id="a_sum_of_it_kept"))


@pytest.mark.parametrize("make, outcome", CASES)
def test_what_it_leaves_is_what_the_eager_step_leaves(make, outcome):
    expected, _ = play(make, lambda step: step)
    seen, step = play(make, lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    for i, (now, before) in enumerate(zip(seen, expected)):
        assert now == before, f"call {i}: {step.explain()}"
    is_as_pinned(step, outcome)

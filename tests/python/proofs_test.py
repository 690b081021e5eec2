"""Numbers that move are proved op by op: results that agree once say nothing about the next value."""
import collections
import datetime
import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import steptape
import twins


def after(first, *values, each=4, calls=10):
    """`first` in the first calls, then each of the others in several."""
    return lambda i: first if i < calls else values[min((i - calls) // each, len(values) - 1)]


def learner(loss_of, number):
    """A layer that learns by a loss that a float argument takes part in."""
    def make():
        model = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, c):
            optimizer.zero_grad()
            loss = loss_of(model(x), c).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        return SimpleNamespace(step=step, batch=lambda i: (torch.randn(4, 3), number(i)),
                               holds=lambda: [model, optimizer])
    return make


SAVED = {  # what backward holds of a number: a first value, then those of which some change no result
    "clamp": (lambda h, c: h.clamp(1 - c, 1 + c), (100.0, 90.0, 80.0, 70.0, 0.3, 0.2, 0.1)),
    "clamp_symmetric": (lambda h, c: torch.clamp(h, -c, c), (100.0, 90.0, 80.0, 70.0, 0.3, 0.2, 0.1)),
    "huber": (lambda h, c: F.huber_loss(h, torch.zeros(4, 3), delta=c), (100.0, 90.0, 0.3, 0.2, 0.1)),
    "smooth_l1": (lambda h, c: F.smooth_l1_loss(h, torch.zeros(4, 3), beta=c), (0.01, 0.02, 0.5, 0.9, 1.5)),
    "leaky": (lambda h, c: F.leaky_relu(h, c), (0.2, 0.9, 0.3, 0.4, 0.5)),
    "elu": (lambda h, c: F.elu(h, c), (0.2, 0.9, 0.3, 0.4, 0.5)),
    "pow": (lambda h, c: (h.abs() + 1) ** c, (1.5, 2.5, 1.25, 3.5, 1.75)),
    "alpha": (lambda h, c: torch.add(h, h ** 2, alpha=c), (1.0, 0.3, 0.4, 0.5)),
    "divided": (lambda h, c: h / c, (1.0, 0.3, 0.4, 0.5)),
    "softplus": (lambda h, c: F.softplus(h, beta=c), (1.0, 2.0, 0.5, 3.0)),
    "threshold": (lambda h, c: F.threshold(h, c, 0.5), (-100.0, -90.0, -80.0, 0.1, 0.2, 0.3)),
}


@pytest.mark.parametrize("loss_of, values", SAVED.values(), ids=SAVED)
def test_a_number_that_backward_holds(loss_of, values):
    twins.compare(learner(loss_of, after(*values)), 50, share=0.7)


def reading(function, number):
    """A step of a tensor from which it reads a number."""
    def make():
        source = torch.zeros(())

        def step(x, value):
            source.fill_(value)
            return function(x, source)
        return SimpleNamespace(step=lambda x: function(x, source), holds=lambda: [source],
                               batch=lambda i: (torch.randn(4, 3),),
                               after=lambda i: source.fill_(number(i + 1)), source=source)

    def begun():
        training = make()
        training.source.fill_(number(0))
        return training
    return begun


def read(t):
    return (t + 0).item()


READS = {
    "gumbel": (lambda x, t: F.gumbel_softmax(x, read(t)), (1.0, 0.2, 0.4, 0.6, 0.8)),
    "dropout": (lambda x, t: F.dropout(torch.ones(50), read(t)), (0.5, 0.1, 0.2, 0.3)),
    "beta_and_alpha": (lambda x, t: torch.addmm(x * 0 + 5, x, torch.eye(3), beta=1.0, alpha=read(t)),
                       (1.0, 0.5, 0.4, 0.3)),
    "list_beside": (lambda x, t: (lambda k: x * k * torch.tensor([k, 1.0, 2.0]))(read(t)), (1.0, 0.5, 0.4)),
    "slice": (lambda x, t: (lambda n: x[:, :n].sum() / n)(int(read(t))), (3.0, 2.0, 1.0)),
    "slice_of_int": (lambda x, t: (lambda n: x[:, :n].sum() / n)(read(t.long())), (3.0, 2.0, 1.0)),
    "select": (lambda x, t: x[read(t.long())] * 2, (3.0, 1.0, 0.0, 2.0)),
    "dim": (lambda x, t: x.softmax(read(t.long())) * read(t.long()), (0.0, 1.0)),
    "constant": (lambda x, t: {"y": x + read(t), "auxiliary": 0.0}, (0.0, 0.25, 0.5, 0.75)),
    "roll": (lambda x, t: x.roll(read(t.long()), 0) * read(t.long()), (1.0, 2.0, 3.0)),
    "text": (lambda x, t: (lambda k: (x * k, "scale %.2f" % k))(read(t)), (1.0, 0.5, 0.4)),
    "narrow": (lambda x, t: x.narrow(1, 0, read(t.long())) + read(t.long()), (3.0, 2.0, 1.0)),
}


@pytest.mark.parametrize("function, values", READS.values(), ids=READS)
def test_a_read_that_moves_late(function, values):
    twins.compare(reading(function, after(*values)), 50)


@pytest.mark.parametrize("name", ["gumbel", "dropout", "beta_and_alpha", "constant"])
def test_a_read_that_moves_late_and_is_followed_replays(name):
    function, values = READS[name]
    twins.compare(reading(function, after(*values)), 50, share=0.6)


@pytest.mark.parametrize("function, values", READS.values(), ids=READS)
def test_a_read_that_moves_when_an_audit_is_due(function, values):
    """An audit stops where a replay would: the plan is proved at the new value, not taken for wrong."""
    step = twins.compare(reading(function, after(*values)), 50, verify={"first": True, "rate": 1.0})
    assert step.stats["audits"] >= 10, step.explain()
    assert not any(refusal["code"] == "audit_diverged" for refusal in step.stats["refusals"]), step.explain()


def test_a_read_that_is_kept_in_an_attribute():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.tensor(1.0))
            self.last = None

        def forward(self, x):
            self.last = (self.scale + 0).item()
            return x * self.last

    def make():
        net = Net()
        number = after(1.0, 2.0, 3.0, 4.0)
        return SimpleNamespace(step=lambda x: net(x), batch=lambda i: (torch.randn(3),),
                               holds=lambda: [net, net.last], after=lambda i: net.scale.fill_(number(i)))

    twins.compare(make, 40)


def test_annealed_clipping():
    """The range changes where the ratio is 1, so that nothing is clipped in the first call of each."""
    def make():
        model = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        old = [None]
        data = []
        for seed in range(8):
            g = torch.Generator().manual_seed(seed)
            data.append((torch.randn(8, 3, generator=g), torch.randint(0, 3, (8, 1), generator=g),
                         torch.randn(8, generator=g)))

        def step(x, act, before, adv, eps):
            optimizer.zero_grad()
            ratio = (F.log_softmax(model(x), 1).gather(1, act)[:, 0] - before).exp()
            loss = -torch.min(ratio * adv, ratio.clamp(1 - eps, 1 + eps) * adv).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        def batch(i):
            x, act, adv = data[i // 10]
            if i % 10 == 0:
                with torch.no_grad():
                    old[0] = F.log_softmax(model(x), 1).gather(1, act)[:, 0]
            return x, act, old[0], adv, [0.2, 0.2, 0.1, 0.05, 0.04, 0.03, 0.02, 0.01][i // 10]
        return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer])

    twins.compare(make, 80, share=0.8)


def test_a_long_text_that_ends_in_a_number():
    def step(x):
        s = x.sum().item()
        return s, "x" * 100 + "%.4f" % s
    twins.compare(lambda: SimpleNamespace(step=step, batch=lambda i: (torch.randn(3),), holds=lambda: []), 20)


def test_an_int_that_no_double_holds():
    twins.compare(lambda: SimpleNamespace(step=lambda x: (x * 2, 0x123456789abcdef1),
                                          batch=lambda i: (torch.randn(3),), holds=lambda: []), 20, share=0.9)


MADE = {  # a tensor that the step makes of numbers, and whether one that moves is followed there
    "beside_a_literal": (lambda x, n: torch.tensor([n, 5.0]), True),
    "after_an_equal_literal": (lambda x, n: torch.tensor([5, 4, n]), True),
    "computed": (lambda x, n: torch.tensor([n / 3, 1 - n / 7, n * n], dtype=torch.float64), True),
    "repeated": (lambda x, n: torch.tensor([n] * 8), True),
    "of_lists": (lambda x, n: torch.tensor([[n, 1.0], [2.0, n + 1]]), True),
    "like_another": (lambda x, n: x.new_tensor((n, n + 0.5)), True),
    "as_tensor": (lambda x, n: torch.as_tensor([0.5, n]), True),
    "asarray": (lambda x, n: torch.asarray([n, 2.0]), True),
    "by_the_old_constructor": (lambda x, n: torch.Tensor([n, 0.5]), True),
    "of_a_type": (lambda x, n: torch.LongTensor((n, 2 * n)), True),
    "new": (lambda x, n: x.new([n, 0.5]), True),
    "that_indexes": (lambda x, n: x.flatten()[torch.tensor([n % 3, 0])], True),
    "in_one_column": (lambda x, n: torch.tensor([n, 2]).unsqueeze(1), True),
    "written_later": (lambda x, n: torch.tensor([n, 0.0]).add_(1), True),
    "grown": (lambda x, n: torch.tensor([n] * (3 + n % 2)), True),
    "of_half_precision": (lambda x, n: torch.tensor([n, 1], dtype=torch.float16), False),
    "that_it_outgrows": (lambda x, n: torch.tensor([n * 8, 1], dtype=torch.int8), True),
    "of_decisions": (lambda x, n: torch.tensor([n > 8, n == 11]), True),
}


@pytest.mark.parametrize("made, is_followed", MADE.values(), ids=MADE)
def test_numbers_in_a_tensor_that_the_step_makes(made, is_followed):
    def make():
        def step(x, n):
            return (x.sum() * made(x, n).sum()).detach(), made(x, n + 1)
        return SimpleNamespace(step=step, batch=lambda i: (torch.randn(4, 3), i % 23), holds=lambda: [])

    step = twins.compare(make, 69)
    assert (step.stats["replayed"] > 20) == is_followed, step.explain()


COUNTED = {
    "root": lambda n: max(n, 10) ** 0.5,
    "largest": lambda n: max(n, 10.0),
    "smallest_of_three": lambda n: min(20, 12.0, n),
}


@pytest.mark.parametrize("of", COUNTED.values(), ids=COUNTED)
def test_a_counter_of_the_programs_own_optimizer(of):
    class Counting(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, dict(lr=0.1))

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if not state:
                        state["step"] = 0
                    state["step"] += 1
                    p.add_(p.grad, alpha=-group["lr"]).mul_(1 / of(state["step"]))

    def make():
        model = nn.Linear(3, 2)
        optimizer = Counting(model.parameters())

        def step(x):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        return SimpleNamespace(step=step, batch=lambda i: (torch.randn(4, 3),), holds=lambda: [model, optimizer])

    twins.compare(make, 40)


def test_what_a_tensor_is_made_of_is_not_explained_by_a_number_that_moves_with_it():
    """The program replaces the function that makes the tensor while an argument happens to take the same values."""
    def make():
        made = [lambda: torch.tensor(.5)]

        def step(x, numbers):
            k = numbers[0]
            return torch._foreach_mul([x], made[0]().item())[0] * k * torch.tensor([k, 1., 2., .5])

        def between(i):
            if i == 8:
                made[0] = lambda: torch.tensor(.25)

        return step, between

    (eager, change), (step, change_own) = make(), make()
    step = steptape.wrap(step, verify={"first": True, "rate": 0.0})
    for i in range(24):
        change(i), change_own(i)
        k = .25 if 7 <= i < 11 else .5
        x = torch.full((2, 4), float(i))
        assert torch.equal(step(x, [k]), eager(x, [k])), i
    assert step.stats["replayed"] > 4, step.explain()


COINCIDING = {  # of an op what takes a number, and another number that its backward is given at first
    "lerp": (lambda w, x, a: torch.lerp(w, x, a), lambda a: 1 - a),
    "power": (lambda w, x, a: w.abs().pow(a), lambda a: a - 1),
    "norm": (lambda w, x, a: w.norm(p=a), lambda a: a - 1),
    "alpha": (lambda w, x, a: torch.sub(x, w, alpha=a), lambda a: -a),
    "huber": (lambda w, x, a: F.huber_loss(w, x, delta=a), lambda a: -a),
    "divided": (lambda w, x, a: w / a, lambda a: 1 / a),
    "variance": (lambda w, x, a: w.var(correction=a), lambda a: 2 / (3 - a)),
    "base": (lambda w, x, a: torch.pow(a, w), lambda a: math.log(a)),
}
FOLLOWED_BY_NO_FORMULA = ("variance", "base")  # what torch makes of the number there


@pytest.mark.parametrize("held", ["argument", "attribute", "read"])
@pytest.mark.parametrize("name", COINCIDING)
def test_backward_follows_what_its_own_op_was_given(name, held):
    """Another number that is the same in the first calls, and parts from it later, explains nothing."""
    op, other = COINCIDING[name]

    def make():
        w, kept = nn.Parameter(torch.randn(3)), SimpleNamespace(b=0.0)

        def step(x, a, b):
            if held == "attribute":
                b = kept.b
            elif held == "read":
                b = b.item()
            w.grad = None
            loss = op(w, x, a).sum() * b
            loss.backward()
            return loss.detach()

        def batch(i):
            a = 1.3 + 0.03 * i
            kept.b = other(a) if i < 12 else 0.71
            return torch.randn(3), a, torch.tensor(kept.b, dtype=torch.float64) if held == "read" else kept.b
        return SimpleNamespace(step=step, batch=batch, holds=lambda: [w])

    step = twins.compare(make, 24, verify={"first": True, "rate": 0.0})
    if name in FOLLOWED_BY_NO_FORMULA:
        assert {"scalar_varies"} == {r["code"] for r in step.stats["refusals"]}, step.explain()
    else:
        assert step.stats["replayed"] > 8, step.explain()


@pytest.mark.parametrize("rates", [(0.1, 0.2, 0.0), (0.0, 0.1, 0.2), (0.1, 0.0, 0.2), (1.0, 0.1, 0.2)])
@pytest.mark.parametrize("scheduled", [False, True])
def test_a_plan_is_tried_where_other_ops_are_done(rates, scheduled):
    """Of dropout at 0 or 1. What the eager step does there is compared op by op, also where it changes a hyperparameter besides."""
    def make():
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.95 ** epoch)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            if scheduled:
                scheduler.step()
            return loss.detach()

        def batch(i):
            model[1].p = rates[i % 3]
            return (torch.randn(4, 3),)
        return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer])

    step = twins.compare(make, 30, verify={"first": True, "rate": 0.0})
    assert step.stats["replayed"] >= 12, step.explain()


LIMITS = {  # how the step finds a limit that is guarded, and what it is read of
    "size": (lambda k: (0,) * k, "len(held.limit)"),
    "text": (str, "int(held.limit)"),
    "queue": (lambda k: collections.deque(maxlen=k), "held.limit.maxlen"),
    "flag": (lambda k: k > 4, "(8 if held.limit else 6)"),
    "date": (lambda k: datetime.date(2026, 1, k), "held.limit.day"),
    "bytes": (bytes, "len(held.limit)"),
}


@pytest.mark.parametrize("each_call", [False, True])
@pytest.mark.parametrize("limit", LIMITS)
def test_a_guarded_limit_is_another_while_numbers_are_below_it(limit, each_call):
    """min(n, 3) and min(n, 4) are one for the first three numbers: which of them the step computes is known from the step."""
    of, read = LIMITS[limit]

    def play(wrap):
        held = SimpleNamespace(n=0, limit=None)
        scope = {"held": held}
        exec(f"def step(x):\n    held.n += 1\n    return x / min(held.n, {read})\n", scope)
        step, seen = wrap(scope["step"]), []
        for i in range(60):
            if i % 15 == 0:
                held.n = 0
            if each_call or i % 15 == 0:
                held.limit = of(10 if i < 15 else 2 + i // 15)
            seen.append(twins.bits(step(torch.full((3,), 0.5 * i))))
        return [seen, step]
    step = twins.played_alike(play)
    if not each_call:
        assert step.stats["replayed"] >= 30, step.explain()

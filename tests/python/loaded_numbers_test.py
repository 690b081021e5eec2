"""Numbers of loaded steps: a player cannot record the eager step where a number has a value at which the plan was not proved, so it
refuses that, unless nothing but the op itself can depend on the number.
"""
import collections
import functools
import types

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import steptape
from twins import bits

CALLS = 12

#: What a number feeds, by name: the op, and two values that it may have.
FEEDS = {
    "pow": (lambda y, k: y.abs() ** k, 2.0, 3.0),
    "rpow": (lambda y, k: k ** y, 2.0, 3.0),
    "huber": (lambda y, k: F.huber_loss(y, torch.zeros_like(y), delta=k), .1, .5),
    "smooth_l1": (lambda y, k: F.smooth_l1_loss(y, torch.zeros_like(y), beta=k), .1, .5),
    "clamp": (lambda y, k: y.clamp(max=k), .1, .2),
    "leaky_relu": (lambda y, k: F.leaky_relu(y, k), .1, .2),
    "softplus": (lambda y, k: F.softplus(y, beta=k), 1.5, 2.5),
    "lerp": (lambda y, k: torch.lerp(y, 2 * y + 1, k), .1, .7),
    "mul": (lambda y, k: y * k, 1.5, 2.5),
    "std": (lambda y, k: y.std(correction=k), 1, 2),
    "norm": (lambda y, k: torch.linalg.vector_norm(y, k), 2.5, 3.5),
    "addmm": (lambda y, k: torch.addmm(y, y, torch.ones(y.shape[1], y.shape[1]), alpha=k), 1.5, 2.5),
}


def batch(i):
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(i))


class Program:
    """A model and its optimizer, in whose group a number `k` stands beside the learning rate."""

    def __init__(self, feeds, k=None, number=None, optimizer=torch.optim.SGD, **options):
        torch.manual_seed(3)
        self.model = nn.Linear(3, 3)
        self.optimizer = optimizer(self.model.parameters(), lr=.01, **options)
        self.group = self.optimizer.param_groups[0]
        self.group["k"] = k
        self.calls = 0
        model, optimizer, group = self.model, self.optimizer, self.group

        def step(x):
            self.calls += 1
            optimizer.zero_grad()
            loss = feeds(model(x), group["k"] if number is None else number(self.calls)).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        self.step = step

    def play(self, step, calls):
        return [bits(step(batch(i))) for i in calls]


def wrapped(program):
    return steptape.wrap(program.step, model=program.model, optimizer=program.optimizer,
                         verify={"first": True, "rate": 0.0})


def loaded(step, path):
    assert step.stats["replayed"] > 0, step.explain()
    step.save(path)
    player = steptape.load(path)
    return player, player["step"]


@pytest.mark.parametrize("feeds", FEEDS)
def test_a_number_that_had_one_value_may_have_no_other(feeds, tmp_path):
    op, value, other = FEEDS[feeds]
    program, twin = Program(op, value), Program(op, value)
    step = wrapped(program)
    assert program.play(step, range(CALLS)) == twin.play(twin.step, range(CALLS))
    player, again = loaded(step, tmp_path / "a.tape")
    player.set("optimizer.param_groups[0].k", other)
    with pytest.raises(steptape.Error, match=r"optimizer\.param_groups\[0\]\.k"):
        again(batch(CALLS))
    player.set("optimizer.param_groups[0].k", value)  # the call that was refused has left everything as it was
    assert program.play(again, range(CALLS, CALLS + 3)) == twin.play(twin.step, range(CALLS, CALLS + 3))


@pytest.mark.parametrize("feeds", FEEDS)
def test_a_number_that_the_step_computes_ends_a_loaded_step_where_it_first_changes(feeds, tmp_path):
    op, value, other = FEEDS[feeds]
    change = (other - value)

    def number(calls):
        return value + change * (calls // 15)

    program, twin = Program(op, number=number), Program(op, number=number)
    step = wrapped(program)
    assert program.play(step, range(CALLS)) == twin.play(twin.step, range(CALLS))
    _, again = loaded(step, tmp_path / "a.tape")
    assert program.play(again, range(CALLS, 14)) == twin.play(twin.step, range(CALLS, 14))
    with pytest.raises(steptape.Error, match=r"\(proved\) → "):
        again(batch(14))


# of the others no formula covers what backward makes of the number: each value has a plan of its own
@pytest.mark.parametrize("feeds", sorted(FEEDS.keys() - {"rpow", "std", "norm"}))
def test_a_number_that_had_three_values_may_have_any(feeds, tmp_path):
    op, value, other = FEEDS[feeds]

    def number(i):
        return value + (other - value) / 16 * (i % 16)

    program, twin = Program(op, value), Program(op, value)
    step = wrapped(program)
    for i in range(20):
        program.group["k"] = twin.group["k"] = number(i)
        assert bits(step(batch(i))) == bits(twin.step(batch(i)))
    player, again = loaded(step, tmp_path / "a.tape")
    for i in range(20, 30):
        twin.group["k"] = number(i)
        player.set("optimizer.param_groups[0].k", number(i))
        assert bits(again(batch(i))) == bits(twin.step(batch(i)))


def test_a_number_may_not_become_one_of_another_kind(tmp_path):
    op = FEEDS["pow"][0]
    program, twin = Program(op, 2.25), Program(op, 2.25)
    step = wrapped(program)
    for i in range(20):
        program.group["k"] = twin.group["k"] = 2.25 + i / 64
        assert bits(step(batch(i))) == bits(twin.step(batch(i)))
    player, again = loaded(step, tmp_path / "a.tape")
    for k in 3.0, 1.25, .25, 0.0, float("nan"), float("inf"):
        player.set("optimizer.param_groups[0].k", k)
        with pytest.raises(steptape.Error, match="param_groups"):
            again(batch(20))


def test_a_number_that_changes_before_the_trace_is_saved(tmp_path):
    op = FEEDS["pow"][0]
    program = Program(op, 2.0)
    step = wrapped(program)
    program.play(step, range(CALLS))
    program.group["k"] = 3.0
    with pytest.raises(steptape.Error, match="param_groups"):
        loaded(step, tmp_path / "a.tape")[1](batch(CALLS))


def test_a_number_argument_that_had_one_value_may_have_no_other(tmp_path):
    model = nn.Linear(3, 3)

    def step(x, k):
        loss = (model(x).abs() ** k).mean()
        model.zero_grad()
        loss.backward()
        return model.weight.grad.clone()

    step = steptape.wrap(step, model=model, verify={"first": True, "rate": 0.0})
    for i in range(CALLS):
        step(batch(i), 2.0)
    step.save(tmp_path / "a.tape")
    player = steptape.load(tmp_path / "a.tape")
    player.set("step.inputs[1]", 3.0)
    with pytest.raises(steptape.Error, match=r"inputs\[1\]"):
        player["step"](batch(0))


@pytest.mark.parametrize("optimizer, options", [
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": .9, "weight_decay": .01, "nesterov": True}),
    (torch.optim.SGD, {"momentum": .9, "foreach": True}),
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"foreach": True}),
    (torch.optim.Adam, {"fused": True}),
    (torch.optim.AdamW, {"amsgrad": True}),
    (torch.optim.RMSprop, {"momentum": .9}),
    (torch.optim.Adagrad, {}),
    (torch.optim.NAdam, {}),
    (torch.optim.Adamax, {}),
])
def test_a_learning_rate_that_never_moved_may_be_set(optimizer, options, tmp_path):
    op = FEEDS["mul"][0]
    program, twin = (Program(op, 1.5, optimizer=optimizer, **options) for _ in range(2))
    step = wrapped(program)
    assert program.play(step, range(CALLS)) == twin.play(twin.step, range(CALLS))
    player, again = loaded(step, tmp_path / "a.tape")
    for i in range(CALLS, CALLS + 6):
        twin.group["lr"] = .01 / i
        player.set("optimizer.param_groups[0].lr", .01 / i)
        assert bits(again(batch(i))) == bits(twin.step(batch(i)))


#: Without a graph: ops in which the number is also a literal or a default, or whose function looks at it first.
DOUBTFUL = {
    "threshold": (lambda y, k: F.threshold(y, 0., k), 0., .5),
    "clamp": (lambda y, k: y.clamp(0., k), 0., .5),
    "normal": (lambda y, k: torch.normal(0., k, (4, 3)), 0., 1.),
    "addmm": (lambda y, k: torch.addmm(y, y, torch.ones(3, 3), alpha=k), 1, 2),
    "renorm": (lambda y, k: torch.renorm(y, 2, 0, k), 2, 3),
    "linspace": (lambda y, k: torch.linspace(0., k, 3), 0., 1.),
    "pdist": (lambda y, k: F.pdist(y, p=k), 2., -1.),
    "dropout": (lambda y, k: F.dropout(y, k), 0., .5),
}

#: And those in which it can be nothing else.
PLAIN = {
    "mul": (lambda y, k: y * k, 1.5, -2.5),
    "rsub": (lambda y, k: k - y, 1.5, 0.),
    "add_": (lambda y, k: y.clone().add_(y, alpha=k), 1.5, 7),
    "lerp": (lambda y, k: torch.lerp(y, -y, k), .1, 1.),
    "pow": (lambda y, k: y.abs() ** k, 1.5, 2.),
    "foreach": (lambda y, k: torch._foreach_mul([y, -y], k)[1], 1.5, 0.),
    "clamp": (lambda y, k: y.clamp(-1., k), .1, 2.),
    "normalize": (lambda y, k: F.normalize(y, p=k), 2., 3.),
    "two ops": (lambda y, k: F.huber_loss(y, -y, delta=k) * k, 1.5, 2.5),
}


def evaluated(op, k, tmp_path):
    """A loaded step that has no graph, with its player."""
    optimizer = torch.optim.SGD([torch.ones(1)], lr=.1)
    optimizer.param_groups[0]["k"] = k

    def step(x):
        with torch.no_grad():
            return op(x, optimizer.param_groups[0]["k"])

    step = steptape.wrap(step, optimizer=optimizer, verify={"first": True, "rate": 0.0})
    for i in range(CALLS):
        step(batch(i))
    return loaded(step, tmp_path / "a.tape")


@pytest.mark.parametrize("feeds", DOUBTFUL)
def test_a_number_that_its_op_may_hold_elsewhere_stays_what_it_was(feeds, tmp_path):
    op, value, other = DOUBTFUL[feeds]
    player, again = evaluated(op, value, tmp_path)
    again(batch(0))
    player.set("optimizer.param_groups[0].k", other)
    with pytest.raises(steptape.Error, match=r"param_groups\[0\]\.k"):
        again(batch(0))


@pytest.mark.parametrize("feeds", PLAIN)
def test_a_number_that_stands_once_in_one_op_may_be_any(feeds, tmp_path):
    op, value, other = PLAIN[feeds]
    player, again = evaluated(op, value, tmp_path)
    player.set("optimizer.param_groups[0].k", other)
    assert bits(again(batch(0))) == bits(op(batch(0), other))


def test_what_decides_in_a_group_may_not_be_set(tmp_path):
    program = Program(lambda y, k: y * 3 if k else y, True, momentum=.9)
    step = wrapped(program)
    program.play(step, range(CALLS))
    player, again = loaded(step, tmp_path / "a.tape")
    again(batch(0))
    for name, value in (("k", 0), ("nesterov", 1), ("maximize", 1)):
        held = player.scalars()[f"optimizer.param_groups[0].{name}"]
        player.set(f"optimizer.param_groups[0].{name}", value)
        with pytest.raises(steptape.Error, match=rf"param_groups\[0\]\.{name}"):
            again(batch(0))
        player.set(f"optimizer.param_groups[0].{name}", held)
        again(batch(0))


def test_a_plan_that_nobody_compares_takes_any_number(tmp_path):
    program = Program(FEEDS["mul"][0], 1.5)
    step = steptape.wrap(program.step, model=program.model, optimizer=program.optimizer,
                         verify={"first": False, "rate": 0.0})
    program.play(step, range(CALLS))
    player, again = loaded(step, tmp_path / "a.tape")
    player.set("optimizer.param_groups[0].k", 2.5)
    again(batch(0))


#: Places that the step writes a number to and reads in its next call: how they are made, written and read.
PLACES = {
    "attribute": ("held.e = .5", "held.e = value", "held.e"),
    "setattr": ("held.e = .5", "setattr(held, 'e', value)", "held.e"),
    "dict": ("held.e = {'a': .5}", "held.e['a'] = value", "held.e['a']"),
    "list": ("held.e = [1., .5]", "held.e[1] = value", "held.e[1]"),
    "tuple": ("held.e = (None, .5)", "held.e = (None, value)", "held.e[1]"),
    "deque": ("held.e = collections.deque([.5, 1.])", "held.e[0] = value", "held.e[0]"),
    "queue": ("held.e = collections.deque([.5, .5], maxlen=2)", "held.e.append(value)", "held.e[0]"),
    "nested": ("held.e = types.SimpleNamespace(a=[.5])", "held.e.a[0] = value", "held.e.a[0]"),
    "module": ("model.e = .5", "model.e = value", "model.e"),
    "tuple of a module": ("model.e = (.5, None)", "model.e = (value, None)", "model.e[0]"),
    "tuple of an optimizer": ("optimizer.e = (.5, None)", "optimizer.e = (value, None)", "optimizer.e[0]"),
    "tuple of numbers of an optimizer": ("optimizer.e = (.5, 1.)", "optimizer.e = (value, 1.)", "optimizer.e[0]"),
    "list of a group": ("group['e'] = [1., .5]", "group['e'][1] = value", "group['e'][1]"),
    "tuple of a group": ("group['e'] = (None, .5)", "group['e'] = (None, value)", "group['e'][1]"),
    "defaults": ("optimizer.defaults['lr'] = .5", "optimizer.defaults['lr'] = value", "optimizer.defaults['lr']"),
    "whole number": ("held.e = 0", "held.e = int(value)", "held.e + 1"),
}


def keeping(place, late):
    """A step that keeps a number which becomes another one in call `late`."""
    make, write, read = PLACES[place]
    torch.manual_seed(3)
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    names = {"held": types.SimpleNamespace(calls=0), "model": model, "optimizer": optimizer,
             "group": optimizer.param_groups[0], "types": types, "collections": collections, "torch": torch}
    exec(f"""
{make}

def step(x):
    group = optimizer.param_groups[0]
    held.calls += 1
    optimizer.zero_grad()
    loss = (model(x) ** 2).mean()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        result = model(x) * ({read})
        value = .5 + held.calls // {late}
        {write}
    return result
""", names)
    return names["step"]


@pytest.mark.parametrize("place", PLACES)
def test_a_number_that_the_step_keeps_and_that_changes_late(place, tmp_path):
    late = 15
    step = steptape.wrap(keeping(place, late), name="step", verify={"first": True, "rate": 0.0})
    eager, again = keeping(place, late), keeping(place, late)
    in_process = steptape.wrap(again, verify={"first": True, "rate": 0.0})
    expected = [bits(eager(batch(i))) for i in range(24)]
    assert [bits(in_process(batch(i))) for i in range(24)] == expected
    for i in range(CALLS):
        step(batch(i))
    _, player_step = loaded(step, tmp_path / "a.tape")
    assert [bits(player_step(batch(i))) for i in range(CALLS, late - 1)] == expected[CALLS:late - 1]
    with pytest.raises(steptape.Error, match="calls"):  # the formula of the number names the counter
        player_step(batch(late - 1))
        player_step(batch(late))


@pytest.mark.parametrize("value, item", [((None, .5), 1), ((.5, None), 0), (("a", .5), 1), ((True, .5), 1)])
def test_an_item_of_a_tuple_that_holds_more_than_numbers_may_not_be_set(value, item, tmp_path):
    player, again = evaluated(lambda y, k: y * k[item], value, tmp_path)
    player.set(f"optimizer.param_groups[0].k[{item}]", 2.)
    with pytest.raises(steptape.Error, match=rf"k\[{item}\]"):
        again(batch(0))


RATES = [.5 + k / 16 for k in range(60)]
FACTORS = {k: 1 + k / 8 for k in range(60)}


class Table:
    """A step that takes a number from a table, under one that moves: that the step counts, that the program sets, or an argument."""

    def __init__(self, of):
        torch.manual_seed(3)
        self.weight = nn.Parameter(torch.randn(3))
        self.n = 0
        self.step = getattr(self, of)

    def train(self, x, rate):
        self.weight.grad = None
        loss = (self.weight * x).pow(2).mean() * rate
        loss.backward()
        with torch.no_grad():
            self.weight -= .1 * self.weight.grad
        return loss.detach(), rate

    def counted(self, x):
        self.n += 1
        return self.train(x, RATES[self.n])

    def set(self, x):
        return self.train(x, RATES[self.n])

    def given(self, x, n):
        return self.train(x, FACTORS[n])

    def computed(self, x):
        self.n += 1
        return self.train(x, np.exp(-self.n / 16))

    def nested(self, x):
        self.n += 1
        return self.train(x, FACTORS[int(RATES[self.n] * 16)])


def looked_up(of, tmp_path, before=lambda program, i: None, arguments=lambda i: ()):
    """A twin that has gone on without a trace, and a player of the other."""
    program, twin = Table(of), Table(of)
    step = steptape.wrap(program.step, name="step", verify={"first": True, "rate": 0.0})
    for i in range(15):
        before(program, i)
        before(twin, i)
        assert bits(step(batch(i), *arguments(i))) == bits(twin.step(batch(i), *arguments(i)))
    player, again = loaded(step, tmp_path / "a.tape")
    return twin, player, again


def item_of(player):
    return [path for path in player.scalars() if path.startswith(("RATES[", "FACTORS[", "np.exp("))]


def test_a_number_from_a_table_under_one_that_the_step_counts_is_asked_for_each_time(tmp_path):
    twin, player, again = looked_up("counted", tmp_path)
    (item,) = item_of(player)
    assert bits(again(batch(15))) == bits(twin.step(batch(15)))  # what the program would have looked up next
    for i in range(16, 20):
        with pytest.raises(steptape.Error, match=rf"RATES\[.*self\.n = {i}"):
            again(batch(i))
        player.set(item, RATES[i + 1])
        assert bits(again(batch(i))) == bits(twin.step(batch(i)))


def test_a_number_that_a_function_of_the_programs_process_computes_is_asked_for_each_time(tmp_path):
    twin, player, again = looked_up("computed", tmp_path)
    (item,) = item_of(player)
    assert bits(again(batch(15))) == bits(twin.step(batch(15)))
    for i in range(16, 20):
        with pytest.raises(steptape.Error, match=rf"np\.exp\(.*self\.n = {i}"):
            again(batch(i))
        player.set(item, np.exp(-(i + 1) / 16))
        assert bits(again(batch(i))) == bits(twin.step(batch(i)))


def test_a_number_from_a_table_is_asked_for_once_the_one_that_it_is_under_is_set(tmp_path):
    twin, player, again = looked_up("set", tmp_path, before=lambda program, i: setattr(program, "n", i))
    (item,) = item_of(player)
    twin.n = 15
    player.set("self.n", 15)
    with pytest.raises(steptape.Error, match=r"self\.n = 15"):
        again(batch(15))
    player.set(item, RATES[15])
    for i in range(15, 18):  # neither moves
        assert bits(again(batch(i))) == bits(twin.step(batch(i)))
    twin.n = 20
    player.set(item, RATES[20])  # in either order
    player.set("self.n", 20)
    assert bits(again(batch(20))) == bits(twin.step(batch(20)))


def test_a_number_from_a_table_under_an_argument_is_asked_for_at_first(tmp_path):
    twin, player, again = looked_up("given", tmp_path, arguments=lambda i: (i,))
    (item,) = item_of(player)
    player.set("step.inputs[1]", 15)
    with pytest.raises(steptape.Error, match=r"FACTORS\["):
        again(batch(15))
    player.set(item, FACTORS[15])
    assert bits(again(batch(15))) == bits(twin.step(batch(15), 15))


def test_a_number_from_a_table_under_one_from_another(tmp_path):
    twin, player, again = looked_up("nested", tmp_path)
    inner, outer = sorted(item_of(player), key=len)
    assert bits(again(batch(15))) == bits(twin.step(batch(15)))
    with pytest.raises(steptape.Error, match=r"RATES\["):
        again(batch(16))
    player.set(inner, RATES[17])
    with pytest.raises(steptape.Error, match=r"FACTORS\["):
        again(batch(16))
    player.set(outer, FACTORS[int(RATES[17] * 16)])
    assert bits(again(batch(16))) == bits(twin.step(batch(16)))


@pytest.mark.parametrize("is_set", [False, True])
def test_what_a_player_saves_holds_no_number_of_a_table_that_is_out_of_date(is_set, tmp_path):
    twin, player, again = looked_up("counted", tmp_path)
    (item,) = item_of(player)
    assert bits(again(batch(15))) == bits(twin.step(batch(15)))
    if is_set:
        player.set(item, RATES[17])
    player.save(tmp_path / "b.tape")
    player = steptape.load(tmp_path / "b.tape")
    again = player["step"]
    if not is_set:
        with pytest.raises(steptape.Error, match=r"RATES\["):
            again(batch(16))
        player.set(item, RATES[17])
    assert bits(again(batch(16))) == bits(twin.step(batch(16)))


APART = {
    "a number or none": (lambda x, w=None: x if w is None else x * w, lambda i: (3.0,) if i % 2 else ()),
    "a number or None": (lambda x, w: x if w is None else x * w, lambda i: (3.0 if i % 2 else None,)),
    "a number or a text": (lambda x, w: x * 2 if w == "s" else x * w, lambda i: (3.0 if i % 2 else "s",)),
    "so many numbers": (lambda x, ws: sum(x * w for w in ws), lambda i: ([1.0, 2.0] if i % 2 else [4.0],)),
    "an entry or None": (lambda x, o: x if o["w"] is None else x * o["w"], lambda i: ({"w": 2.0 if i % 2 else None},)),
    "an int or a float": (lambda x, w: x * w, lambda i: (2 if i % 2 else 2.5,)),
    "a flag or an int": (lambda x, w: x + 1 if w is True else x * w, lambda i: (True if i % 2 else 3,)),
    "ends of slices": (lambda x, at: x[at] * 2, lambda i: (slice(None, 2) if i % 2 else slice(1, None),)),
}


@pytest.mark.parametrize("name", APART)
def test_variants_that_other_arguments_tell_apart_are_not_guessed(name, tmp_path):
    function, more = APART[name]
    step = steptape.wrap(function, name="apart", verify={"first": True, "rate": 0.0})
    for i in range(30):
        assert bits(step(batch(i), *more(i))) == bits(function(batch(i), *more(i)))
    assert len(step.stats["variants"]) > 1 and step.stats["replayed"] > 10, step.explain()
    step.save(tmp_path / "a.tape")
    player = steptape.load(tmp_path / "a.tape")
    for _ in range(2):
        with pytest.raises(steptape.FailedPrecondition, match="several, told apart by a string or another fact"):
            player["apart"](batch(40))
        player.save(tmp_path / "a.tape")
        player = steptape.load(tmp_path / "a.tape")


def clipped(model, optimizer):
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        norm = sum(p.grad.norm().item() ** 2 for p in model.parameters()) ** .5
        if norm > 1.:
            optimizer.step()
        return loss.detach()
    return step


def unless_it_is_lost(model, optimizer):
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        if loss.item() > .5:
            loss = loss * .5
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def plainly(model, optimizer):
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


@pytest.mark.parametrize("optimizer", (torch.optim.SGD, torch.optim.RAdam, functools.partial(torch.optim.ASGD, t0=10)),
                         ids=("SGD", "RAdam", "ASGD"))
@pytest.mark.parametrize("make", (clipped, unless_it_is_lost, plainly))
def test_plans_that_part_by_what_they_read_take_turns(make, optimizer, tmp_path):
    """A run that finds that it is not its turn leaves nothing behind."""
    torch.manual_seed(3)
    model = nn.Linear(3, 3)
    step = steptape.wrap(make(model, optimizer(model.parameters(), lr=.01)), name="step", verify={"first": True, "rate": 0.0})
    for i in range(30):
        step(batch(i) * (3. if i % 3 else .3))
    assert step.stats["replayed"] >= 8, step.explain()
    _, played = loaded(step, tmp_path / "step.tape")
    for i in range(12):
        x = batch(i) * (3. if i % 3 else .3)
        assert bits(played(x)) == bits(step(x)), (i, step.explain())

"""Numbers that functions of C's make of followed ones: those of `math` that no formula has, and NumPy's. They are called again as each call
begins, so that a schedule computed by NumPy replays."""
import collections
import math
import signal
import time
import types
import warnings

import numpy as np
import pytest
import torch
import torch.nn as nn

import steptape
import twins

STEPS = 40
LATE = 24


def program(compute, between=lambda i, held: None, given=lambda i: 0.5 * 0.97 ** i, start=0.5):
    """`compute(held, n)` gives the weight of a step; `between(i, held)` is what the program does before step `i`."""
    def make():
        net = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        held = types.SimpleNamespace(n=1, lr=start, last=0.0, of=[0.1, 0.2, 0.3], function=math.hypot, optimizer=optimizer, net=net,
                                     table={})

        def step(x, n):
            weight = compute(held, n)
            optimizer.zero_grad()
            loss = net(x).pow(2).mean() * weight
            loss.backward()
            optimizer.step()
            return loss.detach(), weight

        def after(i):
            held.n += 1
            between(i + 1, held)

        return types.SimpleNamespace(step=step, batch=lambda i: (torch.randn(2, 3), given(i)), holds=lambda: [net, optimizer, held], after=after)
    return make


def played(make):
    return twins.compare(make, STEPS, verify={"first": True, "rate": 0.0})


def rate_by_numpy(held, n):
    rate = 0.05 * 0.5 * (1.0 + np.cos(np.pi * held.n / 100))
    for group in held.optimizer.param_groups:
        group["lr"] = rate
    return 1.0


def counted(held, n):
    held.last = held.last + 1.0
    return np.exp(-held.last / 10)


def kept(held, n):
    held.lr = np.clip(held.lr * 0.98, 0.1, 1.0)
    return held.lr * 2


def bits_in_place(held, n):
    bits = held.n
    bits &= 6
    bits |= 1
    return bits * 0.1


def averaged(held, n):
    held.table["mean"] = 0.9 * held.table.get("mean", n) + 0.1 * n
    return held.table["mean"]


FOLLOWED = {
    "hypot": lambda held, n: math.hypot(n, 1.0),
    "hypot_of_three": lambda held, n: math.hypot(n, 1.0, held.n),
    "prod": lambda held, n: math.prod([n, 0.5, 2]),
    "fsum": lambda held, n: math.fsum([n, 0.5, held.n]),
    "fsum_of_a_tuple": lambda held, n: math.fsum((n, 0.1, 0.2)),
    "log_to_a_base": lambda held, n: math.log(held.n + 1, 2),
    "erf": lambda held, n: math.erf(n),
    "copysign": lambda held, n: math.copysign(n, -1.0),
    "fmod": lambda held, n: math.fmod(n * 10, 3),
    "degrees": lambda held, n: math.degrees(n) + math.radians(n),
    "ldexp": lambda held, n: math.ldexp(n, 2),
    "ints": lambda held, n: math.gcd(held.n, 12) * 0.1 + math.isqrt(held.n) + math.lcm(held.n, 2) * 0.01,
    "of_a_bool": lambda held, n: math.hypot(True, n),
    "in_numpy": lambda held, n: np.exp(-held.n / 10),
    "for_each_element": lambda held, n: np.sqrt(n) + np.tanh(n) + np.log1p(held.n) + np.square(n) + np.sign(n) + np.abs(n - 1),
    "two_of_numpy": lambda held, n: np.power(0.9, held.n) + np.maximum(n, 0.2) + np.minimum(n, 0.3) + np.arctan2(n, 2.0),
    "clip": lambda held, n: np.clip((held.n - 2) / 20, 0, 1),
    "with_keywords": lambda held, n: np.clip(n * 2, a_min=0.1, a_max=0.7) + np.round(n, decimals=2) + np.mean(a=[n, 0.5]),
    "without_a_bound": lambda held, n: np.clip(n, None, 0.4) + np.clip(n, 0.3, None),
    "interp": lambda held, n: np.interp(held.n, [0, 10, 40], [1.0, 0.5, 0.1]),
    "means": lambda held, n: np.mean([n, 0.5]) + np.sum([n, 0.1]) + np.prod((n, 2.0)) + np.std([n, 0.4]) + np.median([n, 0.1, 0.2]),
    "as_a_float": lambda held, n: float(np.exp(n)) ** 2,
    "one_of_another": lambda held, n: math.hypot(math.erf(n), np.exp(math.erf(n))),
    "of_numpys": lambda held, n: np.cos(np.float64(n) * 2),
    "decides": lambda held, n: 0.5 if np.cos(held.n / 10) > 0.3 else 1.5,
    "in_a_list_of_the_programs": lambda held, n: math.fsum(held.of) * n,
    "rate": rate_by_numpy,
    "counted": counted,
    "kept": kept,
    "by_name": lambda held, n: held.function(n, 2.0),
    "rounded_by_a_method": lambda held, n: max(1.0, np.interp(held.n, [0, 100], [1, 64]).round()) + np.exp(n).round(2) + np.sqrt(n).round(decimals=1),
    "bits": lambda held, n: 0.1 * (held.n & 3) + 0.01 * (held.n ^ 5) + 0.001 * (held.n | 1),
    "bits_in_place": bits_in_place,
    "parity_decides": lambda held, n: 0.5 if held.n & 1 else 1.5,
    "default_of_a_dict": lambda held, n: held.table.get("rate", n) + held.table.pop("none", n),
    "default_of_an_average": averaged,
    "in_an_ordered_dict": lambda held, n: collections.OrderedDict(rate=n, other=held.n)["rate"] * 2,
    "under_a_key_of_a_view": lambda held, n: n if "rate" in held.table.keys() else n * 2,
}


@pytest.mark.parametrize("compute", FOLLOWED.values(), ids=FOLLOWED)
def test_what_a_function_makes_of_followed_numbers_is_followed(compute):
    step = played(program(compute))
    assert step.stats["replayed"] >= STEPS / 2, step.explain()


def other_function(i, held):
    held.function = math.hypot if i < LATE else math.atan2


def other_constant(i, held):
    if i == LATE:
        held.of[1] = 0.7


def one_more(i, held):
    if i == LATE:
        held.of.append(0.4)


def other_class(i, held):
    if i == LATE:
        held.of[0] = 1


CHANGES = {
    "function": (other_function, lambda held, n: held.function(n, 2.0)),
    "item": (other_constant, lambda held, n: math.fsum([n, *held.of])),
    "item_of_the_list": (other_constant, lambda held, n: math.hypot(n, math.fsum(held.of))),
    "one_more": (one_more, lambda held, n: math.prod([n, *held.of])),
    "class": (other_class, lambda held, n: np.sum([n, *held.of])),
}


@pytest.mark.parametrize("change, compute", CHANGES.values(), ids=CHANGES)
def test_what_else_a_function_is_given_changes(change, compute):
    step = played(program(compute, change))
    assert step.stats["replayed"] >= 10, step.explain()


GIVEN = {
    "int": lambda i: 1 if i >= LATE else 0.5 * 0.97 ** i,
    "numpys": lambda i: np.float64(0.5 * 0.97 ** i) if i >= LATE else 0.5 * 0.97 ** i,
    "infinite": lambda i: math.inf if i == LATE else 0.5 * 0.97 ** i,
    "no_number": lambda i: math.nan if i == LATE else 0.5 * 0.97 ** i,
    "negative_zero": lambda i: -0.0 if i == LATE else 0.5 * 0.97 ** i,
    "tiny": lambda i: 5e-324 if i == LATE else 0.5 * 0.97 ** i,
}


@pytest.mark.parametrize("compute", ["hypot", "fsum", "ldexp", "copysign", "for_each_element", "clip", "means"])
@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_odd_numbers(given, compute):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        played(program(FOLLOWED[compute], given=given))


def test_a_function_that_throws_where_it_is_called():
    """And is called as the step begins in replays that do not call it."""
    def compute(held, n):
        return math.gamma(n) if n > 0 else 2.0 + n

    step = played(program(compute, given=lambda i: -1.0 if i % 5 == 4 else 0.5 + i))
    assert step.stats["replayed"] >= STEPS / 2, step.explain()


def test_its_exception_is_the_programs():
    def compute(held, n):
        try:
            return math.gamma(n)
        except ValueError as error:
            return float(len(str(error)))

    played(program(compute, given=lambda i: -1.0 if i == LATE else 0.5 + i))


@pytest.mark.filterwarnings("ignore")
def test_switches_of_numpys():
    """NumPy throws, as the program has set it, where it would give what a plan goes on with."""
    def compute(held, n):
        try:
            return np.log(n)
        except FloatingPointError:
            return 3.0

    def between(i, held):
        np.seterr(all="raise" if i >= LATE - 4 else "warn")

    old = np.geterr()
    try:
        step = played(program(compute, between, given=lambda i: 0.0 if i in (15, LATE, LATE + 3) else 0.5 + i))
    finally:
        np.seterr(**old)
    assert step.stats["replayed"] >= STEPS / 2, step.explain()


@pytest.mark.parametrize("compute", [lambda n: np.float64(n) ** 0.5, lambda n: np.log(n), lambda n: np.mean([np.sqrt(n), 1.0])])
def test_a_function_of_the_programs_that_numpy_calls(compute):
    """Is not called where the step does not compute the number, though that is looked up."""
    heard = []
    old, old_call = np.seterr(all="call"), np.seterrcall(lambda kind, flag: heard.append(kind))
    try:
        step = played(program(lambda held, n: compute(n) if n > 0 else 2.0, given=lambda i: -1.0 if i % 7 == 6 else 0.5 + i))
    finally:
        np.seterr(**old)
        np.seterrcall(old_call)
    assert step.stats["replayed"] >= 10, step.explain()
    assert not heard


@pytest.mark.parametrize("compute", [lambda held, n: np.cos(n), lambda held, n: np.mean([n, 1.0])])
def test_what_a_handler_of_a_signal_raises_arrives(compute):
    class Alarm(Exception):
        pass

    def raising(number, frame):
        raise Alarm

    of = program(compute)()
    step = steptape.wrap(of.step, verify={"first": True, "rate": 0.0})
    for i in range(20):
        step(*of.batch(i))
    batch, arrived, delays = of.batch(20), 0, np.random.RandomState(0).uniform(1e-4, 2e-3, 60)
    old = signal.signal(signal.SIGALRM, raising)
    try:
        for delay in delays:
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                end = time.monotonic() + 5
                while time.monotonic() < end:
                    step(*batch)
            except Alarm:
                arrived += 1
    finally:
        signal.signal(signal.SIGALRM, old)
    assert arrived == len(delays)
    assert np.geterr()["over"] == "warn"
    assert step.stats["replayed"] > 50, step.explain()


def test_one_made_of_pythons_code_is_none_of_numpys():
    def make():
        of = types.SimpleNamespace(scale=2.0)
        exp = np.frompyfunc(lambda value: value * of.scale, 1, 1)

        def between(i, held):
            of.scale = 2.0 if i < LATE else 3.0

        return program(lambda held, n: exp(n), between)()

    played(make)


def test_another_function_in_numpys_place(monkeypatch):
    original = np.cos

    def play(wrap):
        monkeypatch.setattr(np, "cos", original)
        torch.manual_seed(0)
        of = program(lambda held, n: np.cos(n))()
        step, results = wrap(of.step), []
        for i in range(STEPS):
            if i in (LATE, LATE + 1):
                monkeypatch.setattr(np, "cos", original if i > LATE else (lambda value: 0.25))
            results.append(twins.bits(step(*of.batch(i))))
        return [*results, step]

    assert twins.played_alike(play).stats["replayed"] >= 10


def test_one_that_may_take_for_ever_is_not_called_where_the_program_calls_none():
    step = played(program(lambda held, n: math.factorial(held.n) * 1e-9 if held.n < 15 else 1.0,
                          lambda i, held: setattr(held, "n", 3 if i < 12 else 3_000_000 + i)))
    assert step.stats["replayed"] >= 5, step.explain()


def test_of_a_number_that_is_read_from_a_tensor_is_not_known_before():
    step = played(program(lambda held, n: np.exp(held.net.weight.sum().item())))
    assert step.stats["replayed"] == 0


def averaging(average, most, change=lambda i, held: None):
    """A loop that keeps its newest losses, and what `average` makes of them."""
    def make():
        net = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        held = types.SimpleNamespace(window=collections.deque(maxlen=most), mean=0.0)

        def step(x):
            optimizer.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            held.window.append(loss.item())
            held.mean = average(held.window)
            return loss.detach()

        return types.SimpleNamespace(step=step, batch=lambda i: (torch.randn(2, 3),), holds=lambda: [net, optimizer, held.window, held.mean, type(held.mean).__name__],
                                     after=lambda i: change(i + 1, held))
    return make


AVERAGES = {
    "mean": np.mean, "sum": np.sum, "of_a_list": lambda window: np.mean(list(window)), "of_a_tuple": lambda window: np.mean(tuple(window)),
    "as_float": lambda window: float(np.mean(window)), "scaled": lambda window: 0.5 * np.mean(window) + 1.0,
    "of_sums": lambda window: np.mean([sum(window), np.sum(window), 2.0]), "below": lambda window: bool(np.mean(window) < 100.0),
}


@pytest.mark.parametrize("most", [1, 3, 7, 8, 13, 16])
@pytest.mark.parametrize("average", AVERAGES)
def test_numpys_mean_of_numbers_that_are_read_in_the_step(average, most):
    """It is not called again, as they are not there when a replay begins: NumPy's order of additions is known."""
    def change(i, held):
        if i == LATE:
            held.window[-1] = 3.0
        if i == LATE + 8:
            held.window.append(0.25)

    step = twins.compare(averaging(AVERAGES[average], most, change), 60, verify={"first": True, "rate": 0.0})
    assert step.stats["replayed"] > 20, step.explain()


@pytest.mark.parametrize("average", [
    lambda window: np.mean([int(1000 * each) for each in window]), lambda window: np.mean(list(window) * 30), np.std, np.median, lambda window: np.mean(window, dtype=np.float32),
    lambda window: np.mean([np.float32(each) for each in window]), lambda window: np.mean([np.inf, *window]), lambda window: np.mean([*window, True]),
], ids=["ints", "many", "std", "median", "dtype", "float32", "inf", "bool"])
def test_other_averages_of_numbers_that_are_read_in_the_step(average):
    twins.compare(averaging(average, 5), 30, verify={"first": True, "rate": 0.0})


@pytest.mark.parametrize("count", range(1, 65))
def test_the_order_in_which_numpy_adds(count):
    """Terms of many magnitudes, of which each order makes another sum."""
    scales = np.random.default_rng(count).standard_normal(count) * 10.0 ** np.random.default_rng(count).integers(-6, 6, count)

    def step(x):
        read = x.sum().item()
        return np.sum([read * each for each in scales.tolist()])

    wrapped = steptape.wrap(step, verify={"first": True, "rate": 0.0})
    draw = torch.Generator().manual_seed(count)
    for i in range(14):
        x = torch.randn(3, generator=draw)
        assert twins.bits(wrapped(x)) == twins.bits(step(x)), i
    assert wrapped.stats["replayed"] > 6, wrapped.explain()

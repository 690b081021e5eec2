"""Floats of NumPy's class: they are followed as Python's are, stay of their class, and come from arrays, too."""
import math
import types
import warnings

import numpy as np
import pytest
import torch
import torch.nn as nn

import steptape
import twins

STEPS = 30
LATE = 20
RATES = np.linspace(0.1, 0.9, 60)


def structured(value):
    made = np.zeros((), dtype=[("a", "f8", (2000,))])
    made["a"][700] = value
    return made[()]


def program(compute, *, given=lambda i, held: RATES[i], change=lambda i, held: None):
    """A step whose loss is weighted by what `compute(held, n)` makes of a number, which it also returns."""
    def make():
        net = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=np.float64(0.05))
        held = types.SimpleNamespace(n=given(0, None), of=RATES.copy(), kept=None, net=net, optimizer=optimizer)

        def step(x, n):
            made = compute(held, n)
            optimizer.zero_grad()
            loss = net(x).pow(2).mean() * made
            loss.backward()
            optimizer.step()
            return loss.detach(), made, type(made).__name__

        def after(i):
            held.n = given(i + 1, held)
            change(i + 1, held)

        return types.SimpleNamespace(step=step, batch=lambda i: (torch.randn(2, 3), given(i, held)), holds=lambda: [net, optimizer, kinds_of(held)],
                                     after=after)
    return make


def kinds_of(held):
    return [held.of.tolist(), repr(held.kept), repr(held.n), repr(held.optimizer.param_groups[0]["lr"])]


def played(make):
    return twins.compare(make, STEPS, verify={"first": True, "rate": 0.0})


def with_rate(held, n):
    held.optimizer.param_groups[0]["lr"] = n / 2
    return held.optimizer.param_groups[0]["lr"] * 3


def kept(held, n):
    held.kept = n * 2
    return held.kept + 1


def averaged(held, n):
    held.kept = n if held.kept is None else 0.9 * held.kept + 0.1 * n
    return held.kept


FOLLOWED = {
    "argument": lambda held, n: n,
    "attribute": lambda held, n: held.n,
    "arithmetic": lambda held, n: (1 - n) * 2 + n / 3 - -n + abs(n),
    "with_floats_and_ints": lambda held, n: 0.5 * n + 1.5 - n * 2 + 3 / (n + 1),
    "as_float": lambda held, n: float(n) ** 2 + float(n) % 0.3,
    "made": lambda held, n: np.float64(float(n) + 1) * 2 + np.float64(int(n * 10)),
    "as_int": lambda held, n: int(n * 10) + 0.5,
    "of_math": lambda held, n: math.cos(math.pi * n) + math.sqrt(n) + math.exp(n),
    "limits": lambda held, n: max(min(n, 0.5), 0.2) + max(0.3, n),
    "branch": lambda held, n: n * 2 if n > 0.3 else n + 1,
    "rate": with_rate,
    "kept": kept,
    "averaged": averaged,
    "of_an_array": lambda held, n: held.of[int(n * 50)] if n > 10 else held.n,
    "of_torch": lambda held, n: (torch.ones(2) * n).sum().item() + n,
    "power": lambda held, n: n ** 2,
    "rest": lambda held, n: n % 0.3 + n // 0.2,
    "rounded": lambda held, n: round(n, 2),
    "of_numpy": lambda held, n: np.cos(n),
}


@pytest.mark.parametrize("compute", FOLLOWED.values(), ids=FOLLOWED)
def test_a_float_of_numpys_is_followed(compute):
    step = played(program(compute))
    assert step.stats["replayed"] >= STEPS / 2, step.explain()


HELD = {
    "summed": lambda held, n: sum([n, 0.1, n / 3]),
    "item": lambda held, n: n.item(),
    "text": lambda held, n: float(f"{n:.3f}"),
    "key": lambda held, n: {0.1: 3.0}.get(n, 2.0),
    "dtype": lambda held, n: n * n.dtype.itemsize,
}


@pytest.mark.parametrize("some", [1, 4])
@pytest.mark.parametrize("compute", HELD.values(), ids=HELD)
def test_what_numpy_computes_otherwise_is_held(compute, some):
    step = played(program(compute, given=lambda i, held: RATES[(i // 4) % some]))
    assert step.stats["replayed"] >= 5, step.explain()


def as_a_float(i, held):
    return float(RATES[i]) if LATE <= i < LATE + 4 else RATES[i]


def as_numpys(i, held):
    return RATES[i] if LATE <= i < LATE + 4 else float(RATES[i])


def as_an_int(i, held):
    return 1 if LATE <= i < LATE + 4 else RATES[i]


def as_another_float(i, held):
    return np.float32(0.5) if LATE <= i < LATE + 4 else RATES[i]


def alternately(i, held):
    return RATES[i] if i % 2 else float(RATES[i])


@pytest.mark.parametrize("compute", ["argument", "attribute", "arithmetic", "rate", "kept", "averaged"])
@pytest.mark.parametrize("given", [as_a_float, as_numpys, as_an_int, as_another_float, alternately], ids=lambda given: given.__name__)
def test_its_class_changes(given, compute):
    step = played(program(FOLLOWED[compute], given=given))
    assert step.stats["replayed"] >= (5 if given is not alternately else 0), step.explain()


def rate_as_a_float(i, held):
    held.optimizer.param_groups[0]["lr"] = 0.07 if i >= LATE else np.float64(0.05 + i / 100)


def rate_as_numpys(i, held):
    held.optimizer.param_groups[0]["lr"] = np.float64(0.07) if i >= LATE else 0.05 + i / 100


@pytest.mark.parametrize("change", [rate_as_a_float, rate_as_numpys], ids=lambda change: change.__name__)
def test_the_class_of_a_rate_changes(change):
    step = played(program(lambda held, n: held.optimizer.param_groups[0]["lr"] * 2, change=change))
    assert step.stats["replayed"] >= 10, step.explain()


def indexed(look, *, of=lambda: RATES.copy(), change=lambda i, held: None):
    def make():
        held = types.SimpleNamespace(of=of(), at=0)

        def step(x, i):
            made = look(held, i)
            return x * made, made, type(made).__name__

        return types.SimpleNamespace(step=step, batch=lambda i: (torch.ones(2), i), holds=lambda: [held.of], after=lambda i: change(i + 1, held))
    return make


def counted(held, i):
    held.at += 1
    return held.of[held.at]


ARRAYS = {
    "number": lambda held, i: held.of[i],
    "as_float": lambda held, i: float(held.of[i]) * 2,
    "from_the_end": lambda held, i: held.of[-1 - i] * 2,
    "in_epochs": lambda held, i: 1 - held.of[i // 3],
    "counter": counted,
}


@pytest.mark.parametrize("look", ARRAYS.values(), ids=ARRAYS)
def test_an_item_of_an_array_under_an_int_that_moves(look):
    step = played(indexed(look))
    assert step.stats["replayed"] >= STEPS / 2, step.explain()


def test_items_of_a_list_of_numpys_floats():
    step = played(indexed(lambda held, i: held.of[i], of=lambda: [*RATES]))
    assert step.stats["replayed"] >= STEPS / 2, step.explain()


def edited(i, held):
    if i == LATE:
        held.of[LATE + 2] = 7.0


def another(i, held):
    if i == LATE:
        held.of = RATES[::-1].copy()


def an_equal_one(i, held):
    if i == LATE:
        old, held.of = held.of, held.of.copy()
        old[LATE + 1] = -1.0


def of_another_class(i, held):
    if i == LATE:
        held.of = RATES.astype(np.float32)


def of_more_dimensions(i, held):
    if i == LATE:
        held.of = RATES.reshape(-1, 1).repeat(2, 1)


def resized(i, held):
    if i == LATE:
        held.of.resize(80, refcheck=False)
        held.of[LATE + 2] = 3.0


@pytest.mark.parametrize("change", [edited, another, an_equal_one, of_another_class, of_more_dimensions, resized], ids=lambda change: change.__name__)
def test_the_array_changes(change):
    step = played(indexed(lambda held, i: held.of[i] * 2 if held.of.ndim == 1 else float(held.of[i][0]), change=change))
    assert step.stats["replayed"] >= 5, step.explain()


def written(held, i):
    held.of[3] = 0.01 * i
    return held.of[i % 5]


def scaled(held, i):
    held.of *= 0.9
    return held.of[i % 5]


def scaled_by_numpy(held, i):
    np.multiply(held.of, 0.9, out=held.of)
    return held.of[i % 5]


def written_through_a_view(held, i):
    view = held.of[2:]
    view[1] = 0.01 * i
    return held.of[i % 5]


def written_in_a_row(held, i):
    held.of[2:4] = 0.01 * i
    return held.of[i % 5]


def filled(held, i):
    held.of.fill(0.01 * i)
    return held.of[i % 5]


@pytest.mark.parametrize("look", [written, scaled, scaled_by_numpy, written_through_a_view, written_in_a_row, filled], ids=lambda look: look.__name__)
def test_the_step_has_written_to_the_array(look):
    played(indexed(look))


OTHERS = {
    "floats_of_32_bits": lambda: RATES.astype(np.float32),
    "ints": lambda: np.arange(60),
    "rows": lambda: RATES.reshape(-1, 1).repeat(2, 1),
}


@pytest.mark.parametrize("of", OTHERS.values(), ids=OTHERS)
def test_items_of_other_arrays_are_as_in_eager(of):
    played(indexed(lambda held, i: torch.as_tensor(held.of[i % 3]).sum().item(), of=of))


def test_what_would_warn_is_not_replayed():
    def ratio(x, n, m):
        return x * (n / m)

    step = steptape.wrap(ratio, verify={"first": True, "rate": 0.0})
    for i in range(STEPS):
        assert torch.equal(step(torch.ones(2), RATES[i], RATES[i + 1]), torch.ones(2) * (RATES[i] / RATES[i + 1]))
    assert step.stats["replayed"] >= STEPS / 2, step.explain()
    for n, m in ((np.float64(1e308), np.float64(1e-10)), (np.float64(1.0), np.float64(0.0)), (np.float64(math.inf), np.float64(math.inf))):
        with warnings.catch_warnings(record=True) as seen, np.errstate(all="warn"):
            warnings.simplefilter("always")
            made = step(torch.ones(2), n, m)
            expected = torch.ones(2) * (n / m)
        assert twins.bits(made) == twins.bits(expected)
        assert len(seen) == 2, [str(each.message) for each in seen]


def test_an_underflow_is_raised_as_in_eager():
    def scaled(x, n):
        with np.errstate(under="raise"):
            try:
                return x * (n / 1e300)
            except FloatingPointError:
                return x * 77

    step = steptape.wrap(scaled, verify={"first": True, "rate": 0.0})
    for i in range(STEPS):
        n = np.float64(1e-20) if i > LATE else RATES[i] + 0.5
        assert twins.bits(step(torch.ones(2, dtype=torch.float64), n)) == twins.bits(scaled(torch.ones(2, dtype=torch.float64), n))
    assert step.stats["replayed"] > 5, step.explain()


def test_a_result_becomes_zero():
    step = played(program(lambda held, n: 1 - n, given=lambda i, held: np.float64(min(1.0, i / LATE))))
    assert step.stats["replayed"] > 10, step.explain()


SCALARS = {
    "unit": (np.timedelta64(3, "s"), np.timedelta64(3, "m"), lambda v: float(v / np.timedelta64(1, "s"))),
    "end_of_bytes": (np.bytes_(b"a"), np.bytes_(b"a\0"), len),
    "end_of_a_text": (np.str_("a"), np.str_("a\0"), len),
    "middle_of_many": (structured(1.0), structured(2.0), lambda v: float(v["a"].sum())),
    "kind_of_nan": (np.float32(math.nan), np.uint32(0x7fc00001).view(np.float32), lambda v: float(np.signbit(v)) + int(v.view(np.uint32)) % 7),
    "precision": (np.float32(0.5), np.float16(0.5), lambda v: v.dtype.itemsize),
}


# one with fields can be written to: an attribute that holds one is refused
@pytest.mark.parametrize("kind, is_given", [(kind, is_given) for kind in SCALARS for is_given in (True, False) if is_given or kind != "middle_of_many"])
def test_another_scalar_of_numpys(kind, is_given):
    first, then, look = SCALARS[kind]
    held = types.SimpleNamespace(v=first)
    step = steptape.wrap((lambda x, v: x * look(v)) if is_given else (lambda x: x * look(held.v)), verify={"first": True, "rate": 0.0})
    for i in range(STEPS):
        held.v = then if i >= LATE else first
        assert torch.equal(step(torch.ones(2), *([held.v] if is_given else [])), torch.ones(2) * look(held.v)), step.explain()
    assert step.stats["replayed"] > 10, step.explain()


def test_players_give_it_too(tmp_path):
    weights = nn.Linear(2, 1)
    held = types.SimpleNamespace(n=RATES[0])

    def step(x):
        return weights(x).sum().detach() * held.n, held.n * 2

    wrapped = steptape.wrap(step, verify={"first": True, "rate": 0.0})
    for held.n in RATES[:12]:
        expected = wrapped(torch.ones(2))
    wrapped.save(tmp_path / "numbers.tape")
    loaded = steptape.load(tmp_path / "numbers.tape")["step"]
    made = loaded(torch.ones(2))
    assert twins.bits(list(made)) == twins.bits(list(expected))
    assert type(made[1]) is np.float64

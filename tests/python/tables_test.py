"""Numbers that a step finds in a list, a tuple or a dict under an int that moves: rates and weights by the number of the step."""
import types

import pytest
import torch
import torch.nn as nn

import steptape
import twins

STEPS = 30
LATE = 20


def table(look, change=lambda i, held: None, items=None):
    """`look(held, i)` is the weight of step `i`; `change(i, held)` is what the program does before it."""
    def make():
        net = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        held = types.SimpleNamespace(of=list(items or (0.1 * k + 0.05 for k in range(60))), at=0, order=[(7 * k) % 60 for k in range(60)])
        held.pair, held.by = tuple(held.of), dict(enumerate(held.of))

        def step(x, i):
            weight = look(held, i)
            optimizer.zero_grad()
            loss = net(x).pow(2).mean() * weight
            loss.backward()
            optimizer.step()
            return loss.detach(), weight

        def after(i):
            change(i + 1, held)

        return types.SimpleNamespace(step=step, batch=lambda i: (torch.randn(2, 3), i), holds=lambda: [net, optimizer, held], after=after)
    return make


def counted(held, i):
    held.at += 1
    return held.of[held.at - 1]


def written_after(held, i):
    weight = held.of[i % 5]
    held.of[3] = 0.125 * i
    return weight


def played(make):
    return twins.compare(make, STEPS, verify={"first": True, "rate": 0.0})


FOLLOWED = {
    "list": lambda held, i: held.of[i],
    "tuple": lambda held, i: held.pair[i],
    "dict": lambda held, i: held.by[i],
    "from_the_end": lambda held, i: held.of[-1 - i],
    "as_float": lambda held, i: float(held.of[i]) * 2,
    "in_epochs": lambda held, i: held.of[i // 3],
    "up_to_a_last_one": lambda held, i: held.of[min(i, 12)],
    "of_a_table": lambda held, i: held.of[held.order[i]],
    "two": lambda held, i: held.of[i] + held.of[i + 1],
    "counter": counted,
    "written_after": written_after,
}


@pytest.mark.parametrize("look", FOLLOWED.values(), ids=FOLLOWED)
def test_an_item_under_an_int_that_moves_is_followed(look):
    step = played(table(look))
    assert step.stats["replayed"] >= STEPS / 2, step.explain()


def test_a_rate_comes_from_a_table():
    def make():
        net = nn.Linear(3, 3)
        optimizer = torch.optim.Adam(net.parameters())
        rates = [0.1 / (k + 1) for k in range(STEPS)]

        def step(x, i):
            for group in optimizer.param_groups:
                group["lr"] = rates[i]
            optimizer.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return types.SimpleNamespace(step=step, batch=lambda i: (torch.randn(2, 3), i), holds=lambda: [net, optimizer])

    assert played(make).stats["replayed"] >= STEPS / 2


def edited(i, held):
    if i == LATE:
        held.of[LATE + 2] = 7.0


def of_another_class(i, held):
    if i == LATE:
        held.of[LATE + 1] = 3
        held.of[LATE + 3] = True


def no_number(i, held):
    if i == LATE:
        held.of[LATE + 1] = torch.tensor(2.5)


def others_in_it(i, held):
    if i == LATE:
        held.of[:] = [2.0 * k for k in range(60)]


def another(i, held):
    if i == LATE:
        held.of = [2.0 * k for k in range(60)]


def an_equal_one(i, held):
    if i == LATE:
        old, held.of = held.of, list(held.of)
        old[LATE + 1] = -1.0  # nobody looks there any more


def a_subclass(i, held):
    if i == LATE:
        held.of = type("Doubled", (list,), {"__getitem__": lambda self, k: 2 * list.__getitem__(self, k)})(held.of)


def longer_in_front(i, held):
    if i == LATE:
        held.of.insert(0, 9.0)


CHANGES = [edited, of_another_class, no_number, others_in_it, another, an_equal_one, a_subclass, longer_in_front]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_table_changes(change):
    step = played(table(lambda held, i: held.of[i], change))
    assert step.stats["replayed"] >= 10, step.explain()


HELD = {  # each index has a plan of its own
    "written_before": lambda held, i: [held.of.__setitem__(3, 0.125 * i), held.of[i % 5]][1],
    "stored_before": lambda held, i: stored_before(held, i),
    "size": lambda held, i: held.order[i % 5] * torch.ones(held.order[i % 5] + 1).sum().item(),
}


def stored_before(held, i):
    held.of[3] = 0.125 * i
    return held.of[i % 5]


@pytest.mark.parametrize("look", HELD.values(), ids=HELD)
def test_an_item_that_may_not_be_what_stood_there(look):
    played(table(look))


def turned(held, i):
    held.of = [held.of[1], held.of[0] * 0.9]
    return held.of[0]


def scaled_in_a_dict(held, i):
    held.by = {k: v * 0.9 for k, v in held.by.items()}
    return sum(held.by.values())


def counted_in_a_tuple(held, i):
    held.pair = (held.pair[0] * 0.9, held.pair[1] + 1)
    return held.pair[0] * (2 if held.pair[1] % 4 < 1 else 1)


def deep(held, i):
    if not isinstance(held.by[0], dict):
        held.by = {0: {"rate": [1.0]}}
    held.by = {0: {"rate": [held.by[0]["rate"][-1] * 0.9]}}
    return held.by[0]["rate"][0]


def by_the_program(held, i):
    return held.of[0] + held.by[0] * held.pair[1]


MADE_ANEW = [turned, scaled_in_a_dict, counted_in_a_tuple, by_the_program]


def never(i, held):
    pass


def replaced_late(i, held):
    if i == LATE:
        held.of, held.pair, held.by = [3.0, 4.0], (3.0, 7.0), {0: 5.0, 1: 6.0}


def of_other_kinds_late(i, held):
    if i == LATE:
        held.of, held.pair, held.by = [3, 4], (1, 8), {0: 2, 1: True}


def longer_late(i, held):
    if i == LATE:
        held.of, held.pair, held.by = [3.0, 4.0, 5.0], (3.0, 7.0, 1), {0: 5.0, 1: 6.0, 2: 1.0}


def replaced_in_each(i, held):
    held.of, held.pair, held.by = [0.1 * i, 2.0], (0.5, 0.2 * i), {0: 1.0 + i, 1: 6.0}


def written_late(i, held):
    if i == LATE:
        held.of[0] = 7.5
        held.by[0] = 2.5


CHANGES = [never, replaced_late, of_other_kinds_late, longer_late, replaced_in_each, written_late]


@pytest.mark.parametrize("look, change", [(deep, never), *((look, change) for look in MADE_ANEW for change in CHANGES)])
def test_numbers_in_a_container_that_takes_the_place_of_another(look, change):
    step = played(table(look, change, items=[1.0, 2.0]))
    assert step.stats["replayed"] >= (STEPS - LATE) / 2, step.explain()


@pytest.mark.parametrize("make", [list, dict, tuple])
def test_an_empty_container_that_takes_the_place_of_another(make):
    def emptied(held, i):
        total = 1.0 + sum(held.of) + len(held.of)
        held.of = make()
        return total

    def fill(i, held):
        if i == LATE:
            held.of = {0.5: 0, 2.5: 1} if make is dict else make([0.5, 2.5])

    assert played(table(emptied, items=[1.0])).stats["replayed"] >= STEPS / 2
    assert played(table(emptied, fill, items=[1.0])).stats["replayed"] >= STEPS / 3


def written_elsewhere(held):
    held.first.append(1.0)
    length = len(held.now)
    held.first.pop()
    return length


WHICH = {
    "is": lambda held: 2.0 if held.now is held.first else 3.0,
    "is_not": lambda held: 2.0 if held.now is not held.second else 3.0,
    "identity": lambda held: 2.0 if id(held.now) == id(held.first) else 3.0,
    "among": lambda held: 2.0 if any(each is held.now for each in (held.first, held.third)) else 3.0,
    "written_elsewhere": written_elsewhere,
}


@pytest.mark.parametrize("new", [lambda: [1.0, 2.0], lambda: {0: 1.0, 1: 2.0}, lambda: [torch.ones(3)] * 2], ids=["list", "dict", "tensors"])
@pytest.mark.parametrize("which", WHICH)
def test_which_container_takes_the_place_of_another_is_guarded(which, new):
    """Equal ones, and the very objects that the step reads elsewhere, too."""
    if which == "written_elsewhere" and isinstance(new(), dict):
        which = "is"
    exchanged = {8: "second", 12: "first", 16: None, 18: "first", 20: None, 21: "second", 24: "third"}

    def make():
        held = types.SimpleNamespace(first=new(), second=new(), third=new())
        held.now = held.first

        def after(i):
            if i + 1 in exchanged:
                held.now = getattr(held, exchanged[i + 1]) if exchanged[i + 1] else new()

        return types.SimpleNamespace(step=lambda x: x * WHICH[which](held) * held.now[0], batch=lambda i: (torch.full((3,), float(i)),),
                                     holds=lambda: [], after=after)

    assert played(make).stats["replayed"] > 3


def test_texts_in_a_list_that_takes_the_place_of_another():
    def named(held, i):
        held.of = [name.upper() if name == "a" else name for name in held.of]
        return 1.0 + held.of.index("b") if "b" in held.of else 0.5

    def rename(i, held):
        if i in (LATE, LATE + 4):
            held.of = ["b", "a"] if i == LATE else ["a", "c"]

    assert played(table(named, rename, items=["a", "b"])).stats["replayed"] >= STEPS / 3


def test_a_list_of_numbers_that_grows_is_refused():
    step = played(table(lambda held, i: (setattr(held, "of", held.of + [held.of[-1] * 0.9]), held.of[-1])[1], items=[1.0, 2.0]))
    assert step.stats["replayed"] == 0


def test_ints_and_floats_in_one_table():
    step = played(table(lambda held, i: held.of[i % 6] * (2 if isinstance(held.of[i % 6], int) else 3), items=[1, 0.5, 2, 3, 0.25, 1.0]))
    assert step.stats["replayed"] >= 10, step.explain()


def test_the_index_leaves_the_table():
    weights = [0.1 * k for k in range(LATE)]
    step = steptape.wrap(lambda x, i: x * weights[i], verify={"first": True, "rate": 0.0})
    for i in range(LATE):
        assert torch.equal(step(torch.ones(2), i), torch.ones(2) * weights[i])
    assert step.stats["replayed"] >= 10, step.explain()
    with pytest.raises(IndexError):
        step(torch.ones(2), LATE)
    weights.append(4.0)
    assert torch.equal(step(torch.ones(2), LATE), torch.full((2,), 4.0))


def test_an_index_that_is_read_from_a_tensor_is_held():
    def make():
        weights = [0.1 * k + 0.05 for k in range(9)]

        def step(x, i):
            return x * weights[int(x[0].item()) + i % 2]

        return types.SimpleNamespace(step=step, batch=lambda i: (torch.full((2,), float(i % 3)), i), holds=lambda: [weights])

    played(make)

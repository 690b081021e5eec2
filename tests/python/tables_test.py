"""What a step finds in a list, a tuple or a dict under an int that moves: rates and weights by the number of the step, and batches."""
import types

import numpy as np
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
        held = types.SimpleNamespace(of=items() if callable(items) else list(items or (0.1 * k + 0.05 for k in range(60))), at=0, order=[(7 * k) % 60 for k in range(60)])
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


def batches():
    return [torch.full((2, 3), 0.1 * k + 0.05) for k in range(8)]


def pairs():
    return [(torch.full((2, 3), 0.1 * k), {"w": 0.25 * k + 0.1, "name": "a"}) for k in range(8)]


def of_pairs(held, i):
    x, by = held.of[i % 8]
    return x.sum() * by["w"]


BATCHES = {
    "list": lambda held, i: held.of[i % len(held.of)].sum(),
    "dict": lambda held, i: held.by[i % 8].sum(),
    "from_the_end": lambda held, i: held.of[-1 - i % 8].sum(),
    "counter": lambda held, i: (setattr(held, "at", (held.at + 1) % 8), held.of[held.at].sum())[1],
    "of_a_permutation": lambda held, i: held.of[held.order[i] % 8].sum(),
    "two": lambda held, i: held.of[i % 8].sum() + held.of[(i + 1) % 8].mean(),
    "beside_the_first": lambda held, i: held.of[i % 8].sum() + held.of[0].mean(),
    "by_two_ways": lambda held, i: held.of[i % 8].sum() + held.of[(i * 3) % 8].mean(),
    "in_epochs": lambda held, i: held.of[i // 5].sum(),
}


@pytest.mark.parametrize("look", BATCHES.values(), ids=BATCHES)
def test_a_batch_under_an_int_that_moves_is_an_argument(look):
    step = played(table(look, items=batches))
    assert step.stats["replayed"] >= STEPS / 3, step.explain()


class Cursor:
    def __init__(self, k):
        self.k = k


ORDERS = [[(5 * k + 1) % 7 for k in range(60)], [(3 * k) % 7 for k in range(60)]]
PLACED = {  # what the program puts there anew before each step, and where the batch is by that
    "tuple": (lambda i: (i,), lambda held: held.of[held.at[0] // 5 % 3]),
    "list": (lambda i: [i], lambda held: held.of[held.at[0] // 4 % 3]),
    "dict": (lambda i: {"i": i}, lambda held: held.of[held.at["i"] // 5 % 3]),
    "float": (lambda i: (i / 4, i), lambda held: held.of[int((held.at[0] + 1) ** 0.5) % 3]),
    "at_most": (lambda i: (0, i), lambda held: held.of[min(held.at[1] // 9, 2)]),
    "nested": (lambda i: {"of": [1, (i, 2)]}, lambda held: held.of[held.at["of"][1][0] // 5 % 3]),
    "object": (Cursor, lambda held: held.of[held.at.k // 5 % 3]),
    "in_dict": (lambda i: (i,), lambda held: held.by[held.at[0] // 5 % 3]),
    "two": (lambda i: (i, 3 * i), lambda held: held.of[held.at[0] // 5 % 3] + held.of[held.at[1] // 7 % 3]),
    "number_too": (lambda i: (i, 0.5 * i), lambda held: held.of[held.at[0] // 5 % 3] * held.at[1]),
    "through_an_order": (lambda i: (i,), lambda held: held.of[ORDERS[0][held.at[0] // 3] % 3]),
    "through_two_orders": (lambda i: (i,), lambda held: held.of[ORDERS[0][ORDERS[1][held.at[0] // 3]] % 3]),
    "at_once": (lambda i: (i,), lambda held: held.of[held.at[0] % 3]),
}


@pytest.mark.parametrize("look", PLACED)
def test_a_batch_under_a_number_in_a_container_that_is_made_anew(look):
    put, at = PLACED[look]

    def make():
        made = table(lambda held, i: at(held).sum(), lambda i, held: setattr(held, "at", put(i)), items=batches)()
        made.after(-1)
        return made
    assert played(make).stats["replayed"] >= 12


def test_batches_found_by_each_other():
    """The number beside one batch says which the next one is."""
    def make():
        net = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        held = types.SimpleNamespace(at=(0,), chain=[[torch.randn(2, 3), (k + 1) // 2 % 3] for k in range(5)], of=[torch.full((2, 3), float(k)) for k in range(3)])

        def step(x):
            first = held.chain[held.at[0] // 3 % 5]
            optimizer.zero_grad()
            loss = net(x + first[0] + held.of[first[1]]).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return types.SimpleNamespace(step=step, batch=lambda i: (torch.randn(2, 3),), holds=lambda: [net, optimizer],
                                     after=lambda i: setattr(held, "at", (i + 1,)))
    played(make)


def test_batches_in_a_tuple_are_refused():
    twins.is_refused(played(table(lambda held, i: held.pair[i % 8].sum(), items=batches)), {"unstable_op_stream"})


def test_a_batch_of_several_kinds():
    step = played(table(of_pairs, items=pairs))
    assert step.stats["replayed"] >= STEPS / 2, step.explain()


def replaced(i, held):
    if i >= LATE:
        held.of[i % 8] = torch.full((2, 3), 0.01 * i)


BATCHES_CHANGE = {
    "replaced": replaced,
    "written": lambda i, held: held.of[i % 8].add_(0.125) if i >= LATE else None,
    "reversed": lambda i, held: held.of.reverse() if i == LATE else None,
    "one_in_two_places": lambda i, held: held.of.__setitem__(3, held.of[4]) if i == LATE else None,
    "of_another_shape": lambda i, held: held.of.__setitem__(LATE % 8, torch.ones(5)) if i == LATE else None,
    "of_another_dtype": lambda i, held: held.of.__setitem__(LATE % 8, torch.ones(2, dtype=torch.float64)) if i == LATE else None,
    "that_requires_grad": lambda i, held: held.of[LATE % 8].requires_grad_() if i == LATE else None,
    "a_number": lambda i, held: held.of.__setitem__(LATE % 8, np.float32(2)) if i == LATE else None,
    "another_list": lambda i, held: setattr(held, "of", batches()) if i == LATE else None,
    "one_more": lambda i, held: held.of.append(torch.ones(2, 3)) if i >= LATE else None,
    "one_less": lambda i, held: held.of.pop() if i == LATE else None,
    "another_order": lambda i, held: held.order.reverse() if i == LATE else None,
}


@pytest.mark.parametrize("change", BATCHES_CHANGE.values(), ids=BATCHES_CHANGE)
@pytest.mark.parametrize("name", ("list", "of_a_permutation", "beside_the_first", "two"))
def test_batches_change_late(name, change):
    step = played(table(BATCHES[name], change, items=batches))
    assert step.stats["replayed"] >= STEPS / 4, step.explain()


def test_which_batch_it_is():
    """What is returned and kept is the very object."""
    def play(wrap):
        data, kept = batches(), types.SimpleNamespace(last=None)

        def look(i):
            kept.last = data[i % 8]
            return data[i % 8], kept.last * 2

        step = wrap(look)
        seen = []
        for i in range(STEPS):
            found, doubled = step(i)
            seen.append(([found is x for x in data], kept.last is found, doubled.tolist()))
        return [seen, step]

    step = twins.played_alike(play)
    assert step.stats["replayed"] >= STEPS / 2, step.explain()


def test_a_batch_that_the_step_writes_to():
    def write(held, i):
        x = held.of[i % 8]
        x.mul_(0.5)
        return x.sum()

    step = played(table(write, items=batches))
    assert step.stats["replayed"] >= STEPS / 2, step.explain()


def test_an_item_that_the_step_replaces():
    def replace(held, i):
        state = held.of[i % 8]
        held.of[i % 8] = state * 0.5
        return state.sum()

    played(table(replace, items=batches))


def test_players_do_not_find_batches(tmp_path):
    net = nn.Linear(3, 3)
    data, at = batches(), [0]

    @steptape.wrap(model=net, verify={"first": True, "rate": 0.0})
    def look(x):
        at[0] = (at[0] + 1) % 8
        return net(x * data[at[0]]).detach()

    for _ in range(20):
        look(torch.ones(2, 3))
    assert look.stats["replayed"] > 5, look.explain()
    look.save(tmp_path / "look.tape")
    with pytest.raises(steptape.Unsupported, match="data"):
        steptape.load(tmp_path / "look.tape")

"""Assignments and deletions that code of the program's does: `__setattr__`, `__delattr__`, `__setitem__`, `__delitem__` of its classes, which may look at
what is there, put it elsewhere, count, refuse, or do nothing."""
import collections
import functools
import operator
import types

import pytest
import torch
import torch.distributions as D
import torch.nn as nn

import twins

CALLS = 24
LATE = 14


class World:
    """What the classes count and look at."""
    limit = 4.0
    changes = 0.0


class Observed:
    def __setattr__(self, name, value):
        before = getattr(self, name, None)
        object.__setattr__(self, name, value)
        World.changes += before != value


class Limited:
    __setattr__ = lambda self, name, value: object.__setattr__(self, name, min(value, World.limit))


class ByObject:
    class Put:
        def __call__(self, name, value):
            World.changes += value

    __setattr__ = Put()


class ByPart:
    def put(self, more, name, value):
        self.__dict__[name] = value + more + World.limit

    __setattr__ = functools.partialmethod(put, 1.0)


class Growing(types.SimpleNamespace):
    def __setattr__(self, name, value):
        if self.__dict__.get(name, 0.0) <= value:
            self.__dict__[name] = value


class Frozen:
    def __setattr__(self, name, value):
        raise AttributeError(name)

    def __delattr__(self, name):
        World.changes += 1


class Meta(type):
    def __setattr__(cls, name, value):
        super().__setattr__(name, min(value, World.limit))


class Net(nn.Module):
    def __setattr__(self, name, value):
        if name != "x":
            return super().__setattr__(name, value)
        World.changes += 1
        if getattr(self, "x", 0.0) <= value:
            super().__setattr__(name, value)


class Named(types.ModuleType):
    def __setattr__(self, name, value):
        super().__setattr__(name, min(value, World.limit))


def without(made):
    made.__dict__["x"] = 2.0
    return made


OBJECTS = {
    "observed": lambda: without(Observed()), "limited": lambda: without(Limited()), "by an object": lambda: without(ByObject()),
    "by a part": lambda: without(ByPart()), "growing": lambda: without(Growing()), "frozen": lambda: without(Frozen()),
    "class": lambda: Meta("Of", (), {"x": 2.0}), "module": lambda: without(Net()), "named": lambda: without(Named("named")),
}


def put_anyway(held, x):
    held.x = 3.0


def try_to(held, x):
    try:
        held.x = 3.0
    except AttributeError:
        World.changes += 1


def delete(held, x):
    held.x = 3.0
    try:
        del held.x
    except AttributeError:
        pass


def put_number_read(held, x):
    held.x = x.sum().item()


ASSIGNMENTS = {
    "assigned": put_anyway, "by setattr": lambda held, x: setattr(held, "x", 3.0), "tried": try_to, "deleted": delete, "a number read": put_number_read,
}


def play_with(held, assign, late, scale):
    def play(wrap):
        World.limit, World.changes = 4.0, 0.0
        torch.manual_seed(0)
        made, net = held(), nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)

        def step(x):
            assign(made, x)
            loss = net(x).pow(2).mean() * (scale(made) + World.changes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step, seen = wrap(step), []
        for i in range(CALLS):
            if i == LATE:
                late(made)
            try:
                result = step(torch.randn(4, 3)).item()
            except AttributeError as error:
                result = str(error)
            seen.append((result, scale(made), World.changes, World.limit, net.weight.tolist()))
        return seen, step
    return play


def lower(made):
    World.limit = 2.5


CHANGES = {"limit": lower, "attribute": lambda made: type.__setattr__(made, "x", 9.0) if isinstance(made, type) else made.__dict__.update(x=9.0)}


@pytest.mark.parametrize("late", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("assign", ASSIGNMENTS.values(), ids=ASSIGNMENTS)
@pytest.mark.parametrize("held", OBJECTS.values(), ids=OBJECTS)
def test_an_attribute(held, assign, late):
    if held is OBJECTS["frozen"]:
        assign = try_to
    step = twins.played_alike(play_with(held, assign, late, lambda made: getattr(made, "x", 1.0)))
    if assign not in (delete, put_number_read):
        assert step.stats["replayed"] > CALLS / 4, step.explain()


class Best(dict):
    def __setitem__(self, key, value):
        if key not in self or value > self[key]:
            super().__setitem__(key, value)
            World.changes += 1

    def __delitem__(self, key):
        if self[key] < World.limit:
            super().__delitem__(key)


class Shifted(dict):
    def __setitem__(self, key, value):
        dict.__setitem__(self, key.upper(), value)


class Ordered(collections.OrderedDict):
    __setitem__ = lambda self, key, value: collections.OrderedDict.__setitem__(self, key, min(value, World.limit))


class OfUsers(collections.UserDict):
    def __setitem__(self, key, value):
        self.data[key] = min(value, World.limit)


class Row(list):
    def __setitem__(self, at, value):
        if self[at] < value:
            super().__setitem__(at, value)


class Turn(collections.deque):
    def __setitem__(self, at, value):
        collections.deque.__setitem__(self, at, min(value, World.limit))


CONTAINERS = {"best": (Best, "a"), "shifted": (Shifted, "a"), "ordered": (Ordered, "a"), "users": (OfUsers, "a"), "row": (lambda: Row([1.0, 2.0]), 0),
              "turn": (lambda: Turn([1.0, 2.0]), 0)}


def put_and_delete(made, key, x):
    made[key] = 3.0
    if hasattr(made, "keys"):
        try:
            del made[key]
        except KeyError:
            World.changes += 1


def put_item(made, key, x):
    made[key] = 3.0


def put_number(made, key, x):
    made[key] = x.sum().item()


def put_by_method(made, key, x):
    made.update({key: 3.0}) if hasattr(made, "update") else made.__setitem__(key, 3.0)


ENTRIES = {"assigned": put_item, "by operator": lambda made, key, x: operator.setitem(made, key, 3.0), "by a method": put_by_method, "deleted": put_and_delete,
           "a number read": put_number}


@pytest.mark.parametrize("change", ["limit", "entry"])
@pytest.mark.parametrize("put", ENTRIES.values(), ids=ENTRIES)
@pytest.mark.parametrize("held", CONTAINERS.values(), ids=CONTAINERS)
def test_an_entry(held, put, change):
    make, key = held

    def late(made):
        if change == "limit":
            return lower(made)
        kind = next(each for each in (collections.OrderedDict, dict, list, collections.deque, collections.UserDict) if isinstance(made, each))
        made.data.update({key: 9.0}) if kind is collections.UserDict else kind.__setitem__(made, key, 9.0)

    def scale(made):
        if isinstance(made, (list, collections.deque)):
            return made[key]
        return made[key] if key in made else 1.0

    twins.played_alike(play_with(make, lambda made, x: put(made, key, x), late, scale))


class Newest(collections.OrderedDict):
    def __iter__(self):
        return collections.OrderedDict.__reversed__(self)

    def keys(self):
        return list(self)


class Some(dict):
    def keys(self):
        return ["b"]

    def __iter__(self):
        return iter(["b"])

    def __getitem__(self, key):
        return 3.0


class Doubled(collections.OrderedDict):
    def __getitem__(self, key):
        return 2 * super().__getitem__(key)


@pytest.mark.parametrize("into", [dict, collections.OrderedDict])
@pytest.mark.parametrize("merge", [lambda held, given: held.update(given), lambda held, given: held.__ior__(given)], ids=["update", "ior"])
@pytest.mark.parametrize("given", [Newest, Some, Doubled, dict, collections.OrderedDict])
def test_entries_that_another_dict_gives(given, merge, into):
    def play(wrap):
        held, more = into(), given(a=1.0, b=2.0, c=3.0)

        def step(x):
            merge(held, more)
            return x * held.get("b", 1.0)

        step, seen = wrap(step), []
        for i in range(CALLS):
            if i == LATE:
                held.clear()
                held["c"] = 5.0
            seen.append((step(torch.ones(2)).tolist(), list(held.items())))
        return seen, step

    step = twins.played_alike(play)
    if given is dict:
        assert step.stats["replayed"] > CALLS / 3, step.explain()


WRITES = {"assigned": lambda held: held.__setitem__("a", 1.5), "statement": lambda held: put_item(held, "a", None), "update": lambda held: held.update(a=1.5),
          "setdefault": lambda held: held.setdefault("a", 1.5)}
ORDERS = {"list": list, "items": lambda held: [key for key, _ in held.items()], "reversed": lambda held: list(reversed(held)), "first": lambda held: next(iter(held)),
          "copy": lambda held: list(held.copy()), "equal": lambda held: held == collections.OrderedDict(a=1.5, b=2.0), "spread": lambda held: [*held]}


@pytest.mark.parametrize("look", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("kind", [collections.OrderedDict, type("Own", (collections.OrderedDict,), {})])
def test_the_order_of_entries_of_which_the_step_writes_one(kind, write, look):
    def play(wrap):
        held, box = kind(a=1.0, b=2.0), types.SimpleNamespace()

        def step(x):
            write(held)
            box.order = look(held)
            return x * 2

        step, seen = wrap(step), []
        for i in range(CALLS):
            if i % 6 == 5:
                held.move_to_end("a")
            if i == LATE:
                held.move_to_end("b", last=False)
            step(torch.ones(2))
            seen.append((box.order, list(held.items())))
        return seen, step

    twins.played_alike(play)


TURNS = {"reversed": lambda held, i: held.reverse(), "turned": lambda held, i: held.append(held.pop(0)), "first": lambda held, i: held.__setitem__(0, float(i)),
         "last": lambda held, i: held.__setitem__(-1, float(i))}


@pytest.mark.parametrize("turn", TURNS.values(), ids=TURNS)
@pytest.mark.parametrize("text", [
    "held.append(1.0); held[-1] = 5.0; held.pop()", "held.append(1.0); held[-1] += 1.0; held.pop()", "held.append(1.0); held[-2] = 5.0; held.pop()",
    "held.append(1.0); held[-1] = 5.0; del held[-1]", "held.append(1.0); held[len(held) - 1] = x.item(); held.pop()", "held.insert(0, 1.0); held[0] = 5.0; del held[0]",
    "held[-1] = 5.0; held.insert(0, 1.0); held.pop(0)", "held[0] = x.item(); held.reverse()", "held.append(1.0); held[-1] = 5.0; held[:] = held[:-1]",
    "held.pop(); held.append(4.0); held[-1] += 1.0"])
def test_items_of_a_list_that_the_step_makes_longer_and_shorter(text, turn):
    def play(wrap):
        held = [2.0, 3.0, 4.0]
        names = {"held": held}
        exec(f"def step(x):\n    {text}\n    return x * 2", names)
        step, seen = wrap(names["step"]), []
        for i in range(CALLS):
            if i >= 8:
                turn(held, i)
            seen.append((step(torch.tensor(float(i))).item(), list(held)))
        return seen, step

    twins.played_alike(play)


def others(held, i):
    held.pop("z", None)
    held[f"y{i % 3}"] = 1.0


ENTRIES_BETWEEN = {"taken out": lambda held, i: held.__setitem__("a", held.pop("a")), "others": others, "more": lambda held, i: held.__setitem__("y", 1.0),
                   "in another order": lambda held, i: (held.clear(), held.update(b=3.0, a=2.0, l=[1.0]))}


@pytest.mark.parametrize("between", ENTRIES_BETWEEN.values(), ids=ENTRIES_BETWEEN)
@pytest.mark.parametrize("text", [
    "held['l'].append(1.0); held.clear(); held.update(a=1.0, b=x.item(), l=[1.0])", "held['l'].append(1.0); held['a'] = 7.0; held.clear(); held.update(a=1.0, b=5.0, l=[1.0])",
    "held['z'] = 5.0; made *= len(held)", "held['z'] = 5.0; held.setdefault('z', 2.0); made *= len(held)",
    "held['l'] = [x.item(), 2.0]; [held.__setitem__(key, held[key]) for key in list(held)]",
    "held['l'] = [x.item(), 2.0]\n    for key in list(held): held[key] = 3.0 if key == 'a' else held[key]"])
@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_entries_of_a_dict_that_the_step_writes_in_several_ways(kind, text, between):
    def play(wrap):
        names = {"held": kind(a=2.0, b=3.0, l=[1.0])}
        exec(f"def step(x):\n    made = x * 1\n    {text}\n    return made", names)
        step, seen = wrap(names["step"]), []
        for i in range(CALLS):
            if i % 4 == 3:
                between(names["held"], i)
            seen.append((step(torch.tensor(float(i))).item(), repr(list(names["held"].items()))))
        return seen, step

    twins.played_alike(play)


@pytest.mark.parametrize("written, read", [(1, -1), (-1, 1), (0, -2)])
def test_an_item_counted_from_both_ends(written, read):
    def play(wrap):
        held = [2.0, 3.0]

        def step(x):
            held[written] = x.sum().item()
            return x * held[read]

        step, seen = wrap(step), []
        for i in range(CALLS):
            if i == LATE:
                held.append(7.0)
            seen.append((step(torch.full((2,), float(i))).tolist(), list(held)))
        return seen, step

    step = twins.played_alike(play)
    assert step.stats["replayed"] > CALLS / 3, step.explain()


class Quiet(D.Independent):
    """As Pyro's: what torch's `__init__` sets goes nowhere."""
    @property
    def _validate_args(self):
        return True

    @_validate_args.setter
    def _validate_args(self, value):
        pass


class Keeping(D.Independent):
    @property
    def _validate_args(self):
        return self.__dict__.get("checks", False)

    @_validate_args.setter
    def _validate_args(self, value):
        self.checks = value


class Told(D.Independent):
    def __setattr__(self, name, value):
        super().__setattr__("told", getattr(self, "told", 0) + 1)
        super().__setattr__(name, value)


class Shaped(D.Independent):
    """torch's `__init__` asks the one that it is made of, which may be of this class and have been there before, for its shape."""
    extra = 0

    @property
    def batch_shape(self):
        return torch.Size([3] * (1 + self.extra) + [2])


class Switched(nn.Module):
    @property
    def training(self):
        return self.__dict__.get("mode", True)

    @training.setter
    def training(self, value):
        self.__dict__["mode"] = value


NORMAL = D.Normal(torch.zeros(3, 2), 1.0)
BY_TORCHS_INIT = {
    "nothing": lambda x, kept: Quiet(D.Normal(x, 1.0), 1).log_prob(x * 2).sum(),
    "in its dict": lambda x, kept: Keeping(D.Normal(x, 1.0), 1).log_prob(x * 2).sum(),
    "counted": lambda x, kept: (lambda made: made.log_prob(x * 2).sum() * made.told)(Told(D.Normal(x, 1.0), 1)),
    "of one that was there": lambda x, kept: x.sum() * len(Shaped(kept, 1).batch_shape),
    "of a new one": lambda x, kept: x.sum() * len(Shaped(Shaped(NORMAL, 0), 1).batch_shape),
    "a module": lambda x, kept: x.sum() * (2.0 if Switched().training else 3.0),
    "kept": lambda x, kept: setattr(kept, "last", Quiet(D.Normal(x.detach(), 1.0), 1)) or x.sum(),
}


@pytest.mark.parametrize("case", BY_TORCHS_INIT)
def test_what_torchs_init_sets_is_of_the_object_that_is_made(case):
    def play(wrap):
        weight, kept = torch.ones(2, requires_grad=True), Shaped(NORMAL, 0)

        def step(x):
            loss = BY_TORCHS_INIT[case](x * weight, kept)
            return torch.autograd.grad(loss, weight)[0]

        step, seen = wrap(step), []
        for i in range(30):
            if i == 12:
                kept.extra = 1
            if i == 20:
                kept.extra = 0
            seen.append(twins.bits(step(torch.full((3, 2), 1.0 + i))))
        return seen, step

    step = twins.played_alike(play)
    assert case == "kept" or step.stats["replayed"] >= 15, step.explain()

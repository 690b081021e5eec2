"""Objects in whose place the program puts others of their class: the counts of an epoch, a meter, the state of an episode. Replays go on with
what stands there now, and what the program has kept stays as it is."""
import collections
import copy
import dataclasses
import functools
import gc
import itertools
import random
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import steptape
from twins import bits, played_alike

CALLS, EPOCH = 60, 7


class Meter:
    def __init__(self):
        self.sum, self.n, self.last = 0.0, 0, torch.zeros(3)

    def update(self, value, x):
        self.sum += value
        self.n += 1
        self.last = self.last * 0.5 + x.detach().mean(0)


@dataclasses.dataclass
class Record:
    sum: float = 0.0
    losses: list = dataclasses.field(default_factory=list)


class Counts(dict):
    pass


class Items(list):
    pass


def count(held, loss, x):
    held["sum"] += loss.item()
    held["n"] += 1


def record(held, loss, x):
    held.sum += loss.item()
    held.losses.append(loss.detach())


def keep(held, loss, x):
    held["last"] = held["last"] * 0.5 + x.mean(0)
    held["sum"] = held.get("sum", 0.0) + loss.item()


def nested(held, loss, x):
    held["meter"].update(loss.item(), x)
    held["losses"]["all"].append(loss.item())


KINDS = {
    "a_dict": (lambda: {"sum": 0.0, "n": 0}, count),
    "an_ordered_dict": (lambda: collections.OrderedDict(sum=0.0, n=0), count),
    "a_class_of_dicts": (lambda: Counts(sum=0.0, n=0), count),
    "a_default_dict": (lambda: collections.defaultdict(float), count),
    "a_dict_with_tensors": (lambda: {"last": torch.zeros(3)}, keep),
    "a_meter": (Meter, lambda held, loss, x: held.update(loss.item(), x)),
    "a_dataclass": (Record, record),
    "a_namespace": (lambda: SimpleNamespace(sum=0.0, losses=[]), record),
    "a_list": (list, lambda held, loss, x: held.append(loss.item())),
    "a_class_of_lists": (Items, lambda held, loss, x: held.append(loss.item() * getattr(held, "weight", 1.0))),
    "a_deque": (lambda: collections.deque(maxlen=4), lambda held, loss, x: held.append(loss.detach())),
    "nested": (lambda: {"meter": Meter(), "losses": {"all": []}}, nested),
}


def attribute(kept, net, optimizer):
    return (lambda: kept.held), (lambda value: setattr(kept, "held", value))


def item(kept, net, optimizer):
    kept.items = [None]
    return (lambda: kept.items[0]), (lambda value: kept.items.__setitem__(0, value))


def of_a_module(kept, net, optimizer):
    return (lambda: net.held), (lambda value: setattr(net, "held", value))


def cell(kept, net, optimizer):
    held = None

    def put(value):
        nonlocal held
        held = value
    return (lambda: held), put


@pytest.mark.parametrize("where", [attribute, item, cell, of_a_module])
@pytest.mark.parametrize("kind", KINDS)
def test_another_one_in_each_epoch(kind, where):
    make, fill = KINDS[kind]

    def play(wrap):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 3)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        kept, all_of_them = SimpleNamespace(), []
        get, put = where(kept, net, optimizer)

        def train(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            fill(get(), loss, x)
            return loss.detach()

        step, seen = wrap(train), []
        for i in range(CALLS):
            if i % EPOCH == 0:
                put(make())
                all_of_them.append(get())
            seen.append(bits(step(torch.full((2, 3), 0.1 * i))))
            seen.append([bits(list(each.items()) if isinstance(each, dict) else vars(each) if hasattr(each, "__dict__") else list(each))
                         for each in all_of_them])
        return seen, all(each is not get() for each in all_of_them[:-1]), bits(net), step

    assert played_alike(play).stats["replayed"] > CALLS // 3


def backed_up(held, loss, x):
    held["weight"] = loss.detach().clone()
    held["n"] = held.get("n", 0) + 1


# what the step does to the one that it finds, and puts another in its place
RESET = {
    "at_its_end": lambda kept, make: setattr(kept, "held", make()),
    "and_keeps_the_one_before": lambda kept, make: (setattr(kept, "before", kept.held), setattr(kept, "held", make())),
    "and_returns_to_the_one_before": lambda kept, make: (setattr(kept, "held", kept.before), setattr(kept, "before", make())),
    "in_turn": lambda kept, make: vars(kept).update(held=kept.before, before=kept.held),
    "every_third_call": lambda kept, make: setattr(kept, "held", make()) if kept.n % 3 == 0 else None,
    "when_the_loss_is_low": lambda kept, make: setattr(kept, "held", make()) if kept.loss < 0.5 else None,
}
WITHIN = {
    "a_dict": (dict, backed_up),
    "a_list": (list, lambda held, loss, x: held.append(loss.item())),
    "a_list_of_tensors": (list, lambda held, loss, x: held.append(loss.detach())),
    "an_ordered_dict": (collections.OrderedDict, backed_up),
    "a_default_dict": (lambda: collections.defaultdict(list), lambda held, loss, x: held["losses"].append(loss.item())),
    "a_meter": (Meter, lambda held, loss, x: held.update(loss.item(), x)),
    "a_dataclass": (Record, record),
}
BETWEEN = {
    "nothing": lambda i, kept, make: None,
    "keeps_it": lambda i, kept, make: setattr(kept, "mine", kept.held) if i == 20 else None,
    "another": lambda i, kept, make: setattr(kept, "held", make()) if i in (20, 31) else None,
    "a_copy": lambda i, kept, make: setattr(kept, "held", copy.copy(kept.held)) if i == 20 else None,
    "the_one_before": lambda i, kept, make: setattr(kept, "held", kept.before) if i == 20 else None,
}


@pytest.mark.parametrize("kind, between", [*((kind, "nothing") for kind in WITHIN), *itertools.product(["a_dict", "a_meter"], [*BETWEEN][1:])])
@pytest.mark.parametrize("reset", RESET)
def test_the_step_itself_puts_another_there(kind, reset, between):
    make, fill = WITHIN[kind]

    def play(wrap):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 3)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        kept = SimpleNamespace(held=make(), before=make(), mine=make(), n=0, loss=0.0)
        met = [kept.held, kept.before, kept.mine]

        def train(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            kept.n += 1
            kept.loss = loss.item()
            fill(kept.held, loss, x)
            RESET[reset](kept, make)
            return loss.detach()

        step, seen = wrap(train), []
        for i in range(CALLS):
            BETWEEN[between](i, kept, make)
            seen.append(bits(step(torch.full((2, 3), 0.1 * (i % 15)))))
            for each in (kept.held, kept.before, kept.mine):
                if all(each is not other for other in met):
                    met.append(each)
                seen.append(next(k for k, other in enumerate(met) if other is each))
            seen.append([bits(list(each.items()) if isinstance(each, dict) else vars(each) if hasattr(each, "__dict__") else list(each))
                         for each in met])
        return seen, bits(net), step

    step = played_alike(play)
    replays = {"every_third_call"} if kind == "a_meter" else {"at_its_end", "every_third_call", "when_the_loss_is_low"}
    if reset in replays and between == "nothing":
        assert step.stats["replayed"] > CALLS // 3, step.explain()


def twins_of(seed):
    """A step over two places whose objects the program parts and joins."""
    chosen = random.Random(seed)
    make, fill = KINDS[chosen.choice(list(KINDS))]
    is_asked, gives_it = chosen.random() < 0.4, chosen.random() < 0.3
    every = chosen.choice([4, 5, 9])

    def play(wrap):
        drawn = random.Random(seed + 1)
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 3)
        a, b, old = SimpleNamespace(held=make()), SimpleNamespace(held=make()), []

        def train(x, given=None):
            loss = net(x).square().mean()
            if is_asked and a.held is b.held:
                loss = loss * 2
            if given is a.held:
                loss = loss * 3
            fill(a.held, loss, x)
            fill(b.held, loss, x)
            return loss.detach()

        step, seen = wrap(train), []
        for i in range(CALLS):
            if i % every == 0 and i:
                old.append(a.held)
                change = drawn.choice(["one", "both", "join", "swap", "copy", "back", "other"])
                if change == "one":
                    a.held = make()
                elif change == "both":
                    a.held, b.held = make(), make()
                elif change == "join":
                    a.held = b.held = make()
                elif change == "swap":
                    a.held, b.held = b.held, a.held
                elif change == "copy":
                    a.held = copy.copy(a.held)
                elif change == "back":
                    a.held = drawn.choice(old)
                else:
                    b.held = a.held
            given = (drawn.choice([a.held, b.held, make()]),) if gives_it else ()
            seen.append(bits(step(torch.full((2, 3), 0.1 * i), *given)))
            seen.append([bits(list(each.items()) if isinstance(each, dict) else vars(each) if hasattr(each, "__dict__") else list(each))
                         for each in [a.held, b.held, *old]])
        return seen, step
    return play


@pytest.mark.parametrize("seed", range(40))
def test_two_places_that_are_joined_and_parted(seed):
    played_alike(twins_of(seed))


def test_one_that_is_given_too():
    def play(wrap):
        kept = SimpleNamespace(held={"n": 0})

        def count_up(x, given):
            kept.held["n"] += 1
            return x * (2 if given is kept.held else 3)

        step, seen = wrap(count_up), []
        for i in range(CALLS):
            if i % EPOCH == 0:
                kept.held = {"n": 0}
            seen.append((bits(step(torch.ones(2), kept.held if i > 30 and i % 2 else {"n": 0})), dict(kept.held)))
        return seen, step

    played_alike(play)


WATCHED, NAMED, REFERENCES, FOUND = weakref.WeakSet(), weakref.WeakKeyDictionary(), [], {}
BIRTHDAYS = weakref.WeakKeyDictionary()


@functools.lru_cache
def birthday(meter):
    return BIRTHDAYS[meter[1] if isinstance(meter, tuple) else meter]


ADDRESSES = {
    "id": id,
    "hash": hash,
    "format": lambda meter: f"{meter}",
    "format_of_a_list": lambda meter: f"{[meter]}",
    "str": str,
    "repr": lambda meter: repr({"meter": meter}),
    "percent": lambda meter: "%s of %s" % (1, meter),
    "format_method": "{0}".format,
    "joined": lambda meter: ",".join([str(meter)]),
    "own_method": lambda meter: meter.__repr__(),
    "weak_set": lambda meter: (meter in WATCHED, hash(weakref.ref(meter))),
    "weak_keys": lambda meter: NAMED.get(meter, "none"),
    "weak_reference": lambda meter: weakref.ref(meter) in REFERENCES,
    "tuple_as_key": lambda meter: FOUND.get((meter, 1), FOUND.get((1, (meter,)), "none")),
    "set_as_key": lambda meter: FOUND.get(frozenset([meter]), "none"),
    "method_as_key": lambda meter: FOUND.get(meter.update, "none"),
    "method_in_a_list": lambda meter: meter.update in list(FOUND),
    "cached": lambda meter: birthday(meter),
    "tuple_cached": lambda meter: birthday((1, meter)),
    "method_of_object": lambda meter: object.__hash__(meter),
    "key": lambda meter: sorted([meter], key=id) and max(map(id, [meter])),
}


@pytest.mark.parametrize("ask", ADDRESSES)
def test_a_step_that_asks_for_the_address_is_recorded_for_each(ask):
    kept = SimpleNamespace(held=Meter(), told=None)

    def address(x):
        kept.held.n += 1
        kept.told = ADDRESSES[ask](kept.held)
        return x * 1

    step = steptape.wrap(address, verify={"first": True, "rate": 0.0})
    meters = []
    for i in range(CALLS):
        if i % EPOCH == 0:
            kept.held = Meter()
            meters.append(kept.held)
            BIRTHDAYS[kept.held] = i
            if len(meters) % 2 == 0:
                WATCHED.add(kept.held)
                NAMED[kept.held] = str(i)
                REFERENCES.append(weakref.ref(kept.held))
                for key in [(kept.held, 1), (1, (kept.held,)), frozenset([kept.held]), kept.held.update]:
                    FOUND[key] = i
        step(torch.ones(1))
        assert kept.told == ADDRESSES[ask](kept.held) and kept.held.n == i % EPOCH + 1


SETS = {
    "display": lambda a, b: {a, b},
    "of_a_list": lambda a, b: set([a, b]),
    "frozen": lambda a, b: frozenset((a, b)),
    "added": lambda a, b: (found := set(), found.add(a), found.add(b))[0],
    "comprehension": lambda a, b: {each for each in (a, b)},
}


@pytest.mark.parametrize("way", SETS)
def test_the_order_of_a_set_is_that_of_the_objects_that_are_there(way):
    """It follows their addresses."""
    kept = SimpleNamespace(a=Meter(), b=Meter())

    def ordered(x):
        kept.a.n += 1
        return [x * each.sum for each in SETS[way](kept.a, kept.b)]

    step = steptape.wrap(ordered, verify={"first": True, "rate": 0.0})
    before = []
    for i in range(CALLS):
        if i % EPOCH == 0:
            before.append((kept.a, kept.b))
            kept.a, kept.b = Meter(), Meter()
            kept.a.sum, kept.b.sum = 1.0, 2.0
        x = torch.full((2,), 1.0 + i)
        assert [bits(each) for each in step(x)] == [bits(x * each.sum) for each in SETS[way](kept.a, kept.b)]


def test_what_was_there_before_is_let_go_of():
    kept = SimpleNamespace(held=Meter())
    step = steptape.wrap(lambda x: kept.held.update(1.0, x), verify={"first": True, "rate": 0.0})
    for i in range(CALLS):
        if i % EPOCH == 0:
            kept.held = Meter()
        step(torch.ones(2, 3))
    before, kept.held = weakref.ref(kept.held), Meter()
    step(torch.ones(2, 3))
    step(torch.ones(2, 3))
    gc.collect()
    assert before() is None and kept.held.n == 2


def test_a_class_that_changes_is_another():
    class Double(Meter):
        def update(self, value, x):
            super().update(2 * value, x)

    def play(wrap):
        kept = SimpleNamespace(held=Meter())
        step, seen = wrap(lambda x: kept.held.update(1.0, x)), []
        for i in range(CALLS):
            if i % EPOCH == 0:
                kept.held = (Double if i > 30 else Meter)()
            if i == 52:
                kept.held.update = lambda value, x: None
            step(torch.ones(2, 3))
            seen.append((kept.held.sum, kept.held.n, bits(kept.held.last)))
        return seen, step

    played_alike(play)


def test_players_go_on_from_the_one_that_is_there(tmp_path):
    kept = SimpleNamespace(held=Meter())

    def train(x):
        kept.held.update(1.0, x)
        return x + kept.held.last

    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(CALLS):
        if i % 20 == 0:
            kept.held = Meter()
        step(torch.full((2, 3), float(i)))
    assert step.stats["replayed"] > CALLS // 3, step.explain()
    step.save(tmp_path / "a.tape")
    player = steptape.load(tmp_path / "a.tape")
    assert [held["path"] for held in player.state()] == ["kept.held.last"]
    for i in range(12):
        x = torch.full((2, 3), float(i))
        assert bits(player["train"](x)) == bits(train(x))


def test_players_refuse_a_step_that_puts_another_there_itself(tmp_path):
    kept = SimpleNamespace(held=Meter())

    def train(x, ends):
        kept.held.update(1.0, x)
        scaled = x + kept.held.last
        if ends:
            kept.held = Meter()
        return scaled

    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(CALLS):
        if i % 20 == 0:
            kept.held = Meter()
        step(torch.full((2, 3), float(i)), i % 3 == 2)
    assert step.stats["replayed"] > CALLS // 3, step.explain()
    step.save(tmp_path / "a.tape")
    with pytest.raises(steptape.Error, match="held"):
        steptape.load(tmp_path / "a.tape")


def put_late(into):
    count = into.get("n", 0)
    into["z"] = 1.0 * count
    into["n"] = count + 1


def test_entries_come_in_the_order_in_which_the_step_adds_them():
    def play(wrap):
        kept = SimpleNamespace(held={})
        step, seen = wrap(lambda x: put_late(kept.held)), []
        for i in range(CALLS):
            if i % 5 == 0:
                kept.held.clear()
            step(torch.ones(1))
            seen.append(list(kept.held.items()))
        return seen, step

    assert played_alike(play).stats["replayed"] > CALLS // 2


class Attack:
    """FGM of NLP repositories: weights are put aside, moved, and put back from a dict that is emptied by another one."""

    def __init__(self, model, there):
        self.model, self.there, self.backup = model, there, {}

    def attack(self):
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad and "weight" in name:
                self.backup[name] = parameter.data.clone()
                norm = torch.norm(parameter.grad)
                if norm != 0:
                    parameter.data.add_(parameter.grad / norm)

    def restore(self):
        for name, parameter in self.model.named_parameters():
            if self.there(self.backup, name):
                parameter.data = self.backup[name]
        self.backup = {}


def popped(backup, name):
    there = name in backup
    if there:
        backup[name] = backup.pop(name)
    return there and name in backup


@pytest.mark.parametrize("there", [
    lambda backup, name: name in backup, lambda backup, name: backup.get(name) is not None, lambda backup, name: backup.__contains__(name), popped,
], ids=["in", "get", "method", "popped"])
def test_weights_that_are_put_aside_and_back(there):
    def play(wrap):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        optimizer, attack = torch.optim.Adam(model.parameters(), 0.01), Attack(model, there)

        def step(x):
            loss = model(x).pow(2).mean()
            loss.backward()
            attack.attack()
            model(x).pow(2).mean().backward()
            attack.restore()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        step, seen = wrap(step), []
        for i in range(40):
            if i == 20:
                attack.backup["0.bias"] = model[0].bias.data.clone()
            if i == 30:
                model[0].weight.requires_grad_(False)
            seen.append(bits([step(torch.randn(5, 3)), list(model.parameters()), attack.backup]))
        return seen, step

    step = played_alike(play)
    assert step.stats["replayed"] > 16, step.explain()


def look_up(held, name, make):
    """As a cache of derivatives, which lives as long as one step."""
    if name not in held.cache:
        held.cache[name] = make()
    return held.cache[name]


CACHES = {
    "in": lambda held, make: look_up(held, "y", make) + look_up(held, "y", make) + look_up(held, "z", make),
    "setdefault": lambda held, make: held.cache.setdefault("y", make()) + held.cache.setdefault("y", 2),
    "attribute": lambda held, make: (hasattr(held, "y"), setattr(held, "y", make()), held.y, delattr(held, "y"))[-2],
    "a number": lambda held, make: make() * look_up(held, "n", lambda: 1.5),
    "how many": lambda held, make: (held.cache.__setitem__(len(held.cache), make()), held.cache[0])[-1],
    "without": lambda held, make: make() if "y" in held.cache else 2 * make(),
}


@pytest.mark.parametrize("begins", [False, True], ids=["empty", "once filled"])
@pytest.mark.parametrize("cache", CACHES)
def test_a_cache_that_the_step_fills_and_replaces_by_an_empty_one(cache, begins):
    def play(wrap):
        torch.manual_seed(0)
        held = SimpleNamespace(cache={})

        def step(x):
            loss = CACHES[cache](held, lambda: (x * 2).sum())
            held.cache = {}
            return loss

        step, seen = wrap(step), []
        for i in range(30):
            if begins and i in (12, 20):
                held.cache = {"y": torch.ones(()), 0: torch.ones(())}
            seen.append((bits(step(torch.full((3,), float(i)))), bits(held.cache)))
        return seen, step

    step = played_alike(play)
    assert step.stats["replayed"] >= 15, step.explain()


@pytest.mark.parametrize("every", [1, 4], ids=["each time", "now and then"])
@pytest.mark.parametrize("way", ["held.cache = {}", "held.cache.clear()", "held.cache = dict(held.kept)", "held.kept = held.cache = {}"])
@pytest.mark.parametrize("cache", CACHES)
def test_a_cache_that_the_program_empties(cache, way, every):
    def play(wrap):
        torch.manual_seed(0)
        held = SimpleNamespace(cache={}, kept={})

        def step(x):
            return CACHES[cache](held, lambda: (x * 2).sum())

        step, seen = wrap(step), []
        for i in range(40):
            if i % every == 0:
                exec(way, {"held": held})
            seen.append((bits(step(torch.full((3,), float(i)))), bits(held.cache), bits(held.kept)))
        return seen, step

    step = played_alike(play)
    assert every > 1 or cache == "how many" or step.stats["replayed"] >= 15, step.explain()


REORDERED = {
    "deleted and set": "if 'a' in d:\n        del d['a']\n    d['a'] = v",
    "popped and set": "d.pop('a', None)\n    d['a'] = v",
    "popped as it is set": "d['a'] = d.pop('a') * 2",
    "emptied and filled": "d.clear()\n    d['b'] = 1.\n    d['a'] = v",
    "deleted, set, and another added": "if 'a' in d:\n        del d['a']\n    d['c'] = 1.\n    d['a'] = v",
    "one added, one deleted": "if 'c' not in d:\n        d['c'] = v\n    d.pop('b', None)",
    "how many were there": "n = len(d)\n    d.pop('a', None)\n    d['a'] = v + n\n    d[n] = v",
}


@pytest.mark.parametrize("case", REORDERED)
def test_the_order_of_a_dict_that_the_step_takes_apart(case):
    def play(wrap):
        scope = dict(held=SimpleNamespace(d={}))
        exec(f"def step(x):\n    d, v = held.d, x.item()\n    {REORDERED[case]}\n    return x * 2\n", scope)
        held, step, seen = scope["held"], wrap(scope["step"]), []
        for i in range(30):
            if i in (0, 6, 9, 12):
                held.d = {"b": 1.0, "a": 2.0}
            if i >= 15:
                held.d = {"a": 2.0, "b": 1.0} if i < 25 else {"c": 3.0, "a": 2.0, "b": 1.0}
            seen.append((bits(step(torch.tensor(i + 0.5))), list(held.d.items())))
        return seen, step

    played_alike(play)


class Thing:
    pass


PUT = {  # of `c`, where the step puts it: what it does, and which kinds can stand there
    "a whole list": ("held.l[:] = [c]", "any"),
    "a list that it empties": ("held.l.clear()\n    held.l.append(c)", "any"),
    "a window": ("held.l.append(c)\n    held.l.pop(0)", "any"),
    "the front of a window": ("held.l.insert(0, c)\n    del held.l[2:]", "any"),
    "a tuple in a whole list": ("held.l[:] = [(c, 1)]", "any"),
    "the last item of a queue": ("held.q[-1] = c", "any"),
    "a queue that it empties": ("held.q.clear()\n    held.q.append(c)", "any"),
    "a dict that it empties": ("held.d.clear()\n    held.d['a'] = c", "any"),
    "the item of a list": ("held.l[-1] = c", "any"),
    "a set": ("held.s.add(c)", "hashable"),
    "a set, from a list": ("held.s.update([c])", "hashable"),
    "a set that it empties": ("held.s.clear()\n    held.s.add(c)", "hashable"),
    "a set, in a tuple": ("held.s.add((c, 1))", "hashable"),
    "a set, by its operator": ("held.s.__ior__({c})", "hashable"),
    "a set, unless it is there": ("if c not in held.s: held.s.add(c)", "hashable"),
    "a new dict, as a key": ("held.d = {c: 1.}", "hashable"),
    "a new dict, by fromkeys": ("held.d = dict.fromkeys([c])", "hashable"),
    "a dict, as a key": ("held.d[c] = 1.", "hashable"),
    "a dict, as a key in a tuple": ("held.d[(c, 1)] = 1.", "hashable"),
    "a dict that it empties, as a key": ("held.d.clear()\n    held.d[c] = 1.", "hashable"),
    "an attribute of it": ("c.tag = x", "object"),
    "its dict": ("c.__dict__['tag'] = x", "object"),
    "a number of it": ("c.tag = x.sum().item()", "object"),
}
THINGS = {
    "tensor": (lambda i: torch.full((2,), float(i)), {"any", "hashable", "object"}), "object": (lambda i: Thing(), {"any", "hashable", "object"}),
    "list": (lambda i: [1.0], {"any"}), "other list": (lambda i: [float(i)], {"any"}), "dict": (lambda i: {"v": 1.0}, {"any"}),
    "tuple of a tensor": (lambda i: (torch.full((2,), float(i)),), {"any", "hashable"}), "list of a tensor": (lambda i: [torch.full((2,), float(i))], {"any"}),
}
TIMES = {"now and then": (4, 7, 20, 25), "late": (14,), "often": range(2, 30, 3)}


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("is_argument", [False, True], ids=["of the program", "argument"])
@pytest.mark.parametrize("kind, put", [(kind, put) for kind in THINGS for put in PUT if PUT[put][1] in THINGS[kind][1]])
def test_which_object_the_step_puts_somewhere(kind, put, is_argument, times):
    def play(wrap):
        make = THINGS[kind][0]
        held = SimpleNamespace(c=make(0), l=[0, 0], q=collections.deque([0]), d={}, s=set())
        held.l[:] = [held.c, held.c]
        met = [held.c, *held.c] if kind.startswith("tuple") else [held.c]
        scope = {"held": held}
        exec(f"def step(x, z):\n    c = {'z' if is_argument else 'held.c'}\n    {PUT[put][0]}\n    return x * 2\n", scope)
        step, seen = wrap(scope["step"]), []

        def which(value):
            known = [i for i, each in enumerate(met) if each is value and type(value) is not tuple]
            if known or not isinstance(value, (list, tuple, set, dict, collections.deque)):
                return known or (value if isinstance(value, (int, float)) else bits(value))
            found = [(which(k), which(v)) for k, v in value.items()] if isinstance(value, dict) else [which(each) for each in value]
            return sorted(map(repr, found)) if isinstance(value, set) else found

        for i in range(30):
            if i in TIMES[times]:
                held.c = make(i)
                met += [held.c, *held.c] if kind.startswith("tuple") else [held.c]
            x = torch.full((2,), float(i))
            step(x, held.c if is_argument else None)
            tag = getattr(held.c, "tag", None)
            seen.append([which(each) for each in (held.l, held.q, held.d, held.s)] + [bits(tag), copy.deepcopy(held.c) if kind in ("list", "other list", "dict") else None])
        return seen, step

    played_alike(play)


WINDOWS = {"held.l[:] = [x]": "a whole", "held.l.clear()\n    held.l.append(x)": "a whole",
           "held.l.append(x.clone())\n    held.l.pop(0)": None, "held.l = [*held.l[1:], x]": None, "held.l = (held.l + [x])[-2:]": None}


@pytest.mark.parametrize("way", WINDOWS)
def test_a_window_of_one_argument_that_is_another_one_later(way):
    def play(wrap):
        scope = {"held": SimpleNamespace(l=[torch.zeros(2), torch.zeros(2)])}
        exec(f"def step(x):\n    {way}\n    return x * 2\n", scope)
        step, seen, x = wrap(scope["step"]), [], torch.ones(2)
        for i in range(24):
            x = torch.full((2,), float(i)) if i in (12, 18) else x
            seen.append((bits(step(x)), bits(scope["held"].l)))
        return seen, step

    step = played_alike(play)
    if WINDOWS[way] is None:
        assert step.stats["replayed"] >= 12, step.explain()
    else:
        assert step.stats["replayed"] == 0 and WINDOWS[way] in step.explain() and "append(x.clone())" in step.explain(), step.explain()

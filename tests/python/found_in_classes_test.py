"""What the interpreter itself asks of classes while the step runs: of those that another is made of, of a descriptor's, of one whose objects are let
go of or hashed, of a mapping that is matched. Each is exchanged before call LATE."""
import abc
import bisect
import collections.abc
import csv
import io
import operator
import pickle
import types

import pytest
import torch

import twins

CALLS, LATE = 18, 9


def build(source, **names):
    """A step from its body, and a namespace in which it and its change run."""
    space = {"torch": torch, "types": types, "operator": operator, "collections": collections, "bisect": bisect, "csv": csv, "pickle": pickle, "io": io, **names}
    exec(compile("def step(x):\n" + "".join(f"    {line}\n" for line in source.strip().split("\n")), __file__, "exec"), space)
    return space


class Mapped(collections.abc.Mapping):
    def __getitem__(self, key):
        return {"a": 2.0}[key]

    def __len__(self):
        return 1

    def __iter__(self):
        return iter("a")


DESCRIPTOR = """
class D:
    def __get__(s, o, t=None): return 2.0
    def __set__(s, o, v): Rec.c = 2.0
    def __delete__(s, o): Rec.c = 3.0
class Meta(type):
    z = D()
class Hold:
    z = D()
class Sub(Hold): pass
class Other(metaclass=Meta): pass
class Base:
    def __init_subclass__(cls, k=1.0, **more): cls.k = k * 2.0
class OfMeta(type): pass
class Made(metaclass=OfMeta):
    k = 2.0
class More:
    k = 5.0
class Gone:
    def __del__(self): Rec.c = 2.0
class Hashed:
    def __hash__(self): return 5
class Abstract(abc.ABC):
    @classmethod
    def __subclasshook__(cls, other): return True
class Counts(collections.Counter):
    def get(self, key, default=None): return 2
class Sorted(list):
    def insert(self, at, value): list.insert(self, at, value + 1.0)
class Lines(list):
    def write(self, text): self.append(text)
class Unpickler(pickle.Unpickler):
    def find_class(self, module, name): return Made
class Prices(dict):
    @property
    def rate(self): return 2.0
    def keys(self): return ["a"]
hold, hashed = Hold(), Hashed()
"""
GET, SET, DELETE = ["D.__get__ = lambda s, o, t=None: 5.0", "del D.__get__", "class E(D):\n    def __get__(s, o, t=None): return 7.0\nvars(Hold)['z'].__class__ = E"], \
    ["D.__set__ = lambda s, o, v: setattr(Rec, 'c', 6.0)", "D.__set__ = None"], ["D.__delete__ = lambda s, o: setattr(Rec, 'c', 6.0)"]
INIT = ["Base.__init_subclass__ = classmethod(lambda cls, k=1.0: setattr(cls, 'k', 6.0))", "Base.__init_subclass__ = None", "del Base.__init_subclass__"]
STEPS = {
    "descriptor_of_a_class": ("return x * Hold.z", GET),
    "descriptor_of_a_base": ("return x * Sub.z", GET),
    "descriptor_by_getattr": ("return x * getattr(Hold, 'z')", GET),
    "descriptor_by_attrgetter": ("return x * operator.attrgetter('z')(Hold)", GET),
    "descriptor_of_a_metaclass": ("return x * Other.z", GET[:2]),
    "descriptor_by_super": ("return x * super(Sub, Sub()).z", GET[:2]),
    "descriptor_of_an_object": ("return x * hold.z", GET),
    "set": ("Rec.c = 1.0\nhold.z = 1.0\nreturn x * Rec.c", SET),
    "set_by_setattr": ("Rec.c = 1.0\nsetattr(hold, 'z', 1.0)\nreturn x * Rec.c", SET),
    "set_of_a_metaclass": ("Rec.c = 1.0\nOther.z = 1.0\nreturn x * Rec.c", SET),
    "delete": ("Rec.c = 1.0\ndel hold.z\nreturn x * Rec.c", DELETE),
    "class_statement": ("class C(Base, k=1.5): pass\nreturn x * C.k", INIT),
    "type": ("return x * getattr(type('C', (Base,), {}), 'k', 9.0)", INIT),
    "new_class": ("return x * getattr(types.new_class('C', (Base,)), 'k', 9.0)", INIT),
    "type_without": ("return x * getattr(type('C', (Hold,), {}), 'k', 9.0)", ["Hold.__init_subclass__ = classmethod(lambda cls: setattr(cls, 'k', 6.0))"]),
    "mro": ("class C(Made): pass\nreturn x * C.k", ["OfMeta.mro = lambda c: [c, More, object]"]),
    "finalizer": ("Rec.c = 1.0\ngone = Gone()\ndel gone\nreturn x * Rec.c", ["Gone.__del__ = lambda s: setattr(Rec, 'c', 6.0)", "del Gone.__del__"]),
    "finalizer_of_a_bare_object": ("Rec.c = 1.0\nobject.__new__(Gone)\nreturn x * Rec.c", ["Gone.__del__ = lambda s: setattr(Rec, 'c', 6.0)"]),
    "finalizer_without": ("Rec.c = 1.0\nSub()\nreturn x * Rec.c", ["Hold.__del__ = lambda s: setattr(Rec, 'c', 6.0)"]),
    "get_of_a_mapping": ("match mapped:\n    case {'a': c}:\n        return x * c\n    case _:\n        return x * 9.0",
                         ["Mapped.get = lambda s, k, z=None: 5.0", "collections.abc.Mapping.get = lambda s, k, z=None: 5.0"]),
    "type_new": ("return x * getattr(type.__new__(Meta, 'C', (Base,), {}), 'k', 9.0)", INIT),
    "subclass_hook": ("class C: pass\nreturn x * (2.0 if isinstance(C(), Abstract) else 3.0)", ["Abstract.__subclasshook__ = classmethod(lambda cls, other: False)"]),
    "subclass_hook_of_several": ("class C: pass\nreturn x * (2.0 if issubclass(C, (int, Abstract)) else 3.0)",
                                 ["Abstract.__subclasshook__ = classmethod(lambda cls, other: False)"]),
    "get_of_a_counter": ("counts = Counts()\ncounts.update('aab')\nreturn x * float(counts['a'])", ["Counts.get = dict.get", "del Counts.get"]),
    "insert_for_bisect": ("held = Sorted([1.0, 5.0])\nbisect.insort(held, 2.0)\nreturn x * sum(held)", ["Sorted.insert = list.insert", "del Sorted.insert"]),
    "write_for_csv": ("lines = Lines()\ncsv.writer(lines).writerow([1, 2.5])\nreturn x * len(lines[0])", ["Lines.write = lambda s, text: s.append(text * 2)"]),
    "find_class": ("return x * Unpickler(io.BytesIO(stored)).load().k", ["Unpickler.find_class = lambda s, module, name: More"]),
    "property": ("return x * operator.attrgetter('rate')(Prices())", ["Prices.rate = property(lambda s: 5.0)"]),
    "keys": ("return x * sum(dict(**Prices(a=2.0)).values())", ["Prices.keys = lambda s: []"]),
    "hash_in_a_tuple": ("return x * float(hash((hashed, 1)) % 97)", ["Hashed.__hash__ = lambda s: 3"]),
    "hash_of_a_tuple": ("return x * float(hash(pair) % 97)", ["Hashed.__hash__ = lambda s: 3"]),
    "hash_of_a_key": ("return x * float(len({(hashed, (hashed, 1)): 1}) + hash((1, (hashed,))) % 7)", ["Hashed.__hash__ = lambda s: 4"]),
}


@pytest.mark.parametrize("name, change", [(name, change) for name, (_, changes) in STEPS.items() for change in range(len(changes))])
def test_what_is_exchanged_in_a_class_is_seen(name, change):
    source, changes = STEPS[name]
    get = collections.abc.Mapping.get

    def play(wrap):
        rec = type("Rec", (), {"c": 1.0})  # what others drop at times writes elsewhere
        space = {"Rec": rec, "abc": abc, "collections": collections, "Mapped": type("Mapped", (Mapped,), {})}
        space.update(pickle=pickle)
        exec(DESCRIPTOR, space)
        stored = b"\x80\x03cnowhere\nMade\nq\x00)\x81q\x01."  # an object of a class of that name
        space.update(mapped=space["Mapped"](), pair=(space["hashed"], 1), stored=stored)
        space = build(source, **{key: value for key, value in space.items() if not key.startswith("__")})
        step, seen = wrap(space["step"]), []
        for i in range(CALLS):
            if i == LATE:
                exec(changes[change], space)
            try:
                seen.append(step(torch.ones(2)).tolist())
            except (TypeError, AttributeError) as error:
                seen.append(type(error).__name__)
            seen.append(rec.c)
        collections.abc.Mapping.get = get
        return seen, step
    step = twins.played_alike(play)
    replays = name not in ("class_statement", "type", "new_class", "type_without", "type_new", "mro", "subclass_hook", "subclass_hook_of_several", "find_class")
    assert step.stats["replayed"] > 3 or not replays, step.explain()


class OwnRate(torch.optim.lr_scheduler.StepLR):
    pass


class OwnScaler(torch.amp.GradScaler):
    pass


def rate(x, held):
    held.scheduler.step()


def scaled(x, held):
    held.scaler.scale(held.net(x).sum()).backward()
    held.scaler.step(held.optimizer)
    held.scaler.update()


@pytest.mark.parametrize("run, of, method, by", [
    (rate, "scheduler", "get_lr", lambda held: [0.5]), (rate, "scheduler", "_update_lr", lambda held: None),
    (scaled, "scaler", "_maybe_opt_step", lambda held: None), (scaled, "scaler", "_unscale_grads_", lambda held: {}),
], ids=["get_lr", "update_lr", "opt_step", "unscale"])
def test_a_method_that_an_object_of_an_own_class_of_torchs_gets(run, of, method, by):
    def play(wrap):
        torch.manual_seed(0)
        net = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        held = types.SimpleNamespace(net=net, optimizer=optimizer, scheduler=OwnRate(optimizer, 1000), scaler=OwnScaler("cpu", init_scale=2.0))
        calls = []

        def step(x):
            optimizer.zero_grad()
            net(x).pow(2).sum().backward()
            optimizer.step()
            run(x, held)

        def called(*given, **named):
            calls.append(1)
            return by(held)

        step, seen = wrap(step), []
        for i in range(CALLS):
            if i == LATE:
                setattr(getattr(held, of), method, called)
            try:
                step(torch.ones(2, 2))
                seen.append(None)
            except Exception as error:
                seen.append(type(error).__name__)
            seen.append((len(calls), optimizer.param_groups[0]["lr"], net.weight.tolist()))
        return seen, step
    twins.played_alike(play)

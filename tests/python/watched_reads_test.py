"""What a step reads and where: each program goes on with eager's bits when the place changes, in the first replays' time.

Every row pins its outcome: it replays before the change and after it, or is refused by the code that stands beside it.
"""
import dataclasses
import enum
import functools
import gc
import importlib
import operator
import random
import subprocess
import sys
import types
import typing
import weakref

import pytest
import torch
import torch.nn as nn

import steptape
from twins import bits, codes_of, played_alike

CALLS, CHANGE = 24, 12
VERIFY = {"first": True, "rate": 0.0}
PROGRAMS = []


class Box:
    def __init__(self, **values):
        self.__dict__.update(values)


def program(code=None):
    """Decorator: makes (step, what changes it); with a refusal code where the step never replays."""
    def add(make):
        PROGRAMS.append(pytest.param(make, code, id=make.__name__))
        return make
    return add


def play(make, wrapped):
    torch.manual_seed(0)
    step, change = make()
    step = steptape.wrap(step, verify=VERIFY) if wrapped else step
    seen = []
    for i in range(CALLS):
        if i == CHANGE:
            before = step.stats["replayed"] if wrapped else 0
            change()
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        seen.append(step(x).detach().clone())
    return seen, step, before


@pytest.mark.parametrize("make, code", PROGRAMS)
def test_a_change_of_what_the_step_reads_is_seen(make, code):
    eager, _, _ = play(make, wrapped=False)
    seen, step, before = play(make, wrapped=True)
    for i, (one, other) in enumerate(zip(eager, seen)):
        assert torch.equal(one, other), f"call {i}\n{step.explain()}"
    if code is None:
        assert 0 < before < step.stats["replayed"], step.explain()
    else:
        assert step.stats["replayed"] == 0 and code in codes_of(step), step.explain()
    assert not all(torch.equal(one, eager[0]) for one in eager)


def scale_of(box, name="scale", to=2.0):
    return lambda: setattr(box, name, to)


@program()
def attribute_that_comes_later():
    class Trainer:
        def step(self, x):
            return x * getattr(self, "loss_scale", 1.0)
    trainer = Trainer()
    return trainer.step, scale_of(trainer, "loss_scale")


@program()
def global_that_comes_later():
    globals().pop("LATER", None)

    def step(x):
        try:
            return x * LATER
        except NameError:
            return x
    return step, lambda: globals().update(LATER=2.0)


@program()
def method_replaced_on_the_instance():
    class Trainer:
        def loss(self, x):
            return x

        def step(self, x):
            return self.loss(x)
    trainer = Trainer()
    return trainer.step, lambda: setattr(trainer, "loss", lambda x: x * 2)


@program()
def method_replaced_on_a_base_class():
    class Base:
        def loss(self, x):
            return x

    class Trainer(Base):
        def step(self, x):
            return super().step(x) if hasattr(super(), "step") else self.loss(x)
    return Trainer().step, lambda: setattr(Base, "loss", lambda self, x: x * 2)


@program()
def what_super_finds():
    class Base:
        def loss(self, x):
            return x

    class Trainer(Base):
        def loss(self, x):
            return super().loss(x) + 1

        def step(self, x):
            return self.loss(x)
    return Trainer().step, lambda: setattr(Base, "loss", lambda self, x: x * 2)


@program()
def attribute_far_below():
    cfg = Box(a=Box(b=Box(c=Box(d=Box(e=Box(f=Box(scale=1.0)))))))
    return lambda x: x * cfg.a.b.c.d.e.f.scale, lambda: scale_of(cfg.a.b.c.d.e.f)()


@program()
def object_in_a_list_of_a_class():
    class Net(nn.Module):
        stages = [Box(scale=1.0)]

        def forward(self, x):
            return x * self.stages[0].scale
    net = Net()
    return lambda x: net(x), scale_of(Net.stages[0])


@program()
def module_of_a_class():
    class Loss:
        net = nn.Dropout(0.5)

        def __call__(self, x):
            return self.net(torch.ones(1000)).sum() + x
    loss = Loss()
    return lambda x: loss(x), lambda: Loss.net.eval()


@program()
def object_of_a_function():
    def helper(x):
        return x * helper.cfg.scale
    helper.cfg = Box(scale=1.0)
    return lambda x: helper(x), scale_of(helper.cfg)


@program()
def container_of_a_partial():
    cfg = {"scale": 1.0}
    return functools.partial(lambda cfg, x: x * cfg["scale"], cfg), lambda: cfg.update(scale=2.0)


@program()
def keyword_of_a_partial():
    part = functools.partial(lambda x, scale: x * scale, scale=1.0)
    return lambda x: part(x), lambda: part.keywords.update(scale=2.0)


@program()
def item_of_a_dict_that_the_step_is_a_method_of():
    class Config(dict):
        def step(self, x):
            return x * self["scale"]
    cfg = Config(scale=1.0)
    return cfg.step, lambda: cfg.update(scale=2.0)


@program()
def method_of_a_dict_kept():
    cfg = {"scale": 1.0}
    get = cfg.get
    return lambda x: x * get("scale"), lambda: cfg.update(scale=2.0)


@program()
def attribute_by_a_built_name():
    cfg, k = Box(w_1=1.0), 1
    return lambda x: x * getattr(cfg, "w_" + str(k)), scale_of(cfg, "w_1")


@program()
def method_by_a_built_name():
    cfg = Box(scale=1.0)

    class Task:
        def loss_l2(self, x):
            return x * cfg.scale

        def step(self, x):
            return getattr(self, "loss_{}".format("l2"))(x)
    return Task().step, scale_of(cfg)


@program()
def match_of_a_class():
    class Settings:
        kind = "a"
    cfg = Settings()

    def step(x):
        match cfg:
            case Settings(kind="a"):
                return x * 2
            case _:
                return x * 3
    return step, scale_of(cfg, "kind", "b")


@program()
def match_of_a_mapping():
    cfg = {"kind": "a"}

    def step(x):
        match cfg:
            case {"kind": "a"}:
                return x * 2
            case _:
                return x * 3
    return step, lambda: cfg.update(kind="b")


@program()
def attrgetter():
    cfg = Box(train=Box(scale=1.0))
    get = operator.attrgetter("train.scale")
    return lambda x: x * get(cfg), scale_of(cfg.train)


@program()
def getattr_by_reduce():
    cfg = Box(train=Box(scale=1.0))
    return lambda x: x * functools.reduce(getattr, "train.scale".split("."), cfg), scale_of(cfg.train)


@program()
def sorted_by_a_getter():
    rows = [Box(rank=1, w=1.0), Box(rank=2, w=3.0)]
    return (lambda x: x * sorted(rows, key=operator.attrgetter("rank"))[0].w), scale_of(rows[0], "rank", 5)


@program()
def global_by_a_built_name():
    cfg, kind = Box(scale=1.0), "a"
    globals()["LOSS_a"] = lambda x: x * cfg.scale
    return lambda x: globals()["LOSS_" + kind](x), scale_of(cfg)


@program()
def attribute_by_vars():
    cfg = Box(scale=1.0)
    return lambda x: x * vars(cfg)["scale"], scale_of(cfg)


@program()
def another_dict_of_an_object():
    cfg = Box(scale=1.0)
    return lambda x: x * cfg.scale, lambda: setattr(cfg, "__dict__", {"scale": 2.0})


@program("host_effect")
def iterator():
    weights = zip([1.0] * CHANGE + [0.5] * CALLS)
    return lambda x: x * next(weights)[0], lambda: None


@program("host_effect")
def generator_that_was_there():
    weights = (1.0 + i for i in range(100))

    def step(x):
        for weight in weights:
            return x * weight
    return step, lambda: None


@program()
def view_of_a_dict():
    held = {"a": 1.0}
    values = held.values()
    return lambda x: x * sum(values), lambda: held.update(a=2.0)


@program()
def keys_that_are_objects():
    key = Box(scale=1.0)
    table = {key: 1.0}
    return lambda x: x * sum(k.scale * v for k, v in table.items()), scale_of(key)


@program()
def key_that_is_a_tuple():
    table = {(1, "a"): 1.0}
    return lambda x: x * table[1, "a"], lambda: table.update({(1, "a"): 2.0})


@program()
def constructor_by_the_class_of_self():
    cfg = Box(scale=1.0)

    class State:
        def __init__(self, t):
            self.t = t * cfg.scale

        def twice(self):
            return type(self)(self.t * 2)
    state = State(torch.ones(3))
    return lambda x: x * state.twice().t, scale_of(cfg)


@program()
def slot_of_a_base_class():
    class Base:
        __slots__ = ("scale",)

    class Config(Base):
        pass
    cfg = Config()
    cfg.scale = 1.0
    return lambda x: x * cfg.scale, scale_of(cfg)


@program()
def slot_of_a_dataclass():
    @dataclasses.dataclass(slots=True)
    class Config:
        scale: float = 1.0
    cfg = Config()
    return lambda x: x * cfg.scale, scale_of(cfg)


@program()
def object_behind_a_decorator_of_torch():
    class Loss:
        scale = 1.0

        def __call__(self, x):
            return x * self.scale
    loss = Loss()
    evaluate = torch.no_grad()(loss)
    return lambda x: evaluate(x), scale_of(loss)


@program()
def single_dispatch():
    @functools.singledispatch
    def loss(x):
        return x

    return lambda x: loss(x), lambda: loss.register(torch.Tensor, lambda x: x * 2)


@program("host_random")
def random_generator_of_a_class():
    class Augment:
        rng = random.Random(3)

        def __call__(self, x):
            return x.flip(-1) * 3 if self.rng.random() < 0.5 else x
    augment = Augment()
    return lambda x: augment(x), lambda: None


@program()
def attribute_of_a_module_named_like_hooks():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self._hooks_cfg = {"a": [1.0]}

        def forward(self, x):
            return x * self._hooks_cfg["a"][0]
    net = Net()
    return lambda x: net(x), lambda: net._hooks_cfg["a"].__setitem__(0, 2.0)


@program()
def object_of_a_module_of_an_object():
    class Net(nn.Module):
        def __init__(self, cfg):
            super().__init__()
            self.cfg = cfg

        def forward(self, x):
            return x * self.cfg.model.scale
    trainer = Box(net=Net(Box(model=Box(scale=1.0))))
    return lambda x: trainer.net(x), lambda: scale_of(trainer.net.cfg.model)()


@program()
def truth_of_a_list():
    flags = []
    return lambda x: x * 2 if flags else x * 3, lambda: flags.append(1)


@program()
def membership():
    names = {"a"}
    return lambda x: x * 2 if "b" in names else x * 3, lambda: names.add("b")


class Shown(Box):
    """What a weak proxy passes on."""

    def __call__(self, x):
        return x * self.scale

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        return iter(self.items)

    def __add__(self, other):
        return self.scale + other

    def half(self, x):
        return x * self.scale / 2


def guarded(function, x):
    """With a proxy whose object is gone, 5 x."""
    try:
        return function(x)
    except ReferenceError:
        return x * 5


# What a step does with an object that nothing of it holds, by a reference and by a proxy; then what becomes of the object.
WEAKLY = {
    "an_attribute": lambda r, p, x: x * (r().scale if r() is not None else 5.0),
    "whether_it_is_there": lambda r, p, x: x * (2.0 if r() is None else r().scale),
    "an_attribute_by_proxy": lambda r, p, x: x * p.scale,
    "a_call_by_proxy": lambda r, p, x: p(x),
    "a_method_by_proxy": lambda r, p, x: p.half(x),
    "an_operator_by_proxy": lambda r, p, x: x * (p + 1.0),
    "a_default_by_proxy": lambda r, p, x: x * getattr(p, "scale", 2.0),
    "a_function_of_cs_by_proxy": lambda r, p, x: x * sum(p) * len(p) * p.scale,
    "a_loop_by_proxy": lambda r, p, x: x * [each for each in p][0] * p.scale,
}
BECOMES = {
    "another_value": lambda held: setattr(held[0], "scale", 4.0),
    "nothing": lambda held: held.clear(),
    "another_class": lambda held: setattr(held[0], "__class__", type("Other", (Shown,), {"scale": property(lambda self: 9.0)})),
}


def weakly(does, becomes):
    def make():
        held = [Shown(scale=1.0, items=[1.0, 2.0])]
        reference, proxy = weakref.ref(held[0]), weakref.proxy(held[0])
        return lambda x: guarded(lambda x: does(reference, proxy, x), x), lambda: becomes(held)
    return make


PROGRAMS += [pytest.param(weakly(does, becomes), None, id=f"{name}_that_becomes_{change}")
             for name, does in WEAKLY.items() for change, becomes in BECOMES.items()]


@program()
def value_in_a_weak_dictionary():
    held = [Box(scale=1.0)]
    table = weakref.WeakValueDictionary(a=held[0])
    return (lambda x: x * (table["a"].scale if "a" in table else 5.0)), held.clear


@program()
def a_weakly_held_method():
    held = [Shown(scale=1.0)]
    method = weakref.WeakMethod(held[0].half)
    return lambda x: method()(x) if method() is not None else x * 9.0, held.clear


@program()
def an_object_that_the_step_held_before():
    """What a plan knows of it does not keep it: the step asks whether it is still there."""
    held = Box(now=Box(scale=2.0))
    reference = weakref.ref(held.now)

    def step(x):
        if held.now is not None:
            return x * held.now.scale
        return x * (3.0 if reference() is None else 4.0)
    return step, scale_of(held, "now", None)


@program()
def what_a_finalizer_leaves():
    held, left = Box(now=Box(scale=2.0)), []
    weakref.finalize(held.now, left.append, 7.0)
    return lambda x: x * (held.now.scale if held.now is not None else sum(left)), scale_of(held, "now", None)


@program()
def method_that_is_bound_anew():
    cfg = Shown(scale=2.0)
    held = Box(callback=cfg.half)

    def step(x):
        y = held.callback(x)
        held.callback = cfg.half  # an equal one
        return y
    return step, lambda: setattr(held, "callback", Shown(scale=6.0).half)


@program()
def device_that_is_made_anew():
    held = Box(device=torch.device("cpu"), scale=1.0)

    def step(x):
        held.device = x.device
        return x * held.scale + torch.ones(3, device=held.device)
    return step, scale_of(held)


class Marked:
    """With attributes of its functions, which its methods show."""
    def method(self, scale=1.0):
        return scale

    @classmethod
    def of_class(cls):
        return 1.0

    __class_getitem__ = classmethod(types.GenericAlias)
    weight = 1.0


# What reads through a method or an alias, and the function or class that has it.
THROUGH = {
    "a_method": lambda marked, held: marked.method.weight,
    "a_kept_method": lambda marked, held: held.method.weight,
    "a_default_of_getattr": lambda marked, held: getattr(marked.method, "later", 1.0),
    "hasattr": lambda marked, held: 2.0 if hasattr(marked.method, "later") else 1.0,
    "a_class_method": lambda marked, held: marked.of_class.weight,
    "super": lambda marked, held: super(type(marked), marked).method.weight,
    "a_weak_method": lambda marked, held: held.weak().weight,
    "defaults": lambda marked, held: marked.method.__defaults__[0],
    "a_name": lambda marked, held: float(len(marked.method.__name__)),
    "an_alias": lambda marked, held: type(marked)[int].weight,
}


def through(read):
    def make():
        class Base(Marked):
            method = types.FunctionType(Marked.method.__code__, globals(), "method", (1.0,))
            of_class = classmethod(types.FunctionType(Marked.of_class.__func__.__code__, globals()))

        class Own(Base):
            pass
        functions = [Base.__dict__["method"], Base.__dict__["of_class"].__func__]
        for function in functions:
            function.weight = 1.0
        marked = Own()
        held = Box(method=marked.method, weak=weakref.WeakMethod(marked.method))

        def change():
            for function in functions:
                function.weight = function.later = 2.0
                function.__defaults__, function.__name__ = (2.0,), "renamed"
            Base.weight = 2.0
        return lambda x: x * read(marked, held), change
    return make


PROGRAMS += [pytest.param(through(read), None, id=f"through_{name}") for name, read in THROUGH.items()]

def imported():
    import steptape_settings
    return steptape_settings.scale


def imported_from():
    from steptape_settings import scale
    return scale


def imported_all():
    names = {}
    exec("from steptape_settings import *", names)
    return names["scale"]


def imported_if_there():
    try:
        import steptape_settings
    except ImportError:
        return 1.0
    return steptape_settings.scale


IMPORTS = {
    "an_import": imported, "a_name": imported_from, "all_names": imported_all, "if_there": imported_if_there,
    "a_call": lambda: importlib.import_module("steptape_settings").scale, "a_call_of_its_own": lambda: __import__("steptape_settings").scale,
}


def settings(kind, **values):
    made = kind("steptape_settings")
    vars(made).update(values)
    sys.modules["steptape_settings"] = made
    return made


class ModuleOfItsOwn(types.ModuleType):
    scale = property(lambda self: 4.0)


# What stands for the module: one, or an object that has taken its place; and what becomes of it.
MODULES = {
    "a_module_that_changes": (types.ModuleType, lambda made: setattr(made, "scale", 4.0)),
    "an_object_that_changes": (lambda name: Box(), lambda made: setattr(made, "scale", 4.0)),
    "another_module": (types.ModuleType, lambda made: settings(types.ModuleType, scale=4.0)),
    "another_object": (lambda name: Box(), lambda made: settings(lambda name: Box(), scale=4.0)),
    "a_module_of_another_class": (types.ModuleType, lambda made: setattr(made, "__class__", ModuleOfItsOwn)),
    "none_before": (None, lambda made: settings(types.ModuleType, scale=4.0)),
}


def importing(read, kind, becomes):
    def make():
        sys.modules.pop("steptape_settings", None)
        made = None if kind is None else settings(kind, scale=1.0)
        return lambda x: x * read(), lambda: becomes(made)
    return make


PROGRAMS += [pytest.param(importing(read, *case), None, id=f"{name}_of_{kind}") for name, read in IMPORTS.items() for kind, case in MODULES.items()
             if case[0] is not None and (name, kind) != ("all_names", "a_module_of_another_class") or (name, kind) == ("if_there", "none_before")]

HOLDERS = {
    "weak_references": lambda held: weakref.getweakrefcount(held),
    "references": lambda held: sys.getrefcount(held),
    "objects": lambda held: len(gc.get_objects()),
    "referrers": lambda held: len(gc.get_referrers(held)),
}


def holders_of(counted):
    def make():
        held = Box()
        return lambda x: x * (2.0 if counted(held) >= 0 else 1.0), lambda: None
    return make


PROGRAMS += [pytest.param(holders_of(counted), "host_effect", id=f"how_many_{name}") for name, counted in HOLDERS.items()]


@program()
def default_of_a_function():
    def inner(x, cfg=Box(scale=1.0)):
        return x * cfg.scale
    return lambda x: inner(x), lambda: setattr(inner, "__defaults__", (Box(scale=2.0),))


@program()
def member_of_an_enum():
    class Setting(enum.Enum):
        ONLY = 1
    Setting.ONLY.scale = 1.0
    return lambda x: x * Setting.ONLY.scale, scale_of(Setting.ONLY)


@program()
def namespace_that_is_made_anew():
    held = Box(cfg=types.SimpleNamespace(scale=1.0))

    def step(x):
        return x * held.cfg.scale
    return step, lambda: setattr(held, "cfg", types.SimpleNamespace(scale=2.0))


@program()
def cached_function():
    cfg = Box(scale=1.0)

    @functools.lru_cache
    def scale():
        return cfg.scale

    def change():
        cfg.scale = 2.0
        scale.cache_clear()
    return lambda x: x * scale(), change


@program()
def property_of_a_class():
    class Config:
        base = 1.0

        @property
        def scale(self):
            return self.base * 2
    cfg = Config()
    return lambda x: x * cfg.scale, scale_of(cfg, "base", 3.0)


@program("host_effect")
def clock():
    import time
    start = time.time()
    return lambda x: x * (2.0 if time.time() < start + 1e9 else 1.0), lambda: None


def test_counters_in_odd_places_are_counted():
    def play(wrapped):
        class Registry:
            items = {"a": Box(n=0)}
        stats = []

        def train(stats, x):
            stats.append(1)
            Registry.items["a"].n += 1
            return x * 2
        step = functools.partial(train, stats)
        step = steptape.wrap(step, verify=VERIFY) if wrapped else step
        return [(step(torch.ones(2)).tolist(), len(stats), Registry.items["a"].n) for _ in range(CALLS)], step

    (eager, _), (seen, step) = play(False), play(True)
    assert eager == seen and step.stats["replayed"] > 0, step.explain()


def test_super_and_a_replaced_method_of_a_class_whose_method_is_a_step():
    class Base:
        @steptape.wrap
        def step(self, x):
            return x * 2

    class Derived(Base):
        def step(self, x):
            return super().step(x) + 1

    derived, base = Derived(), Base()
    x = torch.ones(3)
    for _ in range(12):
        assert torch.equal(derived.step(x), x * 2 + 1)
        assert torch.equal(base.step(x), x * 2)
    Base.step = lambda self, x: x * 7
    assert torch.equal(base.step(x), x * 7)
    assert torch.equal(derived.step(x), x * 7 + 1)


def test_the_class_of_a_number_is_what_the_program_made():
    scale = torch.tensor(2.0)
    kinds = []

    def step(x):
        value = scale.item()
        assert type(value) is float and value.__class__ is float
        return x * value

    step = steptape.wrap(step)
    for _ in range(8):
        assert torch.equal(step(torch.ones(2)), torch.full((2,), 2.0))
    assert step.stats["replayed"] > 0 and not kinds, step.explain()


def test_a_hook_on_an_argument_runs():
    def play(wrapped):
        weight = torch.ones(3, requires_grad=True)
        calls = []

        def step(x):
            (x * weight).sum().backward()
            return weight.grad.clone()
        step = steptape.wrap(step, verify=VERIFY) if wrapped else step
        for i in range(CALLS):
            x = torch.ones(3, requires_grad=True)
            if i >= CHANGE:
                x.register_hook(calls.append)
            weight.grad = None
            step(x)
        return len(calls)

    assert play(True) == play(False) == CALLS - CHANGE


def test_a_cache_that_a_call_of_another_variant_filled_again_is_asked_anew():
    def play(wrapped):
        cfg = Box(scale=1.0)

        @functools.lru_cache
        def scale():
            return cfg.scale

        def train(x, twice):
            return x * scale() * (2 if twice else 1)
        step = steptape.wrap(train, verify=VERIFY) if wrapped else train
        seen = []
        for i in range(CALLS):
            if i == 16:
                cfg.scale = 3.0
                scale.cache_clear()
            seen.append(step(torch.ones(2), i % 2 == 0).tolist())
        return seen, step

    (eager, _), (seen, step) = play(False), play(True)
    assert eager == seen and step.stats["replayed"] > 0, step.explain()


CODE_WITHOUT_IMPORT = """
import collections, operator, numpy, torch, steptape

Pair = collections.namedtuple("Pair", "a b")

class Box:
    v, l, q = 2.0, [1.0, 2.0], collections.deque([1.0], 3)

space = {"__builtins__": {"sum": sum, "isinstance": isinstance, "max": max, "__build_class__": __build_class__, "__name__": "made"},
         "Pair": Pair, "box": Box(), "numpy": numpy, "operator": operator, "net": torch.nn.Linear(2, 2)}
exec('''
def helper(x):
    pair = Pair(x * box.v, sum(box.l))
    box.q.append(1.0)
    class Held(Pair): pass
    y = operator.attrgetter("v")(box) + numpy.mean(box.l) + max(box.q) + sum(box.q) + (1.0 if isinstance(box, Pair) else 2.0)
    return net(pair.a) * pair.b * y + box.v % 2 + x.sum().item() // 2
''', space)
step = steptape.wrap(lambda x: space["helper"](x).sum().detach(), verify={"first": True, "rate": 0.0})
for i in range(12):
    step(torch.ones(2, 2))
assert "recording_failed" not in step.explain(), step.explain()
"""


def test_code_that_has_no_import_of_its_own():
    """As that of a namedtuple, whose builtins are empty. In a process of its own: what steptape imports it imports once."""
    child = subprocess.run([sys.executable, "-W", "ignore", "-c", CODE_WITHOUT_IMPORT], capture_output=True, text=True, timeout=250)
    assert child.returncode == 0, child.stderr[-3000:]


class Listed:
    """A class whose aliases name another one, as configurations of dataclasses do."""
    __class_getitem__ = classmethod(types.GenericAlias)

    def __init__(self, value):
        self.value = value * 2


# Types that are joined or filled in cannot change; what they name is watched as ever.
JOINED = {
    "arguments": lambda held: float(len(held.alias.__args__)),
    "which argument": lambda held: 2.0 if held.alias.__args__[0] is int else 3.0,
    "origin": lambda held: held.alias.__origin__.scale,
    "an instance": lambda held: held.alias(2.0).value,
    "equal": lambda held: 2.0 if held.alias == Listed[int] else 3.0,
    "a key": lambda held: {Listed[int]: 2.0}.get(held.alias, 3.0),
    "typing": lambda held: float(len(typing.get_args(held.union))) + (typing.get_origin(held.union) is types.UnionType),
    "members": lambda held: 2.0 if type(None) in held.union.__args__ else 3.0,
    "isinstance": lambda held: 2.0 if isinstance(None, held.union) else 3.0,
}


@pytest.mark.parametrize("read", JOINED)
def test_types_that_are_joined_or_filled_in(read):
    def play(wrap):
        Listed.scale, Listed.__init__ = 1.0, lambda self, value: setattr(self, "value", value * 2)
        held = types.SimpleNamespace(alias=Listed[int], union=int | None)

        def step(x):
            return x * JOINED[read](held)

        step, seen = wrap(step), []
        for i in range(40):
            if i == 12:
                Listed.scale, Listed.__init__ = 3.0, lambda self, value: setattr(self, "value", value * 3)
            if i == 20:
                held.alias, held.union = Listed[float], int | str | float
            if i == 30:
                held.alias, held.union = Listed[int, float], int | None
            seen.append(bits(step(torch.full((3,), float(i)))))
        return seen, step
    step = played_alike(play)
    assert step.stats["replayed"] >= 20, step.explain()

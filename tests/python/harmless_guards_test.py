"""Guards do no harm: they run no code of the user's, compare nothing that forbids it, keep nothing alive."""
import cProfile
import functools
import gc
import types
import weakref

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import steptape
import twins
from guarded import EDIT, STEPS, Training, check, classifier
from twins import replays_as_a_rule


class Raising:
    """An object that nobody may look at: not compare, hash, test, measure or print it."""

    def refuse(self, *args):
        raise AssertionError("code of the user's ran")

    __eq__ = __ne__ = __hash__ = __bool__ = __len__ = __iter__ = __repr__ = __lt__ = refuse
    __getattr__ = __contains__ = __getitem__ = __call__ = __float__ = __int__ = refuse


class Watchful(nn.Module):
    """A module of which every look runs code: properties, __getattr__, descriptors."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)
        self.raising = Raising()
        self.listed = [Raising()]
        self.table = {"a": Raising()}
        self.factor = 0.5

    def __getattr__(self, name):
        return super().__getattr__(name)

    @property
    def current(self):
        return self.factor

    @functools.cached_property
    def kept(self):
        return 2.0

    def forward(self, x):
        return self.fc(x) * self.current


class FromHere:
    """The Python functions of this file, by a profiler in C, that run inside `with`: calls run eagerly under one of Python's."""

    def __enter__(self):
        self.profile = cProfile.Profile()
        self.profile.enable()
        return self

    def __exit__(self, *_):
        self.profile.disable()
        codes = [entry.code for entry in self.profile.getstats() if not isinstance(entry.code, str)]
        self.names = [code.co_name for code in codes if code.co_filename == __file__ and code.co_name != "__exit__"]


def test_a_replay_runs_no_code_of_the_users():
    torch.manual_seed(0)
    model = Watchful()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    opaque = Raising()

    def train(x, y, handed=None):
        optimizer.zero_grad()
        if opaque is None:
            return None
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = steptape.wrap(train)
    x, y = torch.randn(8, 6), torch.randint(4, (8,))
    ran = {"replayed": 0, "other": 0}
    for _ in range(STEPS):
        before = step.stats["replayed"]
        with FromHere() as watch:
            step(x, y)
        replayed = step.stats["replayed"] > before
        ran["replayed" if replayed else "other"] += len(watch.names)
        assert not (replayed and watch.names), watch.names
    assert ran["other"] > 0
    replays_as_a_rule(step)


def test_no_code_of_an_object_runs_while_it_is_looked_at():
    """`isinstance` would ask it for its class."""
    asked = []

    class Shy:
        def __getattribute__(self, name):
            asked.append(name)
            return object.__getattribute__(self, name)

    held = [Shy(), {"one": Shy()}]
    step = steptape.wrap(lambda x, other: x * (2 if held and other is not None else 1))
    argument = Shy()
    for _ in range(12):
        step(torch.ones(2), argument)
    assert asked == []


def test_an_object_that_cannot_be_compared_is_guarded_by_identity():
    def prepare(program):
        program.model.marker = Raising()
        program.model.shaped = lambda x: x * (0.5 if program.model.marker is program.chosen else 1)
        program.chosen = None

    def choose(program):
        program.chosen = program.model.marker = Raising()

    check(functools.partial(classifier, prepare=prepare), choose, share=None)


def test_a_plan_does_not_keep_a_replaced_module_buffer_alive():
    torch.manual_seed(0)
    program = classifier()
    step = steptape.wrap(program.step)
    training = Training(lambda: program)
    for i in range(EDIT):
        step(*training.batch(i))
    replays_as_a_rule(step)
    freed = []
    weakref.finalize(program.model.shift, freed.append, True)
    program.model.shift = torch.ones(4)
    for i in range(EDIT, STEPS):
        step(*training.batch(i))
    gc.collect()
    assert freed


@pytest.mark.parametrize("use", [
    lambda model: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5), lambda model: torch.nn.utils.clip_grad_value_(model.parameters(), 0.1),
    lambda model: [p.grad.mul_(0.5) for p in model.parameters()], lambda model: [p.grad.mul_(0.5) for _, p in model.named_parameters()],
    lambda model: [m.weight.grad.mul_(0.5) for m in model.modules() if isinstance(m, nn.Linear)], lambda model: list(model.named_buffers()),
    lambda model: model.apply(lambda module: None), lambda model: model.state_dict(), lambda model: {model: 1}[model],
    lambda model: torch.func.functional_call(model, dict(model.named_parameters()), torch.ones(4, 3)),
], ids=["norm", "value", "parameters", "named", "modules", "buffers", "apply", "state", "key", "function"])
def test_what_the_program_keeps_on_a_model_is_nothing_that_going_over_it_depends_on(use):
    """Losses that an epoch's end looks at, counters: no plan is made anew for them, whatever of the model's registered things a step asks for."""
    def make():
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        model.losses, model.seen, model.best = [], 0, {"loss": None}
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            use(model)
            optimizer.step()
            return loss

        def after(i):
            model.losses.append(i)
            model.seen += 1
            model.best["loss"] = i / 2
        return types.SimpleNamespace(step=step, batch=lambda i: (torch.randn(4, 3),), after=after,
                                     holds=lambda: [model, optimizer, model.losses, model.seen, model.best])
    step = twins.compare(make, 40, verify={"first": True, "rate": 0.0})
    assert step.stats["replayed"] > 30 and not step.stats["fallbacks"], step.explain()

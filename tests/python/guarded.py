"""Twins of a program that is edited between two calls, once the wrapped one replays.

Every bit is compared. The results of a third twin, which is left alone, show that the change
matters: a plan that was kept against it would be seen.
"""
import contextlib
import dataclasses
import enum
import functools
import types

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import steptape
import twins
from classification import Program, batch, sgd
from twins import bits

STEPS = 48
EDIT = 20  # the call before which the one thing changes; the step replays long before it


class Kind(enum.Enum):
    PLAIN = 1.0
    STRONG = 2.0


@dataclasses.dataclass
class Inner:
    temperature: float = 1.0


class Net(nn.Module):
    """A classifier whose forward looks at plain attributes of every kind."""

    gain = 1.0

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.25), nn.LayerNorm(8)
        )
        self.extra = nn.ModuleList()
        self.head = nn.Linear(8, 4)
        self.register_buffer("shift", torch.zeros(4))
        self.register_parameter("bias", None)
        self.scale = 1.0
        self.rounds = 1
        self.mode = "plain"
        self.doubled = False
        self.window = (1.0, 0.5)
        self.levels = [1.0, 0.5]
        self.table = {"gain": 1.0}
        self.config = types.SimpleNamespace(gain=1.0, inner=Inner())
        self.kind = Kind.PLAIN
        self.clip = None
        self._sharpness = 1.0

    @property
    def sharpness(self):
        return self._sharpness

    def forward(self, x):
        x = self.body(x)
        for block in self.extra:
            x = block(x)
        x = self.head(x)
        if self.shift is not None:
            x = x + self.shift
        if self.bias is not None:
            x = x + self.bias
        return self.shaped(x)

    def shaped(self, x):
        for _ in range(self.rounds):
            x = x * self.scale + 0.1
        if self.mode == "strong" or self.doubled:
            x = x * 2
        for level in self.levels:
            x = x * level
        x = x * self.window[0] * self.table["gain"] * self.gain * self.kind.value
        x = x * self.config.gain / self.config.inner.temperature * self.sharpness
        return x if self.clip is None else x.clamp(max=self.clip)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def classifier(optimize=sgd, prepare=None, parameters=None):
    """A program; prepare(program) may change it before the step is wrapped."""

    class Own(Net):
        """A class of this twin alone, which a test may patch."""

    model = Own()
    optimizer = optimize(list((parameters or Own.parameters)(model)))

    def train(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    program = Program(step=train, model=model, optimizer=optimizer)
    if prepare:
        prepare(program)
    return program


class Training:
    """Runs a program on fixed batches, edits it between calls, and enters a context at each call.

    before, around: (program) -> context manager, for the calls before EDIT and from there on
    """

    def __init__(self, make, edits=(), before=None, around=None):
        self.program = make()
        self.step = self.program.step
        self.edits = dict(edits)
        self.before = before
        self.around = around
        self.wrapped = None
        self.replayed_before = 0
        self.stack = contextlib.ExitStack()

    def batch(self, i):
        context = self.before if i < EDIT else self.around
        if context:
            self.stack.enter_context(context(self.program))
        return batch(i)

    def holds(self):
        return self.program.model, self.program.optimizer

    def after(self, i):
        self.stack.close()
        if i + 1 == EDIT and self.wrapped is not None:
            self.replayed_before = self.wrapped.stats["replayed"]
        for key in (i + 1, "each"):
            if key in self.edits:
                self.edits[key](self.program)

    def outcome(self, result):
        model = self.program.model
        gradients = [parameter.grad for parameter in model.parameters()]
        return bits([result, list(model.state_dict().values()), gradients])


@functools.cache
def outcomes_without_edits(make, before):
    with twins.Randomness():
        training = Training(make, before=before, around=before)
        outcomes = []
        for i in range(STEPS):
            outcomes.append(training.outcome(training.step(*training.batch(i))))
            training.after(i)
    return outcomes


def began_to_replay(training):
    assert training.replayed_before > 0, training.wrapped.explain()


def check(make, edit=None, *, before=None, around=None, matters=True, begins=True, share=0.9,
          **expected):
    """Compares two twins of which both are edited: edit(program) before call EDIT, or {call: edit}.

    before:  (program) -> context manager, entered around each call before EDIT
    around:  the same from EDIT on
    matters: whether results differ from those of a twin that is left alone; None where either
    begins:  whether the step must have replayed before the edit
    """
    edits = edit if isinstance(edit, dict) else {EDIT: edit} if edit else {}
    trainings, outcomes = [], []

    def make_training():
        training = Training(make, edits, before, around)
        if not trainings:  # the eager twin
            def step(*args):
                result = training.program.step(*args)
                outcomes.append(training.outcome(result))
                return result
            training.step = step
        trainings.append(training)
        return training

    def wrap(training, options):
        training.wrapped = steptape.wrap(training.step, **options)
        return training.wrapped

    try:
        step = twins.compare(make_training, STEPS, share=share, wrapper=wrap, **expected)
    finally:
        for training in trainings:
            training.stack.close()
    if begins:
        began_to_replay(trainings[1])
    if matters is not None:
        alone = outcomes_without_edits(make, before)
        assert (twins.first_difference(outcomes, alone) is not None) == matters
    return step


def named(table):
    """Parameters of a test out of {name: value}."""
    return pytest.mark.parametrize("case", [pytest.param(v, id=k) for k, v in table.items()])


def set_cell(function, name, value):
    index = function.__code__.co_freevars.index(name)
    function.__closure__[index].cell_contents = value


def get_cell(function, name):
    return function.__closure__[function.__code__.co_freevars.index(name)].cell_contents

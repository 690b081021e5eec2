"""What a step reaches on the host may change at any time, wherever it is kept and however it is read.

Each case trains two twins, changes one thing in both once the wrapped one replays, and compares every bit, the kinds
of all results and what is the same object as what. A third twin, which is left alone, shows that the change matters.
"""
import contextlib
import functools

import pytest
import torch
import torch.nn as nn

import steptape
import twins

STEPS = 45
EDIT = 20  # the call before which the one thing changes; the step replays long before it
SOON = 8  # calls after which a step replays again, where nothing changes any more


def rows(i, changed=False):
    return torch.full((3,), i % 7 + 0.5),


class Training:
    """A step, and what its program does between the calls.

    edit:    () -> None, called once before call EDIT, or {call: such a function}
    each:    (changed) -> None, called before each call: sets what both twins share
    around:  (changed) -> context manager, entered around each call
    batch:   (i, changed) -> arguments
    after:   (i) -> None, called after each call
    codes:   of these refusals at least one is met
    begins:  whether the step replays before it is edited; by default where no refusal is expected
    matters: whether a twin that is left alone comes to other results
    """

    left_alone = False

    def __init__(self, step, edit=None, *, each=None, around=None, batch=rows, after=None, holds=list, codes=None,
                 begins=None, matters=None):
        self.step, self.each, self.around, self.given, self.holds, self.codes = step, each, around, batch, holds, codes
        self.edits = edit if isinstance(edit, dict) else {EDIT: edit} if edit else {}
        self._after = after
        self.begins = codes is None if begins is None else begins
        varies = self.edits or each or around or after or batch is not rows
        self.matters = bool(varies) if matters is None else matters
        self.stack = contextlib.ExitStack()
        self.kinds, self.outcomes, self.replays = [], [], []

    def batch(self, i):
        changed = i >= EDIT and not self.left_alone
        if self.each:
            self.each(changed)
        if i in self.edits and not self.left_alone:
            self.edits[i]()
        arguments = self.given(i, changed)
        if self.around:
            self.stack.enter_context(self.around(changed))
        return arguments

    def after(self, i):
        self.stack.close()
        if self._after and not self.left_alone:
            self._after(i)

    def watched(self, function, replays=lambda: 0):
        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            self.kinds.append(twins.kinds([result, args, kwargs, self.holds()]))
            self.outcomes.append([twins.bits([result, self.holds()]), twins.kinds(result)])
            self.replays.append(replays())
            return result

        return call

    def has_begun(self, explain):
        """It replayed before the first edit, and before each that gives it the time to."""
        calls = sorted(self.edits) or ([EDIT] if self.each or self.around or self.given is not rows else [])
        since = 0
        for call in calls:
            if call - since >= SOON:
                count = self.replays[since - 1] if since else 0
                assert self.replays[call - 1] > count, f"no replay between calls {since} and {call}\n{explain()}"
            since = call
        assert self.replays[-1] > 0, explain()


def check(make):
    trainings = []

    def twin():
        training = make()
        trainings.append(training)
        if len(trainings) == 1:
            training.step = training.watched(training.step)
        return training

    def wrap(training, options):
        step = steptape.wrap(training.step, **options)
        return twins.Program(training.watched(step, lambda: step.stats["replayed"]), step)

    try:
        step = twins.compare(twin, STEPS, wrapper=wrap, codes=make().codes)
        eager, wrapped = trainings
        for i, (one, other) in enumerate(zip(eager.kinds, wrapped.kinds)):
            assert one == other, f"call {i}\n{step.explain()}"
        if wrapped.begins:
            wrapped.has_begun(step.explain)
        if wrapped.matters:
            with twins.Randomness():
                alone = make()
                trainings.append(alone)
                alone.left_alone = True
                function = alone.watched(alone.step)
                for i in range(STEPS):
                    twins.call(function, alone.batch(i))
                    alone.after(i)
            assert alone.outcomes != eager.outcomes
    finally:
        for training in trainings:
            training.stack.close()
            if training.each:
                training.each(False)


class Table(dict):
    """Cases by name."""

    def __call__(self, case):
        assert case.__name__ not in self
        self[case.__name__] = case
        return case

    def each(self, test):
        return pytest.mark.parametrize("case", self.values(), ids=self.keys())(test)


class Value:
    def __init__(self, value=1.0):
        self.value = value


def regression(optimize=functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)):
    model = nn.Linear(3, 3)
    optimizer = optimize(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = (model(x / 10)).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, optimizer, step


def global_setter(names, name, before=1.0, after=4.0):
    """`each` of a Training: sets a global of the file whose names these are."""
    def each(changed):
        names[name] = after if changed else before

    return each


class OwnDict(dict):
    """A dict that may have attributes."""

"""Recording of a training loop without replaying it."""
import os
import sys

import torch

from . import _engine
from ._effects import Effects
from ._errors import FailedPrecondition, InvalidArgument
from ._probe import Looking
from ._find import find
from ._tracking import Models, Optimizers, given, track


class record:
    """Records the first steps of a loop to a trace file, as torch.profiler profiles them; replays nothing.

        with steptape.record("run.tape", model=model, optimizer=optimizer, steps=3) as r:
            for x, y in loader:
                train_step(x, y)
                r.step()

    path:  the trace file, written when the block is left or the last of the `steps` has been recorded.
    model, optimizer: what the steps train: one object, a list, or a dict by name.
    steps: how many steps are recorded; what runs between two calls of `step` is one.
    name:  of the step in the trace.   state: whether parameters and optimizer state go into the file.
    digests: whether it is written down what each op left, so that two traces can be compared by it.
    timings: whether it is written down how long each op took.

    Raises InvalidArgument; IoError from `step` or at the end of the block when the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike, *, model: Models = None, optimizer: Optimizers = None,
                 steps: int = 3, name: str = "step", state: bool = True, digests: bool = False,
                 timings: bool = False):
        if type(steps) is not int or steps < 1:
            raise InvalidArgument(f"record: steps is {steps!r}; it must be an int of at least 1")
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"record: name is {name!r}; it must be a str that is not empty")
        self.path = os.fspath(path)
        self.steps = steps
        self.recorded = 0
        self._state = bool(state)
        self._digests, self._timings = bool(digests), bool(timings)
        self._given = [*given(model, "model", torch.nn.Module),
                       *given(optimizer, "optimizer", torch.optim.Optimizer)]
        self._name = name
        self._looking = None

    def __enter__(self):
        caller = sys._getframe(1)
        place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        self._engine = _engine.Recorder(self._name, place, self._digests, self._timings)
        _, optimizers, *_ = self._kept = track(self._engine, find(lambda: None, self._given))
        self._effects = Effects(does_again=False)
        self._looking = Looking(self._engine, self._effects, optimizers)
        self._is_open = False
        self._begin()
        return self

    def step(self) -> None:
        """Ends the step that is being recorded and begins the next; does nothing once all are recorded."""
        if self._looking is None:
            raise FailedPrecondition("record: step() was called outside the block")
        if not self._is_open:
            return
        self._end()
        if self.recorded < self.steps:
            self._begin()
        else:
            self._engine.write(self.path, self._state)

    def refusals(self) -> list[str]:
        """Why the recorded steps could not be replayed, one sentence each."""
        return list(dict.fromkeys(self._engine.refusals()))

    def _begin(self):
        self._engine.begin()
        self._effects.enter(self._engine)
        self._looking.__enter__()
        try:
            self._is_watched = self._engine.begin_numbers()
        except FailedPrecondition as error:
            self._is_watched = False
            _engine.refuse("host_effect", f"numbers and calls of modules cannot be watched: {error}", "")
        self._is_open = True

    def _end(self):
        self._is_open = False
        if self._is_watched:
            self._engine.end_watch()
        self._looking.__exit__(None, None, None)
        self._effects.leave(self._engine)
        if self._engine.end() > 0:
            self.recorded += 1

    def __exit__(self, kind, value, trace):
        was_open = self._is_open
        if was_open:
            self._end()
        self._looking = None
        if was_open and kind is None:
            self._engine.write(self.path, self._state)

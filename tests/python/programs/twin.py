"""Runs one program as twins, the one eagerly and the other wrapped, and compares them after every call."""
import contextlib
import importlib
import os
import pathlib
import random
import sys
import traceback
import warnings

import numpy as np
import torch

import steptape

from . import wrapping
from .snapshot import Snapshot, first_difference
from .write import CALLS, NAMES

MODULES = ("program", "trainkit", *NAMES)  # of a program's own, in each twin anew
SEED = 20261121
LOADED_CALLS = 6
ON_DEVICE = os.environ.get("STEPTAPE_PROGRAMS_DEVICE") == "cuda"  # the programs' tensors lie there


def lay_out(text, folder):
    """Writes the program's files."""
    if ON_DEVICE:
        text = text.replace("torch.Generator()", "torch.Generator('cuda')")
    main, *others = text.split("\n# file: ")
    files = {"program.py": main}
    for other in others:
        name, content = other.split("\n", 1)
        files[name] = content
    for name, content in files.items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


class Twin:
    """One of two copies of a program, with random streams and modules of its own."""

    def __init__(self, folder, wraps):
        self.modules, self.folder = {}, folder
        self.made = []
        self._seed()
        with self, self._wrapping(wraps):
            self.program = importlib.import_module("program")

    def _seed(self):
        torch.manual_seed(SEED)
        random.seed(SEED)
        np.random.seed(SEED)
        self._keep()

    def _keep(self):
        self.random = torch.get_rng_state(), random.getstate(), np.random.get_state(), torch.cuda.get_rng_state() if ON_DEVICE else None

    @contextlib.contextmanager
    def _wrapping(self, wraps):
        wrapping.Mode.wraps, wrapping.Mode.made = wraps, self.made
        sys.path[:0] = [self.folder, f"{self.folder}/site-packages"]
        writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            yield
        finally:
            del sys.path[:2]
            sys.dont_write_bytecode = writes
            wrapping.Mode.wraps = False

    def __enter__(self):
        torch.set_rng_state(self.random[0])
        random.setstate(self.random[1])
        np.random.set_state(self.random[2])
        if ON_DEVICE:
            torch.cuda.set_rng_state(self.random[3])
        sys.modules.update(self.modules)

    def __exit__(self, *_):
        self._keep()
        self.modules.update({name: sys.modules.pop(name) for name in MODULES if name in sys.modules})

    def call(self, i):
        """What call i leaves: (result or exception, arguments, warnings, all that the program holds)."""
        with self:
            self.program.between(i)
            arguments, keywords = self.program.arguments(i)
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                try:
                    result = self.program.step(*arguments, **keywords)
                except steptape.Error:
                    raise
                except Exception as error:
                    result = ("raised", type(error).__name__, str(error))
                    self.error = error
            snapshot = Snapshot(self.modules.keys() | set(MODULES), self._plain)
            left = [snapshot(result), snapshot([arguments, keywords])]
            held = [(name, snapshot(sys.modules[name])) for name in MODULES if name in sys.modules]
        raised = isinstance(result, tuple) and len(result) == 3 and result[0] == "raised"
        return {"result": left[0], "arguments": left[1], "held": held, "random": self._random_bits()}, raised, {
            str(w.message) for w in warned}

    def _random_bits(self):
        name, keys, *rest = self.random[2]
        device = self.random[3]
        return [self.random[0].numpy().tobytes(), self.random[1], (name, keys.tobytes(), *rest), device is not None and device.numpy().tobytes()]

    def _plain(self, value):
        while isinstance(value, steptape._step.Step):
            value = value.__wrapped__
        return value

    @property
    def steps(self):
        found = {id(step): step for step in self.made}
        for holder in (self.program, getattr(self.program, "trainer", None)):
            bound = getattr(holder, "__dict__", {}).get(steptape._step._BOUND, {})
            for step in (getattr(holder, "step", None), *(step for step, _ in bound.values())):
                if isinstance(step, steptape._step.Step):
                    found.setdefault(id(step), step)
        return list(found.values())


def run(text, folder):
    """The outcome of a program: a dict with `outcome` and what belongs to it.

    replayed: equal, and it replayed; refused: equal, and it did not; differs; raises: the wrapped twin alone;
    broken: the program cannot be made, or raises in every call of the eager twin, so that it tells nothing.
    """
    lay_out(text, folder)
    try:
        eager = Twin(folder, False)
    except Exception:
        return {"outcome": "broken", "what": traceback.format_exc(limit=-2)}
    try:
        wrapped = Twin(folder, True)
    except Exception:
        return {"outcome": "raises", "what": traceback.format_exc(limit=-2), "call": -1}
    failures = 0
    for i in range(getattr(eager.program, "CALLS", CALLS)):
        try:
            expected, raised, _ = eager.call(i)
        except Exception:
            return {"outcome": "broken", "what": traceback.format_exc(limit=-2), "call": i}
        failures += raised
        before = _counts(wrapped)["replayed"]
        try:
            seen, _, warned = wrapped.call(i)
        except Exception:
            return {"outcome": "raises", "what": traceback.format_exc(limit=-2), "call": i, **_counts(wrapped)}
        for part in expected:
            if found := first_difference(expected[part], seen[part], part):
                return {"outcome": "differs", "what": found, "call": i, **_counts(wrapped)}
    if failures == i + 1:
        return {"outcome": "broken", "what": f"raises in every call: {eager.error!r}"}
    counts = _counts(wrapped)
    if not counts["replayed"]:
        return {"outcome": "refused", **counts}
    if counts["replayed"] == before:  # no plan is of what the program holds now
        return {"outcome": "replayed", **counts}
    goes_on = _loaded(eager, wrapped, i + 1, folder)
    return {"outcome": "differs" if goes_on.get("what") else "replayed", **goes_on, **counts}


def _loaded(eager, wrapped, first, folder):
    """What becomes of the step in a process that has its trace alone, where the program changes nothing any more:
    `loaded` says how many calls went as the eager ones did, `what` the first difference."""
    if len(wrapped.steps) != 1:
        return {}
    try:
        with wrapped:
            wrapped.steps[0].save(f"{folder}/run.tape")
            player = steptape.load(f"{folder}/run.tape")
            step = player[wrapped.steps[0].name]
        for i in range(first, first + LOADED_CALLS):
            with eager:
                arguments, keywords = eager.program.arguments(i)
                if keywords or not all(type(x) is torch.Tensor for x in arguments):
                    return {}  # what they are called there is the trace's to say
                seen = _leaves(step(*arguments))
                expected = _leaves(eager.program.step(*eager.program.arguments(i)[0]))
            if seen != expected:
                return {"what": f"loaded: {seen} for {expected}", "call": i}
    except steptape.Error:
        return {"loaded": 0}  # it says why it does not play on
    return {"loaded": LOADED_CALLS}


def _leaves(value):
    """The tensors and numbers in a result, in order."""
    if isinstance(value, torch.Tensor):
        return [(str(value.dtype), repr(value.detach().tolist()))]  # as text, NaN is equal to itself
    if isinstance(value, (bool, int, float)):
        return [(type(value).__name__, repr(value))]
    inner = value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, dict) else getattr(value, "__dict__", {}).values()
    return [leaf for item in inner for leaf in _leaves(item)]


def _counts(twin):
    stats = [step.stats for step in twin.steps]
    return {"replayed": sum(s["replayed"] for s in stats), "calls": sum(s["steps"] for s in stats),
            "codes": sorted({r["code"] for s in stats for r in s["refusals"]}),
            "reasons": sorted({r["reason"] for s in stats for r in s["refusals"]})}

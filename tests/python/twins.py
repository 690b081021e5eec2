"""Trains two twins from one seed, one eagerly and one through Steptape, and compares every bit.

A *training* is any object with

    step(*args, **kwargs)   the step function, as its user writes it
    batch(i)                the arguments of call i: a tuple, or (tuple, dict)
    holds()                 what must be equal afterwards: modules, optimizers, tensors, numbers, nested
    after(i)                optional: what the program does between two steps (a scheduler, an edit)

What the counts of a step say, how its calls went and by which names it was refused, is judged here, too, and what stands around a program:
the command `steptape`, by which tests look into traces, and installed packages.
"""
import importlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import torch

import steptape

OUTCOMES = ("recorded", "trials", "replayed", "eager", "audits")  # each call counts as one of them
SEED = 20261121
PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(steptape.__file__)))  # where other processes import it from
TOOL = os.environ.get("STEPTAPE_TOOL", "")
needs_tool = pytest.mark.skipif(not os.access(TOOL, os.X_OK), reason="STEPTAPE_TOOL names no built `steptape`")


def free_calls(stats):
    """How many calls neither recorded nor verified: those that may replay."""
    return stats["steps"] - stats["recorded"] - stats["trials"] - stats["audits"]


def codes_of(step):
    """The names by which the step was refused."""
    return {refusal["code"] for refusal in step.stats["refusals"]}


def has_replayed(step):
    assert step.stats["replayed"] > 0, step.explain()


def replays_as_a_rule(step):
    """At least once, and in nearly all free calls."""
    stats = step.stats
    assert stats["replayed"] >= max(1, 0.9 * free_calls(stats)), step.explain()


def is_refused(step, codes):
    assert codes_of(step) & set(codes), step.explain()
    assert all(r["remedy"] for r in step.stats["refusals"])


RECORDED = "recorded"  # each call: what it is given is another one each time


def is_as_pinned(step, outcome=None):
    """None: replays as a rule; RECORDED; else the name by which the step is refused."""
    if outcome is None:
        replays_as_a_rule(step)
    elif outcome == RECORDED:
        assert step.stats["replayed"] == 0 and not step.stats["refusals"], step.explain()
    else:
        is_refused(step, {outcome})


def played_alike(play):
    """`play(wrap)` gives what is to be compared, and the step last: alike without Steptape and with it. Gives the wrapped step."""
    *expected, _ = play(lambda function: function)
    *seen, step = play(lambda function: steptape.wrap(function, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    return step


def bits(value):
    """A value in a form that compares by bits: tensors by dtype, shape and bytes."""
    if isinstance(value, torch.nn.Module):
        return {
            "state": bits(dict(value.state_dict())),
            "grads": {n: bits(p.grad) for n, p in value.named_parameters()},
            "training": {n: m.training for n, m in value.named_modules()},
        }
    if isinstance(value, (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)):
        return bits(value.state_dict())
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        if plain.layout != torch.strided:
            return ("sparse", bits(plain.to_dense()))
        # a copy that is dense in memory, whatever strides, conjugation or zeros the tensor is made of
        flat = torch.empty(plain.numel(), dtype=plain.dtype, device="cpu")
        flat.view(plain.shape).copy_(plain)
        return (str(plain.dtype), tuple(plain.shape), flat.view(torch.uint8).numpy().tobytes())
    if isinstance(value, float):
        return value.hex() if value == value else "nan"
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, dict):
        return {k: bits(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits(v) for v in value]
    if hasattr(value, "__dict__") and not callable(value):
        return {k: bits(v) for k, v in vars(value).items()}
    return value


def first_difference(a, b, path=""):
    """The path of the first place where two results of `bits` differ, or None."""
    if type(a) is not type(b):
        return f"{path}: {type(a).__name__} against {type(b).__name__}"
    if isinstance(a, dict):
        if list(a) != list(b):
            return f"{path}: keys {list(a)} against {list(b)}"
        return next(filter(None, (first_difference(a[k], b[k], f"{path}.{k}") for k in a)), None)
    if isinstance(a, list):
        if len(a) != len(b):
            return f"{path}: {len(a)} items against {len(b)}"
        return next(filter(None, (first_difference(x, y, f"{path}[{i}]")
                                  for i, (x, y) in enumerate(zip(a, b)))), None)
    if a == b:
        return None
    return path if isinstance(a, (bytes, tuple)) else f"{path}: {a!r} against {b!r}"


def kinds(value, seen=None):
    """The types of nested values; a list, a dict or a tensor that was met before is given by its number."""
    seen = {} if seen is None else seen
    if isinstance(value, (list, dict, torch.Tensor)):
        if id(value) in seen:
            return "same as", seen[id(value)]
        seen[id(value)] = len(seen)
    name = type(value).__name__
    if isinstance(value, dict):
        return name, [(type(k).__name__, kinds(v, seen)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return name, [kinds(v, seen) for v in value]
    return name


class Randomness:
    """The random state of one twin: both draw the same numbers, each from a stream of its own."""

    def __init__(self):
        torch.manual_seed(SEED)
        random.seed(SEED)
        np.random.seed(SEED)
        self.keep()

    def keep(self):
        self.state = (torch.get_rng_state(), random.getstate(), np.random.get_state())

    def __enter__(self):
        torch.set_rng_state(self.state[0])
        random.setstate(self.state[1])
        np.random.set_state(self.state[2])

    def __exit__(self, *_):
        self.keep()


def call(function, arguments):
    if len(arguments) == 2 and isinstance(arguments[1], dict) and isinstance(arguments[0], tuple):
        return function(*arguments[0], **arguments[1])
    return function(*arguments)


def compare(make, steps=50, *, share=None, codes=None, wrapper=None, **options):
    """Runs both twins and raises AssertionError at the first bit that differs.

    make:    () -> training; called once for each twin, under the same seed
    share:   at least this share of the calls that neither record nor verify must replay
    codes:   refusal codes of which at least one must have been met (a set of names)
    wrapper: (training, options) -> the wrapped step; default steptape.wrap(training.step, **options)
    Returns the wrapped step, for stats and explain().
    """
    randomness = [Randomness(), Randomness()]
    twins = []
    for state in randomness:
        with state:
            twins.append(make())
    eager, wrapped = twins
    options.setdefault("audit_seed", 1)
    step = (wrapper or (lambda t, o: steptape.wrap(t.step, **o)))(wrapped, options)
    for i in range(steps):
        seen = []
        for state, training, function in zip(randomness, twins, (eager.step, step)):
            with state:
                arguments = training.batch(i)
                try:
                    result = call(function, arguments)
                except steptape.Error:
                    raise
                except Exception as error:  # the step's own: both twins must throw it
                    result = (type(error).__name__, str(error))
                seen.append(bits([result, list(arguments), training.holds()]))
                if hasattr(training, "after"):
                    training.after(i)
        randomness_now = [[bits(s.state[0]), s.state[1], bits(list(s.state[2]))] for s in randomness]
        difference = first_difference(seen[0], seen[1]) or first_difference(*randomness_now, "random")
        assert difference is None, f"call {i}: {difference}\n{step.explain()}"
    stats = step.stats
    assert stats["steps"] == sum(stats[o] for o in OUTCOMES), stats
    if codes is not None:
        met = codes_of(step)
        assert met & set(codes), f"refused for {met}, expected one of {codes}\n{step.explain()}"
    if share is not None:
        free = free_calls(stats)
        assert free > 0 and stats["replayed"] >= share * free, step.explain()
    return step


class Program:
    """The body of a loop over wrapped steps; their counts added up."""

    def __init__(self, body, *steps):
        self.body, self.steps = body, steps

    def __call__(self, *args, **kwargs):
        return self.body(*args, **kwargs)

    @property
    def stats(self):
        parts = [step.stats for step in self.steps]
        return {c: sum(p[c] for p in parts) for c in ("steps", *OUTCOMES)} | {
            "refusals": [r for p in parts for r in p["refusals"]],
            "variants": [v for p in parts for v in p["variants"]]}

    def explain(self):
        return "\n".join(step.explain() for step in self.steps)


def tool(*arguments, statuses=(0,), folder=None):
    """A finished run of the command, in a folder, that ended with one of the statuses; what it wrote is text."""
    done = subprocess.run([TOOL, *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in statuses, done.stderr
    return done


def dumped(path):
    """A trace file, as `steptape dump --json` shows it."""
    return json.loads(tool("dump", path, "--json").stdout)


def package(name, source):
    """A new import of a package `name` of this source, from a folder that ends as those of installed packages do."""
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root, "site-packages")
        folder.mkdir()
        (folder / f"{name}.py").write_text(source)
        sys.modules.pop(name, None)
        sys.path.insert(0, str(folder))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(folder))


def compare_through(make, through, steps=50, **expected):
    """Compares twins that the program calls by `through(step)`, and not directly; returns the step."""
    def make_called():
        training = make()
        training.inner, training.step = training.step, through(training.step)
        return training

    def wrapper(training, options):
        step = steptape.wrap(training.inner, **options)
        return Program(through(step), step)

    program = compare(make_called, steps, wrapper=wrapper, **expected)
    return program.steps[0]

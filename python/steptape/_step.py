"""The wrapped step."""
import copy
import functools
import inspect
import os
import sys
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch

from . import _engine
from ._effects import Effects
from ._errors import InvalidArgument, NotReplayed
from ._find import find, objects_in
from ._probe import make_probe
from ._tracking import Models, Optimizers, given, track

_OPTIONS = {"determinism": "listed", "on_refusal": "eager", "on_divergence": "raise", "host_reads": "refuse",
            "max_variants": 64, "static_gradients": False, "trace": None, "audit_seed": 0, "verify": True, "log": None,
            "ledger": True, "digests": False, "timings": False, "resume": False, "record": None}

_RECORD = {"first": 0, "every": 0, "at": (), "on_nonfinite": False, "on_signal": 0, "state": False}

_MOST_BEGINNINGS = 8
_MOST_NEWS = 16
_ASKED_AT = 16, 64

_LONG = 16  # calls, after which a step has repaid what recording it has cost
_MOST_LOST = 10  # calls of steps that were not called so often, before it is said


class _Made:
    """Steps that were made of one function, or of others with its code."""
    times = 0
    calls = 0  # of those that were not called often
    has_long = False  # one was
    has_warned = False


_made = weakref.WeakKeyDictionary()  # by code

_CHOICES = {"determinism": ("listed", "strict"), "on_refusal": ("eager", "raise"),
            "on_divergence": ("raise", "report", "restore"), "host_reads": ("refuse", "observe")}


_BOUND = "__steptape_steps__"


class _Bound(dict):
    """The steps that are bound to an instance, which holds them; a copy of the instance has none yet."""
    instance = staticmethod(lambda: None)  # a weak reference to it

    def __copy__(self):
        return _Bound()

    def __deepcopy__(self, memo):
        return _Bound()

    def __reduce__(self):
        return _Bound, ()


class _InTurn:
    """How often something happened without a replay between."""

    def __init__(self):
        self.times = self._replayed = 0

    def count(self, replayed):
        self.times = self.times + 1 if replayed == self._replayed else 1
        self._replayed = replayed
        return self.times


class Step:
    """A wrapped step function: called like the function itself, with the same results, bit for bit.

    The first calls run the function and are recorded; then a plan is made, tried once against the
    function, and replayed while its guards hold. A replay does not run the function.
    """

    def __init__(self, function: Callable, *, model: Models = None, optimizer: Optimizers = None,
                 name: str | None = None, **options: Any):
        _check_function(function)
        functools.update_wrapper(self, function, updated=())
        self.__wrapped__ = function
        self.name = _name_of(function) if name is None else name
        if not isinstance(self.name, str) or not self.name:
            raise InvalidArgument(f"wrap: name is {name!r}; it must be a str that is not empty")
        if any("\ud800" <= c <= "\udfff" for c in self.name):
            raise InvalidArgument(f"wrap: name is {name!r}; it must be text that UTF-8 can write")
        self._given = [*given(model, "model", torch.nn.Module),
                       *given(optimizer, "optimizer", torch.optim.Optimizer)]
        self._options = _checked(options)
        self._engine = _engine.Step(self._options)
        self._kept = None  # what is tracked, which the engine points at
        self._met = {}  # by id: (name, object) of what probes have met
        self._effects = Effects()
        self._news = _InTurn()  # because places were seen to move
        self._newest = []  # of these places
        self._has_warned = False
        self._asked = 0  # early calls, after some of which it is asked whether any replay
        self._beginnings = _InTurn()  # because objects had come or gone
        self._newcomers = []  # those of the newest call that was refused for them
        self._call = self._first_call
        self._of_slots = {}  # by the id of an instance, which they keep alive
        self._bound = weakref.WeakSet()  # the steps of instances, of one that was made of a method in its class
        self._code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
        self._made = _Made() if self._code is None else _made.setdefault(self._code, _Made())
        self._made.times += 1
        # what the program keeps at its function, which is called by this name from here on
        vars(self).update({name: value for name, value in getattr(function, "__dict__", {}).items()
                           if name not in vars(self) and not hasattr(type(self), name)})
        self._warn_of_loop()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def _first_call(self, *args, **kwargs):
        if not self._engine.is_inside():  # another call of this step's
            if self._kept is None:
                self._made.calls += 1
            self._prepare(args, kwargs)
            self._call = self._engine if self._asked > _ASKED_AT[-1] else self._early_call
        return self._engine(*args, **kwargs)

    def _early_call(self, *args, **kwargs):
        self._asked += 1
        self._made.calls += 1
        self._made.has_long |= self._asked >= _LONG
        if self._asked in _ASKED_AT:
            self._warn()
        if self._asked > _ASKED_AT[-1]:
            self._call = self._engine
        return self._engine(*args, **kwargs)

    def _warn(self):
        """Where most calls so far were not replayed; of a young step, that is refused, since others may settle yet."""
        stats = self.stats
        if self._asked == _ASKED_AT[0]:
            is_settled = stats["replayed"] or not stats["refusals"]
        else:
            is_settled = stats["replayed"] > stats["steps"] // 2
        if not is_settled and not self._has_warned:
            self._has_warned = True
            self._say(f'{stats["replayed"]} of {stats["steps"]} calls were replayed, {stats["recorded"]} recorded, '
                      f'{stats["eager"]} run eagerly: {self._why(stats)}; explain() of the step says more')

    def _warn_of_loop(self):
        """Where steps are made of one function over and over, and each is called a few times."""
        made = self._made
        if made.times > 3 and made.calls > _MOST_LOST and not made.has_long and not made.has_warned:
            made.has_warned = True
            self._say(f"{made.times} steps were made of this function, and none before was called {_LONG} times, while each records "
                      "its first calls anew: wrap it once, outside of the loop")

    def _say(self, text):
        if self._options.get("log") == "none":
            return
        code = self._code
        # by a registry of its own: those of modules are the program's
        warnings.warn_explicit(f'step "{self.name}": {text}', NotReplayed, code.co_filename if code else "<step>",
                               code.co_firstlineno if code else 1, registry={})

    def _why(self, stats):
        if stats["refusals"]:
            refusal = max(stats["refusals"], key=lambda refusal: refusal["times"])
            place = f' [{os.path.basename(refusal["file"])}:{refusal["line"]}]' if refusal["file"] else ""
            return f'{refusal["code"]}: {refusal["reason"]}{place}' + (f'; {refusal["remedy"]}' if refusal["remedy"] else "")
        if self._news.times > 1:
            return f"what it reads is another in each call: {_some(self._newest)}"
        return f'each call differs from those before: {stats["last_verdict"] or "another stream of ops"}; pad inputs to few shapes'

    def _prepare(self, args, kwargs):
        """Tracks what the step uses, as far as that is known; no step is under way."""
        engine = self._engine
        brought = [found for argument in self._named(args, kwargs) for found in objects_in(*argument)]
        engine.untrack()
        for kept in self._kept or ():
            kept.clear()
        engine.drop_released(self._met)
        found = find(self.__wrapped__, [*self._given, *self._met.values(), *brought])
        models, optimizers, hosts, generators = track(engine, found)
        for name, value in hosts.items():
            engine.add_host_value(name, value.function)
        engine.declare_moving()
        run = _with_host_values(self.__wrapped__, engine, hosts) if hosts else self.__wrapped__
        # all that the engine points at lives until the step begins anew
        self._kept = (models, optimizers, hosts, generators)
        probe = make_probe(engine, optimizers, self._effects, self._roots, self._meet)
        engine.bind(self.name, _place_of(self.__wrapped__), run, probe, *_taken_by(self.__wrapped__))
        if found.compiled is not None:
            engine.refuse_always("unreplayable_op",
                                 f"{found.compiled}, whose kernels no op shows",
                                 _place_of(self.__wrapped__))

    def _named(self, args, kwargs):
        return [*((f"arg{i}", value) for i, value in enumerate(args)), *kwargs.items()]

    def _roots(self, args, kwargs):
        """What a call begins with, each as (path, object); containers among the arguments are compared as a whole."""
        return [(getattr(self.__wrapped__, "__name__", "step"), self.__wrapped__),
                *(found for argument in self._named(args, kwargs) for found in objects_in(*argument))]

    def _meet(self, objects, is_known):
        """A probe met objects that were not tracked, or tensors if not `is_known`: the next call begins anew with them.
        Gives whether it does."""
        if news := self._engine.take_news():
            self._newest = news
            if self._news.count(self.stats["replayed"]) == _MOST_NEWS:  # each call makes places of its own, such as another dict: what it does there is refused
                self._engine.close_moving()
            self._engine.invalidate(f"what the step reads is another in each call, and followed from here on: {_some(news)}")
            self._call = self._first_call
            return True
        known = [*self._kept[2].values(), *self._kept[3].values()]
        new = [(path, value) for path, value in objects if not any(value is other for other in known)]
        if not new and is_known:
            return False
        if self._beginnings.count(self.stats["replayed"]) > _MOST_BEGINNINGS:
            is_again = new and [id(value) for _, value in new] == [id(value) for _, value in self._newcomers]
            self._newcomers = new
            if not is_again:
                if new:
                    _engine.refuse("host_effect", f"the step uses another module, optimizer or generator in each call, as `{new[0][0]}`", "")
                return False
        if new:
            self._met.update({id(value): (path, value) for path, value in new})
            self._engine.invalidate("the step uses objects that were not tracked")
            self._call = self._first_call
        return True

    @property
    def stats(self) -> dict[str, Any]:
        """Counts by outcome, plans, and refusals, as a dict.

        `steps` calls in all, each in exactly one of `recorded`, `trials`, `audits`, `replayed` and
        `eager`; `variants`, a dict a plan (number, ops, calls, prepared, stages, unprepared, replays,
        arena_bytes, temporary_bytes, max_live_bytes, plan_us, warm_start, lacks_blas, device), where
        `unprepared` counts calls that no kernel does by operator and reason, `lacks_blas` tells that
        products go without one, and `device` is None or, of graphs on a GPU, a dict (graphs,
        nodes, updated, ahead, between, captures, captured_for, capture_us, launch_us, pool_bytes,
        static_bytes, copies) as `explain()` tells it; `refusals`, a list of dicts (code, reason, op, module, file,
        line, remedy, times); `fell_back`, calls that no plan fitted though there were some; `fallbacks`, a
        dict a guard that they fell back for (kind, path, expected, found, last_held, text, times);
        `last_verdict`, why the newest call that did not replay found no plan, or None; `last_verdicts`,
        the same of each variant (variant, kind, ...); `trace_problem`, `ledger_problem` and
        `log_problem`, why these files could not be written, or "".
        """
        return self._engine.stats()

    def explain(self) -> str:
        """The same for a person, with the lines of the program that stand in the way of a replay."""
        if self._kept is None and len(self._bound):
            return "".join(step.explain() for step in self._bound)
        if self._kept is None:
            return f'step "{self.name}" ({os.path.basename(_place_of(self.__wrapped__))}): 0 calls\n'
        lines, stats = self._engine.explain().splitlines(), self.stats
        if self._news.times > 1 and not stats["replayed"]:
            lines.append(f"  begun anew {self._news.times} times, as what it reads is another in each call; the last time: {_some(self._newest)}")
        # the count is gone with the first of equal codes, as where the cell of a notebook runs again
        if self._made.times > 2 and not stats["replayed"]:
            lines.append(f"  note: this function was wrapped {self._made.times} times, and each time is recorded anew: "
                         "wrap it once, outside of the loop")
        return "\n".join(map(_engine.on_one_line, lines)) + "\n"

    def save(self, path: str | os.PathLike, state: bool = True) -> None:
        """Writes the trace to `path`, atomically; with the bytes of parameters, module buffers, optimizer
        state and generators if `state`. Raises IoError, or FailedPrecondition before the first call."""
        if self._kept is None:
            from ._errors import FailedPrecondition
            raise FailedPrecondition(f'step "{self.name}" was not called yet: there is nothing to save')
        self._engine.save(os.fspath(path), bool(state))

    def invalidate(self, why: str) -> None:
        """Drops all plans; the next calls are recorded again. `why` appears in the engine's report."""
        if self._kept is not None:
            self._engine.invalidate(str(why))
            self._call = self._first_call

    def __get__(self, instance, owner=None):
        """A step that was made of a method in its class: bound to an instance, it is a step of its own."""
        if instance is None:
            return self
        steps = self._steps_of(instance)
        if id(self) not in steps:
            bound = Step.__new__(Step)
            bound.__init__(self.__wrapped__.__get__(instance, owner), name=self.name, **self._original)
            steps[id(self)] = bound, self
            self._bound.add(bound)
        return steps[id(self)][0]

    def _steps_of(self, instance):
        held = getattr(instance, "__dict__", None)
        if held is None or not type(instance).__weakrefoffset__:  # with nothing that could hold them, they live as long as this
            return self._of_slots.setdefault(id(instance), _Bound())
        if _BOUND not in held or held[_BOUND].instance() is not instance:  # of one whose attributes it was given
            bound = _Bound()
            bound.instance = weakref.ref(instance)
            setattr(instance, _BOUND, bound) if isinstance(instance, type) else held.update({_BOUND: bound})
        return held[_BOUND]

    @property
    def _original(self):
        options = {k: v for k, v in self._options.items() if k in _OPTIONS}
        options["verify"] = {"first": self._options["verify_first"], "rate": self._options["verify_rate"]}
        options["trace"] = self._options["trace"] or None
        options["log"] = self._options["log"] or None
        return options

    def __copy__(self):
        return self  # as a function is its own copy

    def __deepcopy__(self, memo):
        was = self.__wrapped__
        function = copy.deepcopy(was, memo)
        is_same = function is was or (isinstance(was, types.MethodType) and function.__self__ is was.__self__)
        # what the copied object holds may have been this step
        return self if is_same else memo.get(id(self)) or _again(function, copy.deepcopy(self._given, memo), *self._beside)

    def __reduce__(self):
        if _found_at(self.__module__, self.__qualname__) is self:
            return self.__qualname__
        return _again, (self.__wrapped__, self._given, *self._beside)

    @property
    def _beside(self):
        """Name and options of a copy, which has no plans yet and keeps no trace: that is this step's file."""
        return self.name, {k: v for k, v in self._original.items() if k not in ("trace", "record", "resume")}

    def __repr__(self):
        return f"<steptape step {self.name!r}>"


def _again(function, objects, name, options):
    """A step of a copy's function, and of copies of the (name, object) that this one was given."""
    models, optimizers = ({n: o for n, o in objects if isinstance(o, kind)} for kind in (torch.nn.Module, torch.optim.Optimizer))
    step = Step(function, model=models or None, optimizer=optimizers or None, name=name, **options)
    step._made.times -= 1  # the program has wrapped it no more often
    return step


def _found_at(module, path):
    found = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _with_host_values(function, engine, hosts):
    """The function, with the host values of this call in place while it runs."""
    @functools.wraps(function)
    def run(*args, **kwargs):
        for name, value in hosts.items():
            value._values.append((engine, name))
        try:
            return function(*args, **kwargs)
        finally:
            for value in hosts.values():
                value._values.pop()
    return run


def _check_function(function):
    if not callable(function):
        raise InvalidArgument(f"wrap: a {type(function).__name__} is not callable; give the step's function")
    if isinstance(function, Step):
        raise InvalidArgument(f'wrap: "{function.name}" is wrapped already')
    inner = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    called = inner if inspect.isroutine(inner) else getattr(type(inner), "__call__", inner)
    for kind, test in (("a generator function", inspect.isgeneratorfunction),
                       ("a coroutine function", inspect.iscoroutinefunction),
                       ("an asynchronous generator function", inspect.isasyncgenfunction)):
        if test(inner) or test(called):
            raise InvalidArgument(f"wrap: {_name_of(function)} is {kind}; a step runs from call to return")


def _name_of(function):
    function = getattr(function, "func", function)
    return getattr(function, "__name__", None) or type(function).__name__


def _place_of(function):
    """Where a function is defined."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    function = getattr(function, "func", function)
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else type(function).__qualname__


def _taken_by(function):
    """Whether it takes keywords as a dict, whose order it can see; and the names of what it takes by position."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True, []
    return (any(p.kind is p.VAR_KEYWORD for p in parameters),
            [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])


def _checked(options):
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise InvalidArgument(f"wrap: there is no option {', '.join(map(repr, unknown))}; options are "
                              f"model, optimizer, name, {', '.join(_OPTIONS)}")
    options = {**_OPTIONS, **options}
    verify = options.pop("verify")
    if isinstance(verify, bool):
        verify = {"first": verify, "rate": 1 / 1000 if verify else 0.0}
    if not isinstance(verify, dict) or set(verify) - {"first", "rate"}:
        raise InvalidArgument('wrap: verify is True, False, or {"first": bool, "rate": float}')
    options["verify_first"], rate = verify.get("first", True), verify.get("rate", 1 / 1000)
    if not isinstance(options["verify_first"], bool):
        raise InvalidArgument(f"wrap: verify first is {options['verify_first']!r}; it must be True or False")
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate <= 1:
        raise InvalidArgument(f"wrap: verify rate is {rate!r}; it must be a share between 0 and 1")
    options["verify_rate"] = float(rate)
    if type(options["max_variants"]) is not int or not 0 < options["max_variants"] <= 1000:
        raise InvalidArgument("wrap: max_variants must be an int from 1 to 1000")
    if type(options["audit_seed"]) is not int or not 0 <= options["audit_seed"] < 2**64:
        raise InvalidArgument("wrap: audit_seed must be an int, 0 for a seed from the system")
    if not isinstance(options["trace"], (type(None), str, os.PathLike)):
        raise InvalidArgument(f"wrap: trace is {options['trace']!r}; it must be a path or None")
    options["trace"] = os.fspath(options["trace"]) if options["trace"] is not None else ""
    if not isinstance(options["log"], (type(None), str)):
        raise InvalidArgument(f"wrap: log is {options['log']!r}; it must be a str or None")
    options["log"] = options["log"] or ""
    options["record"] = _checked_record(options["record"], options["trace"])
    for name in ("ledger", "digests", "timings", "resume", "static_gradients"):
        if not isinstance(options[name], bool):
            raise InvalidArgument(f"wrap: {name} is {options[name]!r}; it must be True or False")
    for name, choices in _CHOICES.items():
        if options[name] not in choices:
            raise InvalidArgument(f"wrap: {name} is {options[name]!r}; it must be one of "
                                  f"{', '.join(map(repr, choices))}")
    return options


def _checked_record(record, trace):
    """Which calls are recorded besides those that plans are made from, with nothing left out."""
    if record is None or record == {**_RECORD, "at": []}:
        return {**_RECORD, "at": []}
    if not isinstance(record, dict) or set(record) - set(_RECORD):
        raise InvalidArgument(f"wrap: record is {record!r}; it must be a dict with some of {', '.join(_RECORD)}")
    record = {**_RECORD, **record}
    numbers = [record["first"], record["every"], *_calls(record["at"])]
    if any(type(number) is not int or not 0 <= number < 2**64 for number in numbers):
        raise InvalidArgument("wrap: record has first and every, each a number of calls, and at, a list of numbers")
    if not isinstance(record["on_nonfinite"], bool) or not isinstance(record["state"], bool):
        raise InvalidArgument("wrap: record on_nonfinite and state must be True or False")
    if isinstance(record["on_signal"], bool) or not isinstance(record["on_signal"], int):
        raise InvalidArgument("wrap: record on_signal must be a signal, such as signal.SIGUSR1")
    if not trace:
        raise InvalidArgument("wrap: record needs a trace to keep the recordings in: trace=\"run.tape\"")
    return {**record, "at": list(record["at"]), "on_signal": int(record["on_signal"])}


def _calls(at):
    return at if isinstance(at, (list, tuple, set, range)) else [at, None]


def _some(names):
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(f"`{name.removeprefix('host.')}`" for name in names[:3]) + more

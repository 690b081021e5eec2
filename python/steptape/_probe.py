"""One recorded call of a step: what is looked at beside the ops, and what is told to the recorder.

Held while the step runs, and put back however it ends: forward hooks, which say which module runs, and
followed numbers in the places of hyperparameters, float arguments and host values. Where these go, and what
the host reads, is seen by the engine, which watches the code that runs.
"""
import builtins
import contextlib
import functools
import math
import threading

import torch

from . import _engine, _follow

class _Hook:
    """A hook of this package's: the engine leaves it out where it looks at hooks of the program's."""
    __slots__ = ("call",)

    def __init__(self, call):
        self.call = call

    def __call__(self, *args):
        self.call(*args)


_engine.set_own_hook_class(_Hook)


class _Modules:
    """Tells the recorder which module runs, by global forward hooks."""

    telling = threading.local()  # the outermost of each thread, which tells for those inside it too

    def __init__(self, models):
        self.paths = {}
        for name, model in models.items():
            self.add(name, model)

    def add(self, path, module):
        if id(module) in self.paths:
            return
        self.paths[id(module)] = path
        for name, child in vars(module).get("_modules", {}).items():
            if child is not None:
                self.add(_engine.join_path(path, name), child)

    def __enter__(self):
        self.thread = threading.get_ident()
        self.handles = ()
        if getattr(self.telling, "outermost", None) is not None:
            return
        self.telling.outermost = self
        # not by register_module_forward_hook: that would use up a number of those that the program's own hooks get
        hooks = torch.nn.modules.module
        self.handles = [(hooks._global_forward_pre_hooks, _Hook(self.enter)),
                        (hooks._global_forward_hooks, _Hook(self.leave)),
                        (hooks._global_forward_hooks_always_called, True)]
        for table, hook in self.handles:
            table[self] = hook

    def __exit__(self, *_):
        for table, _ in self.handles:
            table.pop(self, None)
        if self.handles:
            self.telling.outermost = None

    def enter(self, module, _):
        if threading.get_ident() == self.thread:
            _engine.enter_module(self.paths.get(id(module), ""), module)

    def leave(self, module, _, __):
        if threading.get_ident() == self.thread:
            _engine.leave_module(module)


class _Hyperparameters:
    """Puts followed numbers in the places of hyperparameters and host numbers of optimizer state."""

    def __init__(self, optimizers, effects):
        self.optimizers = optimizers
        self.effects = effects
        self.places = []

    def __enter__(self):
        for name, optimizer in self.optimizers.items():
            for g, group in enumerate(optimizer.param_groups):
                self.follow(group, f"{name}.param_groups[{g}]", "hyperparameter")

    def follow(self, holder, path, kind):
        for key, value in holder.items():
            followed = self.followed(value, _engine.join_path(path, str(key)), kind)
            if followed is not value:
                holder[key] = followed
                self.places.append((holder, key, value, followed, _engine.join_path(path, str(key))))

    def followed(self, value, path, kind):
        if type(value) is tuple and all(type(item) in (int, float) for item in value):
            return tuple(self.followed(item, f"{path}[{i}]", kind) for i, item in enumerate(value))
        if type(value) in (int, float):
            return _follow.follow(value, ((kind, path),))
        return value

    def __exit__(self, *_):
        for holder, key, value, followed, path in self.places:
            number = holder.get(key)
            if number is followed:
                holder[key] = value
            elif type(number) is _follow.FollowedInt and _follow.is_followed(number):
                if by := _follow.advance_of(number, ("hyperparameter", path)):
                    self.effects.advanced.add((id(holder), key))
                    _engine.advance(path, by)
        for optimizer in self.optimizers.values():
            for holder in (*optimizer.param_groups, *optimizer.state.values()):
                if isinstance(holder, dict):
                    for key, value in holder.items():
                        if type(value) in (_follow.FollowedFloat, _follow.FollowedInt):
                            holder[key] = _follow.plain(value)


class _Counters:
    """Puts followed numbers in the places of step counters in optimizer state, and notes what was added."""

    def __init__(self, engine, effects):
        self.engine = engine
        self.effects = effects

    def __enter__(self):
        self.places = self.engine.counters()
        for state, key, path in self.places:
            state[key] = _follow.follow(state[key], (("state_number", path),))

    def __exit__(self, *_):
        for state, key, path in self.places:
            number = state.get(key)
            if type(number) is not _follow.FollowedInt:
                continue
            state[key] = _follow.plain(number)
            by = _follow.advance_of(number, ("state_number", path)) if _follow.is_followed(number) else None
            if by is not None:
                self.effects.advanced.add((id(state), key))
                if by != 0:
                    _engine.advance(path, by)


class _Moving:
    """Puts followed numbers in the places of the program whose numbers move."""

    def __init__(self, engine):
        self.engine = engine

    def __enter__(self):
        self.places = []
        for name, owner, key in self.engine.moving():
            value = _engine.held_at(owner, key)
            _engine.follow_host_value(name)
            followed = _follow.follow(value, (("host_value", name),))
            if followed is not value:
                _engine.put_at(owner, key, followed)
                self.places.append((owner, key, value, followed))

    def __exit__(self, *_):
        for owner, key, value, followed in self.places:
            if _engine.held_at(owner, key) is followed:
                _engine.put_at(owner, key, value)


class _Functions:
    """Functions of Python's that code calls with numbers, as functions that follow: while any thread records."""

    lock = threading.Lock()
    recording = 0  # how many do

    def __enter__(self):
        with self.lock:
            _Functions.recording += 1
            if _Functions.recording == 1:
                self.replace()

    def replace(self):
        make = {**{(math, name): functools.partial(_follow.followed_function, name=name)
                   for name in ("sqrt", "exp", "log", "sin", "cos")},
                **{(builtins, name): functools.partial(_follow.followed_extreme, name=name) for name in ("max", "min")}}
        _Functions.replaced = {(module, name): getattr(module, name) for module, name in make}
        for (module, name), function in _Functions.replaced.items():
            setattr(module, name, _follow.stand_in(function, make[module, name]))

    def __exit__(self, *_):
        with self.lock:
            _Functions.recording -= 1
            if _Functions.recording == 0:
                for (module, name), function in _Functions.replaced.items():
                    setattr(module, name, function)


_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.UninitializedParameter,
                  torch.nn.UninitializedBuffer, torch.nn.Buffer)


def refuse_hidden(name, model):
    """Refuses what no guard can look at: a scripted module keeps its flags and attributes in C++, and what the code
    of a tensor subclass does shows in no op."""
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            _engine.refuse("unreplayable_op", f"module `{_engine.join_path(name, path)}` is scripted: its flags and "
                           "attributes cannot be compared before each replay", "")
            return
    for kind, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for path, tensor in tensors:
            if type(tensor) not in _PLAIN_TENSORS:
                _engine.refuse("tensor_kind", f"{kind} `{name}.{path}` is of {type(tensor).__name__}, a "
                               "subclass of torch.Tensor", "")
                return


class Looking:
    """Everything that is held while a step is recorded: the hooks, the followed numbers."""

    def __init__(self, engine, effects, models, optimizers, follows):
        self.counters = _Counters(engine, effects) if follows else contextlib.nullcontext()
        self.moving = _Moving(engine)
        self.effects = effects
        self.models = models
        # a followed number is of a class of its own, which code that asks for a class would see
        self.optimizers = {name: optimizer for name, optimizer in optimizers.items()
                           if follows or type(optimizer).__module__.startswith("torch.optim.")}

    def __enter__(self):
        for name, model in self.models.items():
            refuse_hidden(name, model)
        with contextlib.ExitStack() as stack:
            for held in (_Hyperparameters(self.optimizers, self.effects), self.counters, self.moving, _Modules(self.models), _Functions()):
                stack.enter_context(held)
            self.stack = stack.pop_all()

    def __exit__(self, *raised):
        return self.stack.__exit__(*raised)


def _followed_arguments(args, kwargs, reals):
    args, kwargs = list(args), dict(kwargs)
    for leaf, position, keyword in reals:
        place, key = (args, position) if position >= 0 else (kwargs, keyword)
        place[key] = _follow.follow(place[key], (("argument", f"inputs[{leaf}]"),))
    return args, kwargs


class Probe:
    """Runs one call of a step while it is recorded. `models` and `optimizers` by name; `roots(args, kwargs)` gives
    what the step is called with, for the engine; `meet(objects, is_known)` takes those that were met and are not tracked,
    and gives whether the recording is to be made anew."""

    def __init__(self, engine, models, optimizers, effects, roots, meet):
        self.engine = engine
        self.effects = effects
        self.roots = roots
        self.meet = meet
        self.looking_at = models, optimizers, True

    def __call__(self, function, args, kwargs, reals):
        _follow.new_epoch()
        self.given = [*args, *kwargs.values()]
        roots = self.roots(args, kwargs)
        args, kwargs = _followed_arguments(args, kwargs, reals)
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            _engine.refuse("dispatch_mode", "hooks for saved tensors are set around the step", "")
        self.effects.enter(self.engine)
        seen = None
        try:
            with Looking(self.engine, self.effects, *self.looking_at):
                is_watched = self.effects.watch(self.engine, roots, (*args, *kwargs.values()))
                try:
                    result = function(*args, **kwargs)
                finally:
                    if is_watched:
                        seen = self.engine.end_watch()
        except BaseException:
            self.effects.abandon(self.engine, seen)
            self.strip_given()
            raise
        self.effects.leave(self.engine, seen)
        if seen is not None and self.meet(seen["objects"], seen["is_known"]):
            _engine.discard()
        return result

    def finish(self, result):
        """For what the caller gets, when all that the step has left was looked at: numbers are plain ones again."""
        self.effects.strip()
        self.strip_given()
        return _follow.without(result)

    def strip_given(self):
        """Of what the step has put into containers that it was given."""
        for value in self.given:
            _follow.without(value)
        self.given = []

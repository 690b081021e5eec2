"""One recorded call of a step: what is looked at beside the ops, and what is told to the recorder.

Held while the step runs, and put back however it ends: forward hooks, which say which module runs, and
followed numbers in the places of hyperparameters, float arguments and host values. Where these go, and what
the host reads, is seen by the engine, which watches the code that runs.
"""
import contextlib
import threading

import torch

from . import _engine


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
            return _engine.follow(value, kind, path)
        return value

    def __exit__(self, *_):
        for holder, key, value, followed, path in self.places:
            number = holder.get(key)
            if number is followed:
                holder[key] = value
            elif by := _engine.advance_of(number, "hyperparameter", path):
                self.effects.advanced.add((id(holder), key))
                _engine.advance(path, by)
                holder[key] = _engine.plain(number)


class _Counters:
    """Puts followed numbers in the places of step counters in optimizer state, and notes what was added."""

    def __init__(self, engine, effects):
        self.engine = engine
        self.effects = effects

    def __enter__(self):
        self.places = self.engine.counters()
        for state, key, path in self.places:
            state[key] = _engine.follow(state[key], "state_number", path)

    def __exit__(self, *_):
        for state, key, path in self.places:
            number = state.get(key)
            by = _engine.advance_of(number, "state_number", path)
            if by is not None:
                state[key] = _engine.plain(number)
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
            followed = _engine.follow(value, "host_value", name)
            if followed is not value:
                _engine.put_at(owner, key, followed)
                self.places.append((owner, key, value, followed))

    def __exit__(self, *_):
        for owner, key, value, followed in self.places:
            if _engine.held_at(owner, key) is followed:
                _engine.put_at(owner, key, value)


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

    def __init__(self, engine, effects, models, optimizers):
        self.counters = _Counters(engine, effects)
        self.moving = _Moving(engine)
        self.effects = effects
        self.models = models
        self.optimizers = optimizers

    def __enter__(self):
        for name, model in self.models.items():
            refuse_hidden(name, model)
        with contextlib.ExitStack() as stack:
            for held in (_Hyperparameters(self.optimizers, self.effects), self.counters, self.moving, _Modules(self.models)):
                stack.enter_context(held)
            self.stack = stack.pop_all()

    def __exit__(self, *raised):
        return self.stack.__exit__(*raised)


def _followed_arguments(args, kwargs, reals):
    args, kwargs = list(args), dict(kwargs)
    for leaf, position, keyword in reals:
        place, key = (args, position) if position >= 0 else (kwargs, keyword)
        place[key] = _engine.follow(place[key], "argument", f"inputs[{leaf}]")
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
        self.looking_at = models, optimizers

    def __call__(self, function, args, kwargs, reals):
        self.effects.enter(self.engine)
        roots = self.roots(args, kwargs)
        args, kwargs = _followed_arguments(args, kwargs, reals)
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            _engine.refuse("dispatch_mode", "hooks for saved tensors are set around the step", "")
        seen = None
        with Looking(self.engine, self.effects, *self.looking_at):
            is_watched = self.effects.watch(self.engine, roots, (*args, *kwargs.values()))
            try:
                result = function(*args, **kwargs)
            finally:
                if is_watched:
                    seen = self.engine.end_watch()
        self.effects.leave(self.engine, seen)
        if seen is not None and self.meet(seen["objects"], seen["is_known"]):
            _engine.discard()
        return result

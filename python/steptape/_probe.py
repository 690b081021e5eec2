"""One recorded call of a step: what is looked at beside the ops, and what is told to the recorder.

Held while the step runs, and put back however it ends: followed numbers in the places of hyperparameters,
float arguments and host values. Where these go, what the host reads and which module runs is seen by the engine, which
watches the code that runs.
"""
import contextlib

import torch

from . import _engine


def follows(value):
    """Whether a hyperparameter is a followed number, or a tuple with one."""
    return any(map(_engine.is_followed, value)) if type(value) is tuple else _engine.is_followed(value)


class _Hyperparameters:
    """Puts followed numbers in the places of hyperparameters and host numbers of optimizer state."""

    def __init__(self, optimizers, effects):
        self.optimizers = optimizers
        self.effects = effects
        self.places = []

    def __enter__(self):
        seen = set()  # one that wraps another shows its groups
        for name, optimizer in self.optimizers.items():
            for g, group in enumerate(optimizer.param_groups):
                if id(group) not in seen:
                    seen.add(id(group))
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
            elif self.effects.does_again and follows(number):
                _engine.assign(path)
                self.effects.advanced.add((id(holder), key))
                self.effects.set_again.append((path, holder, key, f"{value} → {number}"))


class _Counters:
    """Puts followed numbers in the places of step counters in optimizer state, and notes what was added."""

    def __init__(self, engine, effects):
        self.engine = engine
        self.effects = effects

    def __enter__(self):
        self.places = list({(id(state), key): (state, key, path) for state, key, path in self.engine.counters()}.values())
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

    def __init__(self, engine, effects, hyperparameters):
        self.engine = engine
        self.effects = effects
        self.hyperparameters = hyperparameters

    def __enter__(self):
        self.places = []
        known = {(id(holder), name) for holder, name, *_ in self.hyperparameters.places}
        for name, owner, key in self.engine.moving():
            if type(key) is str and (id(owner), key) in known:
                continue
            value = _engine.held_at(owner, key)
            followed = _engine.follow(value, "host_value", name)
            if followed is not value:
                _engine.put_at(owner, key, followed)
                self.places.append((owner, key, value, followed))

    def __exit__(self, *_):
        for owner, key, value, followed in self.places:
            if _engine.held_at(owner, key) is followed:  # not written, or itself again
                _engine.put_at(owner, key, value)
                self.effects.advanced.add((id(owner), key))


class Looking:
    """Everything that is held while a step is recorded: the followed numbers."""

    def __init__(self, engine, effects, optimizers):
        self.engine = engine
        self.effects = effects
        self.optimizers = optimizers

    def __enter__(self):
        self.engine.refuse_hidden()
        with contextlib.ExitStack() as stack:
            hyperparameters = _Hyperparameters(self.optimizers, self.effects)
            for held in (hyperparameters, _Counters(self.engine, self.effects),
                         _Moving(self.engine, self.effects, hyperparameters)):
                stack.enter_context(held)
            self.stack = stack.pop_all()

    def __exit__(self, *raised):
        return self.stack.__exit__(*raised)


class Probe:
    """Runs one call of a step while it is recorded. `optimizers` by name; `roots(args, kwargs)` gives
    what the step is called with, for the engine; `meet(objects, is_known)` takes those that were met and are not tracked,
    and gives whether the recording is to be made anew."""

    def __init__(self, engine, optimizers, effects, roots, meet):
        self.engine = engine
        self.effects = effects
        self.roots = roots
        self.meet = meet
        self.optimizers = optimizers

    def __call__(self, function, args, kwargs):
        self.effects.enter(self.engine)
        roots = self.roots(args, kwargs)
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            _engine.refuse("dispatch_mode", "hooks for saved tensors are set around the step", "")
        seen = None
        with Looking(self.engine, self.effects, self.optimizers):
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

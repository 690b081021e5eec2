"""One recorded call of a step: what is looked at beside the ops, and what is told to the recorder.

Held while the step runs, and put back however it ends: followed numbers in the places of hyperparameters,
float arguments and host values. Where these go, what the host reads and which module runs is seen by the engine, which
watches the code that runs.
"""
import contextlib

import torch

from . import _engine


class _Hyperparameters:
    """Puts followed numbers in the places of hyperparameters, and notes what the step makes of them."""

    def __init__(self, optimizers, effects):
        self.optimizers = optimizers
        self.effects = effects
        self.places = []
        self.others = {}  # paths that lead to a group as well, by its id: one that wraps another shows its groups

    def __enter__(self):
        # the engine knows numbers by the optimizer that has the groups, not by one that wraps and shows it
        for name, optimizer in sorted(self.optimizers.items(), key=lambda named: "param_groups" not in vars(named[1])):
            for g, group in enumerate(optimizer.param_groups):
                path = f"{name}.param_groups[{g}]"
                if id(group) in self.others:
                    self.others[id(group)].append(path)
                else:
                    self.others[id(group)] = []
                    self.follow(group, path)

    def follow(self, holder, path):
        for key, value in dict.items(holder):
            if isinstance(key, str):
                named = _engine.join_path(path, key)
                followed = self.followed(value, named)
                if followed is not value:
                    _engine.put_at(holder, key, followed)
                    self.places.append((holder, key, value, followed, named))

    def followed(self, value, path):
        if type(value) is tuple and all(map(_engine.is_plain_number, value)):
            return tuple(self.followed(item, f"{path}[{i}]") for i, item in enumerate(value))
        return _engine.follow(value, "hyperparameter", path)  # itself where it is not a number

    def __exit__(self, *_):
        for holder, key, *number in self.places:
            if self.effects.settle_number(holder, key, *number, "hyperparameter"):
                for path in self.others[id(holder)]:
                    _engine.assign(_engine.join_path(path, key))


class _StateNumbers:
    """Puts followed numbers in the places of numbers in optimizer state, and notes what the step makes of them."""

    def __init__(self, engine, effects):
        self.engine = engine
        self.effects = effects

    def __enter__(self):
        self.places = []
        of_place = {(id(state), key): (state, key, path) for state, key, path in self.engine.state_numbers()}
        for state, key, path in of_place.values():
            number = _engine.held_at(state, key)
            followed = _engine.follow(number, "state_number", path)
            _engine.put_at(state, key, followed)
            self.places.append((state, key, number, followed, path))

    def __exit__(self, *_):
        for place in self.places:
            self.effects.settle_number(*place, "state_number")


class _Moving:
    """Puts followed numbers in the places of the program whose numbers move."""

    def __init__(self, engine, effects, of_optimizers):
        self.engine = engine
        self.effects = effects
        self.of_optimizers = of_optimizers

    def __enter__(self):
        self.places = []
        known = {(id(holder), name) for held in self.of_optimizers for holder, name, *_ in held.places}
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
            of_optimizers = (_Hyperparameters(self.optimizers, self.effects), _StateNumbers(self.engine, self.effects))
            for held in (*of_optimizers, _Moving(self.engine, self.effects, of_optimizers)):
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
        self.effects.leave(self.engine)
        if seen is not None and self.meet(seen["objects"], seen["is_known"]):
            _engine.discard()
        return result

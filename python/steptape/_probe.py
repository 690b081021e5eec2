"""One recorded call of a step: what is looked at beside the ops, and what is told to the recorder.

Held while the step runs, and put back however it ends: followed numbers in the places of hyperparameters,
float arguments and host values. Where these go, what the host reads and which module runs is seen by the engine, which
watches the code that runs.
"""
import contextlib

import torch

from . import _engine


class Looking:
    """Everything that is held while a step is recorded: followed numbers in the places of hyperparameters, of numbers in
    optimizer state, and of those of the program's that move. What the step makes of them is noted as they are taken back."""

    def __init__(self, engine, effects, optimizers):
        self.engine, self.effects, self.optimizers = engine, effects, optimizers

    def __enter__(self):
        self.engine.refuse_hidden()
        self._places = {"hyperparameter": [], "state_number": [], "host_value": []}
        self._others = {}  # paths that lead to a group as well, by its id: one that wraps another shows its groups
        with contextlib.ExitStack() as stack:
            for kind, follow in zip(self._places, (self._follow_groups, self._follow_state, self._follow_moving)):
                stack.callback(self._settle, kind)
                follow()
            self._stack = stack.pop_all()

    def _follow_groups(self):
        # the engine knows numbers by the optimizer that has the groups, not by one that wraps and shows it
        for name, optimizer in sorted(self.optimizers.items(), key=lambda named: "param_groups" not in vars(named[1])):
            for g, group in enumerate(getattr(optimizer, "param_groups", ())):
                path = f"{name}.param_groups[{g}]"
                if id(group) in self._others:
                    self._others[id(group)].append(path)
                    continue
                self._others[id(group)] = []
                for key in [key for key in dict.keys(group) if isinstance(key, str)]:
                    self._follow("hyperparameter", group, key, _engine.join_path(path, key))

    def _follow_state(self):
        of_place = {(id(state), key): (state, key, path) for state, key, path in self.engine.state_numbers()}
        for place in of_place.values():
            self._follow("state_number", *place)

    def _follow_moving(self):
        known = {(id(holder), key) for places in self._places.values() for holder, key, *_ in places}
        for name, owner, key in self.engine.moving():
            if type(key) is not str or (id(owner), key) not in known:
                self._follow("host_value", owner, key, name)

    def _follow(self, kind, holder, key, path):
        was = _engine.held_at(holder, key)
        followed = _followed(was, kind, path)
        if followed is not was or kind == "state_number":
            _engine.put_at(holder, key, followed)
            self._places[kind].append((holder, key, was, followed, path))

    def _settle(self, kind):
        for holder, key, was, followed, path in self._places[kind]:
            if kind != "host_value":
                if self.effects.settle_number(holder, key, was, followed, path, kind) and kind == "hyperparameter":
                    for other in self._others[id(holder)]:
                        _engine.assign(_engine.join_path(other, key))
            elif _engine.held_at(holder, key) is followed:  # not written, or itself again
                _engine.put_at(holder, key, was)
                self.effects.advanced.add((id(holder), key))

    def __exit__(self, *raised):
        return self._stack.__exit__(*raised)


def _followed(value, kind, path):
    """A followed number in its place, of a tuple of hyperparameters each; itself where it is none."""
    if kind == "hyperparameter" and type(value) is tuple and all(map(_engine.is_plain_number, value)):
        return tuple(_followed(item, kind, f"{path}[{i}]") for i, item in enumerate(value))
    return _engine.follow(value, kind, path)


def make_probe(engine, optimizers, effects, roots, meet):
    """Gives what runs one call of a step while it is recorded. `optimizers` by name; `roots(args, kwargs)` gives
    what the step is called with, for the engine; `meet(objects, is_known)` takes those that were met and are not tracked,
    and gives whether the recording is to be made anew."""
    def probe(function, args, kwargs):
        effects.enter(engine)
        found = roots(args, kwargs)
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            _engine.refuse("dispatch_mode", "hooks for saved tensors are set around the step", "")
        seen = None
        with Looking(engine, effects, optimizers):
            is_watched = effects.watch(engine, found, (*args, *kwargs.values()))
            try:
                result = function(*args, **kwargs)
            finally:
                if is_watched:
                    seen = engine.end_watch()
        effects.leave(engine)
        if seen is not None and meet(seen["objects"], seen["is_known"]):
            _engine.discard()
        return result
    return probe

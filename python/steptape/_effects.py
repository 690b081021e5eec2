"""What a recorded step did to the host besides tensors, and what replays are to do again."""
import random
import sys

from . import _engine, _follow, _observe
from ._source import place_of_change, place_of_names

_PLAIN = (type(None), bool, int, float, str, bytes)


class Effects:
    """Compares the state that a step reaches before and after each recorded call.

    An assignment of one plain value is written down, so that two probes can be compared, and done again
    behind each replay. Everything else is refused, with the place in the program and both values.
    """

    def __init__(self, reach):
        self.reach = reach
        self.observers = set()  # codes of functions that only look

    def enter(self, engine):
        engine.capture()
        self.advanced = set()  # (id of a dict, key) of step counters that are accounted for
        self.random = [(what, state, state()) for what, state in self._random_states()]

    def leave(self, engine):
        for what, state, before in self.random:
            if not _same_state(before, state()):
                place = place_of_names(self.reach.functions, what.names)
                _engine.refuse("host_random", f"the step draws from {what.text}", place)
        for path, kind in self.reach.unseen:
            _engine.refuse("host_effect", f"`{path}` is a {kind}, whose content cannot be compared",
                           place_of_change(self.reach.functions, path))
        assignments = []
        for path, after, owner, key, text_before, text_after, keys, is_whole in engine.changes():
            if (id(owner), key) in self.advanced:
                continue
            if owner is not None:
                _follow.strip(owner, key)
            if type(after) in (_follow.FollowedFloat, _follow.FollowedInt):
                after = _follow.plain(after)
                text_after = repr(after)
            place = place_of_change(self.reach.functions, path)
            if not is_whole or owner is None or type(after) not in _PLAIN or not _holds(owner, key, keys, after):
                _engine.refuse("host_effect",
                               f"host state `{path}` went {text_before} → {text_after}", place)
                continue
            _engine.effect(path, text_after, place)
            assignments.append((owner, key, keys, after))
        engine.assign_again(assignments)
        if observers := _observe.take_observers():
            if not observers <= self.observers:
                self.observers |= observers
                engine.guard_slots(self.reach.guarded_without(self.observers))

    def abandon(self, engine):
        """The step threw: nothing is told, but no followed number stays behind in the program."""
        for _, _, owner, key, *_ in engine.changes():
            if owner is not None:
                _follow.strip(owner, key)
        _observe.take_observers()

    def _random_states(self):
        states = [(_What("Python's `random`", {"random", "randint", "choice", "shuffle", "uniform",
                                                "gauss", "sample", "randrange"}), random.getstate)]
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            states.append((_What("NumPy's global generator", {"random", "rand", "randn", "randint",
                                                              "normal", "uniform", "choice"}),
                           numpy.random.get_state))
        for path, generator in self.reach.random_generators.items():
            name = path.rsplit(".", 1)[-1]
            what = _What(f"the random generator `{path}`", {name})
            if isinstance(generator, random.Random):
                states.append((what, generator.getstate))
            elif hasattr(generator, "bit_generator"):
                states.append((what, lambda g=generator: g.bit_generator.state))
            else:
                states.append((what, generator.get_state))
        return states


class _What:
    def __init__(self, text, names):
        self.text, self.names = text, names


def _same_state(a, b):
    """Of generator states, which hold NumPy arrays."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same_state(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_same_state, a, b))
    same = a == b
    return bool(same.all()) if hasattr(same, "all") else bool(same)


def _holds(owner, key, keys, value):
    """Whether the change is an assignment to a cell, an attribute, or an entry of a dict or list."""
    now = owner.cell_contents if key is None else owner.get(key)
    for inner in keys:
        if type(now) not in (dict, list):
            return False
        now = now.get(inner) if type(now) is dict else now[inner]
    return type(now) is type(value) and (now is value or now == value or now != now)

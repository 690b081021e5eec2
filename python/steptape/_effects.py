"""What a recorded step did to the host besides tensors, and what replays are to do again."""
from . import _engine, _follow
from ._errors import FailedPrecondition
from ._tracking import places_of_torch

_PLAIN = (type(None), bool, int, float, str, bytes)


class Effects:
    """Takes what the engine has seen of a recorded call besides its ops.

    An assignment of one plain value is written down, so that two probes can be compared, and done again
    after each replay. Every other change is refused, with the line that made it and both values.
    """

    def __init__(self):
        self.outputs = {}  # place of a call that shows something: name of the function

    def enter(self, engine):
        engine.capture(places_of_torch())
        self.advanced = set()  # (id of a dict, key) of step counters that are accounted for

    def watch(self, engine, roots, given):
        """Whether what the step executes is watched from here on."""
        try:
            return engine.begin_watch(roots, given)
        except FailedPrecondition as error:
            _engine.refuse("host_effect", f"what the step reads cannot be watched: {error}", "")
            return False

    def leave(self, engine, seen):
        """`seen`: what the engine has watched, or None."""
        if seen is not None:
            self.outputs.update({place: name for name, place in seen["outputs"]})
            for code, message, place in seen["findings"]:
                _engine.refuse(code, message, place)
            for container in seen["changed"]:
                _follow.without(container)
        assignments = []
        for path, after, owner, key, text_before, text_after, keys, is_whole, place, moves in engine.changes():
            if (id(owner), key) in self.advanced:
                continue
            if owner is not None:
                _follow.strip(owner, key)
            formula = after.formula_now() if _follow.is_followed(after) and not keys else None
            if type(after) in (_follow.FollowedFloat, _follow.FollowedInt):
                after = _follow.plain(after)
                text_after = repr(after)
            place = place or engine.place_of_write(_last_name(path))
            if formula is None and moves and engine.note_moving(path.removeprefix("host."), owner, key):
                continue  # the next recording follows it
            if not is_whole or owner is None or type(after) not in _PLAIN or not _holds(owner, key, keys, after):
                _engine.refuse("host_effect",
                               f"host state `{path}` went {text_before} → {text_after}", place)
                continue
            _engine.effect(path, text_after if formula is None else _follow.words(formula), place)
            assignments.append((owner, key, keys, after, formula))
        engine.assign_again(assignments)

    def abandon(self, engine, seen):
        """The step threw: nothing is noted, but no followed number stays in the program."""
        for container in seen["changed"] if seen is not None else ():
            _follow.without(container)
        for _, _, owner, key, *_ in engine.changes():
            if owner is not None:
                _follow.strip(owner, key)


def _last_name(path):
    return path.split("[")[0].removesuffix(".size").rsplit(".", 1)[-1]


def _holds(owner, key, keys, value):
    """Whether the change is an assignment to a cell, an attribute, or an entry of a dict or list."""
    now = _engine.held_at(owner, key)
    for inner in keys:
        if type(now) not in (dict, list):
            return False
        now = _engine.held_at(now, inner)
    return type(now) is type(value) and (now is value or now == value or now != now)

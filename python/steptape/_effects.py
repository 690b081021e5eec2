"""What a recorded step did to the host besides tensors, and what replays are to do again."""
from . import _engine
from ._errors import FailedPrecondition
from ._tracking import places_of_torch


class Effects:
    """Takes what the engine has seen of a recorded call besides its ops.

    An assignment of what the step has made, and what it appends to a list, is written down, so that two
    probes can be compared, and done again after each replay. Every other change is refused, with the line
    that made it and both values.
    """

    def __init__(self, does_again=True):
        self.does_again = does_again  # else a change is refused where no number says it

    def enter(self, engine):
        engine.capture(places_of_torch())
        self.advanced = set()  # (id of a dict, key) of step counters that are accounted for
        self.set_again = []  # (path, dict, key, change) of hyperparameters that the step has set to followed numbers

    def settle_number(self, holder, key, was, followed, path, kind):
        """A number of an optimizer that stood at `holder[key]` as `followed`, now that the step has run. Whether it
        was counted on or set, which replays are to do again; else it is itself again, or not a number."""
        number = _engine.held_at(holder, key)
        if number is followed:
            _engine.put_at(holder, key, was)
            self.advanced.add((id(holder), key))
            return False
        by = _engine.advance_of(number, kind, path)
        if by is not None:
            _engine.put_at(holder, key, _engine.plain(number))
            if by != 0:
                _engine.advance(path, by)
        elif self.does_again and (_follows(number) or _engine.is_plain_number(number)):
            _engine.assign(path)
            self.set_again.append((path, holder, key, f"{was} → {number}"))
        else:
            if _follows(number):  # only a replay would take it from there
                _engine.put_at(holder, key, tuple(map(_engine.plain, number)) if type(number) is tuple else _engine.plain(number))
            return False
        self.advanced.add((id(holder), key))
        return True

    def watch(self, engine, roots, given):
        """Whether what the step executes is watched from here on."""
        try:
            engine.begin_watch(roots, given)
            return True
        except FailedPrecondition as error:
            _engine.refuse("host_effect", f"what the step reads cannot be watched: {error}", "")
            return False

    def leave(self, engine):
        assignments = [(path, owner, key, [], None, engine.place_of_write(key), change, 0)
                       for path, owner, key, change in self.set_again]
        assigned = {}  # by place: its position among them, or None
        for path, after, owner, key, text_before, text_after, keys, is_whole, place, moves, kept, before in engine.changes():
            if (id(owner), key) in self.advanced:
                continue
            is_followed = _engine.is_followed(after) and not keys
            place = place or engine.place_of_write(_last_name(path))
            if moves and not is_followed and engine.note_moving(path.removeprefix("host."), owner, key):
                continue  # the next recording follows it
            is_place = kept is None and not keys and owner is not None
            place_of = (id(owner), _as_key(key))
            if is_place and place_of in assigned:  # met by itself and as a part of what holds it
                if (at := assigned[place_of]) is not None:
                    assignments[at] = (*assignments[at][:-1], max(before, assignments[at][-1]))
                continue
            change = f"{text_before} → {'another one' if text_before == text_after else text_after}"
            is_done_again = self.does_again or is_followed
            if not is_done_again or (kept is None and not (
                    is_whole and owner is not None and _holds(owner, key, keys, after))):
                _engine.refuse("host_effect", f"host state `{path}` went {change}", place)
                if is_place:
                    assigned[place_of] = None
                continue
            if is_place:
                assigned[place_of] = len(assignments)
            assignments.append((path, owner, key, keys, kept, place, change, before))
        engine.assign_again(assignments)


def _follows(value):
    """Whether it is a followed number, or a tuple with one."""
    return any(map(_engine.is_followed, value)) if type(value) is tuple else _engine.is_followed(value)


def _as_key(key):
    return key if type(key) in (int, str) else id(key)


def _last_name(path):
    return path.split("[")[0].removesuffix(".size").rsplit(".", 1)[-1]


def _holds(owner, key, keys, value):
    """Whether the change is an assignment to a cell, an attribute, or an entry of a dict or list."""
    now = _engine.held_at(owner, key)
    for inner in keys:
        if type(now) not in (dict, list):
            return False
        now = _engine.held_at(now, inner)
    if now is value:
        return True
    # of any other class, == may run the program's code or compare arrays
    is_plain = type(now) is type(value) and isinstance(now, (int, float, complex, str, bytes))
    return is_plain and (now == value or now != now)

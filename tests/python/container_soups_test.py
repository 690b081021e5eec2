"""Short programs that read and change containers of the program's in every way that their classes have, drawn from a seed: a step of two to five such
lines, and what the program does between calls. STEPTAPE_SOUPS programs of each kind are drawn, from STEPTAPE_SOUP_SEED on."""
import collections
import copy
import os
import random
import types

import pytest
import torch

import steptape

PROGRAMS = int(os.environ.get("STEPTAPE_SOUPS", "300"))
SEED = int(os.environ.get("STEPTAPE_SOUP_SEED", "1"))
CALLS = 26

# `c` is the container that the step has at hand, of those that `h` holds; `r` is its result.
SHARED = ["r += len(c)", "r += 1. if c else 5.", "r += sum(1. for _ in c)", "r += 1. if h.c is h.kept else 2.", "r += 3. if h.c == h.other else 4.", "r += len(h.other)",
          "h.c = {empty}; c = h.c", "h.c = {some}; c = h.c", "c = h.other", "c = h.c", "h.c = h.other; c = h.c", "h.c = {copy}; c = h.c", "c.clear()", "h.other = {empty}"]
KEYED = ["r += 1. if {k} in c else 2.", "r += c.get({k}, 3.)", "r += len(c.keys())", "r += sum(c.values())", "r += float(list(c)[0] == {k}) if c else 7.", "r += c.setdefault({k}, {v})",
         "r += c[{k}] if {k} in c else 4.", "r += len(list(c.items()))", "r += 1. if {k} in h.other else 2.", "r += next(iter(c.values()), 6.)",
         "c[{k}] = {v}", "c.update({{{k}: {v}}})", "c.pop({k}, None)", "if {k} in c: del c[{k}]", "if {k} not in c: c[{k}] = {v}", "c |= {{{k}: {v}}}", "h.other[{k}] = {v}",
         "c[{k}] = c.pop({k}, 1.) * 2", "c.popitem() if c else None"]
LISTED = ["r += c[{n}] if len(c) > 3 else 2.", "r += c[-1] if c else 3.", "r += sum(c)", "r += sum(c) / len(c) if c else 0.", "r += max(c, default=1.)", "r += 1. if {v} in c else 2.", "r += list(c)[0] if c else 4.",
          "c.append({v})", "c.append({v}); c.append({v})", "c.extend([{v}, {v}])", "if c: c[-1] = {v}", "if c: c[0] = {v}", "if len(c) > 1: c[1] += {v}", "c.pop() if c else None",
          "c.insert(0, {v})", "c += [{v}]", "c.append(0.); c[-1] += {v}", "h.other.append({v})", "r += c[-2] if len(c) > 1 else 1.", "if len(c) > 4: c.clear()", "c.reverse()"]
OF_LISTS = ["r += sum(c[-2:])", "c.sort()", "del c[:1]", "c[1:2] = [{v}]", "c.pop(0) if c else None", "if len(c) > 3: del c[0]", "r += len(c[1:])"]
OF_QUEUES = ["c.appendleft({v})", "c.popleft() if c else None", "c.rotate(1)", "r += float(c.maxlen or 0)", "c.extendleft([{v}])"]
OF_SETS = ["r += 1. if {k} in c else 2.", "r += sum(sorted(map(str, c)) == [] for _ in 'a')", "c.add({k})", "c.discard({k})", "c |= {{{k}}}", "c -= {{{k}}}", "if {k} in c: c.remove({k})", "h.other.add({k})",
           "r += len(c & h.other)", "c.update([{k}, {k}])"]
OF_OBJECTS = ["r += c.a if hasattr(c, 'a') else 2.", "r += getattr(c, {t}, 3.)", "c.a = {v}", "setattr(c, {t}, {v})", "c.b = getattr(c, 'b', 0.) + {v}", "if hasattr(c, {t}): delattr(c, {t})",
              "r += len(vars(c))", "r += sum(vars(c).values())", "vars(c).update(a={v})", "vars(c)[{t}] = {v}", "vars(c).pop({t}, None)", "r += 1. if {t} in vars(c) else 2.", "c.a, c.b = {v}, 1.",
              "r += getattr(h.other, {t}, 5.)", "h.other.a = {v}", "h.c = {empty}; c = h.c", "h.c = {some}; c = h.c", "c = h.other", "h.c = {copy}; c = h.c", "r += 1. if h.c is h.kept else 2.", "r += list(vars(c)) == ['a', 'b']"]
OF_NESTED = ["c.append([{v}])", "if c: c[-1].append({v})", "if c: c[0].append({v})", "r += sum(map(len, c))", "r += c[0][0] if c and c[0] else 2.", "r += c[-1][-1] if c and c[-1] else 3.", "if c: c[0] = [{v}]",
             "r += sum(sum(each) for each in c)", "c.append(c[0]) if c else None", "h.other = c[-1:]", "r += 1. if c and c[0] is c[-1] else 2.", "for each in c: each.append({v})", "c.pop() if len(c) > 3 else None",
             "inner = [{v}]; c.append(inner); inner.append(1.)", "if c: c[-1] = c[-1] + [{v}]", "if c and len(c[0]) > 4: c[0].clear()", "h.other.append([{v}])", "c.insert(0, [])"]
EVENTS = ["h.c = {empty}", "h.c.clear()", "h.c = {some}", "h.kept = h.c = {empty}", "h.kept = h.c", "h.other = h.c", "h.other = {empty}", "h.c = {more}", "h.c = {copy_of_kept}", "h.c = h.kept", "pass", "pass", "pass"]
EVENTS_KEYED = ["h.c['a'] = 1.5", "h.c.pop('a', None)", "h.c.update(b=.5)", "h.kept['a'] = 8."]
EVENTS_LISTED = ["h.c.append(1.5)", "h.c.pop() if h.c else None", "h.kept.append(8.)", "h.c.extend([.5] * 3)"]
EVENTS_OF_SETS = ["h.c.add('a')", "h.c.discard('b')", "h.kept.add(0)"]
EVENTS_OF_OBJECTS = ["h.c.a = 1.5", "h.c.__dict__.pop('a', None)", "h.kept.b = 8.", "h.c.c = .5"]
EVENTS_OF_NESTED = ["h.c.append([1.5])", "h.c.pop() if h.c else None", "h.kept.append([8.])", "if h.c: h.c[0].append(.5)", "h.kept = h.c[:1]", "if h.c: h.other = [h.c[0]]"]


def keyed(name):
    return dict(empty=f"{name}()", some=f"{name}({{'a': 2.}})", more=f"{name}({{'b': 1., 'a': 2.}})", copy="c.copy()", copy_of_kept="h.kept.copy()")


def listed(name, tail=""):
    return dict(empty=f"{name}([]{tail})", some=f"{name}([2.]{tail})", more=f"{name}([1., 2., 3.]{tail})", copy="c.copy()", copy_of_kept="h.kept.copy()")


def of_objects(name):
    return dict(empty=f"{name}()", some=f"{name}(a=2.)", more=f"{name}(b=1., a=2.)", copy="copy.copy(c)", copy_of_kept="copy.copy(h.kept)")


class Plain:
    def __init__(self, **values):
        for name, value in values.items():
            setattr(self, name, value)


COUNTED = ["r += c[{k}]"]
KINDS = {
    "dict": (keyed("dict"), KEYED, EVENTS_KEYED),
    "OrderedDict": (keyed("collections.OrderedDict"), KEYED + ["c.move_to_end({k}) if {k} in c else None"], EVENTS_KEYED),
    "defaultdict": (dict(keyed("dict"), empty="collections.defaultdict(float)", some="collections.defaultdict(float, a=2.)", more="collections.defaultdict(float, b=1., a=2.)"), KEYED + COUNTED, EVENTS_KEYED),
    "Counter": (keyed("collections.Counter"), KEYED + COUNTED, EVENTS_KEYED),
    "list": (listed("list"), LISTED + OF_LISTS, EVENTS_LISTED),
    "deque": (listed("collections.deque"), LISTED + OF_QUEUES, EVENTS_LISTED),
    "full deque": (listed("collections.deque", ", 3"), LISTED + OF_QUEUES, EVENTS_LISTED + ["h.c = collections.deque(h.c, 5)", "h.c = collections.deque(h.c)"]),
    "set": (dict(empty="set()", some="{'a'}", more="{'a', 'b'}", copy="set(c)", copy_of_kept="set(h.kept)"), OF_SETS, EVENTS_OF_SETS),
    "nested lists": (dict(empty="[]", some="[[2.]]", more="[[1.], [2., 3.]]", copy="list(c)", copy_of_kept="copy.deepcopy(h.kept)"), OF_NESTED, EVENTS_OF_NESTED),
    "namespace": (of_objects("types.SimpleNamespace"), OF_OBJECTS, EVENTS_OF_OBJECTS),
    "object": (of_objects("Plain"), OF_OBJECTS, EVENTS_OF_OBJECTS),
}


def drawn(kind, seed):
    """Lines of the step, and of the program before each call."""
    draw = random.Random(f"{kind} {seed}")
    names, own, own_events = KINDS[kind]

    def filled(line):
        return line.format(k=draw.choice(["'a'", "'b'", "'c'", "0"]), t=draw.choice(["'a'", "'b'", "'c'"]), n=draw.randint(0, 3), v=draw.choice(["v", "v * 2", "1.5", "2.", "x.item()", *([] if own is OF_OBJECTS else ["float(len(c))"])]), **names)

    shared = own if own is OF_OBJECTS else SHARED
    lines = [filled(draw.choice(own if draw.random() < 0.7 else shared)) for _ in range(draw.randint(2, 5))]
    late, every = draw.choice([0, 0, 9, 12]), draw.choice([1, 2, 3, 5, CALLS])
    all_events = [event for event in EVENTS + own_events if own is not OF_OBJECTS or "clear" not in event]
    chosen = [filled(draw.choice(all_events)) for _ in range(draw.randint(1, 2))]
    events = {i: [draw.choice(chosen)] for i in range(late, CALLS) if i % every == 0}
    if draw.random() < 0.5:
        events.setdefault(draw.randint(13, 22), []).append(filled(draw.choice(all_events)))
    return lines, events


def shown(container):
    if isinstance(container, set):
        return sorted(map(str, container))
    inner = [id(each) for each in container] if isinstance(container, list) and container and isinstance(container[0], list) else []
    return repr(vars(container) if hasattr(container, "__dict__") else container), [inner.index(each) for each in inner]


def played(kind, lines, events, wrap):
    scope = dict(torch=torch, collections=collections, copy=copy, types=types, Plain=Plain, h=types.SimpleNamespace())
    for name in ("c", "other", "kept"):
        exec(f"h.{name} = {KINDS[kind][0]['empty']}", scope)
    body = "".join(f"    {line}\n" for line in lines)
    exec(f"def step(x):\n    c = h.c; r = 0.; v = x.item()\n{body}    return x * 2, r\n", scope)
    h, step, seen = scope["h"], wrap(scope["step"]), []
    for i in range(CALLS):
        try:
            for event in events.get(i, ()):
                exec(event, scope)
            y, r = step(torch.tensor(float(i % 7) + 0.5))
            seen.append((y.item(), repr(r)))
        except Exception as error:  # of the program's own, which both raise
            seen.append((type(error).__name__, str(error)))
        seen.append(([shown(each) for each in (h.c, h.other, h.kept)], h.c is h.kept, h.c is h.other))
    return seen, step


@pytest.mark.parametrize("kind", KINDS)
def test_soups_give_what_eager_gives(kind):
    replayed = 0
    for seed in range(SEED, SEED + PROGRAMS):
        lines, events = drawn(kind, seed)
        eager, _ = played(kind, lines, events, lambda step: step)
        wrapped, step = played(kind, lines, events, lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}, log="none"))
        assert eager == wrapped, f"seed {seed}: {lines} {events}"
        replayed += step.stats["replayed"] > 3
    assert replayed >= 0.3 * PROGRAMS, f"{replayed} of {PROGRAMS} replayed"

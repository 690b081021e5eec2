"""`_lift.lift`: a function does with its step lifted out what it did before, and says why where it cannot be."""
import atexit
import contextlib
import copy
import linecache
import random
import types

import numpy as np
import pytest
import torch

import steptape
from steptape._lift import lift


class Optimizer:
    """Keeps what it is called with."""

    def __init__(self):
        self.steps = []

    def step(self, value=None):
        self.steps.append(value)


def plain(optimizer, items):
    for item in items:
        optimizer.step(item)


def breaks(optimizer, items, most=3):
    total, last = 0, None
    for item in items:
        last = item
        if item > most:
            total = -total
            break
        optimizer.step(item)
        total += item
    return total, last


def continues(optimizer, items):
    seen = []
    for item in items:
        if item % 2:
            continue
        optimizer.step(item)
        seen.append(item)
    return seen


def returns(optimizer, items):
    for item in items:
        optimizer.step(item)
        if item == 4:
            return "four", item
    return None


def returns_nothing(optimizer, items):
    for item in items:
        optimizer.step(item)
        if item == 4:
            return
    optimizer.step("after")


def has_loops_inside(optimizer, items):
    n = 0
    for item in items:
        for each in range(item):
            if each > 2:
                break
            n += each
        else:
            n += 10
        while n > 20:
            n -= 3
            if n % 2:
                continue
        optimizer.step(n)
    return n


def appends(optimizer, items):
    log, twice, other = [], [], []
    for item in items:
        log.append(item)
        twice.append(item)
        if item == 4:
            break
        optimizer.step(len(twice))
        other.append([item])
        other.append(item)
    return log, twice, other


def unassigned(optimizer, items):
    if len(items) > 100:
        limit = 3
    for item in items:
        if len(items) > 100:
            optimizer.step(limit)
        optimizer.step(item)


def unassigned_is_read(optimizer, items):
    if len(items) > 100:
        limit = 3
    for item in items:
        optimizer.step(item)
        if item == 4:
            optimizer.step(limit)


def sampled(optimizer, items):
    n = 0
    for _ in range(4):
        n += 1
        batch = types.SimpleNamespace(sample=lambda n=n: n).sample()
        scaled = batch * n
        optimizer.step(scaled)
    return scaled, n


def comprehensions(optimizer, items):
    item = None
    for rows in ([1, 2], [3]):
        made = [item * 2 for item in rows if item]
        named = {key: (last := key) for key in rows}
        optimizer.step((made, named, sum(item for item in rows), sorted(rows, key=lambda item: -item)))
    return item, last


def unpacks(optimizer, items):
    a, (b, *c) = 0, (1, 2)
    e = name = m = None
    for item in items:
        (a, (b, *c)), d = (item, (a, b, *c[:2])), item
        with open("/dev/null") as f, open("/dev/null"):
            name = f.name
        try:
            e = items[item]
        except IndexError as error:
            e = str(error)
            optimizer.step(e)
            continue
        finally:
            optimizer.step((a, b, c, d))
        import math as m
        e += m.floor(.5)
    return a, b, c, name, e, m and m.pi


def matches(optimizer, items):
    found = []
    for item in items:
        match (item, item % 2):
            case (4, _):
                break
            case (n, 0):
                found.append(n)
            case [_, rest] if rest:
                found.append("odd")
        optimizer.step(item)
    return found


def while_loop(optimizer, items):
    items = list(items)
    while items:
        item = items.pop()
        if item == 2:
            continue
        optimizer.step(item)
    return item


def nested(optimizer, items, *, epochs=2, **others):
    losses, going = [], True
    for epoch in range(epochs):
        for item in items:
            if item + epoch > 5:
                going = False
                break
            optimizer.step((epoch, item, others))
            losses.append(item + epoch)
        if not going:
            break
    return losses, epoch, item


def sometimes(optimizer, items):
    for item in items:
        if item > 2:
            found = item
        optimizer.step(item)
    return found


def before_or_sometimes(optimizer, items):
    if len(items) == 3:
        found = "before"
    for item in items:
        optimizer.step(item)
        if item > 4:
            found = item
            break
    return found


def adds_lists(optimizer, items):
    log, other, numbers, count = [], [0], [], 0
    for item in items:
        log += [item, item + 1]
        other += [len(other)]
        count += item
        numbers += [count]
        if item == 4:
            numbers.append("four")
            continue
        optimizer.step(item)
    return log, other, numbers, count


def in_a_block(optimizer, items):
    found = log = None
    for item in items:
        found = item
        if item > 1:
            if item % 2 == 0:
                log = [item]
                optimizer.step(item)
                if item == 6:
                    break
                log.append(found)
    return found, log


def assigned_anew(optimizer, items):
    for value in items:
        value += 1
    for item in items:
        value = item * 2
        scratch = value + 1
        optimizer.step(value)
    scratch = [0]
    for value in items:  # or not at all
        scratch = [value]
    return value, scratch


def in_the_next_turn(optimizer, items):
    last = seen = 0
    for row in (items, items[::-1]):
        extra = 0
        for item in row:
            extra += last
            last = item
            unused = item + extra
            optimizer.step(unused)
        else:
            seen += extra
        while seen > 30:
            seen -= 7
    return seen


def suppresses(optimizer, items):
    last = 0
    for item in items:
        with contextlib.suppress(ValueError):
            if item % 2:
                raise ValueError
            last = item
        optimizer.step(last)
    return last


def in_an_expression(optimizer, items):
    first = second = third = 0
    for item in items:
        if item % 2 and (first := item):
            pass
        chosen = (second := item) if item % 3 else 1
        [(third := each) for each in range(item % 4)]
        assert (item < 1 or (first := first + 1) > 0)
        optimizer.step((first, second, third, chosen))
    return first, second, third


def gives_defaults(optimizer, items):
    for item in items:
        def closure(item=item):
            return item * 2
        double = lambda item=item: item + closure()  # noqa: E731
        optimizer.step(double())


def names_a_type(optimizer, items):
    last = 5
    for item in items:
        last: int
        optimizer.step(last)
        last = item
    return last


def may_find_nothing(optimizer, items):
    for item in items:
        try:
            mean
        except NameError:
            mean = item
        mean = .5 * mean + item
        optimizer.step(mean)
    return mean if items else None


def appends_elsewhere(optimizer, items):
    kept = {"all": []}
    log = kept["all"]
    for item in items:
        log.append(item)
        optimizer.step(len(kept["all"]))
    return kept


def appends_to_what_it_is_given(optimizer, items, log=None):
    log = items if log is None else log
    for item in list(items):
        log.append(item)
        optimizer.step(len(items))
        if len(items) > 7:
            break
    return log


def adds_to_an_array(optimizer, items):
    total = np.zeros(1)
    for item in items:
        total += [item]
        optimizer.step(total.item())
    return total.tolist()


def makes_a_list_a_turn(optimizer, items):
    history = []
    for turn in range(2):
        log, count = [], 0
        for item in items:
            count += 1
            optimizer.step(count)
            log.append(item * turn)
        history.append((log, sum(log), len(log)))
    return history


def ends_in_a_finally(optimizer, items):
    left = 0
    for item in items:
        try:
            if item % 2:
                continue
            optimizer.step(item)
        finally:
            optimizer.step("left")
        left += 1
    return left


def catches_by_name(optimizer, items):
    seen = []
    for item in items:
        try:
            seen.append(1 // item)
        except ZeroDivisionError as error:
            seen.append(str(error))
        optimizer.step(item)
    return seen


def goes_on_only_now_and_then(optimizer, items):
    for item in items:
        if item % 3 == 0:
            rare = item * 10
            optimizer.step(rare)
        optimizer.step(item)
    return rare if items and items[0] % 3 == 0 else None


class Report:
    """What its methods do with names and texts depends on where they stand."""
    __count = 10

    def of_private_names(optimizer, items):  # noqa: N805: called as a function
        kept = Report()
        kept.__count += 1
        for item in items:
            optimizer.step(item)
        kept.__last = kept.__count
        return vars(kept)

    def of_texts(optimizer, items):  # noqa: N805
        text = ""
        for item in items:
            optimizer.step(item)
            text += f"""item:
                {item}
        end"""
        return text

    def continued(optimizer, items):  # noqa: N805
        for item in (items +
    [7]):  # fmt: skip
            optimizer.step(item)
# a comment at the margin
        return items


def deletes_after_the_step(optimizer, items):
    for item in items:
        item.sample() if hasattr(item, "sample") else None
        twice, thrice = 2 * item, 3 * item
        optimizer.step(twice)
        seen = thrice
    if items:
        del twice, seen
    return items


def deletes_in_a_loop_around(optimizer, items):
    for epoch in range(2):
        for item in items:
            twice = 2 * item
            optimizer.step(twice)
        if items:
            del twice
    return epoch


def deletes_and_assigns_anew(optimizer, items):
    found = None
    for item in items:
        found = 2 * item
        optimizer.step(found)
    del found
    found = 7
    return found


def calls_at_once(optimizer, items):
    """A function that reads the turn's variables, and is called in it alone."""
    best = []
    for item in items:
        best = [sorted([3, -item, item], key=lambda each: -each * item), sum(k * item for k in (1, 2))]
        optimizer.step(max(items, key=lambda each: each % (item + 1)))
        one, two = (k * item for k in (1, 2))
        optimizer.step(max(0, *(one + two - k * item for k in (1, 2))))
    return best


FUNCTIONS = [Report.of_private_names, Report.of_texts, Report.continued, deletes_after_the_step, deletes_in_a_loop_around, deletes_and_assigns_anew, calls_at_once, suppresses, in_an_expression, gives_defaults, names_a_type, may_find_nothing, appends_elsewhere, appends_to_what_it_is_given,
             adds_to_an_array, makes_a_list_a_turn, ends_in_a_finally, catches_by_name, goes_on_only_now_and_then, plain, breaks, continues, returns, returns_nothing, has_loops_inside, appends, unassigned, unassigned_is_read, sampled,
             comprehensions, unpacks, matches, while_loop, nested, sometimes,
             before_or_sometimes, adds_lists, in_a_block, assigned_anew, in_the_next_turn]


def outcome(function, *given):
    optimizer = Optimizer()
    try:
        result = function(optimizer, *copy.deepcopy(given))
    except UnboundLocalError as error:
        result = str(error)
    return result, optimizer.steps


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_does_what_the_function_does(function):
    lifted = lift(function)
    calls = []

    def counted(*given):
        calls.append(given)
        return lifted.body(*given)

    for items in ([], [1], [1, 2, 3], [2, 4, 6], [5, 4, 3, 2, 1], [0, 0]):
        before = len(calls)
        expected = outcome(function, items)
        assert outcome(lifted.around(counted), items) == expected, items
        assert len(calls) > before or not items, items
    first = function.__code__.co_firstlineno
    assert first < lifted.lines[0] <= lifted.lines[1], lifted.lines
    assert lifted.body.__code__.co_filename == __file__ and lifted.body.__code__.co_firstlineno == lifted.lines[0]


@pytest.mark.parametrize("function, outputs", [(assigned_anew, 1), (in_the_next_turn, 2), (plain, 0), (breaks, 2), (sampled, 1)])
def test_hands_out_what_is_read_after_it_alone(function, outputs):
    lifted, left = lift(function), set()

    def step(*given):
        result = lifted.body(*given)
        left.add(len(result[2]))
        return result

    lifted.around(step)(Optimizer(), [1, 2])
    assert left == {outputs}


def test_keeps_defaults_and_names():
    made = lift(nested).around(lambda *given: (1, None, [[], 7, True])[:])
    assert made.__name__ == "nested" and made.__kwdefaults__ == {"epochs": 2} and breaks.__defaults__ == lift(breaks).around(len).__defaults__


def test_what_is_only_appended_to_comes_back():
    lifted = lift(appends)
    assert "log" not in lifted.body.__code__.co_varnames[:lifted.body.__code__.co_argcount]  # made anew in it
    assert "twice" in lifted.body.__code__.co_varnames[:lifted.body.__code__.co_argcount]  # its length is read


def test_a_method_stays_bound():
    class Algorithm:
        def __init__(self):
            self.optimizer, self.count = Optimizer(), 0

        Kind = int

        def train(self, n: Kind):
            for i in range(n):
                self.count += i
                self.optimizer.step(self.count)
            return self.count

    algorithm = Algorithm()
    lifted = lift(algorithm.train)
    assert lifted.body.__self__ is algorithm
    assert lifted.around(lambda owner, *given: lifted.body(*given))(algorithm, 4) == 6 and algorithm.optimizer.steps == [0, 1, 3, 6]


def two_loops(optimizer, items):
    for item in items:
        optimizer.step(item)
    for item in items:
        optimizer.step(item)


def no_loop(optimizer, items):
    optimizer.step(items)


def yields(optimizer, items):
    for item in items:
        optimizer.step((yield item))


def deletes(optimizer, items):
    for item in items:
        optimizer.step(item)
        del item


def catches(optimizer, items):
    log = []
    try:
        for item in items:
            log.append(item)
            optimizer.step(item)
    except ValueError:
        pass
    return log


def captured(optimizer, items):
    last = None
    show = lambda: last  # noqa: E731
    for item in items:
        optimizer.step(item)
        last = item
    return show()


def assigned_by_another(optimizer, items):
    count = 0

    def note():
        nonlocal count
        count += 1
    for item in items:
        count *= 2
        optimizer.step(item)
        note()
    return count


def kept_function(optimizer, items):
    kept = []
    for item in items:
        optimizer.step(item)
        kept.append(lambda: item)
    return [each() for each in kept]


def made_lazily(optimizer, items):
    scale = 1
    for item in (scale * each for each in items):
        optimizer.step(item)
        scale = item


def left_in_a_finally(optimizer, items):
    count = 0
    for item in items:
        try:
            if item == 2:
                break
            optimizer.step(item)
        finally:
            count += 1
    return count


def looks_by_name(optimizer, items):
    for item in items:
        optimizer.step("{item}".format(**locals()))


def suppressed(optimizer, items):
    last = None
    with contextlib.suppress(ValueError):
        for item in items:
            last = item
            optimizer.step(item)
    return last


def reads_a_deleted_name(optimizer, items):
    error = None
    for item in items:
        try:
            optimizer.step(1 // item)
        except ZeroDivisionError as error:
            pass
        if item == 4:
            optimizer.step(error)


def holds_an_ellipsis(optimizer, items):
    last = ...
    for item in items:
        optimizer.step(last)
        if item > 2:
            found = item
    return found


def kept_in_a_dict(optimizer, items):
    reports = []
    for item in items:
        value = item * 2
        report = dict(value=lambda: value)
        optimizer.step(value)
        reports += [report]
    return [report["value"]() for report in reports]


def made_of_a_function(optimizer, items):
    kept = []
    for item in items:
        grows = torch.vmap(lambda x: x * item)
        optimizer.step(grows(torch.ones(2)))
        kept += [grows]
    return kept


def handed_to_a_decorator(optimizer, items):
    for item in items:
        @atexit.register
        def show():
            return item
        optimizer.step(show())


def hands_its_method_away(optimizer, items):
    log, bus = [], []
    bus.append(log.append)
    for item in items:
        log.append(item)
        bus[0](str(item))
        optimizer.step(item)
    return log


class Private:
    def train(self, optimizer, items):
        for item in items:
            optimizer.step(self.__secret)

    def inherits(self, optimizer, items):
        for item in items:
            optimizer.step(super().__hash__())


@pytest.mark.parametrize("function, words", [
    (two_loops, "2 loops in it"), (no_loop, "no loops in it"), (yields, "yield in the step"), (deletes, "delete in the step"),
    (assigned_by_another, "count: a function or lambda outside"), (kept_function, "item: a function in line .* may be called after"),
    (kept_in_a_dict, "value: a function in line .* may be called after"), (made_of_a_function, "item: a function in line .* may be called after"),
    (handed_to_a_decorator, "item: a function in line .* may be called after"),
    (made_lazily, "scale: a function or lambda outside"), (left_in_a_finally, "count: assigned in a `finally`"),
    (looks_by_name, "locals looks at variables"), (suppressed, "last: read after the `with`"),
    (reads_a_deleted_name, "error: the name of an exception"), (holds_an_ellipsis, "an Ellipsis"),
    (catches, "stands in a try"), (captured, "last: a function or lambda outside"),
    (Private.train, "__secret: a private name"), (Private.inherits, "super"), (len, "source cannot be read"),
    (pytest.fixture, "loops in it"),
], ids=lambda value: getattr(value, "__name__", None))
def test_says_why_not(function, words):
    with pytest.raises(steptape.InvalidArgument, match=words):
        lift(function)


def test_a_list_whose_method_others_have_is_not_kept_back():
    assert outcome(lift(hands_its_method_away).around(lift(hands_its_method_away).body), [1, 2]) == outcome(hands_its_method_away, [1, 2])


def test_is_compiled_as_its_module_was(tmp_path):
    """With `from __future__ import annotations` nothing of them is worked out."""
    path = tmp_path / "later.py"
    path.write_text("from __future__ import annotations\n\n\ndef train(optimizer, items):\n    def twice(x: Unknown) -> Unknown:\n        return 2 * x\n"
                    "    for item in items:\n        found: Unknown = twice(item)\n        optimizer.step(found)\n    return twice.__annotations__\n")
    names = {}
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
    lifted = lift(names["train"])
    assert outcome(lifted.around(lifted.body), [1, 2]) == ({"x": "Unknown", "return": "Unknown"}, [2, 4])


NAMES, LISTS = "abcde", "pq"


def an_expression(draw):
    return draw.choice([draw.choice(f"{NAMES}"), "item", str(draw.randint(0, 4)), f"{draw.choice(NAMES)} + {draw.choice(NAMES)}",
                        f"len({draw.choice(LISTS)})", f"sum({draw.choice(NAMES)} for {draw.choice(NAMES)} in (1, 2))"])


def statements(draw, indent, in_loop, depth):
    """Of a function's body, some lines."""
    at, lines = "    " * indent, []

    def inside(in_loop):
        return statements(draw, indent + 1, in_loop, depth - 1)

    for _ in range(draw.randint(1, 3)):
        test = f"if ({an_expression(draw)}) % {draw.randint(2, 4)} == {draw.randint(0, 1)}:"
        kinds = ["assign", "assign", "assign", "add", "append", "extend", "pair", "step"] + ["leave"] * in_loop + ["return"] * (draw.random() < .1)
        kind = draw.choice(kinds + ["walrus"] + ["if", "if", "for", "with", "try", "suppress", "finally", "named"] * bool(depth))
        if kind in ("assign", "add"):
            lines.append(f"{at}{draw.choice(NAMES)} {'+' if kind == 'add' else ''}= {an_expression(draw)}")
        elif kind in ("append", "extend"):
            lines.append(f"{at}{draw.choice(LISTS)}" + (f".append({an_expression(draw)})" if kind == "append" else f" += [{an_expression(draw)}]"))
        elif kind == "pair":
            # of two names: `a, a = x, y` gives x or y in CPython 3.11.2, as the lines of the function fall
            lines.append(f"{at}{', '.join(draw.sample(NAMES, 2))} = {an_expression(draw)}, {an_expression(draw)}")
        elif kind == "walrus":
            first, second = draw.sample(NAMES, 2)
            lines.append(f"{at}{draw.choice(NAMES)} = ({first} := {an_expression(draw)}) % 2 and ({second} := {an_expression(draw)}) or 1")
        elif kind == "step":
            lines.append(f"{at}optimizer.step({an_expression(draw)})")
        elif kind in ("leave", "return"):
            lines += [f"{at}{test}", f"{at}    " + (draw.choice(["break", "continue"]) if kind == "leave" else f"return {an_expression(draw)}, p")]
        elif kind == "if":
            lines += [f"{at}{test}", *inside(in_loop)] + ([f"{at}else:", *inside(in_loop)] if draw.random() < .5 else [])
        elif kind == "for":
            lines += [f"{at}for {draw.choice(NAMES)} in range({draw.randint(0, 3)}):", *inside(True)]
        elif kind == "with":
            lines += [f"{at}with contextlib.nullcontext():", *inside(in_loop)]
        elif kind == "suppress":
            lines += [f"{at}with contextlib.suppress(ZeroDivisionError):", *inside(in_loop), f"{at}    {draw.choice(NAMES)} = 1 // ({an_expression(draw)})",
                      *inside(in_loop)]
        elif kind == "finally":
            lines += [f"{at}try:", *inside(in_loop), f"{at}finally:", *inside(False)]
        else:
            named = f" as {draw.choice(NAMES)}" if kind == "named" else ""
            lines += [f"{at}try:", *inside(in_loop), f"{at}    {draw.choice(NAMES)} = 1 // ({an_expression(draw)})",
                      f"{at}except ZeroDivisionError{named}:", *inside(in_loop)]
    return lines


def drawn_program(draw):
    lines = ["def drawn(optimizer, items):", *(f"    {name} = {draw.randint(0, 3)}" for name in NAMES if draw.random() < .97),
             *(f"    {name} = []" for name in LISTS)]
    nested = draw.random() < .4
    if nested:
        lines += ["    for epoch in range(2):", *statements(draw, 2, True, 0)]
    at = 2 if nested else 1
    lines += ["    " * at + "for item in items:", *statements(draw, at + 1, True, 2), "    " * (at + 1) + "optimizer.step(item)",
              *statements(draw, at + 1, True, 1), *(statements(draw, 2, True, 1) if nested else []), *statements(draw, 1, False, 1)]
    return "\n".join([*lines, f"    return {', '.join(draw.sample(NAMES, draw.randint(1, 5)))}, p, q", ""])


def test_drawn_functions_do_what_they_did(tmp_path):
    """Where they end without an exception: a name that was never assigned is found missing in other places."""
    draw, lifted_ones, compared = random.Random(7), 0, 0
    for i in range(600):
        text, name = drawn_program(draw), str(tmp_path / f"{i}.py")
        linecache.cache[name] = len(text), None, text.splitlines(True), name
        names = {"contextlib": contextlib}
        exec(compile(text, name, "exec"), names)
        try:
            lifted = lift(names["drawn"])
        except steptape.InvalidArgument:  # steps in several loops
            continue
        lifted_ones += 1
        for items in ([], [1], [2, 3], [0, 1, 2, 3, 4, 5]):
            expected = drawn_outcome(names["drawn"], items)
            if expected is not None:
                compared += 1
                assert drawn_outcome(lifted.around(lifted.body), items) == expected, text
    assert lifted_ones > 250 and compared > 700, (lifted_ones, compared)


def drawn_outcome(function, items):
    optimizer = Optimizer()
    try:
        return repr(function(optimizer, items)), repr(optimizer.steps)
    except (NameError, TypeError):
        return None

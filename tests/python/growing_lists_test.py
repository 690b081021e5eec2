"""Lists that a step adds to and reads: how many items they have, and those at their end, are looked up as each call begins."""
import collections
import itertools
import types

import numpy as np
import pytest
import torch

import steptape
import twins

CALLS = 40


class Window:
    """As replay buffers are written."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def last(self):
        return self.items[-1]


def played(body, start, between="pass", calls=CALLS):
    """`body`: lines of the step, of `held`, `loss` and its value `v`; `between`: what the program does before call `i`."""
    def play(wrap):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        names = dict(np=np, torch=torch, collections=collections, types=types, optimizer=torch.optim.SGD(net.parameters(), lr=0.05), net=net)
        lines = "".join(f"    {line}\n" for line in body.split("\n"))
        exec(f"def step(x):\n    optimizer.zero_grad()\n    loss = net(x).pow(2).mean()\n    v = loss.item()\n    result = None\n{lines}"
             f"    loss.backward()\n    optimizer.step()\n    return result, loss.detach()\n"
             f"def between(held, i):\n    {between}\n", names)
        held = names["held"] = types.SimpleNamespace(n=0, log=start(), out=[])
        held.window = Window(held.log)
        step = wrap(names["step"])
        seen = []
        for i in range(calls):
            names["between"](held, i)
            result, loss = step(torch.randn(2, 3))
            seen.append((twins.bits(result), twins.bits(loss), twins.bits([list(held.log), held.out]), twins.bits(list(net.parameters()))))
        return [seen, step]
    return twins.played_alike(play)


def numbers():
    return [0.5, 0.25, 0.75]


def nothing():
    return []


def short():
    return collections.deque([0.5], maxlen=25)


def long():
    return [0.25 * k for k in range(30)]


def queue():
    return collections.deque([0.5, 0.25, 0.75])


def window():
    return collections.deque([0.5, 0.25, 0.75], maxlen=4)


def tensors():
    return [torch.zeros(()), torch.ones(())]


REPLAYS = {
    "its size decides": ("held.log.append(v)\nif len(held.log) % 5 == 0: held.out.append(v)", nothing),
    "its size decides at first": ("held.log.append(v)\nif len(held.log) < 12: loss = loss * 2", nothing),
    "its size enters an op": ("held.log.append(v)\nloss = loss / len(held.log)", nothing),
    "its size before": ("loss = loss * (len(held.log) + 1)\nheld.log.append(1.0)", nothing),
    "its size is returned": ("held.log.append(v)\nresult = len(held.log)", numbers),
    "its size is appended": ("held.log.append(len(held.log))", nothing),
    "its size and what is added twice": ("held.log.append(v)\nk = len(held.log)\nheld.log += [k, v]\nresult = k * 10 + len(held.log)", numbers),
    "what was appended": ("held.log.append(v)\nresult = held.log[-1]", nothing),
    "the newest before": ("result = held.log[-1]\nheld.log.append(v)", numbers),
    "goes on from the newest": ("held.log.append(held.log[-1] * 0.9 + v)", numbers),
    "goes on in an op": ("loss = loss * held.log[-1]\nheld.log.append(v + 0.5)", numbers),
    "the one before": ("held.log.append(v)\nresult = held.log[-1] - held.log[-2]", numbers),
    "the one before both": ("held.log.extend([v, 1.0])\nresult = held.log[-3]", numbers),
    "counted on": ("held.log.append(held.log[-1] + 1)", lambda: [0]),
    "the first": ("held.log.append(v)\nresult = held.log[0]", numbers),
    "a mean of the last": ("held.log.append(v)\nresult = sum(held.log[-3:]) / 3", numbers),
    "a mean of the last, fewer at first": ("held.log.append(v)\nresult = sum(held.log[-4:]) / len(held.log[-4:])", nothing),
    "the largest but for the newest": ("held.log.append(v)\nresult = max(held.log[-3:-1])", numbers),
    "by NumPy": ("result = float(np.mean(held.log[-3:]))\nheld.log.append(v)", numbers),
    "unpacked": ("a, b = held.log[-2:]\nresult = a - b\nheld.log.append(v)", numbers),
    "whether it is empty": ("if not held.log: loss = loss * 2\nheld.log.append(v)", nothing),
    "a tensor": ("loss = loss + held.log[-1] * 0.1\nheld.log.append(loss.detach())", tensors),
    "tensors": ("result = torch.stack(held.log[-2:])\nheld.log.append(loss.detach())", tensors),
    "a queue": ("held.log.append(v)\nresult = [held.log[-1], held.log[-2], len(held.log)]", queue),
    "a queue that fills": ("held.log.append(v)\nresult = len(held.log)", short),
    "two to a queue that fills": ("held.log.append(v)\nheld.log.extend([v, 0.])\nresult = len(held.log) * 2", short),
    "means of a queue that fills": ("held.log.append(v)\nresult = 100 / len(held.log)", short),
    "a queue that fills, before": ("result = len(held.log)\nheld.log.append(v)", short),
    "a queue that is full": ("held.log.append(v)\nresult = [held.log[-1], len(held.log)]", window),
    "a full queue before": ("held.log.append(v)\nresult = held.log[-2]", window),
    "taken again": ("held.log.append(v)\nresult = held.log.pop(0)", numbers),
    "in a dict": ("held.out.append({}) if not held.out else None\nheld.log.append(v)\nresult = held.log[-1]", numbers),
    "its own length": ("held.log.append(v)\nif len(held.window) % 4 == 0: loss = loss * 2\nresult = len(held.window)", nothing),
    "through a method": ("held.log.append(v)\nresult = held.window.last()", nothing),
    "of two kinds": ("held.log.append(v if held.n % 2 else 1)\nheld.n += 1\nresult = held.log[-2]", numbers),
}
REFUSED = {
    "all of them": ("held.log.append(v)\nresult = sum(held.log) / len(held.log)", numbers),
    "the newest is assigned, too": ("held.log[-1] = v\nheld.log.append(0.0)", numbers),
    "at the front": ("held.log.insert(0, v)\nresult = held.log[-1]", numbers),
    "at the left": ("held.log.appendleft(v)\nresult = held.log[-1]", queue),
}


@pytest.mark.parametrize("name", REPLAYS)
def test_what_is_read_of_a_list_that_grows_is_looked_up(name):
    step = played(*REPLAYS[name])
    assert step.stats["replayed"] >= CALLS / 2, step.explain()


@pytest.mark.parametrize("name", REFUSED)
def test_what_takes_all_of_a_list_that_grows_is_refused(name):
    twins.is_refused(played(*REFUSED[name]), {"host_effect"})


def test_which_object_an_item_is():
    step = played("held.log.append(held.log[-1])\nresult = [held.log[-2] is held.log[-2], held.log[-2] is held.log[-1], held.log[-3] is held.log[-2]]", numbers)
    assert step.stats["replayed"] >= CALLS / 2, step.explain()


# what the program does meanwhile, which replays have to see
BETWEEN = {
    "appends": "held.log.append(0.125) if i % 3 == 0 else None",
    "assigns the newest": "if i > 20: held.log[-1] = 0.125 * i",
    "of another class": "if i == 25: held.log[-1] = 3",
    "of NumPy's": "if i == 25: held.log[-1] = np.float64(0.5)",
    "a flag": "if i == 25: held.log[-1] = True",
    "None": "if i == 25: held.log[-1] = 0.5; held.log.append(None); held.log.pop()",
    "takes one away": "if i == 25: held.log.pop()",
    "takes all but three": "if i % 9 == 8: del held.log[:-3]",
    "puts one in front": "if i == 25: held.log.insert(0, 7.0)",
    "another list": "if i == 25: held.log = held.window.items = list(held.log)",
    "a list like it": "if i == 25: held.log = [0.5, 0.5, 0.5]",
    "a new one now and then": "if i % 8 == 0: held.log = held.window.items = [0.5, 0.25, 0.75]",
    "the other way round": "if i == 25: held.log.reverse()",
}


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("name", ("its size decides", "goes on from the newest", "the one before", "a mean of the last", "its own length"))
def test_the_program_changes_it_meanwhile(name, between):
    step = played(REPLAYS[name][0], numbers, BETWEEN[between])
    assert step.stats["replayed"] >= 5, step.explain()


@pytest.mark.parametrize("read", ("len(held.log)", "held.log[-1]", "held.log[-2]", "sum(held.log[-2:])"))
def test_a_list_that_the_program_alone_adds_to(read):
    step = played(f"loss = loss * {read}", numbers, "held.log.append(0.01 * i)")
    assert step.stats["replayed"] >= CALLS / 2, step.explain()


@pytest.mark.parametrize("between", ["if i == 25: held.log = collections.deque([0.5], maxlen=10)", "if i % 8 == 7: held.log.clear()", "held.log.append(0.125) if i % 3 == 0 else None",
                                     "if i == 25: held.log.pop()", "if i == 15: held.log = collections.deque(held.log, maxlen=3)", "if i == 25: held.log = [0.5]"])
@pytest.mark.parametrize("name", ["a queue that fills", "two to a queue that fills", "a queue that fills, before"])
def test_a_queue_is_changed_as_it_fills(name, between):
    played(REPLAYS[name][0], short, between, calls=60)


LIMITS = {
    "it gets a limit, and is full": ("[1., 2., 3.]", "held.log = collections.deque([1., 2., 3.], maxlen=3)"),
    "it loses its limit": ("[1., 2., 3.], maxlen=3", "held.log = collections.deque([1., 2., 3.])"),
    "it gets another one": ("[1., 2., 3.], maxlen=5", "held.log = collections.deque([1., 2., 3.], maxlen=3)"),
    "it is made anew in its place": ("[1., 2., 3.]", "held.log.__init__([1., 2., 3.], 3)"),
}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("read", ["len(held.log)", "held.log[0]", "held.log[1] + len(held.log)", "float(len(held.log) > 3)", "sum(held.log)", "next(iter(held.log))",
                                  "float(np.mean(held.log))", "list(held.log)[0]", "max(held.log)", "sum(1.0 for _ in held.log)"])
def test_another_queue_drops_items_elsewhere(read, limit):
    first, then = LIMITS[limit]
    body = f"held.log.append(v)\nresult = {read}\nloss = loss * result"
    between = f"if i in (0, 6, 8, 10): held.log = collections.deque({first})\n    if i == 16: {then}"
    played(body, queue, between, calls=30)


def test_there_is_no_such_item_at_first():
    body = "held.log.append(v)\ntry:\n    result = held.log[-4]\nexcept IndexError:\n    result = None"
    step = played(body, nothing)
    assert step.stats["replayed"] >= CALLS / 2, step.explain()


def test_it_is_empty_now_and_then():
    step = played("result = held.log[-1] if held.log else 0.0\nheld.log.append(v)", nothing, "if i % 6 == 5: held.log.clear()", calls=60)
    assert step.stats["replayed"] >= CALLS / 2, step.explain()


WINDOWS = {
    "a running mean": "held.log.append(v)\nresult = sum(held.log) / len(held.log)",
    "a running mean, before": "result = sum(held.log) / len(held.log)\nheld.log.append(v)",
    "as a loop adds it up": "held.log.append(v)\nresult = 0.0\nfor each in held.log:\n    result += each",
    "as a comprehension": "held.log.append(v)\nresult = sum(each * 0.5 for each in held.log)",
    "as squares": "mean = sum(held.log) / len(held.log)\nresult = sum((each - mean) ** 2 for each in held.log)\nheld.log.append(v)",
    "it weighs the loss": "held.log.append(v)\nloss = loss * (1.0 + 0.01 * sum(held.log))",
    "from the left": "held.log.appendleft(v)\nresult = sum(held.log)",
    "two in each call": "held.log.append(v)\nheld.log.append(v * 2)\nresult = sum(held.log)",
    "the mean and the newest": "held.log.append(v)\nresult = sum(held.log), held.log[-1], held.log[-2], held.log[0]",
    "kept in another": "held.log.append(v)\nheld.out.append(sum(held.log) / 4)",
    "by NumPy, before": "result = float(np.mean(held.log))\nheld.log.append(v)",
    "the largest": "held.log.append(v)\nresult = max(each for each in held.log)",
    "what is new": "result = v > sum(held.log) / len(held.log)\nheld.log.append(v)",
    "one by one": "a, *rest = held.log\nresult = a + sum(rest)\nheld.log.append(v)",
    "nothing is added": "result = sum(held.log)",
    "another one is made of it": "held.log.append(v)\nheld.log = collections.deque(held.log, 3)\nresult = sum(held.log)",
}
MOVING_UP = ("a running mean", "a running mean, before", "as a loop adds it up", "as a comprehension", "it weighs the loss", "two in each call",
             "the mean and the newest", "kept in another", "what is new")
MEANWHILE = {
    "nothing": "pass",
    "it is emptied": "if i % 17 == 16:\n        held.log.clear()\n        held.log.extend([0.5, 0.25])",
    "one more": "if i in (20, 21, 31): held.log.append(0.125)",
    "one less": "if i == 25: held.log.pop()",
    "one is another": "if i in (20, 29): held.log[1] = 0.5",
    "a number that is none": "if i == 25: held.log[1] = float('nan')",
    "an int": "if i == 25: held.log[1] = 2",
    "another queue": "if i == 25: held.log = collections.deque([0.5, 0.25, 0.125], 4)",
    "a longer one": "if i == 25: held.log = collections.deque(held.log, 6)",
    "a list": "if i == 25: held.log = list(held.log)",
    "it turns": "if i % 9 == 8: held.log.rotate(1)",
    "its own numbers": "if i == 20: held.kept = list(held.log)\n    if i == 24: held.log.extend(held.kept)",
}


@pytest.mark.parametrize("name, between", [*((name, "nothing") for name in WINDOWS), *itertools.product(MOVING_UP, [*MEANWHILE][1:])])
def test_a_window_of_numbers(name, between):
    step = played(WINDOWS[name], window, MEANWHILE[between], calls=60)
    if between == "nothing" and name in MOVING_UP:
        assert step.stats["replayed"] >= 40, step.explain()


@pytest.mark.parametrize("between", ["pass", "if i == 25: held.log = [0.5]", "if i == 25: held.log.append(0.125)", "if i % 9 == 8: held.log.clear()"])
def test_a_list_that_is_cut_to_a_window(between):
    step = played("held.log.append(v)\nheld.log = held.log[-4:]\nresult = sum(held.log) / len(held.log)", numbers, between, calls=60)
    assert step.stats["replayed"] >= 20, step.explain()


def test_the_numbers_of_a_window_are_the_programs_own_again():
    net, kept = torch.nn.Linear(3, 2), [0.5, 0.25, 0.125]
    held = types.SimpleNamespace(log=collections.deque(kept, 3))
    step = steptape.wrap(lambda x: net(x).sum().item() + sum(held.log))
    for i in range(8):
        step(torch.ones(2, 3))
        assert all(a is b for a, b in zip(held.log, kept)), i
        held.log.append(0.5 * i)
        kept = [*kept[1:], held.log[-1]]


@pytest.mark.parametrize("body", ["held.n = 0.9 * held.n + 0.1 * max(each for each in made)", "result = max(each for each in made)",
                                  "result = 1.0\nfor each in made:\n    result = each - (each - result)", "if max(made) > 0.3:\n    result = 1"])
def test_a_formula_that_is_nearly_too_deep(body):
    """Whatever is made of it: what is required of a formula is deeper."""
    for size in range(12, 20):
        played(f"made = [v * k for k in range({size})]\n" + body, nothing, calls=8)


@pytest.mark.parametrize("read", ("len(held.log)", "held.log[-1]", "held.log[-2:][0]"))
def test_players_do_not_take_what_the_step_adds_to(read, tmp_path):
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    held = types.SimpleNamespace(log=[0.5, 0.25])
    weight = eval(f"lambda held: {read}")

    @steptape.wrap(model=net, optimizer=optimizer, verify={"first": True, "rate": 0.0})
    def train(x):
        optimizer.zero_grad()
        loss = net(x).pow(2).mean() * weight(held)
        loss.backward()
        optimizer.step()
        held.log.append(loss.item())
        return loss.detach()

    for _ in range(12):
        train(torch.randn(2, 3))
    assert train.stats["replayed"] > 3, train.explain()
    train.save(tmp_path / "train.tape")
    with pytest.raises(steptape.Error, match="held.log"):
        steptape.load(tmp_path / "train.tape")


def test_losses_of_a_group_that_each_group_collects_anew():
    body = "held.log.append(loss.detach())\nheld.n += 1\nif held.n % 3 == 0:\n    result = torch.stack(held.log).mean()\n    held.log = []"
    step = played(body, nothing, calls=60)
    assert "held.log[" in step.stats["refusals"][0]["reason"], step.explain()


@pytest.mark.parametrize("write", ["held.log[{}] = v", "held.log[{}] = 7.", "held.log.__setitem__({}, v)", "operator.setitem(held.log, {}, v)"])
@pytest.mark.parametrize("place", [0, 2, -1, -3])
@pytest.mark.parametrize("start", [long, lambda: collections.deque(long())])
@pytest.mark.parametrize("between", ["held.log.clear() if i == 20 else None", "held.log.pop() if i > 9 and held.log else None",
                                     "held.log.extend([0.]) if i % 9 == 4 else held.log.clear() if i % 9 == 8 else None"])
def test_an_item_that_is_only_written_is_gone(write, place, start, between):
    """The step throws where eager does: nothing that comes after it is done."""
    line = write.format(place)
    step = played(f"import operator\ntry:\n    {line}\nexcept IndexError:\n    held.log.extend([1.] * 4)", start, between)
    if start is long and "clear() if i == 20" in between and "operator" not in write:
        assert step.stats["replayed"] >= 3, step.explain()


@pytest.mark.parametrize("place", [0, -1])
def test_a_step_throws_where_the_item_that_it_writes_is_gone(place):
    def play(wrap):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        log = [0.5, 0.25]

        def step(x):
            optimizer.zero_grad()
            loss = net(x).pow(2).mean()
            log[place] = 7.0
            loss.backward()
            optimizer.step()
            return loss.detach()

        wrapped, seen = wrap(step), []
        for i in range(CALLS):
            if i == 20:
                log.clear()
            if i == 24:
                log.append(0.0)
            try:
                seen.append(twins.bits(wrapped(torch.randn(2, 3))))
            except IndexError as error:
                seen.append(str(error))
            seen.append((list(log), twins.bits(list(net.parameters()))))
        return [seen, wrapped]
    step = twins.played_alike(play)
    assert step.stats["replayed"] >= 20, step.explain()


class Circular(list):
    def __getitem__(self, at):
        return super().__getitem__(at % len(self))


class Reversed(list):
    def __getitem__(self, at):
        return list(reversed(self))[at]


@pytest.mark.parametrize("kind", [Circular, Reversed])
def test_a_list_with_items_of_its_own_way(kind):
    def play(wrap):
        log = kind()

        def step(x):
            loss = x.sum()
            log.append(loss.item())
            return loss

        step, seen = wrap(step), []
        for i in range(CALLS):
            seen.append((step(torch.full((2,), float(i))).item(), list(log)))
        return seen, step

    step = twins.played_alike(play)
    assert step.stats["replayed"] >= CALLS / 2, step.explain()

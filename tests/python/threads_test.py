"""Threads that call one step, or a step each."""
import itertools
import math
import sys
import threading
import time

import pytest
import torch
import torch.nn as nn

import steptape
import twins
from classification import LATE, STEPS, Training, batch, classifier
from twins import bits, codes_of, compare_through, has_replayed, played_alike


def run_in_threads(*functions):
    """Runs functions at the same time; returns what they threw."""
    barrier = threading.Barrier(len(functions))
    errors = []

    def run(function):
        barrier.wait(10)
        try:
            function()
        except BaseException as error:  # for the main thread to judge
            errors.append(error)

    threads = [threading.Thread(target=run, args=(f,), daemon=True) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "deadlock"
    return errors


def test_two_threads_call_one_step():
    """Serialised, or a clear error in one of them: no call is lost and no result is another's."""
    total = torch.zeros(4, dtype=torch.int64)
    model = nn.Module()
    model.register_buffer("total", total)

    @steptape.wrap
    def step(x):
        model.total.add_(x)
        return x * 2

    for _ in range(12):
        step(torch.ones(4, dtype=torch.int64))
    done = [0, 0]

    def calls(which):
        for n in range(100):
            x = torch.full((4,), 1000 * which + n)
            try:
                result = step(x)
            except steptape.FailedPrecondition:
                continue
            done[which] += int(x[0])
            assert torch.equal(result, x * 2)

    errors = run_in_threads(lambda: calls(0), lambda: calls(1))
    assert not errors
    assert done[0] + done[1] > 0
    assert total.tolist() == [12 + sum(done)] * 4
    step(torch.ones(4, dtype=torch.int64))


def test_two_threads_that_record_at_once_leave_python_as_it_was():
    """While a step is recorded some of Python's functions are others; the last to end puts them back."""
    before = dict(vars(math)), max, min
    entered, may_end = threading.Event(), threading.Event()

    def slow(x):
        entered.set()
        may_end.wait(60)
        return x * math.exp(1.0)

    def other(x):
        assert entered.wait(60)
        result = x * max(1.0, math.sqrt(4.0))
        may_end.set()
        return result

    steps = steptape.wrap(slow), steptape.wrap(other)
    x = torch.ones(2)
    assert not run_in_threads(lambda: steps[0](x), lambda: steps[1](x))
    assert (dict(vars(math)), max, min) == before
    # events are host state: `set` and `wait` are what is refused
    assert all({r["code"] for r in step.stats["refusals"]} <= {"host_effect"} for step in steps)


def test_other_threads_run_while_a_long_replay_does():
    """Data loaders and loggers are threads: a replay that takes long lets them have the interpreter."""
    a, b = torch.randn(700, 700), torch.randn(700, 700)
    step = steptape.wrap(lambda a: ((a @ b) @ b) @ b, verify={"first": True, "rate": 0.0})
    for _ in range(8):
        step(a)
    turns, done = [0], threading.Event()

    def take_turns():
        while not done.is_set():
            turns[0] += 1
            time.sleep(1e-4)  # lets go by itself

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=take_turns, daemon=True)
    thread.start()
    try:
        sys.setswitchinterval(60.0)  # nobody is made to let go
        replayed, taken = step.stats["replayed"], 0
        for _ in range(20):
            before = turns[0]
            step(a)
            taken += turns[0] - before
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join(60)
    assert step.stats["replayed"] == replayed + 20, step.explain()
    assert taken > 0


def test_two_threads_have_a_step_each():
    def results(wrap):
        torch.manual_seed(0)
        programs = [classifier(), classifier()]
        found = [[], []]
        steps = [wrap(train) for train, _, _ in programs]

        def calls(which):
            for i in range(STEPS):
                found[which].append(bits(steps[which](*batch(100 * which + i))))
        return programs, found, steps, calls

    programs, expected, _, calls = results(lambda train: train)
    calls(0), calls(1)
    others, found, steps, calls = results(steptape.wrap)
    assert not run_in_threads(lambda: calls(0), lambda: calls(1))
    assert found == expected
    for (_, model, optimizer), (_, other, other_optimizer) in zip(programs, others):
        assert twins.first_difference(bits([model, optimizer]),
                                      bits([other, other_optimizer])) is None
    for step in steps:
        has_replayed(step)


def test_a_step_moves_to_another_thread():
    """Recorded in one thread and called in another, one after the other."""
    def through(step):
        calls = itertools.count()

        def in_turn(x, y):
            if next(calls) < LATE:
                return step(x, y)
            results = []
            errors = run_in_threads(lambda: results.append(step(x, y)))
            if errors:
                raise errors[0]
            return results[0]
        return in_turn

    def make():
        train, model, optimizer = classifier()
        return Training(train, (model, optimizer))

    compare_through(make, through)


def test_what_a_thread_keeps_to_itself_is_that_of_the_thread_that_calls():
    """threading.local: read and written by name in each thread, whose namespaces are others."""
    def play(wrap):
        own = threading.local()
        own.scale = 2.0

        def step(x):
            own.newest, own.calls = (x * 3).detach(), 1 + getattr(own, "calls", 0)
            return x * own.scale * getattr(own, "more", 1.0)
        taken, seen = wrap(step), []

        def call(i):
            seen.append((bits(taken(torch.ones(2) * i)), bits(own.newest), own.calls))

        def in_another_thread():
            own.scale = 11.0
            for i in range(8):
                call(i)
        for i in range(24):
            if i == 8:
                own.scale = 3.0
            if i == 14:
                own.more = 2.0
            if i == 18:
                other = threading.Thread(target=in_another_thread)
                other.start()
                other.join()
            if i == 20:
                own.__dict__.clear()
                own.scale = 7.0
            call(i)
        return seen, taken
    step = played_alike(play)
    assert step.stats["replayed"] > 6 and not codes_of(step), step.explain()


@pytest.mark.parametrize("body", ["c = own.v", "c = vars(own)['v']", "c = own.__dict__['v']", "own.v = c = v", "vars(own)['v'] = c = v",
                                  "vars(own)['v'] += 1.0; c = 1.0", "c = getattr(own, 'v')", "own.__dict__.update(v=v); c = 1.0"])
def test_a_class_that_is_made_of_threading_local(body):
    class Own(threading.local):
        def __init__(self):
            self.v = 2.0

    def play(wrap):
        own = Own()
        scope = dict(own=own)
        exec(f"def step(x):\n    v = x.sum().item()\n    {body}\n    return x * c\n", scope)
        step, seen = wrap(scope["step"]), []
        for i in range(24):
            if i == 12:
                own.v = 3.0
            seen.append((bits(step(torch.full((2,), float(i)))), own.v))
        return [seen, step]
    step = played_alike(play)
    assert step.stats["replayed"] == 0 and "whose content cannot be compared" in step.explain(), step.explain()

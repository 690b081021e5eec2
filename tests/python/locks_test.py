"""Steps that take locks of `threading`. A replay takes none: where the step does no more under one than read, and write what it takes back, it replays
while nobody has the lock."""
import threading
import types

import pytest
import torch
import torch.nn as nn

import steptape
import twins

CALLS, LATE = 30, 20


def reads(held):
    with held.lock:
        return held.scale


def is_a_gate(held):
    with held.lock:
        pass
    return 1.0


def takes_two(held):
    with held.lock, held.other:
        return held.scale


def sets_a_mode(held):
    """As tensordict does; what the step left is what it found."""
    with held.lock:
        before, held.mode = held.mode, "train"
    scale = 1.0 if held.mode == "train" else 3.0
    with held.lock:
        held.mode = before
    return scale


def raises(held):
    try:
        with held.lock:
            raise KeyError(held.scale)
    except KeyError as error:
        return error.args[0]


def counts(held):
    with held.lock:
        held.count += 1
    return held.count


def appends(held):
    with held.lock:
        held.log.append(1)
    return 1.0


def computes(held):
    with held.lock:
        return (held.tensor * 2).sum()


def writes_a_tensor(held):
    with held.lock:
        held.tensor.mul_(0.5)
    return 1.0


def takes_it_by_its_method(held):
    held.lock.acquire()
    scale = held.scale
    held.lock.release()
    return scale


def takes_one_that_counts(held):
    with held.again:
        return held.scale


def play(scale, late=lambda held: None):
    def run(wrap):
        torch.manual_seed(0)
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        held = types.SimpleNamespace(lock=threading.Lock(), other=threading.Lock(), again=threading.RLock(), scale=2.0, mode=None, count=0, log=[],
                                     tensor=torch.ones(2))

        def step(x):
            loss = net(x).pow(2).mean() * scale(held)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step, seen = wrap(step), []
        for i in range(CALLS):
            if i == LATE:
                late(held)
            result = step(torch.randn(4, 3))
            seen.append(twins.bits([result, list(net.parameters()), held.scale, held.mode, held.count, held.log, held.tensor, held.lock.locked()]))
        return seen, step
    return run


def wrapped(function):
    return steptape.wrap(function, verify={"first": True, "rate": 0.0})


@pytest.mark.parametrize("scale", [reads, is_a_gate, takes_two, sets_a_mode, raises], ids=lambda f: f.__name__)
def test_a_lock_around_reads_needs_none_in_a_replay(scale):
    expected, _ = play(scale)(lambda function: function)
    seen, step = play(scale)(wrapped)
    assert seen == expected
    assert step.stats["replayed"] > CALLS / 2, step.explain()


@pytest.mark.parametrize("scale", [counts, appends, computes, writes_a_tensor, takes_it_by_its_method, takes_one_that_counts], ids=lambda f: f.__name__)
def test_a_lock_around_more_is_refused(scale):
    expected, _ = play(scale)(lambda function: function)
    seen, step = play(scale)(wrapped)
    assert seen == expected
    assert step.stats["replayed"] == 0 and "takes a lock" in step.explain(), step.explain()


@pytest.mark.parametrize("scale", [reads, is_a_gate, sets_a_mode], ids=lambda f: f.__name__)
def test_a_call_waits_for_a_lock_that_another_thread_has(scale):
    """Eager waits; so does the call that would be a replay."""
    waited = []

    def held_for_a_moment(held):
        held.lock.acquire()

        def give_back():
            held.scale = 3.0
            waited.append(True)
            held.lock.release()

        threading.Timer(0.2, give_back).start()

    def gate(held):
        value = scale(held)
        return value if scale is not is_a_gate else held.scale

    expected, _ = play(gate, held_for_a_moment)(lambda function: function)
    seen, step = play(gate, held_for_a_moment)(wrapped)
    assert seen == expected and len(waited) == 2
    assert step.stats["replayed"] > CALLS / 3 and "locked()" in step.explain(), step.explain()

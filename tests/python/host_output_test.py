"""What a step says: calls that print or write run eagerly, and steptape.observe is told of values in every call."""
import functools
import io
import logging
import subprocess
import sys
import threading
import warnings

import pytest
import torch

import steptape
from classification import LATE, STEPS, Program, batch, check, learner


SHOWN = {}  # way: (show(log, n, loss), what the refusal says)


def shown(says):
    def add(show):
        SHOWN[show.__name__] = (show, says)
        return show
    return add


@shown("the step prints or writes (`print`)")
def printed(log, n, loss):
    print("step", n, file=log.stream)


@shown("the step prints or writes (`print`)")
def printed_tensor(log, n, loss):
    print(loss, f"{loss.item():.3f}", file=log.stream)


@shown("the step prints or writes (`write`)")
def written(log, n, loss):
    log.stream.write("step\n")


@shown("the step prints or writes (`writelines`)")
def lines_written(log, n, loss):
    log.stream.writelines(["step\n", "done\n"])


@shown("the step prints or writes (`logging`)")
def logged(log, n, loss):
    log.info("step %d: %s", n, loss.item())


@shown("the step prints or writes (`logging`)")
def logged_by_level(log, n, loss):
    log.log(logging.WARNING, "step")


@shown("the step prints or writes (`logging`)")
def logged_by_an_adapter(log, n, loss):
    logging.LoggerAdapter(log, {"run": 1}).error("step", exc_info=True)


@shown("the step takes a lock")
def locked(log, n, loss):
    with log.lock:
        log.stream.seek(0, 2)


@shown("the step takes a lock")
def locked_by_a_condition(log, n, loss):
    with log.condition:
        log.stream.seek(0, 2)


class Logger(logging.Logger):
    """One that writes to a text in memory."""

    def __init__(self):
        super().__init__("of a test", logging.INFO)
        self.stream, self.lock = io.StringIO(), threading.RLock()
        self.condition = threading.Condition(self.lock)
        self.addHandler(logging.StreamHandler(self.stream))


def showing(show, every):
    def make():
        model, optimizer, learn = learner()
        log, calls = Logger(), [0]

        def train(x, y):
            calls[0] += 1
            loss = learn(x, y)
            if calls[0] % every == 0:
                show(log, calls[0], loss)
            return loss
        return Program(step=train, held=lambda: [model, optimizer, log.stream.getvalue()])
    return make


@pytest.mark.parametrize("way", SHOWN)
def test_what_the_step_shows_is_shown_in_every_call(way):
    """Calls that show something run eagerly and say so; the others replay."""
    show, says = SHOWN[way]
    step = check(showing(show, every=4))
    assert any(says in refusal["reason"] for refusal in step.stats["refusals"]), step.explain()
    assert step.stats["replayed"] > STEPS / 3, step.explain()


@pytest.mark.parametrize("way", SHOWN)
def test_a_step_that_always_shows_something_never_replays(way):
    show, says = SHOWN[way]
    step = check(showing(show, every=1))
    assert any(says in refusal["reason"] for refusal in step.stats["refusals"]), step.explain()
    assert step.stats["replayed"] == 0, step.explain()


def test_what_no_logger_shows_replays():
    def debug(log, n, loss):
        log.debug("step %d: %s", n, loss)

    check(showing(debug, every=1), share=0.9)


def test_locks_of_the_caches_of_the_standard_library_are_nothing():
    """Up to Python 3.11 a cached_property takes one, as logging does for a level that it has not
    looked up."""
    class Scale:
        @functools.cached_property
        def value(self):
            return 2.0

    def make():
        model, optimizer, learn = learner()
        scale, log = Scale(), logging.getLogger("steptape.of.a.test")

        def train(x, y):
            log.manager._clear_cache()
            loss = learn(x * scale.value, y)
            log.debug("step: %s", loss)
            return loss
        return Program(step=train, held=lambda: [model, optimizer])

    check(make, share=0.5)


def test_a_logger_that_begins_to_show_is_heard():
    def make():
        model, optimizer, learn = learner()
        log = Logger()

        def train(x, y):
            loss = learn(x, y)
            log.debug("step")
            return loss
        return Program(step=train, log=log, held=lambda: [model, optimizer, log.stream.getvalue()])

    def between(program, i):
        program.log.setLevel(logging.DEBUG if i >= LATE else logging.INFO)

    step = check(make, between=between)
    assert step.stats["replayed"] > 0, step.explain()


def test_a_text_that_the_step_makes_for_itself_is_not_shown():
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            text = io.StringIO()
            text.write("a text")
            return learn(x, y), text.getvalue()
        return Program(step=train, held=lambda: [model, optimizer])

    check(make, share=0.9)


def test_an_observed_value_is_seen_in_every_call():
    def make():
        model, optimizer, learn = learner()
        losses = []

        def look(value):
            losses.append(value.item())

        def train(x, y):
            loss = learn(x, y)
            steptape.observe(loss, look)
            return loss
        return Program(step=train, held=lambda: [model, optimizer, losses])

    check(make, share=0.9)


def test_a_temporary_of_the_step_is_observed():
    def make():
        model, optimizer, learn = learner()
        seen = []

        def train(x, y):
            scratch = (x * 2).sum(1)
            steptape.observe(scratch, lambda value: seen.append(value.tolist()))
            return learn(x, y) + scratch.max()
        return Program(step=train, held=lambda: [model, optimizer, seen])

    check(make, share=0.9)


def test_several_observers_are_called_in_the_order_of_the_step():
    def make():
        model, optimizer, learn = learner()
        seen = []

        def train(x, y):
            loss = learn(x, y)
            steptape.observe(loss, lambda value: seen.append(("loss", value.item())))
            steptape.observe(model[0].weight, lambda value: seen.append(("w", value.sum().item())))
            return loss
        return Program(step=train, held=lambda: [model, optimizer, seen])

    check(make, share=0.9)


def test_an_exception_of_an_observer_reaches_the_caller():
    """The assertion stands last in the step, so that the update has been made in both twins."""
    def make():
        model, optimizer, learn = learner()

        def within_bounds(value):
            if value > 100:
                raise FloatingPointError(f"largest value is {value.item()}")

        def train(x, y):
            loss = learn(x, y)
            steptape.observe(x.max(), within_bounds)
            return loss
        return Program(step=train, held=lambda: [model, optimizer])

    def arguments(i):
        x, y = batch(i)
        return (x.index_fill(0, torch.tensor([0]), 101.0), y) if i in (1, LATE) else (x, y)

    check(make, arguments=arguments, share=0.9)


def test_what_a_recorded_call_warns_of_is_shown(tmp_path):
    """Or kept, where the program keeps it; by replays it is not: docs/blind_spots.md."""
    weight = torch.ones(3, requires_grad=True)

    @steptape.wrap
    def step(x):
        warnings.warn("careful")
        loss = (x * weight).sum()
        loss.backward()
        return loss.detach()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(STEPS):
            step(torch.full((3,), float(i)))
    assert step.stats["replayed"] > 5, step.explain()
    assert {str(each.message) for each in caught} == {"careful"} and len(caught) == STEPS - step.stats["replayed"]

    (tmp_path / "train.py").write_text("""
import torch, steptape
step = steptape.wrap(lambda x: float((x * torch.ones(2, requires_grad=True)).sum()))
for i in range(20):
    step(torch.ones(2))
print(step.stats["replayed"])
""")
    ran = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "Converting a tensor with requires_grad=True" in ran.stderr and int(ran.stdout) > 5, ran

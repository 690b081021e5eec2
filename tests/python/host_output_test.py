"""What a step says: prints and files are noted, and steptape.observe is told of values in every call."""
import contextlib
import io

import torch

import steptape
from classification import Program, batch, learner
from host_programs import LATE, STEPS, check
from outcomes import replays_or_says_why


def says(names):
    """A program that prints its name in each run of the step."""
    def make():
        model, optimizer, learn = learner()
        name = next(names)

        def train(x, y):
            print("run", name)
            return learn(x, y)
        return Program(step=train, held=lambda: [model, optimizer])
    return make


def test_printing_is_noted_and_happens_where_the_step_runs(capsys):
    step = check(says(iter(["eager", "wrapped"])))
    out = capsys.readouterr().out
    assert out.count("run eager\n") == STEPS
    assert out.count("run wrapped\n") == STEPS - step.stats["replayed"]
    assert "print" in step.explain(), step.explain()


def test_writing_a_file_is_noted_and_happens_where_the_step_runs(tmp_path):
    names = iter(["eager", "wrapped"])
    with contextlib.ExitStack() as files:
        def make():
            model, optimizer, learn = learner()
            log = files.enter_context(open(tmp_path / next(names), "w"))

            def train(x, y):
                log.write("step\n")
                return learn(x, y)
            return Program(step=train, held=lambda: [model, optimizer])

        step = check(make)
    assert (tmp_path / "eager").read_text() == "step\n" * STEPS
    runs = STEPS - step.stats["replayed"]
    assert (tmp_path / "wrapped").read_text() == "step\n" * runs
    assert "write" in step.explain(), step.explain()


def test_a_text_in_memory_that_the_step_writes_is_no_file():
    """Text that the program can read afterwards is host state."""
    def make():
        model, optimizer, learn = learner()
        log = io.StringIO()

        def train(x, y):
            log.write("step\n")
            return learn(x, y)
        return Program(step=train, log=log, held=lambda: [model, optimizer])

    step = check(make)
    replays_or_says_why(step)
    assert step.stats["replayed"] == 0 or "write" in step.explain()


def test_printing_a_tensor_throws_nothing(capsys):
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            loss = learn(x, y)
            print(loss, f"{loss.item():.3f}", repr(model[0].weight))
            return loss
        return Program(step=train, held=lambda: [model, optimizer])

    replays_or_says_why(check(make))


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

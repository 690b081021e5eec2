"""Twins of programs that do what no user means to do and every user does.

The answer is the eager result, a refusal by name, or an error that says what to mend: never a
crash, a hang or a wrong bit.
"""
import os

import steptape
import twins

STEPS = 32
LATE = 20  # a call long after the first replay
PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(steptape.__file__)))  # where other processes import it from


class Plain:
    """An object of the program's own, compared by identity."""

    def __init__(self, factor):
        self.factor = factor


def check(make, steps=STEPS, **expected):
    return twins.compare(make, steps, **expected)


def check_through(make, through, steps=STEPS, **expected):
    """Compares twins that the program calls by `through(step)`, and not directly; returns the step."""
    def make_called():
        training = make()
        training.inner, training.step = training.step, through(training.step)
        return training

    def wrapper(training, options):
        step = steptape.wrap(training.inner, **options)
        return twins.Program(through(step), step)

    program = twins.compare(make_called, steps, wrapper=wrapper, **expected)
    return program.steps[0]

"""Twins of programs whose steps do more than compute on tensors.

A replay does not run the step's function. So a change of host state is done again where it is the
same in every call, declared by steptape.host or steptape.observe, or refused by name and place.
Lines of a program that are marked `# here` are those that a refusal must name.
"""
import inspect
import linecache

import pytest

import twins
from classification import Training

STEPS = 40
LATE = 20  # a call long after the first replay


def check(make, between=None, arguments=None, **expected):
    """Compares twins of a program: make() gives its `step` and `held()`, which must be equal after each call.

    between: (program, i), what the program does after call i
    """
    def training():
        program = make()
        behind = (lambda i: between(program, i)) if between else None
        return Training(program.step, program.held, arguments, behind)

    return twins.compare(training, STEPS, **expected)


def collect(table):
    """Decorator: puts a program with its codes into a table of test parameters."""
    def entry(*codes):
        def add(make):
            table.append(pytest.param(make, set(codes), id=make.__name__))
            return make
        return add
    return entry


def marked_lines(function):
    lines, start = inspect.getsourcelines(function)
    return {start + n for n, line in enumerate(lines) if "# here" in line}


def names_the_line(step, codes, file, lines):
    """A refusal of one of the codes has the file and one of the lines; explain() shows the text."""
    met = [r for r in step.stats["refusals"] if r["code"] in codes]
    assert any(r["file"] == file and r["line"] in lines for r in met), (met, file, lines)
    texts = [linecache.getline(file, n).split("# here")[0].strip() for n in lines]
    assert any(text in step.explain() for text in texts), step.explain()

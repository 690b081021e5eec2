"""The text of a program as it comes together: lines by place, and what each place binds."""
import ast
import textwrap

IMPORTS = """import array, bisect, collections, contextlib, contextvars, copy, dataclasses, decimal, enum, fractions, functools
import importlib, itertools, json, math, operator, pickle, random, statistics, struct, sys, types, typing, weakref

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint
"""


def indented(lines, depth=1):
    return [textwrap.indent(line, "    " * depth) for line in lines]


def split(text):
    return text.split("\n") if text else []


def bound_by(lines):
    """The names that lines bind, but for those inside functions and classes."""
    names = []

    class Visitor(ast.NodeVisitor):
        def visit_FunctionDef(self, node):
            names.append(node.name)

        def visit_ClassDef(self, node):
            names.append(node.name)

        def visit_Lambda(self, node):
            pass

        def visit_Import(self, node):
            names.extend(alias.asname or alias.name for alias in node.names)

        visit_ImportFrom = visit_Import

        def visit_Name(self, node):
            if not isinstance(node.ctx, ast.Load):
                names.append(node.id)

        def visit_ListComp(self, node):  # its variables are its own
            for part in ast.walk(node):
                if isinstance(part, ast.NamedExpr):
                    names.append(part.target.id)

        visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    Visitor().visit(ast.parse("\n".join(lines)))
    return list(dict.fromkeys(names))


class Draft:
    """The parts of one program. `text()` puts them together."""

    def __init__(self, title):
        self.title = title
        self.package = []  # lines of site-packages/trainkit/__init__.py
        self.top = []  # lines at the top of the file
        self.top_names = []  # bound there while the program runs
        self.model = []  # makes model and optimizer
        self.setup = []  # states
        self.helpers = []  # functions that the step calls
        self.between = []  # of the call's number i
        self.parameters = []
        self.arguments = []  # positional ones, beside x and y
        self.keywords = []  # "name=expression"
        self.start, self.hidden, self.loss, self.gradient, self.end = [], [], [], [], []
        self.in_model = []  # lines of the model's forward, of h
        self.results = []
        self.closed = False  # whether all of it stands in a function

    def function(self, name, parameters, body, method=False):
        """Lines of a function that may bind what the program has bound outside it."""
        body = body or ["pass"]
        lines = [f"def {name}({', '.join(parameters)}):"]
        mine = [parameter.split("=")[0].strip("* ") for part in parameters for parameter in part.split(",")]
        bound = [n for n in bound_by(body) if n not in mine]
        for word, known in (("global", self.known_at_top()), ("nonlocal" if self.closed else "global", self.known())):
            if here := [n for n in bound if n in known]:
                lines.append(f"    {word} {', '.join(here)}")
                bound = [n for n in bound if n not in here]
        return lines + indented(body)

    def known_at_top(self):
        return set(bound_by(self.top)) | set(self.top_names)

    def known(self):
        return set(bound_by([*self.model, *self.setup]))

    def text(self, step_lines, wrapping):
        """The files of the program, one after the other, each under its name."""
        batch = ["g = torch.Generator().manual_seed(i)",
                 "return [%s], {%s}" % (", ".join(["torch.randn(4, 6, generator=g)", "torch.randn(4, 3, generator=g)", *self.arguments]),
                                        ", ".join("%r: %s" % tuple(k.split("=", 1)) for k in self.keywords))]
        inner = [*self.model, "", "", *self.setup, "", "", *spaced(self.helpers), *step_lines, "", "",
                 *self.function("between", ["i"], self.between), "", "",
                 *self.function("arguments", ["i"], batch), "", "", *wrapping]
        if self.closed:
            inner = ["def build():", *indented(inner), *indented(["", "", "return step, between, arguments"]), "", "",
                     "step, between, arguments = build()"]
        lines = [f'"""{self.title}"""', *split(IMPORTS), "from programs.wrapping import wrap  # the function itself in the eager twin",
                 "", "", *self.top, "", "", *inner, ""]
        main = tidy(lines)
        if not self.package:
            return main
        package = tidy([*split(IMPORTS), "", "", "class Ticker:\n    count = 0", "", "", *spaced(self.package)])
        return f"{main}\n# file: site-packages/trainkit/__init__.py\n{package}"


def spaced(lines):
    return [part for line in lines for part in (line, "", "")]


def tidy(lines):
    """Without unused imports of the standard library, and with at most two empty lines in a row."""
    text = "\n".join(lines)
    kept, head = [], True
    for line in text.split("\n"):
        if line.startswith("import ") and head and "torch" not in line and "numpy" not in line and "trainkit" not in line:
            names = [n.strip() for n in line[len("import "):].split(",")]
            kept.extend(f"import {n}" for n in names if text.count(f"{n}.") > 0)
            continue
        kept.append(line.rstrip())
    out = []
    for line in kept:
        if line or len(out) < 2 or out[-1] or out[-2]:
            out.append(line)
    return "\n".join(out).rstrip("\n") + "\n"

"""`python -m steptape try train.py ...`: what an unchanged program would gain.

The program runs with the statements of its training steps taken out (_lift.py): some calls of them as they are, then as a wrapped
step, both timed. Of its own modules those count that lie in the script's folder.
"""
import argparse
import ast
import builtins
import dataclasses
import difflib
import functools
import importlib
import importlib.machinery
import importlib.util
import itertools
import json
import os
import re
import statistics
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ._errors import Error, InternalError, InvalidArgument
from ._flow import blocks_of, names_of, own_nodes, stored
from ._lift import Cut, calls_any, declared_in, in_function, loops_of, mark_steps, steps, steps_itself
from ._wrap import wrap

_DRAWS = {"sample", "next", "get_batch", "randint", "choice", "shuffle"}
_TALKS = {"print", "write", "log", "info", "debug", "warning", "add_scalar", "log_dict", "set_description", "set_postfix", "save", "record"}
_STEPS = {"step", "backward", "zero_grad", "update"}
_LIGHTNING = "add steptape.lightning.SteptapeCallback() to the Trainer's callbacks"
_FRAMEWORKS = {  # module: what does it there
    "lightning.pytorch": _LIGHTNING,
    "pytorch_lightning": _LIGHTNING,
    "transformers.trainer": "put steptape.transformers.SteptapeTrainerMixin before Trainer among the bases of a class",
    "stable_baselines3": "train steptape.sb3.accelerate(model)",
}
_OPTIONS = {"verify": {"first": True, "rate": 0.0}, "log": "none"}  # of each step that is tried
_WARM_UP = 5  # calls that are not timed
_MOST_OF_PLACE = 16  # functions made at one place
_SITE = "__steptape_try__"


class _Done(SystemExit):
    """Enough has been seen."""


class _Site:
    """Where a training step stands in the program, and what was seen of it."""

    def __init__(self, run: "_Run", file: str, line: int, name: str, change: Callable[[str, set[str]], Any], left: Iterable[str] = ()):
        """change: what a patch does, given a name for a function and those that are taken; gives None where words are needed."""
        self.run, self.file, self.line, self.name, self.change = run, file, line, name, change
        self.left = left  # what is read after the step, in the order in which it returns it
        self.tensors: list[str] = []  # of these, by position
        self.function: Callable | None = None
        self.owner: Any = None  # of a method
        self.step = None
        self.between: list[float] = []
        self.eager: list[float] = []
        self.replayed: list[float] = []
        self.others = 0  # wrapped calls that did not replay, since the last one that did
        self.began = 0.0
        self.problem = ""
        self.has_other_bits = False

    def of(self, function: Callable) -> Callable:
        """Stands for `function`, which is the step. Functions that are made here over and over are timed one by one, the first ones."""
        site = self.run.site_for(self)

        @functools.wraps(function)
        def call(*args, **kwargs):
            return (function if site is None else site)(*args, **kwargs)
        if site is not None:
            site.function = function
        return call

    def of_method(self, function: Callable) -> Callable:
        """The same of a method, of each object that it is called of."""
        sites = {}  # by the id of an object, which its site keeps alive

        @functools.wraps(function)
        def call(owner, *args, **kwargs):
            if id(owner) not in sites:
                site = sites[id(owner)] = self.run.site_for(self)
                if site is not None:
                    site.owner, site.function = owner, types.MethodType(function, owner)
            site = sites[id(owner)]
            return function(owner, *args, **kwargs) if site is None else site(*args, **kwargs)
        return call

    @property
    def is_done(self) -> bool:
        return bool(self.problem) or len(self.replayed) >= self.run.calls or self.others >= max(60, self.run.calls)

    def __call__(self, *args, **kwargs):
        began = time.perf_counter()
        if self.began and self.step is None:
            self.between.append(began - self.began)
        self.began = began
        if self.step is None:
            result = self.function(*args, **kwargs)
            self.eager.append(_now() - began)
            if self.left:
                self.tensors = [name for name, value in zip(self.left, result[2]) if isinstance(value, torch.Tensor)]
            if len(self.eager) == self.run.calls + _WARM_UP:
                self.step = wrap(self.function, name=self.name, **_OPTIONS)
            return result
        before = self.step.stats["replayed"]
        began = time.perf_counter()
        try:
            result = self.step(*args, **kwargs)
        except Error as error:
            self.problem, self.has_other_bits = str(error), isinstance(error, InternalError)
            self.run.end()
            raise
        took = _now() - began
        if self.step.stats["replayed"] > before:
            self.replayed.append(took)
            self.others = 0
        else:
            self.others += 1
        if self.is_done:
            self.run.end()
        return result

    @property
    def replays(self) -> bool | None:
        """Whether it does; None where the program has ended too early to tell."""
        if len(self.replayed) >= self.run.calls or self.is_done:
            return len(self.replayed) >= self.run.calls
        if not self.replayed and self.others >= 3 * _WARM_UP:
            return False
        return True if len(self.replayed) >= 2 * _WARM_UP else None

    def report(self) -> dict[str, Any]:
        stats = {} if self.step is None else self.step.stats
        report = {"file": self.file, "line": self.line, "name": self.name, "steps": len(self.eager) + stats.get("steps", 0),
                  "replays": self.replays, "replayed": stats.get("replayed", 0),
                  "bits": "differ" if self.has_other_bits else "equal" if stats.get("trials") else "not compared",
                  "problem": self.problem, "refusals": [self._named(refusal) for refusal in stats.get("refusals", [])],
                  "patch": self.run.patch_of(self) if self.replays else None}
        if len(self.eager) > _WARM_UP:
            report["eager_us"] = _median_us(self.eager[_WARM_UP:])
        if report["replays"]:
            variants = stats["variants"]
            most = max(variants, key=lambda variant: variant["replays"])
            eager, replay = report["eager_us"], _median_us(self.replayed[_WARM_UP:])
            loop = max(_median_us(self.between[_WARM_UP:]), eager)
            report |= {"ops": most["ops"], "plans": len(variants), "replay_us": replay, "loop_us": loop, "factor": eager / replay,
                       "overhead": max(0.0, 1 - replay / eager), "loop_factor": loop / (loop - eager + replay),
                       "saved_s_per_hour": 3600 * (eager - replay) / loop}
        return report

    def _named(self, refusal):
        """By the variables of the program."""
        for k, name in enumerate(self.tensors):
            refusal["reason"] = refusal["reason"].replace(f"results[{k}]", f"`{name}`, which is read after the step,")
        return refusal


class _Loop(_Site):
    """The loop of a framework's Trainer, of which turns are timed: as it is, then with the integration."""

    def __init__(self, run: "_Run", file: str, name: str, advice: str):
        super().__init__(run, file, 0, name, lambda name, taken: None)
        self.advice = advice
        self.steps: Callable[[], Iterable] | None = None  # those of the integration, once it has been put in
        self.counted = 0  # replays

    def turn(self, put_in: Callable[[], Callable[[], Iterable]]) -> None:
        """Another turn begins."""
        before, self.began = self.began, _now()
        took = self.began - before
        if self.steps is None:
            if before:
                self.eager.append(took)
            if len(self.eager) == self.run.calls + _WARM_UP:
                try:
                    self.steps = put_in()
                except InvalidArgument as error:
                    self.problem = str(error)
        else:
            replays = sum(step.stats["replayed"] for step in self.steps())
            if replays > self.counted:
                self.replayed.append(took)
            self.others = 0 if replays > self.counted else self.others + 1
            self.counted = replays
        if self.is_done:
            self.run.end()

    def report(self) -> dict[str, Any]:
        steps = list(self.steps()) if self.steps is not None else []
        self.step = max(steps, key=lambda step: step.stats["replayed"], default=None)
        self.between = self.eager
        return super().report() | {"steps": len(self.eager) + sum(step.stats["steps"] for step in steps), "advice": self.advice}


def _try_lightning(run, module):
    """Has each Trainer of the package's put the callback in after some batches."""
    package = module.__name__.removesuffix(".trainer.trainer")
    fit = module.Trainer.fit

    @functools.wraps(fit)
    def tried(self, model, *args, **kwargs):
        site = _Loop(run, sys.modules[type(model).__module__].__file__, f"{type(model).__name__}.training_step", _LIGHTNING)
        run.sites.append(site)

        class Turns(importlib.import_module(package).Callback):
            def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
                site.turn(lambda: put_in(trainer, pl_module))

        def put_in(trainer, pl_module):
            from .lightning import SteptapeCallback
            callback = SteptapeCallback(**_OPTIONS)
            callback.on_train_start(trainer, pl_module)
            return lambda: callback._steps.values()

        self.callbacks.append(Turns())
        return fit(self, model, *args, **kwargs)
    module.Trainer.fit = tried


def _try_transformers(run, module):
    train = module.Trainer.train

    @functools.wraps(train)
    def tried(self, *args, **kwargs):
        from .transformers import SteptapeTrainerMixin
        kind, model = type(self), type(self.model)
        if not isinstance(self, SteptapeTrainerMixin):
            site = _Loop(run, sys.modules[model.__module__].__file__, f"{kind.__name__} of {model.__name__}", _FRAMEWORKS["transformers.trainer"])
            run.sites.append(site)

            class Tried(SteptapeTrainerMixin, kind):
                steptape_options = _OPTIONS

                def _taped_step(self, plain, *given, **named):
                    site.turn(lambda: lambda: self._taped.steps.values() if self._taped else ())
                    return plain(*given, **named) if site.steps is None else super()._taped_step(plain, *given, **named)

            self.__class__ = Tried
        return train(self, *args, **kwargs)
    module.Trainer.train = tried


_TRIED = {"lightning.pytorch.trainer.trainer": _try_lightning, "pytorch_lightning.trainer.trainer": _try_lightning,
          "transformers.trainer": _try_transformers}


def _now():
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def _median_us(seconds):
    return statistics.median(seconds) * 1e6 if seconds else 0.0


class _Run:
    """One program that is tried."""

    def __init__(self, script: str, module: str, calls: int, keeps_going: bool):
        """module: by which the script is run, as `python -m` does; or \"\"."""
        self.script, self.module, self.calls, self.keeps_going = script, module, calls, keeps_going
        self.folder = os.getcwd() if module else os.path.dirname(os.path.abspath(script))
        self.sites: list[_Site] = []
        self.problems: list[str] = []  # where a step stands that cannot be taken out
        self.texts: dict[str, str] = {}  # of the files that steps stand in
        self.changed: dict[str, list] = {}  # what the patches so far change in each
        self.has_ended = False

    def end(self) -> None:
        """Of the program, when no step that it comes to is left to be timed."""
        seen = [site for site in self.timed() if len(site.eager) > _WARM_UP]
        if self.has_ended or not all(site.is_done for site in seen):
            return
        self.has_ended = True
        if not self.keeps_going:
            raise _Done(0)

    def main(self) -> None:
        """Runs the script as Python does."""
        setattr(builtins, _SITE, self.sites)
        sys.meta_path.insert(0, _Finder(self))
        sys.path[0] = self.folder
        main = types.ModuleType("__main__")
        main.__dict__.update(__file__=self.script, __builtins__=builtins)
        if self.module:
            main.__spec__ = importlib.util.find_spec(self.module)
            main.__package__ = self.module.rpartition(".")[0]
        with open(self.script, "rb") as file:
            code = self.compiled(file.read(), self.script)
        sys.modules["__main__"] = main
        exec(code, vars(main))

    def site_for(self, site: _Site) -> _Site | None:
        """Of another function of this place; None where enough were made."""
        if site.function is None:
            return site
        if len(self.of_place(site)) == _MOST_OF_PLACE:
            return None
        self.sites.append(_Site(self, site.file, site.line, site.name, site.change, site.left))
        return self.sites[-1]

    def of_place(self, site: _Site) -> list[_Site]:
        return [other for other in self.sites if (other.file, other.line, other.name) == (site.file, site.line, site.name)]

    def timed(self) -> list[_Site]:
        """Of each place the site that tells most, of those that ran."""
        ran = [site for site in self.sites if site.eager]
        return [site for site in ran if site is max(self.of_place(site), key=lambda other: (other.is_done, len(other.eager)))]

    def patch_of(self, site: _Site) -> str | None:
        """The unified diff that does what was tried, to be applied after those of the sites before."""
        text, before = self.texts.get(site.file), self.changed.get(site.file, [])
        if text is None or "steptape" in text:
            return None
        taken = _names_in(text) | {each for other in self.sites if other.owner is not None for each in dir(other.owner)}
        name = _free("train_step" + (f"_{len(before) + 1}" if before else ""), taken)
        change = site.change(name, taken)
        new = None if change is None else _patched(text, [*before, change])
        if new is None:
            return None
        old, path = _patched(text, before), os.path.relpath(site.file)
        self.changed[site.file] = [*before, change]
        ends = "\n" if text.endswith("\n") else ""
        old, new = ([*(f"{line}\n" for line in lines[:-1]), lines[-1] + ends] for lines in (old, new))
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in difflib.unified_diff(old, new, path, path))

    def compiled(self, source: bytes, file: str) -> types.CodeType:
        tree = ast.parse(source, file)
        mark_steps(tree)
        text = importlib.util.decode_source(source)
        if text.encode() == source:  # else a patch would be of another text
            self.texts[file] = text
        shared = declared_in(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.AsyncFunctionDef) and any(map(steps, own_nodes(node.body, into_loops=True))):
                self.problems.append(f"{os.path.relpath(file)}:{node.lineno}: {node.name}: a coroutine")
        at = {}  # by the top-level statement that something goes before
        for top in tree.body:
            for scope in _scopes(top):
                self._take(scope, top, file, shared, at)
        for loop in loops_of(tree):
            top = next(top for top in tree.body if loop in ast.walk(top))
            self._cut(_Scope(tree, "the script" if file == self.script else os.path.basename(file)), top, loop, file, shared, at)
        body = []
        for top in tree.body:
            body += [*at.get(top, []), top]
        tree.body = body
        return compile(ast.fix_missing_locations(tree), file, "exec")

    def _take(self, scope, top, file, shared, at):
        definition = scope.node
        loops = list(loops_of(definition))
        for loop in loops:
            self._cut(scope, top, loop, file, shared, at)
        if loops or not steps_itself(definition):
            return
        if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in own_nodes(definition.body, into_loops=True)):
            self.problems.append(f"{os.path.relpath(file)}:{definition.lineno}: {scope.name}: a generator")
            return
        if any("steptape" in ast.unparse(each) for each in definition.decorator_list):
            self.problems.append(f"{os.path.relpath(file)}:{definition.lineno}: {scope.name}: it is wrapped already")
            return
        line = definition.lineno  # after other decorators
        takes_class = any(getattr(each, "id", "") == "classmethod" for each in definition.decorator_list)
        site = self._site(file, line, scope.name, lambda name, taken: None if takes_class else _Decorator(definition))
        of = "of_method" if scope.owner else "of"
        definition.decorator_list.append(ast.copy_location(ast.parse(f"{_SITE}[{site}].{of}").body[0].value, definition))

    def _cut(self, scope, top, loop, file, shared, at):
        place = f"{os.path.relpath(file)}:{loop.lineno}"
        variables = stored([loop]) if isinstance(scope.node, ast.Module) else names_of(scope.node)
        try:
            cut = Cut(scope.name, scope.node, *_range_of(loop), variables, scope.around, shared)
            own = [scope.owner] if scope.owner in cut.inputs else []
            function = cut.function(f"step_{len(self.sites)}", own)
        except InvalidArgument as error:
            self.problems.append(f"{place}: {error}")
            return
        where = scope.node if own else top
        has_words = cut.is_left_early or cut.unbound or cut.sometimes or _has_long_texts(cut.taken)
        site = self._site(file, cut.lines[0], scope.name, lambda name, taken: None if has_words else _TakenOut(name, taken, where, cut, own),
                          [*cut.appended, *cut.outputs])
        made = in_function(function, [])
        made.name = f"__steptape_made_{site}"
        call = f"_steptape_call_{site}"  # two underscores would be the class's own
        of = "of_method" if own else "of"
        at.setdefault(top, []).extend([made, *ast.parse(f"{call} = {_SITE}[{site}].{of}({made.name}())").body])
        cut.replace(call, own)

    def _site(self, *what):
        self.sites.append(_Site(self, *what))
        return len(self.sites) - 1


@dataclasses.dataclass
class _Scope:
    node: ast.AST
    name: str  # "Trainer.fit"
    around: frozenset[str] = frozenset()  # variables of functions around it
    owner: str = ""  # of a method, what it calls its object


def _scopes(node, name="", around=frozenset(), is_class=False):
    """The functions in a statement."""
    for child in [node] if isinstance(node, ast.stmt) else ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            full = f"{name}.{child.name}" if name else child.name
            is_method = is_class and child.args.args and not child.decorator_list
            yield _Scope(child, full, around, child.args.args[0].arg if is_method else "")
            yield from _scopes(ast.Module(child.body), full, around | names_of(child))
        elif isinstance(child, ast.ClassDef):
            yield from _scopes(ast.Module(child.body), f"{name}.{child.name}" if name else child.name, around, is_class=True)
        elif isinstance(child, ast.stmt):
            for block in blocks_of(child):
                yield from _scopes(ast.Module(block), name, around, is_class)


def _first_line(statement):
    """With its decorators."""
    return min([statement.lineno, *(decorator.lineno for decorator in getattr(statement, "decorator_list", []))])


def _has_long_texts(statements):
    """Texts of several lines, which are indented with them."""
    return any(isinstance(node, (ast.Constant, ast.JoinedStr)) and node.lineno != node.end_lineno
               for statement in statements for node in ast.walk(statement))


def _range_of(loop):
    """The block that all steps stand in, and of it what comes after the batch was drawn and before it is talked about."""
    body = loop.body
    while True:
        stepping = [statement for statement in body if any(map(steps, ast.walk(statement)))]
        if len(stepping) != 1 or not isinstance(stepping[0], (ast.If, ast.With)):
            break
        inner = stepping[0]
        if any(any(map(steps, ast.walk(other))) for other in getattr(inner, "orelse", [])) or any(
                calls_any(other, {"zero_grad", "backward"}) for other in body if other is not inner):
            break
        body = inner.body
    first, last = (next(i for i in order if calls_any(body[i], _STEPS)) for order in (range(len(body)), reversed(range(len(body)))))
    start = 1 + max((i for i in range(first) if calls_any(body[i], _DRAWS)), default=-1)
    stop = next((i for i in range(last + 1, len(body)) if calls_any(body[i], _TALKS) or isinstance(body[i], ast.Delete)), len(body))
    return body, slice(start, stop)


class _Decorator:
    """A patch's change: a function is wrapped as it is."""

    def __init__(self, definition: ast.FunctionDef):
        self._at, self._line = _position(definition), definition.lineno

    def lines(self, lines: list[str]) -> list:
        """(first line, line after the last, what stands there then) of a file's lines."""
        return [(self._line, self._line, [f"{_indent_of(lines[self._line - 1])}@steptape.wrap"])]

    def apply(self, tree: ast.Module) -> None:
        """The same to the program."""
        block, i = _find(tree, self._at)
        block[i].decorator_list.append(ast.parse("steptape.wrap").body[0].value)


class _TakenOut:
    """A patch's change: statements become a function, as was tried."""

    def __init__(self, name: str, taken: set[str], where: ast.stmt, cut: Cut, own: list[str]):
        """taken: names that no variable may have.   where: what the function comes before.   own: what a method calls its object."""
        self._where, self._at, self._is_in_class = _position(where), _first_line(where), where.col_offset > 0
        self._lines = _first_line(cut.taken[0]), cut.lines[1]
        self._first_taken, self._count = _position(cut.taken[0]), len(cut.taken)
        self._inputs = [each for each in cut.inputs if each not in own]
        left, more = [*cut.appended, *cut.outputs], {}
        for each in cut.appended:  # what it gives of a list goes into a variable that is nobody's
            more[each] = _free(f"more_{each}", {*taken, *more.values()})
        gets = ", ".join([*more.values(), *cut.outputs])
        call = f"{gets + ' = ' if gets else ''}{''.join(f'{each}.' for each in own)}{name}({', '.join(self._inputs)})"
        self._call = [call, *(f"{each}.extend({more[each]})" for each in cut.appended)]
        self._head = ["@steptape.wrap", f"def {name}({', '.join([*own, *self._inputs])}):"]
        self._first, self._last = [f"{each} = []" for each in cut.appended], [f"return {', '.join(left)}"] if left else []

    def lines(self, lines: list[str]) -> list:
        first, last = self._lines
        indent, outer = _indent_of(lines[first - 1]), _indent_of(lines[self._at - 1])
        unit = "\t" if "\t" in indent else "    "
        # what stands further left is a comment, or goes on with a line
        block = [line[len(indent):] if line.startswith(indent) else line.lstrip() for line in lines[first - 1:last]]
        step = [*self._head, *(unit + each if each else "" for each in [*self._first, *block, *self._last]), *([""] if self._is_in_class else ["", ""])]
        return [(self._at, self._at, [outer + each if each else "" for each in step]), (first, last + 1, [indent + each for each in self._call])]

    def apply(self, tree: ast.Module) -> None:
        block, i = _find(tree, self._first_taken)
        taken = block[i:i + self._count]
        step, = _statements([*self._head, "    pass"])
        step.body = [*_statements(self._first), *taken, *([ast.Return(ast.parse(self._last[0][7:]).body[0].value)] if self._last else [])]
        block[i:i + self._count] = _statements(self._call)
        around, k = _find(tree, self._where)
        around.insert(k, step)


def _statements(lines):
    """Those of no line."""
    return [ast.increment_lineno(each, -len(lines) - each.lineno) for each in ast.parse("\n".join(lines)).body]


def _position(statement):
    return statement.lineno, statement.col_offset


def _find(tree, position):
    """The statement that begins there: its block, and the index in it."""
    return next((block, i) for node in ast.walk(tree) for block in blocks_of(node) for i, each in enumerate(block)
                if isinstance(each, ast.stmt) and _position(each) == position)


def _indent_of(line):
    return line[:len(line) - len(line.lstrip())]


def _names_in(text):
    return set(re.findall(r"\w+", text))


def _free(name, taken):
    return next(each for each in itertools.chain([name], (f"{name}_{k}" for k in itertools.count(2))) if each not in taken)


def _patched(text, changes):
    """The lines of a text with these changes; None where they would make another program of it than the one that was tried."""
    lines = text.removesuffix("\n").split("\n")
    edits = [edit for change in changes for edit in change.lines(lines)]
    if not edits:
        return lines
    tree = ast.parse(text)
    after_docstring = 1 if ast.get_docstring(tree, clean=False) is not None else 0
    first = next((i for i in range(after_docstring, len(tree.body)) if getattr(tree.body[i], "module", "") != "__future__"), None)
    imports = [node for node in tree.body[first:] if isinstance(node, (ast.Import, ast.ImportFrom)) and node.lineno <= min(edits)[0]]
    # beside those of torch
    before = next((node for node in imports if "torch" in ast.unparse(node)), (imports or tree.body[first:])[0])
    edits.append((_first_line(before), _first_line(before), ["import steptape"]))
    new, done = [], 1
    for start, stop, made in sorted(edits, key=lambda edit: (edit[0], edit[2] != ["import steptape"])):
        new += [*lines[done - 1:start - 1], *made]
        done = stop
    new += lines[done - 1:]
    position = tree.body.index(before)
    for change in changes:
        change.apply(tree)
    tree.body[position:position] = _statements(["import steptape"])
    try:
        return new if ast.dump(ast.parse("\n".join(new))) == ast.dump(tree) else None
    except SyntaxError:
        return None


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        return self.run.compiled(self.get_data(self.path), self.path)


class _FrameworkLoader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module):
        super().exec_module(module)
        _TRIED[module.__name__](self.run, module)


class _Finder:
    """Takes the steps out of modules in the script's folder."""

    def __init__(self, run: _Run):
        self.run = run

    def find_spec(self, name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return spec
        is_own = spec.origin.startswith(self.run.folder + os.sep) and f"{os.sep}site-packages{os.sep}" not in spec.origin
        if is_own or name in _TRIED:
            spec.loader = (_FrameworkLoader if name in _TRIED else _Loader)(spec.loader.name, spec.loader.path)
            spec.loader.run = self.run
        return spec


def _in_words(report: dict[str, Any]) -> Iterable[str]:
    if "advice" in report:
        yield f"{report['name']}: {report['steps']} steps"
    else:
        yield f"{os.path.relpath(report['file'])}:{report['line']} (in {report['name']}): {report['steps']} steps"
    if report["replays"] and "advice" in report:
        yield (f"  now {report['loop_us']:.0f} us a turn of its loop, {report['replay_us']:.0f} us where its steps are replayed: "
               f"{report['factor']:.1f} times as fast ({report['ops']} ops, {report['plans']} plan{'s' if report['plans'] > 1 else ''}), "
               f"{report['saved_s_per_hour']:.0f} s of an hour saved")
    elif report["replays"]:
        yield (f"  now {report['eager_us']:.0f} us a step, replayed {report['replay_us']:.0f} us: {report['factor']:.1f} times as fast "
               f"({report['ops']} ops, {report['plans']} plan{'s' if report['plans'] > 1 else ''}; {100 * report['overhead']:.0f} % was overhead)")
        yield (f"  of its loop, {report['loop_us']:.0f} us a turn: {report['loop_factor']:.1f} times as fast, "
               f"{report['saved_s_per_hour']:.0f} s of an hour saved")
    elif report["replays"] is None and report["replayed"]:
        yield f"  {report['replayed']} steps were replayed: too few to be timed"
    elif report["replays"] is not None and "eager_us" in report:
        yield f"  now {report['eager_us']:.0f} us a step; it would not replay"
    else:
        yield "  too few to be tried"
    yield f"  bits: {report['bits']}"
    if report["problem"]:
        yield f"  {report['problem']}"
    for refusal in report["refusals"]:
        at = f" [{os.path.relpath(refusal['file'])}:{refusal['line']}]" if refusal["file"] else ""
        yield f"  {refusal['code']}: {refusal['reason']}{at}"
        if refusal["remedy"]:
            yield f"      remedy: {refusal['remedy']}"
    if report["replays"] and "advice" in report:
        yield f"  to have it so, {report['advice']}"
    elif report["replays"] and report["patch"]:
        yield "  to have it so:\n"
        yield report["patch"]
    elif report["replays"]:
        yield "  to have it so, put these statements in a function of their own, and wrap it: @steptape.wrap"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="steptape try", description="Runs a Python program until its training steps have been timed, as they are and replayed.",
        epilog="Exit status: 0 where they replay, 1 where they do not, 2 where none was found, or the program failed or ended too early to tell.")
    parser.add_argument("--json", action="store_true", help="the result as JSON; what the program prints goes to stderr")
    parser.add_argument("--keep-going", action="store_true", help="let the program run to its end")
    parser.add_argument("--calls", type=int, default=30, metavar="N", help="time N steps of each kind (30)")
    parser.add_argument("-m", action="store_true", dest="is_module", help="SCRIPT is a module, as of `python -m`")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    if given.calls <= _WARM_UP:
        parser.error(f"--calls {given.calls}: more than {_WARM_UP}, which warm up, are needed")
    script = _file_of(given.script) if given.is_module else given.script
    if script is None:
        parser.error(f"-m {given.script}: no module of this name has a source")
    run = _Run(script, given.script if given.is_module else "", given.calls, given.keep_going)
    sys.argv = [script, *given.arguments]
    out = sys.stdout
    if given.json:
        sys.stdout = sys.stderr
    failed = ""
    try:
        run.main()
    except _Done:
        pass
    except SystemExit as exit:
        failed = f"it ended with {exit.code}" if exit.code not in (None, 0) else ""
    except Exception as error:
        traceback.print_exc()
        failed = f"it failed: {type(error).__name__}: {error}"
    sys.stdout = out
    return _finish(run, failed, given.json)


def _file_of(module):
    sys.path[0] = os.getcwd()
    try:
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{module}.__main__")
    except ImportError:
        return None
    return spec.origin if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader) else None


def _finish(run, failed, as_json):
    reports = [site.report() for site in run.timed()]
    advice = [] if reports else sorted({advice for module, advice in _FRAMEWORKS.items() if module in sys.modules})
    if as_json:
        print(json.dumps({"steps": reports, "not_tried": run.problems, "failed": failed, "frameworks": advice}, indent=2))
    else:
        print("\n".join(line for report in reports for line in _in_words(report)))
        for problem in [] if reports else run.problems:
            print(f"not tried: {problem}")
        for each in advice:
            print(f"a framework runs its loop: {each}")
        if failed:
            print(f"the program: {failed}")
        elif not reports and not advice:
            print(f"{run.script}: no loop in it calls step() of an optimizer")
    sys.stdout.flush()
    if failed or not reports:
        return 2
    answers = {report["replays"] for report in reports}
    return 1 if False in answers else 0 if True in answers else 2

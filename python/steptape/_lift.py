"""Lifts the training step out of a function whose loop runs it: the statements of the loop become a function that is wrapped.

    for batch in loader:                         for batch in loader:
        loss = model(batch).mean()                   signal, more, loss = step(batch, model, optimizer)
        optimizer.zero_grad()              ->        losses.extend(more)
        loss.backward()                              if signal == BREAK:
        optimizer.step()                                 break
        losses.append(loss.item())

What the statements read of the function's locals they are given, and what the rest of the function reads of theirs they return;
so too what they append to a list that they do nothing else with. Code objects keep the file and the lines of the source, so that
errors and `explain` name those.
"""
import ast
import functools
import inspect
import textwrap
import types
from collections.abc import Callable, Iterable
from typing import Any

from ._errors import InvalidArgument

_FELL_THROUGH, _BREAK, _CONTINUE, _RETURN = range(4)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_STEP, _SIGNAL, _RETURNED, _VALUE, _GIVEN = (f"__steptape_{name}" for name in ("step", "signal", "returned", "value", "given_"))


class Lifted:
    """The two functions that `lift` makes of one."""

    def __init__(self, body: Callable, make: Callable[[Callable], Callable], lines: tuple[int, int]):
        self.body = body
        """The step, bound as the function was: takes what it reads, and returns a signal with what the rest reads."""
        self.lines = lines
        """Of its source, first and last."""
        self._make = make

    def around(self, step: Callable) -> Callable:
        """The function itself, unbound, calling `step` (the body, or what wraps it) where the statements stood."""
        return self._make(step)


def lift(function: Callable) -> Lifted:
    """Of a function or bound method with one loop that calls `step()` of an optimizer: what comes after the batch was drawn.

    The statements begin after the last one in the loop that calls a method `sample`, and are else the loop's body. Raises
    InvalidArgument with the reason where the source cannot be had, or where its statements cannot be a function.
    """
    bound, function = getattr(function, "__self__", None), getattr(function, "__func__", function)
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError) as error:
        raise InvalidArgument(f"{_name(function)}: its source cannot be read ({error})") from None
    ast.increment_lineno(tree, first - 1)
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise InvalidArgument(f"{_name(function)}: not a plain function")
    if definition.decorator_list:
        raise InvalidArgument(f"{_name(function)}: a decorator stands around it")
    if function.__closure__:
        raise InvalidArgument(f"{_name(function)}: it reads variables of a function around it, or calls super() "
                              f"({', '.join(function.__code__.co_freevars)})")
    return _lift(function, definition, bound)


def _lift(function, definition, bound):
    name = _name(function)
    loops = list(loops_of(definition))
    if len(loops) != 1:
        raise InvalidArgument(f"{name}: {len(loops) or 'no'} loops in it call step() of an optimizer")
    block = loops[0].body
    start = 1 + max((i for i, statement in enumerate(block) if calls_any(statement, {"sample"})), default=-1)
    cut = Cut(name, definition, block, slice(start, len(block)), names_of(definition))
    own = [] if bound is None else [definition.args.args[0].arg]
    step = _compiled(function, in_function(cut.function(definition.name, own), []))()
    step.__qualname__ = function.__qualname__
    if bound is not None:
        step = types.MethodType(step, bound)
    cut.replace(_STEP, own, bound=True)
    _without_defaults(definition)
    make = _compiled(function, in_function(definition, [_STEP]))

    def around(step):
        made = make(step)
        made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        return functools.update_wrapper(made, function)
    return Lifted(step, around, cut.lines)


class Cut:
    """Statements of a loop that can be a function of their own. Raises InvalidArgument where they cannot.

    scope: the function or module that the loop stands in.   block, which: the statements, those of the loop or of a block in it.
    variables: names that are the scope's own; of a module those that the loop assigns, since all others can be read anywhere.
    around: those of functions around it.
    """

    def __init__(self, name: str, scope: ast.AST, block: list[ast.stmt], which: slice, variables: set[str],
                 around: set[str] = frozenset()):
        self.scope, self.block, self.which, self.taken = scope, block, which, block[which]
        if any(isinstance(node, ast.Try) and self.taken[0] in ast.walk(node) for node in ast.walk(scope)):
            raise InvalidArgument(f"{name}: its loop stands in a try, and may go on after an exception")
        _check(name, self.taken)
        flow = _Flow(variables | around)
        exits = flow.exits_of(self.taken)
        self.appended = sorted(_appended(self.taken) & variables)
        stored = _stored(self.taken) - set(self.appended)
        if others := sorted(stored - variables):
            raise InvalidArgument(f"{name}: {', '.join(others)}: assigned, and not its own")
        flow.read_early -= set(self.appended)
        self.outputs = sorted(stored & _read_after(scope, block, which.stop, variables))
        # what an exit leaves as it was is handed in, to be handed back
        self.inputs = sorted(flow.read_early | {name for name in self.outputs if any(name not in assigned for assigned in exits)})
        self.inputs.sort(key=_order_in(self.taken))
        self.unbound = set(self.inputs) - _bound_at(scope, self.taken, variables) - around
        self.sometimes = self.unbound & set(self.outputs)
        if captured := sorted(stored & _captured(scope, self.taken)):
            raise InvalidArgument(f"{name}: {', '.join(captured)}: a function or lambda outside of the step reads it")
        self.lines = self.taken[0].lineno, self.taken[-1].end_lineno
        self.is_left_early = flow.is_left_early

    def function(self, name: str, own: list[str]) -> ast.FunctionDef:
        """The statements as a function that gives a signal, what was to be returned, and what the rest reads; `own` come first."""
        inputs = own + [each for each in self.inputs if each not in own]
        return _body(name, self.taken, inputs, self.appended + self.outputs, self.appended, self.unbound - self.sometimes)

    def replace(self, step: str, own: list[str], bound: bool = False) -> None:
        """Has the loop call `step` in their place, which `own` is given first, unless it is bound."""
        inputs = [*([] if bound else own), *(each for each in self.inputs if each not in own)]
        self.block[self.which] = _call(step, self, inputs)


def _name(function):
    return getattr(function, "__qualname__", repr(function))


def loops_of(scope: ast.AST) -> Iterable[ast.stmt]:
    """Loops in it, but for functions and classes in it, that call step() of an optimizer themselves: not one inside of another."""
    for node in _own(scope.body, into_loops=True):
        if isinstance(node, (ast.For, ast.While)) and any(map(steps, _own(node.body))):
            yield node


def steps_itself(definition: ast.FunctionDef) -> bool:
    """Whether it calls step() of an optimizer, not a function in it."""
    return any(map(steps, _own(definition.body, into_loops=True)))


def names_of(definition: ast.FunctionDef) -> set[str]:
    """Variables of a function."""
    declared = {name for node in _own(definition.body, into_loops=True) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    return (_parameters(definition) | _stored(definition.body)) - declared


def _own(statements: Iterable[ast.AST], into_loops: bool = False) -> Iterable[ast.AST]:
    """The nodes of `statements` that are run by them, not by a function in them, nor by a loop in them."""
    for statement in statements:
        yield statement
        if not isinstance(statement, _SCOPES if into_loops else (ast.For, ast.While, *_SCOPES)):
            yield from _own(ast.iter_child_nodes(statement), into_loops)


def _calls(node, attribute):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == attribute


def steps(node: ast.AST) -> bool:
    """Whether it calls step() of something that is called an optimizer, or is given one, as that of a GradScaler."""
    return _calls(node, "step") and any("opt" in ast.unparse(part).lower() for part in (node.func.value, *node.args))


def calls_any(statement: ast.stmt, names: Iterable[str]) -> bool:
    """Whether functions or methods of these names are called in it."""
    called = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(getattr(function, "attr", getattr(function, "id", "")) in names for function in called)


def _check(name_of_scope, taken):
    for node in (node for statement in taken for node in ast.walk(statement)):
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Delete, ast.AsyncFor, ast.AsyncWith)):
            raise InvalidArgument(f"{name_of_scope}: line {node.lineno}: {type(node).__name__.lower()} in the step")
        name = getattr(node, "attr", getattr(node, "id", ""))
        if isinstance(name, str) and name.startswith("__") and not name.endswith("__"):
            raise InvalidArgument(f"{name_of_scope}: line {node.lineno}: {name}: a private name of its class")


def _stored(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that statements assign: not those of comprehensions and functions in them, which have their own."""
    names = set()
    for node in nodes:
        if isinstance(node, _SCOPES):
            names.add(getattr(node, "name", ""))
        elif isinstance(node, _COMPREHENSIONS):
            names |= {inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)}
        else:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                names.add(node.id)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
                names.add(node.name)
            elif isinstance(node, ast.MatchMapping) and node.rest:
                names.add(node.rest)
            names |= _stored(ast.iter_child_nodes(node))
    return names


def _read_by(node: ast.AST, but: Iterable[ast.AST] = ()) -> set[str]:
    """Names that a node reads of the scope that it stands in, leaving out the nodes of `but`."""
    if any(node is other for other in but):
        return set()
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    names = set().union(*(_read_by(child, but) for child in ast.iter_child_nodes(node)))
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        names.add(node.target.id)
    elif isinstance(node, _COMPREHENSIONS):
        own = _stored(generator.target for generator in node.generators)
        names = names - own | _read_by(node.generators[0].iter, but)
    elif isinstance(node, ast.Lambda):
        names -= _parameters(node)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        names -= _parameters(node) | _stored(node.body)
    return names


def _appended(taken: list[ast.stmt]) -> set[str]:
    """Names of lists that the statements append to, and use in no other way."""
    nodes = [node for statement in taken for node in ast.walk(statement)]
    appends = [node for node in nodes if isinstance(node, ast.Expr) and _calls(node.value, "append")
               and isinstance(node.value.func.value, ast.Name) and len(node.value.args) == 1]
    additions = [node for node in nodes if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)
                 and isinstance(node.target, ast.Name) and isinstance(node.value, ast.List)]  # losses += [loss.item()]
    targets = [node.value.func.value for node in appends] + [node.target for node in additions]
    used = set().union(*(_read_by(statement, but=[*targets, *additions]) for statement in taken))
    used = used.union(*(_read_by(node.value) for node in additions))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
              and not any(node is target for target in targets)}
    return {target.id for target in targets} - used - stored


def _order_in(taken):
    """A key by where names stand first."""
    at: dict[str, tuple[int, int]] = {}
    for node in (node for statement in taken for node in ast.walk(statement)):
        if isinstance(node, ast.Name):
            at[node.id] = min(at.get(node.id, (node.lineno, node.col_offset)), (node.lineno, node.col_offset))
    return at.__getitem__


def _parameters(function):
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {argument.arg for argument in every if argument}


def _captured(definition, taken):
    within = {id(node) for statement in taken for node in ast.walk(statement)}
    scopes = [node for node in ast.walk(definition) if isinstance(node, _SCOPES) and node is not definition and id(node) not in within]
    return set().union(*(_read_by(scope) for scope in scopes))


class _Flow:
    """Follows statements by the names that are surely assigned: what is read of the others is read early."""

    def __init__(self, variables: set[str], until: ast.stmt | None = None):
        self.variables = variables
        self.read_early: set[str] = set()
        self._exits: list[set[str]] = []
        self.is_left_early = False  # of what exits_of has followed
        self._until, self.reached = until, None

    def exits_of(self, statements: list[ast.stmt]) -> list[set[str]]:
        """What is surely assigned at each way out of `statements`: their end, and a break, continue or return in them."""
        end = self.follow(statements, set())
        self.is_left_early = end is None or bool(self._exits)
        return self._exits + ([] if end is None else [end])

    def follow(self, statements, assigned, in_loop=False):
        """What is assigned after them; None where their end is never come to."""
        for statement in statements:
            if statement is self._until and self.reached is None:
                self.reached = set(assigned)
            assigned = self._after(statement, assigned, in_loop)
            if assigned is None:
                return None
        return assigned

    def _read(self, node, assigned):
        if node is not None:
            self.read_early |= (_read_by(node) & self.variables) - assigned

    def _after(self, node, assigned, in_loop):
        if isinstance(node, (ast.Break, ast.Continue)):
            if not in_loop:
                self._exits.append(assigned)
            return None
        if isinstance(node, ast.Return):
            self._read(node, assigned)
            self._exits.append(assigned)
            return None
        if isinstance(node, ast.Raise):
            self._read(node, assigned)
            return None
        if isinstance(node, ast.If):
            self._read(node.test, assigned)
            assigned = assigned | _stored([node.test])
            return _both(self.follow(node.body, assigned, in_loop), self.follow(node.orelse, assigned, in_loop))
        if isinstance(node, (ast.For, ast.While)):
            head = [node.iter] if isinstance(node, ast.For) else [node.test]
            self._read(head[0], assigned)
            assigned = assigned | _stored(head)
            self.follow(node.body, assigned | (_stored([node.target]) if isinstance(node, ast.For) else set()), in_loop=True)
            self.follow(node.orelse, assigned, in_loop)
            return assigned
        if isinstance(node, ast.With):
            for item in node.items:
                self._read(item, assigned)
            return self.follow(node.body, assigned | _stored(node.items), in_loop)
        if isinstance(node, (ast.Try, getattr(ast, "TryStar", ast.Try))):
            after = self.follow([*node.body, *node.orelse], assigned, in_loop)
            for handler in node.handlers:
                after = _both(after, self.follow(handler.body, assigned | ({handler.name} if handler.name else set()), in_loop))
            finally_ = self.follow(node.finalbody, assigned, in_loop)
            return None if after is None or finally_ is None else after | finally_
        if isinstance(node, ast.Match):
            self._read(node.subject, assigned)
            for case in node.cases:
                inside = assigned | _stored([case.pattern])
                self._read(case.guard, inside)
                self.follow(case.body, inside, in_loop)
            return assigned
        self._read(node, assigned)
        return assigned | _stored([node])


def _read_after(scope, block, stop, variables):
    """Names that may be read after statements of a block, which end at `stop`, before they are assigned anew."""
    read = set()
    for segment, assigned in _segments(scope.body, block, stop):
        flow = _Flow(variables)
        flow.follow(segment, assigned)
        read |= flow.read_early
    return read


def _segments(statements, block, stop):
    """What may follow, in parts that are each run from their beginning, with what is assigned there."""
    if statements is block:
        yield statements[stop:], set()
        return
    for i, statement in enumerate(statements):
        for inner in blocks_of(statement):
            found = list(_segments(inner, block, stop))
            if not found:
                continue
            yield from found
            if isinstance(statement, ast.For) and inner is statement.body:
                yield statement.body, _stored([statement.target])
            if isinstance(statement, ast.While) and inner is statement.body:
                yield [ast.Expr(statement.test), *statement.body], set()
            if isinstance(statement, (ast.For, ast.While)) and inner is statement.body:
                yield statement.orelse, set()
            yield statements[i + 1:], set()
            return


def blocks_of(statement: ast.stmt) -> Iterable[list[ast.stmt]]:
    """The blocks of statements that one has."""
    for field in ("body", "orelse", "finalbody"):
        if block := getattr(statement, field, None):
            yield block
    for each in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
        yield each.body


def _both(one, other):
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _bound_at(definition, taken, variables):
    flow = _Flow(variables, until=taken[0])
    flow.follow(definition.body, set() if isinstance(definition, ast.Module) else _parameters(definition))
    return flow.reached or set()


class _Leaving(ast.NodeTransformer):
    """A break, continue or return of the statements is a signal that their function returns."""

    def __init__(self, outputs):
        self._outputs, self._loops = outputs, 0

    def leave(self, signal, at, value=None):
        values = ast.Tuple([ast.Name(name, ast.Load()) for name in self._outputs], ast.Load())
        return _moved(ast.Return(ast.Tuple([ast.Constant(signal), value or ast.Constant(None), values], ast.Load())), at.lineno)

    def _loop(self, node):
        self._loops += 1
        node.body = [self.visit(statement) for statement in node.body]
        self._loops -= 1
        node.orelse = [self.visit(statement) for statement in node.orelse]
        return node

    visit_For = visit_While = _loop

    def _scope(self, node):
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = _scope

    def visit_Break(self, node):
        return node if self._loops else self.leave(_BREAK, node)

    def visit_Continue(self, node):
        return node if self._loops else self.leave(_CONTINUE, node)

    def visit_Return(self, node):
        return self.leave(_RETURN, node, node.value)


def _body(name, taken, inputs, outputs, appended, unbound):
    leaving = _Leaving(outputs)
    # what was not assigned comes as an Ellipsis, and is not assigned in the step either
    first = ast.parse("".join([*(f"if {each} is ...:\n    del {each}\n" for each in sorted(unbound)),
                               *(f"{each} = []\n" for each in appended)])).body
    statements = [_moved(statement, taken[0].lineno) for statement in first]
    statements += [leaving.visit(statement) for statement in taken]
    statements.append(leaving.leave(_FELL_THROUGH, taken[-1]))
    step = _moved(ast.parse(f"def {name}({', '.join(inputs)}): pass").body[0], taken[0].lineno)
    step.body = statements
    return step


def _call(step, cut, inputs):
    """What stands in place of the statements."""
    values = ", ".join([*(f"{_GIVEN}{name}" for name in cut.appended),
                        *(_GIVEN + name if name in cut.sometimes else name for name in cut.outputs)])
    extensions = "".join(f"""
    for {_VALUE} in {_GIVEN}{name}:
        {name}.append({_VALUE})""" for name in cut.appended) + "".join(f"""
    if {_GIVEN}{name} is not ...:
        {name} = {_GIVEN}{name}""" for name in sorted(cut.sometimes))
    given = ", ".join(_GIVEN + name if name in cut.unbound else name for name in inputs)
    tries = "".join(f"""
    try:
        {_GIVEN}{name} = {name}
    except NameError:
        {_GIVEN}{name} = ...""" for name in sorted(cut.unbound))
    returns = "pass" if isinstance(cut.scope, ast.Module) else f"""if {_SIGNAL} == {_RETURN}:
        return {_RETURNED}"""
    source = f"""
while True:{tries}
    {_SIGNAL}, {_RETURNED}, [{values}] = {step}({given}){extensions}
    {returns}
    if {_SIGNAL} == {_BREAK}:
        break
    if {_SIGNAL} == {_CONTINUE}:
        continue
"""
    return [_moved(statement, cut.lines[0]) for statement in ast.parse(source).body[0].body]


def in_function(definition: ast.FunctionDef, parameters: Iterable[str]) -> ast.FunctionDef:
    """A function that makes the one of `definition`, which then has `parameters` as variables around it."""
    outer = ast.parse(f"def make({', '.join(parameters)}):\n    return {definition.name}").body[0]
    outer.body.insert(0, definition)
    return outer


def _without_defaults(definition):
    """And without annotations: both were worked out where the function stands."""
    definition.returns = None
    definition.args.defaults, definition.args.kw_defaults = [], [None] * len(definition.args.kwonlyargs)
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None


def _moved(node, line):
    for inner in ast.walk(node):
        if "lineno" in inner._attributes:
            inner.lineno = inner.end_lineno = line
            inner.col_offset = inner.end_col_offset = 0
    return node


def _compiled(function, outer):
    module = ast.fix_missing_locations(ast.Module([outer], []))
    names: dict[str, Any] = {}
    exec(compile(module, function.__code__.co_filename, "exec"), function.__globals__, names)  # nothing is put into its globals
    return names["make"]

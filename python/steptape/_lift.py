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
import __future__
import ast
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable

from ._errors import InvalidArgument
from ._flow import SCOPES, TRIES, Flow, blocks_of, bound_at, lets_through, name_of, names_of, own_nodes, read_after, read_by, stored

_FELL_THROUGH, _BREAK, _CONTINUE, _RETURN = range(4)
_BY_NAME, _OF_OBJECTS = {"locals", "globals", "vars", "dir", "eval", "exec"}, {"vars", "dir"}
_GOES_OVER = {"sum", "any", "all", "max", "min", "sorted", "list", "tuple", "set", "frozenset", "dict", "join"}  # a generator
_CALLS_KEY = {"max", "min", "sorted", "sort"}
_CALLS_AT_ONCE = {"step", "checkpoint", "vjp", "jvp", "hvp", "vhp", "jacobian", "tree_map"}  # the function that they are given
_MAKES_ONE = {"vmap", "grad", "grad_and_value", "jacrev", "jacfwd", "hessian", "functionalize", "linearize"}  # of that function
_OF_LISTS = {"append", "extend", "insert", "pop", "remove", "clear", "index", "count", "sort", "reverse", "copy"}
_LOOKS_AT = {"len", "sum", "max", "min", "mean", "fmean", "median", "std", "sorted", "print", "array", "tensor"}
_STEP, _SIGNAL, _RETURNED, _VALUE, _GIVEN = (f"__steptape_{name}" for name in ("step", "signal", "returned", "value", "given_"))


_FUTURES = functools.reduce(int.__or__, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names))


class Lifted(typing.NamedTuple):
    """The two functions that `lift` makes of one, and the first and last line of the source of the step."""
    body: Callable
    """The step, bound as the function was: takes what it reads, and returns a signal with what the rest reads."""
    around: Callable[[Callable], Callable]
    """Gives the function itself, unbound, calling a step (the body, or what wraps it) where the statements stood, of a method
    with the object first."""
    lines: tuple[int, int]


def lift(function: Callable) -> Lifted:
    """Of a function or bound method with one loop that calls `step()` of an optimizer: what comes after the batch was drawn.

    The statements begin after the last one in the loop that calls a method `sample`, and are else the loop's body. Raises
    InvalidArgument with the reason where the source cannot be had, or where its statements cannot be a function.
    """
    bound, function = getattr(function, "__self__", None), getattr(function, "__func__", function)
    try:
        lines, first = inspect.getsourcelines(function)
        # as it stands, since texts keep what they are indented by
        definition = ast.parse("if True:\n" + "".join(lines) if lines[0][:1].isspace() else "\n" + "".join(lines)).body[0]
    except (OSError, TypeError, SyntaxError) as error:
        raise InvalidArgument(f"{_name(function)}: its source cannot be read ({error})") from None
    definition = definition.body[0] if isinstance(definition, ast.If) else definition
    ast.increment_lineno(definition, first - 2)
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
    step = _compiled(function, cut.function(definition.name, own), [])()
    step.__qualname__ = function.__qualname__
    if bound is not None:
        step = types.MethodType(step, bound)
    cut.replace(_STEP, own)
    _without_defaults(definition)
    make = _compiled(function, definition, [_STEP])

    def around(step):
        made = make(step)
        made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        return functools.update_wrapper(made, function)
    return Lifted(step, around, cut.lines)


class Cut:
    """Statements of a loop that can be a function of their own. Raises InvalidArgument where they cannot, or might do something else.

    scope: the function or module that the loop stands in.   block, which: the statements, those of the loop or of a block in it.
    variables: names that are the scope's own; of a module those that the loop assigns, since all others can be read anywhere.
    around: those of functions around it.   shared: names that functions anywhere in the file assign in scopes around them.
    """

    def __init__(self, name: str, scope: ast.AST, block: list[ast.stmt], which: slice, variables: set[str],
                 around: set[str] = frozenset(), shared: set[str] = frozenset()):
        self.scope, self.block, self.which, self.taken, self._name = scope, block, which, block[which], name
        way = _way_to(scope.body, block)
        if way is None:
            raise InvalidArgument(f"{name}: its loop stands in what another step does")
        self._way = [*way, (block, which.start)]
        self._parents = {id(child): node for node in ast.walk(scope) for child in ast.iter_child_nodes(node)}
        self._check_nodes()
        self.appended = sorted(each for each in _appended(self.taken) & variables if self._is_own_list(each))
        flow = Flow((variables | around) - set(self.appended))
        exits = flow.exits_of(self.taken)
        changed = stored(self.taken) - set(self.appended)
        self._refuse(changed - variables, "assigned, and not its own")
        self.outputs = sorted(changed & read_after(self._way, which.stop, variables))
        self.inputs = sorted(flow.read_early, key=_order_in(self.taken))
        self.unbound = flow.read_early - bound_at(scope, self.taken[0], variables) - around
        # of which it is not known whether they are assigned at each exit
        self.sometimes = {each for each in self.outputs if any(each not in assigned for assigned in exits)
                          and (each not in flow.read_early or each in self.unbound)}
        self._check_others(changed, flow.read_early, shared | declared_in(scope))
        self.lines = self.taken[0].lineno, self.taken[-1].end_lineno
        self.is_left_early = flow.is_left_early

    def _refuse(self, names, why):
        if names:
            raise InvalidArgument(f"{self._name}: {', '.join(sorted(names))}: {why}")

    def _check_nodes(self):
        """Refuses what no function can hold, and what may see that there is one."""
        for node in (node for statement in self.taken for node in ast.walk(statement)):
            if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Delete, ast.AsyncFor, ast.AsyncWith)):
                raise InvalidArgument(f"{self._name}: line {node.lineno}: {type(node).__name__.lower()} in the step")
            name = name_of(node)
            if isinstance(node, ast.Name) and name in ("super", "__class__"):
                raise InvalidArgument(f"{self._name}: line {node.lineno}: {name}: a function outside of its class cannot ask for it")
            if isinstance(name, str) and name.startswith("__") and not name.endswith("__"):
                raise InvalidArgument(f"{self._name}: line {node.lineno}: {name}: a private name of its class")
        for node in ast.walk(self.scope):
            called = node.func if isinstance(node, ast.Call) else None
            if (isinstance(called, ast.Name) and called.id in _BY_NAME and not (called.id in _OF_OBJECTS and node.args)) or (
                    isinstance(node, ast.Attribute) and node.attr in ("_getframe", "currentframe")):
                raise InvalidArgument(f"{self._name}: line {node.lineno}: {ast.unparse(called or node)} looks at variables by their names")

    def _check_others(self, changed, read, shared):
        """Refuses where others look at what the step assigns while it runs, or after it was left by an exception."""
        within = {id(node) for statement in self.taken for node in ast.walk(statement)}
        others = [node for node in _functions_in(self.scope.body) if id(node) not in within and not (
            isinstance(node, (ast.Lambda, ast.GeneratorExp)) and self._is_called_at_once(node))]
        self._refuse(changed & set().union(*map(read_by, others)), "a function or lambda outside of the step reads it")
        self._refuse((changed | read) & shared, "a function assigns it")
        for k, (statements, i) in enumerate(self._way[:-1]):
            around = statements[i]
            if isinstance(around, TRIES):
                raise InvalidArgument(f"{self._name}: its loop stands in a try, and may go on after an exception")
            if isinstance(around, ast.With) and not lets_through(around):
                self._refuse(changed & read_after(self._way[:k + 1], i + 1, changed),
                             f"read after the `with` of line {around.lineno}, which may go on after an exception")
        nodes = [node for statement in self.taken for node in ast.walk(statement)]
        for node in nodes:
            if isinstance(node, ast.ExceptHandler) and node.name:
                self._refuse({node.name} & ({*self.outputs} | read), "the name of an exception, which its `except` deletes")
            if isinstance(node, TRIES) and node.finalbody:
                leaves = [each for each in own_nodes([node], into_loops=True) if isinstance(each, (ast.Return, ast.Break, ast.Continue))]
                last = list(own_nodes(node.finalbody, into_loops=True))
                if any(each is other for each in leaves for other in last):
                    raise InvalidArgument(f"{self._name}: line {node.lineno}: its `finally` leaves the step")
                self._refuse(stored(node.finalbody) & {*self.outputs} if leaves else (), "assigned in a `finally` as the step is left")
        if (self.sometimes or self.unbound) and _has_ellipsis(self.scope):
            raise InvalidArgument(f"{self._name}: an Ellipsis, which stands for what is not assigned")
        self._check_functions()

    def _check_functions(self):
        """Refuses functions in the step that may be called after it, and would find other values in the next turns."""
        outermost = next(statements[i] for statements, i in self._way if isinstance(statements[i], (ast.For, ast.While)))
        changing = stored([outermost])
        for node in _functions_in(self.taken):
            if not read_by(node) & changing:
                continue
            name = getattr(node, "name", None)
            parent = self._parents[id(node)]
            if isinstance(node, ast.Lambda) and isinstance(parent, ast.Assign) and len(parent.targets) == 1:
                name = getattr(parent.targets[0], "id", None)  # closure = lambda: ...
            uses = [node] if name is None else [each for statement in self.taken for each in ast.walk(statement)
                                                if isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Load)]
            if isinstance(node, ast.ClassDef) or getattr(node, "decorator_list", ()) or name in self.outputs or not all(map(self._is_called_at_once, uses)):
                self._refuse(read_by(node) & changing, f"a function in line {node.lineno} reads it, and may be called after the step")

    def _is_called_at_once(self, node):
        """Whether nobody keeps the function, or the generator."""
        parent, key = self._parents[id(node)], None
        if isinstance(node, ast.GeneratorExp) and (isinstance(parent, ast.Starred) or (
                isinstance(parent, ast.Assign) and all(isinstance(target, (ast.Tuple, ast.List)) for target in parent.targets))):
            return True  # gone over where it stands
        if isinstance(parent, ast.keyword):
            parent, key = self._parents[id(parent)], parent.arg
        if not isinstance(parent, ast.Call):
            return False
        called = name_of(parent.func)
        if key is not None:
            return key == "key" and called in _CALLS_KEY
        if isinstance(node, ast.GeneratorExp):
            return called in _GOES_OVER
        return parent.func is node or called in _CALLS_AT_ONCE or (called in _MAKES_ONE and self._is_called_at_once(parent))

    def _is_own_list(self, name):
        """Whether the scope made the list before its loop, and nobody else holds it."""
        if any(name in read_by(node) for node in _functions_in(self.scope.body)):
            return False
        for statements, i in reversed(self._way):
            made = max((k for k in range(i) if name in _new_lists(statements[k])), default=None)
            if made is not None:
                since = [*statements[made + 1:i], *(self.taken if statements is self.block else [statements[i]])]
                return all(self._only_looks_at(node) for statement in since for node in ast.walk(statement)
                           if isinstance(node, ast.Name) and node.id == name)
        return False

    def _only_looks_at(self, name):
        """Whether this use of a list leaves no other reference to it."""
        parent = self._parents[id(name)]
        if isinstance(parent, ast.Call):
            return name_of(parent.func) in _LOOKS_AT
        if isinstance(parent, ast.AugAssign):
            return parent.target is name and isinstance(parent.value, ast.List)
        if isinstance(parent, (ast.For, ast.comprehension)):
            return parent.iter is name
        if isinstance(parent, ast.Attribute):
            return parent.attr in _OF_LISTS and getattr(self._parents[id(parent)], "func", None) is parent
        return isinstance(parent, (ast.Subscript, ast.FormattedValue, ast.Compare, ast.UnaryOp, ast.If, ast.While)) and not isinstance(
            name.ctx, ast.Store)

    def function(self, name: str, own: list[str]) -> ast.FunctionDef:
        """The statements as a function that gives a signal, what was to be returned, and what the rest reads; `own` come first."""
        self._refuse({*own} & stored(self.taken), "assigned in the step")
        inputs = own + [each for each in self.inputs if each not in own]
        return _body(name, self, inputs)

    def replace(self, step: str, own: list[str]) -> None:
        """Has the loop call `step` in their place, which `own` is given first."""
        inputs = own + [each for each in self.inputs if each not in own]
        self.block[self.which] = _call(step, self, inputs)


def _name(function):
    return getattr(function, "__qualname__", repr(function))


def loops_of(scope: ast.AST) -> Iterable[ast.stmt]:
    """Loops in it, but for functions and classes in it, that call step() of an optimizer themselves: not one inside of another,
    and not one over several optimizers, which is a part of the loop around it."""
    for node in own_nodes(scope.body, into_loops=True):
        if isinstance(node, (ast.For, ast.While)) and not _is_over_optimizers(node) and any(
                steps(each) or _is_over_optimizers(each) for each in own_nodes(node.body)):
            yield node


def _is_over_optimizers(node):
    if not isinstance(node, ast.For):
        return False
    names = {target.id for target in ast.walk(node.target) if isinstance(target, ast.Name)}
    stepped = [each.func.value for each in own_nodes(node.body) if steps(each)]
    return bool(stepped) and all(isinstance(each, ast.Name) and each.id in names for each in stepped)


def steps_itself(definition: ast.FunctionDef) -> bool:
    """Whether it calls step() of an optimizer, not a function in it."""
    return any(map(steps, own_nodes(definition.body, into_loops=True)))


def _calls(node, attribute):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == attribute


def mark_steps(tree: ast.AST) -> None:
    """For `steps`: what zero_grad() is called on in it is an optimizer, whatever it is called."""
    zeroed = {ast.unparse(node.func.value) for node in ast.walk(tree) if _calls(node, "zero_grad")}
    for node in ast.walk(tree):
        if _calls(node, "step") and ast.unparse(node.func.value) in zeroed:
            node.is_marked = True


def steps(node: ast.AST) -> bool:
    """Whether it calls step() of something that is called an optimizer, or is given one, as that of a GradScaler, or is marked as one."""
    return _calls(node, "step") and (getattr(node, "is_marked", False) or any(
        "opt" in ast.unparse(part).lower() for part in (node.func.value, *node.args)))


def calls_any(statement: ast.stmt, names: Iterable[str]) -> bool:
    """Whether functions or methods of these names are called in it."""
    return any(name_of(node.func) in names for node in ast.walk(statement) if isinstance(node, ast.Call))


def _functions_in(statements):
    """Functions and classes in statements, and what else has code that may run later; not those inside of another."""
    return [node for node in own_nodes(statements, into_loops=True) if isinstance(node, (*SCOPES, ast.GeneratorExp))]


def _way_to(statements, block):
    """From a block to one in it: (statements, position of the one that leads on); None where none does."""
    if statements is block:
        return []
    for i, statement in enumerate(statements):
        for inner in blocks_of(statement):
            if (way := _way_to(inner, block)) is not None:
                return [(statements, i), *way]
    return None


def declared_in(scope):
    return {name for node in ast.walk(scope) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}


def _has_ellipsis(scope):
    nodes = list(ast.walk(scope))
    of_indices = {id(node) for each in nodes if isinstance(each, (ast.Subscript, ast.Expr)) for node in ast.walk(getattr(each, "slice", None) or each.value)}
    # those that an earlier cut has put in are not the program's
    return any(isinstance(node, ast.Constant) and node.value is ... and id(node) not in of_indices and not hasattr(node, "is_made")
               for node in nodes)


def _new_lists(statement):
    """Names to which a statement gives a list that it makes."""
    if isinstance(statement, ast.AnnAssign):
        pairs = [(statement.target, statement.value)]
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
        both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts)
        pairs = zip(target.elts, value.elts) if both else [(target, value)]
    else:
        return set()
    return {target.id for target, value in pairs if isinstance(target, ast.Name) and (
        isinstance(value, (ast.List, ast.ListComp)) or (isinstance(value, ast.Call) and name_of(value.func) == "list"))}


def _appended(taken: list[ast.stmt]) -> set[str]:
    """Names of lists that the statements append to, and use in no other way."""
    nodes = [node for statement in taken for node in ast.walk(statement)]
    appends = [node for node in nodes if isinstance(node, ast.Expr) and _calls(node.value, "append")
               and isinstance(node.value.func.value, ast.Name) and len(node.value.args) == 1]
    additions = [node for node in nodes if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)
                 and isinstance(node.target, ast.Name) and isinstance(node.value, ast.List)]  # losses += [loss.item()]
    targets = [node.value.func.value for node in appends] + [node.target for node in additions]
    used = set().union(*(read_by(statement, but=[*targets, *additions]) for statement in taken))
    used = used.union(*(read_by(node.value) for node in additions))
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
                and not any(node is target for target in targets)}
    return {target.id for target in targets} - used - assigned


def _order_in(taken):
    """A key by where names stand first."""
    at: dict[str, tuple[int, int]] = {}
    for node in (node for statement in taken for node in ast.walk(statement)):
        if isinstance(node, ast.Name):
            at[node.id] = min(at.get(node.id, (node.lineno, node.col_offset)), (node.lineno, node.col_offset))
    return at.__getitem__


class _Leaving(ast.NodeTransformer):
    """A break, continue or return of the statements is a signal that their function returns."""

    def __init__(self, cut):
        self._cut, self._loops = cut, 0

    def leave(self, signal, at, value=None):
        """Statements that return what the rest reads, each ... that is not assigned here."""
        cut, source = self._cut, ""
        for name in sorted(cut.sometimes):
            source += f"try:\n    {_GIVEN}{name} = {name}\nexcept NameError:\n    {_GIVEN}{name} = ...\n"
        values = "".join(f"{_GIVEN if name in cut.sometimes else ''}{name}, " for name in [*cut.appended, *cut.outputs])
        statements = ast.parse(f"{_RETURNED} = None\n{source}return {signal}, {_RETURNED}, ({values})").body
        statements[0].value = value or statements[0].value
        return [_moved(statement, at.lineno) for statement in statements]

    def visit_all(self, statements):
        """The statements with what takes the place of each."""
        visited = (self.visit(statement) for statement in statements)
        return [each for made in visited for each in (made if isinstance(made, list) else [made])]

    def _loop(self, node):
        self._loops += 1
        node.body = self.visit_all(node.body)
        self._loops -= 1
        node.orelse = self.visit_all(node.orelse)
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


def _body(name, cut, inputs):
    leaving, at = _Leaving(cut), cut.lines[0]
    # what was not assigned comes as an Ellipsis, and is not assigned in the step either
    first = ast.parse("".join([*(f"if {each} is ...:\n    del {each}\n" for each in sorted(cut.unbound)),
                               *(f"{each} = []\n" for each in cut.appended)])).body
    step = _moved(ast.parse(f"def {name}({', '.join(inputs)}): pass").body[0], at)
    step.body = [*(_moved(statement, at) for statement in first), *leaving.visit_all(cut.taken), *leaving.leave(_FELL_THROUGH, cut.taken[-1])]
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
        inner.is_made = True
        if "lineno" in inner._attributes:
            inner.lineno = inner.end_lineno = line
            inner.col_offset = inner.end_col_offset = 0
    return node


def _compiled(function, definition, parameters):
    """A function with these parameters that makes what the definition stands for, compiled as the function's module was."""
    outer, names = in_function(definition, parameters), {}
    *_, around, _ = ("<locals>." + function.__qualname__).split(".")
    if around != "<locals>":  # in a class, private names are those of that class
        of_class = ast.parse(f"class {around}: pass").body[0]
        of_class.body, outer = [outer], of_class
    module = ast.fix_missing_locations(ast.Module([outer], []))
    flags = function.__code__.co_flags & _FUTURES
    exec(compile(module, function.__code__.co_filename, "exec", flags, dont_inherit=True), function.__globals__, names)  # none of its globals is set
    return names["make"] if around == "<locals>" else vars(names[around])["make"]

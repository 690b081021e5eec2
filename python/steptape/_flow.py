"""Which variables statements assign and read. Where it cannot be known, fewer count as assigned, and more as read."""
import ast
from collections.abc import Iterable

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
TRIES = (ast.Try, getattr(ast, "TryStar", ast.Try))
# what does not go on after an exception in it, as contextlib.suppress does
_LETS_THROUGH = {"autocast", "no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "set_detect_anomaly", "profile", "record_function",
                 "nullcontext", "device", "stream", "amp", "open", "tqdm", "trange", "accumulate", "no_sync", "autograd_context", "closing",
                 "SummaryWriter", "sdpa_kernel", "fork_rng", "default_dtype"}


def name_of(function: ast.AST) -> str:
    """What a call names: "step" of optimizer.step; or ""."""
    return getattr(function, "attr", getattr(function, "id", ""))


def lets_through(statement: ast.With) -> bool:
    """Whether an exception in it is known to leave it."""
    return all(name_of(getattr(item.context_expr, "func", item.context_expr)) in _LETS_THROUGH for item in statement.items)


def own_nodes(statements: Iterable[ast.AST], into_loops: bool = False) -> Iterable[ast.AST]:
    """The nodes of `statements` that are run by them, not by a function in them, nor by a loop in them."""
    for statement in statements:
        yield statement
        if not isinstance(statement, SCOPES if into_loops else (ast.For, ast.While, *SCOPES)):
            yield from own_nodes(ast.iter_child_nodes(statement), into_loops)


def blocks_of(node: ast.AST) -> Iterable[list[ast.stmt]]:
    """The blocks of statements that one has; the body of a lambda is none."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if block and isinstance(block, list):
            yield block
    for each in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
        yield each.body


def parameters(function: ast.AST) -> set[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {argument.arg for argument in every if argument}


def declared(statements: Iterable[ast.AST]) -> set[str]:
    """Names that they declare to be of a scope around theirs."""
    return {name for node in own_nodes(statements, into_loops=True) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}


def names_of(definition: ast.FunctionDef) -> set[str]:
    """Variables of a function."""
    return (parameters(definition) | stored(definition.body)) - declared(definition.body)


def _assigned_by(node):
    """Names that a node assigns by itself."""
    if isinstance(node, SCOPES):
        return {node.name} if hasattr(node, "name") else set()
    if isinstance(node, ast.Name):
        return set() if isinstance(node.ctx, ast.Load) else {node.id}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        return {node.name} if node.name else set()
    if isinstance(node, ast.MatchMapping):
        return {node.rest} if node.rest else set()
    return set()


def stored(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that statements may assign: not those of comprehensions and functions in them, which have their own."""
    names = set()
    for node in nodes:
        if isinstance(node, _COMPREHENSIONS):
            names |= {inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)}
            continue
        names |= _assigned_by(node)
        if not isinstance(node, SCOPES):
            names |= stored(ast.iter_child_nodes(node))
    return names


def _surely_stored(nodes):
    """Names that are assigned once these expressions, or simple statements, have been run to their ends."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.AnnAssign) and node.value is None:
            continue
        names |= _assigned_by(node)
        if isinstance(node, (*SCOPES, ast.Assert)):
            continue
        if isinstance(node, ast.BoolOp):
            names |= _surely_stored(node.values[:1])
        elif isinstance(node, ast.IfExp):
            names |= _surely_stored([node.test])
        elif isinstance(node, ast.Compare):
            names |= _surely_stored([node.left, node.comparators[0]])
        elif isinstance(node, _COMPREHENSIONS):
            names |= _surely_stored([node.generators[0].iter])
        else:
            names |= _surely_stored(ast.iter_child_nodes(node))
    return names


def read_by(node: ast.AST, but: Iterable[ast.AST] = ()) -> set[str]:
    """Names that a node reads of the scope that it stands in, or that a function in it assigns there; without the nodes of `but`."""
    if any(node is other for other in but):
        return set()
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return set(node.names)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        body = node.body if isinstance(node.body, list) else [node.body]
        inside = set().union(*(read_by(child, but) for child in body))
        own = (parameters(node) | stored(body)) - declared(body)
        outside = [*getattr(node, "decorator_list", []), node.args, *filter(None, [getattr(node, "returns", None)])]
        return inside - own | set().union(*(read_by(child, but) for child in outside))
    names = set().union(*(read_by(child, but) for child in ast.iter_child_nodes(node)))
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        names.add(node.target.id)
    elif isinstance(node, _COMPREHENSIONS):
        own = stored(generator.target for generator in node.generators)
        names = names - own | read_by(node.generators[0].iter, but)
    return names


class Flow:
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
            self.read_early |= (read_by(node) & self.variables) - assigned

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
            assigned = assigned | _surely_stored([node.test])
            return _both(self.follow(node.body, assigned, in_loop), self.follow(node.orelse, assigned, in_loop))
        if isinstance(node, (ast.For, ast.While)):
            head = node.iter if isinstance(node, ast.For) else node.test
            self._read(head, assigned)
            assigned = assigned | _surely_stored([head])
            inside = assigned
            if isinstance(node, ast.For):
                self._read(node.target, assigned)
                inside = assigned | stored([node.target])
            self.follow(node.body, inside, in_loop=True)
            self.follow(node.orelse, assigned, in_loop)
            return assigned
        if isinstance(node, ast.With):
            for item in node.items:
                self._read(item, assigned)
                assigned = assigned | _surely_stored([item])
            after = self.follow(node.body, assigned, in_loop)
            return after if lets_through(node) else assigned
        if isinstance(node, TRIES):
            return self._after_try(node, assigned, in_loop)
        if isinstance(node, ast.Match):
            self._read(node.subject, assigned)
            assigned = assigned | _surely_stored([node.subject])
            for case in node.cases:
                self._read(case.pattern, assigned)
                inside = assigned | stored([case.pattern])
                self._read(case.guard, inside)
                self.follow(case.body, inside, in_loop)
            return assigned
        self._read(node, assigned)
        if isinstance(node, ast.Delete):  # what it deletes must be there, too
            deleted = stored(node.targets)
            self.read_early |= (deleted & self.variables) - assigned
            return assigned - deleted
        return assigned | _surely_stored([node])

    def _after_try(self, node, assigned, in_loop):
        after = self.follow([*node.body, *node.orelse], assigned, in_loop)
        for handler in node.handlers:
            self._read(handler.type, assigned)
            handled = self.follow(handler.body, assigned | _assigned_by(handler), in_loop)
            after = _both(after, handled)
            if after is not None:
                after = after - _assigned_by(handler)  # its end deletes the name
        last = self.follow(node.finalbody, assigned, in_loop)
        return None if after is None or last is None else after | last


def _both(one, other):
    if one is None or other is None:
        return other if one is None else one
    return one & other


def read_after(way: list[tuple[list[ast.stmt], int]], stop: int, variables: set[str]) -> set[str]:
    """Names that may be read after statements of a block, which end at `stop`, before they are assigned anew.

    way: from a scope to that block, each (statements, position of the one that leads on).
    """
    read = set()
    for segment, assigned in _segments(way, stop):
        flow = Flow(variables)
        flow.follow(segment, assigned)
        read |= flow.read_early
    return read


def _segments(way, stop):
    """What may follow, in parts that are each run from their beginning, with what is assigned there."""
    inner = way[-1][0]
    yield inner[stop:], set()
    for statements, i in reversed(way[:-1]):
        statement = statements[i]
        if isinstance(statement, (ast.For, ast.While)) and inner is statement.body:
            is_for = isinstance(statement, ast.For)
            yield (inner, stored([statement.target])) if is_for else ([ast.Expr(statement.test), *inner], set())
            yield statement.orelse, set()
        yield statements[i + 1:], set()
        inner = statements


def bound_at(definition: ast.AST, statement: ast.stmt, variables: set[str]) -> set[str]:
    """Names that are surely assigned where a statement begins, in each turn of the loops around it."""
    deleted = set()
    for node in own_nodes(definition.body, into_loops=True):
        if isinstance(node, (ast.ExceptHandler, ast.Delete)):
            deleted |= _assigned_by(node) if isinstance(node, ast.ExceptHandler) else stored(node.targets)
    flow = Flow(variables, until=statement)
    flow.follow(definition.body, set() if isinstance(definition, ast.Module) else parameters(definition))
    return (flow.reached or set()) - deleted

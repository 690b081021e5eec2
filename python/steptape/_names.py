"""What a function's code names: globals, attributes, variables of enclosing functions, Python modules."""
import dis
import functools
import sys
import types

_DEREFERENCES = frozenset({"LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "LOAD_CLASSDEREF",
                           "LOAD_FROM_DICT_OR_DEREF"})
# They reach attributes or globals by names that are values.
_BY_VALUE = frozenset({"getattr", "hasattr", "attrgetter", "setattr", "delattr"})
_ALL = frozenset({"vars", "__dict__", "globals", "locals", "dir", "__getattribute__", "methodcaller"})
ANY = "*"  # among names: the code may use any name
_WRAPPERS = (staticmethod, classmethod, property, functools.cached_property, functools.partialmethod,
             functools.singledispatchmethod)


def names_of(code, without=frozenset()):
    """(globals and attributes, variables of enclosing functions) that the code and the code nested in it
    use."""
    names = set(code.co_names)
    instructions = list(dis.get_instructions(code))
    used = {i.argval for i in instructions if i.opname in _DEREFERENCES}
    if names & (_BY_VALUE | _ALL):
        by_value = any(_names_a_value(instructions, at) for at in range(len(instructions)))
        if names & _ALL or by_value:
            names.add(ANY)
        names |= {c for c in code.co_consts if isinstance(c, str) and c.isidentifier()}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType) and constant not in without:
            inner_names, inner_used = names_of(constant, without)
            names |= inner_names
            used |= inner_used
    return names, used


def _names_a_value(instructions, at):
    """Whether one of _BY_VALUE is loaded here and no constant name follows before it is called."""
    if instructions[at].argval not in _BY_VALUE or not instructions[at].opname.startswith("LOAD"):
        return False
    names_a_constant = False
    for instruction in instructions[at + 1:at + 24]:
        if instruction.opname == "LOAD_CONST":
            names_a_constant |= isinstance(instruction.argval, str)
        elif instruction.opname.startswith("CALL"):
            return not names_a_constant
        elif instruction.opname in ("BINARY_OP", "BINARY_ADD", "FORMAT_VALUE", "BUILD_STRING", "FORMAT_SIMPLE"):
            return True
    return True


def imports_of(code, names):
    """(name, Python module) of what the code imports when it runs."""
    found, level = [], 0
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_CONST" and type(instruction.argval) is int:
            level = instruction.argval
        elif instruction.opname == "IMPORT_NAME":
            name = instruction.argval
            if level:
                parts = (names.get("__package__") or "").split(".")
                name = ".".join([*parts[:len(parts) - level + 1], *([name] if name else [])])
            for i in range(name.count(".") + 1):
                part = ".".join(name.split(".")[:i + 1])
                if part in sys.modules:
                    found.append((part, sys.modules[part]))
            level = 0
    return found


def functions_of(member):
    """The functions behind a member of a class: those of a method, of a property, of what wraps one."""
    candidates = [member]
    for name in ("__func__", "fget", "fset", "fdel", "func", "__wrapped__"):
        held = getattr(member, name, None) if isinstance(member, _WRAPPERS) else None
        if held is not None:
            candidates.append(held)
    return [c for c in candidates if isinstance(c, types.FunctionType)]


def defaults_of(function):
    """Its default arguments, by name."""
    code = function.__code__
    positional = code.co_varnames[:code.co_argcount]
    defaults = function.__defaults__ or ()
    named = dict(zip(positional[len(positional) - len(defaults):], defaults))
    named.update(function.__kwdefaults__ or {})
    return named

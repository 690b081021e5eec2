"""The program's own files and lines."""
import dis
import functools
import linecache
import os
import sysconfig
import types

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STDLIB = tuple(os.path.abspath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib"))


@functools.lru_cache(maxsize=None)
def is_program_file(file):
    """Whether a file is the program's, and neither of a package nor of Python."""
    if not file or file == "<frozen>" or file.startswith("<frozen "):
        return False
    if "/site-packages/" in file or "/dist-packages/" in file or file.startswith(_PACKAGE):
        return False
    return not file.startswith(_STDLIB)


def split_place(place):
    """("train.py", 41) of "Optimizer.step#Adam.step > train.py:41"; ("", 0) where there is no line."""
    file, separator, line = place.rsplit(" > ", 1)[-1].rpartition(":")
    return (file, int(line)) if separator and line.isdigit() else ("", 0)


def line_of(place):
    """The text of the line, or ""."""
    file, line = split_place(place)
    return linecache.getline(file, line).strip() if file else ""


_STORES = ("STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF", "STORE_NAME", "DELETE_ATTR")
_MUTATING = frozenset({"append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove",
                       "discard", "clear", "appendleft", "popleft", "register_buffer", "register_parameter",
                       "step", "write", "sort", "reverse", "__setitem__"})


def _instructions(functions):
    """(file, line, operation, name) of every instruction of the functions and of what is nested in them."""
    pending = [function.__code__ for function in functions]
    seen = set()
    while pending:
        code = pending.pop(0)
        if code in seen:
            continue
        seen.add(code)
        line = code.co_firstlineno
        for instruction in dis.get_instructions(code):
            starts = instruction.starts_line
            if isinstance(starts, bool):  # from Python 3.13 on
                line = instruction.line_number or line
            elif starts:
                line = starts
            yield code.co_filename, line, instruction.opname, instruction.argval
        pending += [c for c in code.co_consts if isinstance(c, types.CodeType)]


def place_of_change(functions, path):
    """Where the program changes what `path` names ("host.losses", "model.fc1.calls"): the line that
    assigns the name, else one that calls a mutating method beside it or mentions it."""
    name = path.split("[")[0].removesuffix(".size").rsplit(".", 1)[-1]
    lines, mentions = {}, []
    for file, line, operation, argument in _instructions(functions):
        if operation in _STORES and argument == name:
            return f"{file}:{line}"
        if argument == name:
            mentions.append((file, line))
        if operation == "STORE_SUBSCR" or (isinstance(argument, str) and argument in _MUTATING):
            lines.setdefault((file, line), True)
    for place in mentions:
        if place in lines:
            return f"{place[0]}:{place[1]}"
    return f"{mentions[0][0]}:{mentions[0][1]}" if mentions else ""


def place_of_names(functions, names):
    """The first line that mentions one of the names, or ""."""
    for file, line, _, argument in _instructions(functions):
        if isinstance(argument, str) and argument in names:
            return f"{file}:{line}"
    return ""


def place_of_function(function):
    """Where a function is defined."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    function = getattr(function, "func", function)
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else type(function).__qualname__

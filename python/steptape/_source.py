"""The program's own files and lines."""
import functools
import linecache
import os
import sysconfig

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


def place_of_function(function):
    """Where a function is defined."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    function = getattr(function, "func", function)
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else type(function).__qualname__

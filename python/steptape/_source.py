"""The program's own files and lines."""
import linecache


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

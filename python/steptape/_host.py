"""Values of the program's own that steps use."""
import functools
from collections.abc import Callable

from . import _engine


class Host:
    """What `host` returns: inside a step that reaches it by name, the value of this call."""

    def __init__(self, function):
        functools.update_wrapper(self, function, updated=())
        self.function = function
        self._values = []  # of the calls that are under way: (engine, name)

    def __call__(self) -> bool | int | float:
        """The value of the call of a step that is under way; outside a step, the function's."""
        if not self._values:
            return self.function()
        engine, name = self._values[-1]
        value = engine.host_value(name)
        if _engine.is_recording():
            return _engine.follow(value, "host_value", name)
        return value


def host(function: Callable[[], bool | int | float]) -> Host:
    """Declares a number of the program's own that steps use: a schedule, a clock, a host random number.

    `function` takes nothing and gives a bool, an int or a float. It is called once in each call of a step
    that names the returned object, before anything else, in eager and replayed calls alike; inside the
    step the object is called to get the value. Numbers that follow from it by arithmetic are computed
    anew in each replay.

        tau = steptape.host(lambda: schedule(epoch))
        step = steptape.wrap(lambda x: train(x, tau()))
    """
    if not callable(function):
        from ._errors import InvalidArgument
        raise InvalidArgument(f"host: a {type(function).__name__} is not callable")
    return Host(function)

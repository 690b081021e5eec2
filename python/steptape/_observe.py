"""Looking at tensors after a step."""
import threading
from collections.abc import Callable
from typing import Any

import torch

from . import _engine
from ._errors import InvalidArgument

_local = threading.local()


def observe(tensor: torch.Tensor, function: Callable[[torch.Tensor], Any], /) -> None:
    """Called inside a step: `function` gets the value of `tensor` after the step, in eager and replayed
    calls alike. For logging and assertions: what it raises reaches the caller of the step, which has been
    done. Outside a step it is called at once."""
    if not callable(function):
        raise InvalidArgument(f"observe: a {type(function).__name__} is not callable")
    if _engine.is_recording():
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        _observers().add(code)
    _engine.observe(tensor, function)


def _observers():
    if not hasattr(_local, "observers"):
        _local.observers = set()
    return _local.observers


def take_observers():
    """The codes of the functions that were given to `observe` since the last time: what they use is no
    part of the step."""
    observers = _observers() - {None}
    _local.observers = set()
    return observers

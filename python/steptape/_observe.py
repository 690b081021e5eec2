"""Looking at tensors after a step."""
from collections.abc import Callable
from typing import Any

import torch

from . import _engine
from ._errors import InvalidArgument


def observe(tensor: torch.Tensor, function: Callable[[torch.Tensor], Any], /) -> None:
    """Called inside a step: `function` gets the value of `tensor` after the step, in eager and replayed
    calls alike. For logging and assertions: what it raises reaches the caller of the step, which has been
    done. Outside a step it is called at once."""
    if not callable(function):
        raise InvalidArgument(f"observe: a {type(function).__name__} is not callable")
    _engine.observe(tensor, function)

"""Steptape records a PyTorch training step and replays it bit-exactly, or runs it eagerly and says why."""
from . import _build_info
from ._check import check_torch

check_torch(_build_info)

from . import _engine  # noqa: E402
from ._errors import (BY_CODE, DataLoss, Error, FailedPrecondition, InternalError,  # noqa: E402
                      InvalidArgument, IoError, NotReplayed, Unsupported)
from ._setup import set_up  # noqa: E402

set_up(_engine, BY_CODE)

from ._counters import counters  # noqa: E402
from ._host import host  # noqa: E402
from ._load import Player, load  # noqa: E402
from ._observe import observe  # noqa: E402
from ._record import record  # noqa: E402
from ._step import Step  # noqa: E402
from ._wrap import optimizer, wrap  # noqa: E402

__version__ = _build_info.VERSION
__all__ = ["DataLoss", "Error", "FailedPrecondition", "InternalError", "InvalidArgument", "IoError", "NotReplayed",
           "Player", "Step", "Unsupported", "counters", "host", "load", "observe", "optimizer", "record", "wrap"]

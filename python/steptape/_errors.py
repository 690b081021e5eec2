"""The exceptions that Steptape throws; those of the user's own step pass through it untouched."""


class Error(RuntimeError):
    """Base of all errors of Steptape's own. `code` says what a caller can do about one."""

    code = "internal"


class InvalidArgument(Error, ValueError):
    """The call was wrong: mend the arguments."""

    code = "invalid_argument"


class FailedPrecondition(Error):
    """The call came at the wrong time, or a guard of a loaded step does not hold: nothing was changed."""

    code = "failed_precondition"


class Unsupported(Error):
    """This build or machine cannot do it, or a step was refused and `on_refusal` is "raise"."""

    code = "unsupported"


class DataLoss(Error):
    """Bytes of a file are wrong or missing: fetch another copy."""

    code = "data_loss"


class IoError(Error, OSError):
    """The operating system refused: mend disk, path or rights and try again."""

    code = "io"


class InternalError(Error):
    """A plan computed other bits than the eager step, or another defect of Steptape's own."""

    code = "internal"


class NotReplayed(Warning):
    """A step costs more than it saves: most of its first calls were recorded, or run eagerly. Said once."""


BY_CODE = {kind.code: kind for kind in (InvalidArgument, FailedPrecondition, Unsupported, DataLoss, IoError,
                                        InternalError)}

"""What integrations of frameworks share: a training whose steps are wrapped in parts, "update" and "accumulate" say."""
from collections.abc import Callable
from typing import Any

from ._errors import InvalidArgument
from ._step import Step
from ._wrap import wrap


def wrap_part(part: str, function: Callable, options: dict[str, Any], **objects: Any) -> Step:
    """By the user's `options` of `wrap`; where they name a trace, the part "accumulate" keeps its own: run.accumulate.tape."""
    options = dict(options)
    if part == "accumulate" and (trace := options.get("trace")):
        stem, dot, ending = str(trace).rpartition(".")
        options["trace"] = f"{stem}.accumulate.{ending}" if dot else f"{trace}.accumulate"
    options.setdefault("name", f"training_step.{part}")
    return wrap(function, **objects, **options)


def stats_of(parts: dict[str, Step]) -> dict[str, dict]:
    return {part: step.stats for part, step in parts.items()}


def explain(parts: dict[str, Step]) -> str:
    return "\n".join(step.explain() for step in parts.values())


def refuse(whom: str, problems: list[str]) -> None:
    """Raises InvalidArgument for what a wrapped step would leave out, where there is any."""
    if problems:
        raise InvalidArgument(f"{whom}: {', '.join(problems)}: a step that is replayed as a whole does not call or honour "
                              "that; leave it out, or train without Steptape")

"""What the whole process has done."""
from typing import Any

from . import _engine


def counters() -> dict[str, Any]:
    """What all steps of the process have done since it began, those that are gone too.

    `steps` calls, each in exactly one of `recorded`, `trials`, `audits`, `replayed` and `eager`;
    `fallbacks`, calls that no plan fitted by the kind of the guard that failed; `refusals`, calls that
    were not replayed by code; `plans` made; `divergences`, trials and audits that found other bits;
    `rebinds`, plans that took up a moved storage; `log_lines_lost`. Any thread may ask."""
    return _engine.counters()

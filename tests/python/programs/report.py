"""Runs drawn programs and says what became of them."""
import collections
import dataclasses
import time

from .plan import draw
from .pool import Pool
from .skeleton import source

FAILURES = ("differs", "crashed", "hung", "raises")
SHARE = 0.6  # of the programs that replay: a version that refuses everything is no success


def drawn(seeds, jobs, watch=None, done=lambda row: None):
    """A row for each seed: its plan, text and outcome; `done` is given each as it is known."""
    rows = [{"seed": seed, "plan": draw(seed)} for seed in seeds]
    for row in rows:
        row["text"] = source(row["plan"])
        row["plan"] = dataclasses.asdict(row["plan"]) | {"title": str(row["plan"])}
    began = time.monotonic()
    with Pool(jobs) as pool:
        for count, (index, outcome) in enumerate(pool.map([row["text"] for row in rows]), 1):
            rows[index].update(outcome)
            done(rows[index])
            if watch and count % 50 == 0:
                print(f"{count} programs in {time.monotonic() - began:.0f} s, "
                      f"{sum(row.get('outcome') in FAILURES for row in rows)} failed", file=watch, flush=True)
    return rows


def share_of_replays(rows):
    told = [row for row in rows if row["outcome"] != "broken"]
    return sum(row["outcome"] == "replayed" for row in told) / max(1, len(told))


def table(rows):
    """The outcomes as text: counts, share of replays, refusal codes, and each failure in a line."""
    counts = collections.Counter(row["outcome"] for row in rows)
    codes = collections.Counter(code for row in rows if row["outcome"] == "refused" for code in row["codes"] or ["no refusal"])
    lines = [", ".join(f"{counts[name]} {name}" for name in ("replayed", "refused", *FAILURES, "broken")),
             f"share that replays: {share_of_replays(rows):.1%}",
             f"goes on as a loaded step: {sum(row.get('loaded', 0) > 0 for row in rows)}; says why not: "
             f"{sum(row.get('loaded') == 0 for row in rows)}",
             "refused by: " + (", ".join(f"{code} {count}" for code, count in codes.most_common()) or "nothing")]
    for row in rows:
        if row["outcome"] in (*FAILURES, "broken"):
            what = " ".join(row["what"].split())
            lines.append(f"{row['outcome']} {row['seed']}: {row['plan']['title']}\n    call {row.get('call', '?')}: {what[-300:]}")
    return "\n".join(lines)

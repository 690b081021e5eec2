"""Leaves out of a failing program what it fails without."""
import dataclasses

from .plan import Path, Plan
from .skeleton import source

_FAILS = ("differs", "crashed", "hung", "raises")
BUDGET = 60  # runs for one program


def simpler(plan):
    """Plans that lack one thing of this one, the greatest simplification first."""
    for i in range(len(plan.paths)):
        if len(plan.paths) > 1 or plan.effects:
            yield dataclasses.replace(plan, paths=plan.paths[:i] + plan.paths[i + 1:])
    if plan.effects and plan.paths:
        yield dataclasses.replace(plan, effects=[])
    if plan.layout != "function":
        yield dataclasses.replace(plan, layout="function")
    for i, path in enumerate(plan.paths):
        for less in _simpler_path(path):
            yield dataclasses.replace(plan, paths=[*plan.paths[:i], less, *plan.paths[i + 1:]])
    if plan.training not in ("sgd", "evaluation"):
        yield dataclasses.replace(plan, training="sgd")


def _simpler_path(path):
    for i in range(len(path.roads)):
        yield dataclasses.replace(path, roads=path.roads[:i] + path.roads[i + 1:])
    for i in range(len(path.forms)):
        yield dataclasses.replace(path, forms=path.forms[:i] + path.forms[i + 1:])
    if path.site != "inline":
        yield dataclasses.replace(path, site="inline")
    if path.home != "name":
        yield dataclasses.replace(path, home="name", change=path.change if path.change not in ("appears", "disappears") else "once")
    if path.change not in ("never", "once"):
        yield dataclasses.replace(path, change="once")
    if path.is_bound:
        yield dataclasses.replace(path, is_bound=False)


def plan_of(row):
    fields = {key: value for key, value in row["plan"].items() if key != "title"}
    return Plan(**{**fields, "paths": [Path(**path) for path in fields["paths"]]})


def shrink_one(row, pool):
    """(plan, text, outcome) of the simplest program found that fails in the same way."""
    plan, best = plan_of(row), None
    budget = BUDGET
    while budget > 0:
        for candidate in simpler(plan):
            try:
                text = source(candidate)
            except Exception:
                continue  # the parts do not go together
            outcome = pool.run(text)
            budget -= 1
            if outcome["outcome"] in _FAILS and outcome["outcome"] == row["outcome"]:
                plan, best = candidate, (text, outcome)
                break
            if budget <= 0:
                break
        else:
            break
    text, outcome = best or (row["text"], {key: row[key] for key in ("outcome", "what", "call") if key in row})
    return plan, text, outcome


def shrunk(rows, pool):
    """Gives each row its `shrunk`: plan, text and outcome."""
    import concurrent.futures
    with concurrent.futures.ThreadPoolExecutor(pool.jobs) as threads:
        for row, (plan, text, outcome) in zip(rows, threads.map(lambda row: shrink_one(row, pool), rows)):
            row["shrunk"] = {"plan": dataclasses.asdict(plan) | {"title": str(plan)}, "text": text, **outcome}

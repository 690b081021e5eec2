"""What a worker process does: it answers requests, one a line, with lines."""
import json
import os
import sys

from sweeps import modules, operators, optimizers
from sweeps.comparing import in_words, is_numeric, measured, memory_filler

KINDS = {"operators": operators, "modules": modules, "optimizers": optimizers}


def stand_in_for_expecttest():
    """The databases' imports name its TestCase only."""
    import importlib.util
    import types
    import unittest

    if importlib.util.find_spec("expecttest") is None:
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)


def varies(draws):
    import torch

    return any(not torch.equal(a, b) for drawn in draws[1:]
               for a, b in zip(draws[0], drawn) if is_numeric(a))


def measure_entry(kind, entry, request, fill, say):
    """Says each case of the entry as it begins, when Steptape comes in, and the outcome."""
    module = KINDS[kind]
    try:
        cases, reason = module.cases(entry, request["samples"]), "the database has none"
    except Exception as error:
        cases, reason = [], in_words(error)
    if not cases:
        say(outcome={"variant": module.VARIANTS[0], "sample": 0, "outcome": "no sample",
                     "detail": reason})
    for variant, sample in cases:
        say(case=[variant, sample])
        try:
            plan = module.plan(entry, variant, sample, request["calls"])
        except Exception as error:
            outcome = {"outcome": "no sample", "detail": in_words(error)}
        else:
            outcome = measured(plan, fill, lambda: say(began=True))
            outcome["varied"] = varies(plan.draws)
        say(outcome={"variant": variant, "sample": sample, **outcome})
    say(done=True)


def serve():
    """Requests come on stdin; lines go to what was stdout when it began."""
    import faulthandler
    import warnings

    faulthandler.enable()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")

    def say(**message):
        print(json.dumps(message), file=replies, flush=True)

    stand_in_for_expecttest()
    try:
        import torch

        import steptape  # noqa: F401
        entries = {kind: module.load() for kind, module in KINDS.items()}
    except ImportError as error:
        say(trouble=str(error))
        return
    torch.set_num_threads(1)
    fill = memory_filler()
    names = {kind: list(loaded) for kind, loaded in entries.items()}
    say(entries=names, torch=torch.__version__)
    for line in sys.stdin:
        request = json.loads(line)
        kind = request["kind"]
        measure_entry(kind, entries[kind][request["name"]], request, fill, say)

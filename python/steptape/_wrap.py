"""The functions of the package's surface."""
from collections.abc import Callable
from typing import Any

import torch

from ._errors import InvalidArgument
from ._step import Step
from ._tracking import Models, Optimizers


def wrap(function: Callable | None = None, /, *, model: Models = None, optimizer: Optimizers = None,
         name: str | None = None, **options: Any) -> Step | Callable[[Callable], Step]:
    """Wraps a step function: calls of the result record it, verify it, and then replay it.

    function:   one training step, evaluation step or optimizer step, called with tensors, numbers, strings
                and nested lists, tuples, dicts and dataclasses of them; it may return the same. Without it,
                `wrap` is a decorator.
    model, optimizer: what the step trains: one object, a list, or a dict by name. Found from the function's
                closure, the globals it names and its `self` when not given.
    name:       of the step in traces and reports; the function's own when not given.
    determinism: "listed": an op that leaves other bits each time it runs (atomics, threads) is listed in
                `stats`, compared with the spread it shows, and everything else bit for bit, given what it
                left. "strict" refuses such a step.
    verify:     True; False; or {"first": bool, "rate": share of later calls that are audited}. Without "first" no plan is tried
                and no number is proved: a dropout of 0 after others, say, replays as they did.
    on_refusal: "eager", or "raise" Unsupported at the call after the one that was refused.
    on_divergence: "raise" InternalError when an audit finds other bits, "report" it, or "restore" the state
                that was verified last.
    host_reads: "refuse" values that the step reads from tensors and nothing explains, or "observe": the step
                only looks at them.
    max_variants: plans kept for one step, 64 without it; the one used longest ago leaves for a new one.
    trace:      a file that the trace is written to.   audit_seed: of the draw of audits, 0 for one from the
                system.
    static_gradients: on a GPU, whether gradients stay in memory of the plan's own, and are not copied to
                new memory by each replay.
    log:        which events are written down: "guards,plan" or "all" on stderr, "all:run.jsonl" as lines of
                JSON in a file, "none", by which no `NotReplayed` is warned of either. Without it, what the
                environment variable STEPTAPE_LOG says.
    ledger:     whether a line for each call is kept beside the trace ("run.tape.ledger"). One of an earlier
                run is kept as "run.tape.ledger.1", ...   resume: the run of these files goes on instead.
    record:     which calls are recorded besides, and kept in the trace: {"first": 3, "every": 1000,
                "at": [17, 18], "on_nonfinite": True, "on_signal": signal.SIGUSR1}. With "state": True these hold
                all that they found, and `steptape verify` does them again.
    digests:    whether the ledger has digests of gradients, parameters, arguments and generators too, and
                recordings what each op left: `steptape diff` finds the first op in which two runs part.
    timings:    whether recordings say how long each op took, by which `steptape diff` compares modules.

    Raises InvalidArgument. Exceptions of the function pass through calls of the step unchanged.
    """
    if function is None:
        return lambda decorated: Step(decorated, model=model, optimizer=optimizer, name=name, **options)
    return Step(function, model=model, optimizer=optimizer, name=name, **options)


def optimizer(optimizer: torch.optim.Optimizer, /, **options: Any) -> Step:
    """The optimizer's step alone as a wrapped step: `update = steptape.optimizer(opt); update()`.

    For any torch.optim.Optimizer, the user's own classes too, whatever the model is."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgument(f"optimizer: a {type(optimizer).__name__} is no torch.optim.Optimizer")

    def step():
        optimizer.step()

    options.setdefault("name", "optimizer.step()")
    return Step(step, optimizer=optimizer, **options)

"""A recording in one thread is nothing to the plans and recordings of others."""
import threading

import torch
import torch.nn as nn

import steptape

WAIT_S = 60


def scaled(model):
    return lambda x: model(x).sum().detach()


def rounded(model):
    import math
    return lambda x: (model(x) * math.floor(2.5) * max(1, 2)).sum().detach()


def while_another_records(run):
    """Calls `run` while a step over another model is inside its first recorded call."""
    entered, may_end = threading.Event(), threading.Event()
    model = nn.Linear(3, 2)

    def held(x):
        entered.set()
        may_end.wait(WAIT_S)
        return model(x).sum().detach()

    step = steptape.wrap(held, model=model, name="held")
    thread = threading.Thread(target=step, args=(torch.ones(3, 3),))
    thread.start()
    try:
        assert entered.wait(WAIT_S)
        run()
    finally:
        may_end.set()
        thread.join(WAIT_S)
    assert not thread.is_alive()


def check_replays_go_on(make):
    step = steptape.wrap(make(nn.Linear(3, 2)), name="replayed", verify={"first": True, "rate": 0.0})
    x = torch.ones(3, 3)
    for _ in range(6):
        step(x)
    before = step.stats
    assert before["replayed"] >= 1, step.explain()
    while_another_records(lambda: [step(x) for _ in range(6)])
    assert step.stats["replayed"] == before["replayed"] + 6, step.explain()
    assert step.stats["fell_back"] == 0, step.explain()


def test_replays_go_on_while_another_thread_records():
    check_replays_go_on(scaled)


def test_replays_of_functions_of_math_go_on_while_another_thread_records():
    check_replays_go_on(rounded)


def test_a_plan_that_is_made_while_another_thread_records_holds_afterwards():
    for make in (scaled, rounded):
        step = steptape.wrap(make(nn.Linear(3, 2)), name="made", verify={"first": True, "rate": 0.0})
        x = torch.ones(3, 3)
        while_another_records(lambda step=step, x=x: [step(x) for _ in range(6)])
        before = step.stats
        assert before["replayed"] >= 1, step.explain()
        for _ in range(6):
            step(x)
        assert step.stats["replayed"] == before["replayed"] + 6, step.explain()


def test_hooks_of_the_programs_own_for_all_modules_are_still_seen():
    step = steptape.wrap(scaled(nn.Linear(3, 2)), name="hooked")
    x = torch.ones(3, 3)
    for _ in range(6):
        step(x)
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, args, result: result * 2)
    try:
        doubled = step(x)
        verdict = step.stats["last_verdict"]
    finally:
        handle.remove()
    assert torch.equal(doubled, step(x) * 2)
    assert "_global_forward_hooks" in verdict, verdict

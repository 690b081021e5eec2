"""Numbers are found in what ATen's host code hands to its kernels for lists of tensors.

The kernels themselves do nothing here (STEPTAPE_SIMULATED_CUDA_LAUNCHES): their parameters are LibTorch's, with
what the stack held in structs that it does not fill. STEPTAPE_SIMULATED_CUDA names the simulated device.
"""
import functools
import json
import os
import subprocess
import sys

import pytest
import torch
from torch import nn, optim

import steptape

SIMULATED = os.environ.get("STEPTAPE_SIMULATED_CUDA", "")
pytestmark = pytest.mark.skipif(not os.path.exists(SIMULATED),
                                reason="STEPTAPE_SIMULATED_CUDA names no simulated device")
CALLS = 14


def parameters_of(count):
    return [nn.Parameter(torch.zeros(8 + i % 5, device="cuda")) for i in range(count)]


def optimized(kind, count, **options):
    """A step of updates alone, by a schedule."""
    parameters = parameters_of(count)
    optimizer = kind(parameters, lr=0.01, **options)
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.97 ** epoch)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)

    def step(number):
        optimizer.step()

    return step, schedule.step


def foreach(body, count):
    """body(lists, number) of four lists of tensors."""
    lists = [[p.detach() for p in parameters_of(count)] for _ in range(4)]

    @torch.no_grad()
    def step(number):
        body(*lists, number)

    return step, lambda: None


def averaged(means, values, _, __, number):
    torch._foreach_lerp_(means, values, number)


def divided(out, some, others, _, number):
    torch._foreach_addcdiv_(out, some, others, -number)
    torch._foreach_addcmul_(out, some, others, [number + 0.0011 * i + 0.0003 for i in range(len(out))])


def clipped(out, some, others, _, number):
    torch._foreach_mul_(out, number)
    torch._foreach_add_(out, some, alpha=number)
    torch._foreach_div_(others, 1 + number)


KINDS = {
    "adam": (optim.Adam, {"amsgrad": True}, True), "adamw": (optim.AdamW, {}, True),
    "sgd": (optim.SGD, {"momentum": 0.9}, True), "rmsprop": (optim.RMSprop, {"centered": True}, False),
    "adagrad": (optim.Adagrad, {}, False), "nadam": (optim.NAdam, {}, False),
    "radam": (optim.RAdam, {}, False),  # two plans: its first steps are others
}
CASES = {f"{body.__name__} {count}": functools.partial(foreach, body, count)
         for body in (averaged, divided, clipped) for count in (12, 40, 200)}
for _name, (_kind, _options, _has_fused) in KINDS.items():
    for _count in (12, 40, 200):
        CASES[f"{_name} foreach {_count}"] = functools.partial(optimized, _kind, _count, foreach=True, **_options)
        if _has_fused:
            CASES[f"{_name} fused {_count}"] = functools.partial(optimized, _kind, _count, fused=True, **_options)
        # done together by a plan's groups
        if _count == 12:
            CASES[f"{_name} loop {_count}"] = functools.partial(optimized, _kind, _count, foreach=False, **_options)


def problem_of(name):
    step, after = CASES[name]()
    wrapped = steptape.wrap(step, verify={"first": True, "rate": 0.0})
    for i in range(CALLS):
        wrapped(0.1 + 0.01 * i)
        after()
    stats = wrapped.stats
    devices = [variant["device"] for variant in stats["variants"]]
    is_good = all(each["graphs"] == 1 and each["updated"] > 0 and not each["between"] for each in devices)
    return "" if devices and is_good and stats["replayed"] >= CALLS - 8 else wrapped.explain()


@functools.cache
def problems():
    """Of each case, what a process found, twice; "" for none."""
    found = {}
    for _ in range(2):
        done = subprocess.run([sys.executable, "-W", "ignore", __file__],
                              env=os.environ | {"LD_PRELOAD": SIMULATED, "STEPTAPE_SIMULATED_CUDA_LAUNCHES": "1"},
                              capture_output=True, text=True, check=False)
        here = dict(map(json.loads, done.stdout.splitlines()))
        ended = f"the process ended with status {done.returncode} before: {done.stderr[-2000:]}"
        for name in CASES:
            found[name] = found.get(name, "") + here.get(name, ended)
    return found


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_found(name):
    assert problems()[name] == ""


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in sys.argv[1:] or CASES:
        print(json.dumps([case, problem_of(case)]), flush=True)

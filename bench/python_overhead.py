#!/usr/bin/env python3
"""What a replayed step costs beside its plan (guards over modules, parameters and optimizer state), and what a recorded call costs
beside an eager one.

usage: bench/python_overhead.py [--rounds N]

Each row tracks a model of that many linear layers and its AdamW, and replays a step that multiplies one
small tensor: nearly all of its time is overhead. Prints microseconds a call, medians of all rounds, and
from rows of different size the cost of one more layer, which is a module, two parameters with their
gradients, and six tensors of optimizer state. Then, for two steps with Adam: an eager call, the first recorded call, a later one (a
probe of a warm process), as factors of the eager call.
"""
import argparse
import statistics
import time

import torch

import steptape


def step_over(layers):
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if layers:
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    scale = torch.full((4,), 2.0)

    def step(x):
        with torch.no_grad():
            return x * scale

    wrapped = steptape.wrap(step, model=model, optimizer=optimizer if layers else None,
                            verify={"first": True, "rate": 0.0})
    x = torch.ones(4)
    for _ in range(30):
        wrapped(x)
    assert wrapped.stats["replayed"] > 10, wrapped.explain()
    return wrapped, x


def time_us(function, x, calls):
    start = time.perf_counter()
    for _ in range(calls):
        function(x)
    return (time.perf_counter() - start) / calls * 1e6


def training(width, layers):
    model = torch.nn.Sequential(*(m for _ in range(layers) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def recording_costs(name, width, layers, rounds):
    """Factors of an eager call: the first call, which is recorded, and the median of later recorded calls."""
    x = torch.randn(32, width)
    eager = training(width, layers)
    for _ in range(3):
        eager(x)
    usual = statistics.median(time_us(eager, x, 1) for _ in range(20))
    first, later = [], []
    for _ in range(rounds):
        step = training(width, layers)
        step(x)  # state is made by an eager call
        wrapped = steptape.wrap(step)
        first.append(time_us(wrapped, x, 1) / usual)
        wrapped.invalidate("to record again")
        later.append(time_us(wrapped, x, 1) / usual)
        assert wrapped.stats["recorded"] == 2, wrapped.explain()
    print(f"{name:>10}{usual:>12.0f}{statistics.median(first):>12.1f}{statistics.median(later):>12.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    sizes = (1, 30, 100, 300)
    steps = {size: step_over(size) for size in sizes}
    eager = lambda x: x * 2
    x = torch.ones(4)
    found = {size: [] for size in sizes}
    plain = []
    for _ in range(rounds):
        plain.append(time_us(eager, x, 2000))
        for size, (step, argument) in steps.items():
            found[size].append(time_us(step, argument, 300))
    print(f"{'layers':>8}{'us a call':>12}")
    print(f"{'eager':>8}{statistics.median(plain):>12.1f}   one multiplication, no step")
    medians = {size: statistics.median(times) for size, times in found.items()}
    for size in sizes:
        print(f"{size:>8}{medians[size]:>12.1f}")
    a_layer = (medians[300] - medians[30]) / 270 * 1000
    print(f"a layer: {a_layer:.0f} ns (1 module, 2 parameters, 2 gradients, 6 state tensors)")
    print(f"\n{'step':>10}{'us eager':>12}{'first':>12}{'recorded':>12}   as factors of the eager call")
    for name, width, layers in (("mlp4x32", 32, 4), ("mlp100x16", 16, 100)):
        recording_costs(name, width, layers, rounds)


if __name__ == "__main__":
    main()

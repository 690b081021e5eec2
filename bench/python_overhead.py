#!/usr/bin/env python3
"""What a replayed step costs beside its plan: guards over modules, parameters and optimizer state.

usage: bench/python_overhead.py [--rounds N]

Each row tracks a model of that many linear layers and its AdamW, and replays a step that multiplies one
small tensor: nearly all of its time is overhead. Prints microseconds a call, medians of all rounds, and
from rows of different size the cost of one more layer, which is a module, two parameters with their
gradients, and six tensors of optimizer state.
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


if __name__ == "__main__":
    main()

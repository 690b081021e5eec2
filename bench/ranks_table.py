#!/usr/bin/env python3
"""Small steps of DistributedDataParallel under Gloo on this machine: eager and replayed in turn.

One process a rank. "exchange" is the time of the step's collectives alone, over tensors of the same sizes; what is left of a step
is its own work, whose factor stands beside that of the same step in one process. Medians of all calls of all rounds, of rank 0.
Twins of the eager and of the replayed step must agree in every bit on each rank.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

import steptape

WARM_UP = 14
MODELS = {"mlp4x32": (4, 32), "mlp4x128": (4, 128), "mlp16x64": (16, 64), "mlp100x16": (100, 16)}


class Training:
    def __init__(self, layers, width, is_parallel):
        torch.manual_seed(0)
        parts = [m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())]
        self.model = nn.Sequential(*parts, nn.Linear(width, 10))
        self.net = nn.parallel.DistributedDataParallel(self.model) if is_parallel else self.model
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.batch = torch.randn(32, width), torch.arange(32) % 10

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss


def time_calls(function, batch, calls):
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        function(*batch)
        times.append((time.perf_counter() - began) * 1e6)
    return times


def measure(layers, width, is_parallel, options):
    """Medians of the eager step, of its replay, and of its collectives, in microseconds."""
    eager, taped = (Training(layers, width, is_parallel) for _ in range(2))
    step = steptape.wrap(taped.step, verify={"first": True, "rate": 0.0})
    gradients = torch.zeros(sum(p.numel() for p in eager.model.parameters()))

    def exchange(*_):
        if is_parallel:
            dist.all_reduce(gradients)

    contestants = {"eager": eager.step, "steptape": step, "exchange": exchange}
    for function in contestants.values():
        time_calls(function, eager.batch, WARM_UP)
    times = {name: [] for name in contestants}
    for _ in range(options.rounds):
        for name, function in contestants.items():
            times[name] += time_calls(function, eager.batch, options.calls)
    assert step.stats["replayed"] >= options.rounds * options.calls, step.explain()
    for p, q in zip(eager.model.parameters(), taped.model.parameters()):
        assert torch.equal(p, q), "the twins differ"
    return {name: statistics.median(of) for name, of in times.items()}


def run(rank, options, folder):
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=options.ranks)
    rows = []
    for name in options.only or MODELS:
        alone = measure(*MODELS[name], False, options) if rank == 0 else None
        dist.barrier()
        together = measure(*MODELS[name], True, options)
        if rank > 0:
            continue
        own = [together[who] - together["exchange"] for who in ("eager", "steptape")]
        rows.append({"model": name, **together, "factor": together["eager"] / together["steptape"], "own_factor": own[0] / own[1],
                     "factor_alone": alone["eager"] / alone["steptape"]})
    if rank == 0:
        print(f"torch {torch.__version__}, {options.ranks} ranks, {os.cpu_count()} cores, one thread each")
        print("| | eager µs | replayed µs | | exchange µs | own work | in one process |\n|---|---|---|---|---|---|---|")
        for row in rows:
            print("| {model} | {eager:.0f} | {steptape:.0f} | {factor:.2f} × | {exchange:.0f} | {own_factor:.2f} × | {factor_alone:.2f} × |"
                  .format(**row))
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(rows, file)
        sys.stdout.flush()
    dist.barrier()
    os._exit(0)  # Gloo's threads may abort a process that ends in the ordinary way


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="(%(default)s)")
    parser.add_argument("--calls", type=int, default=100, metavar="N", help="of each contestant in a round (%(default)s)")
    parser.add_argument("--only", nargs="+", choices=MODELS, metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, args=(options, folder), nprocs=options.ranks)


if __name__ == "__main__":
    main()

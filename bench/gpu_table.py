#!/usr/bin/env python3
"""Whole training steps on a GPU: eager Python, torch.cuda.make_graphed_callables, torch.compile with "reduce-overhead", and replay.

usage: gpu_table.py [--workload NAME ...] [--rounds N] [--json FILE]

All ways of a step are measured in interleaved rounds of one run. The peers graph or compile the forward and backward pass; zero_grad,
the loss and the optimizer (its fastest form: capturable, foreach) run beside them, as their documentation says. Times are medians in
microseconds, with everything the device does for the step.
"""
import argparse
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

import steptape

WARM_UP = 15


def mlp(layers, width):
    return nn.Sequential(*[part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())])


class Gpt(nn.Module):
    def __init__(self, width, layers, heads, vocabulary=256, length=64):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places
        return self.head(self.blocks(x, mask=self.mask, is_causal=True)).flatten(0, 1)


class Bottleneck(nn.Module):
    def __init__(self, planes, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(nn.Conv2d(planes, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        self.side = nn.Sequential(nn.Conv2d(planes, out, 1, stride, bias=False), nn.BatchNorm2d(out)) \
            if stride != 1 or planes != out else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.side(x))


def resnet50():
    """He et al., "Deep Residual Learning for Image Recognition", 2015, table 1."""
    layers, planes = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(planes, width, stride if i == 0 else 1))
            planes = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(planes, 1000))


def tokens(batch, length=64):
    return torch.randint(256, (batch, length)), torch.randint(256, (batch * length,))


WORKLOADS = {
    "mlp4x32": (lambda: mlp(4, 32), lambda: (torch.randn(32, 32), torch.randint(32, (32,)))),
    "mlp100x16": (lambda: mlp(100, 16), lambda: (torch.randn(32, 16), torch.randint(16, (32,)))),
    "gpt64x2": (lambda: Gpt(64, 2, 4), lambda: tokens(4)),
    "gpt1024x12": (lambda: Gpt(1024, 12, 16), lambda: tokens(16)),
    "resnet50": (resnet50, lambda: (torch.randn(96, 3, 224, 224), torch.randint(1000, (96,)))),
}


def trainee(name):
    torch.manual_seed(1)
    make, data = WORKLOADS[name]
    model = make().cuda()
    x, y = (tensor.cuda() for tensor in data())
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), x, y


def step_of(model, optimizer):
    def train(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train


def eager(name):
    model, optimizer, x, y = trainee(name)
    train = step_of(model, optimizer)
    return (lambda: train(x, y)), None


def graphed(name):
    model, optimizer, x, y = trainee(name)
    model = torch.cuda.make_graphed_callables(model, (x,))
    train = step_of(model, optimizer)
    return (lambda: train(x, y)), None


def compiled(name):
    model, optimizer, x, y = trainee(name)
    train = step_of(torch.compile(model, mode="reduce-overhead"), optimizer)
    return (lambda: train(x, y)), None


def replayed(name):
    model, optimizer, x, y = trainee(name)
    train = step_of(model, optimizer)
    step = steptape.wrap(train, model=model, optimizer=optimizer, verify={"first": True, "rate": 0.0})
    return (lambda: step(x, y)), step


WAYS = {"eager": eager, "make_graphed_callables": graphed, "compile reduce-overhead": compiled, "replay": replayed}


def us_of(run, steps):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps * 1e6


def measure(name, rounds):
    runs, rows = {}, {}
    for way, make in WAYS.items():
        start = time.perf_counter()
        try:
            run, step = make(name)
            for _ in range(WARM_UP):
                run()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            run()
            torch.cuda.synchronize()
        except Exception as error:  # a way that fails is told, and the others go on
            rows[way] = {"failure": str(error).splitlines()[0][:300] if str(error) else type(error).__name__}
            continue
        runs[way] = run
        rows[way] = {"ready_s": time.perf_counter() - start, "us": []}
        if step is not None:
            rows[way]["explain"] = step.explain()
    steps = max(1, int(0.2e6 / us_of(runs["eager"], 2)))
    for _ in range(rounds):
        for way, run in runs.items():
            rows[way]["us"].append(us_of(run, steps))
    for row in rows.values():
        if "us" in row:
            row["us"] = statistics.median(row["us"])
    return {"workload": name, "ways": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS), help="one of them; without it all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="a file for the rows")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu_table: this machine has no CUDA device", file=sys.stderr)
        return 2
    rows = []
    for name in arguments.workload or WORKLOADS:
        rows.append(measure(name, arguments.rounds))
        base = rows[-1]["ways"]["eager"].get("us")
        for way, row in rows[-1]["ways"].items():
            told = row.get("failure") or f"{row['us']:10.1f} us {base / row['us']:6.2f} x   ready in {row['ready_s']:.1f} s"
            print(f"{name:12} {way:26} {told}", flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=2)
    return 1 if any("failure" in row for each in rows for row in each["ways"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())

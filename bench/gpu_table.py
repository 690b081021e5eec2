#!/usr/bin/env python3
"""Whole training steps on a GPU: eager Python, its peers, and replay.

usage: gpu_table.py [--workload NAME]... [--way NAME]... [--json FILE] (see --help)

Each way of a step runs in a process of its own; they are timed one after the other:

  eager, eager fused        torch.optim.AdamW(foreach=True), and (fused=True)
  make_graphed_callables    forward and backward as CUDA graphs; zero_grad, the loss and AdamW(fused=True) beside them
  hand-made graph           the whole step captured once by torch.cuda.graph, with AdamW(capturable=True), as foreach and as fused:
                            the least a replay can cost. Its bits are others: capturable optimizers compute them otherwise
  replay, replay fused      Steptape over the two eager steps; "static" with static_gradients
  compile                   torch.compile(model, mode="reduce-overhead"), and AdamW(fused=True)

host us    the host's part of a step: 20 calls without waiting for the device, divided by 20 (median of rounds)
device us  the device's part: events around calls that were all given to it while it was busy with something else
us         of a step when many follow each other, with everything the device does
ready s    from the first call until steps take at most twice what they take in the end
peak       bytes of the device's memory that tensors had at most (torch.cuda.max_memory_allocated), graphs' pools with them
bits       a digest of the parameters after the same steps; of eager twice, which shows ops that differ from run to run
"""
import argparse
import functools
import hashlib
import json
import os
import select
import signal
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

import steptape

FIRST_CALLS = 40
IN_A_ROW = 20


def mlp(layers, width):
    return nn.Sequential(*[part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())])


class Gru(nn.Module):
    """A GRU cell that the program unrolls itself."""

    def __init__(self, width):
        super().__init__()
        self.cell, self.head = nn.GRUCell(width, width), nn.Linear(width, 10)

    def forward(self, x):
        state = torch.zeros(x.shape[1], x.shape[2], device=x.device)
        for part in x.unbind():
            state = self.cell(part, state)
        return self.head(state)


class Lstm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lstm, self.head = nn.LSTM(width, width), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][-1])


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


def conv3():
    layers, planes = [], 3
    for width in (16, 32, 32):
        layers += [nn.Conv2d(planes, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        planes = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 4 * 4, 10))


class Block(nn.Module):
    def __init__(self, planes, width, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(planes, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        self.side = nn.Sequential(nn.Conv2d(planes, width, 1, stride, bias=False), nn.BatchNorm2d(width)) \
            if stride != 1 or planes != width else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.side(x))


def resnet18():
    """He et al., "Deep Residual Learning for Image Recognition", 2015, table 1."""
    layers, planes = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for i in range(2):
            layers.append(Block(planes, width, stride if i == 0 else 1))
            planes = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(planes, 1000))


def labels(count, classes):
    return torch.randint(classes, (count,))


def images(batch):
    return lambda: (torch.randn(batch, 3, 224, 224), labels(batch, 1000))


def sequences():
    return torch.randn(24, 8, 64), labels(8, 10)


WORKLOADS = {
    "mlp4x32": (lambda: mlp(4, 32), lambda: (torch.randn(32, 32), labels(32, 32))),
    "mlp100x16": (lambda: mlp(100, 16), lambda: (torch.randn(32, 16), labels(32, 16))),
    "gru24": (lambda: Gru(64), sequences),
    "lstm24": (lambda: Lstm(64), sequences),
    "gpt64x2": (lambda: Gpt(64, 2, 4), lambda: (torch.randint(256, (4, 64)), labels(4 * 64, 256))),
    "conv3": (conv3, lambda: (torch.randn(16, 3, 32, 32), labels(16, 10))),
    "resnet18x8": (resnet18, images(8)),
    "resnet18x96": (resnet18, images(96)),
}


class Training:
    """A model on the device with its batch and its optimizer, from one seed."""

    def __init__(self, name, **optimizer):
        torch.manual_seed(1)
        make, data = WORKLOADS[name]
        self.model = make().cuda()
        self.x, self.y = (tensor.cuda() for tensor in data())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, **optimizer)

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def eager(**optimizer):
    def make(name):
        training = Training(name, **optimizer)
        return training, lambda: training.step(training.x, training.y), None

    return make


def graphed(name):
    training = Training(name, fused=True)
    training.model = torch.cuda.make_graphed_callables(training.model, (training.x,))
    return training, lambda: training.step(training.x, training.y), None


def hand_made(**optimizer):
    """As torch.cuda.graph's documentation has it: a warm-up on a stream of its own, then one capture."""
    def make(name):
        training = Training(name, capturable=True, **optimizer)
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                training.step(training.x, training.y)
        torch.cuda.current_stream().wait_stream(side)
        training.optimizer.zero_grad()
        with torch.cuda.graph(graph):
            training.loss = training.step(training.x, training.y)
        return training, graph.replay, None

    return make


def replayed(static=False, **optimizer):
    def make(name):
        training = Training(name, **optimizer)
        step = steptape.wrap(training.step, model=training.model, optimizer=training.optimizer,
                             verify={"first": True, "rate": 0.0}, static_gradients=static)
        return training, lambda: step(training.x, training.y), step

    return make


def compiled(name):
    training = Training(name, fused=True)
    training.model = torch.compile(training.model, mode="reduce-overhead")
    return training, lambda: training.step(training.x, training.y), None


WAYS = {
    "eager": eager(foreach=True), "eager fused": eager(fused=True),
    "replay": replayed(foreach=True), "replay fused": replayed(fused=True),
    "replay static": replayed(foreach=True, static=True), "replay fused static": replayed(fused=True, static=True),
    "hand-made graph": hand_made(foreach=True), "hand-made graph fused": hand_made(fused=True),
    "make_graphed_callables": graphed, "compile": compiled,
}
IS_SIMULATED = "simulated_cuda" in os.environ.get("LD_PRELOAD", "")


def digest(model):
    sums = hashlib.sha256()
    for tensor in model.state_dict().values():
        sums.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return sums.hexdigest()[:16]


def us_of(run, steps):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps * 1e6


def host_us_of(run):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(IN_A_ROW):
        run()
    return (time.perf_counter() - start) / IN_A_ROW * 1e6


def device_us_of(run, host_us):
    """The device waits in a kernel until the host has given it all; no more calls than its queue holds."""
    if IS_SIMULATED:
        return 0.0
    steps = 4
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(int((steps * host_us * 1.5 + 500) * 2000))
    begin.record()
    for _ in range(steps):
        run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / steps * 1e3


def first_calls(run):
    """Of each the seconds it took with all that the device did."""
    took = []
    for _ in range(FIRST_CALLS):
        took.append(us_of(run, 1) / 1e6)
    usual = statistics.median(took[-10:])
    last_slow = max((i for i, each in enumerate(took) if each > 2 * usual), default=-1)
    return sum(took[:last_slow + 1])


def measure(name, way, wait_for_turn):
    start = time.perf_counter()
    training, run, step = WAYS[way](name)
    made = time.perf_counter() - start
    row = {"ready_s": made + first_calls(run)}
    row["bits"] = digest(training.model)
    if way in ("eager", "eager fused"):
        again, run_again, _ = WAYS[way](name)
        first_calls(run_again)
        row["bits_again"] = digest(again.model)
        del again, run_again
    wait_for_turn()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    row["peak"] = torch.cuda.max_memory_allocated()
    steps = max(2, min(2000, int(0.1e6 / us_of(run, 3))))
    rounds = {"us": [], "host_us": [], "device_us": []}
    for _ in range(5):
        rounds["us"].append(us_of(run, steps))
        rounds["host_us"].append(host_us_of(run))
        rounds["device_us"].append(device_us_of(run, rounds["host_us"][-1]))
    row |= {each: statistics.median(values) for each, values in rounds.items()}
    if step is not None:
        row["replayed"] = step.stats["replayed"]
        row["explain"] = step.explain()
    return row


class Child:
    """A process that does `work(wait_for_turn)`, forked before CUDA is touched, which saves it all imports.

    The first steps of several may go on side by side; what is timed waits until it is the child's turn."""

    def __init__(self, work, limit_s):
        self.deadline, self.limit_s = time.monotonic() + limit_s, limit_s
        self.from_child, to_parent = os.pipe()
        from_parent, self.to_child = os.pipe()
        self.process = os.fork()
        if self.process != 0:
            os.close(to_parent)
            os.close(from_parent)
            return
        os.setpgid(0, 0)
        os.close(self.from_child)
        os.close(self.to_child)

        def wait_for_turn():
            torch.cuda.synchronize()
            os.write(to_parent, b"\n")
            os.read(from_parent, 1)

        try:
            row = work(wait_for_turn)
        except BaseException as error:  # reported as the failure of this way; the others go on
            row = {"failure": (str(error).strip().splitlines() or [""])[0][:300] or type(error).__name__}
        try:
            with os.fdopen(to_parent, "w") as out:
                json.dump(row, out)
        finally:
            os._exit(0)

    def _read(self):
        """What the child writes next, b"" at its end, None where it took too long."""
        left = max(0, self.deadline - time.monotonic())
        return os.read(self.from_child, 1 << 16) if select.select([self.from_child], [], [], left)[0] else None

    def wait_until_ready(self):
        self.first = self._read()

    def row(self):
        """What the work gave, or {"failure": why}. It is the child's turn."""
        data = part = self.first
        if part == b"\n":  # else it has failed, and is gone
            os.write(self.to_child, b"g")
            data = b""
        while part:
            part = self._read()
            data += part or b""
        if part is None:
            os.killpg(self.process, signal.SIGKILL)
            data = json.dumps({"failure": f"it took more than {self.limit_s:g} s"}).encode()
        os.close(self.from_child)
        os.close(self.to_child)
        _, status = os.waitpid(self.process, 0)
        return json.loads(data) if data else {"failure": f"the process ended with status {status}"}


def rows_of(wanted, limit_s, at_a_time):
    """A row for each (workload, way), as they come."""
    for first in range(0, len(wanted), at_a_time):
        several = wanted[first:first + at_a_time]
        children = [Child(functools.partial(measure, *each), limit_s) for each in several]
        for child in children:
            child.wait_until_ready()
        for (name, way), child in zip(several, children):
            yield {"workload": name, "way": way} | child.row()


def has_device():
    child = Child(lambda wait_for_turn: {"found": torch.cuda.is_available()}, 60)
    child.wait_until_ready()
    return child.row().get("found", False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS), help="one of them; without it all")
    parser.add_argument("--way", action="append", choices=list(WAYS), help="one of them; without it all")
    parser.add_argument("--limit-s", type=float, default=120, help="seconds that one way may take")
    parser.add_argument("--json", help="a file for the rows, written after each; rows that it holds are not measured again")
    parser.add_argument("--explain", action="store_true", help="print what explain() says of replays")
    parser.add_argument("--at-a-time", type=int, default=1, help="ways whose first steps go on side by side, which 'ready s' shows; times are one "
                        "after the other")
    arguments = parser.parse_args()
    if not has_device():
        print("gpu_table: this machine has no CUDA device", file=sys.stderr)
        return 2
    rows = []
    if arguments.json and os.path.exists(arguments.json):
        with open(arguments.json, encoding="utf-8") as file:
            rows = json.load(file)
    rows = [row for row in rows if "failure" not in row]
    done = {(row["workload"], row["way"]) for row in rows}
    # torch.compile compiles kernels, for a device that is there
    ways = [way for way in arguments.way or WAYS if not (way == "compile" and IS_SIMULATED)]
    wanted = [(name, way) for name in arguments.workload or WORKLOADS for way in ways if (name, way) not in done]
    has_failed = False
    for row in rows_of(wanted, arguments.limit_s, arguments.at_a_time):
        rows.append(row)
        has_failed |= "failure" in row
        told = row.get("failure") or "".join(f"{row[key]:12.1f}" for key in ("us", "host_us", "device_us")) + \
            f"{row['peak'] / 2**20:10.1f} MiB {row['ready_s']:7.2f} s  {row['bits']}"
        print(f"{row['workload']:12} {row['way']:24} {told}", flush=True)
        if arguments.explain and "explain" in row:
            print(row["explain"], flush=True)
        if arguments.json:
            with open(arguments.json + ".new", "w", encoding="utf-8") as file:
                json.dump(rows, file, indent=1)
            os.replace(arguments.json + ".new", arguments.json)
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())

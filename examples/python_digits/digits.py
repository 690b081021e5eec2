#!/usr/bin/env python3
"""Trains a digit classifier eagerly, then through Steptape from the same seed.

Compares every loss and everything that training left behind bit for bit, prints the time of a step
beside that of eager, saves the trace with its state, opens it again and trains on from it, without
the model's code. Exit status: 0 all equal, 1 something differs or replays are few, 2 trouble.
"""
import argparse
import pathlib
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

import steptape

SIDE, INK, CLASSES = 8, 16, 10
DATA = pathlib.Path(__file__).resolve().parents[1] / "digits" / "digits.csv"


def read(path):
    """Pixels from 0 to 1, [n, 64], and labels, [n]; ../digits/README.md describes the file."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), start=1):
        try:
            row = [int(field) for field in line.split(",")]
        except ValueError:
            row = []
        if len(row) != SIDE * SIDE + 1 or min(row) < 0 or max(row) > INK or row[-1] >= CLASSES:
            raise ValueError(f"{path}:{number}: expected {SIDE * SIDE} grey values and a label")
        rows.append(row)
    if not rows:
        raise ValueError(f"{path}: expected images, found no line")
    table = torch.tensor(rows)
    return table[:, :-1].float() / INK, table[:, -1].clone()


def split(pixels, labels):
    """Every fifth image is for testing, the other four for training."""
    test = torch.arange(len(labels)) % 5 == 4
    return (pixels[~test], labels[~test]), (pixels[test], labels[test])


def batches(pixels, labels, size, seed):
    """An endless stream of batches of one size, in an order that only `seed` decides."""
    if size > len(labels):
        raise ValueError(f"a batch of {size} out of {len(labels)} images")
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(labels), generator=generator)
        for first in range(0, len(order) - size + 1, size):
            part = order[first:first + size]
            yield pixels[part], labels[part]


def make_learner(seed, steps):
    """A model, its optimizer, and a learning rate that falls along a cosine and then stays."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(SIDE * SIDE, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(),
                          nn.Linear(32, CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps, eta_min=1e-4)
    return model, optimizer, schedule


def make_step(model, optimizer):
    def train(pixels, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pixels), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return train


def run(step, stream, count, after=lambda: None):
    """Gives the losses of `count` steps, and the microseconds that each took."""
    losses, microseconds = [], []
    for _ in range(count):
        pixels, labels = next(stream)
        began = time.perf_counter()
        losses.append(step(pixels, labels))
        microseconds.append((time.perf_counter() - began) * 1e6)
        after()
    return torch.stack(losses), microseconds


def left_behind(model, optimizer):
    """What training changes, by name."""
    found = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    found |= {f"gradient.{name}": p.grad for name, p in model.named_parameters()}
    for index, state in optimizer.state_dict()["state"].items():
        found |= {f"optimizer.state[{index}].{name}": tensor for name, tensor in state.items()}
    return {name: tensor.detach().clone() for name, tensor in found.items()}


def same_bits(a, b):
    return (a.dtype == b.dtype and a.shape == b.shape
            and torch.equal(a.contiguous().view(torch.int32), b.contiguous().view(torch.int32)))


def report_identity(whom, expected, found):
    """Prints whether all tensors are equal, by bits, and if not, the first that is not."""
    different = [name for name in expected
                 if name not in found or not same_bits(expected[name], found[name])]
    different += [name for name in found if name not in expected]
    count = sum(tensor.numel() for tensor in expected.values())
    print(f"bit-identical to {whom}: {'no' if different else 'yes'} "
          f"({len(expected)} tensors, {count} numbers)")
    if different:
        print(f"  {different[0]} differs")
    return not different


def accuracy(model, pixels, labels):
    with torch.no_grad():
        return (model(pixels).argmax(1) == labels).float().mean().item()


def row(what, eager="", replayed=""):
    print(f"  {what:20} {eager:>10} {replayed:>10}")


def warm_up(options, train):
    """The first steps of a process are slow; they shall not count against eager."""
    model, optimizer, _ = make_learner(options.seed, options.steps)
    run(make_step(model, optimizer), batches(*train, options.batch_size, options.seed), 20)


def train_eagerly(options, train, test):
    model, optimizer, schedule = make_learner(options.seed, options.steps)
    stream = batches(*train, options.batch_size, options.seed)
    step = make_step(model, optimizer)
    losses, microseconds = run(step, stream, options.steps, schedule.step)
    state = left_behind(model, optimizer) | {"losses": losses}
    correct = accuracy(model, *test)
    continued, _ = run(step, stream, options.continued)
    return state, microseconds, correct, continued


def train_through_steptape(options, train, test):
    model, optimizer, schedule = make_learner(options.seed, options.steps)
    stream = batches(*train, options.batch_size, options.seed)
    step = steptape.wrap(make_step(model, optimizer), name="train", model=model,
                         optimizer=optimizer)
    losses, microseconds = run(step, stream, options.steps, schedule.step)
    state = left_behind(model, optimizer) | {"losses": losses}
    correct = accuracy(model, *test)
    step.save(options.trace, state=True)
    return state, microseconds, correct, step, stream


def compare(options):
    """Trains twice, prints and compares; True when all is as it must be."""
    torch.set_num_threads(options.threads)
    train, test = split(*read(options.data))
    print(f"{len(train[1])} images to train on, {len(test[1])} to test; "
          f"{options.steps} steps of {options.batch_size}")
    options.trace.parent.mkdir(parents=True, exist_ok=True)
    warm_up(options, train)
    expected, eager_us, eager_correct, expected_continued = train_eagerly(options, train, test)
    found, steptape_us, correct, step, stream = train_through_steptape(options, train, test)
    stats = step.stats

    eager, replayed = statistics.median(eager_us), statistics.median(steptape_us)
    row("", "eager", "steptape")
    row("us a step, median", f"{eager:.0f}", f"{replayed:.0f}")
    row("ratio", "", f"{eager / replayed:.2f}x")
    row("ms in all", f"{sum(eager_us) / 1e3:.0f}", f"{sum(steptape_us) / 1e3:.0f}")
    row("steps replayed", "", f"{stats['replayed']}")
    row("test accuracy", f"{eager_correct:.1%}", f"{correct:.1%}")
    print(f"\n{step.explain()}\n")

    good = report_identity("eager", expected, found)
    if stats["replayed"] < 0.9 * stats["steps"]:
        print(f"{stats['replayed']} of {stats['steps']} steps were replayed: "
              "fewer than nine in ten")
        good = False

    print(f"\ntrace: {options.trace} ({options.trace.stat().st_size} bytes), opened again:")
    continued, _ = run(steptape.load(options.trace)["train"], stream, options.continued)
    return report_identity(f"eager over {options.continued} more steps",
                           {"losses": expected_continued}, {"losses": continued}) and good


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", metavar="TRACE", nargs="?", type=pathlib.Path,
                        default=pathlib.Path("digits.tape"), help="where to save (%(default)s)")
    parser.add_argument("--data", metavar="CSV", type=pathlib.Path, default=DATA,
                        help="images (../digits/digits.csv beside this script)")
    parser.add_argument("--steps", metavar="N", type=positive, default=1000,
                        help="steps of the comparison (%(default)s)")
    parser.add_argument("--continued", metavar="N", type=positive, default=200,
                        help="steps from the saved trace (%(default)s)")
    parser.add_argument("--batch-size", metavar="N", type=positive, default=32,
                        help="images a step (%(default)s)")
    parser.add_argument("--seed", metavar="N", type=int, default=7, help="(%(default)s)")
    parser.add_argument("--threads", metavar="N", type=positive, default=1,
                        help="torch's threads; kernels this small gain nothing from a second "
                             "(%(default)s)")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    try:
        return 0 if compare(options) else 1
    except (OSError, ValueError, steptape.Error) as problem:
        print(f"digits.py: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

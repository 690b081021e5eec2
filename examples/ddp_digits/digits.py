#!/usr/bin/env python3
"""Trains a digit classifier on several processes, eagerly and then through Steptape from the same seed.

Started by torchrun, one process a rank. Each compares its losses and all that training left behind bit for bit; rank 0
prints. With --checkpoint, training is saved every few steps, and processes that torchrun has started again go on from
there. Exit status: 0 all equal on all ranks, 1 something differs or replays are few, 2 trouble.
"""
import argparse
import gc
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import steptape

SIDE, INK, CLASSES = 8, 16, 10
DATA = pathlib.Path(__file__).resolve().parents[1] / "digits" / "digits.csv"


def read(path):
    """Pixels from 0 to 1, [n, 64], and labels, [n]; ../digits/README.md describes the file."""
    table = torch.tensor([[int(field) for field in line.split(",")] for line in path.read_text(encoding="ascii").splitlines()])
    return table[:, :-1].float() / INK, table[:, -1].clone()


class Learner:
    """A model on all ranks, its optimizer, a rate that falls along a cosine, and the batches of this rank."""

    def __init__(self, options, images):
        torch.manual_seed(options.seed)
        self.model = DistributedDataParallel(nn.Sequential(
            nn.Linear(SIDE * SIDE, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, CLASSES)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3, weight_decay=0.01)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=options.steps, eta_min=1e-4)
        self.images, self.size, self.seed = images, options.batch_size, options.seed
        self.losses = []

    def batch(self, i):
        """What this rank learns in step `i`: all ranks draw one order, and each takes its part."""
        drawn = torch.randint(len(self.images[1]), (dist.get_world_size(), self.size),
                              generator=torch.Generator().manual_seed(self.seed + 1000 + i))[dist.get_rank()]
        return self.images[0][drawn], self.images[1][drawn]

    def train(self, pixels, labels):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(pixels), labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self, step, first, last, after=lambda i: None):
        """The microseconds of each step from `first` to `last`."""
        microseconds = []
        for i in range(first, last):
            began = time.perf_counter()
            self.losses.append(step(*self.batch(i)))
            microseconds.append((time.perf_counter() - began) * 1e6)
            self.schedule.step()
            after(i)
        return microseconds

    def state(self):
        return {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict()}

    def load(self, state):
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])


def save(learner, i, path):
    """Rank 0 saves what all ranks have; whoever reads finds it whole. The losses are those of rank 0."""
    if dist.get_rank() == 0:
        torch.save({"next": i + 1, "losses": learner.losses, **learner.state()}, f"{path}.part")
        os.replace(f"{path}.part", path)
    dist.barrier()


def train_through_steptape(options, images):
    """The learner, the wrapped step, where it began, and the microseconds of each step."""
    learner, first = Learner(options, images), 0
    if options.checkpoint and options.checkpoint.exists():
        saved = torch.load(options.checkpoint)
        learner.load(saved)
        first = saved["next"]
    step = steptape.wrap(learner.train, name="train", trace=options.trace, digests=True, resume=True)

    def after(i):
        if options.checkpoint and (i + 1) % options.save_every == 0:
            save(learner, i, options.checkpoint)
        has_restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        if i == options.fail_at and dist.get_rank() == 1 and not has_restarted:
            os._exit(3)

    return learner, step, first, learner.run(step, first, options.steps, after)


def differences(a, b, path=""):
    """The paths of tensors and numbers of two states that differ by a bit."""
    if isinstance(a, torch.Tensor):
        a, b = (t.detach().reshape(-1).view(torch.uint8) for t in (a, b))
        return [] if torch.equal(a, b) else [path]
    if isinstance(a, (dict, list)):
        keys = a if isinstance(a, dict) else range(len(a))
        return [found for key in keys for found in differences(a[key], b[key], f"{path}.{key}")]
    return [] if a == b else [path]


def everywhere(is_good):
    """Whether it is on all ranks."""
    count = torch.tensor(float(is_good))
    dist.all_reduce(count)
    return count.item() == dist.get_world_size()


def compare(options):
    torch.set_num_threads(1)
    images = read(options.data)
    is_first = dist.get_rank() == 0
    say = print if is_first else lambda *_: None
    say(f"{dist.get_world_size()} ranks, {options.steps} steps of {options.batch_size} images on each")
    warm_up, eager = Learner(options, images), Learner(options, images)
    warm_up.run(warm_up.train, 0, 20)  # the first steps of a process are slow
    eager_us = eager.run(eager.train, 0, options.steps)
    learner, step, first, replayed_us = train_through_steptape(options, images)
    if first > 0:
        say(f"went on from step {first} of {options.checkpoint}")
    stats = step.stats
    eager_median, median = statistics.median(eager_us), statistics.median(replayed_us)
    say(f"  us a step, median: {eager_median:.0f} eager, {median:.0f} through Steptape, {eager_median / median:.2f}x")
    say(f"  steps replayed: {stats['replayed']} of {stats['steps']}")
    found = differences([p.grad for p in eager.model.parameters()], [p.grad for p in learner.model.parameters()], "gradients")
    found += differences(eager.state(), learner.state())
    found += differences(eager.losses[first:], learner.losses, "losses")
    if found:
        print(f"rank {dist.get_rank()}: {found[0].lstrip('.')} differs")
    is_equal = everywhere(not found)
    say(f"bit-identical to eager on all ranks: {'yes' if is_equal else 'no'}")
    free = stats["steps"] - stats["recorded"] - stats["trials"] - stats["audits"]
    replays = everywhere(stats["replayed"] >= 0.9 * free > 0)
    if not replays:
        say("fewer than nine in ten steps were replayed\n" + step.explain())
    return is_equal and replays


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", metavar="TRACE", nargs="?", default="digits.tape", help="as digits.rank0.tape, ... (%(default)s)")
    parser.add_argument("--data", metavar="CSV", type=pathlib.Path, default=DATA, help="images (../digits/digits.csv beside this script)")
    parser.add_argument("--steps", metavar="N", type=int, default=500, help="(%(default)s)")
    parser.add_argument("--batch-size", metavar="N", type=int, default=16, help="images a step on each rank (%(default)s)")
    parser.add_argument("--seed", metavar="N", type=int, default=7, help="(%(default)s)")
    parser.add_argument("--checkpoint", metavar="FILE", type=pathlib.Path, help="save training here, and go on from it")
    parser.add_argument("--save-every", metavar="N", type=int, default=100, help="steps between two checkpoints (%(default)s)")
    parser.add_argument("--fail-at", metavar="N", type=int, help="have rank 1 end after this step, to see the others start again")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    store, rank, world = next(dist.rendezvous("env://"))
    # processes that were started again must not look for those before them
    store = dist.PrefixStore("attempt " + os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    try:
        return 0 if compare(options) else 1
    except (OSError, ValueError, steptape.Error) as problem:
        print(f"digits.py: rank {dist.get_rank()}: {problem}", file=sys.stderr)
        return 2
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    code = main()
    gc.collect()  # steps that nobody holds end, and write their traces
    sys.stdout.flush()
    os._exit(code)  # threads of Gloo's abort some processes that end in the ordinary way, with Steptape or without

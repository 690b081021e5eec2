#!/usr/bin/env python3
"""Forecasts yearly sunspots by an LSTM that looks 33 years back: trained eagerly, then through Steptape, from one seed.

Windows are drawn anew in each step, gradients are clipped, the learning rate falls. Compares every loss, weight and moment bit for bit.
Exit status: 0 all equal and nearly all replayed, 1 if not, 2 trouble.
"""
import argparse
import pathlib
import sys
import time

import torch
from torch import nn

import steptape

DATA = pathlib.Path(__file__).with_name("sunspots.csv")
BACK = 33  # years, three cycles of the sun
LAST = 50  # years that are forecast, of which training sees nothing


def read(path):
    """The sunspots of each year, [n], and the first year."""
    rows = [line.split(",") for line in path.read_text(encoding="ascii").splitlines()[1:]]
    return torch.tensor([float(row[1]) for row in rows]), int(rows[0][0])


class Forecast(nn.Module):
    """Of the year after each window: [n, BACK] to [n]."""

    def __init__(self, width):
        super().__init__()
        self.lstm = nn.LSTM(1, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, windows):
        states, _ = self.lstm(windows[..., None])
        return windows[:, -1] + self.head(states[:, -1])[:, 0]


def make_training(options, values):
    """Windows of [n, BACK] and what came after them, [n], all but the last years; one step of training over a batch of them."""
    torch.manual_seed(options.seed)
    windows, after = values.unfold(0, BACK, 1)[:-1], values[BACK:]
    windows, after = windows[:-LAST], after[:-LAST]
    model = Forecast(options.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.steps, eta_min=1e-4)

    def train():
        chosen = torch.randint(len(after), (options.batch,))
        loss = nn.functional.smooth_l1_loss(model(windows[chosen]), after[chosen])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()
    return model, optimizer, schedule, train


def run(options, values, wrap):
    """The losses, what training left, the seconds it took, the mean error over the last years, and the step."""
    model, optimizer, schedule, train = make_training(options, values)
    step, losses = wrap(train), []
    began = time.perf_counter()
    for _ in range(options.steps):
        losses.append(step())
        schedule.step()
    seconds = time.perf_counter() - began
    with torch.no_grad():
        windows, after = values.unfold(0, BACK, 1)[:-1][-LAST:], values[-LAST:]
        error = (model(windows) - after).abs().mean().item()
    moments = [value for state in optimizer.state_dict()["state"].values() for value in state.values()]
    return [torch.stack(losses), *model.state_dict().values(), *moments], seconds, error, step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--eager", action="store_true", help="without Steptape alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    spots, first = read(DATA)
    scale = spots[:-LAST].std()
    values = spots / scale
    as_before = (values[-LAST:] - values[-LAST - 1:-1]).abs().mean().item() * scale
    print(f"{len(spots)} years from {first} on; the last {LAST} are forecast. By \"as the year before\": off by {as_before:.1f} sunspots")
    run(argparse.Namespace(**vars(options) | {"steps": 20}), values, lambda train: train)  # the first steps of a process are slow
    left, seconds, error, _ = run(options, values, lambda train: train)
    print(f"eager:    {seconds:6.2f} s, {seconds / options.steps * 1e6:5.0f} us a step, off by {error * scale:.1f}")
    if options.eager:
        return 0
    found, seconds_taped, error, step = run(options, values, steptape.wrap)
    print(f"Steptape: {seconds_taped:6.2f} s, {seconds_taped / options.steps * 1e6:5.0f} us a step, off by {error * scale:.1f}: "
          f"{seconds / seconds_taped:.1f} times as fast")
    print(step.explain())
    is_equal = all(torch.equal(a, b) for a, b in zip(left, found, strict=True))
    print(f"bit-identical to eager: {'yes' if is_equal else 'no'} ({len(left)} tensors)")
    return 0 if is_equal and step.stats["replayed"] >= 0.9 * options.steps else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, steptape.Error) as error:
        print(f"forecast: {error}", file=sys.stderr)
        sys.exit(2)

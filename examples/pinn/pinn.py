#!/usr/bin/env python3
"""Solves the heat equation u_t = a u_xx by a network whose derivatives are the loss (a PINN): eagerly, then through Steptape.

From one seed: points are drawn anew in each step, u_xx is a gradient of a gradient, and the learning rate falls. Compares every loss,
weight and moment bit for bit. Exit status: 0 all equal and nearly all replayed, 1 if not, 2 trouble.
"""
import argparse
import math
import sys
import time

import torch
from torch import nn

import steptape

CONDUCTIVITY = 0.1


def exact(x, t):
    """Of a rod that begins as sin(pi x) and is kept at 0 at both ends."""
    return torch.exp(-CONDUCTIVITY * math.pi ** 2 * t) * torch.sin(math.pi * x)


class Solution(nn.Module):
    """u(x, t), both [n, 1]."""

    def __init__(self, width, depth):
        super().__init__()
        layers = [nn.Linear(2, width), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x, t):
        return self.net(torch.cat([x, t], 1))


def slope(of, at):
    """Of a function's values at points, by autograd: to be differentiated again."""
    return torch.autograd.grad(of.sum(), at, create_graph=True)[0]


def make_training(options):
    torch.manual_seed(options.seed)
    solution = Solution(options.width, options.depth)
    optimizer = torch.optim.Adam(solution.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.steps, eta_min=1e-5)

    def train():
        x, t = torch.rand(options.points, 1, requires_grad=True), torch.rand(options.points, 1, requires_grad=True)
        u = solution(x, t)
        residual = slope(u, t) - CONDUCTIVITY * slope(slope(u, x), x)
        along, ends = torch.rand(options.points // 4, 1), torch.rand(options.points // 4, 1)
        start = solution(along, torch.zeros_like(along)) - torch.sin(math.pi * along)
        left, right = solution(torch.zeros_like(ends), ends), solution(torch.ones_like(ends), ends)
        loss = residual.square().mean() + start.square().mean() + left.square().mean() + right.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return solution, optimizer, schedule, train


def run(options, wrap):
    """The losses, what training left, the seconds it took, the largest error of the solution, and the step."""
    solution, optimizer, schedule, train = make_training(options)
    step, losses = wrap(train), []
    began = time.perf_counter()
    for _ in range(options.steps):
        losses.append(step())
        schedule.step()
    seconds = time.perf_counter() - began
    x, t = torch.meshgrid(torch.linspace(0, 1, 51), torch.linspace(0, 1, 51), indexing="ij")
    x, t = x.reshape(-1, 1), t.reshape(-1, 1)
    with torch.no_grad():
        error = (solution(x, t) - exact(x, t)).abs().max().item()
    moments = [value for state in optimizer.state_dict()["state"].values() for value in state.values()]
    return [torch.stack(losses), *solution.state_dict().values(), *moments], seconds, error, step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--points", type=int, default=128, help="in the rod, for each step (128)")
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--eager", action="store_true", help="without Steptape alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run(argparse.Namespace(**vars(options) | {"steps": 20}), lambda train: train)  # the first steps of a process are slow
    left, seconds, error, _ = run(options, lambda train: train)
    print(f"eager:    {seconds:6.2f} s, {seconds / options.steps * 1e6:5.0f} us a step, largest error {error:.4f}")
    if options.eager:
        return 0
    found, seconds_taped, error, step = run(options, steptape.wrap)
    print(f"Steptape: {seconds_taped:6.2f} s, {seconds_taped / options.steps * 1e6:5.0f} us a step, largest error {error:.4f}: "
          f"{seconds / seconds_taped:.1f} times as fast")
    print(step.explain())
    is_equal = all(torch.equal(a, b) for a, b in zip(left, found, strict=True))
    print(f"bit-identical to eager: {'yes' if is_equal else 'no'} ({len(left)} tensors)")
    return 0 if is_equal and step.stats["replayed"] >= 0.9 * options.steps else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except steptape.Error as error:
        print(f"pinn: {error}", file=sys.stderr)
        sys.exit(2)

#!/usr/bin/env python3
"""Swings a pendulum up by SAC: eagerly, then through Steptape, from one seed.

Two functions are wrapped: what acts, and an update of critics, actor, temperature and targets, with three optimizers. Compares returns
of all episodes, weights and moments bit for bit. Exit status: 0 all equal and nearly all replayed, 1 if not, 2 trouble.
"""
import argparse
import copy
import math
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

import steptape

try:
    import gymnasium
except ImportError:
    print("sac: gymnasium is needed: pip install gymnasium", file=sys.stderr)
    sys.exit(2)

DISCOUNT, FOLLOW, TORQUE = 0.99, 0.005, 2.0
SOLVED = -250


def layers(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))


class Actor(nn.Module):
    """Actions from -1 to 1, [n, 1], with the logarithms of their densities, [n], of states [n, 3]."""

    def __init__(self):
        super().__init__()
        self.net = layers(3, 2)

    def forward(self, states):
        mean, spread = self.net(states).chunk(2, 1)
        normal = torch.distributions.Normal(mean, spread.clamp(-5, 2).exp())
        drawn = normal.rsample()
        # of tanh (Haarnoja et al., 2018, appendix C), by a form that does not overflow
        squashed = normal.log_prob(drawn) - 2 * (math.log(2) - drawn - F.softplus(-2 * drawn))
        return drawn.tanh(), squashed.sum(1)


class Critics(nn.Module):
    """Two estimates of what follows, each [n], of states [n, 3] and actions [n, 1]."""

    def __init__(self):
        super().__init__()
        self.first, self.second = layers(4, 1), layers(4, 1)

    def forward(self, states, actions):
        both = torch.cat([states, actions], 1)
        return self.first(both)[:, 0], self.second(both)[:, 0]


class Learner:
    def __init__(self):
        self.actor, self.critics = Actor(), Critics()
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_temperature = torch.zeros((), requires_grad=True)
        self.optimizers = [torch.optim.Adam(what, lr=rate) for what, rate in (
            (self.critics.parameters(), 1e-3), (self.actor.parameters(), 1e-3), ([self.log_temperature], 1e-3))]

    def act(self, states):
        with torch.no_grad():
            return self.actor(states)[0]

    def update(self, states, actions, rewards, following):
        """A pendulum's episodes are cut, and never end."""
        of_critics, of_actor, of_temperature = self.optimizers
        temperature = self.log_temperature.detach().exp()
        with torch.no_grad():
            next_actions, density = self.actor(following)
            after = torch.min(*self.targets(following, next_actions)) - temperature * density
            wanted = rewards + DISCOUNT * after
        first, second = self.critics(states, actions)
        loss = F.mse_loss(first, wanted) + F.mse_loss(second, wanted)
        of_critics.zero_grad()
        loss.backward()
        of_critics.step()

        chosen, density = self.actor(states)
        gain = torch.min(*self.critics(states, chosen)) - temperature * density
        of_actor.zero_grad()
        (-gain.mean()).backward()
        of_actor.step()

        of_temperature.zero_grad()
        (-self.log_temperature * (density.detach() - 1).mean()).backward()
        of_temperature.step()
        with torch.no_grad():
            for target, source in zip(self.targets.parameters(), self.critics.parameters()):
                target.lerp_(source, FOLLOW)
        return loss.detach()

    def left(self):
        moments = [value for optimizer in self.optimizers for state in optimizer.state_dict()["state"].values() for value in state.values()]
        parts = [value for part in (self.actor, self.critics, self.targets) for value in part.state_dict().values()]
        return [*parts, self.log_temperature.detach(), *moments]


def learn(options, wrap):
    """The returns of episodes, what training left, the seconds that acting and updates took, and the two functions."""
    torch.manual_seed(options.seed)
    learner = Learner()
    act, update = wrap(learner.act), wrap(learner.update)
    world = gymnasium.make("Pendulum-v1")
    draw = torch.Generator().manual_seed(options.seed)
    memory = [torch.zeros(options.steps, width) for width in (3, 1, 1, 3)]
    returns, total, seconds = [], 0.0, 0.0
    state = torch.from_numpy(world.reset(seed=options.seed)[0])
    for n in range(options.steps):
        began = time.perf_counter()
        action = act(state[None])[0]
        seconds += time.perf_counter() - began
        following, reward, _, is_cut, _ = world.step(TORQUE * action.numpy())
        following = torch.from_numpy(following)
        for rows, row in zip(memory, (state, action, torch.tensor([reward / 10]), following)):
            rows[n] = row
        total += float(reward)
        state = following
        if is_cut:
            returns.append(total)
            total, state = 0.0, torch.from_numpy(world.reset()[0])
        if n >= options.batch:
            rows = torch.randint(n, (options.batch,), generator=draw)
            states, actions, rewards, after = (part[rows] for part in memory)
            began = time.perf_counter()
            update(states, actions, rewards[:, 0], after)
            seconds += time.perf_counter() - began
    return returns, learner.left(), seconds, (act, update)


def report(what, returns, seconds):
    last = returns[-10:]
    mean = sum(last) / max(1, len(last))
    print(f"{what:9} {seconds:6.2f} s in act and update, {len(returns)} episodes, mean of the last {len(last)}: {mean:.0f}"
          f"{' (it stands)' if mean >= SOLVED else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=8000, help="of the pendulum, each with an update (8000)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--eager", action="store_true", help="without Steptape alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    learn(argparse.Namespace(**vars(options) | {"steps": options.batch + 20}), lambda function: function)  # first steps are slow
    returns, left, seconds, _ = learn(options, lambda function: function)
    report("eager:", returns, seconds)
    if options.eager:
        return 0
    found_returns, found, seconds_taped, functions = learn(options, steptape.wrap)
    report("Steptape:", found_returns, seconds_taped)
    print(f"{seconds / seconds_taped:.1f} times as fast")
    for function in functions:
        print(function.explain())
    is_equal = returns == found_returns and all(torch.equal(a, b) for a, b in zip(left, found, strict=True))
    print(f"bit-identical to eager: {'yes' if is_equal else 'no'} ({len(returns)} episodes, {len(left)} tensors)")
    shares = [function.stats["replayed"] / function.stats["steps"] for function in functions]
    return 0 if is_equal and min(shares) >= 0.9 else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except steptape.Error as error:
        print(f"sac: {error}", file=sys.stderr)
        sys.exit(2)

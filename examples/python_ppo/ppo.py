#!/usr/bin/env python3
"""Learns CartPole by PPO: eagerly, then through Steptape, from one seed.

Two functions are wrapped: what acts, and what a minibatch does to the policy. Compares returns of all episodes, weights and moments bit
for bit. Exit status: 0 all equal and nearly all replayed, 1 if not, 2 trouble.
"""
import argparse
import sys
import time

import torch
from torch import nn
from torch.distributions import Categorical

import steptape

try:
    import gymnasium
except ImportError:
    print("ppo: gymnasium is needed: pip install gymnasium", file=sys.stderr)
    sys.exit(2)

DISCOUNT, TRACE, CLIP = 0.98, 0.8, 0.2
SOLVED = 475


class Policy(nn.Module):
    """Actions and their value, of states [n, 4]."""

    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, states):
        return Categorical(logits=self.actor(states)), self.critic(states).squeeze(1)


def make_functions(policy, optimizer):
    def act(states):
        with torch.no_grad():
            actions, values = policy(states)
            chosen = actions.sample()
            return chosen, actions.log_prob(chosen), values

    def update(states, chosen, before, advantages, returns):
        actions, values = policy(states)
        ratio = (actions.log_prob(chosen) - before).exp()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        gain = torch.min(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
        loss = -gain + 0.5 * (values - returns).square().mean() - 0.001 * actions.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        return loss.detach()
    return act, update


def advantages_of(rewards, values, ends, last):
    """By generalized advantage estimation (Schulman et al., 2016), all [steps, environments]."""
    advantages, following = torch.zeros_like(rewards), torch.zeros_like(last)
    for t in reversed(range(len(rewards))):
        after = last if t + 1 == len(rewards) else values[t + 1]
        going = 1 - ends[t]
        following = rewards[t] + DISCOUNT * after * going - values[t] + DISCOUNT * TRACE * going * following
        advantages[t] = following
    return advantages


def learn(options, wrap):
    """The returns of episodes, what training left, the seconds that acting and updates took, and the two functions."""
    torch.manual_seed(options.seed)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3, eps=1e-5)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.05, options.rounds)
    act, update = (wrap(function) for function in make_functions(policy, optimizer))
    worlds = gymnasium.make_vec("CartPole-v1", options.worlds, vectorization_mode="sync",
                                vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP})
    states = torch.from_numpy(worlds.reset(seed=options.seed)[0])
    returns, running, seconds = [], torch.zeros(options.worlds), 0.0
    draw = torch.Generator().manual_seed(options.seed)
    for _ in range(options.rounds):
        kept = []
        for _ in range(options.length):
            began = time.perf_counter()
            chosen, before, values = act(states)
            seconds += time.perf_counter() - began
            following, rewards, ended, cut, _ = worlds.step(chosen.numpy())
            rewards, ends = torch.from_numpy(rewards).float(), torch.from_numpy(ended | cut)
            kept.append((states, chosen, before, values, rewards, ends.float()))
            running += rewards
            returns += running[ends].tolist()
            running[ends] = 0
            states = torch.from_numpy(following)
        all_states, all_chosen, all_before, all_values, all_rewards, all_ends = map(torch.stack, zip(*kept))
        advantages = advantages_of(all_rewards, all_values, all_ends, act(states)[2])
        rows = [part.flatten(0, 1) for part in (all_states, all_chosen, all_before, advantages, advantages + all_values)]
        for _ in range(options.epochs):
            for part in torch.randperm(len(rows[0]), generator=draw).split(options.batch):
                began = time.perf_counter()
                update(*(row[part] for row in rows))
                seconds += time.perf_counter() - began
        schedule.step()
    moments = [value for state in optimizer.state_dict()["state"].values() for value in state.values()]
    return returns, [*policy.state_dict().values(), *moments], seconds, (act, update)


def report(what, returns, seconds):
    last = returns[-20:]
    mean = sum(last) / max(1, len(last))
    print(f"{what:9} {seconds:6.2f} s in act and update, {len(returns)} episodes, mean of the last 20: {mean:.0f}"
          f"{' (solved)' if mean >= SOLVED else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--worlds", type=int, default=8)
    parser.add_argument("--length", type=int, default=64, help="steps of each world in a round (64)")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--eager", action="store_true", help="without Steptape alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    returns, left, seconds, _ = learn(options, lambda function: function)
    report("eager:", returns, seconds)
    if options.eager:
        return 0
    taped_returns, found, taped_seconds, functions = learn(options, steptape.wrap)
    report("Steptape:", taped_returns, taped_seconds)
    print(f"{seconds / taped_seconds:.1f} times as fast")
    print("".join(function.explain() for function in functions))
    is_equal = returns == taped_returns and all(torch.equal(a, b) for a, b in zip(left, found, strict=True))
    print(f"bit-identical to eager: {'yes' if is_equal else 'no'} ({len(returns)} episodes, {len(left)} tensors)")
    is_replayed = all(function.stats["replayed"] >= 0.9 * function.stats["steps"] for function in functions)
    return 0 if is_equal and is_replayed else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except steptape.Error as error:
        print(f"ppo: {error}", file=sys.stderr)
        sys.exit(2)

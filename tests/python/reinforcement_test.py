"""Loops of reinforcement learning as people write them: minibatches by an array of indices, schedules and options in a namespace,
statistics appended to lists, target networks that follow every few steps, a temperature that is read from a tensor.
"""
import collections
import types

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical, Normal

import steptape
from carried_test import snapshot

Batch = collections.namedtuple("Batch", "state action reward following ended")


def layers(*sizes, last=nn.Identity):
    made = []
    for a, b in zip(sizes, sizes[1:]):
        made += [nn.Linear(np.prod((a,)), b), nn.Tanh()]
    return nn.Sequential(*made[:-1], last())


def options(**more):
    return types.SimpleNamespace(discount=0.99, follow=0.05, clip=0.2, entropy=0.01, most=0.5, every=4, **more)


def transitions(n=8, discrete=False):
    action = torch.randint(0, 2, (n, 1)) if discrete else torch.randn(n, 1)
    return Batch(torch.randn(n, 4), action, torch.randn(n, 1), torch.randn(n, 4), (torch.rand(n, 1) > 0.9).float())


def follow(target, model, share):
    for old, new in zip(target.parameters(), model.parameters()):
        old.data.copy_(share * new.data + (1.0 - share) * old.data)


class Policy(nn.Module):
    def __init__(self, is_discrete):
        super().__init__()
        self.is_discrete = is_discrete
        self.value = layers(4, 16, 1)
        self.act = layers(4, 16, 2)
        self.spread = nn.Parameter(torch.zeros(1, 2))

    def judge(self, state, action):
        if self.is_discrete:
            chosen = Categorical(logits=self.act(state))
            return chosen.log_prob(action), chosen.entropy(), self.value(state).view(-1)
        mean = self.act(state)
        chosen = Normal(mean, self.spread.expand_as(mean).exp())
        return chosen.log_prob(action).sum(1), chosen.entropy().sum(1), self.value(state).view(-1)


def clipped_policy(is_discrete, takes_arguments):
    """PPO: the minibatch by its indices, as arguments or out of the loop's variables."""
    def run(wrap):
        option, policy = options(), Policy(is_discrete)
        optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4, eps=1e-5)
        shares, seen = [], []

        def learn(states, actions, before, gains, returns, picked):
            after, entropy, value = policy.judge(states[picked], actions[picked])
            change = after - before[picked]
            ratio = change.exp()
            with torch.no_grad():
                distance = ((ratio - 1) - change).mean()
                shares.append(((ratio - 1.0).abs() > option.clip).float().mean().item())
            gain = gains[picked]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            held = torch.clamp(ratio, 1 - option.clip, 1 + option.clip)
            loss = torch.max(-gain * ratio, -gain * held).mean() - option.entropy * entropy.mean()
            loss = loss + 0.5 * ((value - returns[picked]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), option.most)
            optimizer.step()
            return loss, distance

        def from_names():
            return learn(states, actions, before, gains, returns, order[first:first + 8])

        step = wrap(learn if takes_arguments else from_names)
        order = np.arange(32)
        for round_ in range(8):
            optimizer.param_groups[0]["lr"] = (1 - round_ / 8) * 3e-4
            option.clip = 0.2 * (1 - round_ / 16)
            states = torch.randn(32, 4)
            actions = torch.randint(0, 2, (32,)) if is_discrete else torch.randn(32, 2)
            before, gains, returns = torch.randn(3, 32)
            for _ in range(3):
                np.random.shuffle(order)
                for first in range(0, 32, 8):
                    given = (states, actions, before, gains, returns, order[first:first + 8]) if takes_arguments else ()
                    seen.append((step(*given), list(shares), list(policy.parameters())))
        return seen
    return run


def advantages(wrap):
    """A loop backwards over the rollout, filled in place."""
    option, seen = options(), []

    def work(reward, ended, value, last):
        with torch.no_grad():
            gains = torch.zeros_like(reward)
            carried = 0
            for t in reversed(range(len(reward))):
                goes_on = 1.0 - ended[t]
                beyond = last if t == len(reward) - 1 else value[t + 1]
                gains[t] = carried = reward[t] + option.discount * beyond * goes_on - value[t] + 0.95 * goes_on * carried
            return gains, gains + value

    step = wrap(work)
    for _ in range(24):
        seen.append(step(torch.randn(16, 2), (torch.rand(16, 2) > 0.8).float(), torch.randn(16, 2), torch.randn(1, 2)))
    return seen


def values(wrap):
    """DQN."""
    option, model, target = options(), layers(4, 16, 2), layers(4, 16, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    seen = []

    def learn(batch):
        with torch.no_grad():
            best, _ = target(batch.following).max(dim=1)
            goal = batch.reward.flatten() + option.discount * best * (1 - batch.ended.flatten())
        loss = F.mse_loss(goal, model(batch.state).gather(1, batch.action).squeeze())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if count % option.every == 0:
            follow(target, model, option.follow)
        return loss

    step = wrap(learn)
    for count in range(60):
        seen.append((step(transitions(discrete=True)), list(model.parameters()), list(target.parameters())))
    return seen


def distributions(wrap):
    """C51: rows of a distribution filled by index_add_."""
    option, model, target = options(), layers(4, 16, 22), layers(4, 16, 22)
    support = torch.linspace(-10, 10, 11)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-3)
    seen = []

    def chances(net, state, action=None):
        each = torch.softmax(net(state).view(len(state), 2, 11), dim=2)
        action = torch.argmax((each * support).sum(2), 1) if action is None else action
        return each[torch.arange(len(state)), action]

    def learn(batch):
        with torch.no_grad():
            likely = chances(target, batch.following)
            moved = (batch.reward + option.discount * support * (1 - batch.ended)).clamp(-10, 10)
            at = (moved + 10) / (support[1] - support[0])
            low, high = at.floor().clamp(0, 10), at.ceil().clamp(0, 10)
            goal = torch.zeros_like(likely)
            for i in range(goal.size(0)):
                goal[i].index_add_(0, low[i].long(), ((high + (low == high).float() - at) * likely)[i])
                goal[i].index_add_(0, high[i].long(), ((at - low) * likely)[i])
        loss = -(goal * chances(model, batch.state, batch.action.flatten()).clamp(1e-5, 1 - 1e-5).log()).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if count % option.every == 0:
            target.load_state_dict(model.state_dict())
        return loss

    step = wrap(learn)
    for count in range(60):
        seen.append((step(transitions(discrete=True)), list(model.parameters()), list(target.parameters())))
    return seen


def actor_critic(twins, delay):
    """DDPG, and TD3 with two critics and noise."""
    def run(wrap):
        option, actor, later_actor = options(), layers(4, 16, 1, last=nn.Tanh), layers(4, 16, 1, last=nn.Tanh)
        critics = [layers(5, 16, 1) for _ in range(twins)]
        later = [layers(5, 16, 1) for _ in range(twins)]
        of_critics = torch.optim.Adam([p for critic in critics for p in critic.parameters()], lr=1e-3)
        of_actor = torch.optim.Adam(list(actor.parameters()), lr=1e-3)
        seen = []

        def judge(critic, state, action):
            return critic(torch.cat([state, action], 1)).view(-1)

        def learn(batch):
            with torch.no_grad():
                action = later_actor(batch.following)
                if twins > 1:
                    action = (action + (torch.randn_like(batch.action) * 0.2).clamp(-0.5, 0.5)).clamp(-1.0, 1.0)
                worst = torch.stack([judge(critic, batch.following, action) for critic in later]).min(0).values
                goal = batch.reward.flatten() + (1 - batch.ended.flatten()) * option.discount * worst
            loss = sum(F.mse_loss(judge(critic, batch.state, batch.action), goal) for critic in critics)
            of_critics.zero_grad()
            loss.backward()
            of_critics.step()
            if count % delay == 0:
                gain = -judge(critics[0], batch.state, actor(batch.state)).mean()
                of_actor.zero_grad()
                gain.backward()
                of_actor.step()
                follow(later_actor, actor, option.follow)
                for new, old in zip(critics, later):
                    follow(old, new, option.follow)
            return loss

        step = wrap(learn)
        for count in range(60):
            seen.append((step(transitions()), list(actor.parameters()), [list(c.parameters()) for c in [*critics, *later]]))
        return seen
    return run


def soft_actor_critic(wrap):
    """SAC: the temperature is a number that is read from a tensor and kept."""
    option, actor, critic, later = options(), layers(4, 16, 2), layers(5, 16, 1), layers(5, 16, 1)
    log_heat = torch.zeros(1, requires_grad=True)
    heat = log_heat.exp().item()
    of_critic, of_actor = (torch.optim.Adam(m.parameters(), lr=1e-3) for m in (critic, actor))
    of_heat = torch.optim.Adam([log_heat], lr=1e-3)
    seen = []

    def act(state):
        mean, spread = actor(state).chunk(2, 1)
        normal = Normal(mean, (-1.5 + 3.5 * torch.tanh(spread)).exp())
        raw = normal.rsample()
        action = torch.tanh(raw)
        return action, (normal.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)).sum(1, keepdim=True)

    def learn(batch):
        nonlocal heat
        with torch.no_grad():
            action, chance = act(batch.following)
            goal = batch.reward + (1 - batch.ended) * option.discount * (
                later(torch.cat([batch.following, action], 1)) - heat * chance)
        loss = F.mse_loss(critic(torch.cat([batch.state, batch.action], 1)), goal)
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
        if count % 2 == 0:
            for _ in range(2):
                action, chance = act(batch.state)
                gain = (heat * chance - critic(torch.cat([batch.state, action], 1))).mean()
                of_actor.zero_grad()
                gain.backward()
                of_actor.step()
                with torch.no_grad():
                    _, chance = act(batch.state)
                warmth = (-log_heat.exp() * (chance - 1.0)).mean()
                of_heat.zero_grad()
                warmth.backward()
                of_heat.step()
                heat = log_heat.exp().item()
        follow(later, critic, option.follow)
        return loss

    step = wrap(learn)
    for count in range(60):
        seen.append((step(transitions()), heat, log_heat, list(actor.parameters()), list(critic.parameters())))
    return seen


def lambda_returns(wrap):
    """PQN: returns by a loop with the network inside, and RAdam with an annealed rate."""
    option = options()
    model = nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.RAdam(model.parameters(), lr=1e-3)
    seen = []

    def learn(states, actions, goals, picked):
        chosen = model(states[picked]).gather(1, actions[picked].unsqueeze(-1)).squeeze()
        loss = F.mse_loss(goals[picked], chosen)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), option.most)
        optimizer.step()
        return loss

    step = wrap(learn)
    for round_ in range(15):
        optimizer.param_groups[0]["lr"] = (1 - round_ / 20) * 1e-3
        states, actions, goals = torch.randn(32, 4), torch.randint(0, 2, (32,)), torch.randn(32)
        order = np.random.permutation(32)
        for first in range(0, 32, 8):
            seen.append((step(states, actions, goals, order[first:first + 8]), list(model.parameters())))
    return seen


LOOPS = {
    "ppo": clipped_policy(True, True), "ppo_out_of_the_loop": clipped_policy(True, False),
    "ppo_continuous": clipped_policy(False, True), "advantages": advantages, "dqn": values, "c51": distributions,
    "ddpg": actor_critic(1, 2), "td3": actor_critic(2, 2), "sac": soft_actor_critic, "pqn": lambda_returns,
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_replays_as_it_is_written(loop):
    def play(wrap):
        torch.manual_seed(0)
        np.random.seed(0)
        steps = []

        def wrapped(function):
            steps.append(wrap(function))
            return steps[-1]
        return snapshot(LOOPS[loop](wrapped)), steps[0]

    expected, _ = play(lambda function: function)
    seen, step = play(lambda function: steptape.wrap(function, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    assert step.stats["replayed"] >= step.stats["steps"] // 2, step.explain()

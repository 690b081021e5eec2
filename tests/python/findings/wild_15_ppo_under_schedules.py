"""Stable-Baselines3's update of a minibatch: clip range and rate follow schedules, and the clipped share is read."""
import collections

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

Samples = collections.namedtuple("Samples", "observations actions old_values old_log_prob advantages returns")


class Distribution:
    def proba_distribution(self, logits):
        self.distribution = Categorical(logits=logits)
        return self

    def log_prob(self, actions):
        return self.distribution.log_prob(actions)

    def entropy(self):
        return self.distribution.entropy()


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.action_net, self.value_net = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)
        self.action_dist = Distribution()
        self.optimizer = torch.optim.Adam(self.parameters(), 3e-4, eps=1e-5)

    def evaluate_actions(self, observations, actions):
        latent = self.body(observations).tanh()
        distribution = self.action_dist.proba_distribution(self.action_net(latent))
        return self.value_net(latent), distribution.log_prob(actions), distribution.entropy()


def play(wrap):
    torch.manual_seed(0)
    policy = Policy()

    def update(data, clip_range):
        values, log_prob, entropy = policy.evaluate_actions(data.observations, data.actions)
        advantages = data.advantages
        if len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        ratio = torch.exp(log_prob - data.old_log_prob)
        policy_loss = -torch.min(advantages * ratio, advantages * torch.clamp(ratio, 1 - clip_range, 1 + clip_range)).mean()
        clip_fraction = torch.mean((torch.abs(ratio - 1) > clip_range).float()).item()
        loss = policy_loss + 0.5 * F.mse_loss(data.returns, values.flatten()) - 0.01 * entropy.mean()
        policy.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        policy.optimizer.step()
        return policy_loss, clip_fraction, loss

    step = wrap(update)
    out = []
    for iteration in range(8):
        observations, actions = torch.randn(16, 4), torch.randint(0, 2, (16,))
        with torch.no_grad():
            values, old, _ = policy.evaluate_actions(observations, actions)
        data = Samples(observations, actions, values.flatten(), old, torch.randn(16), torch.randn(16))
        left = 1 - iteration / 8
        for group in policy.optimizer.param_groups:
            group["lr"] = 3e-2 * left
        for _ in range(6):
            policy_loss, clip_fraction, loss = step(data, 0.2 * left)
            out.append((policy_loss.item(), clip_fraction, loss.item()))
    return out, step

"""What a step merely can reach, or shares a name with: each was refused."""
import collections
import dataclasses

import numpy as np
import torch
import torch.nn as nn

Batch = collections.namedtuple("Batch", "obs rewards")


@dataclasses.dataclass
class Args:
    lr: float = 1e-3
    alpha: float = 0.2


rewards = np.zeros(3)
alpha = 0.2
args = Args()


def trained(net, loss_of):
    optimizer = torch.optim.Adam(net.parameters())

    def step(*batch):
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss

    return step


def attribute_named_as_an_array():
    net = nn.Linear(4, 1)
    step = trained(net, lambda batch: (net(batch.obs).squeeze() - batch.rewards).pow(2).mean())

    def between(i):
        rewards[i % 3] += 1

    return step, lambda: (Batch(torch.randn(8, 4), torch.randn(8)),), between


def field_named_as_a_global():
    net = nn.Linear(4, 1)

    def between(i):
        global alpha
        alpha = 0.2 + i

    return trained(net, lambda x: net(x).pow(2).mean() * (args.lr + args.alpha)), lambda: (torch.randn(8, 4),), between


def array_that_an_agent_holds():
    class Agent:
        def __init__(self):
            self.net = nn.Linear(4, 2)
            self.opt = torch.optim.Adam(self.net.parameters())
            self.replay = np.zeros((100, 4), np.float32)

        def update(self, x):
            self.opt.zero_grad()
            loss = self.net(x).pow(2).mean()
            loss.backward()
            self.opt.step()
            return loss

    agent = Agent()

    def between(i):
        agent.replay[i] = i

    return agent.update, lambda: (torch.randn(8, 4),), between


def list_on_a_module():
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.l, self.rewards = nn.Linear(8, 2), []

        def forward(self, x):
            return self.l(x)

    policy = Policy()

    @torch.no_grad()
    def act(x):
        return policy(x).argmax().item()

    return act, lambda: (torch.randn(8),), lambda i: policy.rewards.append(1.0)


CASES = {of.__name__: of for of in (attribute_named_as_an_array, field_named_as_a_global, array_that_an_agent_holds, list_on_a_module)}


def play(wrap, make):
    torch.manual_seed(0)
    step, batch, between = make()
    step = wrap(step)
    out = []
    for i in range(30):
        result = step(*batch())
        out.append(result if isinstance(result, int) else result.item())
        between(i)
    return out, step

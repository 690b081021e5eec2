"""A float argument whose first new value has no effect in the call that verifies it (PPO: ratio is 1 after each rollout): clamp's backward keeps the old clip range from then on."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def play(wrap):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    opt = torch.optim.SGD(model.parameters(), 0.5)

    def step(x, act, old, adv, eps):
        opt.zero_grad()
        ratio = (F.log_softmax(model(x), 1).gather(1, act)[:, 0] - old).exp()
        loss = -torch.min(ratio * adv, ratio.clamp(1 - eps, 1 + eps) * adv).mean()
        loss.backward()
        opt.step()
        return loss.detach()

    step = wrap(step)
    old = None
    out = []
    for i in range(40):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        g = torch.Generator().manual_seed(i // 10)
        x = torch.randn(8, 3, generator=g)
        act = torch.randint(0, 3, (8, 1), generator=g)
        adv = torch.randn(8, generator=g)
        if i % 10 == 0:
            with torch.no_grad():
                old = F.log_softmax(model(x), 1).gather(1, act)[:, 0]
        step(x, act, old, adv, [0.2, 0.2, 0.1, 0.05][i // 10])
        out.append(round(model.weight.abs().sum().item(), 5))
    return out, step

"""getattr(self, 'loss_{}'.format(kind))(x): the method is not followed."""

import torch


def play(wrap):
    torch.manual_seed(0)

    class Box:
        def __init__(self_, **k):
            self_.__dict__.update(k)

    cfg = Box(scale=1.0)

    class Task:
        def loss_l2(self, x):
            return x * cfg.scale

        def step(self, x):
            return getattr(self, "loss_{}".format("l2"))(x)

    step = wrap(Task().step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            cfg.scale = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

"""class Augment: rng = random.Random(3); a flip with probability 0.05: never flips, never draws (also in function attributes, subclasses of random.Random, np.random.PCG64)."""

import torch
import random


def play(wrap):
    torch.manual_seed(0)

    class Augment:
        rng = random.Random(3)

        def __call__(self, x):
            return x.flip(-1) * 3 if self.rng.random() < 0.05 else x  # refused: host_random

    augment = Augment()
    step = wrap(lambda x: augment(x))
    out = []
    for i in range(20):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        out.append(round(step(x).sum().item(), 4))
    return out, step

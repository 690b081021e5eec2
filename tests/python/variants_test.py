"""Steps that need several plans: which calls find theirs."""
import random

import torch
from torch import nn

from loops import replays, training


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(3, 4, batch_first=True)

    def forward(self, x):
        return self.cell(x)[0]


def squares(model, x):
    return model(x).pow(2).mean()


def in_any_order(of):
    drawn = random.Random(1)
    return [drawn.randint(1, of) for _ in range(10 * of)]


def test_twenty_lengths_in_any_order_have_a_plan_each():
    lengths = in_any_order(20)
    step = replays(lambda: training(
        Recurrent(), squares, batch=lambda i: (torch.randn(2, lengths[i], 3),)), len(lengths))
    assert len(step.stats["variants"]) == 20
    assert step.stats["eager"] == 0

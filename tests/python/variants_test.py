"""Steps that need several plans: which calls find theirs."""
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from loops import batch, net, replays, training


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


def likelihood(model, x, y):
    """`one_hot` reads the smallest and the largest label on the host."""
    return (model(x).log_softmax(1) * F.one_hot(y, 3)).mean()


def likelihood_of_those_there(model, x, y):
    """The shape of what it gives depends on them, too."""
    known = F.one_hot(y)
    return (model(x)[:, :known.size(1)].log_softmax(1) * known).mean()


@pytest.mark.parametrize("loss_of", [likelihood, likelihood_of_those_there])
def test_values_that_torch_reads_have_a_plan_each(loss_of):
    step = replays(lambda: training(
        net(), loss_of, batch=lambda i: (torch.randn(2, 6), torch.randint(0, 3, (2,)))), 120)
    assert 2 <= len(step.stats["variants"]) <= 6


def test_a_branch_on_a_value_has_a_plan_each_way():
    def loss_of(model, x, y, kind):
        out = model(x)
        kind = int(kind)
        return F.mse_loss(out, y) if kind == 0 else F.l1_loss(out, y) if kind == 1 else out.mean()

    replays(lambda: training(net(), loss_of, batch=lambda i: (*batch(i), torch.randint(0, 3, ()))),
            80)


def test_slices_of_a_data_set_share_a_plan():
    """Rows of 28 bytes lie at 16 addresses modulo 64."""
    data, right = torch.randn(400, 6), torch.randn(400, 3)

    def rows(i):
        first = 37 * i % 390
        return data[first:first + 5], right[first:first + 5]

    step = replays(lambda: training(net(), batch=rows), 100)
    assert len(step.stats["variants"]) == 1

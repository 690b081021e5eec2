"""Counts that a step keeps in tensors of a few elements, and reads: replays count and read before all else, where nothing used the
count before. Here is what must not be turned around with them."""
import pytest
import torch
import torch.nn as nn

from twins import compare

CALLS = 24
CASES = []


class Counting:
    """A training of one layer, and two counts."""

    def __init__(self, body, optimizer, options, between):
        self.model = nn.Linear(3, 2)
        self.optimizer = optimizer(self.model.parameters(), lr=1e-2, **options)
        self.count, self.other, self.few = torch.zeros(()), torch.ones(()), torch.zeros(3)
        self.weight = 0.0
        self.drop = nn.Dropout(0.3)
        self.body, self.between = body, between

    def step(self, x):
        self.optimizer.zero_grad()
        return self.body(self, x)

    def learn(self, loss):
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def batch(self, i):
        return (torch.randn(4, 3, generator=torch.Generator().manual_seed(i)),)

    def after(self, i):
        if self.between is not None:
            self.between(self, i)

    def holds(self):
        return [self.model, self.optimizer, self.count, self.other, self.few]


def case(optimizer=torch.optim.SGD, between=None, **options):
    def add(body):
        CASES.append(pytest.param(lambda: Counting(body, optimizer, options, between), id=body.__name__))
        return body
    return add


def mean(y):
    return y.pow(2).mean()


@case(torch.optim.Adam)
def step_of_the_optimizer_enters_the_loss_first(t, x):
    count = t.optimizer.state.get(t.model.weight, {}).get("step", torch.zeros(()))
    return t.learn(mean(t.model(x)) * (1 + 0.01 * count))


@case(torch.optim.Adam)
def count_is_read_between_two_counts(t, x):
    t.count.add_(1)
    a = t.count.item()
    t.count.mul_(0.5)
    return t.learn(mean(t.model(x) * a + t.count.item()))


@case()
def count_is_a_factor_before_it_counts(t, x):
    loss = mean(t.model(x) * (t.count + 1))
    loss.backward()
    t.count.add_(1)
    t.optimizer.param_groups[0]["lr"] = 0.1 / t.count.item()
    t.optimizer.step()
    return loss.detach()


@case(torch.optim.NAdam)
def product_by_what_the_count_gives(t, x):
    return t.learn(mean(t.model(x)))


@case(torch.optim.Adam)
def count_is_set_back(t, x):
    t.count.add_(1)
    if t.count.item() > 5:
        t.count.zero_()
    return t.learn(mean(t.model(x) + t.count))


@case(torch.optim.Adam)
def a_later_branch_turns(t, x):
    t.count.add_(1)
    loss = mean(t.model(x) / t.count.item())
    loss.backward()
    if loss.item() > 2e-3:
        t.optimizer.step()
    return loss.detach()


@case()
def elements_of_one_tensor(t, x):
    y = t.model(x) * (1 + t.few[1])
    t.few[0] += 1
    loss = mean(y * t.few[0].item())
    t.few[1] += 0.01
    return t.learn(loss)


@case()
def one_counts_by_the_other(t, x):
    t.count.add_(1)
    t.other.add_(t.count.item())
    return t.learn(mean(t.model(x) / t.other.item()))


@case()
def it_counts_by_the_loss(t, x):
    loss = mean(t.model(x))
    t.other.add_(loss.item())
    return t.learn(loss / t.other.item())


@case(torch.optim.AdamW)
def it_counts_between_draws(t, x):
    y = t.drop(t.model(x))
    t.count.add_(1)
    return t.learn(mean(t.drop(y) * t.count.item()))


@case(torch.optim.Adam)
def a_copy_of_the_count_is_kept_first(t, x):
    t.other.copy_(t.count)
    t.count.add_(1)
    return t.learn(mean(t.model(x) * t.count.item()) + t.other)


def weights(t, i):
    t.weight = (0.1, 0.3, 0.45, 0.6, 0.5, 0.9, 1.0, -0.3, -0.5, 1.5, 0.25, 0.75)[i % 12] + 0.001 * i


@case(between=weights)
def weight_of_lerp_moves_across_a_half(t, x):
    loss = t.learn(mean(t.model(x)))
    with torch.no_grad():
        t.few.lerp_(t.model.weight[0], t.weight)
    return loss


def betas(t, i):
    t.optimizer.param_groups[0]["betas"] = (0.9 - 0.04 * i, 0.99)


@case(torch.optim.Adam, between=betas)
def betas_move_across_a_half(t, x):
    return t.learn(mean(t.model(x)))


def eps(t, i):
    t.optimizer.param_groups[0]["eps"] = 1e-8 if i % 5 else 1e-3


@case(torch.optim.Adam, between=eps)
def a_number_that_stays_is_changed_now_and_then(t, x):
    return t.learn(mean(t.model(x)))


@pytest.mark.parametrize("make", CASES)
def test_counts_come_in_their_order(make):
    step = compare(make, CALLS, verify={"first": True, "rate": 0.0})
    assert step.stats["replayed"] >= 12, step.explain()

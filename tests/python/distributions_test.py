"""Distributions that a step samples from and scores by."""
import pytest
import torch
from torch import distributions

from loops import batch, net, replays, training


def sampled_normal(out):
    return distributions.Normal(out, out.exp(), validate_args=True).rsample()


def scored_normal(out):
    normal = distributions.Normal(out, 1.0, validate_args=True)
    return normal.log_prob(normal.sample())


def sampled_category(out):
    categorical = distributions.Categorical(logits=out, validate_args=True)
    return categorical.log_prob(categorical.sample()) + categorical.entropy()


def sampled_bits(out):
    bernoulli = distributions.Bernoulli(logits=out, validate_args=True)
    return bernoulli.log_prob(bernoulli.sample())


def sampled_gamma(out):
    return distributions.Gamma(out.exp(), 1 + out.square(), validate_args=True).rsample().log()


def divergence(out):
    unit = distributions.Normal(torch.zeros_like(out), 1.0, validate_args=True)
    return distributions.kl_divergence(
        distributions.Normal(out, out.exp(), validate_args=True), unit)


@pytest.mark.parametrize("term", [sampled_normal, scored_normal, sampled_category, sampled_bits,
                                  sampled_gamma, divergence])
def test_distributions_sample_and_score_under_validation(term):
    """Validation reads on the host that all is well: the same in each step."""
    def loss_of(model, x, y):
        return (term(model(x)) + y.mean()).square().mean()

    replays(lambda: training(net(), loss_of))


def test_a_validation_that_fails_raises_as_in_eager():
    """What the step had done before it raised stays done: gradients are cleared, no more."""
    def poisoned(i):
        x, y = batch(i)
        return (x * float("nan"), y) if i in (25, 26, 45) else (x, y)

    def loss_of(model, x, y):
        return (scored_normal(model(x)) + y).square().mean()

    replays(lambda: training(net(), loss_of, batch=poisoned), 60, share=0.8)

"""Losses with each reduction, two of them added: their out variants resize, cast, or hand back another tensor."""
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from classification import Program, check, sgd

SIGNS = torch.tensor([1.0, -1.0]).repeat(4)
CLASSES = torch.arange(8) % 6

# (scores, target of the same shape in 0 to 1) → loss
LOSSES = {
    "l1": lambda s, y, r: F.l1_loss(s, y, reduction=r),
    "mse": lambda s, y, r: F.mse_loss(s, y, reduction=r),
    "huber": lambda s, y, r: F.huber_loss(s, y, reduction=r),
    "huber_delta": lambda s, y, r: F.huber_loss(s, y, reduction=r, delta=0.1),
    "huber_of_a_column": lambda s, y, r: F.huber_loss(s[:, 0], y[:, 0], reduction=r),
    "smooth_l1": lambda s, y, r: F.smooth_l1_loss(s, y, reduction=r, beta=0.2),
    "binary_cross_entropy": lambda s, y, r: F.binary_cross_entropy(s.sigmoid(), y, reduction=r),
    "with_logits": lambda s, y, r: F.binary_cross_entropy_with_logits(s, y, reduction=r),
    "soft_margin": lambda s, y, r: F.soft_margin_loss(s, y.round() * 2 - 1, reduction=r),
    "multi_margin": lambda s, y, r: F.multi_margin_loss(s, CLASSES, reduction=r),
    "multilabel_margin": lambda s, y, r: F.multilabel_margin_loss(
        s, torch.tensor([[1, 3, -1, 0, 0, 0]]).repeat(8, 1), reduction=r),
    "multilabel_soft_margin": lambda s, y, r: F.multilabel_soft_margin_loss(s, y, reduction=r),
    "kl_div": lambda s, y, r: F.kl_div(s.log_softmax(1), y, reduction=r),
    "nll": lambda s, y, r: F.nll_loss(s.log_softmax(1), CLASSES, reduction=r),
    "nll_of_images": lambda s, y, r: F.nll_loss(s.log_softmax(1).view(8, 6, 1, 1),
                                                CLASSES.view(8, 1, 1), reduction=r),
    "cross_entropy": lambda s, y, r: F.cross_entropy(s, CLASSES, reduction=r),
    "smoothed": lambda s, y, r: F.cross_entropy(s, CLASSES, reduction=r, label_smoothing=0.1),
    "poisson": lambda s, y, r: F.poisson_nll_loss(s, y, reduction=r),
    "gaussian": lambda s, y, r: F.gaussian_nll_loss(s, y, s.exp(), reduction=r),
    "hinge_embedding": lambda s, y, r: F.hinge_embedding_loss(s[:, 0], SIGNS, reduction=r),
    "margin_ranking": lambda s, y, r: F.margin_ranking_loss(s[:, 0], s[:, 1], SIGNS, reduction=r),
    "cosine_embedding": lambda s, y, r: F.cosine_embedding_loss(s, y, SIGNS, reduction=r),
    "triplet_margin": lambda s, y, r: F.triplet_margin_loss(s, y, y + 1, reduction=r),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_two_losses_are_added(loss, reduction, capfd):
    def make():
        model = nn.Linear(4, 6)
        optimizer = sgd(model.parameters())

        def train(x, y):
            optimizer.zero_grad()
            scores = model(x)
            total = loss(scores, y, reduction) + loss(scores * 0.5, y, reduction)
            total.mean().backward()
            optimizer.step()
            return total.detach()
        return Program(step=train, held=lambda: [model, optimizer])

    def arguments(i):
        drawn = torch.Generator().manual_seed(i)
        return torch.randn(8, 4, generator=drawn), torch.rand(8, 6, generator=drawn)

    check(make, arguments=arguments, share=0.8)
    assert "resized" not in capfd.readouterr().err


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_loss_is_the_result(loss, reduction, capfd):
    """It is made for the program: nothing may resize it, either."""
    def make():
        return Program(step=lambda x, y: loss(x, y, reduction), held=lambda: [])

    def arguments(i):
        drawn = torch.Generator().manual_seed(i)
        return torch.randn(8, 6, generator=drawn), torch.rand(8, 6, generator=drawn)

    check(make, arguments=arguments, share=0.8)
    assert "resized" not in capfd.readouterr().err

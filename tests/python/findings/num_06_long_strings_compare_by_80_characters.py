"""A returned text of more than 80 characters that ends in the loss stays what it was in the first recorded call."""

import torch


def play(wrap):
    torch.manual_seed(0)

    def step(x):
        s = x.sum().item()
        return s, "experiment resnet50-imagenet-baseline-cosine-ema-mixup-cutmix-run-0001-seed-42, train: sum %.4f" % s

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        out.append(step(x)[1][-12:])
    return out, step

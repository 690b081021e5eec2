"""The first argument of baddbmm is broadcast: preparing its kernel copied from memory that was not there, and the process ended."""
import torch
import torch.nn as nn


def alone():
    mask = torch.zeros(1, 8, 8)
    return lambda q, k: torch.baddbmm(mask, q, k), lambda: (torch.randn(4, 8, 16), torch.randn(4, 16, 8))


def attention():
    attn = nn.MultiheadAttention(8, 2, batch_first=True)
    mask = torch.tril(torch.ones(6, 6)).view(1, 1, 6, 6)
    optimizer = torch.optim.SGD(attn.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        loss = attn(x, x, x, attn_mask=mask[0, 0, :x.size(1), :x.size(1)])[0].square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, lambda: (torch.randn(2, 6, 8),)


CASES = {"alone": alone, "mask of an attention": attention}


def play(wrap, make):
    torch.manual_seed(0)
    step, batch = make()
    step = wrap(step)
    return [step(*batch()).tolist() for _ in range(12)], step

"""flex_attention, torch.cond and scan compile inside torch: recorded, they raised."""
import torch
import torch.nn as nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan


def causal(score, batch, head, query, key):
    return torch.where(query >= key, score, -float("inf"))


def attention(h):
    from torch.nn.attention.flex_attention import flex_attention  # takes a second

    heads = h.view(8, 1, 4, 4)
    return flex_attention(heads, heads, heads, score_mod=causal).flatten(1)


CASES = {
    "flex_attention": attention,
    "cond": lambda h: torch.cond(h.sum() > 0, lambda t: t * 2, lambda t: t - 1, (h,)),
    "associative_scan": lambda h: associative_scan(lambda a, b: a + b, h, 0, combine_mode="generic"),
    "scan": lambda h: scan(lambda c, x: (c + x, c * 2 + x), torch.zeros(16), h, dim=0)[1],
    "checkpoint": lambda h: torch.utils.checkpoint.checkpoint(lambda t: t.tanh(), h, use_reentrant=False),
}


def play(wrap, of):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = nn.Linear(8, 16)

    @torch.no_grad()  # refused: unreplayable_op
    def step(x):
        return of(model(x)).square().mean()

    step = wrap(step)
    return [step(torch.randn(8, 8)).item() for _ in range(10)], step

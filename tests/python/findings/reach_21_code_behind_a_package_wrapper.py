"""torch.no_grad()(callable object) or of a partial; functools.singledispatchmethod; register_multi_grad_hook."""

import torch


def play(wrap):
    torch.manual_seed(0)

    class Loss:
        scale = 1.0

        def __call__(self, x):
            return x * self.scale

    loss = Loss()
    loss.scale = 1.0
    evaluate = torch.no_grad()(loss)
    step = wrap(lambda x: evaluate(x))
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            loss.scale = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

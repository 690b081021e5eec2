"""F.gumbel_softmax(x, tau) with tau = buffer read as 1.0: exponential_(lambd=1) of gumbel noise is bound to tau, the division by tau is not."""

import torch
import torch.nn.functional as F


def play(wrap):
    torch.manual_seed(0)
    tau = torch.tensor(1.0)

    def step(x):
        return F.gumbel_softmax(x, (tau + 0).item()).pow(2)

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            tau.fill_(0.2)
        torch.manual_seed(i)
        out.append(round(step(x).sum().item(), 4))
    return out, step

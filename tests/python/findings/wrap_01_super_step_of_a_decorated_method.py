"""@steptape.wrap on a method of a base class, super().step(x) in a subclass: from the second call on the subclass's own step is bypassed."""

import torch


def play(wrap):
    torch.manual_seed(0)

    class Base:
        def step(self, x):
            return x.sum()

    Base.step = wrap(Base.step)

    class Mine(Base):
        def step(self, x):
            return super().step(x) * 10

    mine = Mine()
    step = lambda x: mine.step(x)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        out.append(round(step(x).sum().item(), 4))
    return out, super(Mine, mine).step

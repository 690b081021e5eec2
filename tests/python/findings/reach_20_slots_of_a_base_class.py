"""A class with a dict whose base class has __slots__ (also pydantic's extra fields)."""

import torch


def play(wrap):
    torch.manual_seed(0)

    class Base:
        __slots__ = ("scale",)

    class Config(Base):
        pass

    cfg = Config()
    cfg.scale = 1.0
    step = wrap(lambda x: x * cfg.scale)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            cfg.scale = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

"""match cfg: case Cfg(kind='a')."""

import torch


def play(wrap):
    torch.manual_seed(0)

    class Settings:
        pass

    cfg = Settings()
    cfg.kind = "a"

    def step(x):
        match cfg:
            case Settings(kind="a"):
                return x * 2
            case _:
                return x * 3

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            cfg.kind = "b"
        out.append(round(step(x).sum().item(), 4))
    return out, step

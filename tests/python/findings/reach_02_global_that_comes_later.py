"""try: DEBUG_SCALE except NameError, and getattr(config_module, 'SCALE', 1.0)."""

import torch


def play(wrap):
    torch.manual_seed(0)
    globals().pop("DEBUG_SCALE", None)

    def step(x):
        try:
            return x * DEBUG_SCALE
        except NameError:
            return x

    step = wrap(step)
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            globals()["DEBUG_SCALE"] = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

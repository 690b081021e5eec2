"""globals()['LOSS_' + kind](x), vars(module)[name], importlib.import_module(name).X, sys.modules[name].X."""

import torch


def play(wrap):
    torch.manual_seed(0)

    class Box:
        def __init__(self_, **k):
            self_.__dict__.update(k)

    cfg = Box(scale=1.0)
    kind = "a"
    globals()["LOSS_a"] = lambda x: x * cfg.scale
    step = wrap(lambda x: globals()["LOSS_" + kind](x))
    out = []
    for i in range(14):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        if i == 10:
            cfg.scale = 2.0
        out.append(round(step(x).sum().item(), 4))
    return out, step

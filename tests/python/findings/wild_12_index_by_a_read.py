"""x[i.item()]: the read was not checked, since the number entered an op; the view was the recorded one."""
import torch


def set_item(x, i):
    y = x.clone()
    y[i.item()] = 5.0
    return y


CASES = {
    "x[i]": lambda x, i: x[i.item()] * 2,
    "x[i] = 5": set_item,
    "narrow": lambda x, i: x.narrow(0, i.item(), 2) * 2,
    "diagonal": lambda x, i: torch.diagonal(x, i.item())[:3] * 2,
    "split": lambda x, i: x.split([i.item() + 1, 5 - i.item()])[0].sum(),
    "range": lambda x, i: sum(x[j] for j in range(i.item() + 1)),
    "x[i:i + 2]": lambda x, i: x[i.item():i.item() + 2] * 2,
}


def play(wrap, of):
    torch.manual_seed(0)
    step = wrap(lambda x, i: of(x, i))
    return [step(torch.randn(6, 6), torch.tensor(1 if i < 12 else i % 3)).tolist() for i in range(50)], step

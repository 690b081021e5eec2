"""A dict that a step writes to and then goes over: what it has put there itself is nothing that it depends on, all else is."""
import operator
import types

import pytest
import torch
import torch.nn as nn

import twins

STEPS = 40
LATE = 20


def hooked(look):
    """A forward hook leaves something new in a dict in each call."""
    def make():
        net, acts = nn.Linear(3, 3), {"kept": torch.tensor(2.0)}
        net.register_forward_hook(lambda m, i, o: acts.__setitem__("a", o.detach().abs().mean()))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

        def step(x):
            optimizer.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.item(), look(acts)

        def after(i):
            if i == LATE:
                acts["kept"] = torch.tensor(5.0)
            if i == LATE + 6:
                acts["other"] = torch.tensor(1.0)

        return types.SimpleNamespace(step=step, batch=lambda i: (torch.randn(2, 3),), holds=lambda: [net, optimizer, acts], after=after)
    return make


LOOKS = {
    "items": lambda acts: {k: v.item() for k, v in acts.items()},
    "values": lambda acts: [v.item() for v in acts.values()],
    "keys": lambda acts: [acts[k].item() for k in acts],
    "copy": lambda acts: {k: float(v) for k, v in acts.copy().items()},
    "dict": lambda acts: {k: float(v) for k, v in dict(acts).items()},
    "spread": lambda acts: {k: float(v) for k, v in {**acts}.items()},
    "sum": lambda acts: sum(v.item() for v in acts.values()),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_hooks_have_left_in_a_dict(look):
    step = twins.compare(hooked(look), STEPS, verify={"first": True, "rate": 0.0})
    assert step.stats["replayed"] >= STEPS / 2, step.explain()


def kept(log, x):
    log["loss"] = x.sum().item()
    return x * sum(log.values())


def scaled(log, x):
    log["k"] = 2.0
    return [x * v for v in log.values()]


def counted(log, x):
    log["n"] = log.get("n", 0) + 1
    return {k: x * v for k, v in log.items()}


def moved_to_the_end(log, x):
    log.pop("z", None)
    log["z"] = 3.0
    return [x * v for v in log.values()], list(log)


def read_before(log, x):
    before = dict(log)
    log["h"] = x.mean().item()
    return [x * v for v in [*before.values(), *log.values()]]


def written_before_and_after(log, x):
    log["a"] = 1.0
    y = x * len(log)
    log["b"] = 0.5
    return [y * v for k, v in sorted(log.items())]


def all_of_them(log, x):
    for k in list(log):
        log[k] = log[k] * 0.5
    log["k"] = 2.0
    return x * sum(log.values())


@pytest.mark.parametrize("body", [kept, scaled, counted, moved_to_the_end, read_before, written_before_and_after, all_of_them],
                         ids=lambda body: body.__name__)
@pytest.mark.parametrize("given", [{}, {"z": 1.5, "a": 2.0}], ids=["empty", "filled"])
def test_numbers_beside_those_that_the_step_writes(body, given):
    def make():
        log = dict(given)

        def after(i):
            if i in (LATE, LATE + 5):
                log["late"] = i * 0.1
        return types.SimpleNamespace(step=lambda x: body(log, x), batch=lambda i: (torch.randn(3),), holds=lambda: [log], after=after)
    twins.compare(make, STEPS, verify={"first": True, "rate": 0.0})


class Callback:
    def __init__(self, order, k):
        self.order, self.k, self.calls = order, k, 0

    def __call__(self, x):
        self.calls += 1
        return x * self.k + self.calls


class Computed(Callback):
    @property
    def order(self):
        return -self.k

    @order.setter
    def order(self, value):
        self.given = value


BY = operator.attrgetter("order")
ORDERS = {
    "sorted": lambda all: sorted(all, key=BY),
    "reversed": lambda all: sorted(all, key=BY, reverse=True),
    "least": lambda all: [min(all, key=BY)],
    "greatest": lambda all: [max(tuple(all), key=BY, default=None)],
    "by_two": lambda all: sorted(all, key=operator.attrgetter("order", "k")),
}
EDITS = {
    "order": lambda all: setattr(all[0], "order", 9),
    "factor": lambda all: setattr(all[1], "k", 4.0),
    "appended": lambda all: all.append(Callback(-1, 3.0)),
    "replaced": lambda all: all.__setitem__(0, Callback(7, 3.0)),
}


@pytest.mark.parametrize("kind", [Callback, Computed])
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_callbacks_in_the_order_of_an_attribute(order, edit, kind):
    def make():
        callbacks = [kind(2, 1.5), kind(1, 0.5), kind(3, 2.0)]

        def step(x):
            for callback in order(callbacks):
                x = callback(x)
            return x.sum()
        return types.SimpleNamespace(step=step, batch=lambda i: (torch.randn(3),), holds=lambda: [[c.calls for c in callbacks]],
                                     after=lambda i: edit(callbacks) if i == LATE else None)
    step = twins.compare(make, STEPS, verify={"first": True, "rate": 0.0})
    if kind is Callback:
        assert step.stats["replayed"] >= STEPS / 2, step.explain()


def cleared(kept):
    kept.clear()


def popped(kept):
    while kept:
        kept.popitem()


def kept_apart(kept):
    kept.clear()
    kept["last"] = torch.tensor(3.0)


@pytest.mark.parametrize("empty, outcome", [(cleared, None), (popped, None), (kept_apart, "host_effect")])
@pytest.mark.parametrize("by", ["name", "parameter"])
def test_a_dict_that_is_emptied_before_the_step_ends(by, empty, outcome):
    """Of what SAM climbs by, or of what hooks leave; the program puts something there late."""
    def play(wrap):
        torch.manual_seed(0)
        net, kept, seen = nn.Linear(3, 3), {}, []
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

        def train(x):
            net(x).square().mean().backward()
            for name, p in net.named_parameters():
                kept[name if by == "name" else p] = p.grad * 0.05
                p.data.add_(kept[name if by == "name" else p])
            optimizer.zero_grad()
            net(x).square().mean().backward()
            for name, p in net.named_parameters():
                p.data.sub_(kept[name if by == "name" else p])
            added = len(kept)
            empty(kept)
            optimizer.step()
            optimizer.zero_grad()
            return added

        step = wrap(train)
        for i in range(STEPS):
            if i == LATE:
                kept["other"] = torch.tensor(1.0)
            seen.append((step(torch.full((2, 3), 0.1 * i)), list(map(str, kept)), twins.bits(net), twins.bits(list(kept.values()))))
        return seen, step

    step = twins.played_alike(play)
    if outcome is None:  # but for the call that takes away what the program has put there
        assert step.stats["replayed"] > STEPS // 2, step.explain()
    else:
        twins.is_refused(step, {outcome})

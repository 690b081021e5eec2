"""State that a step keeps in the program: tensors, numbers and objects that it assigns or appends, and tensors that the program
exchanges between calls. Replays read them where they stand and leave what the step leaves; what nobody could tell is refused.
"""
import array
import collections
import dataclasses
import random
import types

import numpy as np
import pytest
import torch
import torch.nn as nn

import steptape
from twins import bits, codes_of

CALLS = 24
REPLAYS = None
CASES = []


def case(outcome=REPLAYS):
    """Decorator: makes a program anew, as (step, what the program holds, what it does before call i or None)."""
    def add(make):
        CASES.append(pytest.param(make, outcome, id=make.__name__))
        return make
    return add


def batch(i):
    return torch.randn(2, 3, generator=torch.Generator().manual_seed(i))


def full(i):
    return torch.full((2, 3), float(i))


def snapshot(value):
    """Bits, and which objects are the same."""
    if isinstance(value, torch.Tensor):
        return (value.dtype, value.shape, value.detach().numpy().tobytes())
    if isinstance(value, (list, tuple, collections.deque)):
        return [type(value).__name__, *map(snapshot, value)]
    if isinstance(value, dict):
        return {key: snapshot(item) for key, item in value.items()}
    return (type(value).__name__, repr(value))


def play(make, wrap):
    torch.manual_seed(0)
    step, held, between = (*make(), None)[:3]
    step = wrap(step)
    seen = []
    for i in range(CALLS):
        if between is not None:
            between(i)
        seen.append((snapshot(step(batch(i))), snapshot(held())))
    return seen, step


def training(m):
    opt = torch.optim.SGD(m.parameters(), .1)
    def step(x):
        loss = m(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()
    return step


@case()
def lstm_tuple():
    o = types.SimpleNamespace()
    o.cell = nn.LSTMCell(3, 4)
    o.opt = torch.optim.SGD(o.cell.parameters(), .1)
    o.state = (torch.zeros(2, 4), torch.zeros(2, 4))
    def step(x):
        h, c = o.cell(x, o.state)
        loss = h.pow(2).mean()
        o.opt.zero_grad()
        loss.backward()
        o.opt.step()
        o.state = (h.detach(), c.detach())
        return loss.detach()
    return step, lambda: o.state


@case()
def lstm_list():
    o = types.SimpleNamespace()
    o.cell = nn.LSTMCell(3, 4)
    o.opt = torch.optim.SGD(o.cell.parameters(), .1)
    o.state = [torch.zeros(2, 4), torch.zeros(2, 4)]
    def step(x):
        h, c = o.cell(x, tuple(o.state))
        loss = h.pow(2).mean()
        o.opt.zero_grad()
        loss.backward()
        o.opt.step()
        o.state = [h.detach(), c.detach()]
        return loss.detach()
    return step, lambda: o.state


@case()
def lstm_list_unpacked():
    o = types.SimpleNamespace()
    o.cell = nn.LSTMCell(3, 4)
    o.opt = torch.optim.SGD(o.cell.parameters(), .1)
    o.state = [torch.zeros(2, 4), torch.zeros(2, 4)]
    def step(x):
        h, c = o.state
        h, c = o.cell(x, (h, c))
        loss = h.pow(2).mean()
        o.opt.zero_grad()
        loss.backward()
        o.opt.step()
        o.state[0], o.state[1] = h.detach(), c.detach()
        return loss.detach()
    return step, lambda: o.state


@case()
def nested_dict():
    s = {"a": {"h": torch.zeros(2, 3)}}
    def step(x):
        s["a"]["h"] = s["a"]["h"] * .5 + x
        return s["a"]["h"].sum()
    return step, lambda: s


@case()
def module_attr():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(3, 3)
            self.h = torch.zeros(2, 3)
            self.hs = [torch.zeros(2, 3), torch.zeros(2, 3)]
            self.register_buffer("b", torch.zeros(2, 3))
        def forward(self, x):
            y = self.l(x) + self.h + self.hs[0] + self.hs[1] * 2
            self.h = y.detach() * .3
            self.hs[1] = self.hs[0]
            self.hs[0] = y.detach() * .1
            return y
    m = M()
    return training(m), lambda: (m.h, m.hs, m.b, list(m.parameters()))


def of_buffers(buffers, forward, between=None):
    """A module that makes something of `buffers` in each call."""
    def make():
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.l = nn.Linear(3, 3)
                for name, tensor in buffers().items():
                    self.register_buffer(name, tensor)
        M.forward = forward
        m = M()
        return training(m), m.state_dict, None if between is None else lambda i: between(i, m)
    return make


def rebinds(self, x):
    y = self.l(x) + (1.0 if self.b is None else self.b)
    self.b = y.detach() * .3
    return y


def averages(self, x):
    y = self.l(x)
    self.mean = .9 * self.mean + .1 * y.detach().mean(0)
    self.var = .9 * self.var + .1 * y.detach().var(0)
    self.n += 1
    return (y - self.mean) / (self.var + 1e-3).sqrt()


def leaves(self, x):
    y = self.l(x)
    self.last = y.detach()
    return y


def sets_entry(self, x):
    y = self.l(x) + self.b
    self._buffers["b"] = y.detach() * .3
    return y


def registers(self, x):
    y = self.l(x) + self.b
    self.register_buffer("b", y.detach() * .3)
    return y


def sets_data(self, x):
    y = self.l(x) + self.b
    self.b.data = y.detach() * .3
    return y


def edits(i, m):
    if i % 7 == 6:
        m.b = torch.ones(2, 3)
    if i == 15:
        m.b.mul_(2)
    if i == 18:
        m.load_state_dict({key: value + .01 for key, value in m.state_dict().items()})


def other_shapes(i, m):
    if i in (10, 16):
        m.b = torch.zeros(3) if i == 10 else m.b.double()


def gone_for_a_call(i, m):
    if i in (12, 13):
        m.b = None if i == 12 else torch.zeros(2, 3)


def one():
    return {"b": torch.zeros(2, 3)}


BUFFERS = {
    "rebound": (of_buffers(one, rebinds), REPLAYS),
    "edited between": (of_buffers(one, rebinds, edits), REPLAYS),
    "of another shape": (of_buffers(one, rebinds, other_shapes), REPLAYS),
    "gone for a call": (of_buffers(one, rebinds, gone_for_a_call), REPLAYS),
    "several": (of_buffers(lambda: {"mean": torch.zeros(3), "var": torch.ones(3), "n": torch.tensor(0)}, averages), REPLAYS),
    "never read": (of_buffers(lambda: {"last": torch.zeros(2, 3)}, leaves), REPLAYS),
    "in its dict": (of_buffers(one, sets_entry), REPLAYS),
    "registered again": (of_buffers(one, registers), REPLAYS),
    "of other memory": (of_buffers(one, sets_data), REPLAYS),
}
CASES.extend(pytest.param(make, outcome, id=f"buffer {name}") for name, (make, outcome) in BUFFERS.items())


def of_made(body):
    """A step that writes to a tensor which it makes of numbers of the host's."""
    def make():
        w, state = torch.zeros(3), {"n": 0, "kept": None, "other": torch.zeros(3)}
        def step(x):
            state["n"] += 1
            result = body(w, state, x)
            return w.sum() if result is None else result
        return step, lambda: (w, state)
    return make


def sums(w, state, x):
    total = torch.tensor(0.)
    for row in x:
        total.add_(row.abs().sum())
    w.sub_(x[0] / (total + 1))


def scales_numbers(w, state, x):
    made = torch.tensor([state["n"] * .5, 1., 2.])
    made.mul_(2).add_(x[0])
    w.sub_(made, alpha=.001)
    return made


def keeps_anew(w, state, x):
    state["kept"] = torch.tensor(0.)
    state["kept"].add_(x.sum())


def keeps_once(w, state, x):
    if state["kept"] is None:
        state["kept"] = torch.tensor(0.)
    state["kept"].add_(x.sum())


def sets_items(w, state, x):
    made = torch.tensor([1., 2., 3.])
    made[0], made[1] = x[0, 0], 5
    w.sub_(made * .01)


def sets_a_moving_item(w, state, x):
    made = torch.tensor([0., 0., 0.])
    made[state["n"] % 2] = 1.
    w.sub_(made * .01)


def writes_out(w, state, x):
    made = x.new_tensor([1., 2., 3.])
    torch.add(x[0], made, out=made)
    w.sub_(made * .01)


def writes_an_index(w, state, x):
    made, index = torch.tensor([1., 2., 3.]), torch.tensor([2, 1, 0])
    index.add_(1).remainder_(3)
    w.sub_(made[index] * .01)
    made.zero_()
    return index


def holds_a_read(w, state, x):
    made = torch.tensor([x.sum().item(), 1., 2.])
    made.mul_(2.)
    w.sub_(made * .01)
    return made


def takes_a_place(w, state, x):
    made = torch.tensor([1., 1., 2.])
    made += state["other"] * .5
    state["other"] = made


def through_a_view(w, state, x):
    made = torch.tensor([1., 1., 2.])
    made[1:].mul_(x[0, 0])
    w.add_(made * .01)


def made_by(make):
    def body(w, state, x):
        made = make(x)
        made += x.sum()
        w.sub_(made * .01)
        return made
    return body


CASES.extend(pytest.param(of_made(made_by(make)), REPLAYS, id=f"host-made by {name}") for name, make in {
    "Tensor": lambda x: torch.Tensor([0, 1, 2]), "FloatTensor": lambda x: torch.FloatTensor([0, 1, 2]), "a row": lambda x: torch.Tensor([[0, 1, 2]])[0],
    "a tuple": lambda x: torch.Tensor((0, 1, 2)), "as_tensor": lambda x: torch.as_tensor([0., 1., 2.]), "asarray": lambda x: torch.asarray([0., 1., 2.]),
    "new": lambda x: x.new([0., 1., 2.]), "a number that moves": lambda x: torch.FloatTensor([x.size(0), x.sum().item(), 2.]),
    "Parameter": lambda x: torch.nn.Parameter(torch.Tensor([0., 1., 2.])).data}.items())

CASES.extend(pytest.param(of_made(body), REPLAYS, id=f"host-made {body.__name__}") for body in (
    sums, scales_numbers, keeps_anew, keeps_once, sets_items, sets_a_moving_item, writes_out, writes_an_index,
    holds_a_read, takes_a_place, through_a_view))


@case()
def class_attr():
    class R:
        h = torch.zeros(2, 3)
    def step(x):
        R.h = R.h * .5 + x
        return R.h.sum()
    return step, lambda: R.h


@case()
def nonlocal_cell():
    h = torch.zeros(2, 3)
    def step(x):
        nonlocal h
        h = h * .5 + x
        return h.sum()
    return step, lambda: h


@case()
def swap():
    o = types.SimpleNamespace(prev=torch.zeros(2, 3), cur=torch.zeros(2, 3))
    def step(x):
        o.prev, o.cur = o.cur, o.prev * .5 + x
        return (o.cur - o.prev).sum()
    return step, lambda: (o.prev, o.cur)


@case()
def shared_result():
    o = types.SimpleNamespace()
    o.a = o.b = None
    def step(x):
        y = x * 2
        o.a = y
        o.b = y
        return y
    r = []
    return step, lambda: (o.a, o.b, o.a is o.b)


@case()
def result_is_place():
    o = types.SimpleNamespace()
    o.a = None
    last = []
    def step(x):
        o.a = x * 2
        return o.a
    return step, lambda: o.a


@case("host_effect")
def identity_test():
    init = torch.ones(2, 3)
    o = types.SimpleNamespace(h=init)
    def step(x):
        y = x * (2 if o.h is init else 3)
        return y + o.h
    return step, lambda: o.h, lambda i: setattr(o, "h", init if i % 4 == 0 else full(i))


@case()
def reset_shape():
    o = types.SimpleNamespace(h=torch.zeros(1, 3))
    def step(x):
        o.h = o.h * .5 + x.sum(0, keepdim=True)
        return o.h.sum()
    return step, lambda: o.h, lambda i: setattr(o, "h", torch.ones(1 if i < 12 else 2, 3)) if i % 6 == 0 else None


@case()
def none_then_tensor():
    o = types.SimpleNamespace(h=None)
    def step(x):
        h = torch.zeros_like(x) if o.h is None else o.h
        o.h = h * .5 + x
        return o.h.sum()
    return step, lambda: o.h, lambda i: setattr(o, "h", None) if i % 8 == 0 else None


@case()
def mutated_outside():
    o = types.SimpleNamespace(h=torch.zeros(2, 3))
    def step(x):
        o.h = o.h * .5 + x
        return o.h.sum()
    return step, lambda: o.h, lambda i: o.h.mul_(2)


@case()
def detach_inside():
    o = types.SimpleNamespace(h=torch.zeros(2, 4))
    net = nn.GRUCell(3, 4)
    opt = torch.optim.SGD(net.parameters(), .1)
    def step(x):
        h = o.h.detach()
        o.h = net(x, h)
        loss = o.h.pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()
    return step, lambda: (o.h, list(net.parameters()))


@case("host_effect")
def tensor_tag():
    o = types.SimpleNamespace(h=torch.zeros(2, 3))
    o.h.tag = 1.0
    def step(x):
        return x * o.h.tag + o.h
    def between(i):
        o.h = full(i)
        o.h.tag = float(i % 3)
    return step, lambda: o.h, between


@case()
def tensor_tag_argument():
    def step(x):
        return x * getattr(x, "tag", 7.0)
    return step, lambda: None


@case()
def deque_tensors():
    d = collections.deque(maxlen=3)
    def step(x):
        d.append(x * 2)
        return x.sum()
    return step, lambda: list(d)


@case()
def deque_numbers():
    d = collections.deque(maxlen=3)
    def step(x):
        d.append(x.sum().item())
        return x.sum()
    return step, lambda: list(d)


@case()
def cleared_outside():
    d = []
    def step(x):
        d.append(x.sum().item())
        return x * 2
    return step, lambda: list(d), lambda i: d.clear() if i % 5 == 0 else None


@case()
def plus_equals():
    o = types.SimpleNamespace(d=[])
    def step(x):
        o.d += [x.sum().item(), 1]
        return x * 2
    return step, lambda: list(o.d)


@case()
def log_lists():
    logs = {"loss": [], "n": []}
    def step(x):
        logs["loss"].append(x.sum().item())
        logs["n"].append(x.size(0))
        return x * 2
    return step, lambda: logs


@case()
def log_defaultdict():
    logs = collections.defaultdict(list)
    def step(x):
        logs["loss"].append(x.sum().item())
        return x * 2
    return step, lambda: dict(logs)


@case()
def objects():
    o = types.SimpleNamespace()
    o.out = None
    class Out:
        def __init__(self, loss, n):
            self.loss, self.n, self.more = loss, n, [loss, {"k": n}]
    def step(x):
        y = x.sum()
        o.out = Out(y, 3)
        return y
    return step, lambda: (vars(o.out), type(o.out).__name__)


@case()
def dataclass_out():
    @dataclasses.dataclass
    class Out:
        loss: torch.Tensor
        n: float
    o = types.SimpleNamespace()
    o.out = None
    def step(x):
        y = x.sum()
        o.out = Out(y, y.item())
        return y
    return step, lambda: vars(o.out)


@case("host_effect")
def slots_out():
    class Out:
        __slots__ = ("loss",)
    o = types.SimpleNamespace()
    o.out = None
    def step(x):
        y = x.sum()
        o.out = Out()
        o.out.loss = y
        return y
    return step, lambda: o.out.loss


@case()
def shared_list():
    o = types.SimpleNamespace()
    o.a = o.b = None
    def step(x):
        o.a = o.b = [x.sum()]
        return x.sum()
    return step, lambda: (o.a, o.b, o.a is o.b)


@case()
def appended_twice():
    d = []
    def step(x):
        y = x.sum()
        d.append(y)
        d.append(y)
        return y
    return step, lambda: (list(d), d[-1] is d[-2])


@case()
def appended_tuple():
    d = []
    o = types.SimpleNamespace(n=0)
    def step(x):
        o.n += 1
        d.append((o.n, x.sum().item(), x))
        return x.sum()
    return step, lambda: list(d)


@case()
def parameter_assigned():
    net = nn.Linear(3, 4)
    opt = torch.optim.SGD(net.parameters(), lr=.1)
    o = types.SimpleNamespace(w=None)
    def step(x):
        o.w = net.weight
        loss = net(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()
    return step, lambda: (o.w, o.w is net.weight)


@case()
def views():
    o = types.SimpleNamespace(h=torch.zeros(3), all=torch.zeros(2, 3))
    def step(x):
        o.all = x * 2 + o.h
        o.h = o.all[-1]
        return o.all.sum()
    return step, lambda: (o.h, o.all, o.h.data_ptr() == o.all[-1].data_ptr())


@case()
def views_written():
    o = types.SimpleNamespace(h=torch.zeros(3), all=torch.zeros(2, 3))
    def step(x):
        o.all = x * 2 + o.h
        o.h = o.all[-1]
        return o.all.sum()
    return step, lambda: (o.h, o.all), lambda i: o.h.add_(1)


@case()
def in_place_on_moving():
    o = types.SimpleNamespace(h=torch.zeros(2, 3))
    keep = []
    def step(x):
        o.h.add_(x)
        return o.h.sum()
    def between(i):
        o.h = full(i)
        keep.append(o.h)
    return step, lambda: list(keep), between


@case()
def batch_dict():
    d = {}
    def step(x):
        return d["x"].float() * x + d["m"]
    def between(i):
        d["x"] = torch.full((2, 3), i, dtype=torch.float64 if i % 7 == 0 else torch.float32)
        d["m"] = torch.ones(3) * i
    return step, lambda: None, between


@case()
def becomes_list():
    o = types.SimpleNamespace(h=torch.zeros(2, 3))
    def step(x):
        h = o.h[0] if isinstance(o.h, list) else o.h
        return x + h
    def between(i):
        o.h = [full(i)] if i % 5 == 4 else full(i)
    return step, lambda: None, between


@case()
def numpy_scalar():
    o = types.SimpleNamespace(n=np.float64(1.0))
    def step(x):
        o.n = o.n * 0.5
        return x * float(o.n)
    return step, lambda: o.n


@case()
def deleted():
    o = types.SimpleNamespace()
    o.h = torch.zeros(2)
    def step(x):
        del o.h
        o.h = x * 2
        return x.sum()
    return step, lambda: o.h


@case()
def popped():
    d = [torch.zeros(2, 3)]
    def step(x):
        h = d.pop()
        d.append(h * .5 + x)
        return h.sum()
    return step, lambda: d


@case()
def stack():
    d = []
    def step(x):
        d.append(x)
        y = torch.stack(d).sum()
        d.clear()
        return y
    return step, lambda: d


@case()
def window():
    d = collections.deque([torch.zeros(2, 3)] * 3, maxlen=3)
    def step(x):
        d.append(x)
        return torch.stack(list(d)).sum()
    return step, lambda: list(d)


@case()
def append_read_pop():
    l = [2.0]
    def step(x):
        l.append(1.0)
        y = x * sum(l)
        l.pop()
        return y
    def between(i):
        if i in (10, 16):
            l[0] = 5.0 + i
    return step, lambda: list(l), between


@case()
def add_read_discard():
    l = {2.0}
    def step(x):
        l.add(1.0)
        y = x * sum(l)
        l.discard(1.0)
        return y
    def between(i):
        if i in (10, 16):
            l.clear()
            l.add(5.0 + i)
    return step, lambda: sorted(l), between


@case()
def update_read():
    l = {"a": 2.0}
    def step(x):
        l.update(b=1.0)
        y = x * sum(l.values())
        del l["b"]
        return y
    def between(i):
        if i in (10, 16):
            l["a"] = 5.0 + i
    return step, lambda: dict(l), between


@case()
def sort_read():
    l = [3.0, 2.0]
    def step(x):
        l.sort()
        return x * l[0]
    def between(i):
        if i in (10, 16):
            l[:] = [9.0, 5.0 + i]
    return step, lambda: list(l), between


@case()
def iadd_read():
    l = [3.0]
    def step(x):
        nonlocal l
        l += [1.0]
        y = x * max(l)
        del l[-1]
        return y
    def between(i):
        if i in (10, 16):
            l[0] = 50.0 + i
    return step, lambda: list(l), between


@case()
def extend_join():
    l = ["a"]
    def step(x):
        l.extend(["b"])
        y = x * len("".join(l))
        l.pop()
        return y
    def between(i):
        if i in (10, 16):
            l[0] = "a" * i
    return step, lambda: list(l), between


@case()
def deque_rotate():
    l = collections.deque([1.0, 2.0, 3.0])
    def step(x):
        l.rotate(1)
        return x * l[0]
    return step, lambda: list(l)


@case()
def iterate_numbers():
    l = [1.0, 2.0]
    def step(x):
        for w in l:
            x = x * w
        return x
    def between(i):
        l[0] = 1.0 + i
        l[1] = 2.0
    return step, lambda: list(l), between


@case()
def iterate_tensors():
    l = [torch.ones(3), torch.ones(3)]
    def step(x):
        for w in l:
            x = x * w
        return x
    def between(i):
        l[0] = torch.full((3,), 1.0 + i)
    return step, lambda: list(l), between


@case()
def values_of_dict():
    l = dict(a=torch.ones(3), b=torch.ones(3))
    def step(x):
        for w in l.values():
            x = x * w
        return x
    def between(i):
        l["b"] = torch.full((3,), 1.0 + i)
    return step, lambda: list(l), between


@case()
def stacked_list():
    l = [torch.ones(3), torch.ones(3)]
    def step(x):
        return torch.stack(l) * x
    def between(i):
        l[i % 2] = torch.full((3,), 1.0 + i)
    return step, lambda: list(l), between


@case("host_effect")
def in_list():
    l = [torch.ones(2, 3)]
    x0 = torch.ones(2, 3)
    def step(x):
        return x * (2 if any(x is t for t in l) else 3)
    return step, lambda: len(l)


@case()
def attributes_are_entries():
    class Entries(dict):
        __getattr__ = dict.__getitem__
        __setattr__ = dict.__setitem__
    o = Entries(h=torch.zeros(2, 3), n=0)
    def step(x):
        o.h = o.h * .5 + x
        o.n += 1
        return o.h.sum()
    def between(i):
        if i % 7 == 6:
            o.h = full(i)
    return step, lambda: dict(o), between


@case()
def items_of_a_deque():
    d = collections.deque([0, 0])
    def step(x):
        d[0], d[1] = x.shape, x.dtype
        return x * 2
    def between(i):
        if i in (14, 18):
            d[0], d[1] = i, i
    return step, lambda: [str(item) for item in d], between


@case()
def updated_to_what_it_was():
    d = {"a": 0, "b": 6}
    def step(x):
        d.update(a=5, b=6)
        return x * 2
    def between(i):
        if i in (14, 18):
            d["b"] = i
    return step, lambda: dict(d), between


@case()
def filled_with_what_it_held():
    d = [1]
    def step(x):
        d.clear()
        d.append(1)
        return x * 2
    def between(i):
        if i in (14, 18):
            d[0] = i
    return step, lambda: list(d), between


@case()
def full_deque_of_equals():
    d = collections.deque([0, 0, 0], maxlen=3)
    def step(x):
        d.append(0)
        return x * 2
    def between(i):
        if i in (14, 18):
            d[1] = i
    return step, lambda: list(d), between


@case()
def items_of_a_module_exchanged():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.masks = [torch.ones(2, 3), torch.ones(2, 3)]
        def forward(self, x):
            return x * self.masks[0] + self.masks[1]
    o = Masked()
    def between(i):
        o.masks[i % 2] = full(i)
    return lambda x: o(x), lambda: o.masks, between


@case("host_effect")
def an_item_popped_from_a_set():
    s = {0.0, 1.0}
    def step(x):
        s.add(s.pop())
        return x * 2
    return step, lambda: sorted(s), None


@pytest.mark.parametrize("make, outcome", CASES)
def test_replays_leave_what_eager_leaves(make, outcome):
    expected, _ = play(make, lambda step: step)
    seen, step = play(make, lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    if outcome is REPLAYS:
        assert step.stats["replayed"] >= CALLS // 2, step.explain()
    else:
        assert step.stats["replayed"] == 0 and outcome in codes_of(step), step.explain()


def window(read, put, now_and_then):
    def make():
        o = types.SimpleNamespace(n=0, seen=collections.deque([], 4), left=None, log=False)
        def step(x):
            o.n += 1
            put(o.seen, x.sum().item() if now_and_then else o.n)
            if o.n % 5 == 0 if now_and_then else o.log:
                o.left = read(o.seen)
            return x * 2
        def between(i):
            o.log = 6 <= i < 12
        return step, lambda: [list(o.seen), o.n, o.left], between
    return make


READS = {"sum": sum, "newest": lambda d: d[-1], "most": max, "length": len, "copy": list}


@pytest.mark.parametrize("now_and_then", (True, False), ids=("now_and_then", "for_a_while"))
@pytest.mark.parametrize("put, replays", ((lambda d, v: d.append(v), True), (lambda d, v: d.extend([v]), True),
                                          (lambda d, v: d.appendleft(v), False)), ids=("append", "extend", "left"))
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_full_window_that_some_calls_read_is_appended_to_once(read, put, replays, now_and_then):
    make = window(read, put, now_and_then)
    expected, _ = play(make, lambda step: step)
    seen, step = play(make, lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    assert (step.stats["replayed"] > 0) is replays, step.explain()
    assert replays or codes_of(step) == {"host_effect"}


def full_queue():
    return collections.deque([1.0, 2.0, 3.0], maxlen=3)


# what a step does to a container, and by which name it is refused; None: it replays, though the number is another one in each call
ASSIGNED_AND_APPENDED = {
    "first_by_a_method": (lambda: [1.0, 2.0], "s.__setitem__(0, v); s.append(1.0)", "host_effect"),
    "first_and_moving": (lambda: [1.0, 2.0], "s[0] = v; s.append(v * 2)", None),
    "first_by_operator": (lambda: [1.0, 2.0], "s[0] = v; s.append(1.0)", None),
    "first_in_place": (lambda: [1.0, 2.0], "s[0] += v; s.append(1.0)", None),
    "counted": (lambda: [0], "s[0] += 1; s.append(1.0)", None),
    "extended": (lambda: [1.0, 2.0], "s[0] = v; s.extend([1.0, 2.0])", None),
    "extended_in_place": (lambda: [1.0, 2.0], "s[0] = v; t = s; t += [1.0]", None),
    "two": (lambda: [1.0, 2.0, 3.0], "s[0] = v; s[1] = v * 2; s.append(1.0)", None),
    "the_other_way_round": (lambda: [1.0, 2.0], "s.append(1.0); s[0] = v", "host_effect"),
    "both_sides": (lambda: [1.0, 2.0], "s[0] = v; s.append(1.0); s[1] = v + 1", "host_effect"),
    "newest": (lambda: [1.0, 2.0], "s[-1] = v; s.append(0.0)", "host_effect"),
    "newest_in_place": (lambda: [0.0], "s[-1] += v; s.append(0.0)", "host_effect"),
    "newest_twice": (lambda: [0.0], "s[-1] = v; s.append(0.0); s[-1] = v + 1", "host_effect"),
    "newest_but_one": (lambda: [0.0], "s.append(0.0); s[-2] = v", "host_effect"),
    "what_was_appended": (lambda: [0.0], "s.append(0.0); s[-1] = v", None),
    "goes_on_from_the_newest": (lambda: [0.0], "s.append(s[-1] * 0.5 + v)", None),
    "no_such_item": (lambda: [0.0], "try:\n    s[10**30] = v\nexcept IndexError:\n    s.append(1.0)", None),
    "no_such_item_from_the_end": (lambda: [0.0], "try:\n    s[-10**30] = v\nexcept IndexError:\n    s.append(1.0)", None),
    "no_such_item_of_a_queue": (full_queue, "try:\n    s[10**30] = v\nexcept IndexError:\n    s.append(1.0)", None),
    "far_index": (lambda: [0.0], "s.append(1.0); s[0] = v if len(s) < 10**30 else s[10**30]", "host_effect"),
    "unbounded_queue": (lambda: collections.deque([1.0, 2.0]), "s[0] = v; s.append(1.0)", None),
    "newest_of_a_queue": (lambda: collections.deque([1.0, 2.0]), "s[-1] += v; s.append(0.0)", "host_effect"),
    "full_queue": (full_queue, "s[0] = v; s.append(1.0)", None),
    "full_queue_then": (full_queue, "s.append(1.0); s[0] = v", None),
    "middle_of_a_full_queue": (full_queue, "s[1] = v; s.append(1.0)", None),
    "newest_of_a_full_queue": (full_queue, "s[-1] = v; s.append(1.0)", None),
    "now_and_then": (lambda: [1.0, 2.0], "s[0] = v\nif v > 4: s.append(v)", None),
    "assigned_now_and_then": (lambda: [1.0, 2.0], "s.append(v)\nif v > 4: s[0] = v", "host_effect"),
}


@pytest.mark.parametrize("late", (False, True), ids=("moves_at_once", "moves_late"))
@pytest.mark.parametrize("kept", ASSIGNED_AND_APPENDED)
def test_items_of_what_is_appended_to_are_assigned_too(kept, late):
    make, put, refused = ASSIGNED_AND_APPENDED[kept]

    def run(wrap):
        state = types.SimpleNamespace(kept=make())
        names = {}
        lines = "".join(f"\n    {line}" for line in put.split("\n"))
        exec(f"def put(s, v):{lines}\n", names)

        def train(x):
            names["put"](state.kept, x[0].item())
            return x * 2

        step = wrap(train)
        seen = []
        for i in range(30):
            step(torch.full((3,), float(i * 7 % 11) if i > 15 or not late else 2.0))
            seen.append(repr(state.kept))
        return seen, step

    expected, _ = run(lambda step: step)
    seen, step = run(lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    assert step.stats["replayed"] > 5 if refused is None else refused in codes_of(step), step.explain()


KEPT = {
    "appended_to_a_full_queue": (lambda: collections.deque([0.0] * 3, maxlen=3), lambda s, v: s.append(v)),
    "appended_at_its_left": (lambda: collections.deque([0.0] * 3, maxlen=3), lambda s, v: s.appendleft(v)),
    "extended_with_two": (lambda: collections.deque([0.0] * 3, maxlen=3), lambda s, v: s.extend([v, v])),
    "extended_with_more_than_it_keeps": (
        lambda: collections.deque([0.0] * 3, maxlen=3), lambda s, v: s.extend([v] * 4)),
    "appended_twice": (lambda: collections.deque([0.0] * 3, maxlen=3), lambda s, v: (s.append(v), s.append(1.0))),
    "appended_in_place": (lambda: collections.deque([0.0] * 3, maxlen=3), lambda s, v: s.__iadd__([v])),
    "queue_of_pairs": (lambda: collections.deque([(0.0, 0)] * 2, maxlen=2), lambda s, v: s.append((v, int(v)))),
    "queue_with_no_limit": (collections.deque, lambda s, v: s.append(v)),
    "queue_turned": (lambda: collections.deque([0.0, 1.0, 2.0]), lambda s, v: (s.rotate(), s.__setitem__(0, v))),
    "window_cut": (lambda: [0.0] * 3, lambda s, v: (s.append(v), s.__delitem__(slice(None, -3)))),
    "window_popped": (lambda: [0.0] * 3, lambda s, v: (s.append(v), s.pop(0))),
    "window_inserted": (lambda: [0.0] * 3, lambda s, v: (s.insert(0, v), s.pop())),
    "window_assigned": (lambda: [0.0] * 3, lambda s, v: s.__setitem__(slice(None), [*s[1:], v])),
    "window_of_a_flag": (lambda: [0.0] * 3, lambda s, v: (s.append(float(v > 1)), s.pop(0))),
    "entries_popped_and_set": (lambda: {"a": 0.0, "b": 1.0}, lambda s, v: (s.pop("b"), s.__setitem__("b", v))),
    "entry_that_is_a_pair": (lambda: {"a": (0.0, 0.0)}, lambda s, v: s.update(a=(v, s["a"][0]))),
    "nested_pair": (lambda: {"a": ((0.0,), 0)}, lambda s, v: s.update(a=((v,), 0))),
    "bytes": (lambda: bytearray(2), lambda s, v: s.__setitem__(0, int(v))),
    "bytes_appended": (lambda: bytearray(2), lambda s, v: (s.append(int(v)), s.pop(0))),
    "packed_array": (lambda: array.array("d", [0.0, 0.0]), lambda s, v: s.__setitem__(1, v)),
    "array_of_numpy": (lambda: np.zeros(2), lambda s, v: s.__setitem__(1, v)),
    "set_of_one": (lambda: {0.0}, lambda s, v: (s.clear(), s.add(v))),
    "sorted": (lambda: [0.0, 1.0], lambda s, v: (s.__setitem__(0, v), s.sort())),
    "reversed": (lambda: [0.0, 0.0], lambda s, v: (s.__setitem__(0, v), s.reverse())),
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("is_read", (False, True), ids=("left", "read"))
def test_what_looks_as_it_did_is_written_all_the_same(kept, is_read, seed):
    """The number is 0 in all first calls and often later, so that recordings find what they leave there."""
    make, put = KEPT[kept]

    def run(wrap):
        state = types.SimpleNamespace(kept=make())
        draws = random.Random(seed)

        def train(x):
            before = repr(state.kept) if is_read else ""
            put(state.kept, x[0].item())
            return x * 2, before

        step = wrap(train)
        seen = []
        for i in range(40):
            value = 0.0 if i < 5 or draws.random() < 0.6 else draws.choice([1.0, 2.0, 3.0])
            result = step(torch.full((3,), value))
            if i % 13 == 12:
                put(state.kept, 2.0)
            seen.append(repr((result, state.kept)))
        return seen, step

    expected, _ = run(lambda step: step)
    seen, step = run(lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()


@pytest.mark.parametrize("count", (1, 2, 3, 5))
def test_a_full_queue_is_appended_to_by_replays(count):
    def run(wrap):
        window = collections.deque([1.0] * 3, maxlen=3)

        def train(x):
            for _ in range(count):
                window.append(x[0].item() > 0)
            return x * 2

        step = wrap(train)
        seen = []
        for i in range(24):
            step(torch.full((3,), float(i % 5 > 1)))
            if i == 12:
                window.append("other")
            seen.append(list(window))
        return seen, step

    expected, _ = run(lambda step: step)
    seen, step = run(lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    assert step.stats["replayed"] >= CALLS // 2, step.explain()


class MakesItsStateAnew(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            before = self.state[p]
            self.state[p] = {"mean": before.get("mean", torch.zeros_like(p)) * 0.9 + p.grad}
            p.sub_(self.state[p]["mean"], alpha=0.01)


def with_a_dict_of_each_call():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = MakesItsStateAnew(model.parameters())

    def train(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return train, lambda: [optimizer.state[p]["mean"] for p in model.parameters()]


def with_a_list_of_each_call():
    model = torch.nn.Linear(3, 2)
    model.register_buffer("mean", torch.zeros(2, 3))

    def train(x):
        model.mean = model.mean + x
        model.last = model.mean
        model.kept = [model.mean, model.mean * 2]
        return model.mean.sum()
    return train, lambda: model.kept


@pytest.mark.parametrize("make, is_refused", [(with_a_dict_of_each_call, True), (with_a_list_of_each_call, False)])
def test_a_step_that_leaves_what_it_reads_in_a_new_container(make, is_refused):
    """It does not begin anew for ever: what is found in another place in each call is refused, with the line; a module's attribute is one place."""
    (train, left), (eager, expected) = make(), make()
    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(60):
        x = torch.full((2, 3), i / 60)
        assert bits([step(x), *left()]) == bits([eager(x), *expected()])
    assert step.stats["recorded"] < 40, step.explain()
    assert ("host_effect" in codes_of(step)) == is_refused == (step.stats["replayed"] < 40), step.explain()


def test_tensors_that_come_to_share_memory_where_a_call_is_audited():
    """Two that the step only reads: a plan holds for them, and so does the audit of a call that decides by a number."""
    def make():
        torch.manual_seed(0)
        state = types.SimpleNamespace(kept=torch.randn(4, 4), seen=torch.randn(4, 4), mean=torch.zeros(4, 4))

        def step(x):
            seen = state.seen + 0
            state.mean.data = x * 1
            if x.sum().item() > 5:
                state.kept = x * 1
            return state.kept, seen

        return state, step

    for late in (20, 21, 22, 23, 24, 25):
        (plain, eager), (taped, body) = make(), make()
        step = steptape.wrap(body, verify={"first": True, "rate": 0.0})  # what moves is audited all the same
        for call in range(30):
            if call in (17, late):
                plain.seen, taped.seen = plain.kept.t(), taped.kept.t()
            x = torch.randn(4, 4, generator=torch.Generator().manual_seed(call))
            assert bits(eager(x)) == bits(step(x)), call
            assert bits([plain.kept, plain.seen, plain.mean]) == bits([taped.kept, taped.seen, taped.mean]), call
        assert step.stats["replayed"] > 0 and step.stats["audits"] > 0, step.explain()

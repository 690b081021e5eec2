"""Values of tensors that the host reads: returned, decided by, put into an op, or only looked at.

A line marked `# here` is the one that a refusal must name.
"""
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import steptape
from classification import LATE, Program, batch, check, learner, marked_lines
from twins import bits, is_as_pinned, is_refused, played_alike


def signed_batch(positive):
    """Batches whose sum is positive in those calls for which positive(i)."""
    def arguments(i):
        x, y = batch(i)
        return x.abs() if positive(i) else -x.abs(), y
    return arguments


def appended(values):
    made = []
    for value in values:
        made.append(value)
    made.insert(1, values[0])
    made.extend(values)
    return made


def put(pairs):
    made = {}
    for key, value in pairs:
        made[key] = value
        made.setdefault(key + "s", []).append(value)
    return made


READS = {  # what the step returns: (function of loss and count, share of calls that replay or None)
    "item": (lambda loss, count: loss.item(), 0.9),
    # What float() and int() give cannot be followed: item() is the remedy.
    "float": (lambda loss, count: float(loss), None),
    "int": (lambda loss, count: int(count), None),
    "count_item": (lambda loss, count: count.item(), 0.9),
    "tuple": (lambda loss, count: (loss.item(), count.item()), 0.9),
    "dict": (lambda loss, count: {"loss": loss.item(), "right": count.item()}, 0.9),
    "beside_the_tensor": (lambda loss, count: (loss, loss.item()), 0.9),
    "read_twice": (lambda loss, count: (loss.item(), loss.item()), 0.9),
    "bool": (lambda loss, count: bool(count > 2), None),
    "appended": (lambda loss, count: appended([loss.item(), count.item(), loss.item()]), 0.9),
    "put_into_a_dict": (lambda loss, count: put([("loss", loss.item()), ("count", count.item())]), 0.9),
    "divided": (lambda loss, count: count.item() / 8, None),
    "sum": (lambda loss, count: loss.item() + count.item(), None),
    "rounded": (lambda loss, count: round(loss.item(), 3), 0.9),
    "text": (lambda loss, count: f"{loss.item():.4f}", None),
    "compared": (lambda loss, count: loss.item() > 1.3, None),
    "largest": (lambda loss, count: max(loss.item(), 1.3), None),
    "exponential": (lambda loss, count: math.exp(loss.item()), None),
    "list": (lambda loss, count: torch.stack([loss, count]).tolist(), None),
    "numpy": (lambda loss, count: loss.numpy(), 0.9),
    "copied_numpy": (lambda loss, count: loss.numpy().copy(), None),
    "numpy_scalar": (lambda loss, count: np.float64(loss.item()), None),
    "length": (lambda loss, count: len(torch.nonzero(count > torch.arange(8))), None),
}


REFUSED_READS = {"text": "host_effect", "copied_numpy": "host_read"}  # all others replay


@pytest.mark.parametrize("read, share", READS.values(), ids=READS)
def test_a_value_that_is_read_and_returned(read, share, request):
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            right = (model(x).argmax(1) == y).sum()
            return read(learn(x, y), right)
        return Program(step=train, held=lambda: [model, optimizer])

    is_as_pinned(check(make, share=share), REFUSED_READS.get(request.node.callspec.id))


DECISIONS = {
    "item": lambda x: x.sum().item() > 0,
    "float": lambda x: float(x.sum()) > 0,
    "bool": lambda x: bool(x.sum() > 0),
    "truth": lambda x: True if (x > 0).all() else False,
    "int": lambda x: int((x > 0).sum()) > 24,
    "equal": lambda x: torch.equal(x, x.abs()),
    "allclose": lambda x: torch.allclose(x, x.abs()),
    "tolist": lambda x: x.sum(1).tolist()[0] > 0,
    "numpy": lambda x: x.numpy().sum() > 0,
    "array": lambda x: np.asarray(x).sum() > 0,
    "iteration": lambda x: sum(row.item() for row in x[0]) > 0,
    "two": lambda x: x[0, 0].item() + x[0, 1].item() > 0,
    "norm": lambda x: sum(row.norm().item() ** 2 for row in x) ** 0.5 * x[0, 0].item() > 0,
    "membership": lambda x: 1.0 in (x > 0).float(),
    "format": lambda x: "-" not in f"{x.sum().item():.3f}",
    "shape": lambda x: x[x > 0].shape[0] > 0,
    "maximum": lambda x: max(x[0, 0], torch.zeros(())).item() > 0,
}
# A read without an op of its own is seen by what is read: named by the code of what may be written.
DECIDED = {"host_read", "unstable_op_stream", "data_dependent_shape", "written_outside"}


def deciding(decide):
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            if decide(x):
                return learn(x * 2, y)
            return learn(x, y)
        return Program(step=train, held=lambda: [model, optimizer])
    return make


# In these what is read is another value in each call, or is not seen.
NEVER_THE_SAME = {"numpy": "host_read", "array": "host_read",
                  "format": "unstable_op_stream", "shape": "unstable_op_stream"}


@pytest.mark.parametrize("decide", DECISIONS.values(), ids=DECISIONS)
def test_a_decision_on_a_tensor_that_goes_both_ways(decide, request):
    refusal = NEVER_THE_SAME.get(request.node.callspec.id)
    step = check(deciding(decide), arguments=signed_batch(lambda i: i % 2),
                 codes=DECIDED if refusal else None, share=None if refusal else 0.9)
    is_as_pinned(step, refusal)


@pytest.mark.parametrize("decide", DECISIONS.values(), ids=DECISIONS)
def test_a_decision_on_a_tensor_that_goes_the_other_way_late(decide):
    check(deciding(decide), arguments=signed_batch(lambda i: i < LATE or i % 3 == 0))


def test_a_rare_condition_is_checked_in_every_replay():
    """A truth value that was the same in the probes: a replay in which it differs is undone."""
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            loss = learn(x, y)
            if (y > 3).any():
                raise ValueError("label out of range")
            return loss
        return Program(step=train, held=lambda: [model, optimizer])

    def arguments(i):
        x, y = batch(i)
        return (x, torch.full_like(y, 3)) if i == LATE else (x, y)

    check(make, arguments=arguments, share=0.9)


def test_a_rare_condition_that_holds_late_runs_the_other_branch():
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            if (x.abs().amax() > 100).item():
                x = x.clamp(-100, 100)
            return learn(x, y)
        return Program(step=train, held=lambda: [model, optimizer])

    def arguments(i):
        x, y = batch(i)
        return (x * 1000, y) if i in (LATE, LATE + 3) else (x, y)

    check(make, arguments=arguments, share=0.9)


ENTERING = {  # a read that enters an op: (function of a tensor, share or None)
    "multiplied": (lambda x: x * x.abs().amax().item(), 0.9),
    "divided": (lambda x: x / x.norm().item(), 0.9),
    "float": (lambda x: x - float(x.mean()), None),
    "int": (lambda x: x * int((x > 0).sum()), None),
    "derived": (lambda x: x * (1.0 / max(x.norm().item(), 1.0)), None),
    "squared": (lambda x: x * x.mean().item() ** 2, None),
    "as_a_tensor": (lambda x: x * torch.tensor(x.mean().item()), None),
    "as_a_list": (lambda x: x * torch.tensor(x.mean(0).tolist()), None),
    "through_numpy": (lambda x: x + torch.from_numpy(x.numpy().mean(0)), None),
    "full": (lambda x: x + torch.full((6,), x.mean().item()), None),
    "index": (lambda x: x * x[int(x[0].argmax())].mean(), None),
    "size": (lambda x: x * x[:, : 1 + int((x[0, 0] > 0))].mean(), None),
}


MATH = {  # of a tensor, which math makes a float of
    "sqrt": lambda t, n: math.sqrt(t),
    "pow of it": lambda t, n: math.pow(t, .5),
    "pow by it": lambda t, n: math.pow(.5, t),
    "pow by a count": lambda t, n: math.pow(t, 1 / n),
    "exp": lambda t, n: math.exp(-t),
    "log": lambda t, n: math.log(t + 2),
    "floor": lambda t, n: math.floor(t * 30),
    "fabs of a double": lambda t, n: math.fabs(t.double() - .4),
    "of a host-made one": lambda t, n: math.sqrt(torch.tensor(4)) * t,
    "isfinite": lambda t, n: 1. if math.isfinite(t) else 2.,
    "isnan": lambda t, n: 1. if math.isnan(t) else 2.,
    "isinf late": lambda t, n: 1. if math.isinf(t / (n != LATE)) else 2.,
    "isfinite by NumPy": lambda t, n: 1. if np.isfinite(t.item()) else 2.,
    "isnan late by NumPy": lambda t, n: 1. if np.isnan(t.item() * (math.nan if n == LATE else 1.)) else 2.,
    "isinf late by NumPy": lambda t, n: 1. if not np.isinf((t / (n != LATE)).item()) else 2.,
    "decided by": lambda t, n: 1. if math.exp(t) > 1.6 else 2.,
}


@pytest.mark.parametrize("function", MATH.values(), ids=MATH)
def test_what_math_makes_of_a_tensor_is_followed(function):
    def make():
        model, optimizer, learn = learner()
        calls = [0]

        def train(x, y):
            calls[0] += 1
            return learn(x * function(x.abs().mean(), calls[0]), y)
        return Program(step=train, held=lambda: [model, optimizer])

    check(make, share=0.6)


REFUSED_ENTERING = {"through_numpy": "host_read"}  # all others replay


@pytest.mark.parametrize("enter, share", ENTERING.values(), ids=ENTERING)
def test_a_value_that_is_read_and_enters_an_op(enter, share, request):
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            return learn(enter(x), y)
        return Program(step=train, held=lambda: [model, optimizer])

    is_as_pinned(check(make, share=share), REFUSED_ENTERING.get(request.node.callspec.id))


def reading(look):
    """Trains, and gives the loss that it reads to `look`."""
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            loss = learn(x, y)
            look(loss.item())
            return loss
        return Program(step=train, held=lambda: [model, optimizer])
    return make


def test_a_value_that_is_only_looked_at_replays_where_reads_are_observed():
    check(reading(lambda value: None), host_reads="observe", share=0.9)


class Box:
    def __init__(self, value):
        self.value = value


def made_and_left(value):
    def give(default=value):
        return default
    return [value, give, lambda: value, Box(value), {"value": value}]


LOOKED_AT = {
    "not_kept": lambda value: None,
    "computed_with": lambda value: value * 2 - 1,
    "compared": lambda value: value > value + 1,
    "in_what_is_made_for_it": made_and_left,
    "among_others": lambda value: value in {0.5: 1},
    "the_largest": lambda value: max(value, 0.5),
    "gone_through": lambda value: [v + 1 for v in (value, value)],
    "generated": lambda value: next(v * 2 for v in [value]), "summed": lambda value: sum([value, 1.0]),
    "summed_from_a_generator": lambda value: sum(v * 2 for v in [value, 1]),
}


@pytest.mark.parametrize("look", LOOKED_AT.values(), ids=LOOKED_AT)
def test_a_value_that_is_read_and_goes_nowhere(look):
    check(reading(look), share=0.9)


ESCAPES = {
    "as_text": str, "hashed": hash, "asked_of_a_cache": lambda value: {0.5: 1}.get(value),
    "by_its_method": lambda value: value.is_integer(), "in_numpy": lambda value: np.sqrt(value),
    "in_an_exception": Exception, "rounded": lambda value: round(value, -1),
    "from_a_generator": lambda value: sorted(v * 2 for v in [value]),
}


@pytest.mark.parametrize("take", ESCAPES.values(), ids=ESCAPES)
def test_a_value_that_goes_to_code_of_c_may_decide_there(take):
    step = check(reading(take))
    assert [refusal["code"] for refusal in step.stats["refusals"]] == ["host_read"], step.explain()
    assert not step.stats["replayed"]


def test_an_address_that_decides_nothing():
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            if x.data_ptr() == y.data_ptr():
                x = x.clone()
            return learn(x, y)
        return Program(step=train, held=lambda: [model, optimizer])

    is_refused(check(make), {"written_outside"})


def test_two_arguments_share_memory_only_late():
    def make():
        model, optimizer, learn = learner()

        def train(x, y, other):
            scale = 2.0 if x.data_ptr() == other.data_ptr() else 1.0
            return learn(x * scale + other, y)
        return Program(step=train, held=lambda: [model, optimizer])

    def arguments(i):
        x, y = batch(i)
        return x, y, x if i >= LATE else x.clone()

    is_refused(check(make, arguments=arguments), {"written_outside"})


class Gate(nn.Module):
    def forward(self, x):
        if round(x.sum().item(), -1) > 0:  # here
            x = x * 2
        return x


def test_a_refusal_says_what_where_and_how_to_mend_it():
    def make():
        model = nn.Sequential(nn.Sequential(Gate(), nn.Linear(6, 8)), nn.Tanh(), nn.Linear(8, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def train(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()
        return Program(step=train, model=model, optimizer=optimizer,
                       held=lambda: [model, optimizer])

    # The sum is positive in every call: the ops are the same, and the read alone is to blame.
    step = check(make, arguments=signed_batch(lambda i: True), codes={"host_read"})
    refusal = next(r for r in step.stats["refusals"] if r["code"] == "host_read")
    assert set(refusal) >= {"code", "reason", "op", "module", "file", "line", "remedy", "times"}
    assert refusal["op"].startswith("aten::")
    assert refusal["module"] == "model.0.0"
    assert refusal["file"] == __file__
    assert {refusal["line"]} == marked_lines(Gate)
    assert refusal["reason"] and refusal["remedy"]
    assert isinstance(refusal["times"], int) and refusal["times"] >= 1
    text = step.explain()
    for part in ("host_read", refusal["reason"], refusal["remedy"], "model.0.0",
                 f"host_reads_test.py:{refusal['line']}", "if round(x.sum().item(), -1) > 0:"):
        assert part in text, part


def with_argument(value):
    """Batches with a tensor beside them that no op of the step writes."""
    return lambda i: (*batch(i), torch.tensor(value(i)))


UNWRITTEN = {  # read before the backward: (function of x and the tensor, the tensor's values)
    "scale": (lambda x, w: x * w.item(), lambda i: 1.0 + i),
    "divisor": (lambda x, w: x / w.item(), lambda i: 1.0 + i),
    "behind_other_ops": (lambda x, w: (x * 2).tanh() * w.item(), lambda i: 1.0 + i),
    "late_scale": (lambda x, w: x * w.item(), lambda i: 1.0 if i < LATE else 0.5),
    "count": (lambda x, w: x * w.item(), lambda i: i),
    "flag": (lambda x, w: x * 2 if w else x, lambda i: i % 3 == 0),
    "late_flag": (lambda x, w: x * 2 if w else x, lambda i: i >= LATE and i % 2 == 0),
    "flag_by_item": (lambda x, w: x * 2 if w.item() == 0 else x, lambda i: int(i != LATE)),
    "both": (lambda x, w: x * w.item() if w.item() > 3 else x, lambda i: float(i % 5)),
}


@pytest.mark.parametrize("enter, value", UNWRITTEN.values(), ids=UNWRITTEN)
def test_an_argument_that_is_read_before_the_backward_is_read_in_each_call(enter, value):
    """A plan reads first of all what no op writes, beside the constants that its first run makes."""
    def make():
        model, optimizer, learn = learner()
        return Program(step=lambda x, y, w: learn(enter(x, w), y), held=lambda: [model, optimizer])

    check(make, arguments=with_argument(value), share=0.5)


class Tempered(nn.Module):
    """A network that divides by a buffer, which the program anneals, and begins anew where a flag says."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        self.bias = nn.Parameter(torch.zeros(6))
        self.register_buffer("tau", torch.tensor(1.0))
        self.register_buffer("is_begun", torch.tensor(1))

    def forward(self, x):
        if self.is_begun.item() == 0:
            with torch.no_grad():
                self.bias.copy_(-x.mean(0))
            self.is_begun.fill_(1)
        return self.inside(x + self.bias) / self.tau.item()


@pytest.mark.parametrize("edit", [
    lambda model, i: model.tau.fill_(1.0 / (1 + i)) if i >= LATE else None,
    lambda model, i: model.is_begun.fill_(0) if i in (LATE, LATE + 5) else None,
], ids=["temperature", "flag"])
def test_a_buffer_that_the_program_changes_is_read_in_each_call(edit):
    def make():
        model = Tempered()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        def train(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()
        return Program(step=train, held=lambda: [model, optimizer], model=model)

    check(make, between=lambda program, i: edit(program.model, i), share=0.5)


# Composite functions of torch look at these tensors by pointer, and what makes a tensor of data reads those in it, where no op shows it.

def lengths(i, first=(5, 3, 2), later=(5, 4, 1)):
    return torch.tensor(first if i < 10 or i % 2 else later)


def packed(of):
    torch.manual_seed(1)
    model, x = of(4, 3, batch_first=True), torch.arange(60.).view(3, 5, 4) / 60

    def step(lengths):
        model.zero_grad()
        y, hidden = model(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True))
        padded, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
        loss = (padded * torch.arange(5.).view(1, 5, 1)).sum()
        loss.backward()
        return loss.detach(), model.weight_ih_l0.grad.clone()

    return step


def connected(reduction):
    scores = torch.linspace(-1, 1, 6 * 2 * 4).view(6, 2, 4).log_softmax(-1).requires_grad_()

    def step(lengths):
        scores.grad = None
        loss = F.ctc_loss(scores, torch.tensor([[1, 2, 3], [3, 2, 1]]), lengths, torch.tensor([3, 2]), reduction=reduction)
        loss.sum().backward()
        return loss.detach(), scores.grad.clone()

    return step


def numbers(i):
    return torch.tensor([1.0, 2.0, 3.0]) if i < 10 or i % 2 else torch.tensor([1.0, float(i), 3.0])


def places(i):
    return torch.tensor([0, 1] if i < 10 or i % 2 else [2, 1])


def items_set(x, index):
    x[:, index] = -1.0
    return x


ROWS = torch.arange(12.).view(3, 4)
UNSEEN = {  # step, its argument in call i
    **{f"packed {of.__name__}": (lambda of=of: packed(of), lengths) for of in (nn.LSTM, nn.GRU, nn.RNN)},
    "ctc_loss sum": (lambda: connected("sum"), lambda i: lengths(i, (6, 5), (5, 6))),
    "ctc_loss none": (lambda: connected("none"), lambda i: lengths(i, (6, 5), (5, 6))),
    "tensor_split": (lambda: lambda at: torch.tensor_split(ROWS, at, dim=1)[0] * 2, places),
    "tensor_split, bound": (lambda: lambda at: ROWS.tensor_split(at, 1)[1] * 2, places),
    "tensor": (lambda: lambda m: torch.tensor([m[0], m[1]]) * 2, numbers),
    "tensor of a list": (lambda: lambda m: torch.tensor(list(m)) * 2, numbers),
    "tensor, nested": (lambda: lambda m: torch.tensor([[m[0]], [m[1]]]) * 2, numbers),
    "tensor, by name": (lambda: lambda m: torch.tensor(data=(m[1], 2.0)) * 2, numbers),
    "as_tensor": (lambda: lambda m: torch.as_tensor([m[0], m[1]]) * 2, numbers),
    "asarray": (lambda: lambda m: torch.asarray([m[1]]) * 2, numbers),
    "Tensor": (lambda: lambda m: torch.Tensor([m[0], m[1]]) * 2, numbers),
    "LongTensor": (lambda: lambda m: torch.LongTensor([m[0], m[1]]) * 2, places),
    "new_tensor": (lambda: lambda m: m.new_tensor([m[1]]) * 2, numbers),
    "Parameter": (lambda: lambda m: nn.Parameter(torch.tensor([m.max()])).detach() * 2, numbers),
    "mean of flags": (lambda: lambda m: torch.tensor([(m > 2).float().mean(), 1.0]) * 2, numbers),
    "index": (lambda: lambda at: ROWS[:, [at[0], at[1]]] * 2, places),
    "index, set": (lambda: lambda at: items_set(ROWS.clone(), [at[0], at[1]]), places),
    "index, long": (lambda: lambda at: ROWS[:, [at[i % 2] for i in range(40)]] * 2, places),
    "index by argmax": (lambda: lambda m: ROWS[:, [m.argmax(), 0]] * 2, numbers),
}


@pytest.mark.parametrize("case", UNSEEN)
def test_what_torch_reads_where_no_op_shows_it(case):
    make, argument = UNSEEN[case]
    plain, step = make(), steptape.wrap(make(), verify={"first": True, "rate": 0.0})
    for i in range(24):
        expected, found = plain(argument(i)), step(argument(i))
        for a, b in zip(*(each if isinstance(each, tuple) else (each,) for each in (expected, found))):
            assert torch.equal(a, b) and a.dtype == b.dtype, (i, step.explain())
    assert step.stats["replayed"] >= 8, step.explain()


def test_a_tensor_that_is_too_large_to_be_read_as_numbers():
    step = steptape.wrap(lambda at: torch.tensor_split(torch.arange(3000.), at)[0] + 1)
    for i in range(5):
        assert step(torch.arange(1, 2000)).tolist() == [1.0]
    assert "reads a tensor of 1999 items as numbers" in step.explain()


def flagged(late):
    """A flag that the step's own ops raise, looked at through NumPy's view of it."""
    flag = torch.zeros(2)
    view = flag.numpy()
    weight = torch.zeros(2)

    def step(x):
        flag.zero_()
        flag.add_((~torch.isfinite(x)).any())
        if not late(view):
            weight.add_(x)
        flag.zero_()
        return weight.sum()
    return step, weight


@pytest.mark.parametrize("look", (lambda a: a[0] > 0, lambda a: bool(a.any()), lambda a: a[1:][0] > 0, lambda a: float(a.sum()) > 0,
                                  lambda a: memoryview(a)[0] > 0, lambda a: a[::-1][0] > 0, lambda a: a.tolist()[0] > 0),
                         ids=("item", "any", "item of a view", "sum", "memoryview", "backwards", "list"))
def test_an_array_over_a_tensor_that_the_step_has_written_before(look):
    (plain, expected), (written, weight) = flagged(look), flagged(look)
    step = steptape.wrap(written, verify={"first": True, "rate": 0.0})
    for i in range(24):
        x = torch.full((2,), float("inf") if i in (12, 13, 20) else float(i))
        assert torch.equal(plain(x), step(x)) and torch.equal(weight, expected), (i, step.explain())
    is_refused(step, {"host_read", "host_effect", "overlapping_memory"})


def test_an_array_over_a_tensor_that_the_step_writes_afterwards_is_guarded():
    def make():
        flag = torch.zeros(2)
        view = flag.numpy()

        def step(x):
            factor = 2 if view[0] > 0 else 3
            flag.copy_((x > 10).float())
            return x * factor
        return step

    plain, step = make(), steptape.wrap(make(), verify={"first": True, "rate": 0.0})
    for i in range(24):
        x = torch.full((2,), 11. if i in (12, 18) else 1.)
        assert torch.equal(plain(x), step(x)), (i, step.explain())
    assert step.stats["replayed"] >= 8, step.explain()


def written_after(x, kept):
    numbers = kept.sums.tolist()
    kept.sums += x
    return numbers, kept.sums[1:].tolist()


def changed_list(x, kept):
    numbers = x.tolist()
    numbers[0] = 5.0
    numbers.append(1.0)
    return numbers, numbers.pop()


def of_a_gradient(x, kept):
    leaf = x.clone().requires_grad_()
    (leaf * leaf).sum().backward()
    return leaf.grad.tolist()


LISTS = {
    "returned": lambda x, kept: x.tolist(),
    "nested": lambda x, kept: x.reshape(1, 3).tolist(),
    "of_one_number": lambda x, kept: x.sum().tolist(),
    "of_nothing": lambda x, kept: x[:0].tolist(),
    "of_ints": lambda x, kept: (x * 3).long().tolist(),
    "of_flags": lambda x, kept: (x > 1).tolist(),
    "of_halves": lambda x, kept: x.half().tolist(),
    "of_doubles": lambda x, kept: x.double().tolist(),
    "of_a_gradient": of_a_gradient,
    "written_after": written_after,
    "changed": changed_list,
    "extends": lambda x, kept: kept.log.extend(x.tolist()),
    "is_kept": lambda x, kept: setattr(kept, "last", x.tolist()),
    "added_up": lambda x, kept: sum(x.tolist()) / 3,
    "largest": lambda x, kept: max(x.tolist()),
    "zipped": lambda x, kept: [a * b for a, b in zip(x.tolist(), [1, 2, 3])],
    "decides": lambda x, kept: x * 2 if x.tolist()[0] > 5 else x * 1,
    "is_a_tensor_again": lambda x, kept: torch.tensor(x.tolist()) * 2,
    "largest_of_a_generator": lambda x, kept: max(v.item() for v in x),
    "smallest_of_a_generator": lambda x, kept: min(v.item() * 2 for v in x if v.item() > -9),
    "extended_by_a_generator": lambda x, kept: kept.log.extend(v.item() for v in x),
    "list_of_a_generator": lambda x, kept: list(v.item() for v in x),
    "cut_off": lambda x, kept: (int(x.sum()), int(-x.mean()), x * int(x.sum())),
    "made_of_tensors": lambda x, kept: torch.tensor([x.mean(), x.sum()]) * 2,
    "made_of_tensors_and_numbers": lambda x, kept: torch.tensor([x.mean(), 2.0, kept.rate]) * 2,
    "made_of_rows_of_tensors": lambda x, kept: torch.tensor([[x.mean(), x.sum()], [x.amax(), x[0]]]) * 2,
    "made_of_doubles": lambda x, kept: torch.tensor([x.double().mean(), 2.0]) * 2,
    "made_of_ints": lambda x, kept: torch.tensor([x.long().sum(), 2]) * 2,
    "made_of_flags": lambda x, kept: torch.tensor([(x > 3).any(), True]),
    "made_by_the_class": lambda x, kept: torch.Tensor([x.mean(), x.sum()]) * 2,
    "as_a_tensor_of_tensors": lambda x, kept: torch.as_tensor([x.mean(), x.sum()]) * 2,
    "new_of_its_kind": lambda x, kept: x.new_tensor([x.mean(), 1.0]) * 2,
}


@pytest.mark.parametrize("way", LISTS)
def test_numbers_of_a_tensor_in_other_ways_than_item(way):
    def play(wrap):
        kept = SimpleNamespace(log=[], sums=torch.zeros(3), rate=1.0, last=None)
        step, seen = wrap(lambda x: LISTS[way](x, kept)), []
        for i in range(30):
            kept.rate = 1.0 if i < 12 else 0.1 * i
            x = torch.tensor([0.5 * i, 1.25 * i - 3, 2.0]) if i != 25 else torch.tensor([float("nan"), 1.0, -0.0])
            try:
                seen.append(bits(step(x)))
            except ValueError as error:  # no int is a NaN
                seen.append(str(error))
            seen.append(bits(vars(kept)))
        return seen, step

    assert played_alike(play).stats["replayed"] > 14


def test_a_long_list_is_refused():
    step = steptape.wrap(lambda x: x.tolist())
    for i in range(8):
        assert step(torch.full((2000,), 1.0 * i)) == [1.0 * i] * 2000
    is_refused(step, {"host_read"})

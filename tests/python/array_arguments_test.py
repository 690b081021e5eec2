"""Arrays of NumPy that a step is given, finds in the program or makes of its tensors, and arguments of other kinds: arrays count as
tensors where torch takes them, and what the host reads of one is refused, but for a comparison of one number.
"""
import collections
import operator
import types

import numpy as np
import pytest
import torch

import steptape
from carried_test import batch, snapshot
from twins import codes_of, played_alike

CALLS = 24
CASES = []
table = torch.arange(40.).view(10, 4)


def given(code=None):
    """Decorator: the program gives (step, the arguments of call i)."""
    def add(make):
        CASES.append(pytest.param(lambda: (*make(), lambda i: None), code, id=make.__name__))
        return make
    return add


def held(code=None):
    """Decorator: the program gives (step, what it holds, what it does before call i)."""
    def add(make):
        def program():
            step, look, between = (*make(), lambda i: None)[:3]
            return (lambda x: (step(x), look())) if code is None else step, lambda i: (batch(i),), between
        CASES.append(pytest.param(program, code, id=make.__name__))
        return make
    return add


def permutation(i):
    return (np.random.permutation(10)[:5],)


@given()
def index():
    return (lambda m: table[m]), permutation


@given()
def index_tuple():
    return (lambda m: table[m, 1]), permutation


@given()
def index_slice():
    return (lambda m: table[m[1:4]]), permutation


@given()
def index_slices():
    def f(m):
        return [table[m[s:s+2]] for s in range(0, 4, 2)]
    return f, permutation


@given()
def index_bool():
    return (lambda m: table[m].sum()), lambda i: (np.arange(10) % 2 == (i % 2),)


@given("host_read")
def index_int32():
    return (lambda m: table[m]), lambda i: (np.random.permutation(10)[:5].astype(np.int32),)


@given("host_read")
def index_2d():
    return (lambda m: table[m]), lambda i: (np.random.randint(0, 4, (2, 3)),)


@given()
def store():
    def f(m):
        y = table.clone()
        y[m] = 0.0
        return y
    return f, permutation


@given()
def from_numpy():
    return (lambda a: torch.from_numpy(a) * 2), lambda i: (np.random.randn(3, 4),)


@given()
def as_tensor():
    return (lambda a: torch.as_tensor(a) * 2), lambda i: (np.random.randn(3, 4).astype(np.float32),)


@given()
def tensor():
    return (lambda a: torch.tensor(a) * 2), lambda i: (np.random.randn(3, 4),)


@given()
def tensor_t():
    return (lambda a: torch.tensor(a) * 2), lambda i: (np.random.randn(3, 4).T,)


@given("host_read")
def tensor_dtype():
    return (lambda a: torch.tensor(a, dtype=torch.float32) * 2), lambda i: (np.random.randn(3, 4),)


@given("host_read")
def legacy():
    return (lambda a: torch.Tensor(a) * 2), lambda i: (np.random.randn(3, 4),)


@given("host_read")
def host_sum():
    return (lambda a: table * float(a.sum())), lambda i: (np.ones(3) * (1 if i < 10 else i),)


@given("host_read")
def host_item():
    return (lambda a: table * a[0]), lambda i: (np.ones(3) * (1 if i < 10 else i),)


@given("host_read")
def host_branch():
    return (lambda a: table * (2 if (a > 5).any() else 3)), lambda i: (np.ones(3) * (1 if i < 10 else i),)


@given("host_read")
def host_iter():
    def f(a):
        y = table
        for v in a:
            y = y * v
        return y
    return f, lambda i: (np.ones(3) * (1 if i < 10 else i),)


@given("host_read")
def host_list():
    return (lambda a: table * sum(list(a))), lambda i: (np.ones(3) * (1 if i < 10 else i),)


@given("host_read")
def host_in_tuple():
    return (lambda a: table * sum(map(float, a[0]))), lambda i: ((np.ones(3) * (1 if i < 10 else i),),)


@given("host_read")
def host_np():
    return (lambda a: table * float(np.max(a))), lambda i: (np.ones(3) * (1 if i < 10 else i),)


@given("host_read")
def written():
    def f(a):
        a[0] = 7
        return table * 2
    return f, lambda i: (np.ones(3),)


@given()
def shape():
    return (lambda a: table * a.shape[0] * len(a) * a.ndim), lambda i: (np.ones(3 + (i > 12)),)


@given("host_read")
def operand():
    return (lambda a: table + a), lambda i: (np.ones(4, np.float32) * (1 if i < 10 else i),)


@given()
def namespace():
    return (lambda d: table[d.m] * d.k), lambda i: (types.SimpleNamespace(m=np.random.permutation(10)[:5], k=2.0),)


@given("opaque_argument")
def strings():
    return (lambda a: table * len(a[0])), lambda i: (np.array(["ab" * (1 + i // 12)]),)


@given("opaque_argument")
def objects():
    return (lambda a: table * a[0]), lambda i: (np.array([1.0 if i < 12 else 2.0, None], object),)


def noted(i):
    """What the dtype notes shows in no byte."""
    return np.ones(2, np.dtype("f8", metadata={"unit": 1.0 if i < 12 else 2.0}))


@given("opaque_argument")
def notes_of_a_dtype():
    return (lambda a: table * a.dtype.metadata["unit"]), lambda i: (noted(i),)


@given("opaque_argument")
def notes_of_a_field():
    def args(i):
        field = np.dtype("f8", metadata={"unit": 1.0 if i < 12 else 2.0})
        return (np.ones(2, np.dtype([("a", field), ("b", "f8")]))[0],)
    return (lambda a: table * a.dtype["a"].metadata["unit"]), args


@given()
def dtypes_of_one_size():
    return (lambda a: table * (2. if a.dtype.char == "l" else 3.)), lambda i: (np.ones(2, "i8" if i < 12 else np.longlong),)


@held()
def dtypes_of_one_size_held():
    box = types.SimpleNamespace(a=np.ones(2, "i8"))

    def between(i):
        box.a = np.ones(2, "i8" if i < 12 else np.longlong)
    return (lambda x: x * (2. if box.a.dtype.char == "l" else 3.)), lambda: None, between


@held("host_effect")
def notes_of_a_dtype_held():
    box = types.SimpleNamespace(a=noted(0))
    return (lambda x: x * box.a.dtype.metadata["unit"]), lambda: None, lambda i: setattr(box, "a", noted(i))


@given()
def noncontig():
    return (lambda a: torch.from_numpy(a) * 2), lambda i: (np.random.randn(6, 4)[::2, ::2],)


@given("opaque_argument")
def negative():
    return (lambda a: table * a[0]), lambda i: ((np.ones(3) * (1 if i < 10 else i))[::-1],)


@given()
def readonly():
    def args(i):
        a = np.random.randn(3)
        a.flags.writeable = False
        return (a,)
    return (lambda a: torch.as_tensor(a) * 2), args


@given()
def plain_object():
    class Box:
        def __init__(self, w, k):
            self.w, self.k = w, k
        @property
        def twice(self):
            return self.k * 2
        def __len__(self):
            return int(self.k)
    return (lambda b: table * b.twice + b.w * len(b)), lambda i: (Box(torch.ones(4) * i, 1.0 if i < 12 else 2.0),)


@given("host_effect")
def plain_object_written():
    class Box:
        pass
    keep = []
    def f(b):
        b.seen = True
        return table * 2
    def args(i):
        keep.append(Box())
        return (keep[-1],)
    return f, args


@given()
def slices():
    return (lambda s: table[s]), lambda i: (slice(0, 3 + i // 12),)


@given()
def ints():
    return (lambda n: table[:n] * n), lambda i: (i % 3 + 1,)


@given()
def int_scalar():
    return (lambda n: table * n + (n > 10)), lambda i: (i,)


@given()
def bools():
    return (lambda n: table * (2 if n else 3)), lambda i: (i % 3 == 0,)


@held()
def shuffled():
    o = np.arange(10)
    def step(x):
        return table[o[2:5]] * x.sum()
    return step, lambda: None, lambda i: np.random.RandomState(i).shuffle(o)


@held()
def buffer():
    o = np.zeros((30, 4), np.float32)
    def step(x):
        return torch.from_numpy(o).sum() + x
    return step, lambda: None, lambda i: o.__setitem__(i, i)


@held()
def buffer_large():
    o = np.zeros((30000, 4), np.float32)
    def step(x):
        return torch.as_tensor(o).sum() + x
    return step, lambda: None, lambda i: o.__setitem__(i, i)


@held("host_read")
def written_inside():
    o = np.zeros(3)
    def step(x):
        o[0] += 1
        return x * 2
    return step, lambda: o.tolist()


@held("host_read")
def written_inside_after_outside():
    o = np.zeros(3)
    def step(x):
        y = torch.from_numpy(o).sum() + x
        o[1] = o[1] + 1
        return y
    return step, lambda: o.tolist(), lambda i: o.__setitem__(0, i)


@held("host_read")
def read_on_host():
    o = np.zeros(3)
    def step(x):
        return x * float(o[0])
    return step, lambda: None, lambda i: o.__setitem__(0, i)


@held()
def in_dict():
    d = {"o": np.arange(3)}
    def step(x):
        return table[d["o"]] * x.sum()
    def between(i):
        if i % 4 == 0:
            d["o"] = np.arange(3) + i % 3
        else:
            d["o"][0] = i % 9
    return step, lambda: None, between


@given("host_read")
def mask_of_a_tensor():
    def step(x):
        hot = np.zeros(3)
        hot[x > 1] = 1.
        return x * float(hot[0])
    return step, lambda i: (torch.full((3,), i % 5 - 1.),)


@given("host_read")
def unpacked():
    def step(x):
        a, *_ = (lambda *items: items)(*x.numpy())
        return x * (2 if a > 1 else 3)
    return step, lambda i: (torch.full((3,), i % 5 - 1.),)


def hot(index, value=1.0):
    made = np.zeros((4, 3))
    made[index] = value
    return made


SEEN = {  # what the host makes of an array of the program's: a function of (three numbers, a mask of four, a list)
    "negated": lambda o, mask, rows: float((-o)[0]),
    "plus": lambda o, mask, rows: float((+o).sum()),
    "inverted": lambda o, mask, rows: 2 if (~mask)[0] else 3,
    "negated_matrix": lambda o, mask, rows: float((-np.matrix(o))[0, 0]),
    "index": lambda o, mask, rows: float(hot(o)[2].sum()),
    "index_of_two": lambda o, mask, rows: float(hot((mask, slice(1, None)))[0].sum()),
    "list_as_index": lambda o, mask, rows: float(hot((slice(None), rows))[0, 2]),
    "index_that_is_read": lambda o, mask, rows: float(np.arange(4.0)[o][0]),
    "mask_that_is_read": lambda o, mask, rows: float(np.arange(4.0)[mask].sum()),
    "slice": lambda o, mask, rows: float(hot((slice(0, o[0]), 0)).sum()),
    "index_of_a_list": lambda o, mask, rows: [1., 2., 3.][o[:1].reshape(())],
    "end_of_a_list": lambda o, mask, rows: sum([1., 2., 3.][:o[:1].reshape(())]),
}


@pytest.mark.parametrize("seen", SEEN)
def test_what_the_program_writes_into_its_array_is_seen(seen):
    def play(wrap):
        o, mask, rows = np.ones(3, int), np.zeros(4, bool), [0, 1]
        step, results = wrap(lambda x: x * SEEN[seen](o, mask, rows)), []
        for i in range(24):
            if i in (14, 20):
                o[0], mask[0], rows[1] = 2, i == 14, 2
            results.append(snapshot(step(torch.full((3,), 1. + i))))
        return results, step

    assert played_alike(play).stats["replayed"] > 3


@pytest.mark.parametrize("make, code", CASES)
def test_replays_or_is_refused(make, code):
    def play(wrap):
        np.random.seed(0)
        step, arguments, between = make()
        step = wrap(step)
        seen = []
        for i in range(CALLS):
            between(i)
            seen.append(snapshot(step(*arguments(i))))
        return seen, step

    step = played_alike(play)
    if code is None:
        assert step.stats["replayed"] >= CALLS // 4, step.explain()  # where arrays lie is chance
    else:
        assert step.stats["replayed"] == 0 and code in codes_of(step), step.explain()


def keep(program, array):
    program.kept = array


def keep_hidden(array):
    keep.hidden = array


def assigned(container, key, array):
    container[key] = array
    return array


def raised(function):
    try:
        return function()
    except ValueError as error:
        return str(error)


def reshaped(array):
    array.shape = 4, 3
    return array


def retyped(array):
    array.dtype = np.int32
    return array


LEFT = {  # what a step returns of its tensors as arrays: a function of (the program, what the model gives, the loss, x), the code or None
    "a loss": (lambda p, out, loss, x: loss.numpy(), None),
    "copied by cpu()": (lambda p, out, loss, x: (loss.cpu().numpy(), out.cpu().numpy()), None),
    "one twice, beside its tensor": (lambda p, out, loss, x: ((a := out.numpy()), [a], out), None),
    "appended": (lambda p, out, loss, x: p.log.append(loss.numpy()), None),
    "kept": (lambda p, out, loss, x: keep(p, out.numpy()), None),
    "of a parameter": (lambda p, out, loss, x: p.model.weight.detach().numpy(), None),
    "of an argument": (lambda p, out, loss, x: x.numpy(), None),
    "of a gradient": (lambda p, out, loss, x: p.model.weight.grad.numpy(), None),
    "by force": (lambda p, out, loss, x: p.model.bias.numpy(force=True), None),
    "of a buffer that is written afterwards": (lambda p, out, loss, x: (p.total.numpy(), p.total.add_(loss))[0], None),
    "a tensor again": (lambda p, out, loss, x: torch.from_numpy(loss.numpy()) + 1, None),
    "in a dict": (lambda p, out, loss, x: {"loss": loss.numpy(), "n": 3}, None),
    "compared": (lambda p, out, loss, x: p.total.add_(1 if loss.numpy() > .4 else 2).clone(), None),
    "compared the other way round": (lambda p, out, loss, x: p.total.add_(1 if .4 >= loss.numpy() else 2).clone(), None),
    "compared with what float32 does not hold": (lambda p, out, loss, x: p.total.add_(loss.numpy() == .1).clone(), None),
    "of a tensor that requires grad later": (lambda p, out, loss, x: ((t := out * 2).numpy(), t.requires_grad_())[0], None),
    "reshaped in its place": (lambda p, out, loss, x: reshaped(out.numpy()), "host_effect"),
    "of another dtype in its place": (lambda p, out, loss, x: retyped(out.numpy()), "host_effect"),
    "a part": (lambda p, out, loss, x: out.numpy()[1:], "host_effect"),
    "turned": (lambda p, out, loss, x: out.numpy().T, "host_read"),
    "a copy": (lambda p, out, loss, x: loss.numpy().copy(), "host_read"),
    "its number": (lambda p, out, loss, x: loss.numpy().item(), None),
    "its number by float()": (lambda p, out, loss, x: float(loss.cpu().numpy()), None),
    "its number in a loss's log": (lambda p, out, loss, x: p.log.append(loss.numpy().item() * 2), None),
    "its number as an operand": (lambda p, out, loss, x: p.total.mul_(float(loss.numpy())).clone(), None),
    "its number, tested": (lambda p, out, loss, x: p.total.add_(1 if loss.numpy().item() > .4 else 2).clone(), None),
    "its number, later": (lambda p, out, loss, x: ((a := loss.numpy()), p.total.add_(a.item()), loss.mul_(0), a.item())[1:3], None),
    "its numbers": (lambda p, out, loss, x: out.numpy().tolist(), None),
    "its numbers, added up": (lambda p, out, loss, x: sum(out[0].numpy().tolist()), None),
    "its largest number": (lambda p, out, loss, x: max(x[0].numpy().tolist()), None),
    "its ints": (lambda p, out, loss, x: (out.argmax(1).numpy().tolist(), out.argmax().numpy().item()), None),
    "its int": (lambda p, out, loss, x: [1, 2, 3, 4, 5][:int(out.argmax(1)[0].numpy())], None),
    "its number by int()": (lambda p, out, loss, x: int(loss.numpy()), "host_read"),
    "its ints by float()": (lambda p, out, loss, x: float(out.argmax().numpy()), "host_read"),
    "its bools": (lambda p, out, loss, x: (out > 9).numpy().tolist(), None),
    "its half numbers": (lambda p, out, loss, x: (out.half().numpy().tolist(), float(loss.double().numpy())), None),
    "a number of several": (lambda p, out, loss, x: out.numpy().item(2), "host_read"),
    "a number that is none": (lambda p, out, loss, x: raised(out.numpy().item), None),
    "numbers by a method that is handed on": (lambda p, out, loss, x: (lambda read: read())(out.numpy().tolist), None),
    "numbers by a method that C calls": (lambda p, out, loss, x: list(map(operator.methodcaller("__call__"), [out.numpy().tolist])), "host_read"),
    "numbers by a method that is kept": (lambda p, out, loss, x: keep_hidden(out.numpy().tolist), "host_effect"),
    "numbers through C": (lambda p, out, loss, x: list(map(float, [loss.numpy()])), "host_read"),
    "put into a dict that is there": (lambda p, out, loss, x: assigned(p.named, "loss", loss.numpy()) is None, None),
    "put into a list that is there": (lambda p, out, loss, x: assigned(p.row, 0, loss.numpy()), None),
    "put into two places": (lambda p, out, loss, x: assigned(p.row, 0, assigned(p.named, "a", out.numpy())), None),
    "a mean": (lambda p, out, loss, x: np.mean(out.numpy()), "host_read"),
    "written": (lambda p, out, loss, x: out.numpy().__setitem__(0, 1), "host_read"),
    "by asarray": (lambda p, out, loss, x: np.asarray(loss), None),
    "by its own method": (lambda p, out, loss, x: out.__array__(), None),
    "copied by NumPy": (lambda p, out, loss, x: np.array(loss), "host_read"),
    "copied again": (lambda p, out, loss, x: np.copy(out), "host_read"),
    "copied from a list": (lambda p, out, loss, x: np.asarray([loss]), "host_read"),
    "copied with its dtype": (lambda p, out, loss, x: np.array(out, dtype=np.float64), "host_read"),
    "joined": (lambda p, out, loss, x: np.concatenate([out, out]), "host_read"),
    "copied and compared": (lambda p, out, loss, x: p.total.add_(1 if np.array(loss) > .4 else 2).clone(), "host_read"),
    "copied and counted": (lambda p, out, loss, x: p.total.add_(int((np.array(out.argmax(1)) == np.array(out.argmin(1))).sum())).clone(), "host_read"),
    "counted by NumPy": (lambda p, out, loss, x: p.total.add_(int(np.count_nonzero(out > 0))).clone(), "host_read"),
    "chosen by NumPy": (lambda p, out, loss, x: torch.as_tensor(np.where(out > 0, 1., 2.)), "host_read"),
    "put into an array": (lambda p, out, loss, x: np.full(out.shape, 0., np.float32).__setitem__(slice(None), out), "host_read"),
    "compared with another": (lambda p, out, loss, x: bool(loss.numpy() > out.numpy()[0, 0]), "host_read"),
}


def an_array(value):
    if isinstance(value, np.ndarray):
        return [value.tobytes(), str(value.dtype), value.shape, value.strides, value.flags.writeable, value.flags.owndata, type(value.base)]
    if isinstance(value, (list, tuple)):
        return [an_array(each) for each in value]
    return {k: an_array(v) for k, v in value.items()} if isinstance(value, dict) else snapshot(value)


@pytest.mark.parametrize("left, code", LEFT.values(), ids=LEFT)
def test_an_array_that_a_step_makes_of_its_tensor(left, code):
    def play(wrap):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.Adam(model.parameters())
        program = types.SimpleNamespace(model=model, total=torch.zeros(4), log=[], kept=None, named={"n": 1}, row=[0, 1])

        @wrap
        def step(x):
            out = model(x)
            loss = out.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return left(program, out.detach(), loss.detach(), x)

        seen, held = [], []
        for i in range(CALLS):
            result = step(torch.randn(3, 4) * (1 + (i > 9) * (i % 2) * .5))
            if i % 5 == 4 and isinstance(result, np.ndarray) and i > 9:
                result += 1  # it is the program's
            held.append(result)
            seen.append(an_array([result, program.kept, program.log, program.total, program.named, program.row]))
        return seen, an_array(held), [snapshot(p) for p in model.parameters()], step

    step = played_alike(play)
    if code is None:
        assert step.stats["replayed"] >= CALLS // 4, step.explain()
    else:
        assert step.stats["replayed"] == 0 and code in codes_of(step), step.explain()


def test_an_array_is_one_object_wherever_it_is_returned():
    step = steptape.wrap(lambda x: ((a := (x * 2).numpy()), [a], a), verify={"first": True, "rate": 0.0})
    for i in range(12):
        first, (second,), third = step(torch.full((3,), float(i)))
        assert first is second is third and first.tolist() == [2. * i] * 3
    assert step.stats["replayed"] >= 6, step.explain()


def test_a_player_gives_arrays(tmp_path):
    step = steptape.wrap(lambda x: ((x * 2).numpy(), {"mean": x.mean().numpy()}, ((x + 1).numpy(),)), name="arrays")
    for i in range(8):
        expected = step(torch.arange(3.) + i)
    step.save(str(tmp_path / "b.tape"), state=True)
    first, named, (third,) = steptape.load(str(tmp_path / "b.tape"))["arrays"](torch.arange(3.) + 7)
    assert all(isinstance(a, np.ndarray) for a in (first, named["mean"], third))
    assert an_array([first, named, [third]]) == an_array([expected[0], expected[1], list(expected[2])])


def stored(logs, **values):
    for name, value in values.items():
        logs[name].append(value)


def stored_where_new(logs, **values):
    for name, value in values.items():
        if name not in logs.keys():  # as spinningup's EpochLogger does
            logs[name] = []
        logs[name].append(value)


@pytest.mark.parametrize("make, store", [(lambda: collections.defaultdict(list), stored), (dict, stored_where_new)])
@pytest.mark.parametrize("named", [dict, collections.OrderedDict])
def test_arrays_that_go_through_dicts(named, make, store):
    def play(wrap):
        torch.manual_seed(0)
        weight, logs = torch.nn.Parameter(torch.ones(3)), make()

        def step(x):
            y = x * weight
            info = named(values=y.detach().numpy())
            y.sum().backward()
            store(logs, loss=y.sum().item(), **info)
            return logs["loss"][-1], list(info), "values" in info, "other" in info.keys(), [*dict(info)], 1 if info else 2
        step = wrap(step)
        seen = [step(torch.full((3,), float(i))) for i in range(CALLS)]
        return seen, {name: [an_array([value]) for value in values] for name, values in logs.items()}, step

    step = played_alike(play)
    assert step.stats["replayed"] >= CALLS // 2, step.explain()


@pytest.mark.parametrize("attribute", ["T", "flat"])
def test_a_view_that_an_array_of_a_subclass_makes_anew(attribute):
    data = np.arange(4.).view(type("Of", (np.ndarray,), {}))

    def play(wrap):
        step = wrap(lambda x: x * float(np.asarray(getattr(data, attribute)).ravel()[1]))
        return [step(torch.full((2,), float(i))).tolist() for i in range(8)], step

    step = played_alike(play)
    assert step.stats["replayed"] == 0 and codes_of(step) == {"host_effect"}, step.explain()

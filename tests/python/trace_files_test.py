"""Files of steps: those that are damaged, missing or of other steps are told by name; the others go on."""
import collections
import os
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest
import torch

import steptape
from classification import LATE, batch, classifier
from twins import PACKAGES, bits, needs_tool, tool


def replaying_program(tmp_path, steps=LATE):
    """(step, model, optimizer, path): a step that replays, saved as "train"."""
    torch.manual_seed(0)
    train, model, optimizer = classifier()
    step = steptape.wrap(train, model=model, optimizer=optimizer, name="train")
    for i in range(steps):
        step(*batch(i))
    path = tmp_path / "run.tape"
    step.save(path)
    return step, model, optimizer, path


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(steptape.IoError, match="missing.tape") as caught:
        steptape.load(tmp_path / "missing.tape")
    assert isinstance(caught.value, OSError)
    assert caught.value.code == "io"


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(steptape.Error):
        steptape.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\0", b"not a tape\n" * 100, os.urandom(4096)],
                         ids=["empty", "one_byte", "text", "noise"])
def test_a_file_that_is_no_trace(tmp_path, content):
    path = tmp_path / "run.tape"
    path.write_bytes(content)
    with pytest.raises(steptape.DataLoss) as caught:
        steptape.load(path)
    assert caught.value.code == "data_loss"


def test_a_file_is_cut_short(tmp_path):
    _, _, _, path = replaying_program(tmp_path)
    whole = path.read_bytes()
    for n in range(1, 10):
        path.write_bytes(whole[: len(whole) * n // 10])
        with pytest.raises(steptape.DataLoss):
            steptape.load(path)["train"](*batch(0))


def test_a_bit_of_a_file_is_flipped(tmp_path):
    _, _, _, path = replaying_program(tmp_path)
    whole = path.read_bytes()
    expected = bits(steptape.load(path)["train"](*batch(LATE)))
    refused = 0
    for n in range(40):
        damaged = bytearray(whole)
        damaged[len(whole) * n // 40] ^= 1 << n % 8
        path.write_bytes(damaged)
        try:
            assert bits(steptape.load(path)["train"](*batch(LATE))) == expected, n
        except (steptape.DataLoss, steptape.Unsupported):  # Unsupported: the version of the format
            refused += 1
    assert refused >= 35, "bytes that nobody reads are few"


def test_a_folder_to_save_to_is_not_there(tmp_path):
    step, _, _, _ = replaying_program(tmp_path)
    with pytest.raises(steptape.IoError):
        step.save(tmp_path / "missing" / "run.tape")
    step(*batch(0))


def test_saving_over_a_file_leaves_the_old_or_the_new(tmp_path):
    step, _, _, path = replaying_program(tmp_path)
    step(*batch(0))
    step.save(path)
    steptape.load(path)["train"]
    assert os.listdir(tmp_path) == ["run.tape"]


def test_a_step_that_the_file_does_not_hold(tmp_path):
    _, _, _, path = replaying_program(tmp_path)
    with pytest.raises((steptape.InvalidArgument, KeyError), match="train"):
        steptape.load(path)["evaluate"]


def test_a_loaded_step_goes_on_with_the_same_bits(tmp_path):
    step, _, _, path = replaying_program(tmp_path)
    loaded = steptape.load(path)["train"]
    for i in range(LATE, LATE + 20):
        assert bits(loaded(*batch(i))) == bits(step(*batch(i))), i


TOTAL = 0


class Counting:
    total = 0

    def __init__(self):
        self.n = 0

    def __call__(self, x):
        self.n += 1
        return x / self.n


LOOKED_AT = {
    "a_gradient_is_cleared": lambda lone: setattr(lone, "grad", None),
    "a_gradient_is_asked_for": lambda lone: lone.grad is None,
    "a_flag": lambda lone: lone.requires_grad,
    "a_shape": lambda lone: lone.shape,
    "a_size": lambda lone: lone.numel(),
    "a_dtype": lambda lone: lone.dtype,
}


@pytest.mark.parametrize("look", LOOKED_AT.values(), ids=LOOKED_AT)
@pytest.mark.parametrize("make", [lambda: torch.ones(1 << 18), lambda: torch.nn.Parameter(torch.ones(1 << 18))], ids=["tensor", "parameter"])
def test_a_tensor_that_a_step_only_looks_at_is_not_needed(look, make, tmp_path):
    torch.manual_seed(0)
    train, _, _ = classifier()
    held = SimpleNamespace(lone=make())

    def step(x, y):
        look(held.lone)
        return train(x, y)

    wrapped = steptape.wrap(step, name="train")
    for i in range(LATE):
        wrapped(*batch(i))
    path = tmp_path / "run.tape"
    wrapped.save(path)
    assert path.stat().st_size < 1 << 20
    loaded = steptape.load(path)["train"]
    for i in range(LATE, LATE + 4):
        assert bits(loaded(*batch(i))) == bits(step(*batch(i))), i


def counted_by_a_global(x):
    global TOTAL
    TOTAL += 1
    return x / TOTAL


def counted_by_a_class(x):
    Counting.total += 1
    return x / Counting.total


def counting_steps():
    """Steps that go on from numbers which they leave in places of the program."""
    held = SimpleNamespace(n=0, k=0, counts={"n": 0}, numbers=[0, 0.0])
    alias = held
    n = 0

    def attribute(x):
        held.n += 1
        return x / held.n

    def cell(x):
        nonlocal n
        n += 1
        return x / n

    def item_of_a_dict(x):
        held.counts["n"] += 1
        return x / held.counts["n"]

    def average_of_what_is_read(x):
        held.numbers[0] += 1
        held.numbers[1] = 0.9 * held.numbers[1] + x.sum().item()
        return x / held.numbers[0], held.numbers[1]

    def by_another_name(x):
        alias.k = held.k + 1
        return x / held.k

    def exchanged(x):
        held.n, held.k = held.k + 1, held.n + 2
        return x / held.n

    def in_some_calls(x):
        held.n += 1
        if held.n % 3 == 0:
            held.k += 1
        return x / held.n + held.k

    def up_to_a_limit(x):
        held.n = min(held.n + 1, 25)
        return x * held.n

    def with_a_reset(x):
        held.n += 1
        if held.n == 4:
            held.n = 0
        return x / (1 + held.n), held.n

    return {step.__name__: step for step in (
        with_a_reset, attribute, cell, item_of_a_dict, average_of_what_is_read, by_another_name, exchanged, in_some_calls,
        up_to_a_limit, counted_by_a_global, counted_by_a_class)} | {"attribute_of_itself": Counting()}


@pytest.mark.parametrize("name", counting_steps())
def test_a_loaded_step_goes_on_counting(name, tmp_path, monkeypatch):
    def begin():
        monkeypatch.setitem(globals(), "TOTAL", 0)
        monkeypatch.setattr(Counting, "total", 0)
        return counting_steps()[name]

    given = [torch.full((2,), i + 1.0) for i in range(40)]
    eager = begin()
    expected = [bits(eager(x)) for x in given]
    step = steptape.wrap(begin(), verify={"first": True, "rate": 0.0}, name="step")
    seen = [bits(step(x)) for x in given[:20]]
    assert step.stats["replayed"] > 5, step.explain()
    path = tmp_path / "run.tape"
    step.save(path)
    for part in (given[20:30], given[30:]):
        player = steptape.load(path)
        seen += [bits(player["step"](x)) for x in part]
        path = tmp_path / "later.tape"
        player.save(path)
    assert seen == expected


def test_a_number_that_is_left_in_a_new_container_is_not_carried_on(tmp_path):
    """No plan depends on it, so that no trace can hold a step that would go on with the old one."""
    held = SimpleNamespace(state={"n": 0})

    def train(x):
        held.state = {"n": held.state["n"] + 1}
        return x / held.state["n"]

    step = steptape.wrap(train, name="step")
    for i in range(20):
        step(torch.ones(2))
    step.save(tmp_path / "run.tape")
    with pytest.raises(steptape.Error, match="cannot be replayed here"):
        steptape.load(tmp_path / "run.tape")


def leaving(make):
    """What a step leaves at a place by which it decides in the next call; half of the calls see each."""
    first, second = make()
    held = SimpleNamespace(mode=first)

    def train(x):
        if held.mode is first:
            held.mode = second
            return x * 2
        held.mode = first
        return x * 3
    return train


LEFT = {"flag": lambda: (True, False), "text": lambda: ("grow", "shrink"), "none": lambda: (None, "set"),
        "function": lambda: (len, abs), "object": lambda: (SimpleNamespace(), SimpleNamespace()),
        "texts_in_tuple": lambda: (("a", "b"), ("b", "a"))}


@pytest.mark.parametrize("make", LEFT.values(), ids=LEFT)
@pytest.mark.parametrize("calls", [8, 9, 20])
def test_a_player_does_not_take_a_step_that_leaves_what_decides(make, calls, tmp_path):
    step, eager = steptape.wrap(leaving(make), name="step", verify={"first": True, "rate": 0.0}), leaving(make)
    for i in range(calls):
        assert bits(step(torch.full((2,), i))) == bits(eager(torch.full((2,), i)))
    step.save(tmp_path / "run.tape")
    with pytest.raises(steptape.Error, match="which players do not|cannot be replayed here"):
        steptape.load(tmp_path / "run.tape")["step"](torch.ones(2))


@pytest.mark.parametrize("value", [None, True, "text", 10 ** 30], ids=str)
def test_a_number_that_is_none_when_a_trace_is_saved(value, tmp_path):
    held = SimpleNamespace(n=0)

    def train(x):
        held.n += 1
        return x / held.n

    step = steptape.wrap(train, name="step")
    for _ in range(10):
        step(torch.ones(2))
    held.n = value
    step.save(tmp_path / "run.tape")
    with pytest.raises(steptape.Error, match="as it was when it was saved"):
        steptape.load(tmp_path / "run.tape")["step"](torch.ones(2))


NOW = {"gone": lambda held: vars(held).pop("n"), "none": lambda held: setattr(held, "n", None),
       "text": lambda held: setattr(held, "n", "2"), "flag": lambda held: setattr(held, "n", True),
       "again": lambda held: setattr(held, "n", 7)}


@pytest.mark.parametrize("change", NOW.values(), ids=NOW)
def test_a_moving_number_that_is_another_thing_when_a_trace_is_saved(change, tmp_path):
    """Of the plans for either the one for what is there now goes on."""
    held = SimpleNamespace(n=2)

    def train(x):
        n = getattr(held, "n", 4)
        return x * n if isinstance(n, (int, float)) else x * 5

    step = steptape.wrap(train, name="step", verify={"first": True, "rate": 0.0})
    for i in range(24):
        if i == 1:
            held.n = 3
        if i == 12:
            change(held)
        step(torch.full((2,), float(i)))
    assert step.stats["replayed"] > 8, step.explain()
    step.save(tmp_path / "run.tape")
    assert steptape.load(tmp_path / "run.tape")["step"](torch.ones(2)).tolist() == train(torch.ones(2)).tolist()


PHASES = {"text": ("warm", "main"), "flag": (False, True), "none": (None, 1.5), "function": (len, abs)}


def phased(held):
    def train(x):
        return x * 2 if held.phase is held.first else x * 3
    return train


@pytest.mark.parametrize("first, second", PHASES.values(), ids=PHASES)
@pytest.mark.parametrize("calls", [10, 11, 20])
def test_a_player_goes_on_in_the_phase_that_the_program_was_in(first, second, calls, tmp_path):
    """A trace says nothing of what a step reads but numbers: plans of other phases are not played."""
    held = SimpleNamespace(phase=first, first=first)
    step = steptape.wrap(phased(held), name="step", verify={"first": True, "rate": 0.0})
    for i in range(calls):
        if i == 10:
            held.phase = second
        step(torch.full((2,), float(i)))
    if calls == 10:
        held.phase = second
    step.save(tmp_path / "run.tape")
    if calls < 20:
        with pytest.raises(steptape.Error, match="as it was when it was saved"):
            steptape.load(tmp_path / "run.tape")
    else:
        assert steptape.load(tmp_path / "run.tape")["step"](torch.ones(2)).tolist() == [3, 3]


def test_a_flag_that_the_step_sets_once(tmp_path):
    """The call that sets it was never verified; those before it are of another program."""
    held = SimpleNamespace(n=0, late=False)

    def train(x):
        held.n += 1
        if held.n == 12:
            held.late = True
        return x * (3 if held.late else 2)

    step = steptape.wrap(train, name="step", verify={"first": True, "rate": 0.0})
    for i in range(13):
        step(torch.full((2,), float(i)))
    step.save(tmp_path / "run.tape")
    with pytest.raises(steptape.Error, match="as it was when it was saved"):
        steptape.load(tmp_path / "run.tape")


def test_a_step_that_sets_the_same_each_time_is_loaded(tmp_path):
    held = SimpleNamespace(mode="train", losses=[])

    def train(x):
        held.mode = "train"
        held.losses.append(x.sum().item())
        return x * (2 if held.mode == "train" else 3)

    step = steptape.wrap(train, name="step")
    for i in range(10):
        step(torch.full((2,), float(i)))
    step.save(tmp_path / "run.tape")
    assert steptape.load(tmp_path / "run.tape")["step"](torch.ones(2)).tolist() == [2, 2]


def test_each_variant_of_a_loaded_step_has_results_of_its_own(tmp_path):
    held = SimpleNamespace(n=0)

    def train(x):
        held.n += 1
        kind = held.n % 5
        if kind == 0:
            return {"even": x * 2}
        if kind == 1:
            return {"odd": x * 3}
        if kind == 2:
            return x, x * 2, None, "a text of more than eighty characters, such as the name of an experiment or of its run 17"
        return held.n if kind == 3 else held.n + 0.5

    step = steptape.wrap(train, name="step", verify={"first": True, "rate": 0.0})
    given = [torch.full((2,), i + 1.0) for i in range(70)]
    for x in given[:60]:
        step(x)
    step.save(tmp_path / "run.tape")
    loaded = steptape.load(tmp_path / "run.tape")["step"]
    for x in given[60:]:
        seen, expected = loaded(x), train(x)
        assert bits(seen) == bits(expected) and type(seen) is type(expected)


def saved(tmp_path, train, *, model, change, counting=()):
    """The one step of a trace that was saved after `change()`, loaded."""
    step = steptape.wrap(train, model=model, name="step", verify={"first": True, "rate": 0.0})
    for i in range(16):
        step(torch.full((2, 3), i / 16))
    assert step.stats["replayed"] > 8, step.explain()
    change()
    step.save(tmp_path / "run.tape")
    return steptape.load(tmp_path / "run.tape")["step"]


def two_layers():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model.register_buffer("scale", torch.full((3,), 0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)

    def train(x):
        optimizer.zero_grad()
        loss = (model(x) * model.scale).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss
    return train, model, optimizer


def transpose(weight):
    weight.data = weight.data.t().contiguous().t()


# what a program may do to its model between the last call and save(): the plans hold for it no longer
CHANGED = {
    "frozen": lambda m, o: m[0].weight.requires_grad_(False),
    "all_frozen": lambda m, o: m.requires_grad_(False),
    "buffer_that_learns": lambda m, o: m.scale.requires_grad_(),
    "other_dtype": lambda m, o: m.double(),
    "buffer_of_other_dtype": lambda m, o: setattr(m.scale, "data", m.scale.data.double()),
    "other_strides": lambda m, o: transpose(m[1].weight),
    "other_offset": lambda m, o: setattr(m[0].bias, "data", torch.randn(6)[3:]),
    "one_memory": lambda m, o: setattr(m[0].bias, "data", m[1].bias.data),
    "tied": lambda m, o: setattr(m[1], "weight", m[0].weight),
    "tensor_hook": lambda m, o: m[0].weight.register_hook(lambda g: g * 2),
    "hook_after_gradients": lambda m, o: m[0].weight.register_post_accumulate_grad_hook(lambda p: p.grad.zero_()),
    "module_hook": lambda m, o: m[0].register_forward_hook(lambda *a: None),
    "moment_of_other_dtype": lambda m, o: setattr(o.state[m[0].weight]["momentum_buffer"], "data",
                                                  torch.zeros(3, 3, dtype=torch.float64)),
    "momentum_gone": lambda m, o: o.state.clear(),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_a_program_that_is_no_longer_what_its_plans_were_made_for(change, tmp_path):
    train, model, optimizer = two_layers()
    with pytest.raises(steptape.Error, match="as it was when it was saved|is not"):
        saved(tmp_path, train, model=model, change=lambda: change(model, optimizer))(torch.ones(2, 3))


UNCHANGED = {
    "nothing": lambda m, o: None,
    "gradients_of_zero": lambda m, o: o.zero_grad(set_to_none=False),
    "other_memory": lambda m, o: setattr(m[0].weight, "data", m[0].weight.data.clone()),
    "other_values": lambda m, o: m.load_state_dict({name: value * 2 for name, value in m.state_dict().items()}),
    "other_rate": lambda m, o: o.param_groups[0].update(lr=0.25),
}


@pytest.mark.parametrize("change", UNCHANGED.values(), ids=UNCHANGED)
def test_a_program_that_has_other_bits_when_it_is_saved(change, tmp_path):
    train, model, optimizer = two_layers()
    loaded = saved(tmp_path, train, model=model, change=lambda: change(model, optimizer))
    for i in range(4):
        x = torch.full((2, 3), i + 0.5)
        assert bits(loaded(x)) == bits(train(x))


COUNTS = {"attribute": lambda held: held, "dict": lambda held: held.of, "list": lambda held: held.all,
          "optimizer": lambda held: held.optimizer.state[held.weight], "group": lambda held: held.optimizer.param_groups[0]}


@pytest.mark.parametrize("place", COUNTS)
@pytest.mark.parametrize("value", [7.5, 7], ids=["float", "int"])
def test_an_int_that_is_a_float_when_a_trace_is_saved(place, value, tmp_path):
    weight = torch.nn.Parameter(torch.ones(2, 3))
    held = SimpleNamespace(n=0, of={"n": 0}, all=[0], weight=weight, optimizer=torch.optim.SGD([weight], lr=0.1))
    held.optimizer.state[weight]["n"] = held.optimizer.param_groups[0]["n"] = 0
    where = COUNTS[place](held)
    key = {"list": 0}.get(place, "n")

    def write(number):
        if place == "attribute":
            held.n = number
        else:
            where[key] = number

    def train(x):
        write((held.n if place == "attribute" else where[key]) + 1)
        return x / (held.n if place == "attribute" else where[key])

    load = lambda: saved(tmp_path, train, model=None, change=lambda: write(value))
    if value == 7:
        loaded = load()
        assert [bits(loaded(torch.ones(2, 3))) for _ in range(4)] == [bits(train(torch.ones(2, 3))) for _ in range(4)]
        return
    with pytest.raises(steptape.Error, match="as it was when it was saved|cannot be replayed|is not"):
        load()(torch.ones(2, 3))


def outside_of_the_step(tensor):
    """Ways to a tensor that nobody tracks: a default of an inner function, an item of a deque, a method that is bound to it."""
    def scaled(x, scale=tensor):
        return x * scale

    functions, queue, methods = {"f": scaled}, collections.deque([tensor]), {"m": tensor.mul}
    return {"default": lambda x: functions["f"](x), "deque": lambda x: x * queue[0], "method": lambda x: methods["m"](x)}


@pytest.mark.parametrize("way", outside_of_the_step(torch.ones(3)))
@pytest.mark.parametrize("calls", [8, 20])
def test_a_tensor_outside_the_step_is_saved_as_it_is(way, calls, tmp_path):
    tensor = torch.ones(3)
    train = outside_of_the_step(tensor)[way]
    step = steptape.wrap(train, name="step", verify={"first": True, "rate": 0.0})
    for i in range(calls):
        if i == 12:
            tensor.fill_(5.0)
        assert bits(step(torch.full((3,), float(i)))) == bits(train(torch.full((3,), float(i))))
    assert step.stats["replayed"] > 2, step.explain()
    tensor.add_(2.0)
    step.save(tmp_path / "run.tape")
    loaded = steptape.load(tmp_path / "run.tape")["step"]
    assert bits(loaded(torch.full((3,), 3.0))) == bits(train(torch.full((3,), 3.0)))


@pytest.mark.parametrize("change", [lambda t: setattr(t, "data", t.data.double()), lambda t: setattr(t, "data", torch.ones(6)[::2]),
                                    lambda t: t.requires_grad_()], ids=["dtype", "strides", "requires_grad"])
def test_a_tensor_outside_the_step_that_is_another_by_then(change, tmp_path):
    tensor = torch.ones(3)
    train = outside_of_the_step(tensor)["deque"]
    step = steptape.wrap(train, name="step", verify={"first": True, "rate": 0.0})
    for i in range(12):
        step(torch.full((3,), float(i)))
    change(tensor)
    step.save(tmp_path / "run.tape")
    with pytest.raises(steptape.Error, match="as it was when it was saved"):
        steptape.load(tmp_path / "run.tape")["step"](torch.ones(3))


MADE_AGAIN = {"complex": 1 + 2j, "complex_zero": complex(-0.0, -2.0), "ellipsis": ..., "dtype": torch.float32, "device": torch.device("cpu"), "large": 10 ** 30,
              "size": torch.Size([2, 3]), "layout": torch.strided, "format": torch.channels_last, "bytes": b"<0>",
              "text": "same[0] <1>", "none": None}


@pytest.mark.parametrize("constant", MADE_AGAIN.values(), ids=MADE_AGAIN)
def test_constants_in_the_results_of_a_loaded_step(constant, tmp_path):
    def train(x):
        return {"a": (x * 2, constant), "b": [constant]}

    loaded = saved(tmp_path, train, model=None, change=lambda: None)
    seen, expected = loaded(torch.ones(2, 3)), train(torch.ones(2, 3))
    assert bits(seen["a"][0]) == bits(expected["a"][0])
    assert (repr(seen["a"][1]), seen["b"]) == (repr(constant), [constant]) and type(seen["a"][1]) is type(constant)


def test_keys_in_the_results_of_a_loaded_step(tmp_path):
    def train(x):
        return {(1, "a"): x * 2, None: "b", True: 2.5, 1.5: 3, b"k": x, ((),): ..., torch.float64: 1}

    seen, expected = saved(tmp_path, train, model=None, change=lambda: None)(torch.ones(2, 3)), train(torch.ones(2, 3))
    assert list(seen) == list(expected) and bits([*seen.values()]) == bits([*expected.values()])


def test_a_list_that_a_loaded_step_returns_twice_is_one(tmp_path):
    def train(x):
        once, pair = [x * 2, 1.5], (x, "p")
        return once, {"again": once, "pair": pair}, pair, ("q",)

    seen = saved(tmp_path, train, model=None, change=lambda: None)(torch.ones(2, 3))
    assert seen[0] is seen[1]["again"] and seen[2] is seen[1]["pair"] and seen[3] == ("q",)
    assert seen[0][1] == 1.5 and seen[2][1] == "p"


@pytest.mark.parametrize("constant", [int, len, SimpleNamespace, "long" * 100, 10 ** 5000],
                         ids=["class", "function", "c_class", "long_text", "long_int"])
def test_results_that_a_trace_does_not_keep_are_refused_before_anything_runs(constant, tmp_path):
    with pytest.raises(steptape.Unsupported, match="step step returned .*of which a trace keeps no more than"):
        saved(tmp_path, lambda x: (x * 2, constant), model=None, change=lambda: None)


def test_a_loaded_step_throws_where_its_guards_do_not_hold(tmp_path):
    step, _, _, path = replaying_program(tmp_path)
    loaded = steptape.load(path)["train"]
    x, y = batch(0)
    for wrong in ((x[:4], y[:4]), (x.double(), y), (x,), (y, x)):
        with pytest.raises((steptape.FailedPrecondition, steptape.InvalidArgument, TypeError)):
            loaded(*wrong)
    assert bits(loaded(*batch(LATE))) == bits(step(*batch(LATE))), "nothing was changed"


def test_another_process_without_the_models_code_goes_on_with_the_same_bits(tmp_path):
    step, _, _, _ = replaying_program(tmp_path)
    batches = [batch(i) for i in range(LATE, LATE + 12)]
    torch.save(batches, tmp_path / "batches.pt")
    script = tmp_path / "go_on.py"
    script.write_text(textwrap.dedent("""
        import sys
        import torch
        import steptape

        torch.set_num_threads(1)
        folder = sys.argv[1]
        step = steptape.load(f"{folder}/run.tape")["train"]
        losses = [step(x, y) for x, y in torch.load(f"{folder}/batches.pt")]
        torch.save([loss.clone() for loss in losses], f"{folder}/losses.pt")
    """))
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True,
                          text=True, timeout=120, env={**os.environ, "PYTHONPATH": PACKAGES})
    assert done.returncode == 0, done.stderr
    expected = [step(x, y) for x, y in batches]
    assert bits(torch.load(tmp_path / "losses.pt")) == bits(expected)


@needs_tool
def test_a_trace_says_what_became_of_each_call(tmp_path):
    """Of a step that was never replayed too, in the words that explain() has, lines of the program with them."""
    (tmp_path / "train.py").write_text(textwrap.dedent("""
        import time
        import torch
        import steptape
        names = {"scale": 2.0}

        @steptape.wrap
        def quiet(x):
            return x * names["scale"]

        def timed(x):
            return x * time.time()  # here

        loud = steptape.wrap(timed, trace="run.tape", log="none")
        for i in range(20):
            loud(torch.ones(2))
        print(loud.explain())
    """))
    ran = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    told = tool("doctor", tmp_path / "run.tape", statuses=(1,))
    lines = told.stdout.splitlines()
    assert [lines[0], *lines[2:]] == ran.stdout.strip().splitlines() and lines[1] == "  0.0 % replayed"
    assert "      train.py:12: return x * time.time()  # here" in lines and any("steptape.host(time.time)" in line for line in lines)

"""Files of steps: those that are damaged, missing or of other steps are told by name; the others go on."""
import os
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest
import torch

import steptape
from classification import batch, classifier
from misuse import LATE, PACKAGES
from twins import bits


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

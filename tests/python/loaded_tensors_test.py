"""Tensors that a step leaves where it finds them again: a loaded step has them as its own, and goes on from them as the program does."""
import types

import pytest
import torch
import torch.nn as nn

import steptape
from twins import bits

CALLS, WIDTH = 12, 4


def batch(i, rows=2):
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(i))


class Program:
    """A model that is trained on what `compute(self, x)` gives, which keeps in `self.at` what the next call finds there."""

    def __init__(self, compute, **at):
        torch.manual_seed(7)
        self.model, self.cell = nn.Linear(WIDTH, WIDTH), nn.LSTMCell(WIDTH, WIDTH)
        self.optimizer = torch.optim.Adam([*self.model.parameters(), *self.cell.parameters()], lr=1e-2)
        self.at = types.SimpleNamespace(**at)
        self.kept = {}
        self.compute = compute

    def step(self, x):
        self.optimizer.zero_grad()
        out, given = self.compute(self, x)
        loss = out.square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach(), given


def zeros(rows=2):
    return torch.zeros(rows, WIDTH)


def hidden(program, x):
    out = program.model(x + program.at.h)
    program.at.h = out.detach()
    return out, None


def of_a_cell(program, x):
    h, c = program.cell(x, program.at.state)
    program.at.state = h.detach(), c.detach()
    return h, None


def in_dicts(program, x):
    state = program.at.state
    h, c = program.cell(x, (state["h"], state["c"]))
    program.at.state = {"h": h.detach(), "c": c.detach()}
    return h, None


def in_an_entry(program, x):
    out = program.model(x * program.at.table["h"])
    program.at.table["h"] = out.detach().sigmoid()
    return out, None


def shifted(program, x):
    out = program.model(x + program.at.a - .5 * program.at.b)
    program.at.b = program.at.a
    program.at.a = out.detach()
    return out, None


def views_of_one(program, x):
    out = program.model(x * program.at.scale + program.at.shift)
    program.at.scale, program.at.shift = torch.cat([out.detach().sigmoid(), out.detach()]).chunk(2)
    return out, None


def given_back_when_it_is_over(program, x):
    before = program.at.h
    out = program.model(x + before)
    program.at.h = out.detach()
    return out, before


def given_back_as_it_is(program, x):
    out = program.model(x + program.at.h)
    program.at.h = out.detach()
    return out, program.at.h


def written_in_place(program, x):
    program.at.h.mul_(.5)
    out = program.model(x + program.at.h)
    program.at.h = program.at.h + out.detach()
    return out, None


def every_other_column(program, x):
    out = program.model(x + program.at.h)
    program.at.h = torch.cat([out.detach(), x], 1)[:, ::2]
    return out, None


def keeps_its_argument(program, x):
    out = program.model(x + program.at.h)
    program.at.h = x
    return out, None


def counts(program, x):
    out = program.model(x * (program.at.seen % 3).float())
    program.at.seen = program.at.seen + (out.detach() > 0).long()
    return out, None


CARRIED = {
    "hidden": (hidden, lambda: {"h": zeros()}), "of_a_cell": (of_a_cell, lambda: {"state": (zeros(), zeros())}),
    "in_dicts": (in_dicts, lambda: {"state": {"h": zeros(), "c": zeros()}}),
    "in_an_entry": (in_an_entry, lambda: {"table": {"h": zeros()}}), "shifted": (shifted, lambda: {"a": zeros(), "b": zeros() + 1}),
    "views_of_one": (views_of_one, lambda: {"scale": zeros() + 1, "shift": zeros()}),
    "given_back_when_it_is_over": (given_back_when_it_is_over, lambda: {"h": zeros()}),
    "given_back_as_it_is": (given_back_as_it_is, lambda: {"h": zeros()}),
    "written_in_place": (written_in_place, lambda: {"h": zeros()}),
    "every_other_column": (every_other_column, lambda: {"h": zeros()}),
    "keeps_its_argument": (keeps_its_argument, lambda: {"h": zeros()}),
    "counts": (counts, lambda: {"seen": torch.zeros(2, WIDTH, dtype=torch.long)}),
}


def wrapped(program):
    return steptape.wrap(program.step, verify={"first": True, "rate": 0.0})


def trained(compute, at, calls=CALLS, before=lambda program, i: None, rows=lambda i: 2):
    """Twin programs after so many calls, the second of them wrapped: (plain, wrapped, step)."""
    plain, other = Program(compute, **at()), Program(compute, **at())
    step = wrapped(other)
    for i in range(calls):
        before(plain, i), before(other, i)
        assert bits(step(batch(i, rows(i)))) == bits(plain.step(batch(i, rows(i))))
    assert step.stats["replayed"] > 0, step.explain()
    return plain, other, step


@pytest.mark.parametrize("name", CARRIED)
def test_a_loaded_step_goes_on_from_what_it_left(name, tmp_path):
    plain, _, step = trained(*CARRIED[name])
    step.save(tmp_path / "run.tape")
    play = steptape.load(tmp_path / "run.tape")["step"]
    given = []
    for i in range(CALLS, 2 * CALLS):
        found, expected = play(batch(i)), plain.step(batch(i))
        assert bits(found) == bits(expected), i
        given += [(found, bits(found))]
    assert all(bits(found) == then for found, then in given), "a result is another one after later calls"
    assert [each["path"] for each in play.inputs()] == ["inputs[0]"]


@pytest.mark.parametrize("name", ["hidden", "of_a_cell", "views_of_one"])
def test_what_a_player_saves_goes_on_too(name, tmp_path):
    plain, _, step = trained(*CARRIED[name])
    step.save(tmp_path / "run.tape")
    for first in range(CALLS, CALLS + 9, 3):
        player = steptape.load(tmp_path / "run.tape")
        for i in range(first, first + 3):
            assert bits(player["step"](batch(i))) == bits(plain.step(batch(i)))
        player.save(tmp_path / "run.tape")


def test_a_carried_tensor_is_state_that_can_be_looked_at_and_set(tmp_path):
    plain, _, step = trained(*CARRIED["of_a_cell"])
    step.save(tmp_path / "run.tape")
    player = steptape.load(tmp_path / "run.tape")
    h, c = (path for path in (each["path"] for each in player.state()) if path.endswith(("state[0]", "state[1]")))
    assert bits(player.tensor(h)) == bits(plain.at.state[0]) and bits(player.tensor(c)) == bits(plain.at.state[1])
    for path in (h, c):
        player.tensor(path).zero_()
    plain.at.state = zeros(), zeros()
    assert bits(player["step"](batch(50))) == bits(plain.step(batch(50)))
    player.save_weights(tmp_path / "all.safetensors", everything=True)
    plain_loss = plain.step(batch(51))
    assert bits(player["step"](batch(51))) == bits(plain_loss)
    player.load_weights(tmp_path / "all.safetensors")
    assert bits(player["step"](batch(51))) == bits(plain_loss)


def reset_by_the_program(program, i):
    program.at.h = program.at.h * (i % 3 > 0)


def swapped_by_the_program(program, i):
    program.at.a, program.at.b = program.at.b, program.at.a


@pytest.mark.parametrize("compute, at, before, inputs", [
    (hidden, CARRIED["hidden"][1], reset_by_the_program, 2),
    (shifted, CARRIED["shifted"][1], swapped_by_the_program, 3),
])
def test_what_the_program_gives_the_step_there_is_an_input(compute, at, before, inputs, tmp_path):
    """A player cannot know what the program would do between two calls."""
    plain, _, step = trained(compute, at, before=before)
    step.save(tmp_path / "run.tape")
    play = steptape.load(tmp_path / "run.tape")["step"]
    paths = [each["path"] for each in play.inputs()]
    assert len(paths) == inputs and all(".at." in path for path in paths[1:]), paths
    with pytest.raises(steptape.FailedPrecondition, match=f"inputs.size: {inputs} "):
        play(batch(0))
    for i in range(CALLS, CALLS + 5):
        before(plain, i)
        given = [plain.at.h] if compute is not shifted else [plain.at.a, plain.at.b]
        assert bits(play(batch(i), *given)) == bits(plain.step(batch(i)))


def test_a_kept_argument_is_the_caller_s_tensor(tmp_path):
    """As in the program: what the caller writes to it is what the next call finds."""
    plain, _, step = trained(*CARRIED["keeps_its_argument"])
    step.save(tmp_path / "run.tape")
    play, x, y = steptape.load(tmp_path / "run.tape")["step"], batch(0), batch(0)
    for i in range(1, 4):
        assert bits(play(x)) == bits(plain.step(y))
        x.copy_(batch(i)), y.copy_(batch(i))
        other = batch(10 + i)
        assert bits(play(other)) == bits(plain.step(other.clone()))


def test_a_result_that_is_carried_on_is_the_one_that_was_returned(tmp_path):
    """A caller who writes to it writes to what the next call finds, as in the program."""
    def returns_it(program, x):
        out = program.model(x + program.at.h)
        program.at.h = out.detach()
        return out, program.at.h
    plain, _, step = trained(returns_it, CARRIED["hidden"][1])
    step.save(tmp_path / "run.tape")
    play = steptape.load(tmp_path / "run.tape")["step"]
    for i in range(4):
        found, expected = play(batch(i)), plain.step(batch(i))
        assert bits(found) == bits(expected)
        found[1].mul_(.5), expected[1].mul_(.5)


def from_nothing(program, x):
    h = program.at.h
    out = program.model(x if h is None else x + h)
    program.at.h = out.detach()
    program.at.n += 1
    if program.at.n % 4 == 0:
        program.at.h = None
    return out, None


def from_no_pair(program, x):
    h, c = program.cell(x, program.at.state)
    program.at.n += 1
    program.at.state = None if program.at.n % 4 == 0 else (h.detach(), c.detach())
    return h, None


def from_no_entry(program, x):
    h = program.kept.get("h")
    out = program.model(x if h is None else x * h)
    program.kept = {} if program.at.n % 4 == 3 else {"h": out.detach().sigmoid()}
    program.at.n += 1
    return out, None


def from_no_attribute(program, x):
    out = program.model(x + program.at.h if hasattr(program.at, "h") else x)
    program.at.n += 1
    if program.at.n % 4 == 0:
        program.at.h = None
        del program.at.h
    else:
        program.at.h = out.detach()
    return out, None


def from_an_empty_list(program, x):
    out = program.model(x + sum(program.at.seen))
    program.at.seen = program.at.seen + [out.detach()]
    if len(program.at.seen) >= 4:
        program.at.seen = []
    return out, None


def of_a_window(program, x):
    out = program.model(x + sum(program.at.seen))
    program.at.seen = (*program.at.seen, out.detach())[-3:]
    return out, None


def now_and_then(program, x):
    out = program.model(x * program.at.h)
    program.at.n += 1
    if program.at.n % 3 == 0:
        program.at.h = out.detach().sigmoid()
    return out, None


def two_in_turn(program, x):
    a, b = program.at.a, program.at.b
    out = program.model(x + (0 if a is None else a) - (0 if b is None else .5 * b))
    program.at.n += 1
    program.at.a, program.at.b = (out.detach(), a) if program.at.n % 5 else (None, None)
    return out, None


EMPTY_AT_TIMES = {
    "from_nothing": (from_nothing, lambda: {"h": None, "n": 0}), "from_no_pair": (from_no_pair, lambda: {"state": None, "n": 0}),
    "from_no_entry": (from_no_entry, lambda: {"n": 0}), "from_an_empty_list": (from_an_empty_list, lambda: {"seen": []}),
    "of_a_window": (of_a_window, lambda: {"seen": ()}), "now_and_then": (now_and_then, lambda: {"h": zeros() + 1, "n": 0}),
    "two_in_turn": (two_in_turn, lambda: {"a": None, "b": None, "n": 0}),
}


@pytest.mark.parametrize("more", range(5))
@pytest.mark.parametrize("name", EMPTY_AT_TIMES)
def test_a_place_that_is_empty_at_times(name, more, tmp_path):
    """Saved where it holds a tensor, and where it does not."""
    plain, _, step = trained(*EMPTY_AT_TIMES[name], 40 + more)
    step.save(tmp_path / "run.tape")
    player = steptape.load(tmp_path / "run.tape")
    for i in range(40 + more, 60):
        assert bits(player["step"](batch(i))) == bits(plain.step(batch(i))), i
        if i % 5 == 0:
            player.save(tmp_path / "run.tape")
            player = steptape.load(tmp_path / "run.tape")
    assert [each["path"] for each in player["step"].inputs()] == ["inputs[0]"]


@pytest.mark.parametrize("name", ["from_nothing", "from_no_pair", "two_in_turn", "from_an_empty_list"])
def test_weights_go_from_any_state_of_a_player_to_any(name, tmp_path):
    _, _, step = trained(*EMPTY_AT_TIMES[name], 40)
    step.save(tmp_path / "run.tape")

    def player_after(calls):
        player = steptape.load(tmp_path / "run.tape")
        for i in range(calls):
            player["step"](batch(i))
        return player

    for first in range(5):
        one = player_after(first)
        one.save_weights(tmp_path / "all.safetensors", everything=True)
        expected = [bits(one["step"](batch(50 + i))) for i in range(6)]
        for second in range(5):
            other = player_after(second)
            other.load_weights(tmp_path / "all.safetensors")
            assert [bits(other["step"](batch(50 + i))) for i in range(6)] == expected, (first, second)


def test_a_place_that_the_program_empties(tmp_path):
    """A player goes on from what is there: nobody empties it."""
    def empty(program, i):
        if i % 6 == 0:
            program.at.state = None

    def of_a_cell_or_none(program, x):
        h, c = program.cell(x, program.at.state)
        program.at.state = h.detach(), c.detach()
        return h, None

    for calls in (36, 38):
        plain, other, step = trained(of_a_cell_or_none, lambda: {"state": None}, calls, empty)
        if calls == 36:
            plain.at.state = other.at.state = None
        step.save(tmp_path / "run.tape")
        player = steptape.load(tmp_path / "run.tape")
        h = next(path for path in (each["path"] for each in player.state()) if path.endswith("state[0]"))
        for i in range(4):
            if calls == 36 and i == 0:
                with pytest.raises(steptape.InvalidArgument, match="holds no tensor"):
                    player.tensor(h)
            assert bits(player["step"](batch(i))) == bits(plain.step(batch(i))), (calls, i)
            assert bits(player.tensor(h)) == bits(plain.at.state[0])


@pytest.mark.parametrize("carries", [False, True])
@pytest.mark.parametrize("calls", [20, 24])
def test_a_place_that_the_program_fills_at_times(calls, carries, tmp_path):
    """A player runs the variants for what stood there as the trace was saved; the tensor is the caller's to pass."""
    def masked(program, x):
        out = program.model(x + program.at.h if carries else x)
        if program.at.mask is not None:
            out = out * program.at.mask
        if carries:
            program.at.h = out.detach()
        return out, None

    def fill(program, i):
        if i % 4 == 0:
            program.at.mask = torch.full((WIDTH,), 1. + i) if i % 8 else None

    plain, _, step = trained(masked, lambda: {"h": zeros(), "mask": None}, calls, fill)
    step.save(tmp_path / "run.tape")
    play = steptape.load(tmp_path / "run.tape")["step"]
    is_filled = plain.at.mask is not None
    assert is_filled == (calls == 24) and len(play.inputs()) == 1 + is_filled
    for i in range(3):
        if is_filled:
            with pytest.raises(steptape.FailedPrecondition, match="inputs.size: 2 "):
                play(batch(i))
            plain.at.mask = torch.full((WIDTH,), 2. + i)
        assert bits(play(batch(i), *([plain.at.mask] if is_filled else []))) == bits(plain.step(batch(i)))


def scaled(program, x):
    h, scale = program.at.state
    out = program.model(x + h * scale)
    program.at.state = out.detach(), scale * .9
    return out, None


def of_the_program(program, x):
    return program.model(x * program.at.scales[0]), None


def in_two_places(program, x):
    out = program.model(x + program.at.a - program.at.b)
    program.at.a = program.at.b = out.detach()
    return out, None


def of_turning_layout(program, x):
    out = program.model(x + program.at.h)
    program.at.h = torch.cat([out.detach(), x]).t().contiguous().t()[:2] if program.at.n % 2 else out.detach()
    program.at.n += 1
    return out, None


@pytest.mark.parametrize("compute, at, name", [
    (of_the_program, lambda: {"scales": [1.0]}, "scales"), (scaled, lambda: {"state": (zeros(), 1.0)}, "state"), (in_two_places, lambda: {"a": zeros(), "b": zeros()}, "a"),
    (of_turning_layout, lambda: {"h": zeros(), "n": 0}, "h"),
])
def test_what_cannot_be_carried_on_is_said_at_once(compute, at, name, tmp_path):
    def rescale(program, i):
        if compute is of_the_program:
            program.at.scales = [0.9 ** i]

    _, _, step = trained(compute, at, 30, rescale)
    step.save(tmp_path / "run.tape")
    with pytest.raises(steptape.Unsupported, match=rf"at\.{name} is more than players hold"):
        steptape.load(tmp_path / "run.tape")


def test_a_place_that_holds_no_such_tensor_when_the_trace_is_saved(tmp_path):
    _, program, step = trained(*CARRIED["hidden"])
    program.at.h = None
    step.save(tmp_path / "run.tape")
    with pytest.raises(steptape.Unsupported, match=r"what stood in \S*at\.h when the trace was saved is of another kind"):
        steptape.load(tmp_path / "run.tape")
    program.at.h = zeros()
    step.save(tmp_path / "run.tape")
    assert steptape.load(tmp_path / "run.tape")["step"].inputs()
    step.save(tmp_path / "run.tape", state=False)
    with pytest.raises(steptape.Unsupported, match=r"holds no tensor of \S*at\.h, which the step goes on from; save it with its state"):
        steptape.load(tmp_path / "run.tape")


@pytest.mark.parametrize("last", [2, 3])
def test_of_several_shapes_the_one_that_is_there_goes_on(last, tmp_path):
    """Each shape is a variant; another one finds nothing that it could begin with."""
    at, rows = CARRIED["hidden"][1], lambda i: 2 + (i // 8) % 2

    def before(program, i):
        if len(program.at.h) != rows(i):
            program.at.h = zeros(rows(i))
    plain, _, step = trained(hidden, at, 24 + (last == 3) * 8, before, rows)
    assert len(step.stats["variants"]) == 2, step.explain()
    step.save(tmp_path / "run.tape")
    play = steptape.load(tmp_path / "run.tape")["step"]
    for i in range(5):
        assert bits(play(batch(i, last))) == bits(plain.step(batch(i, last)))
    with pytest.raises(steptape.FailedPrecondition, match=r"size\(0\)"):
        play(batch(0, 5 - last))

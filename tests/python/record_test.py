"""steptape.record: the first steps of a loop, as a trace."""
import contextlib
from types import SimpleNamespace

import pytest
import torch

import steptape
import twins
from twins import dumped, needs_tool


def loop(steps=6):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def train(i):
        x = torch.linspace(-1, 1, 12).view(3, 4) * (i + 1)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return model, optimizer, train, range(steps)


def test_a_recorded_loop_computes_what_it_computes_without(tmp_path):
    model, optimizer, train, calls = loop()
    expected = [twins.bits([train(i), model, optimizer]) for i in calls]
    model, optimizer, train, calls = loop()
    with steptape.record(tmp_path / "run.tape", model=model, optimizer=optimizer, steps=3) as recording:
        for i in calls:
            loss = train(i)
            recording.step()
            if i >= 3:  # all recorded: nothing is held any more
                assert twins.bits([loss, model, optimizer]) == expected[i]
    assert twins.bits([loss, model, optimizer]) == expected[-1]
    assert recording.recorded == 3
    assert recording.refusals() == [] or all(isinstance(r, str) for r in recording.refusals())


@needs_tool
def test_the_trace_names_ops_modules_and_lines(tmp_path):
    path = tmp_path / "run.tape"
    model, optimizer, train, calls = loop()
    with steptape.record(path, model=model, optimizer=optimizer, steps=2, name="train") as recording:
        for i in calls:
            train(i)
            recording.step()
    text = str(dumped(path))
    for name in ("aten::addmm", "model.0.weight", "record_test.py:", "torch.optim.adam.Adam"):
        assert name in text, name


def test_what_the_step_does_not_use_is_not_saved(tmp_path):
    """A data set in reach of the step stays out of the file, whatever names it."""
    model, optimizer, train, calls = loop()
    data_set = torch.randn(1 << 20)

    def step(i):
        assert data_set.numel() > 0
        return train(i)
    wrapped = steptape.wrap(step)
    for i in calls:
        wrapped(i)
    wrapped.save(tmp_path / "run.tape")
    assert (tmp_path / "run.tape").stat().st_size < 1 << 20


def test_a_block_that_ends_early_writes_what_there_is(tmp_path):
    model, optimizer, train, _ = loop()
    with steptape.record(tmp_path / "run.tape", model=model, optimizer=optimizer, steps=5) as recording:
        train(0)
        recording.step()
        train(1)
    assert recording.recorded == 2
    assert (tmp_path / "run.tape").stat().st_size > 0


def test_a_block_that_raises_writes_nothing_and_leaves_no_trace_in_the_process(tmp_path):
    model, optimizer, train, _ = loop()
    with pytest.raises(ZeroDivisionError):
        with steptape.record(tmp_path / "run.tape", model=model, optimizer=optimizer):
            train(0)
            1 / 0
    assert not (tmp_path / "run.tape").exists()
    assert type(optimizer.param_groups[0]["lr"]) is float
    step = steptape.wrap(lambda: train(1))
    step()
    assert step.stats["recorded"] == 1


@pytest.mark.parametrize("options", [{"steps": 0}, {"steps": "3"}, {"name": ""}, {"model": 3}])
def test_wrong_options_are_told(tmp_path, options):
    with pytest.raises(steptape.InvalidArgument):
        with steptape.record(tmp_path / "run.tape", **options):
            pass


def test_a_folder_that_is_not_there_is_an_io_error(tmp_path):
    model, optimizer, train, _ = loop()
    with pytest.raises(steptape.IoError):
        with steptape.record(tmp_path / "none" / "run.tape", model=model, optimizer=optimizer, steps=1) as r:
            train(0)
            r.step()


@needs_tool
def test_timings_say_how_long_each_op_took(tmp_path):
    path = tmp_path / "run.tape"
    model, optimizer, train, calls = loop()
    with steptape.record(path, model=model, optimizer=optimizer, steps=2, timings=True) as recording:
        for i in calls:
            train(i)
            recording.step()
    for each in dumped(path)["steps"][0]["recordings"]:
        assert len(each["op_ns"]) == len(each["ops"])
        assert sum(each["op_ns"]) > 0


class Averaging(torch.optim.Optimizer):
    """Keeps a rate and floats that none of its ops uses."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1, "betas": (0.5, 0.25)})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["lr"] *= 0.99
            group["betas"] = (group["betas"][0] * 0.5, group["betas"][1])
            for p in group["params"]:
                state = self.state[p]
                state["rate"] = state.get("rate", 1.0) * 0.9
                p.sub_(p.grad, alpha=0.1)


@pytest.mark.parametrize("round", range(3))
def test_numbers_of_an_optimizer_that_a_recorded_loop_computes(tmp_path, round):
    """Each recording follows numbers of its own: none that the recording before it has made."""
    def trained(record):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = Averaging(model.parameters())
        with record(model, optimizer) as recorded:
            for _ in range(8):
                optimizer.zero_grad()
                model(torch.ones(4, 3)).pow(2).mean().backward()
                optimizer.step()
                recorded.step()
        assert getattr(recorded, "recorded", 6) == 6
        return twins.bits([*model.parameters()]), optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["betas"], \
            [optimizer.state[p]["rate"] for p in model.parameters()]

    eager = trained(lambda *_: contextlib.nullcontext(SimpleNamespace(step=lambda: None)))
    assert trained(lambda model, optimizer: steptape.record(tmp_path / "run.tape", model=model, optimizer=optimizer, steps=6)) == eager

"""Which module's call issued an op, and under which paths tensors are reached: as traces hold it."""
import sys

import pytest
import torch
import torch.utils.checkpoint

import steptape
from twins import dumped, needs_tool

pytestmark = needs_tool


def recording_of(path):
    """The last recording in a trace file."""
    return dumped(path)["steps"][-1]["recordings"][-1]


def recorded(tmp_path, model, step, steps=1):
    path = tmp_path / "run.tape"
    with steptape.record(path, model=model, steps=steps) as recording:
        for _ in range(steps):
            step()
            recording.step()
    return recording_of(path)


def paths_of(recording):
    return [module["path"] for module in recording["modules"]]


def accesses_of(recording):
    paths = paths_of(recording)
    return [(paths[access["module"]], access["call"], access["first_op"]) for access in recording["module_access"]]


class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        self.head = torch.nn.Linear(4, 4)
        self.head.weight = self.inner[0].weight

    def forward(self, x):
        return self.head(self.inner(self.inner(x)))


def test_each_entry_of_a_module_is_a_call(tmp_path):
    model, x = Twice(), torch.randn(3, 4)
    accesses = accesses_of(recorded(tmp_path, model, lambda: model(x)))
    assert [(path, call) for path, call, _ in accesses] == [
        ("model", 1), ("model.inner", 1), ("model.inner.0", 1), ("model.inner.1", 1),
        ("model.inner", 2), ("model.inner.0", 2), ("model.inner.1", 2), ("model.head", 1)]
    assert accesses[0][2] == accesses[1][2] == accesses[2][2] == 0
    assert [op for _, _, op in accesses] == sorted(op for _, _, op in accesses)


def test_an_update_is_no_call(tmp_path):
    model, x = torch.nn.Linear(4, 4), torch.randn(3, 4)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1, foreach=False)

    def train():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    accesses = accesses_of(recorded(tmp_path, model, train, steps=2))
    assert accesses == [("model", 1, accesses[0][2])]


def test_tied_weights_know_both_paths(tmp_path):
    model, x = Twice(), torch.randn(3, 4)
    recording = recorded(tmp_path, model, lambda: model(x))
    aliases = {tracked["path"]: tracked["aliases"] for tracked in recording["tracked"]}
    assert "model.head.weight" in aliases["model.inner.0.weight"]


def test_names_that_mean_something_in_paths_stand_in_quotes(tmp_path):
    model, x = torch.nn.ModuleDict({"a@2": torch.nn.Linear(4, 4), "b[0]": torch.nn.Linear(4, 4)}), torch.randn(3, 4)
    recording = recorded(tmp_path, model, lambda: model["b[0]"](model["a@2"](x)))
    assert paths_of(recording)[:3] == ["model", 'model."a@2"', 'model."b[0]"']
    assert [path for path, _, _ in accesses_of(recording)] == ['model."a@2"', 'model."b[0]"']


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.act = torch.nn.Tanh()

    def forward(self, x):
        return self.act(self.fc(x))


def operators_by_call(recording):
    """{(module path, call): names of the operators of its ops, in order}."""
    paths = paths_of(recording)
    calls = {}
    for op in recording["ops"]:
        module = "" if op["module"] is None else paths[op["module"]]
        calls.setdefault((module, op["call"]), []).append(op["op"])
    return calls


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_backward_computes_again_belongs_to_the_module_that_is_called_again(tmp_path, reentrant):
    model, x = Block(), torch.randn(3, 4, requires_grad=True)

    def train():
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    calls = operators_by_call(recorded(tmp_path, model, train))
    assert "aten::addmm" in calls["model.fc", 1] and "aten::addmm" in calls["model.fc", 2]
    assert "aten::tanh" in calls["model.act", 1] and "aten::tanh" in calls["model.act", 2]
    if reentrant:  # its backward goes through the graph that was made again
        assert "aten::tanh_backward" in calls["model.act", 2]
    assert "aten::mm" not in calls["model.act", 2]


class Stop(BaseException):
    pass


class Stopping(torch.nn.Module):
    def forward(self, x):
        x.abs()
        raise Stop


class Catching(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Stopping()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x):
        try:
            self.inner(x)
        except Stop:
            pass
        return self.fc(x.neg())


def test_a_call_that_an_exception_of_its_own_kind_ends_is_over(tmp_path):
    model, x = Catching(), torch.randn(3, 4)
    calls = operators_by_call(recorded(tmp_path, model, lambda: model(x).sum().backward()))
    assert calls["model.inner", 1][:1] == ["aten::abs"]
    assert "aten::addmm" in calls["model.fc", 1]
    assert "aten::sum" in calls["", 0]


def test_calls_by_code_of_c_are_calls(tmp_path):
    model, x = Block(), torch.randn(3, 4)
    recording = recorded(tmp_path, model, lambda: list(map(model, [x, x])))
    assert [(path, call) for path, call, _ in accesses_of(recording)] == [
        ("model", 1), ("model.fc", 1), ("model.act", 1), ("model", 2), ("model.fc", 2), ("model.act", 2)]


def test_nothing_is_hung_onto_modules(tmp_path):
    """What a program asks of hooks for all modules is what it is without."""
    model, x, found = Block(), torch.randn(3, 4), []
    tables = torch.nn.modules.module

    def look():
        found.append((dict(tables._global_forward_hooks), dict(tables._global_forward_pre_hooks)))
        return model(x)
    assert accesses_of(recorded(tmp_path, model, look))
    assert found == [({}, {})]


def test_hooks_are_part_of_the_call(tmp_path):
    model, x = Block(), torch.randn(3, 4)
    model.fc.register_forward_pre_hook(lambda module, given: (given[0].abs(),))
    model.fc.register_forward_hook(lambda module, given, result: result.neg())
    calls = operators_by_call(recorded(tmp_path, model, lambda: model(x)))
    in_call = calls["model.fc", 1]
    assert in_call[0] == "aten::abs" and in_call[-1] == "aten::neg"


def test_a_tracer_of_the_programs_own_hides_which_module_runs(tmp_path):
    """Where the interpreter tells one tracer alone; modules without parameters have no calls then."""
    model, x, told = Block(), torch.randn(3, 4), []
    path = tmp_path / "run.tape"
    sys.settrace(lambda frame, event, argument: told.append(event))
    try:
        with steptape.record(path, model=model, steps=1) as recording:
            model(x)
            recording.step()
    finally:
        sys.settrace(None)
    assert told
    said = [text for text in recording.refusals() if "numbers and calls of modules cannot be watched" in text]
    is_told = "model.act" in [path for path, _, _ in accesses_of(recording_of(path))]
    assert (bool(said), is_told) == ((True, False) if sys.version_info < (3, 12) else (False, True))


def test_ops_outside_every_call_belong_to_none(tmp_path):
    model, x = Block(), torch.randn(3, 4)
    calls = operators_by_call(recorded(
        tmp_path, model, lambda: (torch.nn.functional.linear(x, model.fc.weight), model(x))))
    assert calls["model.fc", 1].count("aten::addmm") == 1
    assert calls["", 0]


def test_a_step_inside_a_step_adds_no_calls(tmp_path):
    inner_model, model, x = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.randn(3, 4)
    inner = steptape.wrap(lambda x: inner_model(x).detach(), name="inner", model=inner_model)
    path = tmp_path / "run.tape"
    outer = steptape.wrap(lambda x: model(inner(x) * 2).detach(), name="outer",
                          model={"outer": model, "inner": inner_model})
    for _ in range(3):
        outer(x)
    outer.save(path)
    assert [(path, call) for path, call, _ in accesses_of(recording_of(path))] == [("inner", 1), ("outer", 1)]

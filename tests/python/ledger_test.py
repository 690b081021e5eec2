"""The ledger that a run leaves beside its trace, and the recordings that are asked for."""
import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest
import torch

import steptape
from twins import dumped, needs_tool

TRAINING = """
    import sys, torch, steptape
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    def train(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    step = steptape.wrap(train, trace="run.tape", verify={"rate": 0}, **eval(sys.argv[1]))
    x = torch.arange(12.).reshape(3, 4)
"""


def run(folder: pathlib.Path, options: str, program: str) -> None:
    code = textwrap.dedent(TRAINING) + textwrap.dedent(program)
    subprocess.run([sys.executable, "-c", code, options], cwd=folder, check=True)


def lines_in(path: pathlib.Path) -> int:
    """A record is 64 bytes: the header, the name of the one step, a line a call, the mark of the end."""
    return path.stat().st_size // 64 - 3


def test_a_program_that_ends_leaves_a_line_for_each_call(tmp_path):
    run(tmp_path, "{}", "for _ in range(50): step(x)")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.tape", "run.tape.ledger"]
    assert lines_in(tmp_path / "run.tape.ledger") == 50


def test_equal_programs_leave_equal_ledgers_and_a_resumed_one_goes_on(tmp_path):
    a, b = (tmp_path / name / "run.tape.ledger" for name in "ab")
    for ledger in (a, b):
        ledger.parent.mkdir()
        run(ledger.parent, "{'digests': True}", "for _ in range(9): step(x)")
    # all of a line but the time, which comes last before the checksum
    assert [line[:52] for line in records(a)[1:]] == [line[:52] for line in records(b)[1:]]
    run(b.parent, "{'resume': True}", "for _ in range(4): step(x)")
    calls = [int.from_bytes(line[8:16], "little") for line in records(b) if line[0] == 2]
    assert calls == list(range(1, 14))


def test_a_second_process_starts_warm_and_another_program_leaves_the_trace(tmp_path):
    run(tmp_path, "{}", "for _ in range(9): step(x)\nassert step.stats['recorded'] == 3, step.stats")
    run(tmp_path, "{}", """
        for _ in range(9): step(x)
        assert step.stats["recorded"] == 3, step.stats  # the second and third prove the counter
        assert step.stats["variants"][0]["warm_start"]
        assert "one probe agreed with the trace of an earlier run" in step.explain()
    """)
    run(tmp_path, "{}", """
        optimizer.param_groups[0]["weight_decay"] = 0.1
        for _ in range(9): step(x)
    """)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "run.tape", "run.tape.2", "run.tape.ledger", "run.tape.ledger.1", "run.tape.ledger.2"]


def records(path):
    data = path.read_bytes()
    return [data[at:at + 64] for at in range(0, len(data), 64)]


def test_objects_that_come_and_go_leave_one_ledger(tmp_path):
    run(tmp_path, "{}", """
        for call in range(20):
            if call == 10:
                model = torch.nn.Linear(4, 2)
                optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            step(x)
    """)
    assert lines_in(tmp_path / "run.tape.ledger") == 20


@needs_tool
def test_calls_that_are_asked_for_are_recorded(tmp_path):
    run(tmp_path, "{'record': {'at': [12], 'every': 8}, 'digests': True}", """
        for _ in range(20): step(x)
        assert step.stats["replayed"] == 13, step.stats
    """)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.tape", "run.tape.ledger"]
    recordings = dumped(tmp_path / "run.tape")["steps"][0]["recordings"]
    assert [each["call"] for each in recordings if each["status"] == "probe"] == [8, 12, 16]
    assert all(len(each["op_digests"]) == len(each["ops"]) for each in recordings)


def test_a_killed_program_leaves_the_recordings_that_were_asked_for(tmp_path):
    run(tmp_path, "{'record': {'first': 2}}", """
        import os
        for _ in range(9): step(x)
        if os.fork() == 0:
            os._exit(0)  # a child writes nothing
        os.wait()
        os._exit(0)  # as a kill: nothing is ended
    """)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.tape", "run.tape.ledger", "run.tape.part"]


def test_the_call_behind_a_nan_and_behind_a_signal_is_recorded(tmp_path):
    model = torch.nn.Linear(4, 2)
    step = steptape.wrap(lambda x: model(x).sum(), model=model, trace=tmp_path / "run.tape",
                         record={"on_nonfinite": True, "on_signal": signal.SIGUSR1})
    x = torch.ones(3, 4)
    for _ in range(6):
        step(x)
    recorded = step.stats["recorded"]
    step(x * float("nan"))
    assert step.stats["recorded"] == recorded
    step(x)
    assert step.stats["recorded"] == recorded + 1
    step(x)
    assert step.stats["recorded"] == recorded + 1
    os.kill(os.getpid(), signal.SIGUSR1)
    step(x)
    step(x)
    assert step.stats["recorded"] == recorded + 2


@pytest.mark.parametrize("options, message", [
    ({"ledger": 1}, "wrap: ledger is 1; it must be True or False"),
    ({"record": {"often": 1}, "trace": "t"}, "record is {'often': 1}"),
    ({"record": {"every": -1}, "trace": "t"}, "each a number of calls"),
    ({"record": {"at": "12"}, "trace": "t"}, "each a number of calls"),
    ({"record": {"first": 3}}, "record needs a trace"),
    ({"record": {"on_signal": signal.SIGKILL}, "trace": "t"}, "signal 9 cannot be handled"),
])
def test_wrong_options_are_told(options, message):
    with pytest.raises(steptape.InvalidArgument, match=message.replace("{", r"\{").replace("}", r"\}")):
        steptape.wrap(lambda x: x, **options)


def test_a_recorded_loop_has_digests_where_they_are_asked_for(tmp_path):
    model = torch.nn.Linear(4, 2)
    sizes = {}
    for digests in (False, True):
        path = tmp_path / f"{digests}.tape"
        with steptape.record(path, model=model, steps=2, digests=digests) as r:
            for _ in range(2):
                model(torch.ones(3, 4)).sum()
                r.step()
        sizes[digests] = path.stat().st_size
    assert sizes[True] > sizes[False]

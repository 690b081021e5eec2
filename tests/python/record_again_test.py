"""From two runs that part to the op in which they do, by nothing but commands."""
import json
import os
import subprocess
import sys
import textwrap

from twins import TOOL, needs_tool, tool

pytestmark = needs_tool

PROGRAM = """
    import sys, torch, steptape
    name, rate = sys.argv[1], float(sys.argv[2])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    data = [(torch.randn(4, 8), torch.randint(0, 4, (4,))) for _ in range(8)]

    def train(x, y):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step = steptape.wrap(train, name="train", trace=name, digests=True, verify={"rate": 0})
    for call in range(40):
        if call == 25:
            optimizer.param_groups[0]["lr"] = rate
        step(*data[call % 8])
    assert step.stats["replayed"] > 20 and not step.stats["trace_problem"], step.stats
"""


def shell(command, folder):
    """Runs a command line that `steptape` printed, as a user would."""
    path = f"{os.path.dirname(TOOL)}:{os.environ['PATH']}"
    subprocess.run(command, shell=True, cwd=folder, check=True, env={**os.environ, "PATH": path})


def test_bisect_prints_commands_that_lead_to_the_op(tmp_path):
    program = tmp_path / "train it.py"
    program.write_text(textwrap.dedent(PROGRAM))
    for name, rate in (("a.tape", 1e-3), ("b.tape", 2e-3)):
        subprocess.run([sys.executable, program, name, str(rate)], cwd=tmp_path, check=True)
    found = json.loads(tool("bisect", "a.tape", "b.tape", "--json", statuses=(1,), folder=tmp_path).stdout)
    assert found["call"] == 26 and found["numerics"] is None
    assert f"{found['record']['command_a']}\n" in tool("bisect", "a.tape", "b.tape", statuses=(1,), folder=tmp_path).stdout
    shell(found["record"]["command_a"], tmp_path)
    shell(found["record"]["command_b"], tmp_path)
    found = json.loads(tool("bisect", "a.tape", "b.tape", "--json", statuses=(1,), folder=tmp_path).stdout)
    assert found["call"] == 26 and found["record"] is None
    first = found["numerics"]["ops"][0]
    assert first["operator"] == "aten::add_.Tensor"
    assert first["input"] == {"name": "alpha", "a": "-0.001", "b": "-0.002"}


def test_a_program_recorded_twice_is_its_own_control(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(textwrap.dedent(PROGRAM))
    subprocess.run([TOOL, "record", "--twice", "--timings", "--first", "3", "--", sys.executable, program, "run.tape", "1e-3"],
                   cwd=tmp_path, check=True)
    subprocess.run([sys.executable, program, "other.tape", "2e-3"], cwd=tmp_path, check=True)
    assert sorted(path.name for path in tmp_path.glob("*.tape")) == ["other.tape", "run.again.tape", "run.tape"]
    assert tool("diff", "run.tape", "run.again.tape", "--ignore", "time", folder=tmp_path).stdout.startswith("equal\n")
    assert "with times" in tool("info", "run.tape", folder=tmp_path).stdout
    verdict = tool("diff", "run.tape", "other.tape", "--control", "run.again.tape", "--ignore", "time",
                   statuses=(1,), folder=tmp_path).stdout.splitlines()[0]
    assert "ledger (train: call 26: parameters)" in verdict

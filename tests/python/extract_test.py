"""Programs that `steptape extract` writes: one for every op of a recorded step, run with torch."""
import collections
import contextlib
import hashlib
import io
import json
import re
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import steptape
from twins import needs_tool, tool

pytestmark = needs_tool


def record(path, step, arguments, **objects):
    with steptape.record(path, steps=len(arguments), name="train", **objects) as recorder:
        for each in arguments:
            step(*each)
            recorder.step()


def ops_of(path):
    recording = json.loads(tool("export", path, "--json").stdout)["steps"][0]["recordings"][0]
    return [op["op"] for op in recording["ops"]]


def run(program):
    """What the program prints; it runs in this process, since importing torch anew takes a second."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "op.py", "exec"), {"__name__": "__main__"})
    return printed.getvalue()


def digest_of(tensor):
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()[:16]


class Net(nn.Module):
    """Layers whose ops take scalars, lists, dtypes, optional tensors and generators."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.convolution = nn.Conv1d(8, 6, 3, padding=1)
        self.norm = nn.BatchNorm1d(6)
        self.gru = nn.GRU(6, 5, batch_first=True)
        self.layer_norm = nn.LayerNorm(5)
        self.dropout = nn.Dropout(0.3)
        self.linear = nn.Linear(5, 4)
        self.table = torch.linspace(0, 1, 7)
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, ids, mask):
        x = self.embedding(ids).transpose(1, 2)
        x = F.relu(self.norm(self.convolution(x)), inplace=True)
        x, _ = self.gru(x.transpose(1, 2))
        x = self.dropout(self.layer_norm(x)) * 0.5
        x = torch.where(mask.unsqueeze(-1), x, torch.zeros((), dtype=x.dtype))
        x = F.scaled_dot_product_attention(*[x.unsqueeze(1)] * 3).squeeze(1)
        largest, _ = x.max(dim=1)
        left, right = torch.split(largest, [2, 3], dim=1)
        x = torch.cat([right, left], 1) + self.table[:5] + torch.rand(5)
        x = x + torch.randn(5, generator=self.generator)
        x = x.to(torch.float64).to(torch.float32)
        spectrum = torch.fft.rfft(x).real.sum() + (x * 2j).abs().sum()
        return self.linear(x) + spectrum * 1e-6 + 0 * torch.topk(x, 2, dim=1)[1].sum()


@pytest.fixture(scope="module")
def net_trace(tmp_path_factory):
    torch.manual_seed(1)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

    def step(ids, mask, labels):
        optimizer.zero_grad()
        out = net(ids, mask)
        loss = F.cross_entropy(out, labels, label_smoothing=0.1)
        loss = loss + F.binary_cross_entropy(torch.sigmoid(out), F.one_hot(labels, 4).float())
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    path = tmp_path_factory.mktemp("extract") / "net.tape"
    record(path, step, [(torch.randint(0, 11, (3, 6)), torch.rand(3, 6) > 0.2,
                         torch.randint(0, 4, (3,))) for _ in range(2)],
           model=net, optimizer=optimizer)
    return path


def programs(path):
    """(name of the op, its program) of the first op of each kind: an operator and how it is called."""
    seen = collections.Counter()
    for position, name in enumerate(ops_of(path)):
        program = tool("extract", path, "--op", position).stdout
        call = re.search(r"^    result = .*$", program, re.M)[0]
        kind = re.sub(r"\d+", "", call)
        if seen[kind] == 0:
            yield f"op {position} {name}", program
        seen[kind] += 1


def test_every_op_of_a_step_runs_and_gives_the_recorded_geometry(net_trace):
    count = 0
    for name, program in programs(net_trace):
        try:
            first = run(program)
        except Exception as error:
            raise AssertionError(f"{name}\n{program}") from error
        assert "when it was recorded" not in first, f"{name}\n{program}\n{first}"
        is_filled = "aten::empty" not in name and "aten::new_empty" not in name
        assert first == run(program) or not is_filled, name
        count += 1
    assert count > 80


def test_a_program_runs_alone(net_trace, tmp_path):
    position = ops_of(net_trace).index("aten::max.dim")
    tool("extract", net_trace, "--op", position, "-o", tmp_path / "op.py")
    done = subprocess.run([sys.executable, tmp_path / "op.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"result\[0\]: float32 \[3, 5\] strides \[5, 1\] sha256 [0-9a-f]{16}\n"
                        r"result\[1\]: int64 \[3, 5\] strides \[5, 1\] sha256 [0-9a-f]{16}\n", done.stdout)


def test_an_op_on_captured_constants_gives_the_recorded_bits(tmp_path):
    table = torch.linspace(-3, 3, 40).reshape(5, 8)
    other = torch.linspace(1, 2, 24).reshape(8, 3)

    def step(x):
        return x + table @ other

    record(tmp_path / "run.tape", step, [(torch.rand(3),), (torch.rand(3),)])
    position = ops_of(tmp_path / "run.tape").index("aten::mm")
    printed = run(tool("extract", tmp_path / "run.tape", "--op", position).stdout)
    assert printed == f"result: float32 [5, 3] strides [3, 1] sha256 {digest_of(table @ other)}\n"


def test_inputs_that_share_memory_share_it_again(tmp_path):
    def step(x):
        x[1:].copy_(x[:-1].clone())
        return x.view(-1).as_strided((2, 3), (1, 2), 1).mul_(2)

    record(tmp_path / "run.tape", step, [(torch.rand(3, 4),), (torch.rand(3, 4),)])
    for position, name in enumerate(ops_of(tmp_path / "run.tape")):
        program = tool("extract", tmp_path / "run.tape", "--op", position).stdout
        assert program.count("= drawn(") <= (2 if name == "aten::copy_" else 1), program
        assert "when it was recorded" not in run(program)


def test_memory_is_aligned_as_it_was(net_trace):
    position = ops_of(net_trace).index("aten::max.dim")
    program = tool("extract", net_trace, "--op", position).stdout
    state = {"__name__": "__main__"}
    changed = re.sub(r"memory\((\d+), \d+, 'cpu'\)", r"memory(\1, 36, 'cpu')", program)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(changed, "op.py", "exec"), state)
    buffers = [value for name, value in state.items() if re.fullmatch(r"b\d+", name)]
    assert buffers and all(buffer.data_ptr() % 64 == 36 for buffer in buffers)


def test_switches_of_torch_are_those_of_the_recording(tmp_path):
    torch.set_flush_denormal(True)
    torch.use_deterministic_algorithms(True)
    try:
        record(tmp_path / "run.tape", lambda x: x * 2, [(torch.rand(3),), (torch.rand(3),)])
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_flush_denormal(False)
    program = tool("extract", tmp_path / "run.tape", "--op", 0).stdout
    assert "torch.set_flush_denormal(True)\n" in program
    assert "torch.use_deterministic_algorithms(True, warn_only=True)\n" in program
    tool("extract", tmp_path / "run.tape", "--op", 0, "-o", tmp_path / "op.py")
    subprocess.run([sys.executable, tmp_path / "op.py"], check=True, capture_output=True)


def test_a_name_is_no_code_whatever_encoding_it_asks_for(tmp_path):
    name = "coding=utf-7 +AAo-raise SystemExit+AAo-"
    with steptape.record(tmp_path / "run.tape", steps=2, name=name) as recorder:
        for _ in range(2):
            torch.rand(3) * 2
            recorder.step()
    tool("extract", tmp_path / "run.tape", "--op", 1, "-o", tmp_path / "op.py")
    done = subprocess.run([sys.executable, tmp_path / "op.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("result: float32 [3] strides [1] sha256 ")

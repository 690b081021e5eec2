"""scripts/sweep.py on a few entries: most replay bit for bit, and it sees what it must."""
import json
import pathlib
import subprocess
import sys

import pytest

SWEEP = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "sweep.py"

# Unary, binary, reductions, products, views, writes by index, random numbers, networks; and two
# that cannot keep a plan: a shape, and a number of the host, that follow the values.
OPERATORS = (
    "exp tanh add mul where sum mean cumsum softmax mm bmm addmm linalg_cholesky cat transpose "
    "index_select scatter_add sort bernoulli nn_functional_linear nn_functional_conv2d "
    "nn_functional_layer_norm nonzero item").split()


def sweep(*arguments):
    return subprocess.run([sys.executable, SWEEP, *arguments], capture_output=True, text=True,
                          check=False)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    file = tmp_path_factory.mktemp("sweep") / "sweep.json"
    result = sweep("--what", "operators", "--only", "|".join(OPERATORS), "--samples", "1",
                   "--jobs", "1", "--json", file)
    assert file.exists(), result.stderr
    return result, json.loads(file.read_text(encoding="utf-8"))


def test_few_operators_have_no_defect(swept):
    result, report = swept
    assert result.returncode == 0, result.stdout + result.stderr
    assert report["defects"] == 0


def test_the_operators_that_were_asked_for_are_run(swept):
    _, report = swept
    assert {row["name"] for row in report["entries"]} == set(OPERATORS)


def test_most_operators_replay_with_new_values(swept):
    result, report = swept
    replayed = [row["name"] for row in report["entries"]
                if row["outcome"] == "replayed" and any(case["varied"] for case in row["cases"])]
    assert len(replayed) >= 15, result.stdout


def test_backward_is_run_where_autograd_knows_the_operator(swept):
    _, report = swept
    backward = {row["name"]: row["variants"].get("backward") for row in report["entries"]}
    assert backward["mm"] == "replayed"
    assert backward["nonzero"] is None


# Without parameters, with state, recurrent, with a mask that is added (baddbmm); of sparse
# gradients, with a closure.
TRAINED = "nn_Linear nn_BatchNorm1d nn_HuberLoss nn_LSTM nn_MultiheadAttention Adam SparseAdam".split()


def test_modules_and_optimizers_train(tmp_path):
    file = tmp_path / "sweep.json"
    result = sweep("--only", "|".join(TRAINED), "--samples", "2", "--jobs", "1", "--calls", "8",
                   "--json", file)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = {row["name"]: row for row in json.loads(file.read_text(encoding="utf-8"))["entries"]}
    assert rows.keys() == set(TRAINED)
    outcomes = {name: row["outcome"] for name, row in rows.items()}
    assert outcomes == {name: "refused" if name == "SparseAdam" else "replayed" for name in TRAINED}, result.stdout


def test_fewer_replays_than_held_exit_with_1():
    result = sweep("--what", "operators", "--only", "exp", "--samples", "1", "--jobs", "1",
                   "--at-least", "operators=1000")
    assert result.returncode == 1
    assert "Fewer than before: operators: 2 cases replay, 1000 did" in result.stdout


@pytest.mark.parametrize("arguments, words", [
    (["--only", "no_such_entry"], "no entry's name matches"),
    (["--only", "("], "unterminated subpattern"),
    (["--at-least", "operators"], "not KIND=N"),
    (["--at-least", "layers=3"], "not KIND=N"),
    (["--calls", "5"], "must be at least 6"),
])
def test_trouble_is_told_and_exits_with_2(arguments, words):
    result = sweep(*arguments)
    assert result.returncode == 2
    assert words in result.stderr

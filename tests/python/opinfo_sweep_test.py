"""scripts/opinfo_sweep.py on a few operators: most replay bit for bit, and it sees what it must."""
import json
import pathlib
import subprocess
import sys

import pytest

SWEEP = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "opinfo_sweep.py"

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
    result = sweep("--ops", "|".join(OPERATORS), "--samples", "1", "--jobs", "1", "--json", file)
    assert file.exists(), result.stderr
    return result, json.loads(file.read_text(encoding="utf-8"))


def test_few_operators_have_no_defect(swept):
    result, report = swept
    assert result.returncode == 0, result.stdout + result.stderr
    assert report["defects"] == 0


def test_the_operators_that_were_asked_for_are_run(swept):
    _, report = swept
    assert {row["name"] for row in report["operators"]} == set(OPERATORS)


def test_most_operators_replay_with_new_values(swept):
    result, report = swept
    replayed = [row["name"] for row in report["operators"]
                if row["outcome"] == "replayed" and any(step["varied"] for step in row["steps"])]
    assert len(replayed) >= 15, result.stdout


def test_backward_is_run_where_autograd_knows_the_operator(swept):
    _, report = swept
    backward = {row["name"]: row["backward"] for row in report["operators"]}
    assert backward["mm"] == "replayed"
    assert backward["nonzero"] is None


@pytest.mark.parametrize("arguments, words", [
    (["--ops", "no_such_operator"], "no operator's name matches"),
    (["--ops", "("], "unterminated subpattern"),
    (["--calls", "5"], "must be at least 6"),
])
def test_trouble_is_told_and_exits_with_2(arguments, words):
    result = sweep(*arguments)
    assert result.returncode == 2
    assert words in result.stderr

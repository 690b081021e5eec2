"""The examples for one process, shorter than their READMEs run them: equal to eager, and replayed."""
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
RUNS = {"pinn/pinn.py": ["--steps", "120", "--points", "32"], "python_ppo/ppo.py": ["--rounds", "8", "--worlds", "4"],
        "python_sac/sac.py": ["--steps", "400"], "timeseries_lstm/forecast.py": ["--steps", "120"],
        "lightning_digits/digits.py": ["--epochs", "3"], "hf_tiny_gpt/write.py": ["--steps", "80"]}


def ran(example, *options):
    return subprocess.run([sys.executable, EXAMPLES / example, *options], capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("example", RUNS)
def test_an_example_is_equal_to_eager(example):
    done = ran(example, *RUNS[example])
    assert done.returncode == 0 and "bit-identical to eager: yes" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("example", RUNS)
def test_an_example_without_steptape(example):
    done = ran(example, *RUNS[example], "--eager")
    assert done.returncode == 0 and "eager:" in done.stdout and "Steptape" not in done.stdout, done.stdout + done.stderr

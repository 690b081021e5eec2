"""Processes beside the one that made a step: a forked child, and one with another torch."""
import multiprocessing
import os
import subprocess
import sys

import pytest
import torch

import steptape
import twins
from classification import LATE, STEPS, batch, classifier
from twins import PACKAGES, bits, has_replayed


def goes_on_in_a_child(step, model, calls, connection):
    results = [bits(step(*batch(i))) for i in calls]
    connection.send([results, bits(model)])
    connection.close()


def test_a_forked_child_goes_on_and_so_does_its_parent():
    torch.manual_seed(0)
    train, model, optimizer = classifier()
    torch.manual_seed(0)
    eager, eager_model, _ = classifier()
    step = steptape.wrap(train, model=model, optimizer=optimizer)
    for i in range(LATE):
        assert bits(step(*batch(i))) == bits(eager(*batch(i)))
    has_replayed(step)
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=goes_on_in_a_child, args=(step, model, range(LATE, STEPS), there))
    child.start()
    expected = [bits(eager(*batch(i))) for i in range(LATE, STEPS)]
    assert here.poll(60), "the child hangs"
    found, state = here.recv()
    child.join(30)
    assert child.exitcode == 0
    assert found == expected
    assert twins.first_difference(state, bits(eager_model)) is None
    assert [bits(step(*batch(i))) for i in range(LATE, STEPS)] == expected
    assert twins.first_difference(bits(model), bits(eager_model)) is None


@pytest.mark.parametrize("version", ["2.9.0", "2.12.0", "1.13.1", "3.0.0a0+git12"])
def test_a_torch_of_another_version_is_an_import_error(tmp_path, version):
    (tmp_path / "torch.py").write_text(f"__version__ = {version!r}\n")
    done = subprocess.run(
        [sys.executable, "-c", "import steptape"], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), PACKAGES])})
    assert done.returncode == 1, "no crash"
    assert "ImportError" in done.stderr
    built_for = ".".join(torch.__version__.split(".")[:2])
    for part in (version, built_for, "pip install"):
        assert part in done.stderr, done.stderr

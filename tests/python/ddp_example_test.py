"""examples/ddp_digits, started as its README says: equal to eager on all ranks, and gone on with after a rank has died."""
import os
import pathlib
import subprocess
import sys

import pytest
import torch.distributed as dist

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="this torch has no Gloo")

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "examples/ddp_digits/digits.py"


def torchrun(folder, world, *options):
    """What it printed. Ends what hangs."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", world,
               "--max-restarts", 1, DIGITS, folder / "digits.tape", *options]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=200, check=False,
                          env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_four_ranks_are_equal_to_eager(tmp_path):
    assert "bit-identical to eager on all ranks: yes" in torchrun(tmp_path, 4, "--steps", 80)
    assert sorted(path.name for path in tmp_path.glob("*.tape")) == [f"digits.rank{rank}.tape" for rank in range(4)]


def test_training_goes_on_after_a_rank_has_died(tmp_path):
    out = torchrun(tmp_path, 2, "--steps", 200, "--checkpoint", tmp_path / "digits.pt", "--save-every", 50, "--fail-at", 130)
    assert f"went on from step 100 of {tmp_path / 'digits.pt'}" in out
    assert "steps replayed: 9" in out and "bit-identical to eager on all ranks: yes" in out

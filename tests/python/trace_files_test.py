"""Files of steps: those that are damaged, missing or of other steps are told by name; the others go on."""
import os
import subprocess
import sys
import textwrap

import pytest
import torch

import steptape
from classification import batch, classifier
from misuse import LATE, PACKAGES
from twins import bits


def replaying_program(tmp_path, steps=LATE):
    """(step, model, optimizer, path): a step that replays, saved as "train"."""
    torch.manual_seed(0)
    train, model, optimizer = classifier()
    step = steptape.wrap(train, model=model, optimizer=optimizer, name="train")
    for i in range(steps):
        step(*batch(i))
    path = tmp_path / "run.tape"
    step.save(path)
    return step, model, optimizer, path


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(steptape.IoError, match="missing.tape") as caught:
        steptape.load(tmp_path / "missing.tape")
    assert isinstance(caught.value, OSError)
    assert caught.value.code == "io"


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(steptape.Error):
        steptape.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\0", b"not a tape\n" * 100, os.urandom(4096)],
                         ids=["empty", "one_byte", "text", "noise"])
def test_a_file_that_is_no_trace(tmp_path, content):
    path = tmp_path / "run.tape"
    path.write_bytes(content)
    with pytest.raises(steptape.DataLoss) as caught:
        steptape.load(path)
    assert caught.value.code == "data_loss"


def test_a_file_is_cut_short(tmp_path):
    _, _, _, path = replaying_program(tmp_path)
    whole = path.read_bytes()
    for n in range(1, 10):
        path.write_bytes(whole[: len(whole) * n // 10])
        with pytest.raises(steptape.DataLoss):
            steptape.load(path)["train"](*batch(0))


def test_a_bit_of_a_file_is_flipped(tmp_path):
    _, _, _, path = replaying_program(tmp_path)
    whole = path.read_bytes()
    expected = bits(steptape.load(path)["train"](*batch(LATE)))
    refused = 0
    for n in range(40):
        damaged = bytearray(whole)
        damaged[len(whole) * n // 40] ^= 1 << n % 8
        path.write_bytes(damaged)
        try:
            assert bits(steptape.load(path)["train"](*batch(LATE))) == expected, n
        except (steptape.DataLoss, steptape.Unsupported):  # Unsupported: the version of the format
            refused += 1
    assert refused >= 35, "bytes that nobody reads are few"


def test_a_folder_to_save_to_is_not_there(tmp_path):
    step, _, _, _ = replaying_program(tmp_path)
    with pytest.raises(steptape.IoError):
        step.save(tmp_path / "missing" / "run.tape")
    step(*batch(0))


def test_saving_over_a_file_leaves_the_old_or_the_new(tmp_path):
    step, _, _, path = replaying_program(tmp_path)
    step(*batch(0))
    step.save(path)
    steptape.load(path)["train"]
    assert os.listdir(tmp_path) == ["run.tape"]


def test_a_step_that_the_file_does_not_hold(tmp_path):
    _, _, _, path = replaying_program(tmp_path)
    with pytest.raises((steptape.InvalidArgument, KeyError), match="train"):
        steptape.load(path)["evaluate"]


def test_a_loaded_step_goes_on_with_the_same_bits(tmp_path):
    step, _, _, path = replaying_program(tmp_path)
    loaded = steptape.load(path)["train"]
    for i in range(LATE, LATE + 20):
        assert bits(loaded(*batch(i))) == bits(step(*batch(i))), i


def test_a_loaded_step_throws_where_its_guards_do_not_hold(tmp_path):
    step, _, _, path = replaying_program(tmp_path)
    loaded = steptape.load(path)["train"]
    x, y = batch(0)
    for wrong in ((x[:4], y[:4]), (x.double(), y), (x,), (y, x)):
        with pytest.raises((steptape.FailedPrecondition, steptape.InvalidArgument, TypeError)):
            loaded(*wrong)
    assert bits(loaded(*batch(LATE))) == bits(step(*batch(LATE))), "nothing was changed"


def test_another_process_without_the_models_code_goes_on_with_the_same_bits(tmp_path):
    step, _, _, _ = replaying_program(tmp_path)
    batches = [batch(i) for i in range(LATE, LATE + 12)]
    torch.save(batches, tmp_path / "batches.pt")
    script = tmp_path / "go_on.py"
    script.write_text(textwrap.dedent("""
        import sys
        import torch
        import steptape

        torch.set_num_threads(1)
        folder = sys.argv[1]
        step = steptape.load(f"{folder}/run.tape")["train"]
        losses = [step(x, y) for x, y in torch.load(f"{folder}/batches.pt")]
        torch.save([loss.clone() for loss in losses], f"{folder}/losses.pt")
    """))
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True,
                          text=True, timeout=120, env={**os.environ, "PYTHONPATH": PACKAGES})
    assert done.returncode == 0, done.stderr
    expected = [step(x, y) for x, y in batches]
    assert bits(torch.load(tmp_path / "losses.pt")) == bits(expected)

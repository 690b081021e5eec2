"""Real runs that differ in one thing, and what `steptape diff` and `bisect` make of their traces."""
import json
import subprocess
import sys
import textwrap

import pytest

from twins import needs_tool, tool

pytestmark = needs_tool

PROGRAM = """
    import contextlib, sys, torch, steptape
    variant = sys.argv[1]
    torch.set_num_threads(1 if variant == "threads" else 2)
    torch.manual_seed(1 if variant == "seed" else 0)
    layers = [torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)]
    if variant == "module":
        layers.insert(2, torch.nn.Tanh())
    model = torch.nn.Sequential(*layers)
    if variant == "init":
        with torch.no_grad():
            model[2].weight[3, 4] += 1e-6
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=variant != "forloop")
    generator = torch.Generator().manual_seed(7)
    size = 48 if variant == "batch" else 32
    data = [(torch.randn(size, 64, generator=generator), torch.randint(0, 10, (size,), generator=generator))
            for _ in range(8)]

    def around():
        return torch.autocast("cpu", dtype=torch.bfloat16) if variant == "autocast" else contextlib.nullcontext()

    def train(x, y):
        optimizer.zero_grad()
        with around():
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step = steptape.wrap(train, name="train", trace=f"{variant}.tape", digests=True, verify={"rate": 0},
                         record={"first": 3, "at": [50, 51, 52]})
    for call in range(60):
        if variant == "lr" and call == 50:
            optimizer.param_groups[0]["lr"] = 5e-4
        step(*data[call % 8])
    stats = step.stats
    assert stats["replayed"] > 40 and not stats["trace_problem"] and not stats["ledger_problem"], stats
"""

VARIANTS = ("base", "again", "seed", "init", "lr", "forloop", "autocast", "threads", "module", "batch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for variant in VARIANTS:
        subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM), variant], cwd=folder, check=True)
    return folder


def compared(folder, variant, *options, command="diff"):
    return tool(command, "base.tape", f"{variant}.tape", *options, statuses=(0, 1), folder=folder).stdout


def differs(folder, variant):
    """The verdict, and the JSON, of a diff; times, which are noise, left out."""
    verdict = compared(folder, variant, "--ignore", "time").splitlines()[0]
    return verdict, json.loads(compared(folder, variant, "--ignore", "time", "--json"))


def test_the_same_program_leaves_the_same(folder):
    assert differs(folder, "again")[0] == "equal"
    assert compared(folder, "again", command="bisect").startswith("equal")


def test_another_seed_shows_in_the_run_and_in_what_the_first_call_found(folder):
    verdict, _ = differs(folder, "seed")
    assert verdict.startswith("differ: environment (1), ledger (train: call 1: results, gradients, parameters")
    assert "call 1: entered with other bits: model.0.weight" in verdict


def test_one_element_of_one_layer_is_found_by_its_name(folder):
    verdict, _ = differs(folder, "init")
    assert "numerics (train: call 1: entered with other bits: model.2.weight)" in verdict


def test_a_learning_rate_is_found_in_the_call_in_which_it_changed(folder):
    verdict, diff = differs(folder, "lr")
    assert verdict.startswith("differ: ledger (train: call 51: parameters), numerics (train: call 51: receiver op ")
    assert "_foreach_addcdiv_" in verdict
    text = compared(folder, "lr")
    assert "opt.param_groups[0].lr: 0.001 → 0.0005" in text.replace("optimizer.param_groups", "opt.param_groups")
    assert "call 51" in compared(folder, "lr", command="bisect").splitlines()[0]


def test_a_for_loop_of_adam_leaves_the_same_bits_by_other_ops(folder):
    verdict, diff = differs(folder, "forloop")
    assert verdict.startswith("differ: structure (")
    assert "ledger" not in verdict and "numerics" not in verdict
    assert compared(folder, "forloop", command="bisect").startswith("equal")


def test_autocast_shows_in_the_dtypes_of_the_first_op(folder):
    verdict, _ = differs(folder, "autocast")
    assert "numerics (train: call 1: receiver op 0" in verdict and "structure (" in verdict
    assert "float32 [128, 64] → bfloat16 [128, 64]" in compared(folder, "autocast")


def test_a_thread_less_is_told_and_where_bits_part_an_op_is_the_origin(folder):
    verdict, _ = differs(folder, "threads")
    assert "guards (" in verdict
    assert "ambient.threads: 2 → 1" in compared(folder, "threads")
    if "numerics" in verdict:  # kernels of this machine that sum in another order
        assert "origin op " in verdict and "inputs are equal" in compared(folder, "threads")


def test_a_module_that_was_inserted_is_named(folder):
    verdict, _ = differs(folder, "module")
    assert "structure (" in verdict and "modules (" in verdict
    text = compared(folder, "module")
    assert "aten::tanh" in text and "aten::tanh_backward" in text


def test_another_batch_size_changes_shapes_and_moves_no_op(folder):
    verdict, _ = differs(folder, "batch")
    assert "structure (" in verdict
    text = compared(folder, "batch")
    assert "[32, 64]" in text and "[48, 64]" in text
    assert "removed" not in text and "inserted" not in text

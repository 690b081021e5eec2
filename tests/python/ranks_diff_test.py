"""Ranks of one training that part: what `steptape diff --ranks` and `steptape ledger --ranks` say of their traces."""
import json

import pytest
import torch
import torch.distributed as dist
from torch import nn

import steptape
from ranks_test import run_ranks
from twins import needs_tool, tool

pytestmark = [needs_tool, pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="this torch has no Gloo")]

WORLD = 4


def train(rank, folder, bug, late):
    torch.manual_seed(0)
    model, head = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)), nn.Linear(3, 3)
    model[0].register_buffer("mask", torch.ones(8, 8))
    parallel = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], 0.01)
    exchanges = True

    def step(x):
        optimizer.zero_grad()
        loss = head(parallel(x)).square().mean()
        loss.backward()
        if exchanges:
            for p in head.parameters():
                dist.all_reduce(p.grad)
                p.grad /= WORLD
        optimizer.step()
        if bug == "mask":
            with torch.no_grad():
                model[0].mask.bernoulli_(0.9)
                model[0].weight *= model[0].mask
        return loss.detach()

    # all are recorded up to the call in which the bug sets in, and a few after it
    wrapped = steptape.wrap(step, name="train", trace=f"{folder}/{bug}.rank{rank}.tape", digests=True,
                            model={"model": model, "head": head}, optimizer=optimizer,
                            record={"first": 2, "at": [late - 1, late, late + 1]})
    for call in range(1, late + 6):
        if call == late:
            exchanges = bug != "left_out"
            optimizer.param_groups[0]["lr"] = 0.02 if bug == "rate" and rank == 3 else 0.01
            if bug == "mask":
                torch.manual_seed(rank)
        wrapped(torch.randn(5, 8, generator=torch.Generator().manual_seed(1000 * rank + call)))


    assert wrapped.stats["replayed"] > 0, wrapped.explain()


def line_with(words):
    with open(__file__, encoding="utf-8") as lines:
        return next(number for number, line in enumerate(lines, 1) if words in line)


LATE = 20
BUGS = {
    "none": None,
    # what is drawn in a buffer of the module goes into the parameter
    "mask": ([[0], [1], [2], [3]], "parallel.module.0.weight", "mask.bernoulli_", "generator default"),
    # a layer that nobody exchanges the gradients of
    "left_out": ([[0], [1], [2], [3]], "optimizer.state[head.weight].exp_avg", "head(parallel(x))", "inputs[0]"),
    "rate": ([[0, 1, 2], [3]], "parallel.module.0.weight", "optimizer.step()", "value"),
}


def train_each(rank, folder):
    """One after the other, since a process takes seconds to start."""
    for bug in BUGS:
        train(rank, folder, bug, LATE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    run_ranks(folder, WORLD, train_each, str(folder))
    return folder


@pytest.mark.parametrize("bug", BUGS)
def test_the_call_the_op_and_the_line_are_found(folder, bug):
    files = [folder / f"{bug}.rank{rank}.tape" for rank in range(WORLD)]
    said = json.loads(tool("diff", "--ranks", *files, "--json", statuses=(0, 1)).stdout)
    text = tool("diff", "--ranks", *files, statuses=(0, 1)).stdout
    calls = json.loads(tool("ledger", "--ranks", *files, "--json").stdout)["steps"][0]["calls"]
    differing = [call["call"] for call in calls if len(set(call["parameters"])) > 1]
    (step,) = said["steps"]
    if BUGS[bug] is None:
        assert said["agree"] is True and differing == [] and LATE in step["calls"], text
        return
    groups, path, line, cause = BUGS[bug]
    parted = step["parted"]
    assert said["agree"] is False and parted["call"] == LATE and parted["groups"] == groups, text
    assert differing == list(range(LATE, LATE + 6))
    for parting in parted["partings"]:
        assert parting["paths"][0] == path and not parting["at_entry"], text
        assert parting["way"][-1]["input"]["name"].startswith(cause) or parting["way"][-1]["input"]["a"].startswith(cause), text
    places = {op["line"] for parting in parted["partings"] for op in parting["way"]}
    assert any(place.endswith(f":{line_with(line)}") for place in places), (places, text)
    assert text.startswith(f"part: train: call {LATE}: ranks ")

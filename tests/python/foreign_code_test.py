"""Code beside torch's ops that computes for a step: a compiler's, NumPy's, Triton's."""
import importlib.metadata
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import steptape
from loops import batch, is_refused, momentum, mse, net, replays, training
from twins import compare


def test_a_compiled_callee_is_refused_and_compiled_no_more_often_than_without():
    """A recorder that its guards could see would cost a compilation in every phase of a step."""
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    def make():
        made = training(net())
        compiled, optimizer = torch.compile(made.model, backend=backend), made.optimizer

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(compiled(x), y)
            loss.backward()
            optimizer.step()
            return loss

        made.step = step
        return made

    def compilations():
        found = len(graphs), dict(torch._dynamo.utils.counters["stats"])["unique_graphs"]
        graphs.clear()
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        return found

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compare(make, 4, wrapper=lambda made, _: Eager(made.step))
    without = compilations()
    try:
        is_refused(make, "unreplayable_op")
    finally:
        found = compilations()
    assert without[0] > 0 and found == without


@pytest.mark.parametrize("disable", [torch.compiler.disable, torch.compiler.disable(recursive=False), torch._dynamo.disable],
                         ids=["compiler", "not in what it calls", "dynamo"])
def test_a_helper_that_compilers_are_to_leave_alone_replays(disable):
    def make():
        made = training(net())
        model, optimizer = made.model, made.optimizer
        helper = disable(lambda x: x * 2)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(helper(x)), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        made.step = step
        return made

    replays(make)


class Eager:
    """A step that nobody wrapped."""

    def __init__(self, step):
        self.step, self.calls = step, 0

    def __call__(self, *args):
        self.calls += 1
        return self.step(*args)

    @property
    def stats(self):
        return dict(steps=self.calls, recorded=0, trials=0, replayed=0, eager=self.calls, audits=0)

    def explain(self):
        return "not wrapped"


def test_an_array_that_is_filled_anew_counts_as_an_argument():
    """Its bytes are filled by NumPy, and no op tells that they are others now."""
    def make():
        model = net()
        optimizer, noise = momentum(model), np.zeros((4, 6), np.float32)

        def step(x, y):
            optimizer.zero_grad()
            loss = mse(model, x + torch.from_numpy(noise), y)
            loss.backward()
            optimizer.step()
            return loss

        def after(i):
            noise[:] = np.random.randn(4, 6)

        return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer],
                               after=after)

    replays(make)


def test_a_triton_kernel_is_refused(monkeypatch):
    """Its launch is not an op: it takes the memory of tensors. Here in Triton's interpreter, which needs no GPU."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    triton = pytest.importorskip("triton")
    import triton.language as tl

    @triton.jit
    def double(source, target, n, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(target + at, tl.load(source + at, mask=at < n) * 2, mask=at < n)

    def step(x):
        y = torch.zeros_like(x)
        double[(1,)](x, y, x.numel(), block=16)
        return y + 1

    is_refused(lambda: SimpleNamespace(step=step, batch=lambda i: (torch.randn(5),), holds=lambda: []),
               "written_outside")


def test_which_packages_are_installed_is_as_it_was_recorded():
    """As a search for a module is (docs/blind_spots.md): accelerate asks in each step of TRL's trainers."""
    def step(x):
        try:
            importlib.metadata.version("no_such_package")
        except importlib.metadata.PackageNotFoundError:
            x = x * 2
        return x + len(importlib.metadata.metadata("torch")["Name"])

    wrapped = steptape.wrap(step)
    for i in range(12):
        x = torch.full((2,), float(i))
        assert torch.equal(wrapped(x), step(x))
    assert wrapped.stats["replayed"] > 5, wrapped.explain()

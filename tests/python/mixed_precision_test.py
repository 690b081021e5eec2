"""Mixed precision: autocast and GradScaler replay with the bits of eager, or are refused by name."""
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adam

import steptape
from loops import adam, batch, in_bfloat16, momentum, mse, net, program, replays, training, wrapped
from twins import compare


@pytest.mark.parametrize("optimizer_of", [momentum, adam])
def test_autocast_in_the_step(optimizer_of):
    replays(lambda: training(net(), in_bfloat16, optimizer_of=optimizer_of))


def test_autocast_around_some_of_the_calls_is_refused():
    """Casts of the weights stay in autocast's cache after the step: eager would use them again in the next
    step under the same autocast. Without autocast the step replays."""
    def around(step):
        def body(i, x, y):
            with torch.autocast("cpu", dtype=torch.bfloat16) if i % 3 == 0 else nullcontext():
                return step(x, y)

        return body

    def make():
        made = training(net())
        return program(around, made.step, batch=lambda i: (i, *batch(i)), holds=made.holds())

    step = compare(make, 60, codes={"escaped_buffer"}, wrapper=wrapped)
    assert step.stats["replayed"] > 20


def test_autocast_that_changes_its_dtype():
    def loss_of(model, x, y, half):
        with torch.autocast("cpu", dtype=torch.float16 if half else torch.bfloat16):
            return mse(model, x, y)

    replays(lambda: training(net(), loss_of, batch=lambda i: (*batch(i), i % 4 == 3)), 80)


def test_a_dtype_as_argument_gives_the_bits_of_eager():
    def loss_of(model, x, y, dtype):
        return mse(model, x.to(dtype).float(), y)

    replays(lambda: training(net(), loss_of, batch=lambda i: (
        *batch(i), torch.float64 if i % 4 == 3 else torch.bfloat16)))


SCALED = {
    "sgd": momentum,
    "adam_loop": lambda m: Adam(m.parameters(), lr=0.01, foreach=False),
    "adam_foreach": lambda m: Adam(m.parameters(), lr=0.01, foreach=True),
    # Takes the verdict as a tensor: nothing is read on the host.
    "adam_fused": lambda m: Adam(m.parameters(), lr=0.01, fused=True),
    # Without momentum: its buffer stays uninitialised where torch skips the first step.
    "sgd_fused": lambda m: SGD(m.parameters(), lr=0.02, fused=True),
}


def scaled(optimizer_of, overflows, clip=False):
    """Mixed precision as the tutorials write it; gradients overflow in the named calls."""
    model = net()
    optimizer = optimizer_of(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)

    def step(x, y):
        optimizer.zero_grad()
        loss = in_bfloat16(model, x, y)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        return loss

    def batch(i):
        return torch.randn(4, 6), torch.randn(4, 3) * (float("inf") if i in overflows else 1)

    made = SimpleNamespace(step=step, batch=batch)
    made.holds = lambda: [model, optimizer, scaler.state_dict()]
    return made


@pytest.mark.parametrize("clip", [False, True], ids=["", "clipped"])
@pytest.mark.parametrize("optimizer", SCALED)
def test_a_grad_scaler_without_overflows(optimizer, clip):
    """The scale doubles every five steps, as a tensor that the step carries."""
    replays(lambda: scaled(SCALED[optimizer], (), clip))


@pytest.mark.parametrize("optimizer", SCALED)
@pytest.mark.parametrize("overflows", [range(1), range(3), range(12)], ids=len)
def test_a_grad_scaler_that_overflows_in_the_first_steps(overflows, optimizer):
    """The step that makes optimizer state comes when the first one is not skipped."""
    replays(lambda: scaled(SCALED[optimizer], overflows), 60)


@pytest.mark.parametrize("clip", [False, True], ids=["", "clipped"])
@pytest.mark.parametrize("optimizer", SCALED)
def test_a_grad_scaler_that_overflows_now_and_then(optimizer, clip):
    """A replay that meets the first overflow is undone; later ones are a variant."""
    replays(lambda: scaled(SCALED[optimizer], {0, 20, 21, 35, 50, 66}, clip), 80, share=0.8)


def test_a_loaded_step_goes_on_with_the_scale_of_the_scaler(tmp_path):
    """Which makes its tensors when it is first used: they are the step's state, not arguments."""
    model, scaler = nn.Linear(4, 4), torch.amp.GradScaler("cpu", init_scale=64., growth_interval=5)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    step = steptape.wrap(train, name="train")
    for i in range(12):
        step(torch.full((2, 4), i / 7))
    step.save(tmp_path / "run.tape", state=True)
    loaded = steptape.load(tmp_path / "run.tape")["train"]
    for i in range(8):
        x = torch.full((2, 4), i / 5)
        assert loaded(x) == step(x)
    assert scaler.get_scale() > 64

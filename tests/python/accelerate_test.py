"""A loop of Accelerate's as docs/frameworks.md says to wrap it, beside the same loop without."""
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import steptape
from twins import bits

accelerate = pytest.importorskip("accelerate")


def train(parts, clips, taped):
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(gradient_accumulation_steps=parts, cpu=True)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    data = DataLoader(TensorDataset(torch.randn(75, 8)), 8)
    model, optimizer, data, scheduler = accelerator.prepare(model, optimizer, data, scheduler)

    def step(x):
        loss = model(x).square().mean()
        accelerator.backward(loss)
        if clips and accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    run = steptape.wrap(step, verify={"first": True, "rate": 0.0}) if taped else step
    left = []
    for _ in range(10):
        for (x,) in data:
            with accelerator.accumulate(model):
                left.append(run(x))
                scheduler.step()
    return bits([left, dict(model.state_dict()), optimizer.state_dict(), scheduler.get_last_lr(), accelerator.step]), run


@pytest.mark.parametrize("clips", [False, True], ids=["", "clipped"])
@pytest.mark.parametrize("parts", [1, 3])
def test_a_loop_leaves_what_it_leaves_without(parts, clips):
    expected, _ = train(parts, clips, False)
    found, step = train(parts, clips, True)
    assert expected == found
    stats = step.stats
    free = stats["steps"] - stats["recorded"] - stats["trials"]
    assert stats["replayed"] >= 0.9 * free and stats["replayed"] > 70, step.explain()

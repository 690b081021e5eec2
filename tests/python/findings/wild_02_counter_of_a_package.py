"""Lightning: the optimizer that a package gives counts the steps of the package's trainer, which ends by the count."""
import torch
import torch.nn as nn

from twins import package

SOURCE = """
class Progress:
    def __init__(self):
        self.ready = self.completed = 0


class Optimizer:
    def __init__(self, optimizer, trainer):
        self.optimizer, self.trainer = optimizer, trainer

    def step(self):
        self.trainer.progress.ready += 1
        self.optimizer.step()
        self.trainer.progress.completed += 1


class Trainer:
    def __init__(self, optimizer, most):
        self.progress, self.most, self.saved = Progress(), most, []
        self.optimizer = Optimizer(optimizer, self)

    @property
    def global_step(self):
        return self.progress.completed

    def fit(self, step, batches):
        for i, batch in enumerate(batches):
            step(batch)
            if self.global_step % 5 == 0:
                self.saved.append((i, self.global_step))
            if self.global_step >= self.most:
                break
"""


def play(wrap):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    trainer = package("thunder", SOURCE).Trainer(torch.optim.AdamW(model.parameters(), 1e-2), 20)

    def step(x):
        model.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        trainer.optimizer.step()
        return loss.detach()

    step = wrap(step)
    trainer.fit(step, [torch.randn(4, 3, generator=torch.Generator().manual_seed(i)) for i in range(40)])
    return [trainer.saved, trainer.global_step, model.weight.tolist()], step

"""Hugging Face: a method of a package's trainer is wrapped, and divides the loss by an attribute that is smaller in an epoch's last group."""
import torch
import torch.nn as nn

from twins import package

SOURCE = """
class Trainer:
    def __init__(self, model, optimizer, accumulation):
        self.model, self.optimizer, self.accumulation = model, optimizer, accumulation
        self.current_accumulation = accumulation

    def training_step(self, x):
        loss = self.model(x).pow(2).mean()
        loss = loss / self.current_accumulation
        loss.backward()
        return loss.detach()

    def train(self, batches, epochs):
        losses = []
        for _ in range(epochs):
            for first in range(0, len(batches), self.accumulation):
                group = batches[first:first + self.accumulation]
                self.current_accumulation = len(group)
                losses += [self.training_step(x).item() for x in group]
                self.optimizer.step()
                self.optimizer.zero_grad()
        return losses
"""


def play(wrap):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    trainer = package("embrace", SOURCE).Trainer(model, torch.optim.SGD(model.parameters(), 0.1), 4)
    trainer.training_step = step = wrap(trainer.training_step)
    losses = trainer.train([torch.randn(4, 3, generator=torch.Generator().manual_seed(i)) for i in range(30)], 2)
    return [losses, model.weight.tolist()], step

#!/usr/bin/env python3
"""Trains a small network on handwritten digits by Lightning: as it is, then with SteptapeCallback, from one seed.

Compares weights, moments and all that was logged, bit for bit. Exit status: 0 all equal and nearly all replayed, 1 if not, 2 trouble.
"""
import argparse
import logging
import pathlib
import sys
import time
import warnings

import lightning
import torch
from lightning.pytorch.loggers.logger import DummyLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import steptape
import steptape.lightning

DATA = pathlib.Path(__file__).resolve().parents[1] / "digits" / "digits.csv"
SIDE, INK = 8, 16


def read(path):
    """For training and for testing: pixels from 0 to 1, [n, 64], and labels, [n]; ../digits/README.md describes the file."""
    table = torch.tensor([[int(field) for field in line.split(",")] for line in path.read_text(encoding="ascii").splitlines()])
    pixels, labels = table[:, :SIDE * SIDE].float() / INK, table[:, -1].clone()
    is_test = torch.arange(len(labels)) % 5 == 4
    return TensorDataset(pixels[~is_test], labels[~is_test]), TensorDataset(pixels[is_test], labels[is_test])


class Digits(lightning.LightningModule):
    def __init__(self, epochs):
        super().__init__()
        self.epochs = epochs
        self.net = nn.Sequential(nn.Linear(SIDE * SIDE, 48), nn.ReLU(), nn.BatchNorm1d(48), nn.Dropout(0.1),
                                 nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 10))

    def training_step(self, batch, batch_idx):
        scores = self.net(batch[0])
        loss = F.cross_entropy(scores, batch[1])
        self.log("loss", loss)
        self.log("accuracy", (scores.argmax(1) == batch[1]).float().mean(), on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("tested", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 3e-3)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.epochs)]


class Rows(DummyLogger):
    """What is logged."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def log_metrics(self, metrics, step=None):
        self.rows.append((step, metrics))


def run(options, callbacks):
    """What training left and logged, the seconds it took, and the share of test images that it gets right."""
    torch.manual_seed(options.seed)
    training, testing = read(DATA)
    module = Digits(options.epochs)
    trainer = lightning.Trainer(max_epochs=options.epochs, accelerator="cpu", logger=Rows(), callbacks=callbacks, gradient_clip_val=1.0,
                                log_every_n_steps=1, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    began = time.perf_counter()
    trainer.fit(module, DataLoader(training, 16, shuffle=True), DataLoader(testing, 256))
    seconds = time.perf_counter() - began
    moments = [value for state in trainer.optimizers[0].state_dict()["state"].values() for value in state.values()]
    return [*module.state_dict().values(), *moments], trainer.logger.rows, seconds, trainer.callback_metrics["tested"].item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--eager", action="store_true", help="without Steptape alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    run(argparse.Namespace(**vars(options) | {"epochs": 1}), [])  # the first steps of a process are slow
    left, rows, seconds, tested = run(options, [])
    print(f"eager:    {seconds:6.2f} s, {100 * tested:.1f} % of the test images right")
    if options.eager:
        return 0
    callback = steptape.lightning.SteptapeCallback()
    found, rows_taped, seconds_taped, tested = run(options, [callback])
    print(f"Steptape: {seconds_taped:6.2f} s, {100 * tested:.1f} % of the test images right: {seconds / seconds_taped:.1f} times as fast")
    print(callback.explain())
    is_equal = all(torch.equal(a, b) for a, b in zip(left, found, strict=True)) and rows == rows_taped
    print(f"bit-identical to eager: {'yes' if is_equal else 'no'} ({len(left)} tensors, {len(rows)} lines of the log)")
    stats = callback.stats["update"]
    return 0 if is_equal and stats["replayed"] >= 0.8 * stats["steps"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, steptape.Error) as error:
        print(f"digits: {error}", file=sys.stderr)
        sys.exit(2)

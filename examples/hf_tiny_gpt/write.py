#!/usr/bin/env python3
"""Trains a small GPT-2 on the characters of a text by Hugging Face's Trainer: as it is, then with SteptapeTrainerMixin, from one seed.

Compares weights, moments and all that was logged, bit for bit, and lets the model write. Exit status: 0 all equal and nearly all
replayed, 1 if not, 2 trouble.
"""
import argparse
import pathlib
import sys
import tempfile
import time

import torch
import transformers

import steptape
import steptape.transformers

TEXT = pathlib.Path(__file__).resolve().parents[1] / "char_gru" / "text.txt"
LENGTH = 64  # characters in a row


class TapedTrainer(steptape.transformers.SteptapeTrainerMixin, transformers.Trainer):
    pass


def read(path):
    """The characters there are, and the text as rows of LENGTH of them."""
    text = path.read_text(encoding="utf-8")
    characters = sorted(set(text))
    codes = torch.tensor([characters.index(each) for each in text])
    rows = codes[:len(codes) // LENGTH * LENGTH].view(-1, LENGTH)
    return characters, [{"input_ids": row, "labels": row} for row in rows]


def run(options, kind):
    """What training left and logged, the seconds it took, the model, and the trainer."""
    torch.manual_seed(options.seed)
    characters, rows = read(TEXT)
    config = transformers.GPT2Config(vocab_size=len(characters), n_positions=LENGTH, n_embd=options.width, n_layer=2, n_head=2,
                                     bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, max_steps=options.steps, per_device_train_batch_size=4, learning_rate=3e-3, lr_scheduler_type="cosine", warmup_steps=20,
            weight_decay=0.01, logging_steps=20, seed=options.seed, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True)
        trainer = kind(model, arguments, train_dataset=rows)
        trainer.remove_callback(transformers.PrinterCallback)
        began = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - began
    moments = [value for state in trainer.optimizer.state_dict()["state"].values() for value in state.values()]
    logs = [{name: line[name] for name in ("loss", "grad_norm", "learning_rate")} for line in trainer.state.log_history if "loss" in line]
    return [*model.state_dict().values(), *moments], logs, seconds, trainer, characters


def written(model, characters, count=120):
    torch.manual_seed(0)
    model.eval()
    codes = torch.zeros((1, 1), dtype=torch.long)
    with torch.no_grad():
        for _ in range(count):
            scores = model(codes[:, -LENGTH:]).logits[0, -1]
            codes = torch.cat([codes, torch.multinomial((scores / 0.7).softmax(0), 1)[None]], 1)
    return "".join(characters[code] for code in codes[0, 1:].tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--eager", action="store_true", help="without Steptape alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    run(argparse.Namespace(**vars(options) | {"steps": 20}), transformers.Trainer)  # the first steps of a process are slow
    left, logs, seconds, trainer, characters = run(options, transformers.Trainer)
    print(f"eager:    {seconds:6.2f} s, loss {logs[-1]['loss']}")
    if options.eager:
        return 0
    found, logs_taped, seconds_taped, trainer, _ = run(options, TapedTrainer)
    print(f"Steptape: {seconds_taped:6.2f} s, loss {logs_taped[-1]['loss']}: {seconds / seconds_taped:.1f} times as fast")
    print(trainer.steptape_explain())
    is_equal = all(torch.equal(a, b) for a, b in zip(left, found, strict=True)) and logs == logs_taped
    print(f"bit-identical to eager: {'yes' if is_equal else 'no'} ({len(left)} tensors, {len(logs)} lines of the log)")
    print(f"it writes: {written(trainer.model, characters)!r}")
    stats = trainer.steptape_stats["update"]
    return 0 if is_equal and stats["replayed"] >= 0.9 * stats["steps"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, steptape.Error) as error:
        print(f"write: {error}", file=sys.stderr)
        sys.exit(2)

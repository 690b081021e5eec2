"""`steptape try`: programs that know nothing of Steptape, what is said of them, and the patch that does it."""
import json
import os
import subprocess
import sys

import pytest

from steptape._try import main

HEAD = """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)


def batches(n=150):
    draw = torch.Generator().manual_seed(5)
    for i in range(n):
        yield torch.randn(4, 8, generator=draw), torch.randint(0, 3, (4,), generator=draw)

"""
TAIL = """
print([p.double().sum().item().hex() for p in model.parameters()])
"""
PROGRAMS = {
    "a loop of the script": """
losses = []
for i, (x, y) in enumerate(batches()):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if i % 50 == 0:
        print(i, f"{loss.item():.4f}")
print(len(losses), sum(losses))
""",
    "a function": """
def train(model, epochs):
    total = 0.
    for epoch in range(epochs):
        for x, y in batches(40):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(epoch, total)
    return total


print(train(model, 4))
""",
    "a function for each step": """
def update(x, y):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


print(sum(update(x, y) for x, y in batches()))
""",
    "an optimizer of another name": """
class Env:
    def step(self, action):
        return action * 2


solver, env = optimizer, Env()
for x, y in batches():
    loss = F.cross_entropy(model(env.step(x)), y)
    solver.zero_grad()
    loss.backward()
    solver.step()
print(loss.item())
""",
    "several optimizers in loops of their own": """
optimizers = [torch.optim.SGD(model[at].parameters(), lr=1e-2) for at in (0, 3)]
for x, y in batches():
    loss = F.cross_entropy(model(x), y)
    for each in optimizers:
        each.zero_grad()
    loss.backward()
    for each in optimizers:
        each.step()
print(loss.item())
""",
    "beside lambdas and conditions": """
options = {"lr": 1e-2} if torch.get_num_threads() else {}
scaled = lambda x: x * 1.0

for x, y in batches():
    loss = F.cross_entropy(model(scaled(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item(), options)
""",
    "a method": """
class Trainer:
    def __init__(self, model):
        self.model, self.seen = model, 0

    def fit(self):
        for x, y in batches():
            loss = F.cross_entropy(self.model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.seen += 1
        return loss.item()


trainer = Trainer(model)
print(trainer.fit(), trainer.seen)
""",
    "two optimizers": """
def main():
    critic = nn.Linear(3, 1)
    of_critic = torch.optim.SGD(critic.parameters(), 0.01)
    of_critic_optimizer = of_critic
    def fit():
        for x, y in batches():
            made = model(x)
            loss = critic(made.detach()).mean()
            of_critic_optimizer.zero_grad()
            loss.backward()
            of_critic_optimizer.step()
            loss = -critic(made).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()
    print(fit())


main()
""",
    "a scaler": """
scaler = torch.amp.GradScaler("cpu")
for x, y in batches():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(scaler.get_scale())
""",
}


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def tried(folder, text, *options, name="train.py", arguments=()):
    write(folder / name, text)
    ran = subprocess.run([sys.executable, "-m", "steptape", "try", "--json", *options, name, *arguments], cwd=folder, capture_output=True,
                         text=True, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return ran, json.loads(ran.stdout) if ran.stdout else None


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Tries a program in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])

    def run(text):
        (tmp_path / "train.py").write_text(text + "\n")
        return main(["train.py"])
    return run


def printed(folder, name="train.py"):
    return subprocess.run([sys.executable, name], cwd=folder, capture_output=True, text=True, timeout=300, check=True,
                          env=os.environ | {"OMP_NUM_THREADS": "1"}).stdout


@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_what_a_program_would_gain_and_the_patch_that_gains_it(tmp_path, body):
    ran, report = tried(tmp_path, HEAD + body + TAIL, "--calls", "15")
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    step, = report["steps"]
    assert step["replays"] and step["bits"] == "equal" and step["ops"] > 20 and not report["failed"], step
    assert step["loop_us"] >= step["eager_us"] > 0 < step["replay_us"] and step["loop_factor"] > 0
    line = (HEAD + body).splitlines()[step["line"] - 1]
    assert "loss" in line or "zero_grad" in line or "made" in line or "def update" in line, line

    expected = printed(tmp_path)
    (tmp_path / "wrap.patch").write_text(step["patch"])
    subprocess.run(["patch", "-p0", "-i", "wrap.patch"], cwd=tmp_path, check=True, capture_output=True)
    text = (tmp_path / "train.py").read_text()
    assert text.count("steptape.wrap") == 1
    assert printed(tmp_path) == expected
    name = "update" if "def update" in text else "trainer.train_step" if "class Trainer" in text else "train_step"
    with open(tmp_path / "train.py", "a") as file:
        file.write(f"\nprint({name}.stats['replayed'], file=sys.stderr)\n")
    ran = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    assert int(ran.stderr.split()[-1]) > 120, ran.stderr


def test_it_says_why_not(tmp_path):
    ran, report = tried(tmp_path, HEAD + """
import random
for x, y in batches():
    loss = F.cross_entropy(model(x * (1 + random.random())), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""")
    step, = report["steps"]
    assert ran.returncode == 1 and not step["replays"] and "factor" not in step, ran.stderr
    assert {refusal["code"] for refusal in step["refusals"]} == {"host_random"} and step["refusals"][0]["file"].endswith("train.py")
    assert "for x, y in batches" in (HEAD + "\nimport random\nfor x, y in batches():").splitlines()[step["refusals"][0]["line"] - 2]


def test_what_a_refusal_names_is_the_program_s(tmp_path):
    ran, report = tried(tmp_path, HEAD + """
for x, y in batches():
    made = model(x)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if made.sum() > 100 or loss > 100:
        print(made.sum().item())
""")
    step, = report["steps"]
    assert ran.returncode == 1 and step["refusals"][0]["code"] == "unconsumed_graph", ran.stderr
    assert step["refusals"][0]["reason"].startswith("`made`, which is read after the step, carries a graph")


def test_a_step_that_is_left_early_is_tried_and_told_in_words(tmp_path):
    text = HEAD + """
for i, (x, y) in enumerate(batches()):
    loss = F.cross_entropy(model(x), y)
    if not torch.isfinite(loss):
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i == 140:
        break
print(i)
""" + TAIL
    (tmp_path / "train.py").write_text(text)
    expected = printed(tmp_path)
    ran, report = tried(tmp_path, text, "--keep-going")
    step, = report["steps"]
    assert ran.returncode == 0 and step["replays"] and step["patch"] is None, ran.stderr
    assert ran.stderr.endswith(expected)
    ran = subprocess.run([sys.executable, "-m", "steptape", "try", "--calls", "10", "train.py"], cwd=tmp_path, capture_output=True, text=True)
    assert "put these statements in a function of their own" in ran.stdout and "times as fast" in ran.stdout


def test_modules_of_the_program_and_its_arguments(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "loop.py").write_text('''
"""A module of the program."""
import torch


def fit(model, optimizer, batches, loss_of):
    for x, y in batches:
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss
''')
    ran, report = tried(tmp_path, HEAD + """
from parts import loop
assert sys.argv == ["train.py", "--epochs", "3"] and __name__ == "__main__"
for _ in range(int(sys.argv[2])):
    loop.fit(model, optimizer, batches(), F.cross_entropy)
""", arguments=["--epochs", "3"])
    assert ran.returncode == 0, ran.stderr
    step, = report["steps"]
    assert step["file"].endswith("parts/loop.py") and step["line"] == 8 and "--- parts/loop.py" in step["patch"]


def patched(folder, text, report):
    """What the program prints with the patches of a report, one after the other."""
    write(folder / "train.py", text)
    for step in report["steps"]:
        (folder / "wrap.patch").write_text(step["patch"])
        subprocess.run(["patch", "-p0", "-i", "wrap.patch"], cwd=folder, check=True, capture_output=True)
    return printed(folder)


@pytest.mark.parametrize("body, names, has_patch", [
    ("""
def steps_of(seed):
    torch.manual_seed(seed)
    net = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(net.parameters(), .1)

    def step(x, y):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return step, net


for x, y in list(batches(9)):  # too few
    steps_of(7)[0](x, y)
made = [steps_of(seed) for seed in range(3)]
for step, net in made:
    for x, y in batches(60):
        step(x, y)
print([p.double().sum().item().hex() for step, net in made for p in net.parameters()])
""", ["steps_of.step"], True),
    ("""
class Trainer:
    @staticmethod
    @torch.enable_grad()
    def train_step(x, y):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    @classmethod
    def other(cls, x, y):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


for x, y in batches(60):
    Trainer.train_step(x, y)
for x, y in batches(60):
    Trainer.other(x, y)
""", ["Trainer.train_step", "Trainer.other"], False),
    ("""
for x, y in batches(): optimizer.zero_grad(); F.cross_entropy(model(x), y).backward(); optimizer.step()
""", ["the script"], False),
    ("""
rows = batches()
for i in range(100):
    x, y = next(rows); optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step(); print(i)
""", ["the script"], False),
    ("""
def tune(model):
    for x, y in batches(70):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


for x, y in batches(70):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y) * 2
    loss.backward()
    optimizer.step()
tune(model)
""", ["tune", "the script"], True),
    ("""
class Learner:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.net = nn.Linear(8, 3)
        self.optimizer = torch.optim.SGD(self.net.parameters(), .1)

    def train_step(self, x, y):
        self.optimizer.zero_grad()
        F.cross_entropy(self.net(x), y).backward()
        self.optimizer.step()


learners = [Learner(seed) for seed in range(3)]
for n, learner in zip((9, 60, 60), learners):
    for x, y in batches(n):
        learner.train_step(x, y)
print([p.double().sum().item().hex() for learner in learners for p in learner.net.parameters()])
""", ["Learner.train_step"], True),
    ("""
def train(log, more_log):
    log, more_log, train_step = [], [], 7
    for i, (x, y) in enumerate(batches(70)):
# optimizer.zero_grad(set_to_none=False)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x),
   y)  # further left
        loss.backward()
        optimizer.step()
        log.append(loss.item())
        more_log.append(i)
    return sum(log).hex(), more_log, train_step


print(train([], []))
""", ["train"], True),
    ("""
class Base:
\ttrain_step = 0


class Trainer(Base):
\tdef fit(self):
\t\tfor x, y in batches(70):
\t\t\tif len(x):
\t\t\t\tself.train_step += 1
\t\t\toptimizer.zero_grad()
\t\t\tF.cross_entropy(model(x), y).backward()
\t\t\toptimizer.step()


trainer = Trainer()
trainer.fit()
print(trainer.train_step, Base.train_step)
\x0c
""", ["Trainer.fit"], True),
    ("""
rows = batches()
x, y = next(rows)
for i in range(70):
    @torch.enable_grad()
    def loss_of(x, y):
        return F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss_of(x, y).backward()
    optimizer.step()
""", ["the script"], True),
    ("""
critic = nn.Linear(8, 1)
of_critic = torch.optim.SGD(critic.parameters(), .01)
for x, y in batches(70):
    for _ in range(2):
        of_critic.zero_grad()
        critic(x).square().mean().backward()
        of_critic.step()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    del loss
print([p.double().sum().item().hex() for p in critic.parameters()])
""", ["the script"], True),
], ids=["a closure a seed", "static and class methods", "one line", "shared lines", "two loops", "a learner a seed", "further left", "tabs",
        "a decorator first", "a loop in a loop"])
def test_what_is_tried_is_the_program_and_so_is_what_the_patches_make_of_it(tmp_path, body, names, has_patch):
    text = HEAD + body + TAIL
    (tmp_path / "train.py").write_text(text)
    expected = printed(tmp_path)
    ran, report = tried(tmp_path, text, "--keep-going")
    assert ran.returncode == 0 and ran.stderr.endswith(expected), (ran.stdout, ran.stderr)
    assert [step["name"] for step in report["steps"]] == names and all(step["bits"] == "equal" for step in report["steps"])
    assert all(step["patch"] is not None for step in report["steps"]) == has_patch, report
    if has_patch:
        assert patched(tmp_path, text, report) == expected


@pytest.mark.parametrize("made, has_patch", [
    (lambda text: text.replace("\n", "\r\n").encode(), False), (lambda text: b"\xef\xbb\xbf" + text.encode(), False),
    (lambda text: ("# -*- coding: latin-1 -*-\n# \xe9\n" + text).encode("latin-1"), False),
    (lambda text: ('"A docstring."\nfrom __future__ import annotations\n' + text + "print(__doc__)\n").encode(), True),
    (lambda text: text.encode().rstrip(b"\n"), True),
], ids=["crlf", "bom", "latin-1", "docstring", "no end of line"])
def test_a_patch_is_of_the_text_that_is_there(tmp_path, made, has_patch):
    written = made(HEAD + """
for x, y in batches(70):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
""" + TAIL)
    (tmp_path / "train.py").write_bytes(written)
    expected = printed(tmp_path)
    ran, report = tried(tmp_path, written, "--keep-going")
    assert ran.returncode == 0 and ran.stderr.endswith(expected), (ran.stdout, ran.stderr)
    step, = report["steps"]
    assert step["replays"] and (step["patch"] is not None) == has_patch, report
    if has_patch:
        assert patched(tmp_path, written, report) == expected


@pytest.mark.parametrize("body, words", [
    ("""
@steptape.wrap
def update(x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


for x, y in batches(70):
    update(x, y)
""", "update: it is wrapped already"),
    ("""
class Base:
    def loss(self, x, y):
        return F.cross_entropy(model(x), y)


class Trainer(Base):
    def fit(self):
        for x, y in batches(70):
            optimizer.zero_grad()
            super().loss(x, y).backward()
            optimizer.step()


Trainer().fit()
""", "super: a function outside of its class cannot ask for it"),
    ("""
async def fit():
    for x, y in batches(70):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


import asyncio
asyncio.run(fit())
""", "fit: a coroutine"),
])
def test_what_is_not_tried_is_run_as_it_is_and_told(tmp_path, body, words):
    text = HEAD + "import steptape\n" + body + TAIL
    (tmp_path / "train.py").write_text(text)
    expected = printed(tmp_path)
    ran, report = tried(tmp_path, text, "--keep-going")
    assert ran.returncode == 2 and ran.stderr.endswith(expected), (ran.stdout, ran.stderr)
    assert not report["steps"] and not report["failed"] and words in report["not_tried"][0], report


def test_a_generator_is_not_a_step(tmp_path):
    ran, report = tried(tmp_path, HEAD + """
def train(x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    yield


for x, y in batches():
    list(train(x, y))
""", "--keep-going")
    assert ran.returncode == 2 and report["not_tried"] == ["train.py:18: train: a generator"] and not report["failed"], ran.stderr


def test_a_module_by_its_name(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/__init__.py").write_text("")
    (tmp_path / "parts/data.py").write_text("scale = 2.0\n")
    (tmp_path / "parts/run.py").write_text(HEAD + """
from .data import scale
assert sys.argv[1:] == ["-m", "x"] and __name__ == "__main__" and __package__ == "parts"
for x, y in batches():
    optimizer.zero_grad()
    (F.cross_entropy(model(x), y) * scale).backward()
    optimizer.step()
""")
    ran = subprocess.run([sys.executable, "-m", "steptape", "try", "--json", "-m", "parts.run", "-m", "x"], cwd=tmp_path, capture_output=True,
                         text=True, timeout=300)
    step, = json.loads(ran.stdout)["steps"]
    assert ran.returncode == 0 and step["replays"] and "--- parts/run.py" in step["patch"], ran.stderr
    ran = subprocess.run([sys.executable, "-m", "steptape", "try", "-m", "parts"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 2 and "no module of this name has a source" in ran.stderr


@pytest.mark.parametrize("body, code, words", [
    ("print('nothing')", 2, "no loop in it calls step()"),
    ("raise ValueError('no')", 2, "it failed: ValueError: no"),
    ("sys.exit(3)", 2, "it ended with 3"),
    ("def (", 2, "it failed: SyntaxError"),
    ("try:\n    for x, y in batches():\n        optimizer.step()\nexcept ValueError:\n    pass", 2, "stands in a try"),
    ("for x, y in batches(9):\n    model(x).sum().backward()\n    optimizer.step()", 2, "too few to be tried"),
    ("for x, y in batches(3):\n    model(x).sum().backward()\n    optimizer.step()", 2, "too few to be tried"),
    ("for x, y in batches(60):\n    model(x).sum().backward()\n    optimizer.step()", 0, "times as fast"),
    ("for x, y in batches(46):\n    model(x).sum().backward()\n    optimizer.step()", 2, "steps were replayed: too few to be timed"),
], ids=["no step", "exception", "exit", "syntax", "try", "few", "very few", "enough", "nearly enough"])
def test_what_is_said_where_there_is_nothing_to_try(here, capsys, monkeypatch, body, code, words):
    monkeypatch.setattr("steptape._try._FRAMEWORKS", {})  # other tests have imported them
    assert here(HEAD + body) == code
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("text, advice", [
    ("import lightning.pytorch as L", "SteptapeCallback"), ("from transformers import Trainer", "SteptapeTrainerMixin"),
    ("import stable_baselines3", "sb3.accelerate"),
])
def test_a_framework_is_told_by_its_name(here, capsys, text, advice):
    assert here(text) == 2 and advice in capsys.readouterr().out


LIGHTNING = """
import lightning.pytorch as lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def training_step(self, batch, batch_idx):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    HOOK

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


lightning.seed_everything(1)
trainer = lightning.Trainer(max_epochs=10, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                            enable_model_summary=False)
module = Net()
trainer.fit(module, DataLoader(TensorDataset(torch.randn(256, 16), torch.randint(0, 4, (256,))), 16))
print([p.double().sum().item().hex() for p in module.parameters()])
"""
TRANSFORMERS = """
import torch
import transformers

torch.manual_seed(1)
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=16))
rows = [{"input_ids": torch.randint(0, 32, (16,)), "labels": torch.randint(0, 32, (16,))} for _ in range(64)]
arguments = transformers.TrainingArguments("out", per_device_train_batch_size=4, num_train_epochs=8, use_cpu=True, report_to=[],
                                           save_strategy="no", disable_tqdm=True, gradient_accumulation_steps=2)
trainer = transformers.Trainer(model, arguments, train_dataset=rows)
trainer.train()
print([p.double().sum().item().hex() for p in model.parameters()])
"""


@pytest.mark.parametrize("text, advice", [(LIGHTNING.replace("HOOK", ""), "SteptapeCallback"), (TRANSFORMERS, "SteptapeTrainerMixin")],
                         ids=["lightning", "transformers"])
def test_the_loop_of_a_framework(tmp_path, text, advice):
    """Timed as it is, then with the integration; kept going it leaves what the program leaves."""
    ran, report = tried(tmp_path, text, "--keep-going", "--calls", "12")
    step, = report["steps"]
    assert ran.returncode == 0 and step["replays"] and step["bits"] == "equal" and advice in step["advice"], ran.stderr
    assert printed(tmp_path).splitlines()[-1] == ran.stderr.splitlines()[-1]


def test_a_loop_that_an_integration_refuses(tmp_path):
    ran, report = tried(tmp_path, LIGHTNING.replace("HOOK", "def on_after_backward(self):\n        pass"), "--calls", "12")
    step, = report["steps"]
    assert ran.returncode == 1 and not step["replays"] and "Net.on_after_backward" in step["problem"], ran.stderr
    assert step["bits"] == "not compared"

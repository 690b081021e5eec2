"""The recipes of docs/frameworks.md for frameworks that call a function of the program's for each step: Fabric, Ignite, skorch, PyG, fastai, and losses of
TorchRL."""
import pathlib
import random
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import steptape
from twins import bits

warnings.filterwarnings("ignore", module="lightning|ignite|skorch|torch_geometric|fast|torchrl|tensordict")
NEVER = {"first": True, "rate": 0.0}
EPOCHS = 6


def rows():
    draw = torch.Generator().manual_seed(3)
    return TensorDataset(torch.randn(170, 16, generator=draw), torch.randint(0, 4, (170,), generator=draw))


def net():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))


def fabric(wrap):
    lightning = pytest.importorskip("lightning.fabric")
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    plain = net()
    model, optimizer = fabric.setup(plain, torch.optim.Adam(plain.parameters()))
    loader = fabric.setup_dataloaders(DataLoader(rows(), 16, shuffle=True))

    @wrap
    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=0.5)
        optimizer.step()
        return loss.detach()

    losses = [step(x, y) for _ in range(EPOCHS) for x, y in loader]
    return [losses, plain, optimizer.state_dict()], step


def ignite(wrap):
    engine, metrics = pytest.importorskip("ignite.engine"), pytest.importorskip("ignite.metrics")
    model = net()
    optimizer = torch.optim.Adam(model.parameters())

    @wrap
    def step(batch):
        x, y = batch
        model.train()
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        return loss.item(), out.detach(), y

    trainer, seen = engine.Engine(lambda engine, batch: step(batch)), []
    metrics.RunningAverage(output_transform=lambda output: output[0]).attach(trainer, "loss")
    metrics.Accuracy(output_transform=lambda output: output[1:]).attach(trainer, "accuracy")
    trainer.add_event_handler(engine.Events.EPOCH_COMPLETED, lambda engine: seen.append(dict(engine.state.metrics)))
    trainer.run(DataLoader(rows(), 16, shuffle=True), max_epochs=EPOCHS)
    return [seen, model, optimizer.state_dict()], step


def skorch(wrap):
    skorch = pytest.importorskip("skorch")

    class Net(skorch.NeuralNetClassifier):
        def initialize(self):
            super().initialize()
            self.step_ = wrap(super().train_step)
            return self

        def train_step(self, batch, **fit_params):
            return self.step_(batch, **fit_params)

    fitted = Net(nn.Sequential(net(), nn.Softmax(-1)), max_epochs=EPOCHS, lr=0.05, batch_size=16, iterator_train__shuffle=True,
                 optimizer=torch.optim.Adam, verbose=0)
    fitted.fit(*(tensor.numpy() for tensor in rows().tensors))
    return [fitted.history[:, ("train_loss", "valid_loss", "valid_acc")], fitted.module_, fitted.optimizer_.state_dict()], fitted.step_


def graphs(wrap):
    geometric = pytest.importorskip("torch_geometric.nn")
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader as GraphLoader

    class Graphs(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = geometric.GCNConv(8, 16), geometric.GCNConv(16, 16)
            self.last = nn.Linear(16, 3)

        def forward(self, x, edges, batch, count):
            hidden = self.second(self.first(x, edges).relu(), edges).relu()
            return self.last(geometric.global_mean_pool(hidden, batch, count))

    draw, ring = torch.Generator().manual_seed(1), torch.arange(6)
    data = [Data(x=torch.randn(6, 8, generator=draw), y=torch.randint(0, 3, (1,), generator=draw),
                 edge_index=torch.stack([ring, ring.roll(1 + i % 3)])) for i in range(32)]
    model = Graphs()
    optimizer = torch.optim.Adam(model.parameters())

    @wrap
    def step(x, edges, batch, count, y):
        loss = F.cross_entropy(model(x, edges, batch, count), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = [step(b.x, b.edge_index, b.batch, b.num_graphs, b.y) for _ in range(12) for b in GraphLoader(data, 8, shuffle=True)]
    return [losses, model, optimizer.state_dict()], step


def fastai(wrap):
    from fastai import basics

    class Learner(basics.Learner):
        def _do_one_batch(self):
            if not self.training:
                return super()._do_one_batch()
            if not hasattr(self, "step_"):
                self.step_ = wrap(super()._do_one_batch)
            return self.step_()

    data = list(rows())
    learner = Learner(basics.DataLoaders.from_dsets(data, data[:32], bs=16, num_workers=0, device="cpu"), net(), loss_func=nn.CrossEntropyLoss(),
                      opt_func=basics.Adam)
    with learner.no_logging():
        learner.fit(EPOCHS, 1e-2)
    return [learner.recorder.values, learner.model, learner.opt.state_dict()["state"]], learner.step_


def of_torchrl(wrap, loss_module, keys, updater=None, **more):
    """Trains a loss of TorchRL on four batches; `more` are entries of these."""
    tensordict = pytest.importorskip("tensordict")
    optimizer = torch.optim.Adam(loss_module.parameters(), 1e-3)

    @wrap
    def step(batch):
        batch = batch.copy()  # to which the loss adds entries
        losses = loss_module(batch)
        loss = sum(losses[key] for key in keys)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(loss_module.parameters(), 1.0)
        optimizer.step()
        if updater is not None:
            updater.step()
        return losses.detach()

    false = torch.zeros(16, 1, dtype=torch.bool)
    batches = [tensordict.TensorDict({
        "observation": torch.randn(16, 4), **{key: make() for key, make in more.items()},
        "next": {"observation": torch.randn(16, 4), "reward": torch.randn(16, 1), "done": false, "terminated": false}}, [16]) for _ in range(4)]
    losses = [dict(step(batches[i % 4].clone())) for i in range(40)]
    return [losses, loss_module.state_dict(), optimizer.state_dict()], step


def torchrl_dqn(wrap):
    pytest.importorskip("torchrl")
    from torchrl.data import OneHot
    from torchrl.modules import QValueActor
    from torchrl.objectives import DQNLoss, SoftUpdate
    actor = QValueActor(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)), in_keys=["observation"], spec=OneHot(2))
    loss = DQNLoss(actor, delay_value=True)
    loss.make_value_estimator(gamma=0.9)
    return of_torchrl(wrap, loss, ["loss"], SoftUpdate(loss, eps=0.9), action=lambda: F.one_hot(torch.randint(2, (16,)), 2))


def torchrl_ppo(wrap):
    pytest.importorskip("torchrl")
    from tensordict.nn import NormalParamExtractor, TensorDictModule
    from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4), NormalParamExtractor())
    actor = ProbabilisticActor(TensorDictModule(policy, in_keys=["observation"], out_keys=["loc", "scale"]), in_keys=["loc", "scale"],
                               distribution_class=TanhNormal, return_log_prob=True)
    critic = ValueOperator(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)), in_keys=["observation"])
    return of_torchrl(wrap, ClipPPOLoss(actor, critic, entropy_bonus=False), ["loss_objective", "loss_critic"], action=lambda: torch.rand(16, 2) - 0.5,
                      action_log_prob=lambda: torch.randn(16), advantage=lambda: torch.randn(16, 1), value_target=lambda: torch.randn(16, 1))


def check(train):
    def run(wrap):
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        return train(wrap)

    expected, _ = run(lambda function: function)
    left, step = run(lambda function: steptape.wrap(function, verify=NEVER))
    assert bits(left) == bits(expected), step.explain()
    stats = step.stats
    free = stats["steps"] - stats["recorded"] - stats["trials"]
    assert stats["replayed"] >= 0.9 * free > 0 and stats["replayed"] > stats["steps"] / 2, step.explain()


@pytest.mark.parametrize("train", [fabric, ignite, skorch, graphs, torchrl_dqn, torchrl_ppo], ids=lambda f: f.__name__)
def test_a_recipe_trains_as_without(train):
    check(train)


def test_fastai_trains_as_without():
    """In a process of its own: fastai gives torch.Tensor methods of its own."""
    pytest.importorskip("fastai")
    code = "import fastai.basics, frameworks_test; frameworks_test.check(frameworks_test.fastai)"
    child = subprocess.run([sys.executable, "-c", code], cwd=pathlib.Path(__file__).parent, capture_output=True, text=True, timeout=250)
    assert child.returncode == 0, child.stderr[-4000:]

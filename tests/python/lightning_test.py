"""Lightning with SteptapeCallback beside Lightning without: parameters, optimizers, what is logged, checkpoints."""
import logging
import pickle
import sys
import types
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import steptape
from twins import bits

warnings.filterwarnings("ignore", module="lightning|pytorch_lightning|torchmetrics")
lightning = pytest.importorskip("lightning.pytorch")
classic = pytest.importorskip("pytorch_lightning")
torchmetrics = pytest.importorskip("torchmetrics")
import steptape.lightning  # noqa: E402  after the two, of both of which it then is

for name in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)
NEVER = {"first": True, "rate": 0.0}
EPOCHS, ROWS = 8, 170


class Kept(lightning.loggers.logger.DummyLogger):
    """What is logged, in order."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def log_metrics(self, metrics, step=None):
        self.lines.append((step, dict(metrics)))


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.BatchNorm1d(32), nn.Linear(32, 4))
        self.outputs, self.counted = [], 0

    def loss(self, batch):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.outputs.append(bits(outputs))

    def validation_step(self, batch, batch_idx):
        self.log("val", self.loss(batch))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 0.01)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100), "interval": "step"}]


class Logs(Net):
    """By position, now and then, numbers and dicts; it returns more than the loss."""

    def training_step(self, batch, batch_idx):
        out = self.net(batch[0])
        loss = F.cross_entropy(out, batch[1])
        self.log_dict({"accuracy": (out.argmax(1) == batch[1]).float().mean(), "half": loss / 2}, on_epoch=True)
        if batch_idx % 5 == 0:
            self.log("sometimes", loss * 3, True)
        self.log("two", 2.0)
        self.counted += 1
        return {"loss": loss, "outputs": out.detach(), "index": batch_idx}


class Asks(Net):
    """What it trains by follows from where training is."""

    def training_step(self, batch, batch_idx):
        weight = 1 / (1 + self.global_step) + 0.1 * self.current_epoch
        self.log("weight", weight)
        return self.loss(batch) * weight


class Skips(Net):
    def training_step(self, batch, batch_idx):
        return None if batch_idx == 4 else super().training_step(batch, batch_idx)


class LogsWhatIsWritten(Net):
    """The value before the update is logged, though the tensor is the parameter itself."""

    def training_step(self, batch, batch_idx):
        self.log("weight", self.net[0].weight[0, 0])
        self.log_dict({"mean": self.net[3].running_mean[1], "loss": self.loss(batch)})
        return self.loss(batch)


class ReadsItsLogs(Net):
    """A step by what itself has logged."""

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("loss", loss)
        logged = self.trainer.callback_metrics.get("loss")
        return loss if logged is None else loss * (1 + logged.detach())


class Plateau(Net):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val"}}


class Measures(Net):
    """By a metric that counts in buffers of its own."""

    def __init__(self):
        super().__init__()
        self.accuracy = torchmetrics.classification.MulticlassAccuracy(4)

    def training_step(self, batch, batch_idx):
        out = self.net(batch[0])
        self.accuracy(out, batch[1])
        self.log("accuracy", self.accuracy, on_step=True, on_epoch=True)
        return F.cross_entropy(out, batch[1])


class ByHand(Net):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = self.loss(batch)
        self.manual_backward(loss)
        self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
        optimizer.step()
        self.log("loss", loss)
        return {"loss": loss.detach()}

    def on_train_epoch_end(self):
        self.lr_schedulers().step()


class TwoByHand(ByHand):
    """As networks that play against each other are trained."""

    def __init__(self):
        super().__init__()
        self.judge = nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        first, second = self.optimizers()
        first.zero_grad()
        loss = self.judge(self.net(batch[0])).square().mean() + self.loss(batch)
        self.manual_backward(loss)
        first.step()
        second.zero_grad()
        other = (self.judge(self.net(batch[0]).detach()) - 1).square().mean()
        self.manual_backward(other)
        second.step()
        self.log_dict({"first": loss, "second": other})

    def configure_optimizers(self):
        return [torch.optim.Adam(self.net.parameters(), 0.01), torch.optim.Adam(self.judge.parameters(), 0.02)]

    def on_train_epoch_end(self):
        pass


class Numbers(Net):
    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log_dict({"tenth": 0.1, "item": loss.item(), "loss": loss})
        return loss


class Exchanges(lightning.Callback):
    """Another optimizer from the fourth epoch on."""

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 3:
            trainer.optimizers = [torch.optim.SGD(pl_module.parameters(), 0.05, momentum=0.9)]


class ClipsLater(lightning.Callback):
    def on_train_epoch_start(self, trainer, pl_module):
        trainer.gradient_clip_val = 0.1 if trainer.current_epoch > 3 else None


def loaders():
    draw = torch.Generator().manual_seed(3)
    data = TensorDataset(torch.randn(ROWS, 16, generator=draw), torch.randint(0, 4, (ROWS,), generator=draw))
    return DataLoader(data, 16, shuffle=True), DataLoader(data, 40)


def fit(make, taped, package=lightning, checkpoint=None, callbacks=(), epochs=EPOCHS, **options):
    """The module, its trainer and the callback."""
    torch.manual_seed(1)
    module = make()
    callback = steptape.lightning.SteptapeCallback(verify=NEVER)
    trainer = package.Trainer(max_epochs=epochs, accelerator="cpu", devices=1, logger=Kept(), enable_progress_bar=False,
                              enable_model_summary=False, callbacks=[*callbacks, *([callback] if taped else [])],
                              **{"enable_checkpointing": False, "log_every_n_steps": 1, **options})
    trainer.fit(module, *loaders(), ckpt_path=checkpoint)
    return module, trainer, callback


def left(module, trainer):
    return bits([dict(module.state_dict()), [dict(o.state_dict()) for o in trainer.optimizers], module.outputs, module.counted,
                 trainer.logger.lines, {name: value for name, value in trainer.callback_metrics.items()}, trainer.global_step,
                 [p.grad for p in module.parameters()], [c.scheduler.state_dict() for c in trainer.lr_scheduler_configs]])


CASES = {
    "plain": (Net, {}),
    "clipped": (Net, {"gradient_clip_val": 0.5}),
    "clipped by value": (Net, {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}),
    "accumulated": (Net, {"accumulate_grad_batches": 3, "gradient_clip_val": 0.5}),
    "bfloat16": (Net, {"precision": "bf16-mixed"}),
    "double": (Net, {"precision": "64-true"}),
    "logs": (Logs, {}),
    "logs, double": (Numbers, {"precision": "64-true"}),
    "accumulated later": (Net, {"callbacks": [lightning.callbacks.GradientAccumulationScheduler({0: 1, 3: 2, 5: 3})]}),
    "clipped later": (Net, {"callbacks": [ClipsLater()]}),
    "logs what is written": (LogsWhatIsWritten, {}),
    "another optimizer": (Net, {"callbacks": [Exchanges()]}),
    "asks": (Asks, {}),
    "skips": (Skips, {}),
    "plateau": (Plateau, {}),
    "measures": (Measures, {}),
    "by hand": (ByHand, {}),
    "two by hand": (TwoByHand, {}),
    "validated often": (Net, {"val_check_interval": 4}),
}


@pytest.mark.parametrize("case", CASES)
def test_training_leaves_what_lightning_leaves(case):
    make, options = CASES[case]
    plain, trainer, _ = fit(make, False, **options)
    taped, other, callback = fit(make, True, **options)
    assert left(plain, trainer) == left(taped, other)
    assert "log" not in vars(taped) and type(other.fit_loop.epoch_loop.automatic_optimization).__module__.startswith("lightning")
    counts = {name: (stats["replayed"], stats["steps"]) for name, stats in callback.stats.items()}
    for name, stats in callback.stats.items():
        free = stats["steps"] - stats["recorded"] - stats["trials"]
        assert stats["replayed"] >= 0.9 * free > 0, (counts, callback.explain())


def test_a_step_that_reads_what_it_logs_runs_as_it_is():
    plain, trainer, _ = fit(ReadsItsLogs, False)
    taped, other, callback = fit(ReadsItsLogs, True)
    assert left(plain, trainer) == left(taped, other)
    assert callback.stats["update"]["replayed"] == 0 and type(other._logger_connector) is type(trainer._logger_connector)
    assert {refusal["code"] for refusal in callback.stats["update"]["refusals"]} == {"host_effect"}, callback.explain()


def test_a_checkpoint_holds_what_lightning_s_holds_and_training_goes_on_from_it(tmp_path):
    def train(taped, folder):
        saves = [lightning.callbacks.ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1),
                 lightning.callbacks.EarlyStopping("val", patience=2)]
        module, trainer, _ = fit(Net, taped, callbacks=saves, epochs=4, enable_checkpointing=True, accumulate_grad_batches=2)
        again, further, callback = fit(Net, taped, callbacks=saves, epochs=7, enable_checkpointing=True, accumulate_grad_batches=2,
                                       checkpoint=folder / "epoch=1.ckpt")
        saved = torch.load(folder / "epoch=3.ckpt", weights_only=False)
        loops = saved["loops"]["fit_loop"]["epoch_loop.automatic_optimization.optim_progress"]
        return callback, (left(module, trainer), left(again, further), bits([saved["state_dict"], saved["optimizer_states"]]), loops)

    _, expected = train(False, tmp_path / "plain")
    callback, found = train(True, tmp_path / "taped")
    assert expected == found
    assert all(stats["replayed"] > 0 for stats in callback.stats.values()), callback.explain()


def test_the_other_package():
    class Classic(classic.LightningModule):
        __init__, loss, training_step, on_train_batch_end = Net.__init__, Net.loss, Net.training_step, Net.on_train_batch_end
        validation_step, configure_optimizers = Net.validation_step, Net.configure_optimizers

    Classic.__init__ = lambda self: (classic.LightningModule.__init__(self), torch.manual_seed(0), setattr(self, "net", nn.Linear(16, 4)),
                                     setattr(self, "outputs", []), setattr(self, "counted", 0))[0]
    plain, trainer, _ = fit(Classic, False, classic)
    taped, other, callback = fit(Classic, True, classic)
    assert left(plain, trainer) == left(taped, other)
    assert callback.stats["update"]["replayed"] > 60, callback.explain()


class Between(Net):
    def on_before_optimizer_step(self, optimizer):
        pass


class Watcher(lightning.Callback):
    def on_after_backward(self, trainer, pl_module):
        pass


class Own(lightning.plugins.Precision):
    precision = "own"


@pytest.mark.parametrize("make, options, named", [
    (Between, {}, "Between.on_before_optimizer_step"), (Net, {"callbacks": [Watcher()]}, "Watcher.on_after_backward"),
    (Net, {"plugins": [Own()]}, "'own'")], ids=["module", "callback", "precision"])
def test_what_stands_between_the_parts_of_a_step_is_refused_by_name(make, options, named):
    with pytest.raises(steptape.InvalidArgument, match=named):
        fit(make, True, epochs=1, **options)


class Pickles(lightning.Callback):
    """The module, in the middle of training: a copy that needs nothing of this package."""

    def on_train_batch_end(self, trainer, module, *args):
        if trainer.global_step == 12:
            self.pickled = pickle.dumps(module.cpu())


def test_a_log_of_the_program_s_own_comes_back_and_a_pickled_module_has_its_own():
    kept = []

    def make():
        module = Net()
        before = module.log
        module.log = lambda name, value, **options: (kept.append(name), before(name, value, **options))[1]
        return module
    plain, trainer, _ = fit(make, False)
    count = len(kept)
    taped, other, callback = fit(make, True)
    assert left(plain, trainer) == left(taped, other) and len(kept) == 2 * count
    assert isinstance(vars(taped)["log"], types.FunctionType) and callback.stats["update"]["replayed"] > 0
    pickles = Pickles()
    fit(Net, True, callbacks=[pickles])
    assert b"steptape" not in pickles.pickled
    again = pickle.loads(pickles.pickled)
    assert again.log.__func__ is Net.log and again.log.__self__ is again


class Late(lightning.Callback):
    """Does something with the trainer and its module at one step."""

    def __init__(self, do):
        self.do = do

    def on_train_batch_start(self, trainer, module, *args):
        if trainer.global_step == 15:
            self.do(trainer, module)


def twice(thing, method):
    """As profilers wrap a method."""
    before = getattr(thing, method)
    setattr(thing, method, lambda *args, **kwargs: before(*args, **kwargs))


class ClipsItself(Net):
    def clip_gradients(self, optimizer, *args, **kwargs):
        for parameter in self.parameters():
            parameter.grad.clamp_(-1e-3, 1e-3)


Precision = lightning.plugins.Precision
PATCHED = {"strategy": lightning.strategies.SingleDeviceStrategy, "precision": Precision,
           "optimizer": lightning.core.optimizer.LightningOptimizer}


@pytest.fixture
def patches_end():
    kinds = (lightning.LightningModule, lightning.Callback, *PATCHED.values())
    before = [dict(vars(kind)) for kind in kinds]
    yield
    for kind, names in zip(kinds, before):
        for name in vars(kind).keys() - names.keys():
            delattr(kind, name)
        for name, value in names.items():
            if vars(kind)[name] is not value:
                setattr(kind, name, value)


class OwnPrecision(Precision):
    pass


class PatchesEarly(Net):
    """As instrumentation patches a package when it is imported."""

    def on_fit_start(self):
        twice(lightning.LightningModule, "on_before_optimizer_step")


class HasAHook(Net):
    def on_fit_start(self):
        self.on_after_backward = lambda: None


@pytest.mark.parametrize("make, do, named, step", [
    (ClipsItself, None, "ClipsItself.clip_gradients", 0), (HasAHook, None, "HasAHook.on_after_backward", 0),
    (Net, lambda trainer, module: setattr(module, "on_before_optimizer_step", lambda optimizer: None), "Net.on_before_optimizer_step", 15),
    (Net, lambda trainer, module: trainer.callbacks.append(Watcher()), "Watcher.on_after_backward", 15),
    (Net, lambda trainer, module: twice(trainer.strategy, "backward"), "SingleDeviceStrategy.backward", 15),
    (Net, lambda trainer, module: twice(trainer.strategy, "optimizer_step"), "SingleDeviceStrategy.optimizer_step", 15),
    (Net, lambda trainer, module: twice(trainer.precision_plugin, "backward"), "Precision.backward", 15),
    (Net, lambda trainer, module: twice(trainer.precision_plugin, "_clip_gradients"), "Precision._clip_gradients", 15),
    (Net, lambda trainer, module: twice(module.optimizers(), "step"), "LightningAdamW.step", 15),
    (Net, lambda trainer, module: twice(PATCHED["strategy"], "backward"), "SingleDeviceStrategy.backward", 15),
    (Net, lambda trainer, module: twice(PATCHED["precision"], "optimizer_step"), "Precision.optimizer_step", 15),
    (Net, lambda trainer, module: twice(PATCHED["optimizer"], "step"), "LightningAdamW.step", 15),
    (Net, lambda trainer, module: twice(lightning.LightningModule, "on_after_backward"), "Net.on_after_backward", 15),
    (Net, lambda trainer, module: twice(lightning.Callback, "on_before_zero_grad"), "on_before_zero_grad", 15),
    (Net, lambda trainer, module: setattr(trainer.strategy, "__class__", type("Own", (type(trainer.strategy),), {})), "the strategy Own", 15),
    (Net, lambda trainer, module: setattr(trainer.strategy, "precision_plugin", OwnPrecision()), "OwnPrecision", 15),
    (PatchesEarly, None, "PatchesEarly.on_before_optimizer_step", 0),
])
def test_a_hook_of_the_object_or_one_that_comes_later_is_refused_too(make, do, named, step, patches_end):
    module = make()
    trainer = lightning.Trainer(max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False,
                                callbacks=[*([] if do is None else [Late(do)]), steptape.lightning.SteptapeCallback(verify=NEVER)])
    with pytest.raises(steptape.InvalidArgument, match=named):
        trainer.fit(module, *loaders())
    assert trainer.global_step == step and "log" not in vars(module)


@pytest.mark.parametrize("thing, method", [("strategy", "training_step"), ("precision_plugin", "clip_gradients"), ("optimizer", "step")])
def test_what_is_set_in_the_place_of_a_part_of_the_step_is_a_part_of_it(thing, method):
    def scales(trainer, module):
        of = trainer.optimizers[0] if thing == "optimizer" else getattr(trainer, thing)
        before = getattr(of, method)

        def scaled(*args, **kwargs):
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter.mul_(0.99)
            return before(*args, **kwargs)
        setattr(of, method, scaled)
    plain, trainer, _ = fit(Net, False, callbacks=[Late(scales)], gradient_clip_val=0.5)
    taped, other, callback = fit(Net, True, callbacks=[Late(scales)], gradient_clip_val=0.5)
    assert left(plain, trainer) == left(taped, other) and callback.stats["update"]["replayed"] > 20, callback.explain()


def test_a_log_that_is_set_while_training_stays():
    def sets(trainer, module):
        module.log = lambda *args, **kwargs: None
    plain, trainer, _ = fit(Net, False, callbacks=[Late(sets)])
    taped, other, callback = fit(Net, True, callbacks=[Late(sets)])
    assert left(plain, trainer) == left(taped, other) and vars(taped)["log"].__name__ == vars(plain)["log"].__name__ == "<lambda>"


def test_an_exception_of_the_step_leaves_the_module_as_it_was():
    class Fails(Net):
        def training_step(self, batch, batch_idx):
            if self.global_step == 15:
                raise ValueError("on purpose")
            return super().training_step(batch, batch_idx)

    module = Fails()
    callback = steptape.lightning.SteptapeCallback(verify=NEVER)
    trainer = lightning.Trainer(max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False, callbacks=[callback])
    with pytest.raises(ValueError, match="on purpose"):
        trainer.fit(module, *loaders())
    assert "log" not in vars(module) and trainer.global_step == 15
    assert sys.exc_info() == (None, None, None)

"""Lightning: the training step, backward, clipping and the optimizer's step as one wrapped step.

    trainer = lightning.Trainer(callbacks=[steptape.lightning.SteptapeCallback()], ...)

Of the packages `lightning` and `pytorch_lightning` the one that the program has imported is used, or else the first that is
installed. docs/frameworks.md says what is replayed, and what is refused when training starts.
"""
import contextlib
import functools
import importlib
import os
import sys
from typing import Any

import torch

from ._parts import explain, refuse, stats_of, wrap_part
from ._step import Step

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
# what a program may put between the parts of a step, none of which it sees here
_HOOKS_OF_CALLBACKS = ("on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step")
_HOOKS_OF_MODULES = (*_HOOKS_OF_CALLBACKS, "backward", "optimizer_step", "optimizer_zero_grad", "configure_gradient_clipping", "clip_gradients")
# and what stands there of these objects, where a program has set its own
_OF_STRATEGIES = ("pre_backward", "backward", "post_backward", "optimizer_step")
_OF_PRECISIONS = ("pre_backward", "backward", "post_backward", "optimizer_step", "_after_closure", "_wrap_closure", "_clip_gradients")


def _packages():
    imported = [name for name in _PACKAGES if name in sys.modules]
    for name in () if imported else _PACKAGES:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        return [name]
    if not imported:
        raise ImportError("steptape.lightning: neither `lightning` nor `pytorch_lightning` is installed")
    return imported


class _Log:
    """In place of a module's `log`: keeps what a step logs for when the step, or its replay, has ended."""

    def __init__(self, module):
        self.log, self.kept, self.module = module.log, None, module

    def __reduce__(self):
        return getattr, (self.module, "log")  # a module that is saved meanwhile has its own

    def __call__(self, name, value, *args, **options):
        if self.kept is None:
            return self.log(name, value, *args, **options)
        self.kept.append((name, _as_it_is(value), args, options))

    def put(self, kept):
        for name, value, args, options in kept:
            self.log(name, value, *args, **options)

    def settle(self):
        """The step reads what was logged: what it has logged itself is a part of that, a host effect that no replay does."""
        if self.kept:
            self.put(self.kept)
            self.kept.clear()


def _settling(connector, log):
    """The class of what gives a Trainer's metrics, and settles what a step has logged first."""
    kind = type(connector)

    def settled(name):
        def get(self):
            log.settle()
            return getattr(kind, name).fget(self)
        return property(get)
    return type(kind.__name__, (kind,), {name: settled(name) for name in ("callback_metrics", "logged_metrics", "progress_bar_metrics")})


def _as_it_is(value):
    """What Lightning takes of a value that is logged: the step may write the tensor afterwards."""
    if isinstance(value, dict):
        return {key: _as_it_is(each) for key, each in value.items()}
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


class _Automatic:
    """What the closure and the optimizer's step of Lightning's automatic optimization do, without their hooks."""

    def __init__(self, trainer, log):
        package = _package_of(trainer)
        self.trainer, self.log, self.optimizer = trainer, log, trainer.optimizers[0]
        self.result_of = importlib.import_module(f"{package}.loops.optimization.automatic").ClosureResult.from_training_step_output
        self.by_norm = importlib.import_module(f"{package}.plugins.precision.precision").GradClipAlgorithmType.NORM

    def accumulate(self, clears, *batch):
        self.log.kept = kept = []
        result = self._backward(clears, batch)
        self.log.kept = None
        return result.loss, result.extra, kept

    def update(self, clears, *batch):
        self.log.kept = kept = []
        result = None

        def closure():
            nonlocal result
            result = self._backward(clears, batch)
            if clip := self.trainer.gradient_clip_val:
                algorithm = self.trainer.gradient_clip_algorithm or self.by_norm
                self.trainer.precision_plugin.clip_gradients(self.optimizer, clip_val=clip, gradient_clip_algorithm=algorithm)
            return result.loss

        self.optimizer.step(closure)
        self.log.kept = None
        return result.loss, result.extra, kept

    def _backward(self, clears, batch):
        result = self.result_of(self.trainer.strategy.training_step(*batch), self.trainer.accumulate_grad_batches)
        if clears:
            self.optimizer.zero_grad()
        if result.closure_loss is not None:
            result.closure_loss.backward()
        return result


class _Manual:
    """A training step that steps its optimizers itself."""

    def __init__(self, trainer, log):
        self.trainer, self.log = trainer, log

    def step(self, *batch):
        self.log.kept = kept = []
        output = self.trainer.strategy.training_step(*batch)
        self.log.kept = None
        return output, kept


def _package_of(trainer):
    name = type(trainer).__module__
    return next((package for package in _PACKAGES if name.startswith(package)), _packages()[0])


@contextlib.contextmanager
def _within(trainer):
    """Around a step: what is logged belongs to the training step, and numbers become tensors as they do there."""
    module = trainer.lightning_module
    before, module._current_fx_name = module._current_fx_name, "training_step"
    try:
        yield trainer.precision_plugin.train_step_context
    finally:
        module._current_fx_name = before


@functools.cache
def _loops(package):
    """Lightning's two ways to optimize, whose steps are wrapped ones."""
    automatic = importlib.import_module(f"{package}.loops.optimization.automatic")._AutomaticOptimization
    manual = importlib.import_module(f"{package}.loops.optimization.manual")._ManualOptimization

    class AutomaticOptimization(automatic):
        def run(self, optimizer, batch_idx, kwargs):
            if self._skip_backward or "dataloader_iter" in kwargs:
                return super().run(optimizer, batch_idx, kwargs)
            self.made.optimizer = optimizer
            trainer, progress = self.trainer, self.optim_progress.optimizer
            _refuse(trainer, trainer.lightning_module)  # one may have come
            clears = batch_idx % trainer.accumulate_grad_batches == 0
            is_update = not trainer.fit_loop._should_accumulate()
            if is_update:
                progress.step.increment_ready()
            with _within(trainer) as as_logged:
                loss, extra, kept = (self.update if is_update else self.accumulate)(clears, *kwargs.values())
                with as_logged():
                    self.log.put(kept)
            if clears:
                progress.zero_grad.increment_ready()
                progress.zero_grad.increment_started()
                progress.zero_grad.increment_completed()
            if is_update:
                progress.step.increment_completed()
            return {} if loss is None else {"loss": loss, **extra}

    class ManualOptimization(manual):
        def advance(self, kwargs):
            if "dataloader_iter" in kwargs:
                return super().advance(kwargs)
            with _within(self.trainer) as as_logged:
                output, kept = self.step(*kwargs.values())
                with as_logged():
                    self.log.put(kept)
            self._output = self.output_result_cls.from_training_step_output(output).asdict()

    return AutomaticOptimization, ManualOptimization


@functools.cache
def _folders():
    names = ("lightning", "pytorch_lightning", "lightning_fabric")
    return tuple(os.path.dirname(sys.modules[name].__file__) + os.sep for name in names if name in sys.modules)


@functools.cache
def _classes_of(base):
    """Those that a class of Lightning's is made of."""
    return {each for package in _packages() for each in getattr(importlib.import_module(package), base).__mro__}


def _overridden(thing, names, base=None):
    """Of these methods those that the object, its class, or a program that patches Lightning's, has in place of Lightning's own; of one
    made of `base` those of any other class, too."""
    kind = type(thing)

    def is_lightnings(name):
        owner = next((each for each in kind.__mro__ if name in vars(each)), None)
        if owner is None:  # of another version
            return True
        code = getattr(vars(owner)[name], "__code__", None)
        return (base is None or owner in _classes_of(base)) and code is not None and code.co_filename.startswith(_folders())
    return [f"{kind.__name__}.{name}" for name in names if name in vars(thing) or not is_lightnings(name)]


def _left_out(trainer, module):
    """Hooks between the parts of a step, which it would not call."""
    if not module.automatic_optimization:
        return []
    between = [(module, _HOOKS_OF_MODULES, "LightningModule"), *((each, _HOOKS_OF_CALLBACKS, "Callback") for each in trainer.callbacks),
               (trainer.strategy, _OF_STRATEGIES), (trainer.precision_plugin, _OF_PRECISIONS),
               *((optimizer, ("step",)) for optimizer in getattr(trainer.strategy, "_lightning_optimizers", ()))]
    return [name for each in between for name in _overridden(*each)]


def _is_lightnings(thing):
    return type(thing).__module__.split(".")[0] in ("lightning", "pytorch_lightning")


def _refuse(trainer, module):
    """Raises InvalidArgument for what a wrapped step would leave out."""
    problems = _left_out(trainer, module)
    strategy, precision = trainer.strategy, trainer.precision_plugin
    if type(strategy).__name__ != "SingleDeviceStrategy" or not _is_lightnings(strategy):
        problems.append(f"the strategy {type(strategy).__name__}")
    if type(precision).__name__ not in ("Precision", "MixedPrecision", "HalfPrecision", "DoublePrecision") or not _is_lightnings(
            precision) or getattr(precision, "scaler", None) is not None:
        name = type(precision).__name__
        of = "" if _is_lightnings(precision) else f" of the class {name}"
        problems.append(f"the precision {getattr(precision, 'precision', name)!r}{of}")
    refuse("SteptapeCallback", problems)


class SteptapeCallback(*(importlib.import_module(name).Callback for name in _packages())):
    """Has a Lightning Trainer replay its training steps.

    options: those of `steptape.wrap`, for each step. With `trace="run.tape"` the steps that accumulate gradients alone keep theirs
             as run.accumulate.tape.

    Training starts with `steptape.InvalidArgument` where the module or a callback overrides a hook between forward and the
    optimizer's step, and for strategies and precisions that are not single-device, full, double, half or bf16.
    """

    def __init__(self, **options: Any):
        super().__init__()
        self._options = options
        self._steps: dict[str, Step] = {}
        self._restore = None

    @property
    def stats(self) -> dict[str, dict]:
        """`Step.stats` of each wrapped step: "update" and, where gradients are accumulated, "accumulate"; or "step"."""
        return stats_of(self._called())

    def explain(self) -> str:
        """What `Step.explain` says of each."""
        return explain(self._called())

    def _called(self):
        return {part: step for part, step in self._steps.items() if step.stats["steps"]}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        _refuse(trainer, pl_module)
        own = pl_module.__dict__.get("log")
        log = pl_module.__dict__["log"] = _Log(pl_module)
        automatic, manual = _loops(_package_of(trainer))
        loop, name = trainer.fit_loop.epoch_loop, "automatic_optimization" if pl_module.automatic_optimization else "manual_optimization"
        before = getattr(loop, name)
        if pl_module.automatic_optimization:
            taped, made = automatic(trainer), _Automatic(trainer, log)
            taped.made = made
            functions = {"update": made.update, "accumulate": made.accumulate}
        else:
            taped, functions = manual(trainer), {"step": _Manual(trainer, log).step}
        taped.__dict__.update(vars(before))
        objects = {"model": {"module": pl_module}, "optimizer": dict(_named(trainer.optimizers))}
        self._steps = {part: wrap_part(part, function, self._options, **objects) for part, function in functions.items()}
        vars(taped).update(self._steps, log=log)
        setattr(loop, name, taped)
        connector = trainer._logger_connector
        self._restore = functools.partial(self._put_back, loop, name, before, pl_module, log, own, connector, type(connector))
        connector.__class__ = _settling(connector, log)

    @staticmethod
    def _put_back(loop, name, before, module, log, own_log, connector, kind):
        connector.__class__ = kind
        progress = {key: value for key, value in vars(getattr(loop, name)).items() if key in vars(before)}
        before.__dict__.update(progress)
        setattr(loop, name, before)
        if module.__dict__.get("log") is not log:  # another one since
            return
        del module.__dict__["log"]
        if own_log is not None:
            module.__dict__["log"] = own_log

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self._restore is not None:
            self._restore()
            self._restore = None

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.on_train_end(trainer, pl_module)


def _named(optimizers):
    return [("optimizer" if len(optimizers) == 1 else f"optimizer_{i}", optimizer) for i, optimizer in enumerate(optimizers)]

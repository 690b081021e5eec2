"""Hugging Face's Trainer: the training step, backward, clipping and the optimizer's step as one wrapped step.

    class Trainer(steptape.transformers.SteptapeTrainerMixin, transformers.Trainer):
        pass

docs/frameworks.md says what is replayed, and what is refused when training starts.
"""
import copy
import functools
import sys
from typing import Any

import transformers

from ._parts import explain, refuse, stats_of, wrap_part
from ._step import Step

_BETWEEN = "on_pre_optimizer_step"  # of callbacks: it looks at gradients before the optimizer's step


class SteptapeTrainerMixin:
    """Stands before a Trainer among the bases of a class. Its training steps are replayed; the rest of Trainer is as it is.

    steptape_options: of the class or the instance, a dict of options of `steptape.wrap` for each step.

    Training starts with `steptape.InvalidArgument` where a callback looks between backward and the optimizer's step, and where
    a gradient is scaled (fp16) or shared out (DeepSpeed, FSDP, several GPUs in one process).
    """

    steptape_options: dict[str, Any] = {}
    _taped: "_Taped | None" = None

    @property
    def steptape_stats(self) -> dict[str, dict]:
        """`Step.stats` of each wrapped step of the newest training: "update" and, where gradients are accumulated, "accumulate"."""
        return {} if self._taped is None else stats_of(self._taped.steps)

    def steptape_explain(self) -> str:
        """What `Step.explain` says of each."""
        return "" if self._taped is None else explain(self._taped.steps)

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> Any:
        self._taped = None  # another optimizer, and perhaps another model
        self._own = {name: vars(self)[name] for name in _TAKEN_OVER if name in vars(self)}
        # by the object: what its class does in these methods, around those of its bases, is done in the step
        vars(self).update(training_step=self._taped_step, **{name: functools.partial(self._taped_norm, name) for name in _TAKEN_OVER[1:]})
        try:
            return super()._inner_training_loop(*args, **kwargs)
        finally:  # auto_find_batch_size begins anew
            for name in _TAKEN_OVER:
                del vars(self)[name]
            vars(self).update(self._own)
            if self._taped is not None:
                self._taped.end()

    def _taped_step(self, model, inputs, num_items_in_batch=None):
        if self._taped is None:
            self._taped = _Taped(self)
        return self._taped.run(model, inputs, num_items_in_batch)

    def _taped_norm(self, method, *args, **kwargs):
        return self._taped.norm

    def _as_it_was(self, method):
        return self._own.get(method) or getattr(type(self), method).__get__(self)


_TAKEN_OVER = ("training_step", "_clip_grad_norm", "_get_grad_norm")


class _Taped:
    """The two steps of one training: batches between two updates, and those with an update."""

    def __init__(self, trainer):
        _refuse(trainer)
        self.trainer, self.norm = trainer, None
        self.model = self.optimizer = None
        self.steps: dict[str, Step] = {}

    def run(self, model, inputs, num_items):
        if model is not self.model or self.trainer.optimizer is not self.optimizer:
            self.end()
            self.model, self.optimizer = model, self.trainer.optimizer
            # what Trainer calls after the step has been done
            vars(self.optimizer).update(step=_nothing, _opt_called=True)
            self.steps.clear()
        is_update = self.trainer.accelerator.gradient_state.sync_gradients
        name = "update" if is_update else "accumulate"
        if name not in self.steps:
            function = self.update if is_update else self.accumulate
            objects = {"model": {"model": self.model}, "optimizer": {"optimizer": self.optimizer.optimizer}}
            self.steps[name] = wrap_part(name, function, self.trainer.steptape_options, **objects)
        prepared, held = self._prepare(inputs), vars(self.trainer)
        before = held.get("_prepare_inputs", _as_it_is)
        # what a loss takes out of it stays in the argument, where nobody else could tell
        is_ours = sys.getrefcount(prepared) == _OURS_ALONE and isinstance(prepared, (dict, transformers.BatchEncoding, transformers.BatchFeature))
        held["_prepare_inputs"] = copy.copy if is_ours else _as_it_is
        try:
            result = self.steps[name](prepared, num_items)
        finally:
            held["_prepare_inputs"] = before
            if before is _as_it_is:
                del held["_prepare_inputs"]
        if not is_update:
            return result
        loss, self.norm = result
        return loss

    def _prepare(self, inputs):
        """Before the step: a Trainer may make its batch here, with the model as the training step leaves it, such as TRL's GRPO."""
        for switched in (self.model, self.optimizer):
            if callable(getattr(switched, "train", None)):
                switched.train()
        return self.trainer._prepare_inputs(inputs)

    def accumulate(self, inputs, num_items):
        return self.trainer._as_it_was("training_step")(self.model, inputs, num_items)

    def update(self, inputs, num_items):
        loss = self.trainer._as_it_was("training_step")(self.model, inputs, num_items)
        norm = self.trainer._as_it_was("_clip_grad_norm")(self.model) if self.trainer.args.max_grad_norm > 0 else None
        norm = self.trainer._as_it_was("_get_grad_norm")(self.model, grad_norm=norm)
        type(self.optimizer).step(self.optimizer)
        return loss, norm

    def end(self):
        if self.optimizer is not None:
            vars(self.optimizer).pop("step", None)


def _nothing(closure=None):
    pass


_nothing._wrapped_by_lr_sched = True  # a scheduler warns of a step that is not the one that it has wrapped, and sets _opt_called


def _as_it_is(inputs):
    return inputs


def _references():
    value = object()
    return sys.getrefcount(value)


_OURS_ALONE = _references()


def _refuse(trainer):
    """Raises InvalidArgument for what a wrapped step would leave out."""
    base = transformers.TrainerCallback
    problems = [f"{type(callback).__name__}.{_BETWEEN}" for callback in trainer.callback_handler.callbacks
                if getattr(type(callback), _BETWEEN, None) is not getattr(base, _BETWEEN)]
    kind = trainer.accelerator.distributed_type.name
    if kind not in ("NO", "MULTI_CPU"):
        problems.append(f"training by {kind}")
    if trainer.accelerator.scaler is not None:
        problems.append("fp16 with a scaler")
    if trainer.args.n_gpu > 1:
        problems.append(f"{trainer.args.n_gpu} GPUs in one process")
    refuse("SteptapeTrainerMixin", problems)

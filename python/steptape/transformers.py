"""Hugging Face's Trainer: the training step, backward, clipping and the optimizer's step as one wrapped step.

    class Trainer(steptape.transformers.SteptapeTrainerMixin, transformers.Trainer):
        pass

docs/frameworks.md says what is replayed, and what is refused when training starts.
"""
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
        try:
            return super()._inner_training_loop(*args, **kwargs)
        finally:  # auto_find_batch_size begins anew
            if self._taped is not None:
                self._taped.end()

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        if self._taped is None:
            self._taped = _Taped(self, model, super().training_step)
        return self._taped.run(inputs, num_items_in_batch)

    def _clip_grad_norm(self, model):
        return self._taped.norm

    def _get_grad_norm(self, model, grad_norm=None):
        return self._taped.norm if grad_norm is None else super()._get_grad_norm(model, grad_norm=grad_norm)


class _Taped:
    """The two steps of one training: batches between two updates, and those with an update."""

    def __init__(self, trainer, model, training_step):
        _refuse(trainer)
        self.trainer, self.model, self.norm = trainer, model, None
        self.training_step, self.optimizer = training_step, trainer.optimizer
        self.steps: dict[str, Step] = {}
        # what Trainer calls after the step has been done
        vars(trainer.optimizer).update(step=_nothing, _opt_called=True)

    def run(self, inputs, num_items):
        is_update = self.trainer.accelerator.gradient_state.sync_gradients
        name = "update" if is_update else "accumulate"
        if name not in self.steps:
            function = self.update if is_update else self.accumulate
            objects = {"model": {"model": self.model}, "optimizer": {"optimizer": self.optimizer.optimizer}}
            self.steps[name] = wrap_part(name, function, self.trainer.steptape_options, **objects)
        prepared = dict(self._prepare(inputs))
        held = vars(self.trainer)
        held["_prepare_inputs"] = _as_given  # Trainer's training step calls it
        try:
            result = self.steps[name](prepared, num_items)
        finally:
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
        return self.training_step(self.model, inputs, num_items)

    def update(self, inputs, num_items):
        loss = self.training_step(self.model, inputs, num_items)
        trainer, most = self.trainer, self.trainer.args.max_grad_norm
        base = super(SteptapeTrainerMixin, trainer)
        norm = base._get_grad_norm(self.model, grad_norm=base._clip_grad_norm(self.model) if most > 0 else None)
        type(self.optimizer).step(self.optimizer)
        return loss, norm

    def end(self):
        vars(self.optimizer).pop("step", None)


def _nothing(closure=None):
    pass


_nothing._wrapped_by_lr_sched = True  # a scheduler warns of a step that is not the one that it has wrapped, and sets _opt_called


def _as_given(inputs):
    return dict(inputs)  # what a loss takes out of it stays in the argument


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

"""Hugging Face's Trainer: the training step, backward, clipping and the optimizer's step as one wrapped step.

    class Trainer(steptape.transformers.SteptapeTrainerMixin, transformers.Trainer):
        pass

docs/frameworks.md says what is replayed, and what is refused when training starts.
"""
import copy
import functools
import inspect
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
        self._taped = _Taped(self)
        try:
            return super()._inner_training_loop(*args, **kwargs)
        finally:  # auto_find_batch_size begins anew
            self._taped.end()

    def _taped_step(self, model, inputs, num_items_in_batch=None):
        return self._taped.run(model, inputs, num_items_in_batch)

    def _taped_norm(self, method, *args, **kwargs):
        return self._taped.norm


class _Taped:
    """The two steps of one training: batches between two updates, and those with an update.

    Methods of the trainer, and its optimizer's step, have stand-ins while its own loop runs, which calls them one after the other. For
    everybody else, and for the step itself, they are what they were: what its class does in them, around those of its bases, is a
    part of the step.
    """

    def __init__(self, trainer):
        self.trainer, self.norm = trainer, None
        self.model = self.optimizer = self._nothing = None
        self.steps: dict[str, Step] = {}
        self.own: dict[str, Any] = {}  # of these methods those that the trainer itself has, not its class
        self.stand_ins = {"training_step": self._for_loop("training_step", trainer._taped_step), **{
            name: self._for_loop(name, functools.partial(trainer._taped_norm, name)) for name in ("_clip_grad_norm", "_get_grad_norm")}}
        self._prepares = trainer._prepare_inputs
        self._stand_in()

    def _for_loop(self, name, function):
        def stands_in(*args, **kwargs):
            return (function if _is_called_by_loop() else self.as_it_was(name))(*args, **kwargs)
        return stands_in

    def _stand_in(self):
        held = vars(self.trainer)
        for name, function in self.stand_ins.items():
            if name in held:
                self.own[name] = held[name]
            held[name] = function
        if self.optimizer is not None:  # Trainer steps it after the step has been done
            self._own_step = vars(self.optimizer).get("step")
            vars(self.optimizer).update(step=self._nothing, _opt_called=True)

    def _step_aside(self):
        held = vars(self.trainer)
        for name, function in self.stand_ins.items():
            found = held.pop(name, function)
            if found is not function:  # another one since
                self.own[name] = found
        held.update(self.own)
        if self.optimizer is not None and vars(self.optimizer).get("step") is self._nothing:
            del vars(self.optimizer)["step"]
            vars(self.optimizer).update({"step": self._own_step} if self._own_step is not None else {})

    def as_it_was(self, method):
        return self.own.get(method) or getattr(type(self.trainer), method).__get__(self.trainer)

    def run(self, model, inputs, num_items):
        _refuse(self.trainer)
        self._step_aside()
        try:
            if model is not self.model or self.trainer.optimizer is not self.optimizer:
                self.model, self.optimizer = model, self.trainer.optimizer
                self._nothing = _nothing_for_loop(self.optimizer)
                self.steps.clear()
            is_update = self.trainer.accelerator.gradient_state.sync_gradients
            name = "update" if is_update else "accumulate"
            if name not in self.steps:
                function = self.update if is_update else self.accumulate
                objects = {"model": {"model": self.model}, "optimizer": {"optimizer": self.optimizer.optimizer}}
                self.steps[name] = wrap_part(name, function, self.trainer.steptape_options, **objects)
            prepared = self._prepare(inputs)
            is_overridden = vars(self.trainer).setdefault("_prepare_inputs", self._prepares) is not self._prepares
            # what a loss takes out of it stays in the argument, where nobody else could tell
            is_ours = sys.getrefcount(prepared) == _OURS_ALONE and isinstance(
                prepared, (dict, transformers.BatchEncoding, transformers.BatchFeature))
            try:
                result = self.steps[name](prepared, num_items, is_ours)
            finally:
                if not is_overridden:
                    del vars(self.trainer)["_prepare_inputs"]
        finally:
            self._stand_in()
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

    def accumulate(self, inputs, num_items, is_ours):
        trainer, prepare, calls = self.trainer, self.trainer._prepare_inputs, []

        def first_as_it_is(given):
            """The training step prepares a batch that is so already; what else is prepared in it is not."""
            if calls:
                return prepare(given)
            calls.append(given)
            return copy.copy(given) if is_ours else given
        trainer._prepare_inputs = first_as_it_is
        try:
            return trainer.training_step(self.model, inputs, num_items)
        finally:
            trainer._prepare_inputs = prepare

    def update(self, inputs, num_items, is_ours):
        loss, trainer = self.accumulate(inputs, num_items, is_ours), self.trainer
        norm = trainer._clip_grad_norm(self.model) if trainer.args.max_grad_norm > 0 else None
        norm = trainer._get_grad_norm(self.model, grad_norm=norm)
        self.optimizer.step()
        return loss, norm

    def end(self):
        self._step_aside()


def _is_called_by_loop():
    """Whether Trainer's own code has called the function that asks."""
    return sys._getframe(2).f_code.co_filename == _TRAINER


def _nothing_for_loop(optimizer):
    def step(*args, **kwargs):
        if not _is_called_by_loop():
            return type(optimizer).step(optimizer, *args, **kwargs)
        return None
    step._wrapped_by_lr_sched = True  # a scheduler warns of a step that is not the one that it has wrapped, and sets _opt_called
    return step


def _references():
    value = object()
    return sys.getrefcount(value)


_TRAINER = inspect.getsourcefile(transformers.Trainer)
_OURS_ALONE = _references()


def _refuse(trainer):
    """Raises InvalidArgument for what a wrapped step would leave out."""
    base = transformers.TrainerCallback
    problems = [f"{type(callback).__name__}.{_BETWEEN}" for callback in trainer.callback_handler.callbacks
                if getattr(type(callback), _BETWEEN, None) is not getattr(base, _BETWEEN) or _BETWEEN in vars(callback)]
    kind = trainer.accelerator.distributed_type.name
    if kind not in ("NO", "MULTI_CPU"):
        problems.append(f"training by {kind}")
    if trainer.accelerator.scaler is not None:
        problems.append("fp16 with a scaler")
    if trainer.args.n_gpu > 1:
        problems.append(f"{trainer.args.n_gpu} GPUs in one process")
    refuse("SteptapeTrainerMixin", problems)

"""Hugging Face's Trainer: the training step, backward, clipping and the optimizer's step as one wrapped step.

    class Trainer(steptape.transformers.SteptapeTrainerMixin, transformers.Trainer):
        pass

docs/frameworks.md says what is replayed, and what is refused when training starts.
"""
import functools
import inspect
import sys
import types
from typing import Any

import torch
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

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy that is made while it trains: without what stands in."""
        inherited = getattr(super(), "__getstate__", None)  # object has one from CPython 3.11 on
        state = dict(vars(self) if inherited is None else inherited())
        if state.pop("_taped", None) is not None:
            self._taped.leave_out_of(state)
        return state

    def _taped_step(self, plain, *given, **named):
        return self._taped.run(*given, **named)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        if self._taped is not None:
            self._taped.stand_in()  # for what a callback has put in the place of a method since
        return super().get_batch_samples(*args, **kwargs)


class _Taped:
    """The two steps of one training: batches between two updates, and those with an update.

    Methods of the trainer, and its optimizer's step, have stand-ins while its own loop runs, which calls them one after the other. For
    everybody else, and for the step itself, they are what they were: what its class does in them, around those of its bases, is a
    part of the step.
    """

    def __init__(self, trainer):
        self.trainer, self.norm, self.is_done, self.is_ended = trainer, None, False, False
        self.model = self.optimizer = self.made_for = None
        self.steps: dict[str, Step] = {}
        self.of_trainer = [_StandIn(trainer, "training_step", trainer._taped_step), *(
            _StandIn(trainer, name, self.norm_of) for name in ("_clip_grad_norm", "_get_grad_norm"))]
        self.stand_ins = [*self.of_trainer]
        self.stand_in()

    def stand_in(self):
        for each in () if self.is_ended else self.stand_ins:
            each.put()

    def leave_out_of(self, state):
        for each in self.of_trainer:
            each.take(state)

    def step_aside(self):
        for each in self.stand_ins:
            each.take()

    def end(self):
        self.is_ended = True
        self.step_aside()

    def run(self, model, inputs, num_items=None):
        _refuse(self.trainer)
        self.step_aside()
        try:
            if model is not self.model or self.trainer.optimizer is not self.made_for:
                self.model, self.made_for = model, self.trainer.optimizer
                self.take_optimizer()
                self.steps.clear()
            is_update = self.trainer.accelerator.gradient_state.sync_gradients
            name = "update" if is_update else "accumulate"
            if name not in self.steps:
                function = self.update if is_update else self.accumulate
                objects = {"model": {"model": self.model}, "optimizer": {"optimizer": self.optimizer.optimizer}}
                self.steps[name] = wrap_part(name, function, self.trainer.steptape_options, **objects)
            result = self.steps[name](inputs, num_items)
            self.is_done = is_update
            if self.trainer.optimizer is not self.optimizer:  # the step has put another one there
                self.take_optimizer()
        finally:
            self.stand_in()
        if not is_update:
            return result
        loss, self.norm = result
        return loss

    def take_optimizer(self):
        self.optimizer = self.trainer.optimizer
        self.stand_ins = [*self.of_trainer, _StandIn(self.optimizer, "step", self.nothing)]

    def accumulate(self, inputs, num_items):
        return self.trainer.training_step(self.model, inputs, num_items)

    def update(self, inputs, num_items):
        loss, trainer = self.accumulate(inputs, num_items), self.trainer
        norm = trainer._clip_grad_norm(self.model) if trainer.args.max_grad_norm > 0 else None
        norm = trainer._get_grad_norm(self.model, grad_norm=norm)
        trainer.optimizer.step()
        return loss, norm

    def norm_of(self, plain, *args, **kwargs):
        return self.norm if self.is_done else plain(*args, **kwargs)

    def nothing(self, plain, *args, **kwargs):
        """The loop's step of the optimizer, after an update that has done it."""
        if not self.is_done:  # a program's own training step came in the place of the stand-in
            return plain(*args, **kwargs)
        self.is_done = False
        return None


class _StandIn:
    """A function in the place of a method of `holder`: Trainer's own loop gets `for_loop(plain, ...)`, and everybody else, who may keep it
    and call it at any time, `plain(...)`, what stood there when it was put."""

    def __init__(self, holder, name, for_loop):
        self._holder, self._name, self._for_loop = holder, name, for_loop
        self._function = self._own = None

    def put(self):
        held = vars(self._holder)
        found = held.get(self._name)
        if self._function is None or (found is not self._function and found is not self._own):
            self._own, self._function = found, self._function_over(found)
        held[self._name] = self._function
        if isinstance(self._holder, torch.optim.Optimizer):
            held["_opt_called"] = True  # what that scheduler's own step would note

    def take(self, held=None):
        """From its place, or from that in a copy of the holder's namespace."""
        held = vars(self._holder) if held is None else held
        if held.get(self._name) is not self._function:  # the program's own since
            return
        del held[self._name]
        if self._own is not None:
            held[self._name] = self._own

    def _function_over(self, own):
        def plain(*args, **kwargs):
            method = getattr(type(self._holder), self._name).__get__(self._holder) if own is None else own
            return method(*args, **kwargs)

        @functools.wraps(getattr(type(self._holder), self._name) if own is None else own)
        def stands_in(*args, **kwargs):
            args = args[1:] if own is None else args
            return self._for_loop(plain, *args, **kwargs) if _is_called_by_loop() else plain(*args, **kwargs)
        if isinstance(self._holder, torch.optim.Optimizer):
            stands_in._wrapped_by_lr_sched = True  # else a scheduler warns that its optimizer's step is another one
        return types.MethodType(stands_in, self._holder) if own is None else stands_in


def _is_called_by_loop():
    """Whether Trainer's own code has called the function that asks."""
    return sys._getframe(2).f_code.co_filename == _TRAINER


_TRAINER = inspect.getsourcefile(transformers.Trainer)


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

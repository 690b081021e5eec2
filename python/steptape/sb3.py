"""Stable-Baselines3: the gradient steps of an algorithm's `train` as wrapped steps.

    model = steptape.sb3.accelerate(PPO("MlpPolicy", "CartPole-v1"))
    model.learn(100_000)

docs/frameworks.md says which algorithms were tried.
"""
import copyreg
import types
from collections.abc import Callable
from typing import Any, TypeVar

from stable_baselines3.common.base_class import BaseAlgorithm

from ._errors import InvalidArgument
from ._lift import lift
from ._wrap import wrap

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)
_STEP, _KIND = "_steptape_step", "_steptape_kind"


def accelerate(model: Algorithm, **options: Any) -> Algorithm:
    """The same model, whose `train` replays what it does with a minibatch. Drawing it, and logging, are as they were.

    options: of `steptape.wrap`. `model.steptape_step` is the wrapped step, with `stats` and `explain()`. It belongs to this model: a
    copy of it, and what `load` returns, train as they are until they are accelerated too.

    Raises InvalidArgument where the source of `train` has no loop with one optimizer's step, or what it does with a minibatch
    cannot be a function of its own.
    """
    kind = type(model)
    if _STEP in vars(model):
        raise InvalidArgument(f"accelerate: this {kind.__name__} has been accelerated")
    if "train" in vars(model):
        raise InvalidArgument(f"accelerate: this {kind.__name__} has a `train` of its own, which is not its class's")
    kind = vars(kind).get(_KIND, kind)  # what a model that is accelerated has loaded is of its class
    lifted = lift(types.MethodType(kind.train, model))
    options.setdefault("name", f"{kind.__name__}.train")
    vars(model)[_STEP] = wrap(lifted.body, **options)
    model.__class__ = _taped(kind, lifted.around(_step_of))
    return model


def _step_of(model, *given):
    return vars(model)[_STEP](*given)


def _taped(kind: type, train: Callable) -> type:
    """A class for one model: an attribute `train` of the model itself would be saved with it."""
    own = kind.train, kind.train.__code__  # whose loop it is

    class Taped(kind):
        steptape_step = property(lambda self: vars(self).get(_STEP))

        def train(self, *args, **kwargs):
            # what the class makes or loads besides, and what is given this model's attributes, is not accelerated
            step = vars(self).get(_STEP)
            is_own = step is not None and step.__wrapped__.__self__ is self
            now = kind.train  # which a program may have replaced
            is_taken_apart = is_own and now is own[0] and now.__code__ is own[1]
            return (train if is_taken_apart else now)(self, *args, **kwargs)

        def _excluded_save_params(self):
            return [*super()._excluded_save_params(), _STEP]

        def __reduce_ex__(self, protocol):
            """A copy, or what is pickled, is a model as it was before: of its own class, without a step."""
            _, _, state, *more = super().__reduce_ex__(protocol)
            return copyreg._reconstructor, (kind, object, None), {key: value for key, value in state.items() if key != _STEP}, *more

    Taped.__name__, Taped.__qualname__, Taped.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    setattr(Taped, _KIND, kind)
    return Taped

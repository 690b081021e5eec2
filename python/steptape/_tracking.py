"""Tells the engine what a step reaches."""
import sys

import torch

from ._errors import InvalidArgument
from ._reach import name_for

Models = torch.nn.Module | list[torch.nn.Module] | dict[str, torch.nn.Module] | None
Optimizers = (torch.optim.Optimizer | list[torch.optim.Optimizer] | dict[str, torch.optim.Optimizer]
              | None)


def track(engine, reach):
    """Tracks everything in `reach`; gives (models, optimizers, host values) by the names they are tracked under."""
    taken = {"host": None, "default": None}
    models = _unique(reach.models, taken)
    optimizers = _unique(reach.optimizers, taken)
    for name, model in models.items():
        engine.track_model(name, model)
    for name, optimizer in optimizers.items():
        engine.track_optimizer(name, optimizer)
    for name, generator in _unique(reach.generators, taken).items():
        engine.track_generator(name, generator)
    reach.all_slots = reach.slots() + _global_hooks()
    engine.track_host("host", reach.all_slots)
    return models, optimizers, _unique(reach.hosts, taken)


def given(objects, name, kind):
    """[(name, object)] of one object, a list or tuple, or a dict by name."""
    if objects is None:
        return []
    if isinstance(objects, dict):
        pairs = list(objects.items())
    elif isinstance(objects, (list, tuple)):
        pairs = [(f"{name}{i}" if len(objects) > 1 else name, o) for i, o in enumerate(objects)]
    else:
        pairs = [(name, objects)]
    for key, value in pairs:
        if not isinstance(value, kind):
            raise InvalidArgument(f"{name}: {key!r} is a {type(value).__name__}; it must be a "
                                  f"{kind.__module__}.{kind.__name__}, a list of them, or a dict by name")
    return pairs


def _unique(objects, taken):
    """The same by names that no other tracked object has."""
    named = {}
    for name, value in objects.items():
        unique = name_for(name, taken)
        taken[unique] = value
        named[unique] = value
    return named


def _global_hooks():
    """Slots of the hooks that torch keeps for all modules and all optimizers."""
    modules = vars(torch.nn.modules.module)
    slots = [(f"torch.nn.modules.module.{name}", modules, name, True, False)
             for name in sorted(modules) if name.startswith("_global_") and name.endswith("hooks")]
    optimizers = vars(sys.modules[torch.optim.Optimizer.__module__])
    return slots + [(f"torch.optim.optimizer.{name}", optimizers, name, True, False)
                    for name in sorted(optimizers) if name.startswith("_global_optimizer_")]

"""Tells the engine what to track."""
import sys

import torch

from ._errors import InvalidArgument
from ._find import name_for

Models = torch.nn.Module | list[torch.nn.Module] | dict[str, torch.nn.Module] | None
Optimizers = (torch.optim.Optimizer | list[torch.optim.Optimizer] | dict[str, torch.optim.Optimizer]
              | None)


def track(engine, found):
    """Tracks everything that was `found`; gives (models, optimizers, host values, generators) by the names they are
    tracked under."""
    taken = {"host": None, "default": None}
    models = _unique(found.outermost_models(), taken)
    optimizers = _unique(found.optimizers, taken)
    for name, model in models.items():
        engine.track_model(name, model)
    for name, optimizer in optimizers.items():
        engine.track_optimizer(name, optimizer)
    generators = _unique(found.generators, taken)
    for name, generator in generators.items():
        engine.track_generator(name, generator)
    engine.track_host("host", found.places)
    return models, optimizers, _unique(found.hosts, taken), generators


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


def places_of_torch():
    """(path, dict, key) of containers that torch's own code reads, of which it is not watched what they hold: the hooks for
    all modules and all optimizers."""
    modules = vars(torch.nn.modules.module)
    places = [(f"torch.nn.modules.module.{name}", modules, name)
              for name in sorted(modules) if name.startswith("_global_") and name.endswith(("hooks", "hook"))]
    optimizers = vars(sys.modules[torch.optim.Optimizer.__module__])
    return places + [(f"torch.optim.optimizer.{name}", optimizers, name)
                     for name in sorted(optimizers) if name.startswith("_global_optimizer_")]

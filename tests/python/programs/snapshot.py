"""All that a program holds, in a form that compares by bits.

Walked from the names of the program's modules: containers, objects, classes, functions with what they close over, and
objects of C whose state can be had. What is met again is given by its number, so that aliases count too.
"""
import array
import collections
import contextvars
import enum
import functools
import itertools
import random
import types
import warnings
import weakref

import numpy as np
import torch

_PLAIN = (type(None), bool, int, str, bytes, complex, type(Ellipsis), range, slice, torch.dtype, torch.device, torch.Size)
_OF_CLASSES = {"__module__", "__qualname__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__firstlineno__", "__static_attributes__",
               "__dataclass_params__", "__match_args__", "__orig_bases__", "__abstractmethods__", "_abc_impl"}
_ITERATORS = (type(iter([])), type(iter(())), type(iter({})), type(iter({}.values())), type(iter({}.items())), type(iter(range(0))), type(reversed([])),
              enumerate, zip, map, filter, itertools.count, itertools.cycle, itertools.repeat, itertools.chain, itertools.islice)


class Snapshot:
    """One walk. `own` says which modules of Python are the program's; `plain` gives what a wrapped step was made of."""

    def __init__(self, own, plain):
        self.own, self.plain = own, plain
        self.numbers = {}
        self.kept = []  # alive while their ids count

    def __call__(self, value):
        kind = type(value)
        if kind in _PLAIN:
            return kind.__name__, repr(value)
        if isinstance(value, float):
            return kind.__name__, float.hex(value) if value == value else "nan"
        if isinstance(value, _PLAIN):
            return kind.__name__, str(value)
        if isinstance(value, (np.generic, np.ndarray)) and getattr(value, "dtype", None) != object:
            return kind.__name__, str(value.dtype), value.shape, value.tobytes()
        value = self.plain(value)
        if id(value) in self.numbers:
            return "same as", self.numbers[id(value)]
        self.numbers[id(value)] = len(self.numbers)
        self.kept.append(value)
        return [type(value).__name__, *self._parts(value)]

    def _parts(self, value):
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, dict):
            return [[(self(k), self(v)) for k, v in value.items()], *self._attributes(value)]
        if isinstance(value, (list, tuple, collections.deque)):
            return [[self(v) for v in value], *self._attributes(value)]
        if isinstance(value, (set, frozenset)):
            return sorted(map(repr, value))
        if isinstance(value, (types.FunctionType, type, types.ModuleType)):
            return self._code(value)
        if isinstance(value, types.MethodType):
            return [self(value.__func__), self(value.__self__)]
        return self._held(value)

    def _tensor(self, tensor):
        plain = tensor.detach()
        flat = torch.empty(plain.numel(), dtype=plain.dtype, device="cpu")
        flat.view(plain.shape).copy_(plain)
        strides = [stride for stride, size in zip(plain.stride(), plain.shape) if size > 1]
        leaf = [tensor.requires_grad, self(tensor.grad)] if tensor.is_leaf else ["inner"]
        return [str(plain.dtype), tuple(plain.shape), strides, flat.view(torch.uint8).numpy().tobytes(), leaf,
                [(k, self(v)) for k, v in vars(tensor).items()]]

    def _code(self, value):
        module = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
        if module not in self.own:
            return [module, getattr(value, "__qualname__", "")]
        if isinstance(value, types.FunctionType):
            return [value.__name__, self(value.__defaults__), self(value.__kwdefaults__), self(vars(value)),
                    value.__code__.co_code,
                    repr([c for c in value.__code__.co_consts if not isinstance(c, types.CodeType)]),
                    [self(_content(cell)) for cell in value.__closure__ or ()]]
        items = {k: v for k, v in vars(value).items()
                 if k not in _OF_CLASSES and not isinstance(v, types.GetSetDescriptorType)}
        if isinstance(value, types.ModuleType):
            return [(k, self(v)) for k, v in items.items() if not k.startswith("__")]
        return [value.__name__, [self(base) for base in value.__bases__],
                [(k, self(v)) for k, v in items.items() if k not in ("__hash__", "__slotnames__")]]

    def _held(self, value):
        """Of objects whose state lies in C."""
        if isinstance(value, functools.partial):
            return [self(value.func), self(value.args), self(value.keywords)]
        if isinstance(value, (staticmethod, classmethod)):
            return [self(value.__func__)]
        if isinstance(value, property):
            return [self(value.fget), self(value.fset)]
        if isinstance(value, types.CellType):
            return [self(_content(value))]
        if isinstance(value, contextvars.ContextVar):
            return [self(value.get("empty"))]
        if isinstance(value, weakref.ref):
            return [self(value())]
        if isinstance(value, (random.Random, torch.Generator, np.random.Generator)):
            return [_state_of(value)]
        if isinstance(value, array.array):
            return [value.typecode, value.tobytes()]
        if isinstance(value, (bytearray, enum.Enum)) or type(value).__module__ in ("decimal", "fractions"):
            return [repr(value)]
        if isinstance(value, types.GeneratorType):
            return [value.gi_frame and value.gi_frame.f_lasti, self(dict(value.gi_frame.f_locals)) if value.gi_frame else None]
        if isinstance(value, _ITERATORS):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return [self(value.__reduce__())]
        if isinstance(value, type({}.values())) or isinstance(value, (type({}.items()), type({}.keys()), types.MappingProxyType)):
            return [self(list(value))]
        if isinstance(value, types.BuiltinMethodType):
            return [value.__name__, self(value.__self__)]
        return self._attributes(value)

    def _attributes(self, value):
        names = getattr(value, "__dict__", {})
        if isinstance(value, torch.nn.Module):  # of its many dicts those that hold something
            names = {k: v for k, v in names.items() if not (k.startswith("_") and isinstance(v, dict) and not v)}
            # numbers of hooks go on through both twins
            names = {k: list(v.values()) if "_hooks" in k else v for k, v in names.items()}
        kept = [(k, self(v)) for k, v in names.items()
                if not (isinstance(k, str) and k.startswith("__")) and not self._is_bound_step(value, k)]
        for base in type(value).__mro__:
            if base.__module__ in self.own:
                for name in _slots(base):
                    kept.append((name, self(getattr(value, name)) if hasattr(value, name) else "missing"))
        if type(value).__module__ in self.own:
            kept.append(self(type(value)))
        return kept


    def _is_bound_step(self, value, name):
        """Whether Steptape keeps the step there that it made of a decorated method: documented, and none of the program's."""
        is_own = isinstance(name, str) and type(value).__module__ in self.own
        of_class = getattr(type(value), name, None) if is_own else None
        return of_class is not None and self.plain(of_class) is not of_class


def _slots(base):
    slots = vars(base).get("__slots__", ())
    return [slots] if isinstance(slots, str) else [name for name in slots if not name.startswith("__")]


def _content(cell):
    try:
        return cell.cell_contents
    except ValueError:
        return "empty cell"


def _state_of(generator):
    if isinstance(generator, random.Random):
        return repr(generator.getstate())
    return generator.get_state().cpu().numpy().tobytes() if isinstance(generator, torch.Generator) else repr(generator.bit_generator.state)


def first_difference(a, b, path="state"):
    """Where two snapshots differ first, and how; None where they are equal."""
    if a == b:
        return None
    if isinstance(a, (list, tuple)) and type(a) is type(b) and len(a) == len(b):
        if len(a) == 2 and isinstance(a, tuple) and a[0] == b[0]:
            return first_difference(a[1], b[1], f"{path}.{_short(a[0])}")
        return next(found for i, (x, y) in enumerate(zip(a, b)) if (found := first_difference(x, y, f"{path}[{i}]")))
    return f"{path}: {_short(a)} against {_short(b)}"


def _short(value):
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(v, str) for v in value):
        value = value[1]
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 120 else f"{text[:57]}…{text[-57:]}"

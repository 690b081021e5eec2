"""What a step is likely to use, looked for before its first call: modules, optimizers and generators, which are
tracked from the start so that the first recording counts, and plain tensors that modules hold.

It is a guess, and nothing depends on it being right: what a step does use is seen while it is probed, and what was
not found here is tracked then. Nothing of the user's runs: objects are looked at through their instance dicts.
"""
import enum
import functools
import types
import weakref
from collections import OrderedDict

import torch

from ._host import Host

_DEPTH = 4
_MOST_ITEMS = 1000  # of a container that is looked into
_CALLABLES = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)
_FIXED = (type, torch.nn.Module, torch.optim.Optimizer, torch.Generator, Host, enum.Enum, *_CALLABLES)
_LEAVES = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_MEMBERS = ("_parameters", "_buffers", "_modules")
_SKIPPED = (torch.Tensor, *_LEAVES)
_EXACTLY_LEAVES = frozenset(_LEAVES)


class Found:
    """The result; each by a path such as "trainer.model"."""

    def __init__(self):
        self.models, self.optimizers, self.generators, self.hosts = {}, {}, {}, {}
        self.places = []  # (path, dict, key) of tensors that are attributes of modules
        self.compiled = None  # what is compiled, as a refusal says it
        self._seen = set()

    def visit(self, path, value, depth=_DEPTH):
        kind = type(value)
        if kind in _EXACTLY_LEAVES or depth == 0 or id(value) in self._seen or issubclass(kind, _SKIPPED):
            return
        self._seen.add(id(value))
        if kind is types.FunctionType and vars(value).get("_torchdynamo_disable"):  # torch.compiler.disable
            self.visit(path, vars(value).get("_torchdynamo_orig_callable"), depth)
        elif str(kind.__module__).startswith("torch._dynamo") or (
                kind is types.FunctionType and "_torchdynamo_orig_callable" in vars(value)):
            self._note_compiled(path if callable(value) else None)  # else of a compilation that the step has met under way
        elif issubclass(kind, torch.nn.Module):
            self._visit_model(path, value, depth)
        elif issubclass(kind, torch.optim.Optimizer):
            self.optimizers[name_for(path, self.optimizers)] = value
            for name, inner in list(vars(value).items()):  # what another one wraps
                if issubclass(type(inner), torch.optim.Optimizer):
                    self.visit(f"{path}.{name}", inner, depth)
        elif issubclass(kind, torch.Generator):
            self.generators[name_for(path, self.generators)] = value
        elif kind is Host:
            self.hosts[name_for(path, self.hosts)] = value
        elif kind is weakref.ref:  # schedulers put one to the optimizer into what they wrap its step() in
            self.visit(path, value(), depth)
        elif kind is types.FunctionType:
            self._visit_function(value, depth)
        elif kind is types.MethodType:
            self.visit("self" if path == getattr(value, "__name__", None) else path, value.__self__, depth)
            self.visit(path, value.__func__, depth)
        elif kind is functools.partial:
            for inner in (value.func, value.args, value.keywords):
                self.visit(path, inner, depth)
        elif issubclass(kind, (list, tuple, dict)):
            self._visit_items(path, value, depth - 1)
        elif not issubclass(kind, (type, types.ModuleType)):
            for name, attribute in list((_dict_of(value) or {}).items()):
                self.visit(f"{path}.{name}", attribute, depth - 1)

    def _note_compiled(self, path):
        if self.compiled is None:
            self.compiled = f"`{path}` is compiled by torch.compile" if path else \
                "the step calls what torch compiles (`torch.cond`, `scan` and `flex_attention`, too)"

    def _visit_model(self, path, model, depth):
        self.models[name_for(path, self.models)] = model
        for inner_path, module in modules_of(model):
            self._seen.add(id(module))
            place = f"{path}.{inner_path}" if inner_path else path
            if str(type(module).__module__).startswith("torch._dynamo"):
                self._note_compiled(place)
            for name, value in list(vars(module).items()):
                kind = type(value)
                is_empty = (kind is dict or kind is OrderedDict) and not value  # most are of hooks
                if is_empty or kind in _EXACTLY_LEAVES or name in _MEMBERS:
                    continue
                if issubclass(kind, torch.Tensor):
                    self.places.append((f"{place}.{name}", vars(module), name))
                elif depth > 1:
                    self.visit(f"{place}.{name}", value, depth - 2)

    def _visit_function(self, function, depth):
        is_torchs = "/site-packages/torch/" in function.__code__.co_filename  # a decorator's: torch.no_grad()(model)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                self.visit(name, cell.cell_contents, depth - 1)
            except ValueError:  # empty still
                pass
        if is_torchs:
            return
        for name in sorted(_names_in(function.__code__) & function.__globals__.keys()):
            self.visit(name, function.__globals__[name], depth - 1)
        self.visit(function.__name__, function.__defaults__, depth)
        self.visit(function.__name__, function.__kwdefaults__, depth)
        if wrapped := vars(function).get("__wrapped__"):
            self.visit(function.__name__, wrapped, depth)

    def _visit_items(self, path, container, depth):
        for key, item in _items_of(container):
            self.visit(f"{path}[{key!r}]" if isinstance(key, (int, str)) else path, item, depth)

    def outermost_models(self):
        """Those that are no part of another one."""
        inner = {id(module) for model in self.models.values() for _, module in modules_of(model) if module is not model}
        return {name: model for name, model in self.models.items() if id(model) not in inner}


def modules_of(model):
    """A model and the modules in it, each once, with their paths: as its `named_modules`, of which the program may have one of its own."""
    held, seen = [("", model)], set()
    while held:
        path, module = held.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        inner = vars(module)["_modules"] if "_modules" in vars(module) else getattr(module, "_modules", {})  # TorchScript's has another
        held += [(f"{path}.{name}" if path else name, each) for name, each in reversed(inner.items()) if each is not None]


def find(function, given=()):
    """From the step's function and from what it is `given`, by name."""
    found = Found()
    for name, value in given:
        found.visit(name, value)
    found.visit(getattr(function, "__name__", "step"), function)
    return found


def objects_in(name, value, depth=_DEPTH, seen=None):
    """[(name, object)] of what an argument holds besides values: functions, classes, modules and the like."""
    kind, seen = type(value), set() if seen is None else seen
    if issubclass(kind, _SKIPPED) or depth == 0 or id(value) in seen:
        return []
    seen.add(id(value))
    if issubclass(kind, (list, tuple, set, dict)):
        return [found for key, item in _items_of(value) for found in objects_in(f"{name}_{key}", item, depth - 1, seen)]
    if _is_plain(value):
        return [found for key, item in list(_dict_of(value).items()) for found in objects_in(f"{name}_{key}", item, depth - 1, seen)]
    return [(name, value)] if issubclass(kind, _FIXED) else []


def _items_of(container):
    """(key or position, item) of each, unless there are many. Runs no code of the class."""
    base = next(kind for kind in (list, tuple, set, dict) if issubclass(type(container), kind))
    if base.__len__(container) > _MOST_ITEMS:
        return []
    return list(dict.items(container) if base is dict else enumerate(base.__iter__(container)))


def _is_plain(value):
    """Whether an argument counts as its attributes: the engine decides, and this finds no more than it asks for."""
    return not issubclass(type(value), (*_FIXED, types.ModuleType)) and _dict_of(value) is not None


def name_for(path, taken):
    """A name of letters, digits and '_' for a path, that is not taken yet."""
    name = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in path).strip("_")
    name = name or "object"
    unique, n = name, 2
    while unique in taken:
        unique, n = f"{name}_{n}", n + 1
    return unique


def _names_in(code):
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names


def _dict_of(value):
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return attributes if type(attributes) is dict else None

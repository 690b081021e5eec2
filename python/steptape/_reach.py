"""What a step can reach: models, optimizers and generators to track, host values, and the places that
hold plain values or tensors.

Followed are the closure, the defaults and the globals that the step's code names, through functions
and classes of the program's own files and through plain objects, up to a depth. Nothing of the user's
runs: objects are looked at through their instance dicts.
"""
import argparse
import builtins
import collections
import enum
import functools
import math
import sys
import types
import weakref

import torch

from . import _follow
from ._host import Host
from ._names import ANY, defaults_of, functions_of, imports_of, names_of
from ._source import is_program_file

_DEPTH = 5
_MOST_SLOTS = 32768
_MOST_ITEMS = 1000  # of a container that is looked into


class Reach:
    """The result; `explore` fills it."""

    def __init__(self, without=frozenset()):
        self.without = without  # codes of functions that are no part of the step
        self.models, self.optimizers, self.generators, self.hosts = {}, {}, {}, {}
        self.random_generators = {}
        self.functions = []  # of the program's own files, the step's own first
        self.takes_bare_numbers = False  # by a function of `math` under a name of the program's
        self.compiled = None  # the name of a callee that torch.compile made
        self.names = set()  # that the functions mention
        self.unseen = []  # (path, type) of what no guard can compare
        self._slots = {}
        self._is_full = False
        self._route = ()  # names of the attributes that lead to what is visited
        self._by_content = set()  # ids of objects, and of their dicts, that are compared by what they hold
        self._routes = {}  # by id: of the models, optimizers and other objects that are tracked
        self._seen = set()
        self._modules = []  # (path, Python module, depth), whose names are known when all else is visited
        self._methods = []  # (name, path, function, depth) of classes, visited once a name calls for them

    def guarded_without(self, codes):
        """For each slot, whether the step still names it when functions of these codes are no part of it."""
        rest = Reach(frozenset(codes))
        rest.explore(self._function, self._given)
        named = {(id(owner), key) for path, owner, key, guarded, _ in rest.slots() if guarded}
        return [(id(owner), key) in named or path.startswith("torch.")
                for path, owner, key, *_ in self.all_slots]

    def slots(self):
        """(path, owner, key or None, whether a plan depends on it, whether the key is the owner's own), for
        the engine."""
        return [(path, owner, key, key is None or is_global or key in self.names or ANY in self.names, own)
                for path, owner, key, is_global, own, _ in self._slots.values()]

    def signature(self):
        """Equal while the step reaches the same places and objects by names that it uses."""
        places = frozenset(place for place, slot in self._slots.items()
                           if self._is_used(slot) and place[0] not in self._by_content)
        objects = frozenset(where for where, route in self._routes.items() if self._knows(route))
        return places, objects, frozenset(self.names)

    def _is_used(self, slot):
        _, _, key, is_global, _, route = slot
        return (is_global or key is None or self._knows((key,))) and self._knows(route)

    def _knows(self, route):
        return ANY in self.names or all(name in self.names or _is_implicit(name) for name in route)

    def explore(self, function, given=()):
        """From the step's function and from what it is given, by name."""
        self._function, self._given = function, given
        for name, value in given:
            self.visit(name, value, _DEPTH)
        self.visit(getattr(function, "__name__", "step"), function, _DEPTH)
        self._visit_methods()
        self._drop_inner_models()

    def _visit_methods(self):
        """Methods that what was visited so far mentions, or that Python calls by itself."""
        while True:
            called = [m for m in self._methods
                      if m[0] in self.names or ANY in self.names or _is_implicit(m[0])]
            self._methods = [m for m in self._methods if m not in called]
            for _, path, function, depth in called:
                self.visit(path, function, depth)
            known = len(self._slots)
            for path, module, depth in list(self._modules):
                self._visit_names_of(path, module, depth)
            if not called and len(self._slots) == known:
                return

    def visit(self, path, value, depth):
        value = _follow.stood_for(value)
        if _is(value, _ATOMS) or id(value) in self._seen:
            return
        kind = type(value)
        if issubclass(kind, _TRACKED):
            self._routes[id(value)] = self._route
        if issubclass(kind, torch.nn.Module):
            self._seen.add(id(value))
            self._visit_model(path, value, depth)
        elif issubclass(kind, torch.optim.Optimizer):
            self._seen.add(id(value))
            self.optimizers[name_for(path, self.optimizers)] = value
            self._visit_hooks(path, value, depth)
            self._visit_class(type(value).__name__, type(value), depth)
            self._visit_groups(path, value, depth)
        elif issubclass(kind, torch.Generator):
            self.generators[name_for(path, self.generators)] = value
        elif kind is Host:
            self.hosts[name_for(path, self.hosts)] = value
        elif issubclass(kind, torch.Tensor):
            return
        elif _is_random_generator(value):
            self.random_generators[path] = value
        elif depth > 0:
            self._visit_other(path, value, kind, depth)

    def _visit_other(self, path, value, kind, depth):
        self._seen.add(id(value))
        if kind is types.FunctionType:
            self._visit_function(path, value, depth)
        elif kind is types.MethodType:
            self.visit("self" if path == value.__name__ else path, value.__self__, depth)
            self.visit(path, value.__func__, depth)
        elif kind is functools.partial:
            self.visit(path, value.func, depth)
            self._visit_items(path, {**dict(enumerate(value.args)), **value.keywords}, depth)
            for key in value.keywords:
                self._add_slot(f"{path}.keywords[{key!r}]", value.keywords, key, is_global=True)
        elif issubclass(kind, (list, tuple, dict, set, frozenset, collections.deque)):
            if len(value) <= _MOST_ITEMS:
                self._visit_items(path, dict(value if issubclass(kind, dict) else enumerate(value)), depth)
            if is_program_file(_file_of(kind)):  # of a class of its own, which may hold more than items
                self._visit_object(path, value, kind, depth)
        elif kind is weakref.ReferenceType:
            self.visit(path, value(), depth)
        elif issubclass(kind, type):
            self._visit_class(path, value, depth, is_called=True)
        elif kind is types.ModuleType:
            self._modules.append((path, value, depth))
        elif kind is types.CellType:
            return
        elif kind is types.BuiltinFunctionType:
            self.takes_bare_numbers |= value.__self__ is math
            if not _is(value.__self__, (types.ModuleType, type(None))):
                self._add_slot(f"{path}.__self__", types.CellType(value.__self__), None, is_global=False,
                               place=id(value.__self__))
                self.visit(f"{path}.__self__", value.__self__, depth - 1)
        elif _is_unseen(kind):
            self.unseen.append((path, kind.__qualname__))
        elif kind.__module__ == "functools" and hasattr(value, "__wrapped__"):
            self.visit(path, value.__wrapped__, depth)
        elif kind.__module__ == "steptape._step":
            self.visit(path, value.__wrapped__, depth)
        else:
            self._visit_object(path, value, kind, depth)

    def _visit_items(self, path, items, depth):
        for key, item in items.items():
            self.visit(f"{path}[{key!r}]" if isinstance(key, (int, str)) else path, item, depth - 1)

    def _visit_function(self, path, function, depth):
        original = getattr(function, "_torchdynamo_orig_callable", None)
        if original is not None:
            self.compiled = self.compiled or path
            return
        if not is_program_file(function.__code__.co_filename):
            # a decorator of a package may hold the program's function in its closure
            for cell in function.__closure__ or ():
                inner = _contents(cell)
                for held in inner.values() if type(inner) is dict and len(inner) <= _MOST_ITEMS else (inner,):
                    if _is(held, (types.FunctionType, types.MethodType)):
                        self.visit(path, held, depth - 1)
            return
        code = function.__code__
        if code in self.without:
            return
        self.functions.append(function)
        names, used = names_of(code, self.without)
        self.names |= names
        for name, module in imports_of(code, function.__globals__):
            self.visit(name, module, depth - 1)
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            if name == "__class__" or name not in used:
                continue
            self._add_slot(name, cell, None, is_global=False)
            self.visit(name, _contents(cell), depth - 1)
        if wrapped := vars(function).get("__wrapped__"):
            self.visit(path, wrapped, depth)
        for name in (set(vars(function)) | names) - {"__wrapped__", ANY}:
            self._add_slot(f"{path}.{name}", vars(function), name, is_global=False)
        for what in ("__code__", "__defaults__", "__kwdefaults__"):
            self._add_slot(f"{path}.{what}", function, what, is_global=True)
        for name in sorted(names):
            if name in vars(builtins) and name not in function.__globals__:
                self._add_slot(name, function.__globals__, name, is_global=True)
            if name in function.__globals__:
                self._add_slot(name, function.__globals__, name, is_global=True)
                self.visit(name, function.__globals__[name], depth - 1)
        for name, value in defaults_of(function).items():
            self.visit(name, value, depth - 1)

    def _visit_class(self, path, kind, depth, is_called=False):
        """Its methods, where it is the program's own; those that make objects too where the step may call it."""
        if is_program_file(_file_of(kind)):
            self._add_slot(path, kind, None, is_global=True)
        elif kind.__module__.startswith("torch.nn."):
            self._add_functions_of_torch(kind)
        for base in kind.__mro__:
            for name, member in vars(base).items():
                for function in functions_of(member):
                    if is_program_file(function.__code__.co_filename):
                        self._methods.append((name, f"{path}.{name}", function, depth - 1))
                        if is_called and name in _OUTSIDE_STEPS:
                            self.visit(f"{path}.{name}", function, depth - 1)
                if _is(member, torch.Tensor):
                    self._add_slot(f"{path}.{name}", types.CellType(member), None, is_global=True,
                                   place=id(member))
                if not _is(member, _MEMBERS) and is_program_file(_file_of(type(member))):
                    self.visit(f"{path}.{name}", member, depth - 1)  # a descriptor of the program's
        if type(kind) is not type and is_program_file(_file_of(type(kind))):
            self._visit_class(type(kind).__name__, type(kind), depth - 1)

    def _visit_names_of(self, path, module, depth):
        """What a Python module holds under the names that the step mentions; of the program's own ones it
        leads further."""
        own = _is_programs(module)
        for name in sorted(self.names & vars(module).keys()):
            value = vars(module)[name]
            if own or _is(value, _CALLABLES):
                self._add_slot(f"{path}.{name}", vars(module), name, is_global=True)
            if own:
                self.visit(f"{path}.{name}", value, depth - 1)

    def _add_functions_of_torch(self, kind):
        """The functions of torch.nn.functional that a module class of torch's calls."""
        functions = vars(torch.nn.functional)
        for member in vars(kind).values():
            if _is(member, types.FunctionType):
                for name in set(member.__code__.co_names) & functions.keys():
                    if _is(functions[name], _CALLABLES):
                        self._add_slot(f"torch.nn.functional.{name}", functions, name, is_global=True)

    def _visit_model(self, path, model, depth):
        if type(model).__module__.startswith("torch._dynamo"):
            self.compiled = self.compiled or path
            return
        self.models[name_for(path, self.models)] = model
        for inner_path, module in model.named_modules():
            place = f"{path}.{inner_path}" if inner_path else path
            kind = type(module)
            if kind.__module__.startswith("torch._dynamo"):
                self.compiled = self.compiled or place
            if id(kind) not in self._seen:
                self._seen.add(id(kind))
                self._visit_class(kind.__name__, kind, depth)
            self._visit_attributes(place, module, depth)

    def _visit_attributes(self, place, module, depth):
        """Hooks of a module and of its parameters, and plain objects that it holds."""
        self._visit_hooks(place, module, depth)
        for name, value in list(vars(module).items()):
            is_torchs = name in _REGISTRIES or (name.startswith("_") and "_hooks" in name)
            if not _is(value, (torch.nn.Module, torch.Tensor)) and not is_torchs and depth > 1:
                self._visit_by(name, f"{place}.{name}", value, depth - 2)
        for tensor in module._parameters.values():
            for name in vars(tensor) if tensor is not None else ():
                if not name.startswith("_"):
                    self._add_slot(f"{place}.{name}", vars(tensor), name, is_global=False)
            for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
                self._visit_items(place, getattr(tensor, hooks, None) or {}, depth)

    def _visit_by(self, name, path, value, depth):
        route, self._route = self._route, (*self._route, name)
        self.visit(path, value, depth)
        self._route = route

    def _visit_groups(self, path, optimizer, depth):
        """Objects that the program keeps in parameter groups."""
        for g, group in enumerate(optimizer.param_groups):
            held = {key: value for key, value in group.items() if key != "params"}
            self._visit_items(f"{path}.param_groups[{g}]", held, depth)

    def _visit_hooks(self, place, owner, depth):
        for name, hooks in list(vars(owner).items()):
            if name.endswith("_hooks") and _is(hooks, dict):
                self._visit_items(f"{place}.{name}", hooks, depth)

    def _visit_object(self, path, value, kind, depth):
        """A plain object: its attributes are slots; those of a package's classes lead no further."""
        attributes = _dict_of(value)
        if attributes is None and is_program_file(_file_of(kind)) and not _is(value, enum.Enum):
            self.unseen.append((path, kind.__qualname__))
        if attributes is None or kind.__module__.split(".")[0] in _OPAQUE_PACKAGES:
            return
        own = is_program_file(_file_of(kind)) or kind.__module__ in _CONTAINERS
        if kind in (types.SimpleNamespace, argparse.Namespace) or hasattr(kind, "__dataclass_fields__"):
            self._by_content |= {id(value), id(attributes)}
        if own:
            for what in ("__class__", "__dict__"):
                self._add_slot(f"{path}.{what}", value, what, is_global=True, own=True)
        if own and id(kind) not in self._seen:
            self._seen.add(id(kind))
            self._visit_class(kind.__name__, kind, depth)
        for name in {name for base in kind.__mro__ if own for name in vars(base)} - attributes.keys():
            if not name.startswith("__") and not callable(vars(kind).get(name)):
                self._add_slot(f"{path}.{name}", attributes, name, is_global=False)  # may be set later
        for name, attribute in list(attributes.items()):
            if not isinstance(name, str):
                continue
            self._add_slot(f"{path}.{name}", attributes, name, is_global=issubclass(kind, _MAPPINGS))
            if own or _is(attribute, (torch.nn.Module, torch.optim.Optimizer)):
                self._visit_by(name, f"{path}.{name}", attribute, depth - 1)

    def _add_slot(self, path, owner, key, is_global, own=False, place=None):
        """`place` stands for an owner that is made for this."""
        place = (id(owner) if place is None else place, key)
        if len(self._slots) < _MOST_SLOTS:
            self._slots.setdefault(place, (path, owner, key, is_global, own, self._route))
        elif place not in self._slots and not self._is_full:
            self._is_full = True
            self.unseen.append((path, f"place beyond the {_MOST_SLOTS} that are looked at"))

    def _drop_inner_models(self):
        """A module that is a part of another one is tracked with it."""
        inner = {id(module) for model in self.models.values() for module in model.modules()
                 if module is not model}
        self.models = {name: model for name, model in self.models.items() if id(model) not in inner}


# Called when objects come and go, or shown.
_OUTSIDE_STEPS = frozenset({"__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__", "__del__",
                            "__repr__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"})
_CALLED_BY_TORCH = frozenset({"forward", "step", "backward", "setup_context"})
# Plain holders of attributes.
_CONTAINERS = frozenset({"types", "argparse", "collections"})
_REGISTRIES = frozenset({"_parameters", "_buffers", "_modules"})
# Members of classes that are looked at as what they are.
_MEMBERS = (types.FunctionType, staticmethod, classmethod, property, type, torch.nn.Module, torch.Tensor,
            type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
_ATOMS = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_MAPPINGS = (collections.UserDict, collections.UserList, collections.UserString, collections.ChainMap)
_TRACKED = (torch.nn.Module, torch.optim.Optimizer, torch.Generator, Host)
_OPAQUE_PACKAGES = frozenset({"logging", "threading", "_thread", "io", "_io", "weakref",
                              "itertools", "builtins", "abc", "typing", "re", "pathlib", "datetime"})


_CALLABLES = (types.FunctionType, types.BuiltinFunctionType, type)


def _is_implicit(name):
    """Whether methods of this name are called without being named: by torch, by operators and by
    statements."""
    return name in _CALLED_BY_TORCH or (name.startswith("__") and name not in _OUTSIDE_STEPS)


def _is(value, kinds):
    """As isinstance, which would ask the object for its class."""
    return issubclass(type(value), kinds)


def code_in(name, value, depth=_DEPTH):
    """[(name, object)] of what an argument brings that the step may run or that is to be tracked; of objects
    of the program's classes only the class."""
    kind = type(value)
    if _is(value, _ATOMS) or issubclass(kind, torch.Tensor) or depth == 0:
        return []
    if issubclass(kind, (list, tuple, set, dict)):
        if len(value) > _MOST_ITEMS:
            return []
        items = value.items() if issubclass(kind, dict) else enumerate(value)
        return [found for key, item in items for found in code_in(f"{name}_{key}", item, depth - 1)]
    if _is(value, (*_TRACKED, *_CALLABLES, types.MethodType, functools.partial, enum.Enum)):
        return [(name, value)]
    return [(name, kind)] if is_program_file(_file_of(kind)) else []


def _is_programs(module):
    """Whether a Python module is the program's: of one of its files, or made by it."""
    file = getattr(module, "__file__", None)
    if file:
        return is_program_file(file)
    name = module.__name__.split(".")[0]
    return name not in sys.builtin_module_names and name not in sys.stdlib_module_names


_UNSEEN_MODULES = frozenset({"itertools", "_contextvars", "contextvars", "_ctypes", "ctypes", "array", "numpy",
                             "_thread"})


def _is_unseen(kind):
    """Whether what an object of this class holds can be looked at by no guard: iterators, arrays, and the
    like."""
    return (kind.__module__ in _UNSEEN_MODULES and not issubclass(kind, (float, int, type)) and
            kind.__name__ not in ("ufunc", "dtype", "lock", "RLock")) or issubclass(kind, (
                types.GeneratorType, types.MappingProxyType)) or kind.__name__.endswith("_iterator")


def _contents(cell):
    try:
        return cell.cell_contents
    except ValueError:  # empty still
        return None


def _dict_of(value):
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return attributes if type(attributes) is dict else None


def _file_of(kind):
    module = sys.modules.get(kind.__module__)
    if module is None or kind.__module__ == "__main__":
        return "<program>"
    return getattr(module, "__file__", None) or ""


def _is_random_generator(value):
    import random
    if type(value) is random.Random:
        return True
    kind = type(value)
    return kind.__module__.startswith("numpy.random") and kind.__name__ in ("Generator", "RandomState")


def name_for(path, taken):
    """A name of letters, digits and '_' for a path, that is not taken yet."""
    name = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in path).strip("_")
    name = name or "object"
    unique, n = name, 2
    while unique in taken:
        unique, n = f"{name}_{n}", n + 1
    return unique

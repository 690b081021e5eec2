"""One recorded call of a step: what is looked at beside the ops, and what is told to the recorder.

Held while the step runs, and put back however it ends: a torch-function mode, which sees the values
that the host reads and the numbers that functions are given; forward hooks, which say which module
runs; and followed numbers in the places of hyperparameters, float arguments and host values.
"""
import builtins
import contextlib
import functools
import math
import os
import sys
import threading
from types import FunctionType

import torch
from torch.overrides import TorchFunctionMode

from . import _engine, _follow
from ._source import is_program_file

# What torch's own optimizers do with the values they read is arithmetic and comparisons alone.
_OPTIMIZERS = os.path.dirname(torch.optim.__file__) + os.sep
_READS = frozenset({torch.Tensor.item})
# They give the host the values of a tensor, or its memory, and leave no op.
_UNSEEN_READS = {
    torch.Tensor.tolist: ("host_read", "`tolist` gives the host values of a tensor, which leaves no op"),
    torch.Tensor.numpy: ("written_outside", "`numpy` gives the host the memory of a tensor"),
    torch.Tensor.__array__: ("written_outside", "NumPy is given the memory of a tensor"),
    torch.Tensor.data_ptr: ("written_outside", "`data_ptr` gives the host the memory of a tensor"),
    torch.Tensor.__dlpack__: ("written_outside", "`__dlpack__` gives the host the memory of a tensor"),
    torch.Tensor.untyped_storage: ("written_outside",
                                   "`untyped_storage` gives the host the memory of a tensor"),
}


# They give the program a number of a tensor.
_GIVE_NUMBERS = frozenset({torch.Tensor.item, torch.Tensor.__bool__, torch.Tensor.__float__, torch.Tensor.__int__,
                           torch.Tensor.__index__, torch.Tensor.__complex__, torch.Tensor.__contains__,
                           torch.Tensor.tolist, torch.Tensor.is_nonzero, torch.is_nonzero, torch.equal,
                           torch.Tensor.equal, torch.allclose, torch.Tensor.allclose})
# They make tensors of what the host holds.
_FROM_MEMORY = frozenset({torch.tensor, torch.as_tensor, torch.from_numpy, torch.asarray, torch.frombuffer,
                          torch.Tensor.new_tensor})


def _is_memory(value):
    """Whether it is an object of the buffer protocol, as NumPy arrays are: its content shows in no guard."""
    if isinstance(value, (torch.Tensor, bytes)):
        return False
    if isinstance(value, (list, tuple)):
        return any(_is_memory(item) for item in value[:64])
    return hasattr(value, "__array_interface__") or isinstance(value, (bytearray, memoryview))


def _original(frame):
    """The function of torch that has called the mode, where the program has put another in its place: torch
    names it by its place."""
    while frame.f_code.co_name == "handle_torch_function":
        frame = frame.f_back
    return FunctionType(frame.f_code, frame.f_globals)


class _Mode(TorchFunctionMode):
    def __init__(self, follows):
        super().__init__()
        self.follows = follows  # values that the program's own code reads

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _UNSEEN_READS:
            code, message = _UNSEEN_READS[func]
            _engine.refuse(code, message, _engine.locate())
        if func in _FROM_MEMORY and any(_is_memory(value) for value in (*args, *kwargs.values())):
            _engine.refuse("host_tensor_varies", f"`{func.__name__}` makes a tensor of memory of the host, "
                           "which may hold something else in the next step", _engine.locate())
        if type(func) is FunctionType and is_program_file(func.__code__.co_filename):
            func = _original(sys._getframe(1))
        reads = _engine.reads()
        numbers = []
        for value in args:
            _follow.numbers_in(value, numbers)
        for value in kwargs.values():
            _follow.numbers_in(value, numbers)
        if not numbers:
            result = func(*args, **kwargs)
        else:
            _engine.announce(numbers)
            try:
                result = func(*args, **kwargs)
            finally:
                _engine.withdraw()
        if func not in _GIVE_NUMBERS and type(func) is not FunctionType and _engine.reads() > reads:
            _engine.keep_internal(reads)
        if func in _READS:
            read = _engine.newest_read()
            in_torch = sys._getframe(1).f_code.co_filename.startswith(_OPTIMIZERS)
            if read >= 0 and (in_torch or self.follows):
                if in_torch:
                    _engine.follow_read(read)
                return _follow.follow(result, (("host_read", f"ops[{read}]"),))
        return result


class _Hook:
    """A hook of this package's: the engine leaves it out where it looks at hooks of the program's."""
    __slots__ = ("call",)

    def __init__(self, call):
        self.call = call

    def __call__(self, *args):
        self.call(*args)


_engine.set_own_hook_class(_Hook)


class _Modules:
    """Tells the recorder which module runs, by global forward hooks."""

    telling = threading.local()  # the outermost of each thread, which tells for those inside it too

    def __init__(self, models):
        self.paths = {}
        for name, model in models.items():
            self.add(name, model)

    def add(self, path, module):
        if id(module) in self.paths:
            return
        self.paths[id(module)] = path
        for name, child in vars(module).get("_modules", {}).items():
            if child is not None:
                self.add(_engine.join_path(path, name), child)

    def __enter__(self):
        self.thread = threading.get_ident()
        self.handles = ()
        if getattr(self.telling, "outermost", None) is not None:
            return
        self.telling.outermost = self
        hooks = torch.nn.modules.module
        self.handles = (
            hooks.register_module_forward_pre_hook(_Hook(self.enter)),
            hooks.register_module_forward_hook(_Hook(self.leave), always_call=True),
        )

    def __exit__(self, *_):
        for handle in self.handles:
            handle.remove()
        if self.handles:
            self.telling.outermost = None

    def enter(self, module, _):
        if threading.get_ident() == self.thread:
            _engine.enter_module(self.paths.get(id(module), ""), module)

    def leave(self, module, _, __):
        if threading.get_ident() == self.thread:
            _engine.leave_module(module)


class _Hyperparameters:
    """Puts followed numbers in the places of hyperparameters and host numbers of optimizer state."""

    def __init__(self, optimizers):
        self.optimizers = optimizers
        self.places = []

    def __enter__(self):
        for name, optimizer in self.optimizers.items():
            for g, group in enumerate(optimizer.param_groups):
                self.follow(group, f"{name}.param_groups[{g}]", "hyperparameter")

    def follow(self, holder, path, kind):
        for key, value in holder.items():
            followed = self.followed(value, _engine.join_path(path, str(key)), kind)
            if followed is not value:
                holder[key] = followed
                self.places.append((holder, key, value, followed))

    def followed(self, value, path, kind):
        if type(value) is tuple and all(type(item) in (int, float) for item in value):
            return tuple(self.followed(item, f"{path}[{i}]", kind) for i, item in enumerate(value))
        if type(value) in (int, float):
            return _follow.follow(value, ((kind, path),))
        return value

    def __exit__(self, *_):
        for holder, key, value, followed in self.places:
            if holder.get(key) is followed:
                holder[key] = value
        for optimizer in self.optimizers.values():
            for holder in (*optimizer.param_groups, *optimizer.state.values()):
                if isinstance(holder, dict):
                    for key, value in holder.items():
                        if type(value) in (_follow.FollowedFloat, _follow.FollowedInt):
                            holder[key] = _follow.plain(value)


class _Counters:
    """Puts followed numbers in the places of step counters in optimizer state, and notes what was added."""

    def __init__(self, engine, effects):
        self.engine = engine
        self.effects = effects

    def __enter__(self):
        self.places = self.engine.counters()
        for state, key, path in self.places:
            state[key] = _follow.follow(state[key], (("state_number", path),))

    def __exit__(self, *_):
        for state, key, path in self.places:
            number = state.get(key)
            if type(number) is not _follow.FollowedInt:
                continue
            state[key] = _follow.plain(number)
            by = _follow.advance_of(number, path) if _follow.is_followed(number) else None
            if by is not None:
                self.effects.advanced.add((id(state), key))
                if by != 0:
                    _engine.advance(path, by)


class _Functions:
    """Functions of Python's that code calls with numbers, as functions that follow: while any thread records."""

    lock = threading.Lock()
    recording = 0  # how many do

    def __enter__(self):
        with self.lock:
            _Functions.recording += 1
            if _Functions.recording == 1:
                self.replace()

    def replace(self):
        _Functions.of_math = {name: value for name, value in vars(math).items() if callable(value)}
        _Functions.extremes = {name: getattr(builtins, name) for name in ("max", "min")}
        for name, function in self.of_math.items():
            make = _follow.followed_root if function is _follow.square_root else _follow.escaping_function
            setattr(math, name, _follow.stand_in(function, make))
        for name, function in self.extremes.items():
            make = functools.partial(_follow.followed_extreme, name=name)
            setattr(builtins, name, _follow.stand_in(function, make))

    def __exit__(self, *_):
        with self.lock:
            _Functions.recording -= 1
            if _Functions.recording == 0:
                vars(math).update(self.of_math)
                vars(builtins).update(self.extremes)


_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.UninitializedParameter,
                  torch.nn.UninitializedBuffer, torch.nn.Buffer)


def refuse_hidden(name, model):
    """Refuses what no guard can look at: a scripted module keeps its flags and attributes in C++, and what the code
    of a tensor subclass does shows in no op."""
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            _engine.refuse("unreplayable_op", f"module `{_engine.join_path(name, path)}` is scripted: its flags and "
                           "attributes cannot be compared before each replay", "")
            return
    for kind, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for path, tensor in tensors:
            if type(tensor) not in _PLAIN_TENSORS:
                _engine.refuse("tensor_kind", f"{kind} `{name}.{path}` is of {type(tensor).__name__}, a "
                               "subclass of torch.Tensor", "")
                return


class Looking:
    """Everything that is held while a step is recorded: the mode, the hooks, the followed numbers."""

    def __init__(self, engine, effects, models, optimizers, follows):
        self.counters = _Counters(engine, effects) if follows else contextlib.nullcontext()
        self.models = models
        # a followed number is of a class of its own, which code that asks for a class would see
        self.optimizers = {name: optimizer for name, optimizer in optimizers.items()
                           if follows or type(optimizer).__module__.startswith("torch.optim.")}
        self.follows = follows

    def __enter__(self):
        for name, model in self.models.items():
            refuse_hidden(name, model)
        with contextlib.ExitStack() as stack:
            for held in (_Hyperparameters(self.optimizers), self.counters, _Modules(self.models),
                         _Functions(), _Mode(self.follows)):
                stack.enter_context(held)
            self.stack = stack.pop_all()

    def __exit__(self, *raised):
        return self.stack.__exit__(*raised)


def _followed_arguments(args, kwargs, reals):
    args, kwargs = list(args), dict(kwargs)
    for leaf, position, keyword in reals:
        place, key = (args, position) if position >= 0 else (kwargs, keyword)
        place[key] = _follow.follow(place[key], (("argument", f"inputs[{leaf}]"),))
    return args, kwargs


class Probe:
    """Runs one call of a step while it is recorded. `models` and `optimizers` by name; `roots(args, kwargs)` gives
    what the step is called with, for the engine; `meet(objects, is_known)` takes those that were met and are not tracked,
    and gives whether the recording is to be made anew."""

    def __init__(self, engine, models, optimizers, effects, roots, meet):
        self.engine = engine
        self.effects = effects
        self.roots = roots
        self.meet = meet
        self.looking_at = models, optimizers, True

    def __call__(self, function, args, kwargs, reals):
        _follow.new_epoch()
        roots = self.roots(args, kwargs)
        args, kwargs = _followed_arguments(args, kwargs, reals)
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            _engine.refuse("dispatch_mode", "hooks for saved tensors are set around the step", "")
        self.effects.enter(self.engine)
        seen = None
        try:
            with Looking(self.engine, self.effects, *self.looking_at):
                is_watched = self.effects.watch(self.engine, roots, (*args, *kwargs.values()))
                try:
                    result = function(*args, **kwargs)
                finally:
                    if is_watched:
                        seen = self.engine.end_watch()
        except BaseException:
            self.effects.abandon(self.engine, seen)
            raise
        self.effects.leave(self.engine, seen)
        if seen is not None and self.meet(seen["objects"], seen["is_known"]):
            _engine.discard()
        return result

    clean = staticmethod(_follow.without)  # for what the caller gets

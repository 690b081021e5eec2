"""Python code of torch's own, which is not watched as the program's is: the rules that stand for it (values of its modules
and classes are guarded, and what modules and optimizers hold) are compared with what it reads when it is watched."""
import contextlib
import functools
import inspect
import pkgutil
import sys
import types
import typing
from types import SimpleNamespace

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Distribution, Normal
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import steptape
import twins
from steptape import _effects, _engine, _setup, _tracking
from steptape._errors import BY_CODE

ATOMS = (type(None), bool, int, float, str, bytes)  # of modules and classes: guarded by value
CODE = (types.FunctionType, types.BuiltinFunctionType, type, types.ModuleType, types.MethodType, types.MethodDescriptorType,
        types.WrapperDescriptorType, types.MethodWrapperType, types.GetSetDescriptorType, types.MemberDescriptorType,
        property, staticmethod, classmethod, type(functools.lru_cache(len)), torch._ops.OpOverloadPacket, torch._ops.OpOverload,
        type(torch._C._VariableFunctions), type(torch.autograd.variable.Variable._execution_engine),
        type(typing.NamedTuple("Pair", [("first", int)]).first),
        torch.utils._contextlib._DecoratorContextManager, torch.backends.ContextProp)  # replaced by nobody: docs/blind_spots.md
CONSTANTS = (torch.layout, torch.memory_format, torch.dtype, type(typing.Optional), type(typing.Union[int, str]), typing.TypeVar)

# Objects that torch's code looks into, for which no rule stands, and why that is well.
LEFT_OUT = {
    "torch._dynamo.eval_frame:_stance": "decides about compiled callees alone, which are refused",
    "torch.autograd.graph:log": "decides what is written down",
    "os:environ": "environment variables, which no replay reads again (docs/blind_spots.md)",
    "torch.nn.modules.module:_global_forward_hooks_always_called": "of hooks that stand in a guarded dict as well",
    "torch.nn.modules.module:_global_forward_hooks_with_kwargs": "the same",
    "torch.optim.optimizer:_foreach_supported_types": "classes of tensors, to which nobody adds",
    "torch.utils._pytree:SUPPORTED_NODES": "how containers are taken apart, by class",
    "torch.utils._pytree:_LEAF_SPEC": "a constant",
    "torch.distributions:Normal.arg_constraints": "what is checked of arguments, by class",
    "torch.distributions:Normal.support": "the same",
}


@contextlib.contextmanager
def watching_torch():
    """Gives a list that gets, of each recording: (path, owner, key) of all places that it read, in torch's own code too."""
    all_reads = []
    leave = _effects.Effects.leave

    def keep(self, engine):
        all_reads.append(engine.reads())
        return leave(self, engine)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_effects.Effects, "leave", keep)
        with pytest.MonkeyPatch.context() as moved:
            moved.setattr(torch, "__file__", "/nowhere/torch/__init__.py")
            _setup.set_up(_engine, BY_CODE)
        yield all_reads
    _setup.set_up(_engine, BY_CODE)


def held_by(objects):
    """The ids of all that modules, optimizers and functions hold."""
    seen, open_ = {}, list(objects)
    while open_:
        value = open_.pop()
        if id(value) in seen or isinstance(value, (type, types.ModuleType, str)):
            continue
        seen[id(value)] = value  # kept, so that no other object gets its id
        if isinstance(value, types.FunctionType):
            open_ += [cell for cell in value.__closure__ or ()]
        elif isinstance(value, types.CellType):
            open_.append(value.cell_contents)
        elif isinstance(value, dict):
            open_ += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set)):
            open_ += value
        open_.append(getattr(value, "__dict__", None))
    return seen


def without_rule(read, own):
    """"place: what it holds" of what no rule stands for."""
    hooks = [owner[key] for _, owner, key in _tracking.places_of_torch()]
    typing_caches = vars(typing).get("_caches")  # of annotations, from CPython 3.12 on
    own = own | held_by([*map(pkgutil.resolve_name, LEFT_OUT), *hooks, typing_caches])
    guarded = {(id(owner), key) for _, owner, key in _tracking.places_of_torch()}
    own |= held_by([owner for _, owner, _ in read if is_of_dynamo(owner)])  # modules that go leave its tables, in mid-step too
    switches = [value for name, module in sys.modules.items() if name.startswith("torch.backends.")
                for value in vars(type(module)).values() if isinstance(value, torch.backends.ContextProp)]
    own |= {id(vars(switch)): switch for switch in switches}  # which functions of torch's get and set them
    for path, owner, key in read:
        if id(owner) in own or (id(owner), key) in guarded or "__kwdefaults__" in path or isinstance(owner, types.FunctionType):
            continue
        if owner is sys.modules:  # a module of torch's that its code imports: as much its own as a function that it calls
            continue
        if isinstance(owner, type):
            value = inspect.getattr_static(owner, key, None) if isinstance(key, str) else None
        elif isinstance(owner, types.CellType):
            value = owner.cell_contents
        elif isinstance(owner, dict) and ("__name__" in owner or "__module__" in owner):
            value = owner.get(key)
        else:
            value = owner
        are_fixed = all(isinstance(item, CODE + ATOMS + CONSTANTS) for item in (value if isinstance(value, tuple) else [value]))
        if id(value) not in own and not are_fixed and not is_of_dynamo(value) and "__dynamo_disable" not in path:
            yield f"{path}: {value!r:.80}"


def is_of_dynamo(value):
    """What it decides is about compiled callees, which are refused."""
    return type(value).__module__.startswith("torch._dynamo")


def training(model, optimizer_of=lambda p: torch.optim.SGD(p, lr=0.1), size=(4, 6)):
    def make():
        net = model()
        optimizer = optimizer_of(net.parameters())

        def step(x):
            optimizer.zero_grad()
            out = net(x)
            loss = (out[0] if isinstance(out, tuple) else out).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step, lambda: (torch.randn(*size),)
    return make


def evaluation(body, *sizes):
    return lambda: (body, lambda: [torch.randn(*size) for size in sizes])


OPTIMIZERS = {"Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"}
READERS = {
    **{name: training(lambda: nn.Linear(6, 3, bias=False), getattr(torch.optim, name)) for name in sorted(OPTIMIZERS)},
    "layers": training(lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.LayerNorm(8),
                                             nn.GELU(), nn.Linear(8, 2))),
    "convolutions": training(lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.GroupNorm(1, 3), nn.MaxPool2d(2),
                                                   nn.ConvTranspose2d(3, 2, 2), nn.Flatten()), size=(2, 2, 6, 6)),
    "LSTM": training(lambda: nn.LSTM(6, 3, batch_first=True), size=(2, 4, 6)),
    "Transformer": training(lambda: nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), size=(2, 4, 6)),
    "fast_path": evaluation(torch.no_grad()(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True).eval()), (2, 4, 6)),
    "weight_norm": training(lambda: parametrizations.weight_norm(nn.Linear(6, 3))),
    "spectral_norm": training(lambda: parametrizations.spectral_norm(nn.Linear(6, 3))),
    "losses": evaluation(lambda x, y: F.cross_entropy(x, y.softmax(1)) + F.smooth_l1_loss(x, y) + F.kl_div(x, y, reduction="sum"),
                         (4, 6), (4, 6)),
    "distribution": evaluation(lambda x: Normal(x, 1.0).log_prob(x + 1), (4,)),
}


def read_by(step, arguments):
    """What a recording of the step has read, in torch's own code too."""
    with watching_torch() as reads:
        wrapped = steptape.wrap(step)
        for _ in range(3):
            wrapped(*arguments())
    assert len(reads) >= 2 and len(reads[-1]) > 50
    return reads[-1]


@pytest.mark.parametrize("name", READERS)
def test_there_is_a_rule_for_what_torchs_code_reads(name):
    step, arguments = READERS[name]()
    found = list(without_rule(read_by(step, arguments), held_by([step])))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ["layers", "convolutions", "LSTM", "Transformer", "fast_path", "weight_norm", "spectral_norm"])
def test_an_attribute_of_a_module_that_torchs_code_reads_is_guarded(name):
    """Each in turn becomes another object, which no replay may miss; what nothing reads may become what it likes."""
    step, arguments = READERS[name]()
    modules = {id(vars(value)): vars(value) for value in list(held_by([step]).values()) if isinstance(value, nn.Module)}
    read = {(id(owner), key) for _, owner, key in read_by(step, arguments) if id(owner) in modules}
    wrapped = steptape.wrap(step, verify={"first": True, "rate": 0.0})

    def replays():
        before = wrapped.stats["replayed"]
        with contextlib.suppress(Exception):  # of torch's code, which is given something odd
            wrapped(*arguments())
        return wrapped.stats["replayed"] > before

    assert any(replays() for _ in range(8)), wrapped.explain()
    changed = 0
    for attributes in modules.values():
        for key, value in list(attributes.items()):
            if isinstance(value, (dict, nn.Module)):
                continue  # hooks and what is registered
            attributes[key] = object()
            if (id(attributes), key) in read:
                assert not replays(), (key, wrapped.explain())
                changed += 1
            else:
                assert any(replays() for _ in range(4)), (key, wrapped.explain())
            attributes[key] = value
            assert any(replays() for _ in range(20)), (key, wrapped.explain())
    assert changed >= 2


# each: what makes the step and the size of its argument; what sets the value, to False in calls 15 to 29; replays at least
SWITCHES = {}


def switch(set_to, least=20):
    def add(make):
        SWITCHES[make.__name__] = make, set_to, least
        return make
    return add


def attention():
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()


@switch(torch.backends.mha.set_fastpath_enabled)
def fast_path_of_a_layer():
    layer = attention()
    return torch.no_grad()(lambda x: layer(x)), (2, 5, 8)


@switch(torch.backends.mha.set_fastpath_enabled)
def fast_path_of_an_encoder():
    encoder = nn.TransformerEncoder(attention(), 2, enable_nested_tensor=False).eval()
    return torch.inference_mode()(lambda x: encoder(x).clone()), (2, 5, 8)


@switch(torch.backends.mha.set_fastpath_enabled)
def fast_path_of_attention():
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    return torch.no_grad()(lambda x: layer(x, x, x)[0]), (2, 5, 8)


@switch(Distribution.set_default_validate_args)
def validation_of_distributions():
    return lambda x: Normal(x, x.abs() + 1).log_prob(x), (4,)


@switch(lambda is_on: setattr(torch.distributions.Normal, "has_rsample", is_on))
def attribute_of_a_class():
    def step(x):
        normal = Normal(x, x.abs() + 1)
        return normal.cdf(x) * (2 if normal.has_rsample else 3)
    return step, (4,)


RELU = F.relu


@switch(lambda is_on: setattr(F, "relu", RELU if is_on else lambda x, inplace: x.tanh()))
def function_that_modules_call():
    layer = nn.ReLU()
    return lambda x: layer(x), (4,)


@switch(lambda is_on: setattr(F, "linear", torch._C._nn.linear if is_on else lambda x, w, b: x @ w.t() + 2 * b))
def function_that_layers_call():
    layer = nn.Linear(4, 3)
    return lambda x: layer(x).detach(), (2, 4)


def cache_parametrizations(is_off):
    parametrize._cache_enabled = 0 if is_off else 1
    parametrize._cache.clear()


@switch(cache_parametrizations, least=9)  # what is kept outlives the step, which is refused
def cache_of_parametrizations():
    layer = parametrizations.weight_norm(nn.Linear(4, 3))
    return lambda x: layer(x).detach(), (2, 4)


@switch(lambda is_on: set_checkpoint_early_stop(is_on).__enter__())
def early_stop_of_checkpoints():
    weight = torch.ones(4, requires_grad=True)

    def step(x):
        weight.grad = None
        checkpoint(lambda v: (v * weight).tanh().sum(), x, use_reentrant=False).backward()
        return weight.grad.clone()
    return step, (4,)


@switch(lambda is_on: setattr(nn.Module, "call_super_init", not is_on))
def attribute_that_constructors_read():
    def step(x):
        return nn.Softplus(beta=2)(x)
    return step, (4,)


@pytest.mark.parametrize("name", SWITCHES)
def test_a_value_of_torchs_that_is_set_between_calls(name):
    make, set_to, least = SWITCHES[name]

    def twin():
        step, size = make()

        def batch(i):
            set_to(not 15 <= i < 30)  # both twins are of this process
            return (torch.randn(*size),)
        return SimpleNamespace(step=step, batch=batch, holds=lambda: [])

    try:
        step = twins.compare(twin, 45)
    finally:
        set_to(True)
    assert step.stats["replayed"] >= least, step.explain()


def test_a_count_that_torchs_code_keeps_is_none():
    """The number of a handle is another one in each call."""
    def step(x):
        y = x.detach().requires_grad_()
        handle = y.register_hook(lambda g: g * 2)
        y.sum().backward()
        handle.remove()
        return y.grad
    step = twins.compare(lambda: SimpleNamespace(step=step, batch=lambda i: (torch.randn(3),), holds=lambda: []), 30)
    assert step.stats["replayed"] >= 20, step.explain()

"""What code that is not watched, torch's or C's, hands to code of the program's: the object of a decorated hook among `*args`, the dict
that a partial holds, the default of a hook. What is read there is guarded, and what is written is done again. Each program
changes something before call LATE."""
import contextlib
import functools
import operator
from functools import partial
from types import MethodType, SimpleNamespace

import numpy
import pytest
import torch
import torch.nn as nn

import steptape
from twins import bits, codes_of, played_alike

CALLS, LATE = 24, 12
cases = {}


def case(*codes):
    """Decorator: makes a program anew, as (step, what it holds, change). With codes it may be refused for them."""
    def add(make):
        cases[make.__name__] = (make, set(codes))
        return make
    return add


def plain_decorator(function):
    @functools.wraps(function)
    def called(*args, **kwargs):
        return function(*args, **kwargs)
    return called


class Tracker:
    def __init__(self):
        self.scale, self.calls, self.last, self.log = 2.0, 0, None, []

    @plain_decorator
    def on_forward(self, module, inputs, output):
        self.calls += 1
        return output * self.scale

    @plain_decorator
    def on_gradient(self, gradient):
        self.last = gradient.norm().item()
        self.log.append(self.calls)
        return gradient * self.scale

    @plain_decorator
    def rate(self, epoch):
        return self.scale / (1 + epoch)

    @plain_decorator
    def __call__(self, module, inputs, output):
        return output + self.scale

    def pack(self, tensor):
        self.calls += 1
        return tensor * self.scale

    def power(self, number):
        self.calls += 1
        return number ** self.scale


def training(prepare, held, layer=nn.Linear):
    """A training of a linear layer; `prepare(module, optimizer)` comes before the first call."""
    module = layer(3, 2)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    prepare(module, optimizer)

    def step(x):
        loss = module(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, lambda: [module.state_dict(), [p.grad for p in module.parameters()], held()]


def of_tracker(prepare):
    tracker = Tracker()
    step, holds = training(lambda *built: prepare(tracker, *built), lambda: vars(tracker))
    return step, holds, lambda: setattr(tracker, "scale", 5.0)


def of_dict(prepare, **held):
    config = {"scale": 2.0, "calls": 0, **held}
    step, holds = training(lambda *built: prepare(config, *built), lambda: config)
    return step, holds, lambda: config.__setitem__("scale", 5.0)


def scaled(config, module, inputs, output):
    config["calls"] += 1
    return output * config["scale"]


@case()
def decorated_forward_hook():
    return of_tracker(lambda tracker, module, optimizer: module.register_forward_hook(tracker.on_forward))


@case()
def decorated_hook_of_a_tensor():
    return of_tracker(lambda tracker, module, optimizer: module.weight.register_hook(tracker.on_gradient))


@case()
def decorated_call():
    return of_tracker(lambda tracker, module, optimizer: module.register_forward_hook(tracker))


@case()
def partial_over_a_dict():
    return of_dict(lambda config, module, optimizer: module.register_forward_hook(partial(scaled, config)))


@case()
def partial_with_a_keyword():
    def hook(module, inputs, output, *, config):
        return scaled(config, module, inputs, output)

    return of_dict(lambda config, module, optimizer: module.register_forward_hook(partial(hook, config=config)))


@case()
def partial_of_partial():
    def hook(config, unused, module, inputs, output):
        return scaled(config, module, inputs, output)

    def prepare(config, module, optimizer):
        module.register_forward_hook(partial(partial(hook, config), None))

    return of_dict(prepare)


@case()
def method_over_a_dict():
    return of_dict(lambda config, module, optimizer: module.register_forward_hook(MethodType(scaled, config)))


@case()
def partial_over_a_namespace():
    config = SimpleNamespace(scale=2.0)

    def hook(held, module, inputs, output):
        return output * held.scale

    step, holds = training(lambda module, optimizer: module.register_forward_hook(partial(hook, config)), lambda: None)
    return step, holds, lambda: setattr(config, "scale", 5.0)


@case()
def partial_over_a_tuple_with_an_object():
    tracker = Tracker()

    def hook(held, module, inputs, output):
        return output * held[1].scale

    step, holds = training(lambda module, optimizer: module.register_forward_hook(partial(hook, (1, tracker))), lambda: None)
    return step, holds, lambda: setattr(tracker, "scale", 5.0)


@case("host_read")
def partial_over_an_array():
    array = numpy.array([2.0, 3.0])

    def hook(held, module, inputs, output):
        return output * float(held[0])

    step, holds = training(lambda module, optimizer: module.register_forward_hook(partial(hook, array)), lambda: None)
    return step, holds, lambda: array.__setitem__(0, 5.0)


@case()
def norms_that_a_hook_of_a_tensor_keeps():
    def save(store, name, gradient):
        store[name] = gradient.norm().item()

    return of_dict(lambda config, module, optimizer: module.weight.register_hook(partial(save, config, "weight")))


@case()
def hook_of_an_optimizer():
    def count(config, optimizer, args, kwargs):
        config["calls"] += 1

    return of_dict(lambda config, module, optimizer: optimizer.register_step_pre_hook(partial(count, config)))


@case("host_effect")
def method_of_c_as_a_hook():
    log = []
    step, holds = training(
        lambda module, optimizer: module.weight.register_post_accumulate_grad_hook(log.append), lambda: len(log))
    return step, holds, lambda: None


@case()
def default_of_a_hook_that_the_step_makes_too():
    def make(config):
        def hook(module, inputs, output, held=config):
            held["calls"] += 1
            return output * held["scale"]
        return hook

    config = {"scale": 2.0, "calls": 0}
    module = nn.Linear(3, 2)
    module.register_forward_hook(make(config))
    other = nn.Identity()

    def step(x):
        handle = other.register_forward_hook(make({"scale": 1.0, "calls": 0}))
        result = module(other(x)).detach()
        handle.remove()
        return result

    return step, lambda: config, lambda: config.__setitem__("scale", 5.0)


@case()
def context_manager_that_decorates_the_step():
    config = {"scale": 2.0, "calls": 0}

    @contextlib.contextmanager
    def counted(held):
        held["calls"] += 1
        held["now"] = held["scale"]
        yield

    @counted(config)
    def step(x):
        return x * config["now"]

    return step, lambda: config, lambda: config.__setitem__("scale", 5.0)


@case()
def function_of_one_of_many_classes():
    @functools.singledispatch
    def step(x):
        return x * 1

    step.register(torch.Tensor, lambda x: x * 2)
    return step, lambda: None, lambda: step.register(torch.Tensor, lambda x: x * 5)


@case()
def no_grad_around_a_partial():
    config = {"scale": 2.0, "calls": 0}

    def run(held, x):
        held["calls"] += 1
        return x * held["scale"]

    return torch.no_grad()(partial(run, config)), lambda: config, lambda: config.__setitem__("scale", 5.0)


@case()
def universal_function_of_a_method():
    tracker = Tracker()
    power = numpy.frompyfunc(tracker.power, 1, 1)
    return lambda x: x * power(3.0), lambda: vars(tracker), lambda: setattr(tracker, "scale", 3.0)


@case()
def hooks_for_saved_tensors_made_before():
    tracker = Tracker()
    context = torch.autograd.graph.saved_tensors_hooks(tracker.pack, lambda tensor: tensor)
    weight = torch.ones(3, requires_grad=True)

    def step(x):
        with context:
            loss = (weight * x).square().sum()
        return torch.autograd.grad(loss, weight)[0]

    return step, lambda: vars(tracker), lambda: setattr(tracker, "scale", 3.0)


@case()
def objects_in_an_array():
    held = numpy.empty(2, object)
    held[0] = 2.5
    held[1] = "other"

    def change():
        held[0] = None  # its memory may be another number's
        held[0] = float("400.5")

    return lambda x: x * held[0], lambda: None, change


@case("host_effect")
def objects_in_an_array_with_fields():
    held = numpy.array([(1, {"k": 2.0})], dtype=[("a", int), ("o", object)])
    return lambda x: x * len(held), lambda: None, lambda: None


@case()
def attribute_of_a_class_made_of_bytearray():
    class Buffer(bytearray):
        scale = 2.0

    buffer = Buffer(3)
    return lambda x: x * buffer.scale, lambda: None, lambda: setattr(buffer, "scale", 5.0)


@case()
def function_of_a_module_by_its_name():
    import threading
    own = threading.get_ident()
    who = operator.methodcaller("get_ident")
    return lambda x: x * (2 if who(threading) == own else 3), lambda: None, lambda: None


@case()
def dialect_that_code_of_c_reads():
    import csv

    class Dialect(csv.excel):
        delimiter = ";"

    def step(x):
        return x * len(next(csv.reader(["1;2,3,4"], dialect=Dialect)))

    return step, lambda: None, lambda: setattr(Dialect, "delimiter", ",")


@case("host_random")
def generator_that_seeds_itself():
    import random
    return lambda x: x * (2 if random.Random().random() < 2 else 3), lambda: None, lambda: None


def play(make, wrap):
    torch.manual_seed(0)
    step, holds, change = make()
    step = wrap(step)
    seen = []
    for i in range(CALLS):
        if i == LATE:
            change()
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
        seen.append(bits([step(x), holds()]))
    return seen, step


@pytest.mark.parametrize("name", cases)
def test_what_unwatched_code_hands_on(name):
    make, codes = cases[name]
    expected, _ = play(make, lambda step: step)
    seen, step = play(make, lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    for i, (a, b) in enumerate(zip(expected, seen)):
        assert a == b, f"call {i}\n{step.explain()}"
    if codes:
        assert codes_of(step) & codes, step.explain()
    else:
        assert step.stats["replayed"] >= 12, step.explain()


def test_which_task_runs_the_step():
    import asyncio

    def step(x):
        return x * len(asyncio.current_task().get_name())

    async def run(name, wrapped, x):
        asyncio.current_task().set_name(name)
        return wrapped(x)

    wrapped = steptape.wrap(step, verify={"first": True, "rate": 0.0})
    for i in range(12):
        name = "a" if i < 8 else "longer"
        assert torch.equal(asyncio.run(run(name, wrapped, torch.ones(2))), torch.ones(2) * len(name)), i


def test_what_a_step_hands_on_does_not_outlive_it():
    """Objects are kept until it is known whether the program has them, too."""
    import gc
    import weakref

    class Batch(list):
        pass

    seen = []

    def step(x):
        batch = Batch([x])
        seen.append(weakref.ref(batch))
        return sum(map(lambda given: given[0] * 2, [batch]))

    wrapped = steptape.wrap(step)
    for _ in range(3):
        wrapped(torch.ones(2))
    gc.collect()
    assert all(reference() is None for reference in seen)


def test_an_object_that_the_step_makes_by_new_is_of_the_call():
    """As tensordict makes its copies: torch's code hands it to the module, which finds another tensor in it in each call."""
    class Batch:
        def copy(self):
            made = Batch.__new__(Batch)
            made.__dict__["entries"] = dict(self.entries)
            return made

    class Reader(nn.Linear):
        def forward(self, batch):
            batch.entries["out"] = super().forward(batch.entries["x"])
            return batch

    def play(wrap):
        torch.manual_seed(0)
        module = Reader(3, 2)
        optimizer = torch.optim.SGD(module.parameters(), 0.1)

        def step(x):
            batch = Batch()
            batch.entries = {"x": x}
            loss = module(batch.copy()).entries["out"].square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = wrap(step)
        return [bits([step(torch.randn(4, 3)), list(module.parameters())]) for _ in range(CALLS)], step

    step = played_alike(play)
    assert step.stats["replayed"] > CALLS / 2, step.explain()


def test_an_attribute_that_a_module_is_given_before_all_of_it_counts_as_read():
    """As TensorDictParams keeps its newest operation, which is another tuple in each call."""
    class Rows:
        def __init__(self, count):
            self.count = count

    class Keeper(nn.Linear):
        def forward(self, x):
            self.newest = ("forward", SimpleNamespace(rows=Rows(len(x))))
            seen = [self].count(self)  # code of C's is given the module
            return super().forward(x) * seen

    def play(wrap):
        torch.manual_seed(0)
        made = []
        step, holds = training(lambda module, optimizer: made.append(module), lambda: made[0].newest[1].rows.count, Keeper)
        step = wrap(step)
        return [bits([step(torch.randn(4, 3)), holds()]) for _ in range(CALLS)], step

    step = played_alike(play)
    assert step.stats["replayed"] > CALLS / 2, step.explain()

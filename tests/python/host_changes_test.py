"""What a step changes on the host: numbers that follow from others are assigned by replays too; any other change is refused
by name and line, since a replay would leave it out.

Lines marked `# here` are those that a refusal must name.
"""
import collections
import contextvars
import copy
import ctypes
import functools
import itertools
import mmap
import operator
import types

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from classification import STEPS, Program, batch, check, collect, learner, marked_lines, names_the_line
from twins import OUTCOMES, bits, played_alike

CHANGES = []
change = collect(CHANGES)
AGAIN = []
again = collect(AGAIN)


@again()
def loss_appended():
    model, optimizer, learn = learner()
    losses = []

    def train(x, y):
        loss = learn(x, y)
        losses.append(loss.item())
        return loss
    return Program(step=train, held=lambda: [model, optimizer, losses])


@again()
def loss_tensor_appended():
    model, optimizer, learn = learner()
    losses = []

    def train(x, y):
        loss = learn(x, y)
        losses.append(loss)
        return loss
    return Program(step=train, held=lambda: [model, optimizer, losses])


@again()
def constant_appended():
    model, optimizer, learn = learner()
    log = []

    def train(x, y):
        log.append("step")
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, log])


@change("host_effect")
def list_extended_by_assignment():
    model, optimizer, learn = learner()
    log = []

    def train(x, y):
        nonlocal log
        log = log + ["step"]  # here
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, log])


@again()
def attribute_counted():
    class Trainer:
        def __init__(self):
            self.model, self.optimizer, self.learn = learner()
            self.steps = 0

        def train(self, x, y):
            self.steps += 1
            return self.learn(x, y)

    trainer = Trainer()
    return Program(step=trainer.train,
                   held=lambda: [trainer.model, trainer.optimizer, trainer.steps])


@again()
def variable_of_the_closure_counted():
    model, optimizer, learn = learner()
    steps = 0

    def train(x, y):
        nonlocal steps
        steps += 1
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, steps])


@again()
def entry_of_a_dict_counted():
    model, optimizer, learn = learner()
    counts = collections.defaultdict(int)

    def train(x, y):
        counts["steps"] += 1
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, counts])


@again()
def attribute_of_a_configuration_counted():
    model, optimizer, learn = learner()
    config = types.SimpleNamespace(progress=types.SimpleNamespace(steps=0))

    def train(x, y):
        config.progress.steps += 1
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, config])


@again()
def attribute_of_a_module_counted():
    class Counting(nn.Linear):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    model, optimizer, learn = learner()
    first = Counting(6, 8)
    first.load_state_dict(model[0].state_dict())
    model[0] = first

    def train(x, y):
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, first.calls])


@again()
def numbers_that_follow_from_each_other():
    model, optimizer, learn = learner()
    state = {"done": 0, "left": 100.0, "phase": 0}

    def train(x, y):
        state["done"] += 1
        state["left"] = 100.0 - 0.5 * state["done"]
        state["phase"] = state["done"] // 3 % 2
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, state])


@change("host_effect")
def text_grows():
    model, optimizer, learn = learner()
    config = types.SimpleNamespace(progress=types.SimpleNamespace(bar=""))

    def train(x, y):
        config.progress.bar += "."  # here
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, config])


@change("host_effect")
def number_that_c_code_works_out():
    model, optimizer, learn = learner()
    config = types.SimpleNamespace(count=0)

    def train(x, y):
        config.count = hash(str(config.count)) % 10**9  # here
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, config])


@again()
def counted_by_a_hook():
    model, optimizer, learn = learner()
    seen = []

    def hook(module, args, output):
        seen.append(len(seen))
    model[0].register_forward_hook(hook)
    return Program(step=learn, held=lambda: [model, optimizer, seen])


@again()
def counter_that_enters_an_op():
    model, optimizer, learn = learner()
    steps = 0

    def train(x, y):
        nonlocal steps
        steps += 1
        return learn(x / steps, y)
    return Program(step=train, held=lambda: [model, optimizer, steps])


@again()
def accumulation_by_a_counter():
    model, optimizer, _ = learner()
    micro = [0]

    def train(x, y):
        loss = F.cross_entropy(model(x), y)
        (loss / 4).backward()
        micro[0] += 1
        if micro[0] % 4 == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        return loss.detach()
    return Program(step=train, held=lambda: [model, optimizer, micro])


@again()
def moving_average_of_the_loss():
    model, optimizer, learn = learner()
    average = 0.0

    def train(x, y):
        nonlocal average
        loss = learn(x, y)
        average = 0.9 * average + 0.1 * loss.item()
        return loss
    return Program(step=train, held=lambda: [model, optimizer, average])


@change("host_effect")
def dict_grows():
    model, optimizer, learn = learner()
    seen = {}

    def train(x, y):
        seen[len(seen)] = "step"  # here
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, seen])


@change("host_effect")
def dict_shrinks():
    model, optimizer, learn = learner()
    left = dict.fromkeys(range(100))

    def train(x, y):
        left.popitem()  # here
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, left])


@change("host_effect")
def set_grows():
    model, optimizer, learn = learner()
    seen = set()

    def train(x, y):
        seen.add(len(seen))  # here
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, seen])


@again()
def full_deque_turns():
    model, optimizer, learn = learner()
    turn = collections.deque(range(5), maxlen=5)

    def train(x, y):
        turn.append(turn[0])
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, list(turn)])


@again()
def list_permuted():
    model, optimizer, learn = learner()
    order = [3, 1, 2]

    def train(x, y):
        order.reverse()
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, order])


@again()
def module_buffer_registered():
    model, optimizer, learn = learner()

    def train(x, y):
        model.register_buffer("newest", x.mean(0))
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer])


@change("host_effect")
def iterator_advanced():
    model, optimizer, learn = learner()
    numbers = itertools.count()

    def train(x, y):
        return learn(x * (1 + next(numbers) % 3), y)  # here
    return Program(step=train, held=lambda: [model, optimizer, repr(numbers)])


@pytest.mark.parametrize("make, codes", CHANGES)
def test_a_change_of_host_state_is_refused(make, codes):
    # The codes beside host_effect are those of what the same line does to tensors.
    if make is iterator_advanced:  # an iterator cannot be looked at; what it gives varies
        codes = codes | {"scalar_varies", "unstable_op_stream", "host_tensor_varies"}
    check(make, codes=codes)


class Status(ctypes.Structure):
    _fields_ = [("step", ctypes.c_int)]


STORES = {  # into an object of C's: what is made, what the step does with it
    "field": (Status, lambda held, n: setattr(held, "step", n)),
    "item_of_an_array": (ctypes.c_double * 2, lambda held, n: held.__setitem__(0, n)),
    "item_of_mapped_memory": (lambda: mmap.mmap(-1, 8), lambda held, n: operator.setitem(held, 0, 1)),
    "item_by_an_instruction": (ctypes.c_double * 2, lambda held, n: store_first(held)),
    "field_by_an_instruction": (Status, lambda held, n: store_step(held, n)),
}


def store_first(held):
    held[0] = 1.0


def store_step(held, n):
    held.step = n


@pytest.mark.parametrize("made, store", STORES.values(), ids=STORES)
def test_what_is_stored_into_objects_of_c_is_refused(made, store):
    def make():
        model, optimizer, learn = learner()
        held, calls = made(), [0]

        def train(x, y):
            calls[0] += 1
            store(held, calls[0])
            return learn(x, y)
        return Program(step=train, held=lambda: [model, optimizer, bytes(held)])

    check(make, codes={"host_effect"})


def entry_added(batch):
    batch["seen"] = 1  # here


def entry_taken(batch):
    batch.pop("extra")  # here


def list_appended(batch):
    batch["list"].append(2.0)  # here


def list_lengthened(batch):
    held = batch["list"]
    held += [2.0]  # here


def entry_deleted(batch):
    del batch["extra"]  # here


def attribute_assigned(batch):
    batch["object"].n = 5  # here


@pytest.mark.parametrize("change", [entry_added, entry_taken, list_appended, list_lengthened, entry_deleted, attribute_assigned],
                         ids=lambda change: change.__name__)
def test_a_change_of_an_argument_names_its_line(change):
    def make():
        model, optimizer, learn = learner()

        def train(given):
            loss = learn(given["x"], given["y"])
            change(given)
            return loss
        return Program(step=train, held=lambda: [model, optimizer])

    def arguments(i):
        x, y = batch(i)
        return ({"x": x, "y": y, "extra": 1.0, "list": [1.0], "object": types.SimpleNamespace(n=1)},)

    step = check(make, arguments=arguments, codes={"host_effect"})
    names_the_line(step, {"host_effect"}, __file__, marked_lines(change))


@pytest.mark.parametrize("make, codes", [p for p in CHANGES if p.id not in (
    "iterator_advanced", "loss_tensor_appended")])
def test_a_refused_change_names_its_line(make, codes):
    step = check(make)
    names_the_line(step, codes, __file__, marked_lines(make))


@pytest.mark.parametrize("make, codes", AGAIN)
def test_what_a_step_assigns_is_assigned_by_replays(make, codes):
    check(make, share=0.5)


SCRIPT = """
import torch
import torch.nn.functional as F

STEPS = 0
NEWEST = None
LOG = []
model = torch.nn.Linear(6, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

def learn(x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()

def count():
    global STEPS
    STEPS += 1

def counts(x, y):
    count()
    return learn(x, y)

def logs(x, y):
    LOG.append(len(LOG))
    return learn(x, y)

def keeps(x, y):
    global NEWEST
    NEWEST = learn(x, y)
    return NEWEST

def marks(x, y):
    global NEWEST
    NEWEST = "marked"
    return learn(x, y)
"""


@pytest.fixture
def script(tmp_path):
    """Makes a program at module level, in a file; each twin is a module of its own."""
    file = tmp_path / "program.py"
    file.write_text(SCRIPT)

    def make(step):
        module = types.ModuleType("program")
        exec(compile(SCRIPT, str(file), "exec"), vars(module))
        return Program(step=getattr(module, step), module=module, held=lambda: [
            module.model, module.optimizer, module.STEPS, module.NEWEST, module.LOG])
    make.file = str(file)
    return make


def test_a_list_whose_length_is_appended_to_it_replays(script):
    check(lambda: script("logs"), share=0.9)


def test_a_global_that_keeps_the_result_replays(script):
    check(lambda: script("keeps"), share=0.9)


def test_a_global_that_is_set_to_the_same_value_replays(script):
    def reset(program, i):
        program.module.NEWEST = None

    check(lambda: script("marks"), reset, share=0.9)


def test_a_global_is_counted_on(script):
    check(lambda: script("counts"), share=0.5)


def test_a_refusal_says_which_state_changed_and_how():
    step = check(text_grows, codes={"host_effect"})
    reason = next(r["reason"] for r in step.stats["refusals"] if r["code"] == "host_effect")
    assert "bar" in reason
    assert "→" in reason or "->" in reason, reason


def test_counts_and_reasons_add_up():
    step = check(text_grows, codes={"host_effect"})
    stats = step.stats
    assert stats["steps"] == STEPS == sum(stats[outcome] for outcome in OUTCOMES)
    assert stats["replayed"] == 0
    assert stats["trace_problem"] == ""
    assert str(STEPS) in step.explain()


def listed(self, x):
    self.parts = [x * 2, x + 1]
    return sum(part.mean() for part in self.parts)


def in_a_dict(self, x):
    self.parts = {}
    self.parts["a"] = x * 2
    self.parts.setdefault("b", []).append(x + 1)
    return self.parts["a"].mean() + self.parts["b"][0].mean() + len(self.parts)


def read_before(self, x):
    before = 0. if self.parts is None else self.parts[0].mean()
    self.parts = [x * 2]
    self.parts.append(x)
    return before + self.parts[0].mean() + self.parts[1].sum()


def distributions(self, x):
    self.parts = [torch.distributions.Normal(x, 1), torch.distributions.Categorical(logits=x)]
    return sum(part.entropy().mean() for part in self.parts)


def of_two(self, x):
    self.parts = self.other = [x * 2]
    self.other.append(x + 1)
    return self.parts[0].mean() + len(self.parts) + self.other[1].mean()


def in_a_variable(self, x):
    token = VARIABLE.set({"seen": []})
    try:
        VARIABLE.get()["seen"].append(x * 2)
        return VARIABLE.get()["seen"][0].mean() + len(VARIABLE.get()["seen"])
    finally:
        VARIABLE.reset(token)


def in_a_variable_that_is_read_before(self, x):
    outer = VARIABLE.get()
    token = VARIABLE.set([x, outer])
    inner = VARIABLE.get()
    VARIABLE.reset(token)
    return inner[0].mean() + (0. if inner[1] is None else inner[1]["scale"])


VARIABLE = contextvars.ContextVar("variable", default=None)
PUT = [listed, in_a_dict, read_before, distributions, of_two, in_a_variable, in_a_variable_that_is_read_before]


@pytest.mark.parametrize("use", PUT, ids=lambda f: f.__name__)
def test_what_a_step_puts_in_a_place_and_uses_again_replays(use):
    def play(wrap):
        held = types.SimpleNamespace(parts=None, other=None)
        step = wrap(lambda x: use(held, x))
        token = VARIABLE.set({"scale": 1.})
        seen = []
        try:
            for i in range(24):
                if i in (12, 18):
                    VARIABLE.get()["scale"] = float(i)
                seen.append(bits([step(torch.arange(6.).view(2, 3) + i), held.parts, held.other]))
        finally:
            VARIABLE.reset(token)
        return seen, step

    step = played_alike(play)
    assert step.stats["replayed"] >= 12, step.explain()


@pytest.mark.parametrize("find", [
    lambda p: p.outer[0], lambda p: p.by_name.get("k"), lambda p: next(iter(p.outer)), lambda p: [*p.outer].pop(), lambda p: p.tuple[0],
    lambda p: list(zip(p.outer))[0][0], lambda p: copy.copy(p.outer)[0], lambda p: p.by_name.setdefault("k", []), lambda p: p.cached(),
    lambda p: collections.ChainMap(p.by_name)["k"], lambda p: functools.reduce(lambda a, b: b, p.outer, None), lambda p: VARIABLE.get(),
], ids=["item", "get", "next", "pop", "tuple", "zip", "copy", "setdefault", "cache", "ChainMap", "reduce", "variable"])
def test_a_list_of_the_program_s_that_a_step_puts_in_a_place_is_watched_there(find):
    def play(wrap):
        inner = [1., 2.]
        program = types.SimpleNamespace(outer=[inner], by_name={"k": inner}, tuple=(inner,), cached=functools.lru_cache(lambda: inner), now=None)
        token = VARIABLE.set(inner)

        def f(x):
            program.now = find(program)
            y = x * program.now[0] + len(program.now)
            program.now = None  # what was there before and stays would be refused
            return y

        step = wrap(f)
        seen = []
        for i in range(24):
            if i in (10, 11, 17):
                inner[0] = float(i)
            if i == 20:
                inner.append(3.)
            seen.append(bits(step(torch.arange(3.) + i)))
        VARIABLE.reset(token)
        return seen, step

    step = played_alike(play)
    assert step.stats["replayed"] >= 6, step.explain()

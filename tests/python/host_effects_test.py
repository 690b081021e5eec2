"""What a step does besides computing on tensors: host state, random numbers, reads, looks.

A replay does not run the step's function. So a change of host state is done again where it is the
same in every call, declared by steptape.host or steptape.observe, or refused by name and place.
Lines marked `# here` are those that a refusal must name.
"""
import collections
import contextlib
import inspect
import io
import itertools
import linecache
import math
import random
import time
import types

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import steptape
import twins

STEPS = 40
LATE = 20  # a call long behind the first replay


class Program(types.SimpleNamespace):
    """What a user's script holds: `step`, `held()`, which must be equal in both twins, and more."""


class Training:
    """Runs a program on fixed batches; `between(program, i)` is what it does behind call i."""

    def __init__(self, make, between=None, arguments=None):
        self.program = make()
        self.step = self.program.step
        self.between = between
        self.arguments = arguments or batch

    def batch(self, i):
        return self.arguments(i)

    def holds(self):
        return self.program.held()

    def after(self, i):
        if self.between:
            self.between(self.program, i)


def batch(i):
    chosen = torch.Generator().manual_seed(i)
    return torch.randn(8, 6, generator=chosen), torch.randint(4, (8,), generator=chosen)


def signed_batch(positive):
    """Batches whose sum is positive in those calls for which positive(i)."""
    def arguments(i):
        x, y = batch(i)
        return x.abs() if positive(i) else -x.abs(), y
    return arguments


def check(make, between=None, arguments=None, **expected):
    return twins.compare(lambda: Training(make, between, arguments), STEPS, **expected)


def learner():
    """A model, its optimizer, and a function that does one whole update and returns the loss."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def learn(x, y, scale=1.0):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x) * scale, y)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return model, optimizer, learn


def replays_or_says_why(step):
    """Where either is right: nearly all free calls replayed, or at least one reason is given."""
    stats = step.stats
    free = stats["steps"] - stats["recorded"] - stats["trials"] - stats["audits"]
    says_why = [r for r in stats["refusals"] if r["reason"] and r["remedy"]]
    assert says_why or stats["replayed"] >= 0.9 * free, step.explain()


def has_replayed(step):
    assert step.stats["replayed"] > 0, step.explain()


def marked_lines(function):
    lines, start = inspect.getsourcelines(function)
    return {start + n for n, line in enumerate(lines) if "# here" in line}


def names_the_line(step, codes, file, lines):
    """A refusal of one of the codes has the file and one of the lines; explain() shows the text."""
    met = [r for r in step.stats["refusals"] if r["code"] in codes]
    assert any(r["file"] == file and r["line"] in lines for r in met), (met, file, lines)
    texts = [linecache.getline(file, n).split("# here")[0].strip() for n in lines]
    assert any(text in step.explain() for text in texts), step.explain()


def collect(table):
    """Decorator: puts a program with its codes into a table of test parameters."""
    def entry(*codes):
        def add(make):
            table.append(pytest.param(make, set(codes), id=make.__name__))
            return make
        return add
    return entry


CHANGES = []
change = collect(CHANGES)


@change("host_effect", "host_read")
def loss_appended():
    model, optimizer, learn = learner()
    losses = []

    def train(x, y):
        loss = learn(x, y)
        losses.append(loss.item())  # here
        return loss
    return Program(step=train, held=lambda: [model, optimizer, losses])


@change("host_effect", "escaped_buffer")
def loss_tensor_appended():
    model, optimizer, learn = learner()
    losses = []

    def train(x, y):
        loss = learn(x, y)
        losses.append(loss)  # here
        return loss
    return Program(step=train, held=lambda: [model, optimizer, losses])


@change("host_effect")
def constant_appended():
    model, optimizer, learn = learner()
    log = []

    def train(x, y):
        log.append("step")  # here
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


@change("host_effect")
def attribute_counted():
    class Trainer:
        def __init__(self):
            self.model, self.optimizer, self.learn = learner()
            self.steps = 0

        def train(self, x, y):
            self.steps += 1  # here
            return self.learn(x, y)

    trainer = Trainer()
    return Program(step=trainer.train,
                   held=lambda: [trainer.model, trainer.optimizer, trainer.steps])


@change("host_effect")
def variable_of_the_closure_counted():
    model, optimizer, learn = learner()
    steps = 0

    def train(x, y):
        nonlocal steps
        steps += 1  # here
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, steps])


@change("host_effect")
def entry_of_a_dict_counted():
    model, optimizer, learn = learner()
    counts = collections.defaultdict(int)

    def train(x, y):
        counts["steps"] += 1  # here
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, counts])


@change("host_effect")
def attribute_of_a_configuration_counted():
    model, optimizer, learn = learner()
    config = types.SimpleNamespace(progress=types.SimpleNamespace(steps=0))

    def train(x, y):
        config.progress.steps += 1  # here
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, config])


@change("host_effect")
def attribute_of_a_module_counted():
    class Counting(nn.Linear):
        calls = 0

        def forward(self, x):
            self.calls += 1  # here
            return super().forward(x)

    model, optimizer, learn = learner()
    first = Counting(6, 8)
    first.load_state_dict(model[0].state_dict())
    model[0] = first

    def train(x, y):
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, first.calls])


@change("host_effect")
def counted_by_a_hook():
    model, optimizer, learn = learner()
    seen = []

    def hook(module, args, output):
        seen.append(len(seen))  # here
    model[0].register_forward_hook(hook)
    return Program(step=learn, held=lambda: [model, optimizer, seen])


@change("host_effect", "scalar_varies")
def counter_that_enters_an_op():
    model, optimizer, learn = learner()
    steps = 0

    def train(x, y):
        nonlocal steps
        steps += 1  # here
        return learn(x / steps, y)
    return Program(step=train, held=lambda: [model, optimizer, steps])


@change("host_effect", "unstable_op_stream")
def accumulation_by_a_counter():
    model, optimizer, _ = learner()
    micro = [0]

    def train(x, y):
        loss = F.cross_entropy(model(x), y)
        (loss / 4).backward()
        micro[0] += 1  # here
        if micro[0] % 4 == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        return loss.detach()
    return Program(step=train, held=lambda: [model, optimizer, micro])


@change("host_effect", "host_read")
def moving_average_of_the_loss():
    model, optimizer, learn = learner()
    average = 0.0

    def train(x, y):
        nonlocal average
        loss = learn(x, y)
        average = 0.9 * average + 0.1 * loss.item()  # here
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


@change("host_effect")
def full_deque_turns():
    model, optimizer, learn = learner()
    turn = collections.deque(range(5), maxlen=5)

    def train(x, y):
        turn.append(turn[0])  # here
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, list(turn)])


@change("host_effect")
def list_permuted():
    model, optimizer, learn = learner()
    order = [3, 1, 2]

    def train(x, y):
        order.reverse()  # here
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, order])


@change("host_effect", "rebound_tensor", "escaped_buffer", "untracked_write")
def module_buffer_registered():
    model, optimizer, learn = learner()

    def train(x, y):
        model.register_buffer("newest", x.mean(0))  # here
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


@pytest.mark.parametrize("make, codes", [p for p in CHANGES if p.id not in (
    "iterator_advanced", "module_buffer_registered", "loss_tensor_appended")])
def test_a_refused_change_names_its_line(make, codes):
    step = check(make)
    names_the_line(step, codes, __file__, marked_lines(make))


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
    STEPS += 1  # here

def counts(x, y):
    count()
    return learn(x, y)

def logs(x, y):
    LOG.append(len(LOG))  # here
    return learn(x, y)

def keeps(x, y):
    global NEWEST
    NEWEST = learn(x, y)  # here
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


@pytest.mark.parametrize("name, codes", [
    ("counts", {"host_effect"}),
    ("logs", {"host_effect"}),
    ("keeps", {"host_effect", "escaped_buffer"}),
])
def test_a_change_of_a_global_is_refused(script, name, codes):
    step = check(lambda: script(name), codes=codes)
    if name != "keeps":
        lines = {n for n, line in enumerate(SCRIPT.splitlines(), 1) if "# here" in line}
        names_the_line(step, codes, script.file, lines)


def test_a_global_that_is_set_to_the_same_value_replays(script):
    def reset(program, i):
        program.module.NEWEST = None

    check(lambda: script("marks"), reset, share=0.9)


SAME = []
same = collect(SAME)


@same()
def attribute_set():
    class Trainer:
        def __init__(self):
            self.model, self.optimizer, self.learn = learner()
            self.mode = "idle"

        def train(self, x, y):
            self.mode = "train"
            return self.learn(x, y)

    trainer = Trainer()

    def reset():
        trainer.mode = "idle"
    return Program(step=trainer.train, reset=reset,
                   held=lambda: [trainer.model, trainer.optimizer, trainer.mode])


@same()
def variable_of_the_closure_set():
    model, optimizer, learn = learner()
    mode = None

    def train(x, y):
        nonlocal mode
        mode = "train"
        return learn(x, y)

    def reset():
        nonlocal mode
        mode = None
    return Program(step=train, reset=reset, held=lambda: [model, optimizer, mode])


@same()
def entry_of_a_dict_set():
    model, optimizer, learn = learner()
    state = {"phase": 0}

    def train(x, y):
        state["phase"] = 1
        return learn(x, y)
    return Program(step=train, reset=lambda: state.update(phase=0),
                   held=lambda: [model, optimizer, state])


@same()
def attribute_of_a_module_set():
    model, optimizer, learn = learner()
    model.phase = 0.0

    def train(x, y):
        model.phase = 0.5
        return learn(x, y)
    return Program(step=train, reset=lambda: setattr(model, "phase", 0.0),
                   held=lambda: [model, optimizer, model.phase])


@same()
def training_flag_set():
    model, optimizer, learn = learner()

    def train(x, y):
        model.train()
        return learn(x, y)
    return Program(step=train, reset=model.eval, held=lambda: [model, optimizer])


@pytest.mark.parametrize("make, _", SAME)
def test_setting_the_same_value_replays(make, _):
    check(make, share=0.9)


@pytest.mark.parametrize("make, _", SAME)
def test_the_same_value_is_set_though_the_program_resets_it_in_every_call(make, _):
    check(make, lambda program, i: program.reset(), share=0.9)


@pytest.mark.parametrize("make, _", SAME)
def test_the_same_value_is_set_though_the_program_resets_it_once(make, _):
    check(make, lambda program, i: program.reset() if i == LATE else None, share=0.9)


@pytest.mark.parametrize("kind", [set, dict, list])
def test_a_change_that_is_made_only_where_it_is_missing(kind):
    """Add where absent: nothing to see in the probes, until the program clears the container."""
    def make():
        model, optimizer, learn = learner()
        seen = kind()

        def train(x, y):
            if "step" not in seen:
                if kind is set:
                    seen.add("step")
                elif kind is dict:
                    seen["step"] = 1
                else:
                    seen.append("step")
            return learn(x, y)
        return Program(step=train, seen=seen, held=lambda: [model, optimizer, seen])

    step = check(make, lambda program, i: program.seen.clear() if i == LATE else None)
    replays_or_says_why(step)


def test_what_the_first_call_makes_once_is_no_change():
    def make():
        model, optimizer, learn = learner()
        ready = False

        def train(x, y):
            nonlocal ready
            if not ready:
                ready = True
            return learn(x, y)
        return Program(step=train, held=lambda: [model, optimizer, ready])

    check(make, share=0.9)


def test_a_table_of_tensors_is_filled_once_for_each_shape():
    def make():
        model, optimizer, learn = learner()
        tables = {}

        def train(x, y):
            if x.shape not in tables:
                tables[x.shape] = torch.linspace(0.5, 1.5, x.shape[0]).unsqueeze(1)
            return learn(x * tables[x.shape], y)
        return Program(step=train, held=lambda: [model, optimizer, list(tables.values())])

    def arguments(i):
        x, y = batch(i)
        return (x[:4], y[:4]) if i % 8 == 7 else (x, y)

    replays_or_says_why(check(make, arguments=arguments))


def test_a_tensor_that_is_carried_in_a_variable():
    """Hidden state that the step keeps for its next call by binding a name anew."""
    def make():
        cell = nn.Linear(10, 4)
        optimizer = torch.optim.SGD(cell.parameters(), lr=0.05)
        hidden = torch.zeros(8, 4)

        def train(x, y):
            nonlocal hidden
            optimizer.zero_grad()
            out = torch.tanh(cell(torch.cat([x, hidden], 1)))
            loss = F.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
            hidden = out.detach()
            return loss.detach()
        return Program(step=train, held=lambda: [cell, optimizer, hidden])

    replays_or_says_why(check(make))


def test_a_tensor_that_is_carried_in_place():
    def make():
        model, optimizer, learn = learner()
        average = torch.zeros(6)

        def train(x, y):
            average.mul_(0.9).add_(x.mean(0), alpha=0.1)
            return learn(x - average, y)
        return Program(step=train, held=lambda: [model, optimizer, average])

    replays_or_says_why(check(make))


RANDOM = []
drawing = collect(RANDOM)


@drawing("host_random")
def python_random():
    model, optimizer, learn = learner()

    def train(x, y):
        return learn(x, y, scale=random.random())  # here
    return Program(step=train, held=lambda: [model, optimizer])


@drawing("host_random")
def numpy_random():
    model, optimizer, learn = learner()

    def train(x, y):
        return learn(x, y, scale=float(np.random.rand()))  # here
    return Program(step=train, held=lambda: [model, optimizer])


@drawing("host_random")
def numpy_random_array():
    model, optimizer, learn = learner()

    def train(x, y):
        noise = torch.from_numpy(np.random.rand(8, 6).astype(np.float32))  # here
        return learn(x + noise, y)
    return Program(step=train, held=lambda: [model, optimizer])


@drawing("host_random")
def draw_that_decides():
    model, optimizer, learn = learner()

    def train(x, y):
        if random.random() < 0.5:  # here
            x = x.flip(1)
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer])


@drawing("host_random")
def rare_draw_that_decides():
    model, optimizer, learn = learner()

    def train(x, y):
        if random.random() < 0.05:  # here
            x = x.flip(1)
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer])


@drawing("host_random")
def draw_that_nobody_uses():
    model, optimizer, learn = learner()

    def train(x, y):
        random.random()  # here
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer])


@drawing("host_random")
def drawn_in_a_submodule():
    class Noisy(nn.Module):
        def forward(self, x):
            return x * random.uniform(0.5, 1.5)  # here

    model, optimizer, learn = learner()
    model.insert(1, Noisy())
    return Program(step=learn, held=lambda: [model, optimizer])


@drawing("host_random", "host_effect")
def generator_of_the_programs_own():
    model, optimizer, learn = learner()
    source = random.Random(7)

    def train(x, y):
        return learn(x, y, scale=source.random())  # here
    return Program(step=train, held=lambda: [model, optimizer, source.getstate()])


@drawing("host_random", "host_effect")
def numpy_generator_of_the_programs_own():
    model, optimizer, learn = learner()
    source = np.random.default_rng(7)

    def train(x, y):
        return learn(x, y, scale=float(source.random()))  # here
    return Program(step=train, held=lambda: [model, optimizer, source.bit_generator.state])


@drawing("host_random", "host_effect")
def generator_that_only_shuffles():
    model, optimizer, learn = learner()
    source = random.Random(7)

    def train(x, y):
        order = list(range(8))
        source.shuffle(order)  # here
        return learn(x[order], y[order])
    return Program(step=train, held=lambda: [model, optimizer, source.getstate()])


@pytest.mark.parametrize("make, codes", RANDOM)
def test_a_random_number_of_the_host_is_refused(make, codes):
    step = check(make, codes=codes)
    names_the_line(step, codes, __file__, marked_lines(make))


def test_a_generator_seeded_inside_the_step_gives_the_same_numbers():
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            return learn(x, y, scale=random.Random(7).random() + np.random.default_rng(7).random())
        return Program(step=train, held=lambda: [model, optimizer])

    replays_or_says_why(check(make))


def hosted(name):
    """A step whose scale is a declared host value."""
    model, optimizer, learn = learner()
    own, own_numpy, numbers = random.Random(7), np.random.default_rng(7), itertools.count(1)
    epoch = [0]
    functions = {
        "random": random.random,
        "numpy_random": lambda: float(np.random.rand()),
        "random_generator": own.random,
        "numpy_generator": lambda: float(own_numpy.random()),
        "counter": lambda: next(numbers),
        "schedule": lambda: 0.5 ** epoch[0],
        "closed_over_state": lambda: epoch[0] + 1.0,
    }
    scale = steptape.host(functions[name])

    def train(x, y):
        return learn(x, y, scale=scale())

    def advance():
        epoch[0] += 1
    return Program(step=train, advance=advance, held=lambda: [
        model, optimizer, own.getstate(), own_numpy.bit_generator.state, repr(numbers)])


@pytest.mark.parametrize("name", ["random", "numpy_random", "random_generator", "numpy_generator",
                                  "counter", "schedule", "closed_over_state"])
def test_a_declared_host_value_replays(name):
    def advance(program, i):
        if i % 5 == 4:
            program.advance()

    check(lambda: hosted(name), advance, share=0.9)


def test_a_host_function_is_called_once_in_each_call_of_the_step():
    def make():
        model, optimizer, learn = learner()
        calls = []

        def count():
            calls.append(len(calls))
            return 1.0 / len(calls)
        scale = steptape.host(count)

        def train(x, y):
            return learn(x, y, scale=scale())
        return Program(step=train, held=lambda: [model, optimizer, calls])

    check(make, share=0.9)


@pytest.mark.parametrize("derive", [
    pytest.param(lambda tau: tau * 2 + 1, id="line"),
    pytest.param(lambda tau: 1 - tau ** 2, id="square"),
    pytest.param(lambda tau: min(tau, 0.5), id="minimum"),
    pytest.param(lambda tau: max(1e-3, -tau), id="maximum"),
    pytest.param(math.exp, id="exponential"),
    pytest.param(lambda tau: math.cos(math.pi * tau), id="cosine"),
    pytest.param(lambda tau: round(tau, 1), id="rounded"),
    pytest.param(lambda tau: float(tau > 0.5), id="threshold"),
    pytest.param(lambda tau: float(f"{tau:.2f}"), id="through_text"),
    pytest.param(lambda tau: 1.0 if tau > 0.5 else 0.5, id="decision"),
])
def test_what_follows_from_a_host_value(derive):
    """Followed or refused: later values, of which no probe saw one, come out right."""
    def make():
        model, optimizer, learn = learner()
        state = types.SimpleNamespace(tau=0.1)
        tau = steptape.host(lambda: state.tau)

        def train(x, y):
            return learn(x, y, scale=derive(tau()))
        return Program(step=train, state=state, held=lambda: [model, optimizer])

    def advance(program, i):
        program.state.tau = 0.1 if i < 6 else 0.1 + (i % 17) / 20

    replays_or_says_why(check(make, advance))


@pytest.mark.parametrize("first, second", [(False, True), (1, 3), (0, 1)])
def test_a_host_value_that_only_decides_is_guarded(first, second):
    def make():
        model, optimizer, learn = learner()
        state = types.SimpleNamespace(value=first)
        value = steptape.host(lambda: state.value)

        def train(x, y):
            for _ in range(int(value())):
                x = x * 0.5
            return learn(x, y)
        return Program(step=train, state=state, held=lambda: [model, optimizer])

    def switch(program, i):
        program.state.value = second if i >= LATE else first

    replays_or_says_why(check(make, switch))


def test_an_exception_of_a_host_function_reaches_the_caller():
    def make():
        model, optimizer, learn = learner()
        state = types.SimpleNamespace(calls=0)

        def function():
            state.calls += 1
            if state.calls in (2, LATE):
                raise ValueError("no value today")
            return 0.5
        scale = steptape.host(function)

        def train(x, y):
            factor = scale()
            return learn(x, y, scale=factor)
        return Program(step=train, held=lambda: [model, optimizer, state])

    check(make, share=0.9)


def clock_stays_between(step, *args):
    """The step returns the time as it reads it: between the time before and behind the call."""
    for _ in range(STEPS):
        before = time.time()
        now = step(*args).item()
        assert before <= now <= time.time()


def test_a_clock_inside_the_step_is_refused():
    zero = torch.zeros((), dtype=torch.float64)

    @steptape.wrap
    def step(x):
        return x + time.time()  # here

    clock_stays_between(step, zero)
    replays_or_says_why(step)
    assert step.stats["replayed"] == 0


def test_a_declared_clock_replays():
    zero = torch.zeros((), dtype=torch.float64)
    now = steptape.host(time.time)

    @steptape.wrap
    def step(x):
        return x + now()

    clock_stays_between(step, zero)
    has_replayed(step)


def says(names):
    """A program that prints its name in each run of the step."""
    def make():
        model, optimizer, learn = learner()
        name = next(names)

        def train(x, y):
            print("run", name)
            return learn(x, y)
        return Program(step=train, held=lambda: [model, optimizer])
    return make


def test_printing_is_noted_and_happens_where_the_step_runs(capsys):
    step = check(says(iter(["eager", "wrapped"])))
    out = capsys.readouterr().out
    assert out.count("run eager\n") == STEPS
    assert out.count("run wrapped\n") == STEPS - step.stats["replayed"]
    assert "print" in step.explain(), step.explain()


def test_writing_a_file_is_noted_and_happens_where_the_step_runs(tmp_path):
    names = iter(["eager", "wrapped"])
    with contextlib.ExitStack() as files:
        def make():
            model, optimizer, learn = learner()
            log = files.enter_context(open(tmp_path / next(names), "w"))

            def train(x, y):
                log.write("step\n")
                return learn(x, y)
            return Program(step=train, held=lambda: [model, optimizer])

        step = check(make)
    assert (tmp_path / "eager").read_text() == "step\n" * STEPS
    runs = STEPS - step.stats["replayed"]
    assert (tmp_path / "wrapped").read_text() == "step\n" * runs
    assert "write" in step.explain(), step.explain()


def test_a_text_in_memory_that_the_step_writes_is_no_file():
    """Text that the program can read afterwards is host state."""
    def make():
        model, optimizer, learn = learner()
        log = io.StringIO()

        def train(x, y):
            log.write("step\n")
            return learn(x, y)
        return Program(step=train, log=log, held=lambda: [model, optimizer])

    step = check(make)
    replays_or_says_why(step)
    assert step.stats["replayed"] == 0 or "write" in step.explain()


def test_printing_a_tensor_throws_nothing(capsys):
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            loss = learn(x, y)
            print(loss, f"{loss.item():.3f}", repr(model[0].weight))
            return loss
        return Program(step=train, held=lambda: [model, optimizer])

    replays_or_says_why(check(make))


READS = {  # what the step returns: (function of loss and count, share of calls that replay or None)
    "item": (lambda loss, count: loss.item(), 0.9),
    # What float() and int() give cannot be followed: item() is the remedy.
    "float": (lambda loss, count: float(loss), None),
    "int": (lambda loss, count: int(count), None),
    "count_item": (lambda loss, count: count.item(), 0.9),
    "tuple": (lambda loss, count: (loss.item(), count.item()), 0.9),
    "dict": (lambda loss, count: {"loss": loss.item(), "right": count.item()}, 0.9),
    "beside_the_tensor": (lambda loss, count: (loss, loss.item()), 0.9),
    "read_twice": (lambda loss, count: (loss.item(), loss.item()), 0.9),
    "bool": (lambda loss, count: bool(count > 2), None),
    "divided": (lambda loss, count: count.item() / 8, None),
    "sum": (lambda loss, count: loss.item() + count.item(), None),
    "rounded": (lambda loss, count: round(loss.item(), 3), None),
    "text": (lambda loss, count: f"{loss.item():.4f}", None),
    "compared": (lambda loss, count: loss.item() > 1.3, None),
    "largest": (lambda loss, count: max(loss.item(), 1.3), None),
    "exponential": (lambda loss, count: math.exp(loss.item()), None),
    "list": (lambda loss, count: torch.stack([loss, count]).tolist(), None),
    "numpy": (lambda loss, count: loss.numpy(), None),
    "copied_numpy": (lambda loss, count: loss.numpy().copy(), None),
    "numpy_scalar": (lambda loss, count: np.float64(loss.item()), None),
    "length": (lambda loss, count: len(torch.nonzero(count > torch.arange(8))), None),
}


@pytest.mark.parametrize("read, share", READS.values(), ids=READS)
def test_a_value_that_is_read_and_returned(read, share):
    # Those without a share are numbers that no tensor held, or leave no op: followed or refused.
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            right = (model(x).argmax(1) == y).sum()
            return read(learn(x, y), right)
        return Program(step=train, held=lambda: [model, optimizer])

    step = check(make, share=share)
    replays_or_says_why(step)


DECISIONS = {
    "item": lambda x: x.sum().item() > 0,
    "float": lambda x: float(x.sum()) > 0,
    "bool": lambda x: bool(x.sum() > 0),
    "truth": lambda x: True if (x > 0).all() else False,
    "int": lambda x: int((x > 0).sum()) > 24,
    "equal": lambda x: torch.equal(x, x.abs()),
    "allclose": lambda x: torch.allclose(x, x.abs()),
    "tolist": lambda x: x.sum(1).tolist()[0] > 0,
    "numpy": lambda x: x.numpy().sum() > 0,
    "array": lambda x: np.asarray(x).sum() > 0,
    "iteration": lambda x: sum(row.item() for row in x[0]) > 0,
    "membership": lambda x: 1.0 in (x > 0).float(),
    "format": lambda x: "-" not in f"{x.sum().item():.3f}",
    "shape": lambda x: x[x > 0].shape[0] > 0,
    "maximum": lambda x: max(x[0, 0], torch.zeros(())).item() > 0,
}
# A read without an op of its own is seen by what is read: named by the code of what may be written.
DECIDED = {"host_read", "unstable_op_stream", "data_dependent_shape", "written_outside"}


def deciding(decide):
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            if decide(x):
                return learn(x * 2, y)
            return learn(x, y)
        return Program(step=train, held=lambda: [model, optimizer])
    return make


@pytest.mark.parametrize("decide", DECISIONS.values(), ids=DECISIONS)
def test_a_decision_on_a_tensor_that_goes_both_ways(decide):
    step = check(deciding(decide), arguments=signed_batch(lambda i: i % 2), codes=DECIDED)
    replays_or_says_why(step)


@pytest.mark.parametrize("decide", DECISIONS.values(), ids=DECISIONS)
def test_a_decision_on_a_tensor_that_goes_the_other_way_late(decide):
    check(deciding(decide), arguments=signed_batch(lambda i: i < LATE or i % 3 == 0))


def test_a_rare_condition_is_checked_in_every_replay():
    """A truth value that was the same in the probes: a replay in which it differs is undone."""
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            loss = learn(x, y)
            if (y > 3).any():
                raise ValueError("label out of range")
            return loss
        return Program(step=train, held=lambda: [model, optimizer])

    def arguments(i):
        x, y = batch(i)
        return (x, torch.full_like(y, 3)) if i == LATE else (x, y)

    check(make, arguments=arguments, share=0.9)


def test_a_rare_condition_that_holds_late_runs_the_other_branch():
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            if (x.abs().amax() > 100).item():
                x = x.clamp(-100, 100)
            return learn(x, y)
        return Program(step=train, held=lambda: [model, optimizer])

    def arguments(i):
        x, y = batch(i)
        return (x * 1000, y) if i in (LATE, LATE + 3) else (x, y)

    check(make, arguments=arguments, share=0.9)


ENTERING = {  # a read that enters an op: (function of a tensor, share or None)
    "multiplied": (lambda x: x * x.abs().amax().item(), 0.9),
    "divided": (lambda x: x / x.norm().item(), 0.9),
    "float": (lambda x: x - float(x.mean()), None),
    "int": (lambda x: x * int((x > 0).sum()), None),
    "derived": (lambda x: x * (1.0 / max(x.norm().item(), 1.0)), None),
    "squared": (lambda x: x * x.mean().item() ** 2, None),
    "as_a_tensor": (lambda x: x * torch.tensor(x.mean().item()), None),
    "as_a_list": (lambda x: x * torch.tensor(x.mean(0).tolist()), None),
    "through_numpy": (lambda x: x + torch.from_numpy(x.numpy().mean(0)), None),
    "full": (lambda x: x + torch.full((6,), x.mean().item()), None),
    "index": (lambda x: x * x[int(x[0].argmax())].mean(), None),
    "size": (lambda x: x * x[:, : 1 + int((x[0, 0] > 0))].mean(), None),
}


@pytest.mark.parametrize("enter, share", ENTERING.values(), ids=ENTERING)
def test_a_value_that_is_read_and_enters_an_op(enter, share):
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            return learn(enter(x), y)
        return Program(step=train, held=lambda: [model, optimizer])

    step = check(make, share=share)
    replays_or_says_why(step)


def test_a_value_that_is_only_looked_at_replays_where_reads_are_observed():
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            loss = learn(x, y)
            loss.item()
            return loss
        return Program(step=train, held=lambda: [model, optimizer])

    check(make, host_reads="observe", share=0.9)


def test_an_address_that_decides_nothing():
    def make():
        model, optimizer, learn = learner()

        def train(x, y):
            if x.data_ptr() == y.data_ptr():
                x = x.clone()
            return learn(x, y)
        return Program(step=train, held=lambda: [model, optimizer])

    replays_or_says_why(check(make))


def test_two_arguments_share_memory_only_late():
    def make():
        model, optimizer, learn = learner()

        def train(x, y, other):
            scale = 2.0 if x.data_ptr() == other.data_ptr() else 1.0
            return learn(x * scale + other, y)
        return Program(step=train, held=lambda: [model, optimizer])

    def arguments(i):
        x, y = batch(i)
        return x, y, x if i >= LATE else x.clone()

    replays_or_says_why(check(make, arguments=arguments))


OUTSIDE = []
writing = collect(OUTSIDE)


@writing("written_outside", "host_effect")
def through_numpy_inside():
    model, optimizer, learn = learner()

    def train(x, y):
        loss = learn(x, y)
        model[0].weight.detach().numpy()[0, 0] = 0.5
        return loss
    return Program(step=train, held=lambda: [model, optimizer])


@writing("written_outside", "host_effect")
def through_an_array_made_before():
    model, optimizer, _ = learner()
    array = model[0].weight.detach().numpy()

    def train(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        array[0, 0] = 0.5
        optimizer.step()
        return loss.detach()
    return Program(step=train, held=lambda: [model, optimizer])


@writing("written_outside", "host_read", "unwritten_read", "host_effect")
def into_a_tensor_of_the_step():
    model, optimizer, learn = learner()

    def train(x, y):
        mask = torch.empty(8, 6)
        mask.numpy()[:] = 0.5
        return learn(x * mask, y)
    return Program(step=train, held=lambda: [model, optimizer])


@pytest.mark.parametrize("make, codes", OUTSIDE)
def test_memory_written_behind_torch_is_refused(make, codes):
    check(make, codes=codes)


def test_an_array_that_the_program_refills_between_calls():
    def make():
        model, optimizer, learn = learner()
        array = np.zeros(6, dtype=np.float32)

        def train(x, y):
            return learn(x + torch.from_numpy(array), y)
        return Program(step=train, array=array, held=lambda: [model, optimizer])

    def refill(program, i):
        program.array[:] = i % 5

    replays_or_says_why(check(make, refill))


def test_an_array_that_is_refilled_only_late():
    def make():
        model, optimizer, learn = learner()
        array = np.zeros(6, dtype=np.float32)

        def train(x, y):
            return learn(x + torch.tensor(array), y)
        return Program(step=train, array=array, held=lambda: [model, optimizer])

    def refill(program, i):
        if i >= LATE:
            program.array[:] = i % 5

    replays_or_says_why(check(make, refill))


BINDINGS = []
binding = collect(BINDINGS)


def updating(update):
    """Forward, backward, `update(model, optimizer)`, and the optimizer's step."""
    model, optimizer, _ = learner()

    def train(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        update(model, optimizer)
        optimizer.step()
        return loss.detach()
    return Program(step=train, held=lambda: [model, optimizer, [
        parameter.requires_grad for parameter in model.parameters()]])


@binding()
def data_multiplied():
    return updating(lambda model, optimizer: model[0].weight.data.mul_(0.99))


@binding()
def descent_by_hand():
    model, _, _ = learner()

    def train(x, y):
        loss = F.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.05)
        return loss.detach()
    return Program(step=train, held=lambda: [model])


@binding("rebound_tensor", "host_effect")
def data_set():
    def update(model, optimizer):
        model[0].weight.data = model[0].weight.data * 0.99
    return updating(update)


@binding()
def gradient_set():
    def update(model, optimizer):
        for parameter in model.parameters():
            parameter.grad = parameter.grad * 0.5
    return updating(update)


@binding()
def gradient_set_through_its_data():
    def update(model, optimizer):
        for parameter in model.parameters():
            parameter.grad.data = parameter.grad.data.sign()
    return updating(update)


@binding()
def gradient_dropped():
    def update(model, optimizer):
        model[0].weight.grad = None
    return updating(update)


@binding()
def gradient_clipped_by_norm():
    def update(model, optimizer):
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    return updating(update)


@binding()
def parameter_frozen_and_thawed():
    model, optimizer, learn = learner()

    def train(x, y):
        model[0].weight.requires_grad_(False)
        loss = learn(x, y)
        model[0].weight.requires_grad_(True)
        return loss
    return Program(step=train, held=lambda: [model, optimizer])


@binding()
def parameter_toggled():
    model, optimizer, learn = learner()

    def train(x, y):
        weight = model[0].weight
        weight.requires_grad_(not weight.requires_grad)
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, model[0].weight.requires_grad])


@binding()
def frozen_in_every_call():
    model, optimizer, learn = learner()

    def train(x, y):
        model[0].weight.requires_grad_(False)
        return learn(x, y)
    return Program(step=train, held=lambda: [model, optimizer, model[0].weight.requires_grad])


@binding("hyperparameter_changed", "host_effect")
def learning_rate_set():
    def update(model, optimizer):
        optimizer.param_groups[0]["lr"] *= 0.99
    return updating(update)


@pytest.mark.parametrize("make, codes", BINDINGS)
def test_parameters_gradients_and_flags_are_set_inside_the_step(make, codes):
    # Those without a code may replay; what a replay leaves is what eager leaves.
    step = check(make, codes=codes or None)
    replays_or_says_why(step)


def test_a_flag_that_the_program_resets_is_set_again():
    def thaw(program, i):
        program.thaw()

    def make():
        program = frozen_in_every_call()
        model = program.held()[0]
        program.thaw = lambda: model[0].weight.requires_grad_(True)
        return program

    replays_or_says_why(check(make, thaw))


def test_an_observed_value_is_seen_in_every_call():
    def make():
        model, optimizer, learn = learner()
        losses = []

        def look(value):
            losses.append(value.item())

        def train(x, y):
            loss = learn(x, y)
            steptape.observe(loss, look)
            return loss
        return Program(step=train, held=lambda: [model, optimizer, losses])

    check(make, share=0.9)


def test_a_temporary_of_the_step_is_observed():
    def make():
        model, optimizer, learn = learner()
        seen = []

        def train(x, y):
            scratch = (x * 2).sum(1)
            steptape.observe(scratch, lambda value: seen.append(value.tolist()))
            return learn(x, y) + scratch.max()
        return Program(step=train, held=lambda: [model, optimizer, seen])

    check(make, share=0.9)


def test_several_observers_are_called_in_the_order_of_the_step():
    def make():
        model, optimizer, learn = learner()
        seen = []

        def train(x, y):
            loss = learn(x, y)
            steptape.observe(loss, lambda value: seen.append(("loss", value.item())))
            steptape.observe(model[0].weight, lambda value: seen.append(("w", value.sum().item())))
            return loss
        return Program(step=train, held=lambda: [model, optimizer, seen])

    check(make, share=0.9)


def test_an_exception_of_an_observer_reaches_the_caller():
    """The assertion stands last in the step, so that the update has been made in both twins."""
    def make():
        model, optimizer, learn = learner()

        def within_bounds(value):
            if value > 100:
                raise FloatingPointError(f"largest value is {value.item()}")

        def train(x, y):
            loss = learn(x, y)
            steptape.observe(x.max(), within_bounds)
            return loss
        return Program(step=train, held=lambda: [model, optimizer])

    def arguments(i):
        x, y = batch(i)
        return (x.index_fill(0, torch.tensor([0]), 101.0), y) if i in (1, LATE) else (x, y)

    check(make, arguments=arguments, share=0.9)


def test_a_refused_step_throws_where_refusals_are_raised():
    torch.manual_seed(0)
    program = python_random()
    step = steptape.wrap(program.step, on_refusal="raise")
    with pytest.raises(steptape.Unsupported) as caught:
        for i in range(STEPS):
            before = twins.bits(program.held())
            step(*batch(i))
    assert twins.bits(program.held()) == before, "the call that throws changes nothing"
    assert "host_random" in str(caught.value)
    assert caught.value.code == "unsupported"
    with pytest.raises(steptape.Unsupported):
        step(*batch(0))
    assert twins.bits(program.held()) == before


def test_a_step_that_throws_leaves_plain_numbers_behind():
    model, optimizer, learn = learner()
    kept = {"rate": None, "rates": []}

    def train(x, y):
        kept["rate"] = optimizer.param_groups[0]["lr"] * 2
        kept["rates"] = [kept["rate"]]
        raise ZeroDivisionError
    step = steptape.wrap(train)
    for i in range(3):
        with pytest.raises(ZeroDivisionError):
            step(*batch(i))
        assert [type(kept["rate"]), type(kept["rates"][0])] == [float, float]
        assert type(optimizer.param_groups[0]["lr"]) is float


class Gate(nn.Module):
    def forward(self, x):
        if round(x.sum().item(), 3) > 0:  # here
            x = x * 2
        return x


def test_a_refusal_says_what_where_and_how_to_mend_it():
    def make():
        model = nn.Sequential(nn.Sequential(Gate(), nn.Linear(6, 8)), nn.Tanh(), nn.Linear(8, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def train(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()
        return Program(step=train, model=model, optimizer=optimizer,
                       held=lambda: [model, optimizer])

    # The sum is positive in every call: the ops are the same, and the read alone is to blame.
    step = check(make, arguments=signed_batch(lambda i: True), codes={"host_read"})
    refusal = next(r for r in step.stats["refusals"] if r["code"] == "host_read")
    assert set(refusal) >= {"code", "reason", "op", "module", "file", "line", "remedy", "times"}
    assert refusal["op"].startswith("aten::")
    assert refusal["module"] == "model.0.0"
    assert refusal["file"] == __file__
    assert {refusal["line"]} == marked_lines(Gate)
    assert refusal["reason"] and refusal["remedy"]
    assert isinstance(refusal["times"], int) and refusal["times"] >= 1
    text = step.explain()
    for part in ("host_read", refusal["reason"], refusal["remedy"], "model.0.0",
                 f"host_effects_test.py:{refusal['line']}", "if round(x.sum().item(), 3) > 0:"):
        assert part in text, part


def test_a_refusal_says_which_state_changed_and_how():
    step = check(attribute_of_a_configuration_counted, codes={"host_effect"})
    reason = next(r["reason"] for r in step.stats["refusals"] if r["code"] == "host_effect")
    assert "steps" in reason
    assert "→" in reason or "->" in reason, reason


def test_counts_and_reasons_add_up():
    step = check(constant_appended, codes={"host_effect"})
    stats = step.stats
    outcomes = ("recorded", "trials", "replayed", "eager", "audits")
    assert stats["steps"] == STEPS == sum(stats[outcome] for outcome in outcomes)
    assert stats["replayed"] == 0
    assert stats["trace_problem"] == ""
    assert str(STEPS) in step.explain()

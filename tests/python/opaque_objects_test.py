"""Objects whose content lies with code of C's (mapped memory, arrays of ctypes, trees of elements, storages), and what code of C's asks
the system for: a step that reads one is refused with its line, and where a guard can ask again, it does.
"""
import copy
import ctypes
import functools
import importlib
import mmap
import os
import sqlite3
import struct
import threading
import types
import xml.etree.ElementTree as tree

import numpy as np
import pytest
import torch

import steptape
import twins
from twins import is_refused, replays_as_a_rule

CALLS, CHANGE = 20, 12
CASES = []


def add(name, read, make, change, code="host_effect"):
    CASES.append(pytest.param(read, make, change, code, id=name))


def mapped():
    memory = mmap.mmap(-1, 16)
    memory[:8] = struct.pack("d", 2.)
    return memory


def remapped(memory):
    memory[:8] = struct.pack("d", 5.)


for _name, _read in {
    "unpacked": lambda m: struct.unpack_from("d", m)[0],
    "unpacked by an object": lambda m: struct.Struct("d").unpack_from(m)[0],
    "as an array": lambda m: float(np.frombuffer(m, dtype="f8")[0]),
    "as a view": lambda m: memoryview(m)[6],
    "joined": lambda m: b"".join([m])[6],
    "as bytes": lambda m: bytes(m)[6],
}.items():
    add(f"mapped memory {_name}", _read, mapped, remapped)

for _name, _read in {
    "added up": sum,
    "in a list": lambda a: list(a)[1],
    "compared": max,
    "gone over": lambda a: [v for v in a][1],
    "spread": lambda a: [*a][1],
    "given on": lambda a: (lambda p, q, r: q)(*a),
    "zipped": lambda a: [v for _, v in zip(range(3), a)][1],
    "mapped": lambda a: list(map(float, a))[1],
    "asked": lambda a: 2. if 9. in a else 3.,
    "as an array": lambda a: float(np.ctypeslib.as_array(a)[1]),
}.items():
    add(f"ctypes {_name}", _read, lambda: (ctypes.c_double * 3)(1., 2., 3.), lambda a: a.__setitem__(1, 9.))


def elements():
    root = tree.Element("r")
    for value in (2., 3.):
        tree.SubElement(root, "c").text = str(value)
    return root


for _name, _read in {
    "gone over": lambda r: sum([float(c.text) for c in r]),
    "spread": lambda r: (lambda first, *others: float(others[0].text))(*r),
    "sized": lambda r: [float(c.text) for c in r][-1] * len(r),
}.items():
    add(f"elements {_name}", _read, elements, lambda r: setattr(r[1], "text", "7"))


class Holder:
    pass


def interface():
    held = Holder()
    held.array = np.array([2.])
    held.__array_interface__ = held.array.__array_interface__
    return held


add("an attribute that NumPy reads", lambda o: float(np.asarray(o)[0]), interface, lambda o: o.array.__setitem__(0, 7.))
add("a dict of TorchScript", lambda d: d["lr"], lambda: torch.jit.script({"lr": 2.}), lambda d: d.__setitem__("lr", 5.))
add("keys of TorchScript", lambda d: len(list(d.keys())), lambda: torch.jit.script({"lr": 2.}), lambda d: d.__setitem__("b", 5.))
add("a list of TorchScript", lambda d: d[0] + sum(v for v in d), lambda: torch.jit.script([2., 3.]), lambda d: d.append(5.))
add("a future", lambda f: f.value() if f.done() else 2., torch.futures.Future, lambda f: f.set_result(5.))
add("the size of a storage", lambda s: s.size(), lambda: torch.zeros(8).untyped_storage(), lambda s: s.resize_(64))
add("the length of a storage", len, lambda: torch.zeros(8).untyped_storage(), lambda s: s.resize_(64))
add("the state of NumPy's generator", lambda _: float(np.random.get_state()[1][0] % 7), lambda: np.random.seed(3),
    lambda _: np.random.seed(10), "host_random")

for _name, _read in {
    "an item": lambda g: float(g.get_state()[0]),
    "added up": lambda g: g.get_state().sum() % 7,
    "asked for by the class": lambda g: torch.Generator.get_state(g).sum() % 7,
    "of torch's": lambda g: torch.get_rng_state().sum() % 7,
    "of the module's": lambda g: torch.random.get_rng_state().float().mean(),
    "of the default one": lambda g: torch.default_generator.get_state()[:8].sum(),
    "compared": lambda g: 2. if torch.equal(torch.get_rng_state(), torch.get_rng_state()) else 3.,
    "copied": lambda g: torch.get_rng_state().clone().sum() % 7,
    "put together": lambda g: torch.cat([torch.get_rng_state(), g.get_state()]).sum() % 7,
}.items():
    add(f"the state of a generator {_name}", _read, lambda: torch.manual_seed(3) and torch.Generator().manual_seed(3),
        lambda g: (g.manual_seed(9), torch.manual_seed(9)), "host_tensor_varies")


def filed(path):
    np.full(2, 2., "f4").tofile(path)
    return path


def stored(path):
    with sqlite3.connect(path) as base:
        base.execute("create table t (a)")
        base.execute("insert into t values (2)")
    return path


def stored_again(path):
    with sqlite3.connect(path) as base:
        base.execute("update t set a = 5")


def play(read, held, change, wrap):
    step = wrap(lambda x: x * read(held))
    seen = []
    for i in range(CALLS):
        if i == CHANGE:
            change(held)
        seen.append(step(torch.ones(2)).tolist())
    return seen, step


def check(read, make, change, code):
    expected, _ = play(read, make(), change, lambda step: step)
    seen, step = play(read, make(), change, lambda step: steptape.wrap(step, verify={"first": True, "rate": 0.0}))
    assert seen == expected, step.explain()
    if code is None:
        replays_as_a_rule(step)
    else:
        is_refused(step, {code})
    return step


@pytest.mark.parametrize("read, make, change, code", CASES)
def test_what_cannot_be_compared_is_refused(read, make, change, code):
    check(read, make, change, code)


@pytest.mark.parametrize("keep", ["returned", "left"])
def test_the_state_of_a_generator_that_leaves_the_step(keep):
    held = types.SimpleNamespace(state=None)

    def train(x):
        if keep == "returned":
            return torch.get_rng_state()
        held.state = torch.get_rng_state()
        return x * 2

    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    for i in range(CALLS):
        torch.manual_seed(i // 12)
        found = step(torch.ones(2))
        assert torch.equal(found if keep == "returned" else held.state, torch.get_rng_state())
    is_refused(step, {"host_tensor_varies"})
    assert "state of a random generator" in step.stats["refusals"][0]["reason"]


def test_the_state_of_a_generator_may_be_set_again():
    def play(wrap):
        torch.manual_seed(0)
        own = torch.Generator().manual_seed(1)

        def train(x):
            mine, torchs = own.get_state(), torch.get_rng_state()
            first = torch.rand(2, generator=own) + torch.rand(2)
            own.set_state(mine)
            torch.set_rng_state(torchs)
            with torch.random.fork_rng(devices=[]):
                first = first + torch.rand(2)
            return x + first + torch.rand(2, generator=own) + torch.rand(2)

        step = wrap(train)
        seen = []
        for i in range(CALLS):
            if i == CHANGE:
                own.manual_seed(7)
                torch.manual_seed(7)
            seen.append(step(torch.ones(2)).tolist())
        return seen, own.get_state().tolist(), torch.get_rng_state().tolist(), step

    replays_as_a_rule(twins.played_alike(play))


# what sets a generator by value, in each call to the state in which the next one finds it
SEEDS = {
    "seeded": lambda held: torch.manual_seed(2),
    "seeded by itself": lambda held: held.own.manual_seed(2),
    "seeded by its class": lambda held: torch.Generator.manual_seed(held.own, 2),
    "seeded by a method that was kept": lambda held: held.seed(2),
    "seeded by a partial": lambda held: functools.partial(torch.manual_seed, 2)(),
    "seeded by a number of the program's": lambda held: torch.random.manual_seed(held.number),
    "set": lambda held: torch.set_rng_state(held.states[0]),
    "set by itself": lambda held: held.own.set_state(held.states[1]),
    "set to the state of another": lambda held: held.own.set_state(held.other.get_state()),
    "set to the state of torch's": lambda held: held.own.set_state(torch.get_rng_state()),
    "set to a copy": lambda held: held.own.set_state(held.states[1].clone()),
    "seeded now and then": lambda held: torch.manual_seed(2) if held.number % 3 == 2 or held.number < 5 else None,
    "seeded and forked": lambda held: [torch.manual_seed(2) for _ in [torch.random.fork_rng(devices=[]).__enter__()]],
}


@pytest.mark.parametrize("draws", (True, False), ids=("drawn_from", "not_drawn_from"))
@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_a_generator_that_the_step_sets_by_value_is_refused(seed, draws):
    def play(wrap):
        torch.manual_seed(2)
        held = types.SimpleNamespace(own=torch.Generator().manual_seed(2), other=torch.Generator().manual_seed(2), number=2)
        held.states, held.seed = (torch.get_rng_state(), held.own.get_state()), held.own.manual_seed

        def train(x):
            noise = torch.rand(2) + torch.rand(2, generator=held.own) if draws else 1.0
            seed(held)
            return x * noise

        step = wrap(train)
        seen = []
        for i in range(CALLS):
            if i == CHANGE:
                torch.rand(1), torch.rand(1, generator=held.own)
            held.number += seed is SEEDS["seeded now and then"]
            seen.append((step(torch.ones(2)).tolist(), held.own.get_state().tolist(), torch.get_rng_state().tolist()))
        return seen, step

    twins.is_refused(twins.played_alike(play), {"generator_seek"})


class Trainer:
    pass


@pytest.mark.parametrize("kind", [Trainer, types.SimpleNamespace])
@pytest.mark.parametrize("inside", [False, True], ids=["itself", "in a dict"])
def test_a_trainer_that_is_given_and_keeps_its_best_weights(kind, inside):
    def play(wrap):
        torch.manual_seed(0)
        trainer = kind()
        trainer.model, trainer.scale, trainer.best = torch.nn.Linear(3, 2), 1.0, None
        trainer.optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.1)

        def train(given, x):
            of = given["trainer"] if inside else given
            of.optimizer.zero_grad()
            loss = of.model(x).square().sum() * of.scale
            loss.backward()
            of.optimizer.step()
            return loss.detach()

        step = wrap(train)
        seen = []
        for i in range(40):
            if i % 5 == 4:
                trainer.best = copy.deepcopy(trainer.model.state_dict())
            if i == 25:
                trainer.scale = 0.5
            seen.append(step({"trainer": trainer} if inside else trainer, torch.ones(2, 3)).item())
        return seen, step

    step = twins.played_alike(play)
    assert step.stats["replayed"] >= 20, step.explain()


@pytest.mark.parametrize("block", [1, 3, 10])
@pytest.mark.parametrize("writes", ["nothing", "in place", "another"])
def test_trainers_that_are_given_in_turn(writes, block):
    """What cannot be compared is left to them, and each is known by which it is."""
    def play(wrap):
        trainers = [types.SimpleNamespace(mask=torch.full((3,), k), h=torch.zeros(3), lock=threading.Lock(), k=1.0) for k in (1.0, 2.0)]

        def train(trainer, x):
            if writes == "in place":
                trainer.h.mul_(0.5).add_(x)
            elif writes == "another":
                trainer.h = trainer.h * 0.5 + x
            return x * trainer.mask * trainer.k + trainer.h

        step, seen = wrap(train), []
        for i in range(80):
            if i == 50:
                trainers[0].k = 2.0
            if i == 60:
                trainers[1].mask = torch.full((3,), 9.0)
            seen.append(step(trainers[i // block % 2], torch.full((3,), float(i))).tolist())
        return seen, [trainer.h.tolist() for trainer in trainers], step

    assert twins.played_alike(play).stats["replayed"] >= 30


def test_files_and_data_bases_that_code_of_c_opens(tmp_path):
    step = check(lambda path: float(np.fromfile(path, "f4")[0]), lambda: filed(tmp_path / "numbers"),
                 lambda path: np.full(2, 5., "f4").tofile(path), "host_effect")
    assert "open" in step.explain()
    bases = iter((tmp_path / "first", tmp_path / "second"))
    step = check(lambda path: sqlite3.connect(path).execute("select a from t").fetchone()[0], lambda: stored(next(bases)),
                 stored_again, "host_effect")
    assert "sqlite3" in step.explain()


def test_a_file_that_the_step_writes_through_numpy(tmp_path):
    path, numbers = tmp_path / "log", np.arange(2.)
    step = steptape.wrap(lambda x: (numbers.tofile(path), x * 2)[1])
    for _ in range(CALLS):
        step(torch.ones(2))
        path.unlink()
    is_refused(step, {"host_effect"})


def test_whether_a_tensor_retains_its_gradient_is_guarded():
    check(lambda y: 2. if y.retains_grad else 3., lambda: torch.ones(2, requires_grad=True) * 2, lambda y: y.retain_grad(), None)


WHO_RUNS = {
    "ident": lambda main: threading.get_ident() == main.ident,
    "native": lambda main: threading.get_native_id() == main.native_id,
    "name": lambda main: threading.current_thread().name == main.name,
    "object": lambda main: threading.current_thread() is main,
}


@pytest.mark.parametrize("asks", WHO_RUNS.values(), ids=WHO_RUNS)
def test_a_step_that_asks_for_its_thread_knows_it_in_each_call(asks):
    main = threading.current_thread()
    step = steptape.wrap(lambda x: x * (2 if asks(main) else 3), verify={"first": True, "rate": 0.0})
    seen = []

    def run(calls):
        seen.extend(step(torch.ones(1)).item() for _ in range(calls))

    run(10)
    other = threading.Thread(target=run, args=(10,))
    other.start()
    other.join()
    run(5)
    assert seen == [2.] * 10 + [3.] * 10 + [2.] * 5, step.explain()
    assert step.stats["replayed"] >= 12, step.explain()


def test_a_step_that_asks_for_its_process_knows_that_it_was_forked():
    main = os.getpid()
    step = steptape.wrap(lambda x: x * (2 if os.getpid() == main else 3), verify={"first": True, "rate": 0.0})
    for _ in range(10):
        assert step(torch.ones(1)).item() == 2
    assert step.stats["replayed"] > 0, step.explain()
    child = os.fork()
    if child == 0:
        is_right = False
        try:
            is_right = all(step(torch.ones(1)).item() == 3 for _ in range(10))
        finally:
            os._exit(0 if is_right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert step(torch.ones(1)).item() == 2


def test_a_pixel_that_code_of_c_reads_by_a_bound_method():
    images = pytest.importorskip("PIL.Image")
    check(lambda im: sum(map(im.getpixel, [(0, 0), (1, 1)])), lambda: images.new("L", (2, 2), 3).im,
          lambda im: im.putpixel((0, 0), 9), "host_effect")


def test_files_that_torch_writes_and_reads(tmp_path):
    path = tmp_path / "numbers"

    def saved():
        torch.save({"lr": 2.}, path)
        return path

    check(lambda path: torch.load(path)["lr"], saved, lambda path: torch.save({"lr": 5.}, path), "host_effect")
    step = steptape.wrap(lambda x: (torch.save({"epoch": 3}, path), x * 2)[1])
    for _ in range(CALLS):
        step(torch.ones(2))
        path.unlink()
    is_refused(step, {"host_effect"})


def test_tuples_that_are_nested_without_end():
    """Not by recursion: the stack of the process ends."""
    chain = 1.
    for _ in range(60_000):
        chain = (chain,)
    check(lambda held: len(held.chain), lambda: types.SimpleNamespace(chain=chain),
          lambda held: setattr(held, "chain", (held.chain, 1)), None)
    held = types.SimpleNamespace(losses=chain)

    def keep(x):
        held.losses = (x.sum().item(), held.losses)
        return x * 2

    step = steptape.wrap(keep)
    for i in range(6):
        step(torch.full((2,), float(i)))
    assert held.losses[0] == 10 and held.losses[1][1][0] == 6


def test_an_object_that_a_module_of_torchs_holds_or_not(monkeypatch):
    """As in a worker of a DataLoader and outside."""
    worker = importlib.import_module("torch.utils.data._utils.worker")
    step = steptape.wrap(lambda x: x * (3 if torch.utils.data.get_worker_info() is None else 2), verify={"first": True, "rate": 0.0})
    seen = []
    for info in (types.SimpleNamespace(id=0), None, types.SimpleNamespace(id=1)):
        monkeypatch.setattr(worker, "_worker_info", info)
        seen.append([step(torch.ones(1)).item() for _ in range(10)])
    assert seen == [[2.] * 10, [3.] * 10, [2.] * 10], step.explain()
    assert step.stats["replayed"] >= 12, step.explain()


class Event:
    """What an engine's handlers are kept under."""


class Engine:
    """Loops as those of ignite's do: it gives itself to the step, and holds it."""

    def __init__(self, process):
        self.process, self.state = process, types.SimpleNamespace(epoch=1, iteration=0, output=None, metrics={})
        self.handlers = {Event(): [(self.count, (), {})], Event(): [(self.average, (), {})]}

    def count(self):
        self.state.iteration += 1

    def average(self):
        self.state.metrics["loss"] = 0.9 * self.state.metrics.get("loss", 0.0) + 0.1 * self.state.output

    def run(self, batches, epochs):
        for self.state.epoch in range(1, epochs + 1):
            for x in batches:
                self.state.output = self.process(self, x)
                for handler, args, named in [each for kept in self.handlers.values() for each in kept]:
                    handler(*args, **named)


def test_an_engine_gives_itself_to_the_step_that_it_holds():
    def play(wrap):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        optimizer = torch.optim.Adam(net.parameters(), 0.01)

        def update(engine, x):
            optimizer.zero_grad()
            loss = net(x).pow(2).mean() * (1 + engine.state.epoch)
            loss.backward()
            optimizer.step()
            return loss.item()

        step = wrap(update)
        engine, seen = Engine(step), []
        engine.handlers[Event()] = [(lambda: seen.append(repr(vars(engine.state))), (), {})]
        engine.run([torch.randn(4, 3) for _ in range(10)], 4)
        return [seen, twins.bits(net), step]

    replays_as_a_rule(twins.played_alike(play))

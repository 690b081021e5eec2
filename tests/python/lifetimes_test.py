"""Steps, models and results are freed with their last reference; copies of them stand alone."""
import copy
import gc
import pathlib
import pickle
import resource
import threading
import types
import weakref

import pytest
import torch

import steptape
import twins
from classification import LATE, STEPS, batch, classifier, small_model
from twins import bits


def doubled(x):
    return x * 2


@steptape.wrap
def decorated(x):
    return x * 3


class Trainer:
    """Holds the step that was made of its method; with what torch trains."""
    def __init__(self):
        self.model = small_model()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.step = self.step_of()

    def step_of(self):
        return steptape.wrap(self.train, model=self.model, optimizer=self.optimizer, verify={"first": True, "rate": 0.0}, name="train")

    def train(self, x, y):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Eager(Trainer):
    def step_of(self):
        return self.train


class Scaled:
    """Called as a function is, with state of its own."""
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x):
        return x * self.scale


COPIES = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda value: pickle.loads(pickle.dumps(value))}


@pytest.mark.parametrize("make_copy", COPIES.values(), ids=COPIES)
def test_a_copy_of_a_step_of_a_function_calls_that(make_copy):
    step = steptape.wrap(doubled)
    for i in range(12):
        step(batch(i)[0])
    other = make_copy(step)
    assert (other is step) == (make_copy is not COPIES["pickle"])
    before = other.stats["replayed"]
    for i in range(12):
        assert bits(other(batch(i)[0])) == bits(batch(i)[0] * 2)
    assert other.stats["replayed"] > before
    assert make_copy(decorated) is decorated
    assert make_copy({"step": step, "again": step})["step"].name == "doubled"


@pytest.mark.parametrize("make_copy", [COPIES["deepcopy"], COPIES["pickle"]], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("whole", [True, False], ids=["the object", "its step"])
def test_an_object_is_copied_with_the_step_of_its_method(make_copy, whole):
    def play(make):
        torch.manual_seed(0)
        first = make()
        seen = [first.step(*batch(i)) for i in range(LATE)]
        second = make_copy(first) if whole else make_copy(first.step).__self__ if make is Eager else make_copy(first.step).__wrapped__.__self__
        assert second.model is not first.model
        for i in range(LATE, LATE + 20):
            seen += [second.step(*batch(i)), first.step(*batch(i + 1))]
        return first, second, bits([seen, first.model, second.model, first.optimizer, second.optimizer])

    _, _, expected = play(Eager)
    first, second, found = play(Trainer)
    assert twins.first_difference(expected, found) is None
    assert first.step is not second.step and second.step.__wrapped__.__self__ is second
    for trainer in (first, second):
        assert trainer.step.stats["replayed"] > 10, trainer.step.explain()
    assert "wrapped" not in second.step.explain().partition("note:")[2]


def as_arguments(make, train):
    return make(train)


def in_closure(make, train):
    held = {}
    step = make(lambda x, y: train(held["model"], held["optimizer"], x, y))

    def call(model, optimizer, x, y):
        held.update(model=model, optimizer=optimizer)
        return step(x, y)
    return call, step


def as_attributes(make, train):
    held = types.SimpleNamespace()
    step = make(lambda held, x, y: train(held.model, held.optimizer, x, y))

    def call(model, optimizer, x, y):
        held.model, held.optimizer = model, optimizer
        return step(held, x, y)
    return call, step


@pytest.mark.parametrize("reach", [as_arguments, in_closure, as_attributes])
def test_models_that_are_trained_one_after_the_other_are_let_go_of(reach):
    def train(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def play(make):
        torch.manual_seed(0)
        made = reach(make, train)
        call, step = made if isinstance(made, tuple) else (made, made)
        models, optimizers, seen = [], [], []
        for _ in range(10):
            model = small_model()
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            models.append(weakref.ref(model))
            optimizers.append(weakref.ref(optimizer))
            seen += [call(model, optimizer, *batch(i)) for i in range(15)]
            seen.append([parameter.detach().clone() for parameter in model.parameters()])
        alive = [sum(held() is not None for held in all_of) for all_of in (models, optimizers)]
        return bits(seen), alive, step

    expected, _, _ = play(lambda function: function)
    found, alive, step = play(lambda function: steptape.wrap(function, verify={"first": True, "rate": 0.0}))
    assert found == expected
    assert step.stats["replayed"] >= 100, step.explain()
    assert max(alive) <= 2  # the newest, and the one before it


def test_what_the_program_lets_go_of_goes_after_invalidate():
    held = {"model": small_model(), "x": batch(0)[0]}
    step = steptape.wrap(lambda: held["model"](held["x"]).detach() if held["model"] else held["x"] + 1)
    for _ in range(12):
        step()
    assert step.stats["replayed"] > 0, step.explain()
    model = weakref.ref(held["model"])
    held["model"] = None
    step.invalidate("without a model")
    step()
    assert model() is None


@pytest.mark.parametrize("way", ["as an argument", "in a lambda"])
def test_another_module_in_each_call_is_refused_and_not_recorded_for_ever(way):
    model = small_model()

    def train(x, y, loss):
        return loss(model(x), y).detach()

    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    modules = []
    for i in range(150):
        module = torch.nn.CrossEntropyLoss()
        modules.append(weakref.ref(module))
        x, y = batch(i)
        found = step(x, y, module if way == "as an argument" else lambda a, b, module=module: module(a, b))
        assert bits(found) == bits(module(model(x), y).detach())
    del module, found
    gc.collect()
    stats = step.stats
    assert stats["recorded"] < 50 and stats["replayed"] == 0
    assert any("another module" in refusal["reason"] and "make it once" in refusal["remedy"] for refusal in stats["refusals"])
    assert sum(held() is not None for held in modules) < 40
    for i in range(1500):  # one that stays replays, after a pause of 1,000 calls
        step(*batch(i), torch.nn.functional.cross_entropy)
    assert step.stats["replayed"] > 300, step.explain()


def test_a_lambda_that_is_made_anew_in_each_call_is_named():
    step = steptape.wrap(lambda x, f: f(x).sum(), verify={"first": True, "rate": 0.0})
    for i in range(80):
        step(batch(i)[0], lambda x: x * 2)
    assert step.stats["recorded"] < 80
    refusal, = step.stats["refusals"]
    assert "the arguments became others" in refusal["reason"] and '"' not in refusal["reason"]
    assert "a lambda that is made anew" in refusal["remedy"]


def test_the_average_of_a_model_that_has_its_step_is_made():
    torch.manual_seed(0)
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(self, x, y):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    model.train_step = steptape.wrap(types.MethodType(train, model))
    averaged = torch.optim.swa_utils.AveragedModel(model)
    for i in range(LATE):
        model.train_step(*batch(i))
        averaged.update_parameters(model)
    assert model.train_step.stats["replayed"] > 0, model.train_step.explain()
    assert averaged.module.train_step.__wrapped__.__self__ is averaged.module


def test_a_callable_object_is_copied_with_its_state():
    step = steptape.wrap(Scaled(2.0), name="scaled")
    other = copy.deepcopy(step)
    other.__wrapped__.scale = 5.0
    for i in range(12):
        assert bits([step(batch(i)[0]), other(batch(i)[0])]) == bits([batch(i)[0] * 2, batch(i)[0] * 5])


def test_a_model_that_a_step_was_made_for_can_be_copied_and_pickled():
    train, model, optimizer = classifier()
    step = steptape.wrap(train)
    for i in range(LATE):
        step(*batch(i))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twins.first_difference(bits(other.state_dict()), bits(model.state_dict())) is None
    assert bits(copy.deepcopy(optimizer).state_dict()) == bits(optimizer.state_dict())


def test_a_step_dies_with_its_model():
    torch.manual_seed(0)

    def lives():
        train, model, optimizer = classifier()
        step = steptape.wrap(train)
        for i in range(LATE):
            step(*batch(i))
        return [weakref.ref(thing) for thing in (model, optimizer, model[0].weight, step)]

    references = lives()
    gc.collect()
    assert [reference() for reference in references] == [None] * 4


def test_a_step_that_was_refused_dies_with_its_model():
    def lives():
        model = small_model()
        step = steptape.wrap(lambda x: model(x))
        for i in range(12):
            step(batch(i)[0])
        return weakref.ref(model)

    reference = lives()
    gc.collect()
    assert reference() is None


def test_results_of_replays_are_freed():
    train, _, _ = classifier()
    step = steptape.wrap(train)
    kept = [step(*batch(i)) for i in range(STEPS)]
    values = bits(kept)
    references = [weakref.ref(result) for result in kept]
    for i in range(STEPS):
        step(*batch(i))
    assert bits(kept) == values, "a later call leaves kept results alone"
    kept.clear()
    gc.collect()
    assert all(reference() is None for reference in references)


FROM = {
    "the step itself": lambda invalidate: invalidate(),
    "a thread": lambda invalidate: [thread.start() or thread.join() for thread in [threading.Thread(target=invalidate)]],
    "before an exception": lambda invalidate: (invalidate(), 1 / 0),
}


@pytest.mark.parametrize("at", (1, 2, 3, 4, 8))
@pytest.mark.parametrize("way", FROM)
def test_a_step_is_invalidated_while_it_is_under_way(way, at):
    """The call ends as it would, and the step is recorded anew."""
    def made(invalidate):
        torch.manual_seed(0)
        model = torch.nn.Linear(6, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def train(x, call):
            loss = model(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            if call == at:
                FROM[way](invalidate)
            optimizer.step()
            return loss.detach()
        return train

    def outcome(function, call):
        try:
            return bits(function(torch.full((4, 6), 1 / call), call))
        except ZeroDivisionError:
            return "raised"

    step = steptape.wrap(made(lambda: step.invalidate("because")), verify={"first": True, "rate": 0.0})
    eager = made(lambda: None)
    for call in range(1, 21):
        assert outcome(step, call) == outcome(eager, call), call
    assert step.stats["replayed"] > 5, step.explain()


def test_plans_that_are_dropped_and_made_again_take_no_more_memory():
    train, _, _ = classifier()
    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})

    def resident_bytes():
        gc.collect()
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    def make_again(times):
        for _ in range(times):
            for i in range(6):
                step(*batch(i))
            step.invalidate("made again")

    make_again(30)
    before, replayed = resident_bytes(), step.stats["replayed"]
    make_again(100)
    assert step.stats["replayed"] >= replayed + 100, step.explain()
    assert resident_bytes() - before < 8 << 20

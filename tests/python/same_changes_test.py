"""A change of host state that is the same in every call is done again, whatever the program does to it."""
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from classification import LATE, Program, batch, check, collect, learner
import steptape
from twins import codes_of, replays_as_a_rule

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
    replays_as_a_rule(step)


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

    replays_as_a_rule(check(make, arguments=arguments))


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

    replays_as_a_rule(check(make))


def test_a_tensor_that_is_carried_in_place():
    def make():
        model, optimizer, learn = learner()
        average = torch.zeros(6)

        def train(x, y):
            average.mul_(0.9).add_(x.mean(0), alpha=0.1)
            return learn(x - average, y)
        return Program(step=train, held=lambda: [model, optimizer, average])

    replays_as_a_rule(check(make))


def limited_item(given):
    given["a"] = max(given["a"], 15.0)


def limited_by_update(given):
    given.update(a=max(given["a"], 15.0))


def swapped_items(given):
    given["b"], given["a"] = given["a"], given["b"]


def limited_inside(given):
    given["l"][0] = max(given["l"][0], 15.0)


def limited_in_a_new_tuple(given):
    given["t"] = (max(given["t"][0], 15.0), 1)


def limited_in_a_new_list(given):
    given["l"] = [max(given["l"][0], 15.0), given["l"][1]]


def limited_in_a_new_dict(given):
    given["d"] = {**given["d"], "k": max(given["d"]["k"], 15.0)}


def another_list(given):
    given["l"] = list(given["l"])


def same_constant(given):
    given["c"] = 2.0


def same_objects(given):
    given["a"], given["l"][0] = given["a"], given["l"][0]


@pytest.mark.parametrize("change", [limited_item, limited_by_update, swapped_items, limited_inside, same_constant, limited_in_a_new_tuple,
                                    limited_in_a_new_list, limited_in_a_new_dict, another_list],
                         ids=lambda change: change.__name__)
def test_a_number_that_is_put_where_an_equal_one_stood_in_what_is_given_is_a_change(change):
    step, seen = put_in_what_is_given(change)
    assert codes_of(step) == {"host_effect"}, step.explain()
    assert seen == put_in_what_is_given(change, is_wrapped=False)[1]


def test_an_object_that_is_put_where_it_stood_in_what_is_given_is_no_change():
    step, seen = put_in_what_is_given(same_objects)
    assert step.stats["replayed"] > 20, step.explain()
    assert seen == put_in_what_is_given(same_objects, is_wrapped=False)[1]


def put_in_what_is_given(change, is_wrapped=True):
    """What a step leaves in its argument, whose numbers move: down to 15 it leaves them as they are."""
    def step(x, given):
        change(given)
        return x * 2

    wrapped = steptape.wrap(step, verify={"first": True, "rate": 0.0}) if is_wrapped else step
    seen = []
    for i in range(40):
        moving = 40.0 - i
        given = {"a": moving, "b": moving if i < 30 else 1.0, "c": 2.0 if i < 30 else 3.0, "l": [moving, 3.0 if i < 30 else 90.0],
                 "t": (moving, 1), "d": {"k": moving}}
        kept = given["l"]
        wrapped(torch.ones(2), given)
        seen.append([given, kept is given["l"]])
    return wrapped, seen

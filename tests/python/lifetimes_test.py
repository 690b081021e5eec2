"""Steps, models and results are freed with their last reference; copies of them stand alone."""
import copy
import gc
import pickle
import threading
import weakref

import pytest
import torch

import steptape
import twins
from classification import batch, classifier, small_model
from misuse import LATE, STEPS
from twins import bits


def doubled(x):
    return x * 2


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda step: pickle.loads(pickle.dumps(step)),
}


@pytest.mark.parametrize("make_copy", COPIES.values(), ids=COPIES)
def test_a_step_is_copied(make_copy):
    """A fresh step that works, or an error that says why there is none."""
    step = steptape.wrap(doubled)
    for i in range(12):
        step(batch(i)[0])
    try:
        other = make_copy(step)
    except (steptape.Error, TypeError) as error:
        assert "step" in str(error)
    else:
        for i in range(12):
            assert bits(other(batch(i)[0])) == bits(batch(i)[0] * 2)
    assert bits(step(batch(0)[0])) == bits(batch(0)[0] * 2)


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

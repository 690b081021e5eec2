"""Exceptions and interrupts, at any place and time: they pass through and leave what the eager step leaves."""
import signal
import types

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import steptape
import twins
from classification import LATE, STEPS, Training, batch, classifier
from twins import bits, compare, compare_through, has_replayed, is_refused

SITES = ["forward_pre", "forward", "gradient", "accumulated", "optimizer_pre", "optimizer_post",
         "end"]


def interrupted(kind):
    """A step that throws `kind` at the site that `fuse` names, and twins that report it."""
    def make():
        train, model, optimizer = classifier()
        fuse = types.SimpleNamespace(site=None)

        def at(site):
            def maybe(*_):
                if fuse.site == site:
                    raise kind(site)
            return maybe
        model[2].register_forward_pre_hook(at("forward_pre"))
        model[0].register_forward_hook(at("forward"))
        model[2].weight.register_hook(at("gradient"))
        model[0].weight.register_post_accumulate_grad_hook(at("accumulated"))
        optimizer.register_step_pre_hook(at("optimizer_pre"))
        optimizer.register_step_post_hook(at("optimizer_post"))

        def step(x, y):
            loss = train(x, y)
            at("end")()
            return loss

        def arguments(i):
            fuse.site = sites_by_call.get(i)
            return batch(i)
        return Training(step, (model, optimizer), arguments)

    calls = [1, 3, 4, 6, 8, 12, 18]
    sites_by_call = dict(zip(calls, SITES))
    return make, sites_by_call


def reporting(step):
    """The exception of a call becomes its result, so that twins can be compared."""
    def call(*args):
        try:
            return step(*args)
        except BaseException as error:
            if isinstance(error, (steptape.Error, AssertionError)):
                raise
            return [type(error).__name__, str(error)]
    return call


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ValueError, StopIteration])
def test_a_step_is_interrupted_at_any_place_and_time(kind):
    """Raised in forward, backward, optimizer: what is left is what the eager step leaves."""
    make, _ = interrupted(kind)
    step = compare_through(make, reporting, steps=56)
    has_replayed(step)


@pytest.mark.parametrize("first", range(len(SITES)))
def test_the_first_calls_of_a_step_are_interrupted(first):
    """Warm-up, probe and trial, each at another site."""
    make, sites = interrupted(KeyboardInterrupt)
    sites.clear()
    sites.update({i: SITES[(first + i) % len(SITES)] for i in (0, 2, 3, 5, 7)})
    step = compare_through(make, reporting, steps=40)
    has_replayed(step)


def whole_steps(count):
    """The bits of parameters and state after 0, 1, … whole steps on one batch."""
    torch.manual_seed(0)
    train, model, optimizer = classifier()
    states = []
    for _ in range(count + 1):
        states.append(bits([model.state_dict(), optimizer.state_dict()]))
        train(*batch(0))
    return states


def test_a_replay_is_interrupted_by_a_signal():
    """What an interrupt leaves is the state after a whole step or before it."""
    attempts = 200
    states = whole_steps(LATE + attempts + 1)
    torch.manual_seed(0)
    train, model, optimizer = classifier()
    # Without audits: an eager step that is interrupted leaves half a step, as eager does.
    step = steptape.wrap(train, verify={"first": True, "rate": 0.0})
    x, y = batch(0)
    for _ in range(LATE):
        step(x, y)
    has_replayed(step)
    inside = False

    def interrupt(signum, frame):
        if inside:
            raise KeyboardInterrupt

    def state():
        return bits([model.state_dict(), optimizer.state_dict()])

    done, interrupts = LATE, 0
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        for n in range(attempts):
            try:
                inside = True
                signal.setitimer(signal.ITIMER_REAL, 2e-6 * (1 + n))
                step(x, y)
                inside = False
            except KeyboardInterrupt:
                inside = False
                interrupts += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert state() in states[done : done + 2], f"half a step in attempt {n}"
            done += state() == states[done + 1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert interrupts > 0
    step(x, y)
    assert state() == states[done + 1]


def test_an_exception_of_the_step_passes_through_as_it_is():
    class Stop(Exception):
        pass

    thrown = Stop("enough")
    state = types.SimpleNamespace(throw=False)
    train, _, _ = classifier()

    def throws(x, y):
        loss = train(x, y)
        if state.throw:
            raise thrown
        return loss

    step = steptape.wrap(throws)
    for i in range(STEPS):
        state.throw = i in (0, 3, LATE)
        if not state.throw:
            step(*batch(i))
            continue
        with pytest.raises(Stop) as caught:
            step(*batch(i))
        assert caught.value is thrown
        assert caught.value.__cause__ is None
        assert caught.traceback[-1].name == "throws"
    has_replayed(step)


@pytest.mark.parametrize("call", [0, 1, 2, 3, 5, LATE])
def test_a_wrong_argument_throws_what_eager_throws(call):
    def make():
        train, model, optimizer = classifier()

        def arguments(i):
            x, y = batch(i)
            return (x[:, :5], y) if i == call else (x, y)
        return Training(train, (model, optimizer), arguments)

    compare(make, share=0.9)


@pytest.mark.parametrize("label", [4, -1, 1 << 40])
def test_an_index_that_is_out_of_range_in_a_replay_throws_what_eager_throws(label):
    def make():
        model = nn.Sequential(nn.Embedding(6, 4), nn.Flatten(), nn.Linear(8, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def train(tokens, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(tokens), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        def arguments(i):
            chosen = torch.Generator().manual_seed(i)
            tokens = torch.randint(6, (8, 2), generator=chosen)
            y = torch.randint(4, (8,), generator=chosen)
            if i == LATE:
                y[3] = label
            if i == LATE + 2:
                tokens[3] = label + 2 if label > 0 else label
            return tokens, y
        return Training(train, (model, optimizer), arguments)

    compare(make)


@pytest.mark.parametrize("call", [0, 2, 3, 5, LATE])
def test_an_exception_that_the_step_catches_costs_that_call(call):
    """As Gaussian processes retry a factorization with jitter."""
    def make():
        scale = nn.Parameter(torch.ones(()))
        optimizer = torch.optim.Adam([scale], 0.01)
        retries = []

        def train(x, y):
            covariance = scale * (-torch.cdist(x, x)).exp()
            optimizer.zero_grad()
            try:
                factor = torch.linalg.cholesky(covariance)
            except RuntimeError:
                retries.append(call)
                factor = torch.linalg.cholesky(covariance + 0.1 * torch.eye(len(x)))
            loss = torch.cholesky_solve(y[:, None], factor).square().mean() + factor.diagonal().log().sum()
            loss.backward()
            optimizer.step()
            return loss.detach(), len(retries)

        def arguments(i):
            chosen = torch.Generator().manual_seed(i)
            x, y = torch.rand(5, 2, generator=chosen), torch.rand(5, generator=chosen)
            return (x[:1].expand(5, 2) if i in (call, call + 4) else x).clone(), y
        return Training(train, ([scale], optimizer), arguments)

    compare(make, share=0.85)


@pytest.mark.parametrize("args, kwargs", [((), {}), ((1,), {}), ((1, 2, 3, 4), {}),
                                          ((1, 2), {"z": 3})],
                         ids=["none", "too_few", "too_many", "unknown"])
def test_arguments_that_the_function_does_not_take(args, kwargs):
    train, _, _ = classifier()
    step = steptape.wrap(train)
    for i in range(LATE):
        step(*batch(i))
    with pytest.raises(TypeError, match="argument"):
        step(*args, **kwargs)
    step(*batch(0))


def test_a_model_on_the_meta_device_is_refused():
    with torch.device("meta"):
        train, _, _ = classifier()
        x, y = torch.empty(8, 6), torch.empty(8, dtype=torch.int64)
    step = steptape.wrap(train)
    for _ in range(12):
        assert step(x, y).device.type == "meta"
    is_refused(step, {"tensor_kind", "device", "unreplayable_op"})
    assert step.stats["replayed"] == 0


def test_a_class_that_is_made_of_generator():
    class Own(torch.Generator):
        pass

    def play(wrap):
        own = Own()
        own.manual_seed(3)
        step, seen = wrap(lambda x: x + torch.rand(2, generator=own)), []
        for i in range(STEPS):
            seen.append(step(torch.ones(2)).tolist())
        return [seen, own.get_state().tolist(), step]
    twins.played_alike(play)

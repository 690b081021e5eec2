"""Where a program calls its optimizers: in a method, in two steps, two in one step, with a closure or a hook."""
from types import SimpleNamespace

import pytest
import torch
from torch.optim import LBFGS, SGD, Adam, AdamW, lr_scheduler

import steptape
from loops import batch, move_rates, mse, net, optimizing, program, replays
from twins import compare


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_gradients_may_be_cleared_behind_the_update(kind):
    def make():
        model = net()
        optimizer = kind(model.parameters(), lr=0.01)

        def step(x, y):
            loss = mse(model, x, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer],
                               after=lambda i: move_rates(i, optimizer))

    replays(make)


def test_two_optimizers_over_one_model_in_one_step():
    def make():
        model = net()
        body, head = SGD(model[0].parameters(), lr=0.05, momentum=0.9), Adam(model[2].parameters())

        def step(x, y):
            body.zero_grad()
            head.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            body.step()
            head.step()
            return loss

        def after(i):
            move_rates(i, body)
            move_rates(i + 3, head)

        return SimpleNamespace(step=step, batch=batch, after=after,
                               holds=lambda: [model, body, head])

    replays(make)


def test_two_steps_each_with_its_own_optimizer_over_one_model():
    def make():
        model = net()
        body, head = SGD(model[0].parameters(), lr=0.05, momentum=0.9), Adam(model[2].parameters())

        def train_body(x, y):
            body.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            body.step()
            return loss

        def train_head(x, y):
            head.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            head.step()
            return loss

        def in_turn(train_body, train_head):
            return lambda i, x, y: (train_head if i % 3 == 2 else train_body)(x, y)

        return program(in_turn, train_body, train_head, batch=lambda i: (i, *batch(i)), holds=[model, body, head],
                       after=lambda i: (move_rates(i, body), move_rates(i, head)))

    replays(make, 90)


@pytest.mark.parametrize("given", [
    lambda t: dict(model=t.model, optimizer=t.optimizer),
    lambda t: dict(model=[t.model], optimizer=(t.optimizer,)),
    lambda t: dict(model={"net": t.model}, optimizer={"adam": t.optimizer}),
], ids=["one object", "sequence", "mapping"])
def test_model_and_optimizer_may_be_given(given):
    replays(lambda: optimizing(lambda m: Adam(m.parameters(), lr=0.01)),
            wrapper=lambda t, options: steptape.wrap(t.step, **given(t), **options))


class Trainer:
    """A user's class: what it counts and schedules, it does outside the step."""

    def __init__(self):
        self.model = net()
        self.optimizer = AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = lr_scheduler.ExponentialLR(self.optimizer, 0.97)
        self.calls, self.history = 0, []

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = mse(self.model, x, y)
        loss.backward()
        self.optimizer.step()
        return loss

    def batch(self, i):
        return batch(i)

    def after(self, i):
        self.calls += 1
        self.history.append(i)
        self.scheduler.step()

    def holds(self):
        return [self.model, self.optimizer, self.scheduler, self.calls]


def test_a_method_of_an_object_that_also_counts_and_schedules():
    replays(Trainer)


def test_a_hook_behind_the_optimizers_step_is_part_of_it():
    def optimizer_of(model):
        def clamp(optimizer, _args, _kwargs):
            with torch.no_grad():
                for p in optimizer.param_groups[0]["params"]:
                    p.clamp_(-0.3, 0.3)

        optimizer = Adam(model.parameters(), lr=0.01)
        optimizer.register_step_post_hook(clamp)
        return optimizer

    replays(lambda: optimizing(optimizer_of))


def with_closure(optimizer_of):
    """optimizer.step(closure): forward and backward happen inside it."""
    model = net()
    optimizer = optimizer_of(model)

    def step(x, y):
        def closure():
            optimizer.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            return loss

        return optimizer.step(closure)

    return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer],
                           after=lambda i: move_rates(i, optimizer))


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_a_closure_is_part_of_the_step(kind):
    replays(lambda: with_closure(lambda m: kind(m.parameters(), lr=0.01)))


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_is_refused_because_it_makes_its_state_anew(search):
    compare(lambda: with_closure(lambda m: LBFGS(m.parameters(), lr=0.1, max_iter=4,
                                                 history_size=3, line_search_fn=search)),
            20, codes={"optimizer_unsupported"})


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_the_step_of_an_optimizer_that_has_a_scheduler_is_wrapped(kind):
    """A scheduler puts a function of its own in the place of the method, with a weak reference to the optimizer."""
    def make():
        model = net()
        optimizer = kind(model.parameters(), lr=0.05)
        scheduler = lr_scheduler.ExponentialLR(optimizer, 0.9)

        def backward(x, y):
            optimizer.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            return loss.detach()

        def body(update):
            def step(x, y):
                loss = backward(x, y)
                update()
                scheduler.step()
                return loss
            return step

        return program(body, optimizer.step, holds=[model, optimizer, scheduler])

    replays(make)


class Delegating:
    """Shows what another optimizer has, as an instance of its class, by way of `__getattr__` alone: so does Lightning's."""

    def __init__(self, optimizer):
        self._optimizer = optimizer
        self.__class__ = type("Delegating" + type(optimizer).__name__, (Delegating, type(optimizer)), {})

    def __getattr__(self, name):
        return getattr(self._optimizer, name)

    def step(self, closure=None):
        return self._optimizer.step(closure)


class Shared(Delegating):
    """Has the very attributes of another one."""

    def __init__(self, optimizer):
        super().__init__(optimizer)
        self.__dict__.update(vars(optimizer))


@pytest.mark.parametrize("kind", [SGD, Adam])
@pytest.mark.parametrize("wrapper", [Delegating, Shared])
@pytest.mark.parametrize("depth", [1, 8])  # where the step finds it before its first call, and where it does not
def test_an_optimizer_that_shows_another_one_trains_that(kind, wrapper, depth):
    def make():
        model = net()
        inner = kind(model.parameters(), lr=0.05)
        held = wrapper(inner)
        for _ in range(depth):
            held = SimpleNamespace(held=held)

        def step(x, y):
            optimizer = held
            for _ in range(depth):
                optimizer = optimizer.held
            optimizer.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, inner], after=lambda i: move_rates(i, inner))

    replays(make)

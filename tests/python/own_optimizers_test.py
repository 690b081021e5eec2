"""Optimizers of the user's own: a replay does what their code does, also where it counts on the host."""
import math
import sys
import tempfile

import numpy as np
import pytest
import torch
from torch.optim import SGD, Adam, Optimizer

import steptape
import twins
from loops import batch, move_rates, mse, optimizing, replays, update_alone


class Descent(Optimizer):
    """Stateless."""

    def __init__(self, params, lr=0.05):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group["lr"])


class Lion(Optimizer):
    """With a moment per parameter."""

    def __init__(self, params, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            (beta1, beta2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                p.mul_(1 - lr * group["weight_decay"])
                p.add_(state["exp_avg"].lerp(p.grad, 1 - beta1).sign_(), alpha=-lr)
                state["exp_avg"].lerp_(p.grad, 1 - beta2)


class Rooted(Optimizer):
    """Reads the values of its group with float() and math.sqrt."""

    def __init__(self, params, lr=0.01, beta=0.9):
        super().__init__(params, dict(lr=lr, beta=beta))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            size = -float(group["lr"]) * math.sqrt(1 - group["beta"])
            for p in group["params"]:
                p.add_(p.grad, alpha=size)


class Annealed(Optimizer):
    """Counts its steps in a Python int of the state and lowers its rate by it."""

    def __init__(self, params, lr=0.05, decay=0.1):
        super().__init__(params, dict(lr=lr, decay=decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                p.add_(p.grad, alpha=-group["lr"] / (1 + group["decay"] * state["step"]))


class Counted(Optimizer):
    """Counts its steps in a Python int of the state and makes no use of it."""

    def __init__(self, params, lr=0.05):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["step"] = self.state[p].get("step", 0) + 1
                p.sub_(p.grad * group["lr"])


class Moments(Optimizer):
    """Adam as papers write it: the step is a Python int, the square root Python's."""

    def __init__(self, params, lr=0.01, betas=(0.9, 0.999), weight_decay=0.1):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    def moments_of(self, p, beta1, beta2):
        state = self.state[p]
        if not state:
            state.update(step=0, first=torch.zeros_like(p), second=torch.zeros_like(p))
        state["step"] += 1
        state["first"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
        state["second"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
        return state, state["first"], state["second"]

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            (beta1, beta2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                state, first, second = self.moments_of(p, beta1, beta2)
                size = lr * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
                if group["weight_decay"]:
                    p.mul_(1 - lr * group["weight_decay"])
                p.addcdiv_(first, second.sqrt().add_(1e-8), value=-size)


class Rectified(Moments):
    """Decides by its counter, as RAdam does."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state, first, second = self.moments_of(p, beta1, beta2)
                decayed, longest = beta2 ** state["step"], 2 / (1 - beta2) - 1
                length = longest - 2 * state["step"] * decayed / (1 - decayed)
                size = group["lr"] / (1 - beta1 ** state["step"])
                if length >= 5:
                    rate = (length - 4) * (length - 2) * longest / (longest - 4) / (longest - 2) / length
                    size *= math.sqrt(rate * (1 - decayed))
                    p.addcdiv_(first, second.sqrt().add_(1e-8), value=-size)
                else:
                    p.add_(first, alpha=-size)


class Alternating(Optimizer):
    """Asks its counter for a remainder, which no formula has."""

    def __init__(self, params, lr=0.05):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                p.add_(p.grad, alpha=-group["lr"] * (1 + state["step"] % 3))


class Bounded(Adam):
    """Of a known type, with a step of its own."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                p.clamp_(-0.3, 0.3)


WRAPPERS = {"whole step": None, "update alone": update_alone}


@pytest.mark.parametrize("kind", [SGD, Descent])
@pytest.mark.parametrize("rate", [np.float64(0.03), np.float32(0.03), True, 1, 0, 0.0, -0.0, torch.tensor(0.03)], ids=repr)
def test_a_rate_becomes_one_of_another_kind_and_one_of_its_own_again(rate, kind):
    """Python gives -0 for int 0 and -0.0 for 0.0; a number of NumPy's, a switch and a tensor are no floats."""
    def edit(i, optimizer):
        if i in (15, 35):
            optimizer.param_groups[0]["lr"] = rate if i == 15 else 0.02

    replays(lambda: optimizing(lambda m: kind(m.parameters(), lr=0.05), between=edit), 60)


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("kind", [Descent, Lion, Rooted])
def test_an_unknown_optimizer_replays_while_its_hyperparameters_stand(kind, wrapper):
    replays(lambda: optimizing(lambda m: kind(m.parameters()), between=None),
            wrapper=WRAPPERS[wrapper])


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("kind", [Descent, Lion, Rooted])
def test_an_unknown_optimizer_takes_an_edit_of_its_hyperparameters(kind, wrapper):
    def edit(i, optimizer):
        if i == 25:
            optimizer.param_groups[0]["lr"] *= 0.5

    replays(lambda: optimizing(lambda m: kind(m.parameters()), between=edit), 60,
            wrapper=WRAPPERS[wrapper])


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("kind", [Descent, Lion, Rooted, Bounded])
def test_an_unknown_optimizer_under_a_moving_rate_gives_the_bits_of_eager(kind, wrapper):
    replays(lambda: optimizing(lambda m: kind(m.parameters())), steps=50, wrapper=WRAPPERS[wrapper])


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("between", [None, move_rates], ids=["fixed rate", "moving rate"])
@pytest.mark.parametrize("kind", [Annealed, Counted, Moments, Rectified])
def test_an_unknown_optimizer_with_a_counter_on_the_host_keeps_counting(kind, between, wrapper):
    """Its counts are part of `optimizer.state_dict()`; a replay that left them would be wrong."""
    replays(lambda: optimizing(lambda m: kind(m.parameters()), between=between), 60,
            wrapper=WRAPPERS[wrapper])


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("kind", [Alternating])
def test_an_unknown_optimizer_whose_counter_is_not_followed_is_right_all_the_same(kind, wrapper):
    replays(lambda: optimizing(lambda m: kind(m.parameters())), steps=50, wrapper=WRAPPERS[wrapper])


def test_a_counter_on_the_host_may_be_set_between_two_steps():
    def jump(i, optimizer):
        if i in (20, 30):
            for state in optimizer.state.values():
                state["step"] = 3 if i == 20 else 1000

    replays(lambda: optimizing(lambda m: Moments(m.parameters()), between=jump), 60)


def test_a_loaded_trace_counts_on():
    made = optimizing(lambda m: Moments(m.parameters()), between=None)
    step = steptape.wrap(made.step, model=made.model, optimizer=made.optimizer)
    for i in range(20):
        step(*made.batch(i))
    with tempfile.TemporaryDirectory() as folder:
        step.save(f"{folder}/step.tape")
        player = steptape.load(f"{folder}/step.tape")
        for i in range(8):
            arguments = made.batch(i)
            expected = step(*arguments)
            assert twins.bits(player["step"](*arguments)) == twins.bits(expected)
        counters = {path: value for path, value in player.scalars().items() if path.endswith(".step")}
    assert len(counters) == len(made.optimizer.state)
    assert set(counters.values()) == {state["step"] for state in made.optimizer.state.values()} == {28}


class Decaying(Moments):
    """Keeps a float beside its count, which it makes smaller in each step."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["rate"] = self.state[p].get("rate", 1.0) * 0.9
                p.add_(p.grad, alpha=-0.01 * self.state[p]["rate"])


@pytest.mark.parametrize("kind", [Moments, Decaying])
def test_numbers_are_put_back_with_the_rest_of_the_state(kind, request):
    """A step that reads what no guard sees goes wrong, and is undone to where it was verified last."""
    limit = sys.getrecursionlimit()
    request.addfinalizer(lambda: sys.setrecursionlimit(limit))

    def make():
        made = optimizing(lambda m: kind(m.parameters()), between=None)

        def step(x, y):
            made.optimizer.zero_grad()
            loss = mse(made.model, x, y) * (sys.getrecursionlimit() / limit)
            loss.backward()
            made.optimizer.step()
            return loss

        made.step = step
        return made

    torch.manual_seed(1)
    batches = [batch(i) for i in range(60)]
    torch.manual_seed(2)
    eager = make()
    seen = [None]
    for arguments in batches:
        eager.step(*arguments)
        seen.append(twins.bits([eager.model.state_dict(), eager.optimizer]))
    torch.manual_seed(2)
    made = make()
    step = steptape.wrap(made.step, model=made.model, optimizer=made.optimizer, on_divergence="restore",
                         verify={"first": True, "rate": 0.2}, audit_seed=3)
    for i, arguments in enumerate(batches):
        if i == 20:
            sys.setrecursionlimit(3 * limit)
        step(*arguments)
        if any(r["code"] == "audit_diverged" for r in step.stats["refusals"]):
            break
    counts = {state["step"] for state in made.optimizer.state.values()}
    assert len(counts) == 1 and step.stats["replayed"] > 0, step.explain()
    assert max(counts) <= 20
    assert twins.bits([made.model.state_dict(), made.optimizer]) == seen[max(counts)]

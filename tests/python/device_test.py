"""Steps on a CUDA device leave the bits of the eager step, in as many graphs as they must.

All cases run in one process, which has the simulated device of tests/simulated_cuda in LD_PRELOAD.
STEPTAPE_SIMULATED_CUDA names the library.
"""
import contextvars
import copy
import functools
import gc
import json
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR
from torch.utils.checkpoint import checkpoint

import steptape
import twins
from loops import mse, net, training
from twins import free_calls

SIMULATED = os.environ.get("STEPTAPE_SIMULATED_CUDA", "")
pytestmark = pytest.mark.skipif(not os.path.exists(SIMULATED),
                                reason="STEPTAPE_SIMULATED_CUDA names no simulated device")
DEVICE = "cuda"
CASES = {}
READS = "it gives the host a value"
BY_NUMBERS = "a number of op 5 `aten::mul`: it is -2, which no capture was made with"


class Randomness(twins.Randomness):
    """With the numbers that the device draws."""

    def keep(self):
        super().keep()
        self.drawn = torch.cuda.get_rng_state()

    def __enter__(self):
        super().__enter__()
        torch.cuda.set_rng_state(self.drawn)


def case(make, /, *, name=None, steps=30, graphs=1, between=(), share=0.9, **options):
    """A training that replays so many graphs, with nothing between them but what is named."""
    CASES[name or make.__name__] = (make, steps, graphs, between, share, options)
    return make


def on_device(i):
    return torch.randn(4, 6).to(DEVICE), torch.randn(4, 3).to(DEVICE)


def on_host(i):
    return torch.randn(4, 6), torch.randn(4, 3)


def adam(model):
    return Adam(model.parameters(), lr=0.01)


def trained(loss_of=mse, *, model=None, optimizer_of=adam, batch=on_device, schedule=None, holds=(), after=None):
    """The plain step of loops.py, on the device."""
    model = (model or net()).to(DEVICE)
    made = training(model, loss_of, optimizer_of=optimizer_of, batch=batch, holds=holds, after=after)
    if schedule is not None:
        scheduler = schedule(made.optimizer)
        made.after = lambda i: scheduler.step()
    return made


OPTIMIZERS = {
    "sgd": (SGD, dict(lr=0.05, momentum=0.9)), "adam": (Adam, dict(lr=0.01, amsgrad=True)),
    "adamw": (AdamW, dict(lr=0.01)), "rmsprop": (RMSprop, dict(lr=0.01, centered=True)),
    "adagrad": (Adagrad, dict(lr=0.05)),
}
FORMS = {"loop": dict(foreach=False), "foreach": dict(foreach=True), "fused": dict(fused=True),
         "capturable": dict(capturable=True)}
LACKS = {("rmsprop", "fused"), ("sgd", "capturable"), ("adagrad", "capturable"), ("adagrad", "fused")}


def of_form(kind, options):
    return lambda: trained(optimizer_of=lambda m: kind(m.parameters(), **options),
                           schedule=lambda o: LambdaLR(o, lambda epoch: 0.97 ** epoch))


for _name, (_kind, _options) in OPTIMIZERS.items():
    for _form, _chosen in FORMS.items():
        if (_name, _form) not in LACKS:
            case(of_form(_kind, _options | _chosen), name=f"{_name}_{_form}")
case(lambda: trained(schedule=lambda o: CosineAnnealingLR(o, 40)), name="a_cosine_schedule")


def scaled(optimizer_of, overflows=(), clip=False):
    model = net().to(DEVICE)
    optimizer, scaler = optimizer_of(model), torch.amp.GradScaler(DEVICE, init_scale=1024.0, growth_interval=5)

    def step(x, y):
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = mse(model, x, y)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        return loss

    def batch(i):
        x, y = on_device(i)
        return x, y * (float("inf") if i in overflows else 1)

    return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer, scaler.state_dict()])


def fused(model):
    return Adam(model.parameters(), lr=0.01, fused=True)


# The verdict of a scaler is read where its optimizer is no fused one.
case(lambda: scaled(adam), name="a_scaler", graphs=2, between=(READS,))
case(lambda: scaled(adam, {0, 20, 21, 35}, clip=True), name="a_scaler_that_overflows", graphs=2, between=(READS,),
     steps=60, share=0.8)
case(lambda: scaled(fused, {0, 20, 21}, clip=True), name="a_scaler_of_a_fused_optimizer", steps=40)


@case
def autocast_to_bfloat16():
    def loss_of(model, x, y):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            return mse(model, x, y) + mse(model, -x, y)

    return trained(loss_of)


def stepped(*, clip=False, read=False, to_none=True):
    """The plain step with what a program may do besides."""
    model = net().to(DEVICE)
    optimizer = adam(model)

    def step(x, y):
        optimizer.zero_grad(set_to_none=to_none)
        loss = mse(model, x, y)
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 0.1) if clip else None
        optimizer.step()
        return loss.item() if read else (loss, norm)

    return SimpleNamespace(step=step, batch=on_device, holds=lambda: [model, optimizer])


case(lambda: stepped(clip=True), name="clipped_gradients")
case(lambda: stepped(to_none=False), name="gradients_that_are_zeroed")
case(lambda: stepped(read=True), name="a_loss_that_is_read", graphs=2, between=(READS,))


def attention(model, x, y):
    return F.mse_loss(model[0](x, x, x, need_weights=False)[0], y)


def unrolled(model, x, y):
    state = torch.zeros(4, 5, device=DEVICE), torch.zeros(4, 5, device=DEVICE)
    for _ in range(3):
        state = model[0](x, state)
    return F.mse_loss(model[1](state[0]), y)


def sequence(model, x, y):
    """On hardware cuDNN's, which takes all weights as one tensor."""
    return F.mse_loss(model[0](x)[0], y)


def classified(model, x, y):
    return F.cross_entropy(model(x), y)


def images(i):
    return torch.randn(4, 1, 8, 8).to(DEVICE), torch.randint(0, 3, (4,)).to(DEVICE)


def tokens(i):
    return torch.randint(0, 10, (4, 3)).to(DEVICE), torch.randint(0, 3, (4,)).to(DEVICE)


def sequences(i):
    return torch.randn(2, 5, 8).to(DEVICE), torch.randn(2, 5, 8).to(DEVICE)


for _name, _loss_of, _batch, _layers in (
    ("dropout", mse, on_device, lambda: [nn.Linear(6, 8), nn.Dropout(0.3), nn.Linear(8, 3)]),
    ("batch_norm", mse, on_device, lambda: [nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)]),
    ("convolution", classified, images, lambda: [nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)]),
    ("embedding", classified, tokens, lambda: [nn.Embedding(10, 6), nn.Flatten(), nn.Linear(18, 3)]),
    ("lstm_cell", unrolled, on_device, lambda: [nn.LSTMCell(6, 5), nn.Linear(5, 3)]),
    ("lstm", sequence, sequences, lambda: [nn.LSTM(8, 8, batch_first=True)]),
    ("gru", sequence, sequences, lambda: [nn.GRU(8, 8, 2, batch_first=True)]),
    ("attention", attention, sequences, lambda: [nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True)]),
):
    case(functools.partial(lambda l, b, m: trained(l, model=nn.Sequential(*m()), batch=b), _loss_of, _batch, _layers),
         name=_name)


@case
def averaged_weights():
    model, average = net().to(DEVICE), net().to(DEVICE)
    made = trained(model=model, holds=[average])
    inner = made.step

    def step(x, y):
        loss = inner(x, y)
        with torch.no_grad():
            for mean, parameter in zip(average.parameters(), model.parameters()):
                mean.lerp_(parameter, 0.1)
        return loss

    made.step = step
    return made


def given_memory(holds=False):
    """`p.data = value`: the parameters stay where they are, but for those whose memory somebody holds."""
    model = net().to(DEVICE)
    slow = copy.deepcopy(model).requires_grad_(False)
    held = []

    def mse_of_both(m, x, y):
        return mse(m, x, y) + slow(x).mean()

    def after(i):
        held[:] = [slow[0].weight.data] if holds and i in (18, 19) else []
    made = training(model, mse_of_both, optimizer_of=adam, batch=on_device, after=after, holds=(slow, held))
    inner = made.step

    def step(*batch):
        loss = inner(*batch)
        for p, q in zip(slow.parameters(), model.parameters()):
            p.data = p.data * .9 + q.data * .1
        return loss
    made.step = step
    return made


case(given_memory, name="memory_that_the_step_gives")
case(lambda: given_memory(holds=True), name="memory_that_the_step_gives_and_the_program_holds", share=0.7)


@case
def evaluation():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3)).to(DEVICE).eval()

    def step(x, y):
        with torch.no_grad():
            return mse(model, x, y), model(x).argmax(1)

    return SimpleNamespace(step=step, batch=on_device, holds=lambda: [model])


def brought(model, x, y):
    return mse(model, x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True))


def pinned(i):
    return tuple(tensor.pin_memory() for tensor in on_host(i))


case(lambda: trained(brought, batch=on_host), name="batches_of_pageable_memory")
case(lambda: trained(brought, batch=pinned), name="batches_of_pinned_memory")
case(lambda: trained(lambda m, x, y, w: mse(m, x, y) * w, batch=lambda i: (*on_device(i), 0.1 + 0.01 * i)),
     name="a_number_that_moves")
case(lambda: trained(), name="static_gradients", static_gradients=True)


def kept_gradients():
    """The program holds gradients of earlier calls, whole and in part: they keep their bits."""
    kept = []
    made = trained(holds=[kept])
    weight = made.model[0].weight
    made.after = lambda i: kept.append(weight.grad if i % 2 else weight.grad.view(-1)[1:])
    return made


case(kept_gradients, name="kept_gradients")
case(kept_gradients, name="kept_gradients_that_are_static", static_gradients=True)


def kept_while_others_replay():
    """Two plans of one step share the memory of their graphs: one must not write what the other gave."""
    kept = []
    made = trained(holds=[kept], batch=lambda i: tuple(t.repeat(1 + i // 3 % 2, 1) for t in on_device(i)))
    made.after = lambda i: kept.append([p.grad for p in made.model.parameters()])
    return made


case(kept_while_others_replay, name="gradients_kept_while_another_plan_replays", steps=40, share=0.8)
case(kept_while_others_replay, name="static_gradients_kept_while_another_plan_replays", static_gradients=True,
     steps=40, share=0.8)


class Joined(nn.Module):
    """Its parameters' gradients are parts of one tensor, as those of cuDNN's RNNs are."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ParameterList(nn.Parameter(torch.randn(1, 6)) for _ in range(3))

    def forward(self, x):
        return F.linear(x, torch.cat(list(self.parts)))


def joined_gradients():
    kept = []
    made = trained(model=Joined(), holds=[kept])
    first, second, third = made.model.parts
    made.after = lambda i: kept.append((first, second, third)[i % 3].grad)
    return made


case(joined_gradients, name="gradients_in_one_buffer")
case(joined_gradients, name="static_gradients_in_one_buffer", static_gradients=True)


def hooked(hook_of, change=lambda state, model, i: None, holds=lambda state: []):
    """Code of the program's in backward, which autograd runs in a thread of its own for tensors of a device."""
    def make():
        state = SimpleNamespace(scale=1.25, seen=[], calls=0)
        made = trained()
        hook_of(made.model, state)
        training, made.holds = made.holds, lambda: [training(), holds(state)]
        made.after = lambda i: change(state, made.model, i)
        return made

    return make


def counting(model, state):
    def count(gradient):
        state.calls += 1
        state.seen.append(gradient.detach())

    model[0].weight.register_hook(count)


def later(state, model, i):
    state.scale = 1.25 if i < 12 else 2.5


def annealed(model, state):
    class Reversed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return -state.scale * gradient

    plain, model.forward = model.forward, lambda x: Reversed.apply(plain(x))


def stepping(model, state):
    """An optimizer of its own for each parameter, stepped as soon as its gradient is there."""
    state.own = {p: SGD([p], lr=0.001) for p in model.parameters()}
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: state.own[p].step())


case(hooked(lambda model, state: model[0].weight.register_hook(lambda g: g * state.scale), later),
     name="a_hook_that_reads", share=0.7)
case(hooked(lambda model, state: model[0].register_full_backward_hook(
    lambda module, inputs, outputs: tuple(g if g is None else g * state.scale for g in inputs)), later),
     name="a_hook_of_a_module_that_reads", share=0.7)
case(hooked(lambda model, state: model[0].weight.register_hook(lambda g: g * 2 if model.training else g), lambda
            state, model, i: model.train(i < 12)), name="a_hook_that_branches", share=0.7)
case(hooked(counting, holds=lambda state: [state.seen, state.calls]), name="a_hook_that_counts")
case(hooked(annealed, later), name="a_function_whose_backward_reads", share=0.7)
case(hooked(stepping), name="optimizers_in_backward")


@case
def gradients_on_another_stream():
    """Another stream still reads a gradient that the program has dropped: record_stream keeps its memory."""
    side, seen = torch.cuda.Stream(), []
    made = trained(holds=[seen])

    def after(i):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for parameter in made.model.parameters():
                gradient = parameter.grad
                seen.append(torch.empty_like(gradient).copy_(gradient))
                gradient.record_stream(side)
        del gradient
        made.model.zero_grad()

    made.after = after
    return made


def brought_gradients():
    """A gradient that comes from the host lies where a run before a capture writes, too."""
    model, kept = net().to(DEVICE), []
    optimizer = SGD(model.parameters(), lr=0.01)
    weight = model[0].weight

    def step(x, y, gradient):
        optimizer.zero_grad()
        loss = mse(model, x, y)
        loss.backward()
        weight.grad = gradient.to(DEVICE)
        optimizer.step()
        return loss

    def after(i):
        kept.append(weight.grad)
        if i % 7 == 6:
            for parameter in model.parameters():
                parameter.data = parameter.data.clone()

    return SimpleNamespace(step=step, after=after, holds=lambda: [model, optimizer, kept],
                           batch=lambda i: (*on_device(i), torch.randn(tuple(weight.shape))))


case(brought_gradients, name="gradients_brought_while_parameters_move", steps=40, share=0.5)
case(brought_gradients, name="static_gradients_brought_while_parameters_move", static_gradients=True, steps=40,
     share=0.5)


def accumulated():
    """One plan goes on from the gradients that another one left."""
    model = net().to(DEVICE)
    optimizer = adam(model)

    def step(x, y, begins):
        if begins:
            optimizer.zero_grad()
        loss = mse(model, x, y)
        loss.backward()
        if not begins:
            optimizer.step()
        return loss

    return SimpleNamespace(step=step, holds=lambda: [model, optimizer],
                           batch=lambda i: (*on_device(i), i % 3 == 0))


case(accumulated, name="accumulated_gradients", steps=60, share=0.6)
case(accumulated, name="accumulated_gradients_that_are_static", static_gradients=True, steps=60, share=0.6)


@case
def cleared_workspaces():
    """The program frees what cuBLAS had for the graphs, as torch.compile's graphs do, and takes the memory."""
    junk = []

    def after(i):
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        junk[:] = [torch.full((1 << 20,), float("nan"), device=DEVICE) for _ in range(4)]

    return trained(after=after)


def multiplied():
    """By numbers for which ATen may launch other kernels, in replays that take longer than a moment."""
    weights = [1.5, 0.0, -0.0, 1e-42, -2.0, float("inf"), float("nan")]
    model = net().to(DEVICE)

    @torch.no_grad()
    def forward(x, weight):
        return model(x) * weight

    return SimpleNamespace(step=forward, holds=lambda: [model], batch=lambda i: (
        on_device(i)[0], weights[i % 5 if i < 40 else i % 7]))


case(multiplied, steps=80, share=0.8, between=(BY_NUMBERS,), verify={"rate": 0})


OLD = []
DTYPES_OF = torch._prims_common.elementwise_dtypes  # which the simulated device's kernels call


def while_old_graphs_end():
    """A kernel that runs Python, and with it the garbage collector, while it is captured."""
    def dtypes_of(*args, **kwargs):
        if torch.cuda.is_current_stream_capturing() and OLD:
            OLD.pop()
            gc.collect()
        return DTYPES_OF(*args, **kwargs)

    def after(i):
        if i == 28:
            torch._prims_common.elementwise_dtypes = DTYPES_OF
            assert not OLD

    if not OLD:
        with torch.random.fork_rng(devices=[0]):
            program = trained()
            OLD.extend(steptape.wrap(program.step) for _ in range(3))
            for step in 8 * OLD:
                step(*program.batch(0))
        assert all(step.stats["replayed"] for step in OLD)
        del step
    torch._prims_common.elementwise_dtypes = dtypes_of
    made = trained()
    made.after = after
    return made


case(while_old_graphs_end)


def penalised(model, x, y):
    """The device's thread makes the graph of the slope, and goes through it again."""
    x = x.detach().requires_grad_()
    out = model(x)
    slope, = torch.autograd.grad(out.sum(), x, create_graph=True)
    return F.mse_loss(out, y) + (slope.norm(dim=1) - 1).square().mean()


case(lambda: trained(penalised), name="a_gradient_penalty")


class Checkpointed(nn.Module):
    """Dropout that is drawn once more when backward comes by: the generator is set back and forth."""

    def __init__(self, use_reentrant):
        super().__init__()
        self.use_reentrant = use_reentrant
        self.first, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Tanh()) for _ in range(2))

    def forward(self, x):
        h = self.first(x)
        for block in self.blocks:
            h = checkpoint(block, F.dropout(h, 0.1), use_reentrant=self.use_reentrant)
        return self.head(h)


case(lambda: trained(model=Checkpointed(False)), name="checkpoints", graphs=6)
case(lambda: trained(model=Checkpointed(True)), name="reentrant_checkpoints", graphs=6)


def given_back():
    """No op at all: nothing to capture, and all to guard."""
    return SimpleNamespace(step=lambda x, y: (y, x), holds=list, batch=on_device)


case(given_back, graphs=0)


def of_lists(body, tensors, numbers, dtype=torch.float32):
    """body(tensors, number) in place, without gradients; the number is an argument."""
    def make():
        held = [torch.rand(size).to(DEVICE, dtype) for size in tensors]

        @torch.no_grad()
        def step(number):
            return body(held, number)

        return SimpleNamespace(step=step, holds=lambda: [held], batch=lambda i: (numbers(i),))

    return make


def multiply_and_divide(held, number):
    held[0].mul_(number)
    held[1].div_(number)
    held[2].mul_(number)


def multiply_by_a_double(held, number):
    number = torch.tensor(number, dtype=torch.float64)
    for tensor in held:
        tensor.mul_(number)


# What two numbers leave that are the same at first does not show how they are used.
case(of_lists(multiply_and_divide, [3, 4, 5], lambda i: 1.0 if i < 8 else 1 + 0.1 / i), name="factors_and_divisors",
     verify={"rate": 0})
case(of_lists(multiply_by_a_double, [(), ()], lambda i: 0.5 if i < 8 else 0.9 + 0.1 / i),
     name="a_wider_number_for_tensors_without_dimensions", verify={"rate": 0})


def add_scaled(held, number):
    held[0].add_(held[2], alpha=number)
    held[1].add_(held[3], alpha=number)


for _dtype in (torch.float16, torch.bfloat16, torch.float64):
    case(of_lists(add_scaled, [3, 4, 3, 4], lambda i: 0.1 + 0.01 * i, _dtype), name=f"scaled_sums_of_{_dtype}")


def that_parts_behind_a_read():
    """Two factors that are read, equal for a while; whether there are gradients is looked at first."""
    held = [torch.rand(3).to(DEVICE), torch.rand(4).to(DEVICE)]
    made = trained()
    train = made.step

    def step(x, y, one, other):
        graded = sum(p.grad is not None for p in made.model.parameters())
        train(x, y)
        with torch.no_grad():
            held[0].mul_(one.item())
            held[1].mul_(other.item())
        return graded

    def batch(i):
        factors = (1.1, 1.1 if i < 15 else 1.3)
        return *on_device(i), *(torch.tensor(factor).to(DEVICE) for factor in factors)

    return SimpleNamespace(step=step, batch=batch, holds=lambda: [made.holds(), held])


case(that_parts_behind_a_read, name="factors_that_part_behind_a_read", graphs=2, between=(READS, READS),
     share=0.7, verify={"rate": 0})


def products_on_the_host():
    """Two by one factor, which the program writes in between; only element-wise kernels are made for ops of the host."""
    made = trained()
    factor = torch.eye(6) * 0.5

    def step(x, y):
        return made.step((x @ factor @ factor).to(DEVICE), y.to(DEVICE))

    def batch(i):
        factor.mul_(0.99 if i % 3 else 1.01)
        return on_host(i)

    return SimpleNamespace(step=step, holds=lambda: [made.holds(), factor], batch=batch)


case(products_on_the_host)


def raised_to_what_is_read():
    """Autograd keeps the base's logarithm, which no formula gives: a plan is for the bases that it was proved at."""
    model = net().to(DEVICE)

    def step(x, y, base):
        loss = F.mse_loss(base.item() ** model(x), y)
        return loss.detach(), torch.autograd.grad(loss, list(model.parameters()))

    return SimpleNamespace(step=step, holds=lambda: [model], batch=lambda i: (*on_device(i), torch.tensor(0.5 if i < 9 else 0.25).to(DEVICE)))


case(raised_to_what_is_read, between=(READS,), share=0.7)


def data_on_the_device():
    model = net().to(DEVICE)
    optimizer = adam(model)
    data, targets, history = torch.randn(40, 6).to(DEVICE), torch.randn(40, 3).to(DEVICE), torch.zeros(40, device=DEVICE)

    def step(at):
        optimizer.zero_grad()
        loss = F.mse_loss(model(data[at : at + 4]), targets[at : at + 4])
        loss.backward()
        optimizer.step()
        history[at + 2] = loss.detach()
        return loss.detach()

    return SimpleNamespace(step=step, holds=lambda: [model, history], batch=lambda i: (i * 3 % 34,))


case(data_on_the_device, steps=40)


def process(*arguments, **environment):
    """This file run with the simulated device."""
    return subprocess.run([sys.executable, "-W", "ignore", __file__, *arguments],
                          env=os.environ | {"LD_PRELOAD": SIMULATED} | environment,
                          capture_output=True, text=True, check=False)


@functools.cache
def problems():
    """Of each case, what a process with the simulated device found; "" for none."""
    done = process("cases", "0", "1")
    found = dict(map(json.loads, done.stdout.splitlines()))
    ended = f"the process ended with status {done.returncode} before: {done.stderr[-2000:]}"
    return {name: found.get(name, ended) for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_a_step_on_the_device_replays(name):
    assert problems()[name] == ""


def of_wide_layers():
    model = nn.Sequential(nn.Linear(6, 64), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 3))
    return trained(model=model, optimizer_of=lambda m: SGD(m.parameters(), lr=0.01, momentum=0.9, foreach=False))


def test_ops_that_are_not_the_same_together_are_done_one_by_one():
    """The simulated device's operators for lists leave other bits for tensors of more than 2,000 elements, which
    those that the plan tries them on have not."""
    together = json.loads(process("grouped").stdout)
    assert together["problem"] == "" and together["groups"] == 3, together
    done = process("grouped", STEPTAPE_SIMULATED_CUDA_FOREACH_LIMIT="2000", STEPTAPE_LOG="verify")
    alone = json.loads(done.stdout)
    assert alone["problem"] == "" and alone["groups"] == 0, alone
    assert "the plan did ops together by `_foreach_` ops, and tries without" in done.stderr


def grouped():
    problem = problem_of(of_wide_layers, 30, 1, (), 0.85, {})
    step = twins.compare(of_wide_layers, 30)
    print(json.dumps({"problem": problem, "groups": step.stats["variants"][0]["device"]["groups"]}))


@pytest.mark.skipif(not os.path.exists(os.environ.get("STEPTAPE_TOOL", "")), reason="STEPTAPE_TOOL names no tool")
def test_graphs_are_written_for_looking_at(tmp_path):
    graphs = tmp_path / "new" / "graphs"
    command = [os.environ["STEPTAPE_TOOL"], "record", "--cuda-graphs", str(graphs), "--",
               "env", f"LD_PRELOAD={SIMULATED}", sys.executable, "-W", "ignore", __file__, "grouped"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first = (graphs / "graph-1.dot").read_text()
    assert first.startswith("digraph") and "_foreach_mul_" in first, first
    blocked = tmp_path / "file"
    blocked.write_text("")
    command[3] = str(blocked / "graphs")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no such folder can be made" in done.stderr, done.stderr


def test_a_player_goes_on_where_the_training_was_saved(tmp_path):
    done = process("loaded", str(tmp_path / "run.tape"))
    assert done.returncode == 0 and done.stdout.split() == ["loaded", "saved", "weights"], done.stdout + done.stderr


def loaded():
    """Eagerly, and by players that take batches of the host and of the device."""
    path = sys.argv[2]
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3))
    made = trained(model=model, optimizer_of=lambda m: AdamW(m.parameters(), lr=0.01))
    step = steptape.wrap(made.step, model=made.model, optimizer=made.optimizer)
    batches = [on_host(i) for i in range(30)]
    for x, y in batches[:10]:
        step(x.to(DEVICE), y.to(DEVICE))
    step.save(path)
    players = [steptape.load(path)]
    drawn = torch.cuda.get_rng_state()

    def went_on(x, y, i):
        expected = twins.bits(made.step(x.to(DEVICE), y.to(DEVICE)))
        for player in players:
            found = player["step"](*(t.to(DEVICE) if i % 2 else t for t in (x, y)))
            assert found.device == torch.device(DEVICE, 0)
            assert twins.bits(found) == expected
            for name, parameter in made.model.named_parameters():
                assert twins.bits(player.tensor("model." + name)) == twins.bits(parameter), name

    for i, batch in enumerate(batches[10:20]):
        went_on(*batch, i)
    assert not torch.equal(torch.cuda.get_rng_state(), drawn)  # eager's alone has moved
    print("loaded")
    players[0].save(path)
    players.append(steptape.load(path))
    for i, batch in enumerate(batches[20:]):
        went_on(*batch, i)
    print("saved")
    players[0].save_weights(path + ".safetensors", of="model")
    other = steptape.load(path)
    other.load_weights(path + ".safetensors", of="model")
    for name, tensor in made.model.state_dict().items():
        if tensor.dim() != 0:
            assert twins.bits(other.tensor("model." + name)) == twins.bits(tensor), name
    print("weights")


def test_a_generator_of_the_programs_own_goes_on_in_a_player(tmp_path):
    done = process("drawn", str(tmp_path / "run.tape"))
    assert done.returncode == 0 and done.stdout.split() == ["drawn"] * 2, done.stdout + done.stderr


def drawn():
    """One of the device, one of the host that no op of the step draws from."""
    path = sys.argv[2]
    own, other = torch.Generator(DEVICE).manual_seed(3), torch.Generator().manual_seed(4)
    weight = torch.ones(4, device=DEVICE, requires_grad=True)

    def step(x):
        assert isinstance(other, torch.Generator)
        return (x * weight + torch.randn(4, device=DEVICE, generator=own)).detach()

    wrapped = steptape.wrap(step, verify={"first": True, "rate": 0.0})
    for i in range(14):
        wrapped(torch.full((4,), float(i), device=DEVICE))
    assert wrapped.stats["replayed"] > 3, wrapped.explain()
    wrapped.save(path)
    for saved in range(2):
        player = steptape.load(path)
        for i in range(5):
            x = torch.full((4,), float(i), device=DEVICE)
            assert torch.equal(player["step"](x), step(x)), (saved, i)
        player.save(path)
        print("drawn")


def test_what_orders_work_on_the_device_is_refused_by_name():
    """No op tells of it."""
    done = process("ordered")
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        asked, told = json.loads(line)
        assert f"(`{asked}`)" in told and "host_effect" in told and "0 replayed" in told, told
    assert len(done.stdout.splitlines()) == 6, done.stdout


def test_what_a_thread_has_of_its_own_is_refused_in_a_backward():
    """Eager runs hooks in a thread of autograd's there. Not so what is asked for outside of one."""
    done = process("threads")
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        asked, replayed, codes = json.loads(line)
        assert codes == ([] if asked == "outside" else ["host_effect"]) and (replayed > 5) == (asked == "outside"), line
    assert len(done.stdout.splitlines()) == 5, done.stdout


def threads():
    variable, local = contextvars.ContextVar("scale", default=1.0), threading.local()
    local.scale = 3.0
    asks = {"variable": variable.get, "local": lambda: getattr(local, "scale", 1.0), "thread": lambda: float(threading.get_ident() % 2 + 1),
            "handled": lambda: 1.0 if sys.exc_info()[0] is None else 2.0, "outside": lambda: 1.0}
    for name, ask in asks.items():
        weight = torch.ones(3, device=DEVICE, requires_grad=True)
        weight.register_hook(lambda gradient: gradient * ask())

        def step(x):
            weight.grad = None
            (weight * x).sum().backward()
            return weight.grad * variable.get()

        wrapped = steptape.wrap(step)
        for _ in range(16):
            wrapped(torch.ones(3, device=DEVICE))
        print(json.dumps([name, wrapped.stats["replayed"], sorted(twins.codes_of(wrapped))]))


def ordered():
    side, event, graph, counted = torch.cuda.Stream(), torch.cuda.Event(), torch.cuda.CUDAGraph(), torch.zeros(3, device=DEVICE)
    with torch.cuda.graph(graph):
        counted.add_(1)

    def on_side():
        with torch.cuda.stream(side):
            counted.sum()

    asks = {"Event.record": event.record, "Stream.wait_stream": lambda: torch.cuda.current_stream().wait_stream(side),
            "stream": on_side, "Stream.query": side.query, "CUDAGraph.replay": graph.replay,
            "memory_allocated": torch.cuda.memory_allocated}
    for name, ask in asks.items():
        made = trained()

        def step(x, y):
            loss = made.step(x, y)
            ask()
            return loss

        wrapped = steptape.wrap(step, model=made.model, optimizer=made.optimizer)
        for i in range(8):
            wrapped(*made.batch(i))
        print(json.dumps([name, wrapped.explain()]))


def test_graphs_of_an_audit_whose_eager_step_throws_are_compared_again():
    done = process("thrown")
    assert done.returncode == 0 and done.stdout.split() == ["raised", "1", "same"], done.stdout + done.stderr


def thrown():
    """Parameters move, the call is an audit, and the program's own function raises in it."""
    made, throws = trained(), []

    def step(x, y):
        loss = made.step(x, y)
        if throws:
            raise ValueError(throws.pop())
        return loss

    wrapped = steptape.wrap(step, model=made.model, optimizer=made.optimizer, verify={"rate": 0.0})
    for i in range(12):
        wrapped(*made.batch(i))
    audits = wrapped.stats["audits"]
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.data = parameter.data.clone()
    throws.append("by the program")
    try:
        wrapped(*made.batch(12))
    except ValueError:
        print("raised")
    for i in range(13, 20):
        wrapped(*made.batch(i))
    print(wrapped.stats["audits"] - audits)
    print("same" if wrapped.stats["replayed"] > 10 else wrapped.explain())


def test_updates_of_kernels_are_proved_by_the_trial():
    """A runtime that takes new numbers for a kernel and leaves the old ones: no plan is replayed."""
    done = process("updated", STEPTAPE_SIMULATED_CUDA_LOSES_UPDATES="1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["replayed"] == 0 and json.loads(done.stdout)["verifications"] > 0, done.stdout


def updated():
    stats = twins.compare(lambda: trained(schedule=lambda o: CosineAnnealingLR(o, 40)), 30).stats
    print(json.dumps({"replayed": stats["replayed"], "verifications": stats["trials"]}))


def test_a_device_that_fails_is_an_exception():
    done = process("failing")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["raised", "raised", "gone"], done.stdout + done.stderr


def failing():
    """An index beyond a table ends the device, as an assertion in a kernel would."""
    model = nn.Embedding(5, 3).to(DEVICE)
    optimizer = SGD(model.parameters(), lr=0.1)

    def train(x):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    step = steptape.wrap(train, model=model, optimizer=optimizer, verify={"rate": 0})
    for i in range(12):
        step(torch.tensor([1, 2, i % 5]).to(DEVICE))
    assert step.stats["replayed"] > 0
    for _ in range(2):
        try:
            step(torch.tensor([1, 2, 99]).to(DEVICE)).item()
        except RuntimeError:
            print("raised")
    del step
    gc.collect()
    print("gone")


def problem_of(make, steps, graphs, between, share, options):
    try:
        step = twins.compare(make, steps, **options)
    except (AssertionError, steptape.Error) as error:
        return str(error)
    told, stats = step.explain(), step.stats
    most = max(stats["variants"], key=lambda variant: variant["replays"], default=None)
    if most is None or stats["replayed"] < share * free_calls(stats):
        return told
    device = most["device"]
    reasons = tuple(call.split(": ", 1)[1] for call in device["between"])
    return "" if device["graphs"] == graphs and reasons == between else told


@case
def noise_of_the_default_generator():
    """And nothing there but the arguments."""
    return SimpleNamespace(step=lambda x, y: (F.dropout(x, 0.5), torch.randn_like(y), torch.rand(3)), batch=on_device, holds=lambda: [])


def main():
    torch.set_num_threads(1)
    twins.Randomness = Randomness
    if sys.argv[1] != "cases":
        return {"grouped": grouped, "failing": failing, "loaded": loaded, "drawn": drawn, "updated": updated, "ordered": ordered, "threads": threads,
                "thrown": thrown}[sys.argv[1]]()
    found = 0
    for name in list(CASES)[int(sys.argv[2])::int(sys.argv[3])]:
        problem = problem_of(*CASES[name])
        print(json.dumps([name, problem]), flush=True)
        found += problem != ""
    return found != 0


if __name__ == "__main__":
    sys.exit(main())

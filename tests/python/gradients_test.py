"""What a step does with gradients beside handing them to its optimizer: it clips, clears and adds them up."""
import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import SGD, SparseAdam

import steptape
from loops import adam, batch, is_refused, momentum, mse, net, program, replays, training
from twins import bits, codes_of, is_as_pinned, played_alike

CLIPS = {
    "norm": lambda p: clip_grad_norm_(p, 0.1),
    "norm of infinity": lambda p: clip_grad_norm_(p, 0.1, norm_type=float("inf")),
    "norm, loop": lambda p: clip_grad_norm_(p, 0.1, foreach=False),
    "norm, foreach": lambda p: clip_grad_norm_(p, 0.1, foreach=True),
    # Reads on the host whether the norm is finite: the same in each step.
    "norm, checked": lambda p: clip_grad_norm_(p, 0.1, error_if_nonfinite=True),
    "value": lambda p: clip_grad_value_(p, 0.01),
    "value, foreach": lambda p: clip_grad_value_(p, 0.01, foreach=True),
}


def clipped(clip, batch=batch):
    model = net()
    optimizer = adam(model)

    def step(x, y):
        optimizer.zero_grad()
        loss = mse(model, x, y)
        loss.backward()
        norm = clip(model.parameters())
        optimizer.step()
        return loss, norm

    return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer])


@pytest.mark.parametrize("clip", CLIPS)
def test_gradients_are_clipped(clip):
    replays(lambda: clipped(CLIPS[clip]))


def test_a_norm_that_is_not_finite_raises_as_in_eager():
    def batch(i):
        return torch.randn(4, 6), torch.randn(4, 3) * (float("inf") if i in (25, 26, 40) else 1)

    replays(lambda: clipped(CLIPS["norm, checked"], batch), 60, share=0.8)


@pytest.mark.parametrize("to_none", [True, False], ids=["to none", "to zero"])
def test_gradients_are_cleared(to_none):
    def make():
        model = net()
        optimizer = momentum(model)

        def step(x, y):
            optimizer.zero_grad(set_to_none=to_none)
            loss = mse(model, x, y)
            loss.backward()
            optimizer.step()
            return loss

        return SimpleNamespace(step=step, batch=batch, holds=lambda: [model, optimizer])

    replays(make)


@pytest.mark.parametrize("to_none", [True, False], ids=["to none", "to zero"])
def test_accumulation_in_two_steps(to_none):
    def make():
        model = net()
        optimizer = adam(model)

        def micro(x, y):
            loss = mse(model, x, y) / 4
            loss.backward()
            return loss

        def apply():
            optimizer.step()
            optimizer.zero_grad(set_to_none=to_none)

        def accumulate(micro, apply):
            def body(i, x, y):
                loss = micro(x, y)
                if i % 4 == 3:
                    apply()
                return loss

            return body

        return program(accumulate, micro, apply, batch=lambda i: (i, *batch(i)),
                       holds=[model, optimizer])

    step = replays(make, 100)
    assert all(part.stats["replayed"] >= 10 for part in step.steps), step.explain()


@pytest.mark.parametrize("to_none", [True, False], ids=["to none", "to zero"])
def test_accumulation_by_an_argument(to_none):
    def make():
        model = net()
        optimizer = adam(model)

        def step(x, y, last):
            loss = mse(model, x, y) / 4
            loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad(set_to_none=to_none)
            return loss

        return SimpleNamespace(step=step, batch=lambda i: (*batch(i), i % 4 == 3),
                               holds=lambda: [model, optimizer])

    replays(make, 100)


@pytest.mark.parametrize("kind", [SGD, SparseAdam])
def test_sparse_gradients_are_refused(kind):
    is_refused(lambda: training(
        nn.Embedding(10, 4, sparse=True),
        lambda model, x, y: F.mse_loss(model(x), y),
        optimizer_of=lambda m: kind(m.parameters(), lr=0.05),
        batch=lambda i: (torch.randint(10, (6,)), torch.randn(6, 4))), "tensor_kind")


def test_an_update_inside_backward():
    """One optimizer for each parameter, called when its gradient is there."""
    def make():
        model = net()
        optimizers = {p: SGD([p], lr=0.02, momentum=0.9) for p in model.parameters()}

        def update(p):
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(update)

        def step(x, y):
            loss = mse(model, x, y)
            loss.backward()
            return loss

        made = SimpleNamespace(step=step, batch=batch, optimizers=list(optimizers.values()))
        made.holds = lambda: [model, made.optimizers]
        return made

    replays(make, wrapper=lambda t, options: steptape.wrap(t.step, optimizer=t.optimizers, **options))


def test_what_is_hung_on_a_gradient_stays_with_it():
    eager = training(net(), optimizer_of=adam)
    taped = steptape.wrap(eager.step, model=eager.model, optimizer=eager.optimizer, verify={"rate": 0})
    looked_at, not_looked_at = list(eager.model.parameters())[:2]
    for i in range(12):
        taped(*batch(i))
        assert not hasattr(looked_at.grad, "mark")
        looked_at.grad.mark = i
        if i == 8:
            kept, bits = not_looked_at.grad, not_looked_at.grad.clone()
    assert taped.stats["replayed"] >= 6, taped.explain()
    assert kept is not not_looked_at.grad
    assert torch.equal(kept, bits)


def clears_by_name(w, others):
    w.grad = None


def clears_by_setattr(w, others):
    setattr(w, "grad", None)


def deletes(w, others):
    del w.grad


def clears_all(w, others):
    for parameter in others.parameters():
        parameter.grad = None


def clears_by_zero_grad(w, others):
    others.zero_grad()


@pytest.mark.parametrize("clear", [clears_by_name, clears_by_setattr, deletes, clears_all, clears_by_zero_grad])
@pytest.mark.parametrize("w", [torch.ones(3), nn.Parameter(torch.ones(3), requires_grad=False)], ids=["tensor", "frozen"])
def test_a_gradient_that_was_never_there_is_there_later_and_cleared(clear, w):
    def make():
        weight, frozen = w.clone() if type(w) is torch.Tensor else nn.Parameter(w.clone(), requires_grad=False), net()
        frozen.requires_grad_(False)

        def step(x, y):
            clear(weight, frozen)
            return frozen(x) * weight

        def after(i):
            if i in (12, 20):
                for tensor in (weight, *frozen.parameters()):
                    tensor.grad = torch.ones_like(tensor)

        return SimpleNamespace(step=step, batch=batch, after=after,
                               holds=lambda: [frozen, weight.grad])

    replays(make, 30, share=0.5)


def test_a_gradient_of_an_argument_that_requires_none_is_cleared():
    def make():
        def step(x):
            x.grad = None
            return x * 2
        return SimpleNamespace(step=step, batch=lambda i: (torch.full((3,), i),), holds=list)

    is_refused(make, "host_effect")


class FlatGradients:
    """Gradients that are views of one tensor, as those of flat optimizers and of DistributedDataParallel's buckets."""

    def __init__(self, clears):
        self.model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 5), nn.Linear(5, 3))
        self.optimizer = momentum(self.model)
        self.clears = clears
        self.give()

    def give(self):
        self.flat = torch.zeros(sum(p.numel() for p in self.model.parameters()))
        first = 0
        for p in self.model.parameters():
            p.grad = self.flat[first:first + p.numel()].view_as(p)
            first += p.numel()

    def step(self, x, y):
        if self.clears == "each":
            self.optimizer.zero_grad(set_to_none=False)
        else:
            self.flat.zero_()
        loss = mse(self.model, x, y)
        loss.backward()
        self.flat.clamp_(-0.01, 0.01)
        self.optimizer.step()
        return loss.detach(), self.flat.norm()


def take_one(twin):
    twin.model[0].weight.grad = twin.model[0].weight.grad.clone()


def swap_two(twin):
    a, b = twin.model[0].bias, twin.model[2].bias
    a.grad, b.grad = b.grad, a.grad


def share_one(twin):
    twin.model[0].bias.grad = twin.model[2].bias.grad


def drop_one(twin):
    twin.model[3].bias.grad = None


def drop_all(twin):
    twin.optimizer.zero_grad()


def move_on(twin):
    moved = torch.zeros(twin.flat.numel() + 8)
    first = 8
    for p in twin.model.parameters():
        p.grad = moved[first:first + p.numel()].view_as(p)
        first += p.numel()
    twin.flat = moved[8:]


def scale(twin):
    twin.flat.mul_(3.0)


def view_anew(twin):
    p = twin.model[2].weight
    p.grad = p.grad.view(25).view(5, 5)


def transpose_one(twin):
    p = twin.model[2].weight
    p.grad = p.grad.t()


CHANGES = [FlatGradients.give, take_one, swap_two, share_one, drop_one, drop_all, move_on, scale, view_anew, transpose_one]


@pytest.mark.parametrize("clears", ["each", "flat"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_gradients_that_are_views_of_one_tensor(clears, change):
    torch.manual_seed(0)
    plain = FlatGradients(clears)
    torch.manual_seed(0)
    taped = FlatGradients(clears)
    step = steptape.wrap(taped.step, verify={"first": True, "rate": 0.0})
    for call in range(24):
        if call == 12:
            assert step.stats["replayed"] >= 6, step.explain()
            change(plain)
            change(taped)
        x, y = batch(call)
        expected, found = plain.step(x, y), step(x, y)
        state = [(p.grad, p) for p in plain.model.parameters()], plain.flat
        assert bits([expected, state]) == bits([found, ([(p.grad, p) for p in taped.model.parameters()], taped.flat)]), call
        shared = [[p.grad is not None and p.grad.untyped_storage().data_ptr() == t.flat.untyped_storage().data_ptr()
                   for p in t.model.parameters()] for t in (plain, taped)]
        assert shared[0] == shared[1]


def detach(p, flat):
    p.grad = p.grad.detach()


def lay_out_anew(p, flat):
    p.grad = p.grad.t() if p.dim() == 2 else p.grad.flip(0)


def view_of_another(p, flat):
    p.grad = flat.copy_(p.grad.reshape(-1)).view_as(p)


@pytest.mark.parametrize("to_none", [True, False], ids=["to none", "to zero"])
@pytest.mark.parametrize("change", [detach, lay_out_anew, view_of_another], ids=lambda change: change.__name__)
def test_a_gradient_that_the_step_makes_another_tensor_of(change, to_none):
    """Over the same memory or not: what hung on the tensor of before is not there, and it lies as in eager."""
    def make():
        torch.manual_seed(0)
        model = nn.Linear(5, 5)
        optimizer, flats = SGD(model.parameters(), 0.1), [torch.zeros(25), torch.zeros(5)]

        def step(x):
            optimizer.zero_grad(set_to_none=to_none)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            for p, flat in zip(model.parameters(), flats):
                change(p, flat)
            return loss.detach()

        return model, flats, step

    (plain, plain_flats, eager), (taped, taped_flats, body) = make(), make()
    step = steptape.wrap(body, verify={"first": True, "rate": 0.0})
    for call in range(16):
        x = torch.randn(4, 5)
        seen = []
        for model, run in ((plain, eager), (taped, step)):
            before = [p.grad for p in model.parameters()]
            for g in before:
                if g is not None:
                    g.mark = call
            loss = run(x)
            seen.append((bits(loss), [(bits(p.grad), p.grad.stride(), p.grad is g, getattr(p.grad, "mark", None))
                                      for p, g in zip(model.parameters(), before)]))
        assert seen[0] == seen[1], call
        assert bits([*plain.parameters(), *plain_flats]) == bits([*taped.parameters(), *taped_flats]), call
    assert step.stats["replayed"] >= 7, step.explain()


def keep(model, optimizer, state, x):
    state.kept = model[0].weight.grad
    optimizer.zero_grad()
    mean_square(model, x).backward()
    optimizer.step()
    return model[0].weight.grad


def keep_each(model, optimizer, state, x):
    state.kept = [p.grad for p in model.parameters()][0]
    optimizer.zero_grad()
    mean_square(model, x).backward()
    optimizer.step()
    return [p.grad for p in model.parameters()][0]


def give_back(model, optimizer, state, x):
    kept = state.kept = model[0].weight.grad
    model[0].weight.grad = None
    mean_square(model, x).backward()
    optimizer.step()
    return kept


def mean_square(model, x):
    return model(x).square().mean()


@pytest.mark.parametrize("body", [keep, keep_each, give_back], ids=lambda body: body.__name__)
def test_the_gradient_of_the_call_before_that_the_step_keeps_is_that_tensor(body):
    def make():
        torch.manual_seed(0)
        model, state = nn.Sequential(nn.Linear(4, 3)), SimpleNamespace(kept=None)
        optimizer = SGD(model.parameters(), 0.05)
        return model, state, lambda x: body(model, optimizer, state, x)

    (plain, kept, eager), (taped, kept_there, run) = make(), make()
    step = steptape.wrap(run, verify={"first": True, "rate": 0.0})
    for call in range(14):
        x, seen = torch.randn(6, 4), []
        for model, state, function in ((plain, kept, eager), (taped, kept_there, step)):
            before = model[0].weight.grad
            result = function(x)
            seen.append((state.kept is before, result is before, result is model[0].weight.grad, bits([result, state.kept])))
            if call > 8:
                before.add_(1)  # whoever holds it sees it
                seen[-1] += (bits(state.kept),)
        assert seen[0] == seen[1], call
    assert step.stats["replayed"] >= 8, step.explain()


def flat_parameters(model, flat):
    first = 0
    for p in model.parameters():
        p.data = flat[first:first + p.numel()].view_as(p)
        first += p.numel()


def flat_gradients(model, flat):
    first = 0
    for p in model.parameters():
        p.grad = flat[first:first + p.numel()].view_as(p)
        first += p.numel()


@pytest.mark.parametrize("writes", ["the optimizer", "all of it", "both"])
@pytest.mark.parametrize("share", [flat_parameters, flat_gradients], ids=lambda share: share.__name__)
def test_versions_of_tensors_that_lie_in_one_memory(share, writes):
    """Views of one tensor share a counter, parameters that were given memory of one have each their own."""
    def make():
        torch.manual_seed(0)
        model = net()
        flat = torch.zeros(sum(p.numel() for p in model.parameters()))
        share(model, flat)
        optimizer = momentum(model)

        def step(x, y):
            optimizer.zero_grad(set_to_none=False)
            loss = mse(model, x, y)
            loss.backward()
            if writes != "the optimizer":
                flat.mul_(0.9)
            if writes != "all of it":
                optimizer.step()
            return loss.detach()

        return model, flat, step

    (plain, flat, eager), (taped, flat_there, body) = make(), make()
    step = steptape.wrap(body, verify={"first": True, "rate": 0.0})
    for call in range(14):
        x, y = batch(call)
        seen = []
        for model, memory, function in ((plain, flat, eager), (taped, flat_there, step)):
            tensors = [*model.parameters(), memory, *(p.grad for p in model.parameters() if p.grad is not None)]
            before = [tensor._version for tensor in tensors]
            function(x, y)
            seen.append([tensor._version - version for tensor, version in zip(tensors, before)])
        assert seen[0] == seen[1], call
    assert step.stats["replayed"] >= 8, step.explain()


def hutchinson(p, x):
    (p * x).pow(3).sum().backward(create_graph=True)
    curvature, = torch.autograd.grad(p.grad, p, torch.ones(4))
    with torch.no_grad():
        p.sub_(.01 * p.grad / (curvature.abs() + 1))


def left_open(p, x):
    (p * x).pow(3).sum().backward(create_graph=True)


def a_leaf(p, x):
    p.grad = (p.detach() * x).requires_grad_()


def a_leaf_that_is_used(p, x):
    p.grad = (p.detach() * x).requires_grad_()
    p.grad.square().sum().backward()


def views(p, x):
    (p * x).pow(3).sum().backward(create_graph=True)
    torch.autograd.grad(p.grad.sum(), p)
    p.grad = p.grad.view(2, 2).t().reshape(4)


@pytest.mark.parametrize("backward, code", [
    (hutchinson, None), (left_open, "escaped_buffer"), (a_leaf, None), (a_leaf_that_is_used, "escaped_buffer"), (views, None),
], ids=lambda value: getattr(value, "__name__", ""))
def test_a_gradient_that_requires_grad(backward, code):
    """As `backward(create_graph=True)` leaves it: the graph has been consumed, and another backward through it raises."""
    def look(p):
        if p.grad is None:
            return None
        node = p.grad.grad_fn
        failed = ""
        try:
            p.grad.sum().backward()
        except RuntimeError as error:
            failed = str(error)
        return bits(p.grad), p.grad.requires_grad, p.grad.is_leaf, node is not None and node.name(), failed, bits(p.grad.grad)

    def play(wrap):
        torch.manual_seed(0)
        p = torch.nn.Parameter(torch.randn(4))

        @wrap
        def step(x):
            p.grad = None
            backward(p, x)
            return p.detach().sum().item()

        return [(step(torch.randn(4)), bits(p), look(p)) for _ in range(20)], step

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of create_graph
        step = played_alike(play)
    is_as_pinned(step, code)


def test_a_gradient_whose_requires_grad_is_switched():
    def play(wrap):
        p = torch.nn.Parameter(torch.ones(4))
        p.grad = torch.ones(4)

        @wrap
        def step(x, on):
            p.grad.requires_grad_(on)
            return p.detach() * x

        return [(bits(step(torch.randn(4, generator=torch.Generator().manual_seed(i)), i % 3 == 0)), p.grad.requires_grad) for i in range(20)], step

    step = played_alike(play)
    assert "host_effect" in codes_of(step), step.explain()


class Lazy(nn.Module):
    """Its buffers require grad from the first call on, as those of vector-quantize-pytorch do."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("zero", torch.tensor(0.))
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x):
        self.scale.requires_grad_()
        return self.linear(x) * self.scale, self.zero.requires_grad_()


@pytest.mark.parametrize("resets", [False, True])
def test_the_gradient_of_a_module_s_buffer_adds_up(resets):
    def play(wrap):
        torch.manual_seed(0)
        model = Lazy()
        optimizer = adam(model)

        @wrap
        def step(x):
            optimizer.zero_grad()
            y, loss = model(x)
            loss = y.square().mean() + loss * 2
            loss.backward()
            optimizer.step()
            return loss.detach()

        seen = []
        for i in range(24):
            if resets and i == 10:
                model.zero.grad = None
            if resets and i == 15:
                model.scale.grad = torch.ones(4)
            seen.append(bits([step(torch.randn(3, 4)), model.zero.grad, model.scale.grad, model.zero.grad._version, list(model.parameters())]))
        return seen, step

    step = played_alike(play)
    assert step.stats["replayed"] >= 12, step.explain()


SET_TO = {"float32": torch.float32, "None": None, "bfloat16": torch.bfloat16}


@pytest.mark.parametrize("zeroes", [False, True], ids=["", "zeroed last"])
@pytest.mark.parametrize("late", [0, 12])
@pytest.mark.parametrize("to", SET_TO)
@pytest.mark.parametrize("of", ["parameters", "a tensor", "an argument"])
def test_the_dtype_that_gradients_are_to_have(of, to, late, zeroes):
    """`grad_dtype` (torch 2.10): here of bfloat16 tensors that get two gradients, which add up in it."""
    def play(wrap):
        torch.manual_seed(0)
        model, scale = nn.Linear(4, 3).bfloat16(), torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
        added = torch.zeros(3, dtype=torch.bfloat16, requires_grad=True)

        @wrap
        def step(x, y, added):
            for each in (x, y):
                (model(each) * scale + added).float().square().mean().backward()
            left = model.weight.grad, scale.grad
            with torch.no_grad():
                model.weight.sub_(.1 * model.weight.grad)
            if zeroes:
                model.weight.grad = model.bias.grad = scale.grad = None
            return left

        seen = []
        for i in range(24):
            if i == late:
                for each in {"parameters": list(model.parameters()), "a tensor": [scale], "an argument": [added]}[of]:
                    each.grad = None
                    each.grad_dtype = SET_TO[to]
            draw = torch.Generator().manual_seed(i)
            left = step(*[torch.randn(2, 4, generator=draw).bfloat16() for _ in range(2)], added)
            seen.append(bits([left, added.grad, model.weight, [None if g is None else str(g.dtype) for g in (*left, added.grad)]]))
            added.grad = None
        return seen, step

    step = played_alike(play)
    if of == "an argument":
        assert "host_effect" in codes_of(step), step.explain()
    else:
        assert step.stats["replayed"] >= 10, step.explain()


def test_a_step_that_sets_it_is_refused():
    def play(wrap):
        p = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))

        @wrap
        def step(x, wide):
            p.grad = None
            p.grad_dtype = torch.float32 if wide else torch.bfloat16
            (p * x).float().sum().backward()
            return p.grad

        return [bits(step(torch.full((4,), i / 3).bfloat16(), i % 4 == 3)) for i in range(16)], step

    step = played_alike(play)
    assert "host_effect" in codes_of(step), step.explain()


SHARED = {  # what the step does with gradients of three parameters after backward, and the code of its refusal or None
    "one of another": ("b.grad = a.grad", None),
    "one of the two others": ("b.grad = a.grad\n    c.grad = b.grad", None),
    "the first of the last": ("a.grad = c.grad", None),
    "and returned": ("b.grad = a.grad\n    return a.grad", None),
    "and kept": ("b.grad = a.grad\n    held.g = b.grad", None),
    "a new one of two": ("b.grad = a.grad = torch.ones(2) * loss.detach()", None),
    "over the same memory": ("b.grad = a.grad.detach()", None),
    "a copy": ("b.grad = a.grad.clone()", None),
    "one taken from another": ("b.grad, a.grad = a.grad, None", None),
    "exchanged": ("a.grad, b.grad = b.grad, a.grad", None),
    "an argument": ("b.grad = y", "rebound_tensor"),
}


@pytest.mark.parametrize("resets", [False, True], ids=["kept", "reset"])
@pytest.mark.parametrize("way, code", SHARED.values(), ids=SHARED)
def test_one_tensor_is_the_gradient_of_two_parameters(way, code, resets):
    def play(wrap):
        torch.manual_seed(0)
        a, b, c = (torch.nn.Parameter(torch.randn(2)) for _ in range(3))
        optimizer, held = torch.optim.SGD([a, b, c], lr=0.01), SimpleNamespace(g=None)
        scope = dict(a=a, b=b, c=c, held=held, optimizer=optimizer, torch=torch)
        exec("def step(x, y):\n    optimizer.zero_grad()\n    loss = ((a + 2 * b + 0.1 * c) * x).sum().square()\n    loss.backward()\n    optimizer.step()\n"
             f"    {way}\n    return loss.detach()\n", scope)
        step, seen = wrap(scope["step"]), []
        for i in range(20):
            if resets and i % 5 == 4:
                a.grad = None
            result = step(torch.full((2,), 0.1 * (i % 5)), torch.full((2,), 0.1 * i))
            gradients = [p.grad for p in (a, b, c)]
            seen.append((bits(result), bits(gradients), [[g is h for h in (*gradients, held.g, result)] for g in gradients]))
            if i > 12 and gradients[1] is not None:
                gradients[1].mul_(0.5)  # in both, where they are one
                seen.append(bits([p.grad for p in (a, b, c)]))
        return seen, bits([a, b, c]), step

    step = played_alike(play)
    if code is None:
        assert step.stats["replayed"] >= 8, step.explain()
    else:
        assert step.stats["replayed"] == 0 and code in codes_of(step), step.explain()

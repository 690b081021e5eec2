"""Guards of parameters, module buffers and gradients."""
import collections
import contextvars
import functools

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from classification import Program, sgd
from guarded import EDIT, STEPS, Net, check, classifier, named


def replace_parameter(program):
    head = program.model.head
    head.weight = nn.Parameter(head.weight.detach() * 0.5)


def set_data(program):
    program.model.head.weight.data = program.model.head.weight.detach() * 0.5


def edit_in_place(program):
    with torch.no_grad():
        program.model.head.weight.mul_(0.5)


def edit_through_numpy(program):
    program.model.head.weight.detach().numpy()[0] = 0.5


def tie(program):
    program.model.body[4].bias = program.model.body[1].bias


def untie(program):
    norm = program.model.body[4]
    norm.bias = nn.Parameter(norm.bias.detach().clone())


def reorder_parameters(program):
    head = program.model.head
    head._parameters = dict(reversed(head._parameters.items()))


PARAMETER_EDITS = {
    "replaced": replace_parameter,
    "data_set": set_data,
    "edited_in_place": edit_in_place,
    "edited_through_numpy": edit_through_numpy,
    "registered": lambda p: p.model.register_parameter("bias", nn.Parameter(torch.ones(4))),
    "deleted": lambda p: p.model.head.register_parameter("bias", None),
    "tied": tie,
    "frozen": lambda p: p.model.head.weight.requires_grad_(False),
    "all_but_the_head_frozen": lambda p: p.model.body.requires_grad_(False),
}


@named(PARAMETER_EDITS)
def test_a_parameter_changes(case):
    check(classifier, case)


def test_a_parameter_is_untied():
    check(functools.partial(classifier, prepare=tie), untie)


def test_the_order_of_parameters_changes():
    check(classifier, reorder_parameters, matters=None)


def test_a_parameter_is_frozen_and_thawed():
    check(classifier, {
        EDIT: lambda p: p.model.body.requires_grad_(False),
        EDIT + 12: lambda p: p.model.body.requires_grad_(True),
    })


def test_a_model_goes_to_another_dtype():
    def prepare(program):
        inner = program.step

        def cast(x, y):
            return inner(x.to(program.model.head.weight.dtype), y)
        program.step = cast

    # Conversions in mid-run may cost a warm-up: eager on the way is as good.
    check(functools.partial(classifier, prepare=prepare), lambda p: p.model.double(), share=None)


@named({
    "replaced": lambda p: setattr(p.model, "shift", torch.ones(4)),
    "replaced_in_another_dtype": lambda p: setattr(p.model, "shift", torch.ones(4).double()),
    "edited_in_place": lambda p: p.model.shift.copy_(torch.arange(4.0)),
    "expanded": lambda p: setattr(p.model, "shift", torch.arange(1.0, 2.0).expand(4)),
    "deleted": lambda p: setattr(p.model, "shift", None),
    "moved_in_memory": lambda p: setattr(
        p.model.body[1], "running_mean", p.model.body[1].running_mean * 0.5),
})
def test_a_module_buffer_changes(case):
    def prepare(program):
        program.model.shift.copy_(torch.tensor([0.0, 0.5, 0.0, 0.5]))

    check(functools.partial(classifier, prepare=prepare), case)


def accumulating():
    """A step that never zeroes its gradients."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def train(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return Program(step=train, model=model, optimizer=optimizer)


def set_gradients(value):
    def edit(program):
        for parameter in program.model.parameters():
            parameter.grad = value(parameter)
    return edit


def clear_one_gradient(program):
    program.model.head.weight.grad = None


@named({
    "none": set_gradients(lambda p: None),
    "one_is_none": clear_one_gradient,
    "replaced": set_gradients(torch.ones_like),
    "transposed": set_gradients(lambda p: torch.ones_like(p).t().contiguous().t()),
    "edited_in_place": lambda p: [q.grad.mul_(0.5) for q in p.model.parameters()],
    "shared": set_gradients(lambda p: torch.zeros(1).expand_as(p).clone()),
})
def test_a_gradient_changes_between_two_calls(case):
    check(accumulating, case)


def test_gradients_are_none_at_every_fourth_call():
    clear = set_gradients(lambda p: None)
    check(accumulating, {i: clear for i in range(4, STEPS, 4)}, begins=False)


def normalized():
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 4))


def with_a_target():
    """A target network that is only read, an untracked tensor, and momentum."""
    model, target = normalized(), normalized().requires_grad_(False)
    optimizer = sgd(model.parameters())
    weights = torch.ones(4)
    model.register_buffer("seen", torch.zeros(4))

    def step(x, y):
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out * weights, y) + (out - target(x)).square().mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.seen += 0.01 * out.detach().sum(0)
        return loss.detach(), model.seen + 0

    return Program(step=step, model=model, target=target, optimizer=optimizer, weights=weights)


def share(of, with_):
    """`of(program)` lies in the memory of `with_(program)` for a while."""
    def edit(program):
        tensor = of(program)
        program.apart = tensor.data
        tensor.data = with_(program).data

    def put_back(program):
        of(program).data = program.apart

    return {EDIT: edit, EDIT + 12: put_back}


def momentum_of(index):
    def found(program):
        return program.optimizer.state[list(program.model.parameters())[index]]["momentum_buffer"]
    return found


SHARED = {
    "a_target_and_the_model": share(lambda p: p.target[0].weight, lambda p: p.model[0].weight),
    "the_model_and_its_target": share(lambda p: p.model[2].bias, lambda p: p.target[2].bias),
    "a_buffer_and_a_parameter": share(lambda p: p.model.seen, lambda p: p.model[2].bias),
    "a_parameter_and_a_buffer": share(lambda p: p.model[2].bias, lambda p: p.model.seen),
    "two_parameters": share(lambda p: p.model[0].bias, lambda p: p.model[1].weight),
    "momentum_and_momentum": share(momentum_of(1), momentum_of(2)),
    "momentum_and_its_parameter": share(momentum_of(0), lambda p: p.model[0].weight),
    "an_untracked_tensor_and_a_parameter": share(lambda p: p.weights, lambda p: p.model[2].bias),
    "a_parameter_and_an_untracked_tensor": share(lambda p: p.model[2].bias, lambda p: p.weights),
}


@named(SHARED)
def test_two_memories_become_one(case):
    step = check(with_a_target, case)
    assert any(guard["kind"] == "overlap" for guard in step.stats["fallbacks"]), step.explain()


def test_parameters_that_are_read_alone_may_share_their_memory():
    """Nothing that the plan does is other for it."""
    def edit(program):
        program.target[0].bias.data = program.target[1].weight.data.clone()
        program.target[1].weight.data = program.target[0].bias.data

    step = check(with_a_target, edit)
    assert not any(guard["kind"] == "overlap" for guard in step.stats["fallbacks"]), step.explain()


def captured(hold):
    """`hold` puts a tensor where the step finds it, and gives how."""
    def make():
        mask = torch.arange(36.0).view(6, 6) / 36
        find = hold(mask)
        model = nn.Linear(6, 4)
        optimizer = sgd(model.parameters())

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x @ find()), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return Program(step=step, model=model, optimizer=optimizer, mask=mask)
    return make


def in_a_variable(mask):
    variable = contextvars.ContextVar("mask", default=mask)
    return variable.get


def in_a_default(mask):
    def find(mask=mask):
        return mask
    return find


def in_a_cache(mask):
    @functools.lru_cache
    def find():
        return mask
    find()
    return find


HOLDERS = {
    "context_variable": in_a_variable, "default": in_a_default, "cache": in_a_cache,
    "cell": lambda mask: lambda: mask, "deque": lambda mask: (lambda held: lambda: held[0])(collections.deque([mask])),
    "set": lambda mask: (lambda held: lambda: next(iter(held)))({mask}),
    "tuples": lambda mask: (lambda held: lambda: held[0][0][0][0])(((((mask,),),),)),
    "partial": lambda mask: functools.partial(lambda held: held, mask),
}
CHANGES = {
    "transposed": lambda program: program.mask.t_(),
    "other_data": lambda program: setattr(program.mask, "data", program.mask.data.t() * 2),
    "other_strides": lambda program: setattr(program.mask, "data", program.mask.data.t()),
}


@named(CHANGES)
@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_a_tensor_that_is_captured_changes(hold, case):
    check(captured(hold), case)

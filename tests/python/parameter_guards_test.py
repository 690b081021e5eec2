"""Guards of parameters, module buffers and gradients."""
import functools

import torch
import torch.nn as nn
import torch.nn.functional as F

from classification import Program
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

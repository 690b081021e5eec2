"""Guards of an optimizer: its parameter groups and its state."""
import collections
import functools

import torch

from guarded import EDIT, adam, check, classifier, named


def set_group(**values):
    return lambda p: p.optimizer.param_groups[0].update(values)


def without_head(model):
    return (p for n, p in model.named_parameters() if not n.startswith("head"))


def replace_parameter_list(program):
    group = program.optimizer.param_groups[0]
    for parameter in group["params"][-2:]:
        del program.optimizer.state[parameter]
    group["params"] = group["params"][:-2]


def empty_group(program):
    program.optimizer.param_groups[0]["params"] = []
    program.optimizer.state.clear()


def remove_group(program):
    program.optimizer.param_groups.clear()
    program.optimizer.state.clear()


def reset_state(program):
    program.optimizer.state = collections.defaultdict(dict)


def replace_moments(program):
    state = program.optimizer.state[program.model.head.weight]
    state["exp_avg"] = torch.ones_like(state["exp_avg"])


def edit_moments(program):
    program.optimizer.state[program.model.head.weight]["exp_avg"].zero_()


def set_step_count(program):
    for state in program.optimizer.state.values():
        state["step"].fill_(2.0)


def replace_step_count(program):
    for state in program.optimizer.state.values():
        state["step"] = torch.tensor(2.0)


def delete_state_entry(program):
    del program.optimizer.state[program.model.head.weight]


def load_state(program):
    state = program.optimizer.state_dict()
    for entry in state["state"].values():
        entry["exp_avg"] = entry["exp_avg"] * 0
    program.optimizer.load_state_dict(state)


GROUP_EDITS = {
    "lr": set_group(lr=0.001),
    "lr_as_a_tensor": set_group(lr=torch.tensor(0.001)),
    "lr_zero": set_group(lr=0.0),
    "betas": set_group(betas=(0.5, 0.9)),
    "eps": set_group(eps=0.1),
    "weight_decay": set_group(weight_decay=0.1),
    "maximize": set_group(maximize=True),
    "parameter_list": replace_parameter_list,
    "group_emptied": empty_group,
    "group_removed": remove_group,
    "step_replaced": lambda p: setattr(p.optimizer, "step", lambda: None),
    "zero_grad_replaced": lambda p: setattr(p.optimizer, "zero_grad", lambda: None),
}


@named(GROUP_EDITS)
def test_a_parameter_group_changes(case):
    # A tensor as learning rate, and a step of the user's own, may be refused: eager is as good.
    free = (GROUP_EDITS["lr_as_a_tensor"], GROUP_EDITS["step_replaced"])
    check(functools.partial(classifier, adam), case, share=None if case in free else 0.9)


def test_a_parameter_group_is_added():
    make = functools.partial(classifier, adam, parameters=without_head)
    check(make, lambda p: p.optimizer.add_param_group(
        {"params": list(p.model.head.parameters()), "lr": 0.002}))


@named({
    "entry_of_the_users_own": set_group(name="all"),
    "list_of_groups_copied": lambda p: setattr(
        p.optimizer, "param_groups", list(p.optimizer.param_groups)),
    "group_copied": lambda p: setattr(
        p.optimizer, "param_groups", [dict(g) for g in p.optimizer.param_groups]),
    "defaults": lambda p: p.optimizer.defaults.update(lr=1.0),
})
def test_a_group_that_says_the_same_replays(case):
    check(functools.partial(classifier, adam), case, matters=False)


def test_a_learning_rate_that_moves_in_every_call_replays():
    def decay(program):
        program.optimizer.param_groups[0]["lr"] *= 0.99

    check(functools.partial(classifier, adam), {"each": decay})


@named({
    "replaced": reset_state,
    "cleared": lambda p: p.optimizer.state.clear(),
    "entry_deleted": delete_state_entry,
    "moments_replaced": replace_moments,
    "moments_edited": edit_moments,
    "step_count_edited": set_step_count,
    "step_count_replaced": replace_step_count,
    "loaded": load_state,
})
def test_the_state_of_an_optimizer_changes(case):
    check(functools.partial(classifier, adam), case)


def test_the_order_of_optimizer_state_changes():
    def reorder(program):
        state = program.optimizer.state
        state[program.model.head.weight] = state.pop(program.model.head.weight)

    check(functools.partial(classifier, adam), reorder, matters=False)


def test_a_scheduler_is_made_in_mid_run():
    def make(program):
        program.scheduler = torch.optim.lr_scheduler.ExponentialLR(program.optimizer, 0.9)

    def advance(program):
        if hasattr(program, "scheduler"):
            program.scheduler.step()

    # A scheduler replaces `optimizer.step` by a function of its own, which sets a flag.
    check(functools.partial(classifier, adam), {EDIT: make, "each": advance}, share=None)

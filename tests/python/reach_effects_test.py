"""What a step deletes or sets, also in its arguments, is done again or refused."""
import dataclasses
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

from reached import Table, Training, check, rows

effects = Table()


def deletes_its_flag(held):
    def step(x):
        del held.flag
        return x * 2

    return Training(step, each=lambda _: setattr(held, "flag", 3), holds=lambda: [sorted(vars(held))],
                    codes={"host_effect"}, matters=False)


@effects
def an_attribute_is_deleted():
    return deletes_its_flag(SimpleNamespace())


@effects
def an_attribute_of_a_module_is_deleted():
    return deletes_its_flag(nn.Linear(1, 1))


@effects
def a_key_is_popped():
    table = {"a": 1}

    def step(x):
        table.pop("flag", None)
        return x * 2

    return Training(step, each=lambda _: table.update(flag=3), holds=lambda: [dict(table)], codes={"host_effect"},
                    matters=False)


DELETED = 0


@effects
def a_global_is_deleted():
    def step(x):
        global DELETED
        del DELETED
        return x * 2

    def given(_):
        global DELETED
        DELETED = 3

    return Training(step, each=given, holds=lambda: ["DELETED" in globals()], codes={"host_effect"}, matters=False)


@effects
def a_variable_of_a_closure_is_deleted():
    cell = 3

    def step(x):
        nonlocal cell
        del cell
        return x * 2

    def given(_):
        nonlocal cell
        cell = 3

    def holds():
        try:
            return [cell]
        except NameError:
            return ["deleted"]

    return Training(step, each=given, holds=holds, codes={"host_effect"}, matters=False)


def of_a_dict(change, **expected):
    table = {}

    def step(x):
        change(table)
        return x * 2

    def given(_):
        table.clear()
        table.update(a=1, b=2)

    return Training(step, each=given, holds=lambda: [dict(table)], matters=False, **expected)


@effects
def two_keys_are_set():
    return of_a_dict(lambda table: table.update(a=5, b=6))


@effects
def a_key_is_set_and_another_comes():
    def change(table):
        table["a"] = 5
        table["new"] = 1

    return of_a_dict(change)


@effects
def a_key_goes_behind_another():
    def change(table):
        table.pop("a")
        table["a"] = 5

    return of_a_dict(change, codes={"host_effect"})


@effects
def two_items_of_a_list_are_set():
    items = [1, 2]

    def step(x):
        items[0] = 5
        items[1] = 6
        return x * 2

    return Training(step, each=lambda _: items.__setitem__(slice(None), [1, 2]), holds=lambda: [list(items)],
                    matters=False)


def of_an_object(before, step):
    held = SimpleNamespace(**before)
    return Training(lambda x: step(held, x), each=lambda _: vars(held).update(before), holds=lambda: [dict(vars(held))],
                    matters=False)


@effects
def a_bool_takes_the_place_of_an_equal_int():
    def step(held, x):
        held.value = True
        return x * 2

    return of_an_object({"value": 1}, step)


@effects
def two_attributes_are_set():
    def step(held, x):
        held.one = 1
        held.other = 2
        return x * 2

    return of_an_object({"one": 0, "other": 0}, step)


@effects
def an_attribute_is_set_to_an_object():
    held, other = SimpleNamespace(value=None), SimpleNamespace(inner=1)

    def step(x):
        held.value = other
        return x * 2

    return Training(step, each=lambda _: setattr(held, "value", None), holds=lambda: [held.value is other], matters=False)


@effects
def two_lists_change_places():
    held = SimpleNamespace(one=[1], other=[2])

    def step(x):
        held.one, held.other = held.other, held.one
        return x * held.one[0]

    return Training(step, holds=lambda: [held.one, held.other])


@effects
def an_argument_list_grows():
    def step(x, items):
        items.append(1)
        return x * 2

    return Training(step, batch=lambda i, _: rows(i) + ([],), codes={"host_effect"}, matters=False)


@effects
def a_list_in_an_argument_grows():
    def step(inputs):
        inputs["items"].append(3)
        return inputs["x"] * 2

    return Training(step, batch=lambda i, _: ({"x": rows(i)[0], "items": [1]},), codes={"host_effect"}, matters=False)


@effects
def the_labels_are_popped_from_an_argument():
    model = nn.Linear(3, 3)

    def step(inputs):
        labels = inputs.pop("labels")
        return F.mse_loss(model(inputs["x"]), labels).detach()

    return Training(step, batch=lambda i, _: ({"x": rows(i)[0], "labels": rows(i + 1)[0]},), codes={"host_effect"},
                    matters=False)


@effects
def a_key_of_an_argument_is_renamed():
    def step(inputs):
        inputs["renamed"] = inputs.pop("x")
        return inputs["renamed"] * 2

    return Training(step, batch=lambda i, _: ({"x": rows(i)[0], "y": 1},), codes={"host_effect"}, matters=False)


@effects
def an_argument_dict_gets_a_tensor():
    def step(inputs):
        inputs["z"] = inputs["x"] * 2
        return inputs["x"]

    return Training(step, batch=lambda i, _: ({"x": rows(i)[0]},), codes={"host_effect", "escaped_buffer"},
                    matters=False)


@dataclasses.dataclass
class Batch:
    x: torch.Tensor


@effects
def a_field_of_an_argument_is_set():
    def step(batch):
        batch.x = batch.x * 2
        return batch.x + 1

    return Training(step, batch=lambda i, _: (Batch(*rows(i)),), codes={"host_effect", "escaped_buffer"}, matters=False)


@effects.each
def test_what_a_step_deletes_or_sets(case):
    check(case)

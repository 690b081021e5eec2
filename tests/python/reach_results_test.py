"""What a step gives back is built as it is in eager: the same kinds, and one object where there is one."""
import collections
import enum
import math

import numpy as np
import torch
import torch.nn as nn

from reached import Table, Training, check, rows

results = Table()


@results
def the_same_list_twice():
    def step(x):
        result = [x * 2]
        return result, result

    return Training(step)


@results
def the_same_tensor_three_times():
    def step(x):
        result = x * 2
        return result, result, [result]

    return Training(step)


@results
def the_same_dict_under_two_keys():
    def step(x):
        shared = {"loss": 1}
        return {"a": shared, "b": shared, "x": x * 2}

    return Training(step)


@results
def an_ordered_dict():
    def step(x):
        result = collections.OrderedDict(a=x * 2, b=x * 3)
        result.move_to_end("a")
        return result

    return Training(step)


class Mode(enum.IntEnum):
    FIRST = 1


@results
def a_member_of_an_int_enum():
    return Training(lambda x: (x * 2, Mode.FIRST))


@results
def a_float_of_numpy():
    scale = np.float64(2.0)
    return Training(lambda x: (x * 2, scale))


@results
def a_tensor_that_the_program_holds():
    total = torch.zeros(3)

    def step(x):
        return total.add_(x)

    return Training(step, holds=lambda: [total])


@results
def numbers_of_every_kind():
    firsts = [-0.0, math.nan, math.inf, 1e-45]

    def step(x):
        return x[0].item(), bool(x[1] > 0), x.shape, x.dtype

    return Training(step, batch=lambda i, changed: (torch.tensor([firsts[i % 4] if changed else i + 0.5, 1.0]),))


@results
def how_often_tensors_were_written():
    parameter = nn.Parameter(torch.ones(3))
    given = []

    def batch(i, changed):
        given[:] = rows(i)
        return tuple(given)

    def step(x):
        x.mul_(2)
        with torch.no_grad():
            parameter.add_(1)
        return x.sum()

    return Training(step, batch=batch, holds=lambda: [parameter._version, given[0]._version], matters=False)


@results
def how_often_tensors_were_written_in_one_step():
    model, running = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), torch.zeros(3)
    optimizer = torch.optim.Adam(model.parameters(), amsgrad=True, weight_decay=0.1)
    given = []

    def batch(i, changed):
        given[:] = [torch.randn(4, 3)]
        return tuple(given)

    def step(x):
        x.mul_(2).add_(1)
        running.mul_(0.9).add_(x.mean(0), alpha=0.1).clamp_(-1, 1)
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        for p in model.parameters():
            p.grad.mul_(0.5)
        optimizer.step()
        return loss.detach()

    def versions():
        states = [value for state in optimizer.state.values() for value in state.values()]
        return [each._version for each in [*model.parameters(), *model.buffers(), running, *given, *states]]

    return Training(step, batch=batch, holds=versions, matters=False)


@results
def a_dict_that_the_program_holds():
    settings = {"n": 1}
    return Training(lambda x: (x * 2, settings), holds=lambda: [settings], matters=False)


@results
def a_list_that_is_an_argument():
    return Training(lambda x, items: (x * 2, items), batch=lambda i, _: rows(i) + ([1],), matters=False)


@results
def a_dict_that_is_an_argument():
    return Training(lambda inputs: inputs, batch=lambda i, _: ({"x": rows(i)[0]},), matters=False)


@results.each
def test_what_a_step_gives_back(case):
    check(case)

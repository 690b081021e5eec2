"""Layers that depend on more than parameters: memory formats, flags, counts, random numbers, hooks."""
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from loops import adam, batch, momentum, mse, net, normalized, program, replays, training


def conv_net():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(16, 3))


@pytest.mark.parametrize("optimizer_of", [momentum, adam])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_conv_net_in_a_memory_format(layout, optimizer_of):
    def images(i):
        return torch.randn(2, 3, 8, 8).contiguous(memory_format=layout), torch.randn(2, 3)

    replays(lambda: training(conv_net().to(memory_format=layout), batch=images,
                             optimizer_of=optimizer_of))


def test_inputs_that_change_their_memory_format():
    def images(i):
        layout = torch.channels_last if i % 5 == 4 else torch.contiguous_format
        return torch.randn(2, 3, 8, 8).contiguous(memory_format=layout), torch.randn(2, 3)

    replays(lambda: training(conv_net(), batch=images), 80)


def dropping(p=0.5):
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(p), nn.ReLU(), nn.AlphaDropout(p),
                         nn.Linear(8, 3))


def test_dropout():
    replays(lambda: training(dropping()))


def test_dropout_of_another_probability_from_a_step_on():
    def make():
        model = dropping()

        def after(i):
            if i in (25, 50):
                model[1].p = {25: 0.1, 50: 0.9}[i]

        return training(model, after=after)

    replays(make, 80)


def test_generators_seeded_between_steps():
    def make():
        return training(dropping(), after=lambda i: torch.manual_seed(i) if i % 7 == 0 else None)

    replays(make)


def test_training_flags_switch_between_steps():
    def make():
        model = normalized()
        return training(model, after=lambda i: model.train(i % 10 < 7))

    replays(make, 80)


def test_one_layer_alone_is_switched_to_eval():
    def make():
        model = normalized()
        return training(model, after=lambda i: model[1].train(i < 25))

    replays(make, 60)


def test_training_and_evaluation_in_turn():
    def make():
        model = normalized()
        made = training(model)

        @torch.no_grad()
        def evaluate(x, y):
            return mse(model, x, y)

        def in_turn(train, evaluate):
            def body(i, x, y):
                model.train(i % 4 != 3)
                return (train if model.training else evaluate)(x, y)

            return body

        return program(in_turn, made.step, evaluate, batch=lambda i: (i, *batch(i)),
                       holds=made.holds())

    replays(make, 80)


def test_batch_norm_takes_another_momentum_in_mid_run():
    def make():
        model = normalized()

        def after(i):
            model[1].momentum = 0.1 if i < 25 else 0.3

        return training(model, after=after)

    replays(make, 60)


def test_batch_norm_without_momentum_divides_by_its_count():
    """A number worked out on the host from a count that it reads, another one in each step."""
    replays(lambda: training(normalized(momentum=None)), 60)


@pytest.mark.parametrize("dimensions, padding", [(1, (1, 2)), (2, (1, 2, 2, 1)), (2, (0, 2, 1, 0)), (3, (1, 1, 1, 0, 2, 1))])
def test_circular_padding(dimensions, padding):
    """It copies corners that are not written yet, and writes them later."""
    def make():
        weight = torch.nn.Parameter(torch.ones(1, 2, *[1] * dimensions))
        optimizer = torch.optim.SGD([weight], lr=0.01)

        def step(x):
            optimizer.zero_grad()
            padded = torch.nn.functional.pad(x * weight, padding, mode="circular")
            loss = (padded * padded.flip(-1)).mean()
            loss.backward()
            optimizer.step()
            return loss.detach(), padded.detach()

        return SimpleNamespace(step=step, batch=lambda i: (torch.randn(1, 2, *[4] * dimensions),), holds=lambda: [weight])

    replays(make)


def test_a_last_batch_that_is_shorter():
    def batch(i):
        n = 2 if i % 10 == 9 else 4
        return torch.randn(n, 6), torch.randn(n, 3)

    replays(lambda: training(normalized(), batch=batch), 100)


def hooked(model):
    """One hook of every kind that changes what flows through it."""
    model[0].register_forward_hook(lambda module, args, out: out * 1.5)
    model[1].register_forward_pre_hook(lambda module, args: (args[0] + 0.1,))
    model[1].register_full_backward_hook(lambda module, grads_in, grads_out: (grads_in[0] * 0.7,))
    model[2].weight.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
    return model


def test_hooks_that_stood_before_the_first_step():
    replays(lambda: training(hooked(net())))


def test_a_tensor_hook_registered_in_the_step():
    def loss_of(model, x, y):
        hidden = torch.tanh(model[0](x))
        hidden.register_hook(lambda grad: grad * 0.5)
        return F.mse_loss(model[2](hidden), y)

    replays(lambda: training(net(), loss_of))


def test_hooks_that_come_and_go():
    def make():
        model, handles = net(), []

        def after(i):
            if i == 25:
                handles.append(model[0].register_forward_hook(lambda module, args, out: out * 2))
                handles.append(model[2].weight.register_hook(lambda grad: grad * 0.5))
            if i == 50:
                for handle in handles:
                    handle.remove()

        return training(model, after=after)

    replays(make, 80)


def test_a_hook_exchanged_for_another():
    def make():
        model = net()
        handles = [model[0].register_forward_hook(lambda module, args, out: out * 2)]

        def after(i):
            if i == 25:
                handles.pop().remove()
                handles.append(model[0].register_forward_hook(lambda module, args, out: out * 3))

        return training(model, after=after)

    replays(make, 60)

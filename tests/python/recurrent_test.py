"""Recurrent layers, their hidden states and sequences of several lengths."""
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import twins
from loops import is_refused, momentum, program, replays, training
from twins import bits, compare


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.rnn = kind(6, 8, batch_first=True, **options)
        self.head = nn.Linear(16 if self.rnn.bidirectional else 8, 3)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


def sequences(_, length=5):
    return torch.randn(4, length, 6), torch.randn(4, 3)


@pytest.mark.parametrize("options", [
    {}, dict(bidirectional=True), dict(num_layers=2, dropout=0.2)],
    ids=["plain", "bidirectional", "deep"])
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers(kind, options):
    replays(lambda: training(Recurrent(kind, **options), batch=sequences))


def test_a_hidden_state_goes_from_step_to_step_as_argument_and_result():
    def make():
        model = nn.ModuleList([nn.GRU(6, 8, batch_first=True), nn.Linear(8, 3)])
        optimizer, kept = momentum(model), [torch.zeros(1, 4, 8)]

        def step(x, y, hidden):
            optimizer.zero_grad()
            out, hidden = model[0](x, hidden)
            loss = F.mse_loss(model[1](out[:, -1]), y)
            loss.backward()
            optimizer.step()
            return loss, hidden.detach()

        def carry(step):
            def body(x, y):
                loss, kept[0] = step(x, y, kept[0])
                return loss, kept[0]

            return body

        return program(carry, step, batch=sequences, holds=[model, optimizer])

    replays(make)


def test_an_lstm_cell_in_a_loop():
    class Unrolled(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTMCell(6, 8), nn.Linear(8, 3)

        def forward(self, x):
            state = None
            for i in range(x.shape[1]):
                state = self.cell(x[:, i], state)
            return self.head(state[0])

    replays(lambda: training(Unrolled(), batch=sequences))


def test_sequences_of_three_lengths_are_three_variants():
    replays(lambda: training(Recurrent(nn.GRU), batch=lambda i: sequences(i, 3 + i % 3)), 90)


def packed(model, x, y, lengths):
    rows = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    out, _ = pad_packed_sequence(model.rnn(rows)[0], batch_first=True, total_length=5)
    return F.mse_loss(model.head(out.sum(1)), y)


@pytest.mark.parametrize("as_lengths", [list, torch.tensor], ids=["list", "tensor"])
def test_packed_sequences_of_constant_lengths(as_lengths):
    """The kernel reads the lengths through a pointer: no op shows what became of them."""
    is_refused(lambda: training(Recurrent(nn.GRU), packed, batch=lambda i: (
            *sequences(i), as_lengths([5, 3, 2, 2]))), "unwritten_read")


@pytest.mark.parametrize("as_lengths", [list, torch.tensor], ids=["list", "tensor"])
@pytest.mark.parametrize("first", [0, 25], ids=["from the start", "from step 25"])
def test_packed_sequences_of_lengths_that_vary(first, as_lengths):
    """The first longest row keeps all shapes but those inside the layer."""
    def batch(i):
        rest = [random.randint(1, 5) for _ in range(3)] if i >= first else [3, 2, 2]
        return *sequences(i), as_lengths([5, *rest])

    compare(lambda: training(Recurrent(nn.GRU), packed, batch=batch), 50)


def last_states(model, x, y, lengths):
    return F.mse_loss(model.head(model.rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))[1][-1]), y)


@pytest.mark.parametrize("as_lengths", [list, torch.tensor], ids=["list", "tensor"])
@pytest.mark.parametrize("share", [0.9, None], ids=["constant", "varying"])
def test_last_states_of_sequences_that_are_not_sorted(share, as_lengths):
    """torch sorts them, and inverts the permutation in memory that nobody has written."""
    def batch(i):
        return *sequences(i), as_lengths([2, 5, 3, 2] if share else random.sample([5, 4, 2, random.choice([1, 2])], 4))

    compare(lambda: training(Recurrent(nn.GRU), last_states, batch=batch), 50, share=share)


KEPT = {
    "list": (lambda: [torch.zeros(2, 4)], lambda m, x: [m.cell(x, h).detach() for h in m.at]),
    "dict": (lambda: {"h": torch.zeros(2, 4)}, lambda m, x: {"h": m.cell(x, m.at["h"]).detach()}),
    "two": (lambda: [torch.zeros(2, 4)] * 2, lambda m, x: [m.cell(x, m.at[1]).detach(), m.at[0] * 0.5]),
    "nested": (lambda: {"a": [torch.zeros(2, 4)], "n": 3.0}, lambda m, x: {"a": [m.cell(x, m.at["a"][0]).detach()], "n": m.at["n"]}),
    "inner": (lambda: {"a": [torch.zeros(2, 4)]}, lambda m, x: m.at.__setitem__("a", [m.cell(x, m.at["a"][0]).detach()]) or m.at),
    "in_place": (lambda: [torch.zeros(2, 4)], lambda m, x: m.at.__setitem__(0, m.cell(x, m.at[0]).detach()) or m.at),
    "copied": (lambda: [torch.zeros(2, 4)], lambda m, x: list(m.at)),
    "copied_and_set": (lambda: [torch.zeros(2, 4), torch.ones(2, 4)], lambda m, x: [m.cell(x, m.at[0]).detach(), *m.at[1:]]),
    "from_empty": (dict, lambda m, x: {"kl": m.cell(x).mean().detach()}),
    "from_none": (lambda: None, lambda m, x: {"kl": m.cell(x).mean().detach()}),
    "numbers": (lambda: [1.0, 2.0], lambda m, x: [v * 0.9 for v in m.at]),
    "at_times": (lambda: [torch.zeros(2, 4)], lambda m, x: [m.cell(x, m.at[0]).detach()] if m.n % 2 else m.at),
    "window": (lambda: [torch.zeros(2, 4)] * 3, lambda m, x: [*m.at[1:], m.cell(x, m.at[-1]).detach()]),
}


@pytest.mark.parametrize("change", ["never", "by another", "in it"])
@pytest.mark.parametrize("name", KEPT)
def test_what_a_module_makes_anew_is_another_container_each_time(name, change):
    """The program keeps those of earlier calls."""
    make, advance = KEPT[name]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.at, self.n = nn.GRUCell(3, 4), make(), 0

        def forward(self, x):
            self.n += 1
            at = advance(self, x)
            if at is not self.at:
                self.at = at
            return self.cell(x)

    def play(wrap):
        torch.manual_seed(0)
        model, kept, seen = Model(), [], []
        step = wrap(lambda x: model(x).detach())
        for i in range(40):
            if i in (15, 30) and change == "by another":
                model.at = make()
            if i in (15, 30) and change == "in it" and isinstance(model.at, list):
                model.at[0] = model.at[0] * 2
            seen.append(bits(step(torch.full((2, 3), 0.1 * i))))
            kept.append(model.at)
        return seen, bits(kept), [[a is b for a in kept] for b in kept], step

    step = twins.played_alike(play)
    assert step.stats["replayed"] >= (15 if change == "never" else 5), step.explain()

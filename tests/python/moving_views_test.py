"""Views at places that numbers say: the batch that begins at `i` of data in memory, the row of a table, the item of a history. A plan finds
them where the numbers of each call have them."""
import pytest
import torch

import steptape
from twins import bits, played_alike

ROWS, CALLS = 64, 60


class Data:
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(ROWS, 4, generator=generator)
        self.y = torch.randn(ROWS, generator=generator)
        self.history = torch.zeros(ROWS)
        self.table = torch.zeros(ROWS, 4)
        self.at = 0


def training():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)

    def train(x, y):
        optimizer.zero_grad()
        loss = (model(x).squeeze(-1) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train, list(model.parameters())


def played(body, between=lambda data, call: None, calls=CALLS):
    """Whether a step `body(data, train, i)` does wrapped what it does unwrapped, and how often it replays."""

    def play(wrap):
        data = Data()
        train, parameters = training()
        step = wrap(lambda i: body(data, train, i))
        results = []
        for call in range(calls):
            between(data, call)
            try:
                results.append(step(call % 50))
            except (IndexError, RuntimeError) as error:
                results.append(str(error))
        left = [*parameters, data.x, data.y, data.history, data.table, data.history._version, data.at]
        return [*map(bits, results + left), step]

    return played_alike(play).stats["replayed"]


def advance(data, by=1, end=ROWS):
    at = data.at
    data.at = (at + by) % end
    return at


READ = {
    "batch": lambda d, train, i: train(d.x[i : i + 8], d.y[i : i + 8]),
    "batch_by_number": lambda d, train, i: train(d.x[i % 8 * 8 : (i % 8 + 1) * 8], d.y[i % 8 * 8 : (i % 8 + 1) * 8]),
    "next_token": lambda d, train, i: train(d.x[i : i + 8], d.y[i + 1 : i + 9]),
    "narrow": lambda d, train, i: train(d.x.narrow(0, i, 8), d.y.narrow(0, i, 8)),
    "row": lambda d, train, i: train(d.x[i], d.y[i]),
    "select": lambda d, train, i: train(d.x.select(0, i), d.y.select(0, i)),
    "from_the_end": lambda d, train, i: train(d.x[-1 - i], d.y[-1 - i]),
    "two_numbers": lambda d, train, i: train(d.x[i, :3].repeat(2)[:4] + d.x[i + 2, (i + 1) % 3], d.y[i]),
    "column": lambda d, train, i: train(d.x.t()[i % 4 :][:1].t().expand(-1, 4), d.y),
    "every_other": lambda d, train, i: train(d.x[i : i + 8 : 2], d.y[i : i + 8 : 2]),
    "beside_the_whole": lambda d, train, i: train(d.x[i : i + 8] - d.x.mean(0), d.y[i : i + 8]),
    "of_a_view": lambda d, train, i: train(d.x.view(-1)[i : i + 4], d.y[i]),
    "window_of_window": lambda d, train, i: train(d.x[i : i + 9][i % 3 : i % 3 + 4], d.y[i : i + 4]),
}


@pytest.mark.parametrize("kind", READ)
def test_reads_where_the_numbers_of_a_call_say(kind):
    # each address is tried once, modulo 64: 48 of them are met together at most
    assert played(READ[kind], calls=150) > 90


def at_counter(d, train, _):
    at = advance(d, 8)
    return train(d.x[at : at + 8], d.y[at : at + 8])


WRITE = {
    "history": lambda d, loss, i: d.history.__setitem__(i, loss),
    "row": lambda d, loss, i: d.table[i].fill_(0.5),
    "row_in_place": lambda d, loss, i: d.table[i].add_(loss),
    "moving_average": lambda d, loss, i: d.history.__setitem__(i, d.history[i] * 0.9 + loss),
    "counter": lambda d, loss, i: d.history.__setitem__(advance(d), loss),
    "ring": lambda d, loss, i: d.history.__setitem__(advance(d, end=10), loss),
}


@pytest.mark.parametrize("kind", WRITE)
def test_writes_there(kind):
    def body(data, train, i):
        loss = train(data.x, data.y)
        WRITE[kind](data, loss, i)
        return loss

    assert played(body, calls=80) > 40


def test_writes_a_slice_and_an_item():
    def body(data, train, i):
        loss = train(data.x, data.y)
        data.history[i : i + 3] = loss
        data.table[i, (i + 1) % 4] = loss
        return loss

    assert played(body, calls=80) > 40


def test_a_counter_moves_through_the_data():
    assert played(at_counter) > CALLS / 2


def replace(data, call):
    if call == 40:
        data.x = data.x * 2


def write(data, call):
    if call % 10 == 9:
        data.x[:20] *= 1.5


def swap(data, call):
    data.x, data.table = (data.table, data.x) if call == 40 else (data.x, data.table)


@pytest.mark.parametrize("between", [replace, write, swap])
@pytest.mark.parametrize("kind", ["batch", "row", "next_token"])
def test_the_program_does_something_to_the_data(kind, between):
    assert played(READ[kind], between) > 10


def test_an_end_that_is_reached():
    def body(data, train, i):
        return train(data.x[i + 10 : i + 18], data.y[i + 10 : i + 18])  # 8 rows, then fewer

    assert played(body) > 20


def test_an_index_that_is_out_of_range_raises():
    assert played(lambda d, train, i: train(d.x[i + 24], d.y[i]), calls=90) > 20


@pytest.mark.parametrize(
    "body",
    {
        "whole": lambda d, train, i: (d.history.__setitem__(i, train(d.x, d.y)), d.history.sum())[1],
        "another_window": lambda d, train, i: (d.history.__setitem__(i, train(d.x, d.y)), d.history[i - 1] * 1)[1],
        "whole_is_written": lambda d, train, i: (d.x.mul_(0.99), train(d.x[i : i + 8], d.y[i : i + 8]))[1],
        "a_constant_place_is_written": lambda d, train, i: (d.x[3].mul_(0.99), train(d.x[i : i + 8], d.y[i : i + 8]))[1],
    }.items(),
    ids=lambda item: item[0],
)
def test_memory_that_is_written_and_used_elsewhere_too_is_not_replayed(body):
    assert played(body[1]) == 0


def test_where_a_view_cannot_move_a_plan_is_for_its_place_and_not_for_the_number():
    def body(data, train, _):
        loss = train(data.x, data.y)
        data.history[advance(data, end=1000) % 5] = loss
        return loss + data.history.sum()

    assert played(body, calls=80) > 30


def test_what_is_used_elsewhere_may_be_the_same():
    """Row `i`, now and then, is row 3, or row `j`."""
    assert played(lambda d, train, i: train(d.x[i] + d.x[3], d.y[i] + d.y[49 - i])) > 10


def test_a_number_that_begins_to_move_late():
    for same in (0, 3):

        def play(wrap, same=same):
            data = Data()
            train, parameters = training()
            step = wrap(lambda i: train(data.x[i] + data.x[same], data.y[i]))
            results = [step(same if call < 20 else call % 7) for call in range(CALLS)]
            return [*map(bits, results + parameters), step]

        assert played_alike(play).stats["replayed"] > 20


@pytest.mark.parametrize("what", ["returned", "kept", "appended"])
def test_a_view_that_others_see_stays_one_of_its_memory(what):
    def play(wrap):
        data, kept = Data(), []
        train, parameters = training()

        def f(i):
            row = data.x[i]
            loss = train(row, data.y[i])
            if what == "kept":
                data.row = row
            if what == "appended":
                kept.append(row)
            return (loss, row) if what == "returned" else loss

        step, results = wrap(f), []
        for call in range(CALLS):
            result = step(call // 20)
            row = {"returned": lambda: result[1], "kept": lambda: data.row, "appended": lambda: kept[-1]}[what]()
            row += 0.5  # in the data
            results.append(bits(data.x))
        return [*results, *map(bits, parameters), step]

    played_alike(play)


def test_where_a_view_lies_may_be_asked():
    assert played(lambda d, train, i: train(d.x[i], d.y[i]) + d.x[i].storage_offset()) == 0


@pytest.mark.parametrize("given", ["the_data", "the_data_and_a_part"])
def test_data_that_is_given(given):
    def play(wrap):
        data, others = Data(), Data()
        others.x += 1
        train, parameters = training()
        if given == "the_data":
            step = wrap(lambda x, y, i: train(x[i : i + 8], y[i : i + 8]))
        else:
            step = wrap(lambda x, y, i, part: train(x[i : i + 8] + part, y[i : i + 8]))
        results = []
        for call in range(CALLS):
            now = others if call % 7 == 3 else data
            arguments = [now.x, now.y, call % 50]
            if given != "the_data":
                arguments.append(now.x[8:16])
            results.append(step(*arguments))
        return [*map(bits, results + parameters), step]

    assert played_alike(play).stats["replayed"] > 20


def test_backward_through_a_view_holds_its_place():
    """What backward scatters into is made with the number."""

    def play(wrap):
        torch.manual_seed(0)
        table = torch.nn.Parameter(torch.randn(8, 3))
        optimizer = torch.optim.SGD([table], 0.1)

        def f(i):
            optimizer.zero_grad()
            loss = table[i].square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = wrap(f)
        results = [step(call // 10 % 3) for call in range(CALLS)]
        return [*map(bits, [*results, table]), step]

    assert played_alike(play).stats["replayed"] > 10


def test_a_player_goes_on_through_the_data(tmp_path):
    torch.manual_seed(0)
    state = Data()
    state.x = torch.randn(ROWS, 16)  # rows of 64 bytes: a player asks for the addresses of the trace, modulo 64
    weight = torch.nn.Parameter(torch.ones(16))
    optimizer = torch.optim.SGD([weight], 0.1)

    def f():
        optimizer.zero_grad()
        at = advance(state)
        loss = (state.x[at : at + 4] * weight).square().mean()
        loss.backward()
        optimizer.step()
        state.history[at] = loss.detach()
        return loss.detach()

    step = steptape.wrap(f, verify={"first": True, "rate": 0.0})
    for _ in range(12):
        step()
    assert step.stats["replayed"] > 0, step.explain()
    step.save(str(tmp_path / "a.tape"), state=True)
    player = steptape.load(str(tmp_path / "a.tape"))
    for _ in range(20):
        assert bits(player["f"]()) == bits(f())
    assert bits(player.tensor("host.state.history")) == bits(state.history)
    player.set("state.at", ROWS - 2)
    with pytest.raises(steptape.Error, match="sizes"):
        player["f"]()
    assert bits(player.tensor("host.state.history")) == bits(state.history)

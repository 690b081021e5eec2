"""What a person and a program are told of a step: explain(), stats, the log, counters()."""
import json
import re

import pytest
import torch

import steptape
from twins import OUTCOMES


def twice(x):
    return (x * 2).sum()


def replaying(**options):
    step = steptape.wrap(twice, verify={"first": True, "rate": 0.0}, **options)
    for _ in range(6):
        step(torch.rand(4))
    assert step.stats["replayed"] > 0, step.explain()
    return step


def test_a_fallback_is_counted_with_the_guard_that_failed():
    step = replaying()
    step(torch.rand(3))
    stats = step.stats
    assert stats["fell_back"] == 1
    [guard] = stats["fallbacks"]
    assert (guard["path"], guard["expected"], guard["found"]) == ("x.size(0)", "4", "3")
    assert (guard["times"], guard["last_held"]) == (1, 1)
    assert "x.size(0): 4 → 3 (held until 1 call ago)" in guard["text"]
    assert f'\n  fell back 1×: {guard["text"]}\n' in step.explain()


def test_each_variant_says_why_it_did_not_fit():
    step = replaying()
    for _ in range(4):
        step(torch.rand(3))
    step(torch.rand(5))
    zero, one = step.stats["last_verdicts"]
    assert (zero["variant"], zero["path"], zero["found"]) == (0, "x.size(0)", "5")
    assert (one["variant"], one["path"], one["found"]) == (1, "x.size(0)", "5")
    assert "\n    differs from variant 0 in: x.size(0) 4 → 3\n" in step.explain()
    assert f'last guards that failed: variant 0: {zero["text"]}; variant 1: {one["text"]}' in step.explain()


def test_before_the_first_call_there_is_all_that_there_is_later():
    step = steptape.wrap(twice)
    before = step.stats
    step(torch.rand(4))
    assert before.keys() == step.stats.keys()


def test_the_log_of_a_step_goes_to_a_file(tmp_path):
    path = tmp_path / "run.jsonl"
    step = replaying(log=f"record,plan,verify:{path}")
    events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [event["event"] for event in events] == ["probe", "probe", "planned", "trial_passed"]
    assert {event["step"] for event in events} == {"twice"}
    assert all(re.fullmatch(r".*observing_test\.py:\d+", event["place"]) for event in events)
    step.invalidate("another batch")
    assert json.loads(path.read_text(encoding="utf-8").splitlines()[-1])["text"] == "invalidated: another batch"


def test_the_environment_asks_for_lines_on_stderr(monkeypatch, capfd):
    monkeypatch.setenv("STEPTAPE_LOG", "verify")
    replaying()
    line, = capfd.readouterr().err.splitlines()
    assert re.fullmatch(r'steptape: session \d+, step "twice" \(observing_test\.py:\d+\), call \d+: '
                        r"verify: the trial of variant 0 passed in \d+ us", line), line


def test_a_log_that_cannot_be_written_disturbs_nothing(tmp_path, capfd):
    path = tmp_path / "missing" / "run.jsonl"
    lost = steptape.counters()["log_lines_lost"]
    step = replaying(log=f"all:{path}")
    problem = f"log not written: {path}: No such file or directory"
    assert capfd.readouterr().err == f"steptape: {problem}\n"
    assert f"\n  {problem}\n" in step.explain()
    assert steptape.counters()["log_lines_lost"] > lost


def test_a_category_that_is_none_is_an_error():
    with pytest.raises(steptape.InvalidArgument, match='there is no category "plans"'):
        steptape.wrap(twice, log="plans")
    with pytest.raises(steptape.InvalidArgument, match="log is 3; it must be a str or None"):
        steptape.wrap(twice, log=3)


def test_counters_keep_what_steps_did_that_are_gone():
    before = steptape.counters()
    step = replaying()
    stats = step.stats
    del step
    after = steptape.counters()
    for key in ("steps", *OUTCOMES):
        assert after[key] - before[key] == stats[key], key
    assert after["plans"] == before["plans"] + 1


def test_counters_tell_fallbacks_and_refusals_apart_by_name():
    before = steptape.counters()
    step = replaying()
    step(torch.rand(3))
    kind = step.stats["fallbacks"][0]["kind"]
    after = steptape.counters()
    assert after["fallbacks"][kind] == before["fallbacks"].get(kind, 0) + 1
    assert all(isinstance(code, str) for code in after["refusals"])


def test_host_state_is_a_kind_of_its_own():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = 1.0

        def forward(self, x):
            return x * self.gain

    model = Net()

    @steptape.wrap(model=model, verify={"first": True, "rate": 0.0})
    def forward(x):
        return model(x).sum()

    for _ in range(6):
        forward(torch.ones(4))
    model.gain = 2.0
    assert forward(torch.ones(4)).item() == 8.0
    [guard] = forward.stats["fallbacks"]
    assert guard["kind"] == "host_state"
    assert f'{guard["path"]}: {guard["expected"]} → {guard["found"]}' == "host.model.gain: 1.0 → 2.0"


def test_memory_that_moved_is_taken_up_and_told():
    model = torch.nn.Linear(4, 4)

    @steptape.wrap(model=model, verify={"first": True, "rate": 0.0})
    def forward(x):
        return model(x).sum().detach()

    for _ in range(6):
        forward(torch.ones(2, 4))
    replayed = forward.stats["replayed"]
    model.weight.data = torch.ones(4, 4)
    x = torch.ones(2, 4)
    assert torch.equal(forward(x), model(x).sum().detach())
    assert (forward.stats["audits"], forward.stats["replayed"]) == (1, replayed)
    forward(torch.ones(2, 4))
    assert forward.stats["replayed"] == replayed + 1
    assert "    took up moved memory of tracked tensors 1×" in forward.explain()


def test_no_control_character_of_a_name_reaches_the_terminal(capfd):
    step = steptape.wrap(lambda x: x + 1, name="a\x1b[31m\nb\u009b2J", log="all")
    for _ in range(6):
        step(torch.ones(3))
    text = step.explain() + capfd.readouterr().err
    assert not any(c in text.replace("\n", "") for c in "\x1b\u009b")
    assert text.startswith('step "a [31m b 2J"')


def test_a_name_that_no_file_can_hold_is_an_error():
    with pytest.raises(steptape.InvalidArgument, match="UTF-8"):
        steptape.wrap(lambda x: x, name="\ud800")

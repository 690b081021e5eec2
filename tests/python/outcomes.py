"""What the counts of a step say: how its calls went, and by which names it was refused."""

OUTCOMES = ("recorded", "trials", "replayed", "eager", "audits")  # each call counts as one of them


def free_calls(stats):
    """How many calls neither recorded nor verified: those that may replay."""
    return stats["steps"] - stats["recorded"] - stats["trials"] - stats["audits"]


def codes_of(step):
    """The names by which the step was refused."""
    return {refusal["code"] for refusal in step.stats["refusals"]}


def has_replayed(step):
    assert step.stats["replayed"] > 0, step.explain()


def replays_as_a_rule(step):
    """At least once, and in nearly all free calls."""
    stats = step.stats
    assert stats["replayed"] >= max(1, 0.9 * free_calls(stats)), step.explain()


def is_refused(step, codes):
    assert codes_of(step) & set(codes), step.explain()
    assert all(r["remedy"] for r in step.stats["refusals"])


RECORDED = "recorded"  # each call: what it is given is another one each time


def is_as_pinned(step, outcome=None):
    """None: replays as a rule; RECORDED; else the name by which the step is refused."""
    if outcome is None:
        replays_as_a_rule(step)
    elif outcome == RECORDED:
        assert step.stats["replayed"] == 0 and not step.stats["refusals"], step.explain()
    else:
        is_refused(step, {outcome})

"""What a program wraps its step with: nothing in the eager twin, Steptape without audits in the other."""

VERIFY = {"first": True, "rate": 0.0}


class Mode:
    """Of the twin that is being made."""

    wraps = False
    made = []  # of this twin


def wrap(function):
    if not Mode.wraps:
        return function
    import steptape
    step = steptape.wrap(function, verify=VERIFY)
    Mode.made.append(step)
    return step

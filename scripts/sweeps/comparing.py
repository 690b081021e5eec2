"""A program run as it is and through Steptape, and everything that it leaves compared bit for bit."""
import os

# What a resizing out variant says on stderr.
RESIZED = b"was resized"


class NoSample(Exception):
    """Why there is nothing to compare."""


class Slot:
    """The place of a tensor among the arguments."""

    def __init__(self, index):
        self.index = index


class Program:
    """One twin: what is called, what it holds, and what it does itself after call i."""

    def __init__(self, step, held=lambda: (), after=lambda number: None):
        self.step, self.held, self.after = step, held, after


class Plan:
    """A case. `make` gives equal programs; `draws` are the tensors of each call.

    steps: calls in which eager is compared with itself first
    """

    def __init__(self, make, draws, steps):
        self.make, self.draws, self.steps = make, draws, steps


def seed(number):
    import random

    import numpy
    import torch

    torch.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


def memory_filler():
    """fill(byte): from now on fresh memory holds that byte, so reading it shows. glibc only."""
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return lambda byte: None
    return lambda byte: mallopt(-6, byte)  # M_PERTURB


def copied(tensor):
    """A copy of the tensor in a storage of its own, with its strides and offset."""
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return tensor.detach().clone()
    storage = tensor.detach().untyped_storage().clone()
    fresh = torch.empty(0, dtype=tensor.dtype)
    return fresh.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())


def is_numeric(value):
    import torch

    return (isinstance(value, torch.Tensor) and value.layout == torch.strided
            and (value.is_floating_point() or value.is_complex()))


def renewed(tensors, others):
    """`tensors` with the float values of `others`, or, were these the same, their own permuted."""
    import torch

    found = []
    for mine, other in zip(tensors, others):
        same_form = (is_numeric(mine) and is_numeric(other) and mine.dtype == other.dtype
                     and mine.size() == other.size() and mine.stride() == other.stride()
                     and mine.storage_offset() == other.storage_offset())
        found.append(other if same_form else mine)
    if any(not torch.equal(a, b) for a, b in zip(tensors, found) if is_numeric(a)):
        return found
    return [permuted(tensor) if is_numeric(tensor) else tensor for tensor in found]


def permuted(tensor):
    import torch

    if tensor.numel() < 2:
        return tensor
    fresh = copied(tensor)
    try:
        fresh.copy_(tensor.flatten()[torch.randperm(tensor.numel())].view_as(tensor))
    except RuntimeError:  # elements that share memory
        return tensor
    return fresh


def is_whole(value):
    """Whether it holds indices, lengths or flags."""
    import torch

    return (isinstance(value, torch.Tensor) and value.layout == torch.strided
            and not value.is_quantized and not value.is_floating_point()
            and not value.is_complex())


def draws_of(draw, calls):
    """For each call the tensors it gets, the same in everything but float values and, in the
    second half of the calls, where a plan is there, the order of whole ones: what reads these by
    pointer leaves no op.

    draw: number → (leaves, structure) of the arguments, with the values that this seed gives
    """
    import torch

    base, structure = draw(0)
    where = [i for i, leaf in enumerate(base) if isinstance(leaf, torch.Tensor)]
    tensors = [base[i] for i in where]
    draws = [tensors]
    for number in range(1, calls):
        drawn = draw(number)
        others = tensors
        if drawn is not None and len(drawn[0]) == len(base):
            others = [drawn[0][i] for i in where]
        fresh = renewed(tensors, others)
        if number >= calls // 2:
            fresh = [permuted(tensor) if is_whole(tensor) else tensor for tensor in fresh]
        draws.append(fresh)
    return base, structure, where, draws


def template_of(base, structure, where):
    """The arguments with a Slot in place of each tensor."""
    from torch.utils._pytree import tree_unflatten

    slots = list(base)
    for index, leaf in enumerate(where):
        slots[leaf] = Slot(index)
    return tree_unflatten(slots, structure)


def filled(template, tensors):
    from torch.utils._pytree import tree_map_only

    return tree_map_only(Slot, lambda slot: tensors[slot.index], template)


def bits(value):
    """A leaf of a result in a form that compares by bits."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value.hex() if isinstance(value, float) else repr(value)
    plain = value.detach()
    if plain.is_nested:
        return {"parts": [bits(part) for part in plain.unbind()]}
    if plain.layout != torch.strided:
        return {"layout": str(plain.layout)} | bits(plain.to_dense())
    strides = [stride for size, stride in zip(plain.size(), plain.stride()) if size > 1]
    flat = torch.empty(plain.numel(), dtype=plain.dtype)
    flat.view(plain.size()).copy_(plain)
    return {"dtype": str(plain.dtype), "shape": list(plain.size()),
            "strides": strides if plain.numel() else [], "requires_grad": value.requires_grad,
            "bits": flat.view(torch.uint8).numpy().tobytes()}


def run(program, step, tensors, number):
    """What one call leaves: results, arguments, what the program holds, random state."""
    import torch
    from torch.utils._pytree import tree_flatten

    arguments = [copied(tensor) for tensor in tensors]
    seed(number)
    result = step(*arguments)
    leaves, structure = tree_flatten(result)
    seen = {"structure of the result": str(structure)}
    seen |= {f"result {i}": bits(leaf) for i, leaf in enumerate(leaves)}
    seen |= {f"argument {i}": bits(argument) for i, argument in enumerate(arguments)}
    seen |= {f"state {i}": bits(leaf) for i, leaf in enumerate(program.held())}
    seen |= {"random state": bits(torch.get_rng_state())}
    program.after(number)
    return seen


def difference(expected, found):
    """The first thing in which two results of `run` differ, in words, or None."""
    if len(expected) != len(found):
        return f"{len(expected)} things against {len(found)}"
    for name, a in expected.items():
        b = found.get(name)
        if a == b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            key = next(key for key in a if a[key] != b[key])
            if key == "bits":
                count = sum(x != y for x, y in zip(a[key], b[key]))
                return f"{name}: {count} of {len(a[key])} bytes differ"
            return f"{name}: {key} {a[key]} against {b[key]}"
        return f"{name}: {a} against {b}"
    return None


def in_words(error):
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}"


class Told:
    """What was written to stderr, where that is a file."""

    def __init__(self):
        self.start = self.end()

    @staticmethod
    def end():
        return os.lseek(2, 0, os.SEEK_CUR) if not os.isatty(2) else 0

    def resized(self):
        """Whether LibTorch has warned since the last look that a result was resized."""
        begin, self.start = self.start, self.end()
        try:
            return RESIZED in os.pread(2, self.start - begin, begin)
        except OSError:  # a pipe
            return False


def measure(plan, fill, began):
    """Calls a program eagerly and through Steptape on the same draws: a case's outcome.

    began: called when Steptape comes in; what goes wrong before that is not its doing
    """
    import steptape

    def eagerly(program, tensors, number, byte=1):
        fill(byte)
        try:
            return run(program, program.step, tensors, number)
        except Exception as error:
            raise NoSample(in_words(error)) from error

    def history(draws, byte):
        program = plan.make()
        return [eagerly(program, tensors, i, byte) for i, tensors in enumerate(draws)]

    def unsteady(draws):
        first = history(draws, 1)
        return any(difference(a, b) for byte in (2, 85, 170)
                   for a, b in zip(first, history(draws, byte)))

    if unsteady(plan.draws[:plan.steps]):
        return {"outcome": "nondeterministic"}
    eager, taped = plan.make(), plan.make()
    began()
    step = steptape.wrap(taped.step, name="entry", audit_seed=1)
    done, told = [], Told()
    for number, tensors in enumerate(plan.draws):
        try:
            expected = eagerly(eager, tensors, number)
        except NoSample:  # values outside the operator's domain
            tensors = plan.draws[0]
            expected = eagerly(eager, tensors, number)
        done.append(tensors)
        fill(3)
        told.resized()
        try:
            problem = difference(expected, run(taped, step, tensors, number))
            outcome = "differs"
        except Exception as error:
            problem = in_words(error)
            diverged = any(r["code"] == "audit_diverged" for r in step.stats["refusals"])
            outcome = "differs" if diverged else "raises"
        if problem is None and told.resized():
            problem, outcome = "LibTorch warns that a result was resized", "warns"
        if problem is not None:
            if outcome == "differs" and unsteady(done):
                return {"outcome": "nondeterministic"}
            return {"outcome": outcome, "detail": f"call {number}: {problem}"}
    stats = step.stats
    refusals = [{"code": r["code"], "reason": r["reason"]} for r in stats["refusals"]]
    counts = {name: stats[name] for name in ("recorded", "trials", "replayed", "eager", "audits")}
    if stats["replayed"] or stats["audits"]:  # an audit is a replay beside an eager call
        return {"outcome": "replayed", "refusals": refusals, "counts": counts}
    if refusals:
        return {"outcome": "refused", "refusals": refusals, "counts": counts}
    return {"outcome": "never replayed", "detail": f"{counts}", "counts": counts}


def measured(*arguments):
    """`measure`, and what escapes from it as an outcome."""
    try:
        return measure(*arguments)
    except NoSample as reason:
        return {"outcome": "no sample", "detail": str(reason)}
    except Exception as error:
        return {"outcome": "raises", "detail": in_words(error)}

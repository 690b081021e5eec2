#!/usr/bin/env python3
"""Runs every operator of PyTorch's OpInfo database through Steptape and compares it with itself.

An operator's first float32 CPU samples become steps of one operator each: once the operator alone,
and, where autograd knows it, once with a backward through the sum of its results. Every call gets
new values of the sample's shapes, and results, arguments and random state are compared bit for bit
with the same call without Steptape.

Outcomes of an operator (the gravest of its steps):
  replayed          replayed, and every call equal to eager
  refused           never replayed, and the refusals say why (the table of codes)
  nondeterministic  eager itself gives other bits on the same inputs: not counted
  no sample         no sample that runs eagerly: not counted
and the defects:
  never replayed    ran to the end without a replay and without a refusal
  differs           a call through Steptape differs from eager
  raises            a call through Steptape raises and eager does not
  timed out         a call through Steptape did not return in time
  crashed           the process died in a call through Steptape
With --strict, operators refused as trial_diverged, audit_diverged, replay_threw or recording_failed
are defects too: eager is deterministic there, so the refusal reports a fault of a plan.

Needs: steptape, torch with its torch.testing._internal, and numpy. expecttest is used where it is
installed and else stood in for; pytest, hypothesis and scipy are not needed. Operators run in worker
processes: when one dies or hangs, the sweep goes on in a new one.

Exit status: 0 no defects, 1 defects, 2 trouble (nothing to run, steptape not importable, ...).
"""
import argparse
import collections
import json
import os
import queue
import re
import select
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from itertools import islice

DEFECTS = ("crashed", "timed out", "differs", "raises", "never replayed")
GRAVITY = (*DEFECTS, "refused", "replayed", "nondeterministic", "no sample")
FAULTS = {"trial_diverged", "audit_diverged", "replay_threw", "recording_failed"}
VARIANTS = ("forward", "backward")


class Trouble(Exception):
    """Why the sweep cannot run."""


def gravest(outcomes):
    return min(outcomes, key=GRAVITY.index, default="no sample")


# What follows up to `serve` runs where torch is: in a worker.

class NoSample(Exception):
    """Why there is nothing to compare."""


class Slot:
    """The place of a tensor among an operator's arguments."""

    def __init__(self, index):
        self.index = index


def load_operators():
    """The database by name: what has float32 on the CPU."""
    import importlib.util
    import types
    import unittest

    if importlib.util.find_spec("expecttest") is None:  # op_db's imports name its TestCase only
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    return {op.formatted_name: op for op in op_db if torch.float32 in op.supported_dtypes("cpu")}


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


def draw(operator, count, number, requires_grad=False):
    """The first samples as (leaves, structure), with the values that seed `number` gives."""
    import torch
    from torch.utils._pytree import tree_flatten

    seed(number)
    samples = operator.sample_inputs("cpu", torch.float32, requires_grad=requires_grad,
                                     set_seed=False)
    return [tree_flatten((s.input, tuple(s.args), dict(s.kwargs))) for s in islice(samples, count)]


def chosen(operator, count):
    """The first `count` samples with a float value, by number; one of them with several, if any.

    Many operators begin with empty tensors, which compare equal whatever a plan does.
    """
    def values(tensor):
        """Their number: none, one, or at least two."""
        return min(tensor.numel(), 1) + bool((tensor != tensor.flatten()[:1].sum()).any())

    samples = draw(operator, 100, 0)
    most = [max((values(leaf) for leaf in leaves if is_numeric(leaf)), default=0)
            for leaves, _ in samples]
    found = sorted(range(len(samples)), key=lambda i: most[i] == 0)[:count]
    if found and max(most[i] for i in found) < 2 == max(most):
        found[-1] = most.index(2)
    return sorted(found)


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
    for i, tensor in enumerate(found):
        if is_numeric(tensor) and tensor.numel() > 1:
            found[i] = copied(tensor)
            try:
                found[i].copy_(tensor.flatten()[torch.randperm(tensor.numel())].view_as(tensor))
            except RuntimeError:  # elements that share memory
                found[i] = tensor
    return found


def draws_of(operator, sample, calls):
    """For each call the tensors it gets, the same in everything but float values."""
    import torch

    base, structure = draw(operator, sample + 1, 0)[sample]
    where = [i for i, leaf in enumerate(base) if isinstance(leaf, torch.Tensor)]
    tensors = [base[i] for i in where]
    draws = [tensors]
    for number in range(1, calls):
        drawn = draw(operator, sample + 1, number)
        others = tensors
        if len(drawn) > sample and len(drawn[sample][0]) == len(base):
            others = [drawn[sample][0][i] for i in where]
        draws.append(renewed(tensors, others))
    return base, structure, where, draws


def filled(template, tensors):
    from torch.utils._pytree import tree_map_only

    return tree_map_only(Slot, lambda slot: tensors[slot.index], template)


def forward_step(function, template):
    def step(*tensors):
        value, args, kwargs = filled(template, tensors)
        return function(value, *args, **kwargs)
    return step


def backward_step(function, template, differentiable):
    import torch
    from torch.utils._pytree import tree_leaves, tree_map_only

    def step(*tensors):
        leaves = [t.detach().requires_grad_() if d else t for t, d in zip(tensors, differentiable)]
        value, args, kwargs = filled(template, leaves)
        result = function(value, *args, **kwargs)
        ends = [r for r in tree_leaves(result) if isinstance(r, torch.Tensor) and r.requires_grad]
        if not ends:
            raise NoSample("no result that requires a gradient")
        loss = sum(e.real.sum() + e.imag.sum() if e.is_complex() else e.sum() for e in ends)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        gradients = torch.autograd.grad(loss, wanted, allow_unused=True)
        return tree_map_only(torch.Tensor, torch.Tensor.detach, result), gradients
    return step


def make_step(operator, variant, sample, base, structure, where):
    from torch.utils._pytree import tree_unflatten

    slots = list(base)
    for index, leaf in enumerate(where):
        slots[leaf] = Slot(index)
    template = tree_unflatten(slots, structure)
    if variant == "forward":
        return forward_step(operator.op, template)
    flagged = draw(operator, sample + 1, 0, requires_grad=True)[sample:]
    if flagged and len(flagged[0][0]) == len(base):
        differentiable = [getattr(flagged[0][0][i], "requires_grad", False) for i in where]
    else:
        differentiable = [is_numeric(base[i]) for i in where]
    if not any(differentiable):
        raise NoSample("no argument that requires a gradient")
    return backward_step(operator.op, template, differentiable)


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


def run(function, tensors, number):
    """What one call gives: results, arguments afterwards, random state."""
    import torch
    from torch.utils._pytree import tree_flatten

    arguments = [copied(tensor) for tensor in tensors]
    seed(number)
    result = function(*arguments)
    leaves, structure = tree_flatten(result)
    seen = {"structure of the result": str(structure)}
    seen |= {f"result {i}": bits(leaf) for i, leaf in enumerate(leaves)}
    seen |= {f"argument {i}": bits(argument) for i, argument in enumerate(arguments)}
    return seen | {"random state": bits(torch.get_rng_state())}


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


def measure(step_function, draws, fill, began):
    """Calls the function eagerly and through Steptape on the same draws: a step's outcome.

    began: called when Steptape comes in; what goes wrong before that is not its doing
    """
    import steptape

    def eagerly(tensors, number, byte=1):
        fill(byte)
        try:
            return run(step_function, tensors, number)
        except Exception as error:
            raise NoSample(in_words(error)) from error

    def unsteady(tensors, number):
        first = eagerly(tensors, number)
        return any(difference(first, eagerly(tensors, number, byte)) for byte in (2, 85, 170))

    if unsteady(draws[0], 0):
        return {"outcome": "nondeterministic"}
    began()
    step = steptape.wrap(step_function, name="operator", audit_seed=1)
    for number, tensors in enumerate(draws):
        try:
            expected = eagerly(tensors, number)
        except NoSample:  # values outside the operator's domain
            tensors = draws[0]
            expected = eagerly(tensors, number)
        fill(3)
        try:
            problem = difference(expected, run(step, tensors, number))
            outcome = "differs"
        except Exception as error:
            problem = in_words(error)
            diverged = any(r["code"] == "audit_diverged" for r in step.stats["refusals"])
            outcome = "differs" if diverged else "raises"
        if problem is not None:
            if outcome == "differs" and unsteady(tensors, number):
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


def measure_operator(operator, request, fill, say):
    """Says each step of the operator as it begins, when Steptape comes in, and the outcome."""
    import torch

    variants = VARIANTS if operator.supports_autograd else VARIANTS[:1]
    try:
        samples, reason = chosen(operator, request["samples"]), "the database has none"
    except Exception as error:
        samples, reason = [], in_words(error)
    if not samples:
        say(outcome={"variant": "forward", "sample": 0, "outcome": "no sample", "detail": reason})
    for variant, sample in [(variant, sample) for variant in variants for sample in samples]:
        say(case=[variant, sample])
        try:
            base, structure, where, draws = draws_of(operator, sample, request["calls"])
            function = make_step(operator, variant, sample, base, structure, where)
        except Exception as error:
            outcome = {"outcome": "no sample", "detail": in_words(error)}
        else:
            outcome = measured(function, draws, fill, lambda: say(began=True))
            outcome["varied"] = any(not torch.equal(a, b) for drawn in draws[1:]
                                    for a, b in zip(draws[0], drawn) if is_numeric(a))
        say(outcome={"variant": variant, "sample": sample, **outcome})
    say(done=True)


def serve():
    """Answers requests, one a line on stdin, with lines on what was stdout when it began."""
    import faulthandler
    import warnings

    faulthandler.enable()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")

    def say(**message):
        print(json.dumps(message), file=replies, flush=True)

    try:
        import torch

        import steptape  # noqa: F401
        operators = load_operators()
    except ImportError as error:
        say(trouble=str(error))
        return
    torch.set_num_threads(1)
    fill = memory_filler()
    say(operators=list(operators), torch=torch.__version__)
    for line in sys.stdin:
        request = json.loads(line)
        measure_operator(operators[request["operator"]], request, fill, say)


class Died(Exception):
    """The worker's process ended: how, and the end of what it wrote."""


class Worker:
    """A process that runs operators, and the reading of its answers against the clock."""

    START = 300  # seconds to import torch and the database, on a busy machine

    def __init__(self):
        self.errors = tempfile.TemporaryFile()
        # Memory that is cached by thread would not be filled by memory_filler.
        environment = os.environ | {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--worker"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.errors, env=environment)
        self.rest = b""
        self.asked = 0
        try:
            hello = self.read(time.monotonic() + self.START)
        except (Died, TimeoutError) as error:
            self.end()
            raise Trouble(f"a worker did not start: {error}") from error
        if "trouble" in hello:
            self.end()
            raise Trouble(hello["trouble"])
        self.operators, self.torch = hello["operators"], hello["torch"]

    def read(self, deadline):
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [],
                                        max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("no answer in time")
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise Died(self.last_words())
            self.rest += data
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def last_words(self):
        status = self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        fatal = [line for line in lines if line.startswith("Fatal")]
        return ": ".join([how, *(fatal or lines)[-1:]])

    def ask(self, request, seconds):
        """Gives the outcomes of an operator's steps, that of a death or a delay among them."""
        self.asked += 1
        deadline = time.monotonic() + seconds
        outcomes, case, began = [], ["forward", 0], False

        def cut_short(outcome, detail):
            self.asked = sys.maxsize
            if not began:
                outcome, detail = "no sample", f"{outcome} without Steptape, {detail}"
            return {"variant": case[0], "sample": case[1], "outcome": outcome, "detail": detail}

        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            while True:
                message = self.read(deadline)
                if "done" in message:
                    return outcomes
                if "case" in message:
                    case, began = message["case"], False
                began = began or "began" in message
                if "outcome" in message:
                    outcomes.append(message["outcome"])
        except (Died, BrokenPipeError) as error:
            return [*outcomes, cut_short("crashed", str(error))]
        except TimeoutError:
            return [*outcomes, cut_short("timed out", f"after {seconds:g} s")]

    def end(self):
        self.process.kill()
        self.process.communicate()
        self.errors.close()


def sweep(names, options, first):
    """Runs the operators, `options.jobs` at a time; gives {name: outcomes of its steps}."""
    waiting = queue.SimpleQueue()
    for name in names:
        waiting.put(name)
    found, troubles = {}, []
    live = sys.stderr.isatty()

    def work(worker):
        try:
            while not troubles:
                name = waiting.get_nowait()
                if worker is None:
                    worker = Worker()
                request = {"operator": name, "samples": options.samples, "calls": options.calls}
                found[name] = worker.ask(request, options.seconds)
                if worker.asked >= options.chunk:
                    worker.end()
                    worker = None
                progress(name)
        except queue.Empty:
            pass
        except Trouble as trouble:
            troubles.append(trouble)
        finally:
            if worker is not None:
                worker.end()

    def progress(name):
        if live:
            print(f"\r{len(found)}/{len(names)} {name[:60]:60}", end="", file=sys.stderr)
        elif len(found) % 25 == 0 or len(found) == len(names):
            print(f"{len(found)}/{len(names)}", file=sys.stderr, flush=True)

    workers = [first] + [None] * (options.jobs - 1)
    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if live:
        print(file=sys.stderr)
    if troubles:
        raise troubles[0]
    return {name: found[name] for name in names}


def summary_of(name, cases):
    """An operator's row: its outcome as a whole and by variant, its codes, its steps."""
    outcome = gravest([case["outcome"] for case in cases])
    codes = {r["code"] for case in cases if case["outcome"] == "refused" for r in case["refusals"]}
    row = {"name": name, "outcome": outcome, "codes": sorted(codes)}
    for variant in VARIANTS:
        of_variant = [case["outcome"] for case in cases if case["variant"] == variant]
        row[variant] = gravest(of_variant) if of_variant else None
    return row | {"steps": cases}


def is_defect(row, strict):
    return row["outcome"] in DEFECTS or (strict and bool(FAULTS & set(row["codes"])))


def print_report(rows, torch_version, strict):
    print(f"{len(rows)} operators, torch {torch_version}\n")
    print(f"{'':18}{'operators':>10}{'forward':>10}{'backward':>10}{'steps':>10}")
    for outcome in (*GRAVITY[len(DEFECTS):], *DEFECTS):
        counts = [sum(row[key] == outcome for row in rows) for key in ("outcome", *VARIANTS)]
        counts.append(sum(case["outcome"] == outcome for row in rows for case in row["steps"]))
        print(f"{outcome:18}" + "".join(f"{count:10}" for count in counts))
    same = sum(case["outcome"] == "replayed" and not case["varied"]
               for row in rows for case in row["steps"])
    if same:
        print(f"\n{same} of the replayed steps have no float argument whose values could change.")

    cut_short = [(row["name"], case["detail"]) for row in rows for case in row["steps"]
                 if case["outcome"] == "no sample" and "without Steptape" in case["detail"]]
    if cut_short:
        print("\nEnded before Steptape came in:")
    for name, detail in cut_short:
        print(f"  {name}: {detail}")

    by_code = collections.defaultdict(list)
    for row in rows:
        for code in row["codes"]:
            by_code[code].append(row["name"])
    if by_code:
        print("\nRefused by name:")
    for code, names in sorted(by_code.items(), key=lambda item: -len(item[1])):
        print(f"  {code}: {len(names)}")
        print(textwrap.fill(", ".join(names), 100, initial_indent="    ", subsequent_indent="    "))

    defects = [row for row in rows if is_defect(row, strict)]
    print(f"\nDefects: {len(defects)}")
    for row in defects:
        print(f"  {row['name']}: {row['outcome']}")
        for case in row["steps"]:
            faults = [r for r in case.get("refusals", ()) if strict and r["code"] in FAULTS]
            if case["outcome"] in DEFECTS or faults:
                detail = case.get("detail") or f"{faults[0]['code']}: {faults[0]['reason']}"
                print(f"    {case['variant']}, sample {case['sample']}: {case['outcome']}: "
                      f"{detail.splitlines()[0][:300]}")


def at_least(least):
    def number(text):
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return value
    return number


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", metavar="REGEX", default="",
                        help="only operators whose whole name matches, as in nn_functional_.*")
    parser.add_argument("--limit", metavar="N", type=at_least(1), help="only the first N of them")
    parser.add_argument("--samples", metavar="N", type=at_least(1), default=3,
                        help="samples of each operator (%(default)s)")
    parser.add_argument("--calls", metavar="N", type=at_least(6), default=12,
                        help="calls of each step, at least 6; from 10 on, a step whose recordings "
                             "never agree has time to be refused (%(default)s)")
    parser.add_argument("--seconds", metavar="S", type=float, default=120,
                        help="time limit of an operator (%(default)s)")
    parser.add_argument("--jobs", metavar="N", type=at_least(1), default=os.cpu_count() or 1,
                        help="processes at a time (%(default)s)")
    parser.add_argument("--chunk", metavar="N", type=at_least(1), default=100,
                        help="operators that one process runs at most (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write all outcomes there")
    parser.add_argument("--strict", action="store_true",
                        help="count refusals that report a fault of a plan as defects")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    try:
        pattern = re.compile(options.ops or ".*")
        first = Worker()
        names = [name for name in first.operators if pattern.fullmatch(name)][:options.limit]
        if not names:
            first.end()
            raise Trouble(f"no operator's name matches {options.ops!r}")
        found = sweep(names, options, first)
        rows = [summary_of(name, found[name]) for name in names]
        defects = sum(is_defect(row, options.strict) for row in rows)
        if options.json:
            counts = collections.Counter(row["outcome"] for row in rows)
            report = {"torch": first.torch, "calls": options.calls, "samples": options.samples,
                      "defects": defects, "counts": counts, "operators": rows}
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=1)
                file.write("\n")
    except (Trouble, OSError, re.error) as trouble:
        print(f"opinfo_sweep: {trouble}", file=sys.stderr)
        return 2
    print_report(rows, first.torch, options.strict)
    return 1 if defects else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        serve()
    else:
        sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Runs what PyTorch's own tests know of through Steptape, and compares it with eager bit for bit.

Kinds (--what, all of them by default):
  operators   OpInfo: the first float32 CPU samples of each become steps of one operator, once the
              operator alone and, where autograd knows it, once with a backward
  modules     ModuleInfo: each module is trained, in training and, where that differs, in evaluation
  optimizers  OptimizerInfo: each configuration trains a small network under a schedule, and loads
              its own state_dict once

Every call gets new values of the sample's shapes; integers and flags are permuted in late calls.
Two twins of each are called, one through Steptape; results, arguments, parameters, gradients, the
optimizer's state and random state are compared after every call.

Outcomes of an entry (the gravest of its cases):
  replayed          replayed, and every call equal to eager
  refused           never replayed, and the refusals say why (the table of codes)
  nondeterministic  eager itself gives other bits on the same inputs: not counted
  no sample         no sample that runs eagerly: not counted
and the defects:
  never replayed    ran to the end without a replay and without a refusal
  warns             LibTorch warned that a result was resized, which eager never says
  differs           a call through Steptape differs from eager
  raises            a call through Steptape raises and eager does not
  timed out         a call through Steptape did not return in time
  crashed           the process died in a call through Steptape
With --strict, entries refused as trial_diverged, audit_diverged, replay_threw or recording_failed
are defects too: eager is deterministic there, so the refusal reports a fault of a plan.

Needs: steptape, torch with its torch.testing._internal, and numpy. expecttest is used where it is
installed and else stood in for; pytest, hypothesis and scipy are not needed. Entries run in worker
processes: when one dies or hangs, the sweep goes on in a new one.

Exit status: 0 no defects, and as many cases replay as --at-least says; 1 defects, or fewer;
2 trouble (nothing to run, steptape not importable, ...).
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

KINDS = ("operators", "modules", "optimizers")
DEFECTS = ("crashed", "timed out", "differs", "raises", "warns", "never replayed")
GRAVITY = (*DEFECTS, "refused", "replayed", "nondeterministic", "no sample")
FAULTS = {"trial_diverged", "audit_diverged", "replay_threw", "recording_failed"}


class Trouble(Exception):
    """Why the sweep cannot run."""


def gravest(outcomes):
    return min(outcomes, key=GRAVITY.index, default="no sample")


class Died(Exception):
    """The worker's process ended: how, and the end of what it wrote."""


class Worker:
    """A process that runs entries, and the reading of its answers against the clock."""

    START = 300  # seconds to import torch and the databases, on a busy machine

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
        self.entries, self.torch = hello["entries"], hello["torch"]

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
        """Gives the outcomes of an entry's cases, that of a death or a delay among them."""
        self.asked += 1
        deadline = time.monotonic() + seconds
        outcomes, case, began = [], ["", 0], False

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


def sweep(entries, options, first):
    """Runs (kind, name) entries, `options.jobs` at a time; gives the outcomes of the cases of each."""
    waiting = queue.SimpleQueue()
    for entry in entries:
        waiting.put(entry)
    found, troubles = {}, []
    live = sys.stderr.isatty()

    def work(worker):
        try:
            while not troubles:
                kind, name = waiting.get_nowait()
                if worker is None:
                    worker = Worker()
                request = {"kind": kind, "name": name, "samples": options.samples,
                           "calls": options.calls}
                found[kind, name] = worker.ask(request, options.seconds)
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
            print(f"\r{len(found)}/{len(entries)} {name[:60]:60}", end="", file=sys.stderr)
        elif len(found) % 50 == 0 or len(found) == len(entries):
            print(f"sweep: {len(found)} of {len(entries)} entries, {time.monotonic() - began:.0f} s",
                  file=sys.stderr, flush=True)

    began = time.monotonic()
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
    return {entry: found[entry] for entry in entries}


def summary_of(kind, name, cases):
    """An entry's row: its outcome as a whole and by variant, its codes, its cases."""
    outcome = gravest([case["outcome"] for case in cases])
    codes = {r["code"] for case in cases if case["outcome"] == "refused" for r in case["refusals"]}
    variants = {}
    for case in cases:
        variants.setdefault(case["variant"], []).append(case["outcome"])
    return {"kind": kind, "name": name, "outcome": outcome, "codes": sorted(codes),
            "variants": {variant: gravest(of) for variant, of in variants.items()}, "cases": cases}


def is_defect(row, strict):
    return row["outcome"] in DEFECTS or (strict and bool(FAULTS & set(row["codes"])))


def cases_with(rows, outcome):
    return sum(case["outcome"] == outcome for row in rows for case in row["cases"])


def print_counts(kind, rows):
    variants = sorted({variant for row in rows for variant in row["variants"] if variant})
    print(f"\n{kind}")
    print(f"{'':18}" + "".join(f"{head:>10}" for head in ("entries", *variants, "cases")))
    for outcome in (*GRAVITY[len(DEFECTS):], *DEFECTS):
        counts = [sum(row["outcome"] == outcome for row in rows)]
        counts += [sum(row["variants"].get(v) == outcome for row in rows) for v in variants]
        counts.append(cases_with(rows, outcome))
        print(f"  {outcome:16}" + "".join(f"{count:10}" for count in counts))
    same = sum(case["outcome"] == "replayed" and not case["varied"]
               for row in rows for case in row["cases"])
    if same:
        print(f"  {same} of the replayed cases have no float argument whose values could change.")


def print_refusals(rows):
    by_code = collections.defaultdict(list)
    for row in rows:
        for code in row["codes"]:
            by_code[code].append(row["name"])
    if by_code:
        print("\nRefused by name:")
    for code, names in sorted(by_code.items(), key=lambda item: -len(item[1])):
        print(f"  {code}: {len(names)}")
        print(textwrap.fill(", ".join(names), 100, initial_indent="    ", subsequent_indent="    "))


def print_defects(rows, strict):
    cut_short = [(row["name"], case["detail"]) for row in rows for case in row["cases"]
                 if case["outcome"] == "no sample" and "without Steptape" in case["detail"]]
    if cut_short:
        print("\nEnded before Steptape came in:")
    for name, detail in cut_short:
        print(f"  {name}: {detail}")
    defects = [row for row in rows if is_defect(row, strict)]
    print(f"\nDefects: {len(defects)}")
    for row in defects:
        print(f"  {row['name']}: {row['outcome']}")
        for case in row["cases"]:
            faults = [r for r in case.get("refusals", ()) if strict and r["code"] in FAULTS]
            if case["outcome"] in DEFECTS or faults:
                detail = case.get("detail") or f"{faults[0]['code']}: {faults[0]['reason']}"
                print(f"    {case['variant']}, sample {case['sample']}: {case['outcome']}: "
                      f"{detail.splitlines()[0][:300]}")


def too_few(rows, held):
    """The kinds of which fewer cases replay than is held, in words."""
    found = {kind: cases_with([row for row in rows if row["kind"] == kind], "replayed")
             for kind in held}
    return [f"{kind}: {found[kind]} cases replay, {least} did"
            for kind, least in held.items() if found[kind] < least]


def at_least(least):
    def number(text):
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return value
    return number


def held(text):
    """"operators=2216,modules=300" as a dict."""
    pairs = [part.split("=") for part in text.split(",")]
    if any(len(pair) != 2 or pair[0] not in KINDS or not pair[1].isdigit() for pair in pairs):
        raise argparse.ArgumentTypeError(f"not KIND=N,..., KIND one of {', '.join(KINDS)}: {text!r}")
    return {kind: int(least) for kind, least in pairs}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=KINDS, action="append", help="only this kind; repeatable")
    parser.add_argument("--only", metavar="REGEX", default="",
                        help="only entries whose whole name matches, as in nn_functional_.*")
    parser.add_argument("--limit", metavar="N", type=at_least(1), help="only the first N of them")
    parser.add_argument("--samples", metavar="N", type=at_least(1), default=3,
                        help="samples of each operator and module (%(default)s)")
    parser.add_argument("--calls", metavar="N", type=at_least(6), default=12,
                        help="calls of each case, at least 6; from 10 on, a case whose recordings "
                             "never agree has time to be refused (%(default)s)")
    parser.add_argument("--seconds", metavar="S", type=float, default=120,
                        help="time limit of an entry (%(default)s)")
    parser.add_argument("--jobs", metavar="N", type=at_least(1), default=os.cpu_count() or 1,
                        help="processes at a time (%(default)s)")
    parser.add_argument("--chunk", metavar="N", type=at_least(1), default=200,
                        help="entries that one process runs at most (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write all outcomes there")
    parser.add_argument("--strict", action="store_true",
                        help="count refusals that report a fault of a plan as defects")
    parser.add_argument("--at-least", metavar="KIND=N,...", type=held, default={},
                        help="how many cases of a kind must replay")
    return parser.parse_args(arguments)


def write_json(path, rows, torch_version, options):
    report = {"torch": torch_version, "calls": options.calls, "samples": options.samples,
              "defects": sum(is_defect(row, options.strict) for row in rows),
              "counts": collections.Counter(row["outcome"] for row in rows), "entries": rows}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")


def entries_of(worker, options):
    pattern = re.compile(options.only or ".*")
    entries = [(kind, name) for kind in options.what or KINDS for name in worker.entries[kind]
               if pattern.fullmatch(name)][:options.limit]
    if not entries:
        worker.end()
        raise Trouble(f"no entry's name matches {options.only!r}")
    return entries


def main(arguments):
    options = parse(arguments)
    try:
        re.compile(options.only)
        first = Worker()
        found = sweep(entries_of(first, options), options, first)
        rows = [summary_of(kind, name, cases) for (kind, name), cases in found.items()]
        if options.json:
            write_json(options.json, rows, first.torch, options)
    except (Trouble, OSError, re.error) as trouble:
        print(f"sweep: {trouble}", file=sys.stderr)
        return 2
    times = os.times()
    print(f"{len(rows)} entries, torch {first.torch}, {options.calls} calls of each case, "
          f"{times.children_user + times.children_system:.0f} s of processor time")
    for kind in options.what or KINDS:
        print_counts(kind, [row for row in rows if row["kind"] == kind])
    print_refusals(rows)
    print_defects(rows, options.strict)
    fewer = too_few(rows, options.at_least)
    for line in fewer:
        print(f"Fewer than before: {line}")
    return 1 if fewer or any(is_defect(row, options.strict) for row in rows) else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        from sweeps.serving import serve
        serve()
    else:
        sys.exit(main(sys.argv[1:]))

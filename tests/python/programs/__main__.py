"""The command line: draws programs, runs them, prints what became of them."""
import argparse
import json
import os
import pathlib
import sys
import time

from . import report
from .plan import draw
from .pool import Pool
from .shrink import shrunk
from .skeleton import source


def main():
    parser = argparse.ArgumentParser(prog="python -m programs", description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="programs to draw")
    parser.add_argument("--seed", type=int, default=None, help="of the first; the others follow. By default from the clock, and printed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, help="a file for a line of JSON a program")
    parser.add_argument("--show", type=int, metavar="SEED", help="print the program of a seed and exit")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="write each program that failed there")
    parser.add_argument("--at-least", type=float, default=0.0, metavar="SHARE", help="of them that must replay, 0 to 1")
    parser.add_argument("--shrink", action="store_true", help="leave out of failing programs what they fail without")
    parser.add_argument("--run", type=pathlib.Path, nargs="+", metavar="FILE", help="run these programs in place of drawn ones")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu",
                        help="where their tensors lie; of cuda the device that STEPTAPE_SIMULATED_CUDA simulates, where it names one")
    options = parser.parse_args()
    os.environ["STEPTAPE_PROGRAMS_DEVICE"] = options.device
    if options.show is not None:
        print(source(draw(options.show)), end="")
        return 0
    if options.run:
        return run_files(options.run, options.jobs)
    seed = int(time.time()) % 10**6 * 1000 if options.seed is None else options.seed
    print(f"programs: seeds {seed} to {seed + options.count - 1}, {options.jobs} jobs", flush=True)
    with open(options.json or os.devnull, "w") as file:
        def write(row):
            print(json.dumps(row), file=file, flush=True)

        rows = report.drawn(range(seed, seed + options.count), options.jobs, watch=sys.stderr, done=write)
    if options.shrink:
        with Pool(options.jobs) as pool:
            shrunk([row for row in rows if row["outcome"] in report.FAILURES], pool)
        if options.json:
            options.json.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        for row in rows:
            if row["outcome"] in report.FAILURES:
                pathlib.Path(options.keep, f"seed_{row['seed']}.py").write_text(row.get("shrunk", {}).get("text") or row["text"])
    print(report.table(rows))
    if not rows or report.share_of_replays(rows) < options.at_least:
        print(f"programs: fewer than {options.at_least:.0%} replay", file=sys.stderr)
        return 1
    return 1 if any(row["outcome"] in report.FAILURES for row in rows) else 0


def run_files(paths, jobs):
    failed = False
    with Pool(jobs) as pool:
        for index, outcome in pool.map([path.read_text() for path in paths]):
            failed |= outcome["outcome"] in report.FAILURES
            print(paths[index], json.dumps(outcome))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

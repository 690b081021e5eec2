#!/usr/bin/env python3
"""Runs on a machine with a GPU what needs one, in phases of which each may be the last, and writes what it found as a page.

usage: scripts/gpu_check.py [--pack FOLDER] [--results FOLDER] [--limit-s S] [--only JOB]... PHASE ...

  smoke     what the machine is, a few models in C++ and in Python, compute-sanitizer over one test
  tests     all tests of C++, all cases of Python and drawn programs (40 a core) on the device, in several processes at a time
  table     C++: eager and replayed steps (steptape_gpu_table)
  peers     Python: eager, make_graphed_callables, hand-made graphs, torch.compile and replay (bench/gpu_table.py)

Builds nothing: scripts/gpu_pack.sh gathers what it runs (default of --pack: the folder above this one, if that is a pack, or
out/gpu). Needs python3 with torch 2.11 and pytest, and no network. RESULTS/PHASE.json is written anew after each job, and
RESULTS/gpu_results.md after each phase; a job that passed there is not run again, so a phase that the limit ended goes on where it
stopped.

Exit 0: all passed; 1: something failed or did not come to its end, and the page says what; 2: nothing could be run.
"""
import argparse
import concurrent.futures
import datetime
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PHASES = ("smoke", "tests", "table", "peers")
PEERS = ("mlp4x32", "lstm24", "gpt64x2", "conv3", "gru24", "mlp100x16", "resnet18x8", "resnet18x96")
KEPT_LINES = 400  # of what a job prints
SHARDS = {"cpp": 8, "python": 6}
TABLE = ("mlp4x32", "mlp100x16", "gru24", "lstm24", "gpt64x2", "conv3", "mlp4x128", "mlp4x1024", "gpt256x4")


def say(text):
    print(f"gpu_check: {text}", file=sys.stderr, flush=True)


class Job:
    def __init__(self, name, command, limit_s=200, **environment):
        self.name, self.command, self.limit_s = name, [str(part) for part in command], limit_s
        self.environment = {key: str(value) for key, value in environment.items()}


def jobs_of(phase, pack, results):
    program, device_test = pack / "session_gpu_test", ROOT / "tests/python/device_test.py"
    python = [sys.executable, "-W", "ignore"]
    table = [*python, ROOT / "bench/gpu_table.py"]
    if phase == "smoke":
        few = "DeviceModelsTest.*:DeviceGroupsTest.*"
        jobs = [Job("machine", [*python, "-c", MACHINE], 60), Job("models", [program, "--gtest_brief=1", f"--gtest_filter={few}"], 100)]
        jobs += [Job(f"replay {name}", [*table, "--workload", name, "--way", "replay", "--explain"], 60)
                 for name in ("mlp4x32", "gru24", "lstm24", "gpt64x2", "conv3")]
        jobs.append(Job("replay fused", [*table, "--workload", "mlp4x32", "--way", "replay fused", "--explain"], 60))
        sanitizer = shutil.which("compute-sanitizer") or next(iter(glob.glob("/usr/local/cuda*/bin/compute-sanitizer")), None)
        if sanitizer:
            jobs.append(Job("sanitizer", [sanitizer, "--error-exitcode", 1, "--report-api-errors", "no", program, "--gtest_filter=DeviceMemoryTest.ResultsAreTheUsersOwn"], 100))
        return jobs, 6
    if phase == "tests":
        jobs = [Job(f"cpp {i}", [program, "--gtest_brief=1"], GTEST_TOTAL_SHARDS=SHARDS["cpp"], GTEST_SHARD_INDEX=i)
                for i in range(SHARDS["cpp"])]
        jobs += [Job(f"python {i}", [*python, device_test, "cases", i, SHARDS["python"]]) for i in range(SHARDS["python"])]
        jobs += [Job(f"python {name}", [*python, device_test, name]) for name in ("grouped", "failing")]
        cores = os.cpu_count() or 1
        jobs.append(Job("programs", [*python, "-m", "programs", "--device", "cuda", "--count", 40 * cores, "--seed", 700000,
                                     "--jobs", cores, "--at-least", 0.6], STEPTAPE_SIMULATED_CUDA=os.environ.get("LD_PRELOAD", "")))
        return jobs, 12
    if phase == "table":
        return [Job(name, [pack / "steptape_gpu_table", "--workload", name, "--rounds", 5, "--json", results / f"table-{name}.json"], 120)
                for name in TABLE], 1
    return [Job(f"peers {name}", [*table, "--workload", name, "--limit-s", 100, "--at-a-time", 10, "--json", results / f"peers-{name}.json"], 300)
            for name in PEERS], 1


MACHINE = """
import os, platform, torch
device = torch.cuda.get_device_properties(0)
version = '/proc/driver/nvidia/version'
driver = open(version).readline().split('  ')[1] if os.path.exists(version) else 'none'
print(f'{device.name}, {device.total_memory >> 30} GiB|{driver}|{torch.__version__}|{torch.version.cuda}|{platform.python_version()}')
"""


class Phase:
    """The jobs of a phase and what they gave, in a file that is whole at any time."""

    def __init__(self, name, results):
        self.path = results / f"{name}.json"
        self.lock = threading.Lock()
        self.done = {row["name"]: row for row in load(self.path) or []}

    def add(self, row):
        with self.lock:
            self.done[row["name"]] = row
            write(self.path, json.dumps(list(self.done.values()), indent=1))


def load(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def write(path, text):
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def run(job, phase, environment, deadline):
    start = time.monotonic()
    limit_s = min(job.limit_s, deadline - start)
    if limit_s < 5:
        return
    say(f"{job.name}: {' '.join(job.command)}")
    process = subprocess.Popen(job.command, env=environment | job.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               cwd=ROOT, start_new_session=True, text=True, errors="replace")
    try:
        output, _ = process.communicate(timeout=limit_s)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, code = process.communicate()[0], "time"
    lines = output.splitlines()
    row = {"name": job.name, "exit": code, "seconds": round(time.monotonic() - start, 1), "output": lines[-KEPT_LINES:]}
    phase.add(row)
    say(f"{job.name}: exit {code} after {row['seconds']} s" + "".join(f"\n    {line[:300]}" for line in lines[-3:] if code != 0))


# The page.

def head(results):
    machine = {row["name"]: row for row in load(results / "smoke.json") or []}.get("machine")
    told = machine["output"][-1].split("|") if machine and machine["exit"] == 0 else ["unknown"] * 5
    return ["| device | driver | torch | CUDA | Python | commit | date |", "|---|---|---|---|---|---|---|",
            "| " + " | ".join([*told, (results / "commit").read_text().strip(), datetime.date.today().isoformat()]) + " |", ""]


def outcomes(results, phase):
    rows = load(results / f"{phase}.json")
    if rows is None:
        return ["Not run.", ""]
    lines = []
    for row in rows:
        ended = "passed" if row["exit"] == 0 else f"**exit {row['exit']}**"
        lines.append(f"- {row['name']}: {ended} in {row['seconds']} s")
        if row["exit"] != 0:
            lines += ["  ```", *("  " + line[:400] for line in row["output"][-25:]), "  ```"]
    return lines + [""]


def table(results):
    lines = ["| step | optimizer | eager us | replay us | ratio | host us of a launch | graphs | nodes | updated | capture us | pool bytes | peak, both / eager |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for name in TABLE:
        for row in load(results / f"table-{name}.json") or []:
            if "failure" in row:
                lines.append(f"| {row['workload']} | {row['optimizer']} | **failed**: {row['failure']} |")
                continue
            lines.append(f"| {row['workload']} | {row['optimizer']} | {row['eager_us']:.1f} | {row['replay_us']:.1f} | "
                         f"{row['eager_us'] / row['replay_us']:.2f} | {row['launch_us']:.1f} | {row['graphs']} | {row['nodes']} | "
                         f"{row['updated']} | {row['capture_us']:.0f} | {row['pool_bytes']} | "
                         f"{row['both_peak_bytes'] / max(1, row['eager_peak_bytes']):.2f} |")
    return lines + [""]


def peers(results):
    rows = [row for name in PEERS for row in load(results / f"peers-{name}.json") or []]
    lines = ["| step | way | us | host us | device us | against eager | ready s | peak MiB | bits |", "|---|---|---|---|---|---|---|---|---|"]
    of = {(row["workload"], row["way"]): row for row in rows}
    for row in rows:
        if "failure" in row:
            lines.append(f"| {row['workload']} | {row['way']} | **failed**: {row['failure']} |")
            continue
        base = of.get((row["workload"], "eager"), {}).get("us")
        same = of.get((row["workload"], "eager fused" if "fused" in row["way"] else "eager"), {})
        bits = ""
        if row["way"].startswith("replay"):
            bits = "eager's" if row["bits"] == same.get("bits") else \
                "eager's own differ from run to run" if same.get("bits") != same.get("bits_again") else "**other**"
        against = f"{base / row['us']:.2f}" if base else ""
        lines.append(f"| {row['workload']} | {row['way']} | {row['us']:.1f} | {row['host_us']:.1f} | {row['device_us']:.1f} | {against} | "
                     f"{row['ready_s']:.1f} | {row['peak'] / 2**20:.1f} | {bits} |")
    lines += ["", "Ops that leave other bits each time they run, as `explain()` lists them:", ""]
    found = {(row["workload"], line.split(";")[0].strip()) for row in rows for line in row.get("explain", "").splitlines()
             if line.strip().startswith("leaves other bits each time")}
    return lines + [f"- {name}: {line.replace(str(ROOT) + '/', '')}" for name, line in sorted(found)] + [""]


def page(results):
    return "\n".join(["# Results on a GPU", "", "Written by `scripts/gpu_check.py`; how a step runs on a GPU is in [gpu.md](gpu.md).", "",
                      *head(results),
                      "## Smoke", *outcomes(results, "smoke"), "## Tests", *outcomes(results, "tests"),
                      "## C++: eager LibTorch and replay", *table(results),
                      "## Python: eager, peers and replay", "What each column is says `bench/gpu_table.py --help`.", "", *peers(results)]).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phases", nargs="+", choices=PHASES, metavar="PHASE")
    parser.add_argument("--pack", type=pathlib.Path, default=ROOT if (ROOT / "session_gpu_test").exists() else ROOT / "out/gpu")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "out/gpu_results")
    parser.add_argument("--limit-s", type=float, default=450, help="seconds after which what runs is ended (450)")
    parser.add_argument("--only", action="append", metavar="JOB", help="of the phases, the jobs of these names")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.limit_s
    pack, results = arguments.pack.resolve(), arguments.results.resolve()
    if not (pack / "session_gpu_test").exists():
        say(f"{pack} holds no session_gpu_test; run scripts/gpu_pack.sh where it was built")
        return 2
    found = subprocess.run([sys.executable, "-c", "import torch; print(torch.__path__[0]); raise SystemExit(not torch.cuda.is_available())"],
                           capture_output=True, text=True, check=False)
    if found.returncode != 0:
        say("torch cannot be imported, or finds no CUDA device: " + (found.stderr.strip().splitlines() or ["no device"])[-1])
        return 2
    torch = found.stdout.split()[-1]
    libraries = [pack / "lib", f"{torch}/lib", *glob.glob(f"{torch}/../nvidia/*/lib")]
    environment = os.environ | {
        "LD_LIBRARY_PATH": ":".join(map(str, [*libraries, os.environ.get("LD_LIBRARY_PATH", "")])),
        "STEPTAPE_CUDA_BACKEND": str(pack / "libsteptape_cuda.so"), "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTHONPATH": f"{pack / 'python'}:{ROOT / 'tests/python'}", "PYTHONUNBUFFERED": "1"}
    results.mkdir(parents=True, exist_ok=True)
    shutil.copy(pack / "commit", results / "commit")
    has_failed = False
    for name in arguments.phases:
        phase = Phase(name, results)
        jobs, at_a_time = jobs_of(name, pack, results)
        jobs = [job for job in jobs if not arguments.only or job.name in arguments.only]
        left = [job for job in jobs if phase.done.get(job.name, {}).get("exit") != 0]
        with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
            list(pool.map(lambda job: run(job, phase, environment, deadline), left))
        write(results / "gpu_results.md", page(results))
        ended = [phase.done.get(job.name, {}).get("exit", "not run") for job in jobs]
        has_failed |= any(code != 0 for code in ended)
        say(f"{name}: {ended.count(0)} of {len(jobs)} passed")
    say(str(results / "gpu_results.md"))
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes what scripts/gpu_check.sh found as a page of Markdown, on stdout.

usage: gpu_results.py FOLDER COMMIT

FOLDER holds tests.json (GoogleTest's), table.json (steptape_gpu_table's), peers.json (bench/gpu_table.py's) and what each program
printed, as far as it came; what is missing is told as missing.
"""
import datetime
import json
import pathlib
import sys

import torch


def load(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def driver():
    try:
        return pathlib.Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0].split("  ")[1]
    except (OSError, IndexError):
        return "unknown"


def tests(found):
    if found is None:
        return ["The tests did not come to their end; see the output below.", ""]
    lines = [f"{found['tests']} tests, {found['failures']} failed, {float(found['time'].rstrip('s')):.0f} s.", ""]
    for suite in found["testsuites"]:
        for test in suite["testsuite"]:
            if test.get("result") == "SKIPPED":
                lines.append(f"- skipped: `{suite['name']}.{test['name']}`")
            for failure in test.get("failures", []):
                text = " ".join(failure["failure"].split())[:600]
                lines.append(f"- **failed**: `{suite['name']}.{test['name']}`: {text}")
    return lines + [""]


def table(rows):
    if rows is None:
        return ["The benchmark did not come to its end; see the output below.", ""]
    lines = ["| step | optimizer | eager us | replay us | ratio | host us of a replay | graphs | nodes | updated | capture us | pool bytes | peak, both / eager |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        if "failure" in row:
            lines.append(f"| {row['workload']} | {row['optimizer']} | **failed**: {row['failure']} |")
            continue
        lines.append(f"| {row['workload']} | {row['optimizer']} | {row['eager_us']:.1f} | {row['replay_us']:.1f} | "
                     f"{row['eager_us'] / row['replay_us']:.2f} | {row['launch_us']:.1f} | {row['graphs']} | {row['nodes']} | "
                     f"{row['updated']} | {row['capture_us']:.0f} | {row['pool_bytes']} | "
                     f"{row['both_peak_bytes'] / max(1, row['eager_peak_bytes']):.2f} |")
    return lines + [""]


def peers(rows):
    if rows is None:
        return ["The comparison did not come to its end; see the output below.", ""]
    lines = ["| step | way | us | against eager Python | ready after |", "|---|---|---|---|---|"]
    for each in rows:
        base = each["ways"]["eager"].get("us")
        for way, row in each["ways"].items():
            if "failure" in row:
                lines.append(f"| {each['workload']} | {way} | **failed**: {row['failure']} |")
            else:
                lines.append(f"| {each['workload']} | {way} | {row['us']:.1f} | {base / row['us']:.2f} | {row['ready_s']:.1f} s |")
    return lines + [""]


def output(folder, name):
    path, code = folder / f"{name}.txt", folder / f"{name}.rc"
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else "was not run"
    ended = f"exit {code.read_text().strip()}" if code.exists() else "not run"
    return [f"### {name}: {ended}", "```", *text.splitlines()[-40:], "```", ""]


def main():
    folder, commit = pathlib.Path(sys.argv[1]), sys.argv[2]
    device = torch.cuda.get_device_properties(0)
    lines = ["# Results on a GPU", "",
             "Written by `scripts/gpu_check.sh`; how a step runs on a GPU is in [gpu.md](gpu.md).", "",
             "| device | driver | torch | CUDA | commit | date |", "|---|---|---|---|---|---|",
             f"| {device.name}, {device.total_memory >> 30} GiB | {driver()} | {torch.__version__} | {torch.version.cuda} | "
             f"{commit} | {datetime.date.today().isoformat()} |", "",
             "## Tests", *tests(load(folder / "tests.json")),
             "## C++: eager LibTorch and replay", *table(load(folder / "table.json")),
             "## Python: eager, peers and replay", *peers(load(folder / "peers.json")),
             "## What the programs printed last"]
    for name in ("tests", "sanitizer", "table", "peers"):
        lines += output(folder, name)
    print("\n".join(lines).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Opens reports in a headless Chromium and lets each page check itself, in light and dark.

usage: report_page_test.py STEPTAPE FOLDER_OF_TRACES [FOLDER_FOR_SCREENSHOTS]

Exit 0: every page passed, 1: one did not, 77: skipped, with the reason.
"""
import html
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
TIMEOUT_S = 120
# "--virtual-time-budget" lets timers and frames run before the page is looked at.
CHROMIUM = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--disable-dev-shm-usage", "--virtual-time-budget=20000", "--window-size=1440,1000",
            "--enable-logging=stderr", "--log-level=0"]
DARK = "--blink-settings=preferredColorScheme=0"
LIGHT = "--blink-settings=preferredColorScheme=1"
TABS = ["overview", "ops", "modules", "optimizer", "memory", "numbers", "guards", "constants",
        "refusals"]


def chromium():
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


def browse(browser, page, profile, *arguments):
    """(document after its scripts, console messages) of a page."""
    command = [browser, *CHROMIUM, f"--user-data-dir={profile}", *arguments, page]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return done.stdout, console


def outcome_of(document):
    found = re.search(r'<output id="self-test">(.*?)</output>', document, re.S)
    return html.unescape(found[1]) if found else "the page wrote no outcome"


def check(browser, report, profile):
    """What is wrong with a report, a line each."""
    wrong = []
    for scheme, setting in (("light", LIGHT), ("dark", DARK)):
        document, console = browse(browser, f"{report.as_uri()}#self-test", profile, setting,
                                   "--dump-dom")
        outcome = outcome_of(document)
        print(f"{report.name}, {scheme}: {outcome}")
        if not outcome.startswith("passed"):
            wrong.append(f"{report.name}, {scheme}: {outcome}")
        wrong += [f"{report.name}, {scheme}: {line}" for line in console]
    return wrong


def take_screenshots(browser, report, profile, folder):
    tabs = TABS + ["diff"] * (b'"diff":{' in report.read_bytes())
    for tab in tabs:
        for scheme, setting in (("light", LIGHT), ("dark", DARK)):
            picture = folder / f"{report.stem}-{tab}-{scheme}.png"
            browse(browser, f"{report.as_uri()}#{tab}", profile, setting, f"--screenshot={picture}")


def main(arguments):
    if len(arguments) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    browser = chromium()
    if browser is None:
        print("skipped: no chromium or chrome is in PATH")
        return SKIPPED
    steptape, traces = arguments[0], sorted(pathlib.Path(arguments[1]).glob("*.tape"))
    if not traces:
        print(f"no trace lies in {arguments[1]}", file=sys.stderr)
        return 1
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        pairs = [(trace,) for trace in traces] + list(zip(traces, traces[1:]))[:1]
        for pair in pairs:
            report = pathlib.Path(folder) / ("-".join(trace.stem for trace in pair) + ".html")
            subprocess.run([steptape, "report", *pair, "-o", report], check=True)
            wrong += check(browser, report, pathlib.Path(folder) / "profile")
            if len(arguments) == 3:
                pictures = pathlib.Path(arguments[2]).resolve()
                take_screenshots(browser, report, pathlib.Path(folder) / "profile", pictures)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

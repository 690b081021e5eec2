"""Holds the Python rows of docs/hazards.md to the tests that they name and the refusals that there are."""
import pathlib
import re

import pytest

from steptape import _engine

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows():
    """(hazard, outcome, files, tests) of each row about Python."""
    page = (ROOT / "docs/hazards.md").read_text(encoding="utf-8").split("\n## In Python")[1]
    table = [line.strip().strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in table[0]] == ["hazard", "others", "Steptape", "test"]
    found, files = [], []
    for cells in table[2:]:
        hazard, _, outcome, test = (cell.strip() for cell in cells)
        files = re.findall(r"`(\w+\.py)`", test) or files  # "the same": those of the row above
        found.append((hazard, outcome, files, re.findall(r"`(test_\w+)`", test)))
    return found


ROWS = rows()


def test_there_are_rows():
    assert len(ROWS) >= 15


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_row_names_tests_and_refusals_that_exist(row):
    hazard, outcome, files, tests = row
    assert files, f"{hazard}: no file is named"
    paths = [pathlib.Path(__file__).parent / file for file in files]
    for path in paths:
        assert path.is_file(), f"{hazard}: there is no {path.name}"
    texts = [path.read_text(encoding="utf-8") for path in paths]
    for test in tests:
        assert any(f"def {test}(" in text for text in texts), f"{hazard}: none of {files} has {test}"
    assert re.match(r"(R|F)\b|passes through", outcome), outcome
    for code in re.findall(r"`([a-z_]+)`", outcome):
        assert code in _engine.refusal_codes(), f"{hazard}: no refusal is called {code}"

"""Holds the Python rows of docs/hazards.md to the tests that they name and the refusals that there are."""
import pathlib
import re

import pytest

from steptape import _engine

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows():
    """(hazard, outcome, test) of each row about Python."""
    page = (ROOT / "docs/hazards.md").read_text(encoding="utf-8").split("\n## In Python")[1]
    table = [line.strip().strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in table[0]] == ["hazard", "others", "Steptape", "test"]
    found, file = [], ""
    for cells in table[2:]:
        hazard, _, outcome, test = (cell.strip() for cell in cells)
        named = re.match(r"`(\w+\.py)`", test)
        file = named[1] if named else file  # "the same": that of the row above
        found.append((hazard, outcome, file, re.findall(r"`(test_\w+)`", test)))
    return found


ROWS = rows()


def test_there_are_rows():
    assert len(ROWS) >= 15


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_row_names_tests_and_refusals_that_exist(row):
    hazard, outcome, file, tests = row
    path = pathlib.Path(__file__).parent / file
    assert path.is_file(), f"{hazard}: there is no {file}"
    text = path.read_text(encoding="utf-8")
    for test in tests:
        assert f"def {test}(" in text, f"{hazard}: {file} has no {test}"
    assert re.match(r"(R|F)\b|passes through", outcome), outcome
    for code in re.findall(r"`([a-z_]+)`", outcome):
        assert code in _engine.refusal_codes(), f"{hazard}: no refusal is called {code}"

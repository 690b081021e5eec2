"""Holds docs/hazards.md and the hazard tests together: hazards_test.py PATH_OF_THE_HAZARD_TESTS"""
import collections
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAD = ["hazard", "CUDA graphs by hand", "`torch.compile`", "Steptape", "test"]
LEAST_SHARE = 90.0

Row = collections.namedtuple("Row", "name steptape test")


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows():
    """The rows of the table about C++, without its headings; tests/python holds those of Python."""
    page = (ROOT / "docs/hazards.md").read_text(encoding="utf-8").split("\n## In Python")[0]
    lines = page.splitlines()
    table = [cells_of(line) for line in lines if line.startswith("|")]
    if table[0] != HEAD:
        raise ValueError(f"another table: {table[0]}")
    found = []
    for cells in table[2:]:
        name = re.match(r"`(\w+)`: ", cells[0])
        if name:
            found.append(Row(name[1], cells[3], cells[4].strip("`")))
        elif not cells[0].startswith("**") or any(cells[1:]):
            raise ValueError(f"neither a hazard nor a heading: {cells}")
    return found


def outcomes():
    """What each hazard printed: its name and "replayed 99.2%" or "refused <code>"."""
    run = subprocess.run([BINARY, "--gtest_color=no"], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"{BINARY} failed:\n{run.stdout[-4000:]}{run.stderr[-4000:]}")
    return re.findall(r"^hazard (\w+): (replayed \d+\.\d%|refused \w+)$", run.stdout, re.M)


def tests():
    """Suite.Test of each test of the binary."""
    run = subprocess.run([BINARY, "--gtest_list_tests"], capture_output=True, text=True, check=True)
    suite, found = "", set()
    for line in run.stdout.splitlines():
        if not line.startswith(" "):
            suite = line.strip()
        else:
            found.add(suite + line.split()[0])
    return found


class HazardsPageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rows = rows()
        cls.printed = outcomes()
        cls.outcomes = dict(cls.printed)

    def test_every_hazard_is_printed_once_and_stands_in_one_row(self):
        self.assertGreater(len(self.rows), 40)
        self.assertEqual(sorted(name for name, _ in self.printed),
                         sorted(row.name for row in self.rows))

    def test_the_tests_named_are_those_that_run(self):
        named = [row.test for row in self.rows]
        self.assertEqual(sorted(named), sorted(tests()))

    def test_each_row_promises_one_of_two_things(self):
        for row in self.rows:
            with self.subTest(row.name):
                self.assertRegex(row.steptape, r"^[RF](,|$)")

    def test_what_must_replay_replays(self):
        for row in self.rows:
            if row.steptape.startswith("R"):
                with self.subTest(row.name):
                    self.assert_replays(row)

    def test_what_may_refuse_does_what_the_table_says(self):
        for row in self.rows:
            if not row.steptape.startswith("F"):
                continue
            with self.subTest(row.name):
                code = re.match(r"F, \[`(\w+)`\]\(refusals\.md#(\w+)\)", row.steptape)
                if code:
                    self.assertEqual(code[1], code[2])
                    self.assertEqual(self.outcomes.get(row.name), f"refused {code[1]}")
                else:
                    self.assertTrue(row.steptape.startswith("F, replays"), row.steptape)
                    self.assert_replays(row)

    def assert_replays(self, row):
        share = re.fullmatch(r"replayed (\d+\.\d)%", self.outcomes.get(row.name, ""))
        self.assertTrue(share, f"printed {self.outcomes.get(row.name)}")
        self.assertGreaterEqual(float(share[1]), LEAST_SHARE)


class CodesTest(unittest.TestCase):
    def test_every_code_of_the_table_has_a_section(self):
        sections = re.findall(r"^### (\w+)$", (ROOT / "docs/refusals.md").read_text("utf-8"), re.M)
        page = (ROOT / "docs/hazards.md").read_text(encoding="utf-8")
        codes = re.findall(r"refusals\.md#(\w+)", page)
        self.assertTrue(codes)
        for code in codes:
            self.assertIn(code, sections)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    BINARY = sys.argv.pop(1)
    unittest.main()

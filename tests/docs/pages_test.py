"""Holds the pages and the code together."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def codes():
    """The stable names in the order of the enum: kHostRead is host_read."""
    body = re.search(r"enum class RefusalCode[^{]*\{(.*?)\n\};",
                     text_of("include/steptape/refusal.h"), re.S)[1]
    enumerators = re.findall(r"^\s*k(\w+)\s*(?:=\s*\d+)?\s*,", body, re.M)
    return [re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in enumerators]


def sections():
    """Heading and text of each code's section."""
    parts = re.split(r"^### (.*)$", text_of("docs/refusals.md"), flags=re.M)[1:]
    return dict(zip(parts[::2], parts[1::2]))


class RefusalsPageTest(unittest.TestCase):
    def test_every_code_has_an_anchor_in_the_order_of_the_enum(self):
        self.assertGreater(len(codes()), 20)
        self.assertEqual(list(sections()), codes())

    def test_every_section_tells_cause_example_and_remedy(self):
        for code, section in sections().items():
            with self.subTest(code):
                marks = re.findall(r"^\*\*(\w+)\.\*\*", section, re.M)
                self.assertEqual(marks, ["Cause", "Example", "Remedy"])


class ObservingPageTest(unittest.TestCase):
    def test_every_category_of_events_has_a_row_in_the_order_of_the_enum(self):
        body = re.search(r"enum class Category[^{]*\{(.*?)\n\};", text_of("session/observe/event.h"), re.S)[1]
        categories = [name.lower() for name in re.findall(r"^\s*k(\w+),", body, re.M)]
        table = text_of("docs/observing.md").split("| category | events |")[1].split("\n\n")[0]
        self.assertGreater(len(categories), 3)
        self.assertEqual(re.findall(r"^\| `(\w+)` \|", table, re.M), categories)

    def test_every_event_is_named(self):
        journal, page = text_of("session/observe/journal.cc"), text_of("docs/observing.md")
        names = re.findall(r'event\(\s*Category::k\w+,\s*(?:created_state \? )?"(\w+)"', journal)
        self.assertGreater(len(names), 5)
        for name in names:
            with self.subTest(name):
                self.assertIn(f"`{name}`", page)


class ReliabilityPageTest(unittest.TestCase):
    def test_every_test_that_is_named_exists(self):
        sources = "".join(path.read_text(encoding="utf-8")
                          for path in (ROOT / "tests/storage").rglob("*_test.cc"))
        names = re.findall(r"`(\w+Test)(?:\.(\w+))?`", text_of("docs/reliability.md"))
        self.assertGreater(len(names), 10)
        for suite, name in names:
            with self.subTest(f"{suite}.{name}"):
                self.assertRegex(sources, rf"TEST(_F)?\({suite}, {name}")


class LinksTest(unittest.TestCase):
    def test_relative_links_lead_somewhere(self):
        pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/*.md")]
        self.assertTrue(pages)
        for page in pages:
            for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
                if "://" in target or target.startswith("#"):
                    continue
                with self.subTest(f"{page.relative_to(ROOT)}: {target}"):
                    self.assertTrue((page.parent / target.split("#")[0]).exists())


if __name__ == "__main__":
    unittest.main()

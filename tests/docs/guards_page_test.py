"""Holds docs/guards.md, the kinds of guards and the tests of each kind together."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAD = ["kind", "what must be as it was", "when", "cost", "example of a verdict", "test"]


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def kinds():
    """The stable names in the order of the enum, but that of a verdict which holds."""
    body = re.search(r"enum class GuardKind[^{]*\{(.*?)\n\};",
                     text_of("include/steptape/guard_kind.h"), re.S)[1]
    names = re.findall(r"^\s*k(\w+)\s*(?:=\s*\d+)?\s*,", body, re.M)
    return [re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in names if name != "None"]


def rows():
    section = text_of("docs/guards.md").split("\n## Kinds\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    if table[0] != HEAD:
        raise ValueError(f"another table: {table[0]}")
    return table[2:]


def source_of(test):
    """The body of a test, string literals that stand after each other joined."""
    if "::" in test:
        path, name = test.split("::")
        body = re.search(rf"^def {name}\(.*?(?=^def |\Z)", text_of(path), re.M | re.S)
    else:
        suite, name = test.split(".")
        path = {"CollectivesTest": "collectives_test.cc"}.get(suite, "guards/guard_kinds_test.cc")
        body = re.search(rf"^TEST(?:_F)?\({suite}, {name}\).*?^}}", text_of(f"tests/session/{path}"), re.M | re.S)
    return None if body is None else re.sub(r'"\s*\n\s*"', "", body[0])


class GuardsPageTest(unittest.TestCase):
    def test_every_kind_has_a_row_in_the_order_of_the_enum(self):
        self.assertGreater(len(kinds()), 30)
        self.assertEqual([row[0].strip("`") for row in rows()], kinds())

    def test_every_cell_says_something(self):
        for row in rows():
            with self.subTest(row[0]):
                self.assertEqual(len(row), len(HEAD))
                self.assertTrue(all(row))

    def test_the_example_is_what_the_test_of_the_kind_asserts(self):
        for kind, *_, example, test in rows():
            with self.subTest(kind):
                source = source_of(test.strip("`"))
                self.assertIsNotNone(source, f"no test {test}")
                self.assertIn(f'"{example.strip("` ")}"', source)

    def test_the_test_asserts_the_kind(self):
        for kind, *_, test in rows():
            name = kind.strip("`")
            enumerator = "k" + "".join(word.capitalize() for word in name.split("_"))
            with self.subTest(kind):
                source = source_of(test.strip("`"))
                self.assertTrue(f"GuardKind::{enumerator}" in source or f'"{name}"' in source)


if __name__ == "__main__":
    unittest.main()

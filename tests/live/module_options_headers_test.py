"""Holds what live/module_options.h gives and LibTorch's headers together:
module_options_headers_test.py PATH_OF_LIVE_TEST FOLDER_OF_TORCH_NN"""
import collections
import pathlib
import re
import subprocess
import sys
import unittest

# Modules of which nothing is looked at, and why.
LEFT_OUT = {
    "Functional": "all that it has is a function, which nobody can look into",
    "ModuleDict": "it has registered modules alone",
    "ModuleList": "it has registered modules alone",
    "ParameterDict": "it has registered parameters alone",
    "ParameterList": "it has registered parameters alone",
    "Sequential": "it has registered modules alone",
}
OPTIONS = ("options", "options_base")  # members whose own names are looked at

Class = collections.namedtuple("Class", "base options members")


def texts(folder):
    for path in sorted((HEADERS / folder).rglob("*.h")):
        yield re.sub(r"//.*", "", path.read_text(encoding="utf-8"))


def definitions(text):
    """Keyword, name, bases and body of each class that stands at the margin."""
    pattern = r"^(class|struct) (?:TORCH_API )?(\w+)\s*(?::([^{;]*))?\{(.*?)^\};"
    return re.findall(pattern, text, re.M | re.S)


def option_names():
    """The options of each options class: {"DropoutOptions": ["p", "inplace"]}"""
    found = {}
    for text in texts("options"):
        for _, name, _, body in definitions(text):
            found[name] = re.findall(r"TORCH_ARG\(\s*[^;]*?,\s*(\w+)\)", body)
        for alias, name in re.findall(r"^using (\w+Options) =\s*(\w+)<", text, re.M):
            found[alias] = found[name]
    return found


def public_members(keyword, body):
    """Type and name of each public data member."""
    is_public, members = keyword == "struct", []
    for line in body.splitlines():
        access = re.match(r" (public|protected|private):", line)
        if access:
            is_public = access[1] == "public"
        member = re.fullmatch(r"  ((?!using|friend|typedef)\w[\w:<>, ]*) (\w+)(?: = \w+|\{\w*\})?;",
                              line)
        if member and is_public:
            members.append((member[1], member[2]))
    return members


def classes():
    """Each class of modules, its base among them, and the options class that the base takes."""
    found = {}
    for text in texts("modules"):
        for keyword, name, bases, body in definitions(text):
            base = re.search(r"(\w+Impl\w*|_DropoutNd)<", bases)
            options = re.search(r"\w+Options\b", bases)
            found[name] = Class(base and base[1], options and options[0],
                                public_members(keyword, body))
    return found


def modules():
    """The modules as programs name them: "Linear", "Sequential"."""
    pattern = r"^(?:TORCH_MODULE\(|class (?=\w+ : public torch::nn::ModuleHolder<))(\w+)"
    return [name for text in texts("modules") for name in re.findall(pattern, text, re.M)]


def names_of(name, known, options):
    """All that a module of a class has: "options.p" of its options, and other public members."""
    names, taken = set(), None
    while name:
        for kind, member in known[name].members:
            if member in OPTIONS:
                kind = re.sub(r".*::|<.*", "", kind)
                names |= {f"{member}.{option}"
                          for option in options[taken if kind == "DerivedOptions" else kind]}
            else:
                names.add(member)
        taken = known[name].options
        name = known[name].base
    return names


def names_given():
    """What each module was found to have: {"Dropout": {"options.p", "options.inplace"}}"""
    run = subprocess.run([BINARY, "--gtest_color=no", "--gtest_filter=ModuleOption*"],
                         capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"{BINARY} failed:\n{run.stdout[-4000:]}{run.stderr[-4000:]}")
    lines = re.findall(r"^module torch::nn::(\w+)Impl: (.*)$", run.stdout, re.M)
    return {name: set(names.split()) for name, names in lines}


class HeadersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.modules = modules()
        cls.given = names_given()
        known, options = classes(), option_names()
        cls.expected = {name: names_of(name + "Impl", known, options) for name in cls.modules
                        if name not in LEFT_OUT}

    def test_the_headers_are_read(self):
        self.assertGreater(len(self.modules), 120)
        self.assertEqual(self.expected["BatchNorm2d"], {
            "options.num_features", "options.eps", "options.momentum", "options.affine",
            "options.track_running_stats", "weight", "bias", "running_mean", "running_var",
            "num_batches_tracked"})
        self.assertEqual(self.expected["Tanh"], set())

    def test_all_that_a_module_has_is_given(self):
        for name, expected in self.expected.items():
            with self.subTest(name):
                self.assertEqual(self.given.get(name, set()), expected)

    def test_no_module_is_given_that_is_not_there(self):
        self.assertLessEqual(set(self.given), set(self.expected))

    def test_what_is_left_out_is_there(self):
        self.assertLessEqual(set(LEFT_OUT), set(self.modules))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    HEADERS = pathlib.Path(sys.argv.pop())
    BINARY = sys.argv.pop()
    unittest.main()

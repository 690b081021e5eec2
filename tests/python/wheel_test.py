"""The wheel, where there is nothing but torch: it needs no compiler and no library of the machine's, and brings the command line.

STEPTAPE_WHEEL names the file.
"""
import ast
import importlib.metadata
import os
import pathlib
import subprocess
import sys
import sysconfig
import venv

import pytest
import torch

WHEEL = pathlib.Path(os.environ.get("STEPTAPE_WHEEL", ""))
DIGITS = pathlib.Path(__file__).resolve().parents[2] / "examples/python_digits/digits.py"
pytestmark = pytest.mark.skipif(not WHEEL.is_file(), reason="STEPTAPE_WHEEL names no wheel")
FOREIGN = """
import re, steptape
for path in sorted({line.split()[-1] for line in open("/proc/self/maps") if "/" in line}):
    if re.search("lib(tbb|protobuf|zstd|xxhash)|_engine", path): print(path)
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """What runs a command in an environment that has torch and the wheel alone."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "environment", with_pip=True)
    bin_folder = folder / "environment/bin"
    site = pathlib.Path(sysconfig.get_path("purelib", vars={"base": str(folder / "environment")}))
    (site / "torch_of.pth").write_text(str(pathlib.Path(torch.__file__).parents[1]))

    def run(program, *arguments):
        variables = {"PATH": str(bin_folder), "HOME": str(folder), "OMP_NUM_THREADS": "1"}
        return subprocess.run([bin_folder / program, *arguments], cwd=folder, env=variables, capture_output=True, text=True, check=False)

    # torch's folder may hold a steptape, too
    installed = run("python", "-m", "pip", "install", "--quiet", "--ignore-installed", "--no-index", "--no-deps", "--disable-pip-version-check", WHEEL)
    assert installed.returncode == 0, installed.stderr
    return run, folder


def test_it_trains_the_digits(fresh):
    run, _ = fresh
    done = run("python", DIGITS, "digits.tape")
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_libraries_are_its_own(fresh):
    run, folder = fresh
    loaded = run("python", "-c", FOREIGN)
    paths = loaded.stdout.splitlines()
    assert {name for name in ("_engine", "tbb", "protobuf", "zstd", "xxhash") if not any(name in path for path in paths)} == set(), loaded
    assert [path for path in paths if not path.startswith(str(folder))] == []


def test_it_brings_the_command_line(fresh):
    run, _ = fresh
    run("python", DIGITS, "digits.tape")
    told = run("steptape", "info", "digits.tape")
    assert told.returncode == 0 and "train" in told.stdout, told.stdout + told.stderr


def test_it_asks_for_the_torch_that_it_was_built_with(fresh):
    run, _ = fresh
    asked = run("python", "-c", "import importlib.metadata as m; print(m.requires('steptape'))")
    major, minor = importlib.metadata.version("torch").split(".")[:2]
    needed = [name for name in ast.literal_eval(asked.stdout) if "extra ==" not in name]
    assert needed == [f"torch~={major}.{minor}.0"], asked
    assert f"cp{sys.version_info[0]}{sys.version_info[1]}-" in WHEEL.name and "manylinux" in WHEEL.name

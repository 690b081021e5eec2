"""What stands around a program: the command `steptape`, by which tests look into traces, and installed packages."""
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

TOOL = os.environ.get("STEPTAPE_TOOL", "")
needs_tool = pytest.mark.skipif(not os.access(TOOL, os.X_OK), reason="STEPTAPE_TOOL names no built `steptape`")


def tool(*arguments, statuses=(0,), folder=None):
    """A finished run of the command, in a folder, that ended with one of the statuses; what it wrote is text."""
    done = subprocess.run([TOOL, *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in statuses, done.stderr
    return done


def dumped(path):
    """A trace file, as `steptape dump --json` shows it."""
    return json.loads(tool("dump", path, "--json").stdout)


def package(name, source):
    """A new import of a package `name` of this source, from a folder that ends as those of installed packages do."""
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root, "site-packages")
        folder.mkdir()
        (folder / f"{name}.py").write_text(source)
        sys.modules.pop(name, None)
        sys.path.insert(0, str(folder))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(folder))

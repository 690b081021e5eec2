"""The command `steptape`, by which tests look into traces."""
import json
import os
import subprocess

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

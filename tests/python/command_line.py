"""The command `steptape`, by which tests look into traces."""
import json
import os
import subprocess

import pytest

TOOL = os.environ.get("STEPTAPE_TOOL", "")
needs_tool = pytest.mark.skipif(not os.access(TOOL, os.X_OK), reason="STEPTAPE_TOOL names no built `steptape`")


def dumped(path):
    """A trace file, as `steptape dump --json` shows it."""
    shown = subprocess.run([TOOL, "dump", path, "--json"], capture_output=True, text=True, check=True)
    return json.loads(shown.stdout)

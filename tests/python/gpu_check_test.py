"""The check for machines with a GPU, gone through on the simulated device: the pack, some jobs of each phase, the page.

STEPTAPE_SIMULATED_CUDA names the device, in a folder of the build that is packed.
"""
import json
import os
import pathlib
import subprocess
import sys

import pytest

SIMULATED = pathlib.Path(os.environ.get("STEPTAPE_SIMULATED_CUDA", ""))
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
JOBS = {"smoke": ["machine"], "tests": ["python grouped", "programs"], "table": ["mlp4x32"], "peers": ["peers mlp4x32"]}
pytestmark = pytest.mark.skipif(not SIMULATED.is_file(), reason="STEPTAPE_SIMULATED_CUDA names no simulated device")


def test_the_check_writes_its_page_and_goes_on_where_it_ended(tmp_path):
    build, pack, results = SIMULATED.parent.parent.parent, tmp_path / "pack", tmp_path / "results"
    packed = subprocess.run([ROOT / "scripts/gpu_pack.sh", build, pack], env=os.environ | {"STEPTAPE_GPU_PYTHONS": ""},
                            capture_output=True, text=True, check=False)
    assert packed.returncode == 0, packed.stderr
    engine, = (pack / "python/steptape").glob("_engine*.so")
    # an engine for another CPython cannot be imported here: so where scripts/test_pythons.sh tests several with one build
    if f"cpython-{sys.version_info[0]}{sys.version_info[1]}-" not in engine.name:
        pytest.skip(f"the build is for another CPython than this: {engine.name}")
    command = [sys.executable, pack / "scripts/gpu_check.py", "--results", results]
    command += [part for names in JOBS.values() for name in names for part in ("--only", name)]

    def checked(*phases):
        return subprocess.run([*command, *phases], env=os.environ | {"LD_PRELOAD": str(SIMULATED)},
                              capture_output=True, text=True, check=False)

    first = checked("smoke", "tests")
    assert first.returncode == 0, first.stderr
    page = (results / "gpu_results.md").read_text()
    assert "| Simulated, " in page and "- python grouped: passed" in page and "- programs: passed" in page, page
    rest = checked(*JOBS)
    assert rest.returncode == 0, rest.stderr
    # what has passed is not run again
    assert "python grouped: exit" not in rest.stderr and "mlp4x32: exit 0" in rest.stderr, rest.stderr
    page = (results / "gpu_results.md").read_text()
    assert "| mlp4x32 | adam |" in page and "| mlp4x32 | hand-made graph |" in page, page
    rows = json.loads((results / "peers-mlp4x32.json").read_text())
    bits = {row["way"]: row["bits"] for row in rows}
    assert bits["replay"] == bits["replay static"] == bits["eager"], bits
    assert bits["replay fused"] == bits["replay fused static"] == bits["eager fused"], bits

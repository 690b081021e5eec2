"""Programs that nobody wrote: drawn from the grammar of `programs/`, and those of its corpus, which once failed."""
import os
import pathlib
import time

import pytest

from programs import report
from programs.pool import Pool

COUNT = int(os.environ.get("STEPTAPE_PROGRAMS", "500"))
CORPUS = sorted(pathlib.Path(__file__).parent.glob("programs/corpus/*.py"))


@pytest.fixture(scope="module")
def pool():
    with Pool(jobs=1) as pool:
        yield pool


@pytest.mark.parametrize("path", CORPUS, ids=[path.stem for path in CORPUS])
def test_what_once_failed_is_equal(path, pool):
    outcome = pool.run(path.read_text())
    assert outcome["outcome"] in ("replayed", "refused"), outcome


@pytest.mark.timeout(0)  # the pool has a limit for each program
def test_drawn_programs_are_equal_and_most_replay(record_property):
    seed = int(os.environ.get("STEPTAPE_PROGRAMS_SEED") or int(time.time()) % 10**6 * 1000)
    rows = report.drawn(range(seed, seed + COUNT), jobs=int(os.environ.get("STEPTAPE_PROGRAMS_JOBS", "2")))
    record_property(f"{COUNT} drawn programs from seed {seed} (STEPTAPE_PROGRAMS_SEED)", report.table(rows))
    failed = [row["seed"] for row in rows if row["outcome"] in report.FAILURES]
    assert not failed, f"python -m programs --show SEED prints one of {failed}"
    assert sum(row["outcome"] == "broken" for row in rows) <= 0.02 * COUNT
    assert report.share_of_replays(rows) >= report.SHARE

"""Programs of the corpus of `programs/`: drawn from its grammar, and once wrong. `make fuzz-python` draws new ones."""
import pathlib

import pytest

from programs.pool import Pool

CORPUS = sorted(pathlib.Path(__file__).parent.glob("programs/corpus/*.py"))
REFUSED = {  # by their codes; all others replay
    "long_list_given_to_reduce": ["host_effect"],
}


@pytest.fixture(scope="module")
def pool():
    with Pool(jobs=1) as pool:
        yield pool


@pytest.mark.parametrize("path", CORPUS, ids=[path.stem for path in CORPUS])
def test_what_once_failed_is_equal(path, pool):
    outcome = pool.run(path.read_text())
    codes = REFUSED.get(path.stem)
    assert outcome["outcome"] == ("refused" if codes else "replayed"), outcome
    assert codes is None or outcome["codes"] == codes

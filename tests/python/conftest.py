import pathlib

import pytest
import torch

# What tests share asserts as they do: a failure shows the values.
pytest.register_assert_rewrite(*(
    path.stem for path in pathlib.Path(__file__).parent.glob("*.py") if not path.stem.endswith(("_test", "conftest"))))


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tensors as small as the tests' gain nothing from a second thread."""
    torch.set_num_threads(1)

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tensors as small as the tests' gain nothing from a second thread."""
    torch.set_num_threads(1)

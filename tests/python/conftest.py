import pathlib

import pytest
import torch

# What tests share asserts as they do: a failure shows the values.
pytest.register_assert_rewrite(*(
    path.stem for path in pathlib.Path(__file__).parent.glob("*.py") if not path.stem.endswith(("_test", "conftest"))))


def pytest_configure(config):
    # many steps here are refused on purpose
    config.addinivalue_line("filterwarnings", "ignore::steptape.NotReplayed")


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tensors as small as the tests' gain nothing from a second thread."""
    torch.set_num_threads(1)


def pytest_terminal_summary(terminalreporter):
    """What tests have to say when they pass, too: from any worker."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, text in getattr(report, "user_properties", ()) if getattr(report, "when", "") == "call" else ():
                terminalreporter.section(name)
                terminalreporter.write_line(str(text))

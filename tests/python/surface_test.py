"""The public surface: every name, its signature and the first line of its documentation, held to surface.txt."""
import importlib.metadata
import inspect
import pathlib
import types

import pytest
import torch

import steptape

GOLDEN = pathlib.Path(__file__).with_name("surface.txt")


def described(name, member):
    if isinstance(member, property):
        return f"{name}: {inspect.signature(member.fget).return_annotation}"
    if not callable(member):
        return f"{name} = {member!r}"
    try:
        return f"{name}{inspect.signature(member)}"
    except (TypeError, ValueError):
        return name


def surface():
    lines = []
    for name in sorted(steptape.__all__):
        member = getattr(steptape, name)
        lines.append(described(name, member))
        if not isinstance(member, type):
            continue
        lines[-1] += f" of {', '.join(base.__name__ for base in member.__bases__)}"
        for inner, value in sorted(vars(member).items()):
            if not inner.startswith("_") or inner in ("__call__", "__getitem__", "__enter__"):
                lines.append("    " + described(inner, value))
    return "\n".join(lines) + "\n"


def test_the_surface_is_the_one_that_is_written_down():
    assert surface() == GOLDEN.read_text(encoding="utf-8")


def test_every_public_name_is_documented():
    missing = [name for name in steptape.__all__ if not inspect.getdoc(getattr(steptape, name))]
    assert missing == []


def test_the_package_is_typed_and_knows_its_version():
    assert pathlib.Path(steptape.__file__).with_name("py.typed").exists()
    assert steptape.__version__ == importlib.metadata.version("steptape")


@pytest.mark.parametrize("built, told", [
    ("2.99.0", r"was built with torch 2\.99\.0, and this is torch .*torch~=2\.99\.0.* or the wheel of steptape that asks for torch~="),
    ("3.0.1", r"pip install \"torch~=3\.0\.0\""),
])
def test_another_torch_at_import_is_an_error_that_says_which_to_take(built, told):
    from steptape._check import check_torch
    with pytest.raises(ImportError, match=told):
        check_torch(types.SimpleNamespace(VERSION="0.1.0", TORCH_VERSION=built))
    check_torch(types.SimpleNamespace(VERSION="0.1.0", TORCH_VERSION=torch.__version__))

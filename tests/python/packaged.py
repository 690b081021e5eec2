"""Code that stands in an installed package."""
import importlib
import pathlib
import sys
import tempfile


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

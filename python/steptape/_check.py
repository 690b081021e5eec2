"""The check at import: a binary serves the torch it was built with."""


def check_torch(build):
    """Raises ImportError, with both versions and the command to rebuild, unless the torch that is there is
    of the minor version that the extension module was built with."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("steptape needs torch >= 2.11, and there is none: pip install torch") from error
    found, built = _minor(torch.__version__), _minor(build.TORCH_VERSION)
    if found == built:
        return
    own = f"torch~={built[0]}.{built[1]}.0"
    if found < (2, 11):
        raise ImportError(f"steptape {build.VERSION} needs torch >= 2.11 and was built with torch "
                          f"{build.TORCH_VERSION}; this is torch {torch.__version__}. Update it: pip install \"{own}\"")
    raise ImportError(f"steptape {build.VERSION} was built with torch {build.TORCH_VERSION}, and this is torch "
                      f"{torch.__version__}. Take that torch (pip install \"{own}\") or the wheel of steptape that asks for "
                      f"torch~={found[0]}.{found[1]}.0, which `make wheel` builds in steptape's source folder where this torch is installed")


def _minor(version):
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in version.split(".")[:2])

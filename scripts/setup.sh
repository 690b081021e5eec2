#!/usr/bin/env bash
# setup.sh [PACKAGE ...]: installs what a build needs and is missing: Debian packages, those named
# too, then LibTorch.
#
# LibTorch is taken, in this order, from
#   1. $STEPTAPE_TORCH, a folder with include/ and lib/ (the `torch` folder of a wheel, or an unpacked LibTorch);
#   2. a torch >= 2.11 that python3 can import;
#   3. torch==2.11.0 from PyPI, installed into .venv (4.7 GB on disk, about a minute).
# The folder found is written to .torch_path, where CMake reads it. Exit 2: something is missing and
# cannot be installed from here; the one command to run is printed.
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.11.0
packages=(g++ cmake ninja-build ccache pkg-config python3-dev python3-venv libtbb-dev libprotobuf-dev
          protobuf-compiler libzstd-dev libxxhash-dev libcli11-dev libfmt-dev nlohmann-json3-dev
          libgtest-dev libgmock-dev libbenchmark-dev libcpp-httplib-dev clang-format clang-tidy "$@")

say() { printf 'setup: %s\n' "$*" >&2; }

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
  if [[ $(id -u) != 0 ]]; then
    say "these Debian packages are missing; run this, then again what you ran:"
    say "  sudo apt-get install -y --no-install-recommends ${missing[*]}"
    exit 2
  fi
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

torch_of() {  # prints the folder of the torch that interpreter $1 imports, if that is 2.11 or newer
  "$1" -I - <<'PY' 2>/dev/null
import importlib.util, pathlib, re, sys
spec = importlib.util.find_spec("torch")
if spec is None or spec.origin is None: sys.exit(1)
folder = pathlib.Path(spec.origin).parent
version = re.search(r"__version__\s*=\s*'(\d+)\.(\d+)", (folder / "version.py").read_text())
if version is None or (int(version[1]), int(version[2])) < (2, 11): sys.exit(1)
print(folder)
PY
}

if [[ -n ${STEPTAPE_TORCH:-} ]]; then
  [[ -f $STEPTAPE_TORCH/include/ATen/ATen.h ]] || {
    say "STEPTAPE_TORCH=$STEPTAPE_TORCH has no include/ATen/ATen.h; it must be a LibTorch folder"
    exit 2
  }
  torch=$STEPTAPE_TORCH
elif torch=$(torch_of python3); then
  :
elif [[ -x .venv/bin/python ]] && torch=$(torch_of .venv/bin/python); then
  :
else
  say "installing torch==$torch_version into .venv (4.7 GB, about a minute)"
  python3 -m venv .venv || { say "python3 cannot make a virtual environment"; exit 2; }
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --progress-bar off \
    "torch==$torch_version" >&2
  torch=$(torch_of .venv/bin/python)
fi

printf '%s\n' "$torch" >.torch_path.new
if cmp -s .torch_path.new .torch_path; then
  rm .torch_path.new
else
  mv .torch_path.new .torch_path
  say "LibTorch: $torch"
fi

#!/usr/bin/env bash
# Builds the wheel and runs the Python tests with each CPython from 3.10 to 3.13 that this machine has with its headers: `python3` and
# those of pyenv. Each gets an environment of its own with torch from PyPI (4.7 GB), which is kept for the next run.
#
# usage: [TORCH=2.15.0] [PYTHONS="3.10 3.12"] scripts/test_pythons.sh BUILD_FOLDER [pytest arguments]
#
# Exit 1: a test failed, or no such version was found. Without TORCH the libraries are compiled against the LibTorch of .torch_path,
# which must be of the version that is installed: so the compiler cache has them. With it each wheel is built against the torch of its
# environment, in a folder of its own. The last lines are the results, a CPython each.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath -m "$1")
shift

say() { printf 'pythons: %s\n' "$*" >&2; }

torch=${TORCH:-$(sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" "$(cat .torch_path)/version.py")}
minor=$(cut -d. -f2 <<<"$torch")
wheels=dist${TORCH:+/torch-$TORCH}
failed=0
results=()
declare -A seen
for python in python3 "$HOME"/.pyenv/versions/*/bin/python3; do
  version=$("$python" -c 'import os, platform, sys, sysconfig
known = platform.python_implementation() == "CPython" and (3, 10) <= sys.version_info[:2] <= (3, 13)
if known and os.path.exists(sysconfig.get_path("include") + "/Python.h"): print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
  [[ -n $version && -z ${seen[$version]:-} && " ${PYTHONS:-$version} " == *" $version "* ]] || continue
  seen[$version]=1
  environment=$build/pythons/$version${TORCH:+-torch-$TORCH}
  if [[ ! -x $environment/bin/python ]]; then "$python" -m venv "$environment"; fi
  pip=("$environment/bin/python" -m pip install --quiet --disable-pip-version-check --progress-bar off)
  say "CPython $version: torch $torch and what the tests need"
  "${pip[@]}" "torch==$torch.*" "torchvision==0.$((minor + 15)).*" -r tests/python/requirements.txt >&2 || {
    [[ -n ${TORCH:-} ]] || exit 1
    say "there is no torchvision for torch $torch: its tests and those of fastai, which asks for it, are skipped"
    "${pip[@]}" "torch==$torch.*" -r <(grep -v fastai tests/python/requirements.txt) >&2
  }
  if [[ -n ${TORCH:-} ]]; then
    STEPTAPE_TORCH=$("$environment/bin/python" -c 'import torch; print(torch.__path__[0])')
    export STEPTAPE_TORCH SKBUILD_BUILD_DIR=build-wheel-$TORCH
  fi
  say "CPython $version: the wheel"
  CXX=$(sed -n 's/^CMAKE_CXX_COMPILER:[^=]*=//p' "$build/CMakeCache.txt" 2>/dev/null || true)
  [[ -z $CXX ]] || export CXX
  wheel=$(realpath "$(scripts/wheel.sh "$environment/bin/python" "$wheels")")
  "${pip[@]}" --no-deps --force-reinstall "$wheel" >&2
  say "CPython $version: the tests"
  STEPTAPE_WHEEL=$wheel STEPTAPE_TOOL=$build/tools/steptape OMP_NUM_THREADS=1 "$environment/bin/python" -m pytest -q -n "${TEST_JOBS:-2}" \
    --timeout 300 -p no:cacheprovider --rootdir tests/python tests/python "$@" | tee "$environment.log" || failed=1
  results+=("torch $torch, CPython $version: $(tail -1 "$environment.log")")
done
if ((${#seen[@]} == 0)); then
  say "no CPython from 3.10 to 3.13 with headers was found"
  exit 1
fi
printf '%s\n' "${results[@]}"
exit "$failed"

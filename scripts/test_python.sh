#!/usr/bin/env bash
# Builds the wheel, installs it into a fresh virtual environment (scripts/python_environment.sh), and runs the Python tests there.
#
# usage: scripts/test_python.sh BUILD_FOLDER [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
shift

say() { printf 'python: %s\n' "$*" >&2; }

python=$(scripts/python_environment.sh "$build/python-environment")
say "building and installing the wheel"
# by the compiler of the build, under the same name: ccache then has most of it
CXX=$(sed -n 's/^CMAKE_CXX_COMPILER:[^=]*=//p' "$build/CMakeCache.txt" 2>/dev/null || true)
[[ -z $CXX ]] || export CXX
STEPTAPE_WHEEL=$(realpath "$(scripts/wheel.sh "$python" dist)")
"$python" -m pip install --quiet --disable-pip-version-check --no-deps "$STEPTAPE_WHEEL" >&2

say "running the tests"
# away from the sources, so that the installed package is the one that is tested
export STEPTAPE_TOOL STEPTAPE_WHEEL OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
simulated=$(realpath -m "$build/tests/simulated_cuda/libsteptape_simulated_cuda.so") # some run on a simulated device
[[ ! -e $simulated ]] || export STEPTAPE_SIMULATED_CUDA=$simulated
STEPTAPE_TOOL=$(realpath -m "$build/tools/steptape") # some run the command line; they skip where it is not built
"$python" -m pytest -q -n "${TEST_JOBS:-2}" --timeout 300 -p no:cacheprovider \
  --rootdir tests/python tests/python "$@"

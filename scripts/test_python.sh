#!/usr/bin/env bash
# Builds the wheel, installs it into a fresh virtual environment, and runs the Python tests there.
#
# usage: scripts/test_python.sh BUILD_FOLDER [pytest arguments]
#
# torch is taken from where scripts/setup.sh found it (.torch_path): the environment sees that folder and installs everything else.
# Exit 2: the torch that was found is no Python package.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
shift

say() { printf 'python: %s\n' "$*" >&2; }

torch=$(cat .torch_path)
packages=$(dirname "$torch")
python=""
for candidate in "$packages/../../../bin/python" python3 .venv/bin/python; do
  found=$("$candidate" -I -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null) || continue
  if [[ $(realpath "$found") == $(realpath "$torch") ]]; then
    python=$candidate
    break
  fi
done
if [[ -z $python ]]; then
  say "the torch at $torch is not a package that a Python on this machine imports; unset STEPTAPE_TORCH to test with one from PyPI"
  exit 2
fi

environment=$build/python-environment
rm -rf "$environment"
"$python" -m venv "$environment"
site=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
realpath "$packages" >"$site/torch_of.pth"
minor=$(sed -n "s/^__version__ = '[0-9]*\.\([0-9]*\).*/\1/p" "$torch/version.py")

pip=("$environment/bin/python" -m pip install --quiet --disable-pip-version-check --progress-bar off)
say "installing what the tests need"
"${pip[@]}" -r tests/python/requirements.txt >&2
"${pip[@]}" --no-deps "torchvision==0.$((minor + 15)).*" >&2
say "building and installing the wheel"
# by the compiler of the build, under the same name: ccache then has most of it
CXX=$(sed -n 's/^CMAKE_CXX_COMPILER:[^=]*=//p' "$build/CMakeCache.txt" 2>/dev/null || true)
[[ -z $CXX ]] || export CXX
"${pip[@]}" --no-build-isolation --no-deps . >&2

say "running the tests"
# away from the sources, so that the installed package is the one that is tested
export STEPTAPE_TOOL OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
simulated=$(realpath -m "$build/tests/simulated_cuda/libsteptape_simulated_cuda.so") # some run on a simulated device
[[ ! -e $simulated ]] || export STEPTAPE_SIMULATED_CUDA=$simulated
STEPTAPE_TOOL=$(realpath -m "$build/tools/steptape") # some run the command line; they skip where it is not built
"$environment/bin/python" -m pytest -q -n "${TEST_JOBS:-2}" --timeout 300 -p no:cacheprovider \
  --rootdir tests/python tests/python "$@"

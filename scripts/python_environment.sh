#!/usr/bin/env bash
# Makes a fresh virtual environment in FOLDER, with what the wheel is built by and the Python tests need, and prints its interpreter.
#
# usage: scripts/python_environment.sh FOLDER
#
# torch is taken from where scripts/setup.sh found it (.torch_path): the environment sees that folder and installs everything else.
# Exit 2: the torch that was found is no Python package.
set -euo pipefail
cd "$(dirname "$0")/.."
environment=$1

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

rm -rf "$environment"
"$python" -m venv "$environment"
site=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
realpath "$packages" >"$site/torch_of.pth"
torch=$("$environment/bin/python" -c 'import importlib.metadata; print(importlib.metadata.version("torch"))')
minor=$(cut -d. -f2 <<<"$torch")

pip=("$environment/bin/python" -m pip install --quiet --disable-pip-version-check --progress-bar off)
say "installing what the tests need"
# torch is named, so that no package brings a newer one: the wheel asks for the one that it is built with
"${pip[@]}" "torch==$torch" "torchvision==0.$((minor + 15)).*" -r tests/python/requirements.txt >&2
printf '%s\n' "$environment/bin/python"

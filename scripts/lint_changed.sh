#!/usr/bin/env bash
# lint_changed.sh BUILD: clang-tidy over the .cc files changed since the merge base with main; on main
# itself, in the last commit.
#
# A file that includes LibTorch takes 10 to 60 s, so at most STEPTAPE_LINT_LIMIT files (default 24) are
# checked, those changed most first; the others are named. STEPTAPE_LINT_BASE sets another base, and
# STEPTAPE_LINT_BASE=all checks every file.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
limit=${STEPTAPE_LINT_LIMIT:-24}

base=${STEPTAPE_LINT_BASE:-}
if [[ -z $base ]]; then
  base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || true)
  [[ $base != "$(git rev-parse HEAD)" ]] || base=$(git rev-parse --verify --quiet HEAD~1 || true)
fi
if [[ -z $base || $base == all ]]; then
  base=$(git hash-object -t tree /dev/null)
fi

# Adapted text keeps the style of its source.
mapfile -t files < <(git diff --numstat --no-renames --diff-filter=d "$base" -- '*.cc' ':!examples/mnist_port' \
                       ':!tests/package' ':!tests/python/watch_events' | sort -rn | cut -f3)
if ((${#files[@]} == 0)); then
  echo "lint: no .cc file changed since ${base:0:12}"
  exit 0
fi
if ((${#files[@]} > limit)); then
  printf 'lint: not checked, over the limit of %s: %s\n' "$limit" "${files[*]:limit}"
  files=("${files[@]:0:limit}")
fi
# A compile command for each source: the build joins some into one, and clang reads neither headers that another compiler has compiled nor its parameters.
database=$(mktemp -d)
trap 'rm -rf "$database"' EXIT
python3 - "$build" "$database" <<'PY'
import json, pathlib, re, sys
build, database = map(pathlib.Path, sys.argv[1:])
commands = []
for entry in json.loads((build / "compile_commands.json").read_text()):
    command = re.sub(r" -Winvalid-pch -include \S*/cmake_pch\.hxx| -fpch-preprocess| --param=\S*", "", entry["command"])
    joined = "/Unity/unity_" in entry["file"]
    for source in re.findall(r'#include "(.*)"', pathlib.Path(entry["file"]).read_text()) if joined else [entry["file"]]:
        commands.append({**entry, "file": source, "command": command.replace(entry["file"], source)})
(database / "compile_commands.json").write_text(json.dumps(commands))
PY
echo "lint: clang-tidy over ${#files[@]} files changed since ${base:0:12}"
arguments=(--quiet -p "$database" --extra-arg="-include$PWD/.ci/source_location.h"
           --extra-arg=-Wno-unknown-warning-option)
printf '%s\0' "${files[@]}" |
  xargs -0 -n 1 -P "$(nproc)" bash -c 'echo "  ${*: -1}"; clang-tidy "$@" 2>/dev/null' lint \
    "${arguments[@]}"

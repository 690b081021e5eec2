#!/usr/bin/env bash
# Tests what the Python front end is told of executed bytecode, with each CPython from 3.9 on that this machine has with its headers:
# `python3` and those of pyenv. (3.9 is refused, and that is its test.) Needs no torch.
#
# usage: scripts/test_watch.sh [BUILD_FOLDER]
#
# Exit 1: a test failed, or no version that is watched was found.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}/watch_events
sources=(tests/python/watch_events/watch_events.cc
  python/engine/watch/{handing,layout,monitoring,opcode_table,opcodes,trace}.cc)

say() { printf 'watch: %s\n' "$*" >&2; }

compile=("${CXX:-g++}" -std=c++20 -fPIC -Wall -Wextra -Wpedantic -Werror -I.)
if command -v ccache >/dev/null; then compile=(ccache "${compile[@]}"); fi

declare -A seen
watched=0
failed=0
for python in python3 "$HOME"/.pyenv/versions/*/bin/python3; do
  facts=$("$python" -c 'import platform, sys, sysconfig
version = sys.version_info[:2]
if platform.python_implementation() == "CPython" and version >= (3, 9):
    print(platform.python_version(), sysconfig.get_path("include"), int((3, 10) <= version <= (3, 13)))' 2>/dev/null) || continue
  [[ -n $facts ]] || continue
  read -r version headers is_watched <<<"$facts"
  [[ -z ${seen[$version]:-} ]] || continue
  seen[$version]=1
  if [[ ! -e $headers/Python.h ]]; then
    say "CPython $version has no headers here: left out"
    continue
  fi
  folder=$build/$version
  mkdir -p "$folder"
  objects=()
  for source in "${sources[@]}"; do
    object=$folder/$(basename "$source" .cc).o
    "${compile[@]}" -isystem "$headers" -c "$source" -o "$object"
    objects+=("$object")
  done
  "${CXX:-g++}" -shared "${objects[@]}" -o "$folder/watch_events.so"
  PYTHONPATH=$folder PYTHONDONTWRITEBYTECODE=1 "$python" tests/python/watch_events/run.py || failed=1
  watched=$((watched + is_watched))
done
if ((watched == 0)); then
  say "no CPython from 3.10 to 3.13 with headers was found"
  exit 1
fi
exit "$failed"

#!/usr/bin/env bash
# Lines and files of the product, by folder: sources in C++ and Python, and schemas.
#
# usage: scripts/count_lines.sh
set -euo pipefail
cd "$(dirname "$0")/.."

count() { # label, folders
  local label=$1
  shift
  git ls-files -z -- "$@" | grep -zE '\.(cc|h|py|proto)$' | xargs -0 cat | wc -l |
    { read -r lines; printf '%-10s %7d lines %5d files\n' "$label" "$lines" "$(git ls-files -- "$@" | grep -cE '\.(cc|h|py|proto)$')"; }
}

folders=(include trace diff storage live recorder guards replayer session python tools)
for folder in "${folders[@]}"; do count "$folder" "$folder"; done
count all "${folders[@]}"

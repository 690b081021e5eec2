#!/usr/bin/env bash
# links_no_recorder.sh PROGRAM: a program that only plays traces holds nothing of the recorder or of
# sessions.
set -euo pipefail
symbols=$(nm --demangle --defined-only "$1")
grep -q 'steptape::load' <<<"$symbols" || { echo "$1 does not play traces"; exit 1; }
if found=$(grep -m 3 -E 'steptape::(recorder::|Session)' <<<"$symbols"); then
  printf '%s links the recorder:\n%s\n' "$1" "$found"
  exit 1
fi

#!/usr/bin/env bash
# fuzz.sh BUILD SECONDS TARGET...: lets libFuzzer drive each target for so many seconds on one core.
# fuzz.sh BUILD --minimise TARGET...: puts into tests/fuzz/corpus the fewest and smallest inputs that
# together reach what all found so far reach. Inputs that have a name of their own stay: each is of a
# defect that was mended.
#
# A run starts from the corpus, from seeds of today's format, and from what earlier runs found, which
# stays in BUILD/fuzz. Exit 1: an input broke a promise or took too long or too much memory; it lies
# in BUILD/fuzz/findings.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
amount=$2
shift 2

corpus=tests/fuzz/corpus
findings=$build/fuzz/findings
seeds=$build/fuzz/seeds
# libFuzzer allocates by an operator new that the counting one of the targets does not replace
export ASAN_OPTIONS=alloc_dealloc_mismatch=0:allocator_may_return_null=1:${ASAN_OPTIONS:-}
export UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS:-}
mkdir -p "$findings"
"$build/tests/fuzz/write_seeds" "$seeds"

fuzz() {  # $1: target
  local found=$build/fuzz/$1
  mkdir -p "$found" "$corpus/$1" "$seeds/$1"
  "$build/tests/fuzz/fuzz_$1" -max_total_time="$amount" -max_len=16384 -timeout=25 -rss_limit_mb=2560 \
    -print_final_stats=1 -verbosity="${FUZZ_VERBOSITY:-1}" -artifact_prefix="$findings/$1-" \
    "$found" "$corpus/$1" "$seeds/$1"
}

minimise() {  # $1: target
  local kept
  kept=$(mktemp -d)
  # without counters an edge counts once: some hundred small files, not thousands
  "$build/tests/fuzz/fuzz_$1" -set_cover_merge=1 -use_counters=0 -max_len="${FUZZ_MAX_LEN:-4096}" "$kept" "$seeds/$1" "$corpus/$1" \
    "$build/fuzz/$1"
  find "$corpus/$1" -regextype posix-extended -regex '.*/[0-9a-f]{40}' -delete
  cp "$kept"/* "$corpus/$1/"
  rm -r "$kept"
  printf 'fuzz: %s: %s inputs, %s\n' "$1" "$(find "$corpus/$1" -type f | wc -l)" \
    "$(du -bh "$corpus/$1" | cut -f1)"
}

for target in "$@"; do
  echo "fuzz: $target"
  if [[ $amount == --minimise ]]; then minimise "$target"; else fuzz "$target"; fi
done

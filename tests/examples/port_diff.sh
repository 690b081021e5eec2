#!/usr/bin/env bash
# port_diff.sh FOLDER: port.diff is what lies between the two programs, and at most ten lines long.
set -euo pipefail
cd "$1"
again=(diff -U2 --label mnist_eager.cc --label mnist_port.cc mnist_eager.cc mnist_port.cc)
if ! { "${again[@]}" || true; } | diff -u port.diff -; then
  printf 'port.diff is not what lies between the files; make it anew: %s >port.diff\n' "${again[*]}"
  exit 1
fi
changed=$(grep -v -e '^--- ' -e '^+++ ' port.diff | grep -c '^[+-]')
echo "port.diff changes $changed lines"
((changed > 0 && changed <= 10)) || { echo "a port of the example takes 1 to 10"; exit 1; }

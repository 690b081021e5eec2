#!/usr/bin/env bash
# port_prints.sh EAGER PORT: both programs print the same losses and accuracies.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
cd "$scratch"
"$1" | tr '\r' '\n' >eager.txt
"$2" | tr '\r' '\n' >port.txt
[[ -s eager.txt ]] || { echo "$1 printed nothing"; exit 1; }
diff eager.txt port.txt
tail -n 1 port.txt

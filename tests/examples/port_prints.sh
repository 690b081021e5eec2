#!/usr/bin/env bash
# port_prints.sh EAGER PORT: both programs print the same losses and accuracies, and the port did not
# just run eagerly: it left the trace of a trusted plan.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
cd "$scratch"
"$1" | tr '\r' '\n' >eager.txt
"$2" | tr '\r' '\n' >port.txt
[[ -s eager.txt ]] || { echo "$1 printed nothing"; exit 1; }
diff eager.txt port.txt
[[ -s mnist.tape ]] || { echo "$2 trusted no plan"; exit 1; }
tail -n 1 port.txt

#!/usr/bin/env bash
# Runs on a machine with a GPU what needs one: the tests labelled `gpu`, compute-sanitizer over one of them, and the benchmarks. Builds
# nothing. Writes docs/gpu_results.md, failures and all.
#
# usage: scripts/gpu_check.sh [FOLDER] [RESULTS]      (out/gpu as scripts/gpu_pack.sh leaves it, docs/gpu_results.md)
#
# Needs python3 with torch, and no network. STEPTAPE_GPU_WORKLOADS names the workloads of the benchmarks ("mlp4x32 gpt64x2"); all
# without it. Exit 0: all passed; 1: something failed, and the results say what; 2: nothing could be run.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath "${1:-out/gpu}")
results=$(realpath -m "${2:-docs/gpu_results.md}")

say() { printf 'gpu_check: %s\n' "$*" >&2; }

[[ -x $folder/session_gpu_test ]] || { say "$folder holds no session_gpu_test; run scripts/gpu_pack.sh where it was built"; exit 2; }
torch=$(python3 -c 'import torch; print(torch.__path__[0])') || { say "python3 cannot import torch"; exit 2; }
python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || { say "torch finds no CUDA device"; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvidia=$(compgen -G "$torch/../nvidia/*/lib" | paste -sd: || true)
export LD_LIBRARY_PATH="$folder/lib:$torch/lib:$nvidia:${LD_LIBRARY_PATH:-}"
export STEPTAPE_CUDA_BACKEND=$folder/libsteptape_cuda.so CUBLAS_WORKSPACE_CONFIG=:4096:8 PYTHONPATH=$folder/python
read -ra workloads <<<"${STEPTAPE_GPU_WORKLOADS:-}"
status=0

note() { # note NAME COMMAND ...: runs it, keeps what it prints and how it ends
  local name=$1
  shift
  say "$name: $*"
  "$@" >"$work/$name.txt" 2>&1
  local code=$?
  echo "$code" >"$work/$name.rc"
  tail -n 3 "$work/$name.txt" >&2
  ((code == 0)) || status=1
}

note tests timeout 900 "$folder/session_gpu_test" "--gtest_output=json:$work/tests.json"
if sanitizer=$(command -v compute-sanitizer || compgen -G "/usr/local/cuda*/bin/compute-sanitizer" | head -n 1) && [[ -n $sanitizer ]]; then
  note sanitizer timeout 600 "$sanitizer" --error-exitcode 1 "$folder/session_gpu_test" \
    --gtest_filter=DeviceMemoryTest.ResultsAreTheUsersOwn
else
  echo "there is no compute-sanitizer on this machine" >"$work/sanitizer.txt"
fi
note table timeout 900 "$folder/steptape_gpu_table" ${workloads[@]/#/--workload=} --json "$work/table.json"
note peers timeout 1500 python3 bench/gpu_table.py ${workloads[@]/#/--workload=} --json "$work/peers.json"

python3 scripts/gpu_results.py "$work" "$(cat "$folder/commit")" >"$work/results.md" || { say "the results could not be written"; exit 2; }
mv "$work/results.md" "$results"
say "$results"
exit $status

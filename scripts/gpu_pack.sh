#!/usr/bin/env bash
# Gathers in one folder all that scripts/gpu_check.sh runs on a machine with a GPU: what was built here, stripped, and the shared
# libraries it needs that such a machine may lack. LibTorch, CUDA and the C and C++ runtimes are the machine's own.
#
# usage: scripts/gpu_pack.sh [BUILD_FOLDER] [FOLDER]      (build, out/gpu)
#
# Exit 2: something is not built, or it is more than 64 MiB.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
folder=${2:-out/gpu}
most=$((64 << 20))

say() { printf 'gpu_pack: %s\n' "$*" >&2; }

programs=("$build/tests/session/cuda/session_gpu_test" "$build/bin/steptape_gpu_table" "$build/replayer/cuda/libsteptape_cuda.so")
engine=$(compgen -G "$build/python/_engine*.so" || true)
for file in "${programs[@]}" ${engine:-missing}; do
  [[ -f $file ]] || { say "$file is not built; run: cmake --build $build"; exit 2; }
done

rm -rf "$folder"
mkdir -p "$folder/lib" "$folder/python/steptape"
for file in "${programs[@]}"; do
  strip -o "$folder/$(basename "$file")" "$file"
done
cp -r python/steptape/. "$folder/python/steptape/"
strip -o "$folder/python/steptape/$(basename "$engine")" "$engine"
cp "$build/python/_build_info.py" "$folder/python/steptape/"
find "$folder" -name __pycache__ -prune -exec rm -rf {} +

for file in "${programs[@]}" "$engine"; do
  ldd "$file" | awk '/=> \// { print $3 }'
done | sort -u | while read -r library; do
  case $library in
    */torch/lib/* | */nvidia/* | */libcuda.so* | */libc.so* | */libm.so* | */libdl.so* | */librt.so* | */libpthread.so* | */libutil.so* | */libgcc_s.so* | \
      */libstdc++.so* | */libpython*) ;;
    *) cp -L "$library" "$folder/lib/" ;;
  esac
done

git rev-parse --short HEAD >"$folder/commit" 2>/dev/null || echo unknown >"$folder/commit"
bytes=$(du -sb "$folder" | cut -f1)
say "$folder: $((bytes >> 20)) MiB"
((bytes <= most)) || { say "that is more than 64 MiB"; exit 2; }

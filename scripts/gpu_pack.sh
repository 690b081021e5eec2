#!/usr/bin/env bash
# Gathers in one folder all that scripts/gpu_check.py runs on a machine with a GPU, that script with it: what was built here,
# stripped, with an engine for each CPython that such a machine may have, and the shared libraries that it may lack. LibTorch, CUDA
# and the C and C++ runtimes are the machine's own.
#
# usage: scripts/gpu_pack.sh [BUILD_FOLDER] [FOLDER]      (build, out/gpu)
#
# STEPTAPE_GPU_PYTHONS names the versions of CPython besides that of the build ("3.11 3.12" without it). The engine of each is built
# here where there is such a CPython with its headers, of the system or of pyenv; where not, it is left out, with a word.
# Exit 2: something is not built, or it is more than 60 MiB.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
folder=${2:-out/gpu}
most=$((60 << 20))

say() { printf 'gpu_pack: %s\n' "$*" >&2; }

programs=("$build/tests/session/cuda/session_gpu_test" "$build/bin/steptape_gpu_table" "$build/replayer/runtime/cuda/libsteptape_cuda.so")
engines=("$(compgen -G "$build/python/_engine*.so" || true)")
for file in "${programs[@]}" "${engines[0]:-missing}"; do
  [[ -f $file ]] || { say "$file is not built; run: cmake --build $build"; exit 2; }
done

for version in ${STEPTAPE_GPU_PYTHONS-3.11 3.12}; do
  [[ $(basename "${engines[0]}") != *"cpython-${version/./}-"* ]] || continue
  python=$(for candidate in "python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python3; do
    "$candidate" -c 'import os, sys, sysconfig
if os.path.exists(sysconfig.get_path("include") + "/Python.h"): print(sys.executable)' 2>/dev/null || true
  done | head -n 1)
  [[ -n $python ]] || { say "there is no CPython $version with headers: its engine is left out"; continue; }
  say "the engine for CPython $version"
  own=$build/engine-$version
  cmake --preset release -B "$own" --log-level=WARNING -DPython_EXECUTABLE="$python" >&2
  cmake --build "$own" -j "$(nproc)" --target _engine >&2
  engines+=("$(compgen -G "$own/python/_engine*.so")")
done

rm -rf "$folder"
mkdir -p "$folder"/{lib,python/steptape,scripts,bench,tests/python/programs}
for file in "${programs[@]}"; do
  strip -o "$folder/$(basename "$file")" "$file"
done
cp scripts/gpu_check.py "$folder/scripts/"
cp bench/gpu_table.py "$folder/bench/"
cp tests/python/*.py "$folder/tests/python/"
cp tests/python/programs/*.py "$folder/tests/python/programs/"
cp python/steptape/{*.py,py.typed} "$build/python/_build_info.py" "$folder/python/steptape/"
for engine in "${engines[@]}"; do
  strip -o "$folder/python/steptape/$(basename "$engine")" "$engine"
done

for file in "${programs[@]}" "${engines[0]}"; do
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
((bytes <= most)) || { say "that is more than 60 MiB"; exit 2; }

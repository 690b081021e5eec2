#!/usr/bin/env bash
# consume.sh BUILD CONSUMER [SANITIZERS]: packs BUILD as `make package` does, unpacks it into a scratch folder, builds CONSUMER against
# what lies there, and runs it.
set -euo pipefail
build=$1 consumer=$2 sanitizers=${3:-}
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT

cpack --config "$build/CPackConfig.cmake" -B "$scratch/packages" >"$scratch/install.txt" 2>&1 ||
  { cat "$scratch/install.txt"; exit 1; }
mkdir "$scratch/prefix"
tar -xzf "$scratch"/packages/steptape-*.tar.gz -C "$scratch/prefix" --strip-components 1
dpkg-deb --field "$scratch"/packages/steptape_*.deb Depends | grep -q libtbb12
[[ $(dpkg-deb --contents "$scratch"/packages/steptape_*.deb | grep -c "/usr/lib/libsteptape_.*\.a$") -ge 7 ]]
[[ ! -e $scratch/prefix/steptape ]] || { echo "the Python module lies among what is installed"; exit 1; }
flags=()
[[ -z $sanitizers ]] || flags=("-DCMAKE_CXX_FLAGS=-fsanitize=$sanitizers")
cmake -S "$consumer" -B "$scratch/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$scratch/prefix" "${flags[@]}"
cmake --build "$scratch/build"
cd "$scratch"
echo "recording" && build/record
echo "playing" && build/play
[[ -z $(nm --demangle build/play | grep -m 1 -E 'steptape::(recorder::|Session)') ]] ||
  { echo "steptape::player brings the recorder along"; exit 1; }
prefix/bin/steptape info consumer.tape
for told in man/man1/steptape.1 bash-completion/completions/steptape zsh/site-functions/_steptape \
  fish/vendor_completions.d/steptape.fish; do
  grep -q extract "prefix/share/$told" || { echo "prefix/share/$told does not tell of the commands"; exit 1; }
done
[[ $(bash -c '. prefix/share/bash-completion/completions/steptape; complete -p steptape') == *_steptape* ]]

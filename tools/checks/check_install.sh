#!/usr/bin/env bash
# Installs into a folder of its own, builds examples/minimal.c against that copy through pkg-config, once
# with each library, and lets it answer a question with the demo model. The installed tree is moved
# first: nothing in it may remember where it was built.
#
# usage: tools/checks/check_install.sh BUILD
set -euo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
place=$build/install-test
rm -rf "$place" "$place.first"
cmake --install "$build" --prefix "$place.first"
mv "$place.first" "$place"

pc_folder=$(dirname "$(find "$place" -name sluice.pc)")
export PKG_CONFIG_PATH=$pc_folder
read -ra flags <<<"$(pkg-config --cflags sluice)"
read -ra shared <<<"$(pkg-config --libs sluice)"
read -ra static <<<"$(pkg-config --libs --static sluice)"
libraries=$(pkg-config --variable=libdir sluice)

strict=(-std=c11 -Wall -Wextra -Wpedantic -Werror)
gcc "${strict[@]}" examples/minimal.c "${flags[@]}" "${shared[@]}" -o "$place/minimal-shared"
# -l:libsluice.a takes the static library although the shared one lies beside it.
gcc "${strict[@]}" examples/minimal.c "${flags[@]}" "${static[@]/#-lsluice/-l:libsluice.a}" \
    -o "$place/minimal-static"
if readelf -d "$place/minimal-static" | grep -q libsluice; then
    echo "minimal-static needs libsluice.so"
    exit 1
fi

"$place/bin/sluice" version
# 4: there is no such model. Only the server's own program can say that.
status=0
"$place/bin/sluice" serve "$place/no-model" || status=$?
[ "$status" -eq 4 ]
store=$place/demo-store
"$place/bin/sluice" convert models/demo "$store"
expected=$("$place/bin/sluice" run "$store" 'What does "owl" mean?' --temp 0 --mem 64M --ctx 1024 --quiet)
[ -n "$expected" ]
for program in minimal-shared minimal-static; do
    answer=$(LD_LIBRARY_PATH=$libraries "$place/$program" "$store" 64 'What does "owl" mean?')
    echo "$program: $answer"
    if [ "$answer" != "$expected" ]; then
        echo "sluice run answers: $expected"
        exit 1
    fi
done

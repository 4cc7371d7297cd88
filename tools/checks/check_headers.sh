#!/usr/bin/env bash
# Every header compiles alone, with gcc and with clang, so it includes what it uses; the public ones as
# C++ too. Headers of an instruction set are compiled for it. src/kernels/lanes/ holds no headers but
# function bodies, which x86/ and arm/ compile over their own vectors.
#
# usage: tools/checks/check_headers.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

common=(-fsyntax-only -Isrc -Iinclude -Wall -Wextra -Werror)
x86=(-mavx2 -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl)
failed=0 count=0

try() {
    count=$((count + 1))
    "$@" || { failed=$((failed + 1)); echo "does not compile alone: $*"; }
}

# A header given as the main file warns about unused statics; an include of it does not.
for header in $(git ls-files 'src/*.h' 'include/*.h' ':!src/kernels/lanes/'); do
    include="#include \"${header#*/}\""
    case $header in
    src/kernels/arm/*)
        try aarch64-linux-gnu-gcc -std=c17 "${common[@]}" -x c - <<<"$include"
        continue
        ;;
    src/kernels/x86/*) flags=("${x86[@]}") ;;
    *) flags=() ;;
    esac
    try gcc -std=c17 "${common[@]}" "${flags[@]}" -x c - <<<"$include"
    try clang -std=c17 "${common[@]}" "${flags[@]}" -x c - <<<"$include"
    case $header in include/*) try clang -std=c++17 "${common[@]}" -x c++ - <<<"$include" ;; esac
done
echo "$count compilations, $failed failed"
[ "$failed" -eq 0 ] && [ "$count" -gt 0 ]

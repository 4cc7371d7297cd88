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

try() {   # compiler and flags; compiles an include of $header
    count=$((count + 1))
    local messages
    messages=$("$@" "${common[@]}" - 2>&1 <<<"#include \"${header#*/}\"") && return
    failed=$((failed + 1))
    head -n 8 <<<"$messages"
    echo "$header does not compile alone with $1"
}

for header in $(git ls-files 'src/*.h' 'include/*.h' ':!src/kernels/lanes/'); do
    case $header in
    src/kernels/arm/*)
        try aarch64-linux-gnu-gcc -std=c17 -x c
        continue
        ;;
    src/kernels/x86/*) flags=("${x86[@]}") ;;
    *) flags=() ;;
    esac
    try gcc -std=c17 "${flags[@]}" -x c
    try clang -std=c17 "${flags[@]}" -x c
    case $header in include/*) try clang -std=c++17 -x c++ ;; esac
done
echo "$count compilations, $failed failed"
[ "$failed" -eq 0 ] && [ "$count" -gt 0 ]

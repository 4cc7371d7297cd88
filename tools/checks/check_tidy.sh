#!/usr/bin/env bash
# clang-tidy, with the checks and exclusions of .clang-tidy, over every source of the library and the
# command line, as the lint preset compiles them. Every version brings new checks under the same names:
# 14, Debian 12's, decides; with another one the check is skipped (77).
#
# usage: tools/checks/check_tidy.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! clang-tidy --version | grep -q 'version 14\.'; then
    echo "skipped: $(clang-tidy --version | grep -m 1 version | xargs), the sources are held to version 14"
    exit 77
fi
cmake --preset lint >/dev/null
database=build/lint/compile_commands.json
# Only what this platform compiles has an entry: the other instruction sets are left to their compiler.
# x86/ is left out too: the analyzer does not follow vectors, and tests/diff holds every one of those
# functions to the reference bit for bit.
# One file a process: with several, version 14 takes every va_list after the first file for uninitialized.
sed -nE 's/^ *"file": "(.*)",?$/\1/p' "$database" | grep -F "$PWD/src/" |
    grep -vF /src/kernels/x86/ | sort -u |
    xargs -P "$(nproc)" -n 1 clang-tidy -p build/lint --quiet --warnings-as-errors='*'

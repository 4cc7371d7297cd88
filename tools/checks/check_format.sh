#!/usr/bin/env bash
# Every C file is laid out as .clang-format says. Versions of clang-format differ in their results: 14,
# Debian 12's, decides; with another one the check is skipped (77).
#
# usage: tools/checks/check_format.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! clang-format --version | grep -q 'version 14\.'; then
    echo "skipped: $(clang-format --version), the layout is checked with version 14"
    exit 77
fi
git ls-files -z '*.c' '*.h' '*.inc' | xargs -0 -P "$(nproc)" -n 8 clang-format --dry-run -Werror

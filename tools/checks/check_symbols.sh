#!/usr/bin/env bash
# What the libraries show to a linker: the static one only names with the project's prefix, the shared
# one exactly the functions that the public headers declare, and does without libm.
#
# usage: tools/checks/check_symbols.sh LIBSLUICE.A LIBSLUICE.SO [HEADER...]
set -euo pipefail
static=$1 shared=$2
shift 2
cd "$(dirname "$0")/../.."
headers=("$@")
[ ${#headers[@]} -gt 0 ] || headers=(include/sluice.h include/sluice/status.h)
failed=0

names() { awk 'NF == 3 { sub(/@.*/, "", $3); print $3 }' | sort -u; }

strangers=$(nm --defined-only -g "$static" | names | grep -v '^sl_' || true)
if [ -n "$strangers" ]; then
    printf '%s defines global names without the prefix sl_:\n%s\n' "$static" "$strangers"
    failed=1
fi

# Function declarations start at the beginning of a line with SL_PUBLIC.
declared=$(sed -nE 's/^SL_PUBLIC .*\b(sl_[a-z0-9_]+)\(.*/\1/p' "${headers[@]}" | sort -u)
exported=$(nm -D --defined-only "$shared" | awk '$2 != "A"' | names)
if ! difference=$(diff <(echo "$declared") <(echo "$exported")); then
    printf 'declared (<) and exported by %s (>) differ:\n%s\n' "$shared" "$difference"
    failed=1
fi
# libm's pages would count against every budget: the functions that are needed of it are our own.
if readelf -d "$shared" | grep -q 'NEEDED.*libm\.'; then
    printf '%s needs libm; one of these is from there:\n%s\n' "$shared" "$(nm -D --undefined-only "$shared")"
    failed=1
fi
echo "$(wc -l <<<"$declared") declared, $(wc -l <<<"$exported") exported"
exit "$failed"

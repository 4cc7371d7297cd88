#!/usr/bin/env bash
# Runs every libFuzzer target for SECONDS, as many at once as there are processors, and reports.
#
#   tools/fuzz.sh [SECONDS] [NAME...]      NAME: json, template, ...; all by default
#
# New inputs collect in build/fuzz/corpus/NAME, logs and findings in build/fuzz/NAME*. Fails when a
# target found something.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
out=build/fuzz

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target fuzzers

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for binary in "$out"/tests/fuzz/fuzz_*; do
        if [ -f "$binary" ] && [ -x "$binary" ]; then
            names+=("${binary##*/fuzz_}")
        fi
    done
fi

# shellcheck disable=SC2317  # called by xargs below
fuzz_one() {   # name seconds out
    local name=$1 seconds=$2 out=$3
    mkdir -p "$out/corpus/$name"
    "$out/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$out/$name-finding-" \
        "$out/corpus/$name" "tests/fuzz/corpus/$name" >"$out/$name.log" 2>&1
    local status=$?
    awk -v name="$name" -v status="$status" '
        /^stat::number_of_executed_units/ { runs = $2 }
        / cov: /                          { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
        END { printf "%-14s %12d runs  %6d edges  %s\n", name, runs, cov, status ? "FOUND" : "nothing found" }
    ' "$out/$name.log"
    return "$status"
}
export -f fuzz_one

echo "${#names[@]} targets, $seconds s each"
if printf '%s\n' "${names[@]}" |
    xargs -P "$(nproc)" -I{} bash -c 'fuzz_one "$@"' fuzz {} "$seconds" "$out"; then
    exit 0
fi
echo "Findings are in $out; a fixed one belongs in tests/fuzz/corpus/NAME."
exit 1

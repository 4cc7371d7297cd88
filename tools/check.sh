#!/usr/bin/env bash
# Builds everything in the ways that matter and runs every test and check, then says what came of it.
#
#   tools/check.sh             all stages
#   tools/check.sh STAGE...    some of: lint build test install python asan tsan aarch64 tidy fuzz demo
#   tools/check.sh --list      the stages, one a line
#
# Logs and results are kept in build/results. The last line counts all tests and checks; a step that
# fails does not stop the others. `make check` installs the packages first.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

stages=(lint build test install python asan tsan aarch64 tidy fuzz demo)
results=$PWD/build/results
jobs=$(nproc)
venv=$PWD/build/venv
export LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
# A clone may belong to another user than the one who checks it, as in many containers.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=$PWD

# step NAME COMMAND...: run it with its output in a log, and record the result. Exit code 77 is a skip,
# whose reason is the last line of the output.
step() {
    local name=$1 log=$results/$1.log begin=$SECONDS status word
    shift
    "$@" >"$log" 2>&1 </dev/null
    status=$?
    case $status in
    0) word=passed ;;
    77) word=skipped ;;
    *) word=FAILED ;;
    esac
    printf '%s\t%s\t%s\n' "$name" "$word" "$([ $status -eq 77 ] && tail -n 1 "$log")" >>"$results/steps.tsv"
    printf '  %-8s %-22s %4d s\n' "$word" "$name" $((SECONDS - begin))
    [ "$word" != FAILED ] || { tail -n 60 "$log" | sed 's/^/    | /'; return 1; }
}

# ctest NAME PRESET ARGS...: a step whose tests are counted one by one.
run_ctest() {
    local name=$1 preset=$2
    shift 2
    step "$name" "${plain_addresses[@]}" ctest --preset "$preset" --no-tests=error -j "$jobs" \
        --output-junit "$results/$name.xml" "$@"
}

# Sanitizers of clang 14 lay out their shadow for addresses that recent kernels no longer keep to unless
# randomization is off, which some containers do not allow: then it is tried as it is.
plain_addresses=()
setarch -R true 2>/dev/null && plain_addresses=(setarch -R)

build() {   # preset, then arguments of cmake --build
    local preset=$1
    shift
    cmake --preset "$preset" && cmake --build --preset "$preset" "$@"
}

make_venv() {
    cmp -s tests/requirements.txt "$venv/requirements.txt" && return 0
    rm -rf "$venv"
    python3 -m venv "$venv" &&
        "$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/requirements.txt &&
        cp tests/requirements.txt "$venv/requirements.txt"
}

stage_lint() {
    step summary.self-test tools/checks/summary.py --self-test
    step floors.self-test tools/checks/check_floors.py --self-test
    step floors tools/checks/check_floors.py
    step rules.self-test tools/checks/check_rules.py --self-test
    step rules tools/checks/check_rules.py
    step format tools/checks/check_format.sh
    step headers tools/checks/check_headers.sh
    step words tools/checks/check_words.sh
    step scripts tools/checks/check_scripts.sh
}

stage_build() {
    step build.check build check
}

stage_test() {
    run_ctest test check
}

stage_install() {
    step symbols tools/checks/check_symbols.sh build/check/libsluice.a build/check/libsluice.so
    step install tools/checks/check_install.sh build/check
    step man mandoc -T lint -W warning build/check/sluice.1
}

stage_python() {
    step venv make_venv || return
    local build=$PWD/build/check
    SLUICE_BUILD=$build SLUICE_BIN=$build/sluice \
        SL_TOK_DRIVER=$build/tests/diff/tok_driver SL_TPL_DRIVER=$build/tests/diff/tpl_driver \
        SL_API_DRIVER=$build/tests/diff/api_driver \
        step python "$venv/bin/python" -m pytest tests -q -p no:cacheprovider \
        --basetemp=build/pytest --junitxml="$results/python.xml"
}

stage_asan() {
    step build.asan build asan || return
    run_ctest asan asan -LE no-sanitizer
}

stage_tsan() {
    step build.tsan build tsan || return
    run_ctest tsan tsan -L threads
}

stage_aarch64() {
    step build.aarch64 build aarch64 || return
    run_ctest aarch64 aarch64
    step emulated tools/checks/check_emulated.sh build/check build/aarch64
}

stage_tidy() {
    step tidy tools/checks/check_tidy.sh
}

stage_fuzz() {   # a finding within seconds; `make fuzz SECONDS=600` looks for real
    step fuzz tools/fuzz.sh 5
}

demo() {
    make demo && grep -qx 'owl (noun): .*' "$results/demo.log"
}

stage_demo() {
    step demo demo
}

case ${1:-} in
--list)
    printf '%s\n' "${stages[@]}"
    exit
    ;;
-*)
    sed -n 's/^# \{0,1\}//; 2,7p' "$0" >&2
    exit 2
    ;;
esac
[ $# -eq 0 ] || stages=("$@")
for stage in "${stages[@]}"; do
    if ! declare -F "stage_$stage" >/dev/null; then
        echo "check: no stage '$stage': $(tools/check.sh --list | xargs)" >&2
        exit 2
    fi
done
rm -rf "$results"
mkdir -p "$results"
for stage in "${stages[@]}"; do
    echo "$stage"
    "stage_$stage"
done
tools/checks/summary.py "$results" | tee "$results/summary.txt"

#!/bin/bash
# Replays what the fuzz targets have met, or fuzzes on:
#   tests/fuzz/run.sh BUILD [NAME...]              every seed and every input that was a finding, once
#   tests/fuzz/run.sh BUILD build-fuzz [NAME...]   libFuzzer, FUZZ_SECONDS each (60), FUZZ_JOBS at a time (2); FUZZ_SEED (0 = any)
#   tests/fuzz/run.sh --can                        can such targets be built here?
# One line a target: "ok   fuzz NAME: ..." or "FAIL fuzz NAME: ...". An input that is a finding stays in build/fuzz/found.
set -u
cd "$(dirname "$0")/../.."
if [ "$1" = --can ]; then
    echo 'int LLVMFuzzerTestOneInput(const char *p, long n) { (void)p; (void)n; return 0; }' |
        clang -fsanitize=fuzzer,address -x c - -o /dev/null 2>/dev/null
    exit
fi
build=$1 engine=
shift
if [ "${1:-}" = build-fuzz ]; then engine=$1; shift; fi
export ASAN_OPTIONS="detect_stack_use_after_return=1:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
export corpus=build/fuzz/corpus found=build/fuzz/found engine build

if [ ! -d $corpus ] || [ tests/fuzz/seeds.py -nt $corpus ]; then
    mkdir -p $corpus
    if /usr/bin/python3 tests/fuzz/seeds.py $corpus "$build/attnd"; then
        touch $corpus
    else
        rm -rf $corpus
        echo "FAIL fuzz: the seeds could not be made"
        exit 1
    fi
fi
mkdir -p $found

inputs() { # the folders of a target's inputs that are there
    for d in $corpus/$1 tests/fuzz/regression/$1; do [ ! -d "$d" ] || echo "$d"; done
}

one() { # NAME
    local name=$1 log dict=tests/fuzz/$1.dict program n leaks=1
    log=$(mktemp)
    if [ -n "$engine" ]; then
        [ "$name" != http ] || leaks=0 # other threads free what a run took: looked for at the end alone
        program=$engine/tests/fuzz/fuzz_$name
        timeout $((${FUZZ_SECONDS:-60} + 120)) "$program" $(inputs "$name") -max_total_time="${FUZZ_SECONDS:-60}" \
            -seed="${FUZZ_SEED:-0}" -rss_limit_mb=2048 -timeout=20 -detect_leaks=$leaks -print_final_stats=1 -artifact_prefix="$found/$name-" \
            $([ ! -f "$dict" ] || echo -dict="$dict") >"$log" 2>&1
    else
        program=$build/tests/fuzz/fuzz_$name
        timeout 300 "$program" $(inputs "$name") >"$log" 2>&1
    fi
    if [ $? -ne 0 ]; then
        echo "FAIL fuzz $name: $program $(grep -oE "$found/$name-[a-z]+-[0-9a-f]+|input: .*" "$log" | tail -1)"
        grep -vE '^#[0-9]|^"|INFO:' "$log" | head -60 | sed 's/^/    /'
    elif [ -n "$engine" ]; then
        n=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        echo "ok   fuzz $name: $n executions, $(grep -oE 'cov: [0-9]+' "$log" | tail -1 | cut -d' ' -f2) edges"
    else
        echo "ok   fuzz $name: $(tail -1 "$log")"
    fi
    rm -f "$log"
}
export -f one inputs

[ $# -gt 0 ] || set -- $(ls tests/fuzz/fuzz_*.c | sed 's/.*fuzz_//; s/\.c$//')
lines=$(printf '%s\n' "$@" | xargs -P "${FUZZ_JOBS:-2}" -I{} bash -c 'one {}')
echo "$lines"
! grep -q '^FAIL' <<<"$lines"

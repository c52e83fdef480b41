#!/bin/bash
# Runs every test program of a build folder and adds them up: tests/run.sh [--all] BUILD [NAME...]
# A program is a cmocka group (or several); what it skips it says itself, with the reason. With --all the
# example clients run, what is installed is looked at, the image and what stands around it is run, clients and an
# operator deal with replicas, the stored numbers are compared once more with each kind of kernels, and the programs
# for arm64 run too.
set -u
all=
if [ "${1:-}" = --all ]; then all=yes; shift; fi
build=${1:?usage: tests/run.sh [--all] BUILD [NAME...]}
shift
export ATTND="$build/attnd"
export ASAN_OPTIONS="detect_stack_use_after_return=1:${ASAN_OPTIONS:-}"
export TSAN_OPTIONS="halt_on_error=1:atexit_sleep_ms=0:suppressions=tests/tsan.supp:${TSAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

run() { # PROGRAM [how it is run]; RUNNER is what runs programs of another processor
    local name=$1${2:+ $2} p f s rc
    timeout "${TEST_TIMEOUT:-900}" ${RUNNER:-} "$build/$1" >"$log" 2>&1
    rc=$?
    # cmocka names what failed or was skipped once more behind "N test(s) run.": that is not counted.
    # From 1.1.7 on the group's name stands before both lines' text.
    read -r p f s < <(awk '/^\[=+\] ([^:]+: )?Running/ { on = 1 } /test\(s\) run\./ { on = 0 }
        on && /^\[       OK \]/ { p++ } on && /^\[  (FAILED|ERROR) +\] [A-Za-z0-9_]+$/ { f++ }
        on && /^\[  SKIPPED \]/ { s++ } END { print p + 0, f + 0, s + 0 }' "$log")
    if [ "$f" -eq 0 ] && { [ "$rc" -ne 0 ] || { [ $((p + s)) -eq 0 ] && ! grep -q '^skipped' "$log"; }; }; then f=1; fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    if [ "$f" -ne 0 ]; then # a group's teardown that fails leaves the exit status at 0
        echo "FAIL $name ($p passed, exit $rc)"
        grep -vE '^\[( RUN      |       OK )\]' "$log" | tail -60 | sed 's/^/    /'
    else
        echo "ok   $name ($p)"
        grep -E '^(skipped|SKIP):?' "$log" | sed 's/^/    /'
    fi
}

programs() {
    (cd "$build" && find tests -type f -name 'test_*' ! -name '*.*' | sort)
}

# What compares answers with stored numbers, with all kernels but the best, which ran already.
each_kind_of_kernels() {
    local best isa reason n
    best=$("$ATTND" --version | sed -n 's/^kernels: \([a-z0-9]*\);.*/\1/p')
    for isa in avx512 avx2 neon blas ref; do
        [ "$isa" != "$best" ] || continue
        if ! reason=$(ATTND_ISA=$isa "$ATTND" --version 2>&1 >/dev/null); then
            echo "skipped: kernels $isa: ${reason#attnd: }"
            continue
        fi
        for n in vectors_mha vectors_onnx models same_bits; do
            ATTND_ISA=$isa run "tests/http/test_$n" "with ATTND_ISA=$isa"
        done
    done
}

arm64() {
    local n
    [ "$(uname -m)" != aarch64 ] || return # it ran above
    if [ ! -d build-arm64 ]; then
        echo "skipped: arm64: its compiler and qemu-user are not installed; make arm64 says more"
        return
    fi
    build=build-arm64
    export RUNNER=qemu-aarch64 TEST_CASES=${TEST_CASES:-100}
    for n in $(programs); do run "$n" "for arm64"; done
}

# The short form of make check-openapi: what is made up by rule, nothing by chance.
openapi() {
    tests/openapi/check.sh "$build" >"$log" 2>&1
    case $?:$(head -c 8 "$log") in
    0:skipped:) cat "$log" ;;
    0:*) passed=$((passed + 1)); echo "ok   openapi: $(tail -1 "$log" | tr -d =)" ;;
    *) failed=$((failed + 1)); echo "FAIL openapi"; sed 's/^/    /' "$log" ;;
    esac
}

# A script that says "ok", "FAIL" or "skipped" a line: the example clients, what is installed.
script() { # FOLDER [ARGUMENT...]
    local rc folder=$1
    shift
    tests/$folder/run.sh "$build" "$@" >"$log" 2>&1
    rc=$?
    [ $rc -eq 0 ] || grep -q '^FAIL' "$log" || echo "FAIL $folder: exit $rc" >>"$log"
    passed=$((passed + $(grep -c '^ok ' "$log"))) failed=$((failed + $(grep -c '^FAIL' "$log")))
    cat "$log"
}

# The fuzz targets: what they have met, and with clang's fuzzer half a minute more of each.
fuzzing() {
    script fuzz
    if [ -d build-fuzz ]; then
        FUZZ_SEED=${FUZZ_SEED:-1} FUZZ_SECONDS=${FUZZ_SECONDS:-30} script fuzz build-fuzz
    else
        echo "skipped: fuzzing: clang with libFuzzer (libclang-rt-dev) is not installed; inputs were replayed"
    fi
}

if [ $# -gt 0 ]; then names=("$@"); else names=($(programs)); fi
for n in "${names[@]}"; do run "$n"; done
[ -z "$all" ] || script clients
[ -z "$all" ] || script package
[ -z "$all" ] || fuzzing
[ -z "$all" ] || script docker
[ -z "$all" ] || script soak
[ -z "$all" ] || openapi
[ -z "$all" ] || each_kind_of_kernels
# OpenBLAS has kernels of its own for each processor, and some make more of a row's company than others.
[ -z "$all" ] || OPENBLAS_CORETYPE=Haswell run tests/unit/test_attention_bits "with OpenBLAS's Haswell kernels"
[ -z "$all" ] || arm64
[ "$skipped" -eq 0 ] || echo "$skipped skipped, named above"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

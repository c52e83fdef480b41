#!/bin/bash
# Runs every test program of a build folder and adds them up: tests/run.sh BUILD [NAME...]
# A program is a cmocka group (or several); what it skips it says itself, with the reason.
set -u
build=${1:?usage: tests/run.sh BUILD [NAME...]}
shift
export ATTND="$build/attnd"
export ASAN_OPTIONS="detect_stack_use_after_return=1:${ASAN_OPTIONS:-}"
export TSAN_OPTIONS="halt_on_error=1:${TSAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

run() {
    local name=$1 p f s rc
    timeout "${TEST_TIMEOUT:-900}" "$build/$name" >"$log" 2>&1
    rc=$?
    # cmocka names what failed or was skipped once more behind "N test(s) run.": that is not counted.
    # From 1.1.7 on the group's name stands before both lines' text.
    read -r p f s < <(awk '/^\[=+\] ([^ ]+: )?Running/ { on = 1 } /test\(s\) run\./ { on = 0 }
        on && /^\[       OK \]/ { p++ } on && /^\[  (FAILED|ERROR) +\] [A-Za-z0-9_]+$/ { f++ }
        on && /^\[  SKIPPED \]/ { s++ } END { print p + 0, f + 0, s + 0 }' "$log")
    if [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    if [ "$rc" -ne 0 ]; then
        echo "FAIL $name ($p passed, exit $rc)"
        grep -vE '^\[( RUN      |       OK )\]' "$log" | tail -60 | sed 's/^/    /'
    else
        echo "ok   $name ($p)"
        grep -E '^(skipped|SKIP):?' "$log" | sed 's/^/    /'
    fi
}

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    names=($(cd "$build" && find tests -type f -name 'test_*' ! -name '*.*' | sort))
fi
for n in "${names[@]}"; do run "$n"; done
[ "$skipped" -eq 0 ] || echo "$skipped skipped, named above"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

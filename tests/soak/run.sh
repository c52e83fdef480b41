#!/bin/bash
# Clients, replicas and an operator, for SOAK_SECONDS (15): tests/soak/run.sh BUILD
set -uo pipefail
build=${1:?usage: tests/soak/run.sh BUILD}
export ATTND=$build/attnd PYTHONPATH=tests:tests/docker PYTHONDONTWRITEBYTECODE=1
export ASAN_OPTIONS="detect_stack_use_after_return=1:${ASAN_OPTIONS:-}" UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
export TSAN_OPTIONS="halt_on_error=1:suppressions=tests/tsan.supp:${TSAN_OPTIONS:-}"
if ! /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
    echo "skipped: soak: numpy is not installed"
    exit
fi
exec /usr/bin/python3 -W ignore tests/soak/soak.py

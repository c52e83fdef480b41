#!/bin/bash
# Linters on the OpenAPI document, and schemathesis on the daemon that it describes: check.sh BUILD [CASES]
# Both come from PyPI into BUILD/openapi; where they cannot be had, that is said, and no failure.
set -u
build=${1:?usage: tests/openapi/check.sh BUILD [CASES]}
cases=${2:-50}
venv=$build/openapi
skip() { echo "skipped: openapi: $*"; exit 0; }

if [ ! -x "$venv/bin/schemathesis" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv" 2>/dev/null || skip "python3 cannot make a virtual environment"
    "$venv/bin/pip" install -q schemathesis==4.32.5 openapi-spec-validator==0.9.0 >"$venv/log" 2>&1 ||
        { reason=$(tail -1 "$venv/log"); rm -rf "$venv"; skip "pip cannot install schemathesis: $reason"; }
fi
"$venv/bin/openapi-spec-validator" "$build/openapi.json" || exit 1

exec 3< <(exec "$build/attnd" --listen 127.0.0.1:0 --set memory.budget=256MiB --set log.level=error)
daemon=$!
trap 'kill $daemon' EXIT
read -r -u 3 _ _ _ url || exit 1
export SCHEMATHESIS_HOOKS=hooks PYTHONPATH=$PWD/tests/openapi PYTHONDONTWRITEBYTECODE=1
config=$PWD/tests/openapi/schemathesis.toml
cd "$venv" # it leaves files where it runs
"$PWD/bin/schemathesis" --config-file "$config" run "$url/openapi.json" -n "$cases" \
    --phases examples,coverage,fuzzing --seed 1 --no-color --continue-on-failure >report 2>&1
rc=$?
if [ $rc -eq 0 ]; then tail -1 report; else cut -c -2000 report; fi
kill -0 $daemon || { echo "the daemon is gone"; exit 1; }
exit $rc

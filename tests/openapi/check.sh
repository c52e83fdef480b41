#!/bin/bash
# A validator on the OpenAPI document, and schemathesis on the daemon that it describes: check.sh [--all] BUILD
# With --all also what schemathesis makes up by chance, and redocly's linter. They come from PyPI and npm into
# BUILD/openapi; where they cannot be had, that is said, and no failure.
set -u
all=
if [ "${1:-}" = --all ]; then all=yes; shift; fi
build=${1:?usage: tests/openapi/check.sh [--all] BUILD}
venv=$build/openapi
skip() { echo "skipped: openapi: $*"; exit 0; }

if [ ! -x "$venv/bin/schemathesis" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv" >/dev/null 2>&1 || skip "python3 cannot make a virtual environment"
    "$venv/bin/pip" install -q schemathesis==4.32.5 openapi-spec-validator==0.9.0 >"$venv/log" 2>&1 ||
        { reason=$(grep -i error "$venv/log" | tail -1); rm -rf "$venv"; skip "pip cannot install schemathesis: $reason"; }
fi
"$venv/bin/openapi-spec-validator" "$build/openapi.json" || exit 1
phases=examples,coverage
if [ -n "$all" ]; then
    phases=$phases,fuzzing
    if [ -x "$venv/node_modules/.bin/redocly" ] || npm install --silent --prefix "$venv" @redocly/cli@2 >/dev/null 2>&1; then
        lint=$("$venv/node_modules/.bin/redocly" lint --extends recommended-strict "$build/openapi.json" 2>&1) ||
            { echo "$lint"; exit 1; }
        echo "redocly: no findings"
    else
        echo "skipped: redocly: npm cannot install it"
    fi
fi

exec 3< <(exec "$build/attnd" --listen 127.0.0.1:0 --set memory.budget=256MiB --set log.level=error)
daemon=$!
trap 'kill $daemon' EXIT
read -r -u 3 _ _ _ url || exit 1
without=(--exclude-path-regex '^/v2/repository/models/') # it would take the model away
[ -f server/web/index.html ] || without+=(--exclude-path / --exclude-path '/ui/{file}') # a build without the viewer
export SCHEMATHESIS_HOOKS=hooks PYTHONPATH=$PWD/tests/openapi PYTHONDONTWRITEBYTECODE=1
config=$PWD/tests/openapi/schemathesis.toml
cd "$venv" || exit 1 # it leaves files where it runs
bin/schemathesis --config-file "$config" run "$url/openapi.json" --phases $phases -n "${CASES:-100}" --seed 1 \
    "${without[@]}" --no-color --continue-on-failure >report 2>&1
rc=$?
if [ $rc -eq 0 ]; then tail -1 report; else cut -c -2000 report; fi
kill -0 $daemon || { echo "the daemon is gone"; exit 1; }
exit $rc

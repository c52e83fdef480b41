#!/bin/bash
# Builds and runs the example clients: tests/clients/run.sh BUILD
# Each whose tools are installed runs twice: at the daemon, and at busy.py, which answers 503 first. Both times it
# must print what expected.txt holds, which was computed in double precision from what `attnd demo` writes. What is
# compiled stays in BUILD/clients.
set -uo pipefail
build=${1:?usage: tests/clients/run.sh BUILD}
here=tests/clients
out=$build/clients
mkdir -p "$out"
export PYTHONDONTWRITEBYTECODE=1

exec 3< <(exec "$build/attnd" --listen 127.0.0.1:0 --set log.level=error)
daemon=$!
read -r -u 3 _ _ _ url || { echo "FAIL clients: the daemon does not start"; exit 1; }
exec 4< <(exec /usr/bin/python3 $here/busy.py "$url" $here/client.mjs)
busy=$!
trap 'kill $daemon $busy' EXIT
read -r -u 4 busy_url || { echo "FAIL clients: busy.py does not start"; exit 1; }

names=()
client() { # NAME SOURCE, what to say without the tools, how to see them, how to compile to $program, how to run
    names+=("$1")
    try "$@" >"$out/$1.result" 2>&1 &
}

try() {
    local name=$1 source=$here/$2 missing=$3 tools=$4 compile=$5 run=$6 program=$out/$1 at rc
    if ! eval "$tools" >/dev/null 2>&1; then
        echo "skipped: client $name: $missing"
        return
    fi
    if [ -n "$compile" ] && [ ! "$program" -nt "$source" ] && ! eval "nice -n 10 $compile" >"$program.log" 2>&1; then
        echo "FAIL client $name: it does not compile"
        sed 's/^/    /' "$program.log"
        return
    fi
    for at in "$url" "$busy_url/$name"; do
        eval "timeout 60 $run" >"$program.text" 2>"$program.log"
        rc=$?
        if ! diff $here/expected.txt "$program.text" >"$program.diff" || [ $rc -ne 0 ]; then
            echo "FAIL client $name at $at: exit $rc"
            sed 's/^/    /' "$program.diff" "$program.log"
            return
        fi
    done
    echo "ok   client $name"
}

client curl client.sh 'curl is not installed, or older than 7.82' 'curl --help all | grep -q -- --json' '' \
    '$source $at'
client python-numpy client_numpy.py 'numpy is not installed' '/usr/bin/python3 -c "import numpy"' '' \
    '/usr/bin/python3 $source $at'
client python-requests client_requests.py 'requests and numpy are not installed' \
    'PYTHONPATH=build/python /usr/bin/python3 -c "import requests, numpy"' '' \
    'env PYTHONPATH=build/python /usr/bin/python3 $source $at'
client javascript client.mjs 'node is not installed, or older than 18' 'node -e fetch' '' 'node $source $at'
# The browser's clock jumps to whatever a page waits for: it shows the page once nothing is left to do.
client javascript-chromium client.mjs 'chromium is not installed' 'chromium --version' '' \
    'chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$program" \
        --virtual-time-budget=20000 --dump-dom $busy_url/browser/page | sed -n "/<pre>/,/<.pre>/ { s/.*<pre>//; /<.pre>/!p }"'
# Without optimisation and HTTP/2 the standard library, which Go compiles and keeps at its first use, takes less long.
client go client.go 'go is not installed' 'go version' \
    'env CGO_ENABLED=0 go build -buildvcs=false -tags nethttpomithttp2 -gcflags "all=-N -l" -o $program $source' \
    '$program $at'
client java Client.java 'a JDK of 16 or later is not installed' 'javac --release 16 --version && java -version' \
    'javac --release 16 -d $program $source && touch $program' 'java -XX:TieredStopAtLevel=1 -cp $program Client $at'
client rust client.rs 'rustc is not installed' 'rustc --version' 'rustc --edition 2021 -o $program $source' \
    '$program $at'
client c client.c 'a C compiler or libcurl is not installed' 'cc --version && pkg-config --exists libcurl' \
    'cc -std=c11 -Wall -Wextra -Werror $(pkg-config --cflags libcurl) -o $program $source \
        $(pkg-config --libs libcurl)' \
    '$program $at'
wait $(jobs -p)
results=("${names[@]/#/$out/}")
cat "${results[@]/%/.result}"
! grep -q '^FAIL' "${results[@]/%/.result}"

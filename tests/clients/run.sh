#!/bin/bash
# Builds and runs the example clients: tests/clients/run.sh BUILD [URL]
# Each whose tools are installed runs twice: at the daemon, and at busy.py, which answers 503 first. Both times it
# must print what expected.txt holds, which was computed in double precision from what `attnd demo` writes. What is
# compiled stays in BUILD/clients. With a URL they run there one after the other, without an end; what becomes of each is
# a line as tests/soak/client.py has it, with the client's name in front.
set -uo pipefail
build=${1:?usage: tests/clients/run.sh BUILD [URL]}
here=tests/clients
out=$build/clients
mkdir -p "$out"
export PYTHONDONTWRITEBYTECODE=1

names=()
declare -A sources missings tools compiles runs
client() { # NAME SOURCE, what to say without the tools, how to see them, how to compile to $program, how to run
    names+=("$1")
    sources[$1]=$here/$2 missings[$1]=$3 tools[$1]=$4 compiles[$1]=$5 runs[$1]=$6
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

prepare() { # NAME
    local name=$1 source=${sources[$1]} compile=${compiles[$1]} program=$out/$1
    if ! eval "${tools[$name]}" >/dev/null 2>&1; then
        echo "skipped: client $name: ${missings[$name]}"
        return 1
    fi
    if [ -n "$compile" ] && [ ! "$program" -nt "$source" ] && ! eval "nice -n 10 $compile" >"$program.log" 2>&1; then
        echo "FAIL client $name: it does not compile"
        sed 's/^/    /' "$program.log"
        return 1
    fi
}

run_at() { # NAME URL: false when it does not print what it must
    local source=${sources[$1]} program=$out/$1 at=$2
    eval "timeout 60 ${runs[$1]}" >"$program.text" 2>"$program.log" && diff $here/expected.txt "$program.text" >"$program.diff"
}

try() { # NAME
    local at
    prepare "$1" || return
    for at in "$url" "$busy_url/$1"; do
        if ! run_at "$1" "$at"; then
            echo "FAIL client $1 at $at"
            sed 's/^/    /' "$out/$1.diff" "$out/$1.log"
            return
        fi
    done
    echo "ok   client $1"
}

again_and_again() { # URL
    local name begin what said
    names=("${names[@]/javascript-chromium/}") # its page comes from busy.py
    for name in ${names[@]}; do
        prepare "$name" >"$out/$name.result" 2>&1 &
    done
    wait
    for name in ${names[@]}; do
        cat "$out/$name.result"
    done
    while :; do
        for name in ${names[@]}; do
            [ ! -s "$out/$name.result" ] || continue # it said why not
            begin=${EPOCHREALTIME/./} what=right said=0
            run_at "$name" "$1" || { what=lost; said=$(cat "$out/$name.log" "$out/$name.diff" | tr -s '\t\n' ' '); }
            printf '%s\t%s\tdemo\t%s\t-\t%s\n' "$name" $what $(((${EPOCHREALTIME/./} - begin) / 1000)) "$said"
            sleep 0.1
        done
    done
}

if [ $# -gt 1 ]; then
    again_and_again "$2"
fi

exec 3< <(exec "$build/attnd" --listen 127.0.0.1:0 --set log.level=error)
daemon=$!
read -r -u 3 _ _ _ url || { echo "FAIL clients: the daemon does not start"; exit 1; }
exec 4< <(exec /usr/bin/python3 $here/busy.py "$url" $here/client.mjs)
busy=$!
trap 'kill $daemon $busy' EXIT
read -r -u 4 busy_url || { echo "FAIL clients: busy.py does not start"; exit 1; }
for name in "${names[@]}"; do
    try "$name" >"$out/$name.result" 2>&1 &
done
wait $(jobs -p)
results=("${names[@]/#/$out/}")
cat "${results[@]/%/.result}"
! grep -q '^FAIL' "${results[@]/%/.result}"

#!/bin/bash
# What lies in docker/, tried as far as this machine allows: tests/docker/run.sh BUILD
# Says ok, FAIL or skipped a line. As root it may start a Docker engine of its own, which then ends with the tests;
# on one that runs already nothing is left but the images, which make the next time faster.
set -uo pipefail
build=${1:?usage: tests/docker/run.sh BUILD}
here=tests/docker
shared=${ATTND_SHARED:-../shared}
log=$build/docker
export ATTND=$build/attnd ATTND_IMAGE=attnd:test PYTHONDONTWRITEBYTECODE=1 DOCKER_BUILDKIT=0
python="/usr/bin/python3 -W ignore"
engine= reason= # ours or theirs, or why there is none
mkdir -p "$log"

find_engine() {
    if docker info >/dev/null 2>&1; then
        engine=theirs
    elif [ "$(id -u)" != 0 ]; then
        reason="no Docker engine runs, and only root can start one"
    elif [ ! -x "$shared/tools/local-docker.sh" ]; then
        reason="no Docker engine runs"
    else
        engine=ours
    fi
}

down() {
    [ "$engine" != ours ] || "$shared/tools/local-docker.sh" down
}

start_engine() {
    local _
    for _ in 1 2 3; do # another apt may be at work
        "$shared/tools/local-docker.sh" up && return
        sleep 5
    done
    return 1
}

# The image stage by stage, so that what is not used any more can go.
build_image() {
    docker build -t attnd:test-build --target build --network host -f docker/Dockerfile . &&
        docker build -t attnd:test --network host -f docker/Dockerfile .
}

build_tools() {
    docker build -t attnd-test/haproxy --target haproxy --network host $here &&
        docker build -t attnd-test/prometheus --target prometheus --network host $here
}

prepare() {
    local tools rc
    if [ "$engine" = ours ]; then start_engine >"$log/engine" 2>&1 || return 2; fi
    docker image inspect debian:bookworm-slim >/dev/null 2>&1 || docker pull -q debian:bookworm-slim >"$log/engine" 2>&1 || return 2
    build_tools >"$log/tools" 2>&1 &
    tools=$!
    build_image >"$log/image" 2>&1
    rc=$?
    wait $tools || return 2
    [ "$engine" != ours ] || docker image prune -f >/dev/null
    return $rc
}

find_engine
if [ -n "$engine" ]; then
    trap down EXIT
    prepare &
    preparing=$!
else
    echo "skipped: docker: $reason"
fi
$python $here/files.py
$python $here/rolling.py
[ -n "$engine" ] || exit 0

wait "$preparing"
case $? in
0) echo "ok   container: the image builds" ;;
1) echo "FAIL container: the image builds"; tail -20 "$log/image" | sed 's/^/    /'; exit ;;
*) echo "skipped: docker: $(tail -qn 1 "$log"/engine "$log"/tools 2>/dev/null | tail -1)"; exit ;;
esac
$python $here/containers.py
[ "$engine" = ours ] && export ATTND_TEST_SWARM=yes
$python $here/stack.py
exit 0

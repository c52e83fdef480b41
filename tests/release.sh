#!/bin/bash
# Builds and tests the tree on another release of Debian: tests/release.sh RELEASE [NAME...]
# build-RELEASE becomes a chroot, kept for the next time. gcc and clang build with -Werror, then every test program
# runs (or those named), and what is installed is looked at; the browser's tests, which are about another program,
# and the clients stay out. Needs root, git and debootstrap.
set -eu

if [ "${1:-}" = --inside ]; then # the chroot
    shift
    cd /src/attnd
    export HOME=/root LC_ALL=C.UTF-8
    make deps-test deps-lint deps-package
    failed=0
    for cc in gcc clang; do
        make -j"$(nproc)" -s VARIANT=build-$cc CC=$cc WERROR=-Werror CFLAGS='-O2 -g' tests
        build-$cc/attnd --version
        tests/run.sh build-$cc "$@" || failed=1
    done
    tests/package/run.sh build-gcc || failed=1
    exit $failed
fi

cd "$(dirname "$0")/.."
release=${1:?usage: tests/release.sh RELEASE [NAME...]}
shift
root=$PWD/build-$release
shared=$(realpath "${ATTND_SHARED:-../shared}")
[ "$(id -u)" = 0 ] || { echo "skipped: $release: only root can make a chroot"; exit 0; }
command -v debootstrap >/dev/null || { echo "skipped: $release: debootstrap is not installed"; exit 0; }

# From the mirror of this machine, as its apt is told to reach it.
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -n 1)
[ -n "$mirror" ] || mirror=$(awk '$1 == "deb" && $2 !~ /^\[/ { print $2; exit }' /etc/apt/sources.list)
if [ ! -f "$root/.complete" ]; then
    rm -rf "$root"
    mkdir -p "$root"
    debootstrap --variant=minbase --include=make,ca-certificates "$release" "$root" "$mirror" >"$root/.log" 2>&1 ||
        { tail -5 "$root/.log"; exit 1; }
    cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
    touch "$root/.complete"
fi

# The tree as it stands; what was built there before stays.
mkdir -p "$root/src/attnd" "$root/src/shared"
git ls-files -co --exclude-standard | while read -r f; do [ ! -f "$f" ] || echo "$f"; done >"$root/.files"
(cd "$root/src/attnd" && find . -type f ! -path './build*' -printf '%P\n' | grep -vxFf "$root/.files" | xargs -r rm)
tar -cT "$root/.files" | tar -C "$root/src/attnd" -x

# The mounts are seen by the chroot alone, and end with it.
export root shared
exec unshare --mount --pid --fork bash -euc '
    mount --make-rprivate /
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    mount -t proc proc "$root/proc"
    [ ! -d "$shared" ] || mount --bind -o ro "$shared" "$root/src/shared"
    exec chroot "$root" /src/attnd/tests/release.sh --inside "$@"' release "$@"

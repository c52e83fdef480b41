#!/bin/bash
# What is installed beside the program, each piece by the tool that reads it: tests/package/run.sh BUILD
# Says ok, FAIL or skipped a line.
set -uo pipefail
build=${1:?usage: tests/package/run.sh BUILD}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

check() { # NAME TOOL FUNCTION: what the function prints is what is wrong
    local wrong
    if ! command -v "$2" >/dev/null; then
        echo "skipped: package $1: $2 is not installed"
        return
    fi
    wrong=$("$3" 2>&1) || wrong="$wrong
exit $?"
    if [ -z "$wrong" ]; then
        echo "ok   package $1"
    else
        echo "FAIL package $1"
        echo "$wrong" | head -40 | sed 's/^/    /'
    fi
}

# Twice: the second time finds a configuration that somebody changed.
install_tree() {
    make --no-print-directory -s VARIANT="$build" DESTDIR="$root" prefix=/usr install-files install-units
    echo '{}' >"$root/etc/attnd/attnd.json"
    make --no-print-directory -s VARIANT="$build" DESTDIR="$root" prefix=/usr install-files install-units
    echo '{}' | cmp - "$root/etc/attnd/attnd.json"
    diff <(cd "$root" && find . -type f -printf '%m %P\n' | sort -k2) - <<END
644 etc/attnd/attnd.json
755 usr/bin/attnd
644 usr/lib/systemd/system/attnd.service
644 usr/lib/systemd/system/attnd.socket
644 usr/share/bash-completion/completions/attnd
644 usr/share/man/man5/attnd.json.5
644 usr/share/man/man8/attnd.8
END
}

# The program where it was built, as none is in /usr/bin yet.
units() {
    mkdir "$root/units"
    sed "s|/usr/bin/attnd|$(realpath "$build")/attnd|" docker/systemd/attnd.service >"$root/units/attnd.service"
    cp docker/systemd/attnd.socket "$root/units"
    systemd-analyze verify --man=no "$root"/units/*
    systemd-analyze security --offline=true --no-pager --threshold=15 "$root/units/attnd.service" >"$root/score" ||
        tail -1 "$root/score"
}

# The configuration that is installed is one, and serves what none would.
configuration() {
    cmp <("$build/attnd" check) <("$build/attnd" check --config config/attnd.json)
}

# Which other manuals are installed is not ours to say.
man_lint() { mandoc -T lint server/attnd.8 "$build/attnd.json.5" 2>&1 | grep -vE 'referenced manual not found|mandoc.db' || true; }

# The manual against the program: every key with its default, every flag and command.
man_keys() {
    local key fallback
    mandoc -T ascii "$build/attnd.json.5" | col -b >"$root/man5"
    mandoc -T ascii server/attnd.8 | col -b >"$root/man8"
    "$build/attnd" --help >"$root/help"
    while read -r key _ fallback; do
        [ "$fallback" != '""' ] || fallback=none
        grep -qxF "     $key ($fallback)" "$root/man5" || echo "attnd.json.5 has no $key ($fallback)"
    done < <(grep -E '^  [a-z_.]+ = ' "$root/help")
    for key in $(sed -n 's/^  \(--[a-z_-]*\).*/\1/p; s/^  attnd \([^ ]*\).*/\1/p' "$root/help"); do
        grep -qE "^     (attnd )?$key\b" "$root/man8" || echo "attnd.8 has no $key"
    done
    for key in $(sed -n 's/^    X("\([a-z]*\)").*/\1/p' config/config_keys.h); do
        grep -qE "^     $key( |$)" "$root/man5" || echo "attnd.json.5 does not say what $key of a model is"
    done
}

completion() {
    bash tests/package/completion.sh "$build"
}

# Built twice, in another place, zone and mask: the same bytes. Then what a user would do with it.
debian() {
    local deb=$build/deb again=$root/elsewhere/deb file
    for file in $(sed -n '/^DEPS_BUILD/,/[^\\]$/p' Makefile | grep -o '[a-z0-9-]*-dev' | grep -v '^libc6-'); do
        grep -qE "^ $file\>" docker/debian/control || echo "docker/debian/control does not name $file"
    done
    make --no-print-directory -s DEB="$deb" deb-package || return
    mkdir -m 755 "$root/elsewhere"
    (umask 027 && TZ=Pacific/Auckland make --no-print-directory -s DEB="$again" deb-package) || return
    for file in "$deb"/*.deb; do cmp "$file" "$again/${file##*/}" || return; done
    lintian --allow-root --fail-on error,warning,info,pedantic --pedantic --display-info "$deb"/*.changes || return
    dpkg-deb -x "$deb"/attnd_*.deb "$root/unpacked"
    PATH=$root/unpacked/usr/bin:$PATH CONFIG=$root/unpacked/etc/attnd/attnd.json sh docker/debian/tests/serve \
        >"$root/serve.log" 2>&1 || cat "$root/serve.log"
}

# The list of parts against what the program says it needs, and what dpkg says of that.
parts() {
    docker/sbom.py "$build/attnd" 1.2.3 LICENSE "$root/parts.json" "$root/licences" || return
    readelf -d "$build/attnd" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >"$root/needed"
    /usr/bin/python3 - "$build/attnd" "$root/parts.json" "$root/licences" "$root/needed" <<'END'
import hashlib, json, subprocess, sys
program, parts, licences, needed = sys.argv[1:]
document, licences = json.load(open(parts)), open(licences).read()
own, *linked = document["packages"]
assert (document["spdxVersion"], own["name"], own["versionInfo"]) == ("SPDX-2.3", "attnd", "1.2.3")
assert own["checksums"][0]["checksumValue"] == hashlib.sha256(open(program, "rb").read()).hexdigest()
assert open("LICENSE").read() in licences
names = open(needed).read().split()
assert len(names) >= 6
for name in names:  # libz.so.1 is libz.so.1.2.13; OpenBLAS's link leads to libopenblasp-r0.3.21.so
    stem = name.split(".so")[0]
    assert any(f.startswith(stem) for part in linked for f in part["sourceInfo"].split("; ")[0].split(", ")), name
assert len({part["name"] for part in linked}) == len(linked)
texts = {text["licenseId"]: text["extractedText"] for text in document["hasExtractedLicensingInfos"]}
for part in linked:
    version = subprocess.check_output(["dpkg-query", "-W", "-f", "${Version}", part["name"]], text=True)
    assert part["versionInfo"] == version, part
    assert texts[part["licenseDeclared"]] in licences and len(texts[part["licenseDeclared"]]) > 500, part
assert {r["relatedSpdxElement"] for r in document["relationships"]} == {p["SPDXID"] for p in document["packages"]}
assert "GNU LESSER GENERAL PUBLIC LICENSE" in licences
END
}

check files make install_tree
check configuration "$build/attnd" configuration
check units systemd-analyze units
check "manual is well-formed" mandoc man_lint
check "manual has every key" mandoc man_keys
check completion bash completion
check "list of parts" readelf parts
if command -v dh >/dev/null; then check "for Debian" lintian debian; else echo "skipped: package for Debian: debhelper is not installed"; fi

#!/bin/sh
# Lays out what the image holds: docker/rootfs.sh PROGRAM FOLDER
# The program without its debugging symbols, the libraries it loads at the paths where it finds them, and for
# each Debian package they come from the licence and dpkg's record, by which scanners know what to look for.
set -eu
program=$1 root=$2

install -D -s "$program" "$root/usr/bin/attnd"
install -D -m 644 LICENSE "$root/usr/share/doc/attnd/copyright"
install -d "$root/models" "$root/etc" "$root/var/lib/dpkg/status.d"
grep -h '^ID=\|^NAME=\|^VERSION_ID=\|^VERSION_CODENAME=' /etc/os-release >"$root/etc/os-release"

ldd "$program" | awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }' | while read -r library; do
    mkdir -p "$root${library%/*}"
    cp -L "$library" "$root$library" # Debian's alternatives for OpenBLAS are links into /etc
    file=$(readlink -f "$library")
    dpkg -S "$file" 2>/dev/null || dpkg -S "${file#/usr}"
done | cut -d : -f 1 | sort -u | while read -r package; do
    install -D -m 644 "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/copyright"
    dpkg -s "$package" >"$root/var/lib/dpkg/status.d/$package"
done

#!/bin/bash
# Everything that can be said about the source without running it.
set -u
cd "$(dirname "$0")/.."
bad=0
say() { echo "lint: $*"; bad=1; }
sources=$(find core config server tests -name '*.[ch]')

# Each major version of clang-format lays out some lines its own way; the tree follows 14 (Debian 12).
format=$(clang-format --version | sed -E 's/.*version ([0-9]+).*/\1/')
if [ "$format" = 14 ]; then
    clang-format --dry-run --Werror $sources || say "run make fmt"
else
    echo "skipped: format: clang-format is version $format, the tree is formatted by 14"
fi

# Includes point down or to the right: server -> config -> core; tests may include all.
grep -nE '#include "(server|config|tests)/' core/*.[ch] && say "core includes what lies above it"
grep -nE '#include "(server|tests)/' config/*.[ch] && say "config includes what lies above it"
grep -nE '#include "tests/' server/*.[ch] && say "server includes tests"
home() { # header, its only home
    grep -lE "#include <$1>" core/*.[ch] config/*.[ch] server/*.[ch] 2>/dev/null | grep -vE "^($2)$" | grep . \
        && say "<$1> belongs in $2 alone"
}
home microhttpd.h 'server/http.c'
home cblas.h 'core/gemm.c'
home jansson.h 'core/json.c'
home zip.h 'core/npz.c'
home zlib.h 'server/(inflate|deflate).c'
home png.h 'server/png.c'
home utf8proc.h 'core/unicode.c'
home 'gnutls/[a-z0-9]*.h' 'server/(keys|tls).c'
home immintrin.h 'core/kern_[a-z0-9]*.c|core/[a-z0-9]*_wide.c'
home arm_neon.h 'core/kern_[a-z0-9]*.c'
find core config server tests -name '*.[ch]' -printf '%f\n' | sort | uniq -d | grep . && say "file names are unique in the tree"
# Every pitfall has its tests, and these are there.
[ "$(grep -cE '^\| [A-F][0-9]{2} \|' tests/PITFALLS.md)" = 98 ] || say "tests/PITFALLS.md does not hold 98 codes"
for name in $(sed '/^|/!d' tests/PITFALLS.md | grep -oE '`[A-Za-z0-9_]+`' | tr -d '`' | sort -u); do
    grep -rqwE "$name" tests --include='*.c' --include='*.mjs' --include='*.py' || say "tests/PITFALLS.md names $name, which is no test"
done
grep -nE '\b(alloca|sprintf|strcpy|strcat|gets|system|popen|fork|vfork|posix_spawnp?)\(' core/*.c config/*.c server/*.c && say "unsafe call"

for cc in gcc clang; do
    make --no-print-directory -j"$(nproc)" -s VARIANT="build-lint-$cc" CC=$cc WERROR=-Werror CFLAGS='-O2 -g' tests || say "$cc warns"
done
if command -v aarch64-linux-gnu-gcc >/dev/null; then
    make --no-print-directory -s ARM64_B=build-lint-arm64 WERROR=-Werror arm64-tests || say "gcc for arm64 warns"
else
    echo "skipped: arm64: aarch64-linux-gnu-gcc is not installed"
fi
flags=$(pkg-config --cflags libmicrohttpd jansson openblas libzip zlib libpng gnutls libutf8proc cmocka libcurl)
gcc -U__BYTE_ORDER__ -D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__ -std=c11 -D_GNU_SOURCE -I. -fsyntax-only core/tensor.c 2>&1 |
    grep -q 'stored tensors are copied as they are' || say "big-endian processors are not refused"
for h in core/*.h config/*.h server/*.h; do
    case $h in core/kern_tile.h | core/kern_rows.h | core/kern_layer.h) continue ;; esac # templates for the files that include them
    gcc -std=c11 -D_GNU_SOURCE -I. $flags -Wall -Wextra -Werror -fsyntax-only -x c "$h" || say "$h does not stand alone"
done
isa_of() {
    case $1 in
    *_wide*) echo -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mavx512vbmi2 -mbmi -mbmi2 -mpopcnt ;;
    *avx2*) echo -mavx2 -mfma ;;
    *avx512*) echo -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma ;;
    esac
}
# One call a file: clang-tidy 14 mixes up va_list checks between files of one call.
tidy() {
    local isa
    isa="$flags $(isa_of "$1")"
    case $1 in
    *neon*)
        [ -d /usr/aarch64-linux-gnu/include ] || { echo "skipped: clang-tidy of $1: no headers for arm64"; return 0; }
        isa="--target=aarch64-linux-gnu -isystem /usr/aarch64-linux-gnu/include"
        ;;
    esac
    clang-tidy --quiet --warnings-as-errors='*' "$1" -- -std=c11 -D_GNU_SOURCE -DATTND_VERSION='"0"' -I. $isa 2>/dev/null
}
# The analyzer of gcc. It loses sight of what an element of an array owns: leaks are for ASan to find.
analyze() {
    case $1 in *neon*) return 0 ;; esac
    gcc -std=c11 -D_GNU_SOURCE -DATTND_VERSION='"0"' -I. $flags $(isa_of "$1") -O1 -Werror -fanalyzer \
        -Wno-analyzer-malloc-leak -S -o /dev/null "$1"
}
export -f isa_of tidy analyze
export flags
each() { ls core/*.c config/*.c server/*.c | xargs -P "$(nproc)" -I{} bash -c "$1 {}"; }
each tidy || say "clang-tidy"

# Each version of these two is mistaken about other places; the tree is clean to those of Debian 12.
if [ "$(gcc -dumpversion)" = 12 ]; then
    each analyze || say "gcc -fanalyzer"
else
    echo "skipped: gcc -fanalyzer: gcc is version $(gcc -dumpversion), the tree is clean to 12"
fi
# What cppcheck 2.10 gets wrong as a class: arrays of texts that snprintf() fills, and the bytes of a tensor, which
# are of the type that its dtype says.
if [ "$(cppcheck --version)" = "Cppcheck 2.10" ]; then
    cppcheck -j"$(nproc)" -q --std=c11 --enable=warning,performance,portability --error-exitcode=1 --inline-suppr \
        --suppress=missingIncludeSystem --suppress=legacyUninitvar --suppress=invalidPointerCast \
        -D_GNU_SOURCE -DATTND_VERSION='"0"' -D__x86_64__ -D__GNUC__=12 -I. core config server || say "cppcheck"
else
    echo "skipped: cppcheck: $(cppcheck --version), the tree is clean to 2.10"
fi
[ $bad -eq 0 ] && echo "lint: clean"
exit $bad

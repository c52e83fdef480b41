#!/bin/sh
# Prints the C source of the embedded files: server/embed.sh PATH=FILE...
# The assembler brings in the bytes; an entity tag is the beginning of their SHA-256.
set -eu
n=0
table=
echo '#include "server/assets.h"'
for arg; do
    path=${arg%%=*} file=${arg#*=}
    tag=$(sha256sum "$file" | cut -c 1-16)
    cat <<END

__asm__(".pushsection .rodata\n"
        ".globl srv_asset_$n, srv_asset_${n}_end\n"
        ".hidden srv_asset_$n, srv_asset_${n}_end\n"
        "srv_asset_$n: .incbin \"$file\"\n"
        "srv_asset_${n}_end: .byte 0\n"
        ".popsection");
extern const char srv_asset_$n[] __attribute__((visibility("hidden")));
extern const char srv_asset_${n}_end[] __attribute__((visibility("hidden")));
END
    table="$table
    {\"$path\", \"$file\", srv_asset_$n, srv_asset_${n}_end, \"\\\"$tag\\\"\"},"
    n=$((n + 1))
done
cat <<END

const srv_asset srv_assets[] = {$table
    {0, 0, 0, 0, 0}};
END

#!/bin/sh
# Prints the C source of the embedded files: server/embed.sh FOLDER PATH=FILE...
# The assembler brings in the bytes, and those of a gzip copy that is made in FOLDER; an entity tag is the
# beginning of their SHA-256.
set -eu
folder=$1
shift
mkdir -p "$folder"
n=0
table=
echo '#include "server/assets.h"'
for arg; do
    path=${arg%%=*} file=${arg#*=}
    packed=$folder/$n.gz
    gzip -9nc "$file" >"$packed"
    tag=$(sha256sum "$file" | cut -c 1-16) packed_tag=$(sha256sum "$packed" | cut -c 1-16)
    cat <<END

__asm__(".pushsection .rodata\n"
        ".globl srv_asset_$n, srv_asset_${n}_end, srv_asset_${n}_packed, srv_asset_${n}_packed_end\n"
        ".hidden srv_asset_$n, srv_asset_${n}_end, srv_asset_${n}_packed, srv_asset_${n}_packed_end\n"
        "srv_asset_$n: .incbin \"$file\"\n"
        "srv_asset_${n}_end: .byte 0\n"
        "srv_asset_${n}_packed: .incbin \"$packed\"\n"
        "srv_asset_${n}_packed_end: .byte 0\n"
        ".popsection");
extern const char srv_asset_$n[] __attribute__((visibility("hidden")));
extern const char srv_asset_${n}_end[] __attribute__((visibility("hidden")));
extern const char srv_asset_${n}_packed[] __attribute__((visibility("hidden")));
extern const char srv_asset_${n}_packed_end[] __attribute__((visibility("hidden")));
END
    table="$table
    {\"$path\", \"$file\",
     {srv_asset_$n, srv_asset_${n}_end, \"\\\"$tag\\\"\"},
     {srv_asset_${n}_packed, srv_asset_${n}_packed_end, \"\\\"$packed_tag\\\"\"}},"
    n=$((n + 1))
done
cat <<END

const srv_asset srv_assets[] = {$table
    {0, 0, {0, 0, 0}, {0, 0, 0}}};
END

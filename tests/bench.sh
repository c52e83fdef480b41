#!/bin/bash
# Times the layer with every kind of kernels that this machine has, in turn for each shape:
# tests/bench.sh ATTND. SHAPES="B,T,D,H ...", WHAT="layer core maps causal heads" and KERNELS="avx512 ..." choose.
# A cell is the median time and the share of the multiply-add peak that the best kernels reach; "heads" is the
# core at T = 1024 with head sizes from 16 to 256, odd ones too.
set -eu
attnd=${1:?usage: tests/bench.sh ATTND}
isas=()
for isa in ${KERNELS:-avx512 avx2 neon blas ref}; do
    if reason=$(ATTND_ISA=$isa "$attnd" --version 2>&1 >/dev/null); then
        isas+=("$isa")
    else
        echo "skipped: kernels $isa: ${reason#attnd: }"
    fi
done

field() { # NAME in the line of JSON on stdin
    sed -n "s/.*\"$1\":\([0-9.e+-]*\).*/\1/p"
}

printf '%-6s %-16s' what B,T,D,H
printf ' %18s' "${isas[@]}"
echo
for what in ${WHAT:-layer core maps causal heads}; do
    shapes="1,16,384,12 1,128,768,12 8,128,768,12 1,512,768,12 1,1024,512,8"
    case $what in
    layer) option= ;;
    core | maps | causal) option=--$what ;;
    heads)
        option=--core
        shapes="1,1024,512,32 1,1024,512,16 1,1024,528,16 1,1024,768,16 1,1024,512,8 1,1024,520,8 1,1024,640,8"
        shapes="$shapes 1,1024,768,8 1,1024,600,6 1,1024,512,4 1,1024,512,2"
        ;;
    *) echo "$0: WHAT knows layer, core, maps, causal and heads, not $what" >&2; exit 1 ;;
    esac
    for shape in ${SHAPES:-$shapes}; do
        printf '%-6s %-16s' "$what" "$shape"
        peak=
        for isa in "${isas[@]}"; do
            line=$(ATTND_ISA=$isa "$attnd" bench --json $option --shape "$shape")
            peak=${peak:-$(field peak_gflops <<<"$line")}
            awk -v ms="$(field ms <<<"$line")" -v gflops="$(field gflops <<<"$line")" -v peak="$peak" \
                'BEGIN { printf " %9.4g ms, %2.0f %%", ms, 100 * gflops / peak }'
        done
        echo
    done
done

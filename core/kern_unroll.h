/* kern_unroll.h: loops that must vanish, for the kern_<isa>.c files: an array of accumulators is kept in
 * registers only when every index into it is a constant. */
#ifndef ATTN_KERN_UNROLL_H
#define ATTN_KERN_UNROLL_H

#if defined(__clang__) /* which passes over gcc's pragma */
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define INLINE static inline __attribute__((always_inline))

/* What a kern_<isa>.c file gives the table, after kern_tile.h, kern_rows.h and kern_layer.h. */
#define KERN_TABLE(name)                                                                           \
    .isa = (name), .panel = PANEL, .lanes = LANES, .row_block = 1, .product = product,             \
    .softmax = softmax, .scale = scale, .stream = stream, .end_streams = end_streams,              \
    .scale_add = scale_add, .activate = activate, .norm = norm, .transpose = transpose,            \
    .all_finite = all_finite, .fma_burst = fma_burst

#endif

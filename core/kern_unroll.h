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

#endif

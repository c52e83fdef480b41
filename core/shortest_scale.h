/* shortest_scale.h: the constants that core/shortest.c multiplies with. */
#ifndef ATTN_SHORTEST_SCALE_H
#define ATTN_SHORTEST_SCALE_H

#include <stdint.h>

/* The step between float32 numbers of the biased exponent e, in tens of the last decimal digit that a
 * shortest text can need: with q = max(e, 1) - 150 and k = floor(log10(2^q)), the integer part of
 * 2^64 * 2^q / 10^(k+1). It is at least a tenth of 2^64. */
extern const uint64_t attn_shortest_scale[255];

#endif

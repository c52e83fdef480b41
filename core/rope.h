/* rope.h: rotary position embedding (Su et al. 2021, arXiv 2104.09864). */
#ifndef ATTN_ROPE_H
#define ATTN_ROPE_H

#include "layer.h"

/* frequency[dims/2]: theta^(-2m/dims), scaled as the rope says. Radians a position. */
void attn_rope_frequencies(const attn_rope *rope, double *frequency);

/* cosine[n], sine[n] of position * frequency[n]; angles in double, rounded once. */
void attn_rope_angles(const double *frequency, size_t n, int64_t position, float *cosine,
                      float *sine);

/* Rotates n pairs of one head, (a, b) -> (a cos - b sin, b cos + a sin). Pair m is x[m], x[m + half] in
 * style HALF (half = dims/2), x[2m], x[2m + 1] in style INTERLEAVED; n = dims/2 rotates all. */
void attn_rope_rotate(float *x, size_t n, size_t half, attn_rope_style style, const float *cosine,
                      const float *sine);

#endif

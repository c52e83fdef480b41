/* kern.h: the inner loops, behind one table, chosen once at start.
 *
 * "ref" is plain C and the definition. "avx2", "avx512" and "neon" are ours for these processors; "blas" takes the
 * matrix product from OpenBLAS and is what every other processor gets. */
#ifndef ATTN_KERN_H
#define ATTN_KERN_H

#include <stdbool.h>
#include <stddef.h>

#include "status.h"

/* A matrix [k, n] packed for the product: panels of `panel` columns, the last one narrower (a multiple of
 * `lanes`, filled up with zeros). Panel p is [k][width], contiguous, at p * panel * k. */

/* c[m,n] = a[m,k] b + bias. b is one panel of width w = n rounded up to lanes;
 * n <= panel. Every element is bias, then k fused multiply-adds in order of k; in ref and
 * blas the rounding may differ. So it does not depend on m, n or the place of its row: rows may be split and
 * joined freely (but see attn_kern.row_block). k = 0 gives the bias. */
typedef struct {
    size_t m, n, k;
    const float *a;
    size_t lda; /* row strides, in elements */
    const float *b;
    float *c;
    size_t ldc;
    const float *bias; /* [n], or NULL */
    const float *next; /* the panel that this thread reads next, to be fetched ahead; or NULL */
} attn_product;

/* One more stretch of the scores of some rows, in the running softmax of Milakov and Gimelshein (2018, arXiv
 * 1805.02867): every x becomes exp(x - max) with the largest score seen so far; max and sum (at first
 * -Infinity and 0) are brought up to date, and what was gathered from earlier stretches must be multiplied by
 * factor = exp(old max - max). NaN stays and shows in the sum. Relative error of an x: 2e-7 + 6e-8 times the distance
 * from max; below 2^-126 it may be 0. */
typedef struct {
    float *x; /* rows of n, row stride ld */
    size_t rows, n, ld;
    float *max, *sum, *factor; /* [rows] */
} attn_softmax;

/* What a feed-forward layer does to each number: x Phi(x) with the normal distribution's Phi, exact or by
 * the hyperbolic tangent (Hendrycks and Gimpel 2016, arXiv 1606.08415); max(x, 0); x / (1 + exp(-x)). */
typedef enum { ATTN_GELU, ATTN_GELU_TANH, ATTN_RELU, ATTN_SILU } attn_activation;

/* x = activation(x), times gate where there is one. GELU and SILU are right to 1e-7 of |x| or of 1, the larger; NaN
 * stays. An element's bits do not depend on its place. */
typedef struct {
    attn_activation kind;
    float *x; /* rows of n, row stride ld */
    size_t rows, n, ld;
    const float *gate; /* laid out like x, or NULL */
    size_t gate_ld;
} attn_activate;

/* sum = x + add; out = (sum - mean) / sqrt(variance + eps) * weight + bias, row by row (Ba, Kiros and Hinton 2016,
 * arXiv 1607.06450). Rows of n lie behind each other in all of them. */
typedef struct {
    float *out;
    float *sum; /* may be x; NULL = not wanted */
    const float *x;
    const float *add; /* may be out; NULL = zeros */
    size_t rows, n;
    const float *weight;
    const float *bias; /* or NULL */
    float eps;
} attn_norm;

typedef struct {
    const char *isa;
    size_t panel, lanes;
    /* Where the rows of a product may be cut without changing a bit: at multiples of this, counted
     * from the first row of all. 1, as a row depends on no other; but more for blas, whose bits
     * depend on n and k too. */
    size_t row_block;
    void (*product)(const attn_product *p);
    void (*softmax)(const attn_softmax *s); /* n a multiple of lanes */
    /* out = factor x; "stream" is for what will not be read soon, and its thread calls end_streams() before others
     * may read it. */
    void (*scale)(float *out, const float *x, size_t n, float factor);
    void (*stream)(float *out, const float *x, size_t n, float factor);
    void (*end_streams)(void);
    void (*scale_add)(float *out, const float *x, size_t n,
                      float factor); /* out = factor out + x */
    void (*activate)(const attn_activate *a);
    void (*norm)(const attn_norm *m);
    void (*transpose)(float *out, size_t out_stride, const float *in, size_t in_stride, size_t rows,
                      size_t columns); /* out[c][r] = in[r][c] */
    bool (*all_finite)(const float *x, size_t n);
    double (*fma_burst)(size_t n); /* n rounds of multiply-adds; returns the flops of one round */
} attn_kern;

/* The table in force; filled by attn_kern_init(), read-only afterwards. */
extern attn_kern attn_kernels;

/* Chooses by name; NULL = the best here. ATTN_EINVAL: no such name; ATTN_EUNSUPPORTED: not on this
 * processor. Call once, before the first thread and before the first layer is packed. */
ATTN_NODISCARD attn_status attn_kern_init(const char *isa, attn_error *err);

/* Width of panel p of a packed [k, n] matrix, and floats of all its panels. */
size_t attn_panel_width(size_t n, size_t p);
size_t attn_packed_floats(size_t k, size_t n);
size_t attn_panel_count(size_t n);

/* Packs columns [c0, c0 + rows) of the [k, n] matrix at `packed` from the transposed rows in[rows][k] (row
 * stride `stride`). Columns that nobody packs must have been zeroed. */
void attn_pack_transposed(float *packed, size_t k, size_t n, size_t c0, const float *in,
                          size_t rows, size_t stride);

/* Packs rows [r0, r0 + rows) of the [k, n] matrix from in[rows][n], row stride `stride`. */
void attn_pack_rows(float *packed, size_t k, size_t n, size_t r0, const float *in, size_t rows,
                    size_t stride);

void attn_transpose_plain(float *out, size_t out_stride, const float *in, size_t in_stride,
                          size_t rows, size_t columns);
void attn_kern_init_ref(attn_kern *k);  /* kern_ref.c */
void attn_kern_init_blas(attn_kern *k); /* gemm.c */
#if defined(__x86_64__)
void attn_kern_init_avx2(attn_kern *k);
void attn_kern_init_avx512(attn_kern *k);
#elif defined(__aarch64__)
void attn_kern_init_neon(attn_kern *k);
#endif

#endif

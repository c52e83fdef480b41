/* kern.h: the inner loops, behind one table, chosen once at start.
 *
 * "ref" is plain C and the definition. "avx2" and "avx512" have the loops over rows for these processors.
 * All but "ref" take the matrix product from OpenBLAS; "blas" is what every other processor gets. */
#ifndef ATTN_KERN_H
#define ATTN_KERN_H

#include <stdbool.h>
#include <stddef.h>

#include "status.h"

/* c[m,n] (+)= a[m,k] b, where b is [k,n] or, transposed, [n,k]; ld* are row strides in elements.
 * `add` keeps what c holds as a first summand. k = 0 gives zeros (or keeps c). An element's bits may
 * depend on m, n and k, but on nothing else: equal calls give equal bits. */
typedef struct {
    size_t m, n, k;
    const float *a;
    size_t lda;
    const float *b;
    size_t ldb;
    bool b_transposed;
    float *c;
    size_t ldc;
    bool add;
} attn_product;

typedef struct {
    const char *isa;
    void (*product)(const attn_product *p);
    float (*row_max)(const float *x, size_t n);      /* NaN is skipped; n = 0: -Infinity */
    float (*exp_sum)(float *x, size_t n, float max); /* x = exp(x - max); returns the sum */
    void (*scale)(float *out, const float *x, size_t n, float factor);
    bool (*all_finite)(const float *x, size_t n);
    double (*fma_burst)(size_t n); /* n rounds of multiply-adds; returns the flops of one round */
} attn_kern;

/* The table in force; filled by attn_kern_init(), read-only afterwards. */
extern attn_kern attn_kernels;

/* Chooses by name; NULL = the best here. ATTN_EINVAL: no such name; ATTN_EUNSUPPORTED: not on this
 * processor. Call once, before the first thread. */
ATTN_NODISCARD attn_status attn_kern_init(const char *isa, attn_error *err);

void attn_kern_init_ref(attn_kern *k);  /* kern_ref.c */
void attn_kern_init_blas(attn_kern *k); /* gemm.c */
#if defined(__x86_64__)
void attn_kern_init_avx2(attn_kern *k);
void attn_kern_init_avx512(attn_kern *k);
#endif

#endif

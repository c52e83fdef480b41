/* dense.h: y = x W + b with W packed for the kernels in force. */
#ifndef ATTN_DENSE_H
#define ATTN_DENSE_H

#include <stddef.h>

typedef struct {
    size_t in, out;
    float *weight; /* packed [in, out] */
    float *bias;   /* [out], or NULL */
} attn_dense;

/* Rows of x behind each other, ldx apart, times columns [c0, c1) of W, which begin and end with a panel; column c0 of
 * the result goes to y[0]. Where rows may be cut: attn_kernels.row_block. */
typedef struct {
    const float *x;
    size_t ldx, rows, c0, c1;
    float *y;
    size_t ldy;
    const float *next; /* the weights that this thread reads next, to be fetched ahead; or NULL */
} attn_dense_part;

void attn_dense_multiply(const attn_dense *d, const attn_dense_part *p);

#endif

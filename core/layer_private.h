/* layer_private.h: what a layer holds; for attention.c and layer.c alone. */
#ifndef ATTN_LAYER_PRIVATE_H
#define ATTN_LAYER_PRIVATE_H

#include "layer.h"

struct attn_layer {
    attn_layer_spec spec;
    float *wq;                /* packed [d_model, H*d] */
    float *wk;                /* packed [d_kv, G*d] */
    float *wv;                /* packed [d_kv, G*e] */
    float *wo;                /* packed [H*e, d_out] */
    float *bq, *bk, *bv, *bo; /* or NULL */
    float *q_norm, *k_norm;   /* [d], or NULL */
    double *frequency;        /* [rope.dims/2], or NULL */
    float *slope;             /* [H] of ALiBi, or NULL */
    float *relative;          /* [H][2*rel_max_distance+1] by clamped j - p, or NULL */
    void *block;              /* all of the above */
    size_t bytes;
};

#endif

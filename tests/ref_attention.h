/* ref_attention.h: the textbook oracle.
 *
 * One attention layer for one sequence, in double precision, with the plainest loops that say what
 * the words say. It shares no code with core. H query heads, G key heads, d and e the head sizes of
 * keys and values, T queries, S = past + new keys. */
#ifndef TESTS_REF_ATTENTION_H
#define TESTS_REF_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { REF_ROPE_NONE, REF_ROPE_HALF, REF_ROPE_INTERLEAVED } ref_rope_style;
typedef enum { REF_SCALING_NONE, REF_SCALING_LINEAR, REF_SCALING_LLAMA3 } ref_rope_scaling;

typedef struct {
    size_t tokens, new_keys, past;
    size_t d_model, d_kv, d_out;
    size_t heads, kv_heads, head_dim, v_head_dim;

    /* With projections (wq given): y = x w^T + b; missing biases and norms are NULL. */
    const double *x;       /* [T, d_model] */
    const double *context; /* [new_keys, d_kv]; NULL = x */
    const double *wq, *wk, *wv, *wo;
    const double *bq, *bk, *bv, *bo;
    const double *q_norm, *k_norm; /* [d] weights of an RMSNorm over each head */
    double norm_eps;
    /* Without: heads as they are. */
    const double *query; /* [H,T,d] */
    const double *key;   /* [G,new_keys,d] */
    const double *value; /* [G,new_keys,e] */

    const double *past_key, *past_value; /* [G,P,d], [G,P,e] */

    double scale, softcap; /* softcap 0 = off */
    bool causal;
    int64_t causal_offset;
    int64_t window_left, window_right; /* -1 = no limit */
    ref_rope_style rope;
    size_t rope_dims;
    double rope_theta;
    ref_rope_scaling rope_scaling;
    double rope_factor, rope_low, rope_high, rope_original;
    int64_t query_position, key_position; /* of the first query and the first new key */
    const int64_t *positions;             /* [T]: given ones, for queries and (self) new keys */
    bool alibi;
    size_t rel_buckets, rel_max_distance; /* T5; 0 = none */
    bool rel_bidirectional;
    const double *rel_bias;    /* [rel_buckets, H] */
    size_t key_end;            /* keys from here on are padding; S = none is */
    const unsigned char *mask; /* nonzero = may attend; strides per head, query, key */
    size_t mask_stride[3];
    const double *bias; /* added; -inf = masked */
    size_t bias_stride[3];

    /* Results; NULL = not wanted. */
    double *outputs;                             /* [T, d_out], or without projections [H,T,e] */
    double *maps, *scores, *softcapped, *masked; /* [H,T,S]; masked: -inf where not allowed */
    unsigned char *allowed;                      /* [H,T,S] */
    double *joined;                              /* [T, H*e] */
    double *logsumexp;                           /* [H,T]; -inf for a row without keys */
    double *query_out, *key_out, *value_out;     /* [H,T,d], [G,S,d], [G,S,e] */
    size_t fully_masked_rows;                    /* over H and T */
} ref_attention;

/* A struct with everything off: no causality, no window, no padding, scale 1. */
ref_attention ref_attention_default(void);

void ref_attention_run(ref_attention *r);

/* The parts that have vectors of their own. Rotates one head vector of `dims` leading elements by the
 * angles whose cosines and sines are given, dims/2 each. */
void ref_rotate(double *head, ref_rope_style style, size_t dims, const double *cosine,
                const double *sine);
double ref_alibi_slope(size_t head, size_t heads);
size_t ref_t5_bucket(int64_t relative, size_t buckets, size_t max_distance, bool bidirectional);

#endif

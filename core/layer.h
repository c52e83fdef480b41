/* layer.h: one attention layer, its hyper-parameters and its weights.
 *
 * The letters, everywhere: B batch, T query tokens, S key tokens, P past tokens, D d_model,
 * H num_heads, G num_kv_heads, d head_dim, e v_head_dim. Row-major float32. */
#ifndef ATTN_LAYER_H
#define ATTN_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

/* Query at p = i + causal_offset sees keys p-left .. p+right; -1 = no limit on that side. */
typedef struct {
    int64_t left, right;
} attn_window;

typedef enum {
    ATTN_ROPE_NONE,
    ATTN_ROPE_HALF,       /* pairs (m, m + dims/2): GPT-NeoX, Hugging Face */
    ATTN_ROPE_INTERLEAVED /* pairs (2m, 2m + 1): GPT-J, Meta's originals */
} attn_rope_style;

typedef enum {
    ATTN_ROPE_SCALE_NONE,
    ATTN_ROPE_SCALE_LINEAR,
    ATTN_ROPE_SCALE_LLAMA3
} attn_rope_scaling;

/* Rotary embedding: frequency m of the first `dims` elements of a head is theta^(-2m/dims), then
 * scaled (LINEAR: / factor; LLAMA3: by wavelength, with the four numbers of that scheme). */
typedef struct {
    attn_rope_style style;
    size_t dims; /* even, 0 < dims <= head_dim */
    double theta;
    attn_rope_scaling scaling;
    double factor, low_freq_factor, high_freq_factor, original_max_position;
} attn_rope;

typedef struct {
    size_t d_model; /* width of the input */
    size_t d_kv;  /* width of what keys and values are projected from; d_model in self attention */
    size_t d_out; /* width of the output */
    size_t num_heads, num_kv_heads; /* H is a multiple of G; query head h uses key head h / (H/G) */
    size_t head_dim, v_head_dim;
    float scale;   /* of the scores; the loader has already put 1/sqrt(head_dim) where due */
    float softcap; /* c * tanh(score / c) before bias and mask; 0 = off */
    bool is_causal;
    attn_window window;
    attn_rope rope;
    bool alibi; /* bias -slope[h] * |i + causal_offset - j| */
    /* T5's relative bias: 0 buckets = none. weights.rel_bias is [rel_buckets, H]. */
    size_t rel_buckets, rel_max_distance;
    bool rel_bidirectional;
    float
        qk_norm_eps; /* of the RMSNorm over each head's query and key; used when q_norm is given */
    bool cross;      /* keys and values must come from encoder_hidden_states */
} attn_layer_spec;

/* Row-major float32 as [out,in]; biases, norms and rel_bias may be NULL. Borrowed for the call. */
typedef struct {
    const float *wq; /* [H*d, d_model] */
    const float *wk; /* [G*d, d_kv] */
    const float *wv; /* [G*e, d_kv] */
    const float *wo; /* [d_out, H*e] */
    const float *bq, *bk, *bv, *bo;
    const float *q_norm, *k_norm; /* [d], or both NULL; multiplied after x / rms(x) */
    const float *rel_bias;        /* [rel_buckets, H] */
} attn_layer_weights;

typedef struct attn_layer attn_layer; /* immutable once made; share it across threads */

/* ATTN_EINVAL with the numbers: heads >= 1, H % G == 0, sizes without overflow, rope dims, finite scale,
 * softcap >= 0, window sides >= -1. */
ATTN_NODISCARD attn_status attn_layer_check_spec(const attn_layer_spec *spec, attn_error *err);

/* Checks the spec and packs a copy of the weights for the
 * kernels in force: attn_kern_init() comes first. */
ATTN_NODISCARD attn_status attn_layer_new(attn_layer **out, const attn_layer_spec *spec,
                                          const attn_layer_weights *weights, attn_error *err);
void attn_layer_free(attn_layer *layer); /* takes NULL */

const attn_layer_spec *attn_layer_get_spec(const attn_layer *layer);
size_t attn_layer_bytes(const attn_layer *layer); /* heap that its weights take */

#endif

/* attention.h: the attention layer.
 *
 * For every head h with key head g = h / (H/G):
 *   scores   = scale * q k^T                     (q, k projected, normalised, rotated)
 *   capped   = softcap * tanh(scores / softcap)
 *   masked   = capped + alibi + relative + bias, -inf where not allowed
 *   maps     = softmax(masked), a row without any allowed key is all zeros
 *   context  = maps v;  output = joined contexts Wo^T + bo
 *
 * A sequence's results depend on that sequence, the layer and the call's options alone, bit for bit:
 * not on its batch, the number of threads, or what else is asked for. */
#ifndef ATTN_ATTENTION_H
#define ATTN_ATTENTION_H

#include <stdatomic.h>

#include "layer.h"
#include "pool.h"

typedef enum { ATTN_PROBABILITIES, ATTN_SCORES, ATTN_SOFTCAPPED, ATTN_MASKED } attn_stage;
typedef enum { ATTN_REDUCE_NONE, ATTN_REDUCE_MEAN, ATTN_REDUCE_MAX } attn_reduce;
typedef enum { ATTN_POOL_NONE, ATTN_POOL_MEAN, ATTN_POOL_MAX } attn_pooling;

/* An operand that lies somewhere as [heads][rows][width]; strides in elements. */
typedef struct {
    float *data;
    size_t head_stride, row_stride;
} attn_view;

/* One sequence. Everything is borrowed for the call. NULL outputs are not wanted; only rows of real
 * tokens are written. Operands of a call without a layer that hold NaN or Inf where nothing attends
 * to are set to zero in place. */
typedef struct {
    size_t index;    /* its number in the request, for messages */
    size_t first;    /* of a slice: the sequence's token that is its query 0, for messages */
    size_t q_len;    /* T: query tokens */
    size_t kv_len;   /* new key tokens, T in self attention */
    size_t past_len; /* P; S = P + kv_len */

    /* With a layer: the inputs. */
    const float *x;       /* [T, d_model] */
    const float *context; /* [kv_len, d_kv]; NULL = self attention */
    /* Without a layer: query, and new key and value. */
    attn_view query, key, value;

    const float *past_key, *past_value; /* [G,P,d] and [G,P,e], contiguous, or both NULL */
    const float *keys; /* all keys and values as attn_prepare() packed them, or NULL */

    int64_t causal_offset;
    int64_t position_offset;     /* rotary position of the first new token (query) */
    int64_t key_position_offset; /* of the first new key: the same in self attention, 0 in cross */
    const int64_t *positions;    /* [T] explicit rotary positions (queries, and keys in self) */

    const unsigned char *mask; /* nonzero = may attend; NULL = all */
    size_t mask_stride[3];     /* elements per head, query, key; 0 = broadcast */
    const float *bias;         /* added to the scores; -inf = masked */
    size_t bias_stride[3];

    float *output; /* [T, d_out]; without a layer [H,T,e] by output_head_stride */
    size_t output_head_stride;
    float *joined_context;        /* [T, H*e] */
    size_t map_rows, map_columns; /* queries q_from.., keys k_from..; columns past S are masked */
    /* Per chosen head (or one when reduced) rows q_from.., columns k_from... Pooled: the first pooled rows of
     * a head's map_rows hold the result, the others are used on the way. With top_k: the values. */
    attn_view maps;
    int32_t *top_keys; /* with top_k: [chosen][map_rows][top_k] by top_head_stride, keys from 0 */
    float *top_rest;   /* [chosen][map_rows]: what the other keys sum to */
    size_t top_head_stride;       /* of top_keys; that of top_rest is map_rows */
    attn_view query_out;          /* [H][T][d] */
    attn_view key_out, value_out; /* [G][S][d], [G][S][e], past included */
    float *logsumexp;             /* [H][T] by lse_head_stride; -inf for a row without keys */
    size_t lse_head_stride;
} attn_sequence;

typedef struct {
    float scale, softcap;
    bool is_causal;
    attn_window window;
    bool want_maps;
    attn_stage stage;
    attn_reduce reduce;
    const size_t *heads;   /* chosen heads of the maps in the order of the answer; NULL = all */
    size_t num_heads;      /* how many are chosen */
    size_t q_from, k_from; /* where the maps begin; each sequence says how far they go */
    /* What is kept of a map, formed strip by strip: the mean or the largest of each block of cells (blocks at the
     * far edges may be smaller), or each row's top_k largest cells, the largest first, equal ones by key. One
     * or the other. */
    attn_pooling pooling;
    size_t pool_rows, pool_columns; /* cells of a block, at least 1 */
    size_t top_k;                   /* 0 = off; at most map_columns */
} attn_options;

/* Sizes of a call without a layer. */
typedef struct {
    size_t num_heads, num_kv_heads, head_dim, v_head_dim;
} attn_heads;

typedef struct {
    size_t fully_masked_rows;
} attn_stats;

/* The workspace of a call: a share for each sequence (its lengths count, no data) and the workers'
 * scratch; with probability maps that grows with the longest S. Never less than one line of 64 bytes in total. */
size_t attn_sequence_bytes(const attn_layer *layer, const attn_heads *heads,
                           const attn_sequence *seq);
size_t attn_scratch_bytes(const attn_layer *layer, const attn_heads *heads,
                          const attn_options *options, size_t longest, size_t workers);

/* What a sequence counts for in `longest`: S, or the columns of its maps if they are more. */
size_t attn_row_length(const attn_sequence *seq);

/* Computes n sequences. layer != NULL: the whole layer (heads is ignored); NULL: attention alone.
 * `workspace` holds the sum of these, aligned to 64. `cancel` may be NULL; once it is true the
 * call returns ATTN_ECANCELED soon. Never allocates. One call at a time for a pool.
 *
 * ATTN_ENONFINITE: a NaN or Inf stands at a position that is attended, or a result overflows
 * float32 (err names sequence, token and head where known); results are then unspecified. NaN at
 * positions that nothing sees is harmless. */
ATTN_NODISCARD attn_status attn_forward(const attn_layer *layer, const attn_heads *heads,
                                        const attn_options *options, attn_sequence *seqs, size_t n,
                                        attn_pool *pool, void *workspace, const atomic_bool *cancel,
                                        attn_stats *stats, attn_error *err);

/* A long sequence can be computed in slices of its query rows: attn_prepare() packs its keys and values once
 * into `keys` (attn_keys_bytes(), aligned to 64) and writes key_out and value_out; then each slice is a sequence of
 * its own for attn_forward(), with `keys` set and everything that counts or points to query rows moved along
 * (x, q_len, causal_offset, position_offset, positions, mask, bias, results).
 * The bits are those of one call when each slice begins at a multiple of attn_kernels.row_block.
 * `seq` is the whole sequence; the workspace is that of a sequence with q_len 0 and `keys` set. */
size_t attn_keys_bytes(const attn_layer *layer, const attn_heads *heads, const attn_sequence *seq);
ATTN_NODISCARD attn_status attn_prepare(const attn_layer *layer, const attn_heads *heads,
                                        const attn_options *options, attn_sequence *seq,
                                        float *keys, attn_pool *pool, void *workspace,
                                        const atomic_bool *cancel, attn_error *err);

/* Copies keys (or values) [j0, j1) of key head g out of what attn_prepare() packed for a sequence of s_len
 * keys: out is [j1 - j0][d] or [j1 - j0][e], what key_out and value_out would hold. */
void attn_unpack_keys(const attn_heads *heads, size_t s_len, const float *keys, bool values,
                      size_t g, size_t j0, size_t j1, float *out);

#endif

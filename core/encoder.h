/* encoder.h: a whole encoder: embeddings, all layers with their feed-forward parts, pooling.
 *
 * A BERT-like checkpoint holds it beside its attention layers: BERT, RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA,
 * DistilBERT, ALBERT, ModernBERT. Sequences of any lengths are computed behind each other, [N, D] with N the sum of
 * their tokens, without padding. A sequence's results depend on that sequence, the model and the options that concern
 * them alone, bit for bit: not on its batch, the number of threads, or what else is asked for.
 *
 * Hidden state 0 is what enters the first layer and hidden state l leaves layer l - 1, as Hugging Face counts them;
 * the last one, L, is the encoder's output (of ModernBERT: behind its final norm). */
#ifndef ATTN_ENCODER_H
#define ATTN_ENCODER_H

#include "attention.h"
#include "model.h"

typedef struct attn_encoder attn_encoder; /* immutable; share it across threads */

/* The rows of a sequence become one vector: the mean or the largest of each column over the tokens that count, the
 * sum over the root of their number, or the first token's row. */
typedef enum {
    ATTN_EMBED_NONE,
    ATTN_EMBED_MEAN,
    ATTN_EMBED_CLS,
    ATTN_EMBED_MAX,
    ATTN_EMBED_MEAN_SQRT
} attn_embed;

typedef struct {
    size_t d_model, num_layers, num_heads;
    /* Of word embeddings, stored or given; ALBERT's are narrower than d_model. */
    size_t embed_width;
    size_t vocabulary; /* ids are 0 .. vocabulary - 1 */
    size_t types;      /* token types are 0 .. types - 1; 0 = there are none, and all must be 0 */
    size_t max_tokens; /* of a sequence, special ones included: there are no more positions */
    /* Where texts are cut: sentence-transformers' max_seq_length, else max_tokens. Then whether it puts texts in
     * lower case before all else. */
    size_t usual_tokens;
    bool lowercase;
    /* The model's own, ATTN_EMBED_MEAN where nothing says; never NONE. */
    attn_embed pooling;
    bool normalize;
    /* Why the model's own embeddings cannot be computed here ("... a module of type Dense is not supported ..."), or
     * NULL. Hidden states, maps and a pooling that the caller chooses can. */
    const char *no_embeddings;
} attn_encoder_info;

/* The model's encoder, with its life; NULL = it has none, and *reason (may be NULL) is one sentence that says why:
 * a family without one, tensors that are not there or have wrong shapes, an activation that is not known, a model of
 * which only some layers were loaded. */
const attn_encoder *attn_model_encoder(const attn_model *m, const char **reason);

const attn_encoder_info *attn_encoder_get_info(const attn_encoder *e);
/* Heap that it takes without the attention layers; attn_model_weights_bytes() counts it. */
size_t attn_encoder_bytes(const attn_encoder *e);

/* --- the call ------------------------------------------------------------------------------------------------ */

/* One sequence of T tokens, 1 <= T <= max_tokens. Everything is borrowed for the call. NULL results are not wanted. */
typedef struct {
    size_t index;  /* its number in the request, for messages */
    size_t tokens; /* T */

    const int32_t *ids;   /* [T]; or NULL, and then: */
    const float *embeds;  /* [T, embed_width], before position, type and norm */
    const int32_t *types; /* [T]; NULL = all 0 */

    const unsigned char *mask;    /* nonzero = may attend, in every layer; NULL = all */
    size_t mask_stride[3];        /* elements per head, query, key; 0 = broadcast */
    const unsigned char *counted; /* [T]; zero = left out of the embedding; NULL = all count */

    float *embedding; /* [D]; zeros when no token counts */
    float *hidden;    /* a chosen state is [T, D], and slot i begins at i * hidden_stride */
    size_t hidden_stride;
    /* As in attn_sequence, for each chosen layer: slot i begins i * the stride behind these. Strides of 0 write every
     * layer to the same place, for who takes results away in `done`. */
    size_t map_rows, map_columns;
    attn_view maps;
    int32_t *top_keys;
    float *top_rest;
    size_t top_head_stride;
    size_t maps_stride, top_keys_stride, top_rest_stride; /* elements per layer */
    float *rollout;                                       /* [T, T] */
} attn_encode_sequence;

typedef struct {
    attn_embed pooling; /* of `embedding`; the caller puts in the model's own */
    bool normalize;     /* to length 1; zeros stay */

    /* Chosen hidden states, 0 .. L; a place here is a slot. One that is here twice is written twice. */
    const size_t *hidden;
    size_t num_hidden;
    const size_t *map_layers; /* layers whose maps are wanted, 0 .. L - 1 */
    size_t num_map_layers;
    /* What the maps are: stage, reduce, heads, num_heads, q_from, k_from, pooling, pool_rows, pool_columns and top_k
     * are looked at; each layer has its own scale, window and so on. */
    attn_options maps;
    /* Attention rollout (Abnar and Zuidema 2020, arXiv 2005.00928): the product, later layers to the left, of the
     * mean over heads of each layer's map, half of it and half the identity, rows summing to 1. */
    bool rollout;

    /* Called when hidden state `state` and, but for state 0, the maps of layer state - 1 of all sequences of the call
     * are written; NULL = not wanted. Not called for what is not chosen. Another status than ATTN_OK ends the call
     * with it. */
    attn_status (*done)(void *arg, size_t state, attn_error *err);
    void *done_arg;
} attn_encode_options;

/* ATTN_EINVAL or ATTN_ESHAPE: ids, types or lengths out of range, with sequence, token and value. attn_encode()
 * wants this to have passed. */
ATTN_NODISCARD attn_status attn_encode_check(const attn_encoder *e, const attn_encode_sequence *seq,
                                             attn_error *err);

/* The workspace of a call: a share for each sequence (its length and which results it wants count), and the workers'
 * scratch, which grows with the longest sequence: its tokens, or the columns of its maps if they are more. */
size_t attn_encode_sequence_bytes(const attn_encoder *e, const attn_encode_options *options,
                                  const attn_encode_sequence *seq);
size_t attn_encode_scratch_bytes(const attn_encoder *e, const attn_encode_options *options,
                                 size_t longest, size_t workers);

/* Computes n sequences. `workspace` holds the sum of these, aligned to 64. `cancel` may be NULL; once it is true the
 * call returns ATTN_ECANCELED soon. Never allocates. One call at a time for a pool.
 *
 * ATTN_ENONFINITE: an embedding that was given, or a result, is NaN or overflows float32 (err names sequence,
 * token and layer where known); results are then unspecified. */
ATTN_NODISCARD attn_status attn_encode(const attn_encoder *e, const attn_encode_options *options,
                                       const attn_encode_sequence *seqs, size_t n, attn_pool *pool,
                                       void *workspace, const atomic_bool *cancel,
                                       attn_stats *stats, attn_error *err);

#endif

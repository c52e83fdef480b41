/* encode.h: requests for a whole encoder: texts, token ids or embeddings in; embeddings, hidden states and the maps of
 * all layers out. What attention has in common with them, a srv_request holds; what only they have stands here. */
#ifndef SRV_ENCODE_H
#define SRV_ENCODE_H

#include "core/encoder.h"
#include "server/request.h"

struct srv_encode {
    const attn_encoder *encoder;
    const attn_encoder_info *info;
    attn_encode_options options;
    size_t *hidden, *layers; /* chosen ones, for the options */

    /* Of all sequences, one after the other. first[b] .. first[b + 1] are the tokens of sequence b, padding among them;
     * `ids` is NULL when embeddings came in. */
    size_t *first;
    int32_t *ids, *types;
    unsigned char *counted; /* zero = left out of the embedding; NULL = all count */
    bool *truncated;

    attn_encode_sequence *seqs; /* those that have tokens */
    size_t num_seqs;

    /* Results, NULL when not asked for: [chosen][sequences] of what each has, and of the first and last one
     * [sequences]. */
    bool want_embeddings, want_hidden, want_maps;
    float *embeddings, *states, *maps, *top_rest, *rollout;
    int32_t *top_keys;
    size_t states_stride, maps_stride, top_rest_stride; /* elements of one layer */
    size_t maps_room; /* as maps_stride, where pooled maps are computed: with all their rows */
    char *block;      /* holds all results */
};

/* The members and kinds of these bodies, of srv_request_new(), which makes `encode` for them. */
bool srv_is_encode(srv_request_kind kind);
ATTN_NODISCARD attn_status srv_encode_new(srv_encode **out, attn_error *err);
void srv_encode_free(srv_encode *e); /* takes NULL */

/* What srv_request_parse(), _admit() and _step() do for these. */
ATTN_NODISCARD attn_status srv_encode_parse(srv_request *r, size_t workers, attn_error *err);
ATTN_NODISCARD attn_status srv_encode_allocate(srv_request *r, attn_error *err);
ATTN_NODISCARD attn_status srv_encode_step(srv_request *r, attn_pool *pool,
                                           const atomic_bool *cancel, attn_error *err);
/* A call has computed all sequences up to `end` of seqs. */
void srv_encode_end_call(srv_request *r, size_t end, const attn_stats *stats);

/* encode_inputs.c: texts, ids or embeddings into first, ids, types and truncated; r->batch and r->sizes. */
ATTN_NODISCARD attn_status srv_encode_read_inputs(srv_request *r, attn_error *err);
/* Where a model's texts are cut: at sentence-transformers' max_seq_length; where that says nothing, at what both the
 * model and its tokeniser (NULL = none) can take. */
size_t srv_encode_text_tokens(const attn_encoder_info *info, const attn_tokenizer *t);

/* encode_answer.c: the answer in its dialect, for r->answer, and the bytes of text in it that are held in memory. */
void srv_encode_answer(srv_json_writer *w, const srv_request *r);
size_t srv_encode_text_bytes(const srv_request *r);

#endif

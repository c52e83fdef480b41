/* request.h: what a request asks, checked, planned and ready to compute.
 *
 * Several bodies share one reader: a layer's attention, attention over the caller's own query, key and value, the
 * estimate of the first, and a whole encoder's in three dialects (encode.h). */
#ifndef SRV_REQUEST_H
#define SRV_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/attention.h"
#include "core/budget.h"
#include "core/model.h"
#include "core/tokenizer.h"
#include "server/json_reader.h"
#include "server/json_writer.h"
#include "server/plan.h"
#include "server/source.h"

typedef enum {
    SRV_ATTENTION,
    SRV_SDPA,
    SRV_ESTIMATE,
    SRV_ENCODE,
    SRV_EMBEDDINGS, /* OpenAI's body and answer */
    SRV_EMBED       /* text-embeddings-inference's */
} srv_request_kind;

/* The results that an answer can hold. */
typedef enum {
    SRV_QUERY,
    SRV_KEY,
    SRV_VALUE_HEADS,
    SRV_LOGSUMEXP,
    SRV_CONTEXT,
    SRV_INTERMEDIATES,
    SRV_OUTPUTS = SRV_INTERMEDIATES,
    SRV_MAPS,     /* with top_k: the values */
    SRV_TOP_KEYS, /* with top_k: their keys, int32 */
    SRV_TOP_REST, /* with top_k: what the other keys sum to */
    SRV_RESULTS
} srv_result_name;

/* One result in memory: sequence b begins at data + offset[b]. */
typedef struct {
    float *data; /* NULL = not asked for, or streamed */
    size_t *offset;
    size_t count; /* floats of all sequences */
    size_t *at;  /* pooled maps: where they are computed, with all their rows; NULL = at `offset` */
    size_t room; /* floats that computing them takes: `count`, or more for pooled maps */
} srv_result;

/* In what an answer leaves. Those behind JSON hold tensors alone. */
typedef enum { SRV_AS_JSON, SRV_AS_SAFETENSORS, SRV_AS_NPY, SRV_AS_PNG, SRV_FORMATS } srv_format;

/* The members of a body, see API.md sections 5 to 7 and 9. */
typedef enum {
    SRV_F_INPUTS_EMBEDS,
    SRV_F_ENCODER_HIDDEN_STATES,
    SRV_F_QUERY,
    SRV_F_KEY,
    SRV_F_VALUE,
    SRV_F_SHAPE,
    SRV_F_CONTEXT_LENGTH,
    SRV_F_LAYER,
    SRV_F_LENGTHS,
    SRV_F_ATTENTION_MASK,
    SRV_F_ATTENTION_BIAS,
    SRV_F_IS_CAUSAL,
    SRV_F_CAUSAL_OFFSET,
    SRV_F_PAST_KEY,
    SRV_F_PAST_VALUE,
    SRV_F_WINDOW,
    SRV_F_SCALE,
    SRV_F_SOFTCAP,
    SRV_F_POSITION_OFFSET,
    SRV_F_POSITION_IDS,
    SRV_F_RETURN_OUTPUTS,
    SRV_F_RETURN_ATTENTIONS,
    SRV_F_RETURN_INTERMEDIATES,
    SRV_F_ENCODING_FORMAT,
    SRV_F_TIMEOUT_MS,
    SRV_F_TOKENS,
    SRV_F_INPUTS,
    SRV_F_INPUT,
    SRV_F_INPUT_IDS,
    SRV_F_TOKEN_TYPE_IDS,
    SRV_F_MODEL,
    SRV_F_TRUNCATE,
    SRV_F_RETURN_EMBEDDINGS,
    SRV_F_POOLING,
    SRV_F_NORMALIZE,
    SRV_F_RETURN_HIDDEN_STATES,
    SRV_F_DIMENSIONS,
    SRV_F_USER,
    SRV_F_TRUNCATION_DIRECTION,
    SRV_F_PROMPT_NAME,
    SRV_FIELDS
} srv_field_name;

/* A sequence's sizes as the answer shows them: padded in a rectangular batch. */
typedef struct {
    size_t t, s;                  /* query tokens, keys (past included) */
    size_t map_rows, map_columns; /* after `queries` and `keys` */
} srv_sizes;

/* Rows and columns of the maps that become one cell, 1 without pooling. */
typedef struct {
    size_t rows, columns;
} srv_block_size;

typedef struct srv_stream srv_stream; /* stream.h */
typedef struct srv_encode srv_encode; /* encode.h */

struct srv_request {
    srv_request_kind kind;
    srv_field fields[SRV_FIELDS]; /* those of this kind, for the reader */
    int place[SRV_FIELDS];        /* of a field in `fields`; -1 = not in this kind */
    srv_json_reader *reader;
    srv_source *source; /* what feeds the reader; NULL = a JSON body as it is */
    attn_budget *budget;
    size_t read;     /* of the budget, for the body so far */
    size_t reserved; /* of the budget, for all else */

    const attn_model *model;         /* NULL for SRV_SDPA */
    const attn_tokenizer *tokenizer; /* of the model; NULL = none, and why */
    const attn_error *no_tokenizer;
    srv_encode *encode; /* of a whole encoder; NULL = it is about attention */
    const attn_layer *layer;
    size_t layer_index;
    attn_heads heads;
    size_t d_out;

    size_t batch;
    bool single; /* [T,D] came in and goes out */
    bool ragged;
    attn_sequence *seqs;
    srv_sizes *sizes; /* without a sequence sizes[0] still tells the shapes */
    size_t *chosen_heads;
    attn_options options;
    size_t q_to, k_to; /* ends of the maps' ranges; SIZE_MAX = the sequence's end */

    srv_format format; /* set before the request is parsed */
    size_t encoder;    /* bytes that writing the answer takes beside its results; set likewise */
    bool base64;
    attn_dtype map_dtype; /* as which maps leave: F32, F16 or U8 */
    size_t pool;          /* most rows and columns of a pooled map; 0 = off */
    size_t only_head;     /* of the maps, whatever the body says; SIZE_MAX = none */
    bool want[SRV_RESULTS];
    srv_result_name order[SRV_RESULTS]; /* those wanted, as they stand in the answer */
    size_t num_results;
    int64_t timeout_ms; /* 0 = the server's */

    /* Another protocol's answer; NULL: that of answer.h. It is written before its numbers are there, when it is
     * streamed. */
    void (*answer)(srv_json_writer *w, const srv_request *r);
    void *answer_arg;
    /* For bodies that name their model: sets `model` and the tokenizer; NULL name = none was named. */
    attn_status (*choose_model)(srv_request *r, const char *name, attn_error *err);
    void *choose_arg;
    bool whole; /* it cannot leave while it is computed */

    srv_plan plan;
    srv_result results[SRV_RESULTS];
    size_t computed; /* sequences so far, when they are computed whole */
    void *workspace;
    srv_stream *stream; /* when the answer is streamed, from admission on */
    attn_stats stats;
    size_t tokens; /* real query tokens, for usage and the log */
};

/* Makes an empty request; `model` is NULL for SRV_SDPA. */
ATTN_NODISCARD attn_status srv_request_new(srv_request **out, srv_request_kind kind,
                                           const attn_model *model, attn_budget *budget,
                                           attn_error *err);
void srv_request_free(srv_request *r); /* takes NULL; gives back all it reserved */

/* How the body comes, before its first byte; without this call it is JSON. The query's parameters that nobody has
 * taken are members of the body when it is .npy. */
ATTN_NODISCARD attn_status srv_request_open(srv_request *r, const srv_source_options *o,
                                            const srv_query *query, attn_error *err);
ATTN_NODISCARD attn_status srv_request_feed(srv_request *r, const char *bytes, size_t n,
                                            attn_error *err);

/* The body is complete: checks it against the model and itself and fills everything up to `plan`.
 * Errors as API.md's fine print says: ATTN_EINVAL what is wrong by itself, ATTN_ESHAPE what disagrees. */
ATTN_NODISCARD attn_status srv_request_parse(srv_request *r, size_t workers, attn_error *err);

/* Reserves plan.reserved (what the inputs already hold counts) and allocates what was planned.
 * ATTN_ETOOBIG: plan.needed is over the budget; ATTN_EBUSY: it does not fit now. */
ATTN_NODISCARD attn_status srv_request_admit(srv_request *r, attn_error *err);

typedef enum {
    SRV_STEP_DONE, /* all is computed */
    SRV_STEP_MORE,
    SRV_STEP_WAITS /* for its reader to take a piece: srv_infer_wake() */
} srv_step;

/* Computes the next piece of a request: a micro-batch, or a piece of a streamed answer. What waits beside it is
 * not held up for long. Of one thread at a time. */
ATTN_NODISCARD attn_status srv_request_step(srv_request *r, attn_pool *pool,
                                            const atomic_bool *cancel, srv_step *next,
                                            attn_error *err);

/* Is there a piece of a streamed answer that can leave, so that the reply may start? */
bool srv_request_answers(const srv_request *r);

/* Frees the inputs and all that computing took, so that only the results wait for the client. */
void srv_request_drop_inputs(srv_request *r);

/* The members' contents. An absent array is one that is not `present`; an absent value is NULL. */
const srv_array *srv_request_array(const srv_request *r, srv_field_name field);
const attn_json *srv_request_value(const srv_request *r, srv_field_name field);

#endif

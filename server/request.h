/* request.h: what a request for attention asks, checked, planned and ready to compute.
 *
 * Three bodies share one reader: a layer's attention, attention over the caller's own query, key and
 * value, and the estimate of the first. */
#ifndef SRV_REQUEST_H
#define SRV_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/attention.h"
#include "core/budget.h"
#include "core/model.h"
#include "server/json_reader.h"

/* Sequences are grouped into micro-batches until their workspace reaches this; a longer sequence is one of
 * its own. Large enough to keep all workers busy, small beside any budget worth setting. */
#define SRV_WORKSPACE_TARGET ((size_t)8 << 20)

typedef enum { SRV_ATTENTION, SRV_SDPA, SRV_ESTIMATE } srv_request_kind;

/* Everything in bytes. A request is computed in micro-batches of whole sequences. `needed` is the least it can
 * do with, one sequence at a time: it follows from the shapes alone, and what is over it is refused for good.
 * Where the budget allows, more sequences share a larger workspace. */
typedef struct {
    size_t inputs, least_workspace, outputs, attentions; /* their sum is `needed` */
    size_t needed;
    size_t target;    /* micro-batches are filled up to this workspace */
    size_t workspace; /* of the largest one */
    size_t reserved;  /* needed, with that workspace */
    size_t micro_batches;
} srv_plan;

/* One tensor of the answer: sequence b begins at data + offset[b]. */
typedef struct {
    float *data; /* NULL = not asked for */
    size_t *offset;
    size_t count;
} srv_result;

/* The members of a body, see API.md sections 5 to 7. */
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
    SRV_FIELDS
} srv_field_name;

enum { SRV_QUERY, SRV_KEY, SRV_VALUE_HEADS, SRV_LOGSUMEXP, SRV_CONTEXT, SRV_INTERMEDIATES };

/* A sequence's sizes as the answer shows them: padded in a rectangular batch. */
typedef struct {
    size_t t, s;                  /* query tokens, keys (past included) */
    size_t map_rows, map_columns; /* after `queries` and `keys` */
} srv_sizes;

typedef struct {
    srv_request_kind kind;
    srv_field fields[SRV_FIELDS]; /* those of this kind, for the reader */
    int place[SRV_FIELDS];        /* of a field in `fields`; -1 = not in this kind */
    srv_json_reader *reader;
    attn_budget *budget;
    size_t reserved; /* of the budget, for results and workspace */

    const attn_model *model; /* NULL for SRV_SDPA */
    const attn_layer *layer;
    size_t layer_index;
    attn_heads heads;
    size_t d_out;

    size_t batch;
    bool single; /* [T,D] came in and goes out */
    bool ragged;
    attn_sequence *seqs;
    srv_sizes *sizes;
    size_t *chosen_heads;
    attn_options options;
    size_t q_to, k_to; /* ends of the maps' ranges; SIZE_MAX = the sequence's end */

    bool want_outputs, base64;
    bool want[SRV_INTERMEDIATES];
    unsigned order[SRV_INTERMEDIATES]; /* in which they were asked for */
    size_t num_intermediates;
    int64_t timeout_ms; /* 0 = the server's */

    srv_plan plan;
    size_t computed; /* sequences so far */
    srv_result outputs, maps, intermediates[SRV_INTERMEDIATES];
    void *workspace;
    attn_stats stats;
    size_t tokens; /* real query tokens, for usage and the log */
} srv_request;

/* Makes an empty request; `model` is NULL for SRV_SDPA. */
ATTN_NODISCARD attn_status srv_request_new(srv_request **out, srv_request_kind kind,
                                           const attn_model *model, attn_budget *budget,
                                           attn_error *err);
void srv_request_free(srv_request *r); /* takes NULL; gives back all it reserved */

ATTN_NODISCARD attn_status srv_request_feed(srv_request *r, const char *bytes, size_t n,
                                            attn_error *err);

/* The body is complete: checks it against the model and itself and fills everything up to `plan`.
 * Errors as API.md's fine print says: ATTN_EINVAL what is wrong by itself, ATTN_ESHAPE what disagrees. */
ATTN_NODISCARD attn_status srv_request_parse(srv_request *r, size_t workers, attn_error *err);

/* Reserves plan.reserved (what the inputs already hold counts) and allocates results and workspace. */
ATTN_NODISCARD attn_status srv_request_admit(srv_request *r, attn_error *err);

typedef enum {
    SRV_STEP_DONE, /* all of it is computed */
    SRV_STEP_MORE, /* there is another step */
    SRV_STEP_WAITS /* there is another, once its reader has taken what is there: srv_infer_wake() */
} srv_step;

/* Computes the next piece of a request, one micro-batch: what waits beside it is not held up for long. */
ATTN_NODISCARD attn_status srv_request_step(srv_request *r, attn_pool *pool,
                                            const atomic_bool *cancel, srv_step *next,
                                            attn_error *err);

/* Frees the inputs and the workspace, so that only the results wait for the client. */
void srv_request_drop_inputs(srv_request *r);

/* The members' contents. An absent array is one that is not `present`; an absent value is NULL. */
const srv_array *srv_request_array(const srv_request *r, srv_field_name field);
const attn_json *srv_request_value(const srv_request *r, srv_field_name field);

#endif

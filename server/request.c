#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "server/encode.h"
#include "server/pieces.h"
#include "server/request_private.h"
#include "server/stream.h"

enum {
    IN_ATTENTION = 1 << SRV_ATTENTION,
    IN_SDPA = 1 << SRV_SDPA,
    IN_ESTIMATE = 1 << SRV_ESTIMATE,
    IN_ENCODE = 1 << SRV_ENCODE,
    IN_EMBEDDINGS = 1 << SRV_EMBEDDINGS,
    IN_EMBED = 1 << SRV_EMBED
};
#define IN_LAYER (IN_ATTENTION | IN_ESTIMATE)
#define IN_ALL   (IN_LAYER | IN_SDPA)

static const struct {
    srv_field field;
    int kinds;
} field_table[SRV_FIELDS] = {
    [SRV_F_INPUTS_EMBEDS] = {{"inputs_embeds", SRV_FLOATS, 2, 3, true}, IN_ATTENTION | IN_ENCODE},
    [SRV_F_ENCODER_HIDDEN_STATES] = {{"encoder_hidden_states", SRV_FLOATS, 2, 3, true},
                                     IN_ATTENTION},
    [SRV_F_QUERY] = {{"query", SRV_FLOATS, 4, 4, false}, IN_SDPA},
    [SRV_F_KEY] = {{"key", SRV_FLOATS, 4, 4, false}, IN_SDPA},
    [SRV_F_VALUE] = {{"value", SRV_FLOATS, 4, 4, false}, IN_SDPA},
    [SRV_F_SHAPE] = {{"shape", SRV_VALUE, 0, 0, false}, IN_ESTIMATE},
    [SRV_F_CONTEXT_LENGTH] = {{"context_length", SRV_VALUE, 0, 0, false}, IN_ESTIMATE},
    [SRV_F_LAYER] = {{"layer", SRV_VALUE, 0, 0, false}, IN_LAYER},
    [SRV_F_LENGTHS] = {{"lengths", SRV_INTS, 1, 1, false}, IN_ALL | IN_ENCODE},
    [SRV_F_ATTENTION_MASK] = {{"attention_mask", SRV_MASK, 2, 4, false}, IN_ALL | IN_ENCODE},
    [SRV_F_ATTENTION_BIAS] = {{"attention_bias", SRV_BIAS, 0, 4, false}, IN_ALL},
    [SRV_F_IS_CAUSAL] = {{"is_causal", SRV_VALUE, 0, 0, false}, IN_ALL},
    [SRV_F_CAUSAL_OFFSET] = {{"causal_offset", SRV_INTS, 0, 1, false}, IN_ALL},
    [SRV_F_PAST_KEY] = {{"past_key", SRV_FLOATS, 4, 4, false}, IN_ALL},
    [SRV_F_PAST_VALUE] = {{"past_value", SRV_FLOATS, 4, 4, false}, IN_ALL},
    [SRV_F_WINDOW] = {{"window", SRV_VALUE, 0, 0, false}, IN_ALL},
    [SRV_F_SCALE] = {{"scale", SRV_VALUE, 0, 0, false}, IN_ALL},
    [SRV_F_SOFTCAP] = {{"softcap", SRV_VALUE, 0, 0, false}, IN_ALL},
    [SRV_F_POSITION_OFFSET] = {{"position_offset", SRV_VALUE, 0, 0, false}, IN_LAYER},
    [SRV_F_POSITION_IDS] = {{"position_ids", SRV_INTS, 1, 2, false}, IN_LAYER},
    [SRV_F_RETURN_OUTPUTS] = {{"return_outputs", SRV_VALUE, 0, 0, false}, IN_ALL},
    [SRV_F_RETURN_ATTENTIONS] = {{"return_attentions", SRV_VALUE, 0, 0, false}, IN_ALL | IN_ENCODE},
    [SRV_F_RETURN_INTERMEDIATES] = {{"return_intermediates", SRV_VALUE, 0, 0, false}, IN_ALL},
    [SRV_F_ENCODING_FORMAT] = {{"encoding_format", SRV_VALUE, 0, 0, false},
                               IN_ALL | IN_ENCODE | IN_EMBEDDINGS},
    [SRV_F_TIMEOUT_MS] = {{"timeout_ms", SRV_VALUE, 0, 0, false}, IN_ALL | IN_ENCODE},
    [SRV_F_TOKENS] = {{"tokens", SRV_LABELS, 1, 2, false}, IN_ALL},
    [SRV_F_INPUTS] = {{"inputs", SRV_VALUE, 0, 0, false}, IN_ENCODE | IN_EMBED},
    [SRV_F_INPUT] = {{"input", SRV_VALUE, 0, 0, false}, IN_EMBEDDINGS},
    [SRV_F_INPUT_IDS] = {{"input_ids", SRV_INTS, 2, 2, true}, IN_ENCODE},
    [SRV_F_TOKEN_TYPE_IDS] = {{"token_type_ids", SRV_INTS, 2, 2, true}, IN_ENCODE},
    [SRV_F_MODEL] = {{"model", SRV_VALUE, 0, 0, false}, IN_EMBEDDINGS},
    [SRV_F_TRUNCATE] = {{"truncate", SRV_VALUE, 0, 0, false}, IN_ENCODE | IN_EMBED},
    [SRV_F_RETURN_EMBEDDINGS] = {{"return_embeddings", SRV_VALUE, 0, 0, false}, IN_ENCODE},
    [SRV_F_POOLING] = {{"pooling", SRV_VALUE, 0, 0, false}, IN_ENCODE},
    [SRV_F_NORMALIZE] = {{"normalize", SRV_VALUE, 0, 0, false}, IN_ENCODE | IN_EMBED},
    [SRV_F_RETURN_HIDDEN_STATES] = {{"return_hidden_states", SRV_VALUE, 0, 0, false}, IN_ENCODE},
    [SRV_F_DIMENSIONS] = {{"dimensions", SRV_VALUE, 0, 0, false}, IN_EMBEDDINGS},
    [SRV_F_USER] = {{"user", SRV_VALUE, 0, 0, false}, IN_EMBEDDINGS},
    [SRV_F_TRUNCATION_DIRECTION] = {{"truncation_direction", SRV_VALUE, 0, 0, false}, IN_EMBED},
    [SRV_F_PROMPT_NAME] = {{"prompt_name", SRV_VALUE, 0, 0, false}, IN_EMBED},
};

static attn_status too_large(size_t needed, size_t limit, attn_error *err)
{
    attn_error e = {0};

    (void)attn_fail(&e, ATTN_ETOOBIG, "the request needs %zu bytes; the memory budget is %zu",
                    needed, limit);
    e.needed = needed;
    e.limit = limit;
    if (err != NULL && err->code == ATTN_OK)
        *err = e;
    return e.code;
}

attn_status srv_request_reserve(srv_request *r, size_t bytes, attn_error *err)
{
    size_t all = r->read + r->reserved + bytes;

    return all > r->budget->limit ? too_large(all, r->budget->limit, err)
                                  : attn_budget_reserve(r->budget, bytes, err);
}

static attn_status charge(void *arg, ptrdiff_t bytes, attn_error *err)
{
    srv_request *r = arg;

    if (bytes < 0) {
        attn_budget_release(r->budget, (size_t)-bytes);
        r->read -= (size_t)-bytes;
        return ATTN_OK;
    }
    ATTN_TRY(srv_request_reserve(r, (size_t)bytes, err));
    r->read += (size_t)bytes;
    return ATTN_OK;
}

attn_status srv_request_new(srv_request **out, srv_request_kind kind, const attn_model *model,
                            attn_budget *budget, attn_error *err)
{
    srv_request *r = calloc(1, sizeof *r);
    /* Clients of other servers say null for what they do not set. */
    bool foreign = kind == SRV_EMBEDDINGS || kind == SRV_EMBED;
    size_t n = 0;

    *out = NULL;
    if (r == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a request");
    r->kind = kind;
    r->model = model;
    r->budget = budget;
    r->only_head = SIZE_MAX;
    for (int f = 0; f < SRV_FIELDS; f++) {
        r->place[f] = -1;
        if (field_table[f].kinds & 1 << kind) {
            r->place[f] = (int)n;
            r->fields[n] = field_table[f].field;
            if (foreign && r->fields[n].kind == SRV_VALUE)
                r->fields[n].kind = SRV_OPTION;
            n++;
        }
    }
    attn_status rc = srv_json_reader_new(&r->reader, r->fields, n, charge, r, err);
    if (rc == ATTN_OK && srv_is_encode(kind))
        rc = srv_encode_new(&r->encode, err);
    if (rc != ATTN_OK) {
        srv_request_free(r);
        return rc;
    }
    *out = r;
    return ATTN_OK;
}

static void free_result(srv_result *result)
{
    free(result->data);
    free(result->offset);
    free(result->at);
    *result = (srv_result){0};
}

void srv_request_free(srv_request *r)
{
    if (r == NULL)
        return;
    srv_request_drop_inputs(r);
    srv_stream_free(r->stream);
    srv_encode_free(r->encode);
    for (int i = 0; i < SRV_RESULTS; i++)
        free_result(&r->results[i]);
    attn_budget_release(r->budget, r->reserved);
    free(r->sizes);
    free(r->chosen_heads);
    free(r);
}

static void release(srv_request *r, size_t bytes)
{
    attn_budget_release(r->budget, bytes);
    r->reserved -= bytes;
}

void srv_request_drop_inputs(srv_request *r)
{
    srv_source_free(r->source);
    r->source = NULL;
    srv_json_reader_free(r->reader);
    r->reader = NULL;
    free(r->seqs);
    r->seqs = NULL;
    if (r->workspace != NULL) {
        free(r->workspace);
        r->workspace = NULL;
        release(r, r->plan.workspace);
    }
    if (r->stream != NULL)
        release(r, srv_stream_drop_keys(r->stream));
}

attn_status srv_request_open(srv_request *r, const srv_source_options *o, const srv_query *query,
                             attn_error *err)
{
    ATTN_TRY(srv_source_new(&r->source, r->reader, o, err));
    return o->type == SRV_BODY_NPY ? srv_source_query(r->source, query, err) : ATTN_OK;
}

attn_status srv_request_feed(srv_request *r, const char *bytes, size_t n, attn_error *err)
{
    return r->source != NULL ? srv_source_feed(r->source, bytes, n, err)
                             : srv_json_reader_feed(r->reader, bytes, n, err);
}

const srv_array *srv_request_array(const srv_request *r, srv_field_name field)
{
    static const srv_array absent;
    return r->place[field] < 0 ? &absent
                               : srv_json_reader_array(r->reader, (size_t)r->place[field]);
}

const attn_json *srv_request_value(const srv_request *r, srv_field_name field)
{
    return r->place[field] < 0 ? NULL : srv_json_reader_value(r->reader, (size_t)r->place[field]);
}

/* --- memory ---------------------------------------------------------------------------------- */

static attn_status allocate(srv_request *r, attn_error *err)
{
    bool padded = srv_request_array(r, SRV_F_LENGTHS)->present;

    if (r->encode != NULL)
        ATTN_TRY(srv_encode_allocate(r, err));
    for (size_t i = 0; i < r->num_results && !r->plan.streamed; i++) {
        srv_result *result = &r->results[r->order[i]];
        size_t bytes = result->room * sizeof(float);
        result->data = attn_block_alloc(bytes + 64); /* an empty one is not NULL */
        if (result->data == NULL)
            return attn_fail(err, ATTN_ENOMEM, "no memory for the results of %zu sequences",
                             r->batch);
        if (padded) /* rows that no real token owns are never written */
            memset(result->data, 0, bytes);
    }
    r->workspace = attn_block_alloc(r->plan.workspace);
    if (r->workspace == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a workspace of %zu bytes",
                         r->plan.workspace);
    return r->plan.streamed ? srv_stream_new(&r->stream, r, err) : ATTN_OK;
}

attn_status srv_request_admit(srv_request *r, attn_error *err)
{
    srv_plan *p = &r->plan;
    size_t held = r->read + r->reserved; /* inputs and book-keeping */
    size_t more = p->reserved > held ? p->reserved - held : 0;

    if (p->needed > r->budget->limit)
        return too_large(p->needed, r->budget->limit, err);
    ATTN_TRY(attn_budget_reserve(r->budget, more, err));
    r->reserved += more;
    return allocate(r, err);
}

/* --- computing ------------------------------------------------------------------------------- */

static void point_at_maps(srv_request *r, attn_sequence *q, size_t b, float *const *at)
{
    srv_shape z = srv_shape_of(r, SRV_MAPS, &r->sizes[b]);

    if (!r->want[SRV_MAPS])
        return;
    const srv_result *maps = &r->results[SRV_MAPS];
    size_t rows = maps->at != NULL ? r->sizes[b].map_rows : z.rows;
    q->maps = (attn_view){maps->at != NULL ? maps->data + maps->at[b] : at[SRV_MAPS],
                          rows * z.width, z.width};
    q->top_keys = (int32_t *)at[SRV_TOP_KEYS];
    q->top_head_stride = z.rows * z.width;
    q->top_rest = at[SRV_TOP_REST];
}

/* Pooled maps were computed with room between them: puts them together. */
static void close_up(srv_request *r, size_t begin, size_t end)
{
    const srv_result *maps = &r->results[SRV_MAPS];

    for (size_t b = begin; b < end && maps->at != NULL; b++) {
        srv_shape z = srv_shape_of(r, SRV_MAPS, &r->sizes[b]);
        const float *from = maps->data + maps->at[b];
        float *to = maps->data + maps->offset[b];
        size_t n = z.rows * z.width;
        for (size_t h = 0; h < z.heads; h++)
            memmove(to + h * n, from + h * r->sizes[b].map_rows * z.width, n * sizeof(float));
    }
}

void srv_request_point_at_results(srv_request *r, size_t b)
{
    attn_sequence *q = &r->seqs[b];
    const srv_sizes *z = &r->sizes[b];
    const attn_heads *n = &r->heads;
    float *at[SRV_RESULTS] = {NULL};

    for (int i = 0; i < SRV_RESULTS; i++)
        at[i] = r->want[i] ? r->results[i].data + r->results[i].offset[b] : NULL;
    q->output = at[SRV_OUTPUTS];
    q->output_head_stride = z->t * n->v_head_dim;
    q->joined_context = at[SRV_CONTEXT];
    point_at_maps(r, q, b, at);
    q->query_out = (attn_view){at[SRV_QUERY], z->t * n->head_dim, n->head_dim};
    q->key_out = (attn_view){at[SRV_KEY], z->s * n->head_dim, n->head_dim};
    q->value_out = (attn_view){at[SRV_VALUE_HEADS], z->s * n->v_head_dim, n->v_head_dim};
    q->logsumexp = at[SRV_LOGSUMEXP];
    q->lse_head_stride = z->t;
}

bool srv_request_is_one_call(const srv_request *r)
{
    return !r->plan.streamed && r->plan.micro_batches == 1 && r->computed == 0;
}

void srv_request_end_call(srv_request *r, size_t end, const attn_stats *stats)
{
    if (r->encode != NULL) {
        srv_encode_end_call(r, end, stats);
        return;
    }
    close_up(r, r->computed, end);
    r->stats.fully_masked_rows += stats->fully_masked_rows;
    r->computed = end;
}

/* The next micro-batch. */
static attn_status compute_whole(srv_request *r, attn_pool *pool, const atomic_bool *cancel,
                                 attn_error *err)
{
    size_t begin = r->computed, bytes = 0;
    size_t end = srv_plan_micro_batch(r, begin, attn_pool_size(pool), r->plan.target, &bytes);
    attn_stats stats = {0};

    for (size_t b = begin; b < end; b++)
        srv_request_point_at_results(r, b);
    if (begin < end)
        srv_pool_options(r, begin, &r->options);
    if (begin < end)
        ATTN_TRY(attn_forward(r->layer, &r->heads, &r->options, r->seqs + begin, end - begin, pool,
                              r->workspace, cancel, &stats, err));
    srv_request_end_call(r, end, &stats);
    return ATTN_OK;
}

attn_status srv_request_step(srv_request *r, attn_pool *pool, const atomic_bool *cancel,
                             srv_step *next, attn_error *err)
{
    if (r->encode != NULL) {
        ATTN_TRY(srv_encode_step(r, pool, cancel, err));
        *next = r->computed < r->encode->num_seqs ? SRV_STEP_MORE : SRV_STEP_DONE;
        return ATTN_OK;
    }
    if (r->plan.streamed)
        return srv_stream_step(r->stream, pool, cancel, next, err);
    ATTN_TRY(compute_whole(r, pool, cancel, err));
    *next = r->computed < r->batch ? SRV_STEP_MORE : SRV_STEP_DONE;
    return ATTN_OK;
}

bool srv_request_answers(const srv_request *r)
{
    return r->stream != NULL && srv_stream_answers(r->stream);
}

#include <stdlib.h>
#include <string.h>

#include "core/checked.h"
#include "server/encode.h"
#include "server/json_writer.h"
#include "server/pieces.h"
#include "server/request_private.h"

#define FAR ((int64_t)1 << 40)

enum { MOST_ESTIMATED = 1 << 16 };

/* What the tensors of a body say of its sizes. T and S are those of the longest sequence. */
typedef struct {
    size_t batch, t, s_new, past;
    const srv_array *x, *context; /* NULL in an estimate and in SDPA, which is never ragged */
    bool cross;
} shapes;

static size_t longest(const srv_array *a)
{
    return a->rank == 2 ? a->dim[0] : a->dim[1];
}

/* Tokens of sequence b of an array [B][T][D] or [T][D]. */
static size_t length_of(const srv_array *a, size_t b)
{
    return a->lengths != NULL ? a->lengths[b] : longest(a);
}

static attn_status missing(const char *name, attn_error *err)
{
    attn_error at = {0};
    (void)attn_fail(&at, ATTN_EINVAL, "/%s", name);
    return attn_fail_at(err, ATTN_EINVAL, at.text, "the field \"%s\" is missing", name);
}

/* --- the layer --------------------------------------------------------------------------------- */

static attn_status choose_layer(srv_request *r, attn_error *err)
{
    const attn_json *v = srv_request_value(r, SRV_F_LAYER);
    size_t n = attn_model_layer_count(r->model);
    int64_t index = 0;

    if (v != NULL && !attn_json_integer(v, &index))
        return attn_fail_at(err, ATTN_EINVAL, "/layer", "/layer: expected an integer, found %s",
                            attn_json_type_name(v));
    if (index < 0 || (uint64_t)index >= n)
        return attn_fail_at(err, ATTN_ESHAPE, "/layer",
                            "/layer is %lld; model \"%s\" has layers 0 to %zu", (long long)index,
                            attn_model_name(r->model), n - 1);
    r->layer_index = (size_t)index;
    r->layer = attn_model_layer(r->model, r->layer_index);
    const attn_layer_spec *s = attn_layer_get_spec(r->layer);
    r->heads = (attn_heads){s->num_heads, s->num_kv_heads, s->head_dim, s->v_head_dim};
    r->d_out = s->d_out;
    r->options.scale = s->scale;
    r->options.softcap = s->softcap;
    r->options.is_causal = s->is_causal;
    r->options.window = s->window;
    return ATTN_OK;
}

/* --- sizes ------------------------------------------------------------------------------------- */

static attn_status check_width(const char *name, const srv_array *a, size_t width, attn_error *err)
{
    size_t last = a->dim[a->rank - 1];
    bool no_token = longest(a) == 0 || (a->rank == 3 && a->dim[0] == 0);
    attn_error at = {0};

    if (last == width || (no_token && last == 0))
        return ATTN_OK;
    (void)attn_fail(&at, ATTN_ESHAPE, "/%s", name);
    return attn_fail_at(err, ATTN_ESHAPE, at.text,
                        "/%s holds tokens of width %zu; the layer takes %zu", name, last, width);
}

static attn_status read_inputs(srv_request *r, shapes *z, attn_error *err)
{
    const attn_layer_spec *s = attn_layer_get_spec(r->layer);
    const srv_array *x = srv_request_array(r, SRV_F_INPUTS_EMBEDS);
    const srv_array *context = srv_request_array(r, SRV_F_ENCODER_HIDDEN_STATES);

    if (!x->present)
        return missing("inputs_embeds", err);
    ATTN_TRY(check_width("inputs_embeds", x, s->d_model, err));
    z->x = x;
    r->single = x->rank == 2;
    z->batch = r->single ? 1 : x->dim[0];
    z->t = longest(x);
    z->s_new = z->t;
    r->ragged = x->lengths != NULL;
    if (!context->present) {
        if (s->cross || s->d_kv != s->d_model)
            return attn_fail_at(
                err, ATTN_ESHAPE, "/encoder_hidden_states",
                "layer %zu is a cross attention layer; it needs encoder_hidden_states "
                "of width %zu",
                r->layer_index, s->d_kv);
        return ATTN_OK;
    }
    ATTN_TRY(check_width("encoder_hidden_states", context, s->d_kv, err));
    size_t batch = context->rank == 2 ? 1 : context->dim[0];
    if (batch != z->batch || (context->rank == 2 && !r->single))
        return attn_fail_at(
            err, ATTN_ESHAPE, "/encoder_hidden_states",
            "/encoder_hidden_states has %zu sequences (rank %u), /inputs_embeds has %zu "
            "(rank %u)",
            batch, context->rank, z->batch, x->rank);
    z->context = context;
    z->cross = true;
    z->s_new = longest(context);
    r->ragged = r->ragged || context->lengths != NULL;
    return ATTN_OK;
}

static attn_status read_estimated_shape(srv_request *r, shapes *z, attn_error *err)
{
    const attn_layer_spec *s = attn_layer_get_spec(r->layer);
    const attn_json *v = srv_request_value(r, SRV_F_SHAPE);
    const attn_json *length = srv_request_value(r, SRV_F_CONTEXT_LENGTH);
    int64_t dim[3] = {1, 0, 0}, s_new = 0;
    size_t rank = attn_json_length(v);

    if (v == NULL)
        return missing("shape", err);
    if (!attn_json_is_array(v) || rank < 2 || rank > 3)
        return attn_fail_at(err, ATTN_EINVAL, "/shape", "/shape: expected [B,T,D] or [T,D]");
    for (size_t i = 0; i < rank; i++) {
        if (!attn_json_integer(attn_json_at(v, i), &dim[3 - rank + i]) || dim[3 - rank + i] < 0)
            return attn_fail_at(err, ATTN_EINVAL, "/shape", "/shape: expected integers from 0 on");
        if (dim[3 - rank + i] > (int64_t)1 << 32)
            return attn_fail_at(err, ATTN_ESHAPE, "/shape", "/shape holds %lld; the most is 2^32",
                                (long long)dim[3 - rank + i]);
    }
    if ((size_t)dim[2] != s->d_model)
        return attn_fail_at(err, ATTN_ESHAPE, "/shape",
                            "/shape says width %lld; the layer takes %zu", (long long)dim[2],
                            s->d_model);
    if (dim[0] > MOST_ESTIMATED)
        return attn_fail_at(err, ATTN_ESHAPE, "/shape",
                            "/shape has %lld sequences; an estimate takes at "
                            "most %d",
                            (long long)dim[0], MOST_ESTIMATED);
    r->single = rank == 2;
    z->batch = (size_t)dim[0];
    z->t = (size_t)dim[1];
    z->s_new = z->t;
    if (length == NULL) {
        if (s->cross || s->d_kv != s->d_model)
            return missing("context_length", err);
        return ATTN_OK;
    }
    if (!attn_json_integer(length, &s_new) || s_new < 0 || s_new > (int64_t)1 << 32)
        return attn_fail_at(err, ATTN_EINVAL, "/context_length",
                            "/context_length: expected an integer, 0 to 2^32");
    z->cross = true;
    z->s_new = (size_t)s_new;
    return ATTN_OK;
}

static attn_status read_heads_tensors(srv_request *r, shapes *z, attn_error *err)
{
    static const char *const names[] = {"query", "key", "value"};
    const srv_array *a[3] = {srv_request_array(r, SRV_F_QUERY), srv_request_array(r, SRV_F_KEY),
                             srv_request_array(r, SRV_F_VALUE)};

    for (int i = 0; i < 3; i++) {
        if (!a[i]->present)
            return missing(names[i], err);
    }
    const size_t *q = a[0]->dim, *k = a[1]->dim, *v = a[2]->dim;
    if (q[0] != k[0] || q[0] != v[0])
        return attn_fail_at(err, ATTN_ESHAPE, "/key",
                            "query, key and value have batches of %zu, %zu and %zu", q[0], k[0],
                            v[0]);
    z->batch = q[0];
    if (z->batch == 0 && (q[1] == 0 || k[1] == 0)) { /* nothing tells the heads */
        r->heads = (attn_heads){1, 1, 1, 1};
        r->options.scale = 1.0F;
        return ATTN_OK;
    }
    if (k[1] != v[1])
        return attn_fail_at(err, ATTN_ESHAPE, "/value", "key has %zu heads, value has %zu", k[1],
                            v[1]);
    if (k[1] == 0 || q[1] == 0 || q[1] % k[1] != 0)
        return attn_fail_at(err, ATTN_ESHAPE, "/key",
                            "query has %zu heads, which is not a multiple of the "
                            "%zu key heads",
                            q[1], k[1]);
    if (k[2] != v[2])
        return attn_fail_at(err, ATTN_ESHAPE, "/value", "key has %zu tokens, value has %zu", k[2],
                            v[2]);
    z->t = q[2];
    z->s_new = k[2];
    /* Without a token nothing tells a width. */
    size_t d = z->t != 0 ? q[3] : k[3];
    if (z->t != 0 && z->s_new != 0 && q[3] != k[3])
        return attn_fail_at(err, ATTN_ESHAPE, "/key", "query has head size %zu, key has %zu", q[3],
                            k[3]);
    if ((d == 0 && (z->t != 0 || z->s_new != 0)) || (v[3] == 0 && z->s_new != 0))
        return attn_fail_at(err, ATTN_ESHAPE, "/query", "a head size of 0");
    r->heads = (attn_heads){q[1], k[1], d == 0 ? 1 : d, v[3] == 0 ? 1 : v[3]};
    r->options.scale = (float)(1.0 / __builtin_sqrt((double)r->heads.head_dim));
    z->cross = true; /* lengths count keys, and every query row is computed */
    return ATTN_OK;
}

static attn_status read_past(srv_request *r, shapes *z, attn_error *err)
{
    const srv_array *key = srv_request_array(r, SRV_F_PAST_KEY);
    const srv_array *value = srv_request_array(r, SRV_F_PAST_VALUE);
    const attn_heads *n = &r->heads;

    if ((!key->present && !value->present) || z->batch == 0)
        return ATTN_OK;
    if (!key->present || !value->present)
        return attn_fail_at(err, ATTN_ESHAPE, key->present ? "/past_value" : "/past_key",
                            "past_key and past_value go together; %s is missing",
                            key->present ? "past_value" : "past_key");
    z->past = key->dim[2];
    const size_t want_key[4] = {z->batch, n->num_kv_heads, z->past, n->head_dim};
    const size_t want_value[4] = {z->batch, n->num_kv_heads, z->past, n->v_head_dim};
    for (int which = 0; which < 2; which++) {
        const size_t *got = which == 0 ? key->dim : value->dim;
        const size_t *want = which == 0 ? want_key : want_value;
        const char *pointer = which == 0 ? "/past_key" : "/past_value";
        if ((which == 0 ? key : value)->count == 0 && z->past == 0 && value->dim[2] == 0)
            continue;
        for (int i = 0; i < 4; i++) {
            if (got[i] != want[i])
                return attn_fail_at(
                    err, ATTN_ESHAPE, pointer, "%s is [%zu,%zu,%zu,%zu]; [%zu,%zu,%zu,%zu] is due",
                    pointer, got[0], got[1], got[2], got[3], want[0], want[1], want[2], want[3]);
        }
    }
    return ATTN_OK;
}

/* --- the sequences ----------------------------------------------------------------------------- */

static attn_status allocate_sequences(srv_request *r, const shapes *z, attn_error *err)
{
    size_t one = sizeof(attn_sequence) + sizeof(srv_sizes) + SRV_RESULTS * sizeof(size_t);
    size_t bytes = 0;

    if (!attn_size_mul(z->batch, one, &bytes)) /* of no tokens, for which no bytes are sent */
        return attn_fail(err, ATTN_ETOOBIG, "%zu sequences are more than any memory holds",
                         z->batch);
    if (r->kind != SRV_ESTIMATE) {
        ATTN_TRY(attn_budget_reserve(r->budget, bytes, err));
        r->reserved += bytes;
    }
    r->plan.inputs += bytes;
    r->batch = z->batch;
    r->seqs = calloc(z->batch + 1, sizeof *r->seqs);
    r->sizes = calloc(z->batch + 1, sizeof *r->sizes);
    if (r->seqs == NULL || r->sizes == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %zu sequences", z->batch);
    return ATTN_OK;
}

static void place_sequences(srv_request *r, const shapes *z)
{
    const srv_array *past_key = srv_request_array(r, SRV_F_PAST_KEY);
    const srv_array *past_value = srv_request_array(r, SRV_F_PAST_VALUE);
    const srv_array *qkv[3] = {srv_request_array(r, SRV_F_QUERY), srv_request_array(r, SRV_F_KEY),
                               srv_request_array(r, SRV_F_VALUE)};
    const attn_heads *n = &r->heads;
    size_t x_at = 0, context_at = 0;

    r->sizes[0].t = z->t;
    r->sizes[0].s = z->past + z->s_new;
    for (size_t b = 0; b < r->batch; b++) {
        attn_sequence *q = &r->seqs[b];
        q->index = b;
        q->q_len = z->x != NULL ? length_of(z->x, b) : z->t;
        q->kv_len = z->context != NULL ? length_of(z->context, b) : z->cross ? z->s_new : q->q_len;
        q->past_len = z->past;
        r->sizes[b].t = q->q_len;
        r->sizes[b].s = z->past + q->kv_len;
        if (z->x != NULL) {
            q->x = z->x->data.f32 + x_at;
            x_at += q->q_len * attn_layer_get_spec(r->layer)->d_model;
        }
        if (z->context != NULL) {
            q->context = z->context->data.f32 + context_at;
            context_at += q->kv_len * attn_layer_get_spec(r->layer)->d_kv;
        }
        if (r->kind == SRV_SDPA) {
            size_t t = z->t, s = z->s_new;
            q->query = (attn_view){qkv[0]->data.f32 + b * n->num_heads * t * n->head_dim,
                                   t * n->head_dim, n->head_dim};
            q->key = (attn_view){qkv[1]->data.f32 + b * n->num_kv_heads * s * n->head_dim,
                                 s * n->head_dim, n->head_dim};
            q->value = (attn_view){qkv[2]->data.f32 + b * n->num_kv_heads * s * n->v_head_dim,
                                   s * n->v_head_dim, n->v_head_dim};
        }
        if (z->past != 0) {
            q->past_key = past_key->data.f32 + b * n->num_kv_heads * z->past * n->head_dim;
            q->past_value = past_value->data.f32 + b * n->num_kv_heads * z->past * n->v_head_dim;
        }
    }
}

/* A padded sequence is computed as the shorter one that it is. */
static attn_status read_lengths(srv_request *r, const shapes *z, attn_error *err)
{
    const srv_array *a = srv_request_array(r, SRV_F_LENGTHS);
    size_t most = z->cross ? z->s_new : z->t;

    if (!a->present)
        return ATTN_OK;
    if (r->ragged)
        return attn_fail_at(err, ATTN_ESHAPE, "/lengths",
                            "lengths beside ragged input: a ragged batch has no padding");
    if (a->count != r->batch)
        return attn_fail_at(err, ATTN_ESHAPE, "/lengths",
                            "/lengths holds %zu numbers for %zu sequences", a->count, r->batch);
    for (size_t b = 0; b < r->batch; b++) {
        int64_t length = a->data.i64[b];
        if (length < 0 || (uint64_t)length > most) {
            attn_error at = {0};
            (void)attn_fail(&at, ATTN_ESHAPE, "/lengths/%zu", b);
            return attn_fail_at(err, ATTN_ESHAPE, at.text, "%s is %lld; it must be 0 to %zu",
                                at.text, (long long)length, most);
        }
        r->seqs[b].kv_len = (size_t)length;
        if (!z->cross)
            r->seqs[b].q_len = (size_t)length;
    }
    return ATTN_OK;
}

static attn_status read_causal_offset(srv_request *r, const shapes *z, attn_error *err)
{
    const srv_array *a = srv_request_array(r, SRV_F_CAUSAL_OFFSET);

    if (a->present && a->rank == 1 && a->count != r->batch)
        return attn_fail_at(err, ATTN_ESHAPE, "/causal_offset",
                            "/causal_offset holds %zu numbers for %zu sequences", a->count,
                            r->batch);
    for (size_t b = 0; b < r->batch; b++) {
        const srv_sizes *size = &r->sizes[b];
        if (!a->present && r->options.is_causal && z->past == 0 && size->t != size->s)
            return attn_fail_at(
                err, ATTN_ESHAPE, "/causal_offset",
                "causal_offset must be given: the attention is causal and %zu queries "
                "meet %zu keys",
                size->t, size->s);
        int64_t offset = !a->present    ? (int64_t)z->past
                         : a->rank == 0 ? a->data.i64[0]
                                        : a->data.i64[b];
        if (offset > FAR || offset < -FAR)
            return attn_fail_at(err, ATTN_ESHAPE, "/causal_offset",
                                "/causal_offset is %lld, beyond 2^40", (long long)offset);
        r->seqs[b].causal_offset = offset;
    }
    return ATTN_OK;
}

static attn_status read_positions(srv_request *r, const shapes *z, attn_error *err)
{
    const srv_array *a = srv_request_array(r, SRV_F_POSITION_IDS);
    const attn_json *v = srv_request_value(r, SRV_F_POSITION_OFFSET);
    int64_t offset = (int64_t)z->past;

    if (v != NULL && !attn_json_integer(v, &offset))
        return attn_fail_at(err, ATTN_EINVAL, "/position_offset",
                            "/position_offset: expected an integer, found %s",
                            attn_json_type_name(v));
    if (offset > FAR || offset < -FAR)
        return attn_fail_at(err, ATTN_ESHAPE, "/position_offset",
                            "/position_offset is %lld, beyond 2^40", (long long)offset);
    if (a->present) {
        size_t batch = a->rank == 2 ? a->dim[0] : 1, t = a->rank == 2 ? a->dim[1] : a->dim[0];
        if ((a->rank == 1 && !r->single) || (batch != r->batch && batch != 1) || t != z->t)
            return attn_fail_at(err, ATTN_ESHAPE, "/position_ids",
                                "/position_ids is [%zu,%zu]; [%zu,%zu] is due", batch, t, r->batch,
                                z->t);
        for (size_t i = 0; i < a->count; i++) {
            if (a->data.i64[i] > FAR || a->data.i64[i] < -FAR)
                return attn_fail_at(err, ATTN_ESHAPE, "/position_ids",
                                    "/position_ids holds %lld, beyond 2^40",
                                    (long long)a->data.i64[i]);
        }
    }
    for (size_t b = 0; b < r->batch; b++) {
        attn_sequence *q = &r->seqs[b];
        q->position_offset = offset;
        q->key_position_offset = z->cross ? 0 : offset;
        if (a->present)
            q->positions = a->data.i64 + (a->rank == 2 && a->dim[0] != 1 ? b * z->t : 0);
    }
    return ATTN_OK;
}

/* --- masks ------------------------------------------------------------------------------------- */

attn_status srv_request_broadcast(const char *name, const srv_array *a, const int *axis,
                                  const size_t *full, size_t *stride, attn_error *err)
{
    size_t step = 1;

    for (unsigned i = a->rank; i-- > 0;) {
        if (a->dim[i] != full[axis[i]] && a->dim[i] != 1) {
            static const char letters[] = "BHTS";
            attn_error at = {0};
            (void)attn_fail(&at, ATTN_ESHAPE, "/%s", name);
            return attn_fail_at(err, ATTN_ESHAPE, at.text,
                                "/%s: dimension %u is %zu; %c = %zu (or 1) is due", name, i,
                                a->dim[i], letters[axis[i]], full[axis[i]]);
        }
        stride[axis[i]] = a->dim[i] == 1 ? 0 : step;
        step *= a->dim[i];
    }
    return ATTN_OK;
}

static attn_status read_masks(srv_request *r, const shapes *z, attn_error *err)
{
    static const int mask_axes[3][4] = {{0, 3}, {0, 2, 3}, {0, 1, 2, 3}};
    static const int bias_axes[5][4] = {{0}, {3}, {2, 3}, {1, 2, 3}, {0, 1, 2, 3}};
    const srv_array *mask = srv_request_array(r, SRV_F_ATTENTION_MASK);
    const srv_array *bias = srv_request_array(r, SRV_F_ATTENTION_BIAS);
    const size_t full[4] = {r->batch, r->heads.num_heads, z->t, z->past + z->s_new};
    size_t m[4] = {0}, a[4] = {0};

    if (mask->present)
        ATTN_TRY(
            srv_request_broadcast("attention_mask", mask, mask_axes[mask->rank - 2], full, m, err));
    if (bias->present)
        ATTN_TRY(
            srv_request_broadcast("attention_bias", bias, bias_axes[bias->rank], full, a, err));
    for (size_t b = 0; b < r->batch; b++) {
        attn_sequence *q = &r->seqs[b];
        if (mask->present) {
            q->mask = mask->data.u8 + b * m[0];
            memcpy(q->mask_stride, m + 1, sizeof q->mask_stride);
        }
        if (bias->present) {
            q->bias = bias->data.f32 + b * a[0];
            memcpy(q->bias_stride, a + 1, sizeof q->bias_stride);
        }
    }
    return ATTN_OK;
}

/* Labels: one for each token of each sequence. */
static attn_status check_tokens(srv_request *r, attn_error *err)
{
    const srv_array *a = srv_request_array(r, SRV_F_TOKENS);

    if (!a->present)
        return ATTN_OK;
    size_t lists = a->rank == 2 ? a->dim[0] : 1;
    if ((a->rank == 1 && !r->single) || (lists != r->batch))
        return attn_fail_at(err, ATTN_ESHAPE, "/tokens",
                            "/tokens holds %zu lists of labels for %zu sequences", lists, r->batch);
    for (size_t b = 0; b < r->batch; b++) {
        size_t labels = a->rank == 1 ? a->dim[0] : a->lengths[b];
        if (labels != r->sizes[b].t) {
            attn_error at = {0};
            (void)attn_fail(&at, ATTN_ESHAPE, "/tokens/%zu", b);
            return attn_fail_at(err, ATTN_ESHAPE, at.text, "%s holds %zu labels for %zu tokens",
                                at.text, labels, r->sizes[b].t);
        }
    }
    return ATTN_OK;
}

/* --- the plan ---------------------------------------------------------------------------------- */

static attn_status plan_result(srv_request *r, srv_result_name which, attn_error *err)
{
    srv_result *result = &r->results[which];

    bool pooled = which == SRV_MAPS && r->pool != 0;

    result->offset = calloc(r->batch + 1, sizeof *result->offset);
    if (pooled)
        result->at = calloc(r->batch + 1, sizeof *result->at);
    if (result->offset == NULL || (pooled && result->at == NULL))
        return attn_fail(err, ATTN_ENOMEM, "no memory for %zu sequences", r->batch);
    for (size_t b = 0; b < r->batch; b++) {
        srv_shape z = srv_shape_of(r, which, &r->sizes[b]);
        size_t n = 0, room = 0, rows = pooled ? r->sizes[b].map_rows : z.rows;
        result->offset[b] = result->count;
        if (pooled)
            result->at[b] = result->room;
        if (!attn_size_product((size_t[]){z.heads, z.rows, z.width}, 3, &n) ||
            !attn_size_product((size_t[]){z.heads, rows, z.width}, 3, &room) ||
            !attn_size_add(result->count, n, &result->count) ||
            !attn_size_add(result->room, room, &result->room) || result->room > SIZE_MAX / 64)
            return attn_fail(err, ATTN_ETOOBIG,
                             "the results of %zu sequences are larger than any memory", r->batch);
    }
    return ATTN_OK;
}

static attn_status plan_results(srv_request *r, attn_error *err)
{
    const srv_array *labels = srv_request_array(r, SRV_F_TOKENS);

    for (size_t i = 0; i < r->num_results; i++)
        ATTN_TRY(plan_result(r, r->order[i], err));
    for (size_t b = 0; b < r->batch; b++) {
        r->seqs[b].map_rows = r->sizes[b].map_rows;
        r->seqs[b].map_columns = r->sizes[b].map_columns;
    }
    /* The text of the answer around its numbers. */
    r->plan.inputs += r->num_results * (r->ragged ? r->batch : 1) * SRV_JSON_TENSOR_BYTES;
    r->plan.inputs += labels->present ? 2 * labels->count : 0;
    r->plan.inputs += r->encoder;
    return ATTN_OK;
}

static attn_status plan(srv_request *r, const shapes *z, size_t workers, attn_error *err)
{
    static const srv_field_name tensors[] = {SRV_F_INPUTS_EMBEDS,  SRV_F_ENCODER_HIDDEN_STATES,
                                             SRV_F_QUERY,          SRV_F_KEY,
                                             SRV_F_VALUE,          SRV_F_LENGTHS,
                                             SRV_F_ATTENTION_MASK, SRV_F_ATTENTION_BIAS,
                                             SRV_F_CAUSAL_OFFSET,  SRV_F_PAST_KEY,
                                             SRV_F_PAST_VALUE,     SRV_F_POSITION_IDS,
                                             SRV_F_TOKENS};
    srv_plan *p = &r->plan;

    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        p->inputs += srv_array_bytes(srv_request_array(r, tensors[i]));
    if (r->kind == SRV_ESTIMATE) {
        const attn_layer_spec *s = attn_layer_get_spec(r->layer);
        size_t x = 0, context = 0;
        if (!attn_size_product((size_t[]){z->batch, z->t, s->d_model, sizeof(float)}, 4, &x) ||
            (z->cross && !attn_size_product((size_t[]){z->batch, z->s_new, s->d_kv, sizeof(float)},
                                            4, &context)) ||
            x > SIZE_MAX / 64 || context > SIZE_MAX / 64)
            return attn_fail(err, ATTN_ETOOBIG, "the inputs are larger than any memory");
        p->inputs += x + context;
    }
    ATTN_TRY(plan_results(r, err));
    srv_plan_make(r, workers);
    return ATTN_OK;
}

attn_status srv_request_parse(srv_request *r, size_t workers, attn_error *err)
{
    shapes z = {0};

    ATTN_TRY(r->source != NULL ? srv_source_finish(r->source, err)
                               : srv_json_reader_finish(r->reader, err));
    srv_source_free(r->source);
    r->source = NULL;
    r->options.window = (attn_window){-1, -1};
    if (r->encode != NULL)
        return srv_encode_parse(r, workers, err);
    if (r->kind != SRV_SDPA)
        ATTN_TRY(choose_layer(r, err));
    if (r->kind == SRV_ATTENTION)
        ATTN_TRY(read_inputs(r, &z, err));
    else if (r->kind == SRV_ESTIMATE)
        ATTN_TRY(read_estimated_shape(r, &z, err));
    else
        ATTN_TRY(read_heads_tensors(r, &z, err));
    ATTN_TRY(srv_request_read_options(r, err));
    ATTN_TRY(read_past(r, &z, err));
    ATTN_TRY(allocate_sequences(r, &z, err));
    place_sequences(r, &z);
    ATTN_TRY(read_lengths(r, &z, err));
    ATTN_TRY(read_causal_offset(r, &z, err));
    ATTN_TRY(read_positions(r, &z, err));
    ATTN_TRY(read_masks(r, &z, err));
    ATTN_TRY(check_tokens(r, err));
    ATTN_TRY(srv_request_check_ranges(r, err));
    for (size_t b = 0; b < r->batch; b++)
        r->tokens += r->seqs[b].q_len;
    srv_json_reader_drop_values(r->reader); /* all are read; the plan counts the arrays alone */
    return plan(r, &z, workers, err);
}

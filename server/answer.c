#include "server/answer.h"

static const char *const intermediate_names[SRV_INTERMEDIATES] = {"query", "key", "value",
                                                                  "logsumexp", "context"};

/* One sequence's shape in each result, without the batch dimension; returns the rank. */
typedef size_t shape_of(const srv_request *r, const srv_sizes *z, size_t *dim);

static size_t output_shape(const srv_request *r, const srv_sizes *z, size_t *dim)
{
    if (r->layer != NULL) {
        dim[0] = z->t;
        dim[1] = r->d_out;
        return 2;
    }
    dim[0] = r->heads.num_heads;
    dim[1] = z->t;
    dim[2] = r->heads.v_head_dim;
    return 3;
}

static size_t map_shape(const srv_request *r, const srv_sizes *z, size_t *dim)
{
    size_t rank = 0;
    if (r->options.reduce == ATTN_REDUCE_NONE)
        dim[rank++] = r->options.num_heads;
    dim[rank++] = z->map_rows;
    dim[rank++] = z->map_columns;
    return rank;
}

static size_t query_shape(const srv_request *r, const srv_sizes *z, size_t *dim)
{
    dim[0] = r->heads.num_heads;
    dim[1] = z->t;
    dim[2] = r->heads.head_dim;
    return 3;
}

static size_t key_shape(const srv_request *r, const srv_sizes *z, size_t *dim)
{
    dim[0] = r->heads.num_kv_heads;
    dim[1] = z->s;
    dim[2] = r->heads.head_dim;
    return 3;
}

static size_t value_shape(const srv_request *r, const srv_sizes *z, size_t *dim)
{
    (void)key_shape(r, z, dim);
    dim[2] = r->heads.v_head_dim;
    return 3;
}

static size_t logsumexp_shape(const srv_request *r, const srv_sizes *z, size_t *dim)
{
    dim[0] = r->heads.num_heads;
    dim[1] = z->t;
    return 2;
}

static size_t context_shape(const srv_request *r, const srv_sizes *z, size_t *dim)
{
    dim[0] = z->t;
    dim[1] = r->heads.num_heads * r->heads.v_head_dim;
    return 2;
}

static shape_of *const intermediate_shapes[SRV_INTERMEDIATES] = {
    query_shape, key_shape, value_shape, logsumexp_shape, context_shape};

/* A result as it leaves: one tensor, or in a ragged batch a list of them. Calls `emit` for each. */
typedef struct {
    const srv_request *r;
    srv_json_writer *w; /* NULL: only `bytes` is counted */
    size_t bytes;
} sink;

static void emit(sink *s, const float *data, size_t rank, const size_t *dim)
{
    if (s->w != NULL) {
        srv_json_writer_tensor(s->w, data, rank, dim, s->r->base64);
        return;
    }
    size_t count = 1;
    for (size_t i = 0; i < rank; i++)
        count *= dim[i];
    s->bytes += srv_json_writer_bound(count, rank, dim, s->r->base64);
}

static void text(sink *s, const char *t, size_t n)
{
    if (s->w != NULL)
        srv_json_writer_raw(s->w, t, n);
    else
        s->bytes += n;
}

static void emit_result(sink *s, const srv_result *result, shape_of *shape)
{
    const srv_request *r = s->r;
    size_t dim[5];

    if (r->single) {
        size_t rank = shape(r, &r->sizes[0], dim);
        emit(s, result->data, rank, dim);
        return;
    }
    if (!r->ragged) {
        static const srv_sizes none;
        dim[0] = r->batch;
        size_t rank = shape(r, r->batch == 0 ? &none : &r->sizes[0], dim + 1);
        emit(s, result->data, rank + 1, dim);
        return;
    }
    text(s, "[", 1);
    for (size_t b = 0; b < r->batch; b++) {
        size_t rank = shape(r, &r->sizes[b], dim);
        if (b != 0)
            text(s, ",", 1);
        emit(s, result->data == NULL ? NULL : result->data + result->offset[b], rank, dim);
    }
    text(s, "]", 1);
}

static void emit_results(sink *s)
{
    const srv_request *r = s->r;

    if (r->want_outputs) {
        text(s, "\"outputs\":", 10);
        emit_result(s, &r->outputs, output_shape);
        text(s, ",", 1);
    }
    if (r->options.want_maps) {
        text(s, "\"attentions\":", 13);
        emit_result(s, &r->maps, map_shape);
        text(s, ",", 1);
    }
    if (r->num_intermediates == 0)
        return;
    text(s, "\"intermediates\":{", 17);
    for (size_t i = 0; i < r->num_intermediates; i++) {
        unsigned which = r->order[i];
        if (i != 0)
            text(s, ",", 1);
        if (s->w != NULL)
            srv_json_writer_format(s->w, "\"%s\":", intermediate_names[which]);
        else
            s->bytes += 16;
        emit_result(s, &r->intermediates[which], intermediate_shapes[which]);
    }
    text(s, "},", 2);
}

srv_json_writer *srv_answer(const srv_request *r)
{
    srv_json_writer *w = srv_json_writer_new();
    sink s = {r, w, 0};
    const srv_array *labels = srv_request_array(r, SRV_F_TOKENS);

    if (w == NULL)
        return NULL;
    srv_json_writer_raw(w, "{", 1);
    if (r->model != NULL) {
        srv_json_writer_raw(w, "\"model\":", 8);
        srv_json_writer_string(w, attn_model_name(r->model));
        srv_json_writer_format(w, ",\"layer\":%zu,", r->layer_index);
    }
    emit_results(&s);
    if (labels->present) {
        srv_json_writer_raw(w, "\"tokens\":", 9);
        srv_json_writer_raw(w, (const char *)labels->data.u8, labels->count);
        srv_json_writer_raw(w, ",", 1);
    }
    srv_json_writer_format(w,
                           "\"usage\":{\"sequences\":%zu,\"tokens\":%zu,\"micro_batches\":%zu,"
                           "\"peak_bytes\":%zu,\"fully_masked_rows\":%zu}}",
                           r->batch, r->tokens, r->plan.micro_batches, r->plan.reserved,
                           r->stats.fully_masked_rows);
    if (srv_json_writer_status(w) != ATTN_OK) {
        srv_json_writer_free(w);
        return NULL;
    }
    return w;
}

size_t srv_answer_bound(const srv_request *r)
{
    enum { ENVELOPE = 512 };
    sink s = {r, NULL, ENVELOPE};
    const srv_array *labels = srv_request_array(r, SRV_F_TOKENS);

    emit_results(&s);
    return s.bytes + (labels->present ? labels->count : 0);
}

srv_json_writer *srv_answer_estimate(const srv_request *r)
{
    srv_json_writer *w = srv_json_writer_new();
    const srv_plan *p = &r->plan;

    if (w == NULL)
        return NULL;
    srv_json_writer_format(
        w,
        "{\"fits\":%s,\"needed_bytes\":%zu,\"limit_bytes\":%zu,\"micro_batches\":%zu,"
        "\"response_bytes\":%zu,\"parts\":{\"inputs\":%zu,\"workspace\":%zu,"
        "\"outputs\":%zu,\"attentions\":%zu}}",
        p->needed <= r->budget->limit ? "true" : "false", p->needed, r->budget->limit,
        p->micro_batches, srv_answer_bound(r), p->inputs, p->least_workspace, p->outputs,
        p->attentions);
    if (srv_json_writer_status(w) != ATTN_OK) {
        srv_json_writer_free(w);
        return NULL;
    }
    return w;
}

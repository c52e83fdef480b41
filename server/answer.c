#include "server/answer.h"

#include <string.h>

#include "server/pieces.h"

static const char *const result_names[SRV_RESULTS] = {
    [SRV_QUERY] = "query",         [SRV_KEY] = "key",         [SRV_VALUE_HEADS] = "value",
    [SRV_LOGSUMEXP] = "logsumexp", [SRV_CONTEXT] = "context", [SRV_OUTPUTS] = "outputs",
    [SRV_MAPS] = "attentions"};

/* A result as it leaves: one tensor, or in a ragged batch a list of them. Calls `emit` for each. */
typedef struct {
    const srv_request *r;
    srv_json_writer *w; /* NULL: only `bytes` is counted */
    size_t bytes;
} sink;

static void emit(sink *s, const float *data, size_t rank, const size_t *dim)
{
    size_t count = 1;

    if (s->w != NULL && s->r->plan.streamed)
        srv_json_writer_tensor_in_parts(s->w, rank, dim, s->r->base64);
    else if (s->w != NULL)
        srv_json_writer_tensor(s->w, data, rank, dim, s->r->base64);
    for (size_t i = 0; i < rank; i++)
        count *= dim[i];
    s->bytes += srv_json_writer_bound(count, rank, dim, s->r->base64);
}

static void text(sink *s, const char *t, size_t n)
{
    if (s->w != NULL)
        srv_json_writer_raw(s->w, t, n);
    s->bytes += n;
}

static void emit_result(sink *s, srv_result_name which)
{
    const srv_request *r = s->r;
    const srv_result *result = &r->results[which];
    srv_shape shape;
    size_t dim[4];

    if (r->single) {
        shape = srv_shape_of(r, which, &r->sizes[0]);
        emit(s, result->data, shape.rank, shape.dim);
        return;
    }
    if (!r->ragged) {
        static const srv_sizes none;
        shape = srv_shape_of(r, which, r->batch == 0 ? &none : &r->sizes[0]);
        dim[0] = r->batch;
        for (size_t i = 0; i < shape.rank; i++)
            dim[i + 1] = shape.dim[i];
        emit(s, result->data, shape.rank + 1, dim);
        return;
    }
    text(s, "[", 1);
    for (size_t b = 0; b < r->batch; b++) {
        shape = srv_shape_of(r, which, &r->sizes[b]);
        if (b != 0)
            text(s, ",", 1);
        emit(s, result->data == NULL ? NULL : result->data + result->offset[b], shape.rank,
             shape.dim);
    }
    text(s, "]", 1);
}

static void emit_results(sink *s)
{
    const srv_request *r = s->r;
    bool inner = false;

    for (size_t i = 0; i < r->num_results; i++) {
        const char *name = result_names[r->order[i]];
        if (r->order[i] < SRV_INTERMEDIATES && !inner) {
            text(s, "\"intermediates\":{", 17);
            inner = true;
        }
        text(s, "\"", 1);
        text(s, name, strlen(name));
        text(s, "\":", 2);
        emit_result(s, r->order[i]);
        if (i + 1 < r->num_results || !inner)
            text(s, ",", 1);
    }
    if (inner)
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
    if (!r->plan.streamed)
        srv_answer_usage(r, w);
    if (srv_json_writer_status(w) != ATTN_OK) {
        srv_json_writer_free(w);
        return NULL;
    }
    return w;
}

void srv_answer_usage(const srv_request *r, srv_json_writer *w)
{
    srv_json_writer_format(w,
                           "\"usage\":{\"sequences\":%zu,\"tokens\":%zu,\"micro_batches\":%zu,"
                           "\"peak_bytes\":%zu,\"fully_masked_rows\":%zu}}",
                           r->batch, r->tokens, r->plan.micro_batches, r->plan.reserved,
                           r->stats.fully_masked_rows);
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

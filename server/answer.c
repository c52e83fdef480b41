#include "server/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/npy_body.h"
#include "server/pieces.h"
#include "server/safetensors_body.h"

static const char *const result_names[SRV_RESULTS] = {
    [SRV_QUERY] = "query",         [SRV_KEY] = "key",         [SRV_VALUE_HEADS] = "value",
    [SRV_LOGSUMEXP] = "logsumexp", [SRV_CONTEXT] = "context", [SRV_OUTPUTS] = "outputs",
    [SRV_MAPS] = "attentions"};

static const char *const map_names[] = {"indices", "values", "rest"};

#define SCALE "\"dtype\":\"uint8\",\"scale\":" SRV_UINT8_SCALE ","

/* A result as it leaves: one tensor, or in a ragged batch a list of them. Calls `emit` for each. */
typedef struct {
    const srv_request *r;
    srv_json_writer *w; /* NULL: only `bytes` is counted */
    size_t bytes;
} sink;

attn_dtype srv_result_dtype(const srv_request *r, srv_result_name which)
{
    return which == SRV_MAPS ? r->map_dtype : which == SRV_TOP_KEYS ? ATTN_I32 : ATTN_F32;
}

static void emit(sink *s, srv_result_name which, const float *data, size_t rank, const size_t *dim)
{
    size_t count = 1;

    if (s->w != NULL)
        srv_json_writer_values(s->w, s->r->plan.streamed ? NULL : data, rank, dim,
                               s->r->base64 ? SRV_BASE64 : SRV_LISTS,
                               srv_result_dtype(s->r, which));
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
        emit(s, which, result->data, shape.rank, shape.dim);
        return;
    }
    if (!r->ragged) {
        shape = srv_shape_of(r, which, &r->sizes[0]);
        dim[0] = r->batch;
        for (size_t i = 0; i < shape.rank; i++)
            dim[i + 1] = shape.dim[i];
        emit(s, which, result->data, shape.rank + 1, dim);
        return;
    }
    text(s, "[", 1);
    for (size_t b = 0; b < r->batch; b++) {
        shape = srv_shape_of(r, which, &r->sizes[b]);
        if (b != 0)
            text(s, ",", 1);
        emit(s, which, result->data == NULL ? NULL : result->data + result->offset[b], shape.rank,
             shape.dim);
    }
    text(s, "]", 1);
}

static void name(sink *s, const char *t)
{
    text(s, "\"", 1);
    text(s, t, strlen(t));
    text(s, "\":", 2);
}

/* Are maps an object of several members? */
static bool maps_have_members(const srv_request *r)
{
    return r->options.top_k != 0 || r->map_dtype == ATTN_U8;
}

/* The results of the maps, from r->order[i] on; returns how many there are. */
static size_t emit_maps(sink *s, size_t i)
{
    const srv_request *r = s->r;
    size_t n = 0;

    name(s, result_names[SRV_MAPS]);
    if (!maps_have_members(r)) {
        emit_result(s, SRV_MAPS);
        return 1;
    }
    text(s, "{", 1);
    if (r->map_dtype == ATTN_U8)
        text(s, SCALE, sizeof SCALE - 1);
    for (; i + n < r->num_results && srv_is_map(r->order[i + n]); n++) {
        srv_result_name which = r->order[i + n];
        if (n > 0)
            text(s, ",", 1);
        name(s, map_names[which == SRV_TOP_KEYS ? 0 : which == SRV_MAPS ? 1 : 2]);
        emit_result(s, which);
    }
    text(s, "}", 1);
    return n;
}

static void emit_results(sink *s)
{
    const srv_request *r = s->r;
    bool inner = false;

    for (size_t i = 0; i < r->num_results;) {
        if (r->order[i] < SRV_INTERMEDIATES && !inner) {
            text(s, "\"intermediates\":{", 17);
            inner = true;
        }
        if (srv_is_map(r->order[i])) {
            i += emit_maps(s, i);
        } else {
            name(s, result_names[r->order[i]]);
            emit_result(s, r->order[i++]);
        }
        if (i < r->num_results || !inner)
            text(s, ",", 1);
    }
    if (inner)
        text(s, "},", 2);
}

/* --- tensors alone ------------------------------------------------------------------------------- */

typedef struct {
    srv_safetensors_entry entry[SRV_RESULTS];
    size_t n, bytes; /* of the data */
} tensors;

static tensors list_tensors(const srv_request *r)
{
    static const char *const top_names[] = {"attentions.indices", "attentions.values",
                                            "attentions.rest"};
    tensors t = {.n = r->num_results};

    for (size_t i = 0; i < t.n; i++) {
        srv_result_name which = r->order[i];
        srv_safetensors_entry *e = &t.entry[i];
        srv_shape z = srv_shape_of(r, which, &r->sizes[0]);
        size_t count = 1;
        e->name = r->options.top_k != 0 && srv_is_map(which) ? top_names[which == SRV_TOP_KEYS ? 0
                                                                         : which == SRV_MAPS   ? 1
                                                                                               : 2]
                                                             : result_names[which];
        e->dtype = srv_result_dtype(r, which);
        if (!r->single)
            e->dim[e->rank++] = r->batch;
        for (size_t k = 0; k < z.rank; k++)
            e->dim[e->rank++] = z.dim[k];
        for (size_t k = 0; k < e->rank; k++)
            count *= e->dim[k];
        t.bytes += count * attn_dtype_size(e->dtype);
    }
    return t;
}

static void write_safetensors_header(const srv_request *r, const tensors *t, srv_json_writer *w)
{
    srv_safetensors_option option[3];
    char layer[32];
    size_t n = 0, bytes = 0;

    (void)snprintf(layer, sizeof layer, "%zu", r->layer_index);
    if (r->model != NULL) {
        option[n++] = (srv_safetensors_option){"model", attn_model_name(r->model)};
        option[n++] = (srv_safetensors_option){"layer", layer};
    }
    if (r->want[SRV_MAPS] && r->map_dtype == ATTN_U8)
        option[n++] = (srv_safetensors_option){"attentions.scale", SRV_UINT8_SCALE};
    char *header = srv_safetensors_header(t->entry, t->n, option, n, &bytes);
    if (header == NULL)
        srv_json_writer_fail(w);
    else
        srv_json_writer_raw(w, header, bytes);
    free(header);
}

static void write_tensors(srv_json_writer *w, const srv_request *r)
{
    tensors t = list_tensors(r);

    if (r->format == SRV_AS_NPY) {
        char header[SRV_NPY_HEADER_MAX];
        const srv_safetensors_entry *e = &t.entry[0];
        srv_json_writer_raw(w, header, srv_npy_header(header, e->dtype, e->rank, e->dim));
    } else {
        write_safetensors_header(r, &t, w);
    }
    for (size_t i = 0; i < t.n; i++)
        srv_json_writer_values(w, r->plan.streamed ? NULL : r->results[r->order[i]].data,
                               t.entry[i].rank, t.entry[i].dim, SRV_BYTES, t.entry[i].dtype);
}

/* --- answers ------------------------------------------------------------------------------------- */

srv_json_writer *srv_answer(const srv_request *r)
{
    srv_json_writer *w = srv_json_writer_new();
    sink s = {r, w, 0};
    const srv_array *labels = srv_request_array(r, SRV_F_TOKENS);

    if (w == NULL)
        return NULL;
    if (r->answer != NULL || r->format != SRV_AS_JSON) {
        (r->answer != NULL ? r->answer : write_tensors)(w, r);
        goto done;
    }
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
done:
    if (srv_json_writer_status(w) != ATTN_OK) {
        srv_json_writer_free(w);
        return NULL;
    }
    return w;
}

void srv_answer_usage(const srv_request *r, srv_json_writer *w)
{
    if (r->answer != NULL || r->format != SRV_AS_JSON)
        return;
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

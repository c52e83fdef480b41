/* Answers of a whole encoder: ours, and those of OpenAI's and text-embeddings-inference's interfaces. */
#include <stdlib.h>
#include <string.h>

#include "core/base64.h"
#include "server/answer.h"
#include "server/encode.h"
#include "server/pieces.h"

#define PUT(w, literal) srv_json_writer_raw(w, literal, sizeof(literal) - 1)

/* The spelling of a token, or nothing for an id that the tokeniser does not know. */
static const char *spelling(const srv_request *r, size_t i)
{
    const char *token = attn_tokenizer_token(r->tokenizer, (uint32_t)r->encode->ids[i]);
    return token != NULL ? token : "";
}

static bool has_tokens(const srv_request *r)
{
    return r->encode->ids != NULL && r->tokenizer != NULL;
}

size_t srv_encode_text_bytes(const srv_request *r)
{
    enum { ID = 12, ESCAPED = 6, AROUND = 512 };
    const srv_encode *e = r->encode;
    const attn_encode_options *o = &e->options;
    size_t tensors = o->num_hidden + o->num_map_layers * (o->maps.top_k != 0 ? 3 : 1) + 2;
    size_t bytes = AROUND + r->batch * ID;

    if (r->kind == SRV_EMBEDDINGS) /* an object for each embedding, base64 as text */
        return bytes + r->batch * (SRV_JSON_TENSOR_BYTES + 128) +
               (r->base64 ? r->batch * ATTN_BASE64_ENCODED(e->info->d_model * sizeof(float)) : 0);
    bytes += tensors * (r->ragged ? r->batch : 1) * SRV_JSON_TENSOR_BYTES;
    for (size_t i = 0; i < e->first[r->batch] && e->ids != NULL && r->kind == SRV_ENCODE; i++)
        bytes += ID + (has_tokens(r) ? ESCAPED * strlen(spelling(r, i)) + 3 : 0);
    return bytes;
}

/* --- pieces --------------------------------------------------------------------------------------- */

/* Numbers of `layers` times all sequences, each [..z->dim], in lists around them; layers 0 = without that level. */
static void put_values(srv_json_writer *w, const srv_request *r, const void *data, size_t layers,
                       srv_shape (*shape)(const srv_request *r, size_t b), attn_dtype dtype)
{
    srv_form form = r->base64 ? SRV_BASE64 : SRV_LISTS;
    const char *at = data;
    size_t dim[5], rank = 0, n = layers > 0 ? layers : 1;

    if (!r->ragged) {
        srv_shape z = shape(r, 0);
        if (layers > 0)
            dim[rank++] = layers;
        dim[rank++] = r->batch;
        for (size_t i = 0; i < z.rank; i++)
            dim[rank++] = z.dim[i];
        srv_json_writer_values(w, data, rank, dim, form, dtype);
        return;
    }
    if (layers > 0)
        PUT(w, "[");
    for (size_t k = 0; k < n; k++) {
        srv_json_writer_format(w, "%s[", k > 0 ? "," : "");
        for (size_t b = 0; b < r->batch; b++) {
            srv_shape z = shape(r, b);
            size_t count = 1;
            for (size_t i = 0; i < z.rank; i++)
                count *= z.dim[i];
            if (b > 0)
                PUT(w, ",");
            srv_json_writer_values(w, at, z.rank, z.dim, form, dtype);
            at += count * sizeof(float);
        }
        PUT(w, "]");
    }
    if (layers > 0)
        PUT(w, "]");
}

static srv_shape of_rows(const srv_request *r, size_t b)
{
    return (srv_shape){.rank = 2, .dim = {r->sizes[b].t, r->encode->info->d_model}};
}

static srv_shape of_rollout(const srv_request *r, size_t b)
{
    return (srv_shape){.rank = 2, .dim = {r->sizes[b].t, r->sizes[b].t}};
}

static srv_shape of_maps(const srv_request *r, size_t b)
{
    return srv_shape_of(r, SRV_MAPS, &r->sizes[b]);
}

static srv_shape of_rest(const srv_request *r, size_t b)
{
    return srv_shape_of(r, SRV_TOP_REST, &r->sizes[b]);
}

static void put_tokens(srv_json_writer *w, const srv_request *r)
{
    const srv_encode *e = r->encode;

    if (has_tokens(r)) {
        PUT(w, "\"tokens\":[");
        for (size_t b = 0; b < r->batch; b++) {
            srv_json_writer_format(w, "%s[", b > 0 ? "," : "");
            for (size_t i = e->first[b]; i < e->first[b + 1]; i++) {
                if (i > e->first[b])
                    PUT(w, ",");
                srv_json_writer_string(w, spelling(r, i));
            }
            PUT(w, "]");
        }
        PUT(w, "],");
    }
    if (e->ids == NULL)
        return;
    PUT(w, "\"input_ids\":[");
    for (size_t b = 0; b < r->batch; b++) {
        srv_json_writer_format(w, "%s[", b > 0 ? "," : "");
        for (size_t i = e->first[b]; i < e->first[b + 1]; i++)
            srv_json_writer_format(w, i > e->first[b] ? ",%d" : "%d", e->ids[i]);
        PUT(w, "]");
    }
    PUT(w, "],");
}

static void put_embeddings(srv_json_writer *w, const srv_request *r)
{
    const srv_encode *e = r->encode;
    const size_t dim[2] = {r->batch, e->info->d_model};

    if (e->options.pooling == ATTN_EMBED_NONE)
        put_values(w, r, e->states + (e->options.num_hidden - 1) * e->states_stride, 0, of_rows,
                   ATTN_F32);
    else
        srv_json_writer_tensor(w, e->embeddings, 2, dim, r->base64);
}

static void put_maps(srv_json_writer *w, const srv_request *r)
{
    const srv_encode *e = r->encode;
    size_t layers = e->options.num_map_layers;
    bool top = r->options.top_k != 0, small = r->map_dtype == ATTN_U8;

    if (top || small)
        PUT(w, "{");
    if (small)
        PUT(w, "\"dtype\":\"uint8\",\"scale\":" SRV_UINT8_SCALE ",");
    if (top) {
        PUT(w, "\"indices\":");
        put_values(w, r, e->top_keys, layers, of_maps, ATTN_I32);
        PUT(w, ",");
    }
    if (top || small)
        PUT(w, "\"values\":");
    put_values(w, r, e->maps, layers, of_maps, r->map_dtype);
    if (top && r->options.stage == ATTN_PROBABILITIES) {
        PUT(w, ",\"rest\":");
        put_values(w, r, e->top_rest, layers, of_rest, ATTN_F32);
    }
    if (top || small)
        PUT(w, "}");
}

/* --- answers -------------------------------------------------------------------------------------- */

static void put_usage(srv_json_writer *w, const srv_request *r)
{
    srv_json_writer_format(w,
                           "\"usage\":{\"sequences\":%zu,\"tokens\":%zu,\"micro_batches\":%zu,"
                           "\"peak_bytes\":%zu,\"fully_masked_rows\":%zu,\"truncated\":[",
                           r->batch, r->tokens, r->plan.micro_batches, r->plan.reserved,
                           r->stats.fully_masked_rows);
    for (size_t b = 0; b < r->batch; b++)
        srv_json_writer_format(w, "%s%s", b > 0 ? "," : "",
                               r->encode->truncated[b] ? "true" : "false");
    PUT(w, "]}");
}

static void put_encoded(srv_json_writer *w, const srv_request *r)
{
    const srv_encode *e = r->encode;
    const attn_encode_options *o = &e->options;
    bool rows = e->want_embeddings && o->pooling == ATTN_EMBED_NONE;

    PUT(w, "{\"model\":");
    srv_json_writer_string(w, attn_model_name(r->model));
    PUT(w, ",");
    put_tokens(w, r);
    if (e->want_embeddings) {
        PUT(w, "\"embeddings\":");
        put_embeddings(w, r);
        PUT(w, ",");
    }
    if (e->want_hidden) {
        PUT(w, "\"hidden_states\":");
        put_values(w, r, e->states, o->num_hidden - rows, of_rows, ATTN_F32);
        PUT(w, ",");
    }
    if (e->want_maps) {
        PUT(w, "\"attentions\":");
        put_maps(w, r);
        PUT(w, ",");
    }
    if (o->rollout) {
        PUT(w, "\"rollout\":");
        put_values(w, r, e->rollout, 0, of_rollout, ATTN_F32);
        PUT(w, ",");
    }
    put_usage(w, r);
    PUT(w, "}");
}

static void put_base64(srv_json_writer *w, const float *x, size_t n)
{
    size_t length = ATTN_BASE64_ENCODED(n * sizeof *x);
    char *text = malloc(length + 2);

    if (text == NULL) {
        srv_json_writer_fail(w);
        return;
    }
    text[0] = text[length + 1] = '"';
    attn_base64_encode(text + 1, x, n * sizeof *x);
    srv_json_writer_raw(w, text, length + 2);
    free(text);
}

/* https://platform.openai.com/docs/api-reference/embeddings */
static void put_openai(srv_json_writer *w, const srv_request *r)
{
    const srv_encode *e = r->encode;
    size_t width = e->info->d_model;

    PUT(w, "{\"object\":\"list\",\"data\":[");
    for (size_t b = 0; b < r->batch; b++) {
        srv_json_writer_format(
            w, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", b > 0 ? "," : "", b);
        if (r->base64)
            put_base64(w, e->embeddings + b * width, width);
        else
            srv_json_writer_tensor(w, e->embeddings + b * width, 1, &width, false);
        PUT(w, "}");
    }
    PUT(w, "],\"model\":");
    srv_json_writer_string(w, attn_model_name(r->model));
    srv_json_writer_format(w, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}", r->tokens,
                           r->tokens);
}

void srv_encode_answer(srv_json_writer *w, const srv_request *r)
{
    if (r->kind == SRV_ENCODE)
        put_encoded(w, r);
    else if (r->kind == SRV_EMBEDDINGS)
        put_openai(w, r);
    else
        put_embeddings(w, r);
}

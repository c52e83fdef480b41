/* A body: its JSON, then the bytes of its binary tensors, into the members of a request for attention. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/oip_private.h"
#include "server/pieces.h"

/* --- header fields ----------------------------------------------------------------------------- */

static attn_status read_length(const char *text, const srv_oip_body *b, uint64_t *out,
                               attn_error *err)
{
    uint64_t n = 0;
    const char *p = text;

    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(n, 10u, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
            break;
    }
    if (p == text || *p != '\0')
        return attn_fail(err, ATTN_EINVAL, SRV_OIP_HEADER_LENGTH " is no number of bytes: %.40s",
                         text);
    if (n > b->max_bytes || (b->coding == SRV_IDENTITY && n > b->length))
        return attn_fail(err, ATTN_EINVAL, SRV_OIP_HEADER_LENGTH " is %llu, more than the body has",
                         (unsigned long long)n);
    *out = n;
    return ATTN_OK;
}

#define CODINGS (1u << SRV_IDENTITY | 1u << SRV_GZIP | 1u << SRV_DEFLATE)

static const char *const answer_types[] = {"application/json", SRV_OIP_BINARY_TYPE};
const srv_media srv_oip_media = {NULL, 0, CODINGS, answer_types, 2, CODINGS};

attn_status srv_oip_read_fields(const srv_exchange *x, srv_oip_body *body, attn_error *err)
{
    const char *length = srv_http_header(x, SRV_OIP_HEADER_LENGTH);

    *body = (srv_oip_body){.json_bytes = UINT64_MAX,
                           .length = srv_http_content_length(x),
                           .max_bytes = srv_http_max_body(x),
                           .coding = srv_http_body_coding(x),
                           .answer_coding = srv_http_answer_coding(x, false)};
    if (srv_http_header_count(x, SRV_OIP_HEADER_LENGTH) > 1)
        return attn_fail(err, ATTN_EINVAL, SRV_OIP_HEADER_LENGTH " stands there more than once");
    return length != NULL ? read_length(length, body, &body->json_bytes, err) : ATTN_OK;
}

/* --- a body ------------------------------------------------------------------------------------ */

static attn_status feed_json(srv_oip *o, const char *bytes, size_t n, size_t *used, attn_error *err)
{
    uint64_t left = o->body.json_bytes - o->json.n;

    *used = n < left ? n : (size_t)left;
    ATTN_TRY(srv_json_grow_within(o->r->reader, &o->json, *used,
                                  o->body.json_bytes < SIZE_MAX ? o->body.json_bytes : SIZE_MAX, 1,
                                  err));
    memcpy((char *)o->json.p + o->json.n, bytes, *used);
    o->json.n += *used;
    return o->json.n == o->body.json_bytes ? srv_oip_read_json(o, err) : ATTN_OK;
}

/* Goes to the first tensor that wants bytes; false when there is none. */
static bool next_tensor(srv_oip *o)
{
    while (o->next < o->num_binary && srv_raw_tensor_left(o->binary[o->next].tensor) == 0)
        o->next++;
    return o->next < o->num_binary;
}

static attn_status feed_decoded(void *arg, const char *bytes, size_t n, attn_error *err)
{
    srv_oip *o = arg;
    size_t used = 0;

    for (; n > 0; bytes += used, n -= used) {
        if (!o->read)
            ATTN_TRY(feed_json(o, bytes, n, &used, err));
        else if (!next_tensor(o))
            return attn_fail(err, ATTN_EINVAL,
                             "unexpected additional input data behind the last input's");
        else
            ATTN_TRY(srv_raw_tensor_feed(o->binary[o->next].tensor, bytes, n, &used, err));
    }
    return ATTN_OK;
}

attn_status srv_oip_raw(srv_oip *o, attn_error *err)
{
    const attn_layer_spec *s = attn_layer_get_spec(attn_model_layer(o->r->model, 0));
    const srv_oip_input *in = &srv_oip_inputs[0];
    attn_tensor like = {.dtype = ATTN_F32, .dtype_name = "FP32", .rank = 3};
    size_t token = s->d_model * sizeof(float);

    if (o->body.coding != SRV_IDENTITY || o->body.length == UINT64_MAX)
        return attn_fail(err, ATTN_EINVAL,
                         SRV_OIP_HEADER_LENGTH " is 0: a raw request has a Content-Length and no "
                                               "Content-Encoding");
    if (o->body.length % token != 0)
        return attn_fail(err, ATTN_EINVAL,
                         "a raw request holds one sequence of tokens of %zu bytes each; it has "
                         "%llu bytes",
                         token, (unsigned long long)o->body.length);
    like.dim[0] = 1;
    like.dim[1] = (size_t)(o->body.length / token);
    like.dim[2] = s->d_model;
    o->read = true;
    o->binary[0].name = in->name;
    o->num_binary = 1;
    attn_json *parameters = NULL;
    ATTN_TRY(
        attn_json_parse(&parameters, "{\"binary_data_output\":true}", 27, "a raw request", err));
    attn_status rc = srv_oip_read_parameters(o, parameters, err);
    attn_json_free(parameters);
    if (rc == ATTN_OK)
        rc = srv_raw_tensor_new(&o->binary[0].tensor, o->r->reader, in->member, &like, err);
    return rc;
}

static attn_status begin_inflate(srv_oip *o, attn_error *err)
{
    ATTN_TRY(srv_json_charge(o->r->reader, SRV_INFLATE_BYTES, err));
    attn_status rc =
        srv_inflate_new(&o->inflate, o->body.coding, o->body.max_bytes, feed_decoded, o, err);
    if (rc != ATTN_OK)
        srv_json_discharge(o->r->reader, SRV_INFLATE_BYTES);
    return rc;
}

attn_status srv_oip_new(srv_oip **out, srv_request *r, const srv_oip_body *body, attn_error *err)
{
    srv_oip *o = calloc(1, sizeof *o);
    attn_status rc = ATTN_OK;

    *out = NULL;
    if (o == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for a request");
    o->r = r;
    o->body = *body;
    r->answer = srv_oip_answer;
    r->answer_arg = o;
    if (body->answer_coding != SRV_IDENTITY)
        r->encoder += SRV_DEFLATE_BYTES;
    if (body->coding != SRV_IDENTITY)
        rc = begin_inflate(o, err);
    if (rc == ATTN_OK && body->json_bytes == 0)
        rc = srv_oip_raw(o, err);
    if (rc != ATTN_OK) {
        srv_oip_free(o);
        return rc;
    }
    *out = o;
    return ATTN_OK;
}

/* The tensors and the text are charged to the request's reader, which must still be there. */
static void end_input(srv_oip *o)
{
    if (o->inflate != NULL) {
        srv_inflate_free(o->inflate);
        o->inflate = NULL;
        srv_json_discharge(o->r->reader, SRV_INFLATE_BYTES);
    }
    for (size_t i = 0; i < o->num_binary; i++)
        srv_raw_tensor_free(o->binary[i].tensor);
    o->num_binary = 0;
    if (o->json.p != NULL)
        srv_json_drop(o->r->reader, &o->json, 1);
}

void srv_oip_free(srv_oip *o)
{
    if (o == NULL)
        return;
    end_input(o);
    srv_deflate_free(o->deflate);
    free(o);
}

attn_status srv_oip_feed(srv_oip *o, const char *bytes, size_t n, attn_error *err)
{
    attn_status rc = o->inflate != NULL ? srv_inflate_feed(o->inflate, bytes, n, err)
                                        : feed_decoded(o, bytes, n, err);
    if (rc != ATTN_OK)
        srv_oip_translate(err);
    return rc;
}

static attn_status finish(srv_oip *o, attn_error *err)
{
    if (o->inflate != NULL)
        ATTN_TRY(srv_inflate_finish(o->inflate, err));
    if (!o->read && o->body.json_bytes != UINT64_MAX)
        return attn_fail(err, ATTN_EINVAL,
                         "the body is cut: " SRV_OIP_HEADER_LENGTH " is %llu, it has %zu bytes",
                         (unsigned long long)o->body.json_bytes, o->json.n);
    if (!o->read)
        ATTN_TRY(srv_oip_read_json(o, err));
    if (next_tensor(o))
        return attn_fail(err, ATTN_EINVAL, "the body is cut: %s needs %zu bytes more",
                         o->binary[o->next].name, srv_raw_tensor_left(o->binary[o->next].tensor));
    for (size_t i = 0; i < o->num_binary; i++)
        ATTN_TRY(srv_raw_tensor_finish(o->binary[i].tensor, err));
    end_input(o);
    return srv_json_reader_close(o->r->reader, err);
}

/* A wish becomes one output, or several: with top_k there are the keys and the rest beside the values. */
static void list_outputs(srv_oip *o)
{
    const srv_request *r = o->r;

    for (size_t i = 0; i < o->num_wishes; i++) {
        srv_result_name which = srv_oip_results[o->wish[i].which];
        o->output[o->num_outputs++] = (srv_oip_output){which, o->wish[i].binary};
        for (int k = 0; which == SRV_MAPS && k < SRV_RESULTS; k++) {
            if (k != SRV_MAPS && r->want[k] && srv_is_map((srv_result_name)k))
                o->output[o->num_outputs++] =
                    (srv_oip_output){(srv_result_name)k, o->wish[i].binary};
        }
    }
}

/* Results are computed in the order in which they leave: the numbers in the JSON, then the bytes. */
static void order_results(srv_oip *o)
{
    size_t n = 0;

    for (int binary = 0; binary < 2; binary++) {
        for (size_t i = 0; i < o->num_outputs; i++) {
            if (o->output[i].binary == (binary == 1))
                o->r->order[n++] = o->output[i].which;
        }
    }
}

attn_status srv_oip_parse(srv_oip *o, size_t workers, attn_error *err)
{
    attn_status rc = finish(o, err);

    if (rc == ATTN_OK)
        rc = srv_request_parse(o->r, workers, err);
    if (rc != ATTN_OK) {
        srv_oip_translate(err);
        return rc;
    }
    list_outputs(o);
    order_results(o);
    return ATTN_OK;
}

/* --- messages ---------------------------------------------------------------------------------- */

static bool is_letter(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z');
}

/* Replaces a word wherever it stands alone, as far as there is room. */
static void replace(char *text, size_t size, const char *word, const char *by)
{
    size_t n = strlen(word), m = strlen(by);

    for (char *at = text; (at = strstr(at, word)) != NULL; at += m) {
        size_t rest = strlen(at + n);
        bool alone = (at == text || !is_letter(at[-1])) && !is_letter(at[n]);
        if (!alone || (size_t)(at - text) + m + rest >= size) {
            at += n - m; /* behind it */
            continue;
        }
        memmove(at + m, at + n, rest + 1);
        for (size_t i = 0; i < m; i++)
            at[i] = by[i];
    }
}

void srv_oip_translate(attn_error *err)
{
    for (size_t i = 0; i < SRV_OIP_INPUTS; i++) {
        const srv_oip_input *in = &srv_oip_inputs[i];
        if (strcmp(in->name, in->member) == 0)
            continue;
        replace(err->text, sizeof err->text, in->member, in->name);
        replace(err->pointer, sizeof err->pointer, in->member, in->name);
    }
}

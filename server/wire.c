#include "server/wire.h"

#include "server/npy_body.h"
#include "server/safetensors_body.h"

#define CODINGS (1u << SRV_IDENTITY | 1u << SRV_GZIP)

/* In the order of srv_format. */
static const char *const answer_types[SRV_FORMATS] = {"application/json", SRV_SAFETENSORS_TYPE,
                                                      SRV_NPY_TYPE, SRV_PNG_TYPE};

const srv_media srv_attention_media = {srv_body_types, SRV_BODY_TYPES, CODINGS,
                                       answer_types,   SRV_FORMATS,    CODINGS};
/* Query, key and value are three tensors. */
const srv_media srv_sdpa_media = {srv_body_types, SRV_BODY_NPY, CODINGS,
                                  answer_types,   SRV_FORMATS,  CODINGS};
const srv_media srv_estimate_media = {srv_body_types, 1, CODINGS,
                                      answer_types,   1, 1u << SRV_IDENTITY};
const srv_media srv_json_media = {srv_body_types, 1, CODINGS, answer_types, 1, CODINGS};

static attn_status open_body(srv_wire *w, const srv_exchange *x, srv_request *r, srv_query *query,
                             attn_error *err)
{
    const srv_source_options o = {.type = (srv_body_type)srv_http_body_type(x),
                                  .coding = srv_http_body_coding(x),
                                  .length = srv_http_content_length(x),
                                  .max_bytes = srv_http_max_body(x),
                                  .member = "inputs_embeds"};

    r->format = (srv_format)srv_http_answer_type(x);
    w->coding = srv_http_answer_coding(x, r->format != SRV_AS_JSON);
    if (w->coding != SRV_IDENTITY)
        r->encoder += SRV_DEFLATE_BYTES;
    if (r->format == SRV_AS_PNG) {
        ATTN_TRY(srv_picture_read(&w->picture, query, err));
        r->only_head = w->picture.head;
        r->encoder += SRV_PNG_BYTES;
    }
    return srv_request_open(r, &o, query, err);
}

attn_status srv_wire_open(srv_wire *w, const srv_exchange *x, srv_request *r, attn_error *err)
{
    srv_query query = {0};

    attn_status rc = srv_query_parse(&query, srv_http_query(x), err);
    if (rc == ATTN_OK)
        rc = open_body(w, x, r, &query, err);
    srv_query_deinit(&query);
    return rc;
}

attn_status srv_wire_admit(srv_wire *w, const srv_request *r, attn_error *err)
{
    return r->format == SRV_AS_PNG ? srv_picture_new(&w->png, &w->picture, r, err) : ATTN_OK;
}

static ssize_t read_picture(void *arg, char *out, size_t n)
{
    ssize_t got = srv_png_read(arg, out, n);
    return got < 0 ? SRV_READ_FAILED : got;
}

static ssize_t read_compressed(void *arg, char *out, size_t n)
{
    return srv_deflate_read(arg, out, n);
}

void srv_wire_reply(srv_wire *w, srv_exchange *x, const srv_request *r, srv_reader *read, void *arg,
                    uint64_t length)
{
    const char *type = answer_types[r->format];
    attn_error err = {0};

    if (w->png != NULL) {
        read = read_picture;
        arg = w->png;
        length = UINT64_MAX;
    }
    if (w->coding != SRV_IDENTITY &&
        srv_deflate_new(&w->deflate, w->coding, read, arg, &err) != ATTN_OK) {
        srv_http_reply_problem(x, &err, NULL);
        return;
    }
    if (w->deflate != NULL) {
        srv_http_set_header(x, "Content-Encoding", srv_coding_names[w->coding]);
        srv_http_reply_stream(x, 200, type, read_compressed, w->deflate);
        return;
    }
    srv_http_reply_stream(x, 200, type, read, arg);
    if (length != UINT64_MAX)
        srv_http_set_length(x, length);
}

void srv_wire_deinit(srv_wire *w)
{
    srv_png_free(w->png);
    srv_deflate_free(w->deflate);
    *w = (srv_wire){0};
}

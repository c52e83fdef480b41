#include "server/source.h"

#include <stdlib.h>
#include <string.h>

#include "server/inflate.h"
#include "server/json_private.h"
#include "server/npy_body.h"
#include "server/safetensors_body.h"

const char *const srv_body_types[SRV_BODY_TYPES] = {"application/json", SRV_SAFETENSORS_TYPE,
                                                    SRV_NPY_TYPE};

struct srv_source {
    srv_json_reader *into;
    srv_body_type type;
    srv_inflate *inflate; /* NULL: the body is as it is */
    srv_npy_body *npy;
    srv_safetensors_body *safetensors;
};

static attn_status feed_decoded(void *arg, const char *bytes, size_t n, attn_error *err)
{
    srv_source *s = arg;

    switch (s->type) {
    case SRV_BODY_NPY:
        return srv_npy_body_feed(s->npy, bytes, n, err);
    case SRV_BODY_SAFETENSORS:
        return srv_safetensors_body_feed(s->safetensors, bytes, n, err);
    default:
        return srv_json_reader_feed(s->into, bytes, n, err);
    }
}

static attn_status begin_inflate(srv_source *s, const srv_source_options *o, attn_error *err)
{
    ATTN_TRY(srv_json_charge(s->into, SRV_INFLATE_BYTES, err));
    attn_status rc = srv_inflate_new(&s->inflate, o->coding, o->max_bytes, feed_decoded, s, err);
    if (rc != ATTN_OK)
        srv_json_discharge(s->into, SRV_INFLATE_BYTES);
    return rc;
}

attn_status srv_source_new(srv_source **out, srv_json_reader *into, const srv_source_options *o,
                           attn_error *err)
{
    srv_source *s = calloc(1, sizeof *s);
    uint64_t length = o->coding == SRV_IDENTITY ? o->length : UINT64_MAX;
    attn_status rc = ATTN_OK;

    *out = NULL;
    if (s == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory to read a body");
    s->into = into;
    s->type = o->type;
    if (o->coding != SRV_IDENTITY)
        rc = begin_inflate(s, o, err);
    if (rc == ATTN_OK && o->type == SRV_BODY_NPY)
        rc = srv_npy_body_new(&s->npy, into, o->member, length, err);
    if (rc == ATTN_OK && o->type == SRV_BODY_SAFETENSORS)
        rc = srv_safetensors_body_new(&s->safetensors, into, length, err);
    if (rc != ATTN_OK) {
        srv_source_free(s);
        return rc;
    }
    *out = s;
    return ATTN_OK;
}

static void end_inflate(srv_source *s)
{
    if (s->inflate == NULL)
        return;
    srv_inflate_free(s->inflate);
    s->inflate = NULL;
    srv_json_discharge(s->into, SRV_INFLATE_BYTES);
}

void srv_source_free(srv_source *s)
{
    if (s == NULL)
        return;
    end_inflate(s);
    srv_npy_body_free(s->npy);
    srv_safetensors_body_free(s->safetensors);
    free(s);
}

attn_status srv_source_query(srv_source *s, const srv_query *query, attn_error *err)
{
    for (size_t i = 0; i < query->count; i++) {
        const srv_query_parameter *p = &query->parameter[i];
        if (!p->taken)
            ATTN_TRY(srv_json_reader_member(s->into, p->name, p->value, strlen(p->value), err));
    }
    return ATTN_OK;
}

attn_status srv_source_feed(srv_source *s, const char *bytes, size_t n, attn_error *err)
{
    return s->inflate != NULL ? srv_inflate_feed(s->inflate, bytes, n, err)
                              : feed_decoded(s, bytes, n, err);
}

attn_status srv_source_finish(srv_source *s, attn_error *err)
{
    if (s->inflate != NULL)
        ATTN_TRY(srv_inflate_finish(s->inflate, err));
    end_inflate(s);
    if (s->type == SRV_BODY_JSON)
        return srv_json_reader_finish(s->into, err);
    ATTN_TRY(s->type == SRV_BODY_NPY ? srv_npy_body_finish(s->npy, err)
                                     : srv_safetensors_body_finish(s->safetensors, err));
    return srv_json_reader_close(s->into, err);
}

#include "server/npy_body.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/npy.h"
#include "server/raw_tensor.h"

#define WHAT "the body"

struct srv_npy_body {
    srv_json_reader *into;
    const char *name;
    uint64_t total, received;
    char prefix[ATTN_NPY_PREFIX];
    char *header; /* whole, with the prefix; NULL until its length is known */
    size_t header_bytes, header_n;
    char descr[ATTN_NPY_DESCR_MAX];
    attn_tensor like;
    srv_raw_tensor *tensor; /* NULL until the header is read */
};

attn_status srv_npy_body_new(srv_npy_body **out, srv_json_reader *into, const char *name,
                             uint64_t total, attn_error *err)
{
    srv_npy_body *b = calloc(1, sizeof *b);

    *out = b;
    if (b == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory to read a body");
    b->into = into;
    b->name = name;
    b->total = total;
    return ATTN_OK;
}

void srv_npy_body_free(srv_npy_body *b)
{
    if (b == NULL)
        return;
    srv_raw_tensor_free(b->tensor);
    free(b->header);
    free(b);
}

/* What is damaged in a file is wrong by itself in a request. */
static attn_status as_invalid(attn_status rc, const attn_error *why, attn_error *err)
{
    if (rc == ATTN_OK)
        return ATTN_OK;
    return attn_fail(err, rc == ATTN_ENOMEM ? rc : ATTN_EINVAL, "%s", why->text);
}

static attn_status measure(srv_npy_body *b, uint64_t total, attn_error *err)
{
    attn_error why = {0};

    return as_invalid(attn_npy_measure(&b->header_bytes, b->prefix, b->header_n, total, WHAT, &why),
                      &why, err);
}

static attn_status read_header(srv_npy_body *b, attn_error *err)
{
    attn_error why = {0};
    attn_status rc =
        attn_npy_parse(&b->like, b->descr, b->header, b->header_n, b->total, WHAT, &why);

    ATTN_TRY(as_invalid(rc, &why, err));
    return srv_raw_tensor_new(&b->tensor, b->into, b->name, &b->like, err);
}

/* Takes bytes up to the end of the header: *used of n. */
static attn_status feed_header(srv_npy_body *b, const char *bytes, size_t n, size_t *used,
                               attn_error *err)
{
    size_t end = b->header == NULL ? ATTN_NPY_PREFIX : b->header_bytes;
    char *to = b->header == NULL ? b->prefix : b->header;

    *used = n < end - b->header_n ? n : end - b->header_n;
    memcpy(to + b->header_n, bytes, *used);
    b->header_n += *used;
    if (b->header_n < end)
        return ATTN_OK;
    if (b->header != NULL)
        return read_header(b, err);
    ATTN_TRY(measure(b, b->total, err));
    b->header = malloc(b->header_bytes);
    if (b->header == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory to read a body");
    memcpy(b->header, b->prefix, ATTN_NPY_PREFIX);
    return b->header_n < b->header_bytes ? ATTN_OK : read_header(b, err);
}

static attn_status fail_length(const srv_npy_body *b, attn_error *err)
{
    size_t left = srv_raw_tensor_left(b->tensor);
    char has[32] = "more";

    if (left > 0)
        (void)snprintf(has, sizeof has, "%zu", b->like.bytes - left);
    return attn_fail(err, ATTN_EINVAL,
                     WHAT ": shape and dtype %s need %zu bytes of data, it has %s", b->descr,
                     b->like.bytes, has);
}

attn_status srv_npy_body_feed(srv_npy_body *b, const char *bytes, size_t n, attn_error *err)
{
    size_t used = 0;

    b->received += n;
    for (; n > 0; bytes += used, n -= used) {
        if (b->tensor == NULL)
            ATTN_TRY(feed_header(b, bytes, n, &used, err));
        else if (srv_raw_tensor_left(b->tensor) == 0)
            return fail_length(b, err);
        else
            ATTN_TRY(srv_raw_tensor_feed(b->tensor, bytes, n, &used, err));
    }
    return ATTN_OK;
}

attn_status srv_npy_body_finish(srv_npy_body *b, attn_error *err)
{
    if (b->header == NULL) {
        ATTN_TRY(measure(b, b->received, err)); /* says what is wrong with so few bytes */
    }
    if (b->tensor == NULL)
        return attn_fail(err, ATTN_EINVAL,
                         WHAT " is cut within its header, after %" PRIu64 " bytes", b->received);
    if (srv_raw_tensor_left(b->tensor) > 0)
        return fail_length(b, err);
    return srv_raw_tensor_finish(b->tensor, err);
}

/* --- answer ----------------------------------------------------------------------------------- */

size_t srv_npy_header(char out[SRV_NPY_HEADER_MAX], attn_dtype dtype, size_t rank,
                      const size_t *dim)
{
    static const char *const descr[] = {
        [ATTN_F32] = "<f4",  [ATTN_F16] = "<f2",  [ATTN_BF16] = "<V2", [ATTN_F64] = "<f8",
        [ATTN_BOOL] = "|b1", [ATTN_I8] = "|i1",   [ATTN_U8] = "|u1",   [ATTN_I16] = "<i2",
        [ATTN_U16] = "<u2",  [ATTN_I32] = "<i4",  [ATTN_U32] = "<u4",  [ATTN_I64] = "<i8",
        [ATTN_U64] = "<u8",  [ATTN_OTHER] = "|V1"};
    enum { PREFIX = 10, ALIGNMENT = 64 };
    const size_t room = SRV_NPY_HEADER_MAX;
    size_t n = PREFIX;

    memcpy(out, "\x93NUMPY\x01", 8); /* with the NUL: version 1.0 */
    n += (size_t)snprintf(out + n, room - n, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                          descr[dtype]);
    for (size_t i = 0; i < rank; i++)
        n += (size_t)snprintf(out + n, room - n, "%zu,%s", dim[i], i + 1 < rank ? " " : "");
    n += (size_t)snprintf(out + n, room - n, "), }");
    size_t end = (n + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memset(out + n, ' ', end - n);
    out[end - 1] = '\n';
    out[8] = (char)((end - PREFIX) & 0xff);
    out[9] = (char)((end - PREFIX) >> 8);
    return end;
}

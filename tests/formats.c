#include "tests/formats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

static void add_sizes(char *out, size_t room, size_t rank, const size_t *dim)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < rank; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%zu", i > 0 ? ", " : "", dim[i]);
    if (rank == 1)
        (void)snprintf(out + used, room - used, ",");
}

static size_t count_of(size_t rank, const size_t *dim)
{
    size_t n = 1;

    for (size_t i = 0; i < rank; i++)
        n *= dim[i];
    return n;
}

blob format_npy(const float *x, size_t rank, const size_t *dim)
{
    char sizes[200], header[300];
    blob b = {0};

    add_sizes(sizes, sizeof sizes, rank, dim);
    (void)snprintf(header, sizeof header,
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }\n", sizes);
    blob_npy(&b, 1, header, x, count_of(rank, dim) * sizeof *x);
    return b;
}

blob format_safetensors(const st_entry *entry, size_t n, const char *metadata)
{
    blob header = {0}, b = {0};
    size_t at = 0;
    char text[400], sizes[200];

    blob_text(&header, "{");
    if (metadata != NULL) {
        blob_text(&header, "\"__metadata__\":");
        blob_text(&header, metadata);
    }
    for (size_t i = 0; i < n; i++) {
        add_sizes(sizes, sizeof sizes, entry[i].rank, entry[i].dim);
        if (entry[i].rank == 1)
            sizes[strlen(sizes) - 1] = '\0';
        (void)snprintf(text, sizeof text,
                       "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                       i > 0 || metadata != NULL ? "," : "", entry[i].name, entry[i].dtype, sizes,
                       at, at + entry[i].bytes);
        blob_text(&header, text);
        at += entry[i].bytes;
    }
    blob_text(&header, "}");
    blob_uint(&b, header.n, 8);
    blob_add(&b, header.at, header.n);
    for (size_t i = 0; i < n; i++)
        blob_add(&b, entry[i].data, entry[i].bytes);
    blob_free(&header);
    return b;
}

char *format_json(const float *x, size_t rank, const size_t *dim, const char *rest)
{
    test_body b;

    body_init(&b, true);
    body_floats(&b, "inputs_embeds", x, rank, dim);
    const char *text = body_text(&b);
    char *joined = st_path("%.*s%s}", (int)strlen(text) - 1, text, rest);
    body_free(&b);
    return joined;
}

/* --- gzip --------------------------------------------------------------------------------------- */

blob format_gzip(const void *bytes, size_t n)
{
    z_stream z = {0};
    blob b = {0};

    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    size_t room = deflateBound(&z, n) + 64;
    unsigned char *out = malloc(room), *in = malloc(n + 1);
    assert_true(out != NULL && in != NULL);
    memcpy(in, bytes, n);
    z.next_in = in;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    blob_add(&b, out, z.total_out);
    (void)deflateEnd(&z);
    free(out);
    free(in);
    return b;
}

blob format_gunzip(const void *bytes, size_t n)
{
    unsigned char out[4096], *in = malloc(n + 1);
    z_stream z = {0};
    blob b = {0};
    int rc = Z_OK;

    assert_non_null(in);
    memcpy(in, bytes, n);
    assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
    z.next_in = in;
    z.avail_in = (uInt)n;
    while (rc == Z_OK) {
        z.next_out = out;
        z.avail_out = sizeof out;
        rc = inflate(&z, Z_NO_FLUSH);
        blob_add(&b, out, sizeof out - z.avail_out);
    }
    assert_int_equal(rc, Z_STREAM_END);
    assert_int_equal(z.avail_in, 0);
    (void)inflateEnd(&z);
    free(in);
    return b;
}

/* --- exchanges ----------------------------------------------------------------------------------- */

test_reply format_post(const test_daemon *d, const char *path, const char *type, const void *body,
                       size_t n, const char *const fields[4])
{
    const char *headers[7] = {NULL};
    char content[128];
    size_t used = 0;

    (void)snprintf(content, sizeof content, "Content-Type:%s%s", type != NULL ? " " : "",
                   type != NULL ? type : "");
    headers[used++] = content;
    for (size_t i = 0; fields != NULL && i < 4 && fields[i] != NULL; i++)
        headers[used++] = fields[i];
    return daemon_request(d, "POST", path, headers, body, n);
}

void format_expect(const test_reply *r, long status, const char *type)
{
    char *got = reply_header(r, "Content-Type");

    if (r->status != status || got == NULL || strcmp(got, type) != 0)
        fail_msg("%ld %s instead of %ld %s: %.400s", r->status, got != NULL ? got : "", status,
                 type, r->body);
    free(got);
}

st_file *format_tensors(const test_reply *r)
{
    format_expect(r, 200, FORMAT_SAFETENSORS);
    return st_open(scratch_write("answer.safetensors", r->body, r->body_bytes));
}

const void *format_array(const test_reply *r, const char *type, size_t rank, const size_t *dim)
{
    char sizes[200], want[300];

    format_expect(r, 200, FORMAT_NPY);
    assert_true(r->body_bytes >= 64);
    size_t header = (unsigned char)r->body[8] + 256u * (unsigned char)r->body[9];
    add_sizes(sizes, sizeof sizes, rank, dim);
    (void)snprintf(want, sizeof want, "'descr': '%s', 'fortran_order': False, 'shape': (%s", type,
                   sizes);
    assert_true(10 + header <= r->body_bytes);
    char *text = st_path("%.*s", (int)header, r->body + 10);
    if (strstr(text, want) == NULL)
        fail_msg("%s instead of %s", text, want);
    free(text);
    assert_int_equal((10 + header) % 64, 0);
    size_t size = (size_t)(type[2] - '0');
    assert_int_equal(r->body_bytes - 10 - header, count_of(rank, dim) * size);
    return r->body + 10 + header;
}

#include "tests/oip_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

/* --- requests ---------------------------------------------------------------------------------- */

void wire_add(wire_bytes *b, const void *bytes, size_t n)
{
    if (b->capacity - b->n < n + 1) {
        b->capacity = 2 * b->capacity + n + 64;
        b->at = realloc(b->at, b->capacity);
        assert_non_null(b->at);
    }
    if (n > 0)
        memcpy(b->at + b->n, bytes, n);
    b->n += n;
    b->at[b->n] = '\0';
}

void wire_text(wire_bytes *b, const char *format, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    assert_true(n >= 0);
    wire_add(b, text, (size_t)n);
    free(text);
}

void wire_free(wire_request *r)
{
    free(r->members.at);
    free(r->inputs.at);
    free(r->outputs.at);
    free(r->binary.at);
    memset(r, 0, sizeof *r);
}

void wire_member(wire_request *r, const char *text)
{
    wire_text(&r->members, "%s,", text);
}

void wire_input(wire_request *r, const char *name, const char *datatype, size_t rank,
                const size_t *dim, const char *more)
{
    wire_text(&r->inputs, "%s{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":[",
              r->inputs.n > 0 ? "," : "", name, datatype);
    for (size_t i = 0; i < rank; i++)
        wire_text(&r->inputs, i > 0 ? ",%zu" : "%zu", dim[i]);
    wire_text(&r->inputs, "],%s}", more);
}

static size_t product(size_t rank, const size_t *dim)
{
    size_t n = 1;
    for (size_t i = 0; i < rank; i++)
        n *= dim[i];
    return n;
}

void wire_input_floats(wire_request *r, const char *name, size_t rank, const size_t *dim,
                       const float *x)
{
    wire_bytes data = {0};

    wire_text(&data, "\"data\":[");
    for (size_t i = 0, n = product(rank, dim); i < n; i++)
        wire_text(&data, i > 0 ? ",%.9g" : "%.9g", (double)x[i]);
    wire_text(&data, "]");
    wire_input(r, name, "FP32", rank, dim, data.at);
    free(data.at);
}

void wire_input_bytes(wire_request *r, const char *name, const char *datatype, size_t rank,
                      const size_t *dim, const void *bytes, size_t n)
{
    char more[80];

    (void)snprintf(more, sizeof more, "\"parameters\":{\"binary_data_size\":%zu}", n);
    wire_input(r, name, datatype, rank, dim, more);
    wire_add(&r->binary, bytes, n);
}

void wire_output(wire_request *r, const char *name, const char *parameters)
{
    wire_text(&r->outputs, "%s{\"name\":\"%s\"%s%s}", r->outputs.n > 0 ? "," : "", name,
              parameters != NULL ? ",\"parameters\":" : "", parameters != NULL ? parameters : "");
}

wire_bytes wire_json(const wire_request *r)
{
    wire_bytes b = {0};

    wire_text(&b, "{%s", r->members.n > 0 ? r->members.at : "");
    if (r->outputs.n > 0)
        wire_text(&b, "\"outputs\":[%s],", r->outputs.at);
    wire_text(&b, "\"inputs\":[");
    wire_add(&b, r->inputs.at, r->inputs.n);
    wire_text(&b, "]}");
    return b;
}

wire_bytes wire_body(const wire_request *r, size_t *json_bytes)
{
    wire_bytes b = wire_json(r);

    *json_bytes = b.n;
    wire_add(&b, r->binary.at, r->binary.n);
    return b;
}

raw_answer wire_post(const char *url, const char *path, const char *headers, const void *body,
                     size_t n)
{
    raw_conn c;

    raw_open(&c, url);
    assert_true(raw_text(&c, "POST %s HTTP/1.1\r\nhost: localhost\r\n%scontent-length: %zu\r\n\r\n",
                         path, headers, n));
    (void)raw_send(&c, body, n); /* it may answer in the middle */
    raw_answer a = raw_read(&c, false, 60000);
    raw_close(&c);
    return a;
}

/* --- answers ----------------------------------------------------------------------------------- */

wire_answer wire_take(raw_answer http, int status)
{
    wire_answer a = {.http = http};

    if (http.status != status)
        fail_msg("%d instead of %d: %.600s", http.status, status,
                 http.body != NULL ? http.body : "");
    assert_true(http.complete);
    const char *length = raw_header(&http, "Inference-Header-Content-Length");
    a.has_bytes = length != NULL;
    a.json_bytes = length != NULL ? strtoul(length, NULL, 10) : http.body_bytes;
    const char *type = raw_header(&a.http, "Content-Type");
    assert_non_null(type);
    assert_true(a.json_bytes <= http.body_bytes);
    if (raw_header(&a.http, "Content-Encoding") != NULL)
        return a; /* the caller's to decode */
    a.json = answer_parse(http.body, a.json_bytes);
    assert_string_equal(raw_header(&a.http, "Content-Type"),
                        status != 200 ? "application/problem+json"
                        : a.has_bytes ? "application/octet-stream"
                                      : "application/json");
    if (status != 200) {
        const char *error = json_string_value(json_object_get(a.json, "error"));
        assert_non_null(error);
        assert_true(strlen(error) > 0);
    }
    return a;
}

wire_answer wire_ask(const char *url, const char *path, const char *headers, const wire_request *r,
                     int status)
{
    char fields[512];
    size_t json_bytes = 0;
    wire_bytes b = wire_body(r, &json_bytes);

    (void)snprintf(fields, sizeof fields, "%s", headers);
    if (r->binary.n > 0)
        (void)snprintf(fields, sizeof fields, "inference-header-content-length: %zu\r\n%s",
                       json_bytes, headers);
    raw_answer http = wire_post(url, path, fields, b.at, b.n);
    free(b.at);
    return wire_take(http, status);
}

void wire_done(wire_answer *a)
{
    json_decref(a->json);
    raw_free(&a->http);
}

static const json_t *find(const wire_answer *a, const char *name, size_t *offset)
{
    size_t i;
    json_t *o;

    *offset = a->json_bytes;
    json_array_foreach(json_object_get(a->json, "outputs"), i, o)
    {
        json_int_t bytes = json_integer_value(
            json_object_get(json_object_get(o, "parameters"), "binary_data_size"));
        if (strcmp(json_string_value(json_object_get(o, "name")), name) == 0)
            return o;
        *offset += (size_t)bytes;
    }
    return NULL;
}

bool wire_has(const wire_answer *a, const char *name)
{
    size_t offset = 0;
    return find(a, name, &offset) != NULL;
}

test_tensor wire_tensor(const wire_answer *a, const char *name, bool binary, size_t rank,
                        const size_t *dim)
{
    test_tensor t = {.rank = rank, .count = product(rank, dim)};
    size_t offset = 0;
    const json_t *o = find(a, name, &offset);

    if (o == NULL)
        fail_msg("no output %s in %.*s", name, (int)a->json_bytes, a->http.body);
    const json_t *shape = json_object_get(o, "shape"), *data = json_object_get(o, "data");
    assert_int_equal(json_array_size(shape), rank);
    for (size_t i = 0; i < rank; i++) {
        t.dim[i] = dim[i];
        assert_int_equal(json_integer_value(json_array_get(shape, i)), dim[i]);
    }
    assert_string_equal(json_string_value(json_object_get(o, "datatype")), "FP32");
    const json_t *size = json_object_get(json_object_get(o, "parameters"), "binary_data_size");
    assert_int_equal(size != NULL, binary);
    assert_int_equal(data == NULL, binary);
    if (!binary) {
        test_tensor flat = answer_tensor(data, name, 1, &t.count);
        t.data = flat.data;
        return t;
    }
    assert_int_equal(json_integer_value(size), t.count * sizeof(float));
    assert_true(offset + t.count * sizeof(float) <= a->http.body_bytes);
    t.data = malloc((t.count + 1) * sizeof(float));
    assert_non_null(t.data);
    memcpy(t.data, a->http.body + offset, t.count * sizeof(float));
    return t;
}

/* --- codings ----------------------------------------------------------------------------------- */

wire_bytes wire_deflate(const void *bytes, size_t n, int window_bits)
{
    z_stream z = {0};
    wire_bytes out = {0};

    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    out.capacity = deflateBound(&z, n) + 1;
    out.at = malloc(out.capacity);
    assert_non_null(out.at);
    z.next_in = (Bytef *)(uintptr_t)bytes;
    z.avail_in = (uInt)n;
    z.next_out = (Bytef *)out.at;
    z.avail_out = (uInt)out.capacity;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out.n = z.total_out;
    assert_int_equal(deflateEnd(&z), Z_OK);
    return out;
}

wire_bytes wire_inflate(const void *bytes, size_t n, int window_bits)
{
    z_stream z = {0};
    wire_bytes out = {0};
    char block[4096];
    int rc = Z_OK;

    assert_int_equal(inflateInit2(&z, window_bits), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)bytes;
    z.avail_in = (uInt)n;
    while (rc == Z_OK) {
        z.next_out = (Bytef *)block;
        z.avail_out = sizeof block;
        rc = inflate(&z, Z_NO_FLUSH);
        assert_true(rc == Z_OK || rc == Z_STREAM_END);
        wire_add(&out, block, sizeof block - z.avail_out);
    }
    assert_int_equal(z.avail_in, 0);
    assert_int_equal(inflateEnd(&z), Z_OK);
    return out;
}

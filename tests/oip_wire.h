/* oip_wire.h: requests and answers of the Open Inference Protocol as they travel, for tests. */
#ifndef TESTS_OIP_WIRE_H
#define TESTS_OIP_WIRE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "tests/body.h"
#include "tests/daemon.h"
#include "tests/rawhttp.h"

#define WIRE_INFER "/v2/models/demo/infer"

/* Bytes that grow; zeros are an empty one. */
typedef struct {
    char *at;
    size_t n, capacity;
} wire_bytes;

void wire_add(wire_bytes *b, const void *bytes, size_t n);
void wire_text(wire_bytes *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A request under construction; zeros are an empty one. */
typedef struct {
    wire_bytes members, inputs, outputs, binary; /* each list's text without its brackets */
} wire_request;

void wire_free(wire_request *r);

/* A member beside inputs and outputs, its text: "\"id\":\"7\"". */
void wire_member(wire_request *r, const char *text);
/* An input with more members, as text: "\"data\":[1,2]". */
void wire_input(wire_request *r, const char *name, const char *datatype, size_t rank,
                const size_t *dim, const char *more);
void wire_input_floats(wire_request *r, const char *name, size_t rank, const size_t *dim,
                       const float *x); /* FP32 as a flat JSON list */
void wire_input_bytes(wire_request *r, const char *name, const char *datatype, size_t rank,
                      const size_t *dim, const void *bytes, size_t n);       /* binary */
void wire_output(wire_request *r, const char *name, const char *parameters); /* NULL = none */

/* The JSON, and the JSON with the bytes behind it. The caller frees. */
wire_bytes wire_json(const wire_request *r);
wire_bytes wire_body(const wire_request *r, size_t *json_bytes);

/* One POST; `headers` is text, each line with its CRLF. */
raw_answer wire_post(const char *url, const char *path, const char *headers, const void *body,
                     size_t n);

/* An answer taken apart. */
typedef struct {
    raw_answer http;
    json_t *json;
    size_t json_bytes; /* of the body, which is all of it when there are no bytes */
    bool has_bytes;
} wire_answer;

/* The answer must have this status. An error must have the form that clients look for. */
wire_answer wire_ask(const char *url, const char *path, const char *headers, const wire_request *r,
                     int status);
wire_answer wire_take(raw_answer http, int status);
void wire_done(wire_answer *a);

/* An output, JSON or binary; the test fails when it is not there, not of these sizes, or not as said. */
test_tensor wire_tensor(const wire_answer *a, const char *name, bool binary, size_t rank,
                        const size_t *dim);
bool wire_has(const wire_answer *a, const char *name);

/* Compressed with zlib's `window_bits`: 31 = gzip, 15 = zlib. */
wire_bytes wire_deflate(const void *bytes, size_t n, int window_bits);
wire_bytes wire_inflate(const void *bytes, size_t n, int window_bits);

#endif

/* described.h: the daemon's answers held against its own OpenAPI document. */
#ifndef TESTS_DESCRIBED_H
#define TESTS_DESCRIBED_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "tests/daemon.h"
#include "tests/rawhttp.h"

/* GET /openapi.json; the caller gives it back with json_decref(). */
json_t *described_document(const test_daemon *d);

/* The operation of a path template and a method in small letters; the test fails when there is none. */
const json_t *described_operation(const json_t *document, const char *path, const char *method);

/* The path with every parameter replaced by its example, or by `parameter` unless that is NULL. */
void described_path(const json_t *document, const char *path, const char *parameter, char *out,
                    size_t size);

/* The answer's status must be one of the operation's, with the fields of the header that are promised,
 * a content type that is listed, and a body that fits its schema. */
void described_holds(const json_t *document, const char *path, const char *method,
                     const raw_answer *a);

/* POST of JSON text. */
raw_answer described_post(const test_daemon *d, const char *path, const char *json);

#endif

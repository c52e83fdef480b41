#include "tests/described.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/body.h"
#include "tests/schema.h"

json_t *described_document(const test_daemon *d)
{
    raw_answer a = raw_once(daemon_url(d), "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_int_equal(a.status, 200);
    json_t *document = answer_parse(a.body, a.body_bytes);
    raw_free(&a);
    return document;
}

const json_t *described_operation(const json_t *document, const char *path, const char *method)
{
    const json_t *item = json_object_get(json_object_get(document, "paths"), path);
    const json_t *operation = json_object_get(item, method);
    if (operation == NULL)
        fail_msg("the document has no %s %s", method, path);
    return operation;
}

/* The example of a path's parameter, whose name ends at a brace. */
static const char *example_of(const json_t *document, const char *path, const char *name)
{
    const json_t *item = json_object_get(json_object_get(document, "paths"), path);
    size_t i;
    const json_t *p;

    json_array_foreach(json_object_get(item, "parameters"), i, p)
    {
        const json_t *parameter = schema_resolve(document, p);
        const char *in = json_string_value(json_object_get(parameter, "in"));
        const char *its = json_string_value(json_object_get(parameter, "name"));
        assert_true(in != NULL && its != NULL);
        if (strcmp(in, "path") == 0 && strncmp(its, name, strlen(its)) == 0 &&
            name[strlen(its)] == '}') {
            const char *example = json_string_value(json_object_get(parameter, "example"));
            assert_non_null(example);
            return example;
        }
    }
    fail_msg("%s has a parameter that is not described", path);
    return NULL;
}

void described_path(const json_t *document, const char *path, const char *parameter, char *out,
                    size_t size)
{
    size_t n = 0;
    for (const char *p = path; *p != '\0'; p++) {
        const char *piece = p;
        size_t length = 1;
        if (*p == '{') {
            piece = parameter != NULL ? parameter : example_of(document, path, p + 1);
            length = strlen(piece);
            p = strchr(p, '}');
            assert_non_null(p);
        }
        assert_true(n + length < size);
        memcpy(out + n, piece, length);
        n += length;
    }
    out[n] = '\0';
}

static void holds_headers(const json_t *document, const json_t *response, const raw_answer *a,
                          const char *where)
{
    const char *name;
    json_t *h, *headers = json_object_get(response, "headers");

    assert_non_null(json_object_get(headers, "X-Request-Id"));
    json_object_foreach(headers, name, h)
    {
        const json_t *header = schema_resolve(document, h);
        const char *value = raw_header(a, name);
        if (value == NULL && json_is_true(json_object_get(header, "required")))
            fail_msg("%s: no %s in the answer", where, name);
        if (value == NULL)
            continue;
        /* A number in a header is text, which the schema calls an integer. */
        json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
        const json_t *schema = json_object_get(header, "schema");
        const char *type = json_string_value(json_object_get(schema, "type"));
        if (v == NULL || type == NULL || strcmp(type, "integer") != 0) {
            json_decref(v);
            v = json_string(value);
        }
        char why[512];
        if (!schema_holds(document, schema, v, why, sizeof why))
            fail_msg("%s: %s: %s", where, name, why);
        json_decref(v);
    }
}

static void holds_body(const json_t *document, const json_t *response, const raw_answer *a,
                       const char *where)
{
    const json_t *content = json_object_get(response, "content");
    const char *type = raw_header(a, "Content-Type");
    char bare[64], why[512];

    if (content == NULL) {
        assert_null(type);
        assert_int_equal(a->body_bytes, 0);
        return;
    }
    assert_non_null(type);
    (void)snprintf(bare, sizeof bare, "%.*s", (int)strcspn(type, ";"), type);
    const json_t *media = json_object_get(content, bare);
    if (media == NULL)
        fail_msg("%s: %s is not described", where, bare);
    if (strstr(bare, "json") == NULL)
        return;
    json_t *body = answer_parse(a->body, a->body_bytes);
    if (!schema_holds(document, json_object_get(media, "schema"), body, why, sizeof why))
        fail_msg("%s: %s in %.300s", where, why, a->body);
    json_decref(body);
}

void described_holds(const json_t *document, const char *path, const char *method,
                     const raw_answer *a)
{
    const json_t *operation = described_operation(document, path, method);
    char status[12], where[160];

    (void)snprintf(status, sizeof status, "%d", a->status);
    (void)snprintf(where, sizeof where, "%s %s, %s", method, path, status);
    const json_t *response = json_object_get(json_object_get(operation, "responses"), status);
    if (response == NULL)
        fail_msg("%s: the status is not described: %s", where, a->body);
    response = schema_resolve(document, response);
    holds_headers(document, response, a, where);
    holds_body(document, response, a, where);
}

raw_answer described_post(const test_daemon *d, const char *path, const char *json)
{
    raw_conn c;
    raw_open(&c, daemon_url(d));
    assert_true(raw_text(&c,
                         "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                         "application/json\r\nContent-Length: %zu\r\n\r\n",
                         path, strlen(json)));
    assert_true(raw_send(&c, json, strlen(json)));
    raw_answer a = raw_read(&c, false, 60000);
    raw_close(&c);
    return a;
}

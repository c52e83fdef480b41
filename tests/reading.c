#include "reading.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const srv_field reading_fields[] = {{"inputs_embeds", SRV_FLOATS, 2, 3, true},
                                    {"query", SRV_FLOATS, 4, 4, false},
                                    {"attention_mask", SRV_MASK, 2, 4, false},
                                    {"attention_bias", SRV_BIAS, 0, 4, false},
                                    {"lengths", SRV_INTS, 1, 1, false},
                                    {"causal_offset", SRV_INTS, 0, 1, false},
                                    {"position_ids", SRV_INTS, 1, 2, false},
                                    {"tokens", SRV_LABELS, 1, 2, false},
                                    {"layer", SRV_VALUE, 0, 0, false},
                                    {"scale", SRV_VALUE, 0, 0, false},
                                    {"return_attentions", SRV_VALUE, 0, 0, false},
                                    {"user", SRV_OPTION, 0, 0, false}};
const size_t reading_num_fields = sizeof reading_fields / sizeof reading_fields[0];

void reading_add(reading_text *t, const char *format, ...)
{
    va_list args;
    char *more = NULL;

    va_start(args, format);
    int n = vasprintf(&more, format, args);
    va_end(args);
    assert_true(n >= 0);
    t->p = realloc(t->p, t->n + (size_t)n + 1);
    assert_non_null(t->p);
    memcpy(t->p + t->n, more, (size_t)n + 1);
    t->n += (size_t)n;
    free(more);
}

void reading_add_shape(reading_text *t, const srv_array *a)
{
    reading_add(t, " [");
    for (unsigned i = 0; i < a->rank; i++)
        reading_add(t, i == 0 ? "%zu" : ",%zu", a->dim[i]);
    reading_add(t, "]");
    if (a->lengths != NULL) {
        reading_add(t, " lengths");
        for (size_t b = 0; b < a->dim[0]; b++)
            reading_add(t, " %zu", a->lengths[b]);
    }
    reading_add(t, "%s:", a->unknown_width ? " unknown" : "");
}

static void add_array(reading_text *t, const srv_field *f, const srv_array *a)
{
    size_t rows = 0, product = 1;

    reading_add_shape(t, a);
    assert_non_null(a->data.any);
    if (f->kind == SRV_LABELS) {
        reading_add(t, " %.*s", (int)a->count, (const char *)a->data.u8);
        return;
    }
    for (unsigned i = 0; i < a->rank; i++)
        product *= a->dim[i];
    if (a->lengths != NULL) {
        for (size_t b = 0; b < a->dim[0]; b++)
            rows += a->lengths[b];
        product = rows * a->dim[2];
    }
    assert_int_equal(product, a->count);
    for (size_t i = 0; i < a->count; i++) {
        if (f->kind == SRV_MASK)
            reading_add(t, " %d", a->data.u8[i]);
        else if (f->kind == SRV_INTS)
            reading_add(t, " %" PRId64, a->data.i64[i]);
        else
            reading_add(t, " %.9g", (double)a->data.f32[i]);
    }
}

/* What a value is; small kinds are enough. */
static void add_value(reading_text *t, const attn_json *v)
{
    int64_t integer = 0;
    double number = 0;
    bool boolean = false;
    const char *string = NULL;

    if (attn_json_integer(v, &integer))
        reading_add(t, ": %" PRId64, integer);
    else if (attn_json_number(v, &number))
        reading_add(t, ": %.17g", number);
    else if (attn_json_bool(v, &boolean))
        reading_add(t, ": %s", boolean ? "true" : "false");
    else if (attn_json_string(v, &string))
        reading_add(t, ": \"%s\"", string);
    else
        reading_add(t, ": %s of %zu", attn_json_type_name(v), attn_json_length(v));
}

static char *describe(const srv_json_reader *r)
{
    reading_text t = {NULL, 0};
    size_t bytes = 0;

    reading_add(&t, "%s", "");
    for (size_t i = 0; i < reading_num_fields; i++) {
        const srv_field *f = &reading_fields[i];
        const srv_array *a = srv_json_reader_array(r, i);
        const attn_json *v = srv_json_reader_value(r, i);
        assert_true(f->kind == SRV_VALUE || f->kind == SRV_OPTION ? !a->present : v == NULL);
        assert_int_equal(srv_array_bytes(a) > 0, a->present);
        bytes += srv_array_bytes(a);
        if (!a->present && v == NULL)
            continue;
        reading_add(&t, "%s%s", t.n > 0 ? "; " : "", f->name);
        if (a->present)
            add_array(&t, f, a);
        else
            add_value(&t, v);
    }
    assert_true(srv_json_reader_charged(r) >= bytes);
    reading_add(&t, "%s", "");
    return t.p;
}

typedef struct {
    size_t now;
} ledger;

static attn_status charge(void *arg, ptrdiff_t bytes, attn_error *err)
{
    ledger *l = arg;

    (void)err;
    assert_true(bytes > 0 || l->now >= (size_t)-bytes);
    l->now += (size_t)bytes;
    return ATTN_OK;
}

char *reading_in_pieces(const char *text, size_t n, size_t head, size_t piece)
{
    srv_json_reader *r = NULL;
    ledger l = {0};
    attn_error err = {0};
    size_t at = 0;
    char *told = NULL;

    attn_status rc = srv_json_reader_new(&r, reading_fields, reading_num_fields, charge, &l, &err);
    while (rc == ATTN_OK && at < n) {
        size_t want = at == 0 && head > 0 ? head : piece, k = n - at < want ? n - at : want;
        char *exact = malloc(k); /* AddressSanitizer sees one byte too many */
        assert_non_null(exact);
        memcpy(exact, text + at, k);
        rc = srv_json_reader_feed(r, exact, k, &err);
        memset(exact, '#', k); /* nothing may be kept by its address */
        free(exact);
        at += k;
    }
    if (rc == ATTN_OK)
        rc = srv_json_reader_finish(r, &err);
    assert_int_equal(rc, err.code);
    assert_int_equal(l.now, srv_json_reader_charged(r));
    if (rc == ATTN_OK) {
        told = describe(r);
    } else {
        reading_text t = {NULL, 0};
        reading_add(&t, "%s %s | %s", attn_status_name(rc), err.pointer, err.text);
        told = t.p;
    }
    srv_json_reader_free(r);
    assert_int_equal(l.now, 0);
    return told;
}

/* --- bodies in any form ----------------------------------------------------------------------- */

static attn_status read_body(srv_source *s, const reading_body *b, size_t head, size_t piece,
                             attn_error *err)
{
    const char *bytes = b->bytes;
    srv_query query = {0};
    attn_status rc = srv_query_parse(&query, b->query, err);

    if (rc == ATTN_OK)
        rc = srv_source_query(s, &query, err);
    srv_query_deinit(&query);
    for (size_t at = 0; rc == ATTN_OK && at < b->n;) {
        size_t want = at == 0 && head > 0 ? head : piece, k = b->n - at < want ? b->n - at : want;
        char *exact = malloc(k); /* AddressSanitizer sees one byte too many */
        assert_non_null(exact);
        memcpy(exact, bytes + at, k);
        rc = srv_source_feed(s, exact, k, err);
        free(exact);
        at += k;
    }
    return rc == ATTN_OK ? srv_source_finish(s, err) : rc;
}

static char *body_in_pieces(const reading_body *b, size_t head, size_t piece)
{
    srv_source_options o = {.type = b->type,
                            .coding = b->coding,
                            .length = b->chunked ? UINT64_MAX : b->n,
                            .max_bytes = 1 << 20,
                            .member = "inputs_embeds"};
    srv_json_reader *r = NULL;
    srv_source *s = NULL;
    ledger l = {0};
    attn_error err = {0};
    reading_text t = {NULL, 0};

    assert_int_equal(srv_json_reader_new(&r, reading_fields, reading_num_fields, charge, &l, &err),
                     ATTN_OK);
    assert_int_equal(srv_source_new(&s, r, &o, &err), ATTN_OK);
    attn_status rc = read_body(s, b, head, piece, &err);
    assert_int_equal(rc, err.code);
    assert_int_equal(l.now, srv_json_reader_charged(r));
    if (rc == ATTN_OK)
        t.p = describe(r);
    else
        reading_add(&t, "%s %s | %s", attn_status_name(rc), err.pointer, err.text);
    srv_source_free(s);
    srv_json_reader_free(r);
    assert_int_equal(l.now, 0);
    return t.p;
}

static void hold_body_equal(const reading_body *b, size_t head, size_t piece, const char *whole)
{
    char *told = body_in_pieces(b, head, piece);

    if (strcmp(told, whole) != 0)
        fail_msg("cut at %zu, then by %zu: %s\n whole: %s", head, piece, told, whole);
    free(told);
}

static char *body_all_ways(const reading_body *b)
{
    char *whole = body_in_pieces(b, b->n, b->n);

    for (size_t cut = 1; cut < b->n; cut += b->n < 700 ? 1 : b->n / 97)
        hold_body_equal(b, cut, b->n, whole);
    hold_body_equal(b, 0, 1, whole);
    hold_body_equal(b, 0, 3, whole);
    return whole;
}

void reading_body_expect(const reading_body *b, const char *want)
{
    for (int chunked = 0; chunked < 2; chunked++) {
        reading_body as = *b;
        as.chunked = chunked == 1;
        char *told = body_all_ways(&as);
        if (strcmp(told, want) != 0)
            fail_msg("%s gives %s\n wants %s", chunked == 1 ? "chunked" : "whole", told, want);
        free(told);
    }
}

void reading_body_refuse(const reading_body *b, const char *code, const char *pointer,
                         const char *says)
{
    char *told = body_all_ways(b), start[200];

    (void)snprintf(start, sizeof start, "%s %s | ", code, pointer);
    if (strncmp(told, start, strlen(start)) != 0 || strstr(told + strlen(start), says) == NULL)
        fail_msg("gives %s\n wants %s%s", told, start, says);
    free(told);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void hold_equal(const char *text, size_t n, size_t head, size_t piece, const char *whole)
{
    char *told = reading_in_pieces(text, n, head, piece);

    if (strcmp(told, whole) != 0)
        fail_msg("%.*s\n cut at %zu, then by %zu: %s\n whole: %s", (int)n, text, head, piece, told,
                 whole);
    free(told);
}

char *reading_all_ways(const char *text, size_t n)
{
    char *whole = reading_in_pieces(text, n, n, n);

    for (size_t cut = 1; cut < n; cut++)
        hold_equal(text, n, cut, n, whole);
    hold_equal(text, n, 0, 1, whole);
    hold_equal(text, n, 0, 3, whole);
    return whole;
}

static char *read_quoted(const char *body)
{
    size_t n = strlen(body);
    char *text = malloc(n + 1);

    assert_non_null(text);
    for (size_t i = 0; i <= n; i++)
        text[i] = (char)(body[i] == '\'' ? '"' : body[i]);
    char *told = reading_all_ways(text, n);
    free(text);
    return told;
}

void reading_expect(const char *body, const char *want)
{
    char *told = read_quoted(body);

    if (strcmp(told, want) != 0)
        fail_msg("%.200s\n gives %s\n wants %s", body, told, want);
    free(told);
}

void reading_refuse(const char *body, const char *code, const char *pointer, const char *says)
{
    char *told = read_quoted(body), start[200];

    (void)snprintf(start, sizeof start, "%s %s | ", code, pointer);
    if (strncmp(told, start, strlen(start)) != 0 || strstr(told + strlen(start), says) == NULL)
        fail_msg("%.200s\n gives %s\n wants %s%s", body, told, start, says);
    free(told);
}

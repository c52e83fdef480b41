/* Reads a body and writes an answer with each allocation, and each charge, failing in turn. malloc and
 * its kin are defined here over those of the C library, which reaches jansson as well. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "server/json_writer.h"
#include "tests/reading.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

#ifndef SANITIZED

static long allocated; /* and not yet freed */
static long fail_at;   /* the nth allocation from here fails; 0 = none */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

static bool fails(void)
{
    return fail_at > 0 && --fail_at == 0;
}

void *malloc(size_t n)
{
    void *p = fails() ? NULL : __libc_malloc(n);
    allocated += p != NULL;
    return p;
}

void *calloc(size_t n, size_t size)
{
    void *p = fails() ? NULL : __libc_calloc(n, size);
    allocated += p != NULL;
    return p;
}

void *realloc(void *old, size_t n)
{
    void *p = fails() ? NULL : __libc_realloc(old, n);
    allocated += old == NULL && p != NULL;
    return p;
}

void free(void *p)
{
    allocated -= p != NULL;
    __libc_free(p);
}

#endif

/* One of every kind of member, most of them longer than a block's first size. */
static char *large_body(void)
{
    static char body[20000];
    char *p = body, *end = body + sizeof body;

    p += snprintf(p, (size_t)(end - p), "{\"inputs_embeds\":[");
    for (int b = 0; b < 90; b++) {
        p += snprintf(p, (size_t)(end - p), "%s[", b == 0 ? "" : ",");
        for (int t = 0; t < b % 3; t++)
            p += snprintf(p, (size_t)(end - p), "%s[1.5,%d]", t == 0 ? "" : ", ", b);
        p += snprintf(p, (size_t)(end - p), "]");
    }
    (void)snprintf(p, (size_t)(end - p),
                   "],\"attention_mask\":{\"shape\":[1,2],\"dtype\":\"int32\",\"data\":"
                   "\"AQAAAAAAAAA=\"},\"attention_bias\":{\"data\":\"ADwAPA==\",\"dtype\":"
                   "\"float16\",\"shape\":[2]},\"lengths\":{\"shape\":[1],\"dtype\":\"int32\","
                   "\"data\":\"AQAAAA==\"},\"causal_offset\":-123456,\"query\":[],"
                   "\"tokens\":[[\"a\",\"b\"],[\"%0100d\"]],\"layer\":1,"
                   "\"return_attentions\":{\"heads\":[0,1,\"x\",{}]}}",
                   0);
    return body;
}

typedef struct {
    size_t now;
    long allowed; /* charges; the next one and all after it are refused */
    bool refused;
} ledger;

static attn_status charge(void *arg, ptrdiff_t bytes, attn_error *err)
{
    ledger *l = arg;

    l->refused = l->refused || (bytes > 0 && l->allowed-- == 0);
    if (bytes > 0 && l->refused)
        return attn_fail(err, ATTN_EBUSY, "refused");
    l->now += (size_t)bytes;
    return ATTN_OK;
}

/* In pieces of 7 bytes, so that numbers are cut as well. */
static attn_status read_body(const char *body, size_t n, ledger *l, attn_error *err)
{
    srv_json_reader *r = NULL;
    attn_status rc = srv_json_reader_new(&r, reading_fields, reading_num_fields, charge, l, err);

    for (size_t at = 0; rc == ATTN_OK && at < n; at += 7)
        rc = srv_json_reader_feed(r, body + at, n - at < 7 ? n - at : 7, err);
    if (rc == ATTN_OK)
        rc = srv_json_reader_finish(r, err);
    srv_json_reader_free(r);
    return rc;
}

static void the_reader_survives_every_refused_charge(void **state)
{
    const char *body = large_body();
    attn_status rc = ATTN_EBUSY;
    long n;

    (void)state;
    for (n = 0; rc != ATTN_OK; n++) {
        attn_error err = {0};
        ledger l = {0, n, false};
        rc = read_body(body, strlen(body), &l, &err);
        assert_int_equal(l.now, 0);
        assert_int_equal(rc, l.refused ? ATTN_EBUSY : ATTN_OK);
        if (rc != ATTN_OK)
            assert_string_equal(err.text, "refused");
    }
    assert_true(n > 20);
}

#ifndef SANITIZED

static void the_reader_survives_every_failed_allocation(void **state)
{
    const char *body = large_body();
    bool reached = true;
    long n = 0, failed = 0;

    (void)state;
    while (reached) {
        attn_error err = {0};
        ledger l = {0, LONG_MAX, false};
        long before = allocated;
        fail_at = ++n;
        attn_status rc = read_body(body, strlen(body), &l, &err);
        reached = fail_at == 0;
        fail_at = 0;
        assert_int_equal(allocated, before);
        assert_int_equal(l.now, 0);
        assert_int_equal(rc, err.code);
        /* jansson takes some of its own for errors of the text. */
        bool jansson =
            strcmp(err.pointer, "/layer") == 0 || strcmp(err.pointer, "/return_attentions") == 0;
        if (rc != ATTN_OK && rc != ATTN_ENOMEM && !(rc == ATTN_EINVAL && jansson))
            fail_msg("allocation %ld: %s", n, err.text);
        failed += rc != ATTN_OK; /* a block that cannot be made smaller is no failure */
    }
    assert_true(failed > 30);
}

/* jansson leaves a byte out where its buffer cannot grow, and goes on. */
static void a_document_is_whole_or_lacks_memory(void **state)
{
    char text[1000], word[900];
    const char *got = NULL;
    bool reached = true;
    long n = 0, failed = 0;

    (void)state;
    (void)snprintf(word, sizeof word, "%0800d", 7);
    int length = snprintf(text, sizeof text, "{\"a\":[\"%s\",1,null]}", word);
    while (reached) {
        attn_error err = {0};
        attn_json *v = NULL;
        long before = allocated;
        fail_at = ++n;
        attn_status rc = attn_json_parse(&v, text, (size_t)length, "text", &err);
        reached = fail_at == 0;
        fail_at = 0;
        assert_int_equal(rc, reached ? ATTN_ENOMEM : ATTN_OK);
        assert_int_equal(rc == ATTN_OK, v != NULL);
        if (rc == ATTN_OK) {
            assert_true(attn_json_string(attn_json_at(attn_json_get(v, "a"), 0), &got));
            assert_string_equal(got, word);
        }
        failed += rc != ATTN_OK;
        attn_json_free(v);
        assert_int_equal(allocated, before);
    }
    assert_true(failed > 8);
}

static srv_json_writer *write_answer(void)
{
    static const float x[2] = {1, 2};
    srv_json_writer *w = srv_json_writer_new();

    if (w == NULL)
        return NULL;
    srv_json_writer_format(w, "{\"%0300d\":", 1);
    srv_json_writer_string(w, "a\nb");
    srv_json_writer_raw(w, ",\"x\":", 5);
    for (int i = 0; i < 8; i++)
        srv_json_writer_tensor(w, x, 1, (size_t[]){2}, i % 2 != 0);
    srv_json_writer_raw(w, "}", 1);
    return w;
}

static void the_writer_remembers_a_failed_allocation(void **state)
{
    char whole[2000], text[2000];
    bool reached = true;
    long n = 0, failed = 0;

    (void)state;
    srv_json_writer *w = write_answer();
    size_t length = srv_json_writer_read(w, whole, sizeof whole);
    srv_json_writer_free(w);
    while (reached) {
        long before = allocated;
        fail_at = ++n;
        w = write_answer();
        reached = fail_at == 0;
        fail_at = 0;
        if (w == NULL || srv_json_writer_status(w) == ATTN_ENOMEM) {
            failed++;
            assert_true(reached);
            assert_true(w == NULL || srv_json_writer_read(w, text, sizeof text) == 0);
        } else { /* some of the C library's allocations may fail without harm */
            assert_int_equal(srv_json_writer_read(w, text, sizeof text), length);
            assert_memory_equal(text, whole, length);
        }
        srv_json_writer_free(w);
        assert_int_equal(allocated, before);
    }
    assert_true(failed > 5);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifndef SANITIZED
        cmocka_unit_test(the_reader_survives_every_failed_allocation),
        cmocka_unit_test(a_document_is_whole_or_lacks_memory),
        cmocka_unit_test(the_writer_remembers_a_failed_allocation),
#endif
        cmocka_unit_test(the_reader_survives_every_refused_charge)};

#ifdef SANITIZED
    print_message("skipped: failing allocations: the sanitizer has its own malloc\n");
#endif
    return cmocka_run_group_tests_name("json_alloc", tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define ZLIB_CONST
#include <zlib.h>

#include "server/deflate.h"
#include "server/inflate.h"
#include "tests/scratch.h"

#define NO_LIMIT UINT64_MAX

/* --- encoded bytes, made by zlib at its best ---------------------------------------------------- */

static void encode(blob *out, srv_coding coding, const void *bytes, size_t n)
{
    z_stream s = {0};
    size_t room = n / 2 + 1024;
    unsigned char *to = malloc(room);

    assert_non_null(to);
    assert_int_equal(
        deflateInit2(&s, 9, Z_DEFLATED, 15 + (coding == SRV_GZIP ? 16 : 0), 9, Z_DEFAULT_STRATEGY),
        Z_OK);
    s.next_in = (const Bytef *)bytes;
    s.avail_in = (uInt)n;
    int rc = Z_OK;
    while (rc != Z_STREAM_END) {
        s.next_out = to;
        s.avail_out = (uInt)room;
        rc = deflate(&s, Z_FINISH);
        assert_true(rc == Z_OK || rc == Z_STREAM_END);
        blob_add(out, to, room - s.avail_out);
    }
    assert_int_equal(deflateEnd(&s), Z_OK);
    free(to);
}

/* Text that is neither all alike nor without order. */
static void text(blob *out, size_t n)
{
    uint32_t x = 1;
    char word[16];

    while (out->n < n) {
        x = x * 1664525u + 1013904223u;
        blob_add(out, word, (size_t)snprintf(word, sizeof word, "%u,", x >> 20));
    }
    out->n = n;
}

/* --- decoding ----------------------------------------------------------------------------------- */

static attn_status collect(void *arg, const char *bytes, size_t n, attn_error *err)
{
    (void)err;
    assert_true(n > 0);
    blob_add(arg, bytes, n);
    return ATTN_OK;
}

static attn_status decode(const blob *in, srv_coding coding, size_t piece, uint64_t limit,
                          blob *out, attn_error *err)
{
    srv_inflate *z = NULL;
    attn_status rc = srv_inflate_new(&z, coding, limit, collect, out, err);

    for (size_t at = 0; rc == ATTN_OK && at < in->n; at += piece) {
        size_t k = in->n - at < piece ? in->n - at : piece;
        char *exact = malloc(k); /* AddressSanitizer sees one byte too many */
        assert_non_null(exact);
        memcpy(exact, in->at + at, k);
        rc = srv_inflate_feed(z, exact, k, err);
        free(exact);
    }
    if (rc == ATTN_OK)
        rc = srv_inflate_finish(z, err);
    srv_inflate_free(z);
    return rc;
}

static void hold_equal(const blob *in, srv_coding coding, size_t piece, const blob *want)
{
    blob out = {0};
    attn_error err = {0};

    if (decode(in, coding, piece, want->n, &out, &err) != ATTN_OK)
        fail_msg("%s in pieces of %zu: %s", srv_coding_names[coding], piece, err.text);
    assert_int_equal(out.n, want->n);
    if (want->n > 0)
        assert_memory_equal(out.at, want->at, want->n);
    blob_free(&out);
}

static void refuse(const blob *in, srv_coding coding, attn_status code, const char *says)
{
    static const size_t pieces[] = {1, 7, SIZE_MAX / 2};

    for (size_t i = 0; i < 3; i++) {
        attn_error err = {0};
        blob out = {0};
        assert_int_equal(decode(in, coding, pieces[i], NO_LIMIT, &out, &err), code);
        if (strstr(err.text, says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", err.text, says);
        blob_free(&out);
    }
}

static void bodies_come_out_as_they_went_in_however_they_are_cut(void **state)
{
    static const size_t sizes[] = {0, 1, 100, 16384, 70000},
                        pieces[] = {1, 2, 13, 5000, SIZE_MAX / 2};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (srv_coding c = SRV_GZIP; c <= SRV_DEFLATE; c++) {
            blob plain = {0}, in = {0};
            text(&plain, sizes[i]);
            encode(&in, c, plain.at, plain.n);
            for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++)
                hold_equal(&in, c, pieces[p], &plain);
            blob_free(&plain);
            blob_free(&in);
        }
    }
}

static void gzip_members_follow_each_other(void **state)
{
    blob plain = {0}, in = {0};

    (void)state;
    text(&plain, 300);
    encode(&in, SRV_GZIP, plain.at, 100);
    encode(&in, SRV_GZIP, plain.at, 0);
    encode(&in, SRV_GZIP, plain.at + 100, 200);
    for (size_t piece = 1; piece < in.n + 1; piece += 3)
        hold_equal(&in, SRV_GZIP, piece, &plain);
    blob_free(&plain);
    blob_free(&in);
}

static void a_cut_body_is_refused_at_every_length(void **state)
{
    blob plain = {0};

    (void)state;
    text(&plain, 200);
    for (srv_coding c = SRV_GZIP; c <= SRV_DEFLATE; c++) {
        blob in = {0};
        encode(&in, c, plain.at, plain.n);
        for (size_t n = 0; n < in.n; n++) {
            blob cut = {in.at, n};
            refuse(&cut, c, ATTN_EINVAL, "it is cut after");
        }
        blob_free(&in);
    }
    blob_free(&plain);
}

static void bytes_behind_the_end_are_refused(void **state)
{
    static const char *const rests[] = {"x", "{}", "\x1f\x8c"};

    (void)state;
    for (size_t i = 0; i < sizeof rests / sizeof *rests; i++) {
        for (srv_coding c = SRV_GZIP; c <= SRV_DEFLATE; c++) {
            blob in = {0};
            encode(&in, c, "hello", 5);
            blob_text(&in, rests[i]);
            refuse(&in, c, ATTN_EINVAL,
                   i == 0 && c == SRV_GZIP ? "gzip body: it is cut"
                                           : "there are bytes behind its end");
            blob_free(&in);
        }
    }
    blob zero = {0};
    encode(&zero, SRV_GZIP, "hello", 5);
    blob_add(&zero, "\0\0\0\0", 4);
    refuse(&zero, SRV_GZIP, ATTN_EINVAL, "there are bytes behind its end");
    blob_free(&zero);
    encode(&zero, SRV_DEFLATE, "hello", 5);
    encode(&zero, SRV_DEFLATE, "hello", 5);
    refuse(&zero, SRV_DEFLATE, ATTN_EINVAL, "there are bytes behind its end");
    blob_free(&zero);
}

static void damage_is_found(void **state)
{
    blob plain = {0}, in = {0}, out = {0};
    size_t unseen = 0;

    (void)state;
    text(&plain, 400);
    encode(&in, SRV_GZIP, plain.at, plain.n);
    for (size_t i = 0; i < in.n; i++) {
        attn_error err = {0};
        in.at[i] ^= 0x10;
        /* Time, flags and system in the header mean nothing to the content, nor do the bits that fill
         * the last byte before the checksum. */
        if (decode(&in, SRV_GZIP, 64, NO_LIMIT, &out, &err) == ATTN_OK) {
            assert_true((i >= 4 && i <= 9) || i == in.n - 9);
            unseen++;
        } else {
            assert_int_equal(err.code, ATTN_EINVAL);
        }
        blob_free(&out);
        in.at[i] ^= 0x10;
    }
    assert_in_range(unseen, 6, 7);
    blob_free(&in);

    blob json = {0};
    blob_text(&json, "{\"inputs_embeds\":[]}");
    refuse(&json, SRV_GZIP, ATTN_EINVAL, "gzip body: damaged near byte");
    refuse(&json, SRV_DEFLATE, ATTN_EINVAL, "deflate body: damaged near byte");
    blob_free(&json);
    blob_free(&plain);
}

/* The limit is reached before the checksum that is wrong, though zlib may see both in one call. */
static void what_stands_before_damage_is_told_first(void **state)
{
    blob plain = {0}, in = {0}, out = {0};

    (void)state;
    text(&plain, 400);
    encode(&in, SRV_GZIP, plain.at, plain.n);
    in.at[in.n - 8] ^= 0x10;
    for (size_t piece = 1; piece <= in.n; piece++) {
        attn_error err = {0};
        assert_int_equal(decode(&in, SRV_GZIP, piece, 100, &out, &err), ATTN_ETOOBIG);
        blob_free(&out);
        err = (attn_error){0};
        assert_int_equal(decode(&in, SRV_GZIP, piece, NO_LIMIT, &out, &err), ATTN_EINVAL);
        assert_int_equal(out.n, plain.n);
        assert_memory_equal(out.at, plain.at, plain.n);
        blob_free(&out);
    }
    blob_free(&in);
    blob_free(&plain);
}

static void a_dictionary_is_refused(void **state)
{
    z_stream s = {0};
    unsigned char buffer[256];
    blob in = {0};

    (void)state;
    assert_int_equal(deflateInit(&s, 9), Z_OK);
    assert_int_equal(deflateSetDictionary(&s, (const Bytef *)"hello", 5), Z_OK);
    s.next_in = (const Bytef *)"hello hello";
    s.avail_in = 11;
    s.next_out = buffer;
    s.avail_out = sizeof buffer;
    assert_int_equal(deflate(&s, Z_FINISH), Z_STREAM_END);
    blob_add(&in, buffer, sizeof buffer - s.avail_out);
    assert_int_equal(deflateEnd(&s), Z_OK);
    refuse(&in, SRV_DEFLATE, ATTN_EINVAL, "it needs a dictionary");
    blob_free(&in);
}

static void the_limit_holds_for_what_comes_out(void **state)
{
    blob plain = {0}, in = {0};

    (void)state;
    text(&plain, 50000);
    encode(&in, SRV_GZIP, plain.at, plain.n);
    for (size_t piece = 100; piece < 100000; piece *= 8) {
        attn_error err = {0};
        blob out = {0};
        assert_int_equal(decode(&in, SRV_GZIP, piece, 50000, &out, &err), ATTN_OK);
        blob_free(&out);
        assert_int_equal(decode(&in, SRV_GZIP, piece, 49999, &out, &err), ATTN_ETOOBIG);
        assert_non_null(strstr(err.text, "more than 49999 bytes (server.max_body)"));
        assert_int_equal(err.limit, 49999);
        assert_in_range(err.needed, 50000, 50000 + 16384);
        assert_true(out.n <= 49999);
        blob_free(&out);
    }
    blob_free(&plain);
    blob_free(&in);
}

static void a_bomb_is_known_by_its_ratio(void **state)
{
    const size_t zeros = (size_t)40 << 20;
    blob in = {0}, out = {0};
    attn_error err = {0};
    void *plain = calloc(zeros, 1);

    (void)state;
    assert_non_null(plain);
    encode(&in, SRV_GZIP, plain, zeros);
    assert_int_equal(decode(&in, SRV_GZIP, 1024, NO_LIMIT, &out, &err), ATTN_ETOOBIG);
    assert_non_null(strstr(err.text, "at most 256 for each"));
    assert_true(out.n <= SRV_INFLATE_FREE + 16384);
    blob_free(&out);
    blob_free(&in);
    encode(&in, SRV_GZIP, plain, SRV_INFLATE_FREE); /* what is small may be as dense as it likes */
    assert_int_equal(decode(&in, SRV_GZIP, SIZE_MAX / 2, NO_LIMIT, &out, &err), ATTN_OK);
    assert_int_equal(out.n, SRV_INFLATE_FREE);
    blob_free(&out);
    blob_free(&in);
    free(plain);
}

static attn_status stop(void *arg, const char *bytes, size_t n, attn_error *err)
{
    (void)bytes;
    (void)n;
    return attn_fail(err, ATTN_ESHAPE, "%s", (const char *)arg);
}

static void what_the_sink_says_ends_it(void **state)
{
    char why[] = "no more";
    blob in = {0};
    srv_inflate *z = NULL;
    attn_error err = {0};

    (void)state;
    encode(&in, SRV_GZIP, "hello", 5);
    assert_int_equal(srv_inflate_new(&z, SRV_GZIP, NO_LIMIT, stop, why, &err), ATTN_OK);
    assert_int_equal(srv_inflate_feed(z, (const char *)in.at, in.n, &err), ATTN_ESHAPE);
    assert_string_equal(err.text, why);
    srv_inflate_free(z);
    srv_inflate_free(NULL);
    blob_free(&in);
}

/* --- encoding ----------------------------------------------------------------------------------- */

/* Gives `piece` bytes at a time, and after each `pause` times nothing. */
typedef struct {
    const blob *text;
    size_t at, piece, pause, paused;
} source;

static ssize_t give(void *arg, char *out, size_t n)
{
    source *s = arg;

    if (s->paused > 0) {
        s->paused--;
        return -1;
    }
    size_t k = s->text->n - s->at < s->piece ? s->text->n - s->at : s->piece;
    k = k < n ? k : n;
    if (k > 0)
        memcpy(out, s->text->at + s->at, k);
    s->at += k;
    s->paused = s->pause;
    return (ssize_t)k;
}

static void answers_are_encoded_whatever_is_read_at_a_time(void **state)
{
    static const size_t sizes[] = {0, 1, 1000, 100000}, reads[] = {64, 1000, 1 << 20};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        blob plain = {0};
        text(&plain, sizes[i]);
        for (size_t j = 0; j < 6; j++) {
            srv_coding coding = j % 2 == 0 ? SRV_GZIP : SRV_DEFLATE;
            source from = {&plain, 0, j < 3 ? 777 : SIZE_MAX, 0, 0};
            blob out = {0};
            srv_deflate *z = NULL;
            char *to = malloc(reads[j / 2]);
            assert_non_null(to);
            assert_int_equal(srv_deflate_new(&z, coding, give, &from, NULL), ATTN_OK);
            for (ssize_t got; (got = srv_deflate_read(z, to, reads[j / 2])) != 0;) {
                assert_in_range(got, 1, reads[j / 2]);
                blob_add(&out, to, (size_t)got);
            }
            assert_int_equal(srv_deflate_read(z, to, reads[j / 2]), 0);
            hold_equal(&out, coding, 4096, &plain);
            if (plain.n > 1000)
                assert_true(out.n < plain.n * 2 / 3);
            srv_deflate_free(z);
            blob_free(&out);
            free(to);
        }
        blob_free(&plain);
    }
    srv_deflate_free(NULL);
}

/* How much can be decoded of bytes whose end has not come. */
static size_t readable(const blob *in)
{
    blob out = {0};
    srv_inflate *z = NULL;

    assert_int_equal(srv_inflate_new(&z, SRV_GZIP, NO_LIMIT, collect, &out, NULL), ATTN_OK);
    if (in->n > 0)
        assert_int_equal(srv_inflate_feed(z, (const char *)in->at, in->n, NULL), ATTN_OK);
    srv_inflate_free(z);
    size_t n = out.n;
    blob_free(&out);
    return n;
}

static void a_pause_of_the_source_lets_the_client_read_on(void **state)
{
    blob plain = {0}, out = {0};
    source from = {&plain, 0, 700, 4, 0};
    srv_deflate *z = NULL;
    char to[64];
    size_t pauses = 0;
    ssize_t got = 1;

    (void)state;
    text(&plain, 5000);
    assert_int_equal(srv_deflate_new(&z, SRV_GZIP, give, &from, NULL), ATTN_OK);
    while (got != 0) {
        got = srv_deflate_read(z, to, sizeof to);
        if (got > 0) {
            blob_add(&out, to, (size_t)got);
        } else if (got < 0) {
            assert_int_equal(got, -1);
            assert_int_equal(readable(&out), from.at);
            pauses++;
        }
    }
    /* Of four pauses behind each of eight pieces one is used up to flush, and perhaps one to say so. */
    assert_in_range(pauses, 16, 24);
    hold_equal(&out, SRV_GZIP, 100, &plain);
    srv_deflate_free(z);
    blob_free(&plain);
    blob_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_come_out_as_they_went_in_however_they_are_cut),
        cmocka_unit_test(gzip_members_follow_each_other),
        cmocka_unit_test(a_cut_body_is_refused_at_every_length),
        cmocka_unit_test(bytes_behind_the_end_are_refused),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(what_stands_before_damage_is_told_first),
        cmocka_unit_test(a_dictionary_is_refused),
        cmocka_unit_test(the_limit_holds_for_what_comes_out),
        cmocka_unit_test(a_bomb_is_known_by_its_ratio),
        cmocka_unit_test(what_the_sink_says_ends_it),
        cmocka_unit_test(answers_are_encoded_whatever_is_read_at_a_time),
        cmocka_unit_test(a_pause_of_the_source_lets_the_client_read_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

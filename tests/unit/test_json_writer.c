#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/scratch.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/decimal.h"
#include "core/json.h"
#include "server/json_writer.h"

/* All of the answer, read in pieces of n bytes (0 = of random sizes); malloc()ed, NUL-terminated. */
static char *read_all(srv_json_writer *w, size_t n, size_t *length)
{
    char *text = NULL;
    size_t total = 0;
    uint32_t random = 7;

    for (;;) {
        random = random * 1664525u + 1013904223u;
        size_t room = n > 0 ? n : 64 + (random >> 16) % 100;
        char *piece = malloc(room); /* AddressSanitizer sees one byte too many */
        assert_non_null(piece);
        size_t got = srv_json_writer_read(w, piece, room);
        assert_true(got <= room);
        text = realloc(text, total + got + 1);
        assert_non_null(text);
        memcpy(text + total, piece, got);
        free(piece);
        total += got;
        text[total] = '\0';
        if (got == 0)
            break;
    }
    assert_int_equal(srv_json_writer_read(w, (char[64]){0}, 64), 0);
    *length = total;
    return text;
}

static char *write_tensor(const float *x, size_t rank, const size_t *dim, bool base64, size_t n)
{
    srv_json_writer *w = srv_json_writer_new();
    size_t length = 0;

    assert_non_null(w);
    srv_json_writer_tensor(w, x, rank, dim, base64);
    assert_int_equal(srv_json_writer_status(w), ATTN_OK);
    char *text = read_all(w, n, &length);
    assert_int_equal(strlen(text), length);
    srv_json_writer_free(w);
    return text;
}

static void expect_tensor(const char *want, const float *x, size_t rank, const size_t *dim,
                          bool base64)
{
    char *text = write_tensor(x, rank, dim, base64, 64);
    assert_string_equal(text, want);
    free(text);
}

#define DIM(...) ((size_t[]){__VA_ARGS__})

static const float counting[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static void brackets_follow_the_dimensions(void **state)
{
    (void)state;
    expect_tensor("0", counting, 0, NULL, false);
    expect_tensor("[0]", counting, 1, DIM(1), false);
    expect_tensor("[0,1,2]", counting, 1, DIM(3), false);
    expect_tensor("[[0,1,2],[3,4,5]]", counting, 2, DIM(2, 3), false);
    expect_tensor("[[0],[1]]", counting, 2, DIM(2, 1), false);
    expect_tensor("[[0,1]]", counting, 2, DIM(1, 2), false);
    expect_tensor("[[[0,1],[2,3]],[[4,5],[6,7]]]", counting, 3, DIM(2, 2, 2), false);
    expect_tensor("[[[[[0,1]],[[2,3]]]],[[[[4,5]],[[6,7]]]]]", counting, 5, DIM(2, 1, 2, 1, 2),
                  false);
    expect_tensor("[[[[[0]]]]]", counting, 5, DIM(1, 1, 1, 1, 1), false);
}

static void empty_tensors_keep_the_levels_above_the_first_zero(void **state)
{
    (void)state;
    expect_tensor("[]", NULL, 1, DIM(0), false);
    expect_tensor("[]", NULL, 3, DIM(0, 2, 3), false);
    expect_tensor("[[],[]]", NULL, 3, DIM(2, 0, 3), false);
    expect_tensor("[[[],[],[]],[[],[],[]]]", NULL, 3, DIM(2, 3, 0), false);
    expect_tensor("[[[[[]],[[]]]]]", NULL, 5, DIM(1, 1, 2, 1, 0), false);
    expect_tensor("{\"shape\":[2,0,3],\"dtype\":\"float32\",\"data\":\"\"}", NULL, 3, DIM(2, 0, 3),
                  true);
}

static void what_json_cannot_say_is_null(void **state)
{
    const float x[] = {NAN, INFINITY, -INFINITY, -0.0f, 0.1f, FLT_MAX, -FLT_MIN, 1e-45f};

    (void)state;
    expect_tensor("[null,null,null,-0,0.1,3.4028235e+38,-1.1754944e-38,1e-45]", x, 1, DIM(8),
                  false);
    expect_tensor("null", x, 0, NULL, false);
    expect_tensor("[[null,null],[null,-0]]", x, 2, DIM(2, 2), false);
}

static void base64_is_a_tensor_object_with_the_very_bits(void **state)
{
    const float x[] = {1.0f, -2.5f, -INFINITY};

    (void)state;
    expect_tensor("{\"shape\":[1,2],\"dtype\":\"float32\",\"data\":\"AACAPwAAIMA=\"}", x, 2,
                  DIM(1, 2), true);
    expect_tensor("{\"shape\":[3],\"dtype\":\"float32\",\"data\":\"AACAPwAAIMAAAID/\"}", x, 1,
                  DIM(3), true);
    expect_tensor("{\"shape\":[],\"dtype\":\"float32\",\"data\":\"AACAPw==\"}", x, 0, NULL, true);
}

static void texts_and_tensors_follow_each_other(void **state)
{
    static char long_text[1000];
    srv_json_writer *w = srv_json_writer_new();
    size_t n = 0;

    (void)state;
    assert_non_null(w);
    assert_int_equal(srv_json_writer_read(w, (char[64]){0}, 64), 0); /* nothing yet */
    memset(long_text, 'x', sizeof long_text - 1);
    srv_json_writer_raw(w, "{\"a\":", 5);
    srv_json_writer_tensor(w, counting, 1, DIM(2), false);
    srv_json_writer_raw(w, ",\"b\":", 5);
    srv_json_writer_tensor(w, counting, 1, DIM(1), true);
    srv_json_writer_format(w, ",\"%s\":%d", long_text, 42);
    srv_json_writer_raw(w, "", 0);
    srv_json_writer_raw(w, "}", 1);
    char *text = read_all(w, 64, &n);
    assert_int_equal(n, 5 + 5 + 5 +
                            strlen("{\"shape\":[1],\"dtype\":\"float32\",\"data\":\"AAAAAA==\"}") +
                            2 + 999 + 4 + 1);
    assert_memory_equal(text, "{\"a\":[0,1],\"b\":{\"shape\":[1],", 28);
    assert_string_equal(text + n - 9, "xxxx\":42}");
    free(text);
    srv_json_writer_free(w);
    srv_json_writer_free(NULL);
}

static void strings_are_escaped_as_json_asks(void **state)
{
    srv_json_writer *w = srv_json_writer_new();
    size_t n = 0;

    (void)state;
    assert_non_null(w);
    srv_json_writer_string(w, "");
    srv_json_writer_string(w, "a\"b\\c/\b\f\n\r\t\x01\x1f\x7f \xc3\xa9\xf0\x9f\x98\x80");
    char *text = read_all(w, 64, &n);
    assert_string_equal(text, "\"\"\"a\\\"b\\\\c/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f "
                              "\xc3\xa9\xf0\x9f\x98\x80\"");
    free(text);
    srv_json_writer_free(w);
}

static float random_float(uint32_t *random)
{
    float x;

    *random = *random * 1664525u + 1013904223u;
    uint32_t bits = *random ^ *random >> 15;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void the_bytes_do_not_depend_on_how_they_are_cut(void **state)
{
    static const size_t dims[][5] = {
        {333, 0, 0, 0, 0}, {37, 9, 0, 0, 0}, {9, 37, 1, 0, 0}, {3, 1, 37, 3, 0}, {3, 37, 1, 1, 3}};
    float x[333];
    uint32_t random = 11;

    (void)state;
    for (size_t i = 0; i < 333; i++)
        x[i] = random_float(&random);
    for (size_t rank = 1; rank <= 5; rank++) {
        for (int base64 = 0; base64 < 2; base64++) {
            char *whole = write_tensor(x, rank, dims[rank - 1], base64 != 0, 1 << 20);
            for (size_t n = 0; n < 140; n = n == 0 ? 64 : n + 1) {
                char *text = write_tensor(x, rank, dims[rank - 1], base64 != 0, n);
                assert_string_equal(text, whole);
                free(text);
            }
            free(whole);
        }
    }
}

/* jansson reads the text; then each number is held against its float. */
static void nested_arrays_are_json_and_read_back(void **state)
{
    enum { B = 3, T = 5, D = 7 };
    float x[B * T * D];
    uint32_t random = 5;
    attn_json *v = NULL;
    attn_error err = {0};

    (void)state;
    for (size_t i = 0; i < B * T * D; i++)
        x[i] = random_float(&random);
    char *text = write_tensor(x, 3, DIM(B, T, D), false, 0);
    assert_int_equal(attn_json_parse(&v, text, strlen(text), "text", &err), ATTN_OK);
    assert_int_equal(attn_json_length(v), B);
    for (size_t b = 0; b < B; b++) {
        assert_int_equal(attn_json_length(attn_json_at(v, b)), T);
        for (size_t t = 0; t < T; t++) {
            const attn_json *row = attn_json_at(attn_json_at(v, b), t);
            assert_int_equal(attn_json_length(row), D);
            for (size_t d = 0; d < D; d++) {
                float want = x[(b * T + t) * D + d];
                double got = 0;
                if (!isfinite(want)) {
                    assert_true(attn_json_is_null(attn_json_at(row, d)));
                    continue;
                }
                assert_true(attn_json_number(attn_json_at(row, d), &got));
                assert_true((float)got == want);
            }
        }
    }
    attn_json_free(v);
    free(text);
}

/* Rows longer than any block in which numbers are printed, with zeros and what is not finite among them. */
static void long_rows_are_their_numbers_one_by_one(void **state)
{
    enum { ROWS = 3, N = 1001 };
    static float x[ROWS * N];
    char *want = malloc(ROWS * N * (ATTN_F32_CHARS + 2)), *p = want;
    uint32_t random = 13;

    (void)state;
    assert_non_null(want);
    *p++ = '[';
    for (size_t i = 0; i < ROWS * N; i++) {
        x[i] = i / 40 % 3 == 0 ? 0.0f : random_float(&random);
        *p++ = i % N == 0 ? '[' : ',';
        if (isfinite(x[i]))
            p += attn_f32_print(p, x[i]);
        else
            p += snprintf(p, 8, "null");
        if (i % N == N - 1) {
            *p++ = ']';
            *p++ = i + 1 < ROWS * N ? ',' : ']';
        }
    }
    *p = '\0';
    for (size_t n = 0; n < 5000; n = n == 0 ? 64 : n * 2 + 1) {
        char *text = write_tensor(x, 2, DIM(ROWS, N), false, n);
        assert_string_equal(text, want);
        free(text);
    }
    free(want);
}

static void the_bound_is_an_upper_one_and_near(void **state)
{
    static const size_t dims[][5] = {{4, 3, 2, 1, 5},   {1, 1, 1, 1, 1}, {120, 1, 1, 1, 1},
                                     {1, 1, 1, 1, 120}, {2, 3, 4, 5, 1}, {5, 0, 1, 1, 1},
                                     {0, 5, 1, 1, 1}};
    float longest[120];

    (void)state;
    char digits[ATTN_F32_CHARS];
    uint32_t random = 1;
    float x = 1;
    do
        x = random_float(&random);
    while (!isfinite(x) || attn_f32_print(digits, x) < 15);
    for (size_t i = 0; i < 120; i++)
        longest[i] = x;
    for (size_t k = 0; k < sizeof dims / sizeof dims[0]; k++) {
        for (size_t rank = 0; rank <= 5; rank++) {
            size_t count = 1;
            for (size_t i = 0; i < rank; i++)
                count *= dims[k][i];
            for (int base64 = 0; base64 < 2; base64++) {
                char *text = write_tensor(longest, rank, dims[k], base64 != 0, 64);
                size_t n = strlen(text);
                size_t bound = srv_json_writer_bound(count, rank, dims[k], base64 != 0);
                if (bound < n || bound > 2 * n + 150)
                    fail_msg("%zu bytes, bound %zu: %.60s", n, bound, text);
                free(text);
            }
        }
    }
    assert_int_equal(srv_json_writer_bound(SIZE_MAX / 2, 1, DIM(SIZE_MAX / 2), false), SIZE_MAX);
    assert_int_equal(srv_json_writer_bound(SIZE_MAX / 2, 1, DIM(SIZE_MAX / 2), true), SIZE_MAX);
    assert_int_equal(srv_json_writer_bound(0, 3, DIM(SIZE_MAX, SIZE_MAX, 0), false), SIZE_MAX);
}

static void ordinary_numbers_take_more_than_half_the_bound(void **state)
{
    enum { N = 1 << 16 };
    float *x = malloc(N * sizeof *x);
    uint32_t random = 3;

    (void)state;
    assert_non_null(x);
    for (size_t i = 0; i < N; i++) {
        random = random * 1664525u + 1013904223u;
        x[i] = (float)random / 0x1p31f - 1.0f;
    }
    char *text = write_tensor(x, 2, DIM(N / 8, 8), false, 1 << 16);
    assert_true(srv_json_writer_bound(N, 2, DIM(N / 8, 8), false) <= 2 * strlen(text));
    free(text);
    free(x);
}

static void a_megabyte_of_floats_is_at_most_4_2_megabytes_of_text(void **state)
{
    enum { N = 262144 };
    float *x = malloc(N * sizeof *x);
    uint32_t random = 9;

    (void)state;
    assert_non_null(x);
    for (size_t i = 0; i < N; i++)
        do
            x[i] = random_float(&random);
        while (!isfinite(x[i]));
    char *text = write_tensor(x, 1, DIM(N), false, 1 << 16);
    assert_true(strlen(text) <= 4200000);
    free(text);
    free(x);
}

/* The text of x[0..n) of these sizes, written in parts of random sizes, between two texts. */
static char *write_in_parts(const float *x, size_t n, size_t rank, const size_t *dim, bool base64,
                            uint32_t *random)
{
    srv_json_writer *w = srv_json_writer_new();
    char *text = malloc(n * 64 + 4096), *part = NULL;
    size_t total = 0, given = 0;

    assert_non_null(w);
    assert_non_null(text);
    srv_json_writer_raw(w, "<", 1);
    srv_json_writer_tensor_in_parts(w, rank, dim, base64);
    for (;;) {
        *random = *random * 1664525u + 1013904223u;
        size_t got = srv_json_writer_read(w, text + total, 64 + (*random >> 20) % 200);
        total += got;
        if (got > 0)
            continue;
        free(part); /* all of it must have been read */
        part = NULL;
        if (!srv_json_writer_waits(w))
            break;
        size_t take = 1 + (*random >> 16) % (n - given > 40 ? 40 : n - given);
        part = (char *)malloc(take * sizeof *x);
        assert_non_null(part);
        memcpy(part, x + given, take * sizeof *x);
        srv_json_writer_part(w, (const float *)(void *)part, take);
        given += take;
    }
    assert_int_equal(given, n);
    srv_json_writer_raw(w, ">", 1); /* behind what was read */
    total += srv_json_writer_read(w, text + total, 64);
    text[total] = '\0';
    srv_json_writer_free(w);
    return text;
}

static void numbers_may_come_in_parts(void **state)
{
    static const size_t sizes[][4] = {{1, 1, 1, 1},  {5, 1, 1, 1}, {2, 3, 5, 1}, {3, 2, 7, 11},
                                      {1, 1, 64, 3}, {0, 2, 3, 1}, {2, 3, 0, 1}, {4, 1, 1, 50}};
    uint32_t random = 3;
    float x[512];

    (void)state;
    for (size_t i = 0; i < 512; i++)
        x[i] = (float)i / 7 - 20;
    for (int again = 0; again < 100; again++) {
        const size_t *dim = sizes[again % 8];
        size_t n = dim[0] * dim[1] * dim[2] * dim[3];
        bool base64 = again / 8 % 2 == 1;
        char *whole = write_tensor(x, 4, dim, base64, 64);
        char *parts = write_in_parts(x, n, 4, dim, base64, &random);
        assert_int_equal(strlen(parts), strlen(whole) + 2);
        assert_memory_equal(parts + 1, whole, strlen(whole));
        assert_int_equal(parts[strlen(parts) - 1], '>');
        free(whole);
        free(parts);
    }
}

/* Reads what there is and gives the next numbers, `some` at a time, until nothing is left. */
static char *read_in_parts(srv_json_writer *w, const float *x, size_t n, size_t some, size_t room,
                           size_t *length)
{
    blob out = {0};
    char piece[200];
    size_t given = 0, got = 1;

    while (got > 0 || srv_json_writer_waits(w)) {
        got = srv_json_writer_read(w, piece, room);
        blob_add(&out, piece, got);
        if (got == 0 && srv_json_writer_waits(w)) {
            size_t more = some < n - given ? some : n - given;
            assert_true(more > 0);
            float *part = malloc(more * sizeof *part); /* it is gone with the next one */
            assert_non_null(part);
            memcpy(part, x + given, more * sizeof *part);
            srv_json_writer_part(w, part, more);
            given += more;
            while ((got = srv_json_writer_read(w, piece, room)) > 0)
                blob_add(&out, piece, got);
            memset(part, 0x55, more * sizeof *part);
            free(part);
        }
    }
    assert_int_equal(given, n);
    *length = out.n;
    return (char *)out.at;
}

static void every_form_and_type_leaves_the_same_in_parts(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F16, ATTN_U8, ATTN_I32};
    enum { N = 700 };
    float x[N];
    (void)state;

    for (size_t i = 0; i < N; i++)
        x[i] = (float)i / N;
    for (size_t c = 0; c < 3 * 4 * 40; c++) {
        srv_form form = (srv_form)(c % 3);
        attn_dtype type = types[c / 3 % 4];
        size_t n = c % 5 == 0 ? N : 1 + c / 12, dim[] = {1, n}, length = 0, too = 0;
        srv_json_writer *w = srv_json_writer_new();
        srv_json_writer_raw(w, "<", 1);
        srv_json_writer_values(w, x, 2, dim, form, type);
        srv_json_writer_raw(w, ">", 1);
        if (form == SRV_BYTES)
            assert_int_equal(srv_json_writer_length(w), n * attn_dtype_size(type) + 2);
        else
            assert_true(srv_json_writer_length(w) == UINT64_MAX);
        char *whole = read_all(w, 0, &length);
        srv_json_writer_free(w);
        w = srv_json_writer_new();
        srv_json_writer_raw(w, "<", 1);
        srv_json_writer_values(w, NULL, 2, dim, form, type);
        srv_json_writer_raw(w, ">", 1);
        /* Bytes take any room, texts of numbers want some. */
        char *parts = read_in_parts(w, x, n, 1 + c % 4, form == SRV_BYTES ? 1 + c % 7 : 64, &too);
        srv_json_writer_free(w);
        assert_int_equal(length, too);
        assert_memory_equal(whole, parts, length);
        free(whole);
        free(parts);
    }
}

static void narrow_types_are_rounded(void **state)
{
    const float x[] = {0, 1, 0.5F, 1.0F / 255, 0.4999F / 255, 0.5F / 255, 2, -1};
    const int32_t keys[] = {0, -1, 2147483647, -2147483647 - 1};
    srv_json_writer *w = srv_json_writer_new();
    size_t n = 0;
    (void)state;

    srv_json_writer_values(w, x, 1, DIM(8), SRV_LISTS, ATTN_U8);
    srv_json_writer_values(w, keys, 1, DIM(4), SRV_LISTS, ATTN_I32);
    srv_json_writer_values(w, x + 2, 1, DIM(2), SRV_LISTS, ATTN_F16);
    srv_json_writer_values(w, keys, 1, DIM(1), SRV_BASE64, ATTN_I32);
    char *text = read_all(w, 64, &n);
    assert_string_equal(text, "[0,255,128,1,0,1,255,0][0,-1,2147483647,-2147483648]"
                              "[0.5,0.003921509]"
                              "{\"shape\":[1],\"dtype\":\"int32\",\"data\":\"AAAAAA==\"}");
    free(text);
    srv_json_writer_free(w);
}

/* Bytes behind a text, at once or in parts; and what was read can be read again, with more behind it. */
static void bytes_are_as_they_lie_in_memory(void **state)
{
    float x[300];
    size_t total = 0, got = 0;

    (void)state;
    for (size_t i = 0; i < 300; i++)
        x[i] = (float)i / 7 - 20;
    for (int in_parts = 0; in_parts < 2; in_parts++) {
        srv_json_writer *w = srv_json_writer_new();
        char out[4096];
        assert_non_null(w);
        srv_json_writer_format(w, "{\"a\":");
        srv_json_writer_tensor(w, x, 1, (size_t[]){2}, false);
        srv_json_writer_raw(w, "}", 1);
        size_t text = srv_json_writer_read(w, out, sizeof out);
        assert_int_equal(srv_json_writer_read(w, out, sizeof out), 0);
        srv_json_writer_rewind(w);
        srv_json_writer_bytes(w, in_parts ? NULL : x, 300);
        srv_json_writer_bytes(w, x, 0); /* nothing */
        size_t given = 0;
        for (total = 0;; total += got) {
            got = srv_json_writer_read(w, out + total, 64 + total % 7);
            if (got > 0)
                continue;
            if (!srv_json_writer_waits(w))
                break;
            size_t n = given == 0 ? 1 : 23;
            srv_json_writer_part(w, x + given, n);
            given += n;
        }
        assert_int_equal(given, in_parts ? 300 : 0);
        assert_int_equal(total, text + sizeof x);
        assert_memory_equal(out, "{\"a\":[-20,", 10);
        assert_memory_equal(out + text, x, sizeof x);
        srv_json_writer_free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brackets_follow_the_dimensions),
        cmocka_unit_test(empty_tensors_keep_the_levels_above_the_first_zero),
        cmocka_unit_test(what_json_cannot_say_is_null),
        cmocka_unit_test(base64_is_a_tensor_object_with_the_very_bits),
        cmocka_unit_test(texts_and_tensors_follow_each_other),
        cmocka_unit_test(strings_are_escaped_as_json_asks),
        cmocka_unit_test(the_bytes_do_not_depend_on_how_they_are_cut),
        cmocka_unit_test(numbers_may_come_in_parts),
        cmocka_unit_test(every_form_and_type_leaves_the_same_in_parts),
        cmocka_unit_test(narrow_types_are_rounded),
        cmocka_unit_test(bytes_are_as_they_lie_in_memory),
        cmocka_unit_test(nested_arrays_are_json_and_read_back),
        cmocka_unit_test(long_rows_are_their_numbers_one_by_one),
        cmocka_unit_test(the_bound_is_an_upper_one_and_near),
        cmocka_unit_test(ordinary_numbers_take_more_than_half_the_bound),
        cmocka_unit_test(a_megabyte_of_floats_is_at_most_4_2_megabytes_of_text)};
    return cmocka_run_group_tests_name("json_writer", tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base64.h"

/* Decodes text[0..n) in pieces of at most `piece`; the bytes end exactly where the heap block may. */
static attn_status decode(const char *text, size_t n, size_t piece, unsigned char *out,
                          size_t *length, attn_error *err)
{
    attn_base64 d = {0};
    size_t at = 0;

    *length = 0;
    while (at < n) {
        size_t k = n - at < piece ? n - at : piece, written = 0;
        char *exact = malloc(k);
        unsigned char *bytes = malloc(ATTN_BASE64_DECODED(k));
        assert_non_null(exact);
        assert_non_null(bytes);
        memcpy(exact, text + at, k);
        attn_status rc = attn_base64_decode(&d, exact, k, bytes, &written, err);
        memcpy(out + *length, bytes, written);
        free(exact);
        free(bytes);
        if (rc != ATTN_OK)
            return rc;
        *length += written;
        at += k;
    }
    return attn_base64_finish(&d, err);
}

static const struct {
    const char *bytes, *text;
} rfc[] = {{"", ""},
           {"f", "Zg=="},
           {"fo", "Zm8="},
           {"foo", "Zm9v"},
           {"foob", "Zm9vYg=="},
           {"fooba", "Zm9vYmE="},
           {"foobar", "Zm9vYmFy"}};

static void the_vectors_of_rfc_4648_hold_both_ways(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rfc / sizeof rfc[0]; i++) {
        char text[16];
        unsigned char bytes[16];
        size_t n = strlen(rfc[i].bytes), length = 0;
        attn_base64_encode(text, rfc[i].bytes, n);
        assert_int_equal(ATTN_BASE64_ENCODED(n), strlen(rfc[i].text));
        assert_memory_equal(text, rfc[i].text, strlen(rfc[i].text));
        assert_int_equal(decode(rfc[i].text, strlen(rfc[i].text), 99, bytes, &length, NULL),
                         ATTN_OK);
        assert_int_equal(length, n);
        assert_memory_equal(bytes, rfc[i].bytes, n);
    }
}

static void floats_are_little_endian(void **state)
{
    const float x[2] = {1.0f, -2.5f};
    char text[12];

    (void)state;
    attn_base64_encode(text, x, sizeof x);
    assert_memory_equal(text, "AACAPwAAIMA=", 12);
}

static void every_length_and_every_cutting_gives_the_bytes_back(void **state)
{
    (void)state;
    uint32_t random = 1;
    for (size_t n = 0; n <= 160; n++) {
        unsigned char bytes[160], back[192];
        char text[216], in_pieces[216];
        for (size_t i = 0; i < n; i++) {
            random = random * 1664525u + 1013904223u;
            bytes[i] = (unsigned char)(random >> 24);
        }
        size_t length = ATTN_BASE64_ENCODED(n);
        attn_base64_encode(text, bytes, n);
        for (size_t piece = 3; piece <= 99; piece += 3) {
            char *to = in_pieces;
            for (size_t at = 0; at < n; at += piece) {
                size_t k = n - at < piece ? n - at : piece;
                attn_base64_encode(to, bytes + at, k);
                to += ATTN_BASE64_ENCODED(k);
            }
            assert_int_equal(to - in_pieces, length);
            assert_memory_equal(in_pieces, text, length);
        }
        for (size_t piece = 1; piece <= length; piece++) {
            size_t got = 0;
            assert_int_equal(decode(text, length, piece, back, &got, NULL), ATTN_OK);
            assert_int_equal(got, n);
            assert_memory_equal(back, bytes, n);
        }
    }
}

static void what_is_not_strict_is_refused_and_named_however_it_is_cut(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {{"Zg", "2 characters"},
               {"Zg=", "3 characters"},
               {"Z", "1 characters"},
               {"Zm9vYg", "6 characters"},
               {"Z===", "character 1: padding"},
               {"====", "character 0: padding"},
               {"=", "character 0: padding"},
               {"Zm9v=", "character 4: padding"},
               {"Zg==Zg==", "character 4 stands behind"},
               {"Zm8=Zg==", "character 4 stands behind"},
               {"Zm8==", "character 4 stands behind"},
               {"Zg===", "character 4 stands behind"},
               {"Zg=A", "character 3 stands behind"},
               {"Zm-v", "character 2, '-'"},
               {"Zm9v_w==", "character 4, '_'"},
               {"Zm9v\nZm9v", "character 4, byte 0x0A"},
               {"Zm9v\r\n", "character 4, byte 0x0D"},
               {" Zm9v", "character 0, byte 0x20"},
               {"Zm9v Zm9v", "character 4, byte 0x20"},
               {"Zm\xc3\xa9v", "character 2, byte 0xC3"},
               {"Zh==", "bits are left over"},
               {"Zm9=", "bits are left over"},
               {"Zm9vZm9vZm9*", "character 11, '*'"}};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        attn_error whole = {0};
        unsigned char bytes[32];
        size_t n = strlen(bad[i].text), length = 0;
        assert_int_equal(decode(bad[i].text, n, n, bytes, &length, &whole), ATTN_EFORMAT);
        if (strstr(whole.text, bad[i].says) == NULL)
            fail_msg("%s: %s", bad[i].text, whole.text);
        for (size_t piece = 1; piece < n; piece++) {
            attn_error err = {0};
            assert_int_equal(decode(bad[i].text, n, piece, bytes, &length, &err), ATTN_EFORMAT);
            assert_string_equal(err.text, whole.text);
        }
    }
}

static void each_byte_that_is_not_of_the_alphabet_is_refused_in_each_place(void **state)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    enum { LONG = 136 };

    (void)state;
    for (int c = 0; c < 256; c++) {
        for (size_t place = 0; place < LONG; place++) {
            char text[LONG];
            unsigned char bytes[LONG];
            attn_error err = {0};
            size_t length = 0;
            memset(text, 'A', LONG);
            text[place] = (char)c;
            const char *known = c == 0 ? NULL : strchr(alphabet, c);
            attn_status rc = decode(text, LONG, LONG, bytes, &length, &err);
            if (known != NULL) {
                const unsigned char *group = bytes + place / 4 * 3;
                uint32_t want = (uint32_t)(known - alphabet) << (18 - 6 * (place % 4));
                assert_int_equal(rc, ATTN_OK);
                assert_int_equal(length, LONG / 4 * 3);
                assert_int_equal(group[0] << 16 | group[1] << 8 | group[2], want);
            } else if (c != '=') {
                char says[32];
                (void)snprintf(says, sizeof says, "character %zu,", place);
                assert_int_equal(rc, ATTN_EFORMAT);
                assert_ptr_equal(strstr(err.text, says), err.text);
            } else { /* "AAA=" at the end is two bytes */
                assert_int_equal(rc == ATTN_OK, place == LONG - 1);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_of_rfc_4648_hold_both_ways),
        cmocka_unit_test(floats_are_little_endian),
        cmocka_unit_test(every_length_and_every_cutting_gives_the_bytes_back),
        cmocka_unit_test(what_is_not_strict_is_refused_and_named_however_it_is_cut),
        cmocka_unit_test(each_byte_that_is_not_of_the_alphabet_is_refused_in_each_place)};
    return cmocka_run_group_tests_name("base64", tests, NULL, NULL);
}

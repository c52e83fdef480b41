/* The file of API keys: what is one, and what is told of one that is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/keys.h"
#include "tests/scratch.h"

static bool has(const srv_keys *k, const char *key)
{
    return srv_keys_have(k, key, strlen(key));
}

static srv_keys *load(const char *text)
{
    srv_keys *k = NULL;
    attn_error err = {0};
    if (srv_keys_load(&k, scratch_write("keys", text, strlen(text)), &err) != ATTN_OK)
        fail_msg("%s", err.text);
    return k;
}

static void one_key_stands_in_a_line(void **state)
{
    (void)state;
    srv_keys *k = load("# of the team\n\n  alpha  \n\tbeta # until May\r\n#gamma\ndelta#5\nlast");
    assert_int_equal(srv_keys_count(k), 4);
    static const char *const good[] = {"alpha", "beta", "delta#5", "last"};
    static const char *const bad[] = {"",       "gamma",  "#gamma", "alph", "alpha ",
                                      "alphab", "ALPHA",  "delta",  "May",  "beta # until May",
                                      "\xff",   "alpha\n"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(has(k, good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(has(k, bad[i]));
    assert_false(srv_keys_have(k, "alpha\0x", 7));
    srv_keys_free(k);
}

static void the_longest_key_is_one(void **state)
{
    (void)state;
    char text[SRV_KEY_BYTES + 2];
    memset(text, 'k', sizeof text);
    text[SRV_KEY_BYTES] = '\0';
    srv_keys *k = load(text);
    assert_true(has(k, text));
    srv_keys_free(k);
    text[SRV_KEY_BYTES] = 'k';
    text[SRV_KEY_BYTES + 1] = '\0';
    k = NULL;
    assert_int_equal(srv_keys_load(&k, scratch_write("keys", text, SRV_KEY_BYTES + 1), NULL),
                     ATTN_EFORMAT);
    assert_null(k);
}

static void what_is_no_list_of_keys_is_refused_without_showing_any(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        const char *says;
    } table[] = {{"", 0, "there is no key in it"},
                 {"\n# only words\n \n", 16, "there is no key in it"},
                 {"first\nsecret two\n", 17, "line 2"},
                 {"secr\0et\n", 8, "line 1"},
                 {"first\n\nsecr\xc3\xa9t\n", 14, "line 3"},
                 {"\xef\xbb\xbfsecret\n", 10, "line 1"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        srv_keys *k = NULL;
        attn_error err = {0};
        const char *path = scratch_write("keys", table[i].text, table[i].n);
        assert_int_equal(srv_keys_load(&k, path, &err), ATTN_EFORMAT);
        assert_null(k);
        assert_non_null(strstr(err.text, path));
        assert_non_null(strstr(err.text, table[i].says));
        assert_null(strstr(err.text, "secr"));
    }
}

static void a_file_that_cannot_be_read_is_named(void **state)
{
    (void)state;
    srv_keys *k = NULL;
    attn_error err = {0};
    assert_int_equal(srv_keys_load(&k, scratch_path("absent"), &err), ATTN_EIO);
    assert_non_null(strstr(err.text, "absent"));
    assert_int_equal(srv_keys_load(&k, scratch_dir(), &err), ATTN_EIO);
    assert_null(k);
    size_t n = ((size_t)1 << 20) + 1;
    char *large = malloc(n);
    assert_non_null(large);
    memset(large, '\n', n);
    assert_int_equal(srv_keys_load(&k, scratch_write("large", large, n), NULL), ATTN_EFORMAT);
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_key_stands_in_a_line),
        cmocka_unit_test(the_longest_key_is_one),
        cmocka_unit_test(what_is_no_list_of_keys_is_refused_without_showing_any),
        cmocka_unit_test(a_file_that_cannot_be_read_is_named),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

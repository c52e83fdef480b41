#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "server/query.h"

/* "name=value;" of each parameter, or "! sentence". */
static const char *parsed(const char *text)
{
    static char out[4096];
    srv_query q;
    attn_error err = {0};
    size_t n = 0;

    out[0] = '\0';
    if (srv_query_parse(&q, text, &err) != ATTN_OK) {
        assert_null(q.text);
        (void)snprintf(out, sizeof out, "! %s", err.text);
        return out;
    }
    for (size_t i = 0; i < q.count; i++)
        n += (size_t)snprintf(out + n, sizeof out - n, "%s=%s;", q.parameter[i].name,
                              q.parameter[i].value);
    srv_query_deinit(&q);
    return out;
}

static void parameters_are_taken_apart_and_decoded(void **state)
{
    (void)state;
    assert_string_equal(parsed(NULL), "");
    assert_string_equal(parsed(""), "");
    assert_string_equal(parsed("&&"), "");
    assert_string_equal(parsed("a=1"), "a=1;");
    assert_string_equal(parsed("a=1&b=%5B2%5d&&c"), "a=1;b=[2];c=;");
    assert_string_equal(parsed("a=b=c&d="), "a=b=c;d=;");
    assert_string_equal(parsed("a+b=c+d%2Be"), "a b=c d+e;");
    assert_string_equal(parsed("%61=%C3%A9&b=%26%3D"), "a=\xc3\xa9;b=&=;");
    assert_string_equal(parsed("=x"), "=x;");
}

static void what_is_malformed_is_refused(void **state)
{
    static const char *const escapes[] = {"a=%", "a=%4", "a=%zz", "a=%4z", "%=1", "a=1&b=%"};
    char many[SRV_QUERY_MOST * 8 + 8] = "";
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++)
        assert_non_null(strstr(parsed(escapes[i]), "two hexadecimal digits"));
    assert_non_null(strstr(parsed("a=%00"), "NUL"));
    assert_non_null(strstr(parsed("%00=a"), "NUL"));
    static const char *const bytes[] = {"a=%ff", "%85%85=1", "a=\xc3", "b=1&a=%ed%a0%80"};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        assert_string_equal(parsed(bytes[i]), "! the query is not valid UTF-8");
    assert_non_null(strstr(parsed("a=1&%61=2"), "\"a\" twice"));
    for (int i = 0; i < SRV_QUERY_MOST; i++)
        n += (size_t)snprintf(many + n, sizeof many - n, "p%d=1&", i);
    assert_memory_equal(parsed(many), "p0=1;", 5);
    (void)snprintf(many + n, sizeof many - n, "q=1");
    assert_non_null(strstr(parsed(many), "more than 64"));
}

static void what_is_taken_is_marked(void **state)
{
    srv_query q;

    (void)state;
    assert_int_equal(srv_query_parse(&q, "a=1&b=2", NULL), ATTN_OK);
    assert_string_equal(srv_query_take(&q, "b"), "2");
    assert_null(srv_query_take(&q, "c"));
    assert_false(q.parameter[0].taken);
    assert_true(q.parameter[1].taken);
    srv_query_deinit(&q);
    srv_query_deinit(&q);
    assert_null(srv_query_take(&q, "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_taken_apart_and_decoded),
        cmocka_unit_test(what_is_malformed_is_refused),
        cmocka_unit_test(what_is_taken_is_marked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

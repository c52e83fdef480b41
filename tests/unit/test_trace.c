#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "server/trace.h"

#define TRACE  "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

static void assert_is_id(const char *id, size_t n)
{
    assert_int_equal(strlen(id), n);
    assert_int_equal(strspn(id, "0123456789abcdef"), n);
    assert_true(strspn(id, "0") < n);
}

static void a_valid_parent_gives_the_trace_and_not_the_span(void **state)
{
    static const char *const good[] = {"00-" TRACE "-" PARENT "-01", "00-" TRACE "-" PARENT "-00",
                                       "00-" TRACE "-" PARENT "-ff", "01-" TRACE "-" PARENT "-01",
                                       "cc-" TRACE "-" PARENT "-01-what-comes-later"};
    (void)state;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        srv_trace t;
        srv_trace_begin(&t, good[i]);
        assert_string_equal(t.trace_id, TRACE);
        assert_is_id(t.span_id, 16);
        assert_string_not_equal(t.span_id, PARENT);
    }
}

static void a_malformed_parent_begins_a_trace(void **state)
{
    static const char *const bad[] = {
        NULL,
        "",
        "00",
        "00-",
        "00-" TRACE "-" PARENT,
        "00-" TRACE "-" PARENT "-",
        "00-" TRACE "-" PARENT "-0",
        "00-" TRACE "-" PARENT "-01-",
        "00-" TRACE "-" PARENT "-010",
        "00-" TRACE "-" PARENT "-0g",
        "00-" TRACE "-" PARENT "-01 ",
        " 00-" TRACE "-" PARENT "-01",
        "ff-" TRACE "-" PARENT "-01",
        "0-" TRACE "-" PARENT "-01",
        "0A-" TRACE "-" PARENT "-01",
        "cc-" TRACE "-" PARENT "-01.later",
        "00-" TRACE "_" PARENT "-01",
        "00_" TRACE "-" PARENT "-01",
        "00-" TRACE "-" PARENT "_01",
        "00-00000000000000000000000000000000-" PARENT "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-" PARENT "-001",
        "00-4bf92f3577b34da6a3ce929d0e0e473x-" PARENT "-01",
    };
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        srv_trace t;
        srv_trace_begin(&t, bad[i]);
        assert_is_id(t.trace_id, 32);
        assert_is_id(t.span_id, 16);
        assert_string_not_equal(t.trace_id, TRACE);
    }
}

static void every_span_is_another(void **state)
{
    srv_trace a, b;
    (void)state;

    srv_trace_begin(&a, NULL);
    srv_trace_begin(&b, NULL);
    assert_string_not_equal(a.trace_id, b.trace_id);
    assert_string_not_equal(a.span_id, b.span_id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_valid_parent_gives_the_trace_and_not_the_span),
        cmocka_unit_test(a_malformed_parent_begins_a_trace),
        cmocka_unit_test(every_span_is_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

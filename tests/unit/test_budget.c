#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/budget.h"

static void reserve_takes_up_to_the_limit_and_release_gives_back(void **state)
{
    (void)state;
    attn_budget b;
    attn_budget_init(&b, 100);
    assert_int_equal(attn_budget_reserve(&b, 60, NULL), ATTN_OK);
    assert_int_equal(attn_budget_reserve(&b, 40, NULL), ATTN_OK);
    assert_int_equal(b.used, 100);
    assert_int_equal(attn_budget_reserve(&b, 0, NULL), ATTN_OK);
    assert_int_equal(attn_budget_reserve(&b, 1, NULL), ATTN_EBUSY);
    attn_budget_release(&b, 60);
    assert_int_equal(b.used, 40);
    assert_int_equal(attn_budget_reserve(&b, 61, NULL), ATTN_EBUSY);
    assert_int_equal(b.used, 40);
    assert_int_equal(attn_budget_reserve(&b, 10, NULL), ATTN_OK);
    assert_int_equal(b.peak, 100);
}

static void what_can_never_fit_is_too_big_and_says_the_bytes(void **state)
{
    (void)state;
    attn_budget b;
    attn_error err = {0};
    attn_budget_init(&b, 100);
    assert_int_equal(attn_budget_reserve(&b, 101, &err), ATTN_ETOOBIG);
    assert_int_equal(err.code, ATTN_ETOOBIG);
    assert_int_equal(err.needed, 101);
    assert_int_equal(err.limit, 100);
    assert_string_equal(err.text, "101 bytes are needed, and the memory budget is 100 bytes");
    assert_int_equal(attn_budget_reserve(&b, SIZE_MAX, NULL), ATTN_ETOOBIG);
    assert_int_equal(b.used, 0);
    assert_int_equal(b.peak, 0);
}

static void what_does_not_fit_now_is_busy_and_says_the_bytes(void **state)
{
    (void)state;
    attn_budget b;
    attn_error err = {0};
    attn_budget_init(&b, SIZE_MAX);
    assert_int_equal(attn_budget_reserve(&b, SIZE_MAX - 1, NULL), ATTN_OK);
    assert_int_equal(attn_budget_reserve(&b, SIZE_MAX, &err), ATTN_EBUSY); /* the sum wraps */
    assert_int_equal(err.code, ATTN_EBUSY);
    assert_true(err.needed == SIZE_MAX);
    assert_true(err.limit == SIZE_MAX);
}

static void an_earlier_failure_is_kept(void **state)
{
    (void)state;
    attn_budget b;
    attn_error err = {0};
    attn_budget_init(&b, 1);
    (void)attn_fail(&err, ATTN_EINVAL, "first");
    assert_int_equal(attn_budget_reserve(&b, 2, &err), ATTN_ETOOBIG);
    assert_int_equal(err.code, ATTN_EINVAL);
    assert_string_equal(err.text, "first");
    assert_int_equal(err.needed, 0);
}

enum { THREADS = 4, ROUNDS = 20000, LIMIT = 10 };

static void *reserve_and_release(void *arg)
{
    attn_budget *b = arg;
    uintptr_t over = 0;
    for (size_t i = 0; i < ROUNDS; i++) {
        size_t n = 1 + i % 7;
        if (attn_budget_reserve(b, n, NULL) != ATTN_OK)
            continue;
        over |= b->used > LIMIT;
        attn_budget_release(b, n);
    }
    return (void *)over; /* NOLINT: a flag, not an address */
}

static void threads_together_never_pass_the_limit(void **state)
{
    (void)state;
    attn_budget b;
    pthread_t thread[THREADS];
    attn_budget_init(&b, LIMIT);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, reserve_and_release, &b), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *over;
        assert_int_equal(pthread_join(thread[i], &over), 0);
        assert_null(over);
    }
    assert_int_equal(b.used, 0);
    assert_in_range(b.peak, 7, LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reserve_takes_up_to_the_limit_and_release_gives_back),
        cmocka_unit_test(what_can_never_fit_is_too_big_and_says_the_bytes),
        cmocka_unit_test(what_does_not_fit_now_is_busy_and_says_the_bytes),
        cmocka_unit_test(an_earlier_failure_is_kept),
        cmocka_unit_test(threads_together_never_pass_the_limit),
    };
    return cmocka_run_group_tests_name("budget", tests, NULL, NULL);
}

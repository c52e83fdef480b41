/* cmocka.h: what a few of our test programs use of cmocka, for a processor that we have no cmocka for. It prints
 * what cmocka prints, so that tests/run.sh counts it. */
#ifndef TESTS_STANDIN_CMOCKA_H
#define TESTS_STANDIN_CMOCKA_H

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
    int (*setup)(void **state);
    int (*teardown)(void **state);
};

#define cmocka_unit_test(f)                      ((struct CMUnitTest){#f, f, NULL, NULL})
#define cmocka_unit_test_setup_teardown(f, s, t) ((struct CMUnitTest){#f, f, s, t})

#define print_message(...) (void)printf(__VA_ARGS__)
#define print_error(...)   (void)fprintf(stderr, __VA_ARGS__)

/* Weak: one for all source files of a program. */
__attribute__((weak)) jmp_buf standin_failed;

#define fail_msg(...)                                                                              \
    (printf(__VA_ARGS__), printf("\n%s:%d\n", __FILE__, __LINE__), longjmp(standin_failed, 1))

#define assert_true(c)                                                                             \
    do {                                                                                           \
        if (!(c))                                                                                  \
            fail_msg("%s", #c);                                                                    \
    } while (0)
#define assert_false(c)              assert_true(!(c))
#define assert_null(p)               assert_true((p) == NULL)
#define assert_non_null(p)           assert_true((p) != NULL)
#define assert_ptr_equal(a, b)       assert_true((a) == (b))
#define assert_string_equal(a, b)    assert_true(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define assert_in_range(x, a, b)     assert_true((x) >= (a) && (x) <= (b))
#define assert_int_equal(a, b)                                                                     \
    do {                                                                                           \
        intmax_t standin_a = (intmax_t)(a), standin_b = (intmax_t)(b);                             \
        if (standin_a != standin_b)                                                                \
            fail_msg("%s is %jd, %s is %jd", #a, standin_a, #b, standin_b);                        \
    } while (0)

static inline int standin_run(const struct CMUnitTest *t)
{
    void *state = NULL;

    printf("[ RUN      ] %s\n", t->name);
    if (t->setup != NULL && t->setup(&state) != 0) {
        printf("[  ERROR   ] %s\n", t->name);
        return 1;
    }
    int failed = setjmp(standin_failed);
    if (failed == 0)
        t->run(&state);
    if (t->teardown != NULL)
        (void)t->teardown(&state);
    printf(failed == 0 ? "[       OK ] %s\n" : "[  FAILED  ] %s\n", t->name);
    return failed;
}

static inline int standin_run_all(const struct CMUnitTest *tests, size_t n,
                                  int (*setup)(void **state), int (*teardown)(void **state))
{
    void *state = NULL;
    int failed = 0;

    printf("[==========] Running %zu test(s).\n", n);
    if (setup != NULL && setup(&state) != 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        failed += standin_run(&tests[i]);
    if (teardown != NULL)
        (void)teardown(&state);
    printf("[==========] %zu test(s) run.\n", n);
    return failed;
}

#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    standin_run_all(tests, sizeof(tests) / sizeof *(tests), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                  \
    cmocka_run_group_tests(tests, setup, teardown)

#endif

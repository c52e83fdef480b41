/* Floats, printed and read back: two million, or with ATTND_FLOATS=all all of them (make floats). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/decimal.h"
#include "core/decimal_private.h"
#include "tests/numbers.h"

enum {
    LIST = 4096, /* numbers that are read at once */
    MAX_THREADS = 64,
    SAMPLE = 500 /* lists */
};
#define ALL (((uint64_t)1 << 32) / LIST) /* lists of all floats */

static bool all;
static atomic_uint_fast64_t next_list;
static atomic_bool failed;

/* Of the sample each list has all exponents, both signs, and more of the mantissas at random. */
static void choose(uint32_t *bits, uint64_t number)
{
    uint64_t seed = number;

    for (uint32_t i = 0; i < LIST; i++)
        bits[i] = all ? (uint32_t)number * LIST + i
                      : (i & 511) << 23 | ((uint32_t)numbers_next(&seed) & 0x7fffff);
    for (uint32_t i = 0; !all && i < 512; i++) /* powers of two and their neighbours */
        bits[i] = number == 0   ? i << 23
                  : number == 1 ? i << 23 | 1
                  : number == 2 ? i << 23 | 0x7fffff
                                : bits[i];
}

static bool differs(const char *what, const char *text, size_t n, uint32_t bits, float x)
{
    uint32_t got;

    memcpy(&got, &x, sizeof got);
    if (got == bits)
        return false;
    print_error("0x%08x is printed as %.*s, which %s reads as 0x%08x\n", (unsigned)bits, (int)n,
                text, what, (unsigned)got);
    return true;
}

static bool check_list(uint64_t number)
{
    static const struct {
        const char *name;
        attn_f32_scanner *scan;
    } roads[] = {{"attn_f32_scan", attn_f32_scan}, {"attn_f32_scan_words", attn_f32_scan_words}};
    static _Thread_local uint32_t bits[LIST];
    static _Thread_local float got[LIST];
    static _Thread_local char text[LIST * ATTN_F32_CHARS];
    static _Thread_local size_t at[LIST + 1];
    size_t count = 0, used = 0;

    choose(bits, number);
    at[0] = 0;
    for (size_t i = 0; i < LIST; i++) {
        float x;
        memcpy(&x, &bits[i], sizeof x);
        if (!isfinite(x))
            continue;
        bits[count] = bits[i];
        at[count + 1] = at[count] + attn_f32_print(text + at[count], x) + 1;
        text[at[++count] - 1] = ',';
    }
    if (count == 0)
        return true;
    text[at[count] - 1] = ']';
    for (size_t k = 0; k < 2; k++) {
        if (roads[k].scan(text, at[count], got, LIST, &used) != count || used != at[count] - 1) {
            print_error("%s stops at %.20s\n", roads[k].name, text + used);
            return false;
        }
        for (size_t i = 0; i < count; i++) {
            if (differs(roads[k].name, text + at[i], at[i + 1] - at[i] - 1, bits[i], got[i]))
                return false;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (differs("strtof()", text + at[i], at[i + 1] - at[i] - 1, bits[i],
                    strtof(text + at[i], NULL)))
            return false;
    }
    return true;
}

static void *check_lists(void *unused)
{
    uint64_t lists = all ? ALL : SAMPLE, i;

    while (!atomic_load(&failed) && (i = atomic_fetch_add(&next_list, 1)) < lists) {
        if (!check_list(i))
            atomic_store(&failed, true);
        if (all && (i + 1) % (ALL / 64) == 0)
            (void)fprintf(stderr, "%3u %% of 2^32\n", (unsigned)((i + 1) * 100 / ALL));
    }
    return unused;
}

static void what_is_printed_reads_back_as_the_same_bits(void **state)
{
    const char *which = getenv("ATTND_FLOATS");
    pthread_t thread[MAX_THREADS];
    cpu_set_t cpus;
    size_t n = 1;

    (void)state;
    all = which != NULL && strcmp(which, "all") == 0;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        n = (size_t)CPU_COUNT(&cpus);
    n = n > MAX_THREADS ? MAX_THREADS : n;
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, check_lists, NULL), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_false(atomic_load(&failed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_printed_reads_back_as_the_same_bits)};
    return cmocka_run_group_tests_name("floats", tests, NULL, NULL);
}

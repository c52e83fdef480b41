#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/decimal.h"
#include "core/shortest.h"
#include "tests/to_chars.h"

static uint64_t seed;

static uint64_t next_random(void) /* splitmix64 */
{
    uint64_t z = (seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* --- the constants ---------------------------------------------------------------------------- */

enum { LIMBS = 12 }; /* 384 bits: 2^(64 + 149) and 2^64 * 10^46 fit */

typedef struct {
    uint32_t limb[LIMBS]; /* the lowest first */
} big;

static big big_of(uint64_t n)
{
    return (big){{(uint32_t)n, (uint32_t)(n >> 32)}};
}

static big big_times(big a, uint32_t factor)
{
    uint64_t carry = 0;

    for (size_t i = 0; i < LIMBS; i++) {
        carry += (uint64_t)a.limb[i] * factor;
        a.limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    assert_true(carry == 0);
    return a;
}

static big big_times_power(big a, uint32_t base, int exponent)
{
    while (exponent-- > 0)
        a = big_times(a, base);
    return a;
}

static int big_compare(big a, big b)
{
    for (size_t i = LIMBS; i-- > 0;)
        if (a.limb[i] != b.limb[i])
            return a.limb[i] < b.limb[i] ? -1 : 1;
    return 0;
}

/* a * 2^p * 10^r against b * 2^q * 10^s, where negative exponents go to the other side. */
static int compare(uint64_t a, int p, int r, uint64_t b, int q, int s)
{
    int two = p - q, ten = r - s;
    big left = big_times_power(big_times_power(big_of(a), 2, two), 10, ten);
    big right = big_times_power(big_times_power(big_of(b), 2, -two), 10, -ten);

    return big_compare(left, right);
}

static void every_scale_is_the_integer_part_of_its_formula(void **state)
{
    (void)state;
    for (int e = 0; e < 255; e++) {
        int q = (e > 0 ? e : 1) - 150, k = -60;
        uint64_t scale = attn_shortest_scale[e];
        while (compare(1, 0, k + 1, 1, q, 0) <= 0) /* 10^(k+1) <= 2^q */
            k++;
        assert_true(compare(scale, 0, k + 1, 1, 64 + q, 0) <= 0);
        assert_true(compare(scale + 1, 0, k + 1, 1, 64 + q, 0) > 0);
        assert_true(scale >= UINT64_MAX / 10);
    }
}

/* --- the text --------------------------------------------------------------------------------- */

enum { ROW = 1024 };

/* Prints x[0..n) as one row, in plain C and in the way that is best here, and holds it against the C++
 * library's texts. */
static void check_row(const float *x, size_t n)
{
    static size_t (*const print[])(char *, const float *, size_t) = {attn_shortest_row,
                                                                     attn_f32_print_row};
    static char want[ROW * (ATTN_F32_CHARS + 1)];
    size_t want_n = 0;

    for (size_t i = 0; i < n; i++) {
        if (isfinite(x[i])) {
            want_n += to_chars(want + want_n, x[i]);
        } else {
            memcpy(want + want_n, "null", 4);
            want_n += 4;
        }
        want[want_n++] = ',';
    }
    for (size_t k = 0; k < sizeof print / sizeof print[0]; k++) {
        static char got[ROW * ATTN_F32_CHARS + ATTN_F32_SLACK];
        size_t got_n = print[k](got, x, n), at = 0;
        if (got_n == want_n && memcmp(got, want, want_n) == 0)
            continue;
        for (size_t i = 0; i < n; i++) {
            size_t length = (size_t)((char *)memchr(want + at, ',', want_n - at) - (want + at)) + 1;
            if (at + length > got_n || memcmp(got + at, want + at, length) != 0)
                fail_msg("%08x, %zu of %zu: want %.*s got %.*s", bits_of(x[i]), i, n, (int)length,
                         want + at, (int)length, got + at);
            at += length;
        }
        fail_msg("%zu bytes behind the last number of a row", got_n - want_n);
    }
}

static float gathered[ROW];
static size_t gathered_n;

static void flush(void)
{
    check_row(gathered, gathered_n);
    gathered_n = 0;
}

static void check(uint32_t bits)
{
    gathered[gathered_n++] = float_of(bits);
    if (gathered_n == ROW)
        flush();
}

/* All floats when FLOATS=all, which takes minutes. Else, of each sign and exponent, the mantissas at both ends,
 * around the powers of two, and random ones. */
static void rows_agree_with_the_cxx_library(void **state)
{
    const char *floats = getenv("FLOATS");
    enum { ENDS = 64, RANDOM = 8000, MANTISSAS = 1 << 23 };

    (void)state;
    if (floats != NULL && strcmp(floats, "all") == 0) {
        for (uint64_t bits = 0; bits <= UINT32_MAX; bits++)
            check((uint32_t)bits);
        flush();
        return;
    }
    seed = 1;
    for (uint32_t top = 0; top < 512; top++) {
        uint32_t first = top << 23;
        for (uint32_t m = 0; m < ENDS; m++) {
            check(first + m);
            check(first + MANTISSAS - 1 - m);
        }
        for (uint32_t m = ENDS; m < MANTISSAS; m *= 2) {
            check(first + m - 1);
            check(first + m);
            check(first + m + 1);
        }
        for (int i = 0; i < RANDOM; i++)
            check(first + (uint32_t)next_random() % MANTISSAS);
    }
    flush();
}

static void numbers_that_people_write_agree_as_well(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 200000; i++) {
        float scale[] = {1, 1e1f, 1e2f, 1e3f, 1e5f, 1e8f, 1e20f, 1e-20f};
        for (size_t s = 0; s < sizeof scale / sizeof scale[0]; s++)
            check(bits_of((float)i / scale[s]));
        check(bits_of(-(float)i));
        check(bits_of((float)((double)i * (1 << 12)))); /* whole, around the change to exponents */
        check(bits_of(1.0f / (float)(i + 1)));
    }
    for (int e = -45; e <= 38; e++)
        for (int digit = 1; digit < 10; digit++)
            check(bits_of((float)(digit * pow(10, e))));
    flush();
}

static void a_single_number_is_printed_as_in_a_row(void **state)
{
    (void)state;
    seed = 2;
    for (int i = 0; i < 200000; i++) {
        float x = float_of((uint32_t)next_random());
        char want[ATTN_F32_CHARS];
        char *got = malloc(ATTN_F32_CHARS); /* AddressSanitizer sees one byte too many */
        assert_non_null(got);
        if (isfinite(x)) {
            assert_int_equal(attn_f32_print(got, x), to_chars(want, x));
            assert_memory_equal(got, want, to_chars(want, x));
        }
        free(got);
    }
}

/* Rows of the longest numbers and of the shortest, of zeros among others, of every length. */
static void rows_stay_in_their_room(void **state)
{
    static const float kinds[] = {-1.1754944e-38f, -0.00012345679f, 1.0f, 0.0f,     -0.0f, NAN,
                                  -INFINITY,       -FLT_MAX,        0.5f, 123456.7f};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };

    (void)state;
    seed = 3;
    for (size_t n = 0; n <= 70; n++) {
        for (int round = 0; round < 40; round++) {
            size_t room = n * ATTN_F32_CHARS + ATTN_F32_SLACK;
            char *out = malloc(room);
            float *x = malloc(n * sizeof *x + !n);
            assert_non_null(out);
            assert_non_null(x);
            for (size_t i = 0; i < n; i++) {
                uint64_t r = next_random();
                x[i] = round < KINDS ? kinds[round] : (r & 7) ? 0.0f : kinds[(r >> 8) % KINDS];
            }
            size_t length = attn_f32_print_row(out, x, n);
            assert_true(length <= n * ATTN_F32_CHARS);
            if (n > 0)
                assert_int_equal(out[length - 1], ',');
            check_row(x, n);
            free(x);
            free(out);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scale_is_the_integer_part_of_its_formula),
        cmocka_unit_test(rows_agree_with_the_cxx_library),
        cmocka_unit_test(numbers_that_people_write_agree_as_well),
        cmocka_unit_test(a_single_number_is_printed_as_in_a_row),
        cmocka_unit_test(rows_stay_in_their_room)};
    return cmocka_run_group_tests_name("shortest", tests, NULL, NULL);
}

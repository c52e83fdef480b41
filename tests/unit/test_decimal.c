#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/decimal.h"

static uint64_t seed;

static uint64_t next_random(void) /* splitmix64 */
{
    uint64_t z = (seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The C library's strtof() is exact in glibc; the text is exactly n bytes on the heap, so that
 * AddressSanitizer sees one byte too many being read. */
static void check_text(const char *text)
{
    size_t n = strlen(text);
    char *exact = malloc(n);
    float got = -77.0f, want = strtof(text, NULL);

    assert_non_null(exact);
    memcpy(exact, text, n);
    bool ok = attn_f32_parse(exact, n, &got);
    free(exact);
    if (ok != (bool)isfinite(want) || (ok && bits_of(got) != bits_of(want)))
        fail_msg("%.60s: got %d %.9g, want %.9g (seed state %llx)", text, ok, (double)got,
                 (double)want, (unsigned long long)seed);
}

static void parse_agrees_with_strtof_on_printed_floats(void **state)
{
    char text[400];

    (void)state;
    seed = 1;
    for (int i = 0; i < 1000000; i++) {
        float x = float_of((uint32_t)next_random());
        if (!isfinite(x))
            continue;
        (void)snprintf(text, sizeof text, "%.*g", 1 + i % 20, (double)x);
        check_text(text);
        if (i % 2 == 0)
            continue;
        x = (float)((double)next_random() / 0x1p64 - 0.5);
        if (i % 4 == 1)
            (void)snprintf(text, sizeof text, "%.*e", i % 18, (double)x);
        else
            (void)snprintf(text, sizeof text, "%.*f", i % 18, (double)x);
        check_text(text);
    }
}

static void parse_agrees_with_strtof_on_random_digits(void **state)
{
    char text[128];

    (void)state;
    seed = 2;
    for (int i = 0; i < 500000; i++) {
        char *p = text;
        uint64_t r = next_random();
        int whole = (int)(r % 22), part = (int)(r >> 8) % 24;
        if (r >> 16 & 1)
            *p++ = '-';
        *p++ = (char)(whole == 0 ? '0' : '1' + next_random() % 9);
        for (int k = 1; k < whole; k++)
            *p++ = (char)('0' + next_random() % 10);
        if (part > 0)
            *p++ = '.';
        for (int k = 0; k < part; k++) /* half of them begin with zeros */
            *p++ = (char)('0' + ((r >> 17 & 1) && k < part / 2 ? 0 : next_random() % 10));
        *p = 0;
        if (r >> 18 & 3)
            (void)snprintf(p, 16, "%c%+d", "eE"[r >> 20 & 1], (int)(next_random() % 120) - 70);
        check_text(text);
    }
}

static void parse_rounds_midpoints_to_even_and_their_neighbours_away(void **state)
{
    char text[400];

    (void)state;
    seed = 3;
    for (int i = 0; i < 100000; i++) {
        uint32_t low = (uint32_t)next_random() & 0x7fffffff;
        if (i % 10 == 0)
            low %= 0x00800000; /* subnormal */
        if (low >= 0x7f7fffff)
            continue;
        double middle = ((double)float_of(low) + (double)float_of(low + 1)) / 2;
        (void)snprintf(text, sizeof text, "%.*e", 160, middle); /* all its digits */
        check_text(text);
        char *e = strchr(text, 'e');
        e[-1] = '1'; /* a hair above */
        check_text(text);
        (void)snprintf(text, sizeof text, "%.17g", nextafter(middle, 0));
        check_text(text);
        (void)snprintf(text, sizeof text, "%.19g", middle);
        check_text(text);
        (void)snprintf(text, sizeof text, "%.17g", middle);
        check_text(text);
    }
}

static void parse_takes_values_at_the_edges(void **state)
{
    static const char *const texts[] = {"0",
                                        "-0",
                                        "0.0",
                                        "-0.0e5",
                                        "0e999999999",
                                        "0e-99999999999999999999",
                                        "1",
                                        "-1",
                                        "1e+01",
                                        "1E1",
                                        "1e400",
                                        "-1e400",
                                        "1e-400",
                                        "-1e-400",
                                        "1e999999999",
                                        "-1e999999999",
                                        "1e99999999999999999999999",
                                        "1e-99999999999999999999999",
                                        "1.8011670033376514e-308",
                                        "4.9e-324",
                                        "1e-40",
                                        "1e-46",
                                        "-1e-46",
                                        "7.006492321624085e-46",
                                        "7.006492321624086e-46",
                                        "1.401298464324817e-45",
                                        "2.1e-45",
                                        "1.1754943508222875e-38",
                                        "1.17549431e-38",
                                        "1.1754942807573643e-38",
                                        "3.4028235e38",
                                        "3.4028234663852886e38",
                                        "3.4028235677973362e38",
                                        "3.4028235677973366e38",
                                        "3.4028235677973367e38",
                                        "3.4028236e38",
                                        "-3.4028235677973366e38",
                                        "340282346638528859811704183484516925440",
                                        "340282356779733661637539395458142568447",
                                        "340282356779733661637539395458142568448",
                                        "17000000000000000000",
                                        "9007199254740993",
                                        "16777217",
                                        "16777219",
                                        "33554431",
                                        "0.96",
                                        "1.24",
                                        "0.333333343",
                                        "0.1",
                                        "12345678901234567890123456789",
                                        "0.00000000000000000000000000000000000000000000000000001",
                                        "9223372036854775807",
                                        "9223372036854775808",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "99999999999999999999",
                                        "0.000000000000000000012345678901234567",
                                        "1e38",
                                        "1e39",
                                        "9e38",
                                        "1e-45",
                                        "1e63",
                                        "1e-63",
                                        "1e-64",
                                        "1e64"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        check_text(texts[i]);
}

/* strtof() is exact here too, but the values are so plain that the test may say them. */
static void parse_is_exact_on_very_long_texts(void **state)
{
    enum { LONG = 200000 };
    char *text = malloc(LONG + 64);
    float x = 0;

    (void)state;
    assert_non_null(text);
    memset(text, '0', LONG); /* 0.000...0001e200000 = 10 */
    text[1] = '.';
    (void)snprintf(text + LONG, 64, "1e%d", LONG);
    assert_true(attn_f32_parse(text, strlen(text), &x));
    assert_true(x == 10.0f);
    (void)snprintf(text + LONG, 64, "1e%d", LONG + 40);
    assert_false(attn_f32_parse(text, strlen(text), &x));
    (void)snprintf(text + LONG, 64, "1");
    assert_true(attn_f32_parse(text, strlen(text), &x));
    assert_true(x == 0.0f && !signbit(x));
    text[0] = '1'; /* 1000...000e-200000: after the point is lost one digit */
    text[1] = '0';
    (void)snprintf(text + LONG, 64, "e-%d", LONG);
    assert_true(attn_f32_parse(text, strlen(text), &x));
    assert_true(x == 0.1f);
    (void)snprintf(text + LONG, 64, "e-%d", LONG + 50);
    assert_true(attn_f32_parse(text, strlen(text), &x));
    assert_true(x == 0.0f);
    text[LONG] = 0;
    assert_false(attn_f32_parse(text, strlen(text), &x));
    memset(text, '0', LONG); /* 1.00000005960464477539062500...1: just above a midpoint */
    memcpy(text, "1.000000059604644775390625", 26);
    assert_true(attn_f32_parse(text, LONG, &x));
    assert_true(x == 1.0f);
    text[LONG - 1] = '1';
    assert_true(attn_f32_parse(text, LONG, &x));
    assert_true(x == nextafterf(1.0f, 2.0f));
    free(text);
}

static void parse_knows_no_locale(void **state)
{
    static const char *const commas[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "ru_RU.UTF-8"};
    float x = 0;
    char text[ATTN_F32_CHARS];
    bool found = false;

    (void)state;
    for (size_t i = 0; i < 4 && !found; i++)
        found = setlocale(LC_NUMERIC, commas[i]) != NULL;
    if (!found)
        print_message("skipped: a locale with a decimal comma: none is installed\n");
    bool ok = attn_f32_parse("0.5", 3, &x);
    size_t n = attn_f32_print(text, 0.5f);
    (void)setlocale(LC_NUMERIC, "C");
    assert_true(ok && x == 0.5f);
    assert_int_equal(n, 3);
    assert_memory_equal(text, "0.5", 3);
}

/* The grammar of JSON: -? (0 | [1-9][0-9]*) (\.[0-9]+)? ([eE][+-]?[0-9]+)? */
static bool is_json_number(const char *p, const char *end)
{
    if (p < end && *p == '-')
        p++;
    if (p == end || *p < '0' || *p > '9')
        return false;
    if (*p++ != '0') {
        while (p < end && *p >= '0' && *p <= '9')
            p++;
    }
    if (p < end && *p == '.') {
        const char *digits = ++p;
        while (p < end && *p >= '0' && *p <= '9')
            p++;
        if (p == digits)
            return false;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-'))
            p++;
        const char *digits = p;
        while (p < end && *p >= '0' && *p <= '9')
            p++;
        if (p == digits)
            return false;
    }
    return p == end;
}

static void check_printed(float x, size_t *longest)
{
    char text[ATTN_F32_CHARS + 1];
    float back = 0;
    size_t n = attn_f32_print(text, x);

    assert_true(n > 0 && n < ATTN_F32_CHARS);
    *longest = n > *longest ? n : *longest;
    if (!is_json_number(text, text + n) || !attn_f32_parse(text, n, &back) ||
        bits_of(back) != bits_of(x))
        fail_msg("%.9g is printed as %.*s", (double)x, (int)n, text);
    text[n] = 0;
    if (bits_of(strtof(text, NULL)) != bits_of(x))
        fail_msg("%.9g is printed as %s", (double)x, text);
}

static void print_gives_json_that_reads_back_as_the_same_bits(void **state)
{
    size_t longest = 0;

    (void)state;
    seed = 4;
    for (int i = 0; i < 2000000; i++) {
        float x = float_of((uint32_t)next_random());
        if (isfinite(x))
            check_printed(x, &longest);
    }
    for (uint32_t e = 0; e < 255; e++) { /* every power of two and its neighbours */
        check_printed(float_of(e << 23), &longest);
        check_printed(float_of((e << 23) + 1), &longest);
        check_printed(float_of(((e + 1) << 23) - 1), &longest);
    }
    assert_int_equal(longest, 15); /* -1.23456789e-38: srv_json_writer_bound() counts on it */
}

static size_t significant_digits(const char *text, size_t n)
{
    size_t digits = 0, zeros = 0;

    for (size_t i = 0; i < n && text[i] != 'e'; i++) {
        if (text[i] < '0' || text[i] > '9' || (digits == 0 && text[i] == '0'))
            continue;
        digits++;
        zeros = text[i] == '0' ? zeros + 1 : 0;
    }
    return digits - zeros;
}

/* printf() gives the nearest text of each number of digits, so the first that reads back is the least. */
static void print_needs_no_more_digits_than_it_must(void **state)
{
    char text[ATTN_F32_CHARS], by_printf[64];

    (void)state;
    seed = 5;
    for (int i = 0; i < 200000; i++) {
        float x = float_of((uint32_t)next_random());
        if (!isfinite(x) || fabsf(x) >= 0x1p24f) /* whole numbers may be written out */
            continue;
        size_t n = attn_f32_print(text, x);
        int least = 0;
        do
            (void)snprintf(by_printf, sizeof by_printf, "%.*e", least, (double)x);
        while (bits_of(strtof(by_printf, NULL)) != bits_of(x) && ++least < 9);
        assert_true(significant_digits(text, n) <= (size_t)least + 1);
    }
}

static void print_writes_plain_forms(void **state)
{
    static const struct {
        float x;
        const char *text;
    } forms[] = {{0.0f, "0"},
                 {-0.0f, "-0"},
                 {1.0f, "1"},
                 {-0.5f, "-0.5"},
                 {0.1f, "0.1"},
                 {0.333333343f, "0.33333334"},
                 {1e30f, "1e+30"},
                 {16777216.0f, "16777216"},
                 {FLT_MAX, "3.4028235e+38"},
                 {-FLT_MIN, "-1.1754944e-38"},
                 {1e-45f, "1e-45"},
                 {0.4011121f, "0.4011121"}};
    char text[ATTN_F32_CHARS + 1];

    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        text[attn_f32_print(text, forms[i].x)] = 0;
        assert_string_equal(text, forms[i].text);
    }
}

static void scan_reads_what_parse_reads(void **state)
{
    enum { N = 1000 };
    static char text[N * 40];
    static float got[N];

    (void)state;
    seed = 6;
    for (int round = 0; round < 200; round++) {
        float want[N];
        size_t n = 0, used = 0;
        for (size_t i = 0; i < N; i++) {
            float x;
            do
                x = round % 2 ? float_of((uint32_t)next_random())
                              : (float)((double)next_random() / 0x1p64);
            while (!isfinite(x));
            int length = snprintf(text + n, 40, "%.*g", 1 + round % 17, (double)x);
            if (!attn_f32_parse(text + n, (size_t)length, &want[i])) { /* FLT_MAX cut short */
                length = snprintf(text + n, 40, "-0");
                want[i] = -0.0f;
            }
            n += (size_t)length;
            n += (size_t)snprintf(text + n, 8, "%s", i + 1 == N ? "]" : i % 3 ? "," : ", \n");
        }
        assert_int_equal(attn_f32_scan(text, n, got, N, &used), N);
        assert_int_equal(used, n - 1);
        assert_memory_equal(got, want, sizeof want);
        assert_int_equal(attn_f32_scan(text, n, got, 7, &used), 7);
        assert_true(used < n && text[used - 1] != ']');
    }
}

static void scan_stops_in_front_of_what_it_must_not_judge(void **state)
{
    static const struct {
        const char *text;
        size_t count, used;
    } cases[] = {{"", 0, 0},           {"1", 0, 0},          {"1,2", 1, 2},     {"1,2]", 2, 3},
                 {"1,01,2]", 1, 2},    {"1,.5,", 1, 2},      {"1,1.,", 1, 2},   {"1,+1,", 1, 2},
                 {"1,0x10,", 1, 2},    {"1,1e400,2,", 1, 2}, {"1,-,", 1, 2},    {"1,1e,", 1, 2},
                 {"1,1e+,", 1, 2},     {"1,NaN,", 1, 2},     {"1,2 ,3,", 1, 2}, {"1,2}", 1, 2},
                 {"1,2:3", 1, 2},      {"1,, 2,", 1, 2},     {"1, ,2,", 1, 3},  {"1, 2,\t", 2, 6},
                 {"1,null,", 1, 2},    {"[1,", 0, 0},        {"]", 0, 0},       {",1,", 0, 0},
                 {"1,-0.5e-1,", 2, 10}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float out[4];
        size_t used = 99, n = strlen(cases[i].text);
        char *exact = malloc(n + !n);
        assert_non_null(exact);
        memcpy(exact, cases[i].text, n);
        size_t count = attn_f32_scan(exact, n, out, 4, &used);
        free(exact);
        if (count != cases[i].count || used != cases[i].used)
            fail_msg("%s: %zu numbers of %zu bytes", cases[i].text, count, used);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_agrees_with_strtof_on_printed_floats),
        cmocka_unit_test(parse_agrees_with_strtof_on_random_digits),
        cmocka_unit_test(parse_rounds_midpoints_to_even_and_their_neighbours_away),
        cmocka_unit_test(parse_takes_values_at_the_edges),
        cmocka_unit_test(parse_is_exact_on_very_long_texts),
        cmocka_unit_test(parse_knows_no_locale),
        cmocka_unit_test(print_gives_json_that_reads_back_as_the_same_bits),
        cmocka_unit_test(print_needs_no_more_digits_than_it_must),
        cmocka_unit_test(print_writes_plain_forms),
        cmocka_unit_test(scan_reads_what_parse_reads),
        cmocka_unit_test(scan_stops_in_front_of_what_it_must_not_judge)};
    return cmocka_run_group_tests_name("decimal", tests, NULL, NULL);
}

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
#include "core/decimal_private.h"
#include "core/wide.h"
#include "tests/numbers.h"

static uint64_t seed;

static uint64_t next_random(void)
{
    return numbers_next(&seed);
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

/* The roads through a list: the one that is taken here, and those that other machines take. */
static const struct {
    const char *name;
    attn_f32_scanner *scan;
} roads[] = {{"attn_f32_scan", attn_f32_scan}, {"attn_f32_scan_words", attn_f32_scan_words}};
enum { ROADS = sizeof roads / sizeof roads[0] };

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

/* A list of numbers that may have a bad one among them, and what reading it must give. */
typedef struct {
    char *text;
    size_t n, capacity;
    float want[64];
    size_t count, used; /* up to the first that is bad, not finite or without an end */
    bool stopped;
} list;

static void add_text(list *l, const char *text, size_t n)
{
    if (l->capacity - l->n <= n) {
        l->capacity = 2 * (l->n + n) + 1;
        l->text = realloc(l->text, l->capacity);
        assert_non_null(l->text);
    }
    memcpy(l->text + l->n, text, n);
    l->n += n;
}

/* `behind` is what separates it from the next, "]" with what may follow, or nothing. */
static void add_number(list *l, const char *text, size_t n, const char *behind)
{
    float x = strtof(text, NULL);

    add_text(l, text, n);
    if (!numbers_is_json(text, n) || !isfinite(x) || *behind == '\0')
        l->stopped = true;
    if (!l->stopped)
        l->want[l->count++] = x;
    add_text(l, behind, strlen(behind));
    if (!l->stopped)
        l->used = *behind == ']' ? l->n - strlen(behind) : l->n;
    l->stopped = l->stopped || *behind == ']';
}

static void check_list(const list *l)
{
    char *exact = malloc(l->n + !l->n);

    assert_non_null(exact);
    memcpy(exact, l->text, l->n);
    for (size_t i = 0; i < ROADS; i++) {
        size_t used = 99999, max = 64;
        float *got = malloc(max * sizeof *got);
        assert_non_null(got);
        size_t count = roads[i].scan(exact, l->n, got, max, &used);
        if (count != l->count || used != l->used ||
            memcmp(got, l->want, count * sizeof *got) != 0) {
            size_t k = 0;
            while (k < count && k < l->count && bits_of(got[k]) == bits_of(l->want[k]))
                k++;
            fail_msg("%.*s\n %s: %zu numbers of %zu bytes, not %zu of %zu; number %zu differs",
                     (int)l->n, l->text, roads[i].name, count, used, l->count, l->used, k);
        }
        free(got);
        if (count < 2)
            continue;
        max = 1 + (size_t)(next_random() % (count - 1)); /* room for less */
        got = malloc(max * sizeof *got);
        assert_non_null(got);
        count = roads[i].scan(exact, l->n, got, max, &used);
        assert_int_equal(count, max);
        assert_true(used < l->used && exact[used] != ',' && exact[used] != ' ');
        assert_memory_equal(got, l->want, max * sizeof *got);
        free(got);
    }
    free(exact);
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
    for (int digits = 0; digits < 120;
         digits++) { /* what is no longer zero, and what is too large */
        (void)snprintf(text, sizeof text, "%.*e", digits, 0x1p-150);
        check_text(text);
        (void)snprintf(text, sizeof text, "%.*e", digits, 0x1.ffffffp127);
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

static void check_printed(float x, size_t *longest)
{
    char text[ATTN_F32_CHARS + 1];
    float back = 0;
    size_t n = attn_f32_print(text, x);

    assert_true(n > 0 && n < ATTN_F32_CHARS);
    *longest = n > *longest ? n : *longest;
    if (!numbers_is_json(text, n) || !attn_f32_parse(text, n, &back) || bits_of(back) != bits_of(x))
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

static void check_lists(size_t lists, unsigned one_bad_in, bool longer)
{
    static const char *const behind[] = {",",      ",",       ", ",
                                         ",\n   ", ",\t\r\n", ",                    "};

    for (size_t i = 0; i < lists; i++) {
        list l = {0};
        size_t length = 1 + (size_t)(next_random() % 40), comma = (size_t)(next_random() % 6);
        for (size_t k = 0; k < length; k++) {
            char text[NUMBERS_LONGEST];
            size_t n = numbers_random(text, &seed, one_bad_in, longer);
            if (k + 1 == length) /* what is behind the bracket is not ours */
                add_number(&l, text, n, i % 5 == 0 ? "" : i % 2 == 0 ? "]" : "],1,2,3,4,[5,6]]]");
            else
                add_number(&l, text, n, behind[i % 7 == 0 ? (size_t)(next_random() % 6) : comma]);
        }
        check_list(&l);
        free(l.text);
    }
}

static void lists_are_read_as_strtof_reads_their_numbers(void **state)
{
    (void)state;
    seed = 6;
    check_lists(30000, 0, false);
    check_lists(3000, 0, true);
}

static void lists_are_read_up_to_the_first_number_that_is_none(void **state)
{
    (void)state;
    seed = 7;
    check_lists(30000, 20, false);
}

/* Whatever stands in the way of the fast road in each place of its window. */
static void lists_of_one_form_are_read_with_another_at_any_place(void **state)
{
    static const char *const forms[] = {"0", "-1.5", "0.123456789", "-0.12345678901234567",
                                        "-1.2345678e-05"};
    static const char *const others[] = {"1e400",
                                         "01",
                                         "-",
                                         "1.",
                                         ".5",
                                         "1e",
                                         "1e+",
                                         "1e-",
                                         "1e5.5",
                                         "0x1",
                                         "1..2",
                                         "1.2.3",
                                         "--1",
                                         "1-",
                                         "+1",
                                         "00",
                                         "-01.5",
                                         "NaN",
                                         "null",
                                         "\"1\"",
                                         "[1",
                                         "1 ",
                                         "",
                                         " ",
                                         "\xb1",
                                         "1\xb5",
                                         "1e\xb1",
                                         "-0",
                                         "1e-45",
                                         "0.0000000000000000000000000000000000000000001",
                                         "100000000000000000000000000000000000000000000000000e-50",
                                         "16777217",
                                         "1.00000017881393432617187500",
                                         "0e0",
                                         "123456789012345678.9",
                                         "1e007",
                                         "1e+07",
                                         "12E-1"};

    (void)state;
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        for (size_t o = 0; o < sizeof others / sizeof others[0]; o++) {
            for (size_t at = 0; at < 40; at++) {
                list l = {0};
                for (size_t k = 0; k < 40; k++) {
                    const char *text = k == at ? others[o] : forms[f];
                    add_number(&l, text, strlen(text), k == 39 ? "]" : ",");
                }
                /* A blank was read with the comma in front of it. */
                if (l.count == at && strcmp(others[o], " ") == 0 && at > 0)
                    l.used++;
                check_list(&l);
                free(l.text);
            }
        }
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
        for (size_t k = 0; k < ROADS; k++) {
            size_t count = roads[k].scan(exact, n, out, 4, &used);
            if (count != cases[i].count || used != cases[i].used)
                fail_msg("%s: %zu numbers of %zu bytes", cases[i].text, count, used);
        }
        free(exact);
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
        cmocka_unit_test(lists_are_read_as_strtof_reads_their_numbers),
        cmocka_unit_test(lists_are_read_up_to_the_first_number_that_is_none),
        cmocka_unit_test(lists_of_one_form_are_read_with_another_at_any_place),
        cmocka_unit_test(scan_stops_in_front_of_what_it_must_not_judge)};

    if (!attn_is_wide())
        print_message("skipped: lists read 64 bytes at once: no AVX-512 VBMI2 here\n");
    return cmocka_run_group_tests_name("decimal", tests, NULL, NULL);
}

/* Numbers of JSON as float32: one by one as strtof() reads them, and in lists the same by every road. What is printed
 * reads back to the same bits. Input: a list of numbers; its bytes are also taken as floats. */
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <string.h>

#include "core/decimal.h"
#include "core/decimal_private.h"
#include "core/wide.h"

enum { MOST = 512 };

static bool same(const float *a, const float *b, size_t n)
{
    return n == 0 || memcmp(a, b, n * sizeof *a) == 0;
}

static size_t digits(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && p[i] >= '0' && p[i] <= '9')
        i++;
    return i;
}

/* RFC 8259's grammar, plainly. */
static bool is_json_number(const char *p, size_t n)
{
    size_t i = n > 0 && p[0] == '-', d = digits(p + i, n - i);

    if (d == 0 || (d > 1 && p[i] == '0'))
        return false;
    i += d;
    if (i < n && p[i] == '.') {
        d = digits(p + i + 1, n - i - 1);
        if (d == 0)
            return false;
        i += 1 + d;
    }
    if (i < n && (p[i] | 0x20) == 'e') {
        i++;
        i += i < n && (p[i] == '+' || p[i] == '-');
        d = digits(p + i, n - i);
        if (d == 0)
            return false;
        i += d;
    }
    return i == n;
}

/* *out as strtof() has it. */
static bool read_plain(const char *p, size_t n, float *out)
{
    if (!is_json_number(p, n))
        return false;
    char *text = fuzz_text(p, n);
    *out = strtof(text, NULL);
    free(text);
    return isfinite(*out);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* What attn_f32_scan() promises, plainly. */
static size_t scan_plain(const char *text, size_t n, float *out, size_t max, size_t *used)
{
    size_t count = 0, at = 0;

    while (count < max && at < n) {
        size_t k = at;
        while (k < n && text[k] != ',' && text[k] != ']')
            k++;
        if (k == n || !read_plain(text + at, k - at, &out[count]))
            break;
        count++;
        at = k;
        if (text[k] == ']')
            break;
        do
            at++;
        while (at < n && is_blank(text[at]));
    }
    *used = at;
    return count;
}

static void check_parse(const char *p, size_t n)
{
    float x = 0, y = 0;
    char *exact = fuzz_copy(p, n);
    bool ok = read_plain(p, n, &y);

    FUZZ_CHECK(attn_f32_parse(exact, n, &x) == ok);
    FUZZ_CHECK(!ok || same(&x, &y, 1));
    free(exact);
}

static void check_lists(const char *text, size_t n, size_t max)
{
    float plain[MOST], *out = malloc((max > 0 ? max : 1) * sizeof *out);
    size_t used_plain = 0, used = 0;
    char *exact = fuzz_copy(text, n);

    FUZZ_CHECK(out != NULL);
    size_t count = scan_plain(text, n, plain, max, &used_plain);
    FUZZ_CHECK(attn_f32_scan(exact, n, out, max, &used) == count && used == used_plain);
    FUZZ_CHECK(same(out, plain, count));
    FUZZ_CHECK(attn_f32_scan_words(exact, n, out, max, &used) == count && used == used_plain);
    FUZZ_CHECK(same(out, plain, count));
#if defined(__x86_64__)
    if (attn_is_wide()) { /* stops earlier */
        size_t some = attn_f32_scan_wide(exact, n, out, max, &used);
        FUZZ_CHECK(some <= count && used <= used_plain && same(out, plain, some));
    }
#endif
    free(exact);
    free(out);
}

static void check_print(const uint8_t *bytes, size_t n)
{
    float x[64] = {0}, again = 0;
    size_t count = n / sizeof x[0] < 64 ? n / sizeof x[0] : 64, at = 0;
    char *row = malloc(count * ATTN_F32_CHARS + ATTN_F32_SLACK), text[ATTN_F32_CHARS];

    FUZZ_CHECK(row != NULL);
    if (count > 0)
        memcpy(x, bytes, count * sizeof x[0]);
    size_t length = attn_f32_print_row(row, x, count);
    for (size_t i = 0; i < count; i++) {
        size_t k = 4;
        if (isfinite(x[i])) {
            k = attn_f32_print(text, x[i]);
            FUZZ_CHECK(k < ATTN_F32_CHARS && attn_f32_parse(text, k, &again));
            FUZZ_CHECK(same(&again, &x[i], 1));
        } else {
            memcpy(text, "null", 4);
        }
        FUZZ_CHECK(at + k < length && memcmp(row + at, text, k) == 0 && row[at + k] == ',');
        at += k + 1;
    }
    FUZZ_CHECK(at == length);
    free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_input in = {data, n};
    size_t max = fuzz_byte(&in) * 2;
    const char *text = (const char *)in.at;

    check_lists(text, in.n, max);
    for (size_t at = 0, k; at <= in.n; at = k + 1) {
        for (k = at; k < in.n && text[k] != ',' && text[k] != ']';)
            k++;
        check_parse(text + at, k - at);
    }
    check_print(in.at, in.n);
    return 0;
}

#include "numbers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/decimal.h"

uint64_t numbers_next(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static unsigned below(uint64_t *seed, unsigned n)
{
    return (unsigned)(numbers_next(seed) % n);
}

bool numbers_is_json(const char *text, size_t n)
{
    const char *p = text, *end = text + n;

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

static float any_float(uint64_t *seed)
{
    float x;

    do {
        uint32_t bits = (uint32_t)numbers_next(seed);
        memcpy(&x, &bits, sizeof x);
    } while (!isfinite(x));
    return x;
}

/* Half way between two floats, with all its digits, or a hair above or below. */
static size_t midpoint(char *out, uint64_t *seed)
{
    float x = fabsf(any_float(seed));
    uint32_t bits;

    if (below(seed, 4) == 0)
        x *= 0x1p-100f; /* often subnormal */
    memcpy(&bits, &x, sizeof bits);
    bits++;
    float above;
    memcpy(&above, &bits, sizeof above);
    double middle = isfinite(above) ? ((double)x + (double)above) / 2 : 0x1.ffffffp127;
    int most = below(seed, 3) == 0 ? 120 : 16 + (int)below(seed, 4);
    size_t n = (size_t)snprintf(out, NUMBERS_LONGEST, "%.*e", most, middle);
    char *e = strchr(out, 'e');
    if (below(seed, 3) == 0)
        e[-1] = (char)('0' + below(seed, 10));
    if (below(seed, 3) > 0 || bits >> 23 < 100 || bits >> 23 > 160)
        return n;
    return (size_t)snprintf(out, NUMBERS_LONGEST, "%.*f", most + 20, middle);
}

static size_t digits(char *out, uint64_t *seed, unsigned most)
{
    unsigned n = 1 + below(seed, most), zeros = below(seed, 3) == 0 ? below(seed, n) : 0;

    for (unsigned i = 0; i < n; i++)
        out[i] = (char)('0' + (i < zeros ? 0 : below(seed, 10)));
    return n;
}

static size_t random_digits(char *out, uint64_t *seed, unsigned most)
{
    char *p = out;

    if (below(seed, 2) == 0)
        *p++ = '-';
    if (below(seed, 2) == 0) {
        *p++ = '0';
    } else {
        size_t n = digits(p, seed, below(seed, 3) == 0 ? most : 3);
        *p = (char)('1' + below(seed, 9));
        p += n;
    }
    if (below(seed, 4) > 0) {
        *p++ = '.';
        p += digits(p, seed, most);
    }
    if (below(seed, 3) == 0) {
        static const int far[] = {3, 30, 70, 400, 100000};
        int range = far[below(seed, 5)], x = (int)below(seed, 2 * (unsigned)range) - range;
        p += snprintf(p, 16, below(seed, 2) == 0 ? "e%+d" : "E%03d", x);
    }
    return (size_t)(p - out);
}

static size_t special(char *out, uint64_t *seed)
{
    static const char *const texts[] = {"0",
                                        "-0",
                                        "0.0",
                                        "-0.000",
                                        "0e5",
                                        "0E-999",
                                        "1",
                                        "9",
                                        "10",
                                        "1e0",
                                        "1E+05",
                                        "1e-05",
                                        "1e-5",
                                        "1e-45",
                                        "7.006492321624085e-46",
                                        "7.006492321624086e-46",
                                        "7e-46",
                                        "1.1754943508222875e-38",
                                        "1.1754942807573643e-38",
                                        "3.4028234663852886e38",
                                        "3.4028235677973366e38",
                                        "3.4028235677973365e38",
                                        "340282346638528859811704183484516925440",
                                        "16777217",
                                        "16777219",
                                        "-33554433",
                                        "9007199254740993",
                                        "9223372036854775807",
                                        "9223372036854775808",
                                        "18446744073709551616",
                                        "1e38",
                                        "1e39",
                                        "4e38",
                                        "1e400",
                                        "-1e400",
                                        "1e-400",
                                        "1e99999999999999999999",
                                        "1e-99999999999999999999",
                                        "0e99999999999999999999",
                                        "0.3745401203632355",
                                        "0.00037454012036323551",
                                        "1.00000005960464477539062500"};

    return (size_t)snprintf(out, NUMBERS_LONGEST, "%s",
                            texts[below(seed, sizeof texts / sizeof texts[0])]);
}

static size_t damage(char *text, size_t n, uint64_t *seed)
{
    static const char with[] = "0123456789..eE+-0-x";
    size_t at = below(seed, (unsigned)n + 1);
    char c = with[below(seed, sizeof with - 1)];

    switch (below(seed, 3)) {
    case 0:
        if (at < n)
            text[at] = c;
        return n;
    case 1:
        if (at == n || n == 1)
            return n;
        memmove(text + at, text + at + 1, n - at - 1);
        return n - 1;
    default:
        if (n + 2 > NUMBERS_LONGEST)
            return n;
        memmove(text + at + 1, text + at, n - at);
        text[at] = c;
        return n + 1;
    }
}

size_t numbers_random(char text[NUMBERS_LONGEST], uint64_t *seed, unsigned one_bad_in, bool longer)
{
    double x = (double)numbers_next(seed) / 0x1p63 - 1;
    size_t n = 0;

    switch (below(seed, 8)) {
    case 0:
        n = (size_t)snprintf(text, NUMBERS_LONGEST, "%.*g", 1 + (int)below(seed, 9),
                             (double)any_float(seed));
        break;
    case 1:
        n = attn_f32_print(text, below(seed, 2) == 0 ? any_float(seed) : (float)x);
        break;
    case 2:
        n = (size_t)snprintf(text, NUMBERS_LONGEST, "%.*g", 15 + (int)below(seed, 4),
                             x * pow(10, (int)below(seed, 6) - 4));
        break;
    case 3:
        n = (size_t)snprintf(text, NUMBERS_LONGEST, "%d", (int)below(seed, 2000) - 1000);
        break;
    case 4:
        n = midpoint(text, seed);
        break;
    case 5:
        n = special(text, seed);
        break;
    case 6:
        n = random_digits(text, seed, 24);
        break;
    default:
        n = random_digits(text, seed, longer ? 400 : 8);
    }
    if (one_bad_in > 0 && below(seed, one_bad_in) == 0)
        n = damage(text, n, seed);
    text[n] = '\0';
    return n;
}

/* Decimal text to float32: eight digits at once, a double to round from, and whole numbers of any
 * length for what a double cannot decide. */
#include "decimal.h"

#include <assert.h>
#include <float.h>
#include <stdint.h>
#include <string.h>

#include "decimal_private.h"
#include "wide.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first digit is the lowest byte");

enum {
    DIGITS = 19,     /* as many always fit 64 bits */
    MIN_POWER = -65, /* DIGITS digits times less than that are no more than half the least float */
    MAX_POWER = 38,
    ROOM = 40 /* bytes that the fast road may look at, from where a number begins */
};

static const double powers[MAX_POWER - MIN_POWER + 1] = {
    1e-65, 1e-64, 1e-63, 1e-62, 1e-61, 1e-60, 1e-59, 1e-58, 1e-57, 1e-56, 1e-55, 1e-54, 1e-53,
    1e-52, 1e-51, 1e-50, 1e-49, 1e-48, 1e-47, 1e-46, 1e-45, 1e-44, 1e-43, 1e-42, 1e-41, 1e-40,
    1e-39, 1e-38, 1e-37, 1e-36, 1e-35, 1e-34, 1e-33, 1e-32, 1e-31, 1e-30, 1e-29, 1e-28, 1e-27,
    1e-26, 1e-25, 1e-24, 1e-23, 1e-22, 1e-21, 1e-20, 1e-19, 1e-18, 1e-17, 1e-16, 1e-15, 1e-14,
    1e-13, 1e-12, 1e-11, 1e-10, 1e-9,  1e-8,  1e-7,  1e-6,  1e-5,  1e-4,  1e-3,  1e-2,  1e-1,
    1e0,   1e1,   1e2,   1e3,   1e4,   1e5,   1e6,   1e7,   1e8,   1e9,   1e10,  1e11,  1e12,
    1e13,  1e14,  1e15,  1e16,  1e17,  1e18,  1e19,  1e20,  1e21,  1e22,  1e23,  1e24,  1e25,
    1e26,  1e27,  1e28,  1e29,  1e30,  1e31,  1e32,  1e33,  1e34,  1e35,  1e36,  1e37,  1e38};

static const uint64_t whole_powers[9] = {1,      10,      100,      1000,     10000,
                                         100000, 1000000, 10000000, 100000000};

/* w * 10^exponent, where w is the first DIGITS digits that count, or all of them. */
typedef struct {
    uint64_t w;
    int64_t exponent;
    const char *rest, *end; /* the digits that w lacks, the point perhaps among them; mostly none */
    bool negative;
} number;

static inline bool is_digit(char c)
{
    return (unsigned char)(c - '0') <= 9;
}

static inline bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* --- eight digits at once --------------------------------------------------------------------- */

#define EACH(byte) ((byte)*0x0101010101010101u)

/* Eight characters of which digits become 0 to 9. */
static inline uint64_t load_digits(const char *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v ^ EACH((uint64_t)'0');
}

/* 8 times the digits that v begins with. What is added carries out of a byte only behind them. */
static inline unsigned digit_bits(uint64_t v)
{
    uint64_t others = (v | (v + EACH(6))) & EACH(0xf0);

    return others == 0 ? 64 : (unsigned)__builtin_ctzll(others) & ~7u;
}

/* The number that the first `bits` / 8 digits make. */
static inline uint64_t digits_value(uint64_t v, unsigned bits)
{
    unsigned half = (64 - bits) / 2;

    v = v << half << half; /* the last digit on top; 64 bits at once are too many for a shift */
    v = v * 10 + (v >> 8);
    return (((v & 0x000000ff000000ff) * 0x000f424000000064) +
            ((v >> 16 & 0x000000ff000000ff) * 0x0000271000000001)) >>
           32;
}

/* --- what a double cannot decide -------------------------------------------------------------- */

/* Whole numbers of at most 512 bits, which compare_exactly() needs; the lowest limb first. */
typedef struct {
    unsigned n;
    uint64_t limb[9];
} whole;

__extension__ typedef unsigned __int128 wide;

/* x = x * factor + more */
static void multiply(whole *x, uint64_t factor, uint64_t more)
{
    for (unsigned i = 0; i < x->n; i++) {
        wide product = (wide)x->limb[i] * factor + more;
        x->limb[i] = (uint64_t)product;
        more = (uint64_t)(product >> 64);
    }
    if (more > 0) {
        assert(x->n < sizeof x->limb / sizeof x->limb[0]);
        x->limb[x->n++] = more;
    }
}

static void shift_left(whole *x, unsigned bits)
{
    for (; bits >= 32; bits -= 32)
        multiply(x, (uint64_t)1 << 32, 0);
    multiply(x, (uint64_t)1 << bits, 0);
}

static int compare(const whole *a, const whole *b)
{
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    for (unsigned i = a->n; i-- > 0;) {
        if (a->limb[i] != b->limb[i])
            return a->limb[i] < b->limb[i] ? -1 : 1;
    }
    return 0;
}

/* The sign of x - m * 2^k, where m * 2^k is half way between two floats and within 2^-48 of x.
 *
 * k is at least -150 and m less than 2^25, so that m * 2^k has at most 113 digits that count. When x
 * has more, the first 114 and a 1 in the place of all others compare as x does. Those 115 digits
 * take 383 bits, m * 5^(46+115) takes 399, and the powers of 2 make both sides about equal. */
static int compare_exactly(const number *x, uint64_t m, int64_t k)
{
    enum { MOST = 114 };
    whole a = {1, {x->w}}, b = {1, {m}};
    int64_t exponent = x->exponent;
    bool more = false;
    size_t digits = DIGITS;

    for (const char *p = x->rest; p < x->end; p++) {
        if (*p == '.')
            continue;
        if (digits++ < MOST) {
            multiply(&a, 10, (uint64_t)(*p - '0'));
            exponent--;
        }
        more = more || (digits > MOST && *p != '0');
    }
    if (more) {
        multiply(&a, 10, 1);
        exponent--;
    }
    for (int64_t i = exponent; i > 0; i--)
        multiply(&a, 5, 0);
    for (int64_t i = exponent; i < 0; i++)
        multiply(&b, 5, 0);
    if (k > exponent)
        shift_left(&b, (unsigned)(k - exponent));
    else
        shift_left(&a, (unsigned)(exponent - k));
    return compare(&a, &b);
}

/* --- rounding --------------------------------------------------------------------------------- */

/* The double w * 10^exponent carries three roundings (w, the power, the product) and lacks the
 * digits that are not in w, so it is within 4 units in its last place of the number. Rounding it to
 * float32 rounds the number, unless a midpoint of two floats lies between them: within MARGIN. */
#define MARGIN 8u

static inline uint64_t bits_of(double d)
{
    uint64_t bits;

    memcpy(&bits, &d, sizeof bits);
    return bits;
}

/* Of any number. With integers alone: how this thread treats subnormals does not matter. */
static bool round_any(const number *x, float *out)
{
    uint32_t bits = 0;

    if (x->w != 0 && x->exponent > MAX_POWER)
        return false;
    if (x->w != 0 && x->exponent >= MIN_POWER) {
        /* d = significand * 2^exponent. Its last `lost` bits are below the last place of a float. */
        uint64_t d = bits_of((double)x->w * powers[x->exponent - MIN_POWER]);
        uint64_t significand = (d & 0x000fffffffffffff) | 0x0010000000000000;
        int exponent = (int)(d >> 52) - 1075, lost = exponent + 29 < -149 ? -149 - exponent : 29;
        if (lost <= 54) { /* else it is less than 2^-150, half the least float */
            uint64_t half = (uint64_t)1 << (lost - 1), below = significand >> lost;
            uint64_t part = significand & (2 * half - 1);
            int side = part > half ? 1 : -1;
            if (part - half + MARGIN <= 2 * MARGIN)
                side = compare_exactly(x, 2 * below + 1, exponent + lost - 1);
            below += side > 0 || (side == 0 && below % 2 == 1);
            below += (uint64_t)(exponent + lost + 149) << 23;
            if (below >= 0x7f800000)
                return false;
            bits = (uint32_t)below;
        }
    }
    bits |= (uint32_t)x->negative << 31;
    memcpy(out, &bits, sizeof bits);
    return true;
}

/* --- any number ------------------------------------------------------------------------------- */

static inline const char *read_digits(const char *p, const char *end, uint64_t *w)
{
    uint64_t v = 0;

    while (end - p >= 8 && digit_bits(v = load_digits(p)) == 64) {
        *w = *w * 100000000 + digits_value(v, 64);
        p += 8;
    }
    while (p < end && is_digit(*p))
        *w = *w * 10 + (uint64_t)(*p++ - '0');
    return p;
}

/* w again, when there were more digits than it can hold; they begin at p. */
static void take_first_digits(number *x, const char *p, const char *point)
{
    while (p < x->end && (*p == '0' || *p == '.'))
        p++;
    x->w = 0;
    for (unsigned n = 0; p < x->end && n < DIGITS; p++) {
        if (*p == '.')
            continue;
        x->w = x->w * 10 + (uint64_t)(*p - '0');
        n++;
    }
    x->rest = p;
    x->exponent += p <= point ? point - p : point + 1 - p;
}

/* Reads the longest prefix that is a JSON number; NULL when there is none. */
static const char *read_number(const char *p, const char *end, number *x)
{
    int64_t written = 0;

    *x = (number){.negative = p < end && *p == '-'};
    p += x->negative;
    const char *digits = p;
    p = p < end && *p == '0' ? p + 1 : read_digits(p, end, &x->w);
    const char *point = p;
    if (point == digits)
        return NULL;
    if (p < end && *p == '.') {
        p = read_digits(point + 1, end, &x->w);
        if (p == point + 1)
            return NULL;
    }
    x->rest = x->end = p;
    if (p < end && (*p | 0x20) == 'e') {
        bool minus = false;
        p++;
        if (p < end && (*p == '-' || *p == '+'))
            minus = *p++ == '-';
        if (p == end || !is_digit(*p))
            return NULL;
        for (; p < end && is_digit(*p); p++) /* more than any text can make up for is enough */
            written = written < INT64_MAX / 100 ? written * 10 + (*p - '0') : written;
        written = minus ? -written : written;
    }
    x->exponent = written;
    if (x->end - digits > DIGITS)
        take_first_digits(x, digits, point);
    else if (x->end > point)
        x->exponent -= x->end - point - 1;
    return p;
}

bool attn_f32_parse(const char *text, size_t n, float *out)
{
    number x;
    const char *end = text + n;

    return read_number(text, end, &x) == end && round_any(&x, out);
}

/* --- long lists ------------------------------------------------------------------------------- */

/* Out of the way of the loop below. */
static __attribute__((noinline)) bool round_rare(uint64_t w, int exponent, bool negative,
                                                 float *out)
{
    return round_any(&(number){.w = w, .exponent = exponent, .negative = negative}, out);
}

static inline bool round_common(uint64_t w, int exponent, bool negative, float *out)
{
    const uint64_t low = (1u << 29) - 1, midpoint = 1u << 28;
    double d = (double)(int64_t)w * powers[exponent - MIN_POWER];
    uint64_t bits = bits_of(d), least = bits_of(FLT_MIN), most = bits_of(FLT_MAX);

    if (((bits - midpoint + MARGIN) & low) <= 2 * MARGIN || bits - least > most - least)
        return round_rare(w, exponent, negative, out);
    *out = (float)(negative ? -d : d);
    return true;
}

/* The digits behind the point. False: none, or too many for *w, which then has 18 at most. */
static inline bool read_fraction(const char **at, uint64_t *w, int *exponent)
{
    const char *p = *at;
    uint64_t v = load_digits(p);
    unsigned bits = digit_bits(v);

    *w = *w * whole_powers[bits / 8] + digits_value(v, bits);
    *exponent = -(int)(bits / 8);
    *at = p + bits / 8;
    if (bits < 64)
        return bits > 0;
    v = load_digits(p + 8);
    bits = digit_bits(v);
    if (*w > 9999999999)
        return false;
    *w = *w * whole_powers[bits / 8] + digits_value(v, bits);
    *exponent -= (int)(bits / 8);
    p += 8 + bits / 8;
    for (unsigned more = 0; bits == 64 && is_digit(*p); more++) {
        if (more == 4 || *w > 99999999999999999)
            return false;
        *w = *w * 10 + (uint64_t)(*p++ - '0');
        --*exponent;
    }
    *at = p;
    return true;
}

/* The first two digits behind the e. False: none, or too far. */
static inline bool read_exponent(const char **at, int *exponent)
{
    const char *p = *at;
    bool minus = *p == '-';

    p += minus || *p == '+';
    if (!is_digit(*p))
        return false;
    int x = *p++ - '0';
    if (is_digit(*p))
        x = x * 10 + (*p++ - '0');
    *exponent += minus ? -x : x;
    *at = p;
    return *exponent >= MIN_POWER && *exponent <= MAX_POWER;
}

/* The number at p, which has ROOM bytes, if it has a common form and a comma or bracket behind it,
 * which is returned. NULL: it is for others. */
static inline const char *read_common(const char *p, float *out)
{
    bool negative = *p == '-';
    int exponent = 0;

    p += negative;
    uint64_t w = (unsigned char)(*p - '0');
    if (w > 9)
        return NULL;
    if (p[1] == '.') {
        p += 2;
        if (!read_fraction(&p, &w, &exponent))
            return NULL;
    } else if (!is_digit(p[1])) {
        p++;
    } else {
        uint64_t v = load_digits(p);
        unsigned bits = digit_bits(v);
        if (w == 0)
            return NULL;
        w = digits_value(v, bits);
        p += bits / 8;
        if (*p == '.') {
            p++;
            if (!read_fraction(&p, &w, &exponent))
                return NULL;
        }
    }
    if ((*p | 0x20) == 'e') {
        p++;
        if (!read_exponent(&p, &exponent))
            return NULL;
    }
    if (*p != ',' && *p != ']')
        return NULL;
    return round_common(w, exponent, negative, out) ? p : NULL;
}

/* The number at p, of any form, and what is behind it. NULL: none, or not for lists. */
static const char *read_other(const char *p, const char *end, float *out)
{
    number x;
    const char *behind = read_number(p, end, &x);

    if (behind == NULL || behind == end || (*behind != ',' && *behind != ']') ||
        !round_any(&x, out))
        return NULL;
    return behind;
}

size_t attn_f32_scan_words(const char *text, size_t n, float *out, size_t max, size_t *used)
{
    const char *p = text, *end = text + n;
    size_t count = 0;

    while (count < max && p < end) {
        const char *behind = end - p >= ROOM ? read_common(p, &out[count]) : NULL;
        if (behind == NULL)
            behind = read_other(p, end, &out[count]);
        if (behind == NULL)
            break;
        count++;
        p = behind;
        if (*p == ']')
            break;
        do
            p++;
        while (p < end && is_blank(*p));
    }
    *used = (size_t)(p - text);
    return count;
}

size_t attn_f32_scan(const char *text, size_t n, float *out, size_t max, size_t *used)
{
#if defined(__x86_64__)
    size_t done = 0, at = 0, more = 1, here = 0;

    if (!attn_is_wide())
        return attn_f32_scan_words(text, n, out, max, used);
    while (more > 0) {
        done += attn_f32_scan_wide(text + at, n - at, out + done, max - done, &here);
        at += here;
        if (done == max || at == n || text[at] == ']')
            break;
        /* The end of the text, or one number of a rare form. */
        size_t left = n - at < 64 ? max - done : 1;
        more = attn_f32_scan_words(text + at, n - at, out + done, left, &here);
        done += more;
        at += here;
    }
    *used = at;
    return done;
#else
    return attn_f32_scan_words(text, n, out, max, used);
#endif
}

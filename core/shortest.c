#include "core/decimal.h"

#include <stdint.h>
#include <string.h>

#include "core/shortest.h"

/* What is printed most takes one road without a branch that depends on the digits; all else (zero, whole
 * numbers, single digits, powers of two, subnormal and large ones) is left to print_other(). */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "eight digits are stored as one word");

__extension__ typedef unsigned __int128 u128;

enum {
    MANTISSA_BITS = 23,
    BIAS = 150, /* of the exponent, for whole mantissas */
    FRACTION = ATTN_SHORTEST_FRACTION
};

static const uint64_t ZEROS = 0x3030303030303030; /* "00000000" */

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline char *put(char *p, const char *text, size_t n)
{
    memcpy(p, text, n);
    return p + n;
}

static bool are_zeros(const float *x, size_t n)
{
    uint32_t any = 0;

    for (size_t i = 0; i < n; i++)
        any |= bits_of(x[i]);
    return any == 0;
}

/* The place in attn_shortest_forms[] of a number of this exponent, without leading zeros. */
static uint32_t form_of(uint32_t e)
{
    return (e * ATTN_SHORTEST_LOG + ATTN_SHORTEST_BIAS) >> 12;
}

/* Eight decimal digits of n < 10^8, the first in the lowest byte: halves, quarters, digits, each split at
 * once in all lanes by a multiplication with the reciprocal that is exact in its range. */
static inline uint64_t eight_digits(uint64_t n)
{
    uint64_t high = (n * 3518437209u) >> 45; /* n / 10000 */
    uint64_t x = high + ((n - high * 10000) << 32);

    high = ((x * 10486) >> 20) & 0x0000007f0000007f; /* / 100 */
    x = high + ((x - high * 100) << 16);
    high = ((x * 103) >> 10) & 0x000f000f000f000f; /* / 10 */
    return high + ((x - high * 10) << 8);
}

/* --- any number ------------------------------------------------------------------------------- */

static char *print_whole(char *p, uint64_t n)
{
    char digits[20];
    size_t at = sizeof digits;

    do
        digits[--at] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    memcpy(p, digits + at, sizeof digits - at);
    return p + (sizeof digits - at);
}

/* The shortest decimal of c * 2^q (never 0) as digits * 10^*exponent, without zeros at its end. Unlike
 * the common road it looks one digit further, which a power of two may need (its neighbour below is at
 * half the distance), and minds that the scale of large numbers is cut off. */
static uint32_t shortest_digits(uint32_t e, uint32_t m, int *exponent)
{
    uint64_t scale = attn_shortest_scale[e], c = e > 0 ? m | 1u << MANTISSA_BITS : m;
    /* All in units of 10^(k-1) / 2^66; `slack` is more than what is missing. */
    u128 step = (u128)100 * scale, v = 4 * c * step, slack = (u128)1 << 34;
    u128 low = v - (m == 0 && e > 1 ? 1 : 2) * step, high = v + 2 * step;
    uint64_t whole = (uint64_t)(v >> 66), n = 0;
    bool odd = c % 2 != 0;

    for (uint32_t p = 100; p > 0 && n == 0; p /= 10) {
        uint64_t a = whole / p;
        u128 below = (u128)(a * p) << 66, above = below + ((u128)p << 66);
        bool fits_below = odd ? below > low + slack : below >= low;
        bool fits_above = odd ? above < high : above <= high + slack;
        if (fits_below && fits_above) { /* the nearer one, the even one of two as near */
            u128 down = v - below, up = above - v;
            bool tie = up < down + slack && down < up + slack;
            n = (tie ? a % 2 == 0 : down < up) ? a * p : (a + 1) * p;
        } else if (fits_below || fits_above) {
            n = (fits_below ? a : a + 1) * p;
        }
    }
    *exponent = (int)form_of(e > 0 ? e : 1) - 46 - 1;
    for (; n % 10 == 0; n /= 10)
        ++*exponent;
    return (uint32_t)n;
}

/* digits * 10^exponent, of which no whole number comes here but those with an exponent. */
static char *print_decimal(char *p, uint32_t digits, int exponent)
{
    char text[20];
    int n = (int)(print_whole(text, digits) - text), first = exponent + n - 1;

    if (exponent > 0 || exponent < -n - (n > 1 ? 3 : 2)) { /* 1e-04 has no point */
        *p++ = text[0];
        if (n > 1)
            *p++ = '.';
        memcpy(p, text + 1, (size_t)(n - 1));
        p += n - 1;
        *p++ = 'e';
        *p++ = first < 0 ? '-' : '+';
        first = first < 0 ? -first : first;
        *p++ = (char)('0' + first / 10);
        *p++ = (char)('0' + first % 10);
        return p;
    }
    if (first < 0) {
        put(p, "0.000", 5);
        p += 1 - first;
        memcpy(p, text, (size_t)n);
        return p + n;
    }
    memcpy(p, text, (size_t)first + 1);
    p[first + 1] = '.';
    memcpy(p + first + 2, text + first + 1, (size_t)(n - first - 1));
    return p + n + 1;
}

/* Any number at all, and a comma. */
static char *print_other(char *p, uint32_t bits)
{
    uint32_t e = bits >> MANTISSA_BITS & 255, m = bits & ((1u << MANTISSA_BITS) - 1), digits;
    int exponent;

    if (e == 255)
        return put(p, "null,", 5);
    if (bits >> 31)
        *p++ = '-';
    if (e == 0 && m == 0)
        return put(p, "0,", 2);
    digits = shortest_digits(e, m, &exponent);
    if (exponent >= 0 && exponent <= (digits < 10 ? 4 : 5)) { /* not longer than with an exponent */
        uint64_t c = m | 1u << MANTISSA_BITS;
        p = print_whole(p, e < BIAS ? c >> (BIAS - e) : c << (e - BIAS)); /* with all its digits */
    } else {
        p = print_decimal(p, digits, exponent);
    }
    *p++ = ',';
    return p;
}

/* --- the common road -------------------------------------------------------------------------- */

/* x and a comma; writes up to 24 bytes. */
static inline char *print(char *p, float x)
{
    const uint64_t one = (uint64_t)1 << FRACTION;
    uint32_t bits = bits_of(x), e = bits >> MANTISSA_BITS & 255;
    uint32_t m = bits & ((1u << MANTISSA_BITS) - 1);

    if (e - 1 >= ATTN_SHORTEST_COMMON || m == 0)
        return print_other(p, bits);

    /* The scale of these exponents is exact, or misses by too little to matter: no number comes that near
     * to a decision. The test over all floats is the proof. */
    uint64_t scale = attn_shortest_scale[e], c = m | 1u << MANTISSA_BITS;
    uint64_t v = (uint64_t)((u128)scale * (c << FRACTION) >> 64), tens = v >> FRACTION;
    uint64_t part = v & (one - 1), half_step = scale >> (64 - FRACTION + 1);

    /* The sign bits say whether the multiples of ten below and above are outside; no comparison, since
     * compilers make branches of these. No end of an interval, (2c +- 1) * 2^(q-1), is a multiple
     * of 10^(k+1), as q - 1 < k + 1 <= 0: it does not matter to whom the ends belong. */
    uint64_t below_misses = half_step - part, above_misses = part + half_step - one;
    uint64_t neither = 0 - ((below_misses & above_misses) >> 63);
    tens += ~above_misses >> 63;
    /* The last digit is rounded to nearest, to even between two: + 1/2, less a hair if even. */
    uint64_t last = part * 10;
    last = (last + one / 2 - 1 + (last >> FRACTION & 1)) >> FRACTION & neither;

    uint64_t digits = eight_digits(tens);
    unsigned zeros =
        (unsigned)__builtin_ctzll(digits) & ~7u; /* bits of leading ones: two at most */
    digits >>= zeros;
    uint64_t rest = digits >> 8 | last << (56 - zeros);
    if (rest == 0)
        return print_other(p, bits);
    const attn_shortest_form *f = &attn_shortest_forms[form_of(e) - zeros / 8];
    unsigned n = 9 - (unsigned)(__builtin_clzll(rest) / 8);
    if (n <= f->point)
        return print_other(p, bits); /* a whole number */

    *p = '-';
    p += bits >> 31;
    put(p, "0.000000", 8); /* each store covers what an earlier one wrote too much */
    digits |= ZEROS;
    memcpy(p + f->digits, &digits, 8);
    p[f->point] = '.';
    rest = (rest | ZEROS) >> f->shift;
    memcpy(p + f->rest, &rest, 8);
    p += f->end + n;
    memcpy(p, f->behind, 8);
    return p + f->behind_n;
}

size_t attn_shortest_row(char *out, const float *x, size_t n)
{
    char *p = out;

    for (size_t i = 0; i < n;) {
        if (n - i >= 8 && bits_of(x[i]) == 0 &&
            are_zeros(x + i, 8)) { /* as masked keys have them */
            p = put(p, "0,0,0,0,0,0,0,0,", 16);
            i += 8;
        } else {
            p = print(p, x[i++]);
        }
    }
    return (size_t)(p - out);
}

size_t attn_f32_print_row(char *out, const float *x, size_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return attn_shortest_row_avx2(out, x, n);
#endif
    return attn_shortest_row(out, x, n);
}

size_t attn_f32_print(char out[ATTN_F32_CHARS], float x)
{
    char text[ATTN_F32_CHARS + ATTN_F32_SLACK];
    size_t n = attn_shortest_row(text, &x, 1) - 1;

    memcpy(out, text, n);
    return n;
}

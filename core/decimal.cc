#include "decimal.h"

#include <charconv>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace
{

enum { MAX_DIGITS = 19 }; /* as many always fit 64 bits */

const double power_of_ten[64] = {
    1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31,
    1e32, 1e33, 1e34, 1e35, 1e36, 1e37, 1e38, 1e39, 1e40, 1e41, 1e42, 1e43, 1e44, 1e45, 1e46, 1e47,
    1e48, 1e49, 1e50, 1e51, 1e52, 1e53, 1e54, 1e55, 1e56, 1e57, 1e58, 1e59, 1e60, 1e61, 1e62, 1e63};

inline bool is_digit(char c)
{
    return (unsigned char)(c - '0') <= 9;
}

inline bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* *out = mantissa * 10^exponent rounded to float32, where double arithmetic can decide it.
 *
 * The double d below carries three roundings (the mantissa, the power, the operation), so it is within
 * 4 units in its last place of the true value. Rounding d to float32 equals rounding the true value
 * unless a midpoint of two floats lies between them. Normal floats have 29 bits less than doubles:
 * the midpoints are the doubles whose low 29 bits are 1 and then zeros. A d farther than 8 units
 * from one is safe; the others, one in 2^25, and subnormals are left to the exact algorithm. */
inline bool round_product(uint64_t mantissa, int64_t exponent, bool negative, float *out)
{
    const uint64_t low = (1u << 29) - 1, midpoint = 1u << 28, margin = 8;
    double d = (double)mantissa;
    uint64_t bits;

    if (mantissa != 0) {
        if (exponent < -63 || exponent > 38)
            return false;
        d = exponent < 0 ? d / power_of_ten[-exponent] : d * power_of_ten[exponent];
        memcpy(&bits, &d, sizeof bits);
        if (((bits - midpoint + margin) & low) <= 2 * margin || !(d >= FLT_MIN && d <= FLT_MAX))
            return false;
    }
    *out = (float)(negative ? -d : d);
    return true;
}

/* The exact algorithm. from_chars() reports too small and too large alike; `magnitude` is the power of
 * ten of the first digit that is not 0 and tells them apart. */
bool parse_exactly(const char *text, const char *end, int64_t magnitude, float *out)
{
    float x = 0;
    std::from_chars_result r = std::from_chars(text, end, x);

    if (r.ec == std::errc::result_out_of_range) {
        if (magnitude > 0)
            return false;
        x = *text == '-' ? -0.0f : 0.0f;
    }
    *out = x;
    return std::isfinite(x);
}

struct number {
    uint64_t mantissa; /* all digits; meaningless when there are more than MAX_DIGITS */
    size_t digits;
    int64_t exponent;  /* value = mantissa * 10^exponent */
    int64_t magnitude; /* value is 0 or in [10^magnitude, 10^(magnitude+1)) */
    bool negative;
};

/* Eight characters at once: are they digits, and which number do they make (first is highest)? */
inline bool eight_digits(const char *p, uint64_t *value)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t v;

    memcpy(&v, p, sizeof v); /* little-endian: the first digit is the lowest byte */
    /* Digits are 0x30..0x39: the high half is 3, and still is after adding 6. */
    if (((v & (ones * 0xf0)) ^ (ones * 0x30)) | (((v + ones * 6) & (ones * 0xf0)) ^ (ones * 0x30)))
        return false;
    v -= ones * 0x30;
    v = (v * 10 + (v >> 8)) & 0x00ff00ff00ff00ffu;
    v = (v * 100 + (v >> 16)) & 0x0000ffff0000ffffu;
    *value = (v * 10000 + (v >> 32)) & 0xffffffffu;
    return true;
}

inline const char *read_digits(const char *p, const char *end, uint64_t *mantissa)
{
    uint64_t m = *mantissa, eight;

    while (end - p >= 8 && eight_digits(p, &eight)) {
        m = m * 100000000u + eight;
        p += 8;
    }
    while (p < end && is_digit(*p))
        m = m * 10 + (uint64_t)(*p++ - '0');
    *mantissa = m;
    return p;
}

/* Where the first digit that is not 0 stands: 10^that. -1 for zero itself, which is never needed. */
int64_t find_magnitude(const char *p, const char *point, const char *end)
{
    const char *first = p;

    while (first < end && (*first == '0' || *first == '.'))
        first++;
    return first < point ? point - first - 1 : point - first;
}

/* Reads the longest prefix that is a JSON number; NULL when there is none. */
inline const char *read_number(const char *p, const char *end, number *out)
{
    out->mantissa = 0;
    out->negative = p < end && *p == '-';
    p += out->negative;
    const char *digits = p;
    if (p < end && *p == '0')
        p++;
    else
        p = read_digits(p, end, &out->mantissa);
    const char *point = p;
    if (point == digits)
        return NULL;
    out->digits = (size_t)(point - digits);
    out->exponent = 0;
    if (p < end && *p == '.') {
        p = read_digits(point + 1, end, &out->mantissa);
        if (p == point + 1)
            return NULL;
        out->exponent = -(p - point - 1);
        out->digits += (size_t)(p - point - 1);
    }
    const char *digits_end = p;
    int64_t written = 0;
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
        out->exponent += written;
    }
    out->magnitude = 0;
    if (out->digits > MAX_DIGITS || out->exponent < -63 || out->exponent > 18)
        out->magnitude = find_magnitude(digits, point, digits_end) + written;
    return p;
}

inline bool convert(const char *text, const char *end, const number &n, float *out)
{
    if (n.digits <= MAX_DIGITS && round_product(n.mantissa, n.exponent, n.negative, out))
        return true;
    return parse_exactly(text, end, n.magnitude, out);
}

} // namespace

bool attn_f32_parse(const char *text, size_t n, float *out)
{
    number x;
    const char *end = text + n;

    return read_number(text, end, &x) == end && convert(text, end, x, out);
}

size_t attn_f32_scan(const char *text, size_t n, float *out, size_t max, size_t *used)
{
    const char *p = text, *end = text + n;
    size_t count = 0;

    while (count < max && p < end) {
        number x;
        const char *behind = read_number(p, end, &x);
        if (behind == NULL || behind == end || (*behind != ',' && *behind != ']') ||
            !convert(p, behind, x, &out[count]))
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

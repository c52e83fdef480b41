#include "base64.h"

#include <string.h>

#include "wide.h"

static const char alphabet[64] = {'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J', 'K', 'L', 'M',
                                  'N', 'O', 'P', 'Q', 'R', 'S', 'T', 'U', 'V', 'W', 'X', 'Y', 'Z',
                                  'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm',
                                  'n', 'o', 'p', 'q', 'r', 's', 't', 'u', 'v', 'w', 'x', 'y', 'z',
                                  '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '+', '/'};

/* Value of a character plus 1; 0 = not of the alphabet. */
static const unsigned char value_plus_1[256] = {
    ['A'] = 1,  ['B'] = 2,  ['C'] = 3,  ['D'] = 4,  ['E'] = 5,  ['F'] = 6,  ['G'] = 7,  ['H'] = 8,
    ['I'] = 9,  ['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16,
    ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24,
    ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32,
    ['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
    ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48,
    ['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56,
    ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['+'] = 63, ['/'] = 64};

/* The value of a character; larger than 63, and still so when OR-ed with others, when it has none. */
static uint32_t value_of(char c)
{
    return (uint32_t)value_plus_1[(unsigned char)c] - 1;
}

static attn_status fail_character(const attn_base64 *d, char c, attn_error *err)
{
    if (c > 0x20 && c < 0x7f)
        return attn_fail(err, ATTN_EFORMAT,
                         "character %zu, '%c', is not standard base64 (A-Z a-z 0-9 + /, padded "
                         "with =, without blanks)",
                         d->character, c);
    return attn_fail(err, ATTN_EFORMAT,
                     "character %zu, byte 0x%02X, is not standard base64 (A-Z a-z 0-9 + /, padded "
                     "with =, without blanks)",
                     d->character, (unsigned)(unsigned char)c);
}

static attn_status decode_padding(attn_base64 *d, unsigned char *out, size_t *written,
                                  attn_error *err)
{
    size_t place = d->character % 4;

    if (place < 2)
        return attn_fail(err, ATTN_EFORMAT, "character %zu: padding where a group begins",
                         d->character);
    d->pads++;
    d->group <<= 6;
    d->character++;
    if (place == 2)
        return ATTN_OK; /* the second '=' is due */
    if (d->group & (d->pads == 1 ? 0xffu : 0xffffu))
        return attn_fail(err, ATTN_EFORMAT, "bits are left over in the last group of four");
    out[(*written)++] = (unsigned char)(d->group >> 16);
    if (d->pads == 1)
        out[(*written)++] = (unsigned char)(d->group >> 8);
    return ATTN_OK;
}

static attn_status decode_character(attn_base64 *d, char c, unsigned char *out, size_t *written,
                                    attn_error *err)
{
    uint32_t v = value_of(c);

    if (c == '=' && d->pads < 2 && !(d->pads == 1 && d->character % 4 == 0))
        return decode_padding(d, out, written, err);
    if (d->pads > 0)
        return attn_fail(err, ATTN_EFORMAT, "character %zu stands behind the padding",
                         d->character);
    if (v > 63)
        return fail_character(d, c, err);
    d->group = d->group << 6 | v;
    if (++d->character % 4 == 0) {
        out[(*written)++] = (unsigned char)(d->group >> 16);
        out[(*written)++] = (unsigned char)(d->group >> 8);
        out[(*written)++] = (unsigned char)d->group;
        d->group = 0;
    }
    return ATTN_OK;
}

attn_status attn_base64_decode(attn_base64 *d, const char *text, size_t n, unsigned char *out,
                               size_t *written, attn_error *err)
{
    size_t i = 0;

    *written = 0;
    while (i < n) {
        if (d->character % 4 == 0 && d->pads == 0) {
            unsigned char *to = out + *written;
            size_t first = i;
#if defined(__x86_64__)
            if (attn_is_wide())
                i += attn_base64_decode_wide(value_plus_1, text + i, n - i, to);
            to += (i - first) / 4 * 3;
#endif
            for (; n - i >= 4; i += 4, to += 3) {
                uint32_t a = value_of(text[i]), b = value_of(text[i + 1]),
                         c = value_of(text[i + 2]), e = value_of(text[i + 3]);
                if ((a | b | c | e) > 63)
                    break;
                uint32_t group = a << 18 | b << 12 | c << 6 | e;
                to[0] = (unsigned char)(group >> 16);
                to[1] = (unsigned char)(group >> 8);
                to[2] = (unsigned char)group;
            }
            d->character += i - first;
            *written += (i - first) / 4 * 3;
            if (i == n)
                break;
        }
        ATTN_TRY(decode_character(d, text[i], out, written, err));
        i++;
    }
    return ATTN_OK;
}

attn_status attn_base64_finish(const attn_base64 *d, attn_error *err)
{
    if (d->character % 4 != 0)
        return attn_fail(err, ATTN_EFORMAT,
                         "%zu characters are not whole groups of four: cut, or without its padding",
                         d->character);
    return ATTN_OK;
}

void attn_base64_encode(char *out, const void *in, size_t n)
{
    const unsigned char *p = in;

    for (; n >= 3; n -= 3, p += 3, out += 4) {
        uint32_t group = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
        out[0] = alphabet[group >> 18];
        out[1] = alphabet[group >> 12 & 63];
        out[2] = alphabet[group >> 6 & 63];
        out[3] = alphabet[group & 63];
    }
    if (n > 0) {
        uint32_t group = (uint32_t)p[0] << 16 | (n == 2 ? (uint32_t)p[1] << 8 : 0);
        out[0] = alphabet[group >> 18];
        out[1] = alphabet[group >> 12 & 63];
        out[2] = n == 2 ? alphabet[group >> 6 & 63] : '=';
        out[3] = '=';
    }
}

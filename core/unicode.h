/* unicode.h: code points as tokenisers see them, and the library's only door to utf8proc.
 *
 * The classes are those of Hugging Face's `tokenizers`, whose parts know different versions of Unicode:
 * ids must not depend on which utf8proc a system has. */
#ifndef ATTN_UNICODE_H
#define ATTN_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

enum {
    ATTN_U_OTHER = 1 << 0,   /* control, format, private use: what clean_text drops, and \t \n \r */
    ATTN_U_MN = 1 << 1,      /* Mn: what BertNormalizer strips */
    ATTN_U_MARK = 1 << 2,    /* M: what StripAccents strips */
    ATTN_U_PUNCT = 1 << 3,   /* P, and all punctuation of ASCII */
    ATTN_U_WORD = 1 << 4,    /* \w */
    ATTN_U_NUMERIC = 1 << 5, /* what Digits isolates */
    ATTN_U_LETTER = 1 << 6,  /* \p{L} of split patterns */
    ATTN_U_NUMBER = 1 << 7,  /* \p{N} of split patterns */
    ATTN_U_NORM = 1 << 8,    /* some normalisation form may change it, or what is beside it */
    ATTN_U_UPPER = 1 << 9,   /* has a lower case */
    ATTN_U_GRAPHEME = 3 << 10,
    ATTN_U_EXTEND = 1 << 10, /* joins the grapheme before it */
    ATTN_U_PREPEND = 2 << 10,
    ATTN_U_CONTROL = 3 << 10, /* is one alone */
    /* Beside a sigma, for Python's str.lower(): */
    ATTN_U_CASED = 1 << 12,     /* a letter that has cases */
    ATTN_U_IGNORABLE = 1 << 13, /* nothing that ends a word */
};

#define ATTN_U_BLOCK 128

/* The tables unfolded; immutable. */
typedef struct {
    uint16_t index[0x110000 / ATTN_U_BLOCK];
    uint16_t (*block)[ATTN_U_BLOCK];
} attn_unicode;

/* ATTN_ENOMEM. */
ATTN_NODISCARD attn_status attn_unicode_init(attn_unicode *u, attn_error *err);
void attn_unicode_deinit(attn_unicode *u);
size_t attn_unicode_bytes(const attn_unicode *u);

static inline unsigned attn_unicode_class(const attn_unicode *u, uint32_t c)
{
    return u->block[u->index[c / ATTN_U_BLOCK]][c % ATTN_U_BLOCK];
}

/* White_Space. */
static inline bool attn_unicode_space(uint32_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* --- UTF-8 ---------------------------------------------------------------------------------- */

#define ATTN_UTF8_MAX 4

/* True when the n bytes are UTF-8 as RFC 3629 has it. */
bool attn_utf8_valid(const char *s, size_t n);

/* The code point at s, of valid UTF-8; *n = its bytes. */
static inline uint32_t attn_utf8_get(const char *s, size_t *n)
{
    const unsigned char *b = (const unsigned char *)s;
    if (b[0] < 0x80) {
        *n = 1;
        return b[0];
    }
    if (b[0] < 0xe0) {
        *n = 2;
        return (b[0] & 0x1fu) << 6 | (b[1] & 0x3fu);
    }
    if (b[0] < 0xf0) {
        *n = 3;
        return (b[0] & 0x0fu) << 12 | (b[1] & 0x3fu) << 6 | (b[2] & 0x3fu);
    }
    *n = 4;
    return (b[0] & 0x07u) << 18 | (b[1] & 0x3fu) << 12 | (b[2] & 0x3fu) << 6 | (b[3] & 0x3fu);
}

/* The bytes of a character by its first. */
static inline size_t attn_utf8_length(char first)
{
    unsigned char b = (unsigned char)first;
    return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

/* Where the character that ends before s + at starts; at > 0. */
static inline size_t attn_utf8_before(const char *s, size_t at)
{
    do
        at--;
    while (((unsigned char)s[at] & 0xc0) == 0x80);
    return at;
}

/* Writes a code point to out, at most ATTN_UTF8_MAX bytes; returns how many. */
static inline size_t attn_utf8_put(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* --- mappings ------------------------------------------------------------------------------- */

/* The lower case without context: no final sigma. U+0130 alone has two; *second is then the other one,
 * else 0. */
uint32_t attn_unicode_lower(const attn_unicode *u, uint32_t c, uint32_t *second);

/* n bytes of UTF-8 as Python's str.lower() changes them, the final sigma as well; `out` has room for
 * ATTN_LOWER_BYTES(n), and may not be s. Returns how many bytes there are. */
#define ATTN_LOWER_BYTES(n) ((n) + (n) / 2)
size_t attn_unicode_lower_text(const attn_unicode *u, const char *s, size_t n, char *out);

#define ATTN_U_DECOMPOSED 18 /* U+FDFA has the longest compatibility decomposition */

/* Writes the full decomposition of c, by itself if it has none. Returns how many. */
size_t attn_unicode_decompose(const attn_unicode *u, uint32_t c, bool compatibility,
                              uint32_t out[ATTN_U_DECOMPOSED]);

unsigned attn_unicode_combining(const attn_unicode *u,
                                uint32_t c); /* canonical class, 0 = starter */

/* The primary composite of two code points, 0 = there is none. */
uint32_t attn_unicode_compose(const attn_unicode *u, uint32_t a, uint32_t b);

/* Puts runs of marks into canonical order, in linear time; `room` is for n code points. */
void attn_unicode_order(const attn_unicode *u, uint32_t *c, size_t n, uint32_t *room);

#endif

/* The patterns that byte-level BPE is trained with, scanned by hand. GPT-2's:
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * and the later one of cl100k, with 1 or up to 3 digits:
 *
 *     (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
 *     \s*[\r\n]+|\s+(?!\S)|\s+ */
#include "core/token_private.h"

typedef enum { LETTER, NUMBER, SPACE, REST } kind;

static kind kind_at(const attn_unicode *u, const char *s, size_t *bytes)
{
    unsigned char b = (unsigned char)s[0];

    *bytes = 1;
    if ((b | 0x20) >= 'a' && (b | 0x20) <= 'z')
        return LETTER;
    uint32_t c = attn_utf8_get(s, bytes);
    unsigned class = attn_unicode_class(u, c);
    if (class & ATTN_U_LETTER)
        return LETTER;
    if (class & ATTN_U_NUMBER)
        return NUMBER;
    return attn_unicode_space(c) ? SPACE : REST;
}

/* Where the stretch of one kind ends that goes on at s + at; `most` characters at most. */
static size_t stretch(const attn_unicode *u, kind k, const char *s, size_t n, size_t at,
                      size_t most)
{
    size_t bytes;

    for (; at < n && most > 0 && kind_at(u, s + at, &bytes) == k; most--)
        at += bytes;
    return at;
}

/* Length of 's, 'll and so on at s, 0 = there is none. */
static size_t contraction(const char *s, size_t n, bool any_case)
{
    if (n < 2 || s[0] != '\'')
        return 0;
    char a = s[1], b = n > 2 ? s[2] : 0;
    if (any_case) {
        if (n > 2 && (unsigned char)a == 0xc5 && (unsigned char)b == 0xbf)
            return 3; /* the long s, whose capital is S */
        a = a >= 'A' && a <= 'Z' ? (char)(a + ('a' - 'A')) : a;
        b = b >= 'A' && b <= 'Z' ? (char)(b + ('a' - 'A')) : b;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if ((b == 'e' && (a == 'r' || a == 'v')) || (a == 'l' && b == 'l'))
        return 3;
    return 0;
}

/* \s+(?!\S)|\s+ */
static size_t spaces(const attn_unicode *u, const char *s, size_t n)
{
    size_t end = stretch(u, SPACE, s, n, 0, SIZE_MAX);
    size_t last = attn_utf8_before(s, end);

    return end == n || last == 0 ? end : last;
}

static size_t gpt2(const attn_unicode *u, const char *s, size_t n)
{
    size_t bytes, at = contraction(s, n, false);

    if (at != 0)
        return at;
    at = s[0] == ' ' && n > 1 ? 1 : 0;
    kind k = kind_at(u, s + at, &bytes);
    if (k == SPACE)
        return spaces(u, s, n);
    return stretch(u, k, s, n, at + bytes, SIZE_MAX);
}

/* \s*[\r\n]+: up to the last line break of the stretch; 0 = there is none. */
static size_t line_breaks(const attn_unicode *u, const char *s, size_t n)
{
    size_t end = stretch(u, SPACE, s, n, 0, SIZE_MAX);

    while (end > 0 && s[end - 1] != '\r' && s[end - 1] != '\n')
        end--;
    return end;
}

static size_t cl100k(const attn_unicode *u, unsigned digits, const char *s, size_t n)
{
    size_t bytes, next = 0, at = contraction(s, n, true);

    if (at != 0)
        return at;
    kind k = kind_at(u, s, &bytes), second = SPACE;
    if (bytes < n)
        second = kind_at(u, s + bytes, &next);
    if (k == LETTER)
        return stretch(u, LETTER, s, n, bytes, SIZE_MAX);
    if (k == NUMBER)
        return stretch(u, NUMBER, s, n, bytes, digits - 1);
    if (second == LETTER && bytes < n && s[0] != '\r' && s[0] != '\n')
        return stretch(u, LETTER, s, n, bytes, SIZE_MAX);
    if (k == REST || (s[0] == ' ' && second == REST)) {
        at = stretch(u, REST, s, n, bytes, SIZE_MAX);
        while (at < n && (s[at] == '\r' || s[at] == '\n'))
            at++;
        return at;
    }
    at = line_breaks(u, s, n);
    return at != 0 ? at : spaces(u, s, n);
}

size_t attn_words_next(const attn_unicode *u, unsigned digits, const char *s, size_t n)
{
    return digits == 0 ? gpt2(u, s, n) : cl100k(u, digits, s, n);
}

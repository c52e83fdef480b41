/* The charsmap of SentencePiece: a double array of prefixes, and the strings that they become. */
#include "core/token_private.h"

#include <stdlib.h>
#include <string.h>

#include "core/base64.h"

/* --- graphemes ------------------------------------------------------------------------------ */

typedef enum { OTHER, LEAD, VOWEL, FINAL, OPEN_SYLLABLE, CLOSED_SYLLABLE, REGION } letters;

/* What joins by itself. Pictographs and conjuncts of Indic scripts are left out: what they join has six
 * bytes and more, which is mapped by single characters anyway. */
static letters letters_of(uint32_t c)
{
    if ((c >= 0x1100 && c <= 0x115f) || (c >= 0xa960 && c <= 0xa97c))
        return LEAD;
    if ((c >= 0x1160 && c <= 0x11a7) || (c >= 0xd7b0 && c <= 0xd7c6))
        return VOWEL;
    if ((c >= 0x11a8 && c <= 0x11ff) || (c >= 0xd7cb && c <= 0xd7fb))
        return FINAL;
    if (c >= 0xac00 && c <= 0xd7a3)
        return (c - 0xac00) % 28 == 0 ? OPEN_SYLLABLE : CLOSED_SYLLABLE;
    return c >= 0x1f1e6 && c <= 0x1f1ff ? REGION : OTHER;
}

static bool joins(letters a, letters b)
{
    switch (a) {
    case LEAD:
        return b == LEAD || b == VOWEL || b == OPEN_SYLLABLE || b == CLOSED_SYLLABLE;
    case VOWEL:
    case OPEN_SYLLABLE:
        return b == VOWEL || b == FINAL;
    case FINAL:
    case CLOSED_SYLLABLE:
        return b == FINAL;
    default:
        return false;
    }
}

/* Bytes of the grapheme at s, n > 0. */
static size_t grapheme(const attn_unicode *u, const char *s, size_t n)
{
    size_t bytes, regions;
    uint32_t c = attn_utf8_get(s, &bytes);
    unsigned class = attn_unicode_class(u, c) & ATTN_U_GRAPHEME;
    size_t end = bytes;

    regions = letters_of(c) == REGION;
    while (end < n) {
        uint32_t next = attn_utf8_get(s + end, &bytes);
        unsigned next_class = attn_unicode_class(u, next) & ATTN_U_GRAPHEME;
        bool join = joins(letters_of(c), letters_of(next)) || next_class == ATTN_U_EXTEND ||
                    (class == ATTN_U_PREPEND && next_class != ATTN_U_CONTROL);
        if (class == ATTN_U_CONTROL)
            join = c == '\r' && next == '\n';
        if (letters_of(next) == REGION && regions % 2 == 1)
            join = true;
        if (!join)
            break;
        regions = letters_of(next) == REGION ? regions + 1 : 0;
        c = next;
        class = next_class;
        end += bytes;
    }
    return end;
}

/* --- mapping -------------------------------------------------------------------------------- */

/* What the shortest prefix of s[0..n) in the map becomes; NULL = there is none. */
static const char *transform(const attn_normal *m, const char *s, size_t n)
{
    size_t node = 0;
    uint32_t unit = m->units[0];

    node ^= (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
    for (size_t i = 0; i < n && s[i] != 0; i++) {
        unsigned char byte = (unsigned char)s[i];
        node ^= byte;
        if (node >= m->unit_count)
            return NULL;
        unit = m->units[node];
        if ((unit & (1u << 31 | 0xff)) != byte)
            return NULL;
        node ^= (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
        if (unit & 1u << 8) {
            if (node >= m->unit_count)
                return NULL;
            size_t at = m->units[node] & ~(1u << 31);
            /* One that points into a character would make text that is not UTF-8. */
            return at < m->strings_n && ((unsigned char)m->strings[at] & 0xc0) != 0x80
                       ? m->strings + at
                       : NULL;
        }
    }
    return NULL;
}

static attn_status put(attn_token_scratch *w, attn_text *out, const char *s, size_t n,
                       attn_error *err)
{
    ATTN_TRY(attn_text_need(w, out, n, err));
    memcpy(out->p + out->n, s, n);
    out->n += n;
    return ATTN_OK;
}

attn_status attn_normal_charsmap(const attn_tokenizer *t, attn_token_scratch *w,
                                 const attn_normal *step, const char *s, size_t n, attn_text *out,
                                 attn_error *err)
{
    enum { WHOLE = 6 }; /* shorter graphemes are looked up as one */
    size_t length, bytes;

    for (size_t i = 0; i < n; i += length) {
        length = grapheme(&t->unicode, s + i, n - i);
        const char *to = length < WHOLE ? transform(step, s + i, length) : NULL;
        if (to != NULL) {
            ATTN_TRY(put(w, out, to, strlen(to), err));
            continue;
        }
        for (size_t k = 0; k < length; k += bytes) {
            bytes = attn_utf8_length(s[i + k]);
            to = transform(step, s + i + k, bytes);
            ATTN_TRY(
                put(w, out, to != NULL ? to : s + i + k, to != NULL ? strlen(to) : bytes, err));
        }
    }
    return ATTN_OK;
}

/* --- loading -------------------------------------------------------------------------------- */

static uint32_t little(const unsigned char *b)
{
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static attn_status unpack(attn_normal *step, const unsigned char *blob, size_t n, const char *what,
                          attn_error *err)
{
    size_t units = n < 4 ? 0 : little(blob) / 4;

    if (units == 0 || units > (n - 4) / 4)
        return attn_fail(err, ATTN_EFORMAT, "%s: precompiled_charsmap ends within its table", what);
    const unsigned char *strings = blob + 4 + 4 * units;
    size_t left = n - 4 - 4 * units;
    if (!attn_utf8_valid((const char *)strings, left))
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: precompiled_charsmap has a string that is not UTF-8", what);
    step->units = malloc(units * sizeof *step->units);
    step->strings = malloc(left + 1);
    if (step->units == NULL || step->strings == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: no memory for precompiled_charsmap", what);
    for (size_t i = 0; i < units; i++)
        step->units[i] = little(blob + 4 + 4 * i);
    step->unit_count = units;
    memcpy(step->strings, strings, left);
    step->strings[left] = 0;
    step->strings_n = left;
    return ATTN_OK;
}

attn_status attn_charsmap_read(attn_normal *step, const char *text, const char *what,
                               attn_error *err)
{
    attn_base64 d = {0};
    attn_error bad = {0};
    size_t n = 0, length = strlen(text);
    unsigned char *blob = malloc(ATTN_BASE64_DECODED(length));

    if (blob == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: no memory for precompiled_charsmap", what);
    attn_status rc = attn_base64_decode(&d, text, length, blob, &n, &bad);
    if (rc == ATTN_OK)
        rc = attn_base64_finish(&d, &bad);
    if (rc != ATTN_OK)
        (void)attn_fail(err, rc, "%s: precompiled_charsmap: %s", what, bad.text);
    else
        rc = unpack(step, blob, n, what, err);
    free(blob);
    return rc;
}

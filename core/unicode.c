#include "core/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/unicode_tables.h"

/* --- classes -------------------------------------------------------------------------------- */

/* Keeps the block, or an equal one that is there. */
static size_t keep_block(attn_unicode *u, size_t blocks)
{
    for (size_t i = blocks; i-- > 0;) {
        if (memcmp(u->block[i], u->block[blocks], sizeof u->block[0]) == 0)
            return i;
    }
    return blocks;
}

attn_status attn_unicode_init(attn_unicode *u, attn_error *err)
{
    enum { LAST = 0x110000 / ATTN_U_BLOCK };
    size_t blocks = 0, room = 0, at = 0;
    uint32_t left = attn_unicode_runs[0] >> ATTN_U_BITS;

    memset(u, 0, sizeof *u);
    for (size_t b = 0; b < LAST; b++) {
        if (blocks == room) {
            size_t more = room == 0 ? 512 : room * 2;
            void *block = realloc(u->block, more * sizeof u->block[0]);
            if (block == NULL) {
                attn_unicode_deinit(u);
                return attn_fail(err, ATTN_ENOMEM, "no memory for tables of characters");
            }
            u->block = block;
            room = more;
        }
        for (size_t i = 0; i < ATTN_U_BLOCK; i++) {
            for (; left == 0; left = attn_unicode_runs[at] >> ATTN_U_BITS)
                at++;
            u->block[blocks][i] = attn_unicode_runs[at] & ((1u << ATTN_U_BITS) - 1);
            left--;
        }
        size_t place = keep_block(u, blocks);
        u->index[b] = (uint16_t)place;
        blocks += place == blocks;
    }
    return ATTN_OK;
}

void attn_unicode_deinit(attn_unicode *u)
{
    free(u->block);
    u->block = NULL;
}

size_t attn_unicode_bytes(const attn_unicode *u)
{
    size_t last = 0;
    for (size_t i = 0; i < sizeof u->index / sizeof u->index[0]; i++)
        last = u->index[i] > last ? u->index[i] : last;
    return sizeof *u + (last + 1) * sizeof u->block[0];
}

/* --- UTF-8 ---------------------------------------------------------------------------------- */

bool attn_utf8_valid(const char *s, size_t n)
{
    const unsigned char *b = (const unsigned char *)s;
    size_t i = 0;

    while (i < n) {
        uint64_t eight;
        if (n - i >= sizeof eight) {
            memcpy(&eight, b + i, sizeof eight);
            if ((eight & UINT64_C(0x8080808080808080)) == 0) {
                i += sizeof eight;
                continue;
            }
        }
        unsigned char c = b[i++], low = 0x80, high = 0xbf;
        if (c < 0x80)
            continue;
        if (c < 0xc2 || c > 0xf4)
            return false;
        if (c == 0xe0)
            low = 0xa0; /* shorter forms exist */
        else if (c == 0xed)
            high = 0x9f; /* surrogates */
        else if (c == 0xf0)
            low = 0x90;
        else if (c == 0xf4)
            high = 0x8f;
        for (size_t rest = attn_utf8_length((char)c) - 1; rest > 0;
             rest--, low = 0x80, high = 0xbf) {
            if (i == n || b[i] < low || b[i] > high)
                return false;
            i++;
        }
    }
    return true;
}

/* --- mappings ------------------------------------------------------------------------------- */

uint32_t attn_unicode_lower(const attn_unicode *u, uint32_t c, uint32_t *second)
{
    *second = 0;
    if ((attn_unicode_class(u, c) & ATTN_U_UPPER) == 0)
        return c;
    if (c == 0x130) {
        *second = 0x307;
        return 'i';
    }
    size_t low = 0, high = attn_lower_run_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (attn_lower_runs[middle].first <= c)
            low = middle;
        else
            high = middle;
    }
    /* Runs of every other code point may hold one of another distance in between. */
    for (;; low--) {
        const attn_lower_run *r = &attn_lower_runs[low];
        uint32_t off = c - r->first;
        if (off % r->step == 0 && off / r->step < r->count)
            return (uint32_t)((int32_t)c + r->delta);
        if (low == 0)
            return c;
    }
}

/* Is the first character beside a sigma that counts a letter of two cases? */
static bool is_cased(const attn_unicode *u, uint32_t c, bool *goes_on)
{
    unsigned class = attn_unicode_class(u, c);

    *goes_on = (class & ATTN_U_IGNORABLE) != 0;
    return (class & ATTN_U_CASED) != 0;
}

/* The sigma at s[at] ends a word. Sigmas are cased: what lies between two of them is looked at twice at most. */
static bool is_final(const attn_unicode *u, const char *s, size_t n, size_t at)
{
    size_t bytes, before = at, behind = at + 2;
    bool goes_on = true, cased = false;

    while (goes_on && before > 0) {
        before = attn_utf8_before(s, before);
        cased = is_cased(u, attn_utf8_get(s + before, &bytes), &goes_on);
    }
    if (!cased)
        return false;
    cased = false;
    for (goes_on = true; goes_on && behind < n; behind += bytes)
        cased = is_cased(u, attn_utf8_get(s + behind, &bytes), &goes_on);
    return !cased;
}

size_t attn_unicode_lower_text(const attn_unicode *u, const char *s, size_t n, char *out)
{
    enum { CAPITAL_SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2 };
    size_t used = 0;

    for (size_t i = 0, bytes; i < n; i += bytes) {
        uint32_t second, c = attn_utf8_get(s + i, &bytes), low = attn_unicode_lower(u, c, &second);
        if (c == CAPITAL_SIGMA && is_final(u, s, n, i))
            low = FINAL_SIGMA;
        used += attn_utf8_put(out + used, low);
        if (second != 0)
            used += attn_utf8_put(out + used, second);
    }
    return used;
}

size_t attn_unicode_decompose(const attn_unicode *u, uint32_t c, bool compatibility,
                              uint32_t out[ATTN_U_DECOMPOSED])
{
    utf8proc_int32_t to[ATTN_U_DECOMPOSED];
    utf8proc_ssize_t n = 0;

    if (attn_unicode_class(u, c) & ATTN_U_NORM) {
        int form = UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0);
        n = utf8proc_decompose_char((utf8proc_int32_t)c, to, ATTN_U_DECOMPOSED,
                                    (utf8proc_option_t)form, NULL);
    }
    if (n < 1 || n > ATTN_U_DECOMPOSED) {
        out[0] = c;
        return 1;
    }
    for (utf8proc_ssize_t i = 0; i < n; i++)
        out[i] = (uint32_t)to[i];
    return (size_t)n;
}

unsigned attn_unicode_combining(const attn_unicode *u, uint32_t c)
{
    if ((attn_unicode_class(u, c) & ATTN_U_NORM) == 0)
        return 0;
    return (unsigned)utf8proc_get_property((utf8proc_int32_t)c)->combining_class;
}

uint32_t attn_unicode_compose(const attn_unicode *u, uint32_t a, uint32_t b)
{
    if ((attn_unicode_class(u, b) & ATTN_U_NORM) == 0)
        return 0;
    if (b == 0x11a7) /* one before the first final, which utf8proc 2.8 takes for one */
        return 0;
    utf8proc_int32_t pair[3] = {(utf8proc_int32_t)a, (utf8proc_int32_t)b, 0};
    utf8proc_option_t form = UTF8PROC_COMPOSE | UTF8PROC_STABLE;
    if (utf8proc_normalize_utf32(pair, 2, form) != 1)
        return 0;
    return attn_unicode_class(u, (uint32_t)pair[0]) & ATTN_U_NORM ? (uint32_t)pair[0] : 0;
}

void attn_unicode_order(const attn_unicode *u, uint32_t *c, size_t n, uint32_t *room)
{
    enum { SHORT = 16 };

    for (size_t start = 0, end; start < n; start = end + 1) {
        for (end = start; end < n && attn_unicode_combining(u, c[end]) != 0;)
            end++;
        if (end - start <= SHORT) {
            for (size_t i = start + 1; i < end; i++) {
                uint32_t moved = c[i];
                unsigned class = attn_unicode_combining(u, moved);
                size_t j = i;
                for (; j > start && attn_unicode_combining(u, c[j - 1]) > class; j--)
                    c[j] = c[j - 1];
                c[j] = moved;
            }
            continue;
        }
        size_t first[257] = {0}; /* where each class begins */
        for (size_t i = start; i < end; i++)
            first[attn_unicode_combining(u, c[i]) + 1]++;
        for (size_t i = 1; i < 257; i++)
            first[i] += first[i - 1];
        for (size_t i = start; i < end; i++)
            room[first[attn_unicode_combining(u, c[i])]++] = c[i];
        memcpy(c + start, room, (end - start) * sizeof *c);
    }
}

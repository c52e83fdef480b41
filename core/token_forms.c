/* Unicode's normalisation forms, and BERT's normaliser. */
#include "core/token_private.h"

/* --- forms ---------------------------------------------------------------------------------- */

/* Nothing that stands beside it changes such a character, nor is it changed. */
static bool inert(const attn_tokenizer *t, uint32_t c)
{
    return c < 0x80 || (attn_unicode_class(&t->unicode, c) & ATTN_U_NORM) == 0;
}

/* Composes in place; returns how many are left. */
static size_t compose(const attn_unicode *u, uint32_t *c, size_t n)
{
    size_t kept = 0, starter = 0;
    bool open = false;   /* there is a starter */
    unsigned before = 0; /* class of the last one kept behind the starter */

    for (size_t i = 0; i < n; i++) {
        unsigned class = attn_unicode_combining(u, c[i]);
        if (open && (kept == starter + 1 || (before != 0 && before < class))) {
            uint32_t whole = attn_unicode_compose(u, c[starter], c[i]);
            if (whole != 0) {
                c[starter] = whole;
                continue;
            }
        }
        if (class == 0) {
            starter = kept;
            open = true;
        }
        before = class;
        c[kept++] = c[i];
    }
    return kept;
}

/* Decomposes, orders and composes s[0..n). */
static attn_status stretch(const attn_tokenizer *t, attn_token_scratch *w, const attn_normal *step,
                           const char *s, size_t n, attn_text *out, attn_error *err)
{
    size_t count = 0, bytes;

    for (size_t i = 0; i < n; i += bytes) {
        uint32_t c = attn_utf8_get(s + i, &bytes);
        ATTN_TRY(attn_room_need(w, &w->points[0], count + ATTN_U_DECOMPOSED, sizeof c, err));
        count += attn_unicode_decompose(&t->unicode, c, step->compatibility,
                                        (uint32_t *)w->points[0].p + count);
    }
    ATTN_TRY(attn_room_need(w, &w->points[1], count, sizeof(uint32_t), err));
    uint32_t *points = w->points[0].p;
    attn_unicode_order(&t->unicode, points, count, w->points[1].p);
    if (step->compose)
        count = compose(&t->unicode, points, count);
    ATTN_TRY(attn_text_need(w, out, count * ATTN_UTF8_MAX, err));
    for (size_t i = 0; i < count; i++)
        out->n += attn_utf8_put(out->p + out->n, points[i]);
    return ATTN_OK;
}

/* Only stretches that a form may change are taken apart: characters that are not inert, with the one
 * before them, which they may compose with. */
attn_status attn_normal_form(const attn_tokenizer *t, attn_token_scratch *w,
                             const attn_normal *step, const char *s, size_t n, attn_text *out,
                             attn_error *err)
{
    size_t last = n, bytes; /* where the character before s[i] starts, n = it is written for good */

    for (size_t i = 0; i < n; i += bytes) {
        if (inert(t, attn_utf8_get(s + i, &bytes))) {
            ATTN_TRY(attn_text_need(w, out, ATTN_TEXT_SLACK, err));
            for (size_t k = 0; k < bytes; k++)
                out->p[out->n++] = s[i + k];
            last = i;
            continue;
        }
        size_t start = i;
        if (last != n) {
            out->n -= i - last;
            start = last;
        }
        while (i < n && !inert(t, attn_utf8_get(s + i, &bytes)))
            i += bytes;
        ATTN_TRY(stretch(t, w, step, s + start, i - start, out, err));
        last = n;
        bytes = 0;
    }
    return ATTN_OK;
}

/* --- BERT ----------------------------------------------------------------------------------- */

static bool chinese(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b81f) ||
           (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) ||
           (c >= 0x2f800 && c <= 0x2fa1f);
}

typedef struct {
    const attn_tokenizer *t;
    attn_token_scratch *w;
    const attn_normal *step;
    attn_text *out;
    size_t marks; /* in points[0]: they wait for a starter, to be put in order */
} bert;

static void put(bert *b, uint32_t c)
{
    uint32_t second = 0;
    if (b->step->lower)
        c = attn_unicode_lower(&b->t->unicode, c, &second);
    b->out->n += attn_utf8_put(b->out->p + b->out->n, c);
    if (second != 0)
        b->out->n += attn_utf8_put(b->out->p + b->out->n, second);
}

static attn_status put_marks(bert *b, attn_error *err)
{
    ATTN_TRY(attn_room_need(b->w, &b->w->points[1], b->marks, sizeof(uint32_t), err));
    uint32_t *mark = b->w->points[0].p;
    attn_unicode_order(&b->t->unicode, mark, b->marks, b->w->points[1].p);
    ATTN_TRY(attn_text_need(b->w, b->out, b->marks * 2 * ATTN_UTF8_MAX + ATTN_TEXT_SLACK, err));
    for (size_t i = 0; i < b->marks; i++)
        put(b, mark[i]);
    b->marks = 0;
    return ATTN_OK;
}

/* The character without its accents. Some marks stay: they are not Mn. */
static attn_status put_bare(bert *b, uint32_t c, attn_error *err)
{
    const attn_unicode *u = &b->t->unicode;
    uint32_t part[ATTN_U_DECOMPOSED];
    size_t parts = attn_unicode_decompose(u, c, false, part);

    for (size_t i = 0; i < parts; i++) {
        if (attn_unicode_class(u, part[i]) & ATTN_U_MN)
            continue;
        if (attn_unicode_combining(u, part[i]) != 0) {
            ATTN_TRY(attn_room_need(b->w, &b->w->points[0], b->marks + 1, sizeof(uint32_t), err));
            ((uint32_t *)b->w->points[0].p)[b->marks++] = part[i];
            continue;
        }
        if (b->marks > 0)
            ATTN_TRY(put_marks(b, err));
        put(b, part[i]);
    }
    return ATTN_OK;
}

static attn_status bert_character(bert *b, uint32_t c, attn_error *err)
{
    const attn_normal *step = b->step;
    bool space = attn_unicode_space(c);

    if (step->clean) {
        if ((attn_unicode_class(&b->t->unicode, c) & ATTN_U_OTHER) &&
            !(c == '\t' || c == '\n' || c == '\r'))
            return ATTN_OK;
        if (space)
            c = ' ';
    }
    bool apart = step->chinese && chinese(c);
    if (apart && b->marks > 0)
        ATTN_TRY(put_marks(b, err));
    if (apart)
        b->out->p[b->out->n++] = ' ';
    if (step->accents)
        ATTN_TRY(put_bare(b, c, err));
    else
        put(b, c);
    if (apart)
        b->out->p[b->out->n++] = ' ';
    return ATTN_OK;
}

/* What each character of ASCII becomes, 0 = nothing. */
static void ascii_table(const attn_normal *step, char table[128])
{
    for (int c = 0; c < 128; c++) {
        bool space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
        char to = (char)c;
        if (step->clean && (c < ' ' || c == 0x7f || space))
            to = space ? ' ' : 0;
        if (step->lower && c >= 'A' && c <= 'Z')
            to = (char)(c + ('a' - 'A'));
        table[c] = to;
    }
}

attn_status attn_normal_bert(const attn_tokenizer *t, attn_token_scratch *w,
                             const attn_normal *step, const char *s, size_t n, attn_text *out,
                             attn_error *err)
{
    bert b = {.t = t, .w = w, .step = step, .out = out};
    char table[128];
    size_t bytes;

    ascii_table(step, table);
    for (size_t i = 0; i < n; i += bytes) {
        unsigned char first = (unsigned char)s[i];
        ATTN_TRY(attn_text_need(w, out, ATTN_TEXT_SLACK, err));
        if (first < 0x80 && b.marks == 0) {
            bytes = 1;
            out->p[out->n] = table[first];
            out->n += table[first] != 0 || (first == 0 && !step->clean);
            continue;
        }
        ATTN_TRY(bert_character(&b, attn_utf8_get(s + i, &bytes), err));
    }
    return put_marks(&b, err);
}

/* The steps of a normaliser, one after the other. token_forms.c and token_charsmap.c have the larger ones. */
#include "core/token_private.h"

#include <stdlib.h>
#include <string.h>

/* --- patterns ------------------------------------------------------------------------------- */

static bool fits(const attn_pattern *p, uint32_t c)
{
    return p->any_space ? attn_unicode_space(c) : c == ' ';
}

bool attn_pattern_find(const attn_pattern *p, const char *s, size_t n, size_t at, size_t *start,
                       size_t *end)
{
    if (p->literal != NULL) {
        const char *found = at < n ? memmem(s + at, n - at, p->literal, p->n) : NULL;
        if (found == NULL)
            return false;
        *start = (size_t)(found - s);
        *end = *start + p->n;
        return true;
    }
    while (at < n) {
        size_t bytes, characters = 0, from = at;
        while (at < n && fits(p, attn_utf8_get(s + at, &bytes))) {
            at += bytes;
            characters++;
        }
        if (characters >= p->n) {
            *start = from;
            *end = at;
            return true;
        }
        if (at < n)
            at += attn_utf8_length(s[at]);
    }
    return false;
}

/* --- steps ---------------------------------------------------------------------------------- */

static attn_status append(attn_token_scratch *w, attn_text *out, const char *s, size_t n,
                          attn_error *err)
{
    ATTN_TRY(attn_text_need(w, out, n, err));
    if (n > 0)
        memcpy(out->p + out->n, s, n);
    out->n += n;
    return ATTN_OK;
}

static attn_status lower(const attn_tokenizer *t, attn_token_scratch *w, const char *s, size_t n,
                         attn_text *out, attn_error *err)
{
    for (size_t i = 0, bytes; i < n; i += bytes) {
        uint32_t second, c = attn_unicode_lower(&t->unicode, attn_utf8_get(s + i, &bytes), &second);
        ATTN_TRY(attn_text_need(w, out, ATTN_TEXT_SLACK, err));
        out->n += attn_utf8_put(out->p + out->n, c);
        if (second != 0)
            out->n += attn_utf8_put(out->p + out->n, second);
    }
    return ATTN_OK;
}

static attn_status accents(const attn_tokenizer *t, attn_token_scratch *w, const char *s, size_t n,
                           attn_text *out, attn_error *err)
{
    for (size_t i = 0, bytes; i < n; i += bytes) {
        uint32_t c = attn_utf8_get(s + i, &bytes);
        if ((attn_unicode_class(&t->unicode, c) & ATTN_U_MARK) == 0)
            ATTN_TRY(append(w, out, s + i, bytes, err));
    }
    return ATTN_OK;
}

static void strip(const attn_normal *step, const char **s, size_t *n)
{
    size_t bytes, last;

    while (step->left && *n > 0 && attn_unicode_space(attn_utf8_get(*s, &bytes))) {
        *s += bytes;
        *n -= bytes;
    }
    while (step->right && *n > 0) {
        last = attn_utf8_before(*s, *n);
        if (!attn_unicode_space(attn_utf8_get(*s + last, &bytes)))
            break;
        *n = last;
    }
}

static attn_status replace(attn_token_scratch *w, const attn_normal *step, const char *s, size_t n,
                           attn_text *out, attn_error *err)
{
    size_t content = strlen(step->content), at = 0, start, end;

    for (; attn_pattern_find(&step->pattern, s, n, at, &start, &end); at = end) {
        ATTN_TRY(append(w, out, s + at, start - at, err));
        ATTN_TRY(append(w, out, step->content, content, err));
    }
    return append(w, out, s + at, n - at, err);
}

static attn_status run(const attn_tokenizer *t, attn_token_scratch *w, const attn_normal *step,
                       const char *s, size_t n, attn_text *out, attn_error *err)
{
    switch (step->kind) {
    case ATTN_NORMAL_BERT:
        return attn_normal_bert(t, w, step, s, n, out, err);
    case ATTN_NORMAL_FORM:
        return attn_normal_form(t, w, step, s, n, out, err);
    case ATTN_NORMAL_LOWER:
        return lower(t, w, s, n, out, err);
    case ATTN_NORMAL_ACCENTS:
        return accents(t, w, s, n, out, err);
    case ATTN_NORMAL_REPLACE:
        return replace(w, step, s, n, out, err);
    case ATTN_NORMAL_PREPEND:
        ATTN_TRY(append(w, out, step->content, n > 0 ? strlen(step->content) : 0, err));
        return append(w, out, s, n, err);
    case ATTN_NORMAL_CHARSMAP:
        return attn_normal_charsmap(t, w, step, s, n, out, err);
    case ATTN_NORMAL_STRIP:
        break;
    }
    return append(w, out, s, n, err);
}

static bool ascii(const char *s, size_t n)
{
    size_t i = 0;
    uint64_t eight;

    for (; n - i >= sizeof eight; i += sizeof eight) {
        memcpy(&eight, s + i, sizeof eight);
        if (eight & UINT64_C(0x8080808080808080))
            return false;
    }
    for (; i < n; i++) {
        if ((unsigned char)s[i] >= 0x80)
            return false;
    }
    return true;
}

/* Whether the step drops the beginning. Of a charsmap `tokenizers` does not notice that. */
static bool drops_start(const attn_tokenizer *t, const attn_normal *step, const char *s, size_t n)
{
    size_t bytes;
    uint32_t c = n > 0 ? attn_utf8_get(s, &bytes) : 0;

    if (step->kind == ATTN_NORMAL_STRIP)
        return step->left && attn_unicode_space(c);
    return step->kind == ATTN_NORMAL_ACCENTS && (attn_unicode_class(&t->unicode, c) & ATTN_U_MARK);
}

attn_status attn_normalize(const attn_tokenizer *t, attn_token_scratch *w, const char *s, size_t n,
                           const char **out, size_t *out_n, bool *starts, attn_error *err)
{
    size_t turn = 0;

    *starts = true;
    for (size_t i = 0; i < t->normals; i++) {
        const attn_normal *step = &t->normal[i];
        *starts = *starts && !drops_start(t, step, s, n);
        if (step->kind == ATTN_NORMAL_STRIP) {
            strip(step, &s, &n);
            continue;
        }
        if ((step->kind == ATTN_NORMAL_FORM || step->kind == ATTN_NORMAL_ACCENTS) && ascii(s, n))
            continue;
        attn_text *text = &w->normal[turn];
        text->n = 0;
        ATTN_TRY(attn_text_need(w, text, n, err));
        ATTN_TRY(run(t, w, step, s, n, text, err));
        if (text->n > ATTN_TOKEN_TEXT)
            return attn_fail(err, ATTN_ETOOBIG, "the normalised text has more than %u bytes",
                             ATTN_TOKEN_TEXT);
        s = text->p;
        n = text->n;
        turn = 1 - turn;
    }
    *out = s;
    *out_n = n;
    return ATTN_OK;
}

void attn_normal_deinit(attn_normal *step)
{
    free(step->pattern.literal);
    free(step->content);
    free(step->units);
    free(step->strings);
    memset(step, 0, sizeof *step);
}

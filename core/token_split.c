/* Pre-tokenisers: each step cuts what it is given and hands the pieces to the next, the last to the model.
 * The depth of these calls is the number of steps. */
#include "core/token_private.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const attn_tokenizer *t;
    attn_token_scratch *w;
    size_t step;      /* the next one */
    const char *text; /* of the step: pieces point into it */
    bool first;       /* it begins the whole text */
} place;

static attn_status run(place p, const char *s, size_t n, attn_error *err);

/* text[start..end) to the next step; nothing is left out silently but empty pieces. */
static attn_status emit(const place *p, size_t start, size_t end, attn_error *err)
{
    if (start == end || p->w->count > p->w->most)
        return ATTN_OK;
    place next = {p->t, p->w, p->step + 1, p->text + start, p->first && start == 0};
    return run(next, p->text + start, end - start, err);
}

/* --- delimiters ----------------------------------------------------------------------------- */

/* Joins ranges, which cover the text in order, as the behavior says. */
typedef struct {
    const place *p;
    attn_behavior behavior;
    size_t start, end; /* what waits */
    bool waits, match; /* match: the range before was a delimiter */
} folder;

static attn_status flush(folder *f, attn_error *err)
{
    bool waits = f->waits;
    f->waits = false;
    return waits ? emit(f->p, f->start, f->end, err) : ATTN_OK;
}

static attn_status fold(folder *f, size_t start, size_t end, bool match, attn_error *err)
{
    bool join = false;

    if (start == end)
        return ATTN_OK;
    switch (f->behavior) {
    case ATTN_REMOVED:
        return match ? ATTN_OK : emit(f->p, start, end, err);
    case ATTN_ISOLATED:
        return emit(f->p, start, end, err);
    case ATTN_CONTIGUOUS:
        join = match == f->match;
        break;
    case ATTN_MERGED_WITH_PREVIOUS:
        join = match && !f->match;
        break;
    case ATTN_MERGED_WITH_NEXT:
        join = !match && f->match;
        break;
    }
    if (!(join && f->waits)) {
        ATTN_TRY(flush(f, err));
        f->start = start;
    }
    f->end = end;
    f->waits = true;
    f->match = match;
    return ATTN_OK;
}

/* --- steps ---------------------------------------------------------------------------------- */

static bool of_class(const place *p, uint32_t c, unsigned class)
{
    return (attn_unicode_class(&p->t->unicode, c) & class) != 0;
}

/* Delimiters are single characters of a class. */
static attn_status characters(const place *p, attn_behavior behavior, unsigned class, size_t n,
                              attn_error *err)
{
    folder f = {.p = p, .behavior = behavior};
    size_t from = 0, bytes;

    for (size_t i = 0; i < n; i += bytes) {
        if (!of_class(p, attn_utf8_get(p->text + i, &bytes), class))
            continue;
        ATTN_TRY(fold(&f, from, i, false, err));
        ATTN_TRY(fold(&f, i, i + bytes, true, err));
        from = i + bytes;
    }
    ATTN_TRY(fold(&f, from, n, false, err));
    return flush(&f, err);
}

static attn_status pattern(const place *p, const attn_split *step, size_t n, attn_error *err)
{
    folder f = {.p = p, .behavior = step->behavior};
    size_t at = 0, start, end;

    for (; attn_pattern_find(&step->pattern, p->text, n, at, &start, &end); at = end) {
        ATTN_TRY(fold(&f, at, start, step->invert, err));
        ATTN_TRY(fold(&f, start, end, !step->invert, err));
    }
    ATTN_TRY(fold(&f, at, n, step->invert, err));
    return flush(&f, err);
}

/* Removes White_Space and, for BERT, isolates punctuation. */
static attn_status whitespace(const place *p, bool punctuation, size_t n, attn_error *err)
{
    size_t from = 0, bytes;

    for (size_t i = 0; i < n; i += bytes) {
        unsigned char byte = (unsigned char)p->text[i];
        bytes = 1;
        if ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z')
            continue;
        uint32_t c = attn_utf8_get(p->text + i, &bytes);
        bool space = attn_unicode_space(c);
        if (!space && !(punctuation && of_class(p, c, ATTN_U_PUNCT)))
            continue;
        ATTN_TRY(emit(p, from, i, err));
        from = i + bytes;
        if (!space)
            ATTN_TRY(emit(p, i, from, err));
    }
    return emit(p, from, n, err);
}

/* \w+|[^\w\s]+ */
static attn_status words(const place *p, size_t n, attn_error *err)
{
    enum { NOTHING, WORD, SPACE, REST } before = NOTHING, now;
    size_t from = 0, bytes;

    for (size_t i = 0; i < n; i += bytes) {
        uint32_t c = attn_utf8_get(p->text + i, &bytes);
        now = of_class(p, c, ATTN_U_WORD) ? WORD : attn_unicode_space(c) ? SPACE : REST;
        if (now == before)
            continue;
        if (before != SPACE)
            ATTN_TRY(emit(p, from, i, err));
        from = i;
        before = now;
    }
    return before == SPACE ? ATTN_OK : emit(p, from, n, err);
}

static attn_status well_known(const place *p, unsigned digits, size_t n, attn_error *err)
{
    for (size_t i = 0, length; i < n && p->w->count <= p->w->most; i += length) {
        length = attn_words_next(&p->t->unicode, digits, p->text + i, n - i);
        ATTN_TRY(emit(p, i, i + length, err));
    }
    return ATTN_OK;
}

static attn_status byte_level(place *p, const attn_split *step, size_t n, attn_error *err)
{
    if (step->prefix_space && p->text[0] != ' ') {
        attn_text *text = &p->w->split[p->step];
        text->n = 0;
        ATTN_TRY(attn_text_need(p->w, text, n + 1, err));
        text->p[0] = ' ';
        memcpy(text->p + 1, p->text, n);
        p->text = text->p;
        n++;
    }
    return step->use_words ? well_known(p, 0, n, err) : emit(p, 0, n, err);
}

static attn_status metaspace(place *p, const attn_split *step, size_t n, attn_error *err)
{
    size_t mark = strlen(step->replacement), from = 0;
    attn_text *text = &p->w->split[p->step];
    bool marked = p->text[0] == ' ' || (n >= mark && memcmp(p->text, step->replacement, mark) == 0);
    bool prepend = !marked && (step->prepend == ATTN_PREPEND_ALWAYS ||
                               (step->prepend == ATTN_PREPEND_FIRST && p->first));

    text->n = 0;
    ATTN_TRY(attn_text_need(p->w, text, mark + n, err));
    if (prepend) {
        memcpy(text->p, step->replacement, mark);
        text->n = mark;
    }
    for (size_t i = 0; i < n; i++) {
        if (p->text[i] == ' ') {
            ATTN_TRY(attn_text_need(p->w, text, mark + n - i, err));
            memcpy(text->p + text->n, step->replacement, mark);
            text->n += mark;
        } else {
            text->p[text->n++] = p->text[i];
        }
    }
    p->text = text->p;
    n = text->n;
    if (!step->split)
        return emit(p, 0, n, err);
    for (size_t i = 0; i + mark <= n; i++) {
        if (memcmp(p->text + i, step->replacement, mark) != 0)
            continue;
        ATTN_TRY(emit(p, from, i, err));
        from = i;
        i += mark - 1;
    }
    return emit(p, from, n, err);
}

static attn_status model(const place *p, const char *s, size_t n, attn_error *err)
{
    switch (p->t->model) {
    case ATTN_WORDPIECE:
        return attn_wordpiece_encode(p->t, p->w, s, n, err);
    case ATTN_BPE:
        return attn_bpe_encode(p->t, p->w, s, n, err);
    case ATTN_UNIGRAM:
        break;
    }
    return attn_unigram_encode(p->t, p->w, s, n, err);
}

static attn_status run(place p, const char *s, size_t n, attn_error *err)
{
    if (p.step == p.t->splits)
        return model(&p, s, n, err);
    const attn_split *step = &p.t->split[p.step];
    switch (step->kind) {
    case ATTN_SPLIT_BERT:
        return whitespace(&p, true, n, err);
    case ATTN_SPLIT_WHITESPACE_SPLIT:
        return whitespace(&p, false, n, err);
    case ATTN_SPLIT_WHITESPACE:
        return words(&p, n, err);
    case ATTN_SPLIT_BYTE_LEVEL:
        return byte_level(&p, step, n, err);
    case ATTN_SPLIT_PATTERN:
        return pattern(&p, step, n, err);
    case ATTN_SPLIT_WORDS:
        return well_known(&p, step->words_digits, n, err);
    case ATTN_SPLIT_METASPACE:
        return metaspace(&p, step, n, err);
    case ATTN_SPLIT_PUNCTUATION:
        return characters(&p, step->behavior, ATTN_U_PUNCT, n, err);
    case ATTN_SPLIT_DIGITS:
        break;
    }
    return characters(&p, step->behavior, ATTN_U_NUMERIC, n, err);
}

attn_status attn_split_text(const attn_tokenizer *t, attn_token_scratch *w, const char *s, size_t n,
                            bool first, attn_error *err)
{
    place p = {t, w, 0, s, first};
    return n == 0 ? ATTN_OK : run(p, s, n, err);
}

void attn_split_deinit(attn_split *step)
{
    free(step->pattern.literal);
    memset(step, 0, sizeof *step);
}

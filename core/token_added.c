/* Added tokens: they are found in the text before anything is cut, some in it as it is, some as it is
 * normalised. */
#include "core/token_private.h"

#include <stdlib.h>
#include <string.h>

/* --- loading -------------------------------------------------------------------------------- */

attn_status attn_added_add(attn_tokenizer *t, const attn_added *token, attn_error *err)
{
    if (t->added_count == t->added_room) {
        size_t room = t->added_room == 0 ? 8 : t->added_room * 2;
        attn_added *added = realloc(t->added, room * sizeof *added);
        if (added == NULL)
            return attn_fail(err, ATTN_ENOMEM, "no memory for added tokens");
        t->added = added;
        t->added_room = room;
    }
    attn_added *kept = &t->added[t->added_count];
    *kept = *token;
    kept->content = strdup(token->content);
    if (kept->content == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for added tokens");
    t->added_count++;
    return attn_name_add(t, token->content, strlen(token->content), token->id, err);
}

static attn_status enter(attn_added_set *set, const char *s, size_t n, uint32_t index,
                         attn_error *err)
{
    if (n == 0)
        return ATTN_OK;
    set->any = true;
    set->begins[(unsigned char)s[0]] = true;
    return attn_trie_add(&set->trie, s, n, index, err);
}

/* Special ones come first there, and the first of equal patterns counts. */
attn_status attn_added_finish(attn_tokenizer *t, attn_error *err)
{
    attn_token_scratch *w = attn_token_scratch_new();
    attn_status rc = ATTN_OK;

    if (w == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for added tokens");
    for (size_t i = 2 * t->added_count; rc == ATTN_OK && i-- > 0;) {
        size_t index = i % t->added_count;
        const attn_added *token = &t->added[index];
        const char *s = token->content;
        size_t n = strlen(s);
        bool starts;
        if (token->special != (i < t->added_count))
            continue;
        if (token->normalized)
            rc = attn_normalize(t, w, s, n, &s, &n, &starts, err);
        if (rc == ATTN_OK)
            rc = enter(token->normalized ? &t->normalized : &t->raw, s, n, (uint32_t)index, err);
    }
    attn_token_scratch_free(w);
    return rc;
}

/* --- encoding ------------------------------------------------------------------------------- */

typedef struct {
    const attn_tokenizer *t;
    attn_token_scratch *w;
    bool normalized; /* the text is, and these tokens are looked for */
    bool first;      /* the text begins the whole one */
} place;

static bool word_before(const attn_unicode *u, const char *s, size_t at)
{
    size_t bytes;
    return at > 0 && (attn_unicode_class(u, attn_utf8_get(s + attn_utf8_before(s, at), &bytes)) &
                      ATTN_U_WORD);
}

static bool word_after(const attn_unicode *u, const char *s, size_t n, size_t at)
{
    size_t bytes;
    return at < n && (attn_unicode_class(u, attn_utf8_get(s + at, &bytes)) & ATTN_U_WORD);
}

/* The longest token at s[at]; *end is where it ends. */
static const attn_added *token_at(const attn_tokenizer *t, const attn_added_set *set, const char *s,
                                  size_t n, size_t at, size_t *end)
{
    uint32_t node = ATTN_TRIE_ROOT, found = ATTN_TRIE_NONE;

    for (size_t i = at;
         i < n && (node = attn_trie_step(&set->trie, node, (unsigned char)s[i])) != 0; i++) {
        if (set->trie.value[node] != ATTN_TRIE_NONE) {
            found = set->trie.value[node];
            *end = i + 1;
        }
    }
    return found == ATTN_TRIE_NONE ? NULL : &t->added[found];
}

/* Widens a token over the white space that it takes, down to `from` and up to n. */
static void take_space(const attn_added *token, const char *s, size_t n, size_t from, size_t *start,
                       size_t *end)
{
    size_t bytes;

    while (token->left && *start > from) {
        size_t before = attn_utf8_before(s, *start);
        if (before < from || !attn_unicode_space(attn_utf8_get(s + before, &bytes)))
            break;
        *start = before;
    }
    while (token->right && *end < n && attn_unicode_space(attn_utf8_get(s + *end, &bytes)))
        *end += bytes;
}

static attn_status cut(place p, const char *s, size_t n, attn_error *err);

/* What lies between raw tokens is normalised and searched again; what lies between those is split. */
static attn_status between(const place *p, const char *s, size_t start, size_t end, attn_error *err)
{
    place next = {p->t, p->w, true, p->first && start == 0};

    if (end <= start || p->w->count > p->w->most)
        return ATTN_OK; /* a token may have taken the space that another one is */
    size_t n = end - start;
    s += start;
    if (p->normalized)
        return attn_split_text(p->t, p->w, s, n, next.first, err);
    bool starts;
    ATTN_TRY(attn_normalize(p->t, p->w, s, n, &s, &n, &starts, err));
    next.first = next.first && starts;
    return cut(next, s, n, err);
}

static attn_status cut(place p, const char *s, size_t n, attn_error *err)
{
    const attn_added_set *set = p.normalized ? &p.t->normalized : &p.t->raw;
    const attn_unicode *u = &p.t->unicode;
    size_t from = 0, start, end = 0;

    for (size_t at = 0; set->any && at < n;) {
        if (!set->begins[(unsigned char)s[at]]) {
            at++;
            continue;
        }
        const attn_added *token = token_at(p.t, set, s, n, at, &end);
        if (token == NULL) {
            at++;
            continue;
        }
        start = at;
        at = end; /* where the search goes on, whatever comes of this one */
        if (token->single_word && (word_before(u, s, start) || word_after(u, s, n, end)))
            continue;
        take_space(token, s, n, from, &start, &end);
        ATTN_TRY(between(&p, s, from, start, err));
        ATTN_TRY(attn_ids_push(p.w, token->id, err));
        from = end;
        if (p.w->count > p.w->most)
            return ATTN_OK;
    }
    return between(&p, s, from, n, err);
}

attn_status attn_added_encode(const attn_tokenizer *t, attn_token_scratch *w, const char *s,
                              size_t n, attn_error *err)
{
    place p = {t, w, false, true};
    return n == 0 ? ATTN_OK : cut(p, s, n, err);
}

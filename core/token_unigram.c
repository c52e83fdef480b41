/* Unigram: the pieces whose scores add up to most. */
#include "core/token_private.h"

#include <string.h>

/* The best way to what ends here. */
typedef struct {
    double score;
    uint32_t start; /* ATTN_TOKEN_NONE = nothing ends here */
    uint32_t id;
} node;

static void offer(node *at, double score, size_t start, uint32_t id)
{
    if (at->start != ATTN_TOKEN_NONE && !(score > at->score))
        return;
    at->score = score;
    at->start = (uint32_t)start;
    at->id = id;
}

static attn_status fill(const attn_tokenizer *t, node *best, const char *s, size_t n,
                        attn_error *err)
{
    const attn_trie *v = &t->vocabulary;
    const attn_unigram *m = &t->unigram;
    size_t bytes;

    for (size_t i = 0; i <= n; i++)
        best[i] = (node){0, ATTN_TOKEN_NONE, 0};
    for (size_t at = 0; at < n; at += bytes) {
        double here = best[at].score;
        uint32_t step = ATTN_TRIE_ROOT;
        bool single = false;
        bytes = attn_utf8_length(s[at]);
        for (size_t i = at; i < n && (step = attn_trie_step(v, step, (unsigned char)s[i])) != 0;
             i++) {
            uint32_t id = v->value[step];
            if (id == ATTN_TRIE_NONE)
                continue;
            offer(&best[i + 1], m->score[id] + here, at, id);
            single = single || i + 1 == at + bytes;
        }
        if (single)
            continue;
        if (t->unknown == ATTN_TOKEN_NONE)
            return attn_fail(
                err, ATTN_EUNSUPPORTED,
                "the text has a character that the vocabulary lacks, and unk_id is null");
        offer(&best[at + bytes], m->unknown_score + here, at, t->unknown);
    }
    return ATTN_OK;
}

/* A stretch of unknown characters: bytes if the vocabulary has them all, or one unknown token. In reverse,
 * as attn_unigram_encode() needs it. */
static attn_status push_unknown(const attn_tokenizer *t, attn_token_scratch *w, const char *s,
                                size_t n, attn_error *err)
{
    const attn_unigram *m = &t->unigram;
    uint32_t id = attn_trie_find(&t->vocabulary, s, n);
    bool bytes = id == ATTN_TRIE_NONE && m->byte_fallback;

    for (size_t i = 0; bytes && i < n; i++)
        bytes = m->byte_id[(unsigned char)s[i]] != ATTN_TOKEN_NONE;
    if (!bytes)
        return attn_ids_push(w, id != ATTN_TRIE_NONE ? id : t->unknown, err);
    for (size_t i = n; i-- > 0;)
        ATTN_TRY(attn_ids_push(w, m->byte_id[(unsigned char)s[i]], err));
    return ATTN_OK;
}

attn_status attn_unigram_encode(const attn_tokenizer *t, attn_token_scratch *w, const char *s,
                                size_t n, attn_error *err)
{
    size_t before = w->count, unknown_end = 0;

    ATTN_TRY(attn_room_need(w, &w->lattice, n + 1, sizeof(node), err));
    const node *best = w->lattice.p;
    ATTN_TRY(fill(t, w->lattice.p, s, n, err));
    for (size_t end = n; end > 0; end = best[end].start) { /* backwards; unknown ones are joined */
        size_t start = best[end].start;
        if (best[end].id == t->unknown) {
            unknown_end = unknown_end == 0 ? end : unknown_end;
            if (start == 0)
                ATTN_TRY(push_unknown(t, w, s, unknown_end, err));
            continue;
        }
        if (unknown_end != 0)
            ATTN_TRY(push_unknown(t, w, s + end, unknown_end - end, err));
        unknown_end = 0;
        ATTN_TRY(attn_ids_push(w, best[end].id, err));
    }
    uint32_t *id = w->ids.p;
    for (size_t i = before, j = w->count; i + 1 < j; i++) {
        uint32_t swapped = id[--j];
        id[j] = id[i];
        id[i] = swapped;
    }
    return ATTN_OK;
}

/* WordPiece: the longest token that fits, again and again. */
#include "core/token_private.h"

#include <string.h>

static bool too_long(const char *s, size_t n, size_t most)
{
    size_t characters = 0;

    if (n <= most)
        return false;
    for (size_t i = 0; i < n; i++)
        characters += ((unsigned char)s[i] & 0xc0) != 0x80;
    return characters > most;
}

attn_status attn_wordpiece_encode(const attn_tokenizer *t, attn_token_scratch *w, const char *s,
                                  size_t n, attn_error *err)
{
    const attn_trie *v = &t->vocabulary;
    uint32_t start = ATTN_TRIE_ROOT;
    size_t before = w->count;

    if (too_long(s, n, t->wordpiece.most_characters))
        return attn_ids_push(w, t->unknown, err);
    for (size_t at = 0; at < n;) {
        uint32_t node = start, id = ATTN_TRIE_NONE;
        size_t end = at;
        for (size_t i = at; i < n && (node = attn_trie_step(v, node, (unsigned char)s[i])) != 0;
             i++) {
            if (v->value[node] != ATTN_TRIE_NONE) {
                id = v->value[node];
                end = i + 1;
            }
        }
        if (id == ATTN_TRIE_NONE) { /* then the whole word is unknown */
            w->count = before;
            return attn_ids_push(w, t->unknown, err);
        }
        ATTN_TRY(attn_ids_push(w, id, err));
        at = end;
        start = t->wordpiece.continuing;
    }
    return ATTN_OK;
}

/* token_trie.h: strings to numbers, by walking. Internal to the tokeniser. */
#ifndef ATTN_TOKEN_TRIE_H
#define ATTN_TOKEN_TRIE_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#define ATTN_TRIE_NONE UINT32_MAX
#define ATTN_TRIE_ROOT 1u /* node 0 is none */

/* Edges lie in one hash table, keyed by node and byte. Zero-initialise. */
typedef struct {
    uint64_t *edge;  /* (node << 8 | byte) << 32 | child; 0 = free */
    uint32_t *value; /* [nodes] ATTN_TRIE_NONE where no string ends */
    unsigned shift;  /* 64 - log2 of the slots */
    uint32_t nodes;
    size_t slots, value_room;
} attn_trie;

/* Adds a string or changes its value. ATTN_ENOMEM; ATTN_ETOOBIG: more than 2^24 nodes. */
ATTN_NODISCARD attn_status attn_trie_add(attn_trie *t, const char *s, size_t n, uint32_t value,
                                         attn_error *err);
void attn_trie_deinit(attn_trie *t);
size_t attn_trie_bytes(const attn_trie *t);

/* The node one byte below `node`, 0 = there is none. */
static inline uint32_t attn_trie_step(const attn_trie *t, uint32_t node, unsigned char byte)
{
    uint32_t key = node << 8 | byte;
    if (t->slots == 0)
        return 0;
    for (size_t i = key * UINT64_C(0x9e3779b97f4a7c15) >> t->shift;; i = (i + 1) & (t->slots - 1)) {
        uint64_t edge = t->edge[i];
        if (edge >> 32 == key)
            return (uint32_t)edge;
        if (edge == 0)
            return 0;
    }
}

/* The node at the end of n bytes below `node`, 0 = there is none. */
static inline uint32_t attn_trie_walk(const attn_trie *t, uint32_t node, const char *s, size_t n)
{
    for (size_t i = 0; i < n && node != 0; i++)
        node = attn_trie_step(t, node, (unsigned char)s[i]);
    return node;
}

/* The value of a whole string. */
static inline uint32_t attn_trie_find(const attn_trie *t, const char *s, size_t n)
{
    uint32_t node = attn_trie_walk(t, ATTN_TRIE_ROOT, s, n);
    return node == 0 || t->slots == 0 ? ATTN_TRIE_NONE : t->value[node];
}

#endif

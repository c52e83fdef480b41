#include "core/token_trie.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_NODES = 1 << 24, FIRST_SLOTS = 1 << 8 };

static attn_status no_memory(attn_error *err)
{
    return attn_fail(err, ATTN_ENOMEM, "no memory for a vocabulary");
}

static void put(attn_trie *t, uint64_t edge)
{
    size_t i = (edge >> 32) * UINT64_C(0x9e3779b97f4a7c15) >> t->shift;
    while (t->edge[i] != 0)
        i = (i + 1) & (t->slots - 1);
    t->edge[i] = edge;
}

/* Doubles the table of edges, which is full, or makes the first one. */
static attn_status grow_edges(attn_trie *t, attn_error *err)
{
    size_t slots = t->slots == 0 ? FIRST_SLOTS : t->slots * 2, old_slots = t->slots;
    uint64_t *edge = calloc(slots, sizeof *edge), *old = t->edge;

    if (edge == NULL)
        return no_memory(err);
    t->edge = edge;
    t->slots = slots;
    t->shift = 64 - (unsigned)__builtin_ctzll(slots);
    for (size_t i = 0; i < old_slots; i++) {
        if (old[i] != 0)
            put(t, old[i]);
    }
    free(old);
    return ATTN_OK;
}

static attn_status new_node(attn_trie *t, uint32_t *node, attn_error *err)
{
    if (t->nodes == MOST_NODES)
        return attn_fail(err, ATTN_ETOOBIG, "the vocabulary has more than %d distinct beginnings",
                         MOST_NODES);
    if (t->nodes + 1 > t->value_room) {
        size_t room = t->value_room == 0 ? 64 : t->value_room * 2;
        uint32_t *value = realloc(t->value, room * sizeof *value);
        if (value == NULL)
            return no_memory(err);
        t->value = value;
        t->value_room = room;
    }
    t->value[t->nodes] = ATTN_TRIE_NONE;
    *node = t->nodes++;
    return ATTN_OK;
}

attn_status attn_trie_add(attn_trie *t, const char *s, size_t n, uint32_t value, attn_error *err)
{
    uint32_t node = 0;

    while (t->nodes <= ATTN_TRIE_ROOT)
        ATTN_TRY(new_node(t, &node, err));
    if (t->slots == 0)
        ATTN_TRY(grow_edges(t, err));
    node = ATTN_TRIE_ROOT;
    for (size_t i = 0; i < n; i++) {
        uint32_t next = attn_trie_step(t, node, (unsigned char)s[i]);
        if (next == 0) {
            if (t->nodes >= t->slots / 2)
                ATTN_TRY(grow_edges(t, err));
            ATTN_TRY(new_node(t, &next, err));
            put(t, (uint64_t)(node << 8 | (unsigned char)s[i]) << 32 | next);
        }
        node = next;
    }
    t->value[node] = value;
    return ATTN_OK;
}

void attn_trie_deinit(attn_trie *t)
{
    free(t->edge);
    free(t->value);
    memset(t, 0, sizeof *t);
}

size_t attn_trie_bytes(const attn_trie *t)
{
    return t->slots * sizeof *t->edge + t->value_room * sizeof *t->value;
}

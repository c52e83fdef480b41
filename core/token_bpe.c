/* Byte pair encoding: neighbours merge, those of the lowest rank first. */
#include "core/token_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- merges --------------------------------------------------------------------------------- */

static size_t slot_of(const attn_bpe *b, uint64_t pair)
{
    size_t i = (size_t)((pair ^ pair >> 29) * UINT64_C(0x9e3779b97f4a7c15) >> b->shift);
    while (b->merge[i].pair != ATTN_NO_PAIR && b->merge[i].pair != pair)
        i = (i + 1) & (b->slots - 1);
    return i;
}

static const attn_merge *find_merge(const attn_bpe *b, uint32_t left, uint32_t right)
{
    if (b->slots == 0)
        return NULL;
    const attn_merge *m = &b->merge[slot_of(b, (uint64_t)left << 32 | right)];
    return m->pair == ATTN_NO_PAIR ? NULL : m;
}

static attn_status grow(attn_bpe *b, attn_error *err)
{
    size_t slots = b->slots == 0 ? 1024 : b->slots * 2, old_slots = b->slots;
    attn_merge *merge = malloc(slots * sizeof *merge), *old = b->merge;

    if (merge == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for merges");
    for (size_t i = 0; i < slots; i++)
        merge[i].pair = ATTN_NO_PAIR;
    b->merge = merge;
    b->slots = slots;
    b->shift = 64 - (unsigned)__builtin_ctzll(slots);
    for (size_t i = 0; i < old_slots; i++) {
        if (old[i].pair != ATTN_NO_PAIR)
            merge[slot_of(b, old[i].pair)] = old[i];
    }
    free(old);
    return ATTN_OK;
}

attn_status attn_bpe_merge(attn_tokenizer *t, size_t rank, const char *left, size_t left_n,
                           const char *right, size_t right_n, const char *what, attn_error *err)
{
    attn_bpe *b = &t->bpe;
    const attn_trie *v = &t->vocabulary;
    uint32_t left_id = attn_trie_find(v, left, left_n),
             right_id = attn_trie_find(v, right, right_n);
    uint32_t node = attn_trie_walk(v, ATTN_TRIE_ROOT, left, left_n);
    uint32_t whole = ATTN_TRIE_NONE;

    node = attn_trie_walk(v, node, right, right_n);
    if (node != 0 && v->slots != 0)
        whole = v->value[node];
    if (left_id == ATTN_TRIE_NONE || right_id == ATTN_TRIE_NONE || whole == ATTN_TRIE_NONE)
        return attn_fail(err, ATTN_EFORMAT,
                         "%s: merge %zu, \"%.*s %.*s\", has a part that is no token", what, rank,
                         (int)(left_n > 99 ? 99 : left_n), left, (int)(right_n > 99 ? 99 : right_n),
                         right);
    if (rank * 2 >= b->slots)
        ATTN_TRY(grow(b, err));
    attn_merge *m = &b->merge[slot_of(b, (uint64_t)left_id << 32 | right_id)];
    *m = (attn_merge){(uint64_t)left_id << 32 | right_id, (uint32_t)rank, whole};
    return ATTN_OK;
}

/* --- one word ------------------------------------------------------------------------------- */

enum { NOBODY = -1 };

typedef struct {
    uint32_t id; /* ATTN_TOKEN_NONE = merged into the one before */
    int32_t before, after;
} symbol;

typedef struct {
    uint64_t order; /* rank << 32 | place of the left symbol */
    uint32_t id;    /* what they become */
} candidate;

typedef struct {
    symbol *symbol;
    size_t count;
    candidate *heap; /* the smallest order first */
    size_t waiting;
} word;

static void heap_push(word *x, candidate c)
{
    size_t i = x->waiting++;

    for (; i > 0 && x->heap[(i - 1) / 2].order > c.order; i = (i - 1) / 2)
        x->heap[i] = x->heap[(i - 1) / 2];
    x->heap[i] = c;
}

static candidate heap_pop(word *x)
{
    candidate top = x->heap[0], last = x->heap[--x->waiting];
    size_t i = 0;

    for (size_t child = 1; child < x->waiting; child = 2 * i + 1) {
        if (child + 1 < x->waiting && x->heap[child + 1].order < x->heap[child].order)
            child++;
        if (last.order <= x->heap[child].order)
            break;
        x->heap[i] = x->heap[child];
        i = child;
    }
    x->heap[i] = last;
    return top;
}

static void consider(const attn_bpe *b, word *x, int32_t left)
{
    if (left == NOBODY || x->symbol[left].after == NOBODY)
        return;
    const attn_merge *m = find_merge(b, x->symbol[left].id, x->symbol[x->symbol[left].after].id);
    if (m != NULL)
        heap_push(x, (candidate){(uint64_t)m->rank << 32 | (uint32_t)left, m->id});
}

static void merge_all(const attn_bpe *b, word *x)
{
    for (size_t i = 0; i + 1 < x->count; i++)
        consider(b, x, (int32_t)i);
    while (x->waiting > 0) {
        candidate c = heap_pop(x);
        symbol *left = &x->symbol[(uint32_t)c.order];
        if (left->id == ATTN_TOKEN_NONE || left->after == NOBODY)
            continue;
        symbol *right = &x->symbol[left->after];
        const attn_merge *m = find_merge(b, left->id, right->id);
        if (m == NULL || m->id != c.id) /* one of them has changed since */
            continue;
        left->id = c.id;
        right->id = ATTN_TOKEN_NONE;
        left->after = right->after;
        if (right->after != NOBODY)
            x->symbol[right->after].before = (int32_t)(uint32_t)c.order;
        consider(b, x, left->before);
        consider(b, x, (int32_t)(uint32_t)c.order);
    }
}

static void add_symbol(word *x, uint32_t id)
{
    int32_t place = (int32_t)x->count++;

    x->symbol[place] = (symbol){id, place - 1, NOBODY};
    if (place > 0)
        x->symbol[place - 1].after = place;
}

/* The vocabulary's own characters; those that it lacks become bytes, the unknown token, or nothing. The
 * unknown token waits until the next known character, as in `tokenizers`. */
static void add_characters(const attn_tokenizer *t, word *x, const char *s, size_t n)
{
    const attn_bpe *b = &t->bpe;
    bool unknown = false;

    for (size_t i = 0, bytes; i < n; i += bytes) {
        bytes = b->byte_level ? 1 : attn_utf8_length(s[i]);
        uint32_t id = b->byte_level ? b->byte_id[(unsigned char)s[i]]
                                    : attn_trie_find(&t->vocabulary, s + i, bytes);
        if (id != ATTN_TRIE_NONE) {
            if (unknown)
                add_symbol(x, t->unknown);
            unknown = false;
            add_symbol(x, id);
            continue;
        }
        bool fallback = b->byte_fallback;
        for (size_t k = 0; fallback && k < bytes; k++)
            fallback = b->byte_id[(unsigned char)s[i + k]] != ATTN_TOKEN_NONE;
        for (size_t k = 0; fallback && k < bytes; k++)
            add_symbol(x, b->byte_id[(unsigned char)s[i + k]]);
        if (fallback || t->unknown == ATTN_TOKEN_NONE)
            continue;
        if (unknown && !b->fuse_unknown)
            add_symbol(x, t->unknown);
        unknown = true;
    }
    if (unknown)
        add_symbol(x, t->unknown);
}

/* The id of the piece as a whole. */
static uint32_t find_whole(const attn_tokenizer *t, const char *s, size_t n)
{
    const attn_bpe *b = &t->bpe;
    uint32_t node = ATTN_TRIE_ROOT;

    if (!b->byte_level)
        return attn_trie_find(&t->vocabulary, s, n);
    for (size_t i = 0; i < n && node != 0; i++) {
        unsigned char byte = (unsigned char)s[i];
        node = attn_trie_step(&t->vocabulary, node, (unsigned char)b->byte_text[byte][0]);
        if (b->byte_text_n[byte] == 2 && node != 0)
            node = attn_trie_step(&t->vocabulary, node, (unsigned char)b->byte_text[byte][1]);
    }
    return node == 0 ? ATTN_TOKEN_NONE : t->vocabulary.value[node];
}

/* Places are 31 bits: texts are shorter. Each merge takes one candidate and adds two at most. */
static attn_status encode_word(const attn_tokenizer *t, attn_token_scratch *w, const char *s,
                               size_t n, attn_error *err)
{
    ATTN_TRY(attn_room_need(w, &w->symbols, n, sizeof(symbol), err));
    ATTN_TRY(attn_room_need(w, &w->heap, 2 * n, sizeof(candidate), err));
    word x = {.symbol = w->symbols.p, .heap = w->heap.p};
    add_characters(t, &x, s, n);
    merge_all(&t->bpe, &x);
    for (size_t i = 0; i < x.count; i++) {
        if (x.symbol[i].id != ATTN_TOKEN_NONE)
            ATTN_TRY(attn_ids_push(w, x.symbol[i].id, err));
    }
    return ATTN_OK;
}

attn_status attn_bpe_encode(const attn_tokenizer *t, attn_token_scratch *w, const char *s, size_t n,
                            attn_error *err)
{
    uint32_t id = find_whole(t, s, n);

    if (id != ATTN_TOKEN_NONE && (t->bpe.ignore_merges || t->bpe.whole[id]))
        return attn_ids_push(w, id, err);
    return encode_word(t, w, s, n, err);
}

/* --- loading -------------------------------------------------------------------------------- */

/* GPT-2's alphabet: printable bytes of Latin-1 stand for themselves, the others for U+0100 and on. */
static void spell_bytes(attn_bpe *b)
{
    uint32_t next = 0x100;

    for (uint32_t byte = 0; byte < 256; byte++) {
        bool printable =
            (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        char text[ATTN_UTF8_MAX];
        b->byte_text_n[byte] = (uint8_t)attn_utf8_put(text, printable ? byte : next++);
        memcpy(b->byte_text[byte], text, 2);
    }
}

/* The bytes that a spelling stands for; SIZE_MAX when it has other characters. */
static size_t unspell(const int16_t byte_of[0x200], const char *name, char *out)
{
    size_t n = 0, bytes;

    for (; *name != 0; name += bytes) {
        uint32_t c = attn_utf8_get(name, &bytes);
        if (c >= 0x200 || byte_of[c] < 0)
            return SIZE_MAX;
        out[n++] = (char)byte_of[c];
    }
    return n;
}

/* Finds the tokens that merging their own characters gives: most pieces of a text are such. */
static attn_status find_wholes(attn_tokenizer *t, attn_token_scratch *w, attn_error *err)
{
    attn_bpe *b = &t->bpe;
    int16_t byte_of[0x200];
    attn_text piece = {0};
    attn_status rc = ATTN_OK;

    memset(byte_of, -1, sizeof byte_of);
    for (int byte = 0; byte < 256; byte++) {
        size_t bytes;
        byte_of[attn_utf8_get(b->byte_text[byte], &bytes)] = (int16_t)byte;
    }
    for (uint32_t id = 0; rc == ATTN_OK && id < t->size; id++) {
        const char *name = attn_tokenizer_token(t, id);
        if (name == NULL || name[0] == 0)
            continue;
        size_t n = strlen(name);
        rc = attn_text_need(w, &piece, n, err);
        if (rc != ATTN_OK)
            break;
        if (b->byte_level)
            n = unspell(byte_of, name, piece.p);
        else
            memcpy(piece.p, name, n);
        if (n == SIZE_MAX || find_whole(t, piece.p, n) != id)
            continue;
        w->count = 0;
        rc = encode_word(t, w, piece.p, n, err);
        b->whole[id] = rc == ATTN_OK && w->count == 1 && ((uint32_t *)w->ids.p)[0] == id;
    }
    free(piece.p);
    return rc;
}

attn_status attn_bpe_finish(attn_tokenizer *t, attn_error *err)
{
    attn_bpe *b = &t->bpe;
    attn_token_scratch *w = attn_token_scratch_new();

    spell_bytes(b);
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        (void)snprintf(name, sizeof name, "<0x%02X>", byte);
        b->byte_id[byte] =
            b->byte_level ? attn_trie_find(&t->vocabulary, b->byte_text[byte], b->byte_text_n[byte])
                          : attn_trie_find(&t->vocabulary, name, strlen(name));
    }
    for (unsigned byte = 0; b->byte_level && b->byte_fallback && byte < 256; byte++) {
        if (b->byte_id[byte] == ATTN_TOKEN_NONE) {
            attn_token_scratch_free(w);
            return attn_fail(err, ATTN_EUNSUPPORTED,
                             "ByteLevel with byte_fallback and without a token for byte %u", byte);
        }
    }
    b->whole = calloc(t->size + 1, 1);
    if (w == NULL || b->whole == NULL) {
        attn_token_scratch_free(w);
        return attn_fail(err, ATTN_ENOMEM, "no memory for a vocabulary");
    }
    attn_status rc = find_wholes(t, w, err);
    attn_token_scratch_free(w);
    return rc;
}

void attn_bpe_deinit(attn_bpe *b)
{
    free(b->merge);
    free(b->whole);
    memset(b, 0, sizeof *b);
}

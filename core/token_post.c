/* Post-processors: which special tokens stand around the texts, and truncation. */
#include "core/token_private.h"

#include <stdlib.h>
#include <string.h>

attn_status attn_template_add(attn_template *m, int32_t id, uint8_t type_id, attn_error *err)
{
    if (m->count == m->room) {
        size_t room = m->room == 0 ? 8 : m->room * 2;
        attn_template_item *item = realloc(m->item, room * sizeof *item);
        if (item == NULL)
            return attn_fail(err, ATTN_ENOMEM, "no memory for a template");
        m->item = item;
        m->room = room;
    }
    m->item[m->count++] = (attn_template_item){id, type_id};
    m->specials += id >= 0;
    return ATTN_OK;
}

static attn_status add_all(attn_template *m, const attn_template_item *item, size_t n,
                           attn_error *err)
{
    for (size_t i = 0; i < n; i++)
        ATTN_TRY(attn_template_add(m, item[i].id, item[i].type_id, err));
    return ATTN_OK;
}

attn_status attn_template_bert(attn_tokenizer *t, uint32_t cls, uint32_t sep, attn_error *err)
{
    const attn_template_item item[] = {{(int32_t)cls, 0},
                                       {ATTN_TEMPLATE_A, 0},
                                       {(int32_t)sep, 0},
                                       {ATTN_TEMPLATE_B, 1},
                                       {(int32_t)sep, 1}};

    ATTN_TRY(add_all(&t->single, item, 3, err));
    return add_all(&t->pair, item, 5, err);
}

attn_status attn_template_roberta(attn_tokenizer *t, uint32_t cls, uint32_t sep, attn_error *err)
{
    const attn_template_item item[] = {{(int32_t)cls, 0}, {ATTN_TEMPLATE_A, 0}, {(int32_t)sep, 0},
                                       {(int32_t)sep, 0}, {ATTN_TEMPLATE_B, 0}, {(int32_t)sep, 0}};

    ATTN_TRY(add_all(&t->single, item, 3, err));
    return add_all(&t->pair, item, 6, err);
}

/* How much of each text is left of `most` tokens: the longer one is cut first; when both are longer than
 * half, the longer one keeps the odd token. */
static void cut_pair(size_t most, size_t *first, size_t *second)
{
    size_t a = *first, b = *second;

    if (a + b <= most)
        return;
    bool swapped = a > b;
    size_t shorter = swapped ? b : a, longer;
    longer = shorter > most ? shorter : most - shorter > shorter ? most - shorter : shorter;
    if (shorter + longer > most) {
        shorter = most / 2;
        longer = shorter + most % 2;
    }
    *first = swapped ? longer : shorter;
    *second = swapped ? shorter : longer;
}

static attn_status make_room(attn_token_scratch *w, size_t n, attn_error *err)
{
    ATTN_TRY(attn_room_need(w, &w->id, n, sizeof(uint32_t), err));
    ATTN_TRY(attn_room_need(w, &w->type_id, n, 1, err));
    return attn_room_need(w, &w->special, n, 1, err);
}

attn_status attn_post_process(const attn_tokenizer *t, attn_token_scratch *w, size_t first,
                              bool pair, const attn_tokenize_options *options, attn_encoding *e,
                              attn_error *err)
{
    const attn_template *m = pair ? &t->pair : &t->single;
    size_t specials = options->no_specials ? 0 : m->specials, second = w->count - first;
    size_t kept_first = first, kept_second = second, n = 0;
    const uint32_t *ids = w->ids.p;

    if (options->max_length != 0) { /* attn_tokenizer_encode() has seen that the specials fit */
        size_t most = options->max_length - specials;
        if (pair)
            cut_pair(most, &kept_first, &kept_second);
        else
            kept_first = first < most ? first : most;
    }
    ATTN_TRY(make_room(w, kept_first + kept_second + specials, err));
    uint32_t *id = w->id.p;
    uint8_t *type_id = w->type_id.p, *special = w->special.p;
    for (size_t i = 0; i < m->count; i++) {
        const attn_template_item *item = &m->item[i];
        size_t length = item->id == ATTN_TEMPLATE_A   ? kept_first
                        : item->id == ATTN_TEMPLATE_B ? kept_second
                                                      : !options->no_specials;
        if (length == 0)
            continue;
        if (item->id >= 0)
            id[n] = (uint32_t)item->id;
        else
            memcpy(id + n, item->id == ATTN_TEMPLATE_A ? ids : ids + first, length * sizeof *id);
        memset(type_id + n, item->type_id, length);
        memset(special + n, item->id >= 0, length);
        n += length;
    }
    e->id = id;
    e->type_id = type_id;
    e->special = special;
    e->count = n;
    e->truncated = kept_first < first || kept_second < second;
    return ATTN_OK;
}

#include "attention_private.h"
#include "kern.h"

size_t attn_map_slot(const attn_options *o, size_t h)
{
    if (!o->want_maps)
        return o->num_heads;
    if (o->heads == NULL)
        return h;
    for (size_t i = 0; i < o->num_heads; i++) {
        if (o->heads[i] == h)
            return i;
    }
    return o->num_heads;
}

/* The part of keys [*j0, *j1) of row i that is asked for, and where it goes; NULL = nothing. */
static float *map_place(const attn_run *run, const attn_item *it, size_t slot, size_t i, size_t *j0,
                        size_t *j1)
{
    const attn_options *o = run->opt;
    const attn_view *maps = &it->seq->maps;

    if (i < o->q_from || i - o->q_from >= it->seq->map_rows)
        return NULL;
    *j0 = attn_max(*j0, o->k_from);
    *j1 = attn_min(*j1, o->k_from + it->seq->map_columns);
    if (*j0 >= *j1)
        return NULL;
    if (o->reduce != ATTN_REDUCE_NONE)
        slot = 0;
    return maps->data + slot * maps->head_stride + (i - o->q_from) * maps->row_stride +
           (*j0 - o->k_from);
}

bool attn_map_finite(const attn_run *run, const attn_item *it, size_t i, const float *x, size_t j0,
                     size_t j1)
{
    size_t begin = j0;

    return map_place(run, it, 0, i, &j0, &j1) == NULL ||
           attn_kernels.all_finite(x + (j0 - begin), j1 - j0);
}

static void combine(attn_reduce reduce, float *cell, float v)
{
    if (reduce == ATTN_REDUCE_MEAN)
        *cell += v;
    else
        *cell = v > *cell ? v : *cell;
}

void attn_map_piece(const attn_run *run, const attn_item *it, size_t slot, bool first, size_t i,
                    const float *x, float factor, size_t j0, size_t j1)
{
    enum { LARGE = 1 << 18 }; /* floats of a head's map that will not stay in the caches anyway */
    size_t begin = j0;
    float *out = map_place(run, it, slot, i, &j0, &j1);

    if (out == NULL)
        return;
    x += j0 - begin;
    if (run->opt->reduce == ATTN_REDUCE_NONE || first) {
        bool large = it->seq->map_rows * it->seq->map_columns >= LARGE;
        (large ? attn_kernels.stream : attn_kernels.scale)(out, x, j1 - j0, factor);
        return;
    }
    for (size_t j = 0; j < j1 - j0; j++)
        combine(run->opt->reduce, &out[j], factor * x[j]);
}

void attn_map_fill(const attn_run *run, const attn_item *it, size_t slot, bool first, size_t i,
                   float value, size_t j0, size_t j1)
{
    float *out = map_place(run, it, slot, i, &j0, &j1);

    if (out == NULL)
        return;
    for (size_t j = 0; j < j1 - j0; j++) {
        if (run->opt->reduce == ATTN_REDUCE_NONE || first)
            out[j] = value;
        else
            combine(run->opt->reduce, &out[j], value);
    }
}

void attn_map_mean(const attn_run *run, const attn_item *it, size_t r0, size_t r1)
{
    const attn_options *o = run->opt;
    const attn_view *maps = &it->seq->maps;
    size_t from = attn_max(r0, o->q_from), to = attn_min(r1, o->q_from + it->seq->map_rows);

    for (size_t i = from; i < to; i++) {
        float *row = maps->data + (i - o->q_from) * maps->row_stride;
        for (size_t j = 0; j < it->seq->map_columns; j++)
            row[j] /= (float)o->num_heads;
    }
}

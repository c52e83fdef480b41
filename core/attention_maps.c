#include <math.h>

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

attn_map attn_map_of(const attn_run *run, const attn_item *it, size_t slot, bool combine,
                     float *scratch, size_t room, size_t r0)
{
    const attn_options *o = run->opt;
    const attn_view *maps = &it->seq->maps;
    attn_map m = {run, it->seq, slot, combine, NULL, maps->row_stride, o->q_from};

    if (slot == o->num_heads)
        return m;
    if (o->reduce != ATTN_REDUCE_NONE)
        m.slot = 0;
    if (attn_folds_maps(o)) {
        m.data = scratch;
        m.row_stride = room;
        m.first_row = r0;
    } else {
        m.data = maps->data + m.slot * maps->head_stride;
    }
    return m;
}

/* Where the part of keys [*j0, *j1) of row i that is asked for goes; NULL = there is none. */
static float *map_place(const attn_map *m, size_t i, size_t *j0, size_t *j1)
{
    const attn_options *o = m->run->opt;

    if (m->data == NULL || i < o->q_from || i - o->q_from >= m->seq->map_rows)
        return NULL;
    *j0 = attn_max(*j0, o->k_from);
    *j1 = attn_min(*j1, o->k_from + m->seq->map_columns);
    return *j0 >= *j1 ? NULL : m->data + (i - m->first_row) * m->row_stride + (*j0 - o->k_from);
}

bool attn_map_finite(const attn_map *m, size_t i, const float *x, size_t j0, size_t j1)
{
    size_t begin = j0;

    return map_place(m, i, &j0, &j1) == NULL || attn_kernels.all_finite(x + (j0 - begin), j1 - j0);
}

static void combine(attn_reduce reduce, float *cell, float v)
{
    if (reduce == ATTN_REDUCE_MEAN)
        *cell += v;
    else
        *cell = v > *cell ? v : *cell;
}

void attn_map_piece(const attn_map *m, size_t i, const float *x, float factor, size_t j0, size_t j1)
{
    enum { LARGE = 1 << 18 }; /* floats of a head's map that will not stay in the caches anyway */
    size_t begin = j0;
    float *out = map_place(m, i, &j0, &j1);

    if (out == NULL)
        return;
    x += j0 - begin;
    if (!m->combine) {
        bool large =
            !attn_folds_maps(m->run->opt) && m->seq->map_rows * m->seq->map_columns >= LARGE;
        (large ? attn_kernels.stream : attn_kernels.scale)(out, x, j1 - j0, factor);
        return;
    }
    for (size_t j = 0; j < j1 - j0; j++)
        combine(m->run->opt->reduce, &out[j], factor * x[j]);
}

void attn_map_fill(const attn_map *m, size_t i, float value, size_t j0, size_t j1)
{
    float *out = map_place(m, i, &j0, &j1);

    for (size_t j = 0; out != NULL && j < j1 - j0; j++) {
        if (!m->combine)
            out[j] = value;
        else
            combine(m->run->opt->reduce, &out[j], value);
    }
}

/* --- what is kept ------------------------------------------------------------------------------ */

/* Blocks of `block` values; a sum is kept in double, so that a large block loses nothing. */
static void pool_row(const attn_options *o, const float *x, size_t n, size_t block, float *out)
{
    for (size_t j = 0; j < n; j += block) {
        size_t end = attn_min(j + block, n);
        double sum = 0.0;
        float max = -INFINITY;
        for (size_t l = j; l < end; l++) {
            sum += (double)x[l];
            max = x[l] > max ? x[l] : max;
        }
        *out++ = o->pooling == ATTN_POOL_MAX ? max : (float)(sum / (double)(end - j));
    }
}

/* Is cell a kept rather than cell b? */
static bool above(const float *x, size_t a, size_t b)
{
    return x[a] > x[b] || (a < b && x[a] == x[b]);
}

/* keys[0 .. n) is a heap whose root is the first to go, but for the one at `at`. */
static void sift(const float *x, int32_t *keys, size_t n, size_t at)
{
    for (size_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && above(x, (size_t)keys[child], (size_t)keys[child + 1]))
            child++;
        if (!above(x, (size_t)keys[at], (size_t)keys[child]))
            return;
        int32_t key = keys[at];
        keys[at] = keys[child];
        keys[child] = key;
        at = child;
    }
}

/* The k largest of x[0 .. n): their places, the largest first, and what the others sum to. */
static float top_of(const float *x, size_t n, size_t k, int32_t *keys)
{
    double rest = 0.0;

    for (size_t j = 0; j < n; j++) {
        rest += (double)x[j];
        if (j < k) {
            keys[j] = (int32_t)j;
            for (size_t at = k / 2; j == k - 1 && at-- > 0;)
                sift(x, keys, k, at);
        } else if (above(x, j, (size_t)keys[0])) {
            keys[0] = (int32_t)j;
            sift(x, keys, k, 0);
        }
    }
    for (size_t left = k; left-- > 1;) { /* the root goes behind those that stay longer */
        int32_t key = keys[0];
        keys[0] = keys[left];
        keys[left] = key;
        sift(x, keys, left, 0);
    }
    for (size_t i = 0; i < k; i++)
        rest -= (double)x[keys[i]];
    return rest > 0.0 ? (float)rest : 0.0F;
}

static void keep_row(const attn_map *m, size_t i, const float *x)
{
    const attn_options *o = m->run->opt;
    const attn_sequence *s = m->seq;
    size_t row = i - o->q_from, k = o->top_k;
    float *out = s->maps.data + m->slot * s->maps.head_stride + row * s->maps.row_stride;

    if (o->pooling != ATTN_POOL_NONE) {
        pool_row(o, x, s->map_columns, o->pool_columns, out);
        return;
    }
    int32_t *keys = s->top_keys + m->slot * s->top_head_stride + row * k;
    float rest = top_of(x, s->map_columns, k, keys);
    for (size_t l = 0; l < k; l++) {
        out[l] = x[keys[l]];
        keys[l] += (int32_t)o->k_from;
    }
    if (s->top_rest != NULL)
        s->top_rest[m->slot * s->map_rows + row] = rest;
}

void attn_map_finish(const attn_map *m, size_t r0, size_t r1)
{
    if (m->data == NULL)
        return;
    const attn_options *o = m->run->opt;
    for (size_t i = attn_max(r0, o->q_from); i < attn_min(r1, o->q_from + m->seq->map_rows); i++) {
        float *row = m->data + (i - m->first_row) * m->row_stride;
        for (size_t j = 0; j < m->seq->map_columns && o->reduce == ATTN_REDUCE_MEAN; j++)
            row[j] /= (float)o->num_heads;
        if (attn_folds_maps(o))
            keep_row(m, i, row);
    }
}

size_t attn_pool_tasks(const attn_options *o)
{
    if (!o->want_maps || o->pooling == ATTN_POOL_NONE)
        return 0;
    return o->reduce != ATTN_REDUCE_NONE ? 1 : o->num_heads;
}

void attn_pool_task(void *arg, size_t task, size_t worker)
{
    attn_run *run = arg;
    const attn_options *o = run->opt;
    size_t slot = 0;

    (void)worker;
    const attn_sequence *s = attn_find_item(run, ATTN_PHASE_POOL, task, &slot)->seq;
    const attn_view *maps = &s->maps;
    float *map = maps->data + slot * maps->head_stride;
    size_t columns = attn_tiles(s->map_columns, o->pool_columns);
    for (size_t r = 0, to = 0; r < s->map_rows; r += o->pool_rows, to++) {
        size_t end = attn_min(r + o->pool_rows, s->map_rows), cells = end - r;
        for (size_t j = 0; j < columns; j++) {
            double sum = 0.0;
            float max = -INFINITY;
            for (size_t l = r; l < end; l++) {
                float v = map[l * maps->row_stride + j];
                sum += (double)v;
                max = v > max ? v : max;
            }
            map[to * maps->row_stride + j] =
                o->pooling == ATTN_POOL_MAX ? max : (float)(sum / (double)cells);
        }
    }
}

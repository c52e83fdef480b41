#include <math.h>
#include <stdlib.h>

#include "attention_private.h"

void attn_row_range(const attn_run *run, const attn_item *it, size_t i, size_t *lo, size_t *hi)
{
    const attn_options *o = run->opt;
    int64_t p = (int64_t)i + it->seq->causal_offset;
    int64_t from = 0, to = (int64_t)it->s_len;

    if (o->is_causal && p + 1 < to)
        to = p + 1;
    if (o->window.left >= 0 && p - o->window.left > from)
        from = p - o->window.left;
    if (o->window.right >= 0 && p + o->window.right + 1 < to)
        to = p + o->window.right + 1;
    if (from >= to)
        from = to = 0;
    *lo = (size_t)from;
    *hi = (size_t)to;
}

static const unsigned char *mask_row(const attn_sequence *s, size_t h, size_t i)
{
    return s->mask == NULL ? NULL : s->mask + h * s->mask_stride[0] + i * s->mask_stride[1];
}

static const float *bias_row(const attn_sequence *s, size_t h, size_t i)
{
    return s->bias == NULL ? NULL : s->bias + h * s->bias_stride[0] + i * s->bias_stride[1];
}

bool attn_visible(const attn_run *run, const attn_item *it, size_t h, size_t i, size_t j)
{
    const attn_sequence *s = it->seq;
    const unsigned char *mask = mask_row(s, h, i);
    const float *bias = bias_row(s, h, i);
    size_t lo = 0, hi = 0;

    if (mask != NULL && mask[j * s->mask_stride[2]] == 0)
        return false;
    if (bias != NULL && bias[j * s->bias_stride[2]] == -INFINITY)
        return false;
    attn_row_range(run, it, i, &lo, &hi);
    return j >= lo && j < hi;
}

bool attn_scores_are_plain(const attn_run *run, const attn_item *it)
{
    const attn_layer *l = run->layer;

    return !(run->opt->softcap > 0.0F) && it->seq->mask == NULL && it->seq->bias == NULL &&
           (l == NULL || (l->slope == NULL && l->relative == NULL));
}

void attn_soft_cap(float *x, size_t n, float cap)
{
    for (size_t i = 0; i < n; i++)
        x[i] = cap * tanhf(x[i] / cap);
}

/* Adds what depends on the distance of query and key: ALiBi and T5's relative bias. */
static void add_position_bias(const attn_layer *l, const attn_item *it, size_t h, size_t i,
                              float *x, size_t lo, size_t hi)
{
    int64_t p = (int64_t)i + it->seq->causal_offset;

    if (l->slope != NULL) {
        for (size_t j = lo; j < hi; j++)
            x[j - lo] -= l->slope[h] * (float)llabs(p - (int64_t)j);
    }
    if (l->relative != NULL) {
        int64_t most = (int64_t)l->spec.rel_max_distance;
        const float *row = l->relative + h * (size_t)(2 * most + 1) + most;
        for (size_t j = lo; j < hi; j++) {
            int64_t rel = (int64_t)j - p;
            x[j - lo] += row[rel < -most ? -most : rel > most ? most : rel];
        }
    }
}

size_t attn_mask_scores(const attn_run *run, const attn_item *it, size_t h, size_t i, float *x,
                        size_t lo, size_t hi)
{
    const attn_sequence *s = it->seq;
    const unsigned char *mask = mask_row(s, h, i);
    const float *bias = bias_row(s, h, i);
    size_t left = hi - lo;

    if (run->opt->softcap > 0.0F)
        attn_soft_cap(x, hi - lo, run->opt->softcap);
    if (run->layer != NULL)
        add_position_bias(run->layer, it, h, i, x, lo, hi);
    if (bias != NULL) {
        size_t step = s->bias_stride[2];
        for (size_t j = lo; j < hi; j++) {
            float b = bias[j * step];
            x[j - lo] = b == -INFINITY ? -INFINITY : x[j - lo] + b;
            left -= b == -INFINITY;
        }
    }
    if (mask != NULL) {
        size_t step = s->mask_stride[2];
        for (size_t j = lo; j < hi; j++) {
            bool hidden = mask[j * step] == 0;
            left -= hidden && !(bias != NULL && bias[j * s->bias_stride[2]] == -INFINITY);
            x[j - lo] = hidden ? -INFINITY : x[j - lo];
        }
    }
    return left;
}

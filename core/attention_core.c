#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention_private.h"
#include "kern.h"

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

void attn_note_overflow(attn_run *run, const attn_item *it, size_t row)
{
    uint64_t place = (uint64_t)(it - run->items) << 32 | (uint32_t)row;
    uint64_t known = atomic_load(&run->overflow);
    while (place < known && !atomic_compare_exchange_weak(&run->overflow, &known, place))
        ;
}

static void soft_cap(float *x, size_t n, float cap)
{
    for (size_t i = 0; i < n; i++)
        x[i] = cap * tanhf(x[i] / cap);
}

/* Adds what depends on the distance of query and key: ALiBi and T5's relative bias. */
static void add_position_bias(const attn_run *run, const attn_item *it, size_t h, size_t i,
                              float *scores, size_t lo, size_t hi)
{
    const attn_layer *l = run->layer;
    int64_t p = (int64_t)i + it->seq->causal_offset;

    if (l == NULL)
        return;
    if (l->slope != NULL) {
        for (size_t j = lo; j < hi; j++)
            scores[j] -= l->slope[h] * (float)llabs(p - (int64_t)j);
    }
    if (l->relative != NULL) {
        int64_t most = (int64_t)l->spec.rel_max_distance;
        const float *row = l->relative + h * (size_t)(2 * most + 1) + most;
        for (size_t j = lo; j < hi; j++) {
            int64_t rel = (int64_t)j - p;
            scores[j] += row[rel < -most ? -most : rel > most ? most : rel];
        }
    }
}

/* Bias and mask by selection: what is not allowed becomes -Infinity whatever it held. Returns how many
 * keys are left. */
static size_t apply_mask(const attn_sequence *s, size_t h, size_t i, float *scores, size_t lo,
                         size_t hi)
{
    const unsigned char *mask = mask_row(s, h, i);
    const float *bias = bias_row(s, h, i);
    size_t left = hi - lo;

    if (bias != NULL) {
        size_t step = s->bias_stride[2];
        for (size_t j = lo; j < hi; j++) {
            float b = bias[j * step];
            scores[j] = b == -INFINITY ? -INFINITY : scores[j] + b;
            left -= b == -INFINITY;
        }
    }
    if (mask != NULL) {
        size_t step = s->mask_stride[2];
        for (size_t j = lo; j < hi; j++) {
            bool hidden = mask[j * step] == 0;
            left -= hidden && !(bias != NULL && bias[j * s->bias_stride[2]] == -INFINITY);
            scores[j] = hidden ? -INFINITY : scores[j];
        }
    }
    return left;
}

/* Where head h's map goes: its place among the chosen ones, or run->opt->num_heads when not chosen. */
static size_t map_slot(const attn_run *run, size_t h)
{
    const attn_options *o = run->opt;
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

/* Writes one map row: factor * row[j] at key j for j in [lo, hi), `outside` everywhere else. When heads are
 * reduced, `first` tells the first chosen head and the row is combined with what is there. */
static void store_map_row(const attn_run *run, const attn_item *it, size_t slot, bool first,
                          size_t i, const float *row, float factor, size_t lo, size_t hi,
                          float outside)
{
    const attn_options *o = run->opt;
    const attn_view *maps = &it->seq->maps;

    if (i < o->q_from || i - o->q_from >= it->seq->map_rows)
        return;
    bool reduced = o->reduce != ATTN_REDUCE_NONE;
    float *out = maps->data + (i - o->q_from) * maps->row_stride;
    size_t end = o->k_from + it->seq->map_columns;
    if (!reduced) {
        out += slot * maps->head_stride;
        lo = lo < o->k_from ? o->k_from : lo > end ? end : lo;
        hi = hi > end ? end : hi < lo ? lo : hi;
        for (size_t j = o->k_from; j < lo; j++)
            out[j - o->k_from] = outside;
        attn_kernels.scale(out + (lo - o->k_from), row + lo, hi - lo, factor);
        for (size_t j = hi; j < end; j++)
            out[j - o->k_from] = outside;
        return;
    }
    for (size_t j = o->k_from; j < end; j++) {
        float v = j >= lo && j < hi ? factor * row[j] : outside;
        float *cell = out + (j - o->k_from);
        if (first)
            *cell = v;
        else if (o->reduce == ATTN_REDUCE_MEAN)
            *cell += v;
        else
            *cell = v > *cell ? v : *cell;
    }
}

/* The chosen heads were summed; makes it their mean. */
static void finish_mean(const attn_run *run, const attn_item *it, size_t r0, size_t r1)
{
    const attn_options *o = run->opt;
    const attn_view *maps = &it->seq->maps;
    size_t q_to = o->q_from + it->seq->map_rows;
    size_t from = r0 > o->q_from ? r0 : o->q_from, to = r1 < q_to ? r1 : q_to;

    for (size_t i = from; i < to; i++) {
        float *row = maps->data + (i - o->q_from) * maps->row_stride;
        for (size_t j = 0; j < it->seq->map_columns; j++)
            row[j] /= (float)o->num_heads;
    }
}

typedef struct {
    attn_run *run;
    const attn_item *it;
    size_t r0, rows; /* of the strip */
    float *q;        /* [rows, d], already scaled */
    float *scores;   /* [rows][width]; column 0 is key `base`, the begin of a panel */
    size_t width, base;
    float factor[STRIP_ROWS]; /* 1 / sum of each row's exponentials; 0 for a row without keys */
} strip;

/* Scores of all rows with keys [from, to), and with the rest of their panels. */
static void score_columns(strip *t, size_t h, size_t from, size_t to)
{
    const attn_heads *n = &t->run->heads;
    size_t s_len = t->it->s_len, g = h / (n->num_heads / n->num_kv_heads);
    const float *key = t->it->packed_key + g * attn_packed_floats(n->head_dim, s_len);

    t->base = from / attn_kernels.panel * attn_kernels.panel;
    for (size_t j = t->base; j < to; j += attn_kernels.panel) {
        size_t after = j + attn_kernels.panel;
        attn_kernels.product(&(attn_product){
            .m = t->rows,
            .n = attn_panel_width(s_len, j / attn_kernels.panel),
            .k = n->head_dim,
            .a = t->q,
            .lda = n->head_dim,
            .b = key + j * n->head_dim,
            .c = t->scores + (j - t->base),
            .ldc = t->width,
            .next = after < to ? key + after * n->head_dim : NULL,
        });
    }
}

/* The context rows of head h: exponentials times values of keys [base, end), divided by the sums. */
static void weigh_values(const strip *t, size_t h, size_t end)
{
    const attn_heads *n = &t->run->heads;
    const attn_view *context = &t->it->context;
    size_t s_len = t->it->s_len, g = h / (n->num_heads / n->num_kv_heads);
    const float *value = t->it->packed_value + g * attn_packed_floats(s_len, n->v_head_dim);
    float *out = context->data + h * context->head_stride + t->r0 * context->row_stride;

    for (size_t c0 = 0; c0 < n->v_head_dim; c0 += attn_kernels.panel) {
        size_t columns =
            n->v_head_dim - c0 < attn_kernels.panel ? n->v_head_dim - c0 : attn_kernels.panel;
        attn_kernels.product(&(attn_product){
            .m = t->rows,
            .n = columns,
            .k = end - t->base,
            .a = t->scores,
            .lda = t->width,
            .b = value + c0 * s_len +
                 t->base * attn_panel_width(n->v_head_dim, c0 / attn_kernels.panel),
            .c = out + c0,
            .ldc = context->row_stride,
        });
    }
    for (size_t r = 0; r < t->rows; r++) {
        float *row = out + r * context->row_stride;
        attn_kernels.scale(row, row, n->v_head_dim, t->factor[r]);
        if (!attn_kernels.all_finite(row, n->v_head_dim))
            attn_note_overflow(t->run, t->it, t->r0 + r);
    }
    const attn_sequence *s = t->it->seq;
    if (t->run->layer != NULL || s->output == NULL || s->joined_context == NULL)
        return;
    for (size_t r = 0; r < t->rows; r++)
        memcpy(s->output + h * s->output_head_stride + (t->r0 + r) * n->v_head_dim,
               out + r * context->row_stride, n->v_head_dim * sizeof(float));
}

/* The stages before the mask show every cell, so they are computed over all the columns asked for, apart
 * from the softmax, whose work must not depend on what is asked. */
static void store_raw_stage(strip *t, size_t h, size_t slot, bool first)
{
    attn_run *run = t->run;
    const attn_options *o = run->opt;
    size_t end = o->k_from + t->it->seq->map_columns;
    size_t to = end < t->it->s_len ? end : t->it->s_len;

    if (o->k_from < to)
        score_columns(t, h, o->k_from, to);
    else
        to = o->k_from;
    for (size_t r = 0; r < t->rows; r++) {
        float *row = t->scores + r * t->width - t->base; /* row[j] is key j */
        if (o->stage == ATTN_SOFTCAPPED && o->softcap > 0.0F)
            soft_cap(row + o->k_from, to - o->k_from, o->softcap);
        if (!attn_kernels.all_finite(row + o->k_from, to - o->k_from))
            attn_note_overflow(run, t->it, t->r0 + r);
        store_map_row(run, t->it, slot, first, t->r0 + r, row, 1.0F, o->k_from, to, 0.0F);
    }
}

/* Scores of row r become exponentials over keys [lo, hi); the rest of [base, end) becomes zero. Returns the
 * row's logsumexp, -Infinity for a row without keys. */
static float softmax_row(strip *t, size_t h, size_t r, size_t lo, size_t hi, size_t end,
                         size_t slot, bool first)
{
    attn_run *run = t->run;
    const attn_options *o = run->opt;
    size_t i = t->r0 + r;
    float *row = t->scores + r * t->width - t->base; /* row[j] is key j */
    bool mapped = slot < o->num_heads;
    float logsumexp = -INFINITY;

    if (o->softcap > 0.0F)
        soft_cap(row + lo, hi - lo, o->softcap);
    add_position_bias(run, t->it, h, i, row, lo, hi);
    size_t left = apply_mask(t->it->seq, h, i, row, lo, hi);
    if (mapped && o->stage == ATTN_MASKED)
        store_map_row(run, t->it, slot, first, i, row, 1.0F, lo, hi, -INFINITY);

    t->factor[r] = 0.0F;
    if (left == 0) {
        lo = hi = t->base;
        atomic_fetch_add(&run->fully_masked, 1);
    } else {
        float max = attn_kernels.row_max(row + lo, hi - lo);
        float sum = attn_kernels.exp_sum(row + lo, hi - lo, max);
        if (!isfinite(max) || !isfinite(sum))
            attn_note_overflow(run, t->it, i);
        logsumexp = max + logf(sum);
        t->factor[r] = 1.0F / sum;
    }
    memset(row + t->base, 0, (lo - t->base) * sizeof(float));
    memset(row + hi, 0, (end - hi) * sizeof(float));
    if (mapped && o->stage == ATTN_PROBABILITIES)
        store_map_row(run, t->it, slot, first, i, row, t->factor[r], lo, hi, 0.0F);
    return logsumexp;
}

/* Is there anything to compute for a head of this strip but the number of its empty rows? */
static bool strip_wanted(const strip *t, size_t slot)
{
    const attn_options *o = t->run->opt;
    const attn_sequence *s = t->it->seq;
    bool mapped =
        slot < o->num_heads && t->r0 < o->q_from + s->map_rows && t->r0 + t->rows > o->q_from;

    return mapped || t->it->context.data != NULL || s->logsumexp != NULL;
}

static void count_masked_rows(const strip *t, size_t h)
{
    for (size_t i = t->r0; i < t->r0 + t->rows; i++) {
        size_t lo = 0, hi = 0;
        attn_row_range(t->run, t->it, i, &lo, &hi);
        while (lo < hi && !attn_visible(t->run, t->it, h, i, lo))
            lo++;
        if (lo == hi)
            atomic_fetch_add(&t->run->fully_masked, 1);
    }
}

/* One head of a strip: scores over the keys that any of its rows may see, softmax, times V. */
static void strip_head(strip *t, size_t h, bool first)
{
    attn_run *run = t->run;
    const attn_item *it = t->it;
    const attn_heads *n = &run->heads;
    const attn_options *o = run->opt;
    size_t slot = map_slot(run, h), lo = it->s_len, hi = 0;

    if (!strip_wanted(t, slot)) {
        count_masked_rows(t, h);
        return;
    }
    for (size_t r = 0; r < t->rows; r++) {
        size_t from = 0, to = 0;
        attn_row_range(run, it, t->r0 + r, &from, &to);
        if (from < to) {
            lo = from < lo ? from : lo;
            hi = to > hi ? to : hi;
        }
    }
    if (lo > hi)
        lo = hi;
    for (size_t r = 0; r < t->rows; r++)
        attn_kernels.scale(t->q + r * n->head_dim,
                           it->query.data + h * it->query.head_stride +
                               (t->r0 + r) * it->query.row_stride,
                           n->head_dim, o->scale);
    if (slot < o->num_heads && (o->stage == ATTN_SCORES || o->stage == ATTN_SOFTCAPPED))
        store_raw_stage(t, h, slot, first);

    score_columns(t, h, lo, hi);
    for (size_t r = 0; r < t->rows; r++) {
        size_t from = 0, to = 0;
        attn_row_range(run, it, t->r0 + r, &from, &to);
        if (from == to)
            from = to = t->base;
        float lse = softmax_row(t, h, r, from, to, hi, slot, first);
        if (it->seq->logsumexp != NULL)
            it->seq->logsumexp[h * it->seq->lse_head_stride + t->r0 + r] = lse;
    }
    if (it->context.data != NULL)
        weigh_values(t, h, hi);
}

void attn_strip_task(void *arg, size_t task, size_t worker)
{
    attn_run *run = arg;
    const attn_options *o = run->opt;
    size_t n_heads = run->heads.num_heads, index = 0;

    if (run->cancel != NULL && atomic_load(run->cancel))
        return;
    const attn_item *it = attn_find_item(run, ATTN_PHASE_STRIP, task, &index);
    bool together = o->want_maps && o->reduce != ATTN_REDUCE_NONE;
    size_t strips = (it->seq->q_len + STRIP_ROWS - 1) / STRIP_ROWS;
    /* Strips of one head follow each other, so that its keys and values stay in cache; the last strips come
     * first: with causality they are the longest. */
    size_t r0 = (strips - 1 - index % strips) * STRIP_ROWS;
    size_t rows = it->seq->q_len - r0 < STRIP_ROWS ? it->seq->q_len - r0 : STRIP_ROWS;
    strip t = {.run = run, .it = it, .r0 = r0, .rows = rows};

    t.q = run->scratch + worker * run->scratch_floats;
    t.scores = t.q + (STRIP_ROWS * run->heads.head_dim + 15) / 16 * 16;
    t.width = (it->s_len + 15) / 16 * 16 + 16;
    if (!together) {
        strip_head(&t, index / strips, true);
        return;
    }
    bool first = true;
    for (size_t h = 0; h < n_heads; h++) {
        strip_head(&t, h, first);
        if (map_slot(run, h) < o->num_heads)
            first = false;
    }
    if (o->reduce == ATTN_REDUCE_MEAN)
        finish_mean(run, it, r0, r0 + rows);
}

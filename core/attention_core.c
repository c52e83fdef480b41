#include <math.h>
#include <string.h>

#include "attention_private.h"
#include "kern.h"

/* One head of one strip of query rows. */
typedef struct {
    attn_run *run;
    const attn_item *it;
    size_t h, g;  /* the head, and the one whose keys it uses */
    size_t slot;  /* its place among the maps */
    bool combine; /* with the map of an earlier head: they are reduced to one */
    attn_map map;
    float *folded;   /* where the map is formed when only a part of it is kept */
    size_t room;     /* of its rows */
    size_t r0, rows; /* of the strip */
    float *q;        /* [rows, d], already scaled */
    float *context;  /* [rows, e] of one tile of keys */
    float *scores;   /* [rows][ld] */
    size_t ld;
    float *max, *sum, *factor; /* [rows] of the running softmax */
    float *max_after;          /* [key tiles][rows], with kept scores */
    size_t seen[STRIP_ROWS];   /* keys that each row may attend to, so far */
    bool begun;                /* the context rows hold something */
} strip;

/* Are whole rows of a strip held? */
static bool holds_rows(const attn_options *o)
{
    return attn_keeps_scores(o) || attn_folds_maps(o);
}

/* Most rows of a strip. */
static size_t most_rows(const attn_options *o, size_t length)
{
    size_t most = o->is_causal ? CAUSAL_ROWS : STRIP_ROWS, unit = attn_row_unit();

    if (holds_rows(o))
        most = attn_min(KEPT_FLOATS / attn_max(length, 1), most);
    return attn_max(most / unit * unit, unit);
}

/* Strips of a sequence are equal as far as they can be. */
static size_t strip_rows(const attn_options *o, const attn_sequence *s)
{
    size_t most = most_rows(o, attn_row_length(s)), strips = attn_tiles(s->q_len, most),
           unit = attn_row_unit();

    return strips == 0 ? most
                       : attn_min(attn_tiles(attn_tiles(s->q_len, strips), unit) * unit, most);
}

size_t attn_strip_tasks(const attn_run *run, const attn_item *it)
{
    const attn_options *o = run->opt;
    bool together = o->want_maps && o->reduce != ATTN_REDUCE_NONE;
    size_t strips = attn_tiles(it->seq->q_len, strip_rows(o, it->seq));

    return strips * (together ? 1 : run->heads.num_heads);
}

/* Room of a held row; a little more than a power of two, so that rows do not share cache sets. */
static size_t row_room(size_t length)
{
    return attn_tiles(length, 16) * 16 + 16;
}

/* Room of all held rows of a strip, for any length up to the longest. */
static size_t held_floats(size_t longest)
{
    size_t rows = attn_min(KEPT_FLOATS / attn_max(longest, 1), STRIP_ROWS);

    if (rows == STRIP_ROWS)
        return STRIP_ROWS * row_room(longest);
    return attn_max(KEPT_FLOATS + STRIP_ROWS * 32, attn_row_unit() * row_room(longest));
}

size_t attn_strip_scratch(const attn_heads *n, const attn_options *o, size_t longest)
{
    size_t floats = STRIP_ROWS * 3 + attn_tiles(STRIP_ROWS * n->head_dim, 16) * 16 +
                    attn_tiles(STRIP_ROWS * n->v_head_dim, 16) * 16;
    size_t tiles = attn_tiles(longest, KEY_TILE);

    if (attn_folds_maps(o))
        floats += held_floats(longest);
    if (!attn_keeps_scores(o))
        return floats + STRIP_ROWS * row_room(KEY_TILE);
    return floats + held_floats(longest) +
           attn_max(STRIP_ROWS + KEPT_FLOATS / KEY_TILE, attn_row_unit() * tiles);
}

/* Scores of all rows with keys [from, to), and with the rest of their panels; from begins a panel. */
static void score_keys(const strip *t, float *scores, size_t from, size_t to)
{
    const attn_heads *n = &t->run->heads;
    size_t s_len = t->it->s_len;
    const float *key = t->it->packed_key + t->g * attn_packed_floats(n->head_dim, s_len);

    for (size_t j = from; j < to; j += attn_kernels.panel) {
        size_t after = j + attn_kernels.panel;
        attn_kernels.product(&(attn_product){
            .m = t->rows,
            .n = attn_min(attn_panel_width(s_len, j / attn_kernels.panel), KEY_TILE),
            .k = n->head_dim,
            .a = t->q,
            .lda = n->head_dim,
            .b = key + j * n->head_dim,
            .c = scores + (j - from),
            .ldc = t->ld,
            .next = after < s_len ? key + after * n->head_dim : NULL,
        });
    }
}

/* The context rows so far times t->factor, plus exponentials times values of keys [from, to). Each
 * tile is summed by itself: in one sum over 20000 keys the roundings grow to 2e-5 of it. */
static void weigh_values(strip *t, const float *scores, size_t from, size_t to)
{
    const attn_heads *n = &t->run->heads;
    const attn_view *context = &t->it->context;
    size_t s_len = t->it->s_len, panel = attn_kernels.panel;
    const float *value = t->it->packed_value + t->g * attn_packed_floats(s_len, n->v_head_dim);
    float *out = context->data + t->h * context->head_stride + t->r0 * context->row_stride;

    for (size_t c0 = 0; c0 < n->v_head_dim; c0 += panel) {
        attn_kernels.product(&(attn_product){
            .m = t->rows,
            .n = attn_min(n->v_head_dim - c0, panel),
            .k = to - from,
            .a = scores,
            .lda = t->ld,
            .b = value + c0 * s_len + from * attn_panel_width(n->v_head_dim, c0 / panel),
            .c = (t->begun ? t->context : out) + c0,
            .ldc = t->begun ? n->v_head_dim : context->row_stride,
        });
    }
    for (size_t r = 0; r < t->rows && t->begun; r++)
        attn_kernels.scale_add(out + r * context->row_stride, t->context + r * n->v_head_dim,
                               n->v_head_dim, t->factor[r]);
    t->begun = true;
}

/* The stages before the mask show every cell, so they are computed over all the columns asked for, apart
 * from the softmax, whose work must not depend on what is asked. */
static void store_raw_stage(strip *t)
{
    const attn_options *o = t->run->opt;
    size_t end = o->k_from + t->it->seq->map_columns, to = attn_min(end, t->it->s_len);
    size_t begin = o->k_from / KEY_TILE * KEY_TILE;

    for (size_t from = begin; from < to; from += KEY_TILE) {
        size_t until = attn_min(from + KEY_TILE, to);
        score_keys(t, t->scores, from, until);
        for (size_t r = 0; r < t->rows; r++) {
            float *row = t->scores + r * t->ld;
            if (o->stage == ATTN_SOFTCAPPED && o->softcap > 0.0F)
                attn_soft_cap(row, until - from, o->softcap);
            if (!attn_map_finite(&t->map, t->r0 + r, row, from, until))
                attn_note_overflow(t->run, t->it, t->r0 + r);
            attn_map_piece(&t->map, t->r0 + r, row, 1.0F, from, until);
        }
    }
    for (size_t r = 0; r < t->rows; r++)
        attn_map_fill(&t->map, t->r0 + r, 0.0F, to, end);
}

/* Scores of the tile [from, to) become what the softmax takes: masked ones are -Infinity. */
static void mask_tile(strip *t, float *scores, size_t from, size_t to)
{
    bool plain = attn_scores_are_plain(t->run, t->it);
    bool mapped = t->slot < t->run->opt->num_heads && t->run->opt->stage == ATTN_MASKED;
    size_t room = attn_tiles(to - from, attn_kernels.lanes) * attn_kernels.lanes;

    for (size_t r = 0; r < t->rows; r++) {
        size_t lo = 0, hi = 0;
        float *x = scores + r * t->ld;
        attn_row_range(t->run, t->it, t->r0 + r, &lo, &hi);
        lo = attn_min(attn_max(lo, from), to) - from;
        hi = attn_max(attn_min(hi, to), from + lo) - from;
        for (size_t j = 0; j < lo; j++)
            x[j] = -INFINITY;
        for (size_t j = hi; j < room; j++)
            x[j] = -INFINITY;
        t->seen[r] +=
            plain ? hi - lo
                  : attn_mask_scores(t->run, t->it, t->h, t->r0 + r, x + lo, from + lo, from + hi);
        if (mapped)
            attn_map_piece(&t->map, t->r0 + r, x, 1.0F, from, to);
    }
}

/* The probabilities of row r over keys [from, to): each tile was taken relative to the largest score then. */
static void store_probabilities(const strip *t, size_t r, float inverse, size_t from, size_t to)
{
    const float *x = t->scores + r * t->ld;
    float known = -INFINITY, factor = 0.0F;

    for (size_t j = from, tile = 0; j < to; tile++) {
        size_t end = attn_min((j / KEY_TILE + 1) * KEY_TILE, to);
        float max = t->max_after[tile * t->rows + r];
        if (max != known) {
            known = max;
            factor = max == t->max[r] ? inverse : expf(max - t->max[r]) * inverse;
        }
        attn_map_piece(&t->map, t->r0 + r, x + (j - from), factor, j, end);
        j = end;
    }
}

/* The map row's keys outside of [from, to), and its probabilities. */
static void finish_map_row(const strip *t, size_t r, float inverse, size_t from, size_t to)
{
    const attn_options *o = t->run->opt;
    float outside = o->stage == ATTN_MASKED ? -INFINITY : 0.0F;

    attn_map_fill(&t->map, t->r0 + r, outside, 0, from);
    if (attn_keeps_scores(o))
        store_probabilities(t, r, inverse, from, to);
    attn_map_fill(&t->map, t->r0 + r, outside, to, SIZE_MAX);
}

/* All tiles are done: context rows are divided by their sums, and the row's other results are written. */
static void finish_row(const strip *t, size_t r, size_t from, size_t to)
{
    attn_run *run = t->run;
    const attn_sequence *s = t->it->seq;
    const attn_view *context = &t->it->context;
    size_t i = t->r0 + r, e = run->heads.v_head_dim;
    bool empty = t->seen[r] == 0;
    float inverse = empty ? 0.0F : 1.0F / t->sum[r];

    if (empty)
        atomic_fetch_add(&run->fully_masked, 1);
    else if (!isfinite(t->max[r]) || !isfinite(t->sum[r]))
        attn_note_overflow(run, t->it, i);
    if (s->logsumexp != NULL)
        s->logsumexp[t->h * s->lse_head_stride + i] =
            empty ? -INFINITY : t->max[r] + logf(t->sum[r]);
    if (t->slot < run->opt->num_heads &&
        (run->opt->stage == ATTN_MASKED || attn_keeps_scores(run->opt)))
        finish_map_row(t, r, inverse, from, to);
    if (context->data == NULL)
        return;
    float *row = context->data + t->h * context->head_stride + i * context->row_stride;
    if (!t->begun)
        memset(row, 0, e * sizeof(float));
    attn_kernels.scale(row, row, e, inverse);
    /* What is not finite here shows in every output of the row, which are checked. */
    if ((run->layer == NULL || s->output == NULL) && !attn_kernels.all_finite(row, e))
        attn_note_overflow(run, t->it, i);
    if (run->layer == NULL && s->output != NULL && s->joined_context != NULL)
        memcpy(s->output + t->h * s->output_head_stride + i * e, row, e * sizeof(float));
}

/* Is there anything to compute for a head of this strip but the number of its empty rows? */
static bool strip_wanted(const strip *t)
{
    const attn_options *o = t->run->opt;
    const attn_sequence *s = t->it->seq;
    bool mapped =
        t->slot < o->num_heads && t->r0 < o->q_from + s->map_rows && t->r0 + t->rows > o->q_from;

    return mapped || t->it->context.data != NULL || s->logsumexp != NULL;
}

static void count_masked_rows(const strip *t)
{
    for (size_t i = t->r0; i < t->r0 + t->rows; i++) {
        size_t lo = 0, hi = 0;
        attn_row_range(t->run, t->it, i, &lo, &hi);
        while (lo < hi && !attn_visible(t->run, t->it, t->h, i, lo))
            lo++;
        if (lo == hi)
            atomic_fetch_add(&t->run->fully_masked, 1);
    }
}

/* Keys [*from, *to) that any row of the strip may see; *from begins a panel. Where rows are not
 * independent of each other these are whole tiles, so that other rows do not change their number. */
static void strip_range(const strip *t, size_t *from, size_t *to)
{
    *from = t->it->s_len;
    *to = 0;
    for (size_t r = 0; r < t->rows; r++) {
        size_t lo = 0, hi = 0;
        attn_row_range(t->run, t->it, t->r0 + r, &lo, &hi);
        if (lo < hi) {
            *from = attn_min(*from, lo);
            *to = attn_max(*to, hi);
        }
    }
    if (*from >= *to) {
        *from = *to;
    } else if (attn_kernels.row_block == 1) {
        *from = *from / attn_kernels.panel * attn_kernels.panel;
    } else {
        *from = *from / KEY_TILE * KEY_TILE;
        *to = attn_min(attn_tiles(*to, KEY_TILE) * KEY_TILE, t->it->s_len);
    }
}

/* Scores, softmax as far as it goes, values. */
static void weigh_tile(strip *t, float *scores, size_t from, size_t to)
{
    score_keys(t, scores, from, to);
    mask_tile(t, scores, from, to);
    attn_kernels.softmax(&(attn_softmax){
        .x = scores,
        .rows = t->rows,
        .n = attn_tiles(to - from, attn_kernels.lanes) * attn_kernels.lanes,
        .ld = t->ld,
        .max = t->max,
        .sum = t->sum,
        .factor = t->factor,
    });
    if (t->it->context.data != NULL)
        weigh_values(t, scores, from, to);
}

/* Does the mask leave any key of the tile to any row? */
static bool tile_visible(const strip *t, size_t from, size_t to)
{
    const attn_sequence *s = t->it->seq;
    size_t rows = s->mask != NULL && s->mask_stride[1] == 0 ? 1 : t->rows; /* all alike */

    for (size_t r = 0; r < rows && s->mask != NULL; r++) {
        const unsigned char *row =
            s->mask + t->h * s->mask_stride[0] + (t->r0 + r) * s->mask_stride[1];
        for (size_t j = from; j < to; j++) {
            if (row[j * s->mask_stride[2]] != 0)
                return true;
        }
    }
    return s->mask == NULL;
}

/* Nobody sees the tile: the results so far stand, the maps say so. */
static void skip_tile(strip *t, float *scores, size_t from, size_t to, bool kept)
{
    for (size_t r = 0; r < t->rows; r++) {
        if (kept)
            memset(scores + r * t->ld, 0, (to - from) * sizeof(float));
        if (t->slot < t->run->opt->num_heads && t->run->opt->stage == ATTN_MASKED)
            attn_map_fill(&t->map, t->r0 + r, -INFINITY, from, to);
    }
}

/* One head of a strip: key tile by key tile, scores, softmax as far as it goes, times V. */
static void strip_head(strip *t)
{
    attn_run *run = t->run;
    const attn_options *o = run->opt;
    size_t d = run->heads.head_dim, begin = 0, end = 0;
    const attn_view *query = &t->it->query;

    t->begun = false;
    t->slot = attn_map_slot(o, t->h);
    t->map = attn_map_of(run, t->it, t->slot, t->combine, t->folded, t->room, t->r0);
    t->g = t->h / (run->heads.num_heads / run->heads.num_kv_heads);
    if (!strip_wanted(t)) {
        count_masked_rows(t);
        return;
    }
    for (size_t r = 0; r < t->rows; r++) {
        attn_kernels.scale(
            t->q + r * d, query->data + t->h * query->head_stride + (t->r0 + r) * query->row_stride,
            d, o->scale);
        t->max[r] = -INFINITY;
        t->sum[r] = 0.0F;
        t->seen[r] = 0;
    }
    if (t->slot < o->num_heads && (o->stage == ATTN_SCORES || o->stage == ATTN_SOFTCAPPED))
        store_raw_stage(t);

    bool kept = attn_keeps_scores(o) && t->slot < o->num_heads;
    strip_range(t, &begin, &end);
    for (size_t from = begin, to = 0, tile = 0; from < end && !attn_canceled(run);
         from = to, tile++) {
        to = attn_min((from / KEY_TILE + 1) * KEY_TILE, end);
        float *scores = t->scores + (kept ? from - begin : 0);
        if (tile_visible(t, from, to))
            weigh_tile(t, scores, from, to);
        else
            skip_tile(t, scores, from, to, kept);
        if (kept)
            memcpy(t->max_after + tile * t->rows, t->max, t->rows * sizeof(float));
    }
    for (size_t r = 0; r < t->rows; r++)
        finish_row(t, r, begin, end);
    attn_kernels.end_streams();
}

void attn_strip_task(void *arg, size_t task, size_t worker)
{
    attn_run *run = arg;
    const attn_options *o = run->opt;
    size_t index = 0;

    if (attn_canceled(run))
        return;
    const attn_item *it = attn_find_item(run, ATTN_PHASE_STRIP, task, &index);
    bool together = o->want_maps && o->reduce != ATTN_REDUCE_NONE;
    size_t most = strip_rows(o, it->seq), strips = attn_tiles(it->seq->q_len, most);
    /* Strips of one head follow each other, so that its keys and values stay in cache; the last strips come
     * first: with causality they are the longest. */
    size_t r0 = (strips - 1 - index % strips) * most;
    strip t = {
        .run = run,
        .it = it,
        .r0 = r0,
        .rows = attn_min(it->seq->q_len - r0, most),
        .h = together ? 0 : index / strips,
        .ld = row_room(attn_keeps_scores(o) ? it->s_len : KEY_TILE),
    };

    t.max = run->scratch + worker * run->scratch_floats;
    t.sum = t.max + STRIP_ROWS;
    t.factor = t.sum + STRIP_ROWS;
    t.q = t.factor + STRIP_ROWS;
    t.context = t.q + attn_tiles(STRIP_ROWS * run->heads.head_dim, 16) * 16;
    t.scores = t.context + attn_tiles(STRIP_ROWS * run->heads.v_head_dim, 16) * 16;
    t.max_after = t.scores + most * t.ld;
    t.folded = t.max_after + (attn_keeps_scores(o) ? most * attn_tiles(it->s_len, KEY_TILE) : 0);
    t.room = row_room(it->seq->map_columns);
    size_t end = together ? run->heads.num_heads : t.h + 1;
    attn_map last = {0};
    for (; t.h < end; t.h++) {
        strip_head(&t);
        if (t.slot < o->num_heads) {
            t.combine = together;
            last = t.map;
        }
    }
    if (o->want_maps)
        attn_map_finish(&last, r0, r0 + t.rows);
}

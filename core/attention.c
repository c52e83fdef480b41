#include "attention.h"

#include <math.h>
#include <string.h>

#include "attention_private.h"
#include "cpu.h"
#include "kern.h"
#include "rope.h"

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t tiles(size_t n, size_t tile)
{
    return (n + tile - 1) / tile;
}

/* --- the workspace -------------------------------------------------------------------------- */

static attn_heads heads_of(const attn_layer *layer, const attn_heads *heads)
{
    if (layer == NULL)
        return *heads;
    const attn_layer_spec *s = &layer->spec;
    return (attn_heads){s->num_heads, s->num_kv_heads, s->head_dim, s->v_head_dim};
}

/* Hands out the workspace in lines of 64 bytes; with base NULL it only counts. */
typedef struct {
    char *base;
    size_t used;
} carver;

static void *carve(carver *c, size_t n, size_t size)
{
    void *p = c->base == NULL ? NULL : c->base + c->used;
    c->used += (n * size + 63) / 64 * 64;
    return p;
}

/* One sequence's share: Q [T, H*d], K and V of the new tokens side by side [kv_len, G*d + G*e], K and V
 * packed, and the joined context [T, H*e] unless it may overwrite Q (a task reads its block of Q before it
 * writes there). */
static void carve_item(carver *c, attn_item *it, const attn_layer *layer, const attn_heads *n,
                       const attn_sequence *s)
{
    size_t hd = n->num_heads * n->head_dim, he = n->num_heads * n->v_head_dim;
    size_t kv = n->num_kv_heads * (n->head_dim + n->v_head_dim), s_len = s->past_len + s->kv_len;
    float *q = NULL, *new_kv = NULL, *joined = NULL;

    if (layer != NULL) {
        q = carve(c, s->q_len * hd, sizeof(float));
        new_kv = carve(c, s->kv_len * kv, sizeof(float));
        joined = n->head_dim == n->v_head_dim ? q : carve(c, s->q_len * he, sizeof(float));
    }
    float *packed_key =
        carve(c, n->num_kv_heads * attn_packed_floats(n->head_dim, s_len), sizeof(float));
    float *packed_value =
        carve(c, n->num_kv_heads * attn_packed_floats(s_len, n->v_head_dim), sizeof(float));
    if (it == NULL)
        return;
    it->s_len = s_len;
    it->packed_key = packed_key;
    it->packed_value = packed_value;
    it->query = layer != NULL ? (attn_view){q, n->head_dim, hd} : s->query;
    it->key = layer != NULL ? (attn_view){new_kv, n->head_dim, kv} : s->key;
    it->value = layer != NULL
                    ? (attn_view){new_kv + n->num_kv_heads * n->head_dim, n->v_head_dim, kv}
                    : s->value;
    /* The heads are joined where the caller wants them, else over Q; without a layer the context itself
     * is the output. */
    if (s->joined_context != NULL)
        it->context = (attn_view){s->joined_context, n->v_head_dim, he};
    else if (layer == NULL)
        it->context = (attn_view){s->output, s->output_head_stride, n->v_head_dim};
    else if (s->output != NULL)
        it->context = (attn_view){joined, n->v_head_dim, he};
    else
        it->context = (attn_view){NULL, 0, 0};
}

static size_t scratch_floats(const attn_heads *n, size_t longest)
{
    return tiles(STRIP_ROWS * n->head_dim, 16) * 16 + STRIP_ROWS * (tiles(longest, 16) * 16 + 16);
}

size_t attn_sequence_bytes(const attn_layer *layer, const attn_heads *heads,
                           const attn_sequence *seq)
{
    attn_heads n = heads_of(layer, heads);
    carver c = {NULL, 0};

    (void)carve(&c, 1, sizeof(attn_item));
    carve_item(&c, NULL, layer, &n, seq);
    return c.used;
}

size_t attn_scratch_bytes(const attn_layer *layer, const attn_heads *heads, size_t longest,
                          size_t workers)
{
    attn_heads n = heads_of(layer, heads);
    return workers * scratch_floats(&n, longest) * sizeof(float) + 64;
}

/* --- projections ---------------------------------------------------------------------------- */

static bool canceled(const attn_run *run)
{
    return run->cancel != NULL && atomic_load(run->cancel);
}

/* A product of the rows of a sequence, cut into tiles of rows by one panel of columns. */
typedef struct {
    const float *in;
    size_t rows, in_width;
    const float *weight, *bias;
    float *out;
    size_t out_width; /* columns, and the row stride */
} projection;

static size_t projection_tasks(const projection *p)
{
    return tiles(p->rows, PROJECTION_ROWS) * attn_panel_count(p->out_width);
}

static attn_product project(const projection *p, size_t index)
{
    size_t columns = attn_panel_count(p->out_width);
    size_t r0 = index / columns * PROJECTION_ROWS, c0 = index % columns * attn_kernels.panel;

    attn_product tile = {
        .m = min_size(p->rows - r0, PROJECTION_ROWS),
        .n = min_size(p->out_width - c0, attn_kernels.panel),
        .k = p->in_width,
        .a = p->in + r0 * p->in_width,
        .lda = p->in_width,
        .b = p->weight + c0 * p->in_width,
        .c = p->out + r0 * p->out_width + c0,
        .ldc = p->out_width,
        .bias = p->bias == NULL ? NULL : p->bias + c0,
    };
    attn_kernels.product(&tile);
    return tile;
}

static projection query_projection(const attn_run *run, const attn_item *it)
{
    const attn_layer *l = run->layer;
    return (projection){it->seq->x, it->seq->q_len, l->spec.d_model,     l->wq,
                        l->bq,      it->query.data, it->query.row_stride};
}

static projection key_value_projection(const attn_run *run, const attn_item *it)
{
    const attn_layer *l = run->layer;
    const attn_sequence *s = it->seq;
    return (projection){s->context != NULL ? s->context : s->x,
                        s->kv_len,
                        l->spec.d_kv,
                        l->wkv,
                        l->bkv,
                        it->key.data,
                        it->key.row_stride};
}

static projection output_projection(const attn_run *run, const attn_item *it)
{
    const attn_layer *l = run->layer;
    return (projection){it->context.data, it->seq->q_len, it->context.row_stride, l->wo, l->bo,
                        it->seq->output,  l->spec.d_out};
}

static void project_task(void *arg, size_t task, size_t worker)
{
    attn_run *run = arg;
    size_t index = 0;

    (void)worker;
    const attn_item *it = attn_find_item(run, ATTN_PHASE_PROJECT, task, &index);
    projection q = query_projection(run, it), kv = key_value_projection(run, it);
    size_t first = projection_tasks(&q);
    if (!canceled(run))
        project(index < first ? &q : &kv, index < first ? index : index - first);
}

/* A finite context can still overflow in the output projection. */
static void output_task(void *arg, size_t task, size_t worker)
{
    attn_run *run = arg;
    size_t index = 0;

    (void)worker;
    const attn_item *it = attn_find_item(run, ATTN_PHASE_OUTPUT, task, &index);
    projection p = output_projection(run, it);
    if (canceled(run))
        return;
    attn_product tile = project(&p, index);
    for (size_t r = 0; r < tile.m; r++) {
        if (!attn_kernels.all_finite(tile.c + r * tile.ldc, tile.n))
            attn_note_overflow(run, it, (size_t)(tile.c - p.out) / p.out_width + r);
    }
}

/* --- rows between projection and attention --------------------------------------------------- */

/* x / rms(x) * weight (Zhang and Sennrich 2019, arXiv 1910.07467). */
static void rms_norm(float *x, size_t n, const float *weight, float eps)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    float factor = (float)(1.0 / sqrt(sum / (double)n + (double)eps));
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] * factor * weight[i];
}

/* Norm and rotation of one token's heads at `position`. */
static void finish_heads(const attn_layer *l, float *row, size_t heads, const float *norm,
                         int64_t position)
{
    enum { ANGLES = 64 };
    const attn_layer_spec *s = &l->spec;
    size_t half = s->rope.dims / 2;

    if (norm != NULL) {
        for (size_t h = 0; h < heads; h++)
            rms_norm(row + h * s->head_dim, s->head_dim, norm, s->qk_norm_eps);
    }
    if (s->rope.style == ATTN_ROPE_NONE)
        return;
    bool interleaved = s->rope.style == ATTN_ROPE_INTERLEAVED;
    for (size_t m0 = 0; m0 < half; m0 += ANGLES) {
        float cosine[ANGLES], sine[ANGLES];
        size_t n = min_size(half - m0, ANGLES);
        attn_rope_angles(l->frequency + m0, n, position, cosine, sine);
        for (size_t h = 0; h < heads; h++)
            attn_rope_rotate(row + h * s->head_dim + (interleaved ? 2 * m0 : m0), n, half,
                             s->rope.style, cosine, sine);
    }
}

static void copy_row(const attn_view *to, const attn_view *from, size_t row, size_t heads,
                     size_t width)
{
    if (to->data == NULL)
        return;
    for (size_t h = 0; h < heads; h++)
        memcpy(to->data + h * to->head_stride + row * to->row_stride,
               from->data + h * from->head_stride + row * from->row_stride, width * sizeof(float));
}

static bool row_finite(const attn_view *v, size_t row, size_t heads, size_t width)
{
    for (size_t h = 0; h < heads; h++) {
        if (!attn_kernels.all_finite(v->data + h * v->head_stride + row * v->row_stride, width))
            return false;
    }
    return true;
}

const float *attn_source_key(const attn_run *run, const attn_item *it, size_t g, size_t j)
{
    const attn_sequence *s = it->seq;
    return j < s->past_len
               ? s->past_key + (g * s->past_len + j) * run->heads.head_dim
               : it->key.data + g * it->key.head_stride + (j - s->past_len) * it->key.row_stride;
}

const float *attn_source_value(const attn_run *run, const attn_item *it, size_t g, size_t j)
{
    const attn_sequence *s = it->seq;
    return j < s->past_len ? s->past_value + (g * s->past_len + j) * run->heads.v_head_dim
                           : it->value.data + g * it->value.head_stride +
                                 (j - s->past_len) * it->value.row_stride;
}

/* Packs keys [j0, j1) of one head and hands them out; all of them are past or all are new. */
static void pack_keys(attn_run *run, const attn_item *it, size_t g, size_t j0, size_t j1)
{
    const attn_heads *n = &run->heads;
    const attn_sequence *s = it->seq;
    const float *key = attn_source_key(run, it, g, j0), *value = attn_source_value(run, it, g, j0);
    bool past = j0 < s->past_len;
    size_t key_stride = past ? n->head_dim : it->key.row_stride;
    size_t value_stride = past ? n->v_head_dim : it->value.row_stride;

    attn_pack_transposed(it->packed_key + g * attn_packed_floats(n->head_dim, it->s_len),
                         n->head_dim, it->s_len, j0, key, j1 - j0, key_stride);
    attn_pack_rows(it->packed_value + g * attn_packed_floats(it->s_len, n->v_head_dim), it->s_len,
                   n->v_head_dim, j0, value, j1 - j0, value_stride);
    for (size_t j = j0; j < j1; j++, key += key_stride, value += value_stride) {
        if (s->key_out.data != NULL)
            memcpy(s->key_out.data + g * s->key_out.head_stride + j * s->key_out.row_stride, key,
                   n->head_dim * sizeof(float));
        if (s->value_out.data != NULL)
            memcpy(s->value_out.data + g * s->value_out.head_stride + j * s->value_out.row_stride,
                   value, n->v_head_dim * sizeof(float));
        if (!attn_kernels.all_finite(key, n->head_dim) ||
            !attn_kernels.all_finite(value, n->v_head_dim))
            atomic_store(&run->dirty, true);
    }
}

static void key_value_rows(attn_run *run, const attn_item *it, size_t j0, size_t j1)
{
    const attn_sequence *s = it->seq;
    const attn_heads *n = &run->heads;
    size_t border = j0 > s->past_len ? j0 : min_size(s->past_len, j1);

    for (size_t j = border; j < j1 && run->layer != NULL; j++) {
        size_t new_j = j - s->past_len;
        int64_t position = s->context == NULL && s->positions != NULL
                               ? s->positions[new_j]
                               : s->key_position_offset + (int64_t)new_j;
        finish_heads(run->layer, it->key.data + new_j * it->key.row_stride, n->num_kv_heads,
                     run->layer->k_norm, position);
    }
    for (size_t g = 0; g < n->num_kv_heads; g++) {
        if (j0 < border)
            pack_keys(run, it, g, j0, border);
        if (border < j1)
            pack_keys(run, it, g, border, j1);
    }
}

static void query_row(attn_run *run, const attn_item *it, size_t i)
{
    const attn_sequence *s = it->seq;
    const attn_heads *n = &run->heads;

    if (run->layer != NULL)
        finish_heads(run->layer, it->query.data + i * it->query.row_stride, n->num_heads,
                     run->layer->q_norm,
                     s->positions != NULL ? s->positions[i] : s->position_offset + (int64_t)i);
    copy_row(&s->query_out, &it->query, i, n->num_heads, n->head_dim);
    if (!row_finite(&it->query, i, n->num_heads, n->head_dim))
        atomic_store(&run->dirty, true);
}

static void row_task(void *arg, size_t task, size_t worker)
{
    attn_run *run = arg;
    size_t index = 0;

    (void)worker;
    const attn_item *it = attn_find_item(run, ATTN_PHASE_ROWS, task, &index);
    size_t r0 = index * PACK_ROWS;
    if (canceled(run))
        return;
    for (size_t i = r0; i < min_size(r0 + PACK_ROWS, it->seq->q_len); i++)
        query_row(run, it, i);
    if (r0 < it->s_len)
        key_value_rows(run, it, r0, min_size(r0 + PACK_ROWS, it->s_len));
}

/* --- what is not finite ---------------------------------------------------------------------- */

static attn_status not_finite(const attn_item *it, const char *what, size_t token,
                              const float *input, size_t width, attn_error *err)
{
    size_t b = it->seq->index;
    if (input == NULL || !attn_kernels.all_finite(input + token * width, width))
        return attn_fail(err, ATTN_ENONFINITE,
                         "sequence %zu, %s %zu holds NaN or Infinity and is attended", b, what,
                         token);
    return attn_fail(err, ATTN_ENONFINITE, "sequence %zu, %s %zu: its projection overflows float32",
                     b, what, token);
}

static void zero_row(const attn_view *v, size_t row, size_t head, size_t width)
{
    if (v->data != NULL)
        memset(v->data + head * v->head_stride + row * v->row_stride, 0, width * sizeof(float));
}

static attn_status clean_query(attn_run *run, attn_item *it, size_t h, size_t i, attn_error *err)
{
    const attn_heads *n = &run->heads;
    if (attn_kernels.all_finite(
            it->query.data + h * it->query.head_stride + i * it->query.row_stride, n->head_dim))
        return ATTN_OK;
    for (size_t j = 0; j < it->s_len; j++) {
        if (attn_visible(run, it, h, i, j))
            return not_finite(it, "token", i, it->seq->x,
                              run->layer != NULL ? run->layer->spec.d_model : 0, err);
    }
    zero_row(&it->query, i, h, n->head_dim);
    zero_row(&it->seq->query_out, i, h, n->head_dim);
    return ATTN_OK;
}

/* Key j of head g gets zeros in the packed copies. */
static void zero_packed(const attn_run *run, const attn_item *it, size_t g, size_t j)
{
    const attn_heads *n = &run->heads;
    float *key = it->packed_key + g * attn_packed_floats(n->head_dim, it->s_len);
    float *value = it->packed_value + g * attn_packed_floats(it->s_len, n->v_head_dim);
    size_t p = j / attn_kernels.panel, width = attn_panel_width(it->s_len, p);

    for (size_t l = 0; l < n->head_dim; l++)
        key[p * attn_kernels.panel * n->head_dim + l * width + j % attn_kernels.panel] = 0.0F;
    for (size_t c = 0; c < attn_panel_count(n->v_head_dim); c++) {
        size_t w = attn_panel_width(n->v_head_dim, c);
        memset(value + c * attn_kernels.panel * it->s_len + j * w, 0, w * sizeof(float));
    }
}

static attn_status clean_key_value(attn_run *run, attn_item *it, size_t g, size_t j,
                                   attn_error *err)
{
    const attn_heads *n = &run->heads;
    const attn_sequence *s = it->seq;
    size_t group = n->num_heads / n->num_kv_heads;

    if (attn_kernels.all_finite(attn_source_key(run, it, g, j), n->head_dim) &&
        attn_kernels.all_finite(attn_source_value(run, it, g, j), n->v_head_dim))
        return ATTN_OK;
    for (size_t h = g * group; h < (g + 1) * group; h++) {
        for (size_t i = 0; i < s->q_len; i++) {
            if (!attn_visible(run, it, h, i, j))
                continue;
            if (j < s->past_len || run->layer == NULL)
                return not_finite(it, "key", j, NULL, 0, err);
            return not_finite(it, s->context != NULL ? "context token" : "token", j - s->past_len,
                              s->context != NULL ? s->context : s->x, run->layer->spec.d_kv, err);
        }
    }
    zero_packed(run, it, g, j);
    zero_row(&s->key_out, j, g, n->head_dim);
    zero_row(&s->value_out, j, g, n->v_head_dim);
    return ATTN_OK;
}

/* Some projected row is not finite: harmless where nothing attends, else the end of the call. */
static attn_status clean(attn_run *run, attn_error *err)
{
    for (size_t b = 0; b < run->n; b++) {
        attn_item *it = &run->items[b];
        for (size_t h = 0; h < run->heads.num_heads; h++) {
            for (size_t i = 0; i < it->seq->q_len; i++)
                ATTN_TRY(clean_query(run, it, h, i, err));
        }
        for (size_t g = 0; g < run->heads.num_kv_heads; g++) {
            for (size_t j = 0; j < it->s_len; j++)
                ATTN_TRY(clean_key_value(run, it, g, j, err));
        }
    }
    return ATTN_OK;
}

/* --- the call -------------------------------------------------------------------------------- */

static void number_tasks(attn_run *run)
{
    bool together = run->opt->want_maps && run->opt->reduce != ATTN_REDUCE_NONE;

    for (size_t i = 0; i < run->n; i++) {
        attn_item *it = &run->items[i];
        const attn_sequence *s = it->seq;
        size_t strips = tiles(s->q_len, STRIP_ROWS);
        size_t tasks[ATTN_PHASES] = {
            [ATTN_PHASE_ROWS] = tiles(max_size(s->q_len, it->s_len), PACK_ROWS),
            [ATTN_PHASE_STRIP] = strips * (together ? 1 : run->heads.num_heads),
        };
        if (run->layer != NULL) {
            projection q = query_projection(run, it), kv = key_value_projection(run, it);
            projection out = output_projection(run, it);
            tasks[ATTN_PHASE_PROJECT] = projection_tasks(&q) + projection_tasks(&kv);
            tasks[ATTN_PHASE_OUTPUT] = s->output != NULL ? projection_tasks(&out) : 0;
        }
        for (size_t phase = 0; phase < ATTN_PHASES; phase++) {
            it->first[phase] = run->tasks[phase];
            run->tasks[phase] += tasks[phase];
        }
    }
}

const attn_item *attn_find_item(const attn_run *run, attn_phase phase, size_t task, size_t *index)
{
    size_t lo = 0, hi = run->n; /* the last item whose first task is not after `task` */
    while (hi - lo > 1) {
        size_t middle = lo + (hi - lo) / 2;
        if (run->items[middle].first[phase] <= task)
            lo = middle;
        else
            hi = middle;
    }
    *index = task - run->items[lo].first[phase];
    return &run->items[lo];
}

static attn_status run_phases(attn_run *run, attn_pool *pool, attn_error *err)
{
    attn_pool_run(pool, run->tasks[ATTN_PHASE_PROJECT], project_task, run);
    attn_pool_run(pool, run->tasks[ATTN_PHASE_ROWS], row_task, run);
    if (atomic_load(&run->dirty) && !canceled(run))
        ATTN_TRY(clean(run, err));
    attn_pool_run(pool, run->tasks[ATTN_PHASE_STRIP], attn_strip_task, run);
    attn_pool_run(pool, run->tasks[ATTN_PHASE_OUTPUT], output_task, run);
    if (canceled(run))
        return attn_fail(err, ATTN_ECANCELED, "the computation was canceled");
    return ATTN_OK;
}

attn_status attn_forward(const attn_layer *layer, const attn_heads *heads,
                         const attn_options *options, attn_sequence *seqs, size_t n,
                         attn_pool *pool, void *workspace, const atomic_bool *cancel,
                         attn_stats *stats, attn_error *err)
{
    carver c = {workspace, 0};
    attn_run run = {
        .layer = layer,
        .heads = heads_of(layer, heads),
        .opt = options,
        .n = n,
        .cancel = cancel,
    };
    atomic_init(&run.overflow, UINT64_MAX);

    run.items = carve(&c, n, sizeof(attn_item));
    size_t longest = 0;
    for (size_t i = 0; i < n; i++)
        longest = max_size(longest, seqs[i].past_len + seqs[i].kv_len);
    run.scratch_floats = scratch_floats(&run.heads, longest);
    run.scratch = carve(&c, attn_pool_size(pool) * run.scratch_floats, sizeof(float));
    for (size_t i = 0; i < n; i++) {
        run.items[i].seq = &seqs[i];
        carve_item(&c, &run.items[i], layer, &run.heads, &seqs[i]);
    }
    number_tasks(&run);

    uint64_t state = attn_flush_subnormals(); /* as the other workers do */
    attn_status rc = run_phases(&run, pool, err);
    attn_restore_float_state(state);
    ATTN_TRY(rc);
    uint64_t place = atomic_load(&run.overflow);
    if (place != UINT64_MAX)
        return attn_fail(
            err, ATTN_ENONFINITE,
            "sequence %llu, token %llu: the result overflows float32 or is not a number",
            (unsigned long long)seqs[place >> 32].index, (unsigned long long)(place & UINT32_MAX));
    stats->fully_masked_rows = atomic_load(&run.fully_masked);
    return ATTN_OK;
}

#include <math.h>
#include <string.h>

#include "attention_private.h"
#include "kern.h"
#include "rope.h"

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

/* Norm and rotation of some heads of one token at `position`. */
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
        size_t n = attn_min(half - m0, ANGLES);
        attn_rope_angles(l->frequency + m0, n, position, cosine, sine);
        for (size_t h = 0; h < heads; h++)
            attn_rope_rotate(row + h * s->head_dim + (interleaved ? 2 * m0 : m0), n, half,
                             s->rope.style, cosine, sine);
    }
}

static void check_row(attn_run *run, const float *row, size_t n)
{
    if (!attn_kernels.all_finite(row, n))
        atomic_store(&run->dirty, true);
}

/* Are rows of some heads finite? In as few calls as their places allow. */
static void check_rows(attn_run *run, const attn_view *v, size_t heads, size_t rows, size_t width)
{
    if (v->head_stride != width && heads > 1) {
        for (size_t h = 0; h < heads; h++)
            check_rows(run, &(attn_view){v->data + h * v->head_stride, 0, v->row_stride}, 1, rows,
                       width);
    } else if (v->row_stride != heads * width) {
        for (size_t r = 0; r < rows; r++)
            check_row(run, v->data + r * v->row_stride, heads * width);
    } else {
        check_row(run, v->data, rows * heads * width);
    }
}

static void give_rows(const attn_view *out, size_t g, size_t j0, size_t j1, const float *row,
                      size_t stride, size_t width)
{
    if (out->data == NULL)
        return;
    for (size_t j = j0; j < j1; j++, row += stride)
        memcpy(out->data + g * out->head_stride + j * out->row_stride, row, width * sizeof(float));
}

void attn_finish_query(attn_run *run, const attn_item *it, size_t h, size_t heads, size_t i)
{
    const attn_sequence *s = it->seq;
    size_t d = run->heads.head_dim;

    if (run->layer != NULL)
        finish_heads(run->layer, it->query.data + h * d + i * it->query.row_stride, heads,
                     run->layer->q_norm,
                     s->positions != NULL ? s->positions[i] : s->position_offset + (int64_t)i);
    attn_view row = it->query;
    row.data += h * row.head_stride + i * row.row_stride;
    check_rows(run, &row, heads, 1, d);
    for (size_t g = 0; g < heads; g++)
        give_rows(&s->query_out, h + g, i, i + 1, row.data + g * row.head_stride, 0, d);
}

void attn_finish_keys(const attn_run *run, const attn_item *it, size_t heads, size_t new_j0,
                      size_t rows, const attn_view *keys)
{
    const attn_sequence *s = it->seq;

    for (size_t j = new_j0; j < new_j0 + rows; j++) {
        int64_t position = s->context == NULL && s->positions != NULL
                               ? s->positions[j]
                               : s->key_position_offset + (int64_t)j;
        finish_heads(run->layer, keys->data + (j - new_j0) * keys->row_stride, heads,
                     run->layer->k_norm, position);
    }
}

void attn_pack_keys(attn_run *run, const attn_item *it, size_t g, size_t heads, size_t j0,
                    size_t j1, const attn_view *from)
{
    size_t d = run->heads.head_dim;

    check_rows(run, from, heads, j1 - j0, d);
    for (size_t i = 0; i < heads; i++) {
        const float *key = from->data + i * from->head_stride;
        attn_pack_transposed(it->packed_key + (g + i) * attn_packed_floats(d, it->s_len), d,
                             it->s_len, j0, key, j1 - j0, from->row_stride);
        give_rows(&it->seq->key_out, g + i, j0, j1, key, from->row_stride, d);
    }
}

void attn_pack_values(attn_run *run, const attn_item *it, size_t g, size_t heads, size_t j0,
                      size_t j1, const attn_view *from)
{
    size_t e = run->heads.v_head_dim;

    check_rows(run, from, heads, j1 - j0, e);
    for (size_t i = 0; i < heads; i++) {
        const float *value = from->data + i * from->head_stride;
        attn_pack_rows(it->packed_value + (g + i) * attn_packed_floats(it->s_len, e), it->s_len, e,
                       j0, value, j1 - j0, from->row_stride);
        give_rows(&it->seq->value_out, g + i, j0, j1, value, from->row_stride, e);
    }
}

/* Keys and values that came as they are: all past ones; without a layer the new ones, and the queries. */
static size_t given_rows(const attn_run *run, const attn_item *it)
{
    size_t keys = run->layer == NULL ? it->s_len : it->seq->past_len;

    if (it->seq->keys != NULL)
        keys = 0;
    return run->layer == NULL && !run->keys_only ? attn_max(keys, it->seq->q_len) : keys;
}

static void given_task(attn_run *run, const attn_item *it, size_t r0)
{
    const attn_sequence *s = it->seq;
    const attn_heads *n = &run->heads;
    size_t r1 = r0 + PACK_ROWS, past = attn_min(r1, s->past_len);

    for (size_t i = r0; i < attn_min(r1, s->q_len) && run->layer == NULL && !run->keys_only; i++)
        attn_finish_query(run, it, 0, n->num_heads, i);
    if (s->keys != NULL)
        return;
    if (r0 < past) {
        attn_view key = {(float *)(uintptr_t)s->past_key + r0 * n->head_dim,
                         s->past_len * n->head_dim, n->head_dim};
        attn_view value = {(float *)(uintptr_t)s->past_value + r0 * n->v_head_dim,
                           s->past_len * n->v_head_dim, n->v_head_dim};
        attn_pack_keys(run, it, 0, n->num_kv_heads, r0, past, &key);
        attn_pack_values(run, it, 0, n->num_kv_heads, r0, past, &value);
    }
    size_t j0 = attn_max(r0, s->past_len), j1 = attn_min(r1, it->s_len);
    if (run->layer == NULL && j0 < j1) {
        attn_view key = s->key, value = s->value;
        key.data += (j0 - s->past_len) * key.row_stride;
        value.data += (j0 - s->past_len) * value.row_stride;
        attn_pack_keys(run, it, 0, n->num_kv_heads, j0, j1, &key);
        attn_pack_values(run, it, 0, n->num_kv_heads, j0, j1, &value);
    }
}

size_t attn_input_tasks(const attn_run *run, const attn_item *it)
{
    size_t tasks = attn_tiles(given_rows(run, it), PACK_ROWS);

    for (attn_projection which = ATTN_PROJECT_Q; which <= ATTN_PROJECT_V; which++)
        tasks += attn_projection_tasks(run, it, which);
    return tasks;
}

void attn_input_task(void *arg, size_t task, size_t worker)
{
    attn_run *run = arg;
    size_t index = 0;
    const attn_item *it = attn_find_item(run, ATTN_PHASE_INPUT, task, &index);

    if (attn_canceled(run))
        return;
    for (attn_projection which = ATTN_PROJECT_Q; which <= ATTN_PROJECT_V; which++) {
        size_t tasks = attn_projection_tasks(run, it, which);
        if (index < tasks) {
            attn_project_task(run, it, which, index, run->scratch + worker * run->scratch_floats);
            return;
        }
        index -= tasks;
    }
    given_task(run, it, index * PACK_ROWS);
}

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
        size_t n = attn_min(half - m0, ANGLES);
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
    size_t border = j0 > s->past_len ? j0 : attn_min(s->past_len, j1);

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

void attn_row_task(void *arg, size_t task, size_t worker)
{
    attn_run *run = arg;
    size_t index = 0;

    (void)worker;
    const attn_item *it = attn_find_item(run, ATTN_PHASE_ROWS, task, &index);
    size_t r0 = index * PACK_ROWS;
    if (attn_canceled(run))
        return;
    for (size_t i = r0; i < attn_min(r0 + PACK_ROWS, it->seq->q_len); i++)
        query_row(run, it, i);
    if (r0 < it->s_len)
        key_value_rows(run, it, r0, attn_min(r0 + PACK_ROWS, it->s_len));
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
attn_status attn_clean(attn_run *run, attn_error *err)
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

#include <math.h>
#include <string.h>

#include "attention_private.h"
#include "kern.h"

/* `row` is the input that the token's projection was made of, or NULL. */
static attn_status not_finite(const attn_item *it, const char *what, size_t token, const float *row,
                              size_t width, attn_error *err)
{
    size_t b = it->seq->index;
    if (row == NULL || !attn_kernels.all_finite(row, width))
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
        if (!attn_visible(run, it, h, i, j))
            continue;
        size_t width = run->layer != NULL ? run->layer->spec.d_model : 0;
        const float *row = run->layer != NULL ? it->seq->x + i * width : NULL;
        return not_finite(it, "token", it->seq->first + i, row, width, err);
    }
    zero_row(&it->query, i, h, n->head_dim);
    zero_row(&it->seq->query_out, i, h, n->head_dim);
    return ATTN_OK;
}

/* Where element l of packed key j of head g lies. */
static float *packed_key(const attn_run *run, const attn_item *it, size_t g, size_t j, size_t l)
{
    size_t d = run->heads.head_dim, panel = attn_kernels.panel, p = j / panel;

    return it->packed_key + g * attn_packed_floats(d, it->s_len) + p * panel * d +
           l * attn_panel_width(it->s_len, p) + j % panel;
}

static float *packed_value(const attn_run *run, const attn_item *it, size_t g, size_t j, size_t c)
{
    size_t e = run->heads.v_head_dim, panel = attn_kernels.panel, p = c / panel;

    return it->packed_value + g * attn_packed_floats(it->s_len, e) + p * panel * it->s_len +
           j * attn_panel_width(e, p) + c % panel;
}

static bool packed_finite(const attn_run *run, const attn_item *it, size_t g, size_t j)
{
    bool finite = true;

    for (size_t l = 0; l < run->heads.head_dim; l++)
        finite = finite && isfinite(*packed_key(run, it, g, j, l));
    for (size_t c = 0; c < run->heads.v_head_dim; c++)
        finite = finite && isfinite(*packed_value(run, it, g, j, c));
    return finite;
}

static attn_status clean_key_value(attn_run *run, attn_item *it, size_t g, size_t j,
                                   attn_error *err)
{
    const attn_heads *n = &run->heads;
    const attn_sequence *s = it->seq;
    size_t group = n->num_heads / n->num_kv_heads;

    if (packed_finite(run, it, g, j))
        return ATTN_OK;
    for (size_t h = g * group; h < (g + 1) * group; h++) {
        for (size_t i = 0; i < s->q_len; i++) {
            if (!attn_visible(run, it, h, i, j))
                continue;
            if (j < s->past_len || run->layer == NULL)
                return not_finite(it, "key", j, NULL, 0, err);
            size_t token = j - s->past_len, width = run->layer->spec.d_kv;
            const float *from = s->context != NULL ? s->context : s->x;
            return not_finite(it, s->context != NULL ? "context token" : "token", token,
                              from + token * width, width, err);
        }
    }
    for (size_t l = 0; l < n->head_dim; l++)
        *packed_key(run, it, g, j, l) = 0.0F;
    for (size_t c = 0; c < n->v_head_dim; c++)
        *packed_value(run, it, g, j, c) = 0.0F;
    zero_row(&s->key_out, j, g, n->head_dim);
    zero_row(&s->value_out, j, g, n->v_head_dim);
    return ATTN_OK;
}

attn_status attn_clean(attn_run *run, attn_error *err)
{
    for (size_t b = 0; b < run->n; b++) {
        attn_item *it = &run->items[b];
        for (size_t h = 0; h < run->heads.num_heads && !run->keys_only; h++) {
            for (size_t i = 0; i < it->seq->q_len && attn_head_wanted(run, h); i++)
                ATTN_TRY(clean_query(run, it, h, i, err));
        }
        for (size_t g = 0; g < run->heads.num_kv_heads && it->seq->keys == NULL; g++) {
            for (size_t j = 0; j < it->s_len; j++)
                ATTN_TRY(clean_key_value(run, it, g, j, err));
        }
    }
    return ATTN_OK;
}

#include "layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kern.h"
#include "layer_private.h"
#include "memory.h"
#include "rope.h"

/* Largest size of any dimension: products of two and strides then fit OpenBLAS's int. */
enum { MAX_DIM = 1 << 24 };

static attn_status check_size(const char *name, size_t value, attn_error *err)
{
    if (value == 0 || value > MAX_DIM)
        return attn_fail(err, ATTN_EINVAL, "%s is %zu; it must be 1 to %d", name, value, MAX_DIM);
    return ATTN_OK;
}

static attn_status check_rope(const attn_rope *r, size_t head_dim, attn_error *err)
{
    if (r->style == ATTN_ROPE_NONE)
        return ATTN_OK;
    if (r->dims == 0 || r->dims % 2 != 0 || r->dims > head_dim)
        return attn_fail(err, ATTN_EINVAL,
                         "rope.dims is %zu; it must be even and 2 to head_dim, which is %zu",
                         r->dims, head_dim);
    if (!(r->theta > 0.0) || !isfinite(r->theta))
        return attn_fail(err, ATTN_EINVAL, "rope.theta is %g; it must be positive", r->theta);
    if (r->scaling != ATTN_ROPE_SCALE_NONE && (!(r->factor > 0.0) || !isfinite(r->factor)))
        return attn_fail(err, ATTN_EINVAL, "rope scaling factor is %g; it must be positive",
                         r->factor);
    if (r->scaling == ATTN_ROPE_SCALE_LLAMA3 &&
        !(r->low_freq_factor > 0.0 && r->high_freq_factor > r->low_freq_factor &&
          r->original_max_position > 0.0))
        return attn_fail(err, ATTN_EINVAL,
                         "rope scaling llama3 has low_freq_factor %g, high_freq_factor %g, "
                         "original_max_position_embeddings %g",
                         r->low_freq_factor, r->high_freq_factor, r->original_max_position);
    return ATTN_OK;
}

attn_status attn_layer_check_spec(const attn_layer_spec *s, attn_error *err)
{
    const struct {
        const char *name;
        size_t value;
    } sizes[] = {{"d_model", s->d_model},      {"d_kv", s->d_kv},
                 {"d_out", s->d_out},          {"num_heads", s->num_heads},
                 {"head_dim", s->head_dim},    {"num_kv_heads", s->num_kv_heads},
                 {"v_head_dim", s->v_head_dim}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        ATTN_TRY(check_size(sizes[i].name, sizes[i].value, err));
    ATTN_TRY(check_size("num_heads * head_dim", s->num_heads * s->head_dim, err));
    ATTN_TRY(check_size("num_heads * v_head_dim", s->num_heads * s->v_head_dim, err));
    if (s->num_heads % s->num_kv_heads != 0)
        return attn_fail(err, ATTN_EINVAL, "num_heads %zu is not a multiple of num_kv_heads %zu",
                         s->num_heads, s->num_kv_heads);
    if (!isfinite(s->scale))
        return attn_fail(err, ATTN_EINVAL, "scale is not finite");
    if (!(s->softcap >= 0.0F) || !isfinite(s->softcap))
        return attn_fail(err, ATTN_EINVAL, "softcap is %g; it must be 0 (off) or positive",
                         (double)s->softcap);
    if (s->window.left < -1 || s->window.right < -1)
        return attn_fail(err, ATTN_EINVAL,
                         "window is left %lld, right %lld; -1 is no limit, less is not allowed",
                         (long long)s->window.left, (long long)s->window.right);
    if (s->rel_buckets != 0 &&
        (s->rel_buckets < 4 || s->rel_buckets > 65536 || s->rel_max_distance < s->rel_buckets ||
         s->rel_max_distance > 1 << 20))
        return attn_fail(err, ATTN_EINVAL,
                         "relative attention has %zu buckets and maximum distance %zu",
                         s->rel_buckets, s->rel_max_distance);
    return check_rope(&s->rope, s->head_dim, err);
}

/* Hands out the layer's block in lines of 64 bytes; without a block it only counts. */
static void *take(attn_layer *l, size_t n, size_t size)
{
    void *p = l->block == NULL ? NULL : (char *)l->block + l->bytes;
    l->bytes += (n * size + 63) / 64 * 64;
    return p;
}

/* Gives every array its place. Sizes were checked: none can overflow. */
static void place_arrays(attn_layer *l, const attn_layer_weights *w)
{
    const attn_layer_spec *s = &l->spec;
    size_t hd = s->num_heads * s->head_dim, he = s->num_heads * s->v_head_dim;
    size_t gd = s->num_kv_heads * s->head_dim, ge = s->num_kv_heads * s->v_head_dim;
    size_t relative = s->num_heads * (2 * s->rel_max_distance + 1);

    l->bytes = 0;
    l->wq = take(l, attn_packed_floats(s->d_model, hd), sizeof(float));
    l->wk = take(l, attn_packed_floats(s->d_kv, gd), sizeof(float));
    l->wv = take(l, attn_packed_floats(s->d_kv, ge), sizeof(float));
    l->wo = take(l, attn_packed_floats(he, s->d_out), sizeof(float));
    l->bq = w->bq == NULL ? NULL : take(l, hd, sizeof(float));
    l->bk = w->bk == NULL ? NULL : take(l, gd, sizeof(float));
    l->bv = w->bv == NULL ? NULL : take(l, ge, sizeof(float));
    l->bo = w->bo == NULL ? NULL : take(l, s->d_out, sizeof(float));
    l->q_norm = w->q_norm == NULL ? NULL : take(l, s->head_dim, sizeof(float));
    l->k_norm = w->k_norm == NULL ? NULL : take(l, s->head_dim, sizeof(float));
    l->frequency =
        s->rope.style == ATTN_ROPE_NONE ? NULL : take(l, s->rope.dims / 2, sizeof(double));
    l->slope = s->alibi ? take(l, s->num_heads, sizeof(float)) : NULL;
    l->relative = s->rel_buckets == 0 ? NULL : take(l, relative, sizeof(float));
}

static void copy_floats(float *out, const float *in, size_t n)
{
    if (in != NULL)
        memcpy(out, in, n * sizeof(float));
}

static void pack_weights(attn_layer *l, const attn_layer_weights *w)
{
    const attn_layer_spec *s = &l->spec;
    size_t hd = s->num_heads * s->head_dim, he = s->num_heads * s->v_head_dim;
    size_t gd = s->num_kv_heads * s->head_dim, ge = s->num_kv_heads * s->v_head_dim;

    attn_pack_transposed(l->wq, s->d_model, hd, 0, w->wq, hd, s->d_model);
    attn_pack_transposed(l->wk, s->d_kv, gd, 0, w->wk, gd, s->d_kv);
    attn_pack_transposed(l->wv, s->d_kv, ge, 0, w->wv, ge, s->d_kv);
    attn_pack_transposed(l->wo, he, s->d_out, 0, w->wo, s->d_out, he);
    copy_floats(l->bq, w->bq, hd);
    copy_floats(l->bk, w->bk, gd);
    copy_floats(l->bv, w->bv, ge);
    copy_floats(l->bo, w->bo, s->d_out);
    copy_floats(l->q_norm, w->q_norm, s->head_dim);
    copy_floats(l->k_norm, w->k_norm, s->head_dim);
}

/* Slopes of Press et al. 2021 (arXiv 2108.12409): 2^(-8(h+1)/n) for a power of two; otherwise those
 * of the next lower one, then every other slope of twice that. */
static float alibi_slope(size_t h, size_t heads)
{
    size_t n = 1;
    while (n * 2 <= heads)
        n *= 2;
    if (h < n)
        return (float)exp2(-8.0 * (double)(h + 1) / (double)n);
    return (float)exp2(-8.0 * (double)(2 * (h - n) + 1) / (double)(2 * n));
}

/* T5's bucket of a key at distance rel = key - query (Raffel et al., mesh_tensorflow). */
static size_t relative_bucket(const attn_layer_spec *s, int64_t rel)
{
    size_t buckets = s->rel_bidirectional ? s->rel_buckets / 2 : s->rel_buckets;
    size_t base = s->rel_bidirectional && rel > 0 ? buckets : 0;
    int64_t n = s->rel_bidirectional ? llabs(rel) : (rel < 0 ? -rel : 0);
    size_t exact = buckets / 2;

    if ((size_t)n < exact)
        return base + (size_t)n;
    double far = log((double)n / (double)exact) / log((double)s->rel_max_distance / (double)exact);
    size_t bucket = exact + (size_t)(far * (double)(buckets - exact));
    return base + (bucket < buckets - 1 ? bucket : buckets - 1);
}

static void make_tables(attn_layer *l, const float *rel_bias)
{
    const attn_layer_spec *s = &l->spec;
    size_t width = 2 * s->rel_max_distance + 1;

    if (l->frequency != NULL)
        attn_rope_frequencies(&s->rope, l->frequency);
    for (size_t h = 0; h < s->num_heads && l->slope != NULL; h++)
        l->slope[h] = alibi_slope(h, s->num_heads);
    for (size_t i = 0; i < width && l->relative != NULL; i++) {
        size_t bucket = relative_bucket(s, (int64_t)i - (int64_t)s->rel_max_distance);
        for (size_t h = 0; h < s->num_heads; h++)
            l->relative[h * width + i] = rel_bias[bucket * s->num_heads + h];
    }
}

attn_status attn_layer_new(attn_layer **out, const attn_layer_spec *spec,
                           const attn_layer_weights *weights, attn_error *err)
{
    *out = NULL;
    ATTN_TRY(attn_layer_check_spec(spec, err));
    attn_layer *l = calloc(1, sizeof *l);
    if (l != NULL) {
        l->spec = *spec;
        place_arrays(l, weights);
        l->block = attn_block_alloc(l->bytes);
    }
    if (l == NULL || l->block == NULL) {
        free(l);
        return attn_fail(err, ATTN_ENOMEM, "no memory for the weights of a layer");
    }
    place_arrays(l, weights);
    pack_weights(l, weights);
    make_tables(l, weights->rel_bias);
    *out = l;
    return ATTN_OK;
}

void attn_layer_free(attn_layer *layer)
{
    if (layer == NULL)
        return;
    free(layer->block);
    free(layer);
}

const attn_layer_spec *attn_layer_get_spec(const attn_layer *layer)
{
    return &layer->spec;
}

size_t attn_layer_bytes(const attn_layer *layer)
{
    return layer->bytes + sizeof *layer;
}

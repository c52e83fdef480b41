#include "tests/encode_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

attn_model *encode_load(const char *path)
{
    attn_model_options options = {.name = "m", .path = path};
    attn_model *m = NULL;
    attn_error err = {0};

    if (attn_model_load(&m, &options, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    return m;
}

const attn_encoder *encode_encoder(const attn_model *m)
{
    const char *reason = NULL;
    const attn_encoder *e = attn_model_encoder(m, &reason);

    if (e == NULL)
        fail_msg("%s", reason);
    return e;
}

static size_t *count_up(size_t n)
{
    size_t *list = calloc(n, sizeof *list);

    assert_non_null(list);
    for (size_t i = 0; i < n; i++)
        list[i] = i;
    return list;
}

void encode_want_all(const attn_encoder *e, attn_encode_options *o)
{
    const attn_encoder_info *info = attn_encoder_get_info(e);

    *o = (attn_encode_options){.pooling = info->pooling,
                               .normalize = info->normalize,
                               .hidden = count_up(info->num_layers + 1),
                               .num_hidden = info->num_layers + 1,
                               .map_layers = count_up(info->num_layers),
                               .num_map_layers = info->num_layers,
                               .maps = {.num_heads = info->num_heads},
                               .rollout = true};
}

void encode_free_options(attn_encode_options *o)
{
    free((void *)(uintptr_t)o->hidden);
    free((void *)(uintptr_t)o->map_layers);
    o->hidden = o->map_layers = NULL;
}

/* Exactly n floats on the heap: ASan sees one more. */
static float *unset(size_t n)
{
    float *x = n == 0 ? NULL : malloc(n * sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = NAN;
    return x;
}

void encode_add_results(const attn_encoder *e, const attn_encode_options *o, encode_case *c)
{
    const attn_encoder_info *info = attn_encoder_get_info(e);
    attn_encode_sequence *s = &c->seq;
    size_t t = s->tokens, maps = o->maps.reduce == ATTN_REDUCE_NONE ? o->maps.num_heads : 1;

    s->hidden_stride = t * info->d_model;
    s->maps_stride = maps * t * t;
    s->map_rows = s->map_columns = t;
    c->embedding_floats = o->pooling == ATTN_EMBED_NONE ? 0 : info->d_model;
    c->hidden_floats = o->num_hidden * s->hidden_stride;
    c->maps_floats = o->num_map_layers * s->maps_stride;
    c->rollout_floats = o->rollout ? t * t : 0;
    s->embedding = unset(c->embedding_floats);
    s->hidden = unset(c->hidden_floats);
    s->maps = (attn_view){unset(c->maps_floats), t * t, t};
    s->rollout = unset(c->rollout_floats);
}

void encode_free_results(encode_case *c)
{
    free(c->seq.embedding);
    free(c->seq.hidden);
    free(c->seq.maps.data);
    free(c->seq.rollout);
    c->seq.embedding = c->seq.hidden = c->seq.maps.data = c->seq.rollout = NULL;
}

attn_status encode_try(const attn_encoder *e, const attn_encode_options *o, encode_case *cases,
                       size_t n, attn_pool *pool, attn_error *err)
{
    enum { GUARD = 64 };
    size_t bytes = 0, longest = 0;
    void *workspace = NULL;
    attn_stats stats;
    attn_encode_sequence *seqs = calloc(n > 0 ? n : 1, sizeof *seqs);

    assert_non_null(seqs);
    for (size_t i = 0; i < n; i++) {
        seqs[i] = cases[i].seq;
        bytes += attn_encode_sequence_bytes(e, o, &seqs[i]);
        longest = seqs[i].tokens > longest ? seqs[i].tokens : longest;
    }
    bytes += attn_encode_scratch_bytes(e, o, longest, attn_pool_size(pool));
    assert_int_equal(posix_memalign(&workspace, 64, bytes + GUARD), 0);
    memset(workspace, 0xff, bytes + GUARD); /* NaN */
    attn_status rc = attn_encode(e, o, seqs, n, pool, workspace, NULL, &stats, err);
    for (size_t i = 0; i < GUARD; i++)
        assert_int_equal(((unsigned char *)workspace)[bytes + i], 0xff);
    free(workspace);
    free(seqs);
    return rc;
}

void encode(const attn_encoder *e, const attn_encode_options *o, encode_case *cases, size_t n,
            attn_pool *pool)
{
    attn_error err = {0};

    for (size_t i = 0; i < n; i++) {
        if (attn_encode_check(e, &cases[i].seq, &err) != ATTN_OK)
            fail_msg("%s", err.text);
    }
    if (encode_try(e, o, cases, n, pool, &err) != ATTN_OK)
        fail_msg("%s", err.text);
}

static void same(const char *what, const char *result, const float *a, const float *b, size_t n)
{
    if (a == NULL || b == NULL || n == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("%s: %s %zu is %.9g here and %.9g there", what, result, i, (double)a[i],
                     (double)b[i]);
    }
}

void encode_same(const char *what, const encode_case *a, const encode_case *b)
{
    same(what, "embedding", a->seq.embedding, b->seq.embedding, a->embedding_floats);
    same(what, "hidden state", a->seq.hidden, b->seq.hidden, a->hidden_floats);
    same(what, "map", a->seq.maps.data, b->seq.maps.data, a->maps_floats);
    same(what, "rollout", a->seq.rollout, b->seq.rollout, a->rollout_floats);
}

/* attn_forward() gives a sequence the same bits in any company, whatever is asked for, and sliced. */
#include "core/attention.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/kern.h"
#include "tests/layer_case.h"

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void same(const char *what, const float *got, const float *expected, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bits_of(got[i]) != bits_of(expected[i]))
            fail_msg("%s: %s[%zu] is %.9g, alone it was %.9g", attn_kernels.isa, what, i,
                     (double)got[i], (double)expected[i]);
    }
}

static void same_results(const layer_case *c, const attn_sequence *s, const attn_sequence *as)
{
    const attn_heads *n = &c->heads;
    size_t T = s->q_len, S = s->past_len + s->kv_len, H = n->num_heads, G = n->num_kv_heads;

    same("output", s->output, as->output, T * (c->with_layer ? c->spec.d_out : H * n->v_head_dim));
    same("context", s->joined_context, as->joined_context, T * H * n->v_head_dim);
    same("logsumexp", s->logsumexp, as->logsumexp, H * T);
    same("query", s->query_out.data, as->query_out.data, H * T * n->head_dim);
    same("key", s->key_out.data, as->key_out.data, G * S * n->head_dim);
    same("value", s->value_out.data, as->value_out.data, G * S * n->v_head_dim);
}

/* The map of *s at `slot`, which may be a part, has the same cells as head h of the whole map of *as. */
static void same_map(const layer_case *c, const attn_sequence *s, size_t slot,
                     const attn_sequence *as, size_t h)
{
    const attn_options *o = &c->options;

    for (size_t i = o->q_from; i < c->q_to; i++)
        same("map",
             s->maps.data + slot * s->maps.head_stride + (i - o->q_from) * s->maps.row_stride,
             as->maps.data + h * as->maps.head_stride + i * as->maps.row_stride + o->k_from,
             c->k_to - o->k_from);
}

/* A layer with all that makes rows differ, or heads alone; so long that kept scores need smaller
 * strips. */
static void long_case(layer_case *c, attn_sequence *s, bool with_layer)
{
    enum { T = 280, S = 1500 };
    ref_attention r;
    unsigned char *mask = case_get(T * S, 1);

    case_start(with_layer);
    case_init(c, 4, 2, 12, 9);
    if (with_layer) {
        case_add_weights(c, 33, 33, 21);
        c->spec.alibi = true;
        c->spec.rope = (attn_rope){.style = ATTN_ROPE_HALF, .dims = 12, .theta = 10000};
    }
    c->options.window = (attn_window){900, 0}; /* causal, but in longer strips */
    *s = (attn_sequence){.q_len = T, .kv_len = with_layer ? T : S};
    s->past_len = S - s->kv_len;
    s->causal_offset = s->position_offset = s->key_position_offset = S - T;
    case_add_inputs(c, s, &r);
    for (size_t i = 0; i < T * S;
         i++) /* most rows without the first or the last keys, and one in 8 without any */
        mask[i] = i / S % 8 != 3 && (i / S % 2 == 0 ? i % S >= 700 : i % S < 1000);
    case_set_mask(s, &r, mask, (const size_t[]){1, T, S});
    case_pack_layer(c);
    c->q_to = T;
    c->k_to = S;
}

/* Changes what is asked for; all of it leaves the results as they were. */
static void ask(layer_case *c, size_t what)
{
    static const size_t CHOSEN[] = {2, 0};
    attn_options *o = &c->options;

    o->want_maps = true;
    o->heads = what % 2 == 1 ? CHOSEN : NULL;
    o->num_heads = what % 2 == 1 ? 2 : c->heads.num_heads;
    o->stage = what == 4 ? ATTN_MASKED : what == 5 ? ATTN_SCORES : ATTN_PROBABILITIES;
    o->reduce = what == 2 ? ATTN_REDUCE_MEAN : what == 3 ? ATTN_REDUCE_MAX : ATTN_REDUCE_NONE;
}

static void check_company(bool with_layer)
{
    static const size_t THREADS[] = {1, 2, 3, 5}, LENGTH[] = {41, 280, 7};
    layer_case c, other;
    attn_sequence alone, whole_map, all[3];
    attn_stats stats;

    long_case(&c, &alone, with_layer);
    attn_pool *pool = case_pool(1);
    case_add_results(&c, &alone);
    case_forward(&c, &alone, 1, pool, &stats);
    whole_map = alone;
    for (size_t what = 0; what < 6; what++) {
        size_t in = what % 3; /* its place among the others */
        attn_pool_free(pool);
        pool = case_pool(THREADS[what % 4]);
        ask(&c, what);
        for (size_t b = 0; b < 3; b++) {
            ref_attention r;
            all[b] = alone;
            if (b != in) {
                all[b] = (attn_sequence){.q_len = LENGTH[b], .kv_len = LENGTH[b]};
                case_add_inputs(&c, &all[b], &r);
            }
            case_add_results(&c, &all[b]);
        }
        case_forward(&c, all, 3, pool, &stats);
        same_results(&c, &all[in], &alone);
        if (what == 0)
            whole_map = all[in];
        if (what == 1) {
            same_map(&c, &all[in], 0, &whole_map, 2);
            same_map(&c, &all[in], 1, &whole_map, 0);
        }
    }
    /* a part of the map */
    other = c;
    ask(&other, 1);
    other.options.q_from = 50, other.q_to = 260;
    other.options.k_from = 700, other.k_to = 1111;
    all[0] = alone;
    case_add_results(&other, &all[0]);
    case_forward(&other, all, 1, pool, &stats);
    same_results(&c, &all[0], &alone);
    same_map(&other, &all[0], 0, &whole_map, 2);
    attn_pool_free(pool);
    attn_layer_free(c.layer);
    case_drop();
}

static void the_bits_are_the_same_whatever_is_asked_and_in_any_company(void **state)
{
    (void)state;
    for (size_t level = 0; level < case_few_levels; level++) {
        case_use_level(level);
        check_company(false);
        check_company(true);
    }
    case_use_best_level();
}

/* A context so wide that how its projection is cut depends on the number of threads. */
static void the_bits_of_a_wide_projection_do_not_depend_on_the_threads(void **state)
{
    enum { T = 5, S = 250 };
    (void)state;
    for (size_t level = 0; level < case_few_levels; level++) {
        layer_case c;
        attn_sequence s = {.q_len = T, .kv_len = S}, alone;
        ref_attention r;
        attn_stats stats;
        case_use_level(level);
        case_start(level);
        case_init(&c, 32, 32, 64, 64);
        c.cross = true;
        case_add_weights(&c, 24, 24, 24);
        case_pack_layer(&c);
        case_add_inputs(&c, &s, &r);
        for (size_t threads = 1; threads <= 5; threads++) {
            attn_pool *pool = case_pool(threads);
            case_add_results(&c, &s);
            case_forward(&c, &s, 1, pool, &stats);
            if (threads == 1)
                alone = s;
            same_results(&c, &s, &alone);
            attn_pool_free(pool);
        }
        attn_layer_free(c.layer);
        case_drop();
    }
    case_use_best_level();
}

/* --- the workspace ---------------------------------------------------------------------------- */

/* Scores that are kept for maps take the most room where strips are largest, not where keys are
 * most. */
static void the_workspace_suffices_for_any_mixture_of_lengths(void **state)
{
    static const size_t LENGTH[] = {1365, 20000, 1, 512, 1366, 3000, 33000, 6000};
    enum { N = sizeof LENGTH / sizeof *LENGTH, T = 288 /* two whole strips */ };
    (void)state;

    for (size_t level = 0; level < case_few_levels; level++) {
        layer_case c;
        attn_sequence all[N], alone;
        ref_attention r;
        attn_stats stats;
        attn_pool *pool = case_pool(2);
        case_use_level(level);
        case_start(1);
        case_init(&c, 1, 1, 1, 1);
        c.options.want_maps = true;
        for (size_t n = 2; n <= 2 + case_count(6); n += 3) { /* the first two, five and eight */
            for (size_t b = 0; b < n; b++) {
                all[b] = (attn_sequence){.q_len = T, .kv_len = LENGTH[b]};
                case_add_inputs(&c, &all[b], &r);
                c.q_to = T, c.k_to = LENGTH[b];
                case_add_results(&c, &all[b]);
            }
            case_forward(&c, all, n, pool, &stats);
            for (size_t b = 0; b < n; b++) {
                alone = all[b];
                c.q_to = T, c.k_to = LENGTH[b];
                case_add_results(&c, &alone);
                case_forward(&c, &alone, 1, pool, &stats);
                same_results(&c, &all[b], &alone);
                same_map(&c, &all[b], 0, &alone, 0);
            }
            case_drop();
        }
        attn_pool_free(pool);
    }
    case_use_best_level();
}

/* --- slices ---------------------------------------------------------------------------------- */

/* Rows [r0, r1) of a sequence whose keys are prepared. */
static attn_sequence slice_of(const layer_case *c, const attn_sequence *whole, size_t r0, size_t r1)
{
    attn_sequence s = *whole;

    s.q_len = r1 - r0;
    s.causal_offset += (int64_t)r0;
    s.position_offset += (int64_t)r0;
    if (s.x != NULL)
        s.x += r0 * c->spec.d_model;
    if (s.query.data != NULL)
        s.query.data += r0 * s.query.row_stride;
    if (s.mask != NULL)
        s.mask += r0 * s.mask_stride[1];
    s.output += r0 * (c->with_layer ? c->spec.d_out : c->heads.v_head_dim);
    s.joined_context += r0 * c->heads.num_heads * c->heads.v_head_dim;
    s.logsumexp += r0;
    s.query_out.data += r0 * s.query_out.row_stride;
    if (s.maps.data != NULL)
        s.maps.data += r0 * s.maps.row_stride;
    s.map_rows = r1 - r0;
    return s;
}

/* attn_prepare() with exactly the memory that it needs; keys belong to the pile. */
static attn_status prepare(const layer_case *c, attn_sequence *s, attn_pool *pool, attn_error *err)
{
    enum { BEHIND = 64, OLD = 0xFF };
    size_t keys_bytes = attn_keys_bytes(c->layer, &c->heads, s);
    unsigned char *keys = case_get(keys_bytes + BEHIND, 1);
    attn_sequence no_rows = *s;

    no_rows.q_len = 0;
    no_rows.keys = (float *)(void *)keys;
    size_t bytes = case_workspace_bytes(c, &no_rows, 1, attn_pool_size(pool));
    unsigned char *workspace = case_get(bytes + BEHIND, 1);
    memset(keys, OLD, keys_bytes + BEHIND);
    memset(workspace, OLD, bytes + BEHIND);
    attn_status rc = attn_prepare(c->layer, &c->heads, &c->options, s, (float *)(void *)keys, pool,
                                  workspace, NULL, err);
    for (size_t i = 0; i < BEHIND; i++) {
        assert_int_equal(keys[keys_bytes + i], OLD);
        assert_int_equal(workspace[bytes + i], OLD);
    }
    return rc;
}

/* Where the next slice ends: a little off the strips, anywhere, or after more and more rows. */
static size_t next_cut(size_t how, size_t r0, size_t T)
{
    size_t step = attn_kernels.row_block;
    size_t rows = how == 0 ? 143 : how == 1 ? 1 + case_below(200) : r0 % 2 + 1 + r0 / 8;
    size_t r1 = r0 + (rows + step - 1) / step * step;

    return r1 < T ? r1 : T;
}

static void check_slices(bool with_layer, bool maps)
{
    layer_case c;
    attn_sequence whole, s;
    attn_stats stats;
    attn_error err = {0};

    long_case(&c, &whole, with_layer);
    if (maps)
        ask(&c, 0);
    attn_pool *pool = case_pool(2), *single = case_pool(1);
    case_add_results(&c, &whole);
    case_forward(&c, &whole, 1, pool, &stats);
    size_t empty_rows = stats.fully_masked_rows;
    assert_true(empty_rows > 0);
    for (size_t how = 0; how < 3; how++) {
        size_t empty = 0;
        s = whole;
        case_add_results(&c, &s);
        if (prepare(&c, &s, how == 1 ? pool : single, &err) != ATTN_OK)
            fail_msg("%s", err.text);
        for (size_t r0 = 0, r1; r0 < whole.q_len; r0 = r1) {
            r1 = next_cut(how, r0, whole.q_len);
            attn_sequence slice = slice_of(&c, &s, r0, r1);
            case_forward(&c, &slice, 1, how == 0 ? pool : single, &stats);
            empty += stats.fully_masked_rows;
        }
        same_results(&c, &s, &whole);
        for (size_t h = 0; h < c.heads.num_heads && maps; h++)
            same_map(&c, &s, h, &whole, h);
        assert_int_equal(empty, empty_rows);
    }
    attn_pool_free(pool);
    attn_pool_free(single);
    attn_layer_free(c.layer);
    case_drop();
}

static void slices_give_the_bits_of_one_call(void **state)
{
    (void)state;
    for (size_t level = 0; level < case_few_levels; level++) {
        case_use_level(level);
        check_slices(true, false);
        check_slices(true, true);
        check_slices(false, true);
    }
    case_use_best_level();
}

/* A NaN in the context, at a key that the mask hides from every query, and then from all but one. */
static void nan_in_a_key_is_refused_by_prepare_when_any_slice_would_see_it(void **state)
{
    enum { T = 200, S = 600, BAD = 520 };
    (void)state;
    for (size_t level = 0; level < case_few_levels; level++) {
        layer_case c;
        attn_sequence s = {.index = 4, .q_len = T, .kv_len = S}, clean;
        ref_attention r;
        attn_stats stats;
        attn_error err = {0};
        case_use_level(level);
        case_start(5);
        case_init(&c, 2, 1, 8, 8);
        c.cross = true;
        case_add_weights(&c, 16, 16, 16);
        case_pack_layer(&c);
        case_add_inputs(&c, &s, &r);
        attn_pool *pool = case_pool(2);
        unsigned char *mask = case_get(2 * T * S, 1);
        memset(mask, 1, 2 * T * S);
        for (size_t i = 0; i < 2 * T; i++)
            mask[i * S + BAD] = 0;
        case_set_mask(&s, &r, mask, (const size_t[]){2, T, S});
        case_add_results(&c, &s);
        case_forward(&c, &s, 1, pool, &stats);
        clean = s;
        float *context = case_get(S * c.spec.d_kv, sizeof(float));
        memcpy(context, s.context, S * c.spec.d_kv * sizeof(float));
        context[BAD * c.spec.d_kv + 3] = NAN;
        s.context = context;
        case_add_results(&c, &s);
        assert_int_equal(prepare(&c, &s, pool, &err), ATTN_OK);
        size_t half = 96; /* whole blocks of rows at any level */
        attn_sequence a = slice_of(&c, &s, 0, half), b = slice_of(&c, &s, half, T);
        case_forward(&c, &a, 1, pool, &stats);
        case_forward(&c, &b, 1, pool, &stats);
        for (size_t l = 0; l < c.heads.head_dim; l++) /* where it is hidden, a zero stands for it */
            assert_true(s.key_out.data[BAD * c.heads.head_dim + l] == 0.0F);
        s.key_out = clean.key_out;
        s.value_out = clean.value_out;
        same_results(&c, &s, &clean);
        mask[(2 * T - 1) * S + BAD] = 1; /* the last query of the second head sees it */
        s.keys = NULL;
        assert_int_equal(prepare(&c, &s, pool, &err), ATTN_ENONFINITE);
        assert_non_null(strstr(err.text, "sequence 4"));
        assert_non_null(strstr(err.text, "context token 520"));
        attn_pool_free(pool);
        attn_layer_free(c.layer);
        case_drop();
    }
    case_use_best_level();
}

/* A token that no one may attend to is no key, but its own row is still asked for. */
static void nan_in_a_query_is_refused_by_its_slice_alone(void **state)
{
    enum { T = 200, BAD = 150 };
    layer_case c;
    attn_sequence s = {.q_len = T, .kv_len = T};
    ref_attention r;
    attn_stats stats;
    attn_error err = {0};
    unsigned char mask[T];
    (void)state;

    case_start(6);
    case_init(&c, 2, 2, 8, 8);
    case_add_weights(&c, 16, 16, 16);
    case_pack_layer(&c);
    case_add_inputs(&c, &s, &r);
    float *x = case_get(T * 16, sizeof(float));
    memcpy(x, s.x, T * 16 * sizeof(float));
    x[BAD * 16] = NAN;
    s.x = x;
    for (size_t j = 0; j < T; j++)
        mask[j] = j != BAD;
    s.mask = mask, s.mask_stride[2] = 1;
    case_add_results(&c, &s);
    attn_pool *pool = case_pool(1);
    assert_int_equal(prepare(&c, &s, pool, &err), ATTN_OK);
    attn_sequence before = slice_of(&c, &s, 0, 144), with = slice_of(&c, &s, 144, T);
    assert_int_equal(case_try(&c, &before, 1, pool, &stats, &err), ATTN_OK);
    assert_int_equal(case_try(&c, &with, 1, pool, &stats, &err), ATTN_ENONFINITE);
    attn_pool_free(pool);
    attn_layer_free(c.layer);
    case_drop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_the_same_whatever_is_asked_and_in_any_company),
        cmocka_unit_test(the_bits_of_a_wide_projection_do_not_depend_on_the_threads),
        cmocka_unit_test(slices_give_the_bits_of_one_call),
        cmocka_unit_test(nan_in_a_key_is_refused_by_prepare_when_any_slice_would_see_it),
        cmocka_unit_test(nan_in_a_query_is_refused_by_its_slice_alone),
        cmocka_unit_test(the_workspace_suffices_for_any_mixture_of_lengths),
    };
    return cmocka_run_group_tests(tests, case_find_levels, NULL);
}

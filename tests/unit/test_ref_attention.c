/* The oracle itself: it must agree with every stored vector before it may judge anything. */
#include "tests/cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Of the largest expected value, at least 1: the vectors are rounded to float32 (6e-8), and ONNX's
 * were computed in it too. */
static const double ROUNDING = 2e-6;

/* Every expected number, where `where` (or everywhere when NULL) says it counts. */
static void agrees(const char *name, const char *tensor, const double *got, const double *expected,
                   size_t n, const unsigned char *where, double tolerance)
{
    double largest = 1;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(expected[i]) && (where == NULL || where[i]))
            largest = fmax(largest, fabs(expected[i]));
    }
    for (size_t i = 0; i < n; i++) {
        if ((where != NULL && !where[i]) || got[i] == expected[i])
            continue;
        if (!(fabs(got[i] - expected[i]) <= tolerance * largest))
            fail_msg("%s: %s[%zu] is %.9g, expected %.9g", name, tensor, i, got[i], expected[i]);
    }
}

static void stored(const mha_case *c, const char *tensor, const double *got,
                   const unsigned char *where)
{
    const st_tensor *t = st_find(c->vectors, tensor);
    if (t == NULL)
        return;
    double *expected = st_doubles(t);
    agrees(c->name, tensor, got, expected, t->count, where, ROUNDING);
    free(expected);
}

static void check_mha(const mha_case *c, void *arg)
{
    (void)arg;
    ref_batch *o = mha_oracle(c);
    const st_tensor *allowed = st_need(c->vectors, "allowed");
    size_t rows = 0, keys = c->keys, n = c->batch * c->heads * c->tokens;

    for (size_t i = 0; i < allowed->count; i++) {
        if (o->allowed[i] != ((const unsigned char *)allowed->data)[i])
            fail_msg("%s: allowed[%zu] is %d", c->name, i, o->allowed[i]);
    }
    for (size_t i = 0; i < n; i++)
        rows += memchr(o->allowed + i * keys, 1, keys) == NULL;
    assert_int_equal(rows, case_size(c->json, "fully_masked_rows"));
    stored(c, "outputs", o->outputs, NULL);
    stored(c, "attentions", o->maps, NULL);
    stored(c, "scores", o->scores, o->allowed);
    stored(c, "softcapped", o->softcapped, o->allowed);
    stored(c, "biased", o->masked, o->allowed);
    stored(c, "context", o->joined, NULL);
    stored(c, "present_key", o->key, NULL);
    stored(c, "present_value", o->value, NULL);
    ref_batch_free(o);
}

static void the_oracle_agrees_with_every_full_layer_vector(void **state)
{
    size_t count = 0;
    (void)state;
    if (!mha_for_each(check_mha, NULL, &count))
        skip();
    assert_int_equal(count, 99);
}

static void check_onnx(const onnx_case *c, void *arg)
{
    (void)arg;
    ref_attention r;
    onnx_sequence(c, 0, &r);
    ref_batch *o = ref_batch_new(c->batch, &r);
    for (size_t b = 0; b < c->batch; b++) {
        onnx_sequence(c, b, &r);
        ref_batch_run(o, b, &r);
    }
    size_t cells = c->batch * c->heads * c->tokens * c->keys;
    double tolerance = c->half ? c->tolerance : ROUNDING;
    double *stage[] = {o->scores, o->softcapped, o->masked, o->maps};
    agrees(c->name, "Y", o->outputs, c->expected, c->batch * c->heads * c->tokens * c->v_head_dim,
           NULL, tolerance);
    if (c->mode >= 0)
        agrees(c->name, "qk_matmul_output", stage[c->mode], c->expected_qk, cells, NULL, tolerance);
    if (c->present_key != NULL) {
        size_t rows = c->batch * c->kv_heads * c->keys;
        agrees(c->name, "present_key", o->key, c->present_key, rows * c->head_dim, NULL, 0);
        agrees(c->name, "present_value", o->value, c->present_value, rows * c->v_head_dim, NULL, 0);
    }
    ref_batch_free(o);
}

static void the_oracle_agrees_with_every_onnx_vector(void **state)
{
    size_t count = 0;
    (void)state;
    if (!onnx_for_each(check_onnx, NULL, &count))
        skip();
    assert_int_equal(count, 76);
}

static void check_rotary(const char *folder, const char *name)
{
    char *json = st_path("%s/%s.json", folder, name);
    char *file = st_path("%s/%s.safetensors", folder, name);
    json_t *root = case_json(json);
    st_file *f = st_open(file);
    const json_t *dims = json_object_get(root, "dims");
    const json_t *attributes = json_object_get(root, "attributes");
    size_t B = case_size(dims, "batch"), H = case_size(dims, "heads");
    size_t T = case_size(dims, "tokens"), d = case_size(dims, "head_size");
    size_t r = case_size(attributes, "rotary_embedding_dim");
    bool neighbours = case_size(attributes, "interleaved") == 1;
    bool heads_last = st_need(f, "X")->rank == 3;
    double *x = st_doubles(st_need(f, "X")), *y = st_doubles(st_need(f, "Y"));
    double *cosine = st_doubles(st_need(f, "cos_cache"));
    double *sine = st_doubles(st_need(f, "sin_cache"));
    int64_t *position = st_ints(st_find(f, "position_ids"));

    r = r == 0 ? d : r;
    for (size_t b = 0; b < B; b++) {
        for (size_t h = 0; h < H; h++) {
            for (size_t i = 0; i < T; i++) {
                size_t at = position != NULL ? (size_t)position[b * T + i] : b * T + i;
                double *head = x + (heads_last ? (b * T + i) * H + h : (b * H + h) * T + i) * d;
                ref_rotate(head, neighbours ? REF_ROPE_INTERLEAVED : REF_ROPE_HALF, r,
                           cosine + at * (r / 2), sine + at * (r / 2));
            }
        }
    }
    agrees(name, "Y", x, y, B * H * T * d, NULL, ROUNDING);
    free(x);
    free(y);
    free(cosine);
    free(sine);
    free(position);
    st_close(f);
    json_decref(root);
    free(json);
    free(file);
}

static void the_oracle_agrees_with_every_rotary_vector(void **state)
{
    char *folder = st_shared("vectors/onnx-rotary-embedding");
    size_t i;
    json_t *entry;
    (void)state;
    if (folder == NULL) {
        printf("skipped: vectors/onnx-rotary-embedding: not beside this tree (ATTND_SHARED)\n");
        skip();
    }
    char *index = st_path("%s/index.json", folder);
    json_t *list = case_json(index);
    assert_int_equal(json_array_size(list), 8);
    json_array_foreach(list, i, entry)
        check_rotary(folder, json_string_value(json_object_get(entry, "name")));
    json_decref(list);
    free(index);
    free(folder);
}

/* What no stored vector covers has its numbers from the formulas' own text. */
static void alibi_slopes_are_the_published_ones(void **state)
{
    static const double SIX[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
    static const double THREE[] = {0.0625, 0.00390625, 0.25};
    (void)state;
    for (size_t h = 0; h < 8; h++)
        assert_true(ref_alibi_slope(h, 8) == ldexp(1, -(int)h - 1));
    for (size_t h = 0; h < 6; h++)
        assert_true(ref_alibi_slope(h, 6) == SIX[h]);
    for (size_t h = 0; h < 3; h++)
        assert_true(ref_alibi_slope(h, 3) == THREE[h]);
}

static void t5_buckets_are_the_published_ones(void **state)
{
    static const struct {
        int64_t distance;
        size_t bucket;
    } GOLDEN[] = {{0, 0},   {1, 1},   {7, 7},   {8, 8},   {11, 8},  {12, 9},  {16, 10},
                  {23, 11}, {32, 12}, {46, 13}, {64, 14}, {91, 15}, {300, 15}};
    (void)state;
    for (size_t i = 0; i < sizeof GOLDEN / sizeof *GOLDEN; i++) {
        int64_t distance = GOLDEN[i].distance;
        assert_int_equal(ref_t5_bucket(-distance, 32, 128, true), GOLDEN[i].bucket);
        assert_int_equal(ref_t5_bucket(distance, 32, 128, true),
                         GOLDEN[i].bucket + (distance > 0 ? 16 : 0));
        assert_int_equal(ref_t5_bucket(distance > 0 ? distance : 1, 32, 128, false), 0);
    }
    assert_int_equal(ref_t5_bucket(-15, 32, 128, false), 15);
    assert_int_equal(ref_t5_bucket(-16, 32, 128, false), 16);
    assert_int_equal(ref_t5_bucket(-127, 32, 128, false), 31);
    assert_int_equal(ref_t5_bucket(-5000, 32, 128, false), 31);
}

static void llama3_scaling_keeps_short_waves_and_stretches_long_ones(void **state)
{
    /* One query and key at position p: the score is sum over pairs of cos and sin of the turned
     * angle. With a key of (1, 0, ...) in each pair the turned vectors show the frequency itself. */
    ref_attention r = ref_attention_default();
    double head[4] = {1, 1, 0, 0}, turned[4];
    (void)state;
    r.tokens = r.new_keys = r.heads = r.kv_heads = 1;
    r.head_dim = 4, r.v_head_dim = 4;
    r.query = r.key = r.value = head;
    r.query_out = turned;
    r.rope = REF_ROPE_HALF, r.rope_dims = 4, r.rope_theta = 1e8; /* frequencies 1 and 1e-4 */
    r.rope_scaling = REF_SCALING_LLAMA3;
    r.rope_factor = 8, r.rope_low = 1, r.rope_high = 4, r.rope_original = 8192;
    r.query_position = 1;
    ref_attention_run(&r);
    assert_float_equal(turned[0], cos(1.0), 1e-12);      /* wavelength 6.3: kept */
    assert_float_equal(turned[3], sin(1e-4 / 8), 1e-12); /* wavelength 62832: over 8192, / 8 */
    r.rope_theta = pow(1000, 2); /* the second frequency is 1e-3: wavelength 6283, between */
    ref_attention_run(&r);
    double s = (8192 / (2000 * acos(-1.0)) - 1) / 3;
    assert_float_equal(turned[3], sin((1 - s) * 1e-3 / 8 + s * 1e-3), 1e-12);
}

static void half_floats_are_read_and_written_exactly(void **state)
{
    (void)state;
    assert_true(st_half(0x0001) == 5.9604644775390625e-08f);
    assert_true(st_half(0x7BFF) == 65504.0f);
    assert_true(st_half(0x3555) == 0.333251953125f);
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float value = st_half((uint16_t)bits);
        if (!isnan(value))
            assert_int_equal(st_half_bits(value), bits);
    }
    assert_int_equal(st_half_bits(1.00048828125f), 0x3C00); /* half way: to even */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oracle_agrees_with_every_full_layer_vector),
        cmocka_unit_test(the_oracle_agrees_with_every_onnx_vector),
        cmocka_unit_test(the_oracle_agrees_with_every_rotary_vector),
        cmocka_unit_test(alibi_slopes_are_the_published_ones),
        cmocka_unit_test(t5_buckets_are_the_published_ones),
        cmocka_unit_test(llama3_scaling_keeps_short_waves_and_stretches_long_ones),
        cmocka_unit_test(half_floats_are_read_and_written_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

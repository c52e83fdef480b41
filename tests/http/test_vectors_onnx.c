/* Every stored ONNX vector through POST /v1/scaled-dot-product-attention. */
#include "tests/body.h"
#include "tests/cases.h"
#include "tests/daemon.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static test_daemon *daemon_;

static int start(void **state)
{
    (void)state;
    daemon_ = daemon_start((const char *[]){"serve", NULL});
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_stop(daemon_);
    return 0;
}

/* An operand in the case's own precision; halves always stand in tensor objects. */
static void operand(test_body *b, const onnx_case *c, const char *key, const double *x,
                    size_t heads, size_t rows, size_t size)
{
    if (c->half)
        body_halves(b, key, x, DIMS(c->batch, heads, rows, size));
    else
        body_doubles(b, key, x, DIMS(c->batch, heads, rows, size));
}

static json_t *ask(const onnx_case *c, bool base64, const char *attentions,
                   const char *intermediates)
{
    test_body b;
    size_t H = c->heads, G = c->kv_heads, N = c->new_keys, P = c->past;

    body_init(&b, base64);
    operand(&b, c, "query", c->query, H, c->tokens, c->head_dim);
    operand(&b, c, "key", c->key, G, N, c->head_dim);
    operand(&b, c, "value", c->value, G, N, c->v_head_dim);
    if (P > 0) {
        operand(&b, c, "past_key", c->past_key, G, P, c->head_dim);
        operand(&b, c, "past_value", c->past_value, G, P, c->v_head_dim);
    }
    if (c->mask != NULL)
        body_bools(&b, "attention_mask", c->mask, 4, c->mask_dim);
    if (c->bias != NULL)
        body_doubles(&b, "attention_bias", c->bias, 4, c->mask_dim);
    if (c->lengths != NULL)
        body_ints(&b, "lengths", c->lengths, DIMS(c->batch));
    if (c->causal) {
        body_raw(&b, "is_causal", "true");
        if (c->lengths != NULL)
            body_ints(&b, "causal_offset", c->offset, DIMS(c->batch));
        else
            body_printf(&b, "causal_offset", "%lld", (long long)c->offset[0]);
    }
    if (c->scale_given)
        body_printf(&b, "scale", "%.17g", c->scale);
    if (c->softcap > 0)
        body_printf(&b, "softcap", "%.17g", c->softcap);
    if (attentions != NULL)
        body_raw(&b, "return_attentions", attentions);
    if (intermediates != NULL)
        body_raw(&b, "return_intermediates", intermediates);
    test_reply r = daemon_post(daemon_, "/v1/scaled-dot-product-attention", body_text(&b), 200);
    json_t *answer = answer_parse(r.body, r.body_bytes);
    reply_free(&r);
    body_free(&b);
    return answer;
}

/* The stored tolerance is absolute and relative. */
static void check(const onnx_case *c, json_t *answer, const char *name, const double *expected,
                  size_t rank, const size_t *dim)
{
    char *what = st_path("%s: %s", c->name, name);
    test_tensor got = answer_tensor(answer_get(answer, name), what, rank, dim);
    for (size_t i = 0; i < got.count; i++) {
        double magnitude = isfinite(expected[i]) ? fabs(expected[i]) : 0;
        assert_close(what, got.data + i, expected + i, 1, NULL, c->tolerance * (1 + magnitude));
    }
    answer_free(&got);
    free(what);
}

static void check_case(const onnx_case *c, void *arg)
{
    static const char *const STAGE[] = {"scores", "softcapped", "masked", "probabilities"};
    size_t B = c->batch, H = c->heads, G = c->kv_heads, T = c->tokens, S = c->keys;
    const size_t outputs[] = {B, H, T, c->v_head_dim}, cells[] = {B, H, T, S};
    const size_t key[] = {B, G, S, c->head_dim}, value[] = {B, G, S, c->v_head_dim};
    (void)arg;

    for (int base64 = c->finite ? 0 : 1; base64 < 2; base64++) {
        json_t *plain = ask(c, base64, NULL, NULL);
        check(c, plain, "outputs", c->expected, 4, outputs);
        char *option =
            st_path("{\"stage\":\"%s\"}", c->mode < 0 ? "probabilities" : STAGE[c->mode]);
        json_t *answer =
            ask(c, base64, option, c->present_key != NULL ? "[\"key\",\"value\"]" : NULL);
        if (!json_equal(answer_get(plain, "outputs"), answer_get(answer, "outputs")))
            fail_msg("%s: asking for maps changes the outputs", c->name);
        if (c->expected_qk != NULL)
            check(c, answer, "attentions", c->expected_qk, 4, cells);
        if (c->present_key != NULL) {
            check(c, answer, "intermediates.key", c->present_key, 4, key);
            check(c, answer, "intermediates.value", c->present_value, 4, value);
        }
        json_decref(plain);
        json_decref(answer);
        free(option);
    }
}

static void every_onnx_vector_agrees(void **state)
{
    size_t count = 0;
    (void)state;
    if (!onnx_for_each(check_case, NULL, &count))
        skip();
    assert_int_equal(count, 76);
}

/* All four stages, context and logsumexp of every case against the oracle. */
static void check_stages(const onnx_case *c, void *arg)
{
    static const char *const STAGE[] = {"scores", "softcapped", "masked", "probabilities"};
    size_t B = c->batch, H = c->heads, T = c->tokens, S = c->keys, rows = 0;
    const size_t cells[] = {B, H, T, S};
    ref_attention r;
    (void)arg;

    onnx_sequence(c, 0, &r);
    ref_batch *o = ref_batch_new(B, &r);
    for (size_t b = 0; b < B; b++) {
        onnx_sequence(c, b, &r);
        ref_batch_run(o, b, &r);
        rows += r.fully_masked_rows;
    }
    const double *expected[] = {o->scores, o->softcapped, o->masked, o->maps};
    for (size_t i = 0; i < 4; i++) {
        char *option = st_path("{\"stage\":\"%s\"}", STAGE[i]);
        char *what = st_path("%s: %s", c->name, STAGE[i]);
        json_t *answer = ask(c, true, option, "[\"logsumexp\",\"context\"]");
        test_tensor got = answer_tensor(answer_get(answer, "attentions"), what, 4, cells);
        assert_close(what, got.data, expected[i], got.count, i < 2 ? o->allowed : NULL, 2e-5);
        answer_free(&got);
        got = answer_tensor(answer_get(answer, "intermediates.logsumexp"), what, DIMS(B, H, T));
        assert_close(what, got.data, o->logsumexp, got.count, NULL, 2e-5);
        answer_free(&got);
        got = answer_tensor(answer_get(answer, "intermediates.context"), what,
                            DIMS(B, T, H * c->v_head_dim));
        assert_close(what, got.data, o->joined, got.count, NULL, 2e-5);
        answer_free(&got);
        assert_int_equal(json_integer_value(answer_get(answer, "usage.fully_masked_rows")), rows);
        json_decref(answer);
        free(option);
        free(what);
    }
    ref_batch_free(o);
}

static void every_stage_of_every_onnx_vector_agrees_with_the_oracle(void **state)
{
    (void)state;
    if (!onnx_for_each(check_stages, NULL, NULL))
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_onnx_vector_agrees),
        cmocka_unit_test(every_stage_of_every_onnx_vector_agrees_with_the_oracle),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

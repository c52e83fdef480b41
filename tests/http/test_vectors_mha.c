/* Every stored full-layer vector through POST /v1/models/{model}/attention. */
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
static char *folder_;

/* One daemon serves all the cases, each as a model of its own. */
static void add_model(const mha_case *c, void *arg)
{
    char *below = st_path("vectors/mha/%s/model", c->name), *path = st_shared(below);
    char *absolute = realpath(path, NULL);
    json_array_append_new(arg, json_pack("{s:s, s:s}", "name", c->name, "path", absolute));
    free(absolute);
    free(path);
    free(below);
}

static int start(void **state)
{
    json_t *models = json_array();
    (void)state;
    if (!mha_for_each(add_model, models, NULL)) {
        json_decref(models);
        return 0;
    }
    folder_ = st_temp_dir();
    char *path = st_path("%s/attnd.conf", folder_);
    json_t *config = json_pack("{s:o}", "models", models);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
    daemon_ = daemon_start((const char *[]){"serve", "--config", path, NULL});
    free(path);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_stop(daemon_);
    st_remove_dir(folder_);
    return 0;
}

/* --- requests -------------------------------------------------------------------------------- */

static json_t *ask(const mha_case *c, bool base64, const char *attentions,
                   const char *intermediates)
{
    test_body b;
    const st_tensor *mask = st_find(c->vectors, "attention_mask");
    const st_tensor *bias = st_find(c->vectors, "attention_bias");
    size_t B = c->batch, P = c->past, G = c->kv_heads;
    const char *key;
    json_t *value;

    body_init(&b, base64);
    body_doubles(&b, "inputs_embeds", c->x, DIMS(B, c->tokens, c->d_model));
    if (c->context != NULL)
        body_doubles(&b, "encoder_hidden_states", c->context, DIMS(B, c->keys, c->d_kv));
    if (c->lengths != NULL)
        body_ints(&b, "lengths", c->lengths, DIMS(B));
    if (mask != NULL)
        body_bools(&b, "attention_mask", c->mask, mask->rank, mask->dim);
    if (bias != NULL)
        body_doubles(&b, "attention_bias", c->bias, bias->rank, bias->dim);
    if (c->positions != NULL)
        body_ints(&b, "position_ids", c->positions, DIMS(B, c->tokens));
    if (c->past_key != NULL) {
        body_doubles(&b, "past_key", c->past_key, DIMS(B, G, P, c->head_dim));
        body_doubles(&b, "past_value", c->past_value, DIMS(B, G, P, c->v_head_dim));
    }
    json_object_foreach(json_object_get(c->json, "request"), key, value)
        body_printf(&b, key, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    if (attentions != NULL)
        body_raw(&b, "return_attentions", attentions);
    if (intermediates != NULL)
        body_raw(&b, "return_intermediates", intermediates);
    char *path = st_path("/v1/models/%s/attention", c->name);
    test_reply r = daemon_post(daemon_, path, body_text(&b), 200);
    json_t *answer = answer_parse(r.body, r.body_bytes);
    reply_free(&r);
    free(path);
    body_free(&b);
    return answer;
}

/* --- comparisons ----------------------------------------------------------------------------- */

/* A tensor [B,outer,T,width] of queries: the real rows as expected, the padded ones all zero. */
static void check_rows(const mha_case *c, json_t *answer, const char *name, size_t rank,
                       const size_t *dim, const double *expected, const unsigned char *where,
                       double tolerance)
{
    size_t T = c->tokens, width = dim[rank - 1], outer = rank == 4 ? dim[1] : 1;
    char *what = st_path("%s: %s", c->name, name);
    if (strcmp(name, "intermediates.logsumexp") == 0) { /* [B,H,T]: one number a row */
        width = 1;
        outer = dim[1];
    }
    test_tensor got = answer_tensor(answer_get(answer, name), what, rank, dim);
    for (size_t b = 0; b < c->batch; b++) {
        size_t real = mha_real_rows(c, b);
        for (size_t h = 0; h < outer; h++) {
            size_t at = (b * outer + h) * T * width;
            assert_close(what, got.data + at, expected + at, real * width,
                         where != NULL ? where + at : NULL, tolerance);
            assert_zeros(what, got.data + at + real * width, (T - real) * width);
        }
    }
    answer_free(&got);
    free(what);
}

/* Keys or values [B,G,S,width]; in cross attention only those that may be seen are compared. */
static void check_keys(const mha_case *c, json_t *answer, const char *name, size_t width,
                       const double *expected)
{
    size_t S = c->keys, G = c->kv_heads;
    double largest = 1;
    char *what = st_path("%s: %s", c->name, name);
    test_tensor got = answer_tensor(answer_get(answer, name), what, DIMS(c->batch, G, S, width));
    for (size_t i = 0; i < got.count; i++)
        largest = isfinite(expected[i]) ? fmax(largest, fabs(expected[i])) : largest;
    for (size_t b = 0; b < c->batch; b++) {
        size_t real = c->lengths != NULL ? c->past + (size_t)c->lengths[b] : S;
        for (size_t g = 0; g < G; g++) {
            size_t at = (b * G + g) * S * width;
            assert_close(what, got.data + at, expected + at, real * width, NULL, 1e-5 * largest);
            if (!c->cross)
                assert_zeros(what, got.data + at + real * width, (S - real) * width);
        }
    }
    answer_free(&got);
    free(what);
}

static void check_usage(const mha_case *c, json_t *answer)
{
    const st_tensor *t = st_need(c->vectors, "allowed");
    const unsigned char *allowed = t->data;
    size_t rows = 0, S = c->keys, n = c->heads * c->tokens;

    for (size_t i = 0; i < c->batch * n; i++)
        rows += i % c->tokens < mha_real_rows(c, i / n) && memchr(allowed + i * S, 1, S) == NULL;
    if ((size_t)json_integer_value(answer_get(answer, "usage.fully_masked_rows")) != rows)
        fail_msg("%s: fully_masked_rows is not %zu", c->name, rows);
    assert_int_equal(json_integer_value(answer_get(answer, "usage.sequences")), c->batch);
    assert_string_equal(json_string_value(answer_get(answer, "model")), c->name);
    assert_int_equal(json_integer_value(answer_get(answer, "layer")), 0);
}

static void check_outputs(const mha_case *c, json_t *answer)
{
    double *expected = st_doubles(st_need(c->vectors, "outputs"));
    const size_t dim[] = {c->batch, c->tokens, c->d_out};
    check_rows(c, answer, "outputs", 3, dim, expected, NULL, mha_tolerance(c, "outputs"));
    free(expected);
}

/* --- tests ----------------------------------------------------------------------------------- */

static void outputs_of(const mha_case *c, void *arg)
{
    (void)arg;
    for (int base64 = c->finite ? 0 : 1; base64 < 2; base64++) {
        json_t *answer = ask(c, base64, NULL, NULL);
        check_outputs(c, answer);
        check_usage(c, answer);
        assert_null(answer_get(answer, "attentions"));
        assert_null(answer_get(answer, "intermediates"));
        json_decref(answer);
    }
}

static void outputs_agree_in_json_and_base64(void **state)
{
    size_t count = 0;
    (void)state;
    if (!mha_for_each(outputs_of, NULL, &count))
        skip();
    assert_int_equal(count, 99);
}

/* The tolerance of what the softmax reads. */
static double logit_tolerance(const mha_case *c)
{
    double scores = mha_tolerance(c, "scores"), biased = mha_tolerance(c, "biased");
    return fmax(fmax(scores, biased), mha_tolerance(c, "softcapped"));
}

static void check_intermediates(const mha_case *c, json_t *answer, const ref_batch *o)
{
    size_t B = c->batch, T = c->tokens, H = c->heads, joined = H * c->v_head_dim;
    double *context = st_doubles(st_need(c->vectors, "context")), largest = 1, lse = 1;
    const size_t context_dim[] = {B, T, joined}, query_dim[] = {B, H, T, c->head_dim};
    const size_t lse_dim[] = {B, H, T};

    check_rows(c, answer, "intermediates.context", 3, context_dim, context, NULL,
               mha_tolerance(c, "context"));
    for (size_t i = 0; i < B * H * T; i++)
        lse = isfinite(o->logsumexp[i]) ? fmax(lse, fabs(o->logsumexp[i])) : lse;
    check_rows(c, answer, "intermediates.logsumexp", 3, lse_dim, o->logsumexp, NULL,
               fmax(logit_tolerance(c), 1e-6 * lse)); /* as a float32 it is rounded too */
    free(context);
    if (!c->finite) /* what stands at keys that hold NaN is nobody's business */
        return;
    for (size_t i = 0; i < B * H * T * c->head_dim; i++)
        largest = fmax(largest, fabs(o->query[i]));
    check_rows(c, answer, "intermediates.query", 4, query_dim, o->query, NULL, 1e-5 * largest);
    check_keys(c, answer, "intermediates.key", c->head_dim, o->key);
    check_keys(c, answer, "intermediates.value", c->v_head_dim, o->value);
    if (c->past > 0) { /* the stored ones too: past, then new */
        double *key = st_doubles(st_need(c->vectors, "present_key"));
        double *value = st_doubles(st_need(c->vectors, "present_value"));
        check_keys(c, answer, "intermediates.key", c->head_dim, key);
        check_keys(c, answer, "intermediates.value", c->v_head_dim, value);
        free(key);
        free(value);
    }
}

static void maps_of(const mha_case *c, void *arg)
{
    static const char ALL[] = "[\"query\",\"key\",\"value\",\"logsumexp\",\"context\"]";
    static const char SEEN[] = "[\"logsumexp\",\"context\"]";
    const size_t dim[] = {c->batch, c->heads, c->tokens, c->keys};
    double *maps = st_doubles(st_need(c->vectors, "attentions"));
    ref_batch *o = mha_oracle(c);
    (void)arg;

    for (int base64 = c->finite ? 0 : 1; base64 < 2; base64++) {
        json_t *plain = ask(c, base64, NULL, NULL);
        json_t *answer = ask(c, base64, "true", c->finite ? ALL : SEEN);
        check_outputs(c, answer);
        check_usage(c, answer);
        if (!json_equal(answer_get(answer, "outputs"), answer_get(plain, "outputs")))
            fail_msg("%s: asking for maps changes the outputs", c->name);
        check_rows(c, answer, "attentions", 4, dim, maps, NULL, mha_tolerance(c, "attentions"));
        check_intermediates(c, answer, o);
        json_decref(plain);
        json_decref(answer);
    }
    ref_batch_free(o);
    free(maps);
}

static void maps_and_intermediates_agree_and_change_no_output(void **state)
{
    (void)state;
    if (!mha_for_each(maps_of, NULL, NULL))
        skip();
}

/* The stored tensor nearest before the mask: what a stage without its own tensor must equal. */
static const char *stage_tensor(const mha_case *c, const char *stage)
{
    if (strcmp(stage, "masked") == 0 && st_find(c->vectors, "biased") != NULL)
        return "biased";
    if (strcmp(stage, "scores") != 0 && st_find(c->vectors, "softcapped") != NULL)
        return "softcapped";
    return "scores";
}

static void stage_of(const mha_case *c, const char *stage, bool base64, json_t *plain)
{
    const size_t dim[] = {c->batch, c->heads, c->tokens, c->keys};
    const st_tensor *allowed = st_need(c->vectors, "allowed");
    const char *tensor = stage_tensor(c, stage);
    double *expected = st_doubles(st_need(c->vectors, tensor));
    bool masked = strcmp(stage, "masked") == 0;
    char *option = st_path("{\"stage\":\"%s\"}", stage);
    json_t *answer = ask(c, base64, option, NULL);

    for (size_t i = 0; i < allowed->count && masked; i++) {
        if (!((const unsigned char *)allowed->data)[i])
            expected[i] = -INFINITY;
    }
    check_rows(c, answer, "attentions", 4, dim, expected, masked ? NULL : allowed->data,
               mha_tolerance(c, tensor));
    if (plain != NULL && !json_equal(answer_get(answer, "outputs"), answer_get(plain, "outputs")))
        fail_msg("%s: asking for stage %s changes the outputs", c->name, stage);
    check_usage(c, answer);
    json_decref(answer);
    free(option);
    free(expected);
}

static void stages_of(const mha_case *c, void *arg)
{
    static const char *const STAGE[] = {"scores", "softcapped", "masked"};
    (void)arg;
    json_t *plain = ask(c, true, NULL, NULL);
    for (size_t i = 0; i < sizeof STAGE / sizeof *STAGE; i++)
        stage_of(c, STAGE[i], true, plain);
    if (c->finite) /* a masked cell is null there */
        stage_of(c, "masked", false, NULL);
    json_decref(plain);
}

static void stages_agree_and_change_no_output(void **state)
{
    (void)state;
    if (!mha_for_each(stages_of, NULL, NULL))
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_agree_in_json_and_base64),
        cmocka_unit_test(maps_and_intermediates_agree_and_change_no_output),
        cmocka_unit_test(stages_agree_and_change_no_output),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

/* The attention mathematics that services like this one get wrong, each mistake by its code (A01 to
 * A22), on layers small enough to check by hand. */
#include "tests/body.h"
#include "tests/daemon.h"
#include "tests/ref_attention.h"
#include "tests/st.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Three tokens through one head of size 2 with identity weights. */
#define X1 "[[[1,0],[0,1],[1,1]]]"
/* Two tokens through two heads of size 2. */
#define X2 "[[[1,0,2,0],[0,1,0,2]]]"

static const double MAP_PLAIN[] = {0.4011121, 0.1977758, 0.4011121, 0.1977758, 0.4011121,
                                   0.4011121, 0.2482551, 0.2482551, 0.5034898};
static const double OUT_PLAIN[] = {0.8022242, 0.5988879, 0.5988879,
                                   0.8022242, 0.7517449, 0.7517449};
static const double MAP_CAUSAL[] = {1, 0,         0,         0.3302385, 0.6697615,
                                    0, 0.2482551, 0.2482551, 0.5034898};
static const double OUT_CAUSAL[] = {1, 0, 0.3302385, 0.6697615, 0.7517449, 0.7517449};
static const double MAP_TWO[] = {0.6697615, 0.3302385, 0, 0.3302385, 0.6697615, 0, 0, 0, 0};
static const double OUT_TWO[] = {0.6697615, 0.3302385, 0.3302385, 0.6697615, 0, 0};
static const double OUT_F2[] = {0.6697615, 0.3302385, 1.8883856, 0.1116144,
                                0.3302385, 0.6697615, 0.1116144, 1.8883856};
static const double MAP_F2[] = {0.6697615, 0.3302385, 0.3302385, 0.6697615,
                                0.9441928, 0.0558072, 0.0558072, 0.9441928};
static const double MEAN_F2[] = {0.80697715, 0.19302285, 0.19302285, 0.80697715};
static const double MAX_F2[] = {0.9441928, 0.3302385, 0.3302385, 0.9441928};
static const double CLOSE = 1e-5;

static test_daemon *daemon_;
static char *folder_;
static float odd_weight_[4][24]; /* of the model whose head_dim is not d_model / heads */

/* --- the models ------------------------------------------------------------------------------ */

typedef struct {
    const char *name;
    st_native model;
} tiny;

static void write_mistral(const char *dir)
{
    static const char *const NAME[] = {
        "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.o_proj.weight"};
    static const float IDENTITY[] = {1, 0, 0, 1};
    st_entry entry[4];
    st_native native = {.d_model = 2, .num_heads = 1, .num_kv_heads = 1, .head_dim = 2};

    st_write_native(dir, &native); /* the folder; both files are written anew */
    for (size_t i = 0; i < 4; i++)
        entry[i] = (st_entry){NAME[i], "F32", 2, {2, 2}, IDENTITY, sizeof IDENTITY};
    char *weights = st_path("%s/model.safetensors", dir), *config = st_path("%s/config.json", dir);
    st_write(weights, entry, 4);
    st_write_text(config, "{\"model_type\":\"mistral\",\"architectures\":[\"MistralForCausalLM\"],"
                          "\"hidden_size\":2,\"num_attention_heads\":1,\"num_key_value_heads\":1,"
                          "\"num_hidden_layers\":1,\"rope_theta\":10000.0,\"sliding_window\":4}");
    free(weights);
    free(config);
}

static int start(void **state)
{
    static const float BIAS[] = {0.5F, -0.5F};
    const tiny all[] = {
        {"f1", {2, 1, 1, 2, {NULL}, {NULL}, false, NULL}},
        {"f1_bias", {2, 1, 1, 2, {NULL}, {NULL, NULL, NULL, BIAS}, false, NULL}},
        {"f2", {4, 2, 2, 2, {NULL}, {NULL}, false, NULL}},
        {"one", {1, 1, 1, 1, {NULL}, {NULL}, false, NULL}},
        {"half64", {64, 1, 1, 64, {NULL}, {NULL}, true, NULL}},
        {"odd",
         {4,
          2,
          2,
          3,
          {odd_weight_[0], odd_weight_[1], odd_weight_[2], odd_weight_[3]},
          {NULL},
          false,
          NULL}},
        {"rope_half",
         {4,
          1,
          1,
          4,
          {NULL},
          {NULL},
          false,
          "\"rope\":{\"theta\":10000,\"style\":\"half\",\"dims\":4}"}},
        {"rope_neighbours",
         {4,
          1,
          1,
          4,
          {NULL},
          {NULL},
          false,
          "\"rope\":{\"theta\":10000,\"style\":\"interleaved\",\"dims\":4}"}},
        {"rope_partial",
         {4,
          1,
          1,
          4,
          {NULL},
          {NULL},
          false,
          "\"rope\":{\"theta\":10000,\"style\":\"half\",\"dims\":2}"}},
        {"alibi8", {8, 8, 8, 1, {NULL}, {NULL}, false, "\"alibi\":true"}},
        {"alibi6", {6, 6, 6, 1, {NULL}, {NULL}, false, "\"alibi\":true"}},
        {"alibi3", {3, 3, 3, 1, {NULL}, {NULL}, false, "\"alibi\":true"}},
        {"wide", {64, 4, 4, 16, {NULL}, {NULL}, false, NULL}},
    };
    enum { N = sizeof all / sizeof *all };
    char *arg[2 * N + 4];
    size_t n = 0;
    (void)state;

    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 24; k++)
            odd_weight_[i][k] = (float)((double)((k * 7 + i * 5) % 11) / 8 - 0.6);
    }
    folder_ = st_temp_dir();
    arg[n++] = st_path("serve");
    for (size_t i = 0; i < N; i++) {
        char *dir = st_path("%s/%s", folder_, all[i].name);
        st_write_native(dir, &all[i].model);
        arg[n++] = st_path("--model");
        arg[n++] = st_path("%s=%s", all[i].name, dir);
        free(dir);
    }
    char *mistral = st_path("%s/mistral", folder_);
    write_mistral(mistral);
    arg[n++] = st_path("--model");
    arg[n++] = st_path("mistral=%s", mistral);
    arg[n] = NULL;
    free(mistral);
    daemon_ = daemon_start((const char *const *)arg);
    while (n > 0)
        free(arg[--n]);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_stop(daemon_);
    st_remove_dir(folder_);
    return 0;
}

/* --- asking ---------------------------------------------------------------------------------- */

static json_t *post(const char *model, long status, const char *body)
{
    char *path = strcmp(model, "sdpa") == 0 ? st_path("/v1/scaled-dot-product-attention")
                                            : st_path("/v1/models/%s/attention", model);
    test_reply r = daemon_post(daemon_, path, body, status);
    json_t *answer = answer_parse(r.body, r.body_bytes);
    reply_free(&r);
    free(path);
    return answer;
}

/* {"inputs_embeds":x, <options>}, maps wanted unless the options speak of them. */
static json_t *ask(const char *model, const char *x, const char *options)
{
    bool own = strstr(options, "return_attentions") != NULL;
    char *body = st_path("{\"inputs_embeds\":%s%s%s%s}", x, *options ? "," : "", options,
                         own ? "" : ",\"return_attentions\":true");
    json_t *answer = post(model, 200, body);
    free(body);
    return answer;
}

static void refused(const char *model, long status, const char *body, const char *const *words)
{
    json_t *answer = post(model, status, body);
    const char *detail = json_string_value(json_object_get(answer, "detail"));
    const char *pointer = json_string_value(json_object_get(answer, "pointer"));
    assert_non_null(detail);
    for (; words != NULL && *words != NULL; words++) {
        if (strstr(detail, *words) == NULL && (pointer == NULL || strstr(pointer, *words) == NULL))
            fail_msg("\"%s\" is neither in \"%s\" nor in \"%s\"", *words, detail,
                     pointer != NULL ? pointer : "");
    }
    json_decref(answer);
}

static void expect(json_t *answer, const char *name, const double *expected, size_t rank,
                   const size_t *dim, double tolerance)
{
    test_tensor got = answer_tensor(answer_get(answer, name), name, rank, dim);
    assert_close(name, got.data, expected, got.count, NULL, tolerance);
    answer_free(&got);
}

static void expect_f1(json_t *answer, const double *map, const double *outputs)
{
    expect(answer, "attentions", map, DIMS(1, 1, 3, 3), CLOSE);
    expect(answer, "outputs", outputs, DIMS(1, 3, 2), CLOSE);
}

/* Text of a part of an answer: equal text is equal bits. */
static char *text_of(json_t *answer, const char *name)
{
    char *text = json_dumps(answer_get(answer, name), JSON_COMPACT | JSON_ENCODE_ANY);
    if (text == NULL)
        fail_msg("the answer has no %s", name);
    return text;
}

static void same_bits(json_t *a, json_t *b, const char *name)
{
    char *x = text_of(a, name), *y = text_of(b, name);
    assert_string_equal(x, y);
    free(x);
    free(y);
}

static size_t masked_rows(json_t *answer)
{
    return (size_t)json_integer_value(answer_get(answer, "usage.fully_masked_rows"));
}

/* `attnd check` of a model that must be refused: exit 1, no signal, these words on stderr. */
static void check_refuses(const st_native *m, const char *config, const char *const *words)
{
    static int count;
    char *dir = st_path("%s/bad%d", folder_, count++), *err = NULL;
    char *model = st_path("bad=%s", dir), *path = st_path("%s/config.json", dir);

    st_write_native(dir, m);
    if (config != NULL)
        st_write_text(path, config);
    int code = daemon_run((const char *[]){"check", "--model", model, NULL}, NULL, &err);
    if (code != 1)
        fail_msg("attnd check ended with %d: %s", code, err);
    for (; *words != NULL; words++) {
        if (strstr(err, *words) == NULL)
            fail_msg("\"%s\" is not in \"%s\"", *words, err);
    }
    free(dir);
    free(err);
    free(model);
    free(path);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* --- the mistakes ---------------------------------------------------------------------------- */

static void the_fixtures_give_the_known_numbers(void **state)
{
    (void)state;
    json_t *answer = ask("f1", X1, "");
    expect_f1(answer, MAP_PLAIN, OUT_PLAIN);
    assert_int_equal(masked_rows(answer), 0);
    json_decref(answer);
    answer = ask("f1", X1, "\"is_causal\":true");
    expect_f1(answer, MAP_CAUSAL, OUT_CAUSAL);
    json_decref(answer);
    answer = ask("f1", X1, "\"lengths\":[2]");
    expect_f1(answer, MAP_TWO, OUT_TWO);
    json_decref(answer);
    answer = ask("f2", X2, "");
    expect(answer, "attentions", MAP_F2, DIMS(1, 2, 2, 2), CLOSE);
    expect(answer, "outputs", OUT_F2, DIMS(1, 2, 4), CLOSE);
    json_decref(answer);
    /* One sequence in, one out. */
    answer = ask("f1", "[[1,0],[0,1],[1,1]]", "");
    expect(answer, "attentions", MAP_PLAIN, DIMS(1, 3, 3), CLOSE);
    expect(answer, "outputs", OUT_PLAIN, DIMS(3, 2), CLOSE);
    json_decref(answer);
}

static void A01_a_fully_masked_row_is_zeros_and_the_output_bias(void **state)
{
    static const double BIAS[] = {0.5, -0.5};
    (void)state;
    json_t *whole = ask("f1_bias", X1, "");
    json_t *answer = ask("f1_bias", X1,
                         "\"attention_mask\":[[[1,1,1],[1,1,1],[0,0,0]]],"
                         "\"return_intermediates\":[\"logsumexp\",\"context\"]");
    for (size_t i = 0; i < 2; i++) { /* the other rows keep their bits */
        json_t *a = json_array_get(json_array_get(answer_get(answer, "outputs"), 0), i);
        assert_true(
            json_equal(a, json_array_get(json_array_get(answer_get(whole, "outputs"), 0), i)));
    }
    test_tensor out = answer_tensor(answer_get(answer, "outputs"), "outputs", DIMS(1, 3, 2));
    test_tensor map = answer_tensor(answer_get(answer, "attentions"), "maps", DIMS(1, 1, 3, 3));
    test_tensor context =
        answer_tensor(answer_get(answer, "intermediates.context"), "context", DIMS(1, 3, 2));
    test_tensor lse =
        answer_tensor(answer_get(answer, "intermediates.logsumexp"), "logsumexp", DIMS(1, 1, 3));
    assert_close("outputs", out.data + 4, BIAS, 2, NULL, 0);
    assert_close("maps", map.data, MAP_PLAIN, 6, NULL, CLOSE);
    assert_zeros("maps", map.data + 6, 3);
    assert_zeros("context", context.data + 4, 2);
    assert_true(lse.data[2] == -INFINITY);
    assert_int_equal(masked_rows(answer), 1);
    answer_free(&out);
    answer_free(&map);
    answer_free(&context);
    answer_free(&lse);
    json_decref(answer);
    json_decref(whole);
}

static void A02_one_in_a_mask_means_may_attend(void **state)
{
    static const double ROW[] = {0.6697615, 0.3302385, 0, 0.3302385, 0.6697615, 0, 0.5, 0.5, 0};
    static const double INVERTED[] = {0, 0, 1, 0, 0, 1, 0, 0, 1};
    (void)state;
    json_t *answer = ask("f1", X1, "\"attention_mask\":[[1,1,0]]");
    expect(answer, "attentions", ROW, DIMS(1, 1, 3, 3), CLOSE);
    json_decref(answer);
    answer = ask("f1", X1, "\"attention_mask\":[[false,false,true]]");
    expect(answer, "attentions", INVERTED, DIMS(1, 1, 3, 3), 0);
    json_decref(answer);
}

static void A03_numbers_in_a_mask_are_no_scores(void **state)
{
    static const char *const FORM[] = {"[[[1,0,0],[1,1,0],[1,1,1]]]",
                                       "[[[true,false,false],[true,true,false],[true,true,true]]]",
                                       "[[[[1,0,0],[1,1,0],[1,1,1]]]]"};
    static const char *const BAD[] = {"[[0.5,1,1]]", "[[1,-1e9,1]]",     "[[1,1,2]]",
                                      "[[1,1,-1]]",  "[[1,\"-inf\",1]]", "[[1,null,1]]"};
    (void)state;
    for (size_t i = 0; i < sizeof FORM / sizeof *FORM; i++) {
        char *options = st_path("\"attention_mask\":%s", FORM[i]);
        json_t *answer = ask("f1", X1, options);
        expect_f1(answer, MAP_CAUSAL, OUT_CAUSAL);
        json_decref(answer);
        free(options);
    }
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        char *body = st_path("{\"inputs_embeds\":" X1 ",\"attention_mask\":%s}", BAD[i]);
        refused("f1", 400, body, WORDS("/attention_mask"));
        free(body);
    }
}

static void A04_two_masks_on_a_key_are_one(void **state)
{
    static const double MAP[] = {1, 0, 0, 0.3302385, 0.6697615, 0, 0, 0, 0};
    (void)state;
    json_t *both = ask("f1", X1, "\"is_causal\":true,\"lengths\":[2]");
    expect(both, "attentions", MAP, DIMS(1, 1, 3, 3), CLOSE);
    json_decref(both);
    /* Key 2 hidden once and hidden by all that can hide it. */
    json_t *once = ask("f1", X1, "\"attention_mask\":[[1,1,0]]");
    json_t *thrice = ask("f1", X1,
                         "\"attention_mask\":[[1,1,0]],\"attention_bias\":[[0,0,\"-inf\"],"
                         "[0,0,\"-inf\"],[0,0,\"-inf\"]],\"window\":{\"left\":-1,\"right\":1}");
    json_t *map = json_array_get(json_array_get(answer_get(once, "attentions"), 0), 0);
    json_t *map3 = json_array_get(json_array_get(answer_get(thrice, "attentions"), 0), 0);
    for (size_t i = 0; i < 3; i++)
        assert_true(json_equal(json_array_get(map, i), json_array_get(map3, i)));
    same_bits(once, thrice, "outputs");
    json_decref(once);
    json_decref(thrice);
}

static void A05_a_masked_key_has_no_weight_whatever_its_score(void **state)
{
    static const double MAP[] = {1, 0, 1, 0}, OUT[] = {1, 1};
    (void)state;
    json_t *answer = ask("one", "[[[1],[50000]]]", "\"attention_mask\":[[1,0]]");
    expect(answer, "attentions", MAP, DIMS(1, 1, 2, 2), 0);
    expect(answer, "outputs", OUT, DIMS(1, 2, 1), 0);
    json_decref(answer);
}

static void A06_half_precision_weights_compute_in_single(void **state)
{
    static const double HALF[] = {0.5, 0.5, 0.5, 0.5};
    float x[2 * 64];
    double out[2 * 64], score[4];
    test_body b;
    (void)state;

    for (size_t i = 0; i < 2 * 64; i++)
        out[i] = (double)(x[i] = 40);
    for (size_t i = 0; i < 4; i++)
        score[i] = 12800;
    body_init(&b, false);
    body_floats(&b, "inputs_embeds", x, DIMS(1, 2, 64));
    body_raw(&b, "return_attentions", "true");
    json_t *answer = post("half64", 200, body_text(&b));
    expect(answer, "attentions", HALF, DIMS(1, 1, 2, 2), 1e-7);
    expect(answer, "outputs", out, DIMS(1, 2, 64), 1e-5);
    json_decref(answer);
    body_free(&b);
    body_init(&b, false);
    body_floats(&b, "inputs_embeds", x, DIMS(1, 2, 64));
    body_raw(&b, "return_attentions", "{\"stage\":\"scores\"}");
    answer = post("half64", 200, body_text(&b));
    expect(answer, "attentions", score, DIMS(1, 1, 2, 2), 0.01);
    json_decref(answer);
    body_free(&b);
}

static void A07_the_scale_is_of_the_head_and_applied_once(void **state)
{
    static const double SCORE[] = {0.70710678, 0, 0, 0.70710678, 2.8284271, 0, 0, 2.8284271};
    (void)state;
    json_t *answer = ask("f2", X2, "\"return_attentions\":{\"stage\":\"scores\"}");
    expect(answer, "attentions", SCORE, DIMS(1, 2, 2, 2), 1e-6);
    json_decref(answer);
    answer = ask("f2", X2, "");
    expect(answer, "attentions", MAP_F2, DIMS(1, 2, 2, 2), CLOSE);
    json_decref(answer);
}

static void A08_head_dim_need_not_be_d_model_over_heads(void **state)
{
    static const float X[] = {1, 0, -1, 2, 0.5F, 1, 1, 0};
    double x[8], w[4][24], out[8], map[8];
    ref_attention r = ref_attention_default();
    (void)state;

    for (size_t i = 0; i < 8; i++)
        x[i] = (double)X[i];
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 24; k++)
            w[i][k] = (double)odd_weight_[i][k];
    }
    r.tokens = r.new_keys = 2;
    r.d_model = r.d_out = 4;
    r.heads = r.kv_heads = 2;
    r.head_dim = r.v_head_dim = 3;
    r.scale = 1 / sqrt(3);
    r.x = x, r.wq = w[0], r.wk = w[1], r.wv = w[2], r.wo = w[3];
    r.outputs = out, r.maps = map;
    ref_attention_run(&r);
    json_t *answer = ask("odd", "[[[1,0,-1,2],[0.5,1,1,0]]]", "");
    expect(answer, "outputs", out, DIMS(1, 2, 4), CLOSE);
    expect(answer, "attentions", map, DIMS(1, 2, 2, 2), CLOSE);
    json_decref(answer);

    st_native bad = {.d_model = 4, .num_heads = 2, .num_kv_heads = 2, .head_dim = 3};
    check_refuses(&bad,
                  "{\"model_type\":\"attnd\",\"d_model\":4,\"num_heads\":2,\"num_kv_heads\":2,"
                  "\"head_dim\":2}",
                  WORDS("6", "4", "wq"));
}

static void A09_impossible_head_counts_are_refused_at_start(void **state)
{
    static const struct {
        const char *heads, *word;
    } BAD[] = {
        {"0", "0"}, {"3", "3"}, {"-1", "-1"}, {"2147483648", "2147483648"}, {"2.5", "num_heads"}};
    st_native m = {.d_model = 8, .num_heads = 2, .num_kv_heads = 2, .head_dim = 4};
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        char *config =
            st_path("{\"model_type\":\"attnd\",\"d_model\":8,\"num_heads\":%s}", BAD[i].heads);
        check_refuses(&m, config, WORDS(BAD[i].word, "num_heads"));
        free(config);
    }
}

static void A10_key_heads_must_divide_query_heads(void **state)
{
    st_native m = {.d_model = 12, .num_heads = 6, .num_kv_heads = 4, .head_dim = 2};
    float x[6 * 2 * 4] = {0};
    test_body b;
    (void)state;

    check_refuses(&m, NULL, WORDS("6", "4"));
    body_init(&b, false);
    body_floats(&b, "query", x, DIMS(1, 6, 2, 4));
    body_floats(&b, "key", x, DIMS(1, 4, 2, 4));
    body_floats(&b, "value", x, DIMS(1, 4, 2, 4));
    refused("sdpa", 422, body_text(&b), WORDS("6", "4"));
    body_free(&b);
}

static void A11_rotation_pairs_are_neighbours_or_halves(void **state)
{
    static const double NEIGHBOURS[] = {-1.142640, 1.922076, 2.959851, 4.029800};
    static const double HALVES[] = {-1.984111, 1.959901, 2.462378, 4.019800};
    static const double PARTIAL[] = {-1.142640, 1.922076, 3, 4};
    static const struct {
        const char *model;
        const double *query;
    } STYLE[] = {{"rope_neighbours", NEIGHBOURS}, {"rope_half", HALVES}, {"rope_partial", PARTIAL}};
    static const char *const POSITION[] = {"\"position_offset\":1", "\"position_ids\":[[1]]"};
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        char *options = st_path("%s,\"return_intermediates\":[\"query\",\"key\"]", POSITION[i % 2]);
        json_t *answer = ask(STYLE[i / 2].model, "[[[1,2,3,4]]]", options);
        expect(answer, "intermediates.query", STYLE[i / 2].query, DIMS(1, 1, 1, 4), 2e-6);
        expect(answer, "intermediates.key", STYLE[i / 2].query, DIMS(1, 1, 1, 4), 2e-6);
        json_decref(answer);
        free(options);
    }
    st_native silent = {.d_model = 4,
                        .num_heads = 1,
                        .num_kv_heads = 1,
                        .head_dim = 4,
                        .config = "\"rope\":{\"theta\":10000}"};
    check_refuses(&silent, NULL, WORDS("style"));
}

static void A12_alibi_slopes_for_any_number_of_heads(void **state)
{
    static const double SLOPE[3][8] = {
        {0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625},
        {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125},
        {0.0625, 0.00390625, 0.25}};
    static const size_t HEADS[] = {8, 6, 3};
    enum { T = 5 };
    (void)state;
    for (size_t m = 0; m < 3; m++) {
        size_t H = HEADS[m];
        float x[T * 8] = {0}; /* all scores are 0: the masked stage shows the bias itself */
        double masked[8 * T * T];
        char *model = st_path("alibi%zu", H);
        test_body b;
        for (size_t n = 0; n < H * T * T; n++) {
            size_t h = n / (T * T), i = n / T % T, j = n % T;
            masked[n] = j <= i ? -SLOPE[m][h] * (double)(i - j) : -INFINITY;
        }
        body_init(&b, false);
        body_floats(&b, "inputs_embeds", x, DIMS(1, T, H));
        body_raw(&b, "is_causal", "true");
        body_raw(&b, "return_attentions", "{\"stage\":\"masked\"}");
        json_t *answer = post(model, 200, body_text(&b));
        expect(answer, "attentions", masked, DIMS(1, H, T, T), 0);
        json_decref(answer);
        body_free(&b);
        free(model);
    }
}

/* Which keys have weight: an array of T strings of '0' and '1'. */
static void expect_pattern(json_t *answer, const char *const *pattern, size_t T)
{
    test_tensor map = answer_tensor(answer_get(answer, "attentions"), "maps", DIMS(1, 1, T, T));
    for (size_t i = 0; i < T * T; i++) {
        bool seen = pattern[i / T][i % T] == '1';
        if ((map.data[i] > 0) != seen)
            fail_msg("query %zu, key %zu: weight %g", i / T, i % T, (double)map.data[i]);
    }
    answer_free(&map);
}

static void A13_a_window_counts_the_own_key(void **state)
{
    static const char SIX[] = "[[[1,0],[0,1],[1,1],[1,0],[0,1],[1,1]]]";
    static const char *const LEFT1[] = {"100000", "110000", "011000", "001100", "000110", "000011"};
    static const char *const SELF[] = {"100000", "010000", "001000", "000100", "000010", "000001"};
    static const char *const SELF_HIDDEN[] = {"100000", "010000", "000000",
                                              "000100", "000010", "000001"};
    static const char *const FOUR[] = {"100000", "110000", "111000", "111100", "011110", "001111"};
    static const char *const RIGHT2[] = {"111000", "111100", "111110",
                                         "111111", "111111", "111111"};
    (void)state;
    json_t *answer = ask("f1", SIX, "\"window\":{\"left\":1,\"right\":0}");
    expect_pattern(answer, LEFT1, 6);
    json_decref(answer);
    answer = ask("f1", SIX, "\"window\":{\"left\":0,\"right\":0}");
    expect_pattern(answer, SELF, 6);
    json_decref(answer);
    answer =
        ask("f1", SIX, "\"window\":{\"left\":0,\"right\":0},\"attention_mask\":[[1,1,0,1,1,1]]");
    expect_pattern(answer, SELF_HIDDEN, 6);
    assert_int_equal(masked_rows(answer), 1);
    json_decref(answer);
    answer = ask("f1", SIX, "\"window\":{\"left\":-1,\"right\":2}");
    expect_pattern(answer, RIGHT2, 6);
    json_decref(answer);
    answer = ask("mistral", SIX, ""); /* its sliding_window of 4 has the own key in it */
    expect_pattern(answer, FOUR, 6);
    json_decref(answer);
}

static void A14_padded_query_rows_are_zeros_every_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < 100; i++) {
        json_t *other = ask("f2", X2, i % 2 ? "\"is_causal\":true" : "");
        json_decref(other);
        json_t *answer = ask("f1", X1, "\"lengths\":[2]");
        test_tensor out = answer_tensor(answer_get(answer, "outputs"), "outputs", DIMS(1, 3, 2));
        assert_close("outputs", out.data, OUT_TWO, 4, NULL, CLOSE);
        assert_zeros("outputs", out.data + 4, 2);
        answer_free(&out);
        json_decref(answer);
    }
    /* The same through base64, and with an output bias, which a padded row does not get. */
    json_t *answer = ask("f1_bias", X1, "\"lengths\":[2],\"encoding_format\":\"base64\"");
    test_tensor out = answer_tensor(answer_get(answer, "outputs"), "outputs", DIMS(1, 3, 2));
    assert_zeros("outputs", out.data + 4, 2);
    answer_free(&out);
    json_decref(answer);
}

static void A15_the_answer_has_the_sizes_of_the_request(void **state)
{
    (void)state;
    json_t *answer = ask("f1",
                         "[[[1,0],[0,1],[1,1],[1,0],[0,1],[1,1]],"
                         "[[1,0],[0,1],[1,1],[1,0],[0,1],[1,1]]]",
                         "\"lengths\":[1,1]");
    test_tensor out = answer_tensor(answer_get(answer, "outputs"), "outputs", DIMS(2, 6, 2));
    test_tensor map = answer_tensor(answer_get(answer, "attentions"), "maps", DIMS(2, 1, 6, 6));
    answer_free(&out);
    answer_free(&map);
    json_decref(answer);

    answer = ask("f1", "[[[1,0]],[[1,0],[0,1],[1,1]]]", "");
    static const size_t ROWS[] = {1, 3};
    for (size_t b = 0; b < 2; b++) {
        out = answer_tensor(json_array_get(answer_get(answer, "outputs"), b), "outputs",
                            DIMS(ROWS[b], 2));
        map = answer_tensor(json_array_get(answer_get(answer, "attentions"), b), "maps",
                            DIMS(1, ROWS[b], ROWS[b]));
        if (b == 1) {
            assert_close("outputs", out.data, OUT_PLAIN, 6, NULL, CLOSE);
            assert_close("maps", map.data, MAP_PLAIN, 9, NULL, CLOSE);
        }
        answer_free(&out);
        answer_free(&map);
    }
    json_decref(answer);
}

static void A16_padding_hides_key_columns(void **state)
{
    (void)state;
    json_t *answer = ask("f1", "[[[1,0],[0,1],[1,1]],[[1,0],[0,1],[1,1]]]", "\"lengths\":[2,3]");
    test_tensor map = answer_tensor(answer_get(answer, "attentions"), "maps", DIMS(2, 1, 3, 3));
    assert_close("maps", map.data, MAP_TWO, 9, NULL, CLOSE);
    assert_close("maps", map.data + 9, MAP_PLAIN, 9, NULL, CLOSE);
    assert_zeros("maps", map.data + 2, 1);
    assert_zeros("maps", map.data + 5, 1);
    answer_free(&map);
    json_decref(answer);
}

/* The best of some times, in seconds, of a batch whose numbers are `value` times a pattern. */
static double best_time(size_t B, size_t T, double value, const int64_t *lengths)
{
    enum { D = 64, TRIES = 7 };
    float *x = malloc(B * T * D * sizeof *x);
    double best = INFINITY;
    test_body b;

    assert_non_null(x);
    for (size_t i = 0; i < B * T * D; i++)
        x[i] = (float)(value * (0.1 + (double)(i * 2654435761U % 1000) / 1000));
    body_init(&b, true);
    body_floats(&b, "inputs_embeds", x, DIMS(B, T, D));
    if (lengths != NULL)
        body_ints(&b, "lengths", lengths, DIMS(B));
    const char *text = body_text(&b);
    for (size_t i = 0; i < TRIES; i++) {
        test_reply r = daemon_post(daemon_, "/v1/models/wide/attention", text, 200);
        best = fmin(best, r.seconds);
        reply_free(&r);
    }
    body_free(&b);
    free(x);
    return best;
}

/* Subnormals cost a factor of 16 where they are not flushed; the bounds leave room for a busy machine. */
static void A17_neither_padding_nor_denormals_are_slow(void **state)
{
    enum { B = 16, T = 512 };
    int64_t lengths[B];
    (void)state;
    for (size_t b = 0; b < B; b++)
        lengths[b] = (int64_t)(16 + b * (T - 16) / (B - 1));
    double full = best_time(B, T, 1, NULL);
    double ragged = best_time(B, T, 1, lengths), subnormal = best_time(B, T, 1e-39, NULL);
    if (ragged > 3 * full + 0.01 || subnormal > 6 * full + 0.01)
        fail_msg("full batch %.3f s, padded %.3f s, of denormals %.3f s", full, ragged, subnormal);
}

static void A18_nothing_in_gives_nothing_out(void **state)
{
    (void)state;
    json_t *answer = ask("f1", "[]", "");
    assert_int_equal(json_array_size(answer_get(answer, "outputs")), 0);
    assert_true(json_is_array(answer_get(answer, "outputs")));
    assert_int_equal(json_integer_value(answer_get(answer, "usage.sequences")), 0);
    json_decref(answer);
    answer = ask("f1", "[[]]", "");
    assert_int_equal(json_array_size(answer_get(answer, "outputs")), 1);
    assert_int_equal(json_array_size(json_array_get(answer_get(answer, "outputs"), 0)), 0);
    assert_int_equal(json_integer_value(answer_get(answer, "usage.sequences")), 1);
    json_decref(answer);
    answer = ask("f1", "[[],[[1,0]]]", "");
    assert_int_equal(json_array_size(json_array_get(answer_get(answer, "outputs"), 0)), 0);
    static const double ALONE[] = {1, 0};
    test_tensor out =
        answer_tensor(json_array_get(answer_get(answer, "outputs"), 1), "outputs", DIMS(1, 2));
    assert_close("outputs", out.data, ALONE, 2, NULL, 0);
    answer_free(&out);
    json_decref(answer);

    refused("f1", 422, "{\"inputs_embeds\":[[[]]]}", NULL);
    refused("f1", 422, "{\"inputs_embeds\":" X1 ",\"lengths\":[4]}", WORDS("/lengths", "4", "3"));
    refused("f1", 422, "{\"inputs_embeds\":" X1 ",\"lengths\":[-1]}", WORDS("/lengths", "-1"));
    refused("f1", 422, "{\"inputs_embeds\":" X1 ",\"lengths\":[3,3]}", WORDS("/lengths"));

    answer = ask("f1", "[[[1,0],[0,1],[1,1]],[[1,0],[0,1],[1,1]]]", "\"lengths\":[0,3]");
    out = answer_tensor(answer_get(answer, "outputs"), "outputs", DIMS(2, 3, 2));
    test_tensor map = answer_tensor(answer_get(answer, "attentions"), "maps", DIMS(2, 1, 3, 3));
    assert_zeros("outputs", out.data, 6);
    assert_zeros("maps", map.data, 9);
    assert_close("outputs", out.data + 6, OUT_PLAIN, 6, NULL, CLOSE);
    assert_close("maps", map.data + 9, MAP_PLAIN, 9, NULL, CLOSE);
    answer_free(&out);
    answer_free(&map);
    json_decref(answer);
}

static void A19_maps_are_per_head_unless_reduced(void **state)
{
    (void)state;
    json_t *answer = ask("f2", X2, "");
    expect(answer, "attentions", MAP_F2, DIMS(1, 2, 2, 2), CLOSE);
    json_decref(answer);
    static const struct {
        const char *kind;
        const double *map;
    } REDUCED[] = {{"mean", MEAN_F2}, {"max", MAX_F2}};
    for (size_t i = 0; i < 2; i++) {
        char *options = st_path("\"return_attentions\":{\"reduce_heads\":\"%s\"}", REDUCED[i].kind);
        answer = ask("f2", X2, options);
        test_tensor map = answer_any(answer_get(answer, "attentions"), "maps");
        assert_int_equal(map.count, 4);
        assert_close(REDUCED[i].kind, map.data, REDUCED[i].map, 4, NULL, 1e-6);
        answer_free(&map);
        json_decref(answer);
        free(options);
    }
    answer = ask("f2", X2, "\"return_attentions\":{\"heads\":[1],\"queries\":[1,2]}");
    expect(answer, "attentions", MAP_F2 + 6, DIMS(1, 1, 1, 2), CLOSE);
    json_decref(answer);
}

static void A20_the_returned_map_is_the_one_that_was_used(void **state)
{
    enum { T = 23, D = 64, H = 4, d = 16 }; /* "wide" has identity weights: v is x */
    float x[T * D];
    double rebuilt[T * D];
    test_body b;
    (void)state;

    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)((double)(i * 2654435761U % 2001) / 500 - 2);
    body_init(&b, false);
    body_floats(&b, "inputs_embeds", x, DIMS(1, T, D));
    body_raw(&b, "return_attentions", "true");
    json_t *answer = post("wide", 200, body_text(&b));
    test_tensor map = answer_tensor(answer_get(answer, "attentions"), "maps", DIMS(1, H, T, T));
    for (size_t row = 0; row < H * T; row++) {
        double sum = 0;
        for (size_t j = 0; j < T; j++) {
            float w = map.data[row * T + j];
            assert_true(w >= 0 && w <= 1);
            sum += (double)w;
        }
        assert_float_equal(sum, 1, 1e-5);
    }
    for (size_t n = 0; n < (size_t)T * D; n++) {
        size_t i = n / D, h = n % D / d;
        rebuilt[n] = 0;
        for (size_t j = 0; j < T; j++)
            rebuilt[n] += (double)map.data[(h * T + i) * T + j] * (double)x[j * D + n % D];
    }
    expect(answer, "outputs", rebuilt, DIMS(1, T, D), CLOSE);
    answer_free(&map);
    json_decref(answer);
    body_free(&b);
}

static void A21_an_all_true_mask_has_the_bits_of_no_mask(void **state)
{
    static const char *const ALL_TRUE[] = {
        "\"attention_mask\":[[1,1,1]]",
        "\"attention_mask\":[[[true,true,true],[true,true,true],[true,true,true]]]",
        "\"attention_mask\":[[[[1]]]]",
        "\"lengths\":[3]",
        "\"window\":{\"left\":-1,\"right\":-1}",
        "\"attention_bias\":[[[[0]]]]"};
    (void)state;
    json_t *none = ask("f1", X1, "");
    for (size_t i = 0; i < sizeof ALL_TRUE / sizeof *ALL_TRUE; i++) {
        json_t *answer = ask("f1", X1, ALL_TRUE[i]);
        same_bits(none, answer, "outputs");
        same_bits(none, answer, "attentions");
        json_decref(answer);
    }
    json_decref(none);
}

static void A22_unequal_keys_and_values_are_refused(void **state)
{
    static const struct {
        size_t key_rows, key_size, value_rows;
        const char *word[2];
    } BAD[] = {{5, 8, 6, {"5", "6"}}, {6, 8, 5, {"6", "5"}}, {5, 7, 5, {"8", "7"}}};
    float x[8 * 8] = {0};
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        test_body b;
        body_init(&b, i % 2 == 1);
        body_floats(&b, "query", x, DIMS(1, 1, 3, 8));
        body_floats(&b, "key", x, DIMS(1, 1, BAD[i].key_rows, BAD[i].key_size));
        body_floats(&b, "value", x, DIMS(1, 1, BAD[i].value_rows, 8));
        refused("sdpa", 422, body_text(&b), WORDS(BAD[i].word[0], BAD[i].word[1]));
        body_free(&b);
    }
    json_t *answer = ask("f1", X1, ""); /* and the next good request works */
    expect_f1(answer, MAP_PLAIN, OUT_PLAIN);
    json_decref(answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fixtures_give_the_known_numbers),
        cmocka_unit_test(A01_a_fully_masked_row_is_zeros_and_the_output_bias),
        cmocka_unit_test(A02_one_in_a_mask_means_may_attend),
        cmocka_unit_test(A03_numbers_in_a_mask_are_no_scores),
        cmocka_unit_test(A04_two_masks_on_a_key_are_one),
        cmocka_unit_test(A05_a_masked_key_has_no_weight_whatever_its_score),
        cmocka_unit_test(A06_half_precision_weights_compute_in_single),
        cmocka_unit_test(A07_the_scale_is_of_the_head_and_applied_once),
        cmocka_unit_test(A08_head_dim_need_not_be_d_model_over_heads),
        cmocka_unit_test(A09_impossible_head_counts_are_refused_at_start),
        cmocka_unit_test(A10_key_heads_must_divide_query_heads),
        cmocka_unit_test(A11_rotation_pairs_are_neighbours_or_halves),
        cmocka_unit_test(A12_alibi_slopes_for_any_number_of_heads),
        cmocka_unit_test(A13_a_window_counts_the_own_key),
        cmocka_unit_test(A14_padded_query_rows_are_zeros_every_time),
        cmocka_unit_test(A15_the_answer_has_the_sizes_of_the_request),
        cmocka_unit_test(A16_padding_hides_key_columns),
        cmocka_unit_test(A17_neither_padding_nor_denormals_are_slow),
        cmocka_unit_test(A18_nothing_in_gives_nothing_out),
        cmocka_unit_test(A19_maps_are_per_head_unless_reduced),
        cmocka_unit_test(A20_the_returned_map_is_the_one_that_was_used),
        cmocka_unit_test(A21_an_all_true_mask_has_the_bits_of_no_mask),
        cmocka_unit_test(A22_unequal_keys_and_values_are_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

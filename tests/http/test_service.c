/* The daemon's routes and refusals: what it says of its models, and every way in which a request can be
 * wrong, with its status, its code, its pointer and its sentence. */
#include "tests/body.h"
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/st.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static test_daemon *daemon_;
static char *folder_;

/* gqa: 4 query heads, 2 key heads of 2; rope: causal and rotary; shown: the demo model's folder; cross:
 * keys and values of width 3. */
static int start(void **state)
{
    static const st_native gqa = {.d_model = 4, .num_heads = 4, .num_kv_heads = 2, .head_dim = 2};
    static const st_native rope = {
        .d_model = 4,
        .num_heads = 1,
        .num_kv_heads = 1,
        .head_dim = 4,
        .config = "\"is_causal\":true,\"rope\":{\"theta\":10000,\"style\":\"half\"}"};
    static const float ONE[16] = {1, 0, 0, 0, 0, 1};
    const st_entry cross[] = {{"layers.0.wq.weight", "F32", 2, {2, 4}, ONE, 32},
                              {"layers.0.wk.weight", "F32", 2, {2, 3}, ONE, 24},
                              {"layers.0.wv.weight", "F32", 2, {2, 3}, ONE, 24},
                              {"layers.0.wo.weight", "F32", 2, {4, 2}, ONE, 32}};
    static const char *const NAME[] = {"gqa", "rope", "cross", "shown"};
    enum { N = sizeof NAME / sizeof *NAME };
    char *dir[N], *arg[N];
    (void)state;

    folder_ = st_temp_dir();
    for (size_t i = 0; i < N; i++) {
        dir[i] = st_path("%s/%s", folder_, NAME[i]);
        arg[i] = st_path("%s=%s", NAME[i], dir[i]);
    }
    st_write_random(dir[0], &gqa, 1);
    st_write_random(dir[1], &rope, 2);
    st_write_native(dir[2], &gqa); /* the folder; both files are written anew */
    char *weights = st_path("%s/model.safetensors", dir[2]);
    char *config = st_path("%s/config.json", dir[2]);
    st_write(weights, cross, 4);
    st_write_text(config, "{\"model_type\":\"attnd\",\"num_heads\":1,\"head_dim\":2}");
    test_command c = command_succeed(COMMAND("demo", dir[3]));
    command_free(&c);
    daemon_ = daemon_start(COMMAND("serve", "--model", arg[0], "--model", arg[1], "--model", arg[2],
                                   "--model", arg[3], "--set", "server.max_body=1MiB", "--set",
                                   "memory.budget=8MiB"));
    free(weights);
    free(config);
    for (size_t i = 0; i < N; i++) {
        free(dir[i]);
        free(arg[i]);
    }
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_stop(daemon_);
    st_remove_dir(folder_);
    return 0;
}

static json_t *get(const char *path, long status)
{
    test_reply r = daemon_request(daemon_, "GET", path, NULL, NULL, 0);
    if (r.status != status)
        fail_msg("GET %s gave %ld: %s", path, r.status, r.body);
    json_t *root = answer_parse(r.body, r.body_bytes);
    reply_free(&r);
    return root;
}

static const char *string_of(const json_t *root, const char *key)
{
    const char *text = json_string_value(json_object_get(root, key));
    if (text == NULL)
        fail_msg("there is no string \"%s\"", key);
    return text;
}

/* --- models and examples --------------------------------------------------------------------- */

static void models_are_listed_with_their_layers(void **state)
{
    static const char *const NAME[] = {"gqa", "rope", "cross", "shown"};
    static const char *const KEY[] = {"d_model",   "num_heads", "num_kv_heads", "head_dim", "scale",
                                      "is_causal", "window",    "softcap",      "position"};
    json_t *root = get("/v1/models", 200), *models = answer_get(root, "models"), *m, *layer;
    size_t i, k;
    (void)state;

    assert_int_equal(json_array_size(models), 4);
    json_array_foreach(models, i, m)
    {
        char *path = st_path("/v1/models/%s", NAME[i]);
        json_t *one = get(path, 200);
        assert_true(json_equal(m, one));
        assert_string_equal(string_of(m, "name"), NAME[i]);
        assert_string_equal(string_of(m, "family"), "attnd");
        assert_int_equal(json_array_size(json_object_get(m, "layers")), i == 3 ? 2 : 1);
        json_array_foreach(json_object_get(m, "layers"), k, layer)
        {
            for (size_t n = 0; n < sizeof KEY / sizeof *KEY; n++)
                assert_non_null(json_object_get(layer, KEY[n]));
        }
        json_decref(one);
        free(path);
    }
    layer = json_array_get(json_object_get(json_array_get(models, 0), "layers"), 0);
    assert_int_equal(json_integer_value(json_object_get(layer, "d_model")), 4);
    assert_int_equal(json_integer_value(json_object_get(layer, "num_heads")), 4);
    assert_int_equal(json_integer_value(json_object_get(layer, "num_kv_heads")), 2);
    assert_float_equal(json_number_value(json_object_get(layer, "scale")), sqrt(0.5), 1e-6);
    assert_true(json_is_false(json_object_get(layer, "is_causal")));
    assert_int_equal(json_integer_value(answer_get(layer, "window.left")), -1);
    assert_float_equal(json_number_value(json_object_get(layer, "softcap")), 0, 0);
    layer = json_array_get(json_object_get(json_array_get(models, 1), "layers"), 0);
    assert_true(json_is_true(json_object_get(layer, "is_causal")));
    assert_string_equal(string_of(layer, "position"), "rope");
    json_decref(root);
}

static void every_example_is_answered(void **state)
{
    json_t *root = get("/v1/models/shown/examples", 200), *name;
    size_t i;
    (void)state;

    assert_true(json_array_size(answer_get(root, "examples")) >= 3);
    json_array_foreach(answer_get(root, "examples"), i, name)
    {
        char *path = st_path("/v1/models/shown/examples/%s", json_string_value(name));
        test_reply r = daemon_request(daemon_, "GET", path, NULL, NULL, 0);
        assert_int_equal(r.status, 200);
        char *type = reply_header(&r, "Content-Type");
        assert_string_equal(type, "application/json");
        test_reply answer = daemon_post(daemon_, "/v1/models/shown/attention", r.body, 200);
        reply_free(&answer);
        reply_free(&r);
        free(type);
        free(path);
    }
    json_decref(root);
    root = get("/v1/models/gqa/examples", 200);
    assert_int_equal(json_array_size(answer_get(root, "examples")), 0);
    json_decref(root);
}

static void health_is_live_and_ready(void **state)
{
    (void)state;
    json_decref(get("/health/live", 200));
    json_decref(get("/health/ready", 200));
}

/* --- problems --------------------------------------------------------------------------------- */

/* Holds an answer to RFC 9457 and to ours, and returns it. */
static json_t *problem(const test_reply *r, long status)
{
    char *type = reply_header(r, "Content-Type"), *id = reply_header(r, "X-Request-Id");
    char *sniff = reply_header(r, "X-Content-Type-Options");

    if (r->status != status)
        fail_msg("%ld instead of %ld: %s", r->status, status, r->body);
    assert_non_null(type);
    assert_string_equal(type, "application/problem+json");
    assert_non_null(sniff);
    assert_string_equal(sniff, "nosniff");
    json_t *root = answer_parse(r->body, r->body_bytes);
    assert_true(*string_of(root, "type"));
    assert_true(*string_of(root, "title"));
    assert_true(*string_of(root, "code"));
    assert_true(*string_of(root, "detail"));
    assert_string_equal(string_of(root, "detail"), string_of(root, "error"));
    assert_int_equal(json_integer_value(json_object_get(root, "status")), status);
    assert_non_null(id);
    assert_string_equal(string_of(root, "request_id"), id);
    free(type);
    free(id);
    free(sniff);
    return root;
}

#define GQA       "/v1/models/gqa/attention"
#define ROPE      "/v1/models/rope/attention"
#define SDPA      "/v1/scaled-dot-product-attention"
#define JSON_TYPE ((const char *const[]){"Content-Type: application/json", NULL})

static void every_status_is_a_problem(void **state)
{
    static const char *const TEXT[] = {"Content-Type: text/plain", NULL};
    static const char *const CODED[] = {"Content-Type: application/json", "Content-Encoding: br",
                                        NULL};
    static const char *const ACCEPT[] = {"Content-Type: application/json", "Accept: image/gif",
                                         NULL};
    static const char *const HOST[] = {"Content-Type: application/json", "Host: evil.example",
                                       NULL};
    const struct {
        const char *method, *path;
        const char *const *headers;
        const char *body;
        long status;
        const char *word;
    } CASE[] = {
        {"GET", "/nothing", NULL, NULL, 404, NULL},
        {"GET", "/v1/models/gpa", NULL, NULL, 404, "gqa"},
        {"POST", "/v1/models/none/attention", JSON_TYPE, "{}", 404, "none"},
        {"GET", "/v1/models/shown/examples/none", NULL, NULL, 404, "none"},
        {"GET", GQA, NULL, NULL, 405, NULL},
        {"DELETE", "/v1/models", NULL, NULL, 405, NULL},
        {"POST", GQA, ACCEPT, "{}", 406, NULL},
        {"POST", GQA, TEXT, "{}", 415, NULL},
        {"POST", GQA, CODED, "{}", 415, NULL},
        {"POST", GQA, HOST, "{}", 403, "Host"},
        {"POST", GQA, JSON_TYPE, "", 400, NULL},
        {"POST", GQA, JSON_TYPE, "{", 400, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        const char *body = CASE[i].body;
        test_reply r = daemon_request(daemon_, CASE[i].method, CASE[i].path, CASE[i].headers, body,
                                      body != NULL ? strlen(body) : 0);
        json_t *root = problem(&r, CASE[i].status);
        if (CASE[i].word != NULL && strstr(string_of(root, "detail"), CASE[i].word) == NULL)
            fail_msg("%s: \"%s\" is not in: %s", CASE[i].path, CASE[i].word, r.body);
        char *allow = reply_header(&r, "Allow");
        assert_int_equal(allow != NULL, CASE[i].status == 405);
        free(allow);
        json_decref(root);
        reply_free(&r);
    }
}

static void a_body_over_the_limit_says_both_numbers(void **state)
{
    size_t n = (1u << 20) + 1;
    char *body = malloc(n + 1);
    (void)state;

    assert_non_null(body);
    memset(body, ' ', n);
    body[n] = '\0';
    test_reply r = daemon_request(daemon_, "POST", GQA, JSON_TYPE, body, n);
    json_t *root = problem(&r, 413);
    assert_int_equal(json_integer_value(json_object_get(root, "limit_bytes")), 1 << 20);
    assert_int_equal(json_integer_value(json_object_get(root, "needed_bytes")), n);
    json_decref(root);
    reply_free(&r);
    body[n - 1] = '\0'; /* at the limit it is read */
    r = daemon_request(daemon_, "POST", GQA, JSON_TYPE, body, n - 1);
    json_decref(problem(&r, 400));
    reply_free(&r);
    free(body);
}

static void request_ids_come_back(void **state)
{
    static char LONG[160], TOO_LONG[161];
    memset(LONG, 'a', 128 + strlen("X-Request-Id: "));
    memset(TOO_LONG, 'a', 129 + strlen("X-Request-Id: "));
    memcpy(LONG, "X-Request-Id: ", strlen("X-Request-Id: "));
    memcpy(TOO_LONG, "X-Request-Id: ", strlen("X-Request-Id: "));
    const struct {
        const char *header;
        bool taken;
    } ID[] = {{"X-Request-Id: abc-DEF_0.9", true},
              {LONG, true},
              {TOO_LONG, false},
              {"X-Request-Id: a b", false},
              {"X-Request-Id: a\"b", false},
              {"X-Request-Id;", false},
              {"X-Unrelated: 1", false}};
    char last[160] = "";
    (void)state;

    for (size_t i = 0; i < sizeof ID / sizeof *ID; i++) {
        for (int bad = 0; bad < 2; bad++) { /* a good answer and a problem */
            const char *path = bad ? "/v1/models/none" : "/v1/models/gqa";
            test_reply r = daemon_request(daemon_, "GET", path,
                                          (const char *const[]){ID[i].header, NULL}, NULL, 0);
            char *id = reply_header(&r, "X-Request-Id");
            assert_non_null(id);
            if (bad)
                json_decref(problem(&r, 404));
            if (ID[i].taken) {
                assert_string_equal(id, ID[i].header + strlen("X-Request-Id: "));
            } else {
                assert_in_range(strlen(id), 8, 128);
                assert_int_equal(strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789._-"),
                                 strlen(id));
                assert_string_not_equal(id, last);
                snprintf(last, sizeof last, "%s", id);
            }
            free(id);
            reply_free(&r);
        }
    }
}

/* --- what is refused -------------------------------------------------------------------------- */

/* Two tokens of width 4. */
#define X             "\"inputs_embeds\":[[[1,0,0,1],[0,1,1,0]]]"
#define X2            "\"inputs_embeds\":[[[1,0,0,1],[0,1,1,0]],[[1,0,0,1],[0,1,1,0]]]"
#define RAGGED        "\"inputs_embeds\":[[[1,0,0,1],[0,1,1,0]],[[1,0,0,1]]]"
#define MAPS(options) "{" X ",\"return_attentions\":{" options "}}"
/* One head of size 2: two queries, three keys. */
#define QKV                                                                                        \
    "\"query\":[[[[1,0],[0,1]]]],\"key\":[[[[1,0],[0,1],[1,1]]]],"                                 \
    "\"value\":[[[[1,0],[0,1],[1,1]]]]"
#define PAST_KEY   "\"past_key\":[[[[1,0]],[[0,1]]]]"
#define PAST_VALUE "\"past_value\":[[[[1,0]],[[0,1]]]]"
/* 32 bytes of base64: two tokens of width 4, all zeros. */
#define ZEROS "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
#define OBJECT(shape, dtype, data)                                                                 \
    "{\"inputs_embeds\":{\"shape\":" shape ",\"dtype\":\"" dtype "\",\"data\":\"" data "\"}}"

typedef struct {
    long status;
    const char *path, *body, *pointer, *word;
} refusal;

static const refusal WRONG_ALONE[] = {
    {400, GQA, "{}", "/inputs_embeds", "inputs_embeds"},
    {400, SDPA, "{}", "/query", "query"},
    {400, SDPA, "{\"query\":[[[[1]]]],\"key\":[[[[1]]]]}", "/value", "value"},
    {400, GQA "/estimate", "{}", "/shape", "shape"},
    {400, GQA, "{" X ",\"layers\":0}", "/layers", "layer"},
    {400, GQA, "{" X ",\"retrun_attentions\":true}", "/retrun_attentions", "return_attentions"},
    {400, GQA, "{" X ",\"query\":[]}", "/query", "query"},
    {400, SDPA, "{" QKV ",\"layer\":0}", "/layer", "layer"},
    {400, GQA, "{" X "," X "}", "/inputs_embeds", "inputs_embeds"},
    {400, GQA, "{" X ",\"layer\":0,\"layer\":0}", "/layer", "layer"},
    {400, GQA, MAPS("\"stage\":\"masked\",\"stage\":\"masked\""), "/return_attentions", "stage"},
    {400, GQA, "[]", NULL, NULL},
    {400, GQA, "{" X "} {}", NULL, NULL},
    {400, GQA, "{" X ",}", NULL, NULL},
    {400, GQA, "{\"inputs_embeds\":[[[1,0,0,NaN]]]}", NULL, NULL},
    {400, GQA, "{\"inputs_embeds\":[[[1,0,0,1e39]]]}", "/inputs_embeds/0/0/3", "1e39"},
    {400, GQA, "{\"inputs_embeds\":[[[1,0,0,\"1\"]]]}", "/inputs_embeds/0/0/3", NULL},
    {400, GQA, "{\"inputs_embeds\":[[[1,0,0,null]]]}", "/inputs_embeds/0/0/3", NULL},
    {400, GQA, "{\"inputs_embeds\":[[[1,0,0,1],[1,0,0]]]}", "/inputs_embeds/0/1", NULL},
    {400, GQA, "{\"inputs_embeds\":\"x\"}", "/inputs_embeds", NULL},
    {400, GQA, "{" X ",\"attention_mask\":[[1,1],[1]]}", "/attention_mask/1", NULL},
    {400, GQA, "{" X ",\"layer\":\"0\"}", "/layer", "string"},
    {400, GQA, "{" X ",\"layer\":0.5}", "/layer", NULL},
    {400, GQA, "{" X ",\"is_causal\":1}", "/is_causal", NULL},
    {400, GQA, "{" X ",\"return_outputs\":\"yes\"}", "/return_outputs", NULL},
    {400, GQA, "{" X ",\"return_attentions\":1}", "/return_attentions", NULL},
    {400, GQA, "{" X ",\"return_intermediates\":\"key\"}", "/return_intermediates", NULL},
    {400, GQA, "{" X ",\"tokens\":[[1,2]]}", "/tokens/0/0", NULL},
    {400, GQA, MAPS("\"stage\":\"score\""), "/return_attentions/stage", "scores"},
    {400, GQA, MAPS("\"reduce_heads\":\"sum\""), "/return_attentions/reduce_heads", "sum"},
    {400, GQA, MAPS("\"dtype\":\"float31\""), "/return_attentions/dtype", "float32"},
    {400, GQA, MAPS("\"haeds\":[0]"), "/return_attentions/haeds", "heads"},
    {400, GQA, MAPS("\"heads\":\"some\""), "/return_attentions/heads", NULL},
    {400, GQA, MAPS("\"heads\":[0.5]"), "/return_attentions/heads/0", NULL},
    {400, GQA, MAPS("\"queries\":[0]"), "/return_attentions/queries", NULL},
    {400, GQA, MAPS("\"keys\":\"all\""), "/return_attentions/keys", NULL},
    {400, GQA, "{" X ",\"return_intermediates\":[\"keys\"]}", "/return_intermediates/0", "key"},
    {400, GQA, "{" X ",\"encoding_format\":\"base46\"}", "/encoding_format", "base64"},
    {400, GQA, "{" X ",\"attention_mask\":[[1,2]]}", "/attention_mask/0/1", "2"},
    {400, GQA, "{" X ",\"attention_mask\":[[1,-1]]}", "/attention_mask/0/1", "-1"},
    {400, GQA, "{" X ",\"attention_mask\":[[1,0.5]]}", "/attention_mask/0/1", "0.5"},
    {400, GQA, "{" X ",\"attention_mask\":[[1,\"1\"]]}", "/attention_mask/0/1", NULL},
    {400, GQA, "{" X ",\"attention_bias\":[\"inf\",0]}", "/attention_bias/0", "inf"},
    {400, GQA, "{" X ",\"softcap\":-1}", "/softcap", "-1"},
    {400, GQA, "{" X ",\"softcap\":1e39}", "/softcap", "1e+39"},
    {400, GQA, "{" X ",\"scale\":\"1\"}", "/scale", NULL},
    {400, GQA, "{" X ",\"window\":{\"left\":-2,\"right\":0}}", "/window/left", "-2"},
    {400, GQA, "{" X ",\"window\":{\"right\":-9}}", "/window/right", "-9"},
    {400, GQA, "{" X ",\"window\":{\"letf\":1}}", "/window/letf", "left"},
    {400, GQA, "{" X ",\"window\":4}", "/window", NULL},
    {400, GQA, "{" X ",\"timeout_ms\":0}", "/timeout_ms", "0"},
    {400, GQA, "{" X ",\"timeout_ms\":-5}", "/timeout_ms", "-5"},
    {400, GQA, "{" X ",\"timeout_ms\":1.5}", "/timeout_ms", NULL},
    {400, GQA, OBJECT("[1,2,4]", "float32", "AAAA"), "/inputs_embeds/data", "32"},
    {400, GQA, OBJECT("[1,3,4]", "float32", ZEROS), "/inputs_embeds/data", "48"},
    {400, GQA, OBJECT("[1,2,4]", "float16", ZEROS), "/inputs_embeds/data", "16"},
    {400, GQA, OBJECT("[1,2,4]", "float32", "!AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
     "/inputs_embeds/data", NULL},
    {400, GQA, OBJECT("[1,2,4]", "float31", ZEROS), "/inputs_embeds/dtype", "float32"},
    {400, GQA, OBJECT("[1,-2,4]", "float32", ZEROS), "/inputs_embeds/shape/1", NULL},
    {400, GQA, OBJECT("[1,2.5,4]", "float32", ZEROS), "/inputs_embeds/shape/1", NULL},
    {400, GQA, OBJECT("\"1\"", "float32", ZEROS), "/inputs_embeds/shape", NULL},
    {400, GQA, "{\"inputs_embeds\":{\"shape\":[1,2,4],\"data\":\"" ZEROS "\",\"dytpe\":\"x\"}}",
     "/inputs_embeds", "dtype"},
    {400, GQA, "{\"inputs_embeds\":{\"dtype\":\"float32\",\"data\":\"" ZEROS "\"}}",
     "/inputs_embeds", "shape"},
    {400, GQA "/estimate", "{\"shape\":[1,2.5,4]}", "/shape", NULL},
    {400, GQA "/estimate", "{\"shape\":[1,-2,4]}", "/shape", NULL},
    {400, GQA "/estimate", "{\"shape\":4}", "/shape", NULL},
    {400, GQA "/estimate", "{" X "}", "/inputs_embeds", NULL},
};

static const refusal DISAGREES[] = {
    {422, GQA, "{\"inputs_embeds\":[1,2,3,4]}", "/inputs_embeds", NULL},
    {422, GQA, "{\"inputs_embeds\":[[[[1,0,0,1]]]]}", "/inputs_embeds", NULL},
    {422, GQA, OBJECT("[8]", "float32", ZEROS), "/inputs_embeds/shape", NULL},
    {422, GQA, OBJECT("[2,1,1,4]", "float32", ZEROS), "/inputs_embeds/shape", NULL},
    {422, GQA, "{\"inputs_embeds\":[[[1,0,0]]]}", "/inputs_embeds", "4"},
    {422, GQA, "{\"inputs_embeds\":[[[]]]}", "/inputs_embeds", "4"},
    {422, GQA, OBJECT("[1,1,8]", "float32", ZEROS), "/inputs_embeds", "8"},
    {422, GQA "/estimate", "{\"shape\":[1,2,5]}", "/shape", "5"},
    {422, GQA, "{" X ",\"layer\":1}", "/layer", "1"},
    {422, GQA, "{" X ",\"layer\":-1}", "/layer", "-1"},
    {422, GQA, MAPS("\"heads\":[4]"), "/return_attentions/heads/0", "4"},
    {422, GQA, MAPS("\"heads\":[0,-1]"), "/return_attentions/heads/1", "-1"},
    {422, GQA, MAPS("\"heads\":[0,1,0]"), "/return_attentions/heads/2", "0"},
    {422, GQA, MAPS("\"heads\":[]"), "/return_attentions/heads", NULL},
    {422, GQA, MAPS("\"queries\":[0,3]"), "/return_attentions/queries", "3"},
    {422, GQA, MAPS("\"queries\":[1,1]"), "/return_attentions/queries", NULL},
    {422, GQA, MAPS("\"queries\":[2,1]"), "/return_attentions/queries", NULL},
    {422, GQA, MAPS("\"queries\":[-1,1]"), "/return_attentions/queries", "-1"},
    {422, GQA, MAPS("\"keys\":[0,3]"), "/return_attentions/keys", "3"},
    {422, GQA, MAPS("\"keys\":[2,2]"), "/return_attentions/keys", NULL},
    {422, GQA, MAPS("\"top_k\":3"), "/return_attentions/top_k", "2"},
    {422, GQA, MAPS("\"top_k\":2,\"keys\":[1,2]"), "/return_attentions/top_k", "1"},
    {422, GQA, MAPS("\"top_k\":1,\"pool\":{\"size\":2}"), "/return_attentions/pool", "top_k"},
    {422, GQA, MAPS("\"dtype\":\"uint8\",\"stage\":\"masked\""), "/return_attentions/dtype",
     "masked"},
    {422, GQA, "{" X ",\"lengths\":[3]}", "/lengths/0", "3"},
    {422, GQA, "{" X ",\"lengths\":[-1]}", "/lengths/0", "-1"},
    {422, GQA, "{" X ",\"lengths\":[2,2]}", "/lengths", "2"},
    {422, GQA, "{" RAGGED ",\"lengths\":[2,1]}", "/lengths", "ragged"},
    {422, GQA, "{" X "," PAST_KEY "}", "/past_value", "past_value"},
    {422, GQA, "{" X "," PAST_VALUE "}", "/past_key", "past_key"},
    {422, GQA, "{" X "," PAST_KEY ",\"past_value\":[[[[1,0],[0,1]],[[0,1],[1,0]]]]}", "/past_value",
     NULL},
    {422, GQA, "{" X ",\"past_key\":[[[[1,0]]]],\"past_value\":[[[[1,0]]]]}", "/past_key", NULL},
    {422, GQA, "{" X ",\"is_causal\":true,\"encoder_hidden_states\":[[[1,0,0,1]]]}",
     "/causal_offset", "causal_offset"},
    {422, ROPE, "{" X ",\"encoder_hidden_states\":[[[1,0,0,1]]]}", "/causal_offset",
     "causal_offset"},
    {422, SDPA, "{" QKV ",\"is_causal\":true}", "/causal_offset", "causal_offset"},
    {422, GQA, "{" X ",\"causal_offset\":[0,0]}", "/causal_offset", NULL},
    {422, GQA, "{" X ",\"attention_mask\":[[1,1,1]]}", "/attention_mask", "3"},
    {422, GQA, "{" X ",\"attention_mask\":[[[1,1]],[[1,1]]]}", "/attention_mask", NULL},
    {422, GQA, "{" X ",\"attention_mask\":[[[[1,1]],[[1,1]]]]}", "/attention_mask", NULL},
    {422, GQA, "{" X ",\"attention_mask\":[1,1]}", "/attention_mask", NULL},
    {422, GQA, "{" X ",\"attention_bias\":[0,0,0]}", "/attention_bias", "3"},
    {422, GQA, "{" X ",\"encoder_hidden_states\":[[[1,0]]]}", "/encoder_hidden_states", "2"},
    {422, GQA, "{" X2 ",\"encoder_hidden_states\":[[[1,0,0,1]]]}", "/encoder_hidden_states", NULL},
    {422, "/v1/models/cross/attention", "{" X "}", "/encoder_hidden_states", "3"},
    {422, ROPE, "{" X ",\"position_ids\":[[0,1,2]]}", "/position_ids", "3"},
    {422, GQA, "{" X ",\"tokens\":[[\"a\"]]}", "/tokens/0", "1"},
    {422, GQA, "{" X ",\"tokens\":[[\"a\",\"b\"],[\"c\",\"d\"]]}", "/tokens", "2"},
    {422, SDPA,
     "{\"query\":[[[[1]],[[1]],[[1]]]],\"key\":[[[[1]],[[1]]]],"
     "\"value\":[[[[1]],[[1]]]]}",
     "/key", "3"},
    {422, SDPA, "{\"query\":[[[[1,1]]]],\"key\":[[[[1]]]],\"value\":[[[[1]]]]}", "/key", "2"},
    {422, SDPA, "{\"query\":[[[[1]]]],\"key\":[[[[1],[1]]]],\"value\":[[[[1]]]]}", "/value", "2"},
    {422, SDPA, "{\"query\":[[[[1]]],[[[1]]]],\"key\":[[[[1]]]],\"value\":[[[[1]]]]}", "/key", "2"},
    {422, SDPA, "{\"query\":[[[1]]],\"key\":[[[[1]]]],\"value\":[[[[1]]]]}", "/query", NULL},
    /* Sums beyond float32: 3e38 * 2 in the projection, or in the weighted sum. */
    {422, SDPA, "{\"query\":[[[[3e38,3e38]]]],\"key\":[[[[3e38,3e38]]]],\"value\":[[[[1]]]]}", NULL,
     NULL},
    {422, GQA, "{\"inputs_embeds\":[[[3e38,-3e38,3e38,3e38],[3e38,3e38,-3e38,3e38]]]}", NULL, NULL},
};

/* What is wrong with an answer, or NULL. */
static const char *judge(const refusal *c, const test_reply *r)
{
    if (r->status != c->status)
        return "another status";
    json_t *root = problem(r, c->status);
    const char *pointer = json_string_value(json_object_get(root, "pointer")), *why = NULL;
    if (c->pointer != NULL && (pointer == NULL || strcmp(pointer, c->pointer) != 0))
        why = "another pointer";
    else if (c->word != NULL && strstr(string_of(root, "detail"), c->word) == NULL)
        why = "the sentence lacks a word";
    json_decref(root);
    return why;
}

static void refuse_each(const refusal *c, size_t n)
{
    static const char GOOD[] = "{" X "}";
    size_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        test_reply r =
            daemon_request(daemon_, "POST", c[i].path, JSON_TYPE, c[i].body, strlen(c[i].body));
        const char *why = judge(&c[i], &r);
        if (why != NULL)
            printf("%s: %s\n  %s\n  %ld %s \"%s\" expected, got\n  %ld %s\n", why, c[i].path,
                   c[i].body, c[i].status, c[i].pointer != NULL ? c[i].pointer : "",
                   c[i].word != NULL ? c[i].word : "", r.status, r.body);
        bad += why != NULL;
        reply_free(&r);
        r = daemon_post(daemon_, GQA, GOOD, 200); /* and the next request works */
        reply_free(&r);
    }
    assert_int_equal(bad, 0);
}

static void what_is_wrong_by_itself_is_400(void **state)
{
    (void)state;
    refuse_each(WRONG_ALONE, sizeof WRONG_ALONE / sizeof *WRONG_ALONE);
}

static void what_disagrees_is_422(void **state)
{
    (void)state;
    refuse_each(DISAGREES, sizeof DISAGREES / sizeof *DISAGREES);
}

/* NaN and infinity come only as base64. */
static void what_is_not_finite_and_attended_is_422_and_named(void **state)
{
    static const float BAD[] = {NAN, INFINITY, -INFINITY};
    (void)state;

    for (size_t i = 0; i < 3; i++) {
        float x[2 * 3 * 4] = {0};
        const unsigned char mask[6] = {1, 1, 1, 1, 1, 0}; /* of [2,3]: hides the token as a key */
        x[(1 * 3 + 2) * 4 + 1] = BAD[i];                  /* sequence 1, token 2 */
        for (int hidden = 0; hidden < 2; hidden++) {
            test_body b;
            body_init(&b, true);
            body_floats(&b, "inputs_embeds", x, DIMS(2, 3, 4));
            if (hidden)
                body_bools(&b, "attention_mask", mask, DIMS(2, 3));
            test_reply r = daemon_post(daemon_, GQA, body_text(&b), 422);
            json_t *root = problem(&r, 422);
            const char *pointer = json_string_value(json_object_get(root, "pointer"));
            const char *text = string_of(root, "detail");
            if ((pointer == NULL || strcmp(pointer, "/inputs_embeds/1/2") != 0) &&
                (strstr(text, "sequence 1") == NULL || strstr(text, "token 2") == NULL))
                fail_msg("neither pointer nor sentence names sequence 1, token 2: %s", r.body);
            json_decref(root);
            reply_free(&r);
            body_free(&b);
        }
        int64_t lengths[] = {3, 2}; /* beyond its length nobody looks */
        test_body b;
        body_init(&b, true);
        body_floats(&b, "inputs_embeds", x, DIMS(2, 3, 4));
        body_ints(&b, "lengths", lengths, DIMS(2));
        test_reply r = daemon_post(daemon_, GQA, body_text(&b), 200);
        reply_free(&r);
        body_free(&b);
    }
}

/* --- nothing in ------------------------------------------------------------------------------- */

/* The answer's field as JSON text. */
static void expect_text(const char *body, const char *field, const char *text)
{
    test_reply r = daemon_post(daemon_, GQA, body, 200);
    json_t *root = answer_parse(r.body, r.body_bytes);
    char *got = json_dumps(answer_get(root, field), JSON_COMPACT | JSON_ENCODE_ANY);
    if (got == NULL || strcmp(got, text) != 0)
        fail_msg("%s: %s is %s, %s expected", body, field, got != NULL ? got : "missing", text);
    free(got);
    json_decref(root);
    reply_free(&r);
}

static void an_empty_batch_has_an_empty_answer(void **state)
{
    static const char *const OUTPUTS[][2] = {
        {"{\"inputs_embeds\":[]}", "[]"},           {"{\"inputs_embeds\":[[]]}", "[[]]"},
        {"{\"inputs_embeds\":[[],[]]}", "[[],[]]"}, {OBJECT("[0,4]", "float32", ""), "[]"},
        {OBJECT("[0,3,4]", "float32", ""), "[]"},   {OBJECT("[2,0,4]", "float32", ""), "[[],[]]"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof OUTPUTS / sizeof *OUTPUTS; i++)
        expect_text(OUTPUTS[i][0], "outputs", OUTPUTS[i][1]);
    expect_text("{\"inputs_embeds\":[],\"return_attentions\":true}", "attentions", "[]");
    expect_text("{\"inputs_embeds\":[[]],\"return_attentions\":true}", "attentions",
                "[[[],[],[],[]]]");
    expect_text("{\"inputs_embeds\":[]}", "usage.sequences", "0");
    expect_text("{\"inputs_embeds\":[[],[]]}", "usage.sequences", "2");
    expect_text("{\"inputs_embeds\":[[],[]]}", "usage.tokens", "0");
    expect_text("{\"inputs_embeds\":[],\"encoding_format\":\"base64\"}", "outputs.shape",
                "[0,0,4]");
    expect_text("{\"inputs_embeds\":[[]],\"encoding_format\":\"base64\"}", "outputs.shape",
                "[1,0,4]");
    /* An empty sequence among others is ragged. */
    test_reply r = daemon_post(
        daemon_, GQA, "{\"inputs_embeds\":[[],[[1,0,0,1]]],\"return_attentions\":true}", 200);
    json_t *root = answer_parse(r.body, r.body_bytes);
    assert_int_equal(json_array_size(answer_get(root, "outputs")), 2);
    assert_int_equal(json_array_size(json_array_get(answer_get(root, "outputs"), 0)), 0);
    test_tensor one =
        answer_tensor(json_array_get(answer_get(root, "outputs"), 1), "outputs", DIMS(1, 4));
    answer_free(&one);
    one = answer_tensor(json_array_get(answer_get(root, "attentions"), 1), "maps", DIMS(4, 1, 1));
    for (size_t h = 0; h < 4; h++)
        assert_true(one.data[h] == 1);
    answer_free(&one);
    json_decref(root);
    reply_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_are_listed_with_their_layers),
        cmocka_unit_test(every_example_is_answered),
        cmocka_unit_test(health_is_live_and_ready),
        cmocka_unit_test(every_status_is_a_problem),
        cmocka_unit_test(a_body_over_the_limit_says_both_numbers),
        cmocka_unit_test(request_ids_come_back),
        cmocka_unit_test(what_is_wrong_by_itself_is_400),
        cmocka_unit_test(what_disagrees_is_422),
        cmocka_unit_test(what_is_not_finite_and_attended_is_422_and_named),
        cmocka_unit_test(an_empty_batch_has_an_empty_answer),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

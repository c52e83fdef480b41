/* Whole encoders over HTTP: what goes in may come in any form, and what comes out is one thing seen from several sides. */
#include "tests/body.h"
#include "tests/daemon.h"
#include "tests/st.h"
#include "tests/tiny_encoder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ENCODE "/v1/models/tiny/encode"
#define W      TINY_WIDTH

/* "The cats on a mat." */
#define TEXT "\"The cats on a mat.\""
#define IDS  "[2,5,6,7,8,9,10,11,3]"
enum { N = 9 };

static test_daemon *daemon_;
static char *folder_;
static float *words_;

static int start(void **state)
{
    (void)state;
    folder_ = st_temp_dir();
    char *dir = st_path("%s/tiny", folder_), *plain = st_path("%s/plain", folder_);
    char *heads = st_path("%s/heads", folder_);
    char *a = st_path("tiny=%s", dir), *b = st_path("plain=%s", plain),
         *c = st_path("heads=%s", heads);
    tiny_encoder_write(dir, 3, 1, &words_);
    tiny_encoder_write(plain, 4, 0, NULL);
    st_write_random(
        heads, &(st_native){.d_model = 8, .num_heads = 2, .num_kv_heads = 2, .head_dim = 4}, 5);
    daemon_ =
        daemon_start((const char *const[]){"--model", c, "--model", a, "--model", b, "--set",
                                           "memory.budget=4MiB", "--set", "log.level=error", NULL});
    free(a);
    free(b);
    free(c);
    free(dir);
    free(plain);
    free(heads);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_stop(daemon_);
    st_remove_dir(folder_);
    free(words_);
    return 0;
}

static json_t *post(const char *path, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static json_t *post(const char *path, const char *format, ...)
{
    static char text[65536];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert_true(n > 0 && (size_t)n < sizeof text);
    test_reply r = daemon_post(daemon_, path, text, 200);
    json_t *root = answer_parse(r.body, r.body_bytes);
    reply_free(&r);
    return root;
}

static void assert_same(json_t *a, json_t *b, const char *path)
{
    json_t *x = answer_get(a, path), *y = answer_get(b, path);

    if (x == NULL || y == NULL || !json_equal(x, y))
        fail_msg("%s differs", path);
}

static double number(json_t *root, const char *path, size_t i, size_t j, size_t k)
{
    json_t *v = json_array_get(answer_get(root, path), i);

    v = json_array_get(v, j);
    return json_number_value(k == SIZE_MAX ? v : json_array_get(v, k));
}

/* --- inputs ------------------------------------------------------------------------------------ */

#define ALL "\"return_hidden_states\":[0,1,2],\"return_attentions\":{\"rollout\":true}"

static void text_ids_and_embeddings_are_the_same_request(void **state)
{
    (void)state;
    static const size_t ids[N] = {2, 5, 6, 7, 8, 9, 10, 11, 3};
    float x[N * W];
    json_t *text = post(ENCODE, "{\"inputs\":" TEXT "," ALL "}");
    json_t *numbers = post(ENCODE, "{\"input_ids\":[" IDS "]," ALL "}");

    for (size_t i = 0; i < N; i++)
        memcpy(x + i * W, words_ + ids[i] * W, W * sizeof *x);
    test_body b;
    body_init(&b, false);
    body_floats(&b, "inputs_embeds", x, DIMS(1, N, W));
    body_raw(&b, "return_hidden_states", "[0,1,2]");
    body_raw(&b, "return_attentions", "{\"rollout\":true}");
    test_reply r = daemon_post(daemon_, ENCODE, body_text(&b), 200);
    json_t *embeds = answer_parse(r.body, r.body_bytes);
    static const char *const members[] = {"embeddings", "hidden_states", "attentions", "rollout"};
    for (size_t i = 0; i < 4; i++) {
        assert_same(text, numbers, members[i]);
        assert_same(text, embeds, members[i]);
    }
    assert_same(text, numbers, "tokens");
    assert_same(text, numbers, "input_ids");
    json_t *tokens = json_loads(
        "[[\"[CLS]\",\"the\",\"cat\",\"##s\",\"on\",\"a\",\"mat\",\".\",\"[SEP]\"]]", 0, NULL);
    assert_true(json_equal(answer_get(text, "tokens"), tokens));
    assert_null(answer_get(embeds, "tokens"));
    json_decref(tokens);
    json_decref(text);
    json_decref(numbers);
    json_decref(embeds);
    reply_free(&r);
    body_free(&b);
}

static void a_pair_has_two_types_of_tokens(void **state)
{
    (void)state;
    json_t *pair = post(ENCODE, "{\"inputs\":[[\"the cat\",\"a mat\"]]}");
    json_t *ids =
        post(ENCODE, "{\"input_ids\":[[2,5,6,3,9,10,3]],\"token_type_ids\":[[0,0,0,0,1,1,1]]}");
    json_t *without = post(ENCODE, "{\"input_ids\":[[2,5,6,3,9,10,3]]}");

    assert_same(pair, ids, "embeddings");
    assert_same(pair, ids, "input_ids");
    assert_false(json_equal(answer_get(pair, "embeddings"), answer_get(without, "embeddings")));
    json_decref(pair);
    json_decref(ids);
    json_decref(without);
}

/* A sequence has the same bits alone, in a ragged batch and padded. */
static void company_changes_nothing(void **state)
{
    (void)state;
    json_t *alone = post(ENCODE, "{\"inputs\":[\"the cat\"]," ALL "}");
    json_t *batch = post(ENCODE, "{\"inputs\":[" TEXT ",\"the cat\",\"mat\"]," ALL "}");
    json_t *padded =
        post(ENCODE, "{\"input_ids\":[[2,10,3,0,0],[2,5,6,3,0]],\"lengths\":[3,4]," ALL "}");

    for (size_t c = 0; c < W; c++) {
        double want = number(alone, "embeddings", 0, c, SIZE_MAX);
        assert_true(number(batch, "embeddings", 1, c, SIZE_MAX) == want);
        assert_true(number(padded, "embeddings", 1, c, SIZE_MAX) == want);
    }
    json_t *maps[3] = {json_array_get(json_array_get(answer_get(alone, "attentions"), 1), 0),
                       json_array_get(json_array_get(answer_get(batch, "attentions"), 1), 1),
                       json_array_get(json_array_get(answer_get(padded, "attentions"), 1), 1)};
    assert_true(json_equal(maps[0], maps[1]));
    for (size_t h = 0; h < TINY_HEADS; h++) {
        for (size_t i = 0; i < 5; i++) {
            for (size_t j = 0; j < 5; j++) {
                double got = json_number_value(
                    json_array_get(json_array_get(json_array_get(maps[2], h), i), j));
                double want = i < 4 && j < 4
                                  ? json_number_value(json_array_get(
                                        json_array_get(json_array_get(maps[0], h), i), j))
                                  : 0;
                assert_true(got == want);
            }
        }
    }
    for (size_t i = 0; i < 5; i++) {
        for (size_t j = 0; j < 5; j++)
            assert_true(number(padded, "rollout", 1, i, j) ==
                        (i < 4 && j < 4 ? number(alone, "rollout", 0, i, j) : 0));
    }
    json_decref(alone);
    json_decref(batch);
    json_decref(padded);
}

static void long_texts_are_cut_or_refused(void **state)
{
    (void)state;
    static const char long_text[] = "\"the cats on a mat on a mat on a mat on a mat on a mat.\"";
    json_t *root = post(ENCODE, "{\"inputs\":[\"the cat\",%s]}", long_text);

    assert_int_equal(json_array_size(json_array_get(answer_get(root, "input_ids"), 1)),
                     TINY_TOKENS);
    assert_true(json_is_false(json_array_get(answer_get(root, "usage.truncated"), 0)));
    assert_true(json_is_true(json_array_get(answer_get(root, "usage.truncated"), 1)));
    json_decref(root);
    char body[256];
    (void)snprintf(body, sizeof body, "{\"inputs\":[\"the cat\",%s],\"truncate\":false}",
                   long_text);
    test_reply r = daemon_post(daemon_, ENCODE, body, 422);
    assert_non_null(strstr(r.body, "\"pointer\":\"/inputs/1\""));
    reply_free(&r);
    (void)snprintf(body, sizeof body, "{\"inputs\":%s}", long_text);
    r = daemon_post(daemon_, "/embed", body, 422);
    reply_free(&r);
}

/* Where sentence-transformers says nothing; and what lies beside a weight file belongs to it, as in a folder. */
static void a_tokeniser_beside_the_weights_says_how_long_texts_are(void **state)
{
    (void)state;
    char *dir = st_path("%s/short", folder_), *model = st_path("short=%s/model.safetensors", dir);
    char *config = st_path("%s/tokenizer_config.json", dir);

    tiny_encoder_write(dir, 3, 1, NULL);
    st_write_text(config, "{\"tokenizer_class\":\"BertTokenizer\",\"model_max_length\":7}");
    test_daemon *d = daemon_start((const char *const[]){"--model", model, NULL});
    test_reply r = daemon_post(d, "/v1/models/short/encode", "{\"inputs\":" TEXT "}", 200);
    json_t *root = answer_parse(r.body, r.body_bytes);
    assert_int_equal(json_array_size(json_array_get(answer_get(root, "tokens"), 0)), 7);
    assert_true(json_is_true(json_array_get(answer_get(root, "usage.truncated"), 0)));
    json_decref(root);
    reply_free(&r);
    r = daemon_request(d, "GET", "/v1/models/short", NULL, NULL, 0);
    assert_int_equal(r.status, 200);
    root = answer_parse(r.body, r.body_bytes);
    assert_int_equal(json_integer_value(answer_get(root, "encoder.max_tokens")), 7);
    json_decref(root);
    reply_free(&r);
    daemon_stop(d);

    st_write_text(config, "{\"tokenizer_class\":\"BertTokenizer\",\"model_max_length\":1}");
    d = daemon_start((const char *const[]){"--model", model, NULL});
    r = daemon_post(d, "/v1/models/short/encode", "{\"inputs\":[\"\"]}", 400);
    assert_non_null(strstr(r.body, "/inputs/0: at most 1 tokens leave no room"));
    reply_free(&r);
    daemon_stop(d);
    free(dir);
    free(model);
    free(config);
}

/* sentence-transformers may put texts in lower case for a tokeniser that knows cases. */
static void texts_are_put_in_lower_case_where_the_model_says_so(void **state)
{
    (void)state;
    char *dir = st_path("%s/cased", folder_), *model = st_path("cased=%s", dir);
    char *config = st_path("%s/tokenizer_config.json", dir);
    char *sentence = st_path("%s/sentence_bert_config.json", dir);
    static const char *const said[] = {"false", "true"}, *const word[] = {"[UNK]", "cat"};

    tiny_encoder_write(dir, 3, 1, NULL);
    st_write_text(config, "{\"tokenizer_class\":\"BertTokenizer\",\"do_lower_case\":false}");
    for (size_t i = 0; i < 2; i++) {
        char *text = st_path("{\"max_seq_length\":16,\"do_lower_case\":%s}", said[i]);
        st_write_text(sentence, text);
        test_daemon *d = daemon_start((const char *const[]){"--model", model, NULL});
        test_reply r = daemon_post(d, "/v1/models/cased/encode", "{\"inputs\":\"the CAT\"}", 200);
        json_t *root = answer_parse(r.body, r.body_bytes);
        json_t *tokens = json_array_get(answer_get(root, "tokens"), 0);
        assert_string_equal(json_string_value(json_array_get(tokens, 2)), word[i]);
        json_decref(root);
        reply_free(&r);
        daemon_stop(d);
        free(text);
    }
    free(dir);
    free(model);
    free(config);
    free(sentence);
}

/* --- results ----------------------------------------------------------------------------------- */

static void poolings_are_of_the_last_hidden_state(void **state)
{
    (void)state;
    json_t *mean =
        post(ENCODE, "{\"inputs\":" TEXT ",\"normalize\":false,\"return_hidden_states\":true}");
    json_t *cls = post(ENCODE, "{\"inputs\":" TEXT ",\"normalize\":false,\"pooling\":\"cls\"}");
    json_t *none = post(ENCODE, "{\"inputs\":" TEXT ",\"pooling\":\"none\"}");
    json_t *both =
        post(ENCODE, "{\"inputs\":" TEXT ",\"pooling\":\"none\",\"return_hidden_states\":[2,0]}");
    json_t *own = post(ENCODE, "{\"inputs\":" TEXT "}");
    json_t *state_ = json_array_get(answer_get(mean, "hidden_states"), 0);
    double length = 0;

    assert_true(json_equal(answer_get(none, "embeddings"), state_));
    assert_true(json_equal(answer_get(both, "embeddings"), state_));
    assert_true(json_equal(json_array_get(answer_get(both, "hidden_states"), 0), state_));
    for (size_t c = 0; c < W; c++) {
        double sum = 0;
        for (size_t i = 0; i < N; i++)
            sum +=
                json_number_value(json_array_get(json_array_get(json_array_get(state_, 0), i), c));
        assert_float_equal(number(mean, "embeddings", 0, c, SIZE_MAX), sum / N, 1e-6);
        assert_true(
            number(cls, "embeddings", 0, c, SIZE_MAX) ==
            json_number_value(json_array_get(json_array_get(json_array_get(state_, 0), 0), c)));
        length += pow(number(mean, "embeddings", 0, c, SIZE_MAX), 2);
    }
    for (size_t c = 0; c < W; c++) /* this model's own: the mean, to length 1 */
        assert_float_equal(number(own, "embeddings", 0, c, SIZE_MAX),
                           number(mean, "embeddings", 0, c, SIZE_MAX) / sqrt(length), 1e-6);
    json_decref(mean);
    json_decref(cls);
    json_decref(none);
    json_decref(both);
    json_decref(own);
}

/* Abnar and Zuidema: the product over layers, later ones to the left, of (mean over heads + identity) / 2. */
static void the_rollout_is_the_product_of_the_maps(void **state)
{
    (void)state;
    json_t *root =
        post(ENCODE, "{\"inputs\":" TEXT
                     ",\"return_attentions\":{\"reduce_heads\":\"mean\",\"rollout\":true}}");
    double roll[N][N] = {{0}}, next[N][N];

    for (size_t i = 0; i < N; i++)
        roll[i][i] = 1;
    for (size_t l = 0; l < TINY_LAYERS; l++) {
        json_t *map = json_array_get(json_array_get(answer_get(root, "attentions"), l), 0);
        for (size_t i = 0; i < N; i++) {
            for (size_t j = 0; j < N; j++) {
                next[i][j] = roll[i][j] / 2;
                for (size_t k = 0; k < N; k++)
                    next[i][j] += json_number_value(json_array_get(json_array_get(map, i), k)) *
                                  roll[k][j] / 2;
            }
        }
        memcpy(roll, next, sizeof roll);
    }
    for (size_t i = 0; i < N; i++) {
        for (size_t j = 0; j < N; j++)
            assert_float_equal(number(root, "rollout", 0, i, j), roll[i][j], 1e-6);
    }
    json_decref(root);
}

static void only_what_was_asked_for_is_there(void **state)
{
    (void)state;
    json_t *root = post(ENCODE, "{\"inputs\":" TEXT ",\"return_embeddings\":false,"
                                "\"return_attentions\":{\"layers\":[],\"rollout\":true}}");

    assert_null(answer_get(root, "embeddings"));
    assert_null(answer_get(root, "hidden_states"));
    assert_null(answer_get(root, "attentions"));
    assert_non_null(answer_get(root, "rollout"));
    json_decref(root);
}

/* Layers, heads and what is kept of the maps: parts of the whole, in the order asked for. */
static void parts_of_maps_are_parts_of_the_whole(void **state)
{
    (void)state;
    json_t *whole = post(ENCODE, "{\"inputs\":[" TEXT ",\"cat\"],\"return_attentions\":true}");
    json_t *part =
        post(ENCODE, "{\"inputs\":[" TEXT
                     ",\"cat\"],\"return_attentions\":{\"layers\":[1,0],\"heads\":[1]}}");
    json_t *top =
        post(ENCODE, "{\"inputs\":[" TEXT "],\"return_attentions\":{\"layers\":[1],\"top_k\":2}}");
    json_t *pooled =
        post(ENCODE, "{\"inputs\":[" TEXT
                     ",\"cat\"],\"return_attentions\":{\"pool\":{\"size\":3,\"kind\":\"max\"}}}");

    for (size_t l = 0; l < TINY_LAYERS; l++) {
        for (size_t b = 0; b < 2; b++) {
            json_t *all = json_array_get(json_array_get(answer_get(whole, "attentions"), 1 - l), b);
            json_t *one = json_array_get(json_array_get(answer_get(part, "attentions"), l), b);
            assert_true(json_equal(json_array_get(all, 1), json_array_get(one, 0)));
            all = json_array_get(json_array_get(answer_get(whole, "attentions"), l), b);
            one = json_array_get(json_array_get(answer_get(pooled, "attentions"), l), b);
            size_t n = b == 0 ? N : 3;
            for (size_t h = 0; h < TINY_HEADS; h++) {
                for (size_t i = 0; i < 3; i++) {
                    for (size_t j = 0; j < 3; j++) {
                        double most = 0;
                        for (size_t y = i * n / 3; y < (i + 1) * n / 3; y++) {
                            for (size_t x = j * n / 3; x < (j + 1) * n / 3; x++)
                                most =
                                    fmax(most, json_number_value(json_array_get(
                                                   json_array_get(json_array_get(all, h), y), x)));
                        }
                        assert_true(most == json_number_value(json_array_get(
                                                json_array_get(json_array_get(one, h), i), j)));
                    }
                }
            }
        }
    }
    json_t *values = json_array_get(json_array_get(answer_get(top, "attentions.values"), 0), 0);
    json_t *map = json_array_get(json_array_get(answer_get(whole, "attentions"), 1), 0);
    json_t *keys = json_array_get(json_array_get(answer_get(top, "attentions.indices"), 0), 0);
    for (size_t h = 0; h < TINY_HEADS; h++) {
        for (size_t i = 0; i < N; i++) {
            json_t *row = json_array_get(json_array_get(map, h), i);
            size_t key = (size_t)json_integer_value(
                json_array_get(json_array_get(json_array_get(keys, h), i), 0));
            double largest =
                json_number_value(json_array_get(json_array_get(json_array_get(values, h), i), 0));
            assert_true(json_number_value(json_array_get(row, key)) == largest);
            for (size_t j = 0; j < N; j++)
                assert_true(json_number_value(json_array_get(row, j)) <= largest);
        }
    }
    json_decref(whole);
    json_decref(part);
    json_decref(top);
    json_decref(pooled);
}

static void base64_has_the_bits_of_the_numbers(void **state)
{
    (void)state;
    json_t *list = post(ENCODE, "{\"inputs\":[" TEXT "]," ALL "}");
    json_t *text = post(ENCODE, "{\"inputs\":[" TEXT "],\"encoding_format\":\"base64\"," ALL "}");
    static const char *const members[] = {"embeddings", "hidden_states", "attentions", "rollout"};

    for (size_t i = 0; i < 4; i++) {
        test_tensor a = answer_any(answer_get(list, members[i]), members[i]);
        test_tensor b = answer_any(answer_get(text, members[i]), members[i]);
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.data, b.data, a.count * sizeof *a.data);
        answer_free(&a);
        answer_free(&b);
    }
    json_decref(list);
    json_decref(text);
}

/* --- other interfaces -------------------------------------------------------------------------- */

static void openai_s_and_the_other_interface_have_the_same_numbers(void **state)
{
    (void)state;
    json_t *ours = post(ENCODE, "{\"inputs\":[" TEXT ",\"a mat\"]}");
    json_t *openai = post("/v1/embeddings", "{\"model\":\"tiny\",\"input\":[" TEXT ",\"a mat\"]}");
    json_t *ids = post("/v1/embeddings", "{\"input\":" IDS ",\"user\":\"me\",\"dimensions\":8}");
    json_t *packed = post("/v1/embeddings", "{\"input\":\"a mat\",\"encoding_format\":\"base64\"}");
    json_t *embed = post("/embed", "{\"inputs\":[" TEXT ",\"a mat\"]}");

    assert_true(json_equal(embed, answer_get(ours, "embeddings")));
    for (size_t b = 0; b < 2; b++) {
        json_t *one = json_array_get(answer_get(openai, "data"), b);
        assert_true(json_equal(json_object_get(one, "embedding"),
                               json_array_get(answer_get(ours, "embeddings"), b)));
        assert_int_equal(json_integer_value(json_object_get(one, "index")), b);
    }
    assert_true(json_equal(json_object_get(json_array_get(answer_get(ids, "data"), 0), "embedding"),
                           json_array_get(answer_get(ours, "embeddings"), 0)));
    assert_int_equal(json_integer_value(answer_get(openai, "usage.prompt_tokens")), N + 4);
    assert_string_equal(json_string_value(answer_get(ids, "model")),
                        "tiny"); /* the first encoder */
    const char *text = json_string_value(
        json_object_get(json_array_get(answer_get(packed, "data"), 0), "embedding"));
    assert_int_equal(strlen(text), (W * sizeof(float) + 2) / 3 * 4);
    json_decref(ours);
    json_decref(openai);
    json_decref(ids);
    json_decref(packed);
    json_decref(embed);
}

/* Their clients send what they leave at its default, as null. */
static void null_is_nothing_in_the_shapes_of_others(void **state)
{
    (void)state;
    json_t *openai =
        post("/v1/embeddings", "{\"input\":\"a mat\",\"model\":null,\"encoding_format\":null,"
                               "\"dimensions\":null,\"user\":null}");
    json_t *plain = post("/v1/embeddings", "{\"input\":\"a mat\"}");
    json_t *embed = post("/embed", "{\"inputs\":\"a mat\",\"normalize\":null,\"truncate\":null,"
                                   "\"truncation_direction\":null,\"prompt_name\":null}");
    json_t *one = json_object_get(json_array_get(answer_get(plain, "data"), 0), "embedding");

    assert_true(json_equal(openai, plain));
    assert_true(json_equal(json_array_get(embed, 0), one));
    json_decref(openai);
    json_decref(plain);
    json_decref(embed);
}

/* --- what is refused --------------------------------------------------------------------------- */

static void a_model_names_the_special_tokens(void **state)
{
    (void)state;
    static const char *const paths[] = {"/v1/models/tiny", "/v1/models"};
    json_t *wanted = json_pack("[s, s]", "[CLS]", "[SEP]");

    for (size_t i = 0; i < 2; i++) {
        test_reply r = daemon_request(daemon_, "GET", paths[i], NULL, NULL, 0);
        json_t *root = answer_parse(r.body, r.body_bytes);
        json_t *model = i == 0 ? root : json_array_get(json_object_get(root, "models"), 1);
        json_t *got = json_object_get(json_object_get(model, "encoder"), "special_tokens");
        assert_true(json_equal(got, wanted));
        json_decref(root);
        reply_free(&r);
    }
    json_decref(wanted);
}

static void what_cannot_be_answered_is_named(void **state)
{
    (void)state;
    static const struct {
        long status;
        const char *path, *body, *word;
    } bad[] = {
        {400, ENCODE, "{}", "inputs"},
        {400, ENCODE, "{\"inputs\":5}", "/inputs"},
        {400, ENCODE, "{\"inputs\":[\"a\",5]}", "/inputs/1"},
        {400, ENCODE, "{\"inputs\":[[\"a\",\"b\",\"c\"]]}", "/inputs/0"},
        {400, ENCODE, "{\"inputs\":\"a\",\"input_ids\":[[1]]}", "exclude"},
        {400, ENCODE, "{\"input_ids\":[[1.5]]}", "/input_ids/0/0"},
        {400, ENCODE, "{\"inputs\":\"a\",\"pooling\":\"median\"}", "mean"},
        {400, ENCODE, "{\"inputs\":\"a\",\"normalize\":1}", "/normalize"},
        {400, ENCODE, "{\"inputs\":\"a\",\"return_attentions\":{\"layer\":[0]}}", "layers"},
        {400, ENCODE, "{\"inputs\":\"a\",\"return_attentions\":{\"layers\":0}}",
         "/return_attentions/layers"},
        {400, ENCODE, "{\"inputs\":\"a\",\"return_attentions\":{\"rollout\":1}}",
         "/return_attentions/rollout"},
        {400, ENCODE, "{\"inputs\":\"a\",\"return_hidden_states\":\"all\"}",
         "/return_hidden_states"},
        {400, ENCODE, "{\"inputs\":\"a\\u0000b\"}", NULL},
        {422, ENCODE, "{\"input_ids\":[[12]]}", "12"},
        {422, ENCODE, "{\"input_ids\":[[-1]]}", "/input_ids/0"},
        {422, ENCODE, "{\"input_ids\":[[1]],\"token_type_ids\":[[2]]}", "2"},
        {422, ENCODE, "{\"input_ids\":[[1]],\"token_type_ids\":[[0,0]]}", "/token_type_ids"},
        {422, ENCODE, "{\"input_ids\":[[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]]}", "17"},
        {422, ENCODE, "{\"input_ids\":[1,2]}", "/input_ids"},
        {422, ENCODE, "{\"inputs_embeds\":[[[1,2]]]}", "8"},
        {422, ENCODE, "{\"input_ids\":[[1,2]],\"lengths\":[3]}", "/lengths/0"},
        {422, ENCODE, "{\"input_ids\":[[1,2],[1]],\"lengths\":[1,1]}", "/lengths"},
        {422, ENCODE, "{\"inputs\":\"a\",\"lengths\":[1]}", "/lengths"},
        {422, ENCODE, "{\"input_ids\":[[1,2]],\"attention_mask\":[[1,1,1]]}", "/attention_mask"},
        {422, ENCODE, "{\"inputs\":\"a\",\"return_attentions\":{\"layers\":[2]}}",
         "/return_attentions/layers/0"},
        {422, ENCODE, "{\"inputs\":\"a\",\"return_hidden_states\":[3]}", "/return_hidden_states/0"},
        {422, ENCODE, "{\"inputs\":\"a\",\"return_attentions\":{\"heads\":[2]}}",
         "/return_attentions/heads/0"},
        {422, "/v1/models/heads/encode", "{\"inputs\":\"a\"}", "encoder"},
        {404, "/v1/models/tiyn/encode", "{\"inputs\":\"a\"}", "tiny"},
        {404, "/v1/embeddings", "{\"input\":\"a\",\"model\":\"tiyn\"}", "tiny"},
        {422, "/v1/embeddings", "{\"input\":\"a\",\"model\":\"heads\"}", "encoder"},
        {400, "/v1/embeddings", "{}", "input"},
        {400, "/v1/embeddings", "{\"input\":[\"a\",1]}", "/input/1"},
        {400, "/v1/embeddings", "{\"input\":[[1],\"a\"]}", "/input/1"},
        {400, "/v1/embeddings", "{\"input\":[1,[1]]}", "/input/0"},
        {400, "/v1/embeddings", "{\"input\":null}", "input"},
        {400, ENCODE, "{\"inputs\":\"a\",\"pooling\":null}", "/pooling"},
        {422, "/v1/embeddings", "{\"input\":\"a\",\"dimensions\":4}", "/dimensions"},
        {400, "/v1/embeddings", "{\"inputs\":\"a\"}", "input"},
        {400, "/embed", "{\"inputs\":\"a\",\"truncation_direction\":\"left\"}", "right"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        test_reply r = daemon_post(daemon_, bad[i].path, bad[i].body, bad[i].status);
        if (bad[i].word != NULL && strstr(r.body, bad[i].word) == NULL)
            fail_msg("%s: no \"%s\" in %s", bad[i].body, bad[i].word, r.body);
        reply_free(&r);
    }
    json_decref(post(ENCODE, "{\"inputs\":\"the cat\"}")); /* and the next one works */
}

static void nothing_in_is_nothing_out(void **state)
{
    (void)state;
    json_t *none = post(ENCODE, "{\"inputs\":[]," ALL "}");
    json_t *empty = post(ENCODE, "{\"input_ids\":[[],[2,3]]," ALL "}");

    assert_int_equal(json_array_size(answer_get(none, "embeddings")), 0);
    assert_int_equal(json_array_size(answer_get(empty, "embeddings")), 2);
    for (size_t c = 0; c < W; c++)
        assert_true(number(empty, "embeddings", 0, c, SIZE_MAX) == 0);
    assert_int_equal(json_array_size(json_array_get(answer_get(empty, "rollout"), 0)), 0);
    assert_int_equal(json_array_size(json_array_get(answer_get(empty, "rollout"), 1)), 2);
    json_decref(none);
    json_decref(empty);
}

/* What a request needs is exact: that budget answers it, one byte less refuses it with the number. */
static void what_is_needed_is_enough(void **state)
{
    (void)state;
    enum { BATCH = 300 };
    char *body = malloc(BATCH * 64 + 256);
    size_t n = 0;

    assert_non_null(body);
    n = (size_t)sprintf(
        body, "{\"return_attentions\":true,\"return_hidden_states\":[0,1,2],\"input_ids\":[");
    for (size_t b = 0; b < BATCH; b++)
        n += (size_t)sprintf(body + n, "%s[2,5,6,7,8,9,10,11,5,6,7,8,9,10,11,3]", b > 0 ? "," : "");
    (void)sprintf(body + n, "]}");
    char *model = st_path("tiny=%s/tiny", folder_);
    test_daemon *d = daemon_start((const char *const[]){
        "--model", model, "--set", "memory.budget=1MiB", "--set", "compute.threads=1", NULL});
    test_reply r = daemon_post(d, ENCODE, body, 413);
    json_t *root = answer_parse(r.body, r.body_bytes);
    json_int_t needed = json_integer_value(json_object_get(root, "needed_bytes"));
    json_decref(root);
    reply_free(&r);
    daemon_stop(d);
    for (int less = 0; less < 2; less++) {
        char *budget = st_path("memory.budget=%lld", (long long)needed - less);
        d = daemon_start((const char *const[]){"--model", model, "--set", budget, "--set",
                                               "compute.threads=1", NULL});
        r = daemon_post(d, ENCODE, body, less ? 413 : 200);
        reply_free(&r);
        daemon_stop(d);
        free(budget);
    }
    free(model);
    free(body);
}

/* Reading a text takes memory for a moment: what then is more than the budget will not fit later either. */
static void a_text_that_can_never_be_read_is_too_large(void **state)
{
    (void)state;
    enum { WORDS = 2500 };
    char *model = st_path("tiny=%s/tiny", folder_), body[WORDS * 3 + 64];
    test_daemon *d =
        daemon_start((const char *const[]){"--model", model, "--set", "memory.budget=1MiB", NULL});
    size_t n = (size_t)sprintf(body, "{\"inputs\":\"");

    for (size_t i = 0; i < WORDS; i++)
        n += (size_t)sprintf(body + n, "at ");
    (void)sprintf(body + n, "\"}");
    test_reply r = daemon_post(d, "/v1/models/tiny/encode", body, 413);
    json_t *root = answer_parse(r.body, r.body_bytes);
    assert_int_equal(json_integer_value(json_object_get(root, "limit_bytes")), 1 << 20);
    assert_true(json_integer_value(json_object_get(root, "needed_bytes")) > 1 << 20);
    json_decref(root);
    reply_free(&r);
    r = daemon_post(d, "/v1/models/tiny/encode", "{\"inputs\":\"the cat\"}", 200);
    reply_free(&r);
    daemon_stop(d);
    free(model);
}

static void without_a_name_it_is_the_first_encoder_or_none(void **state)
{
    (void)state;
    char *a = st_path("a=%s/tiny", folder_), *b = st_path("b=%s/plain", folder_);
    test_daemon *d = daemon_start(
        (const char *const[]){"--model", a, "--model", b, "--set", "admin.enabled=true", NULL});
    static const char text[] = "{\"inputs\":\"the cat\"}", one[] = "{\"input\":\"the cat\"}";
    test_reply first = daemon_post(d, "/embed", text, 200);
    test_reply r = daemon_post(d, "/v2/repository/models/a/unload", "{}", 200);

    reply_free(&r);
    r = daemon_post(d, "/embed", text, 503);
    assert_non_null(strstr(r.body, "\\\"a\\\""));
    reply_free(&r);
    r = daemon_post(d, "/v1/embeddings", one, 503);
    reply_free(&r);
    r = daemon_post(d, "/v1/embeddings", "{\"input\":\"the cat\",\"model\":\"b\"}", 200);
    reply_free(&r);
    r = daemon_post(d, "/v2/repository/models/a/load", "{}", 200);
    reply_free(&r);
    r = daemon_post(d, "/embed", text, 200);
    assert_string_equal(r.body, first.body);
    reply_free(&r);
    reply_free(&first);
    daemon_stop(d);
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_ids_and_embeddings_are_the_same_request),
        cmocka_unit_test(a_pair_has_two_types_of_tokens),
        cmocka_unit_test(company_changes_nothing),
        cmocka_unit_test(long_texts_are_cut_or_refused),
        cmocka_unit_test(a_tokeniser_beside_the_weights_says_how_long_texts_are),
        cmocka_unit_test(texts_are_put_in_lower_case_where_the_model_says_so),
        cmocka_unit_test(poolings_are_of_the_last_hidden_state),
        cmocka_unit_test(the_rollout_is_the_product_of_the_maps),
        cmocka_unit_test(only_what_was_asked_for_is_there),
        cmocka_unit_test(parts_of_maps_are_parts_of_the_whole),
        cmocka_unit_test(base64_has_the_bits_of_the_numbers),
        cmocka_unit_test(openai_s_and_the_other_interface_have_the_same_numbers),
        cmocka_unit_test(null_is_nothing_in_the_shapes_of_others),
        cmocka_unit_test(a_model_names_the_special_tokens),
        cmocka_unit_test(what_cannot_be_answered_is_named),
        cmocka_unit_test(nothing_in_is_nothing_out),
        cmocka_unit_test(what_is_needed_is_enough),
        cmocka_unit_test(a_text_that_can_never_be_read_is_too_large),
        cmocka_unit_test(without_a_name_it_is_the_first_encoder_or_none),
    };
    return cmocka_run_group_tests_name("encode", tests, start, stop);
}

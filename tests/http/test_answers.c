/* What an answer holds and how its parts belong together: forms, orders, encodings, stages of a map, and
 * decoding step by step. */
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

enum { D = 8, H = 4, G = 2, SIZE = 6, B = 2, T = 5 };

#define GQA  "/v1/models/gqa/attention"
#define ROPE "/v1/models/rope/attention"

static test_daemon *daemon_;
static char *folder_;
static float x_[B * T * D]; /* rectangular; sequence b at b * T * D */

static int start(void **state)
{
    static const st_native gqa = {
        .d_model = D, .num_heads = H, .num_kv_heads = G, .head_dim = SIZE};
    static const st_native rope = {
        .d_model = D,
        .num_heads = H,
        .num_kv_heads = G,
        .head_dim = SIZE,
        .config = "\"is_causal\":true,\"rope\":{\"theta\":100,\"style\":\"half\",\"dims\":4}"};
    uint32_t seed = 7;
    (void)state;

    st_random(&seed, x_, sizeof x_ / sizeof *x_);
    folder_ = st_temp_dir();
    char *dir[2] = {st_path("%s/gqa", folder_), st_path("%s/rope", folder_)};
    char *arg[2] = {st_path("gqa=%s", dir[0]), st_path("rope=%s", dir[1])};
    st_write_random(dir[0], &gqa, 3);
    st_write_random(dir[1], &rope, 4);
    daemon_ = daemon_start(COMMAND("serve", "--model", arg[0], "--model", arg[1]));
    for (size_t i = 0; i < 2; i++) {
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

/* Sends the body and frees it. */
static json_t *post(const char *path, test_body *b)
{
    test_reply r = daemon_post(daemon_, path, body_text(b), 200);
    json_t *answer = answer_parse(r.body, r.body_bytes);
    reply_free(&r);
    body_free(b);
    return answer;
}

/* The batch x_, with further members: "\"layer\":0", or NULL. */
static json_t *ask(const char *path, const char *key, const char *value, bool base64)
{
    test_body b;
    body_init(&b, base64);
    body_floats(&b, "inputs_embeds", x_, DIMS(B, T, D));
    if (key != NULL)
        body_raw(&b, key, value);
    return post(path, &b);
}

static void same_tensor(const char *what, const test_tensor *a, const test_tensor *b)
{
    assert_int_equal(a->rank, b->rank);
    assert_memory_equal(a->dim, b->dim, a->rank * sizeof *a->dim);
    if (memcmp(a->data, b->data, a->count * sizeof *a->data) != 0)
        fail_msg("%s: other bits", what);
}

/* --- forms ------------------------------------------------------------------------------------ */

#define EVERYTHING "[\"context\",\"key\",\"logsumexp\",\"value\",\"query\"]"

static void keys_come_in_the_order_of_the_contract(void **state)
{
    static const char *const KEY[] = {"model",         "layer",  "outputs", "attentions",
                                      "intermediates", "tokens", "usage"};
    static const char *const USAGE[] = {"sequences", "tokens", "micro_batches", "peak_bytes",
                                        "fully_masked_rows"};
    test_body b;
    const char *key;
    json_t *value;
    size_t n = 0;
    (void)state;

    body_init(&b, false); /* and not in the order of the request */
    body_raw(&b, "tokens",
             "[[\"a\",\"b\",\"c\",\"d\",\"e\"],[\"\\u00e9\",\"\",\"\\\"\",\"x\",\"y\"]]");
    body_raw(&b, "return_intermediates", EVERYTHING);
    body_raw(&b, "return_attentions", "true");
    body_floats(&b, "inputs_embeds", x_, DIMS(B, T, D));
    json_t *answer = post(GQA, &b);
    json_object_foreach(answer, key, value)
    {
        assert_true(n < sizeof KEY / sizeof *KEY);
        assert_string_equal(key, KEY[n++]);
    }
    assert_int_equal(n, sizeof KEY / sizeof *KEY);
    for (n = 0; n < sizeof USAGE / sizeof *USAGE; n++)
        assert_true(json_is_integer(json_object_get(json_object_get(answer, "usage"), USAGE[n])));
    assert_string_equal(json_string_value(answer_get(answer, "model")), "gqa");
    assert_int_equal(json_integer_value(answer_get(answer, "layer")), 0);
    assert_int_equal(json_integer_value(answer_get(answer, "usage.sequences")), B);
    assert_int_equal(json_integer_value(answer_get(answer, "usage.tokens")), B * T);
    assert_int_equal(json_integer_value(answer_get(answer, "usage.fully_masked_rows")), 0);
    json_t *tokens = json_array_get(answer_get(answer, "tokens"), 1);
    assert_string_equal(json_string_value(json_array_get(tokens, 0)), "\xC3\xA9");
    assert_string_equal(json_string_value(json_array_get(tokens, 2)), "\"");
    json_decref(answer);
}

static void only_what_was_asked_for_is_there(void **state)
{
    test_body b;
    (void)state;

    json_t *answer = ask(GQA, NULL, NULL, false);
    assert_null(answer_get(answer, "attentions"));
    assert_null(answer_get(answer, "intermediates"));
    assert_null(answer_get(answer, "tokens"));
    json_decref(answer);
    body_init(&b, false);
    body_floats(&b, "inputs_embeds", x_, DIMS(B, T, D));
    body_raw(&b, "return_outputs", "false");
    body_raw(&b, "return_intermediates", "[\"logsumexp\"]");
    answer = post(GQA, &b);
    assert_null(answer_get(answer, "outputs"));
    test_tensor lse =
        answer_tensor(answer_get(answer, "intermediates.logsumexp"), "logsumexp", DIMS(B, H, T));
    assert_int_equal(json_object_size(answer_get(answer, "intermediates")), 1);
    answer_free(&lse);
    json_decref(answer);
}

static const char *const RESULT[] = {"outputs",
                                     "attentions",
                                     "intermediates.query",
                                     "intermediates.key",
                                     "intermediates.value",
                                     "intermediates.logsumexp",
                                     "intermediates.context"};
enum { RESULTS = sizeof RESULT / sizeof *RESULT };

/* All results of one sequence of `length` tokens, as [1,T,D] or with `single` as [T,D]. */
static json_t *ask_alone(const char *path, const float *x, size_t length, bool single)
{
    test_body b;
    body_init(&b, true);
    if (single)
        body_floats(&b, "inputs_embeds", x, DIMS(length, D));
    else
        body_floats(&b, "inputs_embeds", x, DIMS(1, length, D));
    body_raw(&b, "return_attentions", "true");
    body_raw(&b, "return_intermediates", EVERYTHING);
    return post(path, &b);
}

static void a_single_sequence_in_gives_a_single_one_out(void **state)
{
    json_t *batch = ask_alone(ROPE, x_, T, false), *single = ask_alone(ROPE, x_, T, true);
    (void)state;

    for (size_t i = 0; i < RESULTS; i++) {
        test_tensor one = answer_any(answer_get(batch, RESULT[i]), RESULT[i]);
        assert_int_equal(one.dim[0], 1);
        test_tensor all =
            answer_tensor(answer_get(single, RESULT[i]), RESULT[i], one.rank - 1, one.dim + 1);
        assert_memory_equal(one.data, all.data, all.count * sizeof *all.data);
        answer_free(&one);
        answer_free(&all);
    }
    json_decref(batch);
    json_decref(single);
    /* Labels and positions of a single sequence are single too. */
    test_body b;
    body_init(&b, false);
    body_floats(&b, "inputs_embeds", x_, DIMS(2, D));
    body_raw(&b, "tokens", "[\"a\",\"b\"]");
    body_raw(&b, "position_ids", "[0,1]");
    single = post(ROPE, &b);
    assert_int_equal(json_array_size(answer_get(single, "tokens")), 2);
    assert_true(json_is_string(json_array_get(answer_get(single, "tokens"), 0)));
    json_decref(single);
}

/* The ragged batch of sequence 0 (T tokens) and sequence 1 (two), as nested arrays. */
static char *ragged_text(void)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    for (size_t i = 0; i < (T + 2) * D; i++)
        fprintf(f, "%s%.9g",
                i == 0       ? "[[["
                : i == T * D ? "]],[["
                : i % D == 0 ? "],["
                             : ",",
                (double)x_[i]);
    fputs("]]]", f);
    fclose(f);
    return text;
}

static void ragged_in_gives_ragged_out_as_each_alone(void **state)
{
    static const size_t LENGTH[] = {T, 2};
    char *text = ragged_text();
    json_t *alone[2] = {ask_alone(ROPE, x_, T, true), ask_alone(ROPE, x_ + T * D, 2, true)};
    (void)state;

    for (int base64 = 0; base64 < 2; base64++) {
        test_body b;
        body_init(&b, false);
        body_raw(&b, "inputs_embeds", text);
        body_raw(&b, "encoding_format", base64 ? "\"base64\"" : "\"float\"");
        body_raw(&b, "return_attentions", "true");
        body_raw(&b, "return_intermediates", EVERYTHING);
        body_raw(&b, "tokens", "[[\"a\",\"b\",\"c\",\"d\",\"e\"],[\"f\",\"g\"]]");
        json_t *answer = post(ROPE, &b);
        for (size_t i = 0; i < 2 * RESULTS; i++) {
            const char *name = RESULT[i / 2];
            json_t *list = answer_get(answer, name);
            assert_int_equal(json_array_size(list), 2);
            test_tensor in = answer_any(json_array_get(list, i % 2), name);
            test_tensor out = answer_any(answer_get(alone[i % 2], name), name);
            same_tensor(name, &in, &out);
            answer_free(&in);
            answer_free(&out);
        }
        for (size_t i = 0; i < 2; i++)
            assert_int_equal(json_array_size(json_array_get(answer_get(answer, "tokens"), i)),
                             LENGTH[i]);
        assert_int_equal(json_integer_value(answer_get(answer, "usage.tokens")), T + 2);
        json_decref(answer);
    }
    json_decref(alone[0]);
    json_decref(alone[1]);
    free(text);
}

static void base64_has_the_bits_of_the_numbers(void **state)
{
    json_t *answer[2];
    (void)state;

    for (int base64 = 0; base64 < 2; base64++) {
        test_body b;
        body_init(&b, false);
        body_floats(&b, "inputs_embeds", x_, DIMS(B, T, D));
        body_raw(&b, "attention_mask", "[[1,1,1,1,0],[0,0,0,0,0]]");
        body_raw(&b, "encoding_format", base64 ? "\"base64\"" : "\"float\"");
        body_raw(&b, "return_attentions", "{\"stage\":\"masked\"}"); /* null and -inf */
        body_raw(&b, "return_intermediates", EVERYTHING);
        answer[base64] = post(GQA, &b);
    }
    for (size_t i = 0; i < RESULTS; i++) {
        test_tensor numbers = answer_any(answer_get(answer[0], RESULT[i]), RESULT[i]);
        test_tensor bits = answer_any(answer_get(answer[1], RESULT[i]), RESULT[i]);
        assert_true(json_is_object(answer_get(answer[1], RESULT[i])));
        same_tensor(RESULT[i], &numbers, &bits);
        answer_free(&numbers);
        answer_free(&bits);
    }
    /* A masked cell and the logsumexp of a row without keys. */
    json_t *row = json_array_get(answer_get(answer[0], "attentions"), 0);
    row = json_array_get(json_array_get(row, 0), 0);
    assert_true(json_is_null(json_array_get(row, 4)));
    row = json_array_get(json_array_get(answer_get(answer[0], "intermediates.logsumexp"), 1), 0);
    assert_true(json_is_null(json_array_get(row, 0)));
    assert_int_equal(json_integer_value(answer_get(answer[0], "usage.fully_masked_rows")), H * T);
    json_decref(answer[0]);
    json_decref(answer[1]);
}

/* --- stages, heads, ranges -------------------------------------------------------------------- */

/* Everything that changes scores, at once: scale, softcap, bias, mask, causality, a window. */
static test_tensor map_of(const char *options, const char *intermediates, json_t **rest)
{
    test_body b;
    float bias[T * T];
    uint32_t seed = 99;

    st_random(&seed, bias, sizeof bias / sizeof *bias);
    bias[2 * T + 1] = -INFINITY;
    body_init(&b, false);
    body_floats(&b, "inputs_embeds", x_, DIMS(B, T, D));
    body_raw(&b, "scale", "0.75");
    body_raw(&b, "softcap", "1.5");
    body_floats(&b, "attention_bias", bias, DIMS(T, T));
    body_raw(&b, "attention_mask", "[[1,1,1,1,1],[0,1,1,0,1]]");
    body_raw(&b, "is_causal", "true");
    body_raw(&b, "window", "{\"left\":3,\"right\":-1}");
    body_raw(&b, "return_attentions", options);
    body_raw(&b, "return_intermediates", intermediates);
    json_t *answer = post(GQA, &b);
    test_tensor map = answer_any(answer_get(answer, "attentions"), options);
    if (rest != NULL)
        *rest = answer;
    else
        json_decref(answer);
    return map;
}

static double cell(const test_tensor *t, size_t b, size_t h, size_t i, size_t j)
{
    return (double)t->data[((b * t->dim[1] + h) * t->dim[2] + i) * t->dim[3] + j];
}

/* One cell of every stage from the one before it, by the formula. */
static void check_cell(const test_tensor *stage, const test_tensor *query, const test_tensor *key,
                       size_t b, size_t h, size_t i, size_t j)
{
    static const unsigned char mask[B][T] = {{1, 1, 1, 1, 1}, {0, 1, 1, 0, 1}};
    float bias[T * T];
    uint32_t seed = 99;
    double dot = 0;

    st_random(&seed, bias, sizeof bias / sizeof *bias);
    bias[2 * T + 1] = -INFINITY;
    for (size_t k = 0; k < SIZE; k++)
        dot += cell(query, b, h, i, k) * cell(key, b, h / (H / G), j, k);
    bool allowed = mask[b][j] && j <= i && i - j <= 3 && bias[i * T + j] != -INFINITY;
    double scores = cell(&stage[0], b, h, i, j), softcapped = cell(&stage[1], b, h, i, j);
    double masked = cell(&stage[2], b, h, i, j);
    if (allowed) {
        assert_float_equal(scores, dot * 0.75, 1e-5);
        assert_float_equal(softcapped, 1.5 * tanh(scores / 1.5), 1e-5);
        assert_float_equal(masked, softcapped + (double)bias[i * T + j], 1e-5);
    } else {
        assert_true(masked == -INFINITY);
    }
}

static void each_stage_follows_from_the_one_before(void **state)
{
    static const char *const STAGE[] = {"{\"stage\":\"scores\"}", "{\"stage\":\"softcapped\"}",
                                        "{\"stage\":\"masked\"}", "{\"stage\":\"probabilities\"}"};
    test_tensor stage[4];
    json_t *answer = NULL;
    (void)state;

    for (size_t s = 0; s < 4; s++)
        stage[s] = map_of(STAGE[s], s == 3 ? EVERYTHING : "[]", s == 3 ? &answer : NULL);
    test_tensor query = answer_tensor(answer_get(answer, RESULT[2]), "query", DIMS(B, H, T, SIZE));
    test_tensor key = answer_tensor(answer_get(answer, RESULT[3]), "key", DIMS(B, G, T, SIZE));
    test_tensor value = answer_tensor(answer_get(answer, RESULT[4]), "value", DIMS(B, G, T, SIZE));
    test_tensor lse = answer_tensor(answer_get(answer, RESULT[5]), "logsumexp", DIMS(B, H, T));
    test_tensor joined =
        answer_tensor(answer_get(answer, RESULT[6]), "context", DIMS(B, T, H * SIZE));
    for (size_t row = 0; row < (size_t)B * H * T; row++) {
        size_t b = row / (H * T), h = row / T % H, i = row % T;
        double sum = 0, context[SIZE] = {0};
        for (size_t j = 0; j < T; j++) {
            check_cell(stage, &query, &key, b, h, i, j);
            sum += exp(cell(&stage[2], b, h, i, j));
        }
        for (size_t j = 0; j < T; j++) {
            double p = cell(&stage[3], b, h, i, j);
            assert_float_equal(p, sum > 0 ? exp(cell(&stage[2], b, h, i, j)) / sum : 0, 1e-6);
            for (size_t k = 0; k < SIZE; k++)
                context[k] += p * cell(&value, b, h / (H / G), j, k);
        }
        if (sum > 0)
            assert_float_equal((double)lse.data[row], log(sum), 1e-5);
        else
            assert_true(lse.data[row] == -INFINITY);
        for (size_t k = 0; k < SIZE; k++)
            assert_float_equal((double)joined.data[(b * T + i) * H * SIZE + h * SIZE + k],
                               context[k], 1e-5);
    }
    /* Sequence 1 hides its first key, so its first row sees nothing. */
    assert_int_equal(json_integer_value(answer_get(answer, "usage.fully_masked_rows")), H);
    for (size_t s = 0; s < 4; s++)
        answer_free(&stage[s]);
    answer_free(&query);
    answer_free(&key);
    answer_free(&value);
    answer_free(&lse);
    answer_free(&joined);
    json_decref(answer);
}

static void heads_and_ranges_are_parts_of_the_whole(void **state)
{
    static const char *const STAGE[] = {"probabilities", "masked", "softcapped"};
    static const size_t HEADS[] = {3, 0, 2};
    (void)state;

    for (size_t s = 0; s < sizeof STAGE / sizeof *STAGE; s++) {
        char *all = st_path("{\"stage\":\"%s\"}", STAGE[s]);
        char *part = st_path("{\"stage\":\"%s\",\"heads\":[3,0,2],\"queries\":[1,4],"
                             "\"keys\":[0,2]}",
                             STAGE[s]);
        test_tensor whole = map_of(all, "[]", NULL), few = map_of(part, "[]", NULL);
        assert_int_equal(few.count, B * 3 * 3 * 2);
        assert_int_equal(few.dim[1], 3);
        assert_int_equal(few.dim[2], 3);
        for (size_t n = 0; n < few.count; n++) {
            size_t b = n / 18, h = n / 6 % 3, i = n / 2 % 3, j = n % 2;
            assert_true(cell(&few, b, h, i, j) == cell(&whole, b, HEADS[h], i + 1, j));
        }
        answer_free(&whole);
        answer_free(&few);
        free(all);
        free(part);
    }
}

static void reduced_maps_are_of_the_chosen_heads(void **state)
{
    static const struct {
        const char *heads;
        size_t n, head[H];
    } CHOICE[] = {{"\"all\"", H, {0, 1, 2, 3}}, {"[2,1]", 2, {2, 1}}, {"[3]", 1, {3}}};
    static const char *const STAGE[] = {"probabilities", "softcapped", "masked"};
    (void)state;

    for (size_t n = 0; n < 2 * sizeof CHOICE / sizeof *CHOICE; n++) {
        for (size_t s = 0; s < sizeof STAGE / sizeof *STAGE; s++) {
            bool mean = n % 2 == 0;
            char *all = st_path("{\"stage\":\"%s\"}", STAGE[s]);
            char *one = st_path("{\"stage\":\"%s\",\"heads\":%s,\"reduce_heads\":\"%s\"}", STAGE[s],
                                CHOICE[n / 2].heads, mean ? "mean" : "max");
            test_tensor whole = map_of(all, "[]", NULL), reduced = map_of(one, "[]", NULL);
            assert_int_equal(reduced.count, B * T * T);
            for (size_t i = 0; i < reduced.count; i++) {
                double sum = 0, most = -INFINITY;
                for (size_t h = 0; h < CHOICE[n / 2].n; h++) {
                    double v = cell(&whole, i / (T * T), CHOICE[n / 2].head[h], i / T % T, i % T);
                    sum += v;
                    most = fmax(most, v);
                }
                double due = mean ? sum / (double)CHOICE[n / 2].n : most;
                assert_true((double)reduced.data[i] == due ||
                            fabs((double)reduced.data[i] - due) <= 1e-6);
            }
            answer_free(&whole);
            answer_free(&reduced);
            free(all);
            free(one);
        }
    }
}

/* --- decoding step by step -------------------------------------------------------------------- */

/* One step: `n` tokens from `at` on, behind `past` (NULL at first). */
static json_t *step(const float *x, size_t at, size_t n, const test_tensor *past_key,
                    const test_tensor *past_value, bool base64)
{
    test_body b;
    body_init(&b, base64);
    body_floats(&b, "inputs_embeds", x + at * D, DIMS(1, n, D));
    body_raw(&b, "return_attentions", "true");
    body_raw(&b, "return_intermediates", "[\"key\",\"value\"]");
    if (past_key != NULL) {
        body_floats(&b, "past_key", past_key->data, past_key->rank, past_key->dim);
        body_floats(&b, "past_value", past_value->data, past_value->rank, past_value->dim);
    }
    return post(ROPE, &b);
}

static void decode(const float *x, size_t length, const size_t *steps, size_t n, bool base64)
{
    json_t *whole = step(x, 0, length, NULL, NULL, true);
    test_tensor outputs =
        answer_tensor(answer_get(whole, "outputs"), "outputs", DIMS(1, length, D));
    test_tensor map =
        answer_tensor(answer_get(whole, "attentions"), "maps", DIMS(1, H, length, length));
    test_tensor key = {0}, value = {0};
    size_t at = 0;

    for (size_t s = 0; s < n; s++) {
        size_t seen = at + steps[s];
        json_t *answer = step(x, at, steps[s], s == 0 ? NULL : &key, &value, base64);
        answer_free(&key);
        answer_free(&value);
        test_tensor out =
            answer_tensor(answer_get(answer, "outputs"), "outputs", DIMS(1, steps[s], D));
        test_tensor rows =
            answer_tensor(answer_get(answer, "attentions"), "maps", DIMS(1, H, steps[s], seen));
        key = answer_tensor(answer_get(answer, RESULT[3]), "key", DIMS(1, G, seen, SIZE));
        value = answer_tensor(answer_get(answer, RESULT[4]), "value", DIMS(1, G, seen, SIZE));
        for (size_t i = 0; i < steps[s] * D; i++)
            assert_float_equal(out.data[i], outputs.data[at * D + i], 1e-5);
        for (size_t i = 0; i < rows.count; i++) {
            size_t h = i / (steps[s] * seen), q = i / seen % steps[s], j = i % seen;
            assert_float_equal(rows.data[i], cell(&map, 0, h, at + q, j), 1e-5);
        }
        answer_free(&out);
        answer_free(&rows);
        json_decref(answer);
        at = seen;
    }
    assert_int_equal(at, length);
    test_tensor all = answer_any(answer_get(whole, RESULT[3]), "key");
    for (size_t i = 0; i < all.count; i++)
        assert_float_equal(key.data[i], all.data[i], 1e-5);
    answer_free(&all);
    answer_free(&key);
    answer_free(&value);
    answer_free(&outputs);
    answer_free(&map);
    json_decref(whole);
}

static void decoding_in_steps_equals_the_whole(void **state)
{
    static const size_t ONES[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, MIXED[] = {3, 1, 4, 2};
    (void)state;
    for (int base64 = 0; base64 < 2; base64++) { /* x_ as one sequence of B * T tokens */
        decode(x_, (size_t)B * T, ONES, sizeof ONES / sizeof *ONES, base64);
        decode(x_, (size_t)B * T, MIXED, sizeof MIXED / sizeof *MIXED, base64);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_come_in_the_order_of_the_contract),
        cmocka_unit_test(only_what_was_asked_for_is_there),
        cmocka_unit_test(a_single_sequence_in_gives_a_single_one_out),
        cmocka_unit_test(ragged_in_gives_ragged_out_as_each_alone),
        cmocka_unit_test(base64_has_the_bits_of_the_numbers),
        cmocka_unit_test(each_stage_follows_from_the_one_before),
        cmocka_unit_test(heads_and_ranges_are_parts_of_the_whole),
        cmocka_unit_test(reduced_maps_are_of_the_chosen_heads),
        cmocka_unit_test(decoding_in_steps_equals_the_whole),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

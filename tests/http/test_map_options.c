/* What is kept of maps: the largest cells, pooled cells, narrower numbers. Each is held against the whole map. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base64.h"
#include "tests/command.h"
#include "tests/formats.h"

enum { D = 32, HEADS = 4, MOST = 70 };

#define LAYER "/v1/models/m/attention"

static test_daemon *daemon_;
static float x_[2 * MOST * D];

static int start(void **state)
{
    static const st_native m = {.d_model = D, .num_heads = HEADS, .num_kv_heads = 2, .head_dim = 8};
    uint32_t seed = 11;

    assert_int_equal(scratch_setup(state), 0);
    char *dir = st_path("%s/m", scratch_dir()), *model = st_path("m=%s", dir);
    st_write_random(dir, &m, 5);
    st_random(&seed, x_, sizeof x_ / sizeof *x_);
    daemon_ = daemon_start(COMMAND("serve", "--model", model));
    free(dir);
    free(model);
    return 0;
}

static int stop(void **state)
{
    daemon_stop(daemon_);
    return scratch_teardown(state);
}

#define FIELDS(...) ((const char *const[4]){__VA_ARGS__})

/* The tensors that two sequences of `tokens` are answered with; `options` are members of return_attentions. */
static st_file *ask(size_t tokens, const char *options, const char *rest)
{
    char *more = st_path(",\"return_outputs\":false,\"return_attentions\":{%s}%s", options, rest);
    char *body = format_json(x_, DIMS(2, tokens, D), more);
    test_reply r = format_post(daemon_, LAYER, FORMAT_JSON, body, strlen(body),
                               FIELDS("Accept: " FORMAT_SAFETENSORS));
    st_file *f = format_tensors(&r);

    reply_free(&r);
    free(body);
    free(more);
    return f;
}

static json_t *ask_json(size_t tokens, const char *options, const char *rest)
{
    char *more = st_path(",\"return_outputs\":false,\"return_attentions\":{%s}%s", options, rest);
    test_body b;

    body_init(&b, false);
    body_floats(&b, "inputs_embeds", x_, DIMS(2, tokens, D));
    const char *text = body_text(&b);
    char *body = st_path("%.*s%s}", (int)strlen(text) - 1, text, more);
    test_reply r = daemon_post(daemon_, LAYER, body, 200);
    json_t *root = answer_parse(r.body, r.body_bytes);
    reply_free(&r);
    free(body);
    free(more);
    body_free(&b);
    return root;
}

/* Options that stand beside what is tested. */
static const char *const BESIDE[] = {"\"heads\":\"all\"", "\"heads\":[3,1],\"queries\":[2,7]",
                                     "\"reduce_heads\":\"mean\",\"keys\":[1,6]",
                                     "\"reduce_heads\":\"max\",\"stage\":\"masked\"",
                                     "\"stage\":\"scores\""};
enum { BESIDES = sizeof BESIDE / sizeof *BESIDE };
static const char CAUSAL[] = ",\"is_causal\":true";
static const size_t KEYS_FROM[BESIDES] = {0, 0, 1, 0, 0};

/* --- the largest cells --------------------------------------------------------------------------- */

static void assert_top_row(const float *row, size_t n, size_t from, const float *values,
                           const int32_t *keys, size_t k, const float *rest)
{
    double sum = 0;

    for (size_t i = 0; i < k; i++) {
        size_t key = (size_t)keys[i] - from;
        assert_true(key < n);
        assert_true(values[i] == row[key]);
        assert_true(i == 0 || values[i - 1] > values[i] ||
                    (values[i - 1] == values[i] && keys[i - 1] < keys[i]));
    }
    for (size_t j = 0; j < n; j++) {
        bool kept = false;
        for (size_t i = 0; i < k; i++)
            kept = kept || (size_t)keys[i] == j + from;
        if (kept)
            continue;
        sum += (double)row[j];
        assert_true(row[j] <= values[k - 1]);
    }
    if (rest != NULL)
        assert_float_equal(*rest, sum, 1e-6);
}

static void top_k_keeps_the_largest_of_each_row(void **state)
{
    static const size_t tokens[] = {7, MOST};
    (void)state;

    for (size_t i = 0; i < 2 * BESIDES; i++) {
        size_t n = tokens[i / BESIDES], b = i % BESIDES, k = 1 + i % 4;
        char *options = st_path("%s,\"top_k\":%zu", BESIDE[b], k);
        st_file *whole = ask(n, BESIDE[b], CAUSAL), *top = ask(n, options, CAUSAL);
        const st_tensor *map = st_need(whole, "attentions");
        const st_tensor *values = st_need(top, "attentions.values");
        const st_tensor *keys = st_need(top, "attentions.indices");
        const st_tensor *rest = st_find(top, "attentions.rest");
        size_t columns = map->dim[map->rank - 1], rows = map->count / columns;
        float *cells = st_floats(map), *kept = st_floats(values);
        assert_string_equal(keys->dtype, "I32");
        assert_int_equal(values->rank, map->rank);
        assert_memory_equal(values->dim, map->dim, (map->rank - 1) * sizeof *map->dim);
        assert_int_equal(values->dim[map->rank - 1], k);
        assert_memory_equal(keys->dim, values->dim, map->rank * sizeof *map->dim);
        assert_int_equal(rest != NULL, strstr(BESIDE[b], "stage") == NULL);
        for (size_t r = 0; r < rows; r++) {
            int32_t at[8];
            float left = 0;
            memcpy(at, (const char *)keys->data + r * k * sizeof *at, k * sizeof *at);
            if (rest != NULL)
                memcpy(&left, (const char *)rest->data + r * sizeof left, sizeof left);
            assert_top_row(cells + r * columns, columns, KEYS_FROM[b], kept + r * k, at, k,
                           rest != NULL ? &left : NULL);
        }
        json_t *root = ask_json(n, options, CAUSAL); /* the same numbers in JSON */
        test_tensor indices =
            answer_tensor(answer_get(root, "attentions.indices"), "indices", map->rank, keys->dim);
        test_tensor in_json =
            answer_tensor(answer_get(root, "attentions.values"), "values", map->rank, values->dim);
        for (size_t j = 0; j < indices.count; j++) {
            int32_t key;
            memcpy(&key, (const char *)keys->data + j * sizeof key, sizeof key);
            assert_true(indices.data[j] == (float)key);
            assert_true(in_json.data[j] == kept[j]);
        }
        assert_int_equal(answer_get(root, "attentions.rest") != NULL, rest != NULL);
        answer_free(&indices);
        answer_free(&in_json);
        json_decref(root);
        free(cells);
        free(kept);
        st_close(whole);
        st_close(top);
        free(options);
    }
}

/* --- pooled cells -------------------------------------------------------------------------------- */

static size_t tiles(size_t n, size_t tile)
{
    return (n + tile - 1) / tile;
}

static float pooled(const float *map, size_t columns, size_t r0, size_t r1, size_t c0, size_t c1,
                    bool mean)
{
    double sum = 0;
    float most = -INFINITY;

    for (size_t r = r0; r < r1; r++) {
        for (size_t c = c0; c < c1; c++) {
            sum += (double)map[r * columns + c];
            most = fmaxf(most, map[r * columns + c]);
        }
    }
    return mean ? (float)(sum / (double)((r1 - r0) * (c1 - c0))) : most;
}

static void assert_pooled(const st_tensor *map, const st_tensor *got, size_t size, bool mean)
{
    size_t rank = map->rank, rows = map->dim[rank - 2], columns = map->dim[rank - 1];
    size_t high = rows > size ? tiles(rows, size) : 1,
           wide = columns > size ? tiles(columns, size) : 1;
    size_t down = tiles(rows, high), across = tiles(columns, wide);
    float *cells = st_floats(map), *kept = st_floats(got);

    assert_int_equal(got->rank, rank);
    assert_int_equal(got->dim[rank - 2], down);
    assert_int_equal(got->dim[rank - 1], across);
    assert_true(down <= size && across <= size);
    for (size_t i = 0; i < got->count; i++) {
        size_t m = i / (down * across), r = i / across % down * high, c = i % across * wide;
        float want =
            pooled(cells + m * rows * columns, columns, r, r + high < rows ? r + high : rows, c,
                   c + wide < columns ? c + wide : columns, mean);
        if (want != kept[i] && !(fabsf(want - kept[i]) <= 1e-6F * (1 + fabsf(want))))
            fail_msg("cell %zu is %g, not %g", i, (double)kept[i], (double)want);
    }
    free(cells);
    free(kept);
}

static void pooled_maps_are_of_blocks(void **state)
{
    static const size_t tokens[] = {5, MOST, 64}, sizes[] = {1, 8, 31, 64, 500};
    (void)state;

    for (size_t i = 0; i < 30; i++) {
        size_t n = tokens[i % 3], size = sizes[i % 5], b = n == 5 ? 4 * (i % 2) : i % BESIDES;
        bool mean = i % 2 == 0;
        char *options = st_path("%s,\"pool\":{\"size\":%zu,\"kind\":\"%s\"}", BESIDE[b], size,
                                mean ? "mean" : "max");
        /* Padded rows and columns are cells as any others. */
        const char *rest = i % 4 == 0 ? ",\"lengths\":[5,3]" : i % 4 == 1 ? CAUSAL : "";
        st_file *whole = ask(n, BESIDE[b], rest), *pool = ask(n, options, rest);
        assert_pooled(st_need(whole, "attentions"), st_need(pool, "attentions"), size, mean);
        st_close(whole);
        st_close(pool);
        free(options);
    }
}

/* Each sequence has blocks of its own. */
static void ragged_maps_are_pooled_one_by_one(void **state)
{
    static const size_t lengths[] = {2, 23, 9};
    char *body = strdup("[");
    (void)state;

    uint32_t seed = 17;
    for (size_t b = 0; b < 3; b++) {
        for (size_t i = 0; i < lengths[b]; i++) {
            float x[D];
            st_random(&seed, x, D);
            char *more = st_path("%s%s", body, i > 0 ? ",[" : b > 0 ? "],[[" : "[[");
            for (size_t k = 0; k < D; k++) {
                char *grown = st_path("%s%s%.9g", more, k > 0 ? "," : "", (double)x[k]);
                free(more);
                more = grown;
            }
            free(body);
            body = st_path("%s]", more);
            free(more);
        }
    }
    char *whole_text = st_path("{\"inputs_embeds\":%s]],\"return_attentions\":true}", body);
    char *pool_text = st_path("{\"inputs_embeds\":%s]],\"return_attentions\":{\"pool\":"
                              "{\"size\":4,\"kind\":\"max\"}}}",
                              body);
    test_reply a = daemon_post(daemon_, LAYER, whole_text, 200);
    test_reply b = daemon_post(daemon_, LAYER, pool_text, 200);
    json_t *whole = answer_parse(a.body, a.body_bytes), *pool = answer_parse(b.body, b.body_bytes);
    for (size_t i = 0; i < 3; i++) {
        size_t n = lengths[i], block = n > 4 ? tiles(n, 4) : 1, side = tiles(n, block);
        test_tensor map = answer_tensor(json_array_get(answer_get(whole, "attentions"), i), "map",
                                        DIMS(HEADS, n, n));
        test_tensor got = answer_tensor(json_array_get(answer_get(pool, "attentions"), i),
                                        "pooled map", DIMS(HEADS, side, side));
        for (size_t c = 0; c < got.count; c++) {
            size_t r0 = c / side % side * block, c0 = c % side * block;
            float want =
                pooled(map.data + c / (side * side) * n * n, n, r0, r0 + block < n ? r0 + block : n,
                       c0, c0 + block < n ? c0 + block : n, false);
            assert_true(got.data[c] == want);
        }
        answer_free(&map);
        answer_free(&got);
    }
    json_decref(whole);
    json_decref(pool);
    reply_free(&a);
    reply_free(&b);
    free(whole_text);
    free(pool_text);
    free(body);
}

/* --- narrower numbers ---------------------------------------------------------------------------- */

/* The bytes of a tensor object's data. */
static size_t decode(const json_t *object, const char *dtype, unsigned char *out)
{
    attn_base64 d = {0};
    attn_error err = {0};
    size_t n = 0;
    const char *text = json_string_value(json_object_get(object, "data"));

    assert_string_equal(json_string_value(json_object_get(object, "dtype")), dtype);
    assert_non_null(text);
    assert_int_equal(attn_base64_decode(&d, text, strlen(text), out, &n, &err), ATTN_OK);
    assert_int_equal(attn_base64_finish(&d, &err), ATTN_OK);
    return n;
}

static void float16_is_the_nearest(void **state)
{
    (void)state;
    for (size_t b = 0; b < BESIDES; b++) {
        char *options = st_path("%s,\"dtype\":\"float16\"", BESIDE[b]);
        st_file *whole = ask(9, BESIDE[b], ""), *half = ask(9, options, "");
        const st_tensor *map = st_need(whole, "attentions"), *got = st_need(half, "attentions");
        float *cells = st_floats(map);
        json_t *root = ask_json(9, options, "");
        json_t *packed = ask_json(9, options, ",\"encoding_format\":\"base64\"");
        test_tensor in_json =
            answer_tensor(answer_get(root, "attentions"), "attentions", map->rank, map->dim);
        unsigned char bytes[4096 * 2];
        assert_true(got->bytes + 3 <= sizeof bytes);
        assert_string_equal(got->dtype, "F16");
        assert_int_equal(decode(answer_get(packed, "attentions"), "float16", bytes), got->bytes);
        assert_memory_equal(bytes, got->data, got->bytes);
        for (size_t i = 0; i < map->count; i++) {
            uint16_t bits;
            memcpy(&bits, (const char *)got->data + 2 * i, sizeof bits);
            assert_int_equal(bits, st_half_bits(cells[i]));
            assert_true(in_json.data[i] == st_half(bits));
        }
        answer_free(&in_json);
        json_decref(root);
        json_decref(packed);
        free(cells);
        st_close(whole);
        st_close(half);
        free(options);
    }
}

static void uint8_is_rounded_and_says_its_scale(void **state)
{
    (void)state;
    for (size_t b = 0; b < 3; b++) {
        char *options = st_path("%s,\"dtype\":\"uint8\"", BESIDE[b]);
        st_file *whole = ask(9, BESIDE[b], ""), *bytes = ask(9, options, "");
        const st_tensor *map = st_need(whole, "attentions"), *got = st_need(bytes, "attentions");
        float *cells = st_floats(map);
        json_t *root = ask_json(9, options, "");
        json_t *packed = ask_json(9, options, ",\"encoding_format\":\"base64\"");
        test_tensor in_json =
            answer_tensor(answer_get(root, "attentions.values"), "values", map->rank, map->dim);
        unsigned char decoded[4096];
        assert_true(got->bytes + 3 <= sizeof decoded);
        assert_string_equal(got->dtype, "U8");
        assert_string_equal(json_string_value(answer_get(root, "attentions.dtype")), "uint8");
        double scale = json_real_value(answer_get(root, "attentions.scale"));
        assert_true((float)scale == 1.0F / 255.0F);
        assert_int_equal(decode(answer_get(packed, "attentions.values"), "uint8", decoded),
                         got->bytes);
        assert_memory_equal(decoded, got->data, got->bytes);
        for (size_t i = 0; i < map->count; i++) {
            assert_int_equal(((const unsigned char *)got->data)[i],
                             lround(255.0 * (double)cells[i]));
            assert_true(in_json.data[i] == (float)((const unsigned char *)got->data)[i]);
        }
        answer_free(&in_json);
        json_decref(root);
        json_decref(packed);
        free(cells);
        st_close(whole);
        st_close(bytes);
        free(options);
    }
}

/* Scores beyond the largest float16 become that. */
static void float16_holds_no_infinity_that_was_none(void **state)
{
    static const char body[] =
        "{\"query\":[[[[1e5]]]],\"key\":[[[[1]]]],\"value\":[[[[1]]]],"
        "\"return_attentions\":{\"stage\":\"scores\",\"dtype\":\"float16\"}}";
    test_reply r = daemon_post(daemon_, "/v1/scaled-dot-product-attention", body, 200);
    (void)state;

    assert_non_null(strstr(r.body, "\"attentions\":[[[[65504]]]]"));
    reply_free(&r);
}

/* --- together ------------------------------------------------------------------------------------ */

static void options_go_together(void **state)
{
    st_file *f = ask(9, "\"top_k\":3,\"dtype\":\"uint8\"", "");
    json_t *root = ask_json(9, "\"top_k\":3,\"dtype\":\"uint8\"", "");
    const st_tensor *values = st_need(f, "attentions.values");
    test_tensor in_json =
        answer_tensor(answer_get(root, "attentions.values"), "values", values->rank, values->dim);
    (void)state;

    assert_string_equal(values->dtype, "U8");
    assert_string_equal(st_need(f, "attentions.rest")->dtype, "F32");
    for (size_t i = 0; i < values->count; i++)
        assert_true(in_json.data[i] == (float)((const unsigned char *)values->data)[i]);
    /* Whatever the types are, each tensor is aligned to its elements: narrow ones come last. */
    for (size_t i = 0; i < f->count; i++) {
        const st_tensor *t = &f->tensor[i];
        size_t size = t->count > 0 ? t->bytes / t->count : 1;
        assert_int_equal(((const unsigned char *)t->data - f->bytes) % size, 0);
    }
    answer_free(&in_json);
    json_decref(root);
    st_close(f);
}

static void what_they_cannot_do_is_refused(void **state)
{
    static const struct {
        long status;
        const char *options, *pointer;
    } table[] = {{400, "\"top_k\":0", "/return_attentions/top_k"},
                 {400, "\"top_k\":1.5", "/return_attentions/top_k"},
                 {422, "\"top_k\":10", "/return_attentions/top_k"},
                 {422, "\"top_k\":3,\"keys\":[2,4]", "/return_attentions/top_k"},
                 {422, "\"top_k\":9223372036854775807", "/return_attentions/top_k"},
                 {400, "\"pool\":8", "/return_attentions/pool"},
                 {400, "\"pool\":{}", "/return_attentions/pool/size"},
                 {400, "\"pool\":{\"size\":0}", "/return_attentions/pool/size"},
                 {400, "\"pool\":{\"size\":-9223372036854775808}", "/return_attentions/pool/size"},
                 {400, "\"pool\":{\"size\":2,\"kind\":\"min\"}", "/return_attentions/pool/kind"},
                 {400, "\"pool\":{\"size\":2,\"kidn\":\"max\"}", "/return_attentions/pool/kidn"},
                 {200, "\"pool\":{\"size\":9223372036854775807}", NULL},
                 {422, "\"pool\":{\"size\":2},\"top_k\":1", "/return_attentions/pool"},
                 {422, "\"dtype\":\"uint8\",\"stage\":\"scores\"", "/return_attentions/dtype"},
                 {400, "\"dtype\":\"bfloat16\"", "/return_attentions/dtype"}};
    (void)state;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char *rest = st_path(",\"return_attentions\":{%s}", table[i].options);
        char *body = format_json(x_, DIMS(1, 9, D), rest);
        test_reply r = format_post(daemon_, LAYER, FORMAT_JSON, body, strlen(body), NULL);
        if (r.status != table[i].status)
            fail_msg("%s: %ld %.300s", table[i].options, r.status, r.body);
        if (table[i].pointer != NULL) {
            json_t *root = answer_parse(r.body, r.body_bytes);
            assert_string_equal(json_string_value(answer_get(root, "pointer")), table[i].pointer);
            json_decref(root);
        }
        reply_free(&r);
        free(body);
        free(rest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_k_keeps_the_largest_of_each_row),
        cmocka_unit_test(pooled_maps_are_of_blocks),
        cmocka_unit_test(ragged_maps_are_pooled_one_by_one),
        cmocka_unit_test(float16_is_the_nearest),
        cmocka_unit_test(uint8_is_rounded_and_says_its_scale),
        cmocka_unit_test(float16_holds_no_infinity_that_was_none),
        cmocka_unit_test(options_go_together),
        cmocka_unit_test(what_they_cannot_do_is_refused),
    };
    return cmocka_run_group_tests_name("map options", tests, start, stop);
}

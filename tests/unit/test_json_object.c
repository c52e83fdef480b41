#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base64.h"
#include "tests/reading.h"

#define INVALID "invalid"
#define SHAPE   "shape_mismatch"

/* A body with one tensor object, in the form for reading_expect(); valid until the next call. */
static const char *object(const char *field, const char *shape, const char *dtype, const void *data,
                          size_t bytes)
{
    static char body[2048];
    char text[1024];

    assert_true(ATTN_BASE64_ENCODED(bytes) < sizeof text);
    attn_base64_encode(text, data, bytes);
    (void)snprintf(body, sizeof body, "{'%s':{'shape':%s,'dtype':'%s','data':'%.*s'}}", field,
                   shape, dtype, (int)ATTN_BASE64_ENCODED(bytes), text);
    return body;
}

static const float four[] = {1.0f, -2.5f, 0.1f, 3.4028235e38f};

static void float32_is_read_as_it_is(void **state)
{
    const float odd[] = {NAN, INFINITY, -INFINITY, -0.0f};

    (void)state;
    reading_expect("{'inputs_embeds':{'shape':[1,2],'dtype':'float32','data':'AACAPwAAIMA='}}",
                   "inputs_embeds [1,2]: 1 -2.5");
    reading_expect(object("inputs_embeds", "[1,2,2]", "float32", four, 16),
                   "inputs_embeds [1,2,2]: 1 -2.5 0.100000001 3.40282347e+38");
    reading_expect(object("attention_bias", "[]", "float32", four, 4), "attention_bias []: 1");
    reading_expect(object("query", "[1,1,2,2]", "float32", odd, 16),
                   "query [1,1,2,2]: nan inf -inf -0");
}

static void narrower_and_wider_floats_are_converted(void **state)
{
    const uint16_t half[] = {0x0001, 0x7BFF, 0x3555, 0xFC00};
    const uint16_t brain[] = {0x3F80, 0x4049, 0xFF80, 0x8000};
    const double wide[] = {0.1, -1e-46, INFINITY, 3.4028234663852886e38};
    const double beyond[] = {0, 1e39, 0, 0};

    (void)state;
    reading_expect(object("inputs_embeds", "[2,2]", "float16", half, 8),
                   "inputs_embeds [2,2]: 5.96046448e-08 65504 0.333251953 -inf");
    reading_expect(object("inputs_embeds", "[2,2]", "bfloat16", brain, 8),
                   "inputs_embeds [2,2]: 1 3.140625 -inf -0");
    reading_expect(object("attention_bias", "[4]", "float64", wide, 32),
                   "attention_bias [4]: 0.100000001 -0 inf 3.40282347e+38");
    reading_refuse(object("inputs_embeds", "[2,2]", "float64", beyond, 32), INVALID,
                   "/inputs_embeds/data", "element 1 is 1");
}

static void masks_are_bytes_or_integers_of_0_and_1(void **state)
{
    const unsigned char bytes[] = {1, 0, 1, 2};
    const int32_t narrow[] = {0, 1, 1, -1};
    const int64_t wide[] = {1, 0, 1, 256};

    (void)state;
    reading_expect(object("attention_mask", "[1,3]", "bool", bytes, 3),
                   "attention_mask [1,3]: 1 0 1");
    reading_expect(object("attention_mask", "[1,3]", "int32", narrow, 12),
                   "attention_mask [1,3]: 0 1 1");
    reading_expect(object("attention_mask", "[1,3]", "int64", wide, 24),
                   "attention_mask [1,3]: 1 0 1");
    reading_refuse(object("attention_mask", "[2,2]", "bool", bytes, 4), INVALID,
                   "/attention_mask/data", "element 3 is 2; only 0 and 1 are allowed");
    reading_refuse(object("attention_mask", "[2,2]", "int32", narrow, 16), INVALID,
                   "/attention_mask/data", "element 3 is -1;");
    reading_refuse(object("attention_mask", "[2,2]", "int64", wide, 32), INVALID,
                   "/attention_mask/data", "element 3 is 256;");
}

static void integers_are_widened(void **state)
{
    const int32_t narrow[] = {3, -1, INT32_MIN};
    const int64_t wide[] = {3, INT64_MIN, INT64_MAX};

    (void)state;
    reading_expect(object("lengths", "[3]", "int32", narrow, 12), "lengths [3]: 3 -1 -2147483648");
    reading_expect(object("lengths", "[3]", "int64", wide, 24),
                   "lengths [3]: 3 -9223372036854775808 9223372036854775807");
    reading_expect(object("causal_offset", "[]", "int64", wide, 8), "causal_offset []: 3");
}

static void empty_tensors_have_their_shape(void **state)
{
    static const char *const dtypes[] = {"float32", "float16", "bfloat16", "float64"};

    (void)state;
    for (size_t i = 0; i < 4; i++)
        reading_expect(object("inputs_embeds", "[1,0,8]", dtypes[i], "", 0),
                       "inputs_embeds [1,0,8]:");
    reading_expect(object("attention_mask", "[0,3]", "int64", "", 0), "attention_mask [0,3]:");
    reading_expect(object("lengths", "[0]", "int32", "", 0), "lengths [0]:");
}

static void dtypes_that_a_field_cannot_hold_are_refused(void **state)
{
    (void)state;
    reading_refuse(object("inputs_embeds", "[1,1]", "int32", four, 4), INVALID,
                   "/inputs_embeds/dtype",
                   "\"int32\" is not read here; float32, float16, bfloat16 and float64 are");
    reading_refuse(object("attention_mask", "[1,1]", "float32", four, 4), INVALID,
                   "/attention_mask/dtype", "bool, int32 and int64 are");
    reading_refuse(object("lengths", "[1]", "bool", four, 1), INVALID, "/lengths/dtype",
                   "int32 and int64 are");
    reading_refuse(object("query", "[1]", "FP32", four, 4), INVALID, "/query/dtype", "\"FP32\"");
    reading_refuse(object("query", "[1]", "other", four, 4), INVALID, "/query/dtype", "\"other\"");
    reading_refuse(object("query", "[1]", "", four, 4), INVALID, "/query/dtype", "\"\" is not");
    reading_refuse("{'tokens':{'shape':[1]}}", INVALID, "/tokens", "found an object");
}

static void members_stand_in_any_order_and_each_once(void **state)
{
    (void)state;
    reading_expect("{'query':{'data':'AACAPw==','dtype':'float32','shape':[1,1,1,1]},'layer':1}",
                   "query [1,1,1,1]: 1; layer: 1");
    reading_expect("{ 'query' : { 'dtype' : 'float32' , 'd\\u0061ta' : 'AACAPw==' ,\n"
                   "'shape' : [ 1 , 1 , 1 , 1 ] } }",
                   "query [1,1,1,1]: 1");
    reading_refuse("{'query':{}}", INVALID, "/query", "\"shape\" is missing");
    reading_refuse("{'query':{'shape':[1],'data':''}}", INVALID, "/query", "\"dtype\" is missing");
    reading_refuse("{'query':{'shape':[1],'dtype':'float32'}}", INVALID, "/query",
                   "\"data\" is missing");
    reading_refuse("{'query':{'data':'AA==','data':''}}", INVALID, "/query/data",
                   "duplicate member \"data\"");
    reading_refuse(
        "{'query':{'dtyp':'float32'}}", INVALID, "/query",
        "unknown member \"dtyp\"; a tensor object has \"shape\", \"dtype\" and \"data\"");
    reading_refuse("{'query':{'shape':1}}", INVALID, "/query/shape",
                   "expected an array of integers, found a number");
    reading_refuse("{'query':{'shape':null}}", INVALID, "/query/shape", "found null");
    reading_refuse("{'query':{'dtype':32}}", INVALID, "/query/dtype",
                   "expected a string, found a number");
    reading_refuse("{'query':{'data':[1]}}", INVALID, "/query/data", "found an array");
    reading_refuse("{'query':{'data':{}}}", INVALID, "/query/data", "found an object");
}

static void dimensions_are_plain_integers(void **state)
{
    static const char *const bad[] = {"-1",   "2.0", "1e3", "\"4\"", "null",
                                      "true", "[1]", "{}",  "-0",    "18446744073709551616"};
    char body[200];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)snprintf(body, sizeof body, "{'query':{'shape':[1,%s],'dtype':'float32'}}", bad[i]);
        reading_refuse(body, INVALID, "/query/shape/1", "");
    }
    reading_refuse("{'query':{'shape':[1,1,1,1,1,1,1,1,1]}}", INVALID, "/query/shape/8",
                   "more than 8 dimensions");
}

static void d16_bytes_must_fit_shape_and_dtype(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes <= 16; bytes++) {
        char says[100];
        if (bytes == 16)
            continue;
        (void)snprintf(says, sizeof says,
                       "%zu bytes do not fit shape [1,2,2] of float32, which takes 16", bytes);
        reading_refuse(object("inputs_embeds", "[1,2,2]", "float32", four, bytes), INVALID,
                       "/inputs_embeds/data", says);
    }
    const float five[5] = {0};
    reading_refuse(object("inputs_embeds", "[1,2,2]", "float32", five, 20), INVALID,
                   "/inputs_embeds/data", "20 bytes do not fit");
    reading_refuse(object("inputs_embeds", "[4294967296,4294967296,0]", "float32", "", 0), INVALID,
                   "/inputs_embeds/shape", "[4294967296,4294967296,0] is larger than any memory");
    reading_refuse(object("inputs_embeds", "[4611686018427387904,1]", "float32", "", 0), INVALID,
                   "/inputs_embeds/shape", "larger than any memory");
    reading_refuse(object("inputs_embeds", "[4294967296,4294967]", "float32", "", 0), INVALID,
                   "/inputs_embeds/data", "0 bytes do not fit");
}

static void a_wrong_rank_is_a_shape_error(void **state)
{
    (void)state;
    reading_refuse(object("inputs_embeds", "[4]", "float32", four, 16), SHAPE,
                   "/inputs_embeds/shape", "inputs_embeds has rank 1, expected 2 to 3");
    reading_refuse(object("inputs_embeds", "[1,1,2,2]", "float32", four, 16), SHAPE,
                   "/inputs_embeds/shape", "rank 4");
    reading_refuse(object("query", "[]", "float32", four, 4), SHAPE, "/query/shape",
                   "query has rank 0, expected 4");
    reading_refuse(object("inputs_embeds", "[4]", "float32", four, 15), INVALID,
                   "/inputs_embeds/data", "15 bytes"); /* wrong by itself comes first */
}

static void data_is_strict_base64(void **state)
{
    static const struct {
        const char *data, *says;
    } bad[] = {{"AACAPw", "6 characters are not whole groups"},
               {"AACAPw=", "7 characters are not whole groups"},
               {"AACA-w==", "character 4, '-'"},
               {"AACA_w==", "character 4, '_'"},
               {"AACA Pw==", "character 4, byte 0x20"},
               {"AACA\\nPw==", "character 4, byte 0x0A"},
               {"AACAPw==AACA", "character 8 stands behind the padding"},
               {"AACAPx==", "bits are left over"},
               {"AACAP\xc3\xa9==", "character 5, byte 0xC3"}};
    char body[200];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)snprintf(body, sizeof body,
                       "{'query':{'shape':[1,1,1,1],'dtype':'float32','data':'%s'}}", bad[i].data);
        reading_refuse(body, INVALID, "/query/data", bad[i].says);
    }
    reading_refuse("{'query':{'data':'AACA\nPw=='}}", INVALID, "/query/data", "control character");
    reading_expect("{'lengths':{'shape':[1],'dtype':'int32','data':'\\u002f\\/\\/\\u002F\\/w=='}}",
                   "lengths [1]: -1");
}

static void large_data_is_used_in_place(void **state)
{
    enum { N = 100000 };
    float *x = malloc(N * sizeof *x);
    char *body = malloc(2 * N * sizeof *x + 200);

    (void)state;
    assert_non_null(x);
    assert_non_null(body);
    for (size_t i = 0; i < N; i++)
        x[i] = (float)i / 7;
    int n =
        sprintf(body, "{\"inputs_embeds\":{\"shape\":[1,%d],\"dtype\":\"float32\",\"data\":\"", N);
    attn_base64_encode(body + n, x, N * sizeof *x);
    strcpy(body + n + ATTN_BASE64_ENCODED(N * sizeof *x), "\"}}");
    size_t length = strlen(body);
    srv_json_reader *r = NULL;
    assert_int_equal(srv_json_reader_new(&r, reading_fields, reading_num_fields, NULL, NULL, NULL),
                     ATTN_OK);
    for (size_t at = 0; at < length; at += 1000)
        assert_int_equal(
            srv_json_reader_feed(r, body + at, length - at < 1000 ? length - at : 1000, NULL),
            ATTN_OK);
    assert_int_equal(srv_json_reader_finish(r, NULL), ATTN_OK);
    const srv_array *a = srv_json_reader_array(r, 0);
    assert_int_equal(a->count, N);
    assert_memory_equal(a->data.f32, x, N * sizeof *x);
    assert_int_equal(srv_json_reader_charged(r), N * sizeof *x);
    srv_json_reader_free(r);
    free(body);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float32_is_read_as_it_is),
        cmocka_unit_test(narrower_and_wider_floats_are_converted),
        cmocka_unit_test(masks_are_bytes_or_integers_of_0_and_1),
        cmocka_unit_test(integers_are_widened),
        cmocka_unit_test(empty_tensors_have_their_shape),
        cmocka_unit_test(dtypes_that_a_field_cannot_hold_are_refused),
        cmocka_unit_test(members_stand_in_any_order_and_each_once),
        cmocka_unit_test(dimensions_are_plain_integers),
        cmocka_unit_test(d16_bytes_must_fit_shape_and_dtype),
        cmocka_unit_test(a_wrong_rank_is_a_shape_error),
        cmocka_unit_test(data_is_strict_base64),
        cmocka_unit_test(large_data_is_used_in_place)};
    return cmocka_run_group_tests_name("json_object", tests, NULL, NULL);
}

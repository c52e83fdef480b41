#include "core/tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The value of a half by its definition, in arithmetic alone. */
static double half_by_definition(uint16_t bits)
{
    int exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
    double sign = (bits & 0x8000) != 0 ? -1 : 1;

    if (exponent == 31)
        return fraction != 0 ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, -24);
    return sign * ldexp(1024 + fraction, exponent - 25);
}

static void every_f16_widens_to_its_definition(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        double want = half_by_definition((uint16_t)bits);
        float got = attn_f16_to_f32((uint16_t)bits);
        if (isnan(want)) {
            assert_true(isnan(got));
        } else {
            assert_true((double)got == want);
            assert_int_equal(signbit(got) != 0, bits >> 15);
        }
    }
}

static void b10_named_halves_and_brain_floats_are_exact(void **state)
{
    (void)state;
    assert_true(attn_bf16_to_f32(0x3f80) == 1.0f);
    assert_true(attn_bf16_to_f32(0x4049) == 3.140625f);
    assert_true(attn_bf16_to_f32(0x8000) == 0.0f && signbit(attn_bf16_to_f32(0x8000)));
    assert_true(attn_bf16_to_f32(0x0001) == 0x1p-133f);
    assert_true(attn_bf16_to_f32(0xff80) == -INFINITY);
    assert_true(isnan(attn_bf16_to_f32(0x7fc0)));
    assert_true(attn_f16_to_f32(0x0001) == 5.9604645e-08f);
    assert_true(attn_f16_to_f32(0x7bff) == 65504.0f);
    assert_true(attn_f16_to_f32(0x3555) == 0.33325195f);
    assert_true(attn_f16_to_f32(0x3f80) == 1.875f);
}

static void b07_any_alignment_widens_to_the_same_values(void **state)
{
    static const struct {
        attn_dtype dtype;
        unsigned char bytes[16];
    } two[] = {
        /* 1.5 and -0.25 in each type */
        {ATTN_F32, {0, 0, 0xc0, 0x3f, 0, 0, 0x80, 0xbe}},
        {ATTN_F16, {0, 0x3e, 0, 0xb4}},
        {ATTN_BF16, {0xc0, 0x3f, 0x80, 0xbe}},
        {ATTN_F64, {0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0, 0, 0, 0, 0, 0, 0xd0, 0xbf}},
    };
    (void)state;
    for (size_t k = 0; k < sizeof two / sizeof *two; k++) {
        size_t bytes = 2 * attn_dtype_size(two[k].dtype);
        for (size_t shift = 0; shift < 8; shift++) {
            unsigned char *at = malloc(shift + bytes);
            float out[2] = {0};
            assert_non_null(at);
            memcpy(at + shift, two[k].bytes, bytes);
            assert_int_equal(attn_widen(out, at + shift, 2, two[k].dtype, NULL), ATTN_OK);
            assert_true(out[0] == 1.5f && out[1] == -0.25f);
            free(at);
        }
    }
}

static void f64_rounds_to_nearest_and_keeps_infinity_and_nan(void **state)
{
    const double in[] = {0.1, -1e-320, 0x1.fffffep127, 0x1.fffffefffp127, INFINITY, NAN, 1e-46};
    float out[7];
    (void)state;
    assert_int_equal(attn_widen(out, in, 7, ATTN_F64, NULL), ATTN_OK);
    assert_true(out[0] == 0.1f);
    assert_true(out[1] == 0 && signbit(out[1]));
    assert_true(out[2] == 0x1.fffffep127f && out[3] == 0x1.fffffep127f);
    assert_true(out[4] == INFINITY);
    assert_true(isnan(out[5]));
    assert_true(out[6] == 0);
}

static void b11_f64_beyond_float32_is_refused_with_index_and_value(void **state)
{
    const double high[] = {1, 2, -1e39}, half_over[] = {0x1.ffffffp127};
    float out[3];
    attn_error err = {0};
    (void)state;
    assert_int_equal(attn_widen(out, high, 3, ATTN_F64, &err), ATTN_EINVAL);
    assert_string_equal(err.text, "element 2 is -1e+39, beyond float32");
    assert_int_equal(attn_widen(out, half_over, 1, ATTN_F64, NULL), ATTN_EINVAL);
}

static void only_the_four_float_types_widen(void **state)
{
    const unsigned char in[8] = {0};
    float out[1] = {7};
    (void)state;
    for (attn_dtype d = ATTN_BOOL; d <= ATTN_OTHER; d++) {
        attn_error err = {0};
        assert_int_equal(attn_widen(out, in, 1, d, &err), ATTN_EUNSUPPORTED);
        assert_non_null(strstr(err.text, attn_dtype_name(d)));
    }
    assert_true(out[0] == 7);
}

static void no_elements_widen_without_memory(void **state)
{
    (void)state;
    for (attn_dtype d = ATTN_F32; d <= ATTN_F64; d++)
        assert_int_equal(attn_widen(NULL, NULL, 0, d, NULL), ATTN_OK);
}

static void names_and_sizes_of_types_agree(void **state)
{
    static const struct {
        const char *name;
        size_t size;
    } want[] = {{"float32", 4}, {"float16", 2}, {"bfloat16", 2}, {"float64", 8}, {"bool", 1},
                {"int8", 1},    {"uint8", 1},   {"int16", 2},    {"uint16", 2},  {"int32", 4},
                {"uint32", 4},  {"int64", 8},   {"uint64", 8}};
    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        attn_dtype d = ATTN_OTHER;
        assert_true(attn_dtype_parse(want[i].name, &d));
        assert_int_equal(d, i);
        assert_string_equal(attn_dtype_name(d), want[i].name);
        assert_int_equal(attn_dtype_size(d), want[i].size);
    }
    attn_dtype d = ATTN_I64;
    assert_false(attn_dtype_parse("other", &d));
    assert_false(attn_dtype_parse("F32", &d));
    assert_false(attn_dtype_parse("", &d));
    assert_int_equal(d, ATTN_I64);
    assert_int_equal(attn_dtype_size(ATTN_OTHER), 0);
    assert_string_equal(attn_dtype_name(ATTN_OTHER), "other");
}

static void narrowing_to_f16_is_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) { /* every value, and what lies around it */
        float x = attn_f16_to_f32((uint16_t)bits);
        if (isnan(x)) {
            assert_true(isnan(attn_f16_to_f32(attn_f32_to_f16(x))));
            continue;
        }
        assert_int_equal(attn_f32_to_f16(x), bits);
        if (isinf(x))
            continue;
        float next = attn_f16_to_f32((uint16_t)(bits + 1)), half = x + (next - x) / 2;
        if (isinf(next)) { /* the largest: nothing finite is beyond */
            assert_int_equal(attn_f32_to_f16(copysignf(3e38F, x)), bits);
            continue;
        }
        if ((bits & 0x7fff) == 0x7fff)
            continue;
        assert_int_equal(attn_f32_to_f16(half), bits % 2 == 0 ? bits : bits + 1);
        assert_int_equal(attn_f32_to_f16(nextafterf(half, x)), bits);
        assert_int_equal(attn_f32_to_f16(nextafterf(half, next)), bits + 1);
    }
    assert_int_equal(attn_f32_to_f16(1e-30F), 0);
    assert_int_equal(attn_f32_to_f16(-0.0F), 0x8000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_widens_to_its_definition),
        cmocka_unit_test(narrowing_to_f16_is_to_nearest_even),
        cmocka_unit_test(b10_named_halves_and_brain_floats_are_exact),
        cmocka_unit_test(b07_any_alignment_widens_to_the_same_values),
        cmocka_unit_test(f64_rounds_to_nearest_and_keeps_infinity_and_nan),
        cmocka_unit_test(b11_f64_beyond_float32_is_refused_with_index_and_value),
        cmocka_unit_test(only_the_four_float_types_widen),
        cmocka_unit_test(no_elements_widen_without_memory),
        cmocka_unit_test(names_and_sizes_of_types_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "tensor.h"

#include <math.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "stored tensors are copied as they are");

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [ATTN_F32] = {"float32", 4}, [ATTN_F16] = {"float16", 2}, [ATTN_BF16] = {"bfloat16", 2},
    [ATTN_F64] = {"float64", 8}, [ATTN_BOOL] = {"bool", 1},   [ATTN_I8] = {"int8", 1},
    [ATTN_U8] = {"uint8", 1},    [ATTN_I16] = {"int16", 2},   [ATTN_U16] = {"uint16", 2},
    [ATTN_I32] = {"int32", 4},   [ATTN_U32] = {"uint32", 4},  [ATTN_I64] = {"int64", 8},
    [ATTN_U64] = {"uint64", 8},  [ATTN_OTHER] = {"other", 0},
};

size_t attn_dtype_size(attn_dtype dtype)
{
    return dtypes[dtype].size;
}

const char *attn_dtype_name(attn_dtype dtype)
{
    return dtypes[dtype].name;
}

bool attn_dtype_parse(const char *name, attn_dtype *out)
{
    for (attn_dtype d = ATTN_F32; d < ATTN_OTHER; d++) {
        if (strcmp(dtypes[d].name, name) == 0) {
            *out = d;
            return true;
        }
    }
    return false;
}

static float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Both the normal and the subnormal result are made and one is chosen: a branch on the exponent took
 * twice the time where the two are mixed. */
float attn_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t magnitude = (uint32_t)(bits & 0x7fffu) << 13; /* fraction and exponent in place */
    uint32_t exponent = magnitude & (0x1fu << 23);
    uint32_t special = exponent == 0x1fu << 23 ? 112u << 23 : 0; /* infinity, NaN: all bits set */
    uint32_t normal = magnitude + (112u << 23) + special;        /* bias 15 becomes 127 */
    float subnormal = float_of_bits(magnitude + (113u << 23)) - 0x1p-14f; /* exact */
    uint32_t small = 0;

    memcpy(&small, &subnormal, sizeof small);
    return float_of_bits(sign | (exponent == 0 ? small : normal));
}

/* Adding a number of the right size rounds, to nearest even, where float16 has its last bit. */
uint16_t attn_f32_to_f16(float x)
{
    uint32_t bits = 0;

    memcpy(&bits, &x, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (bits == 0x7f800000u)
        return (uint16_t)(sign | 0x7c00u);
    if (bits >= 0x477fe000u) /* 65504 */
        return (uint16_t)(sign | 0x7bffu);
    if (bits < 0x38800000u) { /* subnormal: multiples of 2^-24 */
        float sum = float_of_bits(bits) + 0.5F;
        uint32_t small = 0;
        memcpy(&small, &sum, sizeof small);
        return (uint16_t)(sign | (small - 0x3f000000u));
    }
    bits += 0xfffu + (bits >> 13 & 1u);
    return (uint16_t)(sign | (bits - (112u << 23)) >> 13);
}

float attn_bf16_to_f32(uint16_t bits)
{
    return float_of_bits((uint32_t)bits << 16);
}

static void widen_16(float *out, const unsigned char *in, size_t n, float (*widen)(uint16_t))
{
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, in + 2 * i, sizeof bits);
        out[i] = widen(bits);
    }
}

static attn_status narrow_f64(float *out, const unsigned char *in, size_t n, attn_error *err)
{
    for (size_t i = 0; i < n; i++) {
        double x;
        memcpy(&x, in + 8 * i, sizeof x);
        out[i] = (float)x;
        if (isinf(out[i]) && !isinf(x))
            return attn_fail(err, ATTN_EINVAL, "element %zu is %.10g, beyond float32", i, x);
    }
    return ATTN_OK;
}

attn_status attn_widen(float *out, const void *in, size_t n, attn_dtype dtype, attn_error *err)
{
    switch (dtype) {
    case ATTN_F32:
        if (n > 0)
            memcpy(out, in, n * sizeof *out);
        return ATTN_OK;
    case ATTN_F16:
        widen_16(out, in, n, attn_f16_to_f32);
        return ATTN_OK;
    case ATTN_BF16:
        widen_16(out, in, n, attn_bf16_to_f32);
        return ATTN_OK;
    case ATTN_F64:
        return narrow_f64(out, in, n, err);
    default:
        return attn_fail(err, ATTN_EUNSUPPORTED, "%s is not widened to float32",
                         attn_dtype_name(dtype));
    }
}

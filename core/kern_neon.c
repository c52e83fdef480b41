/* The inner loops for arm64: NEON with its fused multiply-add is in every such processor. */
#if defined(__aarch64__)

#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "kern.h"
#include "kern_unroll.h"

/* The first n of four lanes, 1 <= n <= 4; the others are zero. */
INLINE float32x4_t load_part(const float *x, size_t n)
{
    float lanes[4] = {0};
    memcpy(lanes, x, n * sizeof(float));
    return vld1q_f32(lanes);
}

INLINE void store_part(float *x, size_t n, float32x4_t v)
{
    float lanes[4];
    vst1q_f32(lanes, v);
    memcpy(x, lanes, n * sizeof(float));
}

static float row_max_neon(const float *x, size_t n)
{
    float32x4_t acc = vdupq_n_f32(-INFINITY);
    size_t i = 0;

    for (; i + 4 <= n; i += 4) /* the number of the two, where one is NaN */
        acc = vmaxnmq_f32(vld1q_f32(x + i), acc);
    float m = vmaxnmvq_f32(acc);
    for (; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

/* 2^k for integral k >= -252 in two factors, each a normal number. */
INLINE float32x4_t times_power_of_two(float32x4_t p, float32x4_t k)
{
    int32x4_t whole = vcvtq_s32_f32(k), half = vshrq_n_s32(whole, 1);
    int32x4_t rest = vsubq_s32(whole, half), bias = vdupq_n_s32(127);
    float32x4_t a = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
    float32x4_t b = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
    return vmulq_f32(vmulq_f32(p, a), b);
}

/* exp(x) for x <= 0, NaN stays: as in kern_avx512.c. */
INLINE float32x4_t exp_negative(float32x4_t x)
{
    const float32x4_t log2e = vdupq_n_f32(1.44269504F);
    const float32x4_t ln2_high = vdupq_n_f32(0.693359375F), ln2_low = vdupq_n_f32(-2.12194440e-4F);

    x = vmaxq_f32(vdupq_n_f32(-110.0F), x); /* not vmaxnm: NaN goes through */
    float32x4_t k = vrndnq_f32(vmulq_f32(x, log2e));
    float32x4_t r = vfmsq_f32(x, k, ln2_high);
    r = vfmsq_f32(r, k, ln2_low);
    float32x4_t p = vdupq_n_f32(1.0F / 5040.0F);
    p = vfmaq_f32(vdupq_n_f32(1.0F / 720.0F), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0F / 120.0F), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0F / 24.0F), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0F / 6.0F), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.5F), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0F), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0F), p, r);
    return times_power_of_two(p, k);
}

static float exp_sum_neon(float *x, size_t n, float max)
{
    float32x4_t m = vdupq_n_f32(max), sum[4];
    size_t i = 0;

    UNROLL for (size_t j = 0; j < 4; j++) sum[j] = vdupq_n_f32(0.0F);
    for (; i + 16 <= n; i += 16) { /* four chains hide the length of one */
        UNROLL for (size_t j = 0; j < 4; j++)
        {
            float32x4_t e = exp_negative(vsubq_f32(vld1q_f32(x + i + 4 * j), m));
            vst1q_f32(x + i + 4 * j, e);
            sum[j] = vaddq_f32(sum[j], e);
        }
    }
    for (; i + 4 <= n; i += 4) {
        float32x4_t e = exp_negative(vsubq_f32(vld1q_f32(x + i), m));
        vst1q_f32(x + i, e);
        sum[0] = vaddq_f32(sum[0], e);
    }
    if (i < n) {
        store_part(x + i, n - i, exp_negative(vsubq_f32(load_part(x + i, n - i), m)));
        sum[1] = vaddq_f32(sum[1], load_part(x + i, n - i));
    }
    return vaddvq_f32(vaddq_f32(vaddq_f32(sum[0], sum[1]), vaddq_f32(sum[2], sum[3])));
}

static void scale_neon(float *out, const float *x, size_t n, float factor)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4)
        vst1q_f32(out + i, vmulq_n_f32(vld1q_f32(x + i), factor));
    for (; i < n; i++)
        out[i] = x[i] * factor;
}

static bool all_finite_neon(const float *x, size_t n)
{
    const float32x4_t largest = vdupq_n_f32(0x1.fffffep127F);
    uint32x4_t good = vdupq_n_u32(UINT32_MAX);
    size_t i = 0;
    bool tail = true;

    for (; i + 4 <= n; i += 4)
        good = vandq_u32(good, vcaleq_f32(vld1q_f32(x + i), largest));
    for (; i < n; i++)
        tail = tail && isfinite(x[i]);
    return tail && vminvq_u32(good) != 0;
}

static double fma_burst_neon(size_t n)
{
    enum { CHAINS = 16 };
    const float32x4_t a = vdupq_n_f32(0.999F), b = vdupq_n_f32(0.001F);
    volatile float sink;
    float32x4_t x[CHAINS];

    for (size_t c = 0; c < CHAINS; c++)
        x[c] = b;
    for (size_t i = 0; i < n; i++) {
        /* The accumulator is overwritten by this instruction; x = b + x a would need a copy. */
        UNROLL for (size_t c = 0; c < CHAINS; c++) x[c] = vfmaq_f32(x[c], a, b);
    }
    UNROLL for (size_t c = 1; c < CHAINS; c++) x[0] = vaddq_f32(x[0], x[c]);
    sink = vaddvq_f32(x[0]);
    (void)sink;
    return 2.0 * 4 * CHAINS;
}

/* 6 rows of 4 vectors are 24 accumulators; with 4 vectors of b and one a row that is all 32 registers can
 * hold. A chunk is 16 KiB. */
enum { LANES = 4, PANEL = 16, CHUNK_FLOATS = 4096 };
#define ROWS_1              8
#define ROWS_2              12
#define ROWS_3              8
#define ROWS_4              6
#define VECTOR              float32x4_t
#define ZERO()              vdupq_n_f32(0.0F)
#define LOAD(p)             vld1q_f32(p)
#define STORE(p, v)         vst1q_f32(p, v)
#define BROADCAST(p)        broadcast(p)
#define FMA(x, b, acc)      vfmaq_f32(acc, x, b)
#define LOAD_PART(p, n)     load_part(p, n)
#define STORE_PART(p, n, v) store_part(p, n, v)
#define AHEAD(p)            (void)(p) /* processors differ; not measured */

/* Compilers would load for all rows first, and have no registers left for it. */
INLINE float32x4_t broadcast(const float *p)
{
    __asm__ volatile("" ::: "memory");
    return vld1q_dup_f32(p);
}

#include "kern_tile.h"

void attn_kern_init_neon(attn_kern *k)
{
    k->isa = "neon";
    k->panel = PANEL;
    k->lanes = LANES;
    k->rows_independent = true;
    k->product = product;
    k->row_max = row_max_neon;
    k->exp_sum = exp_sum_neon;
    k->scale = scale_neon;
    k->all_finite = all_finite_neon;
    k->fma_burst = fma_burst_neon;
}

#endif

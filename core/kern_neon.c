/* The inner loops for arm64: NEON with its fused multiply-add is in every such processor. */
#if defined(__aarch64__)

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>
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

/* As in kern_avx2.c. */
INLINE float32x4_t exp_negative(float32x4_t x)
{
    float32x4_t t = vmulq_n_f32(x, 1.44269504F);
    t = vmaxq_f32(vdupq_n_f32(-127.0F), t); /* not vmaxnm: NaN goes through */
    float32x4_t k = vrndnq_f32(t), r = vsubq_f32(t, k);
    float32x4_t p = vdupq_n_f32(0.00015353362F);
    p = vfmaq_f32(vdupq_n_f32(0.0013398875F), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.00961843692F), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.0555033237F), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.240226477F), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.693147182F), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0F), p, r);
    int32x4_t biased = vaddq_s32(vcvtq_s32_f32(k), vdupq_n_s32(127));
    return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(biased, 23)));
}

static void transpose(float *out, size_t out_stride, const float *in, size_t in_stride, size_t rows,
                      size_t columns)
{
    for (size_t r = 0; r < rows; r += 4) {
        for (size_t c = 0; c < columns; c += 4) {
            float *to = out + c * out_stride + r;
            const float *from = in + r * in_stride + c;
            if (rows - r < 4 || columns - c < 4) {
                attn_transpose_plain(to, out_stride, from, in_stride, rows - r < 4 ? rows - r : 4,
                                     columns - c < 4 ? columns - c : 4);
                continue;
            }
            float32x4x2_t low = vtrnq_f32(vld1q_f32(from), vld1q_f32(from + in_stride));
            float32x4x2_t high =
                vtrnq_f32(vld1q_f32(from + 2 * in_stride), vld1q_f32(from + 3 * in_stride));
            for (size_t i = 0; i < 2; i++) {
                float32x4_t x = low.val[i], y = high.val[i];
                vst1q_f32(to + i * out_stride, vcombine_f32(vget_low_f32(x), vget_low_f32(y)));
                vst1q_f32(to + (i + 2) * out_stride,
                          vcombine_f32(vget_high_f32(x), vget_high_f32(y)));
            }
        }
    }
}

/* 6 rows of 4 vectors are 24 accumulators; with 4 vectors of b and one a row that is all 32 registers can
 * hold. A chunk is 16 KiB. */
enum { LANES = 4, PANEL = 16, CHUNK_FLOATS = 4096, CHAINS = 16 };
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
#define SPLAT(f)            vdupq_n_f32(f)
#define ADD(a, b)           vaddq_f32(a, b)
#define SUB(a, b)           vsubq_f32(a, b)
#define MUL(a, b)           vmulq_f32(a, b)
#define MAX(x, acc)         vmaxnmq_f32(x, acc)
#define MIN(a, b)           vminq_f32(a, b)
#define ABS(v)              vabsq_f32(v)
#define DIV(a, b)           vdivq_f32(a, b)
#define EXP(x)              exp_negative(x)
#define MAX_OF(v)           vmaxnmvq_f32(v)
#define SUM_OF(v)           vaddvq_f32(v)
#define STREAM(p, v)        vst1q_f32(p, v) /* there is no such store that helps */
#define FENCE()             (void)0

/* Compilers would load for all rows first, and have no registers left for it. */
INLINE float32x4_t broadcast(const float *p)
{
    __asm__ volatile("" ::: "memory");
    return vld1q_dup_f32(p);
}

#include "kern_tile.h"

#include "kern_rows.h"

#include "kern_layer.h"

void attn_kern_init_neon(attn_kern *k)
{
    *k = (attn_kern){KERN_TABLE("neon")};
}

#endif

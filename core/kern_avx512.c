/* The inner loops for AVX-512. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>

#include "kern.h"
#include "kern_unroll.h"

static __mmask16 tail_mask(size_t n)
{
    return (__mmask16)((1U << n) - 1U); /* n < 16 */
}

static float row_max_avx512(const float *x, size_t n)
{
    __m512 acc = _mm512_set1_ps(-INFINITY);
    size_t i = 0;

    for (; i + 16 <= n; i += 16) /* maxps gives operand two on NaN: x first skips NaN */
        acc = _mm512_max_ps(_mm512_loadu_ps(x + i), acc);
    __mmask16 tail = tail_mask(n - i);
    acc = _mm512_mask_max_ps(acc, tail, _mm512_maskz_loadu_ps(tail, x + i), acc);
    return _mm512_reduce_max_ps(acc);
}

/* exp(x) for x <= 0, NaN stays: 2^k * e^r with |r| <= ln2/2, e^r by its Taylor polynomial of degree 7
 * (remainder 5e-9 relative). Below -110 the result rounds to 0, so that is where x is held; -Infinity
 * thus gives exactly 0. */
static __m512 exp_negative(__m512 x)
{
    const __m512 log2e = _mm512_set1_ps(1.44269504F);
    const __m512 ln2_high = _mm512_set1_ps(0.693359375F), ln2_low = _mm512_set1_ps(-2.12194440e-4F);

    x = _mm512_max_ps(_mm512_set1_ps(-110.0F), x); /* x second: NaN goes through */
    __m512 k = _mm512_roundscale_ps(_mm512_mul_ps(x, log2e),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(k, ln2_high, x);
    r = _mm512_fnmadd_ps(k, ln2_low, r);
    __m512 p = _mm512_set1_ps(1.0F / 5040.0F);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 720.0F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 120.0F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 24.0F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 6.0F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
    return _mm512_scalef_ps(p, k);
}

static float exp_sum_avx512(float *x, size_t n, float max)
{
    __m512 m = _mm512_set1_ps(max), sum0 = _mm512_setzero_ps(), sum1 = _mm512_setzero_ps();
    size_t i = 0;

    for (; i + 32 <= n; i += 32) {
        __m512 a = exp_negative(_mm512_sub_ps(_mm512_loadu_ps(x + i), m));
        __m512 b = exp_negative(_mm512_sub_ps(_mm512_loadu_ps(x + i + 16), m));
        _mm512_storeu_ps(x + i, a);
        _mm512_storeu_ps(x + i + 16, b);
        sum0 = _mm512_add_ps(sum0, a);
        sum1 = _mm512_add_ps(sum1, b);
    }
    for (; i < n; i += 16) {
        __mmask16 part = n - i < 16 ? tail_mask(n - i) : 0xffff;
        __m512 a = exp_negative(_mm512_sub_ps(_mm512_maskz_loadu_ps(part, x + i), m));
        _mm512_mask_storeu_ps(x + i, part, a);
        sum0 = _mm512_mask_add_ps(sum0, part, sum0, a);
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(sum0, sum1));
}

static void scale_avx512(float *out, const float *x, size_t n, float factor)
{
    __m512 f = _mm512_set1_ps(factor);
    size_t i = 0;

    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_loadu_ps(x + i), f));
    __mmask16 tail = tail_mask(n - i);
    _mm512_mask_storeu_ps(out + i, tail, _mm512_mul_ps(_mm512_maskz_loadu_ps(tail, x + i), f));
}

static bool all_finite_avx512(const float *x, size_t n)
{
    __mmask16 bad = 0;
    size_t i = 0;

    enum { NAN_OR_INF = 0x01 | 0x08 | 0x10 | 0x80 }; /* quiet NaN, +Inf, -Inf, signaling NaN */
    for (; i + 16 <= n; i += 16)
        bad |= _mm512_fpclass_ps_mask(_mm512_loadu_ps(x + i), NAN_OR_INF);
    bad |= _mm512_fpclass_ps_mask(_mm512_maskz_loadu_ps(tail_mask(n - i), x + i), NAN_OR_INF);
    return bad == 0;
}

static double fma_burst_avx512(size_t n)
{
    enum { CHAINS = 16 };
    const __m512 a = _mm512_set1_ps(0.999F), b = _mm512_set1_ps(0.001F);
    volatile float sink;
    __m512 x[CHAINS];

    for (size_t c = 0; c < CHAINS; c++)
        x[c] = b;
    for (size_t i = 0; i < n; i++) {
        UNROLL
        for (size_t c = 0; c < CHAINS; c++)
            x[c] = _mm512_fmadd_ps(x[c], a, b);
    }
    for (size_t c = 1; c < CHAINS; c++)
        x[0] = _mm512_add_ps(x[0], x[c]);
    sink = _mm512_reduce_add_ps(x[0]);
    (void)sink;
    return 2.0 * 16 * CHAINS;
}

/* 6 rows of 4 vectors are 24 accumulators of 32 registers; a chunk is 256 KiB: the second cache keeps up
 * with the tiles (measured: 186, 186, 190 and 198 GFLOP/s at 64, 128, 192 and 256 KiB, [128,768] by [768,2304]). */
enum { LANES = 16, PANEL = 64, CHUNK_FLOATS = 65536 };
#define ROWS_1              12
#define ROWS_2              12
#define ROWS_3              8
#define ROWS_4              6
#define VECTOR              __m512
#define ZERO()              _mm512_setzero_ps()
#define LOAD(p)             _mm512_loadu_ps(p)
#define STORE(p, v)         _mm512_storeu_ps(p, v)
#define BROADCAST(p)        _mm512_set1_ps(*(p))
#define FMA(x, b, acc)      _mm512_fmadd_ps(x, b, acc)
#define LOAD_PART(p, n)     _mm512_maskz_loadu_ps(tail_mask(n), p)
#define STORE_PART(p, n, v) _mm512_mask_storeu_ps(p, tail_mask(n), v)
#define AHEAD(p)            _mm_prefetch((const char *)(p), _MM_HINT_T1)

#include "kern_tile.h"

void attn_kern_init_avx512(attn_kern *k)
{
    k->isa = "avx512";
    k->panel = PANEL;
    k->lanes = LANES;
    k->rows_independent = true;
    k->product = product;
    k->row_max = row_max_avx512;
    k->exp_sum = exp_sum_avx512;
    k->scale = scale_avx512;
    k->all_finite = all_finite_avx512;
    k->fma_burst = fma_burst_avx512;
}

#endif

/* The inner loops for AVX2 with FMA. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>

#include "kern.h"
#include "kern_unroll.h"

/* The first n of eight lanes; n <= 8. */
static __m256i lanes(size_t n)
{
    static const int table[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i_u *)(const void *)(table + 8 - n));
}

static float max_of(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
    return _mm_cvtss_f32(m);
}

static float sum_of(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_shuffle_ps(s, s, 1));
    return _mm_cvtss_f32(s);
}

static float row_max_avx2(const float *x, size_t n)
{
    __m256 acc = _mm256_set1_ps(-INFINITY);
    size_t i = 0;

    for (; i + 8 <= n; i += 8) /* maxps gives operand two on NaN: x first skips NaN */
        acc = _mm256_max_ps(_mm256_loadu_ps(x + i), acc);
    float m = max_of(acc);
    for (; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

/* 2^k for integral k >= -252 in two factors, each a normal number. */
static __m256 times_power_of_two(__m256 p, __m256 k)
{
    __m256i whole = _mm256_cvtps_epi32(k), half = _mm256_srai_epi32(whole, 1);
    __m256i rest = _mm256_sub_epi32(whole, half), bias = _mm256_set1_epi32(127);
    __m256 a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    __m256 b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(p, a), b);
}

/* exp(x) for x <= 0, NaN stays: as in kern_avx512.c. */
static __m256 exp_negative(__m256 x)
{
    const __m256 log2e = _mm256_set1_ps(1.44269504F);
    const __m256 ln2_high = _mm256_set1_ps(0.693359375F), ln2_low = _mm256_set1_ps(-2.12194440e-4F);

    x = _mm256_max_ps(_mm256_set1_ps(-110.0F), x); /* x second: NaN goes through */
    __m256 k =
        _mm256_round_ps(_mm256_mul_ps(x, log2e), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(k, ln2_high, x);
    r = _mm256_fnmadd_ps(k, ln2_low, r);
    __m256 p = _mm256_set1_ps(1.0F / 5040.0F);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 720.0F));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 120.0F));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 24.0F));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 6.0F));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5F));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F));
    return times_power_of_two(p, k);
}

static float exp_sum_avx2(float *x, size_t n, float max)
{
    __m256 m = _mm256_set1_ps(max), sum0 = _mm256_setzero_ps(), sum1 = _mm256_setzero_ps();
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        __m256 a = exp_negative(_mm256_sub_ps(_mm256_loadu_ps(x + i), m));
        __m256 b = exp_negative(_mm256_sub_ps(_mm256_loadu_ps(x + i + 8), m));
        _mm256_storeu_ps(x + i, a);
        _mm256_storeu_ps(x + i + 8, b);
        sum0 = _mm256_add_ps(sum0, a);
        sum1 = _mm256_add_ps(sum1, b);
    }
    for (; i < n; i += 8) {
        __m256i part = lanes(n - i < 8 ? n - i : 8);
        __m256 a = exp_negative(_mm256_sub_ps(_mm256_maskload_ps(x + i, part), m));
        _mm256_maskstore_ps(x + i, part, a);
        sum0 = _mm256_add_ps(sum0, _mm256_and_ps(a, _mm256_castsi256_ps(part)));
    }
    return sum_of(_mm256_add_ps(sum0, sum1));
}

static void scale_avx2(float *out, const float *x, size_t n, float factor)
{
    __m256 f = _mm256_set1_ps(factor);
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), f));
    for (; i < n; i++)
        out[i] = x[i] * factor;
}

static bool all_finite_avx2(const float *x, size_t n)
{
    const __m256 largest = _mm256_castsi256_ps(_mm256_set1_epi32(0x7f7fffff));
    const __m256 sign = _mm256_set1_ps(-0.0F);
    __m256 good = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    size_t i = 0;
    bool tail = true;

    for (; i + 8 <= n; i += 8) {
        __m256 magnitude = _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i));
        good = _mm256_and_ps(good, _mm256_cmp_ps(magnitude, largest, _CMP_LE_OQ));
    }
    for (; i < n; i++)
        tail = tail && isfinite(x[i]);
    return tail && _mm256_movemask_ps(good) == 0xff;
}

static double fma_burst_avx2(size_t n)
{
    enum { CHAINS = 12 };
    const __m256 a = _mm256_set1_ps(0.999F), b = _mm256_set1_ps(0.001F);
    volatile float sink;
    __m256 x[CHAINS];

    for (size_t c = 0; c < CHAINS; c++)
        x[c] = b;
    for (size_t i = 0; i < n; i++) {
        UNROLL for (size_t c = 0; c < CHAINS; c++) x[c] = _mm256_fmadd_ps(x[c], a, b);
    }
    UNROLL for (size_t c = 1; c < CHAINS; c++) x[0] = _mm256_add_ps(x[0], x[c]);
    sink = sum_of(x[0]);
    (void)sink;
    return 2.0 * 8 * CHAINS;
}

/* 6 rows of 2 vectors are 12 accumulators of 16 registers; a chunk is 16 KiB. */
enum { LANES = 8, PANEL = 16, CHUNK_FLOATS = 4096 };
#define ROWS_1              12
#define ROWS_2              6
#define VECTOR              __m256
#define ZERO()              _mm256_setzero_ps()
#define LOAD(p)             _mm256_loadu_ps(p)
#define STORE(p, v)         _mm256_storeu_ps(p, v)
#define BROADCAST(p)        _mm256_broadcast_ss(p)
#define FMA(x, b, acc)      _mm256_fmadd_ps(x, b, acc)
#define LOAD_PART(p, n)     _mm256_maskload_ps(p, lanes(n))
#define STORE_PART(p, n, v) _mm256_maskstore_ps(p, lanes(n), v)
#define AHEAD(p)            _mm_prefetch((const char *)(p), _MM_HINT_T1)

#include "kern_tile.h"

void attn_kern_init_avx2(attn_kern *k)
{
    k->isa = "avx2";
    k->panel = PANEL;
    k->lanes = LANES;
    k->rows_independent = true;
    k->product = product;
    k->row_max = row_max_avx2;
    k->exp_sum = exp_sum_avx2;
    k->scale = scale_avx2;
    k->all_finite = all_finite_avx2;
    k->fma_burst = fma_burst_avx2;
}

#endif

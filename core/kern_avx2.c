/* The inner loops for AVX2 with FMA. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

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

/* exp(x) = 2^k 2^r with k = x log2(e) to the nearest integer: 2^r by a polynomial of degree 6, 1 at 0 (largest relative
 * error 2e-9 before rounding, by reweighted least squares). Below 2^-126 the result is 0. */
INLINE __m256 exp_negative(__m256 x)
{
    const __m256 log2e = _mm256_set1_ps(1.44269504F);
    __m256 t = _mm256_mul_ps(x, log2e);
    t = _mm256_max_ps(_mm256_set1_ps(-127.0F), t); /* t second: NaN goes through */
    __m256 k = _mm256_round_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_sub_ps(t, k);
    __m256 p = _mm256_set1_ps(0.00015353362F);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.0013398875F));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.00961843692F));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.0555033237F));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.240226477F));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.693147182F));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F));
    __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(k), _mm256_set1_epi32(127));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23)));
}

static void transpose_8(float *out, size_t out_stride, const float *in, size_t in_stride)
{
    __m256 a[8], b[8];

    /* clang-format off */
    UNROLL for (size_t r = 0; r < 8; r++)
        a[r] = _mm256_loadu_ps(in + r * in_stride);
    UNROLL for (size_t r = 0; r < 8; r += 2) {
        b[r] = _mm256_unpacklo_ps(a[r], a[r + 1]);
        b[r + 1] = _mm256_unpackhi_ps(a[r], a[r + 1]);
    }
    UNROLL for (size_t r = 0; r < 8; r += 4) {
        a[r] = _mm256_shuffle_ps(b[r], b[r + 2], 0x44);
        a[r + 1] = _mm256_shuffle_ps(b[r], b[r + 2], 0xee);
        a[r + 2] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0x44);
        a[r + 3] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0xee);
    } /* half g of a[4q + c] is now rows 4q .. 4q+3 of column 4g + c */
    UNROLL for (size_t c = 0; c < 4; c++) {
        _mm256_storeu_ps(out + c * out_stride, _mm256_permute2f128_ps(a[c], a[4 + c], 0x20));
        _mm256_storeu_ps(out + (4 + c) * out_stride, _mm256_permute2f128_ps(a[c], a[4 + c], 0x31));
    }
    /* clang-format on */
}

static void transpose(float *out, size_t out_stride, const float *in, size_t in_stride, size_t rows,
                      size_t columns)
{
    for (size_t r = 0; r < rows; r += 8) {
        for (size_t c = 0; c < columns; c += 8) {
            float *to = out + c * out_stride + r;
            const float *from = in + r * in_stride + c;
            if (rows - r >= 8 && columns - c >= 8)
                transpose_8(to, out_stride, from, in_stride);
            else
                attn_transpose_plain(to, out_stride, from, in_stride, rows - r < 8 ? rows - r : 8,
                                     columns - c < 8 ? columns - c : 8);
        }
    }
}

/* 6 rows of 2 vectors are 12 accumulators of 16 registers; a chunk is 16 KiB. */
enum { LANES = 8, PANEL = 16, CHUNK_FLOATS = 4096, CHAINS = 12 };
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
#define SPLAT(f)            _mm256_set1_ps(f)
#define ADD(a, b)           _mm256_add_ps(a, b)
#define SUB(a, b)           _mm256_sub_ps(a, b)
#define MUL(a, b)           _mm256_mul_ps(a, b)
#define MAX(x, acc)         _mm256_max_ps(x, acc) /* gives operand two on NaN */
#define MIN(a, b)           _mm256_min_ps(a, b)
#define ABS(v)              _mm256_andnot_ps(_mm256_set1_ps(-0.0F), v)
#define DIV(a, b)           _mm256_div_ps(a, b)
#define EXP(x)              exp_negative(x)
#define MAX_OF(v)           max_of(v)
#define SUM_OF(v)           sum_of(v)
#define STREAM(p, v)        _mm256_stream_ps(p, v)
#define FENCE()             _mm_sfence()

#include "kern_tile.h"

#include "kern_rows.h"

#include "kern_layer.h"

void attn_kern_init_avx2(attn_kern *k)
{
    *k = (attn_kern){KERN_TABLE("avx2")};
}

#endif

/* The inner loops for AVX-512. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#include "kern.h"
#include "kern_unroll.h"

static __mmask16 first_lanes(size_t n)
{
    return (__mmask16)((1U << n) - 1U); /* n <= 16 */
}

/* exp(x) = 2^t with t = x log2(e): 2^floor(t) times a polynomial of degree 6 in the rest, 1 at 0 (largest
 * relative error 2e-9 before rounding, by reweighted least squares). Rounding t adds 6e-8 |x|. */
INLINE __m512 exp_negative(__m512 x)
{
    enum { FLOOR = 0x09 };
    __m512 t = _mm512_mul_ps(x, _mm512_set1_ps(1.44269504F));
    __m512 r = _mm512_reduce_ps(t, FLOOR); /* 0 for -Infinity */
    __m512 p = _mm512_set1_ps(0.000216129149F);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.00124678458F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.00967545155F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.0554852821F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.240229309F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693147063F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
    return _mm512_scalef_ps(p, t); /* which takes the floor itself */
}

/* 16 by 16: rows are read where there are any, columns are written where there are any. */
static void transpose_block(float *out, size_t out_stride, const float *in, size_t in_stride,
                            size_t rows, size_t columns)
{
    __m512 a[16], b[16];
    __mmask16 some = first_lanes(columns), written = first_lanes(rows);

    /* clang-format off */
    UNROLL for (size_t r = 0; r < 16; r++)
        a[r] = r < rows ? _mm512_maskz_loadu_ps(some, in + r * in_stride) : _mm512_setzero_ps();
    UNROLL for (size_t r = 0; r < 16; r += 2) {
        b[r] = _mm512_unpacklo_ps(a[r], a[r + 1]);
        b[r + 1] = _mm512_unpackhi_ps(a[r], a[r + 1]);
    }
    UNROLL for (size_t r = 0; r < 16; r += 4) {
        for (size_t h = 0; h < 2; h++) {
            __m512d x = _mm512_castps_pd(b[r + h]), y = _mm512_castps_pd(b[r + h + 2]);
            a[r + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            a[r + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    } /* lane group g of a[4q + c] is now rows 4q .. 4q+3 of column 4g + c */
    UNROLL for (size_t c = 0; c < 4; c++) {
        __m512 low = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x88);
        __m512 high = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xdd);
        __m512 low2 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x88);
        __m512 high2 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xdd);
        b[c] = _mm512_shuffle_f32x4(low, low2, 0x88);
        b[8 + c] = _mm512_shuffle_f32x4(low, low2, 0xdd);
        b[4 + c] = _mm512_shuffle_f32x4(high, high2, 0x88);
        b[12 + c] = _mm512_shuffle_f32x4(high, high2, 0xdd);
    }
    UNROLL for (size_t c = 0; c < 16; c++) {
        if (c < columns)
            _mm512_mask_storeu_ps(out + c * out_stride, written, b[c]);
    }
    /* clang-format on */
}

static void transpose(float *out, size_t out_stride, const float *in, size_t in_stride, size_t rows,
                      size_t columns)
{
    for (size_t r = 0; r < rows; r += 16) {
        for (size_t c = 0; c < columns; c += 16)
            transpose_block(out + c * out_stride + r, out_stride, in + r * in_stride + c, in_stride,
                            rows - r < 16 ? rows - r : 16, columns - c < 16 ? columns - c : 16);
    }
}

/* 6 rows of 4 vectors are 24 accumulators of 32 registers; a chunk is 256 KiB: the second cache keeps up
 * with the tiles (measured: 186, 186, 190 and 198 GFLOP/s at 64, 128, 192 and 256 KiB, [128,768] by [768,2304]). */
enum { LANES = 16, PANEL = 64, CHUNK_FLOATS = 65536, CHAINS = 16 };
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
#define LOAD_PART(p, n)     _mm512_maskz_loadu_ps(first_lanes(n), p)
#define STORE_PART(p, n, v) _mm512_mask_storeu_ps(p, first_lanes(n), v)
#define AHEAD(p)            _mm_prefetch((const char *)(p), _MM_HINT_T1)
#define SPLAT(f)            _mm512_set1_ps(f)
#define ADD(a, b)           _mm512_add_ps(a, b)
#define SUB(a, b)           _mm512_sub_ps(a, b)
#define MUL(a, b)           _mm512_mul_ps(a, b)
#define MAX(x, acc)         _mm512_max_ps(x, acc) /* gives operand two on NaN */
#define MIN(a, b)           _mm512_min_ps(a, b)
#define ABS(v)              _mm512_abs_ps(v)
#define DIV(a, b)           _mm512_div_ps(a, b)
#define EXP(x)              exp_negative(x)
#define MAX_OF(v)           _mm512_reduce_max_ps(v)
#define SUM_OF(v)           _mm512_reduce_add_ps(v)
#define STREAM(p, v)        _mm512_stream_ps(p, v)
#define FENCE()             _mm_sfence()

#include "kern_tile.h"

#include "kern_rows.h"

#include "kern_layer.h"

void attn_kern_init_avx512(attn_kern *k)
{
    *k = (attn_kern){KERN_TABLE("avx512")};
}

#endif

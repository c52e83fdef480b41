#include "core/shortest.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

/* The common road of core/shortest.c, for four numbers at once as far as the digits go. They are made for
 * a block of numbers first and laid down afterwards: what is not common calls a function then, and no
 * vector has to be saved over a call. */

enum { BLOCK = 32, LANES = 4 };

typedef struct {
    _Alignas(32) uint64_t rest[BLOCK]; /* digits but the first; 0 = not a common number */
    uint8_t text[BLOCK][16];           /* nine digits, point, zero */
    uint32_t form[BLOCK];              /* offset in attn_shortest_forms[] */
} block;

static inline __m256i all(uint64_t x)
{
    return _mm256_set1_epi64x((long long)x);
}

/* Eight decimal digits of each n < 2^25, the first in the lowest byte. */
static inline __m256i eight_digits(__m256i n)
{
    __m256i high = _mm256_srli_epi64(_mm256_mul_epu32(n, all(3518437209)), 45); /* n / 10000 */
    __m256i low = _mm256_sub_epi64(n, _mm256_mul_epu32(high, all(10000)));
    __m256i x = _mm256_or_si256(high, _mm256_slli_epi64(low, 32));

    high = _mm256_srli_epi16(_mm256_mulhi_epu16(x, _mm256_set1_epi16(5243)), 3); /* / 100 */
    low = _mm256_sub_epi16(x, _mm256_mullo_epi16(high, _mm256_set1_epi16(100)));
    x = _mm256_or_si256(high, _mm256_slli_epi32(low, 16));
    high = _mm256_mulhi_epu16(x, _mm256_set1_epi16(6554)); /* / 10 */
    /* high + ((x - 10 * high) << 8) */
    return _mm256_add_epi16(_mm256_slli_epi16(x, 8),
                            _mm256_mullo_epi16(high, _mm256_set1_epi16(1 - (10 << 8))));
}

/* One bits for the common numbers. */
static inline __m128i are_common(__m128i bits, __m128i e)
{
    __m128i power_of_two = _mm_cmpeq_epi32(_mm_slli_epi32(bits, 9), _mm_setzero_si128());
    __m128i normal = _mm_cmpgt_epi32(e, _mm_setzero_si128());
    __m128i small = _mm_cmpgt_epi32(_mm_set1_epi32(ATTN_SHORTEST_COMMON + 1), e);

    return _mm_andnot_si128(power_of_two, _mm_and_si128(normal, small));
}

static inline uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline long long scale_of(float x)
{
    return (long long)attn_shortest_scale[bits_of(x) >> 23 & 255];
}

/* Where in attn_shortest_forms[] the forms of the four are, in bytes. */
static inline __m128i offsets_of_forms(__m128i e, __m256i minus_zeros)
{
    /* e * log + 1 * bias in one step */
    __m128i form = _mm_madd_epi16(_mm_or_si128(e, _mm_set1_epi32(1 << 16)),
                                  _mm_set1_epi32(ATTN_SHORTEST_BIAS << 16 | ATTN_SHORTEST_LOG));
    __m256i evens = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    __m256i four = _mm256_permutevar8x32_epi32(minus_zeros, evens);

    form = _mm_add_epi32(_mm_srli_epi32(form, 12), _mm256_castsi256_si128(four));
    return _mm_slli_epi32(form, 5);
}
_Static_assert(sizeof(attn_shortest_form) == 1 << 5, "a form's offset is its index shifted");

static inline void make_digits(block *b, size_t i, const float *x)
{
    const uint64_t one = (uint64_t)1 << ATTN_SHORTEST_FRACTION;
    __m128i bits = _mm_loadu_si128((const __m128i *)x);
    __m128i e = _mm_and_si128(_mm_srli_epi32(bits, 23), _mm_set1_epi32(255));
    __m128i common = are_common(bits, e);

    e = _mm_and_si128(e, common);
    /* Gathering is slower on many processors. */
    __m256i scale =
        _mm256_setr_epi64x(scale_of(x[0]), scale_of(x[1]), scale_of(x[2]), scale_of(x[3]));
    __m256i c = _mm256_cvtepu32_epi64(
        _mm_or_si128(_mm_and_si128(bits, _mm_set1_epi32((1 << 23) - 1)), _mm_set1_epi32(1 << 23)));

    /* v = scale * c >> 24 */
    __m256i v =
        _mm256_add_epi64(_mm256_slli_epi64(_mm256_mul_epu32(_mm256_srli_epi64(scale, 32), c), 8),
                         _mm256_srli_epi64(_mm256_mul_epu32(scale, c), 24));
    __m256i tens = _mm256_srli_epi64(v, ATTN_SHORTEST_FRACTION);
    __m256i part = _mm256_and_si256(v, all(one - 1));
    __m256i half_step = _mm256_srli_epi64(scale, 64 - ATTN_SHORTEST_FRACTION + 1);
    __m256i below_misses = _mm256_cmpgt_epi64(part, half_step);
    __m256i above_fits = _mm256_cmpgt_epi64(_mm256_add_epi64(part, half_step), all(one - 1));
    tens = _mm256_sub_epi64(tens, above_fits);
    __m256i last = _mm256_add_epi64(_mm256_slli_epi64(part, 3), _mm256_slli_epi64(part, 1));
    __m256i to_even = _mm256_and_si256(_mm256_srli_epi64(last, ATTN_SHORTEST_FRACTION), all(1));
    last = _mm256_add_epi64(_mm256_add_epi64(last, all(one / 2 - 1)), to_even);
    last = _mm256_and_si256(_mm256_srli_epi64(last, ATTN_SHORTEST_FRACTION),
                            _mm256_andnot_si256(above_fits, below_misses));

    /* Up to two leading zeros. The ninth byte is only used without. */
    __m256i below_7 = _mm256_cmpgt_epi64(all(10000000), tens);
    __m256i minus_zeros = _mm256_add_epi64(below_7, _mm256_cmpgt_epi64(all(1000000), tens));
    __m256i shift = _mm256_slli_epi64(minus_zeros, 3), digits = eight_digits(tens);
    digits =
        _mm256_or_si256(_mm256_srlv_epi64(digits, _mm256_sub_epi64(_mm256_setzero_si256(), shift)),
                        _mm256_sllv_epi64(last, _mm256_add_epi64(all(64), shift)));
    __m256i ninth = _mm256_andnot_si256(below_7, last);
    __m256i rest = _mm256_or_si256(_mm256_srli_epi64(digits, 8), _mm256_slli_epi64(ninth, 56));
    _mm256_store_si256((__m256i *)&b->rest[i],
                       _mm256_and_si256(rest, _mm256_cvtepi32_epi64(common)));

    digits = _mm256_or_si256(digits, all(0x3030303030303030));
    ninth = _mm256_or_si256(ninth, all(0x302e30)); /* a digit, '.', '0' */
    __m256i even = _mm256_unpacklo_epi64(digits, ninth);
    __m256i odd = _mm256_unpackhi_epi64(digits, ninth);
    _mm_store_si128((__m128i *)b->text[i], _mm256_castsi256_si128(even));
    _mm_store_si128((__m128i *)b->text[i + 1], _mm256_castsi256_si128(odd));
    _mm_store_si128((__m128i *)b->text[i + 2], _mm256_extracti128_si256(even, 1));
    _mm_store_si128((__m128i *)b->text[i + 3], _mm256_extracti128_si256(odd, 1));

    _mm_store_si128((__m128i *)&b->form[i], offsets_of_forms(e, minus_zeros));
}

/* Lays down number i, x, and a comma. */
static inline char *print(const block *b, size_t i, char *p, float x)
{
    uint64_t rest = b->rest[i];
    uint32_t bits = bits_of(x);

    if (rest == 0) {
        if (bits != 0)
            return p + attn_shortest_row(p, &x, 1);
        *p++ = '0';
        *p++ = ',';
        return p;
    }
    const attn_shortest_form *f =
        (const attn_shortest_form *)((const char *)attn_shortest_forms + b->form[i]);
    unsigned n = 2 + (63 ^ (unsigned)__builtin_clzll(rest)) / 8;
    if (n <= f->point)
        return p + attn_shortest_row(p, &x, 1);
    *p = '-';
    p += bits >> 31;
    __m128i text = _mm_load_si128((const __m128i *)b->text[i]);
    text = _mm_shuffle_epi8(text, _mm_load_si128((const __m128i *)f->shuffle));
    _mm_storeu_si128((__m128i *)p, text);
    p += f->end + n;
    memcpy(p, f->behind, sizeof f->behind);
    return p + f->behind_n;
}

static inline bool are_8_zeros(const float *x)
{
    __m256i bits = _mm256_loadu_si256((const __m256i *)x);

    return _mm256_testz_si256(bits, bits);
}

size_t attn_shortest_row_avx2(char *out, const float *x, size_t n)
{
    char *p = out;
    block b;

    while (n >= LANES) {
        if (n >= 8 && are_8_zeros(x)) { /* rows of masked attention have many */
            _mm_storeu_si128((__m128i *)p, _mm_set1_epi16(',' << 8 | '0'));
            p += 16;
            x += 8;
            n -= 8;
            continue;
        }
        size_t count = n < BLOCK ? n & ~(size_t)(LANES - 1) : BLOCK;
        for (size_t i = 0; i < count; i += LANES)
            make_digits(&b, i, x + i);
        for (size_t i = 0; i < count; i++)
            p = print(&b, i, p, x[i]);
        x += count;
        n -= count;
    }
    return (size_t)(p - out) + attn_shortest_row(p, x, n);
}

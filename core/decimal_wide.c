/* Numbers of a list.
 *
 * One bit for each byte says what it is. The grammar is arithmetic on those words: adding the bit
 * of a number's first digit to the digits carries to the byte behind them, for all numbers at once.
 * The positions so found become lists of bytes, and the digits of four numbers move into one vector
 * of four lanes of 16, where they are multiplied out. */
#include "decimal.h"

#include <immintrin.h>
#include <stdint.h>

#include "wide.h"

enum { WIDTH = 64, LANES = 4, LANE = 16 };

/* 10^-x, for x that 5 bits hold. */
static const double powers[32] = {1e-0,  1e-1,  1e-2,  1e-3,  1e-4,  1e-5,  1e-6,  1e-7,
                                  1e-8,  1e-9,  1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15,
                                  1e-16, 1e-17, 1e-18, 1e-19, 1e-20, 1e-21, 1e-22, 1e-23,
                                  1e-24, 1e-25, 1e-26, 1e-27, 1e-28, 1e-29, 1e-30, 1e-31};

/* Where the numbers are, a bit for each byte. A good number has one in each word but `minus`. */
typedef struct {
    uint64_t good;     /* the comma or bracket behind it */
    uint64_t first;    /* its first digit */
    uint64_t whole;    /* behind its whole part: the point, or one of the next two */
    uint64_t mantissa; /* behind its mantissa: the e, or the next */
    uint64_t exponent; /* the first digit of its exponent, or what is behind the number */
    uint64_t end;      /* behind the number */
    uint64_t minus;    /* the bytes behind minus signs */
    uint64_t comma;
    bool exponents; /* are there any? */
} marks;

/* Masks are worked on in general registers: vectors and their masks have fewer ports. */
static inline uint64_t word(__mmask64 mask)
{
    uint64_t w = mask;

    __asm__("" : "+r"(w));
    return w;
}

static inline uint64_t where(__m512i v, char c)
{
    return word(_mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8(c)));
}

static inline uint64_t where_blank(__m512i v)
{
    /* Each blank stands where its own low four bits are the index. */
    const __m512i blanks = _mm512_broadcast_i32x4(
        _mm_setr_epi8(' ', -1, -1, -1, -1, -1, -1, -1, -1, '\t', '\n', -1, -1, '\r', -1, -1));

    return word(_mm512_cmpeq_epi8_mask(v, _mm512_shuffle_epi8(blanks, v)));
}

/* `v` is the text from where a number begins, `digits` the same with 0 to 9 for its digits. */
static inline marks find_numbers(__m512i v, __m512i digits)
{
    marks m;
    uint64_t digit = word(_mm512_cmple_epu8_mask(digits, _mm512_set1_epi8(9)));
    uint64_t zero = word(_mm512_testn_epi8_mask(digits, digits));
    uint64_t point = where(v, '.'), minus = where(v, '-'), comma = where(v, ',');
    uint64_t blank = 0, e = 0, sign = 0, bracket = 0;

    if ((digit | point | minus | comma) != UINT64_MAX) {
        blank = where_blank(v);
        bracket = where(v, ']');
        e = where(_mm512_or_si512(v, _mm512_set1_epi8(0x20)), 'e');
        sign = where(v, '+') | minus;
    }
    uint64_t start = ((blank + (comma << 1)) & ~blank) | 1;
    m.first = (start & ~minus) | (start & minus) << 1;
    m.whole = (digit + m.first) & ~digit;
    uint64_t fraction = (m.whole & point) << 1;
    m.mantissa = (m.whole & ~point) | ((digit + fraction) & ~digit);
    uint64_t behind_e = (m.mantissa & e) << 1, signs = behind_e & sign;
    uint64_t exponent = (behind_e & ~signs) | signs << 1;
    m.exponents = exponent != 0;
    m.end = (m.mantissa & ~e) | ((digit + exponent) & ~digit);
    m.exponent = (m.mantissa & ~e) | exponent;
    /* Each fault marks a byte of the number that has it, or the one behind it. */
    uint64_t bad = ((m.first | fraction | exponent) & ~digit) | ((m.first & zero) << 1 & digit) |
                   (m.end & ~(comma | bracket));
    m.good = m.end & (bad - 1) & ~bad & (bracket ^ (bracket - 1));
    m.minus = minus << 1;
    m.comma = comma;
    return m;
}

/* The index of the nth bit that is set, n from 1; 64 when there are less. */
static inline unsigned nth(uint64_t bits, unsigned n)
{
    return (unsigned)_tzcnt_u64(_pdep_u64((uint64_t)1 << ((n - 1) & 63), bits));
}

static inline __m512i positions(uint64_t bits)
{
    const __m512i all = _mm512_set_epi64(0x3f3e3d3c3b3a3938, 0x3736353433323130, 0x2f2e2d2c2b2a2928,
                                         0x2726252423222120, 0x1f1e1d1c1b1a1918, 0x1716151413121110,
                                         0x0f0e0d0c0b0a0908, 0x0706050403020100);

    return _mm512_maskz_compress_epi8(bits, all);
}

/* Byte i of each list is about the number i. */
typedef struct {
    __m512i first, point; /* positions; a number without a point has it behind its digits */
    __m512i stop;         /* behind the last digit that is taken, and behind the point */
    __m512i power;        /* the number is its digits times 10^-power, */
    __mmask64 cut;        /* or slightly more, where digits were left out */
    __mmask64 odd;        /* not for us */
    __mmask64 negative;
} numbers;

/* Adds what is behind the e. */
static inline void add_exponents(numbers *x, const marks *m, __m512i digits)
{
    __m512i end = positions(m->end), one = _mm512_set1_epi8(1), two = _mm512_set1_epi8(2);
    __m512i length = _mm512_sub_epi8(end, positions(m->exponent));
    __mmask64 some = _mm512_test_epi8_mask(length, length);
    __mmask64 tens = _mm512_cmpge_epi8_mask(length, two);
    __m512i low = _mm512_maskz_permutexvar_epi8(some, _mm512_sub_epi8(end, one), digits);
    __m512i high = _mm512_maskz_permutexvar_epi8(tens, _mm512_sub_epi8(end, two), digits);
    __mmask64 down = _pext_u64(m->minus, m->exponent);

    high = _mm512_add_epi8(high, high); /* times 10 */
    low = _mm512_add_epi8(low, high);
    high = _mm512_add_epi8(high, high);
    low = _mm512_add_epi8(low, _mm512_add_epi8(high, high));
    x->odd |= _mm512_cmpgt_epi8_mask(length, two);
    x->power = _mm512_mask_add_epi8(_mm512_sub_epi8(x->power, low), down, x->power, low);
}

static inline numbers list_numbers(const marks *m, __m512i digits)
{
    numbers x;
    __m512i whole = positions(m->whole), mantissa = positions(m->mantissa);

    x.first = positions(m->first);
    x.point = whole;
    __m512i behind_point = _mm512_add_epi8(whole, _mm512_set1_epi8(1));
    __m512i stop = _mm512_max_epu8(mantissa, behind_point);
    __m512i fraction = _mm512_sub_epi8(stop, behind_point);
    __m512i count = _mm512_add_epi8(_mm512_sub_epi8(whole, x.first), fraction);
    __m512i cut = _mm512_subs_epu8(count, _mm512_set1_epi8(LANE));
    x.stop = _mm512_sub_epi8(stop, cut);
    x.power = _mm512_sub_epi8(fraction, cut);
    x.cut = _mm512_test_epi8_mask(cut, cut);
    x.odd = 0;
    x.negative = _pext_u64(m->minus, m->first);
    if (m->exponents)
        add_exponents(&x, m, digits);
    x.odd |= _mm512_cmpgt_epu8_mask(x.power, _mm512_set1_epi8(31));
    return x;
}

/* The digits of the numbers that `pick` names, one for each lane, as whole numbers. */
static inline __m256i four_mantissas(const numbers *x, __m512i pick, __m512i digits)
{
    const __m512i back = _mm512_broadcast_i32x4(
        _mm_setr_epi8(-16, -15, -14, -13, -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1));
    const __m512i one = _mm512_set1_epi8(1);
    __m512i at = _mm512_add_epi8(_mm512_permutexvar_epi8(pick, x->stop), back);
    __mmask64 whole = _mm512_cmple_epi8_mask(at, _mm512_permutexvar_epi8(pick, x->point));

    at = _mm512_mask_sub_epi8(at, whole, at, one); /* over the point */
    __mmask64 ours = _mm512_cmpge_epi8_mask(at, _mm512_permutexvar_epi8(pick, x->first));
    __m512i d = _mm512_maskz_permutexvar_epi8(ours, at, digits);
    d = _mm512_maddubs_epi16(d, _mm512_set1_epi16(0x010a));  /* pairs: 10 and 1 */
    d = _mm512_madd_epi16(d, _mm512_set1_epi32(0x00010064)); /* 100 and 1 */
    d = _mm512_packus_epi32(d, d);
    d = _mm512_madd_epi16(d, _mm512_set1_epi32(0x00012710)); /* 10000 and 1 */
    d = _mm512_add_epi64(_mm512_mul_epu32(d, _mm512_set1_epi64(100000000)),
                         _mm512_srli_epi64(d, 32));
    d = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6), d);
    return _mm512_castsi512_si256(d);
}

/* 10^-power of numbers first .. first + 3. */
static inline __m256d four_powers(const numbers *x, unsigned first)
{
    __m512i index =
        _mm512_add_epi8(_mm512_setr_epi64(0, 1, 2, 3, 0, 0, 0, 0), _mm512_set1_epi8((char)first));

    index = _mm512_maskz_permutexvar_epi8(0x01010101, index, x->power);
    __mmask8 high = _mm512_test_epi64_mask(index, _mm512_set1_epi64(16));
    __m512d p = _mm512_permutex2var_pd(_mm512_loadu_pd(powers), index, _mm512_loadu_pd(powers + 8));
    __m512d q =
        _mm512_permutex2var_pd(_mm512_loadu_pd(powers + 16), index, _mm512_loadu_pd(powers + 24));
    return _mm512_castpd512_pd256(_mm512_mask_mov_pd(p, high, q));
}

/* Numbers first .. first + 3 as doubles; a bit in `unsure` for each that must not be rounded from.
 *
 * As in decimal_parse.c, but digits may be missing: where they are, the mantissa must have at least
 * 12, so that it is right within 10^-11, which is less than 2^17 units in the double's last place.
 * Products are 0 or lie between 10^-31 and 10^16, so that all are normal. */
static inline __m256d four_numbers(const numbers *x, unsigned first, __m512i digits,
                                   unsigned *unsure)
{
    const int64_t margin = 1 << 17, midpoint = 1 << 28, low = (1 << 29) - 1;
    const __m512i lanes =
        _mm512_set_epi64(0x0303030303030303, 0x0303030303030303, 0x0202020202020202,
                         0x0202020202020202, 0x0101010101010101, 0x0101010101010101, 0, 0);
    __m256i mantissa =
        four_mantissas(x, _mm512_add_epi8(lanes, _mm512_set1_epi8((char)first)), digits);
    __m256d d = _mm256_mul_pd(_mm256_cvtepu64_pd(mantissa), four_powers(x, first));
    __m256i place = _mm256_and_si256(
        _mm256_add_epi64(_mm256_castpd_si256(d), _mm256_set1_epi64x(margin - midpoint)),
        _mm256_set1_epi64x(low));

    *unsure = _mm256_cmple_epi64_mask(place, _mm256_set1_epi64x(2 * margin));
    if (x->cut != 0)
        *unsure |= (unsigned)(x->cut >> first) &
                   _mm256_cmplt_epu64_mask(mantissa, _mm256_set1_epi64x(100000000000));
    return _mm256_mask_xor_pd(d, (__mmask8)(x->negative >> first), d, _mm256_set1_pd(-0.0));
}

/* Reads the numbers in `unsure` by themselves. Returns how many of the first `count` are right:
 * all, or those in front of the one that is not finite. */
static size_t read_again(const char *p, const marks *m, uint64_t negative, uint64_t unsure,
                         float *out, size_t count)
{
    for (; unsure != 0; unsure &= unsure - 1) {
        unsigned i = (unsigned)_tzcnt_u64(unsure);
        const char *text = p + nth(m->first, i + 1) - (negative >> i & 1);
        if (!attn_f32_parse(text, (size_t)(p + nth(m->end, i + 1) - text), &out[i]))
            return i;
    }
    return count;
}

size_t attn_f32_scan_wide(const char *text, size_t n, float *out, size_t max, size_t *used)
{
    const char *p = text, *end = text + n;
    size_t done = 0;

    while (end - p >= WIDTH && done < max) {
        __m512i v = _mm512_loadu_si512(p), digits = _mm512_xor_si512(v, _mm512_set1_epi8('0'));
        marks m = find_numbers(v, digits);
        /* Where to go on is guessed by the commas: the next round need not wait for the marks. */
        unsigned count = (unsigned)_mm_popcnt_u64(m.comma);
        count = count > LANES ? count & ~(LANES - 1u) : count;
        unsigned last = nth(m.comma, count);
        if (__builtin_expect(last == 64 || count > max - done ||
                                 ((m.good ^ m.comma) & _blsmsk_u64((uint64_t)1 << last)) != 0,
                             0)) {
            count = (unsigned)_mm_popcnt_u64(m.good);
            count = count > max - done ? (unsigned)(max - done) : count;
            if (count == 0)
                break;
            last = nth(m.good, count);
            __asm__ volatile("" : "+r"(last)); /* a jump, not a choice that waits for both */
        }
        numbers x = list_numbers(&m, digits);
        uint64_t unsure = x.odd & (((uint64_t)1 << count) - 1);
        for (unsigned i = 0; i < count; i += LANES) {
            unsigned here = 0, lanes = count - i < LANES ? (1u << (count - i)) - 1 : 15;
            __m256d d = four_numbers(&x, i, digits, &here);
            _mm_mask_storeu_ps(out + done + i, (__mmask8)lanes, _mm256_cvtpd_ps(d));
            unsure |= (uint64_t)(here & lanes) << i;
        }
        if (unsure != 0) {
            size_t right = read_again(p, &m, x.negative, unsure, out + done, count);
            if (right < count) {
                p += nth(m.first, (unsigned)right + 1) - (x.negative >> right & 1);
                done += right;
                break;
            }
        }
        done += count;
        p += last;
        if (*p == ']')
            break;
        do
            p++;
        while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r'));
    }
    *used = (size_t)(p - text);
    return done;
}

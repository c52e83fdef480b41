/* shortest.h: what the printers of float32 share. Others include core/decimal.h. */
#ifndef ATTN_SHORTEST_H
#define ATTN_SHORTEST_H

#include <stddef.h>
#include <stdint.h>

/* A float32 is c * 2^q with c < 2^24. With k = floor(log10(2^q)) and v = c * 2^q / 10^k, neighbours
 * lie 1 to 10 apart from v, so its rounding interval (half of that to each side) holds at most one
 * multiple of ten and at least one whole number. The shortest text is the multiple of ten without its
 * zeros, if there is one, or else the whole number nearest to v. (After Giulietti, "The Schubfach way
 * to render doubles", 2020.) One multiplication gives v / 10 as a fixed-point number: in front of
 * the point stand all digits but the last, behind it what decides between these. */

/* 2^64 * 2^q / 10^(k+1), the integer part, by the biased exponent e: q = max(e, 1) - 150. This is the
 * distance of neighbours in units of v / 10; it is at least a tenth of 2^64. 0 for what is not finite. */
extern const uint64_t attn_shortest_scale[256];

/* The common numbers: normal, below 2^17, no power of two, more than one digit, not whole. Their digits
 * and text are made without a branch that depends on them. */
enum {
    ATTN_SHORTEST_COMMON = 143,  /* their exponents are 1 to this */
    ATTN_SHORTEST_FRACTION = 40, /* bits behind the point of v / 10; 24 are in front */
    /* (e * ATTN_SHORTEST_LOG + ATTN_SHORTEST_BIAS) >> 12 is k + 46: the place of the form of a number
     * whose digits in front of the point of v / 10 are eight. For each leading zero it is one less. */
    ATTN_SHORTEST_LOG = 1233,
    ATTN_SHORTEST_BIAS = (46 << 12) - 150 * ATTN_SHORTEST_LOG
};

/* Where the parts of a common number go, by its decimal exponent, from -38 on. */
typedef struct {
    _Alignas(32) uint8_t shuffle[16]; /* indices into: nine digits, point, zero */
    char behind[8];                   /* what stands behind the digits, the comma included */
    uint8_t behind_n;
    uint8_t end;                 /* offset of `behind`, less the number of digits */
    uint8_t digits, point, rest; /* offsets of all digits, of the point, of those that follow it */
    uint8_t shift; /* bits: the digits but the first that stand in front of the point */
} attn_shortest_form;

extern const attn_shortest_form attn_shortest_forms[44];

/* attn_f32_print_row() in plain C, and with AVX2. */
size_t attn_shortest_row(char *out, const float *x, size_t n);
#if defined(__x86_64__)
size_t attn_shortest_row_avx2(char *out, const float *x, size_t n);
#endif

#endif

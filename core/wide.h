/* wide.h: text, 64 bytes at once. For AVX-512 with VBMI2 alone, whose permutations reach every
 * byte; what is not compiled for it asks attn_is_wide() first. */
#ifndef ATTN_WIDE_H
#define ATTN_WIDE_H

#include <stdbool.h>
#include <stddef.h>

static inline bool attn_is_wide(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("bmi2");
#else
    return false;
#endif
}

/* As attn_f32_scan(), but stops also near the end of the text and in front of rare forms. */
size_t attn_f32_scan_wide(const char *text, size_t n, float *out, size_t max, size_t *used);

/* Decodes base64, 64 characters at once, up to the first 64 that have another character in them.
 * Returns how many characters were decoded; each four made three bytes. `value_plus_1` has a byte
 * for each character of ASCII, 0 = not of the alphabet. */
size_t attn_base64_decode_wide(const unsigned char value_plus_1[128], const char *text, size_t n,
                               unsigned char *out);

#endif

/* decimal_private.h: the roads through a long list. */
#ifndef ATTN_DECIMAL_PRIVATE_H
#define ATTN_DECIMAL_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>

/* Each reads as attn_f32_scan() does. */
typedef size_t attn_f32_scanner(const char *text, size_t n, float *out, size_t max, size_t *used);

attn_f32_scanner attn_f32_scan_words; /* eight bytes at once; any processor */

/* 64 bytes at once. Leaves numbers near the end of the text, and rare forms, to others: it stops in front
 * of them too. For processors where attn_f32_has_avx512() alone. */
attn_f32_scanner attn_f32_scan_avx512;
bool attn_f32_has_avx512(void);

#endif

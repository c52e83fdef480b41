/* decimal_private.h: the road through a long list that is open to any processor, for tests. */
#ifndef ATTN_DECIMAL_PRIVATE_H
#define ATTN_DECIMAL_PRIVATE_H

#include <stddef.h>

typedef size_t attn_f32_scanner(const char *text, size_t n, float *out, size_t max, size_t *used);

/* Reads as attn_f32_scan() does, eight bytes at once. */
attn_f32_scanner attn_f32_scan_words;

#endif

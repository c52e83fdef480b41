/* checked.h: size arithmetic for numbers from outside. */
#ifndef ATTN_CHECKED_H
#define ATTN_CHECKED_H

#include <stdbool.h>
#include <stddef.h>

/* *out = a * b; false (and *out unspecified) on overflow. */
static inline bool attn_size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* *out = a + b; false (and *out unspecified) on overflow. */
static inline bool attn_size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* *out = the product of n dimensions, 1 for none; false on overflow. Zero dimensions give 0 even
 * where the others alone would overflow only after the zero: every partial product is checked. */
static inline bool attn_size_product(const size_t *dim, size_t n, size_t *out)
{
    size_t product = 1;
    for (size_t i = 0; i < n; i++) {
        if (!attn_size_mul(product, dim[i], &product))
            return false;
    }
    *out = product;
    return true;
}

#endif

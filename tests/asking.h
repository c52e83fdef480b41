/* asking.h: random requests for attention: every option, every form of every member. */
#ifndef TESTS_ASKING_H
#define TESTS_ASKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whom is asked. With d_model 0 the body is for /v1/scaled-dot-product-attention: query, key and value of these
 * heads. */
typedef struct {
    size_t d_model, num_heads, num_kv_heads, head_dim, v_head_dim;
    bool rotary;
} asking_model;

/* A body with at most `longest` tokens a sequence, which must be answered with 200. *seed carries on from call to
 * call. The caller frees. */
char *asking_random(const asking_model *m, size_t longest, uint32_t *seed);

#endif

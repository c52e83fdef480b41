/* encode_case.h: sequences for attn_encode() with room for all their results. For cmocka programs: what goes wrong
 * fails the test. */
#ifndef TESTS_ENCODE_CASE_H
#define TESTS_ENCODE_CASE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/encoder.h"
#include "core/model.h"

attn_model *encode_load(const char *path);
/* The model's encoder; without one the test fails with the reason. */
const attn_encoder *encode_encoder(const attn_model *m);

/* Everything that an encoder can say of a sequence; the caller gives tokens, inputs and masks. */
typedef struct {
    attn_encode_sequence seq;
    size_t embedding_floats, hidden_floats, maps_floats, rollout_floats;
} encode_case;

/* Options that want it all: every hidden state, the maps of every layer, the rollout. */
void encode_want_all(const attn_encoder *e, attn_encode_options *o);
void encode_free_options(attn_encode_options *o);

/* Room for what *o wants, full of NaN; whole maps of as many heads as o->maps has. */
void encode_add_results(const attn_encoder *e, const attn_encode_options *o, encode_case *c);
void encode_free_results(encode_case *c);

/* With a workspace of exactly what it needs, full of NaN; nothing behind it may be written. */
attn_status encode_try(const attn_encoder *e, const attn_encode_options *o, encode_case *cases,
                       size_t n, attn_pool *pool, attn_error *err);
void encode(const attn_encoder *e, const attn_encode_options *o, encode_case *cases, size_t n,
            attn_pool *pool);

/* Do both have the same bits in every result that both have? */
void encode_same(const char *what, const encode_case *a, const encode_case *b);

#endif

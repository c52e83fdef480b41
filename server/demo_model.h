/* demo_model.h: the numbers of the demo model: vocabulary, embeddings, weights.
 *
 * Every number is an integer or a simple binary fraction, so all are exact in float32 and the same on
 * every machine. An embedding is
 *   1, p, p*p        where the token stands, p from 0
 *   5 of 0 or 1      what kind of word it is
 *   8 of 1 or -1     which token it is: its number in the vocabulary, lowest binary digit first
 * and all heads of a layer share one key, the embedding itself. So a head is one matrix M, and
 * x_i M x_j is its score of token j for token i: M picks what to compare. */
#ifndef SRV_DEMO_MODEL_H
#define SRV_DEMO_MODEL_H

#include <stddef.h>

#include "core/layer.h"

enum { SRV_DEMO_LAYERS = 2, SRV_DEMO_HEADS = 6 };

enum { /* places in an embedding */
       SRV_DEMO_ONE,
       SRV_DEMO_POSITION,
       SRV_DEMO_SQUARE,
       SRV_DEMO_KIND, /* the first of 5 */
       SRV_DEMO_KINDS = 5,
       SRV_DEMO_DIGIT = SRV_DEMO_KIND + SRV_DEMO_KINDS, /* the first of 8 */
       SRV_DEMO_DIGITS = 8,
       SRV_DEMO_WIDTH = SRV_DEMO_DIGIT + SRV_DEMO_DIGITS
};

/* The weights of one layer, [out,in]; no biases. */
typedef struct {
    float wq[SRV_DEMO_HEADS * SRV_DEMO_WIDTH * SRV_DEMO_WIDTH];
    float wk[SRV_DEMO_WIDTH * SRV_DEMO_WIDTH];
    float wv[SRV_DEMO_DIGITS * SRV_DEMO_WIDTH];
    float wo[SRV_DEMO_WIDTH * SRV_DEMO_HEADS * SRV_DEMO_DIGITS];
} srv_demo_weights;

attn_layer_spec srv_demo_spec(void); /* of every layer */
void srv_demo_fill(srv_demo_weights *w, size_t layer);
const char *srv_demo_head_name(size_t layer, size_t head); /* "previous token" */
const char *srv_demo_kind_name(size_t kind);               /* "noun" */

typedef struct {
    const char *text;
    size_t kind;
} srv_demo_token;

const srv_demo_token *srv_demo_vocabulary(size_t *n); /* a token's number is its index */

/* x = the embedding of token `number` at position p. */
void srv_demo_embed(int x[SRV_DEMO_WIDTH], size_t number, int p);

#endif

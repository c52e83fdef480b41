#include "server/demo_model.h"

#include <string.h>

enum { ARTICLE, NOUN, VERB, OTHER, PUNCTUATION };

static const char *const kind_names[SRV_DEMO_KINDS] = {"article", "noun", "verb", "other",
                                                       "punctuation"};

static const srv_demo_token vocabulary[] = {
    {"the", ARTICLE},   {"a", ARTICLE},     {"cat", NOUN},   {"dog", NOUN},    {"mat", NOUN},
    {"rose", NOUN},     {"rain", NOUN},     {"sat", VERB},   {"was", VERB},    {"saw", VERB},
    {"is", VERB},       {"came", VERB},     {"ran", VERB},   {"on", OTHER},    {"because", OTHER},
    {"tired", OTHER},   {"and", OTHER},     {"when", OTHER}, {"which", OTHER}, {".", PUNCTUATION},
    {",", PUNCTUATION}, {"?", PUNCTUATION},
};

/* A head's score of token j for token i is the sum of
 *   -near * (i + shift - j)^2   close to a place (far from it, when negative)
 *   early * -j                  close to the start
 *   kind                        token j is of kind kind_of
 *   same_kind                   both are of one kind
 *   same_token * (8 - 2 * n)    where n binary digits of their numbers differ
 * Softmax makes a lead of 4 into 55 times the weight. */
typedef struct {
    const char *name;
    float near, shift, early, same_token, same_kind, kind;
    size_t kind_of;
} head;

static const head heads[SRV_DEMO_LAYERS][SRV_DEMO_HEADS] = {
    {
        {.name = "previous token", .near = 4.0F, .shift = -1.0F},
        {.name = "same token", .same_token = 4.0F},
        {.name = "first token", .early = 4.0F},
        {.name = "local window", .near = 0.25F},
        {.name = "same kind of word", .same_kind = 8.0F},
        {.name = "everything alike"},
    },
    {
        {.name = "next token", .near = 4.0F, .shift = 1.0F},
        {.name = "two tokens back", .near = 4.0F, .shift = -2.0F},
        /* 1024 outweighs the distances of 16 tokens, 4 * 15^2. */
        {.name = "nearest noun", .near = 4.0F, .kind = 1024.0F, .kind_of = NOUN},
        {.name = "nearest verb", .near = 4.0F, .kind = 1024.0F, .kind_of = VERB},
        {.name = "punctuation", .kind = 8.0F, .kind_of = PUNCTUATION},
        /* One digit costs 2 * 128, more than 15^2. */
        {.name = "same token, farthest", .near = -1.0F, .same_token = 128.0F},
    },
};

/* wq's part of one head is M transposed: row = place in the key, column = place in the query. */
static void fill_head(float *wq, const head *h)
{
    float(*m)[SRV_DEMO_WIDTH] = (float(*)[SRV_DEMO_WIDTH])wq;

    /* -near (i + shift - j)^2 = -near (i^2 + 2 shift i + shift^2) * 1
     *                           + 2 near (i + shift) * j - near * j^2 */
    m[SRV_DEMO_ONE][SRV_DEMO_SQUARE] = 0.0F - h->near; /* 0 - 0 is 0, -0 is not */
    m[SRV_DEMO_ONE][SRV_DEMO_POSITION] = 0.0F - 2.0F * h->near * h->shift;
    m[SRV_DEMO_ONE][SRV_DEMO_ONE] = 0.0F - h->near * h->shift * h->shift;
    m[SRV_DEMO_POSITION][SRV_DEMO_POSITION] = 2.0F * h->near;
    m[SRV_DEMO_POSITION][SRV_DEMO_ONE] = 2.0F * h->near * h->shift - h->early;
    m[SRV_DEMO_SQUARE][SRV_DEMO_ONE] = 0.0F - h->near;

    for (size_t k = 0; k < SRV_DEMO_KINDS; k++)
        m[SRV_DEMO_KIND + k][SRV_DEMO_KIND + k] = h->same_kind;
    m[SRV_DEMO_KIND + h->kind_of][SRV_DEMO_ONE] = h->kind;
    for (size_t d = 0; d < SRV_DEMO_DIGITS; d++)
        m[SRV_DEMO_DIGIT + d][SRV_DEMO_DIGIT + d] = h->same_token;
}

void srv_demo_fill(srv_demo_weights *w, size_t layer)
{
    memset(w, 0, sizeof *w);
    for (size_t h = 0; h < SRV_DEMO_HEADS; h++)
        fill_head(w->wq + h * SRV_DEMO_WIDTH * SRV_DEMO_WIDTH, &heads[layer][h]);
    for (size_t i = 0; i < SRV_DEMO_WIDTH; i++)
        w->wk[i * SRV_DEMO_WIDTH + i] = 1.0F;
    /* A value is the digits of its token; the output adds an eighth of what each head has read. */
    for (size_t d = 0; d < SRV_DEMO_DIGITS; d++) {
        w->wv[d * SRV_DEMO_WIDTH + SRV_DEMO_DIGIT + d] = 1.0F;
        float *row = w->wo + (SRV_DEMO_DIGIT + d) * SRV_DEMO_HEADS * SRV_DEMO_DIGITS;
        for (size_t h = 0; h < SRV_DEMO_HEADS; h++)
            row[h * SRV_DEMO_DIGITS + d] = 0.125F;
    }
}

attn_layer_spec srv_demo_spec(void)
{
    return (attn_layer_spec){
        .d_model = SRV_DEMO_WIDTH,
        .d_kv = SRV_DEMO_WIDTH,
        .d_out = SRV_DEMO_WIDTH,
        .num_heads = SRV_DEMO_HEADS,
        .num_kv_heads = 1,
        .head_dim = SRV_DEMO_WIDTH,
        .v_head_dim = SRV_DEMO_DIGITS,
        .scale = 1.0F,
        .window = {-1, -1},
    };
}

const char *srv_demo_head_name(size_t layer, size_t h)
{
    return heads[layer][h].name;
}

const char *srv_demo_kind_name(size_t kind)
{
    return kind_names[kind];
}

const srv_demo_token *srv_demo_vocabulary(size_t *n)
{
    *n = sizeof vocabulary / sizeof *vocabulary;
    return vocabulary;
}

void srv_demo_embed(int x[SRV_DEMO_WIDTH], size_t number, int p)
{
    x[SRV_DEMO_ONE] = 1;
    x[SRV_DEMO_POSITION] = p;
    x[SRV_DEMO_SQUARE] = p * p;
    for (size_t k = 0; k < SRV_DEMO_KINDS; k++)
        x[SRV_DEMO_KIND + k] = vocabulary[number].kind == k;
    for (size_t d = 0; d < SRV_DEMO_DIGITS; d++)
        x[SRV_DEMO_DIGIT + d] = number >> d & 1 ? 1 : -1;
}

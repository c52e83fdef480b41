/* encoder_private.h: what an encoder holds, and one call of attn_encode(), shared by its parts. */
#ifndef ATTN_ENCODER_PRIVATE_H
#define ATTN_ENCODER_PRIVATE_H

#include "attention_private.h"
#include "dense.h"
#include "encoder.h"
#include "layout.h"

typedef struct {
    float *weight; /* [n]; NULL = there is no such norm */
    float *bias;   /* [n], or NULL */
} encoder_norm;

/* What follows a layer's attention. Post-norm: x = norm(x + attention), x = norm(x + feed(x)); pre-norm:
 * x = x + attention(norm(x)), x = x + feed(norm(x)). */
typedef struct {
    encoder_norm attention_norm, feed_norm;
    attn_dense up, down;
    attn_dense gate; /* weight NULL = none; up and gate have the same sizes */
    void *block;     /* all of the above */
} encoder_feed;

typedef struct {
    const attn_layer *attention;
    const encoder_feed *feed;
    attn_dense joined; /* the attention's output projection, which is computed here */
} encoder_layer;

struct attn_encoder {
    attn_encoder_info info;
    bool pre_norm;
    float eps;
    attn_activation activation;

    void *words; /* [vocabulary, embed_width] as stored: */
    attn_dtype words_dtype;
    float *positions; /* [.., embed_width], or NULL */
    bool
        skips_padding; /* RoBERTa: padding has position padding_id, tokens count from the one behind */
    int32_t padding_id;      /* of skips_padding */
    float *types;            /* [info.types, embed_width], or NULL */
    encoder_norm embed_norm; /* [embed_width] */
    attn_dense projection;   /* embed_width to d_model; weight NULL = none */
    encoder_norm final_norm; /* pre-norm */
    void *around;            /* all of these */
    size_t widest;           /* feed-forward width */
    encoder_layer *layer;    /* [num_layers] */
    encoder_feed *feed;      /* [feeds], each used by one layer or more */
    size_t feeds;
    char *no_embeddings; /* info's */
    size_t bytes;
};

/* encoder_load.c: what surrounds `layers`, the attention layers of the plan, which the encoder borrows. ENOMEM, EIO and
 * ECANCELED (`cancel`, which may be NULL, became true) are failures; with any other status there is no encoder, and
 * err says why. */
ATTN_NODISCARD attn_status attn_encoder_load(attn_encoder **out, const attn_archive *a,
                                             const attn_plan *plan, const char *path,
                                             const attn_config *config,
                                             const attn_layer *const *layers,
                                             const atomic_bool *cancel, attn_error *err);
void attn_encoder_free(attn_encoder *e); /* takes NULL */

/* encoder_pooling.c: what sentence-transformers has put beside the model, into e->info. */
ATTN_NODISCARD attn_status attn_encoder_read_pooling(attn_encoder *e, const char *path,
                                                     attn_error *err);

/* --- one call ------------------------------------------------------------------------------------ */

enum {
    ENCODER_TILE_FLOATS =
        196608, /* of a feed-forward tile's activations: they stay in the second cache */
    ENCODER_TILE_ROWS = 240, /* most rows of a tile */
    ENCODER_EMBED_ROWS = 24  /* the same where rows are looked up */
};

/* Rows that are computed tile by tile: all sequences' rows as one, where rows are independent of each other, else
 * each sequence's by themselves, so that they are cut alike in any company. */
typedef struct {
    size_t tile_rows, tiles;
    bool together; /* else run.tile_number has each sequence's first tile */
} encoder_tiling;

typedef struct {
    const attn_encoder *e;
    const attn_encode_options *opt;
    const attn_encode_sequence *seqs;
    size_t n, rows, workers;
    attn_pool *pool;
    const atomic_bool *cancel;

    size_t *row;          /* [n + 1] first row of each sequence */
    size_t *tile_number;  /* [n + 1] */
    attn_sequence *inner; /* [n] what the attention is told */
    void *inner_workspace;
    float *x;       /* [N,D] what goes on from layer to layer */
    float *h;       /* [N,D] what the attention reads: x, or x normalised */
    float *context; /* [N,D] heads joined; pre-norm: h, which nobody reads any more by then */
    float **mean;   /* [n] of each sequence: the layer's mean map [T,T], */
    float **packed; /* and the rollout so far, packed */

    size_t most_rows; /* of a tile in which a worker computes all that follows the attention */
    float *
        scratch; /* [workers][scratch_floats]: activations of such tiles, y and inter; or, for few rows: */
    size_t scratch_floats;
    float *y, *inter; /* [N,D], [N,F] */
    float *gate;      /* [workers][gate_floats] */
    size_t gate_floats;
    atomic_size_t *left; /* [tiles] parts of a tile that are still to be computed */

    encoder_tiling tiling;
    size_t parts, columns; /* of a tile, in this stage */
    const float *then;     /* the weights of the stage behind it; a task's part of them has */
    size_t then_floats;
    size_t layer, state;

    _Atomic size_t overflow; /* smallest row with a result that is not finite, or SIZE_MAX */
} encode_run;

static inline bool encoder_canceled(const encode_run *run)
{
    return run->cancel != NULL && atomic_load(run->cancel);
}

/* encoder.c. Tiles of `rows` rows, a multiple of attn_row_unit() or more than there are. */
encoder_tiling encoder_cut(const encode_run *run, size_t rows);
/* The same, and no tile has rows of two sequences. */
encoder_tiling encoder_cut_apart(const encode_run *run, size_t rows);
/* The rows [*r0, *r0 + return value) of a tile. */
size_t encoder_tile(const encode_run *run, const encoder_tiling *t, size_t tile, size_t *r0);
/* The sequence that a row belongs to. */
size_t encoder_sequence_of(const encode_run *run, size_t row);
/* Notes which of some rows of x are not finite. */
void encoder_check_rows(encode_run *run, size_t r0, size_t rows);

/* encoder_embed.c: x and h of all rows, from ids or embeddings; and what a sequence's rows of x become in the end. */
void encoder_embed(encode_run *run);
void encoder_pool(encode_run *run);

/* encoder_feed.c: all that follows the attention of run->layer. */
size_t encoder_most_rows(const attn_encoder *e);
void encoder_feed_forward(encode_run *run);
/* x += add (NULL: nothing), and h becomes what `layer` reads; behind the last layer x becomes the output. */
void encoder_next_rows(const encode_run *run, size_t layer, size_t r0, size_t rows,
                       const float *add);

/* encoder_rollout.c: takes the mean maps of run->layer into the rollouts. */
size_t encoder_rollout_floats(size_t tokens); /* of one that is packed */
void encoder_roll(encode_run *run);

#endif

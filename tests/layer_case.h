/* layer_case.h: attention layers (or heads alone) with random operands: run by attn_forward() with
 * each kind of kernels, and compared with the oracle. For cmocka programs: what goes wrong fails the
 * test. */
#ifndef TESTS_LAYER_CASE_H
#define TESTS_LAYER_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/attention.h"
#include "tests/ref_attention.h"

/* The kinds of kernels that this processor runs. */
enum { CASE_MOST_LEVELS = 5 };
extern const char *case_levels[CASE_MOST_LEVELS];
extern size_t case_num_levels;
extern size_t case_few_levels; /* all; in an emulator, which is slow, the first and best */

/* Group setup: finds them, names the others as skipped and leaves the best in force. */
int case_find_levels(void **state);
void case_use_level(size_t level);
void case_use_best_level(void);

/* `normal`, or a part of it where TEST_CASES is below 300: an emulator is given fewer. */
size_t case_count(size_t normal);

/* Random numbers; the same after the same start. A failure names the last start. */
void case_start(uint64_t number);
size_t case_below(size_t n);
bool case_chance(size_t one_in);
double case_uniform(void);
size_t case_choose(const size_t *from, size_t n);
#define CASE_CHOOSE(...)                                                                           \
    case_choose((const size_t[]){__VA_ARGS__}, sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t))

/* Everything of a case lies on one pile and goes at its end. Exact sizes: ASan sees one more. */
void *case_get(size_t n, size_t size);        /* zeros, aligned to 64 */
float *case_floats(size_t n, double scale);   /* normally distributed */
float *case_unset(size_t n);                  /* NaN: what a forgotten write would leave */
double *case_widen(const float *x, size_t n); /* NULL of NULL */
void case_drop(void);

typedef struct {
    bool with_layer, cross;
    attn_layer_spec spec;
    attn_layer_weights weights;
    attn_heads heads;
    attn_options options;
    size_t q_to, k_to;    /* where the maps end */
    attn_layer *layer;    /* NULL without one */
    ref_attention common; /* what is the same for all sequences */
} layer_case;

/* No layer, every option off, H heads for G of keys, scale 1/sqrt(d). */
void case_init(layer_case *c, size_t num_heads, size_t num_kv_heads, size_t head_dim,
               size_t v_head_dim);
/* A layer of this width with random weights. */
void case_add_weights(layer_case *c, size_t d_model, size_t d_kv, size_t d_out);
void case_add_relative_bias(layer_case *c, bool bidirectional);
void case_pack_layer(layer_case *c);    /* for the kernels in force; an earlier one is freed */
void case_share_options(layer_case *c); /* tells the oracle, too */

/* Random inputs of the lengths that *s has, for us and for the oracle. */
void case_add_inputs(const layer_case *c, attn_sequence *s, ref_attention *r);
/* A mask and a bias with the strides that broadcast dimensions of size 1. */
void case_set_mask(attn_sequence *s, ref_attention *r, const unsigned char *mask,
                   const size_t dim[3]);
void case_set_bias(attn_sequence *s, ref_attention *r, const float *bias, const size_t dim[3]);

/* Room for every result; the maps only where the options want them. */
void case_add_results(const layer_case *c, attn_sequence *s);

attn_pool *case_pool(size_t threads);
size_t case_workspace_bytes(const layer_case *c, const attn_sequence *seqs, size_t n,
                            size_t workers);
/* With a workspace of exactly what it needs, full of NaN; nothing behind it may be written. */
attn_status case_try(const layer_case *c, attn_sequence *seqs, size_t n, attn_pool *pool,
                     attn_stats *stats, attn_error *err);
void case_forward(const layer_case *c, attn_sequence *seqs, size_t n, attn_pool *pool,
                  attn_stats *stats);

/* How far a float may be from the oracle's double, as a part of the largest number of its tensor or
 * of 1, the larger; and the largest difference so far, in the same terms. */
extern const double case_bound;
extern double case_worst;

void case_oracle(const layer_case *c, const attn_sequence *s, ref_attention *r);
void case_compare(const layer_case *c, const attn_sequence *s, const ref_attention *r);
void case_near(const char *what, const float *got, const double *expected, size_t n);

#endif

/* layout.h: where the attention layers lie in a set of tensors. Internal to model.c and layout*.c.
 *
 * A family is a row or more in layout_families.c, one for each stack of layers it has. The same row
 * can come from outside, as the "layout" object of a model: that object alone describes the file
 * then, and the rest of config.json is not looked at. Its keys, where K says what may be left out:
 *
 *   "weights"       {"q":NAME,"k":NAME,"v":NAME,"o":NAME}, {"qkv":NAME,"o":NAME} when the three are
 *                   one matrix, or {"q":NAME,"kv":NAME,"o":NAME}. NAME is a tensor's full name;
 *                   {N} in it stands for the layer number, from 0, and must then be in each of them
 *   "biases"     K  the same keys for the biases; a bias that is not named is not used
 *   "orientation"   "out_in" (torch Linear: [out,in]) or "in_out" (y = x W: GPT-2), for all weights
 *   "order"         only for fused matrices: "blocks" (all heads' q, then k, then v) or "heads"
 *                   (q, k, v of head 0, then of head 1, ...)
 *   "num_heads"     and what else the native layout has in its config.json: "num_kv_heads",
 *                   "head_dim", "v_head_dim", "d_model", "is_causal", "scale", "softcap",
 *                   "window":{"left","right"}, "rope":{"theta","style","dims"}, "alibi"; all K
 *
 * For a timm ViT: {"weights":{"qkv":"blocks.{N}.attn.qkv.weight","o":"blocks.{N}.attn.proj.weight"},
 * "biases":{"qkv":"blocks.{N}.attn.qkv.bias","o":"blocks.{N}.attn.proj.bias"},
 * "orientation":"out_in","order":"blocks","num_heads":12}. */
#ifndef ATTN_LAYOUT_H
#define ATTN_LAYOUT_H

#include "archive.h"
#include "json.h"
#include "layer.h"

/* --- configuration -------------------------------------------------------------------------- */

/* An object with the name that messages give it. A section's keys are looked up in the object alone. */
typedef struct {
    const attn_json *object; /* NULL = there is none; every key is then absent */
    const char *label;       /* "/m/config.json", "/m: layout" */
} attn_config;

/* `keys` is one key or several spellings, "n_head|num_heads"; the first that is there and not null
 * counts. *found tells whether there was one; *out keeps its value if not. A wrong type or range is
 * ATTN_EINVAL. Sizes are 1 to 2^24. */
ATTN_NODISCARD attn_status attn_config_size(const attn_config *c, const char *keys, size_t *out,
                                            bool *found, attn_error *err);
ATTN_NODISCARD attn_status attn_config_number(const attn_config *c, const char *keys, double *out,
                                              bool *found, attn_error *err);
ATTN_NODISCARD attn_status attn_config_bool(const attn_config *c, const char *keys, bool *out,
                                            attn_error *err);
ATTN_NODISCARD attn_status attn_config_string(const attn_config *c, const char *keys,
                                              const char **out, attn_error *err);
/* The object below `key`; object NULL when it is absent or null. */
ATTN_NODISCARD attn_status attn_config_object(const attn_config *c, const char *key,
                                              attn_config *out, attn_error *err);
/* The first key of the object that is none of the n known ones; NULL = all are known. */
const char *attn_config_unknown_key(const attn_config *c, const char *const *known, size_t n);
/* The same as a failure, with the nearest known key. */
ATTN_NODISCARD attn_status attn_config_only(const attn_config *c, const char *const *known,
                                            size_t n, attn_error *err);

/* Where a family keeps its rotary numbers. */
typedef struct {
    const char *layer_type; /* of nested rope_parameters: "full_attention"; */
    const char *theta_keys; /* of the base, when rope_parameters does not say */
    double theta, fraction; /* when nothing says */
} attn_rope_keys;

/* Half-split rotary embedding in Hugging Face's spellings: rope_parameters, rope_theta with
 * rope_scaling, rotary_emb_base with rotary_pct. ATTN_EUNSUPPORTED names an unknown scaling. */
ATTN_NODISCARD attn_status attn_config_rope(const attn_config *c, const attn_rope_keys *keys,
                                            size_t head_dim, attn_rope *out, attn_error *err);

/* --- families ------------------------------------------------------------------------------- */

enum { ATTN_Q, ATTN_K, ATTN_V, ATTN_O, ATTN_PARTS };
enum { ATTN_MAX_STACKS = 16 };

typedef struct attn_stack attn_stack;

/* Layer n of a stack's `layers`, for attn_finish. */
typedef struct {
    const attn_config *config;
    const attn_stack *stack;
    size_t n, layers;
} attn_layer_place;

/* Puts into the spec what only this family has. The spec holds sizes and the defaults already. */
typedef attn_status attn_finish(const attn_layer_place *place, attn_layer_spec *spec,
                                attn_error *err);

/* One row: a stack of layers alike. Names are relative to the layer, "self.query.weight". Parts with
 * the same name are fused in that tensor, in the order q, k, v. */
struct attn_stack {
    const char *layer; /* pattern of what the names of one layer begin with, behind any prefix:
                          "encoder.layer.{N}.attention."; with {G} before {N}: group and layer */
    const char *weight[ATTN_PARTS];
    const char *bias[ATTN_PARTS];
    const char *q_norm, *k_norm; /* needed when named */
    const char *rel_bias;        /* in the layer, else in layer 0 of the stack */
    bool in_out;                 /* matrices are stored [in,out] */
    bool per_head;               /* fused rows are q, k, v of head 0, then of head 1, ... */
    bool causal, cross;
    bool any_width;      /* d_kv and d_out may differ from d_model; d_kv is read from wk */
    bool needs_previous; /* a file with the row above has this one too */

    const char *section; /* of config.json, "text_config", if that is there */
    const char *heads;   /* keys of that; the others may be NULL */
    const char *width, *kv_heads, *head_dim, *v_head_dim, *depth;
    size_t default_heads; /* what the family's configuration class says without the key */
    size_t default_head;  /* width of a head where the number of heads is never stored */

    unsigned bias_always; /* parts (1 << ATTN_Q ...) whose biases the family always has */
    const char *bias_key; /* of the switch of these: */
    unsigned bias_switched;
    bool bias_default;

    const char *quiet;  /* names beside the weights that need no warning, by their beginnings */
    const char *refuse; /* names that change the result in a way that is not computed here */
    attn_finish *finish;
};

typedef struct {
    const char *const *types; /* values of model_type, the family's name first; NULL at the end */
    const attn_stack *stack;
    size_t stacks;
} attn_family;

extern const attn_family attn_families[];
extern const size_t attn_family_count;

/* The rest of a native config.json or layout object. */
ATTN_NODISCARD attn_status attn_finish_native(const attn_layer_place *place, attn_layer_spec *spec,
                                              attn_error *err);
/* The keys of the native config.json, for attn_config_unknown_key(). */
extern const char *const attn_native_keys[];
extern const size_t attn_native_key_count;

/* --- what a file holds ---------------------------------------------------------------------- */

/* A stack's layers in a file: names are PREFIX + layer pattern + part. */
typedef struct {
    const char *prefix; /* not terminated: prefix_length characters of a tensor's name */
    size_t prefix_length;
    size_t hits;           /* how many layers have the first part */
    size_t groups, layers; /* highest {G} and {N} + 1 */
    const char *other;     /* a tensor with another prefix, or NULL */
} attn_stack_place;

/* Finds where each stack of a family lies: where several rows fit a tensor, the longest does. With
 * `whole`, names are whole names and no prefix is looked for. Returns the length of the longest
 * pattern that fitted, 0 for none. */
size_t attn_family_find(const attn_archive *a, const attn_family *f, bool whole,
                        attn_stack_place *place);

/* The family of config.json and tensors; *type is the model_type that named it, or its name. */
ATTN_NODISCARD attn_status attn_family_detect(const attn_archive *a, const char *path,
                                              const attn_config *config, const attn_family **out,
                                              const char **type, attn_error *err);

/* Whether `name` is the pattern with numbers, and which; unused ones are 0. `rest` as in strtol():
 * NULL = the whole name must fit. */
bool attn_pattern_match(const char *pattern, const char *name, size_t *group, size_t *n,
                        const char **rest);

/* out = prefix + pattern + name with the numbers put in. False: it does not fit. */
bool attn_pattern_expand(char *out, size_t size, const attn_stack_place *place, const char *pattern,
                         const char *name, size_t group, size_t n);

/* Index of a tensor, attn_archive_count() if there is none. */
size_t attn_archive_index(const attn_archive *a, const char *name);

/* "nearest present: "x"", or the first few names: for messages about a tensor that is not there. */
void attn_describe_nearest(const attn_archive *a, const char *wanted, char *out, size_t size);

/* --- the plan ------------------------------------------------------------------------------- */

/* Features (rows of [out,in]) start + b * stride .. + length, b < blocks, of a stored tensor. */
typedef struct {
    const attn_tensor *tensor; /* NULL = not there */
    bool in_out;
    size_t start, length, stride, blocks;
} attn_part;

typedef struct {
    char *source; /* tensor prefix without its last dot */
    attn_layer_spec spec;
    attn_part weight[ATTN_PARTS];
    attn_part bias[ATTN_PARTS];
    const attn_tensor *q_norm, *k_norm, *rel_bias;
    size_t same_as; /* first layer with these very tensors: itself but for ALBERT */
} attn_layer_plan;

typedef struct {
    const char *family; /* literal */
    attn_layer_plan *layer;
    size_t count, room;
    char **warning;
    size_t warnings;
} attn_plan;

/* Recognises the family, or takes `layout`, and says for each layer which tensors it is made of;
 * shapes are checked, data not read. `config` is the model's config.json. On failure *plan is empty.
 * Tensor pointers are the archive's. */
ATTN_NODISCARD attn_status attn_plan_make(attn_plan *plan, const attn_archive *a, const char *path,
                                          const attn_config *config, const attn_json *layout,
                                          attn_error *err);
void attn_plan_deinit(attn_plan *plan);

/* Adds a warning; what does not fit the memory is left out. */
void attn_plan_warn(attn_plan *plan, const char *format, ...) ATTN_PRINTF(2, 3);

/* A family made of a layout object: borrows its strings. */
typedef struct {
    attn_family family;
    attn_stack stack;
    char *layer; /* owned: the beginning that all names share */
} attn_explicit;

ATTN_NODISCARD attn_status attn_explicit_init(attn_explicit *x, const attn_config *layout,
                                              attn_error *err);
void attn_explicit_deinit(attn_explicit *x);

/* Makes one layer: reads its tensors, takes them apart, packs them. */
ATTN_NODISCARD attn_status attn_layer_read(attn_layer **out, const attn_archive *a,
                                           const attn_layer_plan *plan, attn_error *err);

#endif

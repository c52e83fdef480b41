/* Our own layout: the numbers of a native config.json, and the "layout" object that describes any
 * other file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

#define NUMBER_KEYS                                                                                \
    "d_model", "num_heads", "num_kv_heads", "head_dim", "v_head_dim", "is_causal", "scale",        \
        "softcap", "window", "rope", "alibi"

/* The last three are for people. */
const char *const attn_native_keys[] = {
    NUMBER_KEYS, "model_type", "num_layers",    "bias",        "attention_bias", "torch_dtype",
    "dtype",     "layout",     "architectures", "description", "head_names",     "vocabulary"};
const size_t attn_native_key_count = COUNT(attn_native_keys);

/* --- numbers -------------------------------------------------------------------------------- */

static attn_status window_side(const attn_config *c, const char *key, int64_t *out, attn_error *err)
{
    const attn_json *v = attn_json_get(c->object, key);

    if (attn_json_is_null(v))
        return ATTN_OK;
    if (!attn_json_integer(v, out) || *out < -1)
        return attn_fail(err, ATTN_EINVAL,
                         "%s: window.%s must be an integer, -1 (no limit) or more", c->label, key);
    return ATTN_OK;
}

static attn_status read_window(const attn_config *c, attn_window *out, attn_error *err)
{
    static const char *const keys[] = {"left", "right"};
    attn_config window = {NULL, NULL};

    ATTN_TRY(attn_config_object(c, "window", &window, err));
    if (window.object == NULL)
        return ATTN_OK;
    ATTN_TRY(attn_config_only(&window, keys, COUNT(keys), err));
    ATTN_TRY(window_side(&window, "left", &out->left, err));
    return window_side(&window, "right", &out->right, err);
}

static attn_status read_rope(const attn_config *c, size_t head_dim, attn_rope *out, attn_error *err)
{
    static const char *const keys[] = {"theta", "style", "dims"};
    attn_config rope = {NULL, NULL};
    const char *style = NULL;
    bool found = false;

    ATTN_TRY(attn_config_object(c, "rope", &rope, err));
    if (rope.object == NULL)
        return ATTN_OK;
    ATTN_TRY(attn_config_only(&rope, keys, COUNT(keys), err));
    ATTN_TRY(attn_config_string(&rope, "style", &style, err));
    if (style == NULL)
        return attn_fail(err, ATTN_EINVAL,
                         "%s: rope has no style; it must be \"half\" or \"interleaved\"", c->label);
    if (strcmp(style, "half") != 0 && strcmp(style, "interleaved") != 0)
        return attn_fail(err, ATTN_EINVAL,
                         "%s: rope.style is \"%.40s\"; it must be \"half\" or \"interleaved\"",
                         c->label, style);
    out->style = strcmp(style, "half") == 0 ? ATTN_ROPE_HALF : ATTN_ROPE_INTERLEAVED;
    out->theta = 10000.0;
    out->dims = head_dim;
    ATTN_TRY(attn_config_number(&rope, "theta", &out->theta, &found, err));
    return attn_config_size(&rope, "dims", &out->dims, &found, err);
}

attn_status attn_finish_native(const attn_layer_place *place, attn_layer_spec *spec,
                               attn_error *err)
{
    const attn_config *c = place->config;
    double scale = (double)spec->scale, softcap = 0;
    bool found = false;

    ATTN_TRY(attn_config_bool(c, "is_causal", &spec->is_causal, err));
    ATTN_TRY(attn_config_bool(c, "alibi", &spec->alibi, err));
    ATTN_TRY(attn_config_number(c, "scale", &scale, &found, err));
    ATTN_TRY(attn_config_number(c, "softcap", &softcap, &found, err));
    spec->scale = (float)scale;
    spec->softcap = (float)softcap;
    ATTN_TRY(read_window(c, &spec->window, err));
    return read_rope(c, spec->head_dim, &spec->rope, err);
}

/* --- the layout object ---------------------------------------------------------------------- */

/* The names of "weights" or "biases": q, k, v, o, where qkv and kv stand for several. */
static attn_status read_names(const attn_config *layout, const char *key, bool needed,
                              const char *out[ATTN_PARTS], attn_error *err)
{
    static const struct {
        const char *key;
        unsigned parts;
    } names[] = {{"q", 1U << ATTN_Q},
                 {"k", 1U << ATTN_K},
                 {"v", 1U << ATTN_V},
                 {"kv", 1U << ATTN_K | 1U << ATTN_V},
                 {"qkv", 1U << ATTN_Q | 1U << ATTN_K | 1U << ATTN_V},
                 {"o", 1U << ATTN_O}};
    static const char *const known[] = {"q", "k", "v", "kv", "qkv", "o"};
    attn_config object = {NULL, NULL};

    ATTN_TRY(attn_config_object(layout, key, &object, err));
    ATTN_TRY(attn_config_only(&object, known, COUNT(known), err));
    for (size_t i = 0; i < COUNT(names); i++) {
        const char *name = NULL;
        ATTN_TRY(attn_config_string(&object, names[i].key, &name, err));
        for (size_t p = 0; p < ATTN_PARTS && name != NULL; p++) {
            if ((names[i].parts >> p & 1) == 0)
                continue;
            if (out[p] != NULL)
                return attn_fail(err, ATTN_EINVAL, "%s: %s names a tensor for %c twice",
                                 layout->label, key, "qkvo"[p]);
            out[p] = name;
        }
    }
    for (size_t p = 0; p < ATTN_PARTS && needed; p++) {
        if (out[p] == NULL)
            return attn_fail(err, ATTN_EINVAL, "%s: %s names no tensor for %c", layout->label, key,
                             "qkvo"[p]);
    }
    return ATTN_OK;
}

/* All names must have {N}, or none. */
static attn_status check_numbered(const attn_stack *s, const char *label, attn_error *err)
{
    bool numbered = strstr(s->weight[ATTN_Q], "{N}") != NULL;

    for (size_t p = 0; p < 2 * ATTN_PARTS; p++) {
        const char *name = p < ATTN_PARTS ? s->weight[p] : s->bias[p - ATTN_PARTS];
        if (name != NULL && strstr(name, "{G}") != NULL)
            return attn_fail(err, ATTN_EINVAL, "%s: \"%.80s\": {G} has no meaning here", label,
                             name);
        if (name != NULL && (strstr(name, "{N}") != NULL) != numbered)
            return attn_fail(err, ATTN_EINVAL,
                             "%s: \"%.80s\" and \"%.80s\": either all names have {N} or none",
                             label, s->weight[ATTN_Q], name);
    }
    return ATTN_OK;
}

/* Moves what all names begin with, up to a dot, into s->layer. */
static bool share_beginning(attn_explicit *x)
{
    attn_stack *s = &x->stack;
    size_t n = strlen(s->weight[ATTN_Q]);

    for (size_t p = 0; p < 2 * ATTN_PARTS; p++) {
        const char *name = p < ATTN_PARTS ? s->weight[p] : s->bias[p - ATTN_PARTS];
        for (size_t i = 0; name != NULL && i < n; i++) {
            if (name[i] != s->weight[ATTN_Q][i])
                n = i;
        }
    }
    while (n > 0 && s->weight[ATTN_Q][n - 1] != '.')
        n--;
    x->layer = strndup(s->weight[ATTN_Q], n);
    s->layer = x->layer;
    for (size_t p = 0; p < ATTN_PARTS; p++) {
        s->weight[p] += n;
        s->bias[p] = s->bias[p] != NULL ? s->bias[p] + n : NULL;
    }
    return x->layer != NULL;
}

static bool is_fused(const attn_stack *s)
{
    const char *const *w = s->weight;
    return strcmp(w[ATTN_Q], w[ATTN_K]) == 0 || strcmp(w[ATTN_K], w[ATTN_V]) == 0 ||
           strcmp(w[ATTN_Q], w[ATTN_V]) == 0;
}

static attn_status read_orders(attn_stack *s, const attn_config *layout, attn_error *err)
{
    const char *orientation = NULL, *order = NULL;

    ATTN_TRY(attn_config_string(layout, "orientation", &orientation, err));
    if (orientation == NULL ||
        (strcmp(orientation, "out_in") != 0 && strcmp(orientation, "in_out") != 0))
        return attn_fail(err, ATTN_EINVAL, "%s: orientation must be \"out_in\" or \"in_out\"",
                         layout->label);
    s->in_out = strcmp(orientation, "in_out") == 0;
    ATTN_TRY(attn_config_string(layout, "order", &order, err));
    if (order != NULL && strcmp(order, "blocks") != 0 && strcmp(order, "heads") != 0)
        return attn_fail(err, ATTN_EINVAL,
                         "%s: order is \"%.40s\"; it must be \"blocks\" or \"heads\"",
                         layout->label, order);
    if ((order != NULL) != is_fused(s))
        return attn_fail(err, ATTN_EINVAL,
                         "%s: order is for fused matrices, and these need it: q, k and v are %s",
                         layout->label, is_fused(s) ? "fused" : "not fused");
    s->per_head = order != NULL && strcmp(order, "heads") == 0;
    return ATTN_OK;
}

attn_status attn_explicit_init(attn_explicit *x, const attn_config *layout, attn_error *err)
{
    static const char *const types[] = {"layout", NULL};
    static const char *const keys[] = {NUMBER_KEYS, "weights", "biases", "orientation", "order"};
    attn_stack *s = &x->stack;

    memset(x, 0, sizeof *x);
    if (!attn_json_is_object(layout->object))
        return attn_fail(err, ATTN_EINVAL, "%s: it is %s; it must be an object", layout->label,
                         attn_json_type_name(layout->object));
    ATTN_TRY(attn_config_only(layout, keys, COUNT(keys), err));
    ATTN_TRY(read_names(layout, "weights", true, s->weight, err));
    ATTN_TRY(read_names(layout, "biases", false, s->bias, err));
    ATTN_TRY(check_numbered(s, layout->label, err));
    ATTN_TRY(read_orders(s, layout, err));
    s->width = "d_model";
    s->heads = "num_heads";
    s->kv_heads = "num_kv_heads";
    s->head_dim = "head_dim";
    s->v_head_dim = "v_head_dim";
    s->any_width = true;
    s->finish = attn_finish_native;
    for (unsigned p = 0; p < ATTN_PARTS; p++)
        s->bias_always |= s->bias[p] != NULL ? 1U << p : 0;
    x->family = (attn_family){types, &x->stack, 1};
    if (!share_beginning(x))
        return attn_fail(err, ATTN_ENOMEM, "%s: no memory", layout->label);
    return ATTN_OK;
}

void attn_explicit_deinit(attn_explicit *x)
{
    free(x->layer);
    x->layer = NULL;
}

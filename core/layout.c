#include "layout.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 1024, SHAPE_SIZE = 200, MAX_DEPTH = 65536 };

/* What is known while the layers of one stack are planned. */
typedef struct {
    attn_plan *plan;
    const attn_archive *archive;
    const char *path;
    const char *type; /* of the model, for messages */
    bool *used;       /* of each tensor in the archive */
    attn_stack_place places[ATTN_MAX_STACKS];
    const attn_stack *stack;
    const attn_stack_place *place; /* one of these */
    attn_config config;            /* the stack's section of it */
    unsigned bias_needed;
} planner;

static const char *shape_text(const attn_tensor *t, char out[SHAPE_SIZE])
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < t->rank && used < SHAPE_SIZE; i++) {
        int n = snprintf(out + used, SHAPE_SIZE - used, "%c%zu", i == 0 ? '[' : ',', t->dim[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    if (used + 1 < SHAPE_SIZE)
        memcpy(out + used, t->rank == 0 ? "[]" : "]", t->rank == 0 ? 3 : 2);
    return out;
}

/* The first of "a|b|c". */
static int first_key_length(const char *keys)
{
    return (int)strcspn(keys, "|");
}

static attn_status fail_no_memory(const planner *p, attn_error *err)
{
    return attn_fail(err, ATTN_ENOMEM, "%s: not enough memory to plan its layers", p->path);
}

/* --- tensors of a layer --------------------------------------------------------------------- */

static bool full_name(const planner *p, const char *name, size_t group, size_t n,
                      char out[NAME_SIZE])
{
    return attn_pattern_expand(out, NAME_SIZE, p->place, p->stack->layer, name, group, n);
}

/* The tensor, marked as used; NULL = not there. */
static const attn_tensor *take(planner *p, const char *name, size_t group, size_t n)
{
    char full[NAME_SIZE];

    if (!full_name(p, name, group, n, full))
        return NULL;
    size_t i = attn_archive_index(p->archive, full);
    if (i == attn_archive_count(p->archive))
        return NULL;
    p->used[i] = true;
    return attn_archive_at(p->archive, i);
}

/* One sentence with the weights of a layer that are wanted and not there. */
static attn_status fail_missing(planner *p, size_t group, size_t n, attn_error *err)
{
    char list[260] = "", full[NAME_SIZE], first[NAME_SIZE] = "", nearest[200];
    size_t used = 0;

    for (size_t part = 0; part < ATTN_PARTS; part++) {
        const char *name = p->stack->weight[part];
        if (part > 0 && strcmp(name, p->stack->weight[part - 1]) == 0)
            continue;
        if (!full_name(p, name, group, n, full) ||
            attn_archive_index(p->archive, full) != attn_archive_count(p->archive))
            continue;
        if (first[0] == '\0')
            memcpy(first, full, sizeof first);
        int wrote =
            snprintf(list + used, sizeof list - used, "%s\"%s\"", used > 0 ? ", " : "", full);
        if (wrote > 0 && (size_t)wrote < sizeof list - used)
            used += (size_t)wrote;
        else
            list[used] = '\0';
    }
    attn_describe_nearest(p->archive, first, nearest, sizeof nearest);
    return attn_fail(err, ATTN_ENOTFOUND, "%s: no tensor %s, wanted for %s; %s", p->path,
                     list[0] != '\0' ? list : first, p->type, nearest);
}

static attn_status fail_shape(const attn_tensor *t, const attn_layer_spec *s, const char *needed,
                              attn_error *err)
{
    char shape[SHAPE_SIZE], key_heads[48] = "";

    if (s->num_kv_heads != s->num_heads)
        (void)snprintf(key_heads, sizeof key_heads, ", %zu key heads", s->num_kv_heads);
    return attn_fail(err, ATTN_ESHAPE,
                     "%s: %s is %s, but width %zu and %zu heads%s of size %zu need %s", t->file,
                     t->name, shape_text(t, shape), s->d_model, s->num_heads, key_heads,
                     s->head_dim, needed);
}

/* --- sizes ---------------------------------------------------------------------------------- */

static size_t features(const attn_tensor *t, bool in_out)
{
    return t->dim[in_out ? 1 : 0];
}

static size_t width(const attn_tensor *t, bool in_out)
{
    return t->dim[in_out ? 0 : 1];
}

static attn_status need_heads(const planner *p, attn_layer_spec *s, attn_error *err)
{
    const attn_stack *k = p->stack;
    bool found = false;

    ATTN_TRY(attn_config_size(&p->config, k->heads, &s->num_heads, &found, err));
    if (found)
        return ATTN_OK;
    if (k->default_heads != 0 && p->config.object != NULL) {
        s->num_heads = k->default_heads;
        return ATTN_OK;
    }
    if (k->default_head != 0 && s->d_model % k->default_head == 0) {
        s->num_heads = s->d_model / k->default_head;
        return ATTN_OK;
    }
    if (k->default_head != 0)
        return attn_fail(err, ATTN_ESHAPE, "%s: width %zu is not a multiple of %zu, a head of %s",
                         p->path, s->d_model, k->default_head, p->type);
    return attn_fail(err, ATTN_EINVAL, "%s: %s %.*s, and the tensors do not tell it",
                     p->config.label,
                     p->config.object == NULL ? "there is no such file to say" : "there is no",
                     first_key_length(k->heads), k->heads);
}

/* Heads and their sizes from config.json and the shape of the query's weights. */
static attn_status read_sizes(const planner *p, const attn_tensor *wq, attn_layer_spec *s,
                              attn_error *err)
{
    const attn_stack *k = p->stack;
    bool found = false;

    s->d_model = width(wq, k->in_out);
    if (k->width != NULL)
        ATTN_TRY(attn_config_size(&p->config, k->width, &s->d_model, &found, err));
    ATTN_TRY(need_heads(p, s, err));
    s->num_kv_heads = s->num_heads;
    if (k->kv_heads != NULL) {
        ATTN_TRY(attn_config_size(&p->config, k->kv_heads, &s->num_kv_heads, &found, err));
        if (s->num_heads % s->num_kv_heads != 0)
            return attn_fail(err, ATTN_EINVAL, "%s: %.*s %zu is not a multiple of %.*s %zu",
                             p->config.label, first_key_length(k->heads), k->heads, s->num_heads,
                             first_key_length(k->kv_heads), k->kv_heads, s->num_kv_heads);
    }
    found = false;
    if (k->head_dim != NULL)
        ATTN_TRY(attn_config_size(&p->config, k->head_dim, &s->head_dim, &found, err));
    if (!found && s->d_model % s->num_heads != 0)
        return attn_fail(err, ATTN_EINVAL,
                         "%s: width %zu is not a multiple of %.*s %zu, and there is no head_dim",
                         p->config.label, s->d_model, first_key_length(k->heads), k->heads,
                         s->num_heads);
    if (!found)
        s->head_dim = s->d_model / s->num_heads;
    s->v_head_dim = s->head_dim;
    if (k->v_head_dim != NULL)
        ATTN_TRY(attn_config_size(&p->config, k->v_head_dim, &s->v_head_dim, &found, err));
    return ATTN_OK;
}

/* --- weights and biases --------------------------------------------------------------------- */

static bool same_name(const char *a, const char *b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

/* Which features of a tensor are those of part `i`, when parts with its name share the tensor. */
static size_t place_part(const attn_stack *k, const char *const names[ATTN_PARTS], size_t i,
                         const attn_layer_spec *s, attn_part *out)
{
    const size_t head[] = {s->head_dim, s->head_dim, s->v_head_dim};
    const size_t heads[] = {s->num_heads, s->num_kv_heads, s->num_kv_heads};
    size_t total = 0, total_head = 0;

    for (size_t j = ATTN_Q; j <= ATTN_V; j++) {
        if (!same_name(names[i], names[j]))
            continue;
        if (j == i)
            out->start = k->per_head ? total_head : total;
        total += heads[j] * head[j];
        total_head += head[j];
    }
    bool apart = k->per_head && total_head != head[i];
    out->blocks = apart ? heads[i] : 1;
    out->length = apart ? head[i] : heads[i] * head[i];
    out->stride = apart ? total_head : 0;
    return total;
}

static attn_status plan_weight(const planner *p, attn_layer_plan *l, size_t i, const attn_tensor *t,
                               attn_error *err)
{
    attn_layer_spec *s = &l->spec;
    attn_part *part = &l->weight[i];
    bool in_out = p->stack->in_out;
    size_t in = i == ATTN_Q ? s->d_model : s->d_kv, out = s->d_out;
    char needed[64];

    part->tensor = t;
    part->in_out = in_out;
    if (i == ATTN_O) {
        in = s->num_heads * s->v_head_dim;
        part->blocks = 1;
        part->length = s->d_out;
    } else {
        out = place_part(p->stack, p->stack->weight, i, s, part);
    }
    if (features(t, in_out) == out && width(t, in_out) == in)
        return ATTN_OK;
    (void)snprintf(needed, sizeof needed, "[%zu,%zu]", in_out ? in : out, in_out ? out : in);
    return fail_shape(t, s, needed, err);
}

static attn_status plan_weights(planner *p, attn_layer_plan *l, size_t group, size_t n,
                                attn_error *err)
{
    const attn_stack *k = p->stack;
    const attn_tensor *t[ATTN_PARTS];
    attn_layer_spec *s = &l->spec;
    char shape[SHAPE_SIZE];

    for (size_t i = 0; i < ATTN_PARTS; i++) {
        t[i] = take(p, k->weight[i], group, n);
        if (t[i] == NULL)
            return fail_missing(p, group, n, err);
        if (t[i]->rank != 2 || t[i]->count == 0)
            return attn_fail(err, ATTN_ESHAPE, "%s: %s is %s; a weight matrix has two dimensions",
                             t[i]->file, t[i]->name, shape_text(t[i], shape));
    }
    ATTN_TRY(read_sizes(p, t[ATTN_Q], s, err));
    if (k->per_head && s->num_kv_heads != s->num_heads && t[ATTN_Q] == t[ATTN_K])
        return attn_fail(
            err, ATTN_EUNSUPPORTED,
            "%s: q, k, v fused by heads need as many key heads as heads, not %zu and %zu",
            p->config.label, s->num_kv_heads, s->num_heads);
    s->d_kv = k->any_width && t[ATTN_K] != t[ATTN_Q] ? width(t[ATTN_K], k->in_out) : s->d_model;
    s->d_out = k->any_width ? features(t[ATTN_O], k->in_out) : s->d_model;
    if (k->any_width && width(t[ATTN_K], k->in_out) != width(t[ATTN_V], k->in_out) &&
        t[ATTN_V] != t[ATTN_Q])
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "%s: %s takes width %zu and %s width %zu; keys and values of different "
                         "widths are not supported",
                         t[ATTN_K]->file, t[ATTN_K]->name, width(t[ATTN_K], k->in_out),
                         t[ATTN_V]->name, width(t[ATTN_V], k->in_out));
    s->cross = k->cross || s->d_kv != s->d_model;
    for (size_t i = 0; i < ATTN_PARTS; i++)
        ATTN_TRY(plan_weight(p, l, i, t[i], err));
    return ATTN_OK;
}

static attn_status plan_bias(planner *p, attn_layer_plan *l, size_t i, size_t group, size_t n,
                             attn_error *err)
{
    const char *const *names = p->stack->bias;
    attn_part *part = &l->bias[i];
    char needed[32], full[NAME_SIZE] = "";

    if (names[i] == NULL)
        return ATTN_OK;
    const attn_tensor *t = take(p, names[i], group, n);
    if (t == NULL) {
        if ((p->bias_needed >> i & 1) == 0)
            return ATTN_OK;
        bool by_key = p->stack->bias_key != NULL && (p->stack->bias_always >> i & 1) == 0;
        (void)full_name(p, names[i], group, n, full);
        if (by_key)
            return attn_fail(err, ATTN_ENOTFOUND, "%s: no tensor \"%s\", but %.*s is true", p->path,
                             full, first_key_length(p->stack->bias_key), p->stack->bias_key);
        return attn_fail(err, ATTN_ENOTFOUND, "%s: no tensor \"%s\", wanted for %s", p->path, full,
                         p->type);
    }
    size_t out = l->spec.d_out;
    if (i == ATTN_O) {
        part->blocks = 1;
        part->length = out;
    } else {
        out = place_part(p->stack, names, i, &l->spec, part);
    }
    part->tensor = t;
    if (t->rank == 1 && t->dim[0] == out)
        return ATTN_OK;
    (void)snprintf(needed, sizeof needed, "[%zu]", out);
    return fail_shape(t, &l->spec, needed, err);
}

/* A tensor of one row or table that the stack names; NULL name = none. */
static attn_status plan_extra(planner *p, attn_layer_plan *l, const char *name, size_t group,
                              size_t n, size_t rows, size_t columns, const attn_tensor **out,
                              attn_error *err)
{
    char needed[64], full[NAME_SIZE] = "";
    const attn_tensor *t = NULL;

    if (name == NULL)
        return ATTN_OK;
    t = take(p, name, group, n);
    if (t == NULL && rows > 0)
        t = take(p, name, group, 0); /* T5: the table of layer 0 serves all */
    if (t == NULL) {
        (void)full_name(p, name, group, rows > 0 ? 0 : n, full);
        return attn_fail(err, ATTN_ENOTFOUND, "%s: no tensor \"%s\", wanted for %s", p->path, full,
                         p->type);
    }
    *out = t;
    bool fits = rows > 0 ? t->rank == 2 && t->dim[0] == rows && t->dim[1] == columns
                         : t->rank == 1 && t->dim[0] == columns;
    if (fits)
        return ATTN_OK;
    if (rows > 0)
        (void)snprintf(needed, sizeof needed, "[%zu,%zu]", rows, columns);
    else
        (void)snprintf(needed, sizeof needed, "[%zu]", columns);
    return fail_shape(t, &l->spec, needed, err);
}

/* --- layers --------------------------------------------------------------------------------- */

/* A new layer at the end of the plan, with the name it comes from. */
static attn_layer_plan *add_layer(planner *p, size_t group, size_t n)
{
    attn_plan *plan = p->plan;
    char full[NAME_SIZE];

    if (plan->count == plan->room) {
        size_t room = plan->room > 0 ? 2 * plan->room : 16;
        attn_layer_plan *more = realloc(plan->layer, room * sizeof *more);
        if (more == NULL)
            return NULL;
        plan->layer = more;
        plan->room = room;
    }
    attn_layer_plan *l = &plan->layer[plan->count];
    memset(l, 0, sizeof *l);
    if (!full_name(p, "", group, n, full) || full[0] == '\0')
        (void)snprintf(full, sizeof full, "%s", p->stack->weight[ATTN_Q]);
    else if (full[strlen(full) - 1] == '.')
        full[strlen(full) - 1] = '\0';
    l->source = strdup(full);
    if (l->source == NULL)
        return NULL;
    l->same_as = plan->count++;
    return l;
}

static attn_status plan_layer(planner *p, size_t group, size_t n, size_t layers, attn_error *err)
{
    const attn_stack *k = p->stack;
    attn_layer_plan *l = add_layer(p, group, n);
    attn_layer_place place = {&p->config, k, n, layers};

    if (l == NULL)
        return fail_no_memory(p, err);
    attn_layer_spec *s = &l->spec;
    ATTN_TRY(plan_weights(p, l, group, n, err));
    for (size_t i = 0; i < ATTN_PARTS; i++)
        ATTN_TRY(plan_bias(p, l, i, group, n, err));
    s->scale = (float)(1.0 / sqrt((double)s->head_dim));
    s->is_causal = k->causal;
    s->window = (attn_window){-1, -1};
    if (k->finish != NULL)
        ATTN_TRY(k->finish(&place, s, err));
    attn_error why = {0};
    attn_status fit = attn_layer_check_spec(s, &why);
    if (fit != ATTN_OK)
        return attn_fail(err, fit, "%s: layer %s: %s",
                         p->config.object != NULL ? p->config.label : p->path, l->source, why.text);
    ATTN_TRY(plan_extra(p, l, k->q_norm, group, n, 0, s->head_dim, &l->q_norm, err));
    ATTN_TRY(plan_extra(p, l, k->k_norm, group, n, 0, s->head_dim, &l->k_norm, err));
    return plan_extra(p, l, k->rel_bias, group, n, s->rel_buckets, s->num_heads, &l->rel_bias, err);
}

/* ALBERT: num_hidden_layers in equal runs over the groups, each with all layers of its group. */
static attn_status plan_groups(planner *p, size_t depth, attn_error *err)
{
    size_t groups = p->place->groups, inner = p->place->layers, told = groups,
           first = p->plan->count;
    bool found = false;

    ATTN_TRY(attn_config_size(&p->config, "num_hidden_groups", &told, &found, err));
    if (told != groups)
        return attn_fail(err, ATTN_ESHAPE, "%s: num_hidden_groups is %zu, but the file has %zu",
                         p->config.label, told, groups);
    if (depth == 0 || depth > MAX_DEPTH)
        return attn_fail(err, ATTN_EINVAL, "%s: num_hidden_layers must be there, and at most %d",
                         p->config.label, MAX_DEPTH);
    for (size_t i = 0; i < depth * inner; i++) {
        size_t group = i / inner * groups / depth;
        ATTN_TRY(plan_layer(p, group, i % inner, depth, err));
        attn_layer_plan *layer = p->plan->layer;
        for (size_t j = first; j < first + i; j++) {
            if (layer[j].weight[ATTN_Q].tensor == layer[first + i].weight[ATTN_Q].tensor) {
                layer[first + i].same_as = j;
                break;
            }
        }
    }
    return ATTN_OK;
}

static attn_status plan_depth(planner *p, size_t depth, attn_error *err)
{
    size_t layers = p->place->layers;

    if (depth != 0 && depth < layers)
        return attn_fail(err, ATTN_ESHAPE,
                         "%s: %.*s is %zu, but the file has %zu layers like %.*s%s",
                         p->config.label, first_key_length(p->stack->depth), p->stack->depth, depth,
                         layers, (int)p->place->prefix_length, p->place->prefix, p->stack->layer);
    for (size_t n = 0; n < layers || n < depth; n++)
        ATTN_TRY(plan_layer(p, 0, n, layers, err));
    return ATTN_OK;
}

static attn_status plan_stack(planner *p, const attn_config *config, attn_error *err)
{
    const attn_stack *k = p->stack;
    bool found = false, switched = k->bias_default;
    size_t depth = 0;

    p->config = *config;
    if (p->place->other != NULL)
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "%s: the layers of %s stand under two prefixes, as \"%.*s%s%s\" and as "
                         "\"%.120s\"; a \"layout\" object can say which",
                         p->path, p->type, (int)p->place->prefix_length, p->place->prefix, k->layer,
                         k->weight[ATTN_Q], p->place->other);
    if (k->section != NULL) {
        ATTN_TRY(attn_config_object(config, k->section, &p->config, err));
        if (p->config.object == NULL)
            p->config = *config;
    }
    if (k->depth != NULL)
        ATTN_TRY(attn_config_size(&p->config, k->depth, &depth, &found, err));
    if (k->bias_key != NULL)
        ATTN_TRY(attn_config_bool(&p->config, k->bias_key, &switched, err));
    p->bias_needed = k->bias_always | (switched ? k->bias_switched : 0);
    if (strstr(k->layer, "{G}") != NULL)
        return plan_groups(p, depth, err);
    return plan_depth(p, depth, err);
}

/* --- what is left over ---------------------------------------------------------------------- */

/* Whether `rest` is one of "a|b.|c": an item that ends in a dot stands for all that begins with it. */
static bool listed(const char *items, const char *rest)
{
    while (items != NULL && *items != '\0') {
        size_t n = strcspn(items, "|");
        if (strncmp(items, rest, n) == 0 && (items[n - 1] == '.' || rest[n] == '\0'))
            return true;
        items += n + (items[n] == '|');
    }
    return false;
}

/* Tensors beside the weights that nothing used, once for each name whatever the layer. */
static attn_status check_unused(planner *p, attn_error *err)
{
    enum { MOST = 32 };
    const attn_stack *k = p->stack;
    const attn_stack_place *place = p->place;
    const char *seen[MOST];
    size_t count[MOST], kinds = 0;

    if (place->prefix_length == 0 && k->layer[0] == '\0' &&
        strstr(k->weight[ATTN_Q], "{N}") != NULL)
        return ATTN_OK; /* nothing tells what is beside them */
    for (size_t t = 0; t < attn_archive_count(p->archive); t++) {
        const attn_tensor *tensor = attn_archive_at(p->archive, t);
        const char *rest = NULL;
        size_t group = 0, n = 0, kind = 0;
        if (p->used[t] || strncmp(tensor->name, place->prefix, place->prefix_length) != 0 ||
            !attn_pattern_match(k->layer, tensor->name + place->prefix_length, &group, &n, &rest) ||
            listed(k->quiet, rest))
            continue;
        if (listed(k->refuse, rest))
            return attn_fail(err, ATTN_EUNSUPPORTED,
                             "%s: %s changes the attention in a way that is not supported for %s",
                             tensor->file, tensor->name, p->type);
        p->used[t] = true;
        while (kind < kinds && strcmp(seen[kind], rest) != 0)
            kind++;
        if (kind == MOST)
            continue;
        if (kind == kinds) {
            seen[kinds] = rest;
            count[kinds++] = 0;
        }
        count[kind]++;
    }
    for (size_t i = 0; i < kinds; i++)
        attn_plan_warn(p->plan, "%.*s%s%s is in the file and not used (%zu tensor%s)",
                       (int)place->prefix_length, place->prefix, k->layer, seen[i], count[i],
                       count[i] == 1 ? "" : "s");
    return ATTN_OK;
}

void attn_plan_warn(attn_plan *plan, const char *format, ...)
{
    char **more = realloc(plan->warning, (plan->warnings + 1) * sizeof *more);
    char *text = NULL;
    va_list args;

    if (more == NULL)
        return;
    plan->warning = more;
    va_start(args, format);
    int length = vasprintf(&text, format, args);
    va_end(args);
    if (length >= 0)
        plan->warning[plan->warnings++] = text;
}

/* --- the whole ------------------------------------------------------------------------------ */

static attn_status plan_family(planner *p, const attn_family *f, bool whole,
                               const attn_config *config, attn_error *err)
{
    attn_stack_place *place = p->places;
    size_t longest = attn_family_find(p->archive, f, whole, place);

    for (size_t i = 0; i < f->stacks; i++) {
        p->stack = &f->stack[i];
        p->place = &place[i];
        bool previous = p->stack->needs_previous && place[i - 1].hits > 0;
        if (place[i].hits == 0 && !previous && !(longest == 0 && i == 0))
            continue;
        if (place[i].hits == 0 && previous) {
            place[i].prefix = place[i - 1].prefix;
            place[i].prefix_length = place[i - 1].prefix_length;
        }
        if (place[i].hits == 0 || (previous && place[i].layers < place[i - 1].layers))
            return fail_missing(p, 0, place[i].layers, err);
        ATTN_TRY(plan_stack(p, config, err));
    }
    for (size_t i = 0; i < f->stacks; i++) {
        p->stack = &f->stack[i];
        p->place = &place[i];
        if (place[i].hits > 0)
            ATTN_TRY(check_unused(p, err));
    }
    if (f->stack->finish == attn_finish_native && !whole) {
        const char *key = attn_config_unknown_key(config, attn_native_keys, attn_native_key_count);
        if (key != NULL)
            attn_plan_warn(p->plan, "%s: the key \"%.64s\" is not known and not used",
                           config->label, key);
    }
    return ATTN_OK;
}

static attn_status plan_explicit(planner *p, const attn_json *layout, const char *label,
                                 attn_error *err)
{
    attn_config config = {layout, label};
    attn_explicit x;

    attn_status rc = attn_explicit_init(&x, &config, err);
    p->type = p->plan->family = "layout";
    if (rc == ATTN_OK)
        rc = plan_family(p, &x.family, true, &config, err);
    attn_explicit_deinit(&x);
    return rc;
}

attn_status attn_plan_make(attn_plan *plan, const attn_archive *a, const char *path,
                           const attn_config *config, const attn_json *layout, attn_error *err)
{
    planner p = {.plan = plan, .archive = a, .path = path};
    const attn_family *family = NULL;
    const char *place = path;
    char *label = NULL;
    attn_status rc = ATTN_OK;

    memset(plan, 0, sizeof *plan);
    p.used = calloc(attn_archive_count(a) + 1, sizeof *p.used);
    if (layout == NULL && config->object != NULL) {
        layout = attn_json_get(config->object, "layout");
        place = config->label;
    }
    if (p.used == NULL || asprintf(&label, "%s: layout", place) < 0) {
        label = NULL;
        rc = fail_no_memory(&p, err);
    } else if (!attn_json_is_null(layout)) {
        rc = plan_explicit(&p, layout, label, err);
    } else {
        rc = attn_family_detect(a, path, config, &family, &p.type, err);
        plan->family = p.type;
        if (rc == ATTN_OK)
            rc = plan_family(&p, family, false, config, err);
    }
    free(label);
    free(p.used);
    if (rc != ATTN_OK)
        attn_plan_deinit(plan);
    return rc;
}

void attn_plan_deinit(attn_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        free(plan->layer[i].source);
    for (size_t i = 0; i < plan->warnings; i++)
        free(plan->warning[i]);
    free(plan->layer);
    free(plan->warning);
    memset(plan, 0, sizeof *plan);
}

/* Which family a file belongs to, and under which prefix its layers lie. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "layout.h"
#include "nearest.h"

enum { MAX_DIGITS = 6 };

/* --- names and patterns --------------------------------------------------------------------- */

/* {N} or {G}. */
static bool is_number(const char *p)
{
    return p[0] == '{' && (p[1] == 'N' || p[1] == 'G') && p[2] == '}';
}

bool attn_pattern_match(const char *pattern, const char *name, size_t *group, size_t *n,
                        const char **rest)
{
    *group = *n = 0;
    while (*pattern != '\0') {
        if (!is_number(pattern)) {
            if (*pattern++ != *name++)
                return false; /* also at the end of the name, which is no character of a pattern */
            continue;
        }
        size_t value = 0, digits = 0;
        while (digits <= MAX_DIGITS && isdigit((unsigned char)name[digits]))
            value = value * 10 + (size_t)(name[digits++] - '0');
        if (digits == 0 || digits > MAX_DIGITS || (digits > 1 && name[0] == '0'))
            return false;
        *(pattern[1] == 'G' ? group : n) = value;
        name += digits;
        pattern += 3;
    }
    if (rest != NULL)
        *rest = name;
    return rest != NULL || *name == '\0';
}

/* Appends `text` with its numbers put in; false: no room. */
static bool append(char *out, size_t size, size_t *used, const char *text, size_t group, size_t n)
{
    while (*text != '\0') {
        int length = 1;
        if (is_number(text)) {
            length = snprintf(out + *used, size - *used, "%zu", text[1] == 'G' ? group : n);
            text += 3;
        } else {
            out[*used] = *text++;
        }
        if (length < 0 || (size_t)length >= size - *used)
            return false;
        *used += (size_t)length;
    }
    out[*used] = '\0';
    return true;
}

bool attn_pattern_expand(char *out, size_t size, const attn_stack_place *place, const char *pattern,
                         const char *name, size_t group, size_t n)
{
    size_t used = place->prefix_length;

    if (used >= size)
        return false;
    if (used > 0)
        memcpy(out, place->prefix, used);
    return append(out, size, &used, pattern, group, n) && append(out, size, &used, name, group, n);
}

size_t attn_archive_index(const attn_archive *a, const char *name)
{
    size_t count = attn_archive_count(a), low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(attn_archive_at(a, middle)->name, name);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return count;
}

/* Names are compared by their ends: prefixes vary, and long names differ at the end. */
static const char *tail(const char *name)
{
    enum { LONGEST = 63 };
    size_t n = strlen(name);
    return n > LONGEST ? name + (n - LONGEST) : name;
}

void attn_describe_nearest(const attn_archive *a, const char *wanted, char *out, size_t size)
{
    enum { SHOWN = 3, BATCH = 64 };
    const char *best = NULL, *batch[BATCH + 1];
    size_t count = attn_archive_count(a);

    /* The winner so far stands first in each batch, so that no list as long as the file is made. */
    for (size_t i = 0; i < count;) {
        size_t n = 0;
        if (best != NULL)
            batch[n++] = best;
        while (n <= BATCH && i < count)
            batch[n++] = tail(attn_archive_at(a, i++)->name);
        best = attn_nearest(tail(wanted), batch, n);
    }
    for (size_t i = 0; i < count && best != NULL; i++) {
        if (tail(attn_archive_at(a, i)->name) != best)
            continue;
        (void)snprintf(out, size, "nearest present: \"%.150s\"", attn_archive_at(a, i)->name);
        return;
    }
    (void)snprintf(out, size, "there are %zu tensors", count);
    for (size_t i = 0; i < count && i < SHOWN; i++) {
        size_t used = strlen(out);
        (void)snprintf(out + used, size - used, "%s\"%.50s\"", i == 0 ? ", like " : ", ",
                       attn_archive_at(a, i)->name);
    }
}

/* --- where a family's stacks lie ------------------------------------------------------------ */

static size_t pattern_length(const attn_stack *s)
{
    return strlen(s->layer) + strlen(s->weight[ATTN_Q]);
}

/* Whether `name` is the first part of a layer of this stack from some dot on (or the start). */
static bool fits(const attn_stack *s, const char *name, bool whole, size_t *prefix_length,
                 size_t *group, size_t *n)
{
    size_t inner_group = 0, inner_n = 0;

    for (const char *at = name;; at++) {
        const char *rest = NULL;
        if (attn_pattern_match(s->layer, at, group, n, &rest) &&
            attn_pattern_match(s->weight[ATTN_Q], rest, &inner_group, &inner_n, NULL)) {
            *prefix_length = (size_t)(at - name);
            *n = *n > inner_n ? *n : inner_n; /* {N} may stand in either, or in both */
            return true;
        }
        if (whole)
            return false;
        at = strchr(at, '.');
        if (at == NULL)
            return false;
    }
}

size_t attn_family_find(const attn_archive *a, const attn_family *f, bool whole,
                        attn_stack_place *place)
{
    size_t longest = 0;

    memset(place, 0, f->stacks * sizeof *place);
    for (size_t t = 0; t < attn_archive_count(a); t++) {
        const char *name = attn_archive_at(a, t)->name;
        size_t best = f->stacks, best_prefix = 0, best_group = 0, best_n = 0;
        for (size_t s = 0; s < f->stacks; s++) {
            size_t prefix = 0, group = 0, n = 0;
            if ((best == f->stacks ||
                 pattern_length(&f->stack[s]) > pattern_length(&f->stack[best])) &&
                fits(&f->stack[s], name, whole, &prefix, &group, &n)) {
                best = s;
                best_prefix = prefix, best_group = group, best_n = n;
            }
        }
        if (best == f->stacks)
            continue;
        attn_stack_place *p = &place[best];
        if (p->hits == 0) {
            p->prefix = name;
            p->prefix_length = best_prefix;
        } else if (p->prefix_length != best_prefix || memcmp(p->prefix, name, best_prefix) != 0) {
            p->other = p->other != NULL ? p->other : name;
            continue;
        }
        p->hits++;
        p->groups = p->groups > best_group + 1 ? p->groups : best_group + 1;
        p->layers = p->layers > best_n + 1 ? p->layers : best_n + 1;
        if (pattern_length(&f->stack[best]) > longest)
            longest = pattern_length(&f->stack[best]);
    }
    return longest;
}

/* --- which family --------------------------------------------------------------------------- */

static const attn_family *by_type(const char *type)
{
    for (size_t f = 0; f < attn_family_count; f++) {
        for (const char *const *t = attn_families[f].types; *t != NULL; t++) {
            if (strcmp(*t, type) == 0)
                return &attn_families[f];
        }
    }
    return NULL;
}

/* Whether a class name like "XLMRobertaForMaskedLM" belongs to model_type "xlm-roberta". */
static bool class_is(const char *class_name, const char *type)
{
    static const char *const ends[] = {"For",          "Model",      "LMHead",    "DoubleHeads",
                                       "EncoderModel", "EncoderFor", "TextModel", "VisionModel",
                                       "PreTrained",   "WithLMHead"};
    for (; *type != '\0'; type++) {
        if (*type == '-' || *type == '_')
            continue;
        if (tolower((unsigned char)*class_name) != tolower((unsigned char)*type))
            return false;
        class_name++;
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (strncmp(class_name, ends[i], strlen(ends[i])) == 0)
            return true;
    }
    return false;
}

static const attn_family *by_class(const char *class_name, const char **type)
{
    for (size_t f = 0; f < attn_family_count; f++) {
        for (const char *const *t = attn_families[f].types; *t != NULL; t++) {
            if (class_is(class_name, *t)) {
                *type = *t;
                return &attn_families[f];
            }
        }
    }
    return NULL;
}

static attn_status fail_unknown(const attn_config *config, const char *key, const char *value,
                                attn_error *err)
{
    enum { MOST = 128 };
    const char *all[MOST];
    size_t n = 0;

    for (size_t f = 0; f < attn_family_count; f++) {
        for (const char *const *t = attn_families[f].types; *t != NULL && n < MOST; t++)
            all[n++] = *t;
    }
    const char *nearest = attn_nearest(value, all, n);
    return attn_fail(err, ATTN_EUNSUPPORTED,
                     "%s: %s \"%.64s\" is not a family known here%s%s%s; a \"layout\" object can "
                     "describe the file",
                     config->label, key, value, nearest != NULL ? " (the nearest is \"" : "",
                     nearest != NULL ? nearest : "", nearest != NULL ? "\")" : "");
}

/* By tensor names: the family with the longest pattern that fits, if it is only one. */
static attn_status by_names(const attn_archive *a, const char *path, const attn_family **out,
                            attn_error *err)
{
    attn_stack_place place[ATTN_MAX_STACKS];
    const attn_family *best = NULL;
    size_t longest = 0, used = 0;
    char rivals[160] = "", nearest[200];

    for (size_t f = 0; f < attn_family_count; f++) {
        size_t n = attn_family_find(a, &attn_families[f], false, place);
        if (n == 0 || n < longest)
            continue;
        if (n > longest)
            used = 0;
        int wrote = snprintf(rivals + used, sizeof rivals - used, "%s%s", used > 0 ? ", " : "",
                             attn_families[f].types[0]);
        if (wrote > 0 && (size_t)wrote < sizeof rivals - used)
            used += (size_t)wrote;
        best = n > longest ? &attn_families[f] : NULL;
        longest = n;
    }
    if (best == NULL && longest > 0)
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "%s: the tensors fit several families (%s) and no config.json names one "
                         "by model_type",
                         path, rivals);
    if (best == NULL) {
        attn_describe_nearest(a, "layers.0.wq.weight", nearest, sizeof nearest);
        return attn_fail(
            err, ATTN_EUNSUPPORTED,
            "%s: no attention layers of a known family, like \"layers.0.wq.weight\" or "
            "\"encoder.layer.0.attention.self.query.weight\"; %s",
            path, nearest);
    }
    *out = best;
    return ATTN_OK;
}

attn_status attn_family_detect(const attn_archive *a, const char *path, const attn_config *config,
                               const attn_family **out, const char **type, attn_error *err)
{
    const char *named = NULL;
    const attn_json *classes = NULL;

    ATTN_TRY(attn_config_string(config, "model_type", &named, err));
    if (named != NULL) {
        *out = by_type(named);
        if (*out == NULL)
            return fail_unknown(config, "model_type", named, err);
        for (const char *const *t = (*out)->types; *t != NULL; t++) {
            if (strcmp(*t, named) == 0)
                *type = *t;
        }
        return ATTN_OK;
    }
    if (config->object != NULL)
        classes = attn_json_get(config->object, "architectures");
    if (attn_json_length(classes) > 0 && attn_json_string(attn_json_at(classes, 0), &named)) {
        *out = by_class(named, type);
        return *out != NULL ? ATTN_OK : fail_unknown(config, "architectures", named, err);
    }
    ATTN_TRY(by_names(a, path, out, err));
    *type = (*out)->types[0];
    return ATTN_OK;
}

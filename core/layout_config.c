/* Hyper-parameters of a config.json: exact types, ranges, and every spelling of rotary numbers. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "layout.h"
#include "nearest.h"

enum { MAX_SIZE = 1 << 24, MAX_KEY = 64 };

/* The value of the first of "a|b|c" that is there and not null; `key` gets its name, or the first
 * name when there is none. */
static const attn_json *look_up(const attn_config *c, const char *keys, char key[MAX_KEY])
{
    const char *start = keys;

    for (;;) {
        size_t n = strcspn(start, "|");
        size_t kept = n < MAX_KEY ? n : MAX_KEY - 1;
        memcpy(key, start, kept);
        key[kept] = '\0';
        const attn_json *v = c->object != NULL ? attn_json_get(c->object, key) : NULL;
        if (!attn_json_is_null(v))
            return v;
        if (start[n] == '\0')
            break;
        start += n + 1;
    }
    size_t n = strcspn(keys, "|");
    memcpy(key, keys, n < MAX_KEY ? n : MAX_KEY - 1);
    key[n < MAX_KEY ? n : MAX_KEY - 1] = '\0';
    return NULL;
}

attn_status attn_config_size(const attn_config *c, const char *keys, size_t *out, bool *found,
                             attn_error *err)
{
    char key[MAX_KEY];
    const attn_json *v = look_up(c, keys, key);
    int64_t n = 0;

    *found = v != NULL;
    if (v == NULL)
        return ATTN_OK;
    if (!attn_json_integer(v, &n))
        return attn_fail(err, ATTN_EINVAL, "%s: %s is %s; it must be an integer from 1 to %d",
                         c->label, key, attn_json_type_name(v), MAX_SIZE);
    if (n < 1 || n > MAX_SIZE)
        return attn_fail(err, ATTN_EINVAL, "%s: %s is %" PRId64 "; it must be from 1 to %d",
                         c->label, key, n, MAX_SIZE);
    *out = (size_t)n;
    return ATTN_OK;
}

attn_status attn_config_number(const attn_config *c, const char *keys, double *out, bool *found,
                               attn_error *err)
{
    char key[MAX_KEY];
    const attn_json *v = look_up(c, keys, key);
    double x = 0;

    *found = v != NULL;
    if (v == NULL)
        return ATTN_OK;
    if (!attn_json_number(v, &x))
        return attn_fail(err, ATTN_EINVAL, "%s: %s is %s; it must be a number", c->label, key,
                         attn_json_type_name(v));
    if (!isfinite((float)x))
        return attn_fail(err, ATTN_EINVAL, "%s: %s is %g; float32 cannot hold it", c->label, key,
                         x);
    *out = x;
    return ATTN_OK;
}

attn_status attn_config_bool(const attn_config *c, const char *keys, bool *out, attn_error *err)
{
    char key[MAX_KEY];
    const attn_json *v = look_up(c, keys, key);

    if (v != NULL && !attn_json_bool(v, out))
        return attn_fail(err, ATTN_EINVAL, "%s: %s is %s; it must be true or false", c->label, key,
                         attn_json_type_name(v));
    return ATTN_OK;
}

attn_status attn_config_string(const attn_config *c, const char *keys, const char **out,
                               attn_error *err)
{
    char key[MAX_KEY];
    const attn_json *v = look_up(c, keys, key);

    if (v != NULL && !attn_json_string(v, out))
        return attn_fail(err, ATTN_EINVAL, "%s: %s is %s; it must be a string", c->label, key,
                         attn_json_type_name(v));
    return ATTN_OK;
}

attn_status attn_config_object(const attn_config *c, const char *key, attn_config *out,
                               attn_error *err)
{
    char ignored[MAX_KEY];
    const attn_json *v = look_up(c, key, ignored);

    *out = (attn_config){NULL, c->label};
    if (v != NULL && !attn_json_is_object(v))
        return attn_fail(err, ATTN_EINVAL, "%s: %s is %s; it must be an object", c->label, key,
                         attn_json_type_name(v));
    out->object = v;
    return ATTN_OK;
}

const char *attn_config_unknown_key(const attn_config *c, const char *const *known, size_t n)
{
    void *it = NULL;
    const char *key = NULL;
    const attn_json *value = NULL;

    while (c->object != NULL && attn_json_next(c->object, &it, &key, &value)) {
        size_t i = 0;
        while (i < n && strcmp(key, known[i]) != 0)
            i++;
        if (i == n)
            return key;
    }
    return NULL;
}

attn_status attn_config_only(const attn_config *c, const char *const *known, size_t n,
                             attn_error *err)
{
    const char *key = attn_config_unknown_key(c, known, n);

    if (key == NULL)
        return ATTN_OK;
    const char *nearest = attn_nearest(key, known, n);
    return attn_fail(err, ATTN_EINVAL, "%s: there is no key \"%.64s\" here%s%s%s", c->label, key,
                     nearest != NULL ? "; did you mean \"" : "", nearest != NULL ? nearest : "",
                     nearest != NULL ? "\"?" : "");
}

/* --- rotary embedding ----------------------------------------------------------------------- */

/* rope_parameters for this layer type: the object itself, or the one below it (transformers 5). */
static attn_status rope_parameters(const attn_config *c, const char *layer_type, attn_config *out,
                                   attn_error *err)
{
    void *it = NULL;
    const char *key = NULL;
    const attn_json *value = NULL;

    ATTN_TRY(attn_config_object(c, "rope_parameters", out, err));
    while (out->object != NULL && attn_json_next(out->object, &it, &key, &value)) {
        if (!attn_json_is_object(value))
            continue;
        const attn_json *ours = attn_json_get(out->object, layer_type);
        if (!attn_json_is_object(ours))
            return attn_fail(
                err, ATTN_EINVAL,
                "%s: rope_parameters has \"%.64s\", but not \"%s\", which a layer needs", c->label,
                key, layer_type);
        out->object = ours;
        return ATTN_OK;
    }
    return ATTN_OK;
}

static attn_status need_number(const attn_config *c, const char *key, double *out, attn_error *err)
{
    bool found = false;
    ATTN_TRY(attn_config_number(c, key, out, &found, err));
    if (!found)
        return attn_fail(err, ATTN_EINVAL, "%s: the rotary scaling has no %s", c->label, key);
    return ATTN_OK;
}

static attn_status read_scaling(const attn_config *s, attn_rope *out, attn_error *err)
{
    const char *type = NULL, *old = NULL;

    ATTN_TRY(attn_config_string(s, "rope_type", &type, err));
    ATTN_TRY(attn_config_string(s, "type", &old, err));
    if (type != NULL && old != NULL && strcmp(type, old) != 0)
        return attn_fail(err, ATTN_EINVAL,
                         "%s: the rotary scaling has rope_type \"%.32s\" and type \"%.32s\"",
                         s->label, type, old);
    type = type != NULL ? type : old;
    if (type == NULL)
        return attn_fail(err, ATTN_EINVAL, "%s: rope_scaling has no rope_type", s->label);
    if (strcmp(type, "default") == 0)
        return ATTN_OK;
    if (strcmp(type, "linear") == 0) {
        out->scaling = ATTN_ROPE_SCALE_LINEAR;
        return need_number(s, "factor", &out->factor, err);
    }
    if (strcmp(type, "llama3") == 0) {
        out->scaling = ATTN_ROPE_SCALE_LLAMA3;
        ATTN_TRY(need_number(s, "factor", &out->factor, err));
        ATTN_TRY(need_number(s, "low_freq_factor", &out->low_freq_factor, err));
        ATTN_TRY(need_number(s, "high_freq_factor", &out->high_freq_factor, err));
        return need_number(s, "original_max_position_embeddings", &out->original_max_position, err);
    }
    return attn_fail(
        err, ATTN_EUNSUPPORTED,
        "%s: rotary scaling \"%.64s\" is not supported; default, linear and llama3 are", s->label,
        type);
}

attn_status attn_config_rope(const attn_config *c, const attn_rope_keys *keys, size_t head_dim,
                             attn_rope *out, attn_error *err)
{
    attn_config own = {NULL, NULL}, scaling = {NULL, NULL};
    double fraction = keys->fraction;
    bool found = false;

    *out = (attn_rope){.style = ATTN_ROPE_HALF, .theta = keys->theta};
    ATTN_TRY(rope_parameters(c, keys->layer_type, &own, err));
    ATTN_TRY(attn_config_number(&own, "rope_theta", &out->theta, &found, err));
    if (!found)
        ATTN_TRY(attn_config_number(c, keys->theta_keys, &out->theta, &found, err));
    ATTN_TRY(attn_config_number(&own, "partial_rotary_factor", &fraction, &found, err));
    if (!found)
        ATTN_TRY(attn_config_number(c, "partial_rotary_factor|rotary_pct", &fraction, &found, err));
    if (!(fraction > 0.0 && fraction <= 1.0))
        return attn_fail(err, ATTN_EINVAL,
                         "%s: the rotary share of a head is %g; it must be over 0 and at most 1",
                         c->label, fraction);
    out->dims = (size_t)((double)head_dim * fraction);
    if (own.object != NULL && (attn_json_get(own.object, "rope_type") != NULL ||
                               attn_json_get(own.object, "type") != NULL))
        return read_scaling(&own, out, err);
    ATTN_TRY(attn_config_object(c, "rope_scaling", &scaling, err));
    return scaling.object != NULL ? read_scaling(&scaling, out, err) : ATTN_OK;
}

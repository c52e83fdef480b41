#include "config_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/nearest.h"
#include "units.h"

const cfg_key cfg_keys[CFG_NUM_KEYS] = {
#define CFG_KEY(path, type, member, fallback, least, most, help)                                   \
    {path, CFG_TYPE_##type, offsetof(cfg_config, member), fallback, least, most},
    CFG_KEYS(CFG_KEY)
#undef CFG_KEY
};

static const char *const LEVELS[] = {CFG_LOG_LEVELS};
static const char *const FORMATS[] = {CFG_LOG_FORMATS};

enum { N_LEVELS = sizeof LEVELS / sizeof *LEVELS, N_FORMATS = sizeof FORMATS / sizeof *FORMATS };

const cfg_key *cfg_key_find(const char *path)
{
    for (size_t i = 0; i < CFG_NUM_KEYS; i++) {
        if (strcmp(cfg_keys[i].path, path) == 0)
            return &cfg_keys[i];
    }
    return NULL;
}

static void *field(cfg_config *c, const cfg_key *key)
{
    return (char *)c + key->offset;
}

/* What a value must be, for "... is not <this>". */
typedef char expected_text[96];

static void expected(expected_text out, const cfg_key *key)
{
    switch (key->type) {
    case CFG_TYPE_ADDRESSES:
    case CFG_TYPE_HOSTS:
    case CFG_TYPE_ORIGINS:
        (void)snprintf(out, sizeof(expected_text), "a string or a list of strings");
        break;
    case CFG_TYPE_PREFIX:
        (void)snprintf(out, sizeof(expected_text), "the beginning of paths, such as /attnd");
        break;
    case CFG_TYPE_FILE_NAME:
        (void)snprintf(out, sizeof(expected_text), "the name of a file");
        break;
    case CFG_TYPE_INTEGER:
    case CFG_TYPE_AUTO_INTEGER:
        (void)snprintf(out, sizeof(expected_text), "%san integer in %" PRIu64 "..%" PRIu64,
                       key->type == CFG_TYPE_INTEGER ? "" : "\"auto\" or ", key->least, key->most);
        break;
    case CFG_TYPE_SIZE:
    case CFG_TYPE_AUTO_SIZE:
        (void)snprintf(out, sizeof(expected_text), "%sa size in B, KiB, MiB or GiB",
                       key->type == CFG_TYPE_SIZE ? "" : "\"auto\" or ");
        break;
    case CFG_TYPE_DURATION:
        (void)snprintf(out, sizeof(expected_text), "a duration in ms, s or min");
        break;
    case CFG_TYPE_BOOLEAN:
        (void)snprintf(out, sizeof(expected_text), "true or false");
        break;
    case CFG_TYPE_LOG_LEVEL:
        (void)snprintf(out, sizeof(expected_text), "error, warn, info or debug");
        break;
    case CFG_TYPE_LOG_FORMAT:
        (void)snprintf(out, sizeof(expected_text), "auto, text or json");
        break;
    case CFG_TYPE_MODELS:
        (void)snprintf(out, sizeof(expected_text), "a list of models");
        break;
    }
}

static attn_status refuse_text(const cfg_key *key, const char *text, const cfg_place *at,
                               attn_error *err)
{
    char shown[CFG_CLIP_CHARS];
    expected_text due;

    cfg_clip(shown, text);
    expected(due, key);
    return cfg_refuse(at, err, "\"%s\" is not %s", shown, due);
}

/* What takes a value with the right syntax: only its range can still be wrong. */
static attn_status check_range(const cfg_key *key, uint64_t value, bool negative, const char *text,
                               const cfg_place *at, attn_error *err)
{
    char least[CFG_UNIT_CHARS], most[CFG_UNIT_CHARS], shown[CFG_CLIP_CHARS];

    if (!negative && value >= key->least && value <= key->most)
        return ATTN_OK;
    if (key->type == CFG_TYPE_SIZE || key->type == CFG_TYPE_AUTO_SIZE) {
        cfg_size_text(least, key->least);
        cfg_size_text(most, key->most);
    } else if (key->type == CFG_TYPE_DURATION) {
        cfg_duration_text(least, (int64_t)key->least);
        cfg_duration_text(most, (int64_t)key->most);
    } else {
        (void)snprintf(least, sizeof least, "%" PRIu64, key->least);
        (void)snprintf(most, sizeof most, "%" PRIu64, key->most);
    }
    cfg_clip(shown, text);
    return cfg_refuse(at, err, "%s is not in %s..%s", shown, least, most);
}

static bool is_integer(const char *text)
{
    text += *text == '-';
    return *text != '\0' && text[strspn(text, "0123456789")] == '\0';
}

static attn_status set_integer(int64_t *out, const cfg_key *key, const char *text,
                               const cfg_place *at, attn_error *err)
{
    if (!is_integer(text))
        return refuse_text(key, text, at, err);
    long long value = strtoll(text, NULL, 10); /* too long for it: the ends are out of range too */
    ATTN_TRY(check_range(key, (uint64_t)value, value < 0, text, at, err));
    *out = value;
    return ATTN_OK;
}

static attn_status set_size(uint64_t *out, const cfg_key *key, const char *text,
                            const cfg_place *at, attn_error *err)
{
    uint64_t bytes;
    if (!cfg_parse_size(text, &bytes))
        return refuse_text(key, text, at, err);
    ATTN_TRY(check_range(key, bytes, false, text, at, err));
    *out = bytes;
    return ATTN_OK;
}

static attn_status set_duration(int64_t *out, const cfg_key *key, const char *text,
                                const cfg_place *at, attn_error *err)
{
    int64_t ms;
    if (is_integer(text)) {
        char shown[CFG_CLIP_CHARS];
        cfg_clip(shown, text);
        return cfg_refuse(at, err, "%s has no unit; write \"%ss\" for seconds", shown, shown);
    }
    if (!cfg_parse_duration(text, &ms))
        return refuse_text(key, text, at, err);
    ATTN_TRY(check_range(key, (uint64_t)ms, false, text, at, err));
    *out = ms;
    return ATTN_OK;
}

static attn_status set_boolean(bool *out, const cfg_key *key, const char *text, const cfg_place *at,
                               attn_error *err)
{
    bool yes = strcmp(text, "true") == 0;
    if (!yes && strcmp(text, "false") != 0)
        return refuse_text(key, text, at, err);
    *out = yes;
    return ATTN_OK;
}

static attn_status choose(size_t *out, const char *const *names, size_t n, const cfg_key *key,
                          const char *text, const cfg_place *at, attn_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], text) == 0) {
            *out = i;
            return ATTN_OK;
        }
    }
    char shown[CFG_CLIP_CHARS];
    expected_text due;
    const char *near = attn_nearest(text, names, n);
    if (near == NULL)
        return refuse_text(key, text, at, err);
    cfg_clip(shown, text);
    expected(due, key);
    return cfg_refuse(at, err, "\"%s\" is not %s; did you mean \"%s\"?", shown, due, near);
}

/* A text that stays as it is. */
static attn_status set_string(char **out, const char *text, size_t n, attn_error *err)
{
    char *copy = strndup(text, n);
    if (copy == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the configuration");
    free(*out);
    *out = copy;
    return ATTN_OK;
}

/* Segments of what needs no escapes, none of them "." or ".."; a slash at the end is dropped. */
static attn_status set_prefix(char **out, const cfg_key *key, const char *text, const cfg_place *at,
                              attn_error *err)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    enum { MOST = 200 };
    const char *p = text;

    while (*p == '/' && p[1] != '\0') {
        size_t n = strspn(p + 1, plain);
        if (n == 0 || strspn(p + 1, ".") == n)
            break;
        p += 1 + n;
    }
    if ((*p != '\0' && strcmp(p, "/") != 0) || p - text > MOST)
        return refuse_text(key, text, at, err);
    return set_string(out, text, (size_t)(p - text), err);
}

/* --listen adds to what flags have given; anything else replaces. */
static attn_status set_list(cfg_config *c, const cfg_key *key, const char *text, cfg_source source,
                            const cfg_place *at, attn_error *err)
{
    cfg_source before = c->private_->source[key - cfg_keys];
    bool add = source == CFG_FROM_FLAG && (before == CFG_FROM_FLAG || before == CFG_FROM_SET);

    return cfg_list_read(field(c, key), key, text, add, at, err);
}

/* --model adds to what flags have given; anything else replaces. */
static attn_status set_models(cfg_config *c, const char *text, cfg_source source,
                              const cfg_place *at, attn_error *err)
{
    const cfg_key *key = cfg_key_find("models");
    cfg_source before = c->private_->source[key - cfg_keys];

    if (source != CFG_FROM_FLAG || (before != CFG_FROM_FLAG && before != CFG_FROM_SET))
        cfg_models_clear(c);
    return cfg_models_add(c, text, at, err);
}

attn_status cfg_set_text(cfg_config *c, const cfg_key *key, const char *text, cfg_source source,
                         const cfg_place *at, attn_error *err)
{
    bool is_auto = strcmp(text, "auto") == 0;
    void *out = field(c, key);
    size_t choice = 0;

    if (strcmp(text, CFG_NOTHING) == 0)
        text = "";
    switch (key->type) {
    case CFG_TYPE_ADDRESSES:
    case CFG_TYPE_HOSTS:
    case CFG_TYPE_ORIGINS:
        ATTN_TRY(set_list(c, key, text, source, at, err));
        break;
    case CFG_TYPE_PREFIX:
        ATTN_TRY(set_prefix(out, key, text, at, err));
        break;
    case CFG_TYPE_FILE_NAME:
        ATTN_TRY(set_string(out, text, strlen(text), err));
        break;
    case CFG_TYPE_INTEGER:
        ATTN_TRY(set_integer(out, key, text, at, err));
        break;
    case CFG_TYPE_AUTO_INTEGER:
        ATTN_TRY(is_auto ? ATTN_OK : set_integer(out, key, text, at, err));
        if (is_auto)
            *(int64_t *)out = 0;
        break;
    case CFG_TYPE_SIZE:
        ATTN_TRY(set_size(out, key, text, at, err));
        break;
    case CFG_TYPE_AUTO_SIZE:
        ATTN_TRY(is_auto ? ATTN_OK : set_size(out, key, text, at, err));
        if (is_auto)
            *(uint64_t *)out = 0;
        break;
    case CFG_TYPE_DURATION:
        ATTN_TRY(set_duration(out, key, text, at, err));
        break;
    case CFG_TYPE_BOOLEAN:
        ATTN_TRY(set_boolean(out, key, text, at, err));
        break;
    case CFG_TYPE_LOG_LEVEL:
        ATTN_TRY(choose(&choice, LEVELS, N_LEVELS, key, text, at, err));
        *(cfg_log_level *)out = (cfg_log_level)choice;
        break;
    case CFG_TYPE_LOG_FORMAT:
        ATTN_TRY(choose(&choice, FORMATS, N_FORMATS, key, text, at, err));
        *(cfg_log_format *)out = (cfg_log_format)choice;
        break;
    case CFG_TYPE_MODELS:
        ATTN_TRY(set_models(c, text, source, at, err));
        break;
    }
    c->private_->source[key - cfg_keys] = source;
    return ATTN_OK;
}

/* Whether a JSON value of this kind may hold a value of that type at all. */
static bool kind_fits(cfg_type type, const attn_json *v)
{
    const char *string = "";
    int64_t integer;
    bool truth;
    bool is_string = attn_json_string(v, &string);

    switch (type) {
    case CFG_TYPE_INTEGER:
        return attn_json_integer(v, &integer);
    case CFG_TYPE_AUTO_INTEGER:
        return attn_json_integer(v, &integer) || strcmp(string, "auto") == 0;
    case CFG_TYPE_SIZE:
    case CFG_TYPE_AUTO_SIZE:
    case CFG_TYPE_DURATION: /* an integer is refused later, with a hint */
        return is_string || attn_json_integer(v, &integer);
    case CFG_TYPE_BOOLEAN:
        return attn_json_bool(v, &truth);
    case CFG_TYPE_PREFIX:
    case CFG_TYPE_FILE_NAME:
    case CFG_TYPE_LOG_LEVEL:
    case CFG_TYPE_LOG_FORMAT:
        return is_string;
    case CFG_TYPE_ADDRESSES: /* cfg_list_read_json() */
    case CFG_TYPE_HOSTS:
    case CFG_TYPE_ORIGINS:
    case CFG_TYPE_MODELS: /* cfg_models_read() */
        break;
    }
    return false;
}

attn_status cfg_set_json(cfg_config *c, const cfg_key *key, const attn_json *v, cfg_source source,
                         const cfg_place *at, attn_error *err)
{
    const char *string;
    char shown[CFG_CLIP_CHARS];

    if (cfg_is_list(key->type)) {
        ATTN_TRY(cfg_list_read_json(field(c, key), key, v, at, err));
        c->private_->source[key - cfg_keys] = source;
        return ATTN_OK;
    }
    cfg_show_json(shown, v);
    if (!kind_fits(key->type, v)) {
        expected_text due;
        expected(due, key);
        return cfg_refuse(at, err, "%s is not %s", shown, due);
    }
    return cfg_set_text(c, key, attn_json_string(v, &string) ? string : shown, source, at, err);
}

char *cfg_value_text(const cfg_config *c, const cfg_key *key)
{
    const void *value = (const char *)c + key->offset;
    const char *string;
    char text[CFG_UNIT_CHARS] = "auto";

    switch (key->type) {
    case CFG_TYPE_ADDRESSES:
    case CFG_TYPE_HOSTS:
    case CFG_TYPE_ORIGINS:
        return cfg_list_text(value);
    case CFG_TYPE_PREFIX:
    case CFG_TYPE_FILE_NAME:
        string = *(char *const *)value;
        return strdup(*string != '\0' ? string : CFG_NOTHING);
    case CFG_TYPE_MODELS:
        return cfg_models_text(c);
    case CFG_TYPE_INTEGER:
    case CFG_TYPE_AUTO_INTEGER:
        if (key->type == CFG_TYPE_INTEGER || *(const int64_t *)value != 0)
            (void)snprintf(text, sizeof text, "%" PRId64, *(const int64_t *)value);
        break;
    case CFG_TYPE_SIZE:
    case CFG_TYPE_AUTO_SIZE:
        if (key->type == CFG_TYPE_SIZE || *(const uint64_t *)value != 0)
            cfg_size_text(text, *(const uint64_t *)value);
        break;
    case CFG_TYPE_DURATION:
        cfg_duration_text(text, *(const int64_t *)value);
        break;
    case CFG_TYPE_BOOLEAN:
        (void)snprintf(text, sizeof text, "%s", *(const bool *)value ? "true" : "false");
        break;
    case CFG_TYPE_LOG_LEVEL:
        (void)snprintf(text, sizeof text, "%s", LEVELS[*(const cfg_log_level *)value]);
        break;
    case CFG_TYPE_LOG_FORMAT:
        (void)snprintf(text, sizeof text, "%s", FORMATS[*(const cfg_log_format *)value]);
        break;
    }
    return strdup(text);
}

#include "config_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/nearest.h"

typedef enum {
#define CFG_FLAG_ENUM(id, name, argument, usage, help) FLAG_##id,
    CFG_FLAGS(CFG_FLAG_ENUM)
#undef CFG_FLAG_ENUM
        NUM_FLAGS
} flag_id;

static const struct {
    const char *name;
    bool argument;
} FLAGS[NUM_FLAGS] = {
#define CFG_FLAG(id, name, argument, usage, help) {name, argument},
    CFG_FLAGS(CFG_FLAG)
#undef CFG_FLAG
};

typedef struct {
    flag_id id;
    const char *value; /* "" for a flag without one */
} flag;

static attn_status unknown_flag(const char *name, size_t n, attn_error *err)
{
    const char *names[NUM_FLAGS];
    char given[CFG_PATH_CHARS], shown[CFG_CLIP_CHARS];

    for (size_t i = 0; i < NUM_FLAGS; i++)
        names[i] = FLAGS[i].name;
    (void)snprintf(given, sizeof given, "%.*s", (int)(n < sizeof given ? n : sizeof given), name);
    cfg_clip(shown, given);
    const char *near = attn_nearest(given, names, NUM_FLAGS);
    return attn_fail(err, ATTN_ENOTFOUND, "--%s is not a known flag%s%s%s", shown,
                     near != NULL ? "; did you mean --" : "", near != NULL ? near : "",
                     near != NULL ? "?" : "");
}

/* Takes the flag at argv[*i] with its argument and moves *i behind them. */
static attn_status next_flag(int argc, char *const argv[], int *i, flag *out, attn_error *err)
{
    const char *word = argv[*i];
    char shown[CFG_CLIP_CHARS];

    *out = (flag){.value = ""};
    (*i)++;
    cfg_clip(shown, word);
    if (strncmp(word, "--", 2) != 0 || word[2] == '\0')
        return attn_fail(err, ATTN_ENOTFOUND, "\"%s\" is not a flag", shown);
    word += 2;
    size_t n = strcspn(word, "="), id = 0;
    while (id < NUM_FLAGS && (strlen(FLAGS[id].name) != n || strncmp(FLAGS[id].name, word, n) != 0))
        id++;
    if (id == NUM_FLAGS)
        return unknown_flag(word, n, err);
    out->id = (flag_id)id;
    if (!FLAGS[id].argument) {
        if (word[n] == '=')
            return attn_fail(err, ATTN_ENOTFOUND, "--%s takes no value", FLAGS[id].name);
        return ATTN_OK;
    }
    if (word[n] == '=')
        out->value = word + n + 1;
    else if (*i < argc)
        out->value = argv[(*i)++];
    else
        return attn_fail(err, ATTN_ENOTFOUND, "--%s needs a value", FLAGS[id].name);
    if (out->id == FLAG_SET && strchr(out->value, '=') == NULL) {
        cfg_clip(shown, out->value);
        return attn_fail(err, ATTN_ENOTFOUND, "--set %s: KEY=VALUE is needed", shown);
    }
    return ATTN_OK;
}

attn_status cfg_scan_flags(int argc, char *const argv[], const char **config, cfg_action *action,
                           attn_error *err)
{
    *config = NULL;
    *action = CFG_RUN;
    for (int i = 0; i < argc;) {
        flag f;
        ATTN_TRY(next_flag(argc, argv, &i, &f, err));
        if (f.id == FLAG_PRINT_CONFIG) {
            *action = CFG_PRINT_CONFIG;
        } else if (f.id == FLAG_CONFIG) {
            if (*config != NULL)
                return attn_fail(err, ATTN_ENOTFOUND, "--config is given twice");
            *config = f.value;
        }
    }
    return ATTN_OK;
}

/* KEY=VALUE */
static attn_status apply_set(cfg_config *c, const char *text, attn_error *err)
{
    size_t n = strcspn(text, "=");
    char path[CFG_PATH_CHARS], shown[CFG_CLIP_CHARS];
    const cfg_key *key = NULL;
    cfg_place at;

    (void)snprintf(path, sizeof path, "%.*s", (int)(n < sizeof path ? n : sizeof path), text);
    if (n < sizeof path)
        key = cfg_key_find(path);
    cfg_clip(shown, text);
    if (key == NULL) {
        const char *paths[CFG_NUM_KEYS];
        for (size_t i = 0; i < CFG_NUM_KEYS; i++)
            paths[i] = cfg_keys[i].path;
        cfg_clip(shown, path);
        cfg_place_init(&at, "--set: %s", shown);
        return cfg_unknown(&at, attn_nearest(path, paths, CFG_NUM_KEYS), err);
    }
    cfg_place_init(&at, "--set %s", shown);
    return cfg_set_text(c, key, text + n + 1, CFG_FROM_SET, &at, err);
}

static attn_status apply_value(cfg_config *c, const char *path, const char *value, flag_id id,
                               const cfg_place *at, attn_error *err)
{
    const cfg_key *key = cfg_key_find(path);

    ATTN_TRY(cfg_set_text(c, key, value, CFG_FROM_FLAG, at, err));
    c->private_->flag[key - cfg_keys] = FLAGS[id].name;
    return ATTN_OK;
}

/* KServe starts its servers with --model_name, --model_dir and --http_port. */
static attn_status apply_kserve(cfg_config *c, const flag *f, const char *model_name,
                                const cfg_place *at, attn_error *err)
{
    char *text = NULL;
    bool port = f->id == FLAG_HTTP_PORT;
    int n = port                 ? asprintf(&text, "0.0.0.0:%s", f->value)
            : model_name != NULL ? asprintf(&text, "%s=%s", model_name, f->value)
                                 : asprintf(&text, "%s", f->value);
    if (n < 0)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the configuration");
    attn_status rc = apply_value(c, port ? "server.listen" : "models", text, f->id, at, err);
    free(text);
    return rc;
}

/* The value of --model_name, or NULL. */
static attn_status find_model_name(int argc, char *const argv[], const char **name, attn_error *err)
{
    bool folder = false;

    *name = NULL;
    for (int i = 0; i < argc;) {
        flag f;
        ATTN_TRY(next_flag(argc, argv, &i, &f, err));
        folder = folder || f.id == FLAG_MODEL_DIR;
        if (f.id == FLAG_MODEL_NAME)
            *name = f.value;
    }
    if (*name != NULL && !folder)
        return attn_fail(err, ATTN_ENOTFOUND, "--model_name needs --model_dir");
    return ATTN_OK;
}

attn_status cfg_apply_flags(cfg_config *c, int argc, char *const argv[], attn_error *err)
{
    const char *model_name;

    ATTN_TRY(find_model_name(argc, argv, &model_name, err));
    for (int i = 0; i < argc;) {
        flag f;
        cfg_place at;
        char shown[CFG_CLIP_CHARS];

        ATTN_TRY(next_flag(argc, argv, &i, &f, err));
        cfg_clip(shown, f.value);
        cfg_place_init(&at, "--%s %s", FLAGS[f.id].name, shown);
        switch (f.id) {
        case FLAG_SET:
            ATTN_TRY(apply_set(c, f.value, err));
            break;
        case FLAG_LISTEN:
            ATTN_TRY(apply_value(c, "server.listen", f.value, f.id, &at, err));
            break;
        case FLAG_MODEL:
            ATTN_TRY(apply_value(c, "models", f.value, f.id, &at, err));
            break;
        case FLAG_MODEL_DIR:
        case FLAG_HTTP_PORT:
            ATTN_TRY(apply_kserve(c, &f, model_name, &at, err));
            break;
        case FLAG_CONFIG: /* cfg_scan_flags() has seen to these */
        case FLAG_MODEL_NAME:
        case FLAG_PRINT_CONFIG:
        case NUM_FLAGS:
            break;
        }
    }
    return ATTN_OK;
}

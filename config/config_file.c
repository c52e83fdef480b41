#include "config_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/nearest.h"

typedef struct {
    char name[CFG_PATH_CHARS];
} name_text;

/* Names that may stand in `section`, or at the top when it is NULL; the nearest to `name`. *out is the
 * copy that the caller keeps. */
static const char *nearest_in(const char *section, const char *name, name_text *out)
{
    name_text names[CFG_NUM_KEYS];
    const char *list[CFG_NUM_KEYS];
    size_t n = 0;

    for (size_t i = 0; i < CFG_NUM_KEYS; i++) {
        const char *path = cfg_keys[i].path;
        size_t top = strcspn(path, ".");

        if (section == NULL) {
            (void)snprintf(names[n].name, CFG_PATH_CHARS, "%.*s", (int)top, path);
        } else if (strlen(section) == top && strncmp(path, section, top) == 0 && path[top] == '.') {
            (void)snprintf(names[n].name, CFG_PATH_CHARS, "%s", path + top + 1);
        } else {
            continue;
        }
        list[n] = names[n].name;
        n++;
    }
    const char *near = attn_nearest(name, list, n);
    if (near == NULL)
        return NULL;
    (void)snprintf(out->name, sizeof out->name, "%s", near);
    return out->name;
}

static bool is_section(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < CFG_NUM_KEYS; i++) {
        if (strncmp(cfg_keys[i].path, name, n) == 0 && cfg_keys[i].path[n] == '.')
            return true;
    }
    return false;
}

static attn_status read_section(cfg_config *c, const char *section, const attn_json *v,
                                attn_error *err)
{
    const char *file = c->private_->file, *member;
    const attn_json *value;
    cfg_place at;
    char pointer[160] = "";

    cfg_pointer_add(pointer, section);
    if (!attn_json_is_object(v)) {
        char shown[CFG_CLIP_CHARS];
        cfg_place_json(&at, file, pointer);
        cfg_show_json(shown, v);
        return cfg_refuse(&at, err, "%s is not an object", shown);
    }
    for (void *it = NULL; attn_json_next(v, &it, &member, &value);) {
        char path[CFG_PATH_CHARS], member_pointer[160];
        int length = snprintf(path, sizeof path, "%s.%s", section, member);
        const cfg_key *key = (size_t)length < sizeof path ? cfg_key_find(path) : NULL;

        (void)snprintf(member_pointer, sizeof member_pointer, "%s", pointer);
        cfg_pointer_add(member_pointer, member);
        cfg_place_json(&at, file, member_pointer);
        if (key == NULL) {
            name_text near;
            return cfg_unknown(&at, nearest_in(section, member, &near), err);
        }
        ATTN_TRY(cfg_set_json(c, key, value, CFG_FROM_FILE, &at, err));
    }
    return ATTN_OK;
}

static attn_status read_document(cfg_config *c, const attn_json *document, attn_error *err)
{
    const char *file = c->private_->file, *name;
    const attn_json *value;
    cfg_place at;

    if (!attn_json_is_object(document)) {
        char shown[CFG_CLIP_CHARS];
        cfg_place_json(&at, file, "");
        cfg_show_json(shown, document);
        return cfg_refuse(&at, err, "%s is not an object", shown);
    }
    for (void *it = NULL; attn_json_next(document, &it, &name, &value);) {
        char pointer[160] = "";

        if (strcmp(name, "models") == 0) {
            ATTN_TRY(cfg_models_read(c, value, file, "/models", err));
            c->private_->source[cfg_key_find("models") - cfg_keys] = CFG_FROM_FILE;
        } else if (is_section(name)) {
            ATTN_TRY(read_section(c, name, value, err));
        } else if (strcmp(name, "$schema") != 0) { /* that one is for editors */
            name_text near;
            cfg_pointer_add(pointer, name);
            cfg_place_json(&at, file, pointer);
            return cfg_unknown(&at, nearest_in(NULL, name, &near), err);
        }
    }
    return ATTN_OK;
}

attn_status cfg_apply_file(cfg_config *c, const char *path, attn_error *err)
{
    attn_json *document = NULL;

    c->private_->file = strdup(path);
    if (c->private_->file == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the configuration");
    ATTN_TRY(attn_json_read_file(&document, path, CFG_FILE_BYTES, err));
    c->private_->models_text = document; /* layouts point into it */
    return read_document(c, document, err);
}

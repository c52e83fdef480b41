#include "config_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/nearest.h"

static const char *const MEMBERS[] = {
#define CFG_MODEL_MEMBER(name) name,
    CFG_MODEL_MEMBERS(CFG_MODEL_MEMBER)
#undef CFG_MODEL_MEMBER
};

static attn_status no_memory(attn_error *err)
{
    return attn_fail(err, ATTN_ENOMEM, "no memory for the configuration");
}

static void deinit_model(cfg_model *m)
{
    free(m->name);
    free(m->path);
    free(m->layers);
    memset(m, 0, sizeof *m);
}

void cfg_models_clear(cfg_config *c)
{
    for (size_t i = 0; i < c->num_models; i++)
        deinit_model(&c->models[i]);
    free(c->models);
    c->models = NULL;
    c->num_models = 0;
    attn_json_free(c->private_->models_text);
    c->private_->models_text = NULL;
}

/* "." and ".." would be eaten by clients that tidy up URLs. */
static bool is_name(const char *name)
{
    size_t n = strlen(name);
    return n >= 1 && n <= 64 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

static attn_status set_name(cfg_config *c, cfg_model *m, const char *name, size_t n,
                            const cfg_place *at, attn_error *err)
{
    char shown[CFG_CLIP_CHARS];

    m->name = strndup(name, n);
    if (m->name == NULL)
        return no_memory(err);
    cfg_clip(shown, m->name);
    if (!is_name(m->name))
        return cfg_refuse(
            at, err, "\"%s\" cannot be a model's name: 1 to 64 of A-Z, a-z, 0-9, '.', '_', '-'",
            shown);
    for (size_t i = 0; i < c->num_models; i++) {
        if (strcmp(c->models[i].name, m->name) == 0)
            return cfg_refuse(at, err, "another model is named \"%s\"", shown);
    }
    return ATTN_OK;
}

/* A model without a name is called as its folder, or as its file without the extension. */
static attn_status name_after(const char *path, cfg_config *c, cfg_model *m, const cfg_place *at,
                              attn_error *err)
{
    static const char *const extensions[] = {".safetensors", ".npz", ".npy"};
    size_t end = strlen(path);

    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        size_t n = strlen(extensions[i]);
        if (end - begin > n && strncmp(path + end - n, extensions[i], n) == 0) {
            end -= n;
            break;
        }
    }
    return set_name(c, m, path + begin, end - begin, at, err);
}

static attn_status set_path(cfg_model *m, const char *path, const cfg_place *at, attn_error *err)
{
    if (*path == '\0')
        return cfg_refuse(at, err, "the path of a model is empty");
    m->path = strdup(path);
    return m->path != NULL ? ATTN_OK : no_memory(err);
}

/* Gives *m, which is complete, to the list. */
static attn_status append_take(cfg_config *c, cfg_model *m, const cfg_place *at, attn_error *err)
{
    if (c->num_models == CFG_MAX_MODELS)
        return cfg_refuse(at, err, "there are more than %d models", CFG_MAX_MODELS);
    cfg_model *grown = realloc(c->models, (c->num_models + 1) * sizeof *grown);
    if (grown == NULL)
        return no_memory(err);
    c->models = grown;
    c->models[c->num_models++] = *m;
    memset(m, 0, sizeof *m);
    return ATTN_OK;
}

static attn_status add_list(cfg_config *c, const char *text, const cfg_place *at, attn_error *err)
{
    attn_json *document = NULL;
    attn_status rc = attn_json_parse(&document, text, strlen(text), at->text, err);
    if (rc != ATTN_OK)
        return rc;
    cfg_models_clear(c);
    c->private_->models_text = document;
    return cfg_models_read(c, document, at->text, "", err);
}

attn_status cfg_models_add(cfg_config *c, const char *text, const cfg_place *at, attn_error *err)
{
    if (*text == '[')
        return add_list(c, text, at, err);

    cfg_model m = {.all_layers = true};
    const char *equals = strchr(text, '='), *slash = strchr(text, '/');
    bool named = equals != NULL && (slash == NULL || equals < slash); /* else it is in the path */

    const char *path = named ? equals + 1 : text;
    attn_status rc = set_path(&m, path, at, err);
    if (rc == ATTN_OK)
        rc = named ? set_name(c, &m, text, (size_t)(equals - text), at, err)
                   : name_after(path, c, &m, at, err);
    if (rc == ATTN_OK)
        rc = append_take(c, &m, at, err);
    deinit_model(&m);
    return rc;
}

static attn_status read_layers(cfg_model *m, const attn_json *v, const char *what,
                               const char *pointer, attn_error *err)
{
    cfg_place at;
    char shown[CFG_CLIP_CHARS];
    const char *string;
    size_t n = attn_json_length(v);

    cfg_place_json(&at, what, pointer);
    if (attn_json_string(v, &string) && strcmp(string, "all") == 0)
        return ATTN_OK;
    cfg_show_json(shown, v);
    if (!attn_json_is_array(v))
        return cfg_refuse(&at, err, "%s is not \"all\" or a list of layers", shown);
    if (n == 0 || n > CFG_MAX_LAYERS)
        return cfg_refuse(&at, err, "%zu layers are listed, not 1 to %d", n, CFG_MAX_LAYERS);
    m->layers = calloc(n, sizeof *m->layers);
    if (m->layers == NULL)
        return no_memory(err);
    m->all_layers = false;
    for (size_t i = 0; i < n; i++) {
        const attn_json *item = attn_json_at(v, i);
        char item_pointer[160];

        (void)snprintf(item_pointer, sizeof item_pointer, "%.120s/%zu", pointer, i);
        cfg_place_json(&at, what, item_pointer);
        cfg_show_json(shown, item);
        if (!attn_json_integer(item, &m->layers[i]) || m->layers[i] < 0)
            return cfg_refuse(&at, err, "%s is not a layer, an integer from 0", shown);
        for (size_t j = 0; j < i; j++) {
            if (m->layers[j] == m->layers[i])
                return cfg_refuse(&at, err, "layer %s is listed twice", shown);
        }
        m->num_layers = i + 1;
    }
    return ATTN_OK;
}

static attn_status read_member(cfg_config *c, cfg_model *m, const char *member, const attn_json *v,
                               const char *what, const char *pointer, attn_error *err)
{
    cfg_place at;
    char shown[CFG_CLIP_CHARS];
    const char *string = NULL;
    bool is_string = attn_json_string(v, &string);

    cfg_place_json(&at, what, pointer);
    cfg_show_json(shown, v);
    if (strcmp(member, "layers") == 0)
        return read_layers(m, v, what, pointer, err);
    if (strcmp(member, "layout") == 0) {
        if (!attn_json_is_object(v))
            return cfg_refuse(&at, err, "%s is not an object", shown);
        m->layout = v;
        return ATTN_OK;
    }
    if (!is_string)
        return cfg_refuse(&at, err, "%s is not a string", shown);
    if (strcmp(member, "name") == 0)
        return set_name(c, m, string, strlen(string), &at, err);
    if (strcmp(member, "path") == 0)
        return set_path(m, string, &at, err);
    if (strcmp(string, "float32") != 0) /* dtype */
        return cfg_refuse(&at, err, "%s is not supported; models compute in \"float32\"", shown);
    return ATTN_OK;
}

static attn_status read_members(cfg_config *c, cfg_model *m, const attn_json *v, const char *what,
                                const char *pointer, attn_error *err)
{
    const size_t n = sizeof MEMBERS / sizeof *MEMBERS;
    const char *member;
    const attn_json *value;
    cfg_place at;

    for (void *it = NULL; attn_json_next(v, &it, &member, &value);) {
        char member_pointer[160];
        size_t i = 0;

        (void)snprintf(member_pointer, sizeof member_pointer, "%s", pointer);
        cfg_pointer_add(member_pointer, member);
        while (i < n && strcmp(MEMBERS[i], member) != 0)
            i++;
        if (i == n) {
            cfg_place_json(&at, what, member_pointer);
            return cfg_unknown(&at, attn_nearest(member, MEMBERS, n), err);
        }
        ATTN_TRY(read_member(c, m, member, value, what, member_pointer, err));
    }
    cfg_place_json(&at, what, pointer);
    if (m->path == NULL)
        return cfg_refuse(&at, err, "the model has no \"path\"");
    return m->name != NULL ? ATTN_OK : name_after(m->path, c, m, &at, err);
}

attn_status cfg_models_read(cfg_config *c, const attn_json *list, const char *what,
                            const char *pointer, attn_error *err)
{
    cfg_place at;
    char shown[CFG_CLIP_CHARS];

    cfg_place_json(&at, what, pointer);
    if (!attn_json_is_array(list)) {
        cfg_show_json(shown, list);
        return cfg_refuse(&at, err, "%s is not a list of models", shown);
    }
    for (size_t i = 0; i < attn_json_length(list); i++) {
        const attn_json *entry = attn_json_at(list, i);
        cfg_model m = {.all_layers = true};
        char entry_pointer[160];
        attn_status rc;

        (void)snprintf(entry_pointer, sizeof entry_pointer, "%s/%zu", pointer, i);
        cfg_place_json(&at, what, entry_pointer);
        cfg_show_json(shown, entry);
        if (!attn_json_is_object(entry))
            return cfg_refuse(&at, err, "%s is not an object with the path of a model", shown);
        rc = read_members(c, &m, entry, what, entry_pointer, err);
        if (rc == ATTN_OK)
            rc = append_take(c, &m, &at, err);
        deinit_model(&m);
        if (rc != ATTN_OK)
            return rc;
    }
    return ATTN_OK;
}

char *cfg_models_text(const cfg_config *c)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    if (f == NULL)
        return NULL;
    for (size_t i = 0; i < c->num_models; i++) {
        const cfg_model *m = &c->models[i];
        (void)fprintf(f, "%s%s=%s", i > 0 ? "; " : "", m->name, m->path);
        for (size_t l = 0; l < m->num_layers; l++)
            (void)fprintf(f, "%s%" PRId64, l == 0 ? " layers " : ",", m->layers[l]);
        if (m->layout != NULL)
            (void)fputs(" with a layout", f);
    }
    if (c->num_models == 0)
        (void)fputs("none", f);
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

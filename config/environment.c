#include "config_private.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "core/nearest.h"

static const char PREFIX[] = "ATTND_";
static const char FILE_SUFFIX[] = "__FILE";

enum { LONGEST_VALUE = 64 << 10 };

/* Variables of ours that are no keys: for tests and for choosing kernels. */
static const char *const OTHERS[] = {"ATTND_ISA", "ATTND_OPENBLAS_WAS", "ATTND_SHARED",
                                     "ATTND_URL"};

void cfg_variable_name(char out[CFG_VARIABLE_CHARS], const cfg_key *key)
{
    (void)snprintf(out, CFG_VARIABLE_CHARS, "%s%s", PREFIX, key->path);
    for (; *out != '\0'; out++)
        *out = *out == '.' ? '_' : (char)toupper((unsigned char)*out);
}

/* The value of NAME=value in the list, or NULL. */
static const char *find_variable(char *const environ_[], const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; environ_[i] != NULL; i++) {
        if (strncmp(environ_[i], name, n) == 0 && environ_[i][n] == '=')
            return environ_[i] + n + 1;
    }
    return NULL;
}

/* Reads a secret or other value from a file, without the newline at its end. */
static attn_status read_value(char **out, const char *path, const cfg_place *at, attn_error *err)
{
    attn_error why = {0};
    char *text = NULL;
    attn_file file;
    attn_status rc = attn_file_open(&file, path, &why);

    *out = NULL;
    if (rc != ATTN_OK)
        return attn_fail(err, rc, "%s: %s", at->text, why.text);
    uint64_t size = file.size;
    if (size > LONGEST_VALUE) {
        rc = cfg_refuse(at, err, "%s is longer than %d bytes", path, LONGEST_VALUE);
        goto done;
    }
    text = malloc((size_t)size + 1);
    if (text == NULL) {
        rc = attn_fail(err, ATTN_ENOMEM, "no memory for the configuration");
        goto done;
    }
    rc = attn_file_read(&file, 0, text, (size_t)size, &why);
    if (rc != ATTN_OK) {
        (void)attn_fail(err, rc, "%s: %s", at->text, why.text);
        goto done;
    }
    if (memchr(text, '\0', (size_t)size) != NULL) {
        rc = cfg_refuse(at, err, "%s is not a text", path);
        goto done;
    }
    if (size > 0 && text[size - 1] == '\n')
        size--;
    if (size > 0 && text[size - 1] == '\r')
        size--;
    text[size] = '\0';
    *out = text;
    text = NULL;
done:
    free(text);
    attn_file_close(&file);
    return rc;
}

static attn_status apply_key(cfg_config *c, const cfg_key *key, char *const environ_[],
                             attn_error *err)
{
    char name[CFG_VARIABLE_CHARS], file_name[CFG_VARIABLE_CHARS + sizeof FILE_SUFFIX];
    cfg_place at;

    cfg_variable_name(name, key);
    (void)snprintf(file_name, sizeof file_name, "%s%s", name, FILE_SUFFIX);
    const char *value = find_variable(environ_, name);
    const char *path = find_variable(environ_, file_name);

    if (value != NULL && path != NULL)
        return attn_fail(err, ATTN_EINVAL, "%s and %s are both set", name, file_name);
    if (value != NULL) {
        cfg_place_init(&at, "%s", name);
        return cfg_set_text(c, key, value, CFG_FROM_VARIABLE, &at, err);
    }
    if (path != NULL) {
        char *text = NULL;
        cfg_place_init(&at, "%s", file_name);
        ATTN_TRY(read_value(&text, path, &at, err));
        attn_status rc = cfg_set_text(c, key, text, CFG_FROM_VARIABLE_FILE, &at, err);
        free(text);
        return rc;
    }
    return ATTN_OK;
}

/* Kubernetes gives every container the addresses of the services beside it: for one called "attnd"
 * they are ATTND_SERVICE_HOST, ATTND_SERVICE_PORT and ATTND_PORT, the last two with tails. */
static bool is_service_variable(const char *name)
{
    return strcmp(name, "ATTND_SERVICE_HOST") == 0 ||
           strncmp(name, "ATTND_SERVICE_PORT", strlen("ATTND_SERVICE_PORT")) == 0 ||
           strcmp(name, "ATTND_PORT") == 0 ||
           strncmp(name, "ATTND_PORT_", strlen("ATTND_PORT_")) == 0;
}

static attn_status warn(cfg_config *c, const char *name, const char *near, attn_error *err)
{
    struct cfg_private *p = c->private_;
    char shown[CFG_CLIP_CHARS];
    char *text = NULL;
    char **grown = realloc(p->warnings, (p->num_warnings + 1) * sizeof *grown);

    if (grown == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the configuration");
    p->warnings = grown;
    cfg_clip(shown, name);
    if (asprintf(&text, "the environment variable %s sets nothing%s%s%s", shown,
                 near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                 near != NULL ? "?" : "") < 0)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the configuration");
    p->warnings[p->num_warnings++] = text;
    return ATTN_OK;
}

/* Containers carry variables that others made: what is not known is no error, but it may be a slip. */
static attn_status look_at(cfg_config *c, const char *variable, attn_error *err)
{
    enum { N_OTHERS = sizeof OTHERS / sizeof *OTHERS };
    char names[CFG_NUM_KEYS][CFG_VARIABLE_CHARS];
    const char *list[CFG_NUM_KEYS];
    size_t length = strcspn(variable, "="), suffix = strlen(FILE_SUFFIX);
    char *name = strndup(variable, length);
    attn_status rc = ATTN_OK;
    bool known;

    if (name == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the configuration");
    known = is_service_variable(name);
    for (size_t i = 0; i < N_OTHERS; i++)
        known = known || strcmp(name, OTHERS[i]) == 0;
    if (length > suffix && strcmp(name + length - suffix, FILE_SUFFIX) == 0)
        name[length - suffix] = '\0';
    for (size_t i = 0; i < CFG_NUM_KEYS; i++) {
        cfg_variable_name(names[i], &cfg_keys[i]);
        list[i] = names[i];
        known = known || strcmp(name, names[i]) == 0;
    }
    if (!known) {
        const char *near = attn_nearest(name, list, CFG_NUM_KEYS);
        free(name);
        name = strndup(variable, length); /* with its suffix again */
        rc = name != NULL ? warn(c, name, near, err)
                          : attn_fail(err, ATTN_ENOMEM, "no memory for the configuration");
    }
    free(name);
    return rc;
}

attn_status cfg_apply_environment(cfg_config *c, char *const environ_[], attn_error *err)
{
    for (size_t i = 0; i < CFG_NUM_KEYS; i++)
        ATTN_TRY(apply_key(c, &cfg_keys[i], environ_, err));
    for (size_t i = 0; environ_[i] != NULL; i++) {
        if (strncmp(environ_[i], PREFIX, strlen(PREFIX)) == 0)
            ATTN_TRY(look_at(c, environ_[i], err));
    }
    return ATTN_OK;
}

#include "config_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_status set_defaults(cfg_config *c, attn_error *err)
{
    for (size_t i = 0; i < CFG_NUM_KEYS; i++) {
        const cfg_key *key = &cfg_keys[i];
        cfg_place at;

        if (key->type == CFG_TYPE_MODELS)
            continue; /* none */
        cfg_place_init(&at, "default of %s", key->path);
        ATTN_TRY(cfg_set_text(c, key, key->fallback, CFG_FROM_DEFAULT, &at, err));
    }
    return ATTN_OK;
}

/* What only all values together can tell. */
static attn_status check(const cfg_config *c, attn_error *err)
{
    bool certificate = c->tls.certificate_file[0] != '\0', key = c->tls.key_file[0] != '\0';

    if (certificate != key)
        return attn_fail(err, ATTN_EINVAL, "%s is set and %s is not: https needs both",
                         certificate ? "tls.certificate_file" : "tls.key_file",
                         certificate ? "tls.key_file" : "tls.certificate_file");
    return ATTN_OK;
}

static attn_status load(cfg_config *c, int argc, char *const argv[], char *const environ_[],
                        cfg_action *action, attn_error *err)
{
    const char *file;

    ATTN_TRY(cfg_scan_flags(argc, argv, &file, action, err));
    ATTN_TRY(set_defaults(c, err));
    if (file != NULL)
        ATTN_TRY(cfg_apply_file(c, file, err));
    ATTN_TRY(cfg_apply_environment(c, environ_, err));
    ATTN_TRY(cfg_apply_flags(c, argc, argv, err));
    return check(c, err);
}

attn_status cfg_load(cfg_config **out, int argc, char *const argv[], char *const environ_[],
                     cfg_action *action, attn_error *err)
{
    attn_status rc = ATTN_OK;
    cfg_config *c = calloc(1, sizeof *c);
    struct cfg_private *p = calloc(1, sizeof *p);

    if (c == NULL || p == NULL) {
        free(p);
        rc = attn_fail(err, ATTN_ENOMEM, "no memory for the configuration");
        goto done;
    }
    c->private_ = p;
    rc = load(c, argc, argv, environ_, action, err);
    if (rc == ATTN_EFORMAT) { /* bad JSON is as wrong as a bad value */
        rc = ATTN_EINVAL;
        if (err != NULL && err->code == ATTN_EFORMAT)
            err->code = rc;
    }
done:
    if (rc != ATTN_OK) {
        cfg_free(c);
        c = NULL;
    }
    *out = c;
    return rc;
}

void cfg_free(cfg_config *c)
{
    if (c == NULL)
        return;
    if (c->private_ != NULL) {
        cfg_models_clear(c);
        for (size_t i = 0; i < c->private_->num_warnings; i++)
            free(c->private_->warnings[i]);
        free(c->private_->warnings);
        free(c->private_->file);
        free(c->private_);
    }
    cfg_list_clear(&c->server.listen);
    cfg_list_clear(&c->server.allowed_hosts);
    cfg_list_clear(&c->cors.allow_origins);
    free(c->server.base_path);
    free(c->auth.keys_file);
    free(c->tls.certificate_file);
    free(c->tls.key_file);
    free(c);
}

size_t cfg_warning_count(const cfg_config *c)
{
    return c->private_->num_warnings;
}

const char *cfg_warning(const cfg_config *c, size_t i)
{
    return c->private_->warnings[i];
}

/* One line of --print-config stays one, whatever a path holds. */
static void print_value(FILE *f, const char *text)
{
    for (; *text != '\0'; text++)
        (void)fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, f);
}

static void print_source(FILE *f, const cfg_config *c, size_t i)
{
    char name[CFG_VARIABLE_CHARS];

    cfg_variable_name(name, &cfg_keys[i]);
    switch (c->private_->source[i]) {
    case CFG_FROM_DEFAULT:
        (void)fputs("default", f);
        break;
    case CFG_FROM_FILE:
        (void)fputs("file ", f);
        print_value(f, c->private_->file);
        break;
    case CFG_FROM_VARIABLE:
        (void)fprintf(f, "environment %s", name);
        break;
    case CFG_FROM_VARIABLE_FILE:
        (void)fprintf(f, "environment %s__FILE", name);
        break;
    case CFG_FROM_FLAG:
        (void)fprintf(f, "flag --%s", c->private_->flag[i]);
        break;
    case CFG_FROM_SET:
        (void)fputs("flag --set", f);
        break;
    }
}

char *cfg_print(const cfg_config *c)
{
    char *text = NULL;
    size_t size = 0;
    bool whole = true;
    FILE *f = open_memstream(&text, &size);

    if (f == NULL)
        return NULL;
    for (size_t i = 0; i < CFG_NUM_KEYS && whole; i++) {
        char *value = cfg_value_text(c, &cfg_keys[i]);
        whole = value != NULL;
        (void)fprintf(f, "%s = ", cfg_keys[i].path);
        print_value(f, whole ? value : "");
        (void)fputs(" (", f);
        print_source(f, c, i);
        (void)fputs(")\n", f);
        free(value);
    }
    if (fclose(f) != 0 || !whole) {
        free(text);
        return NULL;
    }
    return text;
}

const char *cfg_help(void)
{
#define CFG_HELP_FLAG(id, name, argument, usage, help) "  " usage "\n      " help "\n"
#define CFG_HELP_KEY(path, type, member, fallback, least, most, help)                              \
    "  " path " = " fallback "\n      " help "\n"
    return "Flags, which may be written --flag=value too:\n" CFG_FLAGS(
        CFG_HELP_FLAG) "\n"
                       "Keys and their defaults. A flag beats the environment, that beats the "
                       "file.\n"
                       "The variable of server.listen is ATTND_SERVER_LISTEN, and\n"
                       "ATTND_SERVER_LISTEN__FILE names a file that holds the value. In the file:\n"
                       "{\"server\": {\"listen\": \"127.0.0.1:8080\"}}\n" CFG_KEYS(CFG_HELP_KEY);
#undef CFG_HELP_FLAG
#undef CFG_HELP_KEY
}

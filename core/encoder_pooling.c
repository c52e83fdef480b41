/* What sentence-transformers writes beside a model: modules.json, 1_Pooling/config.json, sentence_bert_config.json,
 * config_sentence_transformers.json. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "encoder_private.h"
#include "file.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { MAX_FILE_BYTES = 1 << 20, MOST_MODULES = 16 };

/* Its first sentence stays. */
static void ATTN_PRINTF(2, 3) refuse(attn_encoder *e, const char *format, ...)
{
    va_list args;

    if (e->no_embeddings != NULL)
        return;
    va_start(args, format);
    if (vasprintf(&e->no_embeddings, format, args) < 0)
        e->no_embeddings = NULL;
    va_end(args);
    e->info.no_embeddings =
        e->no_embeddings != NULL ? e->no_embeddings : "the model's pooling is not supported";
}

/* The document of FOLDER/name; NULL when there is no such file. */
static attn_status read_file(attn_json **out, char **label, const char *folder, const char *name,
                             attn_error *err)
{
    *out = NULL;
    if (asprintf(label, "%s/%s", folder, name) < 0) {
        *label = NULL;
        return attn_fail(err, ATTN_ENOMEM, "%s: not enough memory", folder);
    }
    return access(*label, F_OK) == 0 ? attn_json_read_file(out, *label, MAX_FILE_BYTES, err)
                                     : ATTN_OK;
}

/* --- pooling ----------------------------------------------------------------------------------- */

static const struct {
    const char *key, *word;
    attn_embed pooling;
} poolings[] = {
    {"pooling_mode_mean_tokens", "mean", ATTN_EMBED_MEAN},
    {"pooling_mode_cls_token", "cls", ATTN_EMBED_CLS},
    {"pooling_mode_max_tokens", "max", ATTN_EMBED_MAX},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", ATTN_EMBED_MEAN_SQRT},
    {"pooling_mode_weightedmean_tokens", "weightedmean", ATTN_EMBED_NONE},
    {"pooling_mode_lasttoken", "lasttoken", ATTN_EMBED_NONE},
};

static void choose_pooling(attn_encoder *e, attn_embed pooling, const char *label, const char *name)
{
    if (pooling == ATTN_EMBED_NONE)
        refuse(e, "%s: %.60s is not supported", label, name);
    else
        e->info.pooling = pooling;
}

/* Either a switch for each way of pooling, or, as later versions write it, one word. */
static attn_status read_pooling(attn_encoder *e, const attn_config *c, attn_error *err)
{
    const char *word = NULL;
    size_t chosen = 0, on = 0;

    ATTN_TRY(attn_config_string(c, "pooling_mode", &word, err));
    for (size_t i = 0; i < COUNT(poolings); i++) {
        bool this = false;
        ATTN_TRY(attn_config_bool(c, poolings[i].key, &this, err));
        if (word != NULL)
            this = strcmp(word, poolings[i].word) == 0;
        if (this) {
            chosen = i;
            on++;
        }
    }
    if (on == 1)
        choose_pooling(e, poolings[chosen].pooling, c->label, poolings[chosen].key);
    else if (word != NULL)
        refuse(e, "%s: pooling_mode \"%.40s\" is not supported", c->label, word);
    else
        refuse(e, "%s: %s", c->label,
               on == 0 ? "no way of pooling is switched on"
                       : "several ways of pooling at once are not supported");
    return ATTN_OK;
}

static attn_status read_pooling_of(attn_encoder *e, const char *folder, const char *module,
                                   bool needed, attn_error *err)
{
    char *name = NULL, *label = NULL;
    attn_json *document = NULL;
    attn_status rc = ATTN_OK;

    if (asprintf(&name, "%s/config.json", module) < 0)
        return attn_fail(err, ATTN_ENOMEM, "%s: not enough memory", folder);
    rc = read_file(&document, &label, folder, name, err);
    if (rc == ATTN_OK && document != NULL)
        rc = read_pooling(e, &(attn_config){document, label}, err);
    else if (rc == ATTN_OK && needed)
        refuse(e, "%s: no such file, which would say how the model pools", label);
    attn_json_free(document);
    free(label);
    free(name);
    return rc;
}

/* --- modules ----------------------------------------------------------------------------------- */

/* A module's path is a folder beside modules.json, never elsewhere. */
static bool plain_name(const char *path)
{
    return path[0] != '\0' && path[0] != '.' && strchr(path, '/') == NULL;
}

static attn_status read_module(attn_encoder *e, const attn_config *c, const char *folder,
                               attn_error *err)
{
    const char *type = NULL, *path = "";

    ATTN_TRY(attn_config_string(c, "type", &type, err));
    ATTN_TRY(attn_config_string(c, "path", &path, err));
    const char *dot = type != NULL ? strrchr(type, '.') : NULL;
    const char *kind = dot != NULL ? dot + 1 : type != NULL ? type : "none";
    if (strcmp(kind, "Transformer") == 0)
        return ATTN_OK;
    if (strcmp(kind, "Pooling") == 0 && plain_name(path))
        return read_pooling_of(e, folder, path, true, err);
    if (strcmp(kind, "Normalize") == 0)
        e->info.normalize = true;
    else
        refuse(e, "%s: a module of type %.60s is not supported; Pooling and Normalize are",
               c->label, kind);
    return ATTN_OK;
}

static attn_status read_modules(attn_encoder *e, const char *folder, attn_error *err)
{
    char *label = NULL;
    attn_json *document = NULL;

    attn_status rc = read_file(&document, &label, folder, "modules.json", err);
    size_t n = attn_json_length(document);
    if (rc == ATTN_OK && document == NULL)
        rc = read_pooling_of(e, folder, "1_Pooling", false, err);
    else if (rc == ATTN_OK && (!attn_json_is_array(document) || n > MOST_MODULES))
        refuse(e, "%s: it must be a list of at most %d modules", label, MOST_MODULES);
    else
        for (size_t i = 0; i < n && rc == ATTN_OK; i++)
            rc = read_module(e, &(attn_config){attn_json_at(document, i), label}, folder, err);
    attn_json_free(document);
    free(label);
    return rc;
}

/* --- the length of texts ------------------------------------------------------------------------- */

static attn_status read_lengths(attn_encoder *e, const attn_config *c, attn_error *err)
{
    bool found = false;
    size_t most = e->info.max_tokens;

    ATTN_TRY(attn_config_size(c, "max_seq_length", &most, &found, err));
    e->info.usual_tokens = attn_min(most, e->info.max_tokens);
    return attn_config_bool(c, "do_lower_case", &e->info.lowercase, err);
}

static attn_status read_transformer(attn_encoder *e, const char *folder, attn_error *err)
{
    static const char *const kinds[] = {"bert",      "roberta", "distilbert",
                                        "camembert", "albert",  "xlm-roberta"};
    attn_status rc = ATTN_OK;
    bool found = false;

    for (size_t i = 0; i < COUNT(kinds) && rc == ATTN_OK && !found; i++) {
        char name[64], *label = NULL;
        attn_json *document = NULL;
        (void)snprintf(name, sizeof name, "sentence_%s_config.json", kinds[i]);
        rc = read_file(&document, &label, folder, name, err);
        found = document != NULL;
        if (rc == ATTN_OK && found)
            rc = read_lengths(e, &(attn_config){document, label}, err);
        attn_json_free(document);
        free(label);
    }
    return rc;
}

/* --- prompts ----------------------------------------------------------------------------------------- */

/* What stands before every text unless its sender says otherwise: then texts as they come are no texts of the model. */
static attn_status read_prompts(attn_encoder *e, const char *folder, attn_error *err)
{
    char *label = NULL;
    attn_json *document = NULL;
    const char *name = NULL, *prompt = NULL;

    attn_status rc = read_file(&document, &label, folder, "config_sentence_transformers.json", err);
    const attn_config c = {document, label};
    attn_config prompts = {0};
    if (rc == ATTN_OK && document != NULL)
        rc = attn_config_string(&c, "default_prompt_name", &name, err);
    if (rc == ATTN_OK && name != NULL)
        rc = attn_config_object(&c, "prompts", &prompts, err);
    if (rc == ATTN_OK && name != NULL && prompts.object != NULL &&
        attn_json_string(attn_json_get(prompts.object, name), &prompt) && prompt[0] != '\0')
        refuse(e, "%s: default_prompt_name is \"%.40s\", and prompts are not supported", label,
               name);
    attn_json_free(document);
    free(label);
    return rc;
}

attn_status attn_encoder_read_pooling(attn_encoder *e, const char *path, attn_error *err)
{
    char *folder = attn_file_folder(path);

    e->info.pooling = ATTN_EMBED_MEAN; /* what sentence-transformers does with a plain model */
    if (folder == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: not enough memory", path);
    attn_status rc = read_modules(e, folder, err);
    if (rc == ATTN_OK)
        rc = read_transformer(e, folder, err);
    if (rc == ATTN_OK)
        rc = read_prompts(e, folder, err);
    free(folder);
    return rc;
}

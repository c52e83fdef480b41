#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "encoder_private.h"
#include "file.h"

enum { MAX_CONFIG_BYTES = 16 << 20 };

typedef struct {
    attn_layer *layer;
    bool owned; /* false: an earlier layer's, as ALBERT shares them */
    size_t planned;
    char *source;
} model_layer;

struct attn_model {
    char *name, *path;
    const char *family;
    model_layer *layer;
    size_t layers;
    attn_encoder *encoder; /* or NULL, and why: */
    char *no_encoder;
    char **warning;
    size_t warnings;
};

/* config.json in the folder, or beside the file. */
static char *config_path(const char *path)
{
    char *out = NULL, *folder = attn_file_folder(path);
    int length = folder == NULL ? -1 : asprintf(&out, "%s/config.json", folder);

    free(folder);
    return length < 0 ? NULL : out;
}

/* Which planned layers are wanted, in which order. */
static attn_status choose(attn_model *m, const attn_plan *plan, const attn_model_options *options,
                          attn_error *err)
{
    size_t n = options->layers != NULL ? options->num_layers : plan->count;

    if (n == 0)
        return attn_fail(err, ATTN_EINVAL, "%s: the list of layers is empty", m->path);
    m->layer = calloc(n, sizeof *m->layer);
    if (m->layer == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: not enough memory for %zu layers", m->path, n);
    for (size_t i = 0; i < n; i++) {
        int64_t wanted = options->layers != NULL ? options->layers[i] : (int64_t)i;
        if (wanted < 0 || (uint64_t)wanted >= plan->count)
            return attn_fail(err, ATTN_EINVAL,
                             "%s: layer %" PRId64 " is wanted, but there are layers 0 to %zu",
                             m->path, wanted, plan->count - 1);
        m->layer[i].planned = (size_t)wanted;
    }
    m->layers = n;
    return ATTN_OK;
}

static attn_status load_layers(attn_model *m, const attn_archive *a, const attn_plan *plan,
                               const atomic_bool *cancel, attn_error *err)
{
    for (size_t i = 0; i < m->layers; i++) {
        model_layer *l = &m->layer[i];
        const attn_layer_plan *p = &plan->layer[l->planned];
        if (cancel != NULL && atomic_load(cancel))
            return attn_fail(err, ATTN_ECANCELED, "%s: loading was given up", m->path);
        l->source = strdup(p->source);
        if (l->source == NULL)
            return attn_fail(err, ATTN_ENOMEM, "%s: not enough memory", m->path);
        for (size_t j = 0; j < i && l->layer == NULL; j++) {
            if (plan->layer[m->layer[j].planned].same_as == p->same_as)
                l->layer = m->layer[j].layer;
        }
        if (l->layer != NULL)
            continue;
        ATTN_TRY(attn_layer_read(&l->layer, a, p, err));
        l->owned = true;
    }
    return ATTN_OK;
}

/* What surrounds the layers, where all of them are there. Without it the model still has its layers. */
static attn_status load_encoder(attn_model *m, const attn_archive *a, const attn_plan *plan,
                                const attn_config *config, const attn_model_options *options,
                                attn_error *err)
{
    attn_error why = {0};
    /* Pointers are meant. NOLINTNEXTLINE(bugprone-sizeof-expression) */
    const attn_layer **layers = calloc(m->layers, sizeof *layers);

    if (layers == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: not enough memory for the encoder", m->path);
    for (size_t i = 0; i < m->layers; i++)
        layers[i] = m->layer[i].layer;
    attn_status rc =
        options->layers == NULL
            ? attn_encoder_load(&m->encoder, a, plan, m->path, config, layers, options->cancel,
                                &why)
            : attn_fail(&why, ATTN_EINVAL,
                        "%s: only some layers are loaded; an encoder needs all of them", m->path);
    free(layers);
    if (rc == ATTN_ENOMEM || rc == ATTN_EIO || rc == ATTN_ECANCELED)
        return attn_fail(err, rc, "%s", why.text);
    if (rc == ATTN_OK)
        return ATTN_OK;
    m->no_encoder = strdup(why.text);
    return m->no_encoder != NULL ? ATTN_OK
                                 : attn_fail(err, ATTN_ENOMEM, "%s: not enough memory", m->path);
}

attn_status attn_model_load(attn_model **out, const attn_model_options *options, attn_error *err)
{
    attn_status rc = ATTN_OK;
    attn_archive *archive = NULL;
    attn_json *document = NULL;
    attn_plan plan = {0};
    char *config_file = config_path(options->path);
    attn_model *m = calloc(1, sizeof *m);

    *out = NULL;
    if (m != NULL) {
        m->name = strdup(options->name);
        m->path = strdup(options->path);
    }
    if (config_file == NULL || m == NULL || m->name == NULL || m->path == NULL) {
        rc = attn_fail(err, ATTN_ENOMEM, "%s: not enough memory", options->path);
        goto done;
    }
    rc = attn_archive_open(&archive, options->path, err);
    if (rc == ATTN_OK && access(config_file, F_OK) == 0)
        rc = attn_json_read_file(&document, config_file, MAX_CONFIG_BYTES, err);
    if (rc == ATTN_OK && document != NULL && !attn_json_is_object(document))
        rc = attn_fail(err, ATTN_EFORMAT, "%s: it is %s; it must be an object", config_file,
                       attn_json_type_name(document));
    if (rc != ATTN_OK)
        goto done;
    attn_config config = {document, config_file};
    rc = attn_plan_make(&plan, archive, options->path, &config, options->layout, err);
    if (rc == ATTN_OK)
        rc = choose(m, &plan, options, err);
    if (rc == ATTN_OK)
        rc = load_layers(m, archive, &plan, options->cancel, err);
    if (rc == ATTN_OK)
        rc = load_encoder(m, archive, &plan, &config, options, err);
    if (rc == ATTN_OK) {
        m->family = plan.family;
        m->warning = plan.warning;
        m->warnings = plan.warnings;
        plan.warning = NULL;
        plan.warnings = 0;
    }
done:
    attn_plan_deinit(&plan);
    attn_json_free(document);
    attn_archive_close(archive);
    free(config_file);
    if (rc != ATTN_OK) {
        attn_model_free(m);
        m = NULL;
    }
    *out = m;
    return rc;
}

attn_status attn_model_take_layers(attn_model **out, const char *name, const char *family,
                                   attn_layer **layers, size_t n, attn_error *err)
{
    attn_model *m = calloc(1, sizeof *m);
    bool fine = m != NULL;

    if (fine) {
        m->name = strdup(name);
        m->path = strdup("built in");
        m->family = family;
        m->layer = calloc(n, sizeof *m->layer);
        fine = m->name != NULL && m->path != NULL && m->layer != NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (!fine) {
            attn_layer_free(layers[i]);
            continue;
        }
        m->layer[i] = (model_layer){.layer = layers[i], .owned = true, .planned = i};
        m->layers++;
        fine = asprintf(&m->layer[i].source, "layers.%zu", i) >= 0;
        if (!fine)
            m->layer[i].source = NULL;
    }
    free(layers);
    *out = fine ? m : NULL;
    if (fine)
        return ATTN_OK;
    attn_model_free(m);
    return attn_fail(err, ATTN_ENOMEM, "not enough memory for model %s", name);
}

void attn_model_free(attn_model *m)
{
    if (m == NULL)
        return;
    for (size_t i = 0; i < m->layers; i++) {
        if (m->layer[i].owned)
            attn_layer_free(m->layer[i].layer);
        free(m->layer[i].source);
    }
    for (size_t i = 0; i < m->warnings; i++)
        free(m->warning[i]);
    attn_encoder_free(m->encoder);
    free(m->no_encoder);
    free(m->layer);
    free(m->warning);
    free(m->name);
    free(m->path);
    free(m);
}

const char *attn_model_name(const attn_model *m)
{
    return m->name;
}

const char *attn_model_path(const attn_model *m)
{
    return m->path;
}

const char *attn_model_family(const attn_model *m)
{
    return m->family;
}

size_t attn_model_layer_count(const attn_model *m)
{
    return m->layers;
}

const attn_layer *attn_model_layer(const attn_model *m, size_t i)
{
    return m->layer[i].layer;
}

const char *attn_model_layer_source(const attn_model *m, size_t i)
{
    return m->layer[i].source;
}

const char *attn_model_layer_position(const attn_model *m, size_t i)
{
    const attn_layer_spec *s = attn_layer_get_spec(m->layer[i].layer);

    if (s->rope.style != ATTN_ROPE_NONE)
        return "rope";
    if (s->rel_buckets != 0)
        return "relative";
    return s->alibi ? "alibi" : "none";
}

const attn_encoder *attn_model_encoder(const attn_model *m, const char **reason)
{
    if (reason != NULL)
        *reason = m->no_encoder != NULL ? m->no_encoder : "the model is attention layers alone";
    return m->encoder;
}

size_t attn_model_weights_bytes(const attn_model *m)
{
    size_t bytes = 0;

    for (size_t i = 0; i < m->layers; i++)
        bytes += m->layer[i].owned ? attn_layer_bytes(m->layer[i].layer) : 0;
    return bytes + (m->encoder != NULL ? attn_encoder_bytes(m->encoder) : 0);
}

size_t attn_model_warning_count(const attn_model *m)
{
    return m->warnings;
}

const char *attn_model_warning(const attn_model *m, size_t i)
{
    return m->warning[i];
}

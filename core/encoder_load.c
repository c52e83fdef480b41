/* What surrounds the attention layers of a checkpoint, family by family. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "encoder_private.h"
#include "memory.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { NAME_SIZE = 1024 };

/* --- the families -------------------------------------------------------------------------------- */

/* Names are those of modules: ".weight" and ".bias" follow. NULL = there is none. */
typedef struct {
    const char *types[5]; /* values of model_type */
    const char *layer;    /* of an attention layer, behind the model's prefix */
    const char *words, *positions, *token_types, *embed_norm;
    const char *projection; /* needed where word embeddings are narrower than the layers, or: */
    bool projects;          /* always */
    const char *final_norm;
    /* Beside the attention, in its layer: */
    const char *attention_norm, *feed_norm, *up, *down;
    bool pre_norm, gated; /* gated: up holds the gate behind itself */
    bool bias;            /* all modules have one; else those that have one */
    bool skips_padding;
    const char *activation_keys, *activation;
    const char *eps_key;
    double eps;
} family;

#define BERT_EMBEDDINGS                                                                            \
    .words = "embeddings.word_embeddings", .positions = "embeddings.position_embeddings",          \
    .embed_norm = "embeddings.LayerNorm", .bias = true, .eps = 1e-12
#define BERT_LAYER                                                                                 \
    BERT_EMBEDDINGS,                                                                               \
        .token_types = "embeddings.token_type_embeddings", .layer = "encoder.layer.{N}.attention", \
        .attention_norm = "attention.output.LayerNorm", .feed_norm = "output.LayerNorm",           \
        .up = "intermediate.dense", .down = "output.dense", .activation_keys = "hidden_act",       \
        .activation = "gelu", .eps_key = "layer_norm_eps"

static const family families[] = {
    {.types = {"bert", "electra"}, BERT_LAYER, .projection = "embeddings_project"},
    {.types = {"roberta", "xlm-roberta", "camembert"}, BERT_LAYER, .skips_padding = true},
    {.types = {"distilbert"},
     BERT_EMBEDDINGS,
     .layer = "transformer.layer.{N}.attention",
     .attention_norm = "sa_layer_norm",
     .feed_norm = "output_layer_norm",
     .up = "ffn.lin1",
     .down = "ffn.lin2",
     .activation_keys = "activation|hidden_act",
     .activation = "gelu"},
    {.types = {"albert"},
     BERT_EMBEDDINGS,
     .token_types = "embeddings.token_type_embeddings",
     .projection = "encoder.embedding_hidden_mapping_in",
     .projects = true,
     .layer = "encoder.albert_layer_groups.{G}.albert_layers.{N}.attention",
     .attention_norm = "attention.LayerNorm",
     .feed_norm = "full_layer_layer_norm",
     .up = "ffn",
     .down = "ffn_output",
     .activation_keys = "hidden_act",
     .activation = "gelu_new",
     .eps_key = "layer_norm_eps"},
    {.types = {"modernbert"},
     .words = "embeddings.tok_embeddings",
     .embed_norm = "embeddings.norm",
     .final_norm = "final_norm",
     .layer = "layers.{N}.attn",
     .attention_norm = "attn_norm",
     .feed_norm = "mlp_norm",
     .up = "mlp.Wi",
     .down = "mlp.Wo",
     .pre_norm = true,
     .gated = true,
     .activation_keys = "hidden_activation|hidden_act",
     .activation = "gelu",
     .eps_key = "norm_eps",
     .eps = 1e-5},
};

static const struct {
    const char *name;
    attn_activation kind;
} activations[] = {
    {"gelu", ATTN_GELU},
    {"gelu_python", ATTN_GELU},
    {"gelu_new", ATTN_GELU_TANH},
    {"gelu_fast", ATTN_GELU_TANH},
    {"gelu_pytorch_tanh", ATTN_GELU_TANH},
    {"relu", ATTN_RELU},
    {"silu", ATTN_SILU},
    {"swish", ATTN_SILU},
};

static const family *find_family(const char *type)
{
    for (size_t f = 0; f < COUNT(families); f++) {
        for (const char *const *t = families[f].types; *t != NULL; t++) {
            if (strcmp(*t, type) == 0)
                return &families[f];
        }
    }
    return NULL;
}

/* --- tensors ------------------------------------------------------------------------------------- */

typedef struct {
    attn_encoder *e;
    const attn_archive *archive;
    const attn_plan *plan;
    const char *path;
    const attn_config *config;
    const family *family;
    const atomic_bool *cancel;
    char prefix[NAME_SIZE]; /* of the model's names, "bert." */
    char *block;            /* where arrays are taken from; NULL: they are only counted */
    size_t used;
} loader;

static float *take(loader *l, size_t floats)
{
    float *p = l->block == NULL ? NULL : (float *)(void *)(l->block + l->used);

    l->used += (floats * sizeof(float) + 63) / 64 * 64;
    return p;
}

/* PREFIX + module + end; NULL = not there. */
static const attn_tensor *find(const loader *l, const char *prefix, const char *module,
                               const char *end)
{
    char name[NAME_SIZE];
    int n = snprintf(name, sizeof name, "%s%s%s", prefix, module, end);

    return n < 0 || (size_t)n >= sizeof name ? NULL : attn_archive_find(l->archive, name);
}

/* The tensor with these rows and columns (columns 0: a vector); a size of SIZE_MAX may be any but 0. */
static attn_status need(const loader *l, const char *prefix, const char *module, const char *end,
                        size_t rows, size_t columns, const attn_tensor **out, attn_error *err)
{
    const attn_tensor *t = find(l, prefix, module, end);

    *out = t;
    if (t == NULL) {
        (void)attn_fail(err, ATTN_ENOTFOUND, "%s: no tensor \"%.120s%s%s\", wanted for the encoder",
                        l->path, prefix, module, end);
        return ATTN_ENOTFOUND; /* said plainly: analyzers do not know what attn_fail() returns */
    }
    size_t rank = columns == 0 ? 1 : 2;
    bool fits = t->rank == rank && t->count > 0 && (rows == SIZE_MAX || t->dim[0] == rows) &&
                (rank == 1 || columns == SIZE_MAX || t->dim[1] == columns);
    if (!fits && rank == 1)
        return attn_fail(err, ATTN_ESHAPE, "%s: %s has %zu numbers in %zu dimensions; %zu are due",
                         t->file, t->name, t->count, t->rank, rows);
    if (!fits && rows == SIZE_MAX)
        return attn_fail(err, ATTN_ESHAPE, "%s: %s has %zu numbers; rows of %zu are due", t->file,
                         t->name, t->count, columns);
    if (!fits)
        return attn_fail(err, ATTN_ESHAPE,
                         "%s: %s has %zu numbers in %zu dimensions; [%zu,%zu] is due", t->file,
                         t->name, t->count, t->rank, rows, columns);
    return ATTN_OK;
}

/* Every array is passed twice: without a block its tensor is checked and its room counted, then it is read. */
static attn_status read_array(loader *l, const attn_tensor *t, float **out, attn_error *err)
{
    *out = take(l, t->count);
    return l->block == NULL ? ATTN_OK : attn_archive_read_f32(l->archive, t, *out, err);
}

/* Old files call a norm's arrays gamma and beta. */
static attn_status read_norm(loader *l, const char *prefix, const char *module, size_t n,
                             encoder_norm *out, attn_error *err)
{
    const attn_tensor *weight = NULL, *bias = NULL;
    bool old =
        find(l, prefix, module, ".weight") == NULL && find(l, prefix, module, ".gamma") != NULL;

    ATTN_TRY(need(l, prefix, module, old ? ".gamma" : ".weight", n, 0, &weight, err));
    ATTN_TRY(read_array(l, weight, &out->weight, err));
    if (!l->family->bias && find(l, prefix, module, ".bias") == NULL)
        return ATTN_OK;
    ATTN_TRY(need(l, prefix, module, old ? ".beta" : ".bias", n, 0, &bias, err));
    return read_array(l, bias, &out->bias, err);
}

/* Rows [part * out, (part + 1) * out) of a module whose weight is [parts * out, in]. */
static attn_status read_dense(loader *l, const char *prefix, const char *module, size_t part,
                              size_t parts, attn_dense *d, attn_error *err)
{
    const attn_tensor *weight = NULL, *bias = NULL;
    bool biased = l->family->bias || find(l, prefix, module, ".bias") != NULL;

    ATTN_TRY(need(l, prefix, module, ".weight", parts * d->out, d->in, &weight, err));
    if (biased)
        ATTN_TRY(need(l, prefix, module, ".bias", parts * d->out, 0, &bias, err));
    d->weight = take(l, attn_packed_floats(d->in, d->out));
    d->bias = biased ? take(l, d->out) : NULL;
    if (l->block == NULL)
        return ATTN_OK;

    float *stored = malloc(weight->count * sizeof *stored); /* its count was read: it is stored */
    if (stored == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: not enough memory to read %s", weight->file,
                         weight->name);
    attn_status rc = attn_archive_read_f32(l->archive, weight, stored, err);
    if (rc == ATTN_OK)
        attn_pack_transposed(d->weight, d->in, d->out, 0, stored + part * d->out * d->in, d->out,
                             d->in);
    if (rc == ATTN_OK && biased)
        rc = attn_archive_read_f32(l->archive, bias, stored, err);
    if (rc == ATTN_OK && biased)
        memcpy(d->bias, stored + part * d->out, d->out * sizeof *stored);
    free(stored);
    return rc;
}

/* --- parts --------------------------------------------------------------------------------------- */

/* Runs `read` without a block, then with one of the size that it asked for. */
static attn_status fill(loader *l, attn_status (*read)(loader *l, void *out, attn_error *err),
                        void *out, void **block, attn_error *err)
{
    l->block = NULL;
    l->used = 0;
    ATTN_TRY(read(l, out, err));
    *block = l->block = attn_block_alloc(l->used > 0 ? l->used : 64);
    if (*block == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: not enough memory for the encoder", l->path);
    l->e->bytes += l->used;
    l->used = 0;
    return read(l, out, err);
}

typedef struct {
    const char *prefix; /* of a layer */
    encoder_feed *feed;
} feed_place;

static attn_status read_feed(loader *l, void *out, attn_error *err)
{
    const feed_place *p = out;
    const family *f = l->family;
    encoder_feed *feed = p->feed;
    size_t d = l->e->info.d_model, parts = f->gated ? 2 : 1;
    const attn_tensor *up = NULL;

    /* ModernBERT's first layer has none: the embeddings were normalised just before. */
    if (!f->pre_norm || find(l, p->prefix, f->attention_norm, ".weight") != NULL)
        ATTN_TRY(read_norm(l, p->prefix, f->attention_norm, d, &feed->attention_norm, err));
    ATTN_TRY(read_norm(l, p->prefix, f->feed_norm, d, &feed->feed_norm, err));
    ATTN_TRY(need(l, p->prefix, f->up, ".weight", SIZE_MAX, d, &up, err));
    feed->up.in = feed->gate.in = feed->down.out = d;
    feed->up.out = feed->gate.out = feed->down.in = up->dim[0] / parts;
    ATTN_TRY(read_dense(l, p->prefix, f->up, 0, parts, &feed->up, err));
    if (f->gated)
        ATTN_TRY(read_dense(l, p->prefix, f->up, 1, parts, &feed->gate, err));
    l->e->widest = attn_max(l->e->widest, feed->up.out);
    return read_dense(l, p->prefix, f->down, 0, 1, &feed->down, err);
}

/* The model's prefix, from the place of its first attention layer. */
static attn_status find_prefix(loader *l, attn_error *err)
{
    static const char old[] = "encoder.layer.{N}.attention"; /* some DistilBERT files */
    const char *source = l->plan->layer[0].source, *at = source;

    for (;;) {
        size_t group = 0, n = 0;
        if (attn_pattern_match(l->family->layer, at, &group, &n, NULL) ||
            attn_pattern_match(old, at, &group, &n, NULL))
            break;
        at = strchr(at, '.');
        if (at == NULL)
            return attn_fail(err, ATTN_EUNSUPPORTED,
                             "%s: the encoder is not looked for around layer \"%.120s\"", l->path,
                             source);
        at++;
    }
    (void)snprintf(l->prefix, sizeof l->prefix, "%.*s", (int)(at - source), source);
    return ATTN_OK;
}

static attn_status read_words(loader *l, const attn_tensor *t, attn_error *err)
{
    attn_encoder *e = l->e;
    bool as_is = (t->dtype == ATTN_F32 || t->dtype == ATTN_F16 || t->dtype == ATTN_BF16) &&
                 !t->column_major && !t->big_endian;
    size_t bytes = as_is ? t->bytes : t->count * sizeof(float);

    e->words_dtype = as_is ? t->dtype : ATTN_F32;
    e->words = attn_block_alloc(bytes);
    if (e->words == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: not enough memory to read %s", t->file, t->name);
    e->bytes += bytes;
    return as_is ? attn_archive_read_raw(l->archive, t, e->words, err)
                 : attn_archive_read_f32(l->archive, t, e->words, err);
}

static attn_status read_around(loader *l, void *out, attn_error *err)
{
    attn_encoder *e = out;
    const family *f = l->family;
    size_t d = e->info.d_model, width = e->info.embed_width;
    const attn_tensor *positions = NULL, *types = NULL;

    if (f->positions != NULL) {
        ATTN_TRY(need(l, l->prefix, f->positions, ".weight", SIZE_MAX, width, &positions, err));
        ATTN_TRY(read_array(l, positions, &e->positions, err));
        size_t unused = f->skips_padding ? (size_t)e->padding_id + 1 : 0;
        if (positions->dim[0] <= unused)
            return attn_fail(err, ATTN_ESHAPE, "%s: %s has %zu rows; the first token takes row %zu",
                             positions->file, positions->name, positions->dim[0], unused);
        e->info.max_tokens = positions->dim[0] - unused;
    }
    if (f->token_types != NULL) {
        ATTN_TRY(need(l, l->prefix, f->token_types, ".weight", SIZE_MAX, width, &types, err));
        ATTN_TRY(read_array(l, types, &e->types, err));
        e->info.types = types->dim[0];
    }
    ATTN_TRY(read_norm(l, l->prefix, f->embed_norm, width, &e->embed_norm, err));
    if (width != d || f->projects) {
        e->projection.in = width;
        e->projection.out = d;
        ATTN_TRY(read_dense(l, l->prefix, f->projection, 0, 1, &e->projection, err));
    }
    return f->final_norm == NULL ? ATTN_OK
                                 : read_norm(l, l->prefix, f->final_norm, d, &e->final_norm, err);
}

/* --- numbers ------------------------------------------------------------------------------------- */

static attn_status read_activation(loader *l, attn_error *err)
{
    const char *name = l->family->activation;

    ATTN_TRY(attn_config_string(l->config, l->family->activation_keys, &name, err));
    for (size_t i = 0; i < COUNT(activations); i++) {
        if (strcmp(activations[i].name, name) == 0) {
            l->e->activation = activations[i].kind;
            return ATTN_OK;
        }
    }
    return attn_fail(err, ATTN_EUNSUPPORTED,
                     "%s: the activation \"%.40s\" is not supported; gelu, gelu_new, "
                     "gelu_pytorch_tanh, relu and silu are",
                     l->config->label, name);
}

static attn_status read_numbers(loader *l, attn_error *err)
{
    attn_encoder *e = l->e;
    double eps = l->family->eps;
    bool found = false;

    ATTN_TRY(read_activation(l, err));
    if (l->family->eps_key != NULL)
        ATTN_TRY(attn_config_number(l->config, l->family->eps_key, &eps, &found, err));
    if (!(eps >= 0.0) || !(eps < 1.0))
        return attn_fail(err, ATTN_EINVAL, "%s: %s is %g; it must be from 0 to 1", l->config->label,
                         l->family->eps_key, eps);
    e->eps = (float)eps;
    if (l->family->skips_padding) {
        double padding = 1;
        ATTN_TRY(attn_config_number(l->config, "pad_token_id", &padding, &found, err));
        if (!(padding >= 0) || !(padding < 1 << 24) || padding != floor(padding))
            return attn_fail(err, ATTN_EINVAL, "%s: pad_token_id is %g", l->config->label, padding);
        e->padding_id = (int32_t)padding;
    }
    e->info.max_tokens = 8192; /* where positions come by rotation, what ModernBERT's class says */
    return attn_config_size(l->config, "max_position_embeddings", &e->info.max_tokens, &found, err);
}

/* The layers must follow each other: each is as wide as the ones beside it, and looks at itself. */
static attn_status place_layers(loader *l, const attn_layer *const *layers, attn_error *err)
{
    attn_encoder *e = l->e;

    e->info.num_layers = l->plan->count;
    e->layer = calloc(l->plan->count, sizeof *e->layer);
    e->feed = calloc(l->plan->count, sizeof *e->feed);
    if (e->layer == NULL || e->feed == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: not enough memory for the encoder", l->path);
    for (size_t i = 0; i < l->plan->count; i++) {
        const attn_layer_spec *s = &layers[i]->spec, *first = &layers[0]->spec;
        if (s->cross || s->d_model != first->d_model || s->d_kv != s->d_model ||
            s->d_out != s->d_model || s->num_heads * s->v_head_dim != s->d_model ||
            s->num_heads != first->num_heads || s->head_dim != first->head_dim)
            return attn_fail(
                err, ATTN_EUNSUPPORTED,
                "%s: layer %s does not fit into an encoder of width %zu with %zu heads", l->path,
                l->plan->layer[i].source, first->d_model, first->num_heads);
        e->layer[i].attention = layers[i];
        e->layer[i].joined = (attn_dense){s->d_model, s->d_model, layers[i]->wo, layers[i]->bo};
    }
    e->info.d_model = layers[0]->spec.d_model;
    e->info.num_heads = layers[0]->spec.num_heads;
    return ATTN_OK;
}

static attn_status read_feeds(loader *l, attn_error *err)
{
    attn_encoder *e = l->e;

    for (size_t i = 0; i < l->plan->count; i++) {
        const attn_layer_plan *p = &l->plan->layer[i];
        if (p->same_as < i) {
            e->layer[i].feed = e->layer[p->same_as].feed;
            continue;
        }
        if (l->cancel != NULL && atomic_load(l->cancel))
            return attn_fail(err, ATTN_ECANCELED, "%s: loading was given up", l->path);
        char prefix[NAME_SIZE];
        const char *end = strrchr(p->source, '.'); /* find_prefix() saw dots in it */
        (void)snprintf(prefix, sizeof prefix, "%.*s.", (int)(end - p->source), p->source);
        encoder_feed *feed = &e->feed[e->feeds++];
        ATTN_TRY(fill(l, read_feed, &(feed_place){prefix, feed}, &feed->block, err));
        e->layer[i].feed = feed;
    }
    return ATTN_OK;
}

static attn_status load(loader *l, const attn_layer *const *layers, attn_error *err)
{
    attn_encoder *e = l->e;
    const attn_tensor *words = NULL;

    l->family = find_family(l->plan->family);
    if (l->family == NULL)
        return attn_fail(
            err, ATTN_EUNSUPPORTED,
            "%s: whole encoders are computed of BERT, RoBERTa, XLM-RoBERTa, CamemBERT, "
            "ELECTRA, DistilBERT, ALBERT and ModernBERT; this is %s",
            l->path, l->plan->family);
    ATTN_TRY(find_prefix(l, err));
    ATTN_TRY(need(l, l->prefix, l->family->words, ".weight", SIZE_MAX, SIZE_MAX, &words, err));
    e->pre_norm = l->family->pre_norm;
    e->skips_padding = l->family->skips_padding;
    e->info.embed_width = words->dim[1];
    e->info.vocabulary = attn_min(words->dim[0], INT32_MAX);
    ATTN_TRY(place_layers(l, layers, err));
    if (e->info.embed_width != e->info.d_model && l->family->projection == NULL)
        return attn_fail(err, ATTN_ESHAPE, "%s: %s has rows of %zu; the layers are %zu wide",
                         words->file, words->name, words->dim[1], e->info.d_model);
    ATTN_TRY(read_numbers(l, err));
    ATTN_TRY(fill(l, read_around, e, &e->around, err));
    e->info.usual_tokens = e->info.max_tokens;
    ATTN_TRY(attn_encoder_read_pooling(e, l->path, err));
    ATTN_TRY(read_feeds(l, err));
    return read_words(l, words, err);
}

attn_status attn_encoder_load(attn_encoder **out, const attn_archive *a, const attn_plan *plan,
                              const char *path, const attn_config *config,
                              const attn_layer *const *layers, const atomic_bool *cancel,
                              attn_error *err)
{
    loader l = {.archive = a, .plan = plan, .path = path, .config = config, .cancel = cancel};

    *out = NULL;
    l.e = calloc(1, sizeof *l.e);
    if (l.e == NULL)
        return attn_fail(err, ATTN_ENOMEM, "%s: not enough memory for the encoder", path);
    attn_status rc = load(&l, layers, err);
    if (rc != ATTN_OK) {
        attn_encoder_free(l.e);
        return rc;
    }
    *out = l.e;
    return ATTN_OK;
}

void attn_encoder_free(attn_encoder *e)
{
    if (e == NULL)
        return;
    for (size_t i = 0; i < e->feeds; i++)
        free(e->feed[i].block);
    free(e->feed);
    free(e->layer);
    free(e->around);
    free(e->words);
    free(e->no_embeddings);
    free(e);
}

const attn_encoder_info *attn_encoder_get_info(const attn_encoder *e)
{
    return &e->info;
}

size_t attn_encoder_bytes(const attn_encoder *e)
{
    return sizeof *e + e->bytes;
}

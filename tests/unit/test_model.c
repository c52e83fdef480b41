/* Model folders of every family, written by tests/make_checkpoints.py: what is found in them, that
 * their layers compute what the family's own formula does, and that faults are refused by name. */
#include "core/model.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/attention.h"
#include "core/kern.h"
#include "tests/st.h"

static char *root; /* of the checkpoints */
static attn_pool *pool;

static attn_model *load(const char *path, const attn_json *layout, const int64_t *layers, size_t n)
{
    attn_model_options options = {"m", path, layout, layers, n, NULL};
    attn_model *m = NULL;
    attn_error err = {0};

    if (attn_model_load(&m, &options, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    assert_non_null(m);
    assert_string_equal(attn_model_name(m), "m");
    assert_string_equal(attn_model_path(m), path);
    return m;
}

static attn_model *load_checkpoint(const char *name)
{
    char *path = st_path("%s/%s", root, name);
    attn_model *m = load(path, NULL, NULL, 0);
    free(path);
    return m;
}

/* The failure of loading, which must leave no model behind. */
static attn_error refusal(const attn_model_options *options)
{
    attn_model *m = (attn_model *)1;
    attn_error err = {0};

    attn_status rc = attn_model_load(&m, options, &err);
    if (rc == ATTN_OK)
        fail_msg("%s: is loaded", options->path);
    assert_int_equal(rc, err.code);
    assert_null(m);
    return err;
}

static const attn_layer_spec *spec(const attn_model *m, size_t i)
{
    return attn_layer_get_spec(attn_model_layer(m, i));
}

/* --- numbers -------------------------------------------------------------------------------- */

/* out[T, d_out] = the layer's attention of x[T, d_model] to context[S, d_kv], or to x. */
static void compute(const attn_layer *layer, const float *x, size_t T, const float *context,
                    size_t S, float *out)
{
    const attn_layer_spec *s = attn_layer_get_spec(layer);
    attn_options options = {
        .scale = s->scale, .softcap = s->softcap, .is_causal = s->is_causal, .window = s->window};
    attn_sequence seq = {.q_len = T, .kv_len = S, .x = x, .context = context, .output = out};
    void *workspace = NULL;
    attn_stats stats = {0};
    attn_error err = {0};

    size_t bytes = attn_sequence_bytes(layer, NULL, &seq) +
                   attn_scratch_bytes(layer, NULL, &options, S, attn_pool_size(pool));
    assert_int_equal(posix_memalign(&workspace, 64, bytes), 0);
    if (attn_forward(layer, NULL, &options, &seq, 1, pool, workspace, NULL, &stats, &err) !=
        ATTN_OK)
        fail_msg("%s", err.text);
    free(workspace);
}

static void compare(const float *got, const float *want, size_t n, double tolerance,
                    const char *what, size_t layer)
{
    for (size_t e = 0; e < n; e++) {
        if (!(fabs((double)got[e] - (double)want[e]) <= tolerance))
            fail_msg("%s, layer %zu: element %zu is %.9g, expected %.9g", what, layer, e,
                     (double)got[e], (double)want[e]);
    }
}

/* Layer i of a model on the stored input; the output must be the stored one. */
static void check_layer(const attn_model *m, size_t i, const st_file *vectors, const char *name)
{
    char key[64];
    double largest = 1;

    snprintf(key, sizeof key, "layer.%zu.x", i);
    const st_tensor *input = st_need(vectors, key);
    snprintf(key, sizeof key, "layer.%zu.context", i);
    const st_tensor *other = st_find(vectors, key);
    snprintf(key, sizeof key, "layer.%zu.output", i);
    const st_tensor *expected = st_need(vectors, key);
    float *x = st_floats(input), *context = st_floats(other), *want = st_floats(expected);
    float *got = calloc(expected->count, sizeof *got);

    assert_non_null(got);
    assert_int_equal(input->dim[1], spec(m, i)->d_model);
    assert_int_equal(expected->dim[1], spec(m, i)->d_out);
    compute(attn_model_layer(m, i), x, input->dim[0], context,
            other != NULL ? other->dim[0] : input->dim[0], got);
    for (size_t e = 0; e < expected->count; e++)
        largest = fmax(largest, fabs((double)want[e]));
    compare(got, want, expected->count, 1e-5 * largest, name, i);
    free(x);
    free(context);
    free(want);
    free(got);
}

/* Calls f(name) for each entry of the folder of checkpoints that ends in `end`; returns how many. */
static size_t for_each(const char *below, const char *end, void (*f)(const char *name))
{
    char *path = st_path("%s/%s", root, below);
    DIR *d = opendir(path);
    size_t n = 0;

    assert_non_null(d);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        char *dot = strstr(e->d_name, end);
        if (dot == NULL || dot[strlen(end)] != '\0')
            continue;
        char *name = st_path("%.*s", (int)(dot - e->d_name), e->d_name);
        f(name);
        free(name);
        n++;
    }
    closedir(d);
    free(path);
    return n;
}

static void check_numbers(const char *name)
{
    char *path = st_path("%s/vectors/%s.safetensors", root, name), key[64];
    st_file *vectors = st_open(path);
    attn_model *m = load_checkpoint(name);
    size_t n = attn_model_layer_count(m);

    snprintf(key, sizeof key, "layer.%zu.x", n - 1);
    (void)st_need(vectors, key);
    snprintf(key, sizeof key, "layer.%zu.x", n);
    if (st_find(vectors, key) != NULL)
        fail_msg("%s: only %zu layers are found", name, n);
    for (size_t i = 0; i < n; i++)
        check_layer(m, i, vectors, name);
    if (attn_model_warning_count(m) != 0)
        fail_msg("%s: warning: %s", name, attn_model_warning(m, 0));
    attn_model_free(m);
    st_close(vectors);
    free(path);
}

static void every_family_computes_its_own_formula(void **state)
{
    (void)state;
    assert_true(for_each("vectors", ".safetensors", check_numbers) >= 25);
}

/* --- what is found -------------------------------------------------------------------------- */

typedef struct {
    const char *name, *family;
    size_t layers;
    const char *first, *last;     /* sources */
    const char *position, *about; /* of the first layer; `about` says more of it and the last */
} finding;

static const finding findings[] = {
    {"bert", "bert", 2, "bert.encoder.layer.0.attention", "bert.encoder.layer.1.attention", "none",
     "both"},
    {"roberta", "xlm-roberta", 1, "roberta.encoder.layer.0.attention",
     "roberta.encoder.layer.0.attention", "none", "both"},
    {"bert_decoder", "bert", 4, "encoder.layer.0.attention", "encoder.layer.1.crossattention",
     "none", "causal, then cross"},
    {"distilbert", "distilbert", 2, "distilbert.transformer.layer.0.attention",
     "distilbert.transformer.layer.1.attention", "none", "both"},
    {"albert", "albert", 4, "albert.encoder.albert_layer_groups.0.albert_layers.0.attention",
     "albert.encoder.albert_layer_groups.1.albert_layers.0.attention", "none", "both"},
    {"gpt2", "gpt2", 4, "transformer.h.0.attn", "transformer.h.1.crossattention", "none",
     "causal, then cross"},
    {"gpt_neox", "gpt_neox", 2, "gpt_neox.layers.0.attention", "gpt_neox.layers.1.attention",
     "rope", "causal"},
    {"llama", "llama", 2, "model.layers.0.self_attn", "model.layers.1.self_attn", "rope", "causal"},
    {"mistral", "mistral", 2, "model.layers.0.self_attn", "model.layers.1.self_attn", "rope",
     "causal"},
    {"qwen2", "qwen2", 3, "model.layers.0.self_attn", "model.layers.2.self_attn", "rope", "causal"},
    {"qwen3", "qwen3", 2, "model.layers.0.self_attn", "model.layers.1.self_attn", "rope", "causal"},
    {"gemma2", "gemma2", 2, "model.layers.0.self_attn", "model.layers.1.self_attn", "rope",
     "causal"},
    {"t5", "t5", 6, "encoder.block.0.layer.0.SelfAttention",
     "decoder.block.1.layer.1.EncDecAttention", "relative", "both, then cross"},
    {"vit", "vit", 2, "vit.encoder.layer.0.attention", "vit.encoder.layer.1.attention", "none",
     "both"},
    {"clip", "clip", 3, "text_model.encoder.layers.0.self_attn",
     "vision_model.encoder.layers.0.self_attn", "none", "causal, then both"},
    {"clip_openai", "clip", 2, "transformer.resblocks.0.attn",
     "visual.transformer.resblocks.0.attn", "none", "causal, then both"},
    {"whisper", "whisper", 6, "model.encoder.layers.0.self_attn",
     "model.decoder.layers.1.encoder_attn", "none", "both, then cross"},
    {"whisper_openai", "whisper", 6, "encoder.blocks.0.attn", "decoder.blocks.1.cross_attn", "none",
     "both, then cross"},
    {"torch", "torch", 2, "layers.0.self_attn", "layers.1.self_attn", "none", "both"},
    {"torch_transformer", "torch", 3, "encoder.layers.0.self_attn",
     "decoder.layers.0.multihead_attn", "none", "both, then cross"},
    {"torch_kdim", "torch", 1, "q_proj_weight", "q_proj_weight", "none", "cross"},
    {"modernbert", "modernbert", 4, "model.layers.0.attn", "model.layers.3.attn", "rope", "both"},
    {"nomic_bert", "nomic_bert", 1, "encoder.layers.0.attn", "encoder.layers.0.attn", "rope",
     "both"},
    {"gte", "new", 1, "new.encoder.layer.0.attention", "new.encoder.layer.0.attention", "rope",
     "both"},
    {"attnd", "attnd", 2, "layers.0", "layers.1", "rope", "causal"},
    {"attnd_cross", "attnd", 1, "model.layers.0", "model.layers.0", "alibi", "cross"},
    {"timm", "layout", 2, "blocks.0.attn", "blocks.1.attn", "none", "both"},
    {"layout_heads", "layout", 1, "attention/qkv", "attention/qkv", "none", "causal"},
    {"layout_kv", "layout", 1, "q", "q", "none", "cross"},
    {"layout_seed", "layout", 1, "W_Q.{N}", "W_Q.{N}", "none", "both"},
};

static const char *kind(const attn_layer_spec *s)
{
    return s->cross ? "cross" : s->is_causal ? "causal" : "both";
}

static void layers_are_found_with_source_and_kind(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof findings / sizeof *findings; i++) {
        const finding *f = &findings[i];
        attn_model *m = load_checkpoint(f->name);
        size_t last = f->layers - 1;
        char about[64];

        assert_string_equal(attn_model_family(m), f->family);
        assert_int_equal(attn_model_layer_count(m), f->layers);
        assert_string_equal(attn_model_layer_source(m, 0), f->first);
        assert_string_equal(attn_model_layer_source(m, last), f->last);
        assert_string_equal(attn_model_layer_position(m, 0), f->position);
        bool same = strcmp(kind(spec(m, 0)), kind(spec(m, last))) == 0;
        snprintf(about, sizeof about, "%s%s%s", kind(spec(m, 0)), same ? "" : ", then ",
                 same ? "" : kind(spec(m, last)));
        assert_string_equal(about, f->about);
        assert_true(attn_model_weights_bytes(m) > 0);
        attn_model_free(m);
    }
}

static void grouped_heads_have_their_numbers(void **state)
{
    attn_model *m = load_checkpoint("llama");
    const attn_layer_spec *s = spec(m, 1);
    (void)state;

    assert_int_equal(s->d_model, 20);
    assert_int_equal(s->d_kv, 20);
    assert_int_equal(s->d_out, 20);
    assert_int_equal(s->num_heads, 4);
    assert_int_equal(s->num_kv_heads, 2);
    assert_int_equal(s->head_dim, 6);
    assert_int_equal(s->v_head_dim, 6);
    assert_true(s->scale == (float)(1 / sqrt(6.0)));
    assert_true(s->softcap == 0);
    assert_int_equal(s->window.left, -1);
    assert_int_equal(s->window.right, -1);
    assert_int_equal(s->rope.style, ATTN_ROPE_HALF);
    assert_int_equal(s->rope.dims, 6);
    assert_int_equal(s->rope.scaling, ATTN_ROPE_SCALE_LLAMA3);
    assert_true(s->rope.theta == 100.0 && s->rope.factor == 8.0);
    assert_true(s->rope.low_freq_factor == 1.0 && s->rope.high_freq_factor == 4.0);
    assert_true(s->rope.original_max_position == 64.0);
    attn_model_free(m);
}

static void windows_follow_each_family(void **state)
{
    static const struct {
        const char *name;
        size_t layer;
        int64_t left, right;
    } cases[] = {{"mistral", 0, 2, -1},     {"mistral", 1, 2, -1},   {"qwen2", 0, -1, -1},
                 {"qwen2", 1, 1, -1},       {"qwen3", 0, -1, -1},    {"gemma2", 0, 2, -1},
                 {"gemma2", 1, -1, -1},     {"modernbert", 1, 2, 2}, {"modernbert", 0, -1, -1},
                 {"modernbert", 3, -1, -1}, {"attnd", 0, 3, -1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_model *m = load_checkpoint(cases[i].name);
        assert_int_equal(spec(m, cases[i].layer)->window.left, cases[i].left);
        assert_int_equal(spec(m, cases[i].layer)->window.right, cases[i].right);
        attn_model_free(m);
    }
}

static void shared_layers_are_held_once(void **state)
{
    attn_model *m = load_checkpoint("albert");
    (void)state;

    assert_ptr_equal(attn_model_layer(m, 0), attn_model_layer(m, 1));
    assert_ptr_equal(attn_model_layer(m, 2), attn_model_layer(m, 3));
    assert_ptr_not_equal(attn_model_layer(m, 1), attn_model_layer(m, 2));
    assert_int_equal(attn_model_weights_bytes(m), attn_layer_bytes(attn_model_layer(m, 0)) +
                                                      attn_layer_bytes(attn_model_layer(m, 2)));
    attn_model_free(m);
}

static void layers_can_be_chosen(void **state)
{
    char *path = st_path("%s/gpt2", root);
    attn_model *m = load(path, NULL, (int64_t[]){3, 1, 1}, 3);
    (void)state;

    assert_int_equal(attn_model_layer_count(m), 3);
    assert_string_equal(attn_model_layer_source(m, 0), "transformer.h.1.crossattention");
    assert_string_equal(attn_model_layer_source(m, 1), "transformer.h.1.attn");
    assert_string_equal(attn_model_layer_source(m, 2), "transformer.h.1.attn");
    attn_model_free(m);

    static const int64_t bad[] = {4, -1, INT64_MIN};
    for (size_t i = 0; i < 3; i++) {
        attn_error err = refusal(&(attn_model_options){"m", path, NULL, &bad[i], 1, NULL});
        assert_non_null(strstr(err.text, "layers 0 to 3"));
    }
    attn_error err = refusal(&(attn_model_options){"m", path, NULL, bad, 0, NULL});
    assert_non_null(strstr(err.text, "empty"));
    free(path);
}

/* --- paths, layouts and warnings ------------------------------------------------------------ */

static void a_file_takes_the_configuration_beside_it(void **state)
{
    char *path = st_path("%s/bert/model.safetensors", root);
    attn_model *m = load(path, NULL, NULL, 0);
    (void)state;

    assert_int_equal(spec(m, 0)->num_heads, 3);
    attn_model_free(m);
    free(path);
}

static void a_given_layout_wins(void **state)
{
    static const char text[] =
        "{\"weights\":{\"q\":\"bert.encoder.layer.{N}.attention.self.query.weight\","
        "\"k\":\"bert.encoder.layer.{N}.attention.self.key.weight\","
        "\"v\":\"bert.encoder.layer.{N}.attention.self.value.weight\","
        "\"o\":\"bert.encoder.layer.{N}.attention.output.dense.weight\"},"
        "\"orientation\":\"out_in\",\"num_heads\":6,\"softcap\":4.5,\"window\":{\"right\":0},"
        "\"rope\":{\"style\":\"half\",\"theta\":7,\"dims\":2}}";
    char *path = st_path("%s/bert", root);
    attn_json *layout = NULL;
    attn_error err = {0};
    (void)state;

    assert_int_equal(attn_json_parse(&layout, text, sizeof text - 1, "layout", &err), ATTN_OK);
    attn_model *m = load(path, layout, NULL, 0);
    const attn_layer_spec *s = spec(m, 1);
    assert_string_equal(attn_model_family(m), "layout");
    assert_int_equal(attn_model_layer_count(m), 2);
    assert_int_equal(s->num_heads, 6);
    assert_int_equal(s->head_dim, 2);
    assert_true(s->softcap == 4.5F);
    assert_int_equal(s->window.left, -1);
    assert_int_equal(s->window.right, 0);
    assert_true(s->rope.theta == 7.0);
    /* The biases are not named, and so not used; that is said. */
    size_t biases = 0;
    for (size_t i = 0; i < attn_model_warning_count(m); i++)
        biases +=
            strstr(attn_model_warning(m, i), "query.bias is in the file and not used") != NULL;
    assert_int_equal(biases, 1);
    attn_model_free(m);
    attn_json_free(layout);
    free(path);
}

/* A folder of our own layout with one head of two: config, and tensors of zeros. */
static char *small_folder(const char *config, const char *const *names, const size_t *columns,
                          size_t n)
{
    static const float zeros[16];
    st_entry entry[16];
    char *dir = st_temp_dir(), *file = st_path("%s/model.safetensors", dir);

    for (size_t i = 0; i < n; i++) {
        size_t rank = columns[i] == 0 ? 1 : 2;
        entry[i] = (st_entry){names[i], "F32", rank, {2, columns[i]}, zeros, 0};
        entry[i].bytes = sizeof(float) * 2 * (rank == 2 ? columns[i] : 1);
    }
    st_write(file, entry, n);
    free(file);
    if (config != NULL) {
        file = st_path("%s/config.json", dir);
        st_write_text(file, config);
        free(file);
    }
    return dir;
}

static void what_is_not_used_is_said_once(void **state)
{
    static const char *const names[] = {
        "layers.0.wq.weight", "layers.0.wk.weight", "layers.0.wv.weight", "layers.0.wo.weight",
        "layers.0.gate",      "layers.1.wq.weight", "layers.1.wk.weight", "layers.1.wv.weight",
        "layers.1.wo.weight", "layers.1.gate",      "norm.weight"};
    static const size_t columns[] = {2, 2, 2, 2, 0, 2, 2, 2, 2, 0, 0};
    char *dir = small_folder("{\"model_type\":\"attnd\",\"num_heads\":1,\"is_casual\":true}", names,
                             columns, 11);
    attn_model *m = load(dir, NULL, NULL, 0);
    (void)state;

    assert_int_equal(attn_model_warning_count(m), 2);
    assert_non_null(strstr(attn_model_warning(m, 0), "layers.{N}.gate"));
    assert_non_null(strstr(attn_model_warning(m, 0), "2 tensors"));
    assert_non_null(strstr(attn_model_warning(m, 1), "is_casual"));
    attn_model_free(m);
    st_remove_dir(dir);
}

static void without_configuration_the_missing_number_is_named(void **state)
{
    static const char *const names[] = {"layers.0.wq.weight", "layers.0.wk.weight",
                                        "layers.0.wv.weight", "layers.0.wo.weight"};
    static const size_t columns[] = {2, 2, 2, 2};
    char *dir = small_folder(NULL, names, columns, 4);
    attn_error err = refusal(&(attn_model_options){"m", dir, NULL, NULL, 0, NULL});
    (void)state;

    assert_non_null(strstr(err.text, "config.json: there is no such file to say num_heads"));
    assert_memory_equal(err.text, dir, strlen(dir));
    st_remove_dir(dir);
}

static void keys_of_another_width_make_a_cross_layer(void **state)
{
    static const char *const names[] = {"layers.0.wq.weight", "layers.0.wk.weight",
                                        "layers.0.wv.weight", "layers.0.wo.weight"};
    static const size_t columns[] = {4, 3, 3, 2};
    char *dir = small_folder("{\"model_type\":\"attnd\",\"num_heads\":1,\"head_dim\":2}", names,
                             columns, 4);
    attn_model *m = load(dir, NULL, NULL, 0);
    (void)state;

    assert_int_equal(spec(m, 0)->d_model, 4);
    assert_int_equal(spec(m, 0)->d_kv, 3);
    assert_int_equal(spec(m, 0)->d_out, 2);
    assert_true(spec(m, 0)->cross);
    attn_model_free(m);
    st_remove_dir(dir);
}

/* --- faults --------------------------------------------------------------------------------- */

static void check_fault(const char *name)
{
    char *path = st_path("%s/wrong/%s", root, name), *words = st_path("%s.txt", path);
    attn_error err = refusal(&(attn_model_options){"m", path, NULL, NULL, 0, NULL});
    FILE *f = fopen(words, "r");
    char line[256];

    assert_non_null(f);
    if (strncmp(err.text, path, strlen(path)) != 0)
        fail_msg("%s: does not begin with the path: %s", name, err.text);
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strstr(err.text, line) == NULL)
            fail_msg("%s: \"%s\" is not in: %s", name, line, err.text);
    }
    fclose(f);
    if (getenv("SHOW_REFUSALS") != NULL)
        print_message("%s\n", err.text + strlen(root) + strlen("/wrong/"));
    free(words);
    free(path);
}

static void every_fault_is_refused_by_name(void **state)
{
    (void)state;
    assert_true(for_each("wrong", ".txt", check_fault) >= 40);
}

/* --- real files ----------------------------------------------------------------------------- */

/* The first sequence of the stored vectors through every layer. */
static void check_real_numbers(const attn_model *m, const char *file, double tolerance)
{
    st_file *vectors = st_open(file);
    char key[64];

    for (size_t i = 0; i < attn_model_layer_count(m); i++) {
        snprintf(key, sizeof key, "layers.%zu.inputs_embeds", i);
        const st_tensor *input = st_need(vectors, key);
        snprintf(key, sizeof key, "layers.%zu.outputs", i);
        float *x = st_floats(input), *want = st_floats(st_need(vectors, key));
        size_t T = input->dim[1], n = T * spec(m, i)->d_out;
        float *got = calloc(n, sizeof *got);
        assert_non_null(got);
        compute(attn_model_layer(m, i), x, T, NULL, T, got);
        compare(got, want, n, tolerance, file, i);
        free(x);
        free(want);
        free(got);
    }
    st_close(vectors);
}

/* Tolerances are those of the vectors' own description. */
static void trained_models_compute_their_vectors(void **state)
{
    static const struct {
        const char *path, *vectors;
        size_t layers;
        double tolerance;
    } cases[] = {
        {"stories260K/hf", "stories260K/vectors/forward_one", 5, 1.9e-5},
        {"stories260K/native", "stories260K/vectors/forward_one", 5, 1.9e-5},
        {"gpt-nano-sort/hf", "gpt-nano-sort/vectors/forward_batch3", 3, 1e-5},
        {"gpt-nano-sort/native", "gpt-nano-sort/vectors/forward_batch3", 3, 1e-5},
        {"ppocrv4-rec-attention/native", "ppocrv4-rec-attention/vectors/forward_batch3", 2, 3.4e-5},
        {"ppocrv4-rec-attention/torch", "ppocrv4-rec-attention/vectors/forward_batch3", 2, 3.4e-5}};
    (void)state;
    char *models = st_shared("models");
    if (models == NULL) {
        print_message("skipped: trained models: no shared folder\n");
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = st_path("%s/%s", models, cases[i].path);
        char *vectors = st_path("%s/%s.safetensors", models, cases[i].vectors);
        attn_model *m = load(path, NULL, NULL, 0);
        assert_int_equal(attn_model_layer_count(m), cases[i].layers);
        assert_int_equal(attn_model_warning_count(m), 0);
        check_real_numbers(m, vectors, cases[i].tolerance);
        attn_model_free(m);
        free(path);
        free(vectors);
    }
    free(models);
}

static int set_up(void **state)
{
    char *command = NULL;
    (void)state;

    if (attn_kern_init(NULL, NULL) != ATTN_OK)
        return -1;
    root = st_temp_dir();
    command = st_path("PATH=/usr/bin:$PATH python3 tests/make_checkpoints.py '%s'", root);
    int rc = system(command); /* Debian's Python first: it is the one that has python3-numpy */
    free(command);
    if (rc != 0)
        print_error("tests/make_checkpoints.py failed; it needs python3 with NumPy\n");
    return rc != 0 || attn_pool_new(&pool, 2, false, NULL) != ATTN_OK ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    attn_pool_free(pool);
    st_remove_dir(root);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_computes_its_own_formula),
        cmocka_unit_test(layers_are_found_with_source_and_kind),
        cmocka_unit_test(grouped_heads_have_their_numbers),
        cmocka_unit_test(windows_follow_each_family),
        cmocka_unit_test(shared_layers_are_held_once),
        cmocka_unit_test(layers_can_be_chosen),
        cmocka_unit_test(a_file_takes_the_configuration_beside_it),
        cmocka_unit_test(a_given_layout_wins),
        cmocka_unit_test(what_is_not_used_is_said_once),
        cmocka_unit_test(without_configuration_the_missing_number_is_named),
        cmocka_unit_test(keys_of_another_width_make_a_cross_layer),
        cmocka_unit_test(every_fault_is_refused_by_name),
        cmocka_unit_test(trained_models_compute_their_vectors),
    };
    return cmocka_run_group_tests_name("model", tests, set_up, tear_down);
}

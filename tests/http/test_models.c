/* Trained models in every layout that they are stored in: each layer of each stored forward pass. */
#include "tests/body.h"
#include "tests/cases.h"
#include "tests/daemon.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    const char *folder;
    const char *layout[2], *forward[3];
    size_t layers, d_model, heads, kv_heads, head_dim;
    const char *position[2]; /* of each layout */
} stored_model;

static const stored_model MODEL[] = {
    {"stories260K",
     {"hf", "native"},
     {"forward_one", "forward_batch3", "forward_story128"},
     5,
     64,
     8,
     4,
     8,
     {"rope", "rope"}},
    {"gpt-nano-sort", {"hf", "native"}, {"forward_batch3"}, 3, 48, 3, 3, 16, {"none", "none"}},
    {"ppocrv4-rec-attention",
     {"torch", "native"},
     {"forward_batch3"},
     2,
     120,
     8,
     8,
     15,
     {"none", "none"}},
};
enum { MODELS = sizeof MODEL / sizeof *MODEL, LAYOUTS = 2, FORWARDS = 3 };

static test_daemon *daemon_;

static int start(void **state)
{
    char *arg[4 * MODELS + 2], *shared = st_shared("models/README.md");
    size_t n = 0;
    (void)state;

    if (shared == NULL) {
        printf("skipped: models: the shared models are not beside this tree (ATTND_SHARED)\n");
        return 0;
    }
    free(shared);
    arg[n++] = st_path("serve");
    for (size_t m = 0; m < MODELS; m++) {
        for (size_t l = 0; l < LAYOUTS; l++) {
            char *below = st_path("models/%s/%s", MODEL[m].folder, MODEL[m].layout[l]);
            char *path = st_shared(below);
            arg[n++] = st_path("--model");
            arg[n++] = st_path("%s.%s=%s", MODEL[m].folder, MODEL[m].layout[l], path);
            free(below);
            free(path);
        }
    }
    arg[n] = NULL;
    daemon_ = daemon_start((const char *const *)arg);
    while (n > 0)
        free(arg[--n]);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_stop(daemon_);
    return 0;
}

/* --- one layer of one forward pass ------------------------------------------------------------ */

typedef struct {
    const char *name; /* as served */
    const char *what; /* for messages */
    const st_file *vectors;
    const json_t *info;
    const char *witness; /* prefix of the tensors: "" for ours */
    size_t layer, batch, tokens;
    int64_t *lengths; /* NULL = all are full */
    bool causal;
} pass;

static const st_tensor *tensor_of(const pass *p, const char *what)
{
    char *name = st_path("%slayers.%zu.%s", p->witness, p->layer, what);
    const st_tensor *t = st_find(p->vectors, name);
    free(name);
    return t;
}

static json_t *ask(const pass *p, const char *attentions)
{
    const st_tensor *t = tensor_of(p, "inputs_embeds");
    float *x = st_floats(t);
    char *path = st_path("/v1/models/%s/attention", p->name);
    test_body b;

    body_init(&b, true);
    body_floats(&b, "inputs_embeds", x, t->rank, t->dim);
    body_printf(&b, "layer", "%zu", p->layer);
    if (p->lengths != NULL)
        body_ints(&b, "lengths", p->lengths, DIMS(p->batch));
    body_raw(&b, "return_attentions", attentions);
    test_reply r = daemon_post(daemon_, path, body_text(&b), 200);
    json_t *answer = answer_parse(r.body, r.body_bytes);
    reply_free(&r);
    body_free(&b);
    free(path);
    free(x);
    return answer;
}

/* Real rows as stored; of a square map only the columns that a row may see, when `seen_only`. */
static void check(const pass *p, json_t *answer, const char *field, const char *tensor,
                  bool seen_only)
{
    const st_tensor *t = tensor_of(p, tensor);
    if (t == NULL)
        return;
    double tolerance = case_number(json_object_get(p->info, "tolerance"), tensor);
    double *expected = st_doubles(t);
    test_tensor got = answer_tensor(answer_get(answer, field), p->what, t->rank, t->dim);
    size_t width = t->dim[t->rank - 1], outer = t->rank == 4 ? t->dim[1] : 1, T = p->tokens;

    assert_true(tolerance > 0);
    for (size_t row = 0; row < got.count / width; row++) {
        size_t b = row / (outer * T), i = row % T;
        size_t real = p->lengths != NULL ? (size_t)p->lengths[b] : T;
        size_t seen = !seen_only ? width : p->causal ? i + 1 : real;
        if (i < real)
            assert_close(p->what, got.data + row * width, expected + row * width, seen, NULL,
                         tolerance);
        else
            assert_zeros(p->what, got.data + row * width, width);
    }
    answer_free(&got);
    free(expected);
}

/* What other programs computed of the same layers, where it is stored beside ours. */
static const char *const WITNESS[] = {"torch.", "onnxruntime."};

static void check_layer(const pass *p)
{
    json_t *maps = ask(p, "true");
    check(p, maps, "outputs", "outputs", false);
    check(p, maps, "attentions", "attentions", false);
    for (size_t i = 0; i < sizeof WITNESS / sizeof *WITNESS; i++) {
        pass other = *p;
        other.witness = WITNESS[i];
        check(&other, maps, "outputs", "outputs", false);
        check(&other, maps, "attentions", "attentions", false);
    }
    json_decref(maps);
    if (tensor_of(p, "scores") != NULL) {
        json_t *scores = ask(p, "{\"stage\":\"scores\"}");
        check(p, scores, "outputs", "outputs", false);
        check(p, scores, "attentions", "scores", true);
        json_decref(scores);
    }
}

static void check_forward(const stored_model *m, const char *layout, const char *forward)
{
    char *json = st_path("models/%s/vectors/%s.json", m->folder, forward);
    char *file = st_path("models/%s/vectors/%s.safetensors", m->folder, forward);
    char *json_file = st_shared(json), *vector_file = st_shared(file);
    char *name = st_path("%s.%s", m->folder, layout);
    json_t *info = case_json(json_file);
    st_file *vectors = st_open(vector_file);
    int64_t *lengths = st_ints(st_find(vectors, "lengths"));
    pass p = {.name = name,
              .witness = "",
              .vectors = vectors,
              .info = info,
              .lengths = lengths,
              .causal = json_is_true(json_object_get(info, "causal"))};

    for (p.layer = 0; p.layer < m->layers; p.layer++) {
        const st_tensor *t = tensor_of(&p, "inputs_embeds");
        char *what = st_path("%s %s layer %zu", name, forward, p.layer);
        assert_non_null(t);
        p.batch = t->dim[0];
        p.tokens = t->dim[1];
        p.what = what;
        check_layer(&p);
        free(what);
    }
    free(lengths);
    st_close(vectors);
    json_decref(info);
    free(json);
    free(file);
    free(json_file);
    free(vector_file);
    free(name);
}

static void check_model(const char *folder)
{
    if (daemon_ == NULL)
        skip();
    for (size_t m = 0; m < MODELS; m++) {
        for (size_t l = 0; strcmp(MODEL[m].folder, folder) == 0 && l < LAYOUTS; l++) {
            for (size_t f = 0; f < FORWARDS && MODEL[m].forward[f] != NULL; f++)
                check_forward(&MODEL[m], MODEL[m].layout[l], MODEL[m].forward[f]);
        }
    }
}

static void stories260K_agrees_in_both_layouts(void **state)
{
    (void)state;
    check_model("stories260K");
}

static void gpt_nano_sort_agrees_in_both_layouts(void **state)
{
    (void)state;
    check_model("gpt-nano-sort");
}

static void ppocrv4_rec_attention_agrees_in_both_layouts(void **state)
{
    (void)state;
    check_model("ppocrv4-rec-attention");
}

static void models_say_what_they_are(void **state)
{
    (void)state;
    if (daemon_ == NULL)
        skip();
    for (size_t i = 0; i < (size_t)MODELS * LAYOUTS; i++) {
        const stored_model *m = &MODEL[i / LAYOUTS];
        char *path = st_path("/v1/models/%s.%s", m->folder, m->layout[i % LAYOUTS]);
        test_reply r = daemon_request(daemon_, "GET", path, NULL, NULL, 0);
        assert_int_equal(r.status, 200);
        json_t *root = answer_parse(r.body, r.body_bytes), *layer;
        size_t n;
        assert_int_equal(json_array_size(json_object_get(root, "layers")), m->layers);
        json_array_foreach(json_object_get(root, "layers"), n, layer)
        {
            assert_int_equal(case_size(layer, "d_model"), m->d_model);
            assert_int_equal(case_size(layer, "num_heads"), m->heads);
            assert_int_equal(case_size(layer, "num_kv_heads"), m->kv_heads);
            assert_int_equal(case_size(layer, "head_dim"), m->head_dim);
            assert_float_equal(case_number(layer, "scale"), 1 / sqrt((double)m->head_dim), 1e-6);
            assert_string_equal(json_string_value(json_object_get(layer, "position")),
                                m->position[i % LAYOUTS]);
        }
        json_decref(root);
        reply_free(&r);
        free(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_say_what_they_are),
        cmocka_unit_test(stories260K_agrees_in_both_layouts),
        cmocka_unit_test(gpt_nano_sort_agrees_in_both_layouts),
        cmocka_unit_test(ppocrv4_rec_attention_agrees_in_both_layouts),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

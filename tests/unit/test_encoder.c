/* Whole encoders of every family, written by tests/make_encoders.py: what they compute, that it depends on nothing
 * else, and what is said where something is missing. */
#include "core/encoder.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/kern.h"
#include "tests/encode_case.h"
#include "tests/layer_case.h"
#include "tests/st.h"

enum { MOST_SEQUENCES = 8, MOST_THREADS = 3 };

static char *root;

/* A model with its sequences and what they should give. */
typedef struct {
    attn_model *model;
    const attn_encoder *encoder;
    const attn_encoder_info *info;
    st_file *vectors;
    size_t n;
    encode_case cases[MOST_SEQUENCES];
    void *inputs[MOST_SEQUENCES][3];
} fixture;

static const st_tensor *of_sequence(const fixture *f, size_t i, const char *what)
{
    char key[48];

    snprintf(key, sizeof key, "seq.%zu.%s", i, what);
    return st_find(f->vectors, key);
}

static int32_t *small_ints(const st_tensor *t)
{
    int64_t *wide = st_ints(t);
    int32_t *x = wide == NULL ? NULL : calloc(t->count, sizeof *x);

    for (size_t i = 0; x != NULL && i < t->count; i++)
        x[i] = (int32_t)wide[i];
    free(wide);
    return x;
}

static unsigned char *mask_bytes(const st_tensor *t)
{
    int64_t *wide = st_ints(t);
    unsigned char *x = wide == NULL ? NULL : calloc(t->count, 1);

    for (size_t i = 0; x != NULL && i < t->count; i++)
        x[i] = wide[i] != 0;
    free(wide);
    return x;
}

static void read_sequence(fixture *f, size_t i)
{
    attn_encode_sequence *s = &f->cases[i].seq;
    const st_tensor *ids = of_sequence(f, i, "ids"), *embeds = of_sequence(f, i, "embeds");
    unsigned char *mask = mask_bytes(of_sequence(f, i, "mask"));

    *s = (attn_encode_sequence){.index = i,
                                .tokens = ids != NULL ? ids->dim[0] : embeds->dim[0],
                                .ids = small_ints(ids),
                                .types = small_ints(of_sequence(f, i, "types")),
                                .embeds = st_floats(embeds),
                                .mask = mask,
                                .mask_stride = {0, 0, 1},
                                .counted = mask};
    f->inputs[i][0] = s->ids != NULL ? (void *)(uintptr_t)s->ids : (void *)(uintptr_t)s->embeds;
    f->inputs[i][1] = (void *)(uintptr_t)s->types;
    f->inputs[i][2] = mask;
}

static void open_fixture(fixture *f, const char *name)
{
    char *path = st_path("%s/%s", root, name);

    memset(f, 0, sizeof *f);
    f->model = encode_load(path);
    f->encoder = encode_encoder(f->model);
    f->info = attn_encoder_get_info(f->encoder);
    free(path);
    path = st_path("%s/vectors/%s.safetensors", root, name);
    f->vectors = st_open(path);
    free(path);
    while (f->n < MOST_SEQUENCES && of_sequence(f, f->n, "hidden") != NULL)
        read_sequence(f, f->n++);
    assert_true(f->n > 2);
}

static void close_fixture(fixture *f)
{
    for (size_t i = 0; i < f->n; i++) {
        encode_free_results(&f->cases[i]);
        for (size_t k = 0; k < 3; k++)
            free(f->inputs[i][k]);
    }
    st_close(f->vectors);
    attn_model_free(f->model);
}

static void add_results(fixture *f, const attn_encode_options *o)
{
    for (size_t i = 0; i < f->n; i++) {
        encode_free_results(&f->cases[i]);
        encode_add_results(f->encoder, o, &f->cases[i]);
    }
}

static attn_pool *new_pool(size_t threads)
{
    attn_pool *pool = NULL;

    assert_int_equal(attn_pool_new(&pool, threads, false, NULL), ATTN_OK);
    return pool;
}

/* --- numbers ------------------------------------------------------------------------------------ */

static const struct {
    attn_embed pooling;
    const char *name;
} poolings[] = {{ATTN_EMBED_MEAN, "mean"},
                {ATTN_EMBED_CLS, "cls"},
                {ATTN_EMBED_MAX, "max"},
                {ATTN_EMBED_MEAN_SQRT, "mean_sqrt"}};

/* Measured: at most 3e-6 of the largest number. */
static void near(const fixture *f, const char *model, size_t i, const char *what, const float *got,
                 size_t n)
{
    const st_tensor *t = of_sequence(f, i, what);
    assert_non_null(t);
    float *want = st_floats(t), largest = 1.0F;

    assert_int_equal(t->count, n);
    for (size_t e = 0; e < n; e++)
        largest = fmaxf(largest, fabsf(want[e]));
    for (size_t e = 0; e < n; e++) {
        if (!(fabsf(got[e] - want[e]) <= 1e-5F * largest))
            fail_msg("%s with %s, sequence %zu: %s %zu is %.9g, expected %.9g", model,
                     attn_kernels.isa, i, what, e, (double)got[e], (double)want[e]);
    }
    free(want);
}

static void check_numbers(const char *name)
{
    fixture f;
    attn_encode_options o;
    attn_pool *pool = new_pool(2);

    open_fixture(&f, name);
    encode_want_all(f.encoder, &o);
    o.normalize = false;
    for (size_t p = 0; p < sizeof poolings / sizeof *poolings; p++) {
        o.pooling = poolings[p].pooling;
        add_results(&f, &o);
        encode(f.encoder, &o, f.cases, f.n, pool);
        for (size_t i = 0; i < f.n; i++) {
            const encode_case *c = &f.cases[i];
            near(&f, name, i, poolings[p].name, c->seq.embedding, c->embedding_floats);
            near(&f, name, i, "hidden", c->seq.hidden, c->hidden_floats);
            near(&f, name, i, "maps", c->seq.maps.data, c->maps_floats);
            near(&f, name, i, "rollout", c->seq.rollout, c->rollout_floats);
        }
    }
    encode_free_options(&o);
    close_fixture(&f);
    attn_pool_free(pool);
}

static const char *const models[] = {"bert",          "bert_wide", "roberta",    "xlm_roberta",
                                     "camembert",     "electra",   "distilbert", "albert",
                                     "albert_square", "modernbert"};
enum { MODELS = sizeof models / sizeof *models };

static void every_family_computes_its_own_formula(void **state)
{
    (void)state;
    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        for (size_t m = 0; m < MODELS; m++)
            check_numbers(models[m]);
    }
    case_use_best_level();
}

static void normalized_embeddings_have_length_1(void **state)
{
    (void)state;
    fixture f;
    attn_encode_options o = {.pooling = ATTN_EMBED_MEAN};
    attn_pool *pool = new_pool(1);
    float raw[24];

    open_fixture(&f, "bert");
    add_results(&f, &o);
    encode(f.encoder, &o, f.cases, f.n, pool);
    memcpy(raw, f.cases[0].seq.embedding, sizeof raw);
    o.normalize = true;
    encode(f.encoder, &o, f.cases, f.n, pool);
    double squares = 0.0, length = 0.0;
    for (size_t c = 0; c < 24; c++) {
        squares += (double)raw[c] * (double)raw[c];
        length += (double)f.cases[0].seq.embedding[c] * (double)f.cases[0].seq.embedding[c];
    }
    assert_true(fabs(length - 1.0) < 1e-6);
    for (size_t c = 0; c < 24; c++)
        assert_true(fabs((double)raw[c] / sqrt(squares) - (double)f.cases[0].seq.embedding[c]) <
                    1e-6);

    /* Where no token counts there is nothing to bring to length 1. */
    unsigned char none[5] = {0};
    f.cases[0].seq.counted = none;
    encode(f.encoder, &o, f.cases, 1, pool);
    for (size_t c = 0; c < 24; c++)
        assert_true(f.cases[0].seq.embedding[c] == 0.0F);
    close_fixture(&f);
    attn_pool_free(pool);
}

/* --- what results do not depend on ---------------------------------------------------------------- */

/* All results in a batch; then of each sequence alone, and with any number of threads. */
static void check_bits(const char *name)
{
    fixture f, alone;
    attn_encode_options o;

    open_fixture(&f, name);
    open_fixture(&alone, name);
    encode_want_all(f.encoder, &o);
    add_results(&f, &o);
    attn_pool *first = new_pool(2);
    encode(f.encoder, &o, f.cases, f.n, first);
    attn_pool_free(first);
    for (size_t threads = 1; threads <= MOST_THREADS; threads++) {
        attn_pool *pool = new_pool(threads);
        for (size_t i = 0; i < f.n; i++) {
            add_results(&alone, &o);
            encode(alone.encoder, &o, &alone.cases[i], 1, pool);
            encode_same(name, &f.cases[i], &alone.cases[i]);
        }
        add_results(&alone, &o);
        encode(alone.encoder, &o, alone.cases, f.n, pool);
        for (size_t i = 0; i < f.n; i++)
            encode_same(name, &f.cases[i], &alone.cases[i]);
        attn_pool_free(pool);
    }
    encode_free_options(&o);
    close_fixture(&f);
    close_fixture(&alone);
}

static void batch_and_threads_change_no_bit(void **state)
{
    (void)state;
    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        for (size_t m = 0; m < MODELS; m++)
            check_bits(models[m]);
    }
    case_use_best_level();
}

/* One result at a time, which takes other ways through the layers. */
static void what_else_is_asked_for_changes_no_bit(void **state)
{
    (void)state;
    for (size_t m = 0; m < MODELS; m++) {
        fixture f, one;
        attn_encode_options all, o;
        attn_pool *pool = new_pool(2);

        open_fixture(&f, models[m]);
        open_fixture(&one, models[m]);
        encode_want_all(f.encoder, &all);
        add_results(&f, &all);
        encode(f.encoder, &all, f.cases, f.n, pool);
        for (size_t which = 0; which < 4; which++) {
            o = all;
            if (which != 0)
                o.pooling = ATTN_EMBED_NONE;
            if (which != 1)
                o.num_hidden = 0;
            if (which != 2)
                o.num_map_layers = 0;
            o.rollout = which == 3;
            add_results(&one, &o);
            encode(one.encoder, &o, one.cases, f.n, pool);
            for (size_t i = 0; i < f.n; i++)
                encode_same(models[m], &one.cases[i], &f.cases[i]);
        }
        encode_free_options(&all);
        close_fixture(&f);
        close_fixture(&one);
        attn_pool_free(pool);
    }
}

/* A token that nobody sees is still there itself, and the embedding leaves it out. */
static void hidden_tokens_change_no_other(void **state)
{
    (void)state;
    fixture f;
    attn_encode_options o;
    attn_pool *pool = new_pool(2);
    unsigned char mask[5] = {1, 0, 1, 1, 0};
    int32_t ids[5] = {3, 4, 5, 6, 7}, others[5] = {3, 44, 5, 6, 45};

    open_fixture(&f, "bert");
    encode_want_all(f.encoder, &o);
    encode_case a = {
        .seq = {.tokens = 5, .ids = ids, .mask = mask, .mask_stride = {0, 0, 1}, .counted = mask}};
    encode_case b = a;
    b.seq.ids = others;
    encode_add_results(f.encoder, &o, &a);
    encode_add_results(f.encoder, &o, &b);
    encode(f.encoder, &o, &a, 1, pool);
    encode(f.encoder, &o, &b, 1, pool);
    assert_memory_equal(a.seq.embedding, b.seq.embedding, 24 * sizeof(float));
    const float *x = a.seq.hidden + 2 * a.seq.hidden_stride,
                *y = b.seq.hidden + 2 * b.seq.hidden_stride;
    for (size_t t = 0; t < 5; t++)
        assert_int_equal(memcmp(x + t * 24, y + t * 24, 24 * sizeof(float)) == 0, mask[t]);
    encode_free_results(&a);
    encode_free_results(&b);
    encode_free_options(&o);
    close_fixture(&f);
    attn_pool_free(pool);
}

/* --- choices -------------------------------------------------------------------------------------- */

static void chosen_layers_heads_and_ranges_are_parts_of_all_maps(void **state)
{
    (void)state;
    static const size_t layers[] = {3, 1}, chosen[] = {2, 0};
    enum { FROM = 3, ROWS = 4, K_FROM = 1, COLUMNS = 9 };
    fixture f;
    attn_encode_options all, o;
    attn_pool *pool = new_pool(2);
    float maps[2][2][ROWS][COLUMNS];

    open_fixture(&f, "modernbert");
    encode_want_all(f.encoder, &all);
    add_results(&f, &all);
    encode(f.encoder, &all, f.cases, f.n, pool);
    o = (attn_encode_options){
        .map_layers = layers,
        .num_map_layers = 2,
        .maps = {.heads = chosen, .num_heads = 2, .q_from = FROM, .k_from = K_FROM}};
    encode_case c = {.seq = f.cases[0].seq};
    c.seq.embedding = c.seq.hidden = c.seq.rollout = NULL;
    c.seq.map_rows = ROWS;
    c.seq.map_columns = COLUMNS;
    c.seq.maps = (attn_view){&maps[0][0][0][0], ROWS * COLUMNS, COLUMNS};
    c.seq.maps_stride = 2 * ROWS * COLUMNS;
    encode(f.encoder, &o, &c, 1, pool);
    size_t t = c.seq.tokens;
    for (size_t l = 0; l < 2; l++) {
        for (size_t h = 0; h < 2; h++) {
            const float *whole = f.cases[0].seq.maps.data + layers[l] * f.cases[0].seq.maps_stride +
                                 chosen[h] * t * t;
            for (size_t r = 0; r < ROWS; r++)
                assert_memory_equal(maps[l][h][r], whole + (FROM + r) * t + K_FROM,
                                    COLUMNS * sizeof(float));
        }
    }
    encode_free_options(&all);
    close_fixture(&f);
    attn_pool_free(pool);
}

static void the_largest_cells_come_with_their_keys(void **state)
{
    (void)state;
    static const size_t layers[] = {1};
    enum { K = 2, T = 5, H = 3 };
    fixture f;
    attn_encode_options all, o;
    attn_pool *pool = new_pool(2);
    float values[H][T][K], rest[H][T];
    int32_t keys[H][T][K];

    open_fixture(&f, "bert");
    encode_want_all(f.encoder, &all);
    add_results(&f, &all);
    encode(f.encoder, &all, f.cases, f.n, pool);
    o = (attn_encode_options){
        .map_layers = layers, .num_map_layers = 1, .maps = {.num_heads = H, .top_k = K}};
    encode_case c = {.seq = f.cases[0].seq};
    c.seq.embedding = c.seq.hidden = c.seq.rollout = NULL;
    c.seq.maps = (attn_view){&values[0][0][0], T * K, K};
    c.seq.top_keys = &keys[0][0][0];
    c.seq.top_rest = &rest[0][0];
    c.seq.top_head_stride = T * K;
    encode(f.encoder, &o, &c, 1, pool);
    const float *whole = f.cases[0].seq.maps.data + f.cases[0].seq.maps_stride;
    for (size_t h = 0; h < H; h++) {
        for (size_t r = 0; r < T; r++) {
            const float *row = whole + (h * T + r) * T;
            assert_true(values[h][r][0] >= values[h][r][1]);
            for (size_t k = 0; k < K; k++)
                assert_true(row[keys[h][r][k]] == values[h][r][k]);
            assert_true(fabsf(1.0F - values[h][r][0] - values[h][r][1] - rest[h][r]) < 1e-6F);
        }
    }
    encode_free_options(&all);
    close_fixture(&f);
    attn_pool_free(pool);
}

/* Takes results away as they come. */
typedef struct {
    const encode_case *c;
    const encode_case *whole;
    size_t calls, states[8];
    size_t fails_at;
} taker;

static attn_status take(void *arg, size_t state, attn_error *err)
{
    taker *t = arg;
    const attn_encode_sequence *got = &t->c->seq, *all = &t->whole->seq;

    t->states[t->calls++] = state;
    if (state == t->fails_at)
        return attn_fail(err, ATTN_ETIMEDOUT, "no longer wanted");
    if (state > 0)
        assert_memory_equal(got->maps.data, all->maps.data + (state - 1) * all->maps_stride,
                            all->maps_stride * sizeof(float));
    assert_memory_equal(got->hidden, all->hidden + state * all->hidden_stride,
                        all->hidden_stride * sizeof(float));
    return ATTN_OK;
}

static void results_can_be_taken_away_layer_by_layer(void **state)
{
    (void)state;
    fixture f;
    attn_encode_options all, o;
    attn_error err = {0};
    attn_pool *pool = new_pool(2);

    open_fixture(&f, "modernbert");
    encode_want_all(f.encoder, &all);
    add_results(&f, &all);
    encode(f.encoder, &all, f.cases, f.n, pool);

    encode_case one = {.seq = f.cases[2].seq};
    taker t = {.c = &one, .whole = &f.cases[2], .fails_at = 99};
    o = all;
    o.done = take;
    o.done_arg = &t;
    encode_add_results(f.encoder, &o, &one);
    one.seq.hidden_stride = one.seq.maps_stride = 0;
    encode(f.encoder, &o, &one, 1, pool);
    assert_int_equal(t.calls, 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(t.states[i], i);

    t = (taker){.c = &one, .whole = &f.cases[2], .fails_at = 2};
    assert_int_equal(encode_try(f.encoder, &o, &one, 1, pool, &err), ATTN_ETIMEDOUT);
    assert_int_equal(t.calls, 3);
    encode_free_results(&one);
    encode_free_options(&all);
    close_fixture(&f);
    attn_pool_free(pool);
}

/* --- faults ----------------------------------------------------------------------------------------- */

static void expect_words(const attn_error *err, attn_status code, const char *words)
{
    assert_int_equal(err->code, code);
    if (strstr(err->text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err->text, words);
}

static void what_the_model_has_no_row_for_is_refused(void **state)
{
    (void)state;
    fixture f;
    int32_t ids[13] = {0}, types[13] = {0};
    const struct {
        size_t tokens;
        int32_t id, type;
        const char *words;
    } faults[] = {{0, 0, 0, "sequence 7 has 0 tokens; the model takes 1 to 12"},
                  {13, 0, 0, "sequence 7 has 13 tokens"},
                  {4, 50, 0, "sequence 7, token 2: its id is 50; the model has 0 to 49"},
                  {4, -1, 0, "its id is -1"},
                  {4, 0, 2, "sequence 7, token 2: its type is 2; the model has 0 to 1"},
                  {4, 0, -1, "its type is -1"}};

    open_fixture(&f, "bert");
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        attn_error err = {0};
        ids[2] = faults[i].id;
        types[2] = faults[i].type;
        attn_encode_sequence s = {
            .index = 7, .tokens = faults[i].tokens, .ids = ids, .types = types};
        assert_int_equal(attn_encode_check(f.encoder, &s, &err), ATTN_ESHAPE);
        expect_words(&err, ATTN_ESHAPE, faults[i].words);
    }
    close_fixture(&f);
}

static void numbers_that_are_not_finite_are_named(void **state)
{
    (void)state;
    fixture f;
    attn_encode_options o = {.pooling = ATTN_EMBED_MEAN};
    attn_pool *pool = new_pool(2);
    static const float bad[] = {NAN, INFINITY, 3e38F};

    open_fixture(&f, "bert");
    add_results(&f, &o);
    for (size_t b = 0; b < 3; b++) {
        attn_error err = {0};
        float embeds[3 * 24] = {0};
        for (size_t c = 0; c < 24; c++)
            embeds[24 + c] = c % 2 == 0 ? bad[b] : -bad[b];
        encode_case cases[2] = {f.cases[0], f.cases[1]};
        cases[1].seq.ids = NULL;
        cases[1].seq.tokens = 3;
        cases[1].seq.types = NULL;
        cases[1].seq.embeds = embeds;
        assert_int_equal(encode_try(f.encoder, &o, cases, 2, pool, &err), ATTN_ENONFINITE);
        expect_words(&err, ATTN_ENONFINITE, "sequence 1, token 1");
    }
    close_fixture(&f);
    attn_pool_free(pool);
}

static void a_canceled_call_ends(void **state)
{
    (void)state;
    fixture f;
    attn_encode_options o = {.pooling = ATTN_EMBED_MEAN};
    attn_pool *pool = new_pool(2);
    atomic_bool cancel = true;
    attn_stats stats;
    attn_error err = {0};
    void *workspace = NULL;

    open_fixture(&f, "bert");
    add_results(&f, &o);
    size_t bytes = attn_encode_sequence_bytes(f.encoder, &o, &f.cases[0].seq) +
                   attn_encode_scratch_bytes(f.encoder, &o, f.cases[0].seq.tokens, 2);
    assert_int_equal(posix_memalign(&workspace, 64, bytes), 0);
    assert_int_equal(
        attn_encode(f.encoder, &o, &f.cases[0].seq, 1, pool, workspace, &cancel, &stats, &err),
        ATTN_ECANCELED);
    free(workspace);
    close_fixture(&f);
    attn_pool_free(pool);
}

/* Calls f(name, words) for each variant of a kind. */
static size_t for_each(const char *kind, void (*f)(const char *path, const char *words))
{
    char *below = st_path("%s/%s", root, kind);
    DIR *d = opendir(below);
    size_t n = 0;

    assert_non_null(d);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        char words[512] = "", *dot = strstr(e->d_name, ".txt");
        if (dot == NULL)
            continue;
        char *path = st_path("%s/%s", below, e->d_name);
        FILE *text = fopen(path, "r");
        assert_non_null(text);
        words[fread(words, 1, sizeof words - 1, text)] = '\0';
        (void)fclose(text);
        path[strlen(path) - 4] = '\0';
        f(path, words);
        free(path);
        n++;
    }
    closedir(d);
    free(below);
    return n;
}

/* Every line of `words` must be in `text`. */
static void expect_lines(const char *path, const char *text, const char *words)
{
    char line[128];

    while (sscanf(words, "%127[^\n]", line) == 1) {
        if (strstr(text, line) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", path, text, line);
        words += strlen(line) + 1;
    }
}

static void check_without(const char *path, const char *words)
{
    const char *reason = NULL;
    attn_model *m = encode_load(path);

    assert_true(attn_model_layer_count(m) > 0);
    if (attn_model_encoder(m, &reason) != NULL)
        fail_msg("%s: has an encoder", path);
    expect_lines(path, reason, words);
    attn_model_free(m);
}

static void without_its_parts_a_model_has_layers_alone_and_says_why(void **state)
{
    (void)state;
    assert_true(for_each("without", check_without) >= 16);
}

static void some_layers_are_no_encoder(void **state)
{
    (void)state;
    static const int64_t layers[] = {1};
    const char *reason = NULL;
    char *path = st_path("%s/bert", root);
    attn_model_options options = {.name = "m", .path = path, .layers = layers, .num_layers = 1};
    attn_model *m = NULL;

    assert_int_equal(attn_model_load(&m, &options, NULL), ATTN_OK);
    assert_null(attn_model_encoder(m, &reason));
    assert_non_null(strstr(reason, "only some layers"));
    attn_model_free(m);
    free(path);
}

static void check_pooling(const char *path, const char *words)
{
    attn_model *m = encode_load(path);
    const attn_encoder_info *info = attn_encoder_get_info(encode_encoder(m));
    char said[128] = "";

    if (info->no_embeddings == NULL) {
        for (size_t p = 0; p < sizeof poolings / sizeof *poolings; p++) {
            if (poolings[p].pooling == info->pooling)
                snprintf(said, sizeof said, "%s %d %zu %d", poolings[p].name, info->normalize,
                         info->usual_tokens, info->lowercase);
        }
    }
    expect_lines(path, info->no_embeddings != NULL ? info->no_embeddings : said, words);
    attn_model_free(m);
}

static void sentence_transformers_files_say_how_to_pool(void **state)
{
    (void)state;
    assert_true(for_each("pooling", check_pooling) >= 18);
}

/* --- memory ------------------------------------------------------------------------------------------ */

static void the_encoder_says_what_it_is_and_takes(void **state)
{
    (void)state;
    fixture f;

    open_fixture(&f, "albert");
    assert_int_equal(f.info->num_layers, 4);
    assert_int_equal(f.info->num_heads, 2);
    assert_int_equal(f.info->d_model, 24);
    assert_int_equal(f.info->embed_width, 14);
    assert_int_equal(f.info->vocabulary, 38);
    assert_int_equal(f.info->types, 2);
    assert_int_equal(f.info->max_tokens, 10);
    /* Two feed-forward layers for four layers. */
    size_t bytes = attn_encoder_bytes(f.encoder);
    assert_true(bytes < attn_model_weights_bytes(f.model));
    assert_true(bytes < (2 * 24 * 64 * 2 + 52 * 64 * 2 + 38 * 14 + 4000) * sizeof(float));
    close_fixture(&f);

    open_fixture(&f, "roberta"); /* tokens begin behind the padding's position */
    assert_int_equal(f.info->max_tokens, 10);
    assert_int_equal(f.info->types, 1);
    close_fixture(&f);

    open_fixture(&f, "modernbert");
    assert_int_equal(f.info->max_tokens, 30);
    assert_int_equal(f.info->types, 0);
    close_fixture(&f);
}

/* --- the group ----------------------------------------------------------------------------------------- */

static int set_up(void **state)
{
    if (case_find_levels(state) != 0)
        return -1;
    root = st_temp_dir();
    char *command = st_path("PATH=/usr/bin:$PATH python3 tests/make_encoders.py '%s'", root);
    int rc = system(command); /* Debian's Python first: it is the one that has python3-numpy */
    free(command);
    if (rc != 0)
        print_error("tests/make_encoders.py failed; it needs python3 with NumPy\n");
    return rc != 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    st_remove_dir(root);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_computes_its_own_formula),
        cmocka_unit_test(normalized_embeddings_have_length_1),
        cmocka_unit_test(batch_and_threads_change_no_bit),
        cmocka_unit_test(what_else_is_asked_for_changes_no_bit),
        cmocka_unit_test(hidden_tokens_change_no_other),
        cmocka_unit_test(chosen_layers_heads_and_ranges_are_parts_of_all_maps),
        cmocka_unit_test(the_largest_cells_come_with_their_keys),
        cmocka_unit_test(results_can_be_taken_away_layer_by_layer),
        cmocka_unit_test(what_the_model_has_no_row_for_is_refused),
        cmocka_unit_test(numbers_that_are_not_finite_are_named),
        cmocka_unit_test(a_canceled_call_ends),
        cmocka_unit_test(without_its_parts_a_model_has_layers_alone_and_says_why),
        cmocka_unit_test(some_layers_are_no_encoder),
        cmocka_unit_test(sentence_transformers_files_say_how_to_pool),
        cmocka_unit_test(the_encoder_says_what_it_is_and_takes),
    };
    return cmocka_run_group_tests_name("encoder", tests, set_up, tear_down);
}

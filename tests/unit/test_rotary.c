/* Core's rotation on the stored vectors of the ONNX operator, and its angles on the formula. */
#include "core/rope.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cases.h"

static void check_case(const char *folder, const char *name)
{
    char *json = st_path("%s/%s.json", folder, name);
    char *file = st_path("%s/%s.safetensors", folder, name);
    json_t *root = case_json(json);
    st_file *f = st_open(file);
    const json_t *dims = json_object_get(root, "dims");
    const json_t *attributes = json_object_get(root, "attributes");
    size_t B = case_size(dims, "batch"), H = case_size(dims, "heads");
    size_t T = case_size(dims, "tokens"), d = case_size(dims, "head_size");
    size_t r = case_size(attributes, "rotary_embedding_dim");
    bool neighbours = case_size(attributes, "interleaved") == 1;
    bool heads_last = st_need(f, "X")->rank == 3;
    float *x = st_floats(st_need(f, "X")), *y = st_floats(st_need(f, "Y"));
    float *cosine = st_floats(st_need(f, "cos_cache")), *sine = st_floats(st_need(f, "sin_cache"));
    int64_t *position = st_ints(st_find(f, "position_ids"));

    r = r == 0 ? d : r;
    for (size_t n = 0; n < B * H * T; n++) {
        size_t b = n / (H * T), h = n / T % H, i = n % T;
        size_t at = position != NULL ? (size_t)position[b * T + i] : b * T + i;
        float *head = x + (heads_last ? (b * T + i) * H + h : n) * d;
        attn_rope_rotate(head, r / 2, r / 2, neighbours ? ATTN_ROPE_INTERLEAVED : ATTN_ROPE_HALF,
                         cosine + at * (r / 2), sine + at * (r / 2));
    }
    for (size_t i = 0; i < B * H * T * d; i++) {
        if (!(fabsf(x[i] - y[i]) <= 1e-6F))
            fail_msg("%s: Y[%zu] is %.9g, expected %.9g", name, i, (double)x[i], (double)y[i]);
    }
    free(x);
    free(y);
    free(cosine);
    free(sine);
    free(position);
    st_close(f);
    json_decref(root);
    free(json);
    free(file);
}

static void rotation_agrees_with_every_stored_vector(void **state)
{
    char *folder = st_shared("vectors/onnx-rotary-embedding");
    json_t *entry;
    size_t i;
    (void)state;

    if (folder == NULL) {
        printf("skipped: vectors/onnx-rotary-embedding: not beside this tree (ATTND_SHARED)\n");
        skip();
    }
    char *index = st_path("%s/index.json", folder);
    json_t *list = case_json(index);
    assert_int_equal(json_array_size(list), 8);
    json_array_foreach(list, i, entry)
        check_case(folder, json_string_value(json_object_get(entry, "name")));
    json_decref(list);
    free(index);
    free(folder);
}

/* The published example: head size 4, base 10000, position 1, x = 1 2 3 4. */
static void pairs_are_neighbours_or_halves_as_the_style_says(void **state)
{
    static const float NEIGHBOURS[] = {-1.142640F, 1.922076F, 2.959851F, 4.029800F};
    static const float HALVES[] = {-1.984111F, 1.959901F, 2.462378F, 4.019800F};
    attn_rope rope = {.dims = 4, .theta = 10000};
    double frequency[2];
    float cosine[2], sine[2];
    (void)state;

    attn_rope_frequencies(&rope, frequency);
    attn_rope_angles(frequency, 2, 1, cosine, sine);
    for (int style = ATTN_ROPE_HALF; style <= ATTN_ROPE_INTERLEAVED; style++) {
        const float *want = style == ATTN_ROPE_HALF ? HALVES : NEIGHBOURS;
        float x[] = {1, 2, 3, 4};
        attn_rope_rotate(x, 2, 2, (attn_rope_style)style, cosine, sine);
        for (size_t i = 0; i < 4; i++)
            assert_float_equal(x[i], want[i], 2e-6);
    }
}

static void angles_stay_exact_far_out(void **state)
{
    attn_rope rope = {.dims = 64, .theta = 10000};
    static const int64_t POSITION[] = {0, 1, 511, 131071, 1000003};
    double frequency[32];
    float cosine[32], sine[32];
    (void)state;

    attn_rope_frequencies(&rope, frequency);
    for (size_t p = 0; p < sizeof POSITION / sizeof *POSITION; p++) {
        attn_rope_angles(frequency, 32, POSITION[p], cosine, sine);
        for (size_t m = 0; m < 32; m++) {
            double angle = (double)POSITION[p] * pow(10000, -2.0 * (double)m / 64);
            assert_float_equal(cosine[m], cos(angle), 1e-6);
            assert_float_equal(sine[m], sin(angle), 1e-6);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotation_agrees_with_every_stored_vector),
        cmocka_unit_test(pairs_are_neighbours_or_halves_as_the_style_says),
        cmocka_unit_test(angles_stay_exact_far_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

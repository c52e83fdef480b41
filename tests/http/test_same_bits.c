/* A sequence's outputs are the same bytes in any company: alone, in a batch, ragged or padded, with and
 * without maps, with any number of threads, in a small memory budget, and every time. */
#include "tests/body.h"
#include "tests/daemon.h"
#include "tests/st.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Sizes that are no multiple of any vector or tile; heads so wide that a batch's workspace is far
 * larger than its numbers. */
enum { D = 444, HEADS = 12, SIZE = 111, SEQUENCES = 5, LONGEST = 300, REPEATS = 20 };
static const size_t LENGTH[SEQUENCES] = {1, 7, 56, 130, LONGEST};

/* The last one makes the batch run in several pieces. */
static const char *const SETTING[][2] = {{"compute.threads=1", NULL},
                                         {"compute.threads=2", NULL},
                                         {"compute.threads=8", NULL},
                                         {"compute.threads=2", "memory.budget=10MiB"}};
enum { DAEMONS = sizeof SETTING / sizeof *SETTING };

static test_daemon *daemon_[DAEMONS];
static char *folder_;
static float *x_[SEQUENCES];     /* [LENGTH,D] each */
static float *alone_[SEQUENCES]; /* their outputs, from the first daemon, one by one */

static float *random_floats(size_t n, double scale)
{
    static uint32_t state = 12345;
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223; /* Numerical Recipes' */
        x[i] = (float)(((double)(state >> 8) / 0x1p23 - 1) * scale);
    }
    return x;
}

static json_t *post(test_daemon *d, test_body *b)
{
    test_reply r = daemon_post(d, "/v1/models/odd/attention", body_text(b), 200);
    json_t *answer = answer_parse(r.body, r.body_bytes);
    reply_free(&r);
    body_free(b);
    return answer;
}

static float *ask_alone(test_daemon *d, size_t b)
{
    test_body body;
    body_init(&body, true);
    body_floats(&body, "inputs_embeds", x_[b], DIMS(1, LENGTH[b], D));
    json_t *answer = post(d, &body);
    test_tensor out =
        answer_tensor(answer_get(answer, "outputs"), "outputs", DIMS(1, LENGTH[b], D));
    json_decref(answer);
    return out.data;
}

static int start(void **state)
{
    st_native m = {.d_model = D, .num_heads = HEADS, .num_kv_heads = HEADS, .head_dim = SIZE};
    float *weight[4], *bias[4];
    (void)state;

    for (size_t i = 0; i < 4; i++) {
        m.weight[i] = weight[i] = random_floats((size_t)D * HEADS * SIZE, 0.1);
        m.bias[i] = bias[i] = random_floats((size_t)HEADS * SIZE, 0.5);
    }
    folder_ = st_temp_dir();
    char *dir = st_path("%s/odd", folder_), *model = st_path("odd=%s", dir);
    st_write_native(dir, &m);
    for (size_t i = 0; i < 4; i++) {
        free(weight[i]);
        free(bias[i]);
    }
    for (size_t i = 0; i < DAEMONS; i++)
        daemon_[i] = daemon_start(
            (const char *[]){"serve", "--model", model, "--set", SETTING[i][0],
                             SETTING[i][1] != NULL ? "--set" : NULL, SETTING[i][1], NULL});
    free(dir);
    free(model);
    for (size_t b = 0; b < SEQUENCES; b++) {
        x_[b] = random_floats(LENGTH[b] * D, 1);
        alone_[b] = ask_alone(daemon_[0], b);
    }
    return 0;
}

static int stop(void **state)
{
    (void)state;
    for (size_t i = 0; i < DAEMONS; i++)
        daemon_stop(daemon_[i]);
    for (size_t b = 0; b < SEQUENCES; b++) {
        free(x_[b]);
        free(alone_[b]);
    }
    st_remove_dir(folder_);
    return 0;
}

static void same(const char *how, size_t daemon, size_t b, const float *got)
{
    if (memcmp(got, alone_[b], LENGTH[b] * D * sizeof *got) != 0)
        fail_msg("sequence of %zu tokens, %s, %s%s%s: other bits", LENGTH[b], how,
                 SETTING[daemon][0], SETTING[daemon][1] != NULL ? " " : "",
                 SETTING[daemon][1] != NULL ? SETTING[daemon][1] : "");
}

static void alone_with_any_number_of_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < DAEMONS; i++) {
        for (size_t b = 0; b < SEQUENCES; b++) {
            float *out = ask_alone(daemon_[i], b);
            same("alone", i, b, out);
            free(out);
        }
    }
}

/* What a request may ask for beside the outputs. */
static const char *const EXTRA[][2] = {
    {NULL, NULL},
    {"return_attentions", "{\"heads\":[3,11],\"queries\":[0,1],\"keys\":[0,1]}"},
    {"return_attentions", "{\"reduce_heads\":\"mean\",\"stage\":\"masked\",\"queries\":[0,1]}"},
    {"return_intermediates", "[\"query\",\"key\",\"value\",\"logsumexp\",\"context\"]"},
};
enum { EXTRAS = sizeof EXTRA / sizeof *EXTRA };

static void in_a_ragged_batch(void **state)
{
    (void)state;
    for (size_t i = 0; i < DAEMONS; i++) {
        for (size_t e = 0; e < EXTRAS; e++) {
            test_body list, body;
            body_init(&list, false); /* only to print its arrays: [x0, x1, ...] */
            for (size_t b = 0; b < SEQUENCES; b++)
                body_floats(&list, "x", x_[b], DIMS(LENGTH[b], D));
            char *text = strdup(body_text(&list)), *at = text;
            assert_non_null(text);
            text[0] = '[';
            text[strlen(text) - 1] = ']';
            while ((at = strstr(at, "\"x\":")) != NULL)
                memcpy(at, "    ", 4);
            body_free(&list);
            body_init(&body, false);
            body_raw(&body, "encoding_format", "\"base64\"");
            body_raw(&body, "inputs_embeds", text);
            if (EXTRA[e][0] != NULL)
                body_raw(&body, EXTRA[e][0], EXTRA[e][1]);
            free(text);
            if (SETTING[i][1] != NULL && e == EXTRAS - 1) {
                body_free(&body); /* the intermediates alone are over the small budget */
                continue;
            }
            json_t *answer = post(daemon_[i], &body);
            if (SETTING[i][1] != NULL)
                assert_true(json_integer_value(answer_get(answer, "usage.micro_batches")) > 1);
            for (size_t b = 0; b < SEQUENCES; b++) {
                test_tensor out = answer_tensor(json_array_get(answer_get(answer, "outputs"), b),
                                                "outputs", DIMS(LENGTH[b], D));
                same(EXTRA[e][0] != NULL ? EXTRA[e][1] : "ragged", i, b, out.data);
                answer_free(&out);
            }
            json_decref(answer);
        }
    }
}

/* All sequences padded to the longest, with NaN in the padding. */
static float *padded(void)
{
    size_t n = (size_t)SEQUENCES * LONGEST * D;
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = NAN;
    for (size_t b = 0; b < SEQUENCES; b++)
        memcpy(x + b * LONGEST * D, x_[b], LENGTH[b] * D * sizeof *x);
    return x;
}

static void padded_with_lengths(void **state)
{
    int64_t lengths[SEQUENCES];
    float *x = padded();
    (void)state;

    for (size_t b = 0; b < SEQUENCES; b++)
        lengths[b] = (int64_t)LENGTH[b];
    for (size_t i = 0; i < DAEMONS; i++) {
        /* The padded batch alone is over the small budget. */
        for (size_t e = 0; e < EXTRAS && SETTING[i][1] == NULL; e++) {
            test_body body;
            body_init(&body, true);
            body_floats(&body, "inputs_embeds", x, DIMS(SEQUENCES, LONGEST, D));
            body_ints(&body, "lengths", lengths, DIMS(SEQUENCES));
            if (EXTRA[e][0] != NULL)
                body_raw(&body, EXTRA[e][0], EXTRA[e][1]);
            json_t *answer = post(daemon_[i], &body);
            test_tensor out = answer_tensor(answer_get(answer, "outputs"), "outputs",
                                            DIMS(SEQUENCES, LONGEST, D));
            for (size_t b = 0; b < SEQUENCES; b++) {
                const float *rows = out.data + b * LONGEST * D;
                same(EXTRA[e][0] != NULL ? EXTRA[e][1] : "padded", i, b, rows);
                assert_zeros("padding", rows + LENGTH[b] * D, (LONGEST - LENGTH[b]) * D);
            }
            answer_free(&out);
            json_decref(answer);
        }
    }
    free(x);
}

static void every_time(void **state)
{
    (void)state;
    for (size_t n = 0; n < REPEATS; n++) {
        for (size_t b = 1; b < 4; b++) {
            float *out = ask_alone(daemon_[n % DAEMONS], b);
            same("again", n % DAEMONS, b, out);
            free(out);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_with_any_number_of_threads),
        cmocka_unit_test(in_a_ragged_batch),
        cmocka_unit_test(padded_with_lengths),
        cmocka_unit_test(every_time),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

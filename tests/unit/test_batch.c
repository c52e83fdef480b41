/* Requests that are computed in one call: who joins whom, that nobody's answer shows it, and that one that
 * fails or leaves does so alone. */
#include "server/batch.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/kern.h"
#include "server/answer.h"
#include "server/clock.h"
#include "server/infer.h"
#include "tests/body.h"
#include "tests/st.h"
#include "tests/tiny_encoder.h"

enum { D = 45, HEADS = 3, SIZE = 17, WORKERS = 2, MOST = 40 };

static attn_pool *pool;
static attn_model *model; /* two layers; those of the kernels in force */
static attn_budget budget, gate_budget;
static srv_infer *queue;

/* --- the model -------------------------------------------------------------------------------- */

static const char *const KERNELS[] = {"avx512", "avx2", "neon", "blas", "ref"};
enum { KERNELS_N = sizeof KERNELS / sizeof *KERNELS };

static void make_model(void)
{
    const attn_layer_spec spec = {.d_model = D,
                                  .d_kv = D,
                                  .d_out = D,
                                  .num_heads = HEADS,
                                  .num_kv_heads = HEADS,
                                  .head_dim = SIZE,
                                  .v_head_dim = SIZE,
                                  .scale = 0.25F,
                                  .window = {-1, -1}};
    attn_layer **layers = calloc(2, sizeof(attn_layer *));
    float *w = malloc((size_t)4 * D * HEADS * SIZE * sizeof *w);
    uint32_t seed = 3;
    attn_error err = {0};

    assert_true(layers != NULL && w != NULL);
    attn_model_free(model);
    model = NULL;
    st_random(&seed, w, (size_t)4 * D * HEADS * SIZE);
    for (size_t i = 0; i < 2; i++) {
        attn_layer_weights weights = {.wq = w + i,
                                      .wk = w + D * HEADS * SIZE - i,
                                      .wv = w + 2 * D * HEADS * SIZE - i,
                                      .wo = w + 3 * D * HEADS * SIZE - i};
        if (attn_layer_new(&layers[i], &spec, &weights, &err) != ATTN_OK)
            fail_msg("%s", err.text);
    }
    free(w);
    if (attn_model_take_layers(&model, "m", "attnd", layers, 2, &err) != ATTN_OK)
        fail_msg("%s", err.text);
}

/* NULL = the best here. False: this processor cannot run them, and it says so. */
static bool use_kernels(const char *name)
{
    attn_error err = {0};
    attn_status rc = attn_kern_init(name, &err);
    if (rc == ATTN_EUNSUPPORTED)
        printf("skipped: kernels: %s\n", err.text);
    else if (rc != ATTN_OK)
        fail_msg("%s", err.text);
    else
        make_model();
    return rc == ATTN_OK;
}

/* --- requests --------------------------------------------------------------------------------- */

/* A body: random tokens of these numbers (a list ends with 0), and more members with a comma before each. */
static char *body(const size_t *tokens, const char *more, uint32_t seed)
{
    test_body list;
    char name[24];
    body_init(&list, false);
    for (size_t i = 0; tokens[i] > 0; i++) {
        float *x = malloc(tokens[i] * D * sizeof *x);
        assert_non_null(x);
        st_random(&seed, x, tokens[i] * D);
        (void)snprintf(name, sizeof name, "%zu", i);
        body_floats(&list, name, x, DIMS(tokens[i], D));
        free(x);
    }
    /* {"0":[..],"1":[..]} becomes [[..],[..]] */
    char *text = strdup(list.text);
    assert_non_null(text);
    body_free(&list);
    text[0] = '[';
    for (char *at = text; (at = strchr(at, '"')) != NULL;)
        memset(at, ' ', strchr(at, ':') + 1 - at);
    char *whole = st_path("{\"inputs_embeds\":%s]%s}", text, more);
    free(text);
    return whole;
}

static srv_request *request_to(const attn_model *its, attn_budget *from, srv_request_kind kind,
                               const char *text)
{
    srv_request *r = NULL;
    attn_error err = {0};
    if (srv_request_new(&r, kind, its, from, &err) != ATTN_OK ||
        srv_request_feed(r, text, strlen(text), &err) != ATTN_OK ||
        srv_request_parse(r, WORKERS, &err) != ATTN_OK || srv_request_admit(r, &err) != ATTN_OK)
        fail_msg("%.300s: %s", text, err.text);
    return r;
}

static srv_request *request_from(attn_budget *from, srv_request_kind kind, const char *text)
{
    return request_to(kind == SRV_SDPA ? NULL : model, from, kind, text);
}

static srv_request *request_of(srv_request_kind kind, const char *text)
{
    return request_from(&budget, kind, text);
}

static srv_request *request(size_t tokens, const char *more, uint32_t seed)
{
    char *text = body((size_t[]){tokens, 0}, more, seed);
    srv_request *r = request_of(SRV_ATTENTION, text);
    free(text);
    return r;
}

/* The text of the answer; the caller frees. */
static char *answer(const srv_request *r)
{
    srv_json_writer *w = srv_answer(r);
    size_t room = srv_answer_bound(r) + 64, used = 0, n = 0;
    char *text = malloc(room + 64);
    assert_true(w != NULL && text != NULL);
    while ((n = srv_json_writer_read(w, text + used, 64 + room - used)) > 0)
        used += n;
    text[used] = '\0';
    srv_json_writer_free(w);
    return text;
}

/* --- the queue, with its thread held ----------------------------------------------------------- */

typedef struct {
    srv_job job;
    srv_request *request;
} client;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards: over, held, used_at_end */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static size_t over, used_at_end;
static bool held;

static void done(srv_job *job)
{
    (void)job;
    (void)pthread_mutex_lock(&lock);
    over++;
    used_at_end = atomic_load(&budget.used);
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&lock);
}

static void done_with_the_gate(srv_job *job)
{
    (void)job;
    (void)pthread_mutex_lock(&lock);
    over++;
    (void)pthread_cond_broadcast(&changed);
    while (held)
        (void)pthread_cond_wait(&changed, &lock);
    (void)pthread_mutex_unlock(&lock);
}

static void wait_over(size_t n)
{
    (void)pthread_mutex_lock(&lock);
    while (over < n)
        (void)pthread_cond_wait(&changed, &lock);
    (void)pthread_mutex_unlock(&lock);
}

static void submit(client *c, srv_request *r, void (*then)(srv_job *job))
{
    attn_error err = {0};
    *c = (client){.request = r};
    c->job.request = r;
    c->job.deadline_ms = srv_now_ms() + 60000;
    c->job.client_fd = -1;
    c->job.done = then;
    if (srv_infer_submit(queue, &c->job, &err) != ATTN_OK)
        fail_msg("%s", err.text);
}

/* Submits requests while the compute thread is kept, and returns when all are over. `drop` < n: this one is
 * dropped as soon as the thread goes on. */
static srv_infer_stats run_dropping(client *c, srv_request *const *r, size_t n, size_t drop)
{
    client gate;
    srv_infer_stats stats;
    attn_error err = {0};

    over = 0;
    held = true;
    if (srv_infer_start(&queue, pool, MOST + 1, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    submit(&gate,
           request_from(&gate_budget, SRV_SDPA,
                        "{\"query\":[[[[1]]]],\"key\":[[[[1]]]],\"value\":[[[[1]]]]}"),
           done_with_the_gate);
    wait_over(1);
    srv_request_free(gate.request);
    for (size_t i = 0; i < n; i++)
        submit(&c[i], r[i], done);
    (void)pthread_mutex_lock(&lock);
    held = false;
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&lock);
    if (drop < n)
        srv_infer_drop(queue, &c[drop].job);
    wait_over(n + 1);
    srv_infer_get_stats(queue, &stats);
    srv_infer_free(queue);
    stats.calls--; /* the gate's */
    return stats;
}

static srv_infer_stats run(client *c, srv_request *const *r, size_t n)
{
    return run_dropping(c, r, n, n);
}

static void free_all(srv_request *const *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        srv_request_free(r[i]);
    assert_int_equal(atomic_load(&budget.used), 0);
}

/* --- tests ------------------------------------------------------------------------------------ */

/* Whoever asks for the same maps joins, whatever else differs. */
static const struct {
    size_t tokens[4];
    const char *more;
    bool context; /* keys and values come from somewhere else */
} JOINED[] = {
    {{1}, "", false},
    {{7}, ",\"encoding_format\":\"base64\"", false},
    {{16, 16}, ",\"lengths\":[16,3]", false},
    {{130}, "", false},
    {{5, 1, 40}, "", false},
    {{4}, ",\"attention_mask\":[[1,0,1,1]]", false},
    {{3}, ",\"attention_bias\":[[0,1,-2],[1,\"-inf\",3],[0,0,0]],\"timeout_ms\":9000", false},
    {{6}, ",\"return_intermediates\":[\"logsumexp\",\"key\"],\"return_outputs\":false", false},
    {{2, 2}, ",\"tokens\":[[\"a\",\"b\"],[\"c\",\"d\"]]", false},
    {{9}, "", true},
};
enum { JOINED_N = sizeof JOINED / sizeof *JOINED };

static char *joined_body(size_t i, const char *maps)
{
    char *context = body((size_t[]){20, 0}, "", 77);
    *strrchr(context, '}') = '\0';
    char *more = st_path(",\"layer\":1%s%s%s%s", JOINED[i].more, maps,
                         JOINED[i].context ? ",\"encoder_hidden_states\":" : "",
                         JOINED[i].context ? strchr(context, '[') : "");
    char *text = body(JOINED[i].tokens, more, (uint32_t)i + 5);
    free(context);
    free(more);
    return text;
}

static void joined_requests_answer_as_alone(void **state)
{
    static const char *const MAPS[] = {
        "",
        ",\"return_attentions\":true",
        ",\"return_attentions\":{\"heads\":[2,0],\"stage\":\"masked\"}",
        ",\"return_attentions\":{\"reduce_heads\":\"mean\",\"queries\":[0,1],\"keys\":[0,1]}",
    };
    client c[JOINED_N];
    srv_request *r[JOINED_N];
    char *alone[JOINED_N];
    (void)state;

    for (size_t k = 0; k < KERNELS_N; k++) {
        for (size_t m = 0; m < sizeof MAPS / sizeof *MAPS && (m > 0 || use_kernels(KERNELS[k]));
             m++) {
            for (size_t i = 0; i < JOINED_N; i++) {
                char *text = joined_body(i, MAPS[m]);
                r[i] = request_of(SRV_ATTENTION, text);
                srv_infer_stats s = run(&c[i], &r[i], 1);
                assert_int_equal(c[i].job.status, ATTN_OK);
                assert_int_equal(s.calls, 1);
                assert_int_equal(s.shared, 0);
                alone[i] = answer(r[i]);
                srv_request_free(r[i]);
                r[i] = request_of(SRV_ATTENTION, text);
                free(text);
            }
            srv_infer_stats s = run(c, r, JOINED_N);
            assert_int_equal(s.calls, 1);
            assert_int_equal(s.shared, JOINED_N);
            for (size_t i = 0; i < JOINED_N; i++) {
                char *got = answer(r[i]);
                if (c[i].job.status != ATTN_OK || strcmp(got, alone[i]) != 0)
                    fail_msg("kernels %s, maps %zu, request %zu: another answer in company",
                             KERNELS[k], m, i);
                free(got);
                free(alone[i]);
            }
            free_all(r, JOINED_N);
        }
    }
    assert_true(use_kernels(NULL));
}

static void heads_of_the_same_sizes_join_without_a_layer(void **state)
{
    client c[3];
    srv_request *r[3];
    char *alone[3];
    (void)state;

    for (size_t i = 0; i < 3; i++) {
        char *text = st_path("{\"query\":[[[[1,%zu]]]],\"key\":[[[[1,2],[0,1]]]],"
                             "\"value\":[[[[1,2,3],[%zu,5,6]]]],\"return_attentions\":true}",
                             i, i);
        r[i] = request_of(SRV_SDPA, text);
        (void)run(&c[i], &r[i], 1);
        alone[i] = answer(r[i]);
        srv_request_free(r[i]);
        r[i] = request_of(SRV_SDPA, text);
        free(text);
    }
    srv_infer_stats s = run(c, r, 3);
    assert_int_equal(s.shared, 3);
    for (size_t i = 0; i < 3; i++) {
        char *got = answer(r[i]);
        assert_string_equal(got, alone[i]);
        free(got);
        free(alone[i]);
    }
    free_all(r, 3);
}

static void only_equals_join(void **state)
{
    static const struct {
        const char *a, *b;
        bool join;
    } CASE[] = {
        {"", "", true},
        {"", ",\"layer\":0,\"scale\":0.25,\"softcap\":0,\"is_causal\":false", true},
        {"", ",\"layer\":1", false},
        {"", ",\"scale\":0.5", false},
        {"", ",\"softcap\":5", false},
        {"", ",\"is_causal\":true", false},
        {"", ",\"window\":{\"left\":1,\"right\":-1}", false},
        {"", ",\"window\":{\"left\":-1,\"right\":0}", false},
        {"", ",\"return_attentions\":true", false},
        {",\"return_attentions\":true", ",\"return_attentions\":{\"heads\":\"all\"}", true},
        {",\"return_attentions\":true", ",\"return_attentions\":{\"heads\":[0,2]}", false},
        {",\"return_attentions\":{\"heads\":[0,2]}", ",\"return_attentions\":{\"heads\":[0,2]}",
         true},
        {",\"return_attentions\":{\"heads\":[0,2]}", ",\"return_attentions\":{\"heads\":[2,0]}",
         false},
        {",\"return_attentions\":{\"heads\":[0,2]}", ",\"return_attentions\":{\"heads\":[0]}",
         false},
        {",\"return_attentions\":true", ",\"return_attentions\":{\"stage\":\"scores\"}", false},
        {",\"return_attentions\":true", ",\"return_attentions\":{\"reduce_heads\":\"max\"}", false},
        {",\"return_attentions\":true", ",\"return_attentions\":{\"queries\":[1,2]}", false},
        {",\"return_attentions\":true", ",\"return_attentions\":{\"keys\":[1,2]}", false},
        {",\"return_attentions\":{\"keys\":[1,2]}", ",\"return_attentions\":{\"keys\":[1,3]}",
         true},
    };
    (void)state;

    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        srv_request *a = request(4, CASE[i].a, 1), *b = request(3, CASE[i].b, 2);
        if (srv_requests_join(a, b) != CASE[i].join || srv_requests_join(b, a) != CASE[i].join)
            fail_msg("\"%s\" and \"%s\"", CASE[i].a, CASE[i].b);
        srv_request_free(a);
        srv_request_free(b);
    }
}

static void what_fills_a_call_joins_nobody(void **state)
{
    char *text = body((size_t[]){4, 0}, "", 1);
    srv_request *small = request_of(SRV_ATTENTION, text);
    srv_request *none = request_of(SRV_ATTENTION, "{\"inputs_embeds\":[]}");
    (void)state;
    free(text);

    assert_true(srv_requests_join(small, small));
    assert_false(srv_requests_join(small, none));
    assert_false(srv_requests_join(none, none));
    /* Two micro-batches. */
    enum { N = 12, LONG = 1200 };
    float *x = calloc((size_t)N * LONG * D, sizeof *x);
    test_body b;
    assert_non_null(x);
    body_init(&b, true);
    body_floats(&b, "inputs_embeds", x, DIMS(N, LONG, D));
    srv_request *large = request_of(SRV_ATTENTION, body_text(&b));
    body_free(&b);
    free(x);
    assert_false(large->plan.streamed);
    assert_int_equal(large->plan.micro_batches, 2);
    assert_false(srv_requests_join(small, large));
    assert_false(srv_requests_join(large, large));
    free_all((srv_request *[]){small, none, large}, 3);
}

/* An answer of job i, computed alone, beside what came of it now. */
static void assert_answer(const client *c, const char *alone)
{
    if (c->job.status != ATTN_OK)
        fail_msg("%s", c->job.error.text);
    char *got = answer(c->request);
    assert_string_equal(got, alone);
    free(got);
}

static char *answer_alone(size_t tokens, const char *more, uint32_t seed)
{
    client c;
    srv_request *r = request(tokens, more, seed);
    (void)run(&c, &r, 1);
    assert_int_equal(c.job.status, ATTN_OK);
    char *text = answer(r);
    srv_request_free(r);
    return text;
}

static void numbers_that_are_not_finite_fail_alone(void **state)
{
    enum { N = 6, CULPRIT = 3 };
    client c[N];
    srv_request *r[N];
    char *alone = answer_alone(4, "", 9);
    float x[2 * 4 * D] = {0};
    test_body b;
    (void)state;

    for (size_t i = 0; i < N; i++)
        r[i] = request(4, "", 9);
    srv_request_free(r[CULPRIT]);
    x[4 * D + 2 * D + 5] = NAN; /* its second sequence, third token */
    body_init(&b, true);
    body_floats(&b, "inputs_embeds", x, DIMS(2, 4, D));
    r[CULPRIT] = request_of(SRV_ATTENTION, body_text(&b));
    body_free(&b);
    srv_infer_stats s = run(c, r, N);
    assert_int_equal(s.shared, 0);
    assert_int_equal(s.calls, 1 + N); /* together, then each alone */
    for (size_t i = 0; i < N; i++) {
        if (i != CULPRIT)
            assert_answer(&c[i], alone);
    }
    assert_int_equal(c[CULPRIT].job.status, ATTN_ENONFINITE);
    assert_non_null(strstr(c[CULPRIT].job.error.text, "sequence 1"));
    assert_non_null(strstr(c[CULPRIT].job.error.text, "token 2"));
    free_all(r, N);
    free(alone);
}

static void masked_rows_are_counted_for_their_own_request(void **state)
{
    static const char MASKED[] = ",\"attention_mask\":[[[1,1],[0,0]]]";
    client c[3];
    char *alone[3] = {answer_alone(2, "", 1), answer_alone(2, MASKED, 2), answer_alone(2, "", 3)};
    srv_request *r[3] = {request(2, "", 1), request(2, MASKED, 2), request(2, "", 3)};
    (void)state;

    assert_non_null(strstr(alone[0], "\"fully_masked_rows\":0"));
    assert_non_null(strstr(alone[1], "\"fully_masked_rows\":3")); /* one of each head */
    (void)run(c, r, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_answer(&c[i], alone[i]);
        free(alone[i]);
    }
    free_all(r, 3);
}

/* A whole encoder computes no empty sequences: blocks of pooled maps are those of the first one that it does. */
static void pooled_maps_beside_an_empty_sequence_are_those_of_one_alone(void **state)
{
    static const char text[] =
        "{\"input_ids\":[[],[2,5,6,7,8,9,10,11,5,6,3]],\"return_attentions\":"
        "{\"pool\":{\"size\":4,\"kind\":\"max\"}}}";
    char *dir = st_temp_dir(), *path = st_path("%s/tiny", dir);
    attn_model *tiny = NULL;
    attn_error err = {0};
    client c[2];
    srv_request *r[2];
    (void)state;

    tiny_encoder_write(path, 3, 1, NULL);
    if (attn_model_load(&tiny, &(attn_model_options){.name = "tiny", .path = path}, &err) !=
        ATTN_OK)
        fail_msg("%s", err.text);
    r[0] = request_to(tiny, &budget, SRV_ENCODE, text);
    (void)run(c, r, 1);
    char *alone = answer(r[0]);
    srv_request_free(r[0]);
    for (size_t i = 0; i < 2; i++)
        r[i] = request_to(tiny, &budget, SRV_ENCODE, text);
    assert_int_equal(run(c, r, 2).shared, 2);
    for (size_t i = 0; i < 2; i++)
        assert_answer(&c[i], alone);
    free_all(r, 2);
    free(alone);
    attn_model_free(tiny);
    st_remove_dir(dir);
    free(path);
}

static void one_that_leaves_does_no_harm(void **state)
{
    enum { N = 8, ROUNDS = 30 };
    client c[N];
    srv_request *r[N];
    char *alone = answer_alone(100, "", 4);
    (void)state;

    for (size_t round = 0; round < ROUNDS; round++) {
        size_t gone = round % N;
        for (size_t i = 0; i < N; i++)
            r[i] = request(100, "", 4);
        (void)run_dropping(c, r, N, gone);
        for (size_t i = 0; i < N; i++) {
            if (i != gone || c[i].job.status != ATTN_ECANCELED) /* or it was done before */
                assert_answer(&c[i], alone);
        }
        free_all(r, N);
    }
    free(alone);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void a_call_stays_below_the_target(void **state)
{
    enum { N = 20 };
    client c[N];
    srv_request *r[N];
    size_t reserved = 0;
    (void)state;

    attn_budget_init(&budget, (size_t)1 << 30);
    for (size_t i = 0; i < N; i++) {
        r[i] = request(1000, "", 4);
        reserved += r[i]->reserved;
    }
    size_t before = atomic_load(&budget.used);
    assert_true(reserved > SRV_WORKSPACE_TARGET);
    srv_infer_stats s = run(c, r, N);
    assert_true(s.calls > 1);
    assert_true(s.shared + 1 >= N); /* the last one may be left alone */
    size_t peak = atomic_load(&budget.peak);
    assert_true(peak > before + SRV_WORKSPACE_TARGET / 2);
    assert_true(peak <= before + SRV_WORKSPACE_TARGET + (1 << 16));
    assert_true(used_at_end <= before); /* when the last one is told, the workspace is back */
    for (size_t i = 0; i < N; i++)
        assert_int_equal(c[i].job.status, ATTN_OK);
    free_all(r, N);
}

static void where_it_does_not_fit_each_is_computed_alone(void **state)
{
    enum { N = 5 };
    client c[N];
    srv_request *r[N];
    char *alone = answer_alone(100, "", 4);
    (void)state;

    for (size_t i = 0; i < N; i++)
        r[i] = request(100, "", 4);
    attn_error err = {0};
    size_t left = budget.limit - atomic_load(&budget.used);
    assert_int_equal(attn_budget_reserve(&budget, left, &err), ATTN_OK);
    srv_infer_stats s = run(c, r, N);
    assert_int_equal(s.shared, 0);
    assert_int_equal(s.calls, N);
    for (size_t i = 0; i < N; i++)
        assert_answer(&c[i], alone);
    attn_budget_release(&budget, left);
    free_all(r, N);
    free(alone);
}

static int start(void **state)
{
    attn_error err = {0};
    (void)state;
    attn_budget_init(&budget, (size_t)1 << 30);
    attn_budget_init(&gate_budget, (size_t)1 << 30);
    if (attn_pool_new(&pool, WORKERS, false, &err) != ATTN_OK)
        return -1;
    return use_kernels(NULL) ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    attn_pool_free(pool);
    attn_model_free(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined_requests_answer_as_alone),
        cmocka_unit_test(heads_of_the_same_sizes_join_without_a_layer),
        cmocka_unit_test(only_equals_join),
        cmocka_unit_test(what_fills_a_call_joins_nobody),
        cmocka_unit_test(numbers_that_are_not_finite_fail_alone),
        cmocka_unit_test(masked_rows_are_counted_for_their_own_request),
        cmocka_unit_test(pooled_maps_beside_an_empty_sequence_are_those_of_one_alone),
        cmocka_unit_test(one_that_leaves_does_no_harm),
        cmocka_unit_test(a_call_stays_below_the_target),
        cmocka_unit_test(where_it_does_not_fit_each_is_computed_alone),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

/* What may run: the memory budget against the estimate, to the byte; the queue; deadlines; and that all
 * of it is given back. */
#include "tests/body.h"
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/inflight.h"
#include "tests/st.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { D = 64 };

#define WIDE "/v1/models/wide/attention"

static const char *const JSON_TYPE[] = {"Content-Type: application/json", NULL};
static char *folder_, *model_;

static int start(void **state)
{
    static const st_native wide = {.d_model = D, .num_heads = 4, .num_kv_heads = 2, .head_dim = 16};
    (void)state;
    folder_ = st_temp_dir();
    char *dir = st_path("%s/wide", folder_);
    st_write_random(dir, &wide, 5);
    model_ = st_path("wide=%s", dir);
    free(dir);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    free(model_);
    st_remove_dir(folder_);
    return 0;
}

static test_daemon *serve(size_t budget, const char *setting)
{
    char *memory = st_path("memory.budget=%zuB", budget);
    test_daemon *d = daemon_start(COMMAND("serve", "--model", model_, "--set", memory, "--set",
                                          "compute.threads=2", "--set",
                                          setting != NULL ? setting : "log.level=info"));
    free(memory);
    return d;
}

static size_t integer(json_t *root, const char *path)
{
    const json_t *v = answer_get(root, path);
    if (!json_is_integer(v))
        fail_msg("there is no integer %s", path);
    return (size_t)json_integer_value(v);
}

typedef struct {
    size_t batch, tokens, context; /* context 0 = self attention */
    const char *options;           /* as members, with a comma before each */
    bool base64;
} job;

static json_t *estimate(const test_daemon *d, const job *j)
{
    char *context = j->context > 0 ? st_path(",\"context_length\":%zu", j->context) : strdup("");
    char *text =
        st_path("{\"shape\":[%zu,%zu,%d]%s%s}", j->batch, j->tokens, D, context, j->options);
    test_reply r = daemon_post(d, WIDE "/estimate", text, 200);
    json_t *root = answer_parse(r.body, r.body_bytes);
    reply_free(&r);
    free(text);
    free(context);
    return root;
}

/* The request that was estimated. */
static char *request(const job *j)
{
    size_t n = j->batch * (j->tokens + j->context) * D;
    float *x = malloc(n * sizeof *x);
    uint32_t seed = 11;
    test_body b;

    assert_non_null(x);
    st_random(&seed, x, n);
    for (size_t i = 0; i < n && !j->base64; i++)
        x[i] = (float)(int)(x[i] * 8) / 8; /* short in JSON */
    body_init(&b, j->base64);
    body_floats(&b, "inputs_embeds", x, DIMS(j->batch, j->tokens, D));
    if (j->context > 0)
        body_floats(&b, "encoder_hidden_states", x + j->batch * j->tokens * D,
                    DIMS(j->batch, j->context, D));
    char *text = st_path("%.*s%s}", (int)b.n, b.text, j->options);
    body_free(&b);
    free(x);
    return text;
}

static const job JOB[] = {
    {1, 1200, 0, ",\"return_attentions\":true", false},
    {1, 1024, 0, "", true},
    {1, 800, 700, ",\"return_attentions\":{\"reduce_heads\":\"mean\"}", true},
    {64, 64, 0, ",\"return_intermediates\":[\"key\",\"logsumexp\",\"context\"]", false},
    {5, 730, 0, ",\"lengths\":[730,1,0,64,199],\"return_attentions\":{\"heads\":[1]}", true},
    {300, 40, 0, ",\"return_outputs\":false,\"return_intermediates\":[\"query\",\"value\"]", true},
};
enum { JOBS = sizeof JOB / sizeof *JOB };

static void the_estimate_is_what_admission_uses(void **state)
{
    test_daemon *large = serve((size_t)1 << 30, NULL);
    (void)state;

    for (size_t i = 0; i < JOBS; i++) {
        char *text = request(&JOB[i]);
        json_t *plan = estimate(large, &JOB[i]), *root;
        size_t needed = integer(plan, "needed_bytes");
        size_t response_bytes = integer(plan, "response_bytes");
        printf("job %zu: %zu bytes\n", i, needed);
        assert_true(json_is_true(answer_get(plan, "fits")));
        assert_int_equal(integer(plan, "limit_bytes"), (size_t)1 << 30);
        assert_int_equal(integer(plan, "parts.inputs") + integer(plan, "parts.workspace") +
                             integer(plan, "parts.outputs") + integer(plan, "parts.attentions"),
                         needed);
        assert_true(needed > (size_t)1 << 20);
        json_decref(plan);

        test_daemon *exact = serve(needed, NULL), *short_ = serve(needed - 1, NULL);
        plan = estimate(exact, &JOB[i]); /* the same, but for how it is cut */
        assert_int_equal(integer(plan, "needed_bytes"), needed);
        size_t micro_batches = integer(plan, "micro_batches");
        json_decref(plan);
        for (int again = 0; again < 3; again++) { /* all of it is given back each time */
            test_reply r = daemon_post(exact, WIDE, text, 200);
            root = answer_parse(r.body, r.body_bytes);
            assert_int_equal(integer(root, "usage.peak_bytes"), needed);
            assert_int_equal(integer(root, "usage.micro_batches"), micro_batches);
            assert_true(r.body_bytes <= response_bytes);
            json_decref(root);
            reply_free(&r);
            r = daemon_post(short_, WIDE, text, 413);
            root = answer_parse(r.body, r.body_bytes);
            assert_int_equal(integer(root, "needed_bytes"), needed);
            assert_int_equal(integer(root, "limit_bytes"), needed - 1);
            json_decref(root);
            reply_free(&r);
        }
        plan = estimate(short_, &JOB[i]);
        assert_true(json_is_false(answer_get(plan, "fits")));
        json_decref(plan);
        daemon_stop(exact);
        daemon_stop(short_);
        free(text);
    }
    daemon_stop(large);
}

static size_t needed_by(const job *j)
{
    test_daemon *d = serve((size_t)1 << 30, NULL);
    json_t *plan = estimate(d, j);
    size_t needed = integer(plan, "needed_bytes");
    json_decref(plan);
    daemon_stop(d);
    return needed;
}

/* The request must fit again: what other connections held may take a moment to come back. */
static void fits_again(const test_daemon *d, const char *text)
{
    test_reply r = {0};
    for (int i = 0; i < 200 && r.status != 200; i++) {
        reply_free(&r);
        r = daemon_request(d, "POST", WIDE, JSON_TYPE, text, strlen(text));
        if (r.status != 200)
            usleep(10000);
    }
    if (r.status != 200)
        fail_msg("after two seconds there is still %ld: %s", r.status, r.body);
    reply_free(&r);
}

static void expect_busy(const raw_answer *a, const char *code)
{
    json_t *root = answer_parse(a->body, a->body_bytes);
    const char *after = raw_header(a, "Retry-After");

    assert_int_equal(a->status, 503);
    assert_non_null(after);
    assert_in_range(atoi(after), 1, 3600);
    if (code != NULL)
        assert_string_equal(json_string_value(json_object_get(root, "code")), code);
    json_decref(root);
}

static void what_does_not_fit_now_is_503_until_it_does(void **state)
{
    const job big = {1, 2000, 0, "", true};
    size_t needed = needed_by(&big);
    test_daemon *d = serve(needed, NULL);
    char *text = request(&big);
    raw_conn first, second;
    (void)state;

    inflight_open(&first, d);
    inflight_open(&second, d);
    assert_true(inflight_post(&first, WIDE, text, 1)); /* its inputs are in memory */
    usleep(50000);
    assert_true(inflight_post(&second, WIDE, text, 0));
    raw_answer a = raw_read(&second, false, 30000);
    expect_busy(&a, NULL);
    raw_free(&a);
    a = inflight_get(&second, "/health/live"); /* once this is answered, the 503 is over */
    raw_free(&a);
    assert_true(raw_send(&first, "}", 1));
    a = raw_read(&first, false, 30000);
    assert_int_equal(a.status, 200);
    raw_free(&a);
    raw_close(&first);
    raw_close(&second);
    fits_again(d, text);
    daemon_stop(d);
    free(text);
}

static void everything_is_given_back_whatever_ended_a_request(void **state)
{
    const job big = {1, 2000, 0, "", true};
    size_t needed = needed_by(&big);
    test_daemon *d = serve(needed, NULL);
    char *text = request(&big), *late = st_path("{\"timeout_ms\":1,%s", text + 1);
    char *bad = strdup(text);
    raw_conn c;
    (void)state;

    assert_non_null(bad);
    bad[strlen(bad) - 1] = ']';
    for (int i = 0; i < 3; i++) {
        test_reply r = daemon_post(d, WIDE, bad, 400);
        reply_free(&r);
        r = daemon_request(d, "POST", WIDE, JSON_TYPE, late, strlen(late)); /* 504, or very fast */
        assert_true(r.status == 504 || r.status == 200);
        reply_free(&r);
        inflight_open(&c, d); /* leaves in the middle of its body */
        assert_true(inflight_post(&c, WIDE, text, strlen(text) / 3));
        raw_close(&c);
        inflight_open(&c, d); /* leaves before its answer */
        assert_true(inflight_post(&c, WIDE, text, 0));
        raw_close(&c);
        fits_again(d, text);
    }
    daemon_stop(d);
    free(text);
    free(late);
    free(bad);
}

static void a_full_queue_is_503(void **state)
{
    enum { N = 5 };
    test_daemon *d = serve((size_t)1 << 30, "queue.max_requests=1");
    char *heavy = inflight_heavy(24000, 0);
    raw_conn c[N];
    size_t answered = 0, refused = 0;
    (void)state;

    for (size_t i = 0; i < N; i++)
        inflight_open(&c[i], d);
    for (size_t i = 0; i < N; i++)
        assert_true(inflight_post(&c[i], INFLIGHT_SDPA, heavy, 0));
    for (size_t i = 0; i < N; i++) {
        raw_answer a = raw_read(&c[i], false, 60000);
        if (a.status == 200) {
            answered++;
        } else {
            expect_busy(&a, "queue_full");
            refused++;
        }
        raw_free(&a);
        raw_close(&c[i]);
    }
    assert_true(answered >= 1);
    assert_true(refused >= 1);
    test_reply r = daemon_post(d, WIDE, "{\"inputs_embeds\":[]}", 200);
    reply_free(&r);
    daemon_stop(d);
    free(heavy);
}

static void a_passed_deadline_is_504_and_the_next_request_works(void **state)
{
    test_daemon *d = serve((size_t)1 << 30, NULL);
    char *heavy = inflight_heavy_whole(1), *later = inflight_heavy_whole(150);
    const char *const body[] = {heavy, later};
    raw_conn c;
    (void)state;

    for (size_t i = 0; i < 2; i++) { /* before it runs, and while it does */
        test_reply r = daemon_post(d, INFLIGHT_SDPA, body[i], 504);
        json_t *root = answer_parse(r.body, r.body_bytes);
        assert_int_equal(integer(root, "status"), 504);
        assert_true(r.seconds < 2);
        json_decref(root);
        reply_free(&r);
        r = daemon_post(d, WIDE, "{\"inputs_embeds\":[]}", 200);
        assert_true(r.seconds < 2);
        reply_free(&r);
    }
    /* One that waits behind another need not wait for it. */
    char *long_ = inflight_heavy(40000, 0);
    inflight_open(&c, d);
    assert_true(inflight_post(&c, INFLIGHT_SDPA, long_, 0));
    usleep(50000);
    test_reply r = daemon_post(d, INFLIGHT_SDPA, heavy, 504);
    assert_true(r.seconds < 1);
    reply_free(&r);
    raw_answer a = raw_read(&c, false, 60000);
    assert_int_equal(a.status, 200);
    raw_free(&a);
    raw_close(&c);
    daemon_stop(d);
    free(long_);
    free(heavy);
    free(later);
}

static void the_daemon_s_own_deadline_counts_without_one(void **state)
{
    test_daemon *d = serve((size_t)1 << 30, "server.request_timeout=500ms");
    char *heavy = inflight_heavy_whole(0);
    (void)state;
    test_reply r = daemon_post(d, INFLIGHT_SDPA, heavy, 504);
    reply_free(&r);
    r = daemon_post(d, WIDE, "{\"inputs_embeds\":[]}", 200);
    reply_free(&r);
    daemon_stop(d);
    free(heavy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_estimate_is_what_admission_uses),
        cmocka_unit_test(what_does_not_fit_now_is_503_until_it_does),
        cmocka_unit_test(everything_is_given_back_whatever_ended_a_request),
        cmocka_unit_test(a_full_queue_is_503),
        cmocka_unit_test(a_passed_deadline_is_504_and_the_next_request_works),
        cmocka_unit_test(the_daemon_s_own_deadline_counts_without_one),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

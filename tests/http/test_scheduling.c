/* Many requests at once: who is answered first, who is refused, and what is left of a client that leaves. */
#include "tests/body.h"
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/inflight.h"
#include "tests/load.h"
#include "tests/st.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { D = 64, PATIENCE_MS = 120000 };

#define WIDE       "/v1/models/wide/attention"
#define ONE_THREAD "compute.threads=1"

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

static test_daemon *serve(const char *setting, const char *other)
{
    return daemon_start(COMMAND("serve", "--model", model_, "--set", setting, "--set", other));
}

/* [batch,tokens,D] of random numbers that are short in JSON. */
static char *body(size_t batch, size_t tokens, bool base64)
{
    size_t n = batch * tokens * D;
    float *x = malloc(n * sizeof *x);
    uint32_t seed = 11;
    test_body b;

    assert_non_null(x);
    st_random(&seed, x, n);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(int)(x[i] * 8) / 8;
    body_init(&b, base64);
    body_floats(&b, "inputs_embeds", x, DIMS(batch, tokens, D));
    char *text = strdup(body_text(&b));
    assert_non_null(text);
    body_free(&b);
    free(x);
    return text;
}

static bool is_answered(const raw_conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

static void small_requests_overtake_a_large_one(void **state)
{
    enum { SMALL = 10 };
    test_daemon *d = serve(ONE_THREAD, "log.level=error");
    char *large = body(24, 2000, true), *small = body(1, 4, false);
    raw_conn c;
    (void)state;

    inflight_open(&c, d);
    assert_true(inflight_post(&c, WIDE, large, 0));
    usleep(100000); /* it has been read, and has begun */
    for (size_t i = 0; i < SMALL; i++) {
        test_reply r = daemon_post(d, WIDE, small, 200);
        assert_false(is_answered(&c));
        reply_free(&r);
        r = daemon_request(d, "GET", "/health/ready", NULL, NULL, 0);
        assert_int_equal(r.status, 200);
        assert_false(is_answered(&c));
        reply_free(&r);
    }
    raw_answer a = raw_read(&c, false, PATIENCE_MS);
    assert_int_equal(a.status, 200);
    assert_true(a.complete);
    raw_free(&a);
    raw_close(&c);
    daemon_stop(d);
    free(large);
    free(small);
}

static void clients_at_once_get_what_one_gets_alone(void **state)
{
    enum { CLIENTS = 16, ROUNDS = 5 };
    test_daemon *d = serve("compute.threads=2", "log.level=error");
    char *text[CLIENTS];
    test_reply alone[CLIENTS];
    raw_conn c[CLIENTS];
    (void)state;

    for (size_t i = 0; i < CLIENTS; i++) {
        text[i] = body(1 + i % 3, 1 + 7 * i, i % 2 == 0);
        alone[i] = daemon_post(d, WIDE, text[i], 200);
        inflight_open(&c[i], d);
    }
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < CLIENTS; i++)
            assert_true(inflight_post(&c[i], WIDE, text[i], 0));
        for (size_t i = 0; i < CLIENTS; i++) {
            raw_answer a = raw_read(&c[i], false, PATIENCE_MS);
            assert_int_equal(a.status, 200);
            assert_string_equal(a.body, alone[i].body);
            raw_free(&a);
        }
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        raw_close(&c[i]);
        reply_free(&alone[i]);
        free(text[i]);
    }
    daemon_stop(d);
}

/* --- overload --------------------------------------------------------------------------------- */

/* As fast as possible: each is answered, or refused and told when to come again. */
static void overload_is_200_or_503(void **state)
{
    enum { TOTAL = 5000, CLIENTS = 200 };
    test_daemon *d = serve("queue.max_requests=16", "log.level=error");
    char *text = body(1, 48, false);
    load_answer *answers = calloc(TOTAL, sizeof *answers);
    size_t answered, refused;
    (void)state;

    assert_non_null(answers);
    double took = load_run(daemon_url(d), WIDE, text, CLIENTS, answers, TOTAL);
    double p99 = load_quantile(answers, TOTAL, 200, 0.99, &answered);
    double refusal = load_quantile(answers, TOTAL, 503, 0.99, &refused);
    printf("%zu answered (99 %% within %.1f ms), %zu refused (%.1f ms), in %.2f s\n", answered,
           p99 * 1000, refused, refusal * 1000, took);
    assert_int_equal(answered + refused, TOTAL);
    assert_true(answered >= 16);
    for (size_t i = 0; i < TOTAL; i++) {
        if (answers[i].status == 503)
            assert_in_range(answers[i].retry_after, 1, 60);
    }
    for (size_t i = 0; i < 10; i++) { /* and then all is as before */
        test_reply r = daemon_post(d, WIDE, text, 200);
        reply_free(&r);
    }
    daemon_stop(d);
    free(answers);
    free(text);
}

/* A queue of one that is full: what runs, and what waits. */
typedef struct {
    test_daemon *d;
    raw_conn running, waiting;
} full_queue;

static void fill_queue(full_queue *q, const char *heavy)
{
    q->d = serve(ONE_THREAD, "queue.max_requests=1");
    inflight_open(&q->running, q->d);
    inflight_open(&q->waiting, q->d);
    assert_true(inflight_post(&q->running, INFLIGHT_SDPA, heavy, 0));
    usleep(100000);
    assert_true(inflight_post(&q->waiting, INFLIGHT_SDPA, heavy, 0));
    usleep(100000);
}

static void a_refusal_does_not_wait(void **state)
{
    char *heavy = inflight_heavy(100000, 0), *text = body(1, 4, false);
    full_queue q;
    raw_conn c;
    (void)state;

    fill_queue(&q, heavy);
    test_reply r = daemon_post(q.d, WIDE, text, 503);
    json_t *root = answer_parse(r.body, r.body_bytes);
    assert_string_equal(json_string_value(json_object_get(root, "code")), "queue_full");
    json_decref(root);
    char *after = reply_header(&r, "Retry-After");
    assert_non_null(after);
    assert_in_range(atoi(after), 1, 60);
    free(after);
    reply_free(&r);
    r = daemon_request(q.d, "GET", "/health/live", NULL, NULL, 0);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    /* With Expect it is refused before its body is sent. */
    inflight_open(&c, q.d);
    assert_true(raw_text(&c, "POST " WIDE " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
                             "Expect: 100-continue\r\n\r\n"));
    raw_answer a = raw_read(&c, false, 5000);
    assert_int_equal(a.status, 503);
    raw_free(&a);
    raw_close(&c);
    assert_false(is_answered(&q.running) || is_answered(&q.waiting));
    raw_close(&q.running);
    raw_close(&q.waiting);
    daemon_stop(q.d);
    free(heavy);
    free(text);
}

/* --- clients that leave ----------------------------------------------------------------------- */

static void reset(raw_conn *c)
{
    const struct linger hard = {.l_onoff = 1, .l_linger = 0};
    assert_int_equal(setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
    raw_close(c);
}

static void clients_that_leave_free_the_queue(void **state)
{
    char *heavy = inflight_heavy(400000, 0), *text = body(1, 4, false);
    (void)state;

    for (int hard = 0; hard < 2; hard++) {
        full_queue q;
        fill_queue(&q, heavy);
        test_reply r = daemon_post(q.d, WIDE, text, 503);
        reply_free(&r);
        assert_false(is_answered(&q.running));
        if (hard) {
            reset(&q.running);
            reset(&q.waiting);
        } else {
            raw_close(&q.running);
            raw_close(&q.waiting);
        }
        long long began = raw_now_ms();
        long status = 503;
        while (status == 503 && raw_now_ms() < began + 10000) {
            usleep(5000);
            r = daemon_request(q.d, "POST", WIDE, (const char *[]){"Content-Type:", NULL}, text,
                               strlen(text));
            status = r.status;
            reply_free(&r);
        }
        printf("both were gone after %lld ms\n", raw_now_ms() - began);
        assert_int_equal(status, 200);
        daemon_stop(q.d);
    }
    free(heavy);
    free(text);
}

/* Nobody can see whether it still reads. */
static void a_client_that_closes_its_side_has_left(void **state)
{
    char *heavy = inflight_heavy(400000, 0), *text = body(1, 4, false);
    full_queue q;
    (void)state;

    fill_queue(&q, heavy);
    raw_conn *const leaving[] = {&q.waiting, &q.running};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(shutdown(leaving[i]->fd, SHUT_WR), 0);
        assert_true(raw_is_closed(leaving[i], 10000));
        raw_close(leaving[i]);
    }
    test_reply r = daemon_post(q.d, WIDE, text, 200);
    reply_free(&r);
    daemon_stop(q.d);
    free(heavy);
    free(text);
}

/* It holds all of the budget while it runs. */
static void a_client_that_leaves_gives_its_memory_back(void **state)
{
    enum { TOKENS = 40000 };
    char *text = body(1, TOKENS, true);
    char *late = st_path("{\"timeout_ms\":1,%s", text + 1); /* 504: it fits; 503: it does not */
    char *shape = st_path("{\"shape\":[1,%d,%d]}", TOKENS, D);
    test_daemon *d = serve(ONE_THREAD, "log.level=error");
    raw_conn c;
    (void)state;

    test_reply r = daemon_post(d, WIDE "/estimate", shape, 200);
    json_t *root = answer_parse(r.body, r.body_bytes);
    char *budget = st_path("memory.budget=%lldB",
                           (long long)json_integer_value(answer_get(root, "needed_bytes")));
    json_decref(root);
    reply_free(&r);
    daemon_stop(d);

    d = serve(ONE_THREAD, budget);
    inflight_open(&c, d);
    assert_true(inflight_post(&c, WIDE, text, 0));
    usleep(200000);
    r = daemon_post(d, WIDE, late, 503);
    reply_free(&r);
    assert_false(is_answered(&c));
    raw_close(&c);
    long long began = raw_now_ms();
    long status = 503;
    while (status == 503 && raw_now_ms() < began + 10000) {
        usleep(5000);
        r = daemon_request(d, "POST", WIDE, (const char *[]){"Content-Type:", NULL}, late,
                           strlen(late));
        status = r.status;
        reply_free(&r);
    }
    assert_int_equal(status, 504);
    daemon_stop(d);
    free(budget);
    free(shape);
    free(late);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_requests_overtake_a_large_one),
        cmocka_unit_test(clients_at_once_get_what_one_gets_alone),
        cmocka_unit_test(overload_is_200_or_503),
        cmocka_unit_test(a_refusal_does_not_wait),
        cmocka_unit_test(clients_that_leave_free_the_queue),
        cmocka_unit_test(a_client_that_closes_its_side_has_left),
        cmocka_unit_test(a_client_that_leaves_gives_its_memory_back),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

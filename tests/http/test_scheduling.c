/* Many requests at once: who is answered first, who is refused, and what is left of a client that leaves. */
#include "tests/body.h"
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/inflight.h"
#include "tests/load.h"
#include "tests/st.h"
#include "tests/watch.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* Soon is far below what a heavy request takes, and below its deadline of 60 s. */
enum { D = 64, PATIENCE_MS = 120000, SOON_MS = 15000 };

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

/* Reads an answer while the test goes on. */
typedef struct {
    raw_conn c;
    raw_answer answer;
    atomic_bool finished;
} reader;

static void *read_answer(void *arg)
{
    reader *r = arg;
    r->answer = raw_read(&r->c, false, PATIENCE_MS);
    atomic_store(&r->finished, true);
    return NULL;
}

static void small_requests_overtake_a_large_one(void **state)
{
    enum { SMALL = 5 };
    test_daemon *d = serve(ONE_THREAD, "log.level=error");
    char *large = body(12, 6000, true), *small = body(1, 4, false);
    pthread_t thread;
    reader l;
    (void)state;

    atomic_init(&l.finished, false);
    inflight_open(&l.c, d);
    assert_true(inflight_post(&l.c, WIDE, large, 0));
    assert_int_equal(pthread_create(&thread, NULL, read_answer, &l), 0);
    watch_until(d, "attnd_requests_running", 1);
    for (size_t i = 0; i < SMALL; i++) {
        test_reply r = daemon_post(d, WIDE, small, 200);
        assert_false(atomic_load(&l.finished));
        reply_free(&r);
        r = daemon_request(d, "GET", "/health/ready", NULL, NULL, 0);
        assert_int_equal(r.status, 200);
        assert_false(atomic_load(&l.finished));
        reply_free(&r);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(l.answer.status, 200);
    assert_true(l.answer.complete);
    raw_free(&l.answer);
    raw_close(&l.c);
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

/* A queue of one that is full: what runs, and what waits, far longer than a test. */
typedef struct {
    test_daemon *d;
    raw_conn running, waiting;
    char *small; /* a request */
} full_queue;

static void fill_queue(full_queue *q)
{
    char *heavy = inflight_heavy(200000, 0);
    q->d = serve(ONE_THREAD, "queue.max_requests=1");
    q->small = body(1, 4, false);
    inflight_open(&q->running, q->d);
    inflight_open(&q->waiting, q->d);
    assert_true(inflight_post(&q->running, INFLIGHT_SDPA, heavy, 0));
    watch_until(q->d, "attnd_requests_running", 1);
    assert_true(inflight_post(&q->waiting, INFLIGHT_SDPA, heavy, 0));
    watch_until(q->d, "attnd_requests_waiting", 1);
    free(heavy);
}

/* Both have left: soon nothing of them is there any more. */
static void expect_empty(full_queue *q)
{
    long long began = raw_now_ms();
    watch_until(q->d, "attnd_requests_running", 0);
    watch_until(q->d, "attnd_requests_waiting", 0);
    watch_until(q->d, "attnd_memory_used_bytes", 0);
    watch_until(q->d, "attnd_cancelled_total", 2);
    assert_in_range(raw_now_ms() - began, 0, SOON_MS);
    test_reply r = daemon_post(q->d, WIDE, q->small, 200);
    reply_free(&r);
    daemon_stop(q->d);
    free(q->small);
}

static bool is_answered(const raw_conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

static void a_refusal_does_not_wait(void **state)
{
    full_queue q;
    raw_conn c;
    (void)state;

    fill_queue(&q);
    test_reply r = daemon_post(q.d, WIDE, q.small, 503);
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
    raw_answer a = raw_read(&c, false, PATIENCE_MS);
    assert_int_equal(a.status, 503);
    raw_free(&a);
    raw_close(&c);
    assert_false(is_answered(&q.running) || is_answered(&q.waiting));
    raw_close(&q.running);
    raw_close(&q.waiting);
    expect_empty(&q);
}

/* --- clients that leave ----------------------------------------------------------------------- */

static void clients_that_close_leave_nothing(void **state)
{
    full_queue q;
    (void)state;

    fill_queue(&q);
    raw_close(&q.running);
    raw_close(&q.waiting);
    expect_empty(&q);
}

static void clients_that_reset_leave_nothing(void **state)
{
    const struct linger hard = {.l_onoff = 1, .l_linger = 0};
    full_queue q;
    (void)state;

    fill_queue(&q);
    raw_conn *const leaving[] = {&q.running, &q.waiting};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(setsockopt(leaving[i]->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
        raw_close(leaving[i]);
    }
    expect_empty(&q);
}

/* Nobody can see whether it still reads. */
static void a_client_that_closes_its_side_has_left(void **state)
{
    full_queue q;
    (void)state;

    fill_queue(&q);
    raw_conn *const leaving[] = {&q.waiting, &q.running};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(shutdown(leaving[i]->fd, SHUT_WR), 0);
        assert_true(raw_is_closed(leaving[i], PATIENCE_MS));
        raw_close(leaving[i]);
    }
    expect_empty(&q);
}

/* In the middle of many others, which are all answered. */
static void clients_that_leave_do_not_harm_others(void **state)
{
    enum { CLIENTS = 24, ROUNDS = 20 };
    test_daemon *d = serve("compute.threads=2", "log.level=error");
    char *text = body(1, 40, false);
    test_reply alone = daemon_post(d, WIDE, text, 200);
    raw_conn c[CLIENTS];
    (void)state;

    for (size_t i = 0; i < CLIENTS; i++)
        inflight_open(&c[i], d);
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < CLIENTS; i++)
            assert_true(inflight_post(&c[i], WIDE, text, 0));
        for (size_t i = 0; i < CLIENTS; i += 5)
            raw_close(&c[i]);
        for (size_t i = 0; i < CLIENTS; i++) {
            if (i % 5 == 0)
                continue;
            raw_answer a = raw_read(&c[i], false, PATIENCE_MS);
            assert_int_equal(a.status, 200);
            assert_string_equal(a.body, alone.body);
            raw_free(&a);
        }
        for (size_t i = 0; i < CLIENTS; i += 5)
            inflight_open(&c[i], d);
    }
    for (size_t i = 0; i < CLIENTS; i++)
        raw_close(&c[i]);
    watch_until(d, "attnd_memory_used_bytes", 0);
    reply_free(&alone);
    daemon_stop(d);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_requests_overtake_a_large_one),
        cmocka_unit_test(clients_at_once_get_what_one_gets_alone),
        cmocka_unit_test(overload_is_200_or_503),
        cmocka_unit_test(a_refusal_does_not_wait),
        cmocka_unit_test(clients_that_close_leave_nothing),
        cmocka_unit_test(clients_that_reset_leave_nothing),
        cmocka_unit_test(a_client_that_closes_its_side_has_left),
        cmocka_unit_test(clients_that_leave_do_not_harm_others),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

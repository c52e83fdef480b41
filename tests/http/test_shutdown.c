/* How the daemon ends: at once when idle, after what runs is answered, at once on a second signal, and
 * when the time for it is over. */
#include "tests/body.h"
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/inflight.h"
#include "tests/st.h"
#include "tests/watch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <cmocka.h>

/* Sanitizers slow the end down: what is left is looked through for leaks. */
enum { SOON_MS = 1000, AT_LAST_MS = 60000 };

static void end(test_daemon *d, int sig, int expected, long within_ms)
{
    kill(daemon_pid(d), sig);
    long long begin = raw_now_ms();
    int code = daemon_wait(d, AT_LAST_MS, NULL);
    long ms = (long)(raw_now_ms() - begin);
    if (code != expected || ms > within_ms)
        fail_msg("it ended with code %d after %ld ms; %d within %ld ms expected", code, ms,
                 expected, within_ms);
}

static void an_idle_daemon_ends_at_once(void **state)
{
    static const int SIGNAL[] = {SIGTERM, SIGINT};
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        test_daemon *d = daemon_start(COMMAND("serve"));
        raw_conn idle, silent, half;
        inflight_open(&idle, d); /* a client that keeps its connection does not hold it up */
        raw_open(&silent, daemon_url(d));
        raw_open(&half, daemon_url(d));
        assert_true(raw_text(&half, "GET /health/live HTTP/1.1\r\nHost:"));
        usleep(20000);
        end(d, SIGNAL[i], 0, SOON_MS);
        assert_true(raw_is_closed(&idle, 1000));
        raw_close(&idle);
        raw_close(&silent);
        raw_close(&half);
    }
}

/* One thread, so that what is heavy is so on every machine. */
#define ONE_THREAD "--set", "compute.threads=1"

static void what_runs_is_answered_first(void **state)
{
    enum { N = 4, TOKENS = 12000 };
    test_daemon *d = daemon_start(COMMAND("serve", ONE_THREAD));
    char *heavy = inflight_heavy(TOKENS, 0);
    raw_conn c[N];
    (void)state;

    for (size_t i = 0; i < N; i++)
        inflight_open(&c[i], d);
    for (size_t i = 0; i < N; i++) /* one runs, two wait, one is still being sent */
        assert_true(inflight_post(&c[i], INFLIGHT_SDPA, heavy, i == N - 1 ? 100 : 0));
    usleep(50000);
    kill(daemon_pid(d), SIGTERM);
    watch_log_until(d, "\"event\":\"stopping\"");
    assert_true(raw_send(&c[N - 1], heavy + strlen(heavy) - 100, 100));
    for (size_t i = 0; i < N; i++) {
        raw_answer a = raw_read(&c[i], false, AT_LAST_MS);
        assert_int_equal(a.status, 200);
        assert_true(a.complete);
        json_t *root = answer_parse(a.body, a.body_bytes);
        test_tensor out =
            answer_tensor(answer_get(root, "outputs"), "outputs", DIMS(1, 1, TOKENS, 1));
        answer_free(&out);
        json_decref(root);
        raw_free(&a);
    }
    assert_int_equal(daemon_wait(d, AT_LAST_MS, NULL), 0);
    for (size_t i = 0; i < N; i++) {
        assert_true(raw_is_closed(&c[i], 1000));
        raw_close(&c[i]);
    }
    free(heavy);
}

#define SMALL "{\"query\":[[[[1]]]],\"key\":[[[[1]]]],\"value\":[[[[1]]]]}"

/* The system takes connections and bytes for a daemon before it knows of them; here while it stands still. */
static void what_was_sent_before_the_signal_is_answered(void **state)
{
    enum { KEPT = 8, NEW = 500 };
    test_daemon *d = daemon_start(COMMAND("serve", "--set", "queue.max_requests=1000"));
    raw_conn c[KEPT + NEW];
    (void)state;

    for (size_t i = 0; i < KEPT; i++)
        inflight_open(&c[i], d);
    kill(daemon_pid(d), SIGSTOP);
    for (size_t i = KEPT; i < KEPT + NEW; i++)
        raw_open(&c[i], daemon_url(d));
    for (size_t i = 0; i < KEPT + NEW; i++)
        assert_true(inflight_post(&c[i], INFLIGHT_SDPA, SMALL, 0));
    kill(daemon_pid(d), SIGTERM);
    kill(daemon_pid(d), SIGCONT);
    for (size_t i = 0; i < KEPT + NEW; i++) {
        raw_answer a = raw_read(&c[i], false, AT_LAST_MS);
        if (a.status != 200)
            fail_msg("connection %zu of %d: status %d", i, KEPT + NEW, a.status);
        raw_free(&a);
        raw_close(&c[i]);
    }
    assert_int_equal(daemon_wait(d, AT_LAST_MS, NULL), 0);
}

/* A request that is still being sent keeps the daemon draining. */
static void a_draining_daemon_is_not_ready(void **state)
{
    test_daemon *d = daemon_start(COMMAND("serve"));
    char *url = strdup(daemon_url(d));
    raw_conn busy, open_;
    (void)state;

    inflight_open(&busy, d);
    inflight_open(&open_, d);
    raw_answer a = inflight_get(&open_, "/health/ready");
    assert_int_equal(a.status, 200);
    assert_true(inflight_post(&busy, INFLIGHT_SDPA, SMALL, 1));
    usleep(50000);
    kill(daemon_pid(d), SIGTERM);
    watch_log_until(d, "\"event\":\"stopping\"");
    do { /* the log line comes first */
        raw_free(&a);
        a = inflight_get(&open_, "/health/ready");
    } while (a.status == 200);
    assert_int_equal(a.status, 503);
    assert_non_null(raw_header(&a, "Retry-After"));
    json_t *root = answer_parse(a.body, a.body_bytes);
    assert_string_equal(json_string_value(json_object_get(root, "code")), "draining");
    json_decref(root);
    raw_free(&a);
    assert_true(raw_is_closed(&open_, 5000));
    command_refuse(COMMAND("healthcheck", "--url", url), 1, NULL); /* nobody listens any more */
    assert_true(raw_send(&busy, "}", 1));
    a = raw_read(&busy, false, AT_LAST_MS);
    assert_int_equal(a.status, 200);
    const char *connection = raw_header(&a, "Connection");
    assert_true(connection != NULL && strcasecmp(connection, "close") == 0);
    raw_free(&a);
    assert_int_equal(daemon_wait(d, AT_LAST_MS, NULL), 0);
    raw_close(&busy);
    raw_close(&open_);
    free(url);
}

static void a_second_signal_ends_it_at_once(void **state)
{
    static const int SECOND[] = {SIGTERM, SIGINT};
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        test_daemon *d = daemon_start(COMMAND("serve"));
        raw_conn busy;
        inflight_open(&busy, d);
        assert_true(inflight_post(&busy, INFLIGHT_SDPA, SMALL, 1));
        usleep(50000);
        kill(daemon_pid(d), SIGTERM);
        watch_log_until(d, "\"event\":\"stopping\"");
        usleep(50000);
        end(d, SECOND[i], 128 + SECOND[i], SOON_MS);
        raw_close(&busy);
    }
}

static void the_timeout_cancels_what_still_runs(void **state)
{
    test_daemon *d =
        daemon_start(COMMAND("serve", ONE_THREAD, "--set", "server.shutdown_timeout=200ms"));
    char *heavy = inflight_heavy(150000, 0);
    raw_conn running, waiting, sending;
    (void)state;

    inflight_open(&running, d);
    inflight_open(&waiting, d);
    inflight_open(&sending, d);
    assert_true(inflight_post(&running, INFLIGHT_SDPA, heavy, 0));
    usleep(100000);
    assert_true(inflight_post(&waiting, INFLIGHT_SDPA, heavy, 0));
    assert_true(inflight_post(&sending, INFLIGHT_SDPA, heavy, 10)); /* never sends the rest */
    usleep(50000);
    end(d, SIGTERM, 0, 200 + 2 * SOON_MS);
    raw_conn *told[] = {&running, &waiting};
    for (size_t i = 0; i < 2; i++) {
        raw_answer a = raw_read(told[i], false, 1000);
        if (a.status == 200) /* its first piece had left already */
            assert_false(a.complete);
        else
            assert_int_equal(a.status, 503);
        assert_true(a.status == 200 || raw_header(&a, "Retry-After") != NULL);
        raw_free(&a);
        raw_close(told[i]);
    }
    assert_true(raw_is_closed(&sending, 1000));
    raw_close(&sending);
    free(heavy);
}

/* There signals that have no handler are thrown away. */
static void process_number_one_ends_on_sigterm(void **state)
{
    pid_t one = 0;
    test_daemon *d = daemon_start_as_one(COMMAND("serve"), &one);
    (void)state;

    if (d == NULL) {
        printf("skipped: process number one: unshare may not make a process namespace here\n");
        skip();
    }
    long long begin = raw_now_ms();
    kill(one, SIGTERM);
    assert_int_equal(daemon_wait(d, AT_LAST_MS, NULL), 0);
    assert_in_range(raw_now_ms() - begin, 0, SOON_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_daemon_ends_at_once),
        cmocka_unit_test(what_runs_is_answered_first),
        cmocka_unit_test(what_was_sent_before_the_signal_is_answered),
        cmocka_unit_test(a_draining_daemon_is_not_ready),
        cmocka_unit_test(a_second_signal_ends_it_at_once),
        cmocka_unit_test(the_timeout_cancels_what_still_runs),
        cmocka_unit_test(process_number_one_ends_on_sigterm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What the HTTP layer does over time: slow clients, lost clients, waiting exchanges, shutdown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include "server/log.h"
#include "tests/http_app.h"
#include "tests/rawhttp.h"

#define HOST "Host: localhost\r\n"

static http_app app;

static void start(http_app_options o)
{
    http_app_start(&app, o);
}

static void stop(void)
{
    assert_int_equal(http_app_stop(&app, 2000), 0);
}

static size_t open_files(void)
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}

static void assert_get(const char *target, const char *body, long long within_ms)
{
    char request[128];
    long long began = raw_now_ms();
    (void)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" HOST "\r\n", target);
    raw_answer a = raw_once(app.url, request);
    assert_int_equal(a.status, 200);
    assert_string_equal(a.body, body);
    assert_true(raw_now_ms() - began <= within_ms);
    raw_free(&a);
}

/* --- slow clients --- */

/* The answer is a 408 between from_ms and to_ms after `began`, and then the connection ends. */
static void assert_late(raw_conn *c, long long began, long long from_ms, long long to_ms)
{
    raw_answer a = raw_read(c, false, (int)to_ms);
    long long took = raw_now_ms() - began;
    assert_int_equal(a.status, 408);
    assert_true(a.complete);
    assert_true(took >= from_ms && took <= to_ms);
    assert_non_null(strstr(a.body, "\"code\":\"request_timeout\""));
    assert_string_equal(raw_header(&a, "Content-Type"), "application/problem+json");
    assert_string_equal(raw_header(&a, "Connection"), "close");
    assert_non_null(raw_header(&a, "X-Request-Id"));
    raw_free(&a);
    assert_true(raw_is_closed(c, 100));
}

static void a_slow_header_is_answered_with_408(void **state)
{
    (void)state;
    start((http_app_options){.header_timeout_ms = 500});
    raw_conn c;
    raw_open(&c, app.url);
    long long began = raw_now_ms();
    assert_true(raw_text(&c, "GET / HTTP/1.1\r\n"));
    for (int i = 0; i < 4; i++) { /* never silent, never done */
        (void)usleep(100000);
        assert_true(raw_text(&c, "X-A: b\r\n"));
    }
    assert_late(&c, began, 450, 1500);
    raw_close(&c);
    stop();
}

static void a_slow_second_header_closes_in_silence(void **state)
{
    (void)state;
    start((http_app_options){.header_timeout_ms = 500});
    raw_conn c;
    raw_open(&c, app.url);
    assert_true(raw_text(&c, "GET / HTTP/1.1\r\n" HOST "\r\n"));
    raw_answer a = raw_read(&c, false, 0);
    assert_int_equal(a.status, 200);
    raw_free(&a);
    (void)usleep(800000); /* idle for longer than a header may take: that is no fault */
    assert_true(raw_text(&c, "GET / HTTP/1.1\r\n"));
    assert_false(raw_is_closed(&c, 300));
    a = raw_read(&c, false, 1500);
    assert_int_equal(a.status, 0);
    raw_free(&a);
    assert_true(raw_is_closed(&c, 100));
    raw_close(&c);
    stop();
}

static void a_slow_body_is_answered_with_408(void **state)
{
    (void)state;
    start((http_app_options){.request_timeout_ms = 500});
    for (int trickle = 0; trickle < 2; trickle++) {
        raw_conn c;
        raw_open(&c, app.url);
        long long began = raw_now_ms();
        assert_true(raw_text(&c, "POST /count HTTP/1.1\r\n" HOST
                                 "X-Request-Id: slow\r\nContent-Length: 1000000\r\n\r\n"));
        for (int i = 0; i < 4 * trickle; i++) {
            (void)usleep(100000);
            assert_true(raw_text(&c, "x"));
        }
        assert_late(&c, began, 450, 1500);
        raw_close(&c);
    }
    http_app_settle(&app);
    assert_int_equal(app.last_status, 408);
    assert_int_equal(app.begun, 2);
    assert_int_equal(app.ended, 2);
    stop();
}

static void slow_bodies_do_not_stop_others(void **state)
{
    (void)state;
    enum { SLOW = 200 };
    static raw_conn c[SLOW];
    start((http_app_options){.request_timeout_ms = 1500});
    for (size_t i = 0; i < SLOW; i++) {
        raw_open(&c[i], app.url);
        assert_true(
            raw_text(&c[i], "POST /count HTTP/1.1\r\n" HOST "Content-Length: 1000000\r\n\r\n"));
    }
    long long began = raw_now_ms();
    while (raw_now_ms() - began < 1000) {
        for (size_t i = 0; i < SLOW; i++)
            assert_true(raw_text(&c[i], "x"));
        assert_get("/echo/quick", "quick", 1000);
        (void)usleep(100000);
    }
    for (size_t i = 0; i < SLOW; i++) {
        raw_answer a = raw_read(&c[i], false, 3000);
        assert_int_equal(a.status, 408);
        raw_free(&a);
        assert_true(raw_is_closed(&c[i], 3000));
        raw_close(&c[i]);
    }
    http_app_settle(&app);
    assert_true(raw_now_ms() - began < 4000);
    stop();
}

/* --- exchanges that wait for another thread --- */

typedef struct {
    raw_conn c; /* opened by the main thread: a test may fail there only */
    int rounds;
    size_t good;
} client;

static void *work_client(void *arg)
{
    client *me = arg;
    for (int i = 0; i < me->rounds; i++) {
        int ms = i % 8; /* an even number of ms streams, an odd one is a text */
        (void)raw_text(&me->c,
                       i % 3 == 0 ? "POST /work HTTP/1.1\r\n" HOST
                                    "X-Sleep-Ms: %d\r\nContent-Length: 2\r\n\r\n{}"
                                  : "GET /wait/%d HTTP/1.1\r\n" HOST "\r\n",
                       ms);
        raw_answer a = raw_read(&me->c, false, 0);
        me->good += a.status == 200 && a.complete &&
                    (ms % 2 == 0 ? a.body_bytes == 100000 : strcmp(a.body, "worked") == 0);
        raw_free(&a);
    }
    return NULL;
}

static void suspended_exchanges_are_all_answered(void **state)
{
    (void)state;
    enum { CLIENTS = 16, ROUNDS = 25 };
    static const unsigned threads[] = {1, 3};
    for (size_t t = 0; t < 2; t++) {
        pthread_t thread[CLIENTS];
        client clients[CLIENTS];
        start((http_app_options){.io_threads = threads[t]});
        for (size_t i = 0; i < CLIENTS; i++) {
            clients[i] = (client){.rounds = ROUNDS};
            raw_open(&clients[i].c, app.url);
            assert_int_equal(pthread_create(&thread[i], NULL, work_client, &clients[i]), 0);
        }
        for (size_t i = 0; i < CLIENTS; i++) {
            assert_int_equal(pthread_join(thread[i], NULL), 0);
            raw_close(&clients[i].c);
            assert_int_equal(clients[i].good, ROUNDS);
        }
        http_app_settle(&app);
        assert_int_equal(app.begun, CLIENTS * ROUNDS);
        assert_int_equal(app.observed, CLIENTS * ROUNDS);
        stop();
    }
}

/* --- lost clients --- */

static void a_client_lost_while_suspended_ends_after_resume(void **state)
{
    (void)state;
    start((http_app_options){0});
    for (int i = 0; i < 10; i++) {
        raw_conn c;
        raw_open(&c, app.url);
        assert_true(raw_text(&c, "GET /wait/%d HTTP/1.1\r\n" HOST "\r\n", 100 + i));
        (void)usleep(10000);
        raw_close(&c);
    }
    assert_true(app.ended < 10); /* some wait still */
    http_app_settle(&app);
    assert_int_equal(app.begun, 10);
    assert_int_equal(app.ended, 10);
    assert_get("/echo/next", "next", 1000);
    stop();
}

static void a_client_lost_in_a_stream_costs_nothing(void **state)
{
    (void)state;
    start((http_app_options){0});
    size_t before = 0;
    for (int i = 0; i < 100; i++) {
        raw_conn c;
        char bytes[1000];
        raw_open(&c, app.url);
        assert_true(raw_text(&c, "GET /stream/20000000 HTTP/1.1\r\n" HOST "\r\n"));
        for (size_t got = 0; got < 500;) {
            ssize_t n = read(c.fd, bytes, sizeof bytes);
            got += n > 0 ? (size_t)n : 0;
        }
        raw_close(&c);
        if (i == 10) {
            http_app_settle(&app);
            before = open_files();
        }
    }
    http_app_settle(&app);
    (void)usleep(50000); /* the last sockets are closed after their exchanges */
    assert_true(open_files() <= before);
    assert_int_equal(app.begun, 100);
    assert_int_equal(app.ended, 100);
    assert_get("/echo/next", "next", 1000);
    stop();
}

static void a_client_lost_in_a_body_is_ended(void **state)
{
    (void)state;
    static const char *const starts[] = {
        "POST /count HTTP/1.1\r\n" HOST "Content-Length: 100\r\n\r\nhalf",
        "POST /count HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nab",
        "POST /count HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nzz\r\n", /* malformed */
        "POST /refuse HTTP/1.1\r\n" HOST "Content-Length: 1000\r\n\r\nhalf",
        "POST /count HTTP/1.1\r\n" HOST "Content-Le",
        "POS"};
    start((http_app_options){0});
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        raw_conn c;
        raw_open(&c, app.url);
        assert_true(raw_text(&c, "%s", starts[i]));
        (void)usleep(20000);
        raw_close(&c);
    }
    for (int i = 0; i < 100 && app.ended < 4; i++)
        (void)usleep(10000);
    http_app_settle(&app);
    assert_int_equal(app.begun, 4);
    assert_int_equal(app.ended, 4);
    stop();
}

static void connections_leave_no_descriptor(void **state)
{
    (void)state;
    start((http_app_options){0});
    size_t before = open_files();
    for (int i = 0; i < 200; i++)
        assert_get("/echo/x", "x", 1000);
    for (int i = 0; i < 100 && open_files() > before; i++)
        (void)usleep(10000);
    assert_int_equal(open_files(), before);
    stop();
    start((http_app_options){0});
    assert_int_equal(open_files(), before);
    stop();
}

/* --- a full house --- */

static double cpu_seconds(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void a_full_house_waits_without_spinning(void **state)
{
    (void)state;
    enum { MOST = 4, CLIENTS = 10 };
    raw_conn c[CLIENTS];
    start((http_app_options){.max_connections = MOST});
    for (size_t i = 0; i < CLIENTS; i++) {
        raw_open(&c[i], app.url); /* the backlog takes those that do not fit */
        assert_true(raw_text(&c[i], "GET / HTTP/1.1\r\n" HOST "\r\n"));
    }
    for (size_t i = 0; i < MOST; i++) {
        raw_answer a = raw_read(&c[i], false, 0);
        assert_int_equal(a.status, 200);
        raw_free(&a);
    }
    double before = cpu_seconds();
    raw_answer none = raw_read(&c[MOST], false, 1000);
    assert_int_equal(none.status, 0);
    assert_true(cpu_seconds() - before < 0.2);
    for (size_t i = 0; i < MOST; i++)
        raw_close(&c[i]);
    for (size_t i = MOST; i < CLIENTS; i++) {
        raw_answer a = raw_read(&c[i], false, 2000);
        assert_int_equal(a.status, 200);
        raw_free(&a);
        raw_close(&c[i]);
    }
    stop();
}

/* --- shutdown --- */

static void quiesce_lets_finish_what_runs(void **state)
{
    (void)state;
    enum { CLIENTS = 8 };
    raw_conn c[CLIENTS], idle;
    start((http_app_options){0});
    raw_open(&idle, app.url);
    for (size_t i = 0; i < CLIENTS; i++) {
        raw_open(&c[i], app.url);
        assert_true(raw_text(&c[i], "GET /wait/%zu HTTP/1.1\r\n" HOST "\r\n", 300 + i));
    }
    while (app.begun < CLIENTS)
        (void)usleep(1000);
    assert_int_equal(srv_http_active(app.http), CLIENTS);
    srv_http_quiesce(app.http);
    srv_http_quiesce(app.http); /* once more does no harm */
    assert_int_equal(srv_http_wait(app.http, 50), CLIENTS);

    /* What was connected before is still served, once. */
    assert_true(raw_text(&idle, "GET /echo/late HTTP/1.1\r\n" HOST "\r\n"));
    raw_answer a = raw_read(&idle, false, 0);
    assert_int_equal(a.status, 200);
    assert_string_equal(raw_header(&a, "Connection"), "close");
    raw_free(&a);
    assert_true(raw_is_closed(&idle, 1000));
    raw_close(&idle);

    long long began = raw_now_ms();
    assert_int_equal(http_app_stop(&app, 5000), 0);
    assert_true(raw_now_ms() - began < 2000); /* as soon as none is left */
    for (size_t i = 0; i < CLIENTS; i++) {
        a = raw_read(&c[i], false, 0);
        assert_int_equal(a.status, 200);
        assert_true(a.complete);
        assert_string_equal(raw_header(&a, "Connection"), "close");
        raw_free(&a);
        raw_close(&c[i]);
    }
}

static void nobody_is_let_in_after_quiesce(void **state)
{
    (void)state;
    start((http_app_options){0});
    assert_get("/echo/x", "x", 1000);
    srv_http_quiesce(app.http);
    /* The port is free at once: another server can have it. */
    http_app next;
    char listen[64];
    (void)snprintf(listen, sizeof listen, "%s", strchr(app.url, '/') + 2);
    http_app_start(&next, (http_app_options){.listen = listen});
    assert_int_equal(http_app_stop(&next, 100), 0);
    stop();
}

static void stop_cuts_what_does_not_end(void **state)
{
    (void)state;
    raw_conn slow, waiting;
    start((http_app_options){0});
    raw_open(&slow, app.url);
    raw_open(&waiting, app.url);
    assert_true(raw_text(&slow, "POST /count HTTP/1.1\r\n" HOST "Content-Length: 100\r\n\r\nhalf"));
    assert_true(raw_text(&waiting, "GET /wait/601 HTTP/1.1\r\n" HOST "\r\n"));
    while (app.begun < 2)
        (void)usleep(1000);
    long long began = raw_now_ms();
    /* The suspended one is waited for, whatever the timeout says; the other is cut. */
    size_t cut = http_app_stop(&app, 100);
    assert_true(cut == 1 || cut == 2);
    assert_true(raw_now_ms() - began >= 400 && raw_now_ms() - began < 2000);
    assert_int_equal(app.ended, 2);
    assert_true(raw_is_closed(&slow, 1000));
    assert_true(raw_is_closed(&waiting, 1000));
    raw_close(&slow);
    raw_close(&waiting);
}

static void *hammer(void *arg)
{
    raw_conn *c = arg;
    for (int i = 0; i < 10000; i++) {
        if (!raw_text(c, i % 4 == 0 ? "GET /wait/1 HTTP/1.1\r\n" HOST "\r\n"
                                    : "GET /both HTTP/1.1\r\n" HOST "\r\n"))
            break;
        raw_answer answer = raw_read(c, false, 2000);
        bool last = answer.status == 0 || raw_header(&answer, "Connection") != NULL;
        raw_free(&answer);
        if (last)
            break;
    }
    return NULL;
}

static void stop_under_load_is_clean(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 12; round++) {
        pthread_t thread[6];
        raw_conn c[6];
        start((http_app_options){.io_threads = 1 + round % 3, .max_connections = 5 + round});
        for (size_t i = 0; i < 6; i++) {
            raw_open(&c[i], app.url);
            assert_int_equal(pthread_create(&thread[i], NULL, hammer, &c[i]), 0);
        }
        while (app.begun < 20)
            (void)usleep(1000);
        /* With no time at all, too: what is suspended then must still be resumed. */
        (void)http_app_stop(&app, round % 2 == 0 ? 0 : 500);
        for (size_t i = 0; i < 6; i++) {
            assert_int_equal(pthread_join(thread[i], NULL), 0);
            raw_close(&c[i]);
        }
    }
}

/* The last test: the limit cannot be raised again. */
static void connections_stay_below_the_limit_of_files(void **state)
{
    (void)state;
    struct rlimit limit = {.rlim_cur = 60, .rlim_max = 100};
    char text[1024];
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    assert_true(file != NULL && saved >= 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    (void)dup2(fileno(file), STDERR_FILENO);
    srv_log_init(SRV_LOG_WARN, true);
    start((http_app_options){.max_connections = 1000});
    srv_log_init(SRV_LOG_ERROR, true);
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    assert_non_null(strstr(text, "\"event\":\"limits\",\"max_connections\":50,\"asked\":1000,"
                                 "\"open_files\":100}"));
    assert_get("/echo/x", "x", 1000);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_header_is_answered_with_408),
        cmocka_unit_test(a_slow_second_header_closes_in_silence),
        cmocka_unit_test(a_slow_body_is_answered_with_408),
        cmocka_unit_test(slow_bodies_do_not_stop_others),
        cmocka_unit_test(suspended_exchanges_are_all_answered),
        cmocka_unit_test(a_client_lost_while_suspended_ends_after_resume),
        cmocka_unit_test(a_client_lost_in_a_stream_costs_nothing),
        cmocka_unit_test(a_client_lost_in_a_body_is_ended),
        cmocka_unit_test(connections_leave_no_descriptor),
        cmocka_unit_test(a_full_house_waits_without_spinning),
        cmocka_unit_test(quiesce_lets_finish_what_runs),
        cmocka_unit_test(nobody_is_let_in_after_quiesce),
        cmocka_unit_test(stop_cuts_what_does_not_end),
        cmocka_unit_test(stop_under_load_is_clean),
        cmocka_unit_test(connections_stay_below_the_limit_of_files),
    };
    srv_log_init(SRV_LOG_ERROR, true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

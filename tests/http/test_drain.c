/* Shutdown under load: nobody who is connected is lost, as process number one, too. */
#include "tests/body.h"
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/inflight.h"
#include "tests/scratch.h"
#include "tests/st.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum { CLIENTS = 6, AT_LAST_MS = 60000 };

#define BODY "{\"query\":[[[[1]]]],\"key\":[[[[1]]]],\"value\":[[[[1]]]]}"

/* --- clients of their own, since a failed assertion must not leave a thread --- */

typedef struct {
    const char *url;
    bool keeps; /* its connection, until an answer says that it closes */
    atomic_size_t answered;
    char wrong[200]; /* "" = nothing */
    pthread_t thread;
} client;

static int connect_to(const char *url)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_un local;
    } a = {0};
    socklen_t n = sizeof a.v4;
    unsigned port = 0;

    if (strncmp(url, "unix:", 5) == 0) {
        a.local.sun_family = AF_UNIX;
        n = sizeof a.local;
        (void)snprintf(a.local.sun_path, sizeof a.local.sun_path, "%s", url + 5);
    } else {
        a.v4.sin_family = AF_INET;
        a.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        (void)sscanf(url, "http://127.0.0.1:%u", &port);
        a.v4.sin_port = htons((uint16_t)port);
    }
    int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, &a.any, n) != 0) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

/* Reads one answer; false when it is not complete. */
static bool take(int fd, bool *closes, char *what, size_t size)
{
    char text[4096];
    size_t n = 0;

    for (;;) {
        ssize_t got = recv(fd, text + n, sizeof text - 1 - n, 0);
        if (got <= 0) {
            (void)snprintf(what, size, "%zu bytes, then %s", n,
                           got < 0 ? strerror(errno) : "the end");
            return false;
        }
        n += (size_t)got;
        text[n] = '\0';
        bool last = n > 7 && strcmp(text + n - 7, "\r\n0\r\n\r\n") == 0;
        bool good = strncmp(text, "HTTP/1.1 200 ", 13) == 0;
        if (good ? !last : text[n - 1] != '}') /* only what is good comes in chunks */
            continue;
        *closes = strcasestr(text, "\nConnection: close") != NULL;
        if (!good)
            (void)snprintf(what, size, "%.150s", text);
        return good;
    }
}

/* Asks until nobody listens any more: then, and only then, it may be refused. */
static void *run(void *arg)
{
    static const char request[] =
        "POST " INFLIGHT_SDPA " HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/json\r\nContent-Length: 53\r\n\r\n" BODY;
    client *c = arg;
    int fd = -1;
    _Static_assert(sizeof BODY - 1 == 53, "as it is said above");

    while (c->wrong[0] == '\0') {
        bool closes = false;
        if (fd < 0 && (fd = connect_to(c->url)) < 0)
            return NULL;
        if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) != (ssize_t)sizeof request - 1)
            (void)snprintf(c->wrong, sizeof c->wrong, "cannot send: %s", strerror(errno));
        else if (take(fd, &closes, c->wrong, sizeof c->wrong))
            atomic_fetch_add(&c->answered, 1);
        if (closes || !c->keeps || c->wrong[0] != '\0') {
            (void)close(fd);
            fd = -1;
        }
    }
    return NULL;
}

static void start_clients(client c[CLIENTS], const char *url)
{
    for (size_t i = 0; i < CLIENTS; i++) {
        c[i] = (client){.url = url, .keeps = i % 2 == 0};
        assert_int_equal(pthread_create(&c[i].thread, NULL, run, &c[i]), 0);
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        for (int k = 0; k < 1000 && atomic_load(&c[i].answered) < 3; k++)
            usleep(2000);
    }
}

/* Returns how many answers there were. */
static size_t end_clients(client c[CLIENTS])
{
    size_t answers = 0;
    for (size_t i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_join(c[i].thread, NULL), 0);
        if (c[i].wrong[0] != '\0')
            fail_msg("client %zu, after %zu answers: %s", i, atomic_load(&c[i].answered),
                     c[i].wrong);
        assert_true(atomic_load(&c[i].answered) >= 3);
        answers += atomic_load(&c[i].answered);
    }
    return answers;
}

/* --- under load --- */

static void nobody_who_is_connected_is_lost(void **state)
{
    char *local = st_path("unix:%s", scratch_path("drain.sock"));
    const char *listen[] = {"127.0.0.1:0", local};
    size_t answers = 0;
    (void)state;

    for (int turn = 0; turn < 8; turn++) {
        test_daemon *d = daemon_start(COMMAND("serve", "--listen", listen[turn % 2], "--set",
                                              "log.level=warn", "--set", "server.io_threads=4"));
        client c[CLIENTS];
        char *url = strdup(daemon_url(d));
        start_clients(c, url);
        kill(daemon_pid(d), SIGTERM);
        int code = daemon_wait(d, AT_LAST_MS, NULL);
        answers += end_clients(c);
        assert_int_equal(code, 0);
        free(url);
    }
    printf("%zu answers, then 8 times nobody\n", answers);
    free(local);
}

static void process_number_one_loses_nobody(void **state)
{
    client c[CLIENTS];
    pid_t one = 0;
    test_daemon *d = daemon_start_as_one(
        COMMAND("serve", "--set", "log.level=warn", "--set", "server.shutdown_delay=200ms"), &one);
    (void)state;

    if (d == NULL) {
        printf("skipped: process number one: unshare may not make a process namespace here\n");
        skip();
    }
    char *url = strdup(daemon_url(d));
    start_clients(c, url);
    kill(one, SIGTERM);
    assert_int_equal(daemon_wait(d, AT_LAST_MS, NULL), 0);
    (void)end_clients(c);
    free(url);
}

/* --- the delay --- */

static void new_clients_are_served_for_the_delay(void **state)
{
    test_daemon *d = daemon_start(COMMAND("serve", "--set", "server.shutdown_delay=1s"));
    char *url = strdup(daemon_url(d));
    raw_conn before, after;
    (void)state;

    inflight_open(&before, d);
    long long begin = raw_now_ms();
    kill(daemon_pid(d), SIGTERM);
    kill(daemon_pid(d), SIGHUP); /* is for a daemon that goes on */
    raw_answer a = {0};
    do {
        raw_free(&a);
        raw_open(&after, url);
        a = inflight_get(&after, "/health/ready");
        if (a.status == 200)
            raw_close(&after);
    } while (a.status == 200);
    assert_true(raw_now_ms() - begin < 500);
    assert_int_equal(a.status, 503);
    assert_non_null(strstr(a.body, "\"code\":\"draining\""));
    assert_string_equal(raw_header(&a, "Connection"), "close");
    raw_free(&a);
    raw_close(&after);

    raw_open(&after, url); /* new, and old */
    raw_conn *both[] = {&after, &before};
    for (size_t i = 0; i < 2; i++) {
        assert_true(inflight_post(both[i], INFLIGHT_SDPA, BODY, 0));
        a = raw_read(both[i], false, 10000);
        assert_int_equal(a.status, 200);
        assert_string_equal(raw_header(&a, "Connection"), "close");
        raw_free(&a);
        assert_true(raw_is_closed(both[i], 1000));
        raw_close(both[i]);
    }
    assert_int_equal(daemon_wait(d, AT_LAST_MS, NULL), 0);
    assert_true(raw_now_ms() - begin >= 1000);
    free(url);
}

static void a_second_signal_ends_the_delay_and_all(void **state)
{
    test_daemon *d = daemon_start(COMMAND("serve", "--set", "server.shutdown_delay=1min"));
    raw_conn c;
    (void)state;

    inflight_open(&c, d);
    kill(daemon_pid(d), SIGINT);
    usleep(100000);
    long long begin = raw_now_ms();
    kill(daemon_pid(d), SIGTERM);
    assert_int_equal(daemon_wait(d, AT_LAST_MS, NULL), 128 + SIGTERM);
    assert_true(raw_now_ms() - begin < 1000);
    raw_close(&c);
}

/* A pipe that nobody reads as the log must not stop the service, nor its end. */
static void a_log_that_nobody_reads_holds_nothing_up(void **state)
{
    const char *program = getenv("ATTND");
    char *attnd = strdup(program != NULL && *program ? program : "build/attnd");
    int fd[2];
    (void)state;

    assert_int_equal(pipe(fd), 0);
    char *script = st_path("exec '%s' serve --listen 127.0.0.1:0 2>&%d", attnd, fd[1]);
    setenv("ATTND", "/bin/sh", 1);
    test_daemon *d = daemon_start(COMMAND("-c", script, "sh", "--listen"));
    setenv("ATTND", attnd, 1);
    (void)close(fd[1]);
    for (int i = 0; i < 400; i++) { /* some 500 bytes each */
        test_reply r = daemon_request(d, "GET", "/v1/models", NULL, NULL, 0);
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
    test_reply r = daemon_request(d, "GET", "/metrics", NULL, NULL, 0);
    const char *lost = strstr(r.body, "\nattnd_log_lines_lost_total ");
    assert_true(lost != NULL && atol(lost + 28) > 50);
    reply_free(&r);
    daemon_stop(d);
    (void)close(fd[0]);
    free(script);
    free(attnd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_who_is_connected_is_lost),
        cmocka_unit_test(process_number_one_loses_nobody),
        cmocka_unit_test(new_clients_are_served_for_the_delay),
        cmocka_unit_test(a_second_signal_ends_the_delay_and_all),
        cmocka_unit_test(a_log_that_nobody_reads_holds_nothing_up),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

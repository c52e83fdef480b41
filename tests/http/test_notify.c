/* What the service manager hears of the daemon and passes to it. */
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/inflight.h"
#include "tests/scratch.h"
#include "tests/st.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* --- the manager's socket --- */

/* Binds a datagram socket and names it in NOTIFY_SOCKET; "@..." is abstract. */
static int manager(const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0 && strlen(name) < sizeof a.sun_path);
    memcpy(a.sun_path, name, strlen(name));
    if (name[0] == '@')
        a.sun_path[0] = '\0';
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    setenv("NOTIFY_SOCKET", name, 1);
    return fd;
}

static void no_manager(int fd)
{
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    (void)close(fd);
}

/* The next message; "" = none within the time. */
static const char *heard(int fd, int timeout_ms)
{
    static char text[2048];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ssize_t n = poll(&p, 1, timeout_ms) == 1 ? recv(fd, text, sizeof text - 1, 0) : 0;

    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void expect(int fd, const char *message)
{
    const char *text = heard(fd, 20000);
    if (strcmp(text, message) != 0)
        fail_msg("heard \"%s\", not \"%s\"", text, message);
}

static char *ready_message(const test_daemon *d)
{
    return st_path("READY=1\nSTATUS=serving on %s", daemon_url(d));
}

static void the_manager_hears_of_start_reload_and_end(void **state)
{
    const char *names[] = {scratch_path("notify"), "@attnd-test-notify"};
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        int fd = manager(names[i]);
        test_daemon *d = daemon_start(COMMAND("serve"));
        char *ready = ready_message(d);
        unsigned long long us = 0;
        struct timespec now;

        expect(fd, "STATUS=loading models");
        expect(fd, ready);
        kill(daemon_pid(d), SIGHUP);
        const char *text = heard(fd, 20000);
        assert_int_equal(sscanf(text, "RELOADING=1\nMONOTONIC_USEC=%llu\nSTATUS=reloading", &us),
                         1);
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        unsigned long long now_us =
            (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
        assert_in_range(now_us - us, 0, 20000000);
        expect(fd, "READY=1\nSTATUS=serving");
        kill(daemon_pid(d), SIGTERM);
        expect(fd, "STOPPING=1\nSTATUS=finishing what runs");
        assert_int_equal(daemon_wait(d, 60000, NULL), 0);
        assert_string_equal(heard(fd, 0), ""); /* nobody asked for WATCHDOG=1 */
        free(ready);
        no_manager(fd);
    }
}

static void a_failed_reload_is_in_the_status(void **state)
{
    static const st_native shape = {.d_model = 8, .num_heads = 1, .num_kv_heads = 1, .head_dim = 8};
    char *model = strdup(scratch_path("odd\nWATCHDOG=1")),
         *config = st_path("%s/config.json", model);
    char *argument = st_path("m=%s", model);
    (void)state;

    st_write_random(model, &shape, 1);
    int fd = manager(scratch_path("notify2"));
    test_daemon *d = daemon_start(COMMAND("serve", "--model", argument));
    char *ready = ready_message(d);
    expect(fd, "STATUS=loading models");
    expect(fd, ready);
    st_write_text(config, "{");
    kill(daemon_pid(d), SIGHUP);
    (void)heard(fd, 20000);
    const char *text = heard(fd, 20000);
    assert_memory_equal(text, "READY=1\nSTATUS=serving; not reloaded: ", 38);
    assert_non_null(strstr(text, "config.json"));
    assert_null(strchr(text + 8, '\n')); /* the file's name begins no line of its own */
    daemon_stop(d);
    no_manager(fd);
    free(ready);
    free(argument);
    free(config);
    free(model);
}

static void the_watchdog_hears_twice_as_often_as_it_must(void **state)
{
    int fd = manager(scratch_path("notify3"));
    size_t beats = 0;
    (void)state;

    setenv("WATCHDOG_USEC", "400000", 1);
    test_daemon *d = daemon_start(COMMAND("serve", "--set", "compute.threads=1"));
    char *ready = ready_message(d), *heavy = inflight_heavy(12000, 0);
    raw_conn c;

    expect(fd, "STATUS=loading models");
    expect(fd, ready);
    inflight_open(&c, d);
    assert_true(inflight_post(&c, INFLIGHT_SDPA, heavy, 0)); /* at work, too */
    long long end = raw_now_ms() + 2000;
    while (raw_now_ms() < end) {
        const char *text = heard(fd, 2000);
        assert_string_equal(text, "WATCHDOG=1");
        beats++;
    }
    assert_in_range(beats, 5, 14);
    raw_close(&c);
    daemon_stop(d);

    setenv("WATCHDOG_PID", "1", 1); /* it is somebody else's */
    d = daemon_start(COMMAND("serve"));
    free(ready);
    ready = ready_message(d);
    while (strcmp(heard(fd, 20000), ready) != 0)
        ;
    assert_string_equal(heard(fd, 700), "");
    daemon_stop(d);
    no_manager(fd);
    free(ready);
    free(heavy);
}

static void what_is_no_manager_is_left_alone(void **state)
{
    static const char *const odd[] = {"", "/", "relative", "/nowhere/at/all", "@nobody-listens"};
    (void)state;

    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        setenv("NOTIFY_SOCKET", odd[i], 1);
        setenv("WATCHDOG_USEC", "nonsense", 1);
        daemon_stop(daemon_start(COMMAND("serve")));
    }
    no_manager(-1);
}

/* --- sockets that are passed --- */

enum { FIRST_PASSED = 3 };

/* Descriptors that a child inherits, from FIRST_PASSED on; whatever was there comes back with passed_end(). */
typedef struct {
    int saved[2];
    size_t n;
} passing;

static passing pass(const int *fds, size_t n)
{
    passing p = {.n = n};
    char text[16];
    int above[2];

    for (size_t i = 0; i < n; i++) { /* out of the way first */
        above[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 100);
        assert_true(above[i] >= 100);
    }
    for (size_t i = 0; i < n; i++) {
        int at = FIRST_PASSED + (int)i;
        p.saved[i] = fcntl(at, F_DUPFD_CLOEXEC, 200);
        assert_int_equal(dup2(above[i], at), at);
        (void)close(above[i]);
    }
    (void)snprintf(text, sizeof text, "%zu", n);
    setenv("LISTEN_FDS", text, 1);
    return p;
}

static void passed_end(passing *p)
{
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_PID");
    for (size_t i = 0; i < p->n; i++) {
        int at = FIRST_PASSED + (int)i;
        (void)close(at);
        if (p->saved[i] < 0)
            continue;
        (void)dup2(p->saved[i], at);
        (void)fcntl(at, F_SETFD, FD_CLOEXEC);
        (void)close(p->saved[i]);
    }
}

/* LISTEN_PID is the daemon's own number, which only a shell in its place knows. */
static test_daemon *start_as(const char *listen_pid)
{
    const char *program = getenv("ATTND");
    char *attnd = strdup(program != NULL && *program ? program : "build/attnd");
    char *script = st_path("LISTEN_PID=%s; export LISTEN_PID; exec '%s' serve", listen_pid, attnd);

    setenv("ATTND", "/bin/sh", 1);
    /* The words behind the script are the shell's own, "--listen" among them: none is added then. */
    test_daemon *d = daemon_start(COMMAND("-c", script, "sh", "--listen"));
    setenv("ATTND", attnd, 1);
    free(script);
    free(attnd);
    return d;
}

static int tcp_socket(unsigned *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

static void passed_sockets_are_served_and_outlive_the_daemon(void **state)
{
    const char *path = scratch_path("passed.sock");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    unsigned port = 0;
    int fds[2] = {tcp_socket(&port), socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    char *url = st_path("http://127.0.0.1:%u", port);
    raw_conn early;
    (void)state;

    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    assert_int_equal(bind(fds[1], (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fds[1], 16), 0);
    raw_open(&early, url); /* before there is a daemon: it waits in the socket */
    assert_true(raw_text(&early, "GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    for (int i = 0; i < 2; i++) { /* the next daemon takes them over */
        passing p = pass(fds, 2);
        test_daemon *d = start_as("$$");
        passed_end(&p);
        assert_string_equal(daemon_url(d), url);
        raw_answer answer = raw_read(&early, false, 20000);
        assert_int_equal(answer.status, 200);
        raw_free(&answer);
        raw_close(&early);

        int fd = socket(AF_UNIX, SOCK_STREAM, 0); /* the other one */
        static const char ask[] = "GET /health/ready HTTP/1.0\r\n\r\n";
        char text[16] = "";
        assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
        assert_int_equal(send(fd, ask, sizeof ask - 1, 0), sizeof ask - 1);
        assert_true(recv(fd, text, sizeof text - 1, MSG_WAITALL) == sizeof text - 1);
        assert_non_null(strstr(text, " 200 "));
        (void)close(fd);

        daemon_stop(d);
        raw_open(&early, url); /* nobody is refused in between */
        assert_true(raw_text(&early, "GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    }
    raw_close(&early);
    assert_int_equal(access(path, F_OK), 0); /* the manager's file stays */
    (void)close(fds[0]);
    (void)close(fds[1]);
    free(url);
}

static void sockets_for_another_process_are_not_taken(void **state)
{
    unsigned port = 0;
    int fd = tcp_socket(&port);
    char *url = st_path("http://127.0.0.1:%u", port);
    passing p = pass(&fd, 1);
    (void)state;

    setenv("LISTEN_PID", "1", 1);
    test_daemon *d = daemon_start(COMMAND("serve"));
    assert_string_not_equal(daemon_url(d), url);
    daemon_stop(d);
    passed_end(&p);
    (void)close(fd);
    free(url);
}

static void what_does_not_listen_is_refused(void **state)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const char *program = getenv("ATTND");
    char *attnd = strdup(program != NULL && *program ? program : "build/attnd"), *err = NULL;
    char *script = st_path("LISTEN_PID=$$; export LISTEN_PID; exec '%s' serve", attnd);
    (void)state;

    passing p = pass(&fd, 1);
    setenv("ATTND", "/bin/sh", 1);
    int code = daemon_run(COMMAND("-c", script), NULL, &err);
    setenv("ATTND", attnd, 1);
    passed_end(&p);
    assert_int_equal(code, 1);
    assert_non_null(strstr(err, "attnd: descriptor 3, passed by LISTEN_FDS, is not a socket"));
    (void)close(fd);
    free(err);
    free(script);
    free(attnd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_manager_hears_of_start_reload_and_end),
        cmocka_unit_test(a_failed_reload_is_in_the_status),
        cmocka_unit_test(the_watchdog_hears_twice_as_often_as_it_must),
        cmocka_unit_test(what_is_no_manager_is_left_alone),
        cmocka_unit_test(passed_sockets_are_served_and_outlive_the_daemon),
        cmocka_unit_test(sockets_for_another_process_are_not_taken),
        cmocka_unit_test(what_does_not_listen_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

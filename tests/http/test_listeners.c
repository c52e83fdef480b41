/* Where the daemon listens: several addresses at once, unix sockets, and what is left of them. */
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/http_app.h"
#include "tests/rawhttp.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/log.h"

#define GET "GET /health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

/* "unix:DIR/name"; the last one stays valid. */
static const char *address(const char *name)
{
    static char text[200];
    (void)snprintf(text, sizeof text, "unix:%s", scratch_path(name));
    return text;
}

static void assert_status(const char *url, const char *request, int status)
{
    raw_answer a = raw_once(url, request);
    assert_int_equal(a.status, status);
    raw_free(&a);
}

static void a_unix_socket_is_served_and_removed(void **state)
{
    (void)state;
    struct stat st;
    const char *listen = address("a.sock");
    mode_t before = umask(0077);
    test_daemon *d = daemon_start(COMMAND("serve", "--listen", listen));
    (void)umask(before);
    assert_string_equal(daemon_url(d), listen);
    assert_int_equal(stat(scratch_path("a.sock"), &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 07777, 0660);
    test_reply r = daemon_request(d, "GET", "/v1/models", NULL, NULL, 0);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    /* A proxy in front hands on whatever Host its clients have sent. */
    assert_status(listen, "GET /health/live HTTP/1.1\r\nHost: any.example\r\n\r\n", 200);
    assert_status(listen, "GET /health/live HTTP/1.1\r\n\r\n", 400);
    test_command c = command_succeed(COMMAND("healthcheck", "--url", listen));
    command_free(&c);
    char below[220];
    (void)snprintf(below, sizeof below, "%s:/nowhere", listen);
    command_refuse(COMMAND("healthcheck", "--url", below), 1, COMMAND("404"));
    assert_int_equal(setenv("ATTND_SERVER_LISTEN", listen, 1), 0);
    c = command_succeed(COMMAND("healthcheck"));
    command_free(&c);
    assert_int_equal(unsetenv("ATTND_SERVER_LISTEN"), 0);
    command_refuse(COMMAND("healthcheck", "--listen", "127.0.0.1:0"), 1, COMMAND("--url"));
    daemon_stop(d);
    assert_int_not_equal(access(scratch_path("a.sock"), F_OK), 0);
}

/* A socket whose process ended without a word. */
static void leave_behind(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0 && strlen(path) < sizeof a.sun_path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(access(path, F_OK), 0);
}

static void a_socket_left_behind_is_replaced(void **state)
{
    (void)state;
    leave_behind(scratch_path("old.sock"));
    test_daemon *d = daemon_start(COMMAND("serve", "--listen", address("old.sock")));
    assert_status(daemon_url(d), GET, 200);
    daemon_stop(d);
}

static void what_is_in_use_or_no_socket_is_left_alone(void **state)
{
    (void)state;
    const char *file = scratch_write("file", "x", 1);
    test_daemon *d = daemon_start(COMMAND("serve", "--listen", address("used.sock")));
    command_refuse(COMMAND("serve", "--listen", address("used.sock")), 1,
                   COMMAND("used.sock", "another process listens there"));
    assert_status(daemon_url(d), GET, 200);
    daemon_stop(d);
    command_refuse(COMMAND("serve", "--listen", address("file")), 1, COMMAND("no socket"));
    assert_int_equal(access(file, F_OK), 0);
    command_refuse(COMMAND("serve", "--listen", address("none/a.sock")), 1,
                   COMMAND("none/a.sock", "No such file or directory"));
}

static void a_socket_of_another_is_not_removed(void **state)
{
    (void)state;
    const char *path = scratch_path("mine.sock");
    test_daemon *d = daemon_start(COMMAND("serve", "--listen", address("mine.sock")));
    assert_int_equal(unlink(path), 0);
    leave_behind(path);
    daemon_stop(d);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(unlink(path), 0);
}

static void all_listeners_serve_and_the_first_is_named(void **state)
{
    (void)state;
    char *more = NULL;
    test_daemon *d = daemon_start(COMMAND("serve", "--listen", "127.0.0.1:0", "--listen",
                                          address("b.sock"), "--listen", "127.0.0.1:0"));
    assert_memory_equal(daemon_url(d), "http://127.0.0.1:", 17);
    assert_status(daemon_url(d), GET, 200);
    assert_status(address("b.sock"), GET, 200);

    char *log = daemon_log(d), url[64];
    const char *third = strstr(log, "\"url\":\"http://127.0.0.1:");
    assert_non_null(third);
    assert_int_equal(sscanf(third, "\"url\":\"%63[^\"]", url), 1);
    assert_string_not_equal(url, daemon_url(d));
    assert_status(url, GET, 200);
    free(log);

    assert_int_equal(kill(daemon_pid(d), SIGTERM), 0);
    assert_int_equal(daemon_wait(d, 20000, &more), 0);
    assert_string_equal(more, "");
    free(more);
}

static void one_listener_that_fails_closes_the_others(void **state)
{
    (void)state;
    command_refuse(COMMAND("serve", "--listen", address("c.sock"), "--listen", "203.0.113.7:0"), 1,
                   COMMAND("203.0.113.7:0"));
    assert_int_not_equal(access(scratch_path("c.sock"), F_OK), 0);
}

static void quiesce_closes_every_listener(void **state)
{
    (void)state;
    http_app app;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *path = scratch_path("d.sock");
    http_app_start(&app, (http_app_options){.also_listen = address("d.sock")});
    srv_http_quiesce(app.http);
    assert_int_not_equal(access(path, F_OK), 0);
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_not_equal(connect(fd, (const struct sockaddr *)&a, sizeof a), 0);
    (void)close(fd);
    assert_int_equal(http_app_stop(&app, 1000), 0);
}

static void loopback_beside_an_open_address_takes_any_host(void **state)
{
    (void)state;
    http_app app;
    static const char foreign[] = "GET / HTTP/1.1\r\nHost: any.example\r\n\r\n";
    http_app_start(&app, (http_app_options){.also_listen = "0.0.0.0:0"});
    assert_status(app.url, foreign, 200);
    assert_int_equal(http_app_stop(&app, 1000), 0);
    http_app_start(&app, (http_app_options){.also_listen = address("e.sock")});
    assert_status(app.url, foreign, 403);
    assert_status(app.url, "GET / HTTP/1.1\r\nHost:\r\n\r\n", 403);
    assert_status(address("e.sock"), foreign, 200);
    assert_int_equal(http_app_stop(&app, 1000), 0);
}

static void kserve_starts_it_by_its_own_flags(void **state)
{
    (void)state;
    const char *folder = scratch_path("models");
    test_command made = command_succeed(COMMAND("demo", folder));
    command_free(&made);
    /* With --http_port the harness would add a --listen of its own, so that one is counted, too. */
    test_daemon *d = daemon_start(COMMAND("serve", "--model_name=iris", "--model_dir", folder,
                                          "--http_port", "0", "--listen", address("k.sock")));
    assert_memory_equal(daemon_url(d), "http://0.0.0.0:", 15);
    test_reply r = daemon_request(d, "GET", "/v2/models/iris/ready", NULL, NULL, 0);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    daemon_stop(d);
}

static void a_bad_address_is_one_sentence(void **state)
{
    (void)state;
    http_app app;
    http_app_start(&app, (http_app_options){0});
    const struct {
        const char *listen;
        attn_status rc;
    } table[] = {{"8080", ATTN_EINVAL},
                 {":8080", ATTN_EINVAL},
                 {"127.0.0.1:", ATTN_EINVAL},
                 {"::1:80", ATTN_EINVAL},
                 {"127.0.0.1:x", ATTN_EINVAL},
                 {"127.0.0.1:65536", ATTN_EINVAL},
                 {"127.0.0.1:99999999", ATTN_EINVAL},
                 {"", ATTN_EINVAL},
                 {"203.0.113.7:0", ATTN_EIO},           /* an address that is not ours */
                 {strchr(app.url, '/') + 2, ATTN_EIO}}; /* taken */
    for (size_t i = 0; i < (sizeof table / sizeof *table); i++) {
        srv_http *h = NULL;
        attn_error err = {0};
        srv_http_options o = {
            .listen = &table[i].listen, .num_listen = 1, .io_threads = 1, .max_connections = 8};
        assert_int_equal(srv_http_start(&h, &o, &err), table[i].rc);
        assert_null(h);
        assert_non_null(strstr(err.text, "cannot listen on "));
        assert_non_null(strstr(err.text, table[i].listen));
        assert_null(strchr(err.text, '\n'));
        if (i == (sizeof table / sizeof *table) - 1)
            assert_non_null(strstr(err.text, "in use"));
    }
    assert_int_equal(http_app_stop(&app, 2000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_address_is_one_sentence),
        cmocka_unit_test(a_unix_socket_is_served_and_removed),
        cmocka_unit_test(a_socket_left_behind_is_replaced),
        cmocka_unit_test(what_is_in_use_or_no_socket_is_left_alone),
        cmocka_unit_test(a_socket_of_another_is_not_removed),
        cmocka_unit_test(all_listeners_serve_and_the_first_is_named),
        cmocka_unit_test(one_listener_that_fails_closes_the_others),
        cmocka_unit_test(quiesce_closes_every_listener),
        cmocka_unit_test(loopback_beside_an_open_address_takes_any_host),
        cmocka_unit_test(kserve_starts_it_by_its_own_flags),
    };
    srv_log_init(SRV_LOG_ERROR, true);
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

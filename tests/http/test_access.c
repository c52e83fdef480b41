/* API keys: which routes want one, how it is sent, and what a stranger gets. */
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/rawhttp.h"
#include "tests/scratch.h"
#include "tests/watch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/access.h"
#include "server/app.h"
#include "server/log.h"

#define KEY   "sesame-open-1"
#define OTHER "sesame-open-2"

static test_daemon *daemon_;

static const char *keys_option(const char *name, const char *text)
{
    static char option[300];
    (void)snprintf(option, sizeof option, "auth.keys_file=%s",
                   scratch_write(name, text, strlen(text)));
    return option;
}

static int start(void **state)
{
    if (scratch_setup(state) != 0)
        return -1;
    daemon_ = daemon_start(
        COMMAND("serve", "--set", keys_option("keys", "# two\n" KEY "\n" OTHER " # second\n")));
    return 0;
}

static int stop(void **state)
{
    daemon_stop(daemon_);
    return scratch_teardown(state);
}

/* One request with this header field, "" for none; checks status and challenge. */
static void expect(const test_daemon *d, const char *line, const char *field, int status)
{
    char request[2048];
    (void)snprintf(request, sizeof request,
                   "%s HTTP/1.1\r\nHost: localhost\r\n%s%sConnection: close\r\n\r\n", line, field,
                   field[0] != '\0' ? "\r\n" : "");
    raw_answer a = raw_once(daemon_url(d), request);
    if (a.status != status)
        fail_msg("%s, %s: %d, expected %d", line, field, a.status, status);
    const char *challenge = raw_header(&a, "WWW-Authenticate");
    if (status == 401) {
        assert_non_null(challenge);
        assert_string_equal(challenge, "Bearer");
        assert_string_equal(raw_header(&a, "Content-Type"), "application/problem+json");
        assert_non_null(strstr(a.body, "\"code\":\"unauthorized\""));
        assert_null(strstr(a.body, "sesame"));
    } else {
        assert_null(challenge);
    }
    raw_free(&a);
}

static void a_key_comes_as_bearer_or_in_its_own_field(void **state)
{
    (void)state;
    static const char *const good[] = {
        "Authorization: Bearer " KEY,
        "Authorization: Bearer " OTHER,
        "authorization: bearer   " KEY,
        "X-API-Key: " KEY,
        "x-api-key: " OTHER,
        "X-API-Key: " KEY "\r\nAuthorization: Basic c2VzYW1l",
        "X-API-Key: wrong\r\nAuthorization: Bearer " KEY,
    };
    static const char *const bad[] = {
        "",
        "Authorization: Bearer",
        "Authorization: Bearer wrong",
        "Authorization: " KEY,
        "Authorization: Bearer " KEY "x",
        "Authorization: Bearer sesame-open-",
        "Authorization: Bearer " KEY " " OTHER,
        "Authorization: Basic " KEY,
        "Authorization: Bearer Bearer " KEY,
        "X-API-Key: SESAME-OPEN-1",
        "X-API-Key:",
        "X-API-Key: wrong\r\nX-API-Key: " KEY,
        "Authorization: Bearer wrong\r\nAuthorization: Bearer " KEY,
        "Cookie: key=" KEY,
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        expect(daemon_, "GET /v1/models", good[i], 200);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect(daemon_, "GET /v1/models", bad[i], 401);
    expect(daemon_, "GET /v1/models?key=" KEY, "", 401);
}

/* Every route of the table, so that a new one cannot be forgotten. */
static void all_routes_but_health_and_pages_want_a_key(void **state)
{
    (void)state;
    srv_route_table table;
    size_t wanted = 0;
    srv_routes(&table, (srv_parts){.metrics = true, .docs = true, .ui = true});
    for (size_t i = 0; i < table.n; i++) {
        const srv_route *r = &table.routes[i];
        bool open = strstr(r->path, "/health/") != NULL || strcmp(r->path, "/") == 0 ||
                    strncmp(r->path, "/ui/", 4) == 0 || strncmp(r->path, "/docs", 5) == 0 ||
                    strcmp(r->path, "/openapi.json") == 0;
        char line[256];
        size_t n = (size_t)snprintf(line, sizeof line, "%s ", r->method);
        for (const char *p = r->path; *p != '\0'; p++) { /* {model} and its like become "demo" */
            if (*p == '{') {
                n += (size_t)snprintf(line + n, sizeof line - n, "demo");
                p = strchr(p, '}');
            } else {
                line[n++] = *p;
            }
        }
        line[n] = '\0';
        wanted += !open;
        if (!open)
            expect(daemon_, line, "", 401);
        else if (strchr(r->path, '{') == NULL)
            expect(daemon_, line, "", 200);
    }
    assert_true(wanted >= 10);
}

static void spelling_a_path_otherwise_opens_nothing(void **state)
{
    (void)state;
    expect(daemon_, "GET /v%31/models", "", 401);
    expect(daemon_, "GET /%76%32/models/demo", "", 401);
    expect(daemon_, "GET http://localhost/v1/models", "", 401);
    expect(daemon_, "GET /v1/models/nothing", "", 401); /* nor does it tell what is there */
    expect(daemon_, "GET //v1/models", "", 404);
    expect(daemon_, "OPTIONS /v1/models", "", 204);
    expect(daemon_, "DELETE /v1/models", "", 405);
}

static void metrics_may_be_left_open(void **state)
{
    (void)state;
    expect(daemon_, "GET /metrics", "", 401);
    expect(daemon_, "GET /metrics", "X-API-Key: " KEY, 200);
    test_daemon *d = daemon_start(COMMAND("serve", "--set", keys_option("one", KEY "\n"), "--set",
                                          "auth.protect_metrics=false"));
    expect(d, "GET /metrics", "", 200);
    expect(d, "GET /v1/models", "", 401);
    daemon_stop(d);
}

static void a_stranger_is_answered_before_the_body(void **state)
{
    (void)state;
    static const char *const heads[] = {"Content-Length: 200000000\r\n",
                                        "Transfer-Encoding: chunked\r\n",
                                        "Content-Length: 20\r\nExpect: 100-continue\r\n"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        raw_conn c;
        raw_open(&c, daemon_url(daemon_));
        assert_true(raw_text(&c,
                             "POST /v1/models/demo/attention HTTP/1.1\r\nHost: localhost\r\n"
                             "Content-Type: application/json\r\n%s\r\n",
                             heads[i]));
        raw_answer a = raw_read(&c, false, 2000);
        assert_int_equal(a.status, 401);
        assert_true(a.complete);
        assert_string_equal(raw_header(&a, "WWW-Authenticate"), "Bearer");
        assert_string_equal(raw_header(&a, "Connection"), "close");
        raw_free(&a);
        assert_true(raw_is_closed(&c, 5000));
        raw_close(&c);
    }
    /* A small body is read first, and the connection stays. */
    raw_conn c;
    raw_open(&c, daemon_url(daemon_));
    for (int i = 0; i < 2; i++) {
        assert_true(raw_text(&c, "POST /v1/models/demo/attention HTTP/1.1\r\nHost: localhost\r\n"
                                 "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"));
        raw_answer a = raw_read(&c, false, 2000);
        assert_int_equal(a.status, 401);
        raw_free(&a);
    }
    raw_close(&c);
}

static void the_log_holds_no_key(void **state)
{
    (void)state;
    test_daemon *d = daemon_start(
        COMMAND("serve", "--set", keys_option("logged", KEY "\n"), "--set", "log.level=debug"));
    expect(d, "GET /v1/models", "X-API-Key: " KEY, 200);
    expect(d, "GET /v1/models", "Authorization: Bearer sesame-wrong", 401);
    watch_log_until(d, "\"status\":401");
    assert_false(watch_log_has(d, "sesame"));
    daemon_stop(d);
}

static void without_keys_it_does_not_start(void **state)
{
    (void)state;
    char absent[300];
    (void)snprintf(absent, sizeof absent, "auth.keys_file=%s", scratch_path("absent"));
    command_refuse(COMMAND("serve", "--set", absent), 1, COMMAND("absent", "No such file"));
    command_refuse(COMMAND("check", "--set", absent), 1, COMMAND("absent", "No such file"));
    command_refuse(COMMAND("serve", "--set", keys_option("empty", "# none\n")), 1,
                   COMMAND("empty", "no key"));
    command_refuse(COMMAND("serve", "--set", keys_option("broken", "sesame two\n")), 1,
                   COMMAND("broken", "line 1"));
}

static bool knows(srv_access *a, const char *key)
{
    return srv_access_knows(a, key, strlen(key));
}

static void reloading_takes_new_keys_and_keeps_the_old_on_failure(void **state)
{
    (void)state;
    const char *path = scratch_write("reload", KEY "\n", sizeof KEY);
    const srv_access_options o = {.keys_file = path};
    srv_access *a = NULL;
    attn_error err = {0};
    assert_int_equal(srv_access_new(&a, &o, &err), ATTN_OK);
    assert_true(srv_access_has_keys(a));
    assert_true(knows(a, KEY));
    assert_false(knows(a, OTHER));

    (void)scratch_write("reload", OTHER "\n", sizeof OTHER);
    assert_int_equal(srv_access_reload(a, &err), ATTN_OK);
    assert_true(knows(a, OTHER));
    assert_false(knows(a, KEY));

    (void)scratch_write("reload", "\n", 1);
    assert_int_equal(srv_access_reload(a, NULL), ATTN_EFORMAT);
    assert_true(knows(a, OTHER));
    srv_access_free(a);

    assert_int_equal(srv_access_new(&a, &(srv_access_options){.keys_file = ""}, &err), ATTN_OK);
    assert_false(srv_access_has_keys(a));
    assert_false(knows(a, ""));
    assert_int_equal(srv_access_reload(a, &err), ATTN_OK);
    srv_access_free(a);
    srv_access_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_comes_as_bearer_or_in_its_own_field),
        cmocka_unit_test(all_routes_but_health_and_pages_want_a_key),
        cmocka_unit_test(spelling_a_path_otherwise_opens_nothing),
        cmocka_unit_test(metrics_may_be_left_open),
        cmocka_unit_test(a_stranger_is_answered_before_the_body),
        cmocka_unit_test(the_log_holds_no_key),
        cmocka_unit_test(without_keys_it_does_not_start),
        cmocka_unit_test(reloading_takes_new_keys_and_keeps_the_old_on_failure),
    };
    srv_log_init(SRV_LOG_ERROR, true);
    return cmocka_run_group_tests(tests, start, stop);
}

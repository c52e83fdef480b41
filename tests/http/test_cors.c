/* Pages of other origins, prefixes and host names: what a daemon behind a name of its own must get right. */
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/rawhttp.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cmocka.h>

#include "server/app.h"
#include "server/assets.h"
#include "server/log.h"

#define PAGE    "https://page.example"
#define OTHER   "http://localhost:3000"
#define ORIGIN  "Origin: " PAGE "\r\n"
#define FOREIGN "Origin: https://evil.example\r\n"
#define SENDS   "Content-Type: application/json\r\nContent-Length: "

static test_daemon *daemon_;

static int start(void **state)
{
    if (scratch_setup(state) != 0)
        return -1;
    daemon_ = daemon_start(COMMAND("serve", "--set", "cors.allow_origins=" PAGE "," OTHER, "--set",
                                   "server.max_body=1MiB", "--set", "memory.budget=8MiB"));
    return 0;
}

static int stop(void **state)
{
    daemon_stop(daemon_);
    return scratch_teardown(state);
}

static raw_answer ask(const test_daemon *d, const char *line, const char *fields, const char *body)
{
    char request[4096];
    (void)snprintf(request, sizeof request, "%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n%s", line,
                   fields, body);
    return raw_once(daemon_url(d), request);
}

/* Whether a list in a header field has this item. */
static bool lists(const char *value, const char *item)
{
    size_t n = strlen(item);
    for (const char *at = value; at != NULL && *at != '\0';) {
        at += strspn(at, ", ");
        size_t length = strcspn(at, ", ");
        if (length == n && strncasecmp(at, item, n) == 0)
            return true;
        at += length;
    }
    return false;
}

static void assert_allowed(const raw_answer *a, const char *origin)
{
    const char *value = raw_header(a, "Access-Control-Allow-Origin");
    if (origin == NULL)
        assert_null(value);
    else if (value == NULL || strcmp(value, origin) != 0)
        fail_msg("%d without Access-Control-Allow-Origin: %s in %s", a->status, origin, a->head);
    assert_null(raw_header(a, "Access-Control-Allow-Credentials"));
    if (origin != NULL) {
        char *head = strdup(a->head); /* raw_header() finds the first one only */
        const char *first = strcasestr(head, "Access-Control-Allow-Origin:");
        assert_null(strcasestr(first + 1, "Access-Control-Allow-Origin:"));
        free(head);
        assert_true(lists(raw_header(a, "Access-Control-Expose-Headers"), "X-Request-Id"));
        assert_true(lists(raw_header(a, "Access-Control-Expose-Headers"), "Retry-After"));
        assert_true(lists(raw_header(a, "Access-Control-Expose-Headers"), "Server-Timing"));
        assert_true(lists(raw_header(a, "Access-Control-Expose-Headers"),
                          "Inference-Header-Content-Length"));
    }
}

static void every_answer_names_the_origin(void **state)
{
    (void)state;
    static const struct {
        const char *line, *fields, *body;
        int status;
    } table[] = {
        {"GET /v1/models", ORIGIN, "", 200},
        {"HEAD /v1/models", ORIGIN, "", 200},
        {"GET /health/ready", ORIGIN, "", 200},
        {"POST /v1/models/demo/attention", ORIGIN SENDS "7\r\n", "{broken", 400},
        {"POST /v1/models/demo/attention", ORIGIN SENDS "25\r\n", "{\"inputs_embeds\":[[1,2]]}\n",
         422},
        {"POST /v1/models/nope/attention", ORIGIN SENDS "2\r\n", "{}", 404},
        {"GET /nothing", ORIGIN, "", 404},
        {"DELETE /v1/models", ORIGIN, "", 405},
        {"POST /v1/models/demo/attention", ORIGIN "Accept: text/html\r\nContent-Length: 2\r\n",
         "{}", 406},
        {"POST /v1/models/demo/attention",
         ORIGIN "Content-Type: text/plain\r\nContent-Length: 2\r\n", "{}", 415},
        {"POST /v1/models/demo/attention", ORIGIN SENDS "99999999999\r\n", "", 413},
        {"GET /v1/models?%zz", ORIGIN, "", 400},
        {"GET /v1/models", ORIGIN "Content-Length: 1\r\nContent-Length: 2\r\n", "", 400},
        {"GET /v1/models", ORIGIN "Transfer-Encoding: gzip\r\n", "", 501},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        bool head = strncmp(table[i].line, "HEAD", 4) == 0;
        raw_conn c;
        raw_open(&c, daemon_url(daemon_));
        assert_true(raw_text(&c, "%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n%s", table[i].line,
                             table[i].fields, table[i].body));
        raw_answer a = raw_read(&c, head, 10000);
        if (a.status != table[i].status)
            fail_msg("%s: %d, expected %d: %s", table[i].line, a.status, table[i].status, a.body);
        assert_allowed(&a, PAGE);
        assert_true(lists(raw_header(&a, "Vary"), "Origin"));
        raw_free(&a);
        raw_close(&c);
    }
    raw_answer a =
        ask(daemon_, "GET /v1/models", ORIGIN "Host: evil.example\r\n" /* two of them */, "");
    assert_int_equal(a.status, 400);
    assert_allowed(&a, PAGE);
    raw_free(&a);
}

static void answers_in_pieces_name_the_origin(void **state)
{
    (void)state;
    enum { TOKENS = 750, TEXT = TOKENS * 16 * 2 / 3 * 4 }; /* of zeros as float16 in base64 */
    static const char head[] =
        "{\"inputs_embeds\":{\"shape\":[750,16],\"dtype\":\"float16\",\"data\":\"";
    static const char tail[] = "\"},\"return_attentions\":true,\"encoding_format\":\"base64\"}";
    char *body = malloc(sizeof head + TEXT + sizeof tail);
    raw_conn c;
    assert_non_null(body);
    memcpy(body, head, sizeof head - 1);
    memset(body + sizeof head - 1, 'A', TEXT);
    memcpy(body + sizeof head - 1 + TEXT, tail, sizeof tail);
    raw_open(&c, daemon_url(daemon_));
    assert_true(raw_text(
        &c,
        "POST /v1/models/demo/attention HTTP/1.1\r\nHost: localhost\r\n" ORIGIN SENDS "%zu\r\n\r\n",
        strlen(body)));
    assert_true(raw_send(&c, body, strlen(body)));
    raw_answer a = raw_read(&c, false, 30000);
    assert_int_equal(a.status, 200);
    assert_true(a.chunked && a.complete && a.body_bytes > (size_t)4 << 20);
    assert_allowed(&a, PAGE);
    const char *vary = raw_header(&a, "Vary");
    assert_true(lists(vary, "Origin") && lists(vary, "Accept") && lists(vary, "Accept-Encoding"));
    raw_free(&a);
    raw_close(&c);
    free(body);
}

static void one_that_is_too_slow_is_told_so_with_the_origin(void **state)
{
    (void)state;
    test_daemon *d = daemon_start(COMMAND("serve", "--set", "cors.allow_origins=" PAGE, "--set",
                                          "server.request_timeout=300ms"));
    raw_answer a = ask(d, "POST /v1/models/demo/attention", ORIGIN SENDS "9\r\n", "{");
    assert_int_equal(a.status, 408);
    assert_allowed(&a, PAGE);
    raw_free(&a);
    daemon_stop(d);
}

static void only_listed_origins_are_named(void **state)
{
    (void)state;
    static const char *const origins[] = {FOREIGN,
                                          "",
                                          "Origin: null\r\n",
                                          "Origin: https://page.example.evil\r\n",
                                          "Origin: https://PAGE.example\r\n",
                                          "Origin: http://page.example\r\n",
                                          "Origin: https://page.example:8443\r\n",
                                          "Origin: https://page.example/\r\n",
                                          "Origin: " PAGE "\r\nOrigin: " PAGE "\r\n"};
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++) {
        raw_answer a = ask(daemon_, "GET /v1/models", origins[i], "");
        assert_int_equal(a.status, 200);
        assert_allowed(&a, NULL);
        assert_true(lists(raw_header(&a, "Vary"), "Origin")); /* a cache must not mix them up */
        raw_free(&a);
    }
    raw_answer a = ask(daemon_, "GET /v1/models", "Origin: " OTHER "\r\n", "");
    assert_allowed(&a, OTHER);
    raw_free(&a);
}

/* All routes: also those that want a key, and without one. */
static void a_preflight_is_answered_on_every_route(void **state)
{
    (void)state;
    srv_route_table table;
    char option[300];
    (void)snprintf(option, sizeof option, "auth.keys_file=%s", scratch_write("keys", "k\n", 2));
    test_daemon *d = daemon_start(
        COMMAND("serve", "--set", "cors.allow_origins=[\"" PAGE "\"]", "--set", option));
    srv_routes(&table, (srv_parts){.metrics = true, .docs = true, .ui = true});
    for (size_t i = 0; i < table.n; i++) {
        char line[256] = "OPTIONS ", *end = line + strlen(line), fields[256];
        for (const char *p = table.routes[i].path; *p != '\0'; p++) {
            if (*p == '{') {
                *end++ = 'x';
                p = strchr(p, '}');
            } else {
                *end++ = *p;
            }
        }
        *end = '\0';
        (void)snprintf(fields, sizeof fields,
                       ORIGIN "Access-Control-Request-Method: %s\r\n"
                              "Access-Control-Request-Headers: authorization, content-type\r\n",
                       table.routes[i].method);
        raw_answer a = ask(d, line, fields, "");
        assert_int_equal(a.status, 204);
        assert_int_equal(a.body_bytes, 0);
        assert_allowed(&a, PAGE);
        assert_true(lists(raw_header(&a, "Access-Control-Allow-Methods"), table.routes[i].method));
        const char *fields_allowed = raw_header(&a, "Access-Control-Allow-Headers");
        assert_true(lists(fields_allowed, "Content-Type"));
        assert_true(lists(fields_allowed, "Authorization"));
        assert_true(lists(fields_allowed, "X-API-Key"));
        assert_true(lists(fields_allowed, "Inference-Header-Content-Length"));
        assert_true(atoi(raw_header(&a, "Access-Control-Max-Age")) > 0);
        raw_free(&a);
        a = ask(d, line, FOREIGN "Access-Control-Request-Method: POST\r\n", "");
        assert_int_equal(a.status, 204);
        assert_allowed(&a, NULL);
        assert_null(raw_header(&a, "Access-Control-Allow-Methods"));
        raw_free(&a);
    }
    raw_answer a = ask(d, "GET /v1/models", ORIGIN, "");
    assert_int_equal(a.status, 401);
    assert_allowed(&a, PAGE);
    raw_free(&a);
    daemon_stop(d);
}

static void a_star_is_for_all_and_without_it_there_is_nothing(void **state)
{
    (void)state;
    test_daemon *d = daemon_start(COMMAND("serve", "--set", "cors.allow_origins=*"));
    static const char *const origins[] = {ORIGIN, FOREIGN, "Origin: null\r\n", ""};
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++) {
        raw_answer a = ask(d, "GET /v1/models", origins[i], "");
        assert_allowed(&a, "*");
        assert_false(lists(raw_header(&a, "Vary"), "Origin"));
        raw_free(&a);
    }
    daemon_stop(d);
    d = daemon_start(COMMAND("serve"));
    raw_answer a =
        ask(d, "OPTIONS /v1/models", ORIGIN "Access-Control-Request-Method: GET\r\n", "");
    assert_int_equal(a.status, 204);
    assert_null(strcasestr(a.head, "Access-Control"));
    assert_null(strcasestr(a.head, "Vary"));
    raw_free(&a);
    daemon_stop(d);
}

static void the_viewers_files_are_for_all_pages(void **state)
{
    (void)state;
    if (srv_asset_find("/") == NULL) {
        printf("skipped: the viewer's files: this build has no viewer\n");
        return;
    }
    raw_answer a = ask(daemon_, "GET /ui/attention-map.js", ORIGIN, "");
    assert_int_equal(a.status, 200);
    const char *first = strcasestr(a.head, "Access-Control-Allow-Origin: *");
    assert_non_null(first);
    assert_null(strcasestr(first + 1, "Access-Control-Allow-Origin:"));
    raw_free(&a);
}

/* --- prefix ------------------------------------------------------------------------------------ */

static void assert_status(const test_daemon *d, const char *line, int status)
{
    raw_answer a = ask(d, line, "", "");
    if (a.status != status)
        fail_msg("%s: %d, expected %d", line, a.status, status);
    raw_free(&a);
}

static void every_path_stands_below_the_prefix(void **state)
{
    (void)state;
    test_daemon *d = daemon_start(COMMAND("serve", "--set", "server.base_path=/team/attnd/"));
    static const char *const inside[] = {"/v1/models", "/v2/health/ready", "/health/live",
                                         "/metrics",   "/openapi.json",    "/docs"};
    static const char *const outside[] = {
        "/", "/team", "/team/attndx", "/team/attnd/nope", "/team/attnd/", "/TEAM/attnd/v1/models"};
    bool viewer = srv_asset_find("/") != NULL;
    char line[128];
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        (void)snprintf(line, sizeof line, "GET /team/attnd%s", inside[i]);
        assert_status(d, line, 200);
        (void)snprintf(line, sizeof line, "GET http://localhost/team/attnd%s?x=1", inside[i]);
        assert_status(d, line, 200);
        (void)snprintf(line, sizeof line, "GET %s", inside[i]);
        assert_status(d, line, 404);
    }
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        bool root = strcmp(outside[i], "/team/attnd/") == 0;
        (void)snprintf(line, sizeof line, "GET %s", outside[i]);
        assert_status(d, line, root && viewer ? 200 : 404);
    }
    raw_answer a = ask(d, "GET /team/attnd?model=demo", "", "");
    assert_int_equal(a.status, 308);
    assert_string_equal(raw_header(&a, "Location"), "/team/attnd/?model=demo");
    raw_free(&a);
    assert_status(d, "POST /team/attnd", 404);
    assert_status(d, "OPTIONS *", 204);

    static const char *const places[] = {"/team/attnd", "/team/attnd/", "/team/attnd/health/ready"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        (void)snprintf(line, sizeof line, "%s%s", daemon_url(d), places[i]);
        test_command c = command_succeed(COMMAND("healthcheck", "--url", line));
        command_free(&c);
    }
    command_refuse(COMMAND("healthcheck", "--url", daemon_url(d)), 1, COMMAND("404"));
    test_command own = command_succeed(COMMAND("healthcheck", "--listen", daemon_url(d) + 7,
                                               "--set", "server.base_path=/team/attnd"));
    command_free(&own);
    daemon_stop(d);
}

/* Pages and the document name nothing by a path from the root: they work below any prefix, of ours or a proxy's. */
static void pages_link_relatively(void **state)
{
    (void)state;
    static const char *const bad[] = {"href=\"/", "src=\"/",   "url(/",    "from '/",
                                      "from \"/", "import('/", "fetch('/", "\"url\": \"/"};
    for (const srv_asset *a = srv_assets; a->path != NULL; a++) {
        const char *type = srv_asset_type(a);
        if (type == NULL || strncmp(type, "image/", 6) == 0)
            continue;
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            if (memmem(a->plain.begin, (size_t)(a->plain.end - a->plain.begin), bad[i],
                       strlen(bad[i])) != NULL)
                fail_msg("%s holds %s", a->path, bad[i]);
        }
    }
}

/* --- host names -------------------------------------------------------------------------------- */

static void assert_host(const test_daemon *d, const char *host, int status)
{
    char request[512];
    (void)snprintf(request, sizeof request, "GET /health/live HTTP/1.1\r\nHost: %s\r\n\r\n", host);
    raw_answer a = raw_once(daemon_url(d), request);
    if (a.status != status)
        fail_msg("Host: %s: %d, expected %d", host, a.status, status);
    raw_free(&a);
}

static void allowed_hosts_replace_those_of_loopback(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        int status;
    } table[] = {{"api.example.org", 200},
                 {"API.example.org:443", 200},
                 {"[fd00::1]", 200},
                 {"[FD00::1]:8080", 200},
                 {"localhost", 403},
                 {"127.0.0.1", 403},
                 {"api.example.org.evil", 403},
                 {"xapi.example.org", 403},
                 {"api.example.org:x", 403},
                 {"evil@api.example.org", 403},
                 {"", 403},
                 {"fd00::1", 403},
                 {"[fd00::2]", 403}};
    test_daemon *d =
        daemon_start(COMMAND("serve", "--set", "server.allowed_hosts=api.example.org,[fd00::1]"));
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_host(d, table[i].host, table[i].status);
    daemon_stop(d);

    d = daemon_start(COMMAND("serve", "--set", "server.allowed_hosts=*"));
    assert_host(d, "any.example", 200);
    daemon_stop(d);

    d = daemon_start(COMMAND("serve", "--listen", "0.0.0.0:0", "--set",
                             "server.allowed_hosts=[\"api.example.org\"]"));
    char url[64];
    (void)snprintf(url, sizeof url, "http://127.0.0.1%s", strrchr(daemon_url(d), ':'));
    raw_answer a = raw_once(url, "GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_int_equal(a.status, 403);
    assert_non_null(strstr(a.body, "host_not_allowed"));
    raw_free(&a);
    test_command own =
        command_succeed(COMMAND("healthcheck", "--listen", daemon_url(d) + 7, "--set",
                                "server.allowed_hosts=[\"api.example.org\"]"));
    command_free(&own);
    command_refuse(COMMAND("healthcheck", "--listen", daemon_url(d) + 7), 1, COMMAND("403"));
    daemon_stop(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_answer_names_the_origin),
        cmocka_unit_test(answers_in_pieces_name_the_origin),
        cmocka_unit_test(one_that_is_too_slow_is_told_so_with_the_origin),
        cmocka_unit_test(only_listed_origins_are_named),
        cmocka_unit_test(a_preflight_is_answered_on_every_route),
        cmocka_unit_test(a_star_is_for_all_and_without_it_there_is_nothing),
        cmocka_unit_test(the_viewers_files_are_for_all_pages),
        cmocka_unit_test(every_path_stands_below_the_prefix),
        cmocka_unit_test(pages_link_relatively),
        cmocka_unit_test(allowed_hosts_replace_those_of_loopback),
    };
    srv_log_init(SRV_LOG_ERROR, true);
    return cmocka_run_group_tests(tests, start, stop);
}

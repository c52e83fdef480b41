/* What the HTTP layer answers and refuses, byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "server/log.h"
#include "tests/http_app.h"
#include "tests/rawhttp.h"

#define HOST     "Host: localhost\r\n"
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum { MIB = 1 << 20 };

static http_app app;

static int start(void **state)
{
    (void)state;
    http_app_start(&app, (http_app_options){0});
    return 0;
}

static int stop(void **state)
{
    (void)state;
    return http_app_stop(&app, 2000) == 0 ? 0 : -1;
}

static void assert_answer(raw_answer *a, int status, const char *body)
{
    assert_int_equal(a->status, status);
    assert_true(a->complete);
    assert_non_null(raw_header(a, "X-Request-Id"));
    assert_string_equal(raw_header(a, "X-Content-Type-Options"), "nosniff");
    if (body != NULL)
        assert_string_equal(a->body, body);
}

static void assert_problem(raw_answer *a, int status, const char *code)
{
    char member[128];
    assert_answer(a, status, NULL);
    assert_string_equal(raw_header(a, "Content-Type"), "application/problem+json");
    (void)snprintf(member, sizeof member, "\"code\":\"%s\"", code);
    if (strstr(a->body, member) == NULL)
        fail_msg("not a problem with code %s: %s", code, a->body);
    (void)snprintf(member, sizeof member, "\"status\":%d,", status);
    assert_non_null(strstr(a->body, member));
    (void)snprintf(member, sizeof member, "\"request_id\":\"%s\"", raw_header(a, "X-Request-Id"));
    assert_non_null(strstr(a->body, member));
}

static bool closes(const raw_answer *a)
{
    const char *value = raw_header(a, "Connection");
    return value != NULL && strcasecmp(value, "close") == 0;
}

/* The connection c still takes requests. */
static void assert_usable(raw_conn *c)
{
    assert_true(raw_text(c, "GET /echo/still HTTP/1.1\r\n" HOST "\r\n"));
    raw_answer a = raw_read(c, false, 0);
    assert_answer(&a, 200, "still");
    raw_free(&a);
}

/* The request has this answer, at once; then the connection can be used, or is closed. */
static void refuses(const char *request, int status, const char *code, bool reusable)
{
    raw_conn c;
    long long began = raw_now_ms();
    raw_open(&c, app.url);
    assert_true(raw_send(&c, request, strlen(request)));
    raw_answer a = raw_read(&c, false, 0);
    if (a.status != status)
        fail_msg("%d instead of %d for: %s", a.status, status, request);
    assert_problem(&a, status, code);
    assert_true(raw_now_ms() - began < 900);
    assert_int_equal(closes(&a), !reusable);
    raw_free(&a);
    if (reusable)
        assert_usable(&c);
    else
        assert_true(raw_is_closed(&c, 2000));
    raw_close(&c);
}

/* Whether libmicrohttpd refused it, with a page of its own: from 1.0 on it does with more requests
 * than before. */
static bool library_refused(const raw_answer *a)
{
    const char *type = raw_header(a, "Content-Type");
    bool ours = type != NULL && strcmp(type, "application/problem+json") == 0;
    return srv_http_library_version()[0] != '0' && !ours && (a->status == 400 || a->status == 413);
}

/* The same where the library may be first. */
static void refuses_or_library(const char *request, int status, const char *code, bool reusable)
{
    raw_conn c;
    raw_open(&c, app.url);
    assert_true(raw_send(&c, request, strlen(request)));
    raw_answer a = raw_read(&c, false, 0);
    bool library = library_refused(&a);
    raw_free(&a);
    if (library)
        assert_true(raw_is_closed(&c, 2000));
    raw_close(&c);
    if (!library)
        refuses(request, status, code, reusable);
}

/* --- answers --- */

static void a_get_is_answered_on_a_kept_connection(void **state)
{
    (void)state;
    raw_conn c;
    raw_open(&c, app.url);
    for (int i = 0; i < 200; i++) {
        assert_true(raw_text(&c, "GET /echo/n%d?unknown=key HTTP/1.1\r\n" HOST "\r\n", i));
        raw_answer a = raw_read(&c, false, 0);
        char want[16];
        (void)snprintf(want, sizeof want, "n%d", i);
        assert_answer(&a, 200, want);
        assert_string_equal(raw_header(&a, "X-Extra"), "1");
        assert_string_equal(raw_header(&a, "Content-Type"), "text/plain");
        assert_null(raw_header(&a, "Server"));
        assert_false(closes(&a));
        raw_free(&a);
    }
    raw_close(&c);
    http_app_settle(&app);
    assert_int_equal(app.begun, app.ended);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    (void)state;
    raw_conn c;
    raw_open(&c, app.url);
    assert_true(raw_text(&c, "GET /echo/one HTTP/1.1\r\n" HOST "\r\n"
                             "POST /count HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\n12345"
                             "GET /nothing HTTP/1.1\r\n" HOST "\r\n"
                             "HEAD /echo/head HTTP/1.1\r\n" HOST "\r\n"
                             "GET /wait/3 HTTP/1.1\r\n" HOST "\r\n"
                             "POST /count HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
                             "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
                             "GET /both HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n"));
    static const struct {
        int status;
        bool head;
        const char *body;
    } want[] = {{200, false, "one"},    {200, false, "5"}, {404, false, NULL}, {200, true, NULL},
                {200, false, "worked"}, {200, false, "7"}, {200, false, "get"}};
    for (size_t i = 0; i < COUNT(want); i++) {
        raw_answer a = raw_read(&c, want[i].head, 0);
        assert_answer(&a, want[i].status, want[i].body);
        raw_free(&a);
    }
    assert_true(raw_is_closed(&c, 2000));
    raw_close(&c);
}

static void head_has_the_length_and_no_body(void **state)
{
    (void)state;
    raw_conn c;
    raw_open(&c, app.url);
    for (int i = 0; i < 3; i++) {
        assert_true(raw_text(&c, "HEAD /echo/twelve%%20chars HTTP/1.1\r\n" HOST "\r\n"));
        raw_answer a = raw_read(&c, true, 0);
        assert_answer(&a, 200, NULL);
        assert_string_equal(raw_header(&a, "Content-Length"), "12");
        assert_string_equal(raw_header(&a, "X-Extra"), "1");
        raw_free(&a);
        assert_usable(&c);
    }
    assert_true(raw_text(&c, "HEAD /stream/100000 HTTP/1.1\r\n" HOST "\r\n"));
    raw_answer a = raw_read(&c, true, 0);
    assert_answer(&a, 200, NULL);
    assert_string_equal(raw_header(&a, "Content-Length"), "100000");
    raw_free(&a);
    assert_usable(&c);
    raw_close(&c);
}

static void assert_alphabet(const raw_answer *a, size_t n)
{
    assert_int_equal(a->body_bytes, n);
    for (size_t i = 0; i < n; i++) {
        if (a->body[i] != 'a' + (int)(i % 26))
            fail_msg("byte %zu is wrong", i);
    }
}

static void a_stream_arrives_whole_in_both_versions(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 65536, 65537, 1000000};
    raw_conn c;
    raw_open(&c, app.url);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        assert_true(raw_text(&c, "GET /stream/%zu HTTP/1.1\r\n" HOST "\r\n", sizes[i]));
        raw_answer a = raw_read(&c, false, 0);
        assert_answer(&a, 200, NULL);
        assert_true(a.chunked);
        assert_alphabet(&a, sizes[i]);
        raw_free(&a);
    }
    raw_close(&c);
    raw_answer a = raw_once(app.url, "GET /stream/1000000 HTTP/1.0\r\n\r\n");
    assert_answer(&a, 200, NULL);
    assert_true(closes(&a));
    assert_null(raw_header(&a, "Transfer-Encoding"));
    assert_alphabet(&a, 1000000);
    raw_free(&a);
}

static void request_ids_are_taken_or_made(void **state)
{
    (void)state;
    char request[512], id[200], last[64] = "";
    memset(id, 'a', sizeof id);
    id[128] = '\0';
    (void)snprintf(request, sizeof request, "GET / HTTP/1.1\r\n" HOST "X-Request-Id: %s\r\n\r\n",
                   id);
    raw_answer a = raw_once(app.url, request);
    assert_string_equal(raw_header(&a, "X-Request-Id"), id);
    raw_free(&a);
    id[128] = 'a';
    id[129] = '\0';
    const char *bad[] = {id, "with blank", "sl/ash", "", "quote\"", "\xc3\xa9"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        (void)snprintf(request, sizeof request,
                       "GET / HTTP/1.1\r\n" HOST "X-Request-Id: %s\r\n\r\n", bad[i]);
        a = raw_once(app.url, request);
        const char *made = raw_header(&a, "X-Request-Id");
        assert_int_equal(strlen(made), 36);
        assert_int_equal(made[14], '7'); /* the version */
        assert_non_null(strchr("89ab", made[19]));
        assert_string_not_equal(made, last);
        (void)snprintf(last, sizeof last, "%s", made);
        raw_free(&a);
    }
}

static void every_failure_has_its_status(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int status;
    } table[] = {{"invalid", 400},        {"bad_format", 400}, {"not_found", 404},
                 {"shape_mismatch", 422}, {"not_finite", 422}, {"unsupported", 422},
                 {"too_large", 413},      {"busy", 503},       {"deadline", 504},
                 {"canceled", 503},       {"io_error", 500},   {"out_of_memory", 500},
                 {"internal", 500}};
    for (size_t i = 0; i < COUNT(table); i++) {
        char request[128], member[128];
        (void)snprintf(request, sizeof request, "GET /fail/%s HTTP/1.1\r\n" HOST "\r\n",
                       table[i].name);
        raw_answer a = raw_once(app.url, request);
        assert_problem(&a, table[i].status, table[i].name);
        (void)snprintf(member, sizeof member, "\"error\":\"failed with %s\"", table[i].name);
        assert_non_null(strstr(a.body, member));
        (void)snprintf(member, sizeof member, "\"detail\":\"failed with %s\"", table[i].name);
        assert_non_null(strstr(a.body, member));
        assert_non_null(strstr(a.body, "\"pointer\":\"/pointer/\\\"\""));
        assert_non_null(strstr(a.body, "\"needed_bytes\":4096,\"limit_bytes\":1024}"));
        assert_int_equal(raw_header(&a, "Retry-After") != NULL, table[i].status == 503);
        raw_free(&a);
    }
    raw_answer a = raw_once(app.url, "GET /silent HTTP/1.1\r\n" HOST "\r\n");
    assert_problem(&a, 500, "internal");
    raw_free(&a);
}

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"

/* What four requests leave on stderr. */
static void capture_log(char *text, size_t size)
{
    static const char *const requests[] = {
        "POST /work HTTP/1.1\r\n" HOST "X-Request-Id: a-1\r\nX-Sleep-Ms: 1\r\nContent-Length: 4\r\n"
        "Traceparent: 00-" TRACE "-00f067aa0ba902b7-01\r\n\r\n"
        "body",
        "GET /quiet HTTP/1.1\r\n" HOST "\r\n",
        "GET /%22secret%22 HTTP/1.1\r\n" HOST "X-Request-Id: a-2\r\n\r\n",
        "GET /echo/name HTTP/1.1\r\n" HOST "X-Request-Id: a-3\r\ntraceparent: 00-" TRACE
        "-00f067aa0ba902b7-01\r\n"
        "traceparent: 00-" TRACE "-00f067aa0ba902b7-01\r\n\r\n"}; /* two are none */
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    assert_true(file != NULL && saved >= 0);
    http_app_settle(&app);
    (void)dup2(fileno(file), STDERR_FILENO);
    srv_log_init(SRV_LOG_INFO, true);
    for (size_t i = 0; i < COUNT(requests); i++) {
        raw_answer a = raw_once(app.url, requests[i]);
        raw_free(&a);
        http_app_settle(&app);
    }
    srv_log_init(SRV_LOG_ERROR, true);
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    (void)fclose(file);
}

static void each_request_is_one_log_line(void **state)
{
    (void)state;
    char text[8192];
    size_t lines = 0;
    capture_log(text, sizeof text);
    for (const char *c = text; *c != '\0'; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 3); /* not the quiet one */
    assert_non_null(strstr(text,
                           "\"event\":\"request\",\"request_id\":\"a-1\",\"trace_id\":\"" TRACE
                           "\",\"span_id\":\""));
    assert_null(strstr(text, "00f067aa0ba902b7")); /* the caller's span is not ours */
    const char *other = strstr(text, "\"request_id\":\"a-3\",\"trace_id\":\"");
    assert_non_null(other);
    assert_null(strstr(other, TRACE));
    assert_non_null(strstr(
        text,
        "\"method\":\"POST\",\"route\":\"/work\",\"status\":200,\"bytes_in\":4,\"bytes_out\":6,"
        "\"duration_s\":"));
    assert_non_null(strstr(text, "\"queue_s\":0.001,\"compute_s\":0.25,\"serialize_s\":0.0,"
                                 "\"batch\":2,\"tokens\":7,\"peer\":\"127.0.0.1:"));
    assert_non_null(strstr(text, "\"request_id\":\"a-2\",\"trace_id\":\""));
    assert_non_null(strstr(text, "\"method\":\"GET\",\"route\":\"other\",\"status\":404,"));
    assert_non_null(strstr(text, "\"route\":\"/echo/{name}\",\"status\":200,"));
    assert_null(strstr(text, "secret"));
}

/* --- refusals by target, method, media type --- */

static void paths_match_exactly(void **state)
{
    (void)state;
    static const char *const unknown[] = {"/nothing",  "/echo",    "/echo/",    "/echo/a/",
                                          "/echo/a/b", "//echo/a", "/ECHO/a",   "/x/../echo/a",
                                          "/echo//a",  "/both/",   "/both%2F",  "/%2Fboth",
                                          "/echo%2Fa", "/./both",  "/both/..;/"};
    static const struct {
        const char *target, *body;
    } known[] = {{"/echo/a%2Fb", "a/b"},
                 {"/echo/%2561", "%61"},
                 {"/%62oth", "get"},
                 {"/echo/%41?a=%0A&b", "A"},
                 {"/", "root"},
                 {"/?x=/nothing", "root"},
                 {"/echo/..", ".."},
                 {"http://localhost/echo/abs", "abs"},
                 {"HTTP://127.0.0.1:99?q", "root"}};
    char request[128];
    for (size_t i = 0; i < COUNT(unknown); i++) {
        (void)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" HOST "\r\n", unknown[i]);
        refuses(request, 404, "not_found", true);
    }
    for (size_t i = 0; i < COUNT(known); i++) {
        (void)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" HOST "\r\n", known[i].target);
        raw_answer a = raw_once(app.url, request);
        assert_answer(&a, 200, known[i].body);
        raw_free(&a);
    }
}

static void odd_targets_are_refused(void **state)
{
    (void)state;
    static const char *const odd[] = {"/echo/a%00b", "/both%00",    "/echo/%zz",  "/echo/%",
                                      "/echo/%4",    "/echo/a%0Ab", "/echo/%7f",  "/both?a=%00",
                                      "/both?a=%g1", "/echo/a b",   "/echo/\x01", "/both?\x7f",
                                      "both",        "*",           "http:///a",  "%2Fboth"};
    for (size_t i = 0; i < COUNT(odd); i++) {
        char request[128];
        (void)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" HOST "\r\n", odd[i]);
        refuses_or_library(request, 400, "invalid", true);
    }
}

static void other_methods_are_told_what_is_allowed(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path, *allow;
    } table[] = {{"POST", "/echo/a", "GET, HEAD, OPTIONS"},
                 {"GET", "/count", "OPTIONS, POST"},
                 {"PATCH", "/count", "OPTIONS, POST"},
                 {"PUT", "/both", "GET, HEAD, OPTIONS, POST"},
                 {"DELETE", "/both", "GET, HEAD, OPTIONS, POST"},
                 {"get", "/both", "GET, HEAD, OPTIONS, POST"},
                 {"BREW", "/both", "GET, HEAD, OPTIONS, POST"}};
    for (size_t i = 0; i < COUNT(table); i++) {
        raw_conn c;
        raw_open(&c, app.url);
        assert_true(raw_text(&c, "%s %s HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}",
                             table[i].method, table[i].path));
        raw_answer a = raw_read(&c, false, 0);
        assert_problem(&a, 405, "method_not_allowed");
        assert_string_equal(raw_header(&a, "Allow"), table[i].allow);
        raw_free(&a);
        assert_usable(&c);
        raw_close(&c);
    }
    raw_answer a = raw_once(app.url, "HEAD /count HTTP/1.1\r\n" HOST "\r\n");
    assert_int_equal(a.status, 405);
    assert_string_equal(raw_header(&a, "Allow"), "OPTIONS, POST");
    raw_free(&a);
}

static void options_lists_methods(void **state)
{
    (void)state;
    static const struct {
        const char *target, *allow;
    } table[] = {{"/both", "GET, HEAD, OPTIONS, POST"},
                 {"*", "GET, HEAD, OPTIONS, POST"},
                 {"/count", "OPTIONS, POST"}};
    raw_conn c;
    raw_open(&c, app.url);
    for (size_t i = 0; i < COUNT(table); i++) {
        assert_true(raw_text(&c, "OPTIONS %s HTTP/1.1\r\n" HOST "\r\n", table[i].target));
        raw_answer a = raw_read(&c, false, 0);
        assert_answer(&a, 204, "");
        assert_string_equal(raw_header(&a, "Allow"), table[i].allow);
        raw_free(&a);
        assert_usable(&c);
    }
    raw_close(&c);
    refuses("OPTIONS /nothing HTTP/1.1\r\n" HOST "\r\n", 404, "not_found", true);
}

static int post_status(const char *fields)
{
    raw_conn c;
    raw_open(&c, app.url);
    assert_true(
        raw_text(&c, "POST /count HTTP/1.1\r\n" HOST "Content-Length: 2\r\n%s\r\n{}", fields));
    raw_answer a = raw_read(&c, false, 0);
    int status = a.status;
    assert_string_equal(raw_header(&a, "Vary"), "Accept, Accept-Encoding");
    if (status == 415)
        assert_true(raw_header(&a, "Accept") != NULL || raw_header(&a, "Accept-Encoding") != NULL);
    raw_free(&a);
    assert_usable(&c);
    raw_close(&c);
    return status;
}

static void media_types_are_negotiated(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *fields;
    } table[] = {
        {200, ""},
        {200, "Content-Type: application/json\r\n"},
        {200, "Content-Type: Application/JSON; charset=utf-8\r\n"},
        {200, "Content-Type:\r\n"},
        {415, "Content-Type: text/plain\r\n"},
        {415, "Content-Type: application/x-www-form-urlencoded\r\n"},
        {415, "Content-Type: application/jsonp\r\n"},
        {415, "Content-Type: application/json\r\nContent-Type: text/plain\r\n"},
        {200, "Content-Encoding: identity\r\n"},
        {415, "Content-Encoding: gzip\r\n"},
        {415, "Content-Encoding: br\r\n"},
        {200, "Accept: */*\r\n"},
        {200, "Accept: application/*\r\n"},
        {200, "Accept: text/html, application/json;q=0.5\r\n"},
        {200, "Accept: text/html, */*;q=0.1\r\n"},
        {200, "Accept: \r\n"},
        {200, "Accept: text/html\r\nAccept: application/json\r\n"},
        {200, "Accept: application/*;q=0, application/json\r\n"},
        {200, "Accept: application/json;charset=utf-8;q=0.001\r\n"},
        {406, "Accept: text/html\r\n"},
        {406, "Accept: application/json;q=0\r\n"},
        {406, "Accept: application/json; q=0.000, */*\r\n"},
        {406, "Accept: */*;q=0\r\n"},
        {406, "Accept: application/*;q=0, */*\r\n"},
        {406, "Accept: application/jsonlines\r\n"},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        int status = post_status(table[i].fields);
        if (status != table[i].status)
            fail_msg("%d instead of %d for %s", status, table[i].status, table[i].fields);
    }
    /* What a GET answers is not JSON alone: its Accept is left alone. */
    raw_answer a = raw_once(app.url, "GET / HTTP/1.1\r\n" HOST "Accept: text/html\r\n\r\n");
    assert_answer(&a, 200, "root");
    raw_free(&a);
}

/* --- where a request ends --- */

static void odd_lengths_close_the_connection(void **state)
{
    (void)state;
    /* The library refuses these itself. */
    static const char *const broken[] = {
        "-1", "+3", "0x3", "3abc", "", "3, 3", "18446744073709551616"};
    static const char *const huge[] = {"9223372036854775807", "9223372036854775808",
                                       "18446744073709551615", "1000000000000"};
    for (size_t i = 0; i < COUNT(broken); i++) {
        raw_conn c;
        raw_open(&c, app.url);
        assert_true(raw_text(&c, "POST /count HTTP/1.1\r\n" HOST "Content-Length: %s\r\n\r\nabc",
                             broken[i]));
        raw_answer a = raw_read(&c, false, 0);
        assert_true(a.status == 400 || a.status == 413);
        raw_free(&a);
        assert_true(raw_is_closed(&c, 2000));
        raw_close(&c);
    }
    for (size_t i = 0; i < COUNT(huge); i++) {
        char request[256], needed[64];
        (void)snprintf(request, sizeof request,
                       "POST /count HTTP/1.1\r\n" HOST "Content-Length: %s\r\n\r\nabc", huge[i]);
        raw_answer a = raw_once(app.url, request);
        (void)snprintf(needed, sizeof needed, "\"needed_bytes\":%s,\"limit_bytes\":1048576}",
                       huge[i]);
        assert_true(library_refused(&a) || strstr(a.body, needed) != NULL);
        raw_free(&a);
        refuses_or_library(request, 413, "too_large", false);
    }
}

static void ambiguous_framing_is_refused(void **state)
{
    (void)state;
    static const char *const fields[] = {
        "Content-Length: 3\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: 0\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 3\r\nHost: localhost\r\n",
        "Content-Length : 3\r\n",
        "Content-Length: 3\r\nBad Name: 3\r\n",
        "Content-Length: 3\r\nX-Control: a\x01\x62\r\n"};
    char request[512];
    for (size_t i = 0; i < COUNT(fields); i++) {
        (void)snprintf(request, sizeof request, "POST /count HTTP/1.1\r\n" HOST "%s\r\nabc",
                       fields[i]);
        refuses_or_library(request, 400, "invalid", false);
        /* The answer does not wait for a body. */
        (void)snprintf(request, sizeof request, "POST /count HTTP/1.1\r\n" HOST "%s\r\n",
                       fields[i]);
        refuses_or_library(request, 400, "invalid", false);
    }
    refuses_or_library("GET /both HTTP/1.1\r\n\r\n", 400, "invalid", false); /* no Host */
}

static void unknown_transfer_codings_are_refused(void **state)
{
    (void)state;
    static const char *const codings[] = {
        "gzip", "xchunked", "identity, chunked", "chunked, gzip", "identity", "chunked;q=1", ""};
    char request[512];
    for (size_t i = 0; i < COUNT(codings); i++) {
        (void)snprintf(request, sizeof request,
                       "POST /count HTTP/1.1\r\n" HOST "Transfer-Encoding: %s\r\n\r\n", codings[i]);
        refuses_or_library(request, 501, "unsupported", false);
        (void)snprintf(request, sizeof request,
                       "POST /count HTTP/1.1\r\n" HOST
                       "Transfer-Encoding: %s\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                       codings[i]);
        refuses_or_library(request, 501, "unsupported", false);
    }
    refuses_or_library("POST /count HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
                       "invalid", false);
    raw_answer a = raw_once(app.url, "POST /count HTTP/1.1\r\n" HOST
                                     "Transfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    assert_answer(&a, 200, "3");
    raw_free(&a);
}

/* --- bodies --- */

static void send_zeros(raw_conn *c, size_t n)
{
    static char zeros[65536];
    while (n > 0) {
        size_t piece = n < sizeof zeros ? n : sizeof zeros;
        if (!raw_send(c, zeros, piece))
            return; /* the server has had enough */
        n -= piece;
    }
}

static void send_chunked_zeros(raw_conn *c, size_t n)
{
    static char chunk[7 + 65536 + 2] = "10000\r\n";
    memcpy(chunk + 7 + 65536, "\r\n", 2);
    for (size_t i = 0; i < n / 65536; i++) {
        if (!raw_send(c, chunk, sizeof chunk))
            return;
    }
    if (n % 65536 > 0) {
        if (!raw_text(c, "%zx\r\n", n % 65536))
            return;
        send_zeros(c, n % 65536);
        (void)raw_text(c, "\r\n");
    }
    (void)raw_text(c, "0\r\n\r\n");
}

static void send_post(raw_conn *c, const char *path, bool chunked, size_t n)
{
    if (chunked) {
        assert_true(
            raw_text(c, "POST %s HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", path));
        send_chunked_zeros(c, n);
    } else {
        assert_true(
            raw_text(c, "POST %s HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n", path, n));
        send_zeros(c, n);
    }
}

static void the_body_limit_is_exact(void **state)
{
    (void)state;
    raw_conn c;
    raw_open(&c, app.url);
    for (int chunked = 0; chunked < 2; chunked++) {
        send_post(&c, "/count", chunked, MIB);
        raw_answer a = raw_read(&c, false, 0);
        assert_answer(&a, 200, "1048576");
        raw_free(&a);
        send_post(&c, "/count", chunked, MIB + 1);
        a = raw_read(&c, false, 0);
        assert_problem(&a, 413, "too_large");
        assert_non_null(strstr(a.body, "server.max_body"));
        assert_non_null(strstr(a.body, "\"limit_bytes\":1048576}"));
        assert_false(closes(&a));
        raw_free(&a);
        assert_usable(&c); /* the refused body was read to its end */
    }
    raw_close(&c);
}

static void a_body_far_over_the_limit_is_cut_with_an_answer(void **state)
{
    (void)state;
    raw_conn c;
    raw_open(&c, app.url);
    size_t before = app.bytes;
    send_post(&c, "/count", true, (size_t)80 * MIB);
    raw_answer a = raw_read(&c, false, 0);
    assert_problem(&a, 413, "too_large");
    assert_true(closes(&a));
    raw_free(&a);
    assert_true(raw_is_closed(&c, 3000));
    raw_close(&c);
    http_app_settle(&app);
    assert_true(app.bytes - before <= MIB); /* the handler saw no more than the limit */
    assert_int_equal(app.last_status, 413);
}

static void a_body_broken_at_the_start_is_answered_at_its_end(void **state)
{
    (void)state;
    raw_conn c;
    raw_open(&c, app.url);
    for (int chunked = 0; chunked < 2; chunked++) {
        send_post(&c, "/refuse", chunked, chunked ? (size_t)5 * MIB : MIB);
        raw_answer a = raw_read(&c, false, 0);
        assert_problem(&a, 400, "invalid"); /* the first failure counts, not the size after it */
        assert_non_null(strstr(a.body, "\"pointer\":\"/a/100\""));
        raw_free(&a);
        assert_usable(&c);
    }
    /* Refused before the body: the same. */
    send_post(&c, "/nobody/tiny", false, MIB);
    raw_answer a = raw_read(&c, false, 0);
    assert_problem(&a, 404, "model_not_found");
    assert_non_null(strstr(a.body, "no model \\\"tiny\\\""));
    raw_free(&a);
    assert_usable(&c);
    raw_close(&c);
}

static void expect_continue_is_answered_at_once(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int status;
        const char *code, *fields;
    } refused[] = {{"POST /count", 413, "too_large", "Content-Length: 1048577\r\n"},
                   {"POST /count", 413, "too_large", "Content-Length: 10000000000\r\n"},
                   {"POST /nothing", 404, "not_found", "Content-Length: 10\r\n"},
                   {"POST /echo/a", 405, "method_not_allowed", "Transfer-Encoding: chunked\r\n"},
                   {"POST /count", 415, "unsupported_media_type",
                    "Content-Length: 10\r\nContent-Type: a/b\r\n"},
                   {"POST /nobody/x", 404, "model_not_found", "Content-Length: 10\r\n"},
                   {"POST /count", 501, "unsupported", "Transfer-Encoding: gzip\r\n"}};
    raw_conn c;
    raw_open(&c, app.url);
    long long began = raw_now_ms();
    assert_true(raw_text(&c, "POST /count HTTP/1.1\r\n" HOST
                             "Content-Length: 10\r\nExpect: 100-continue\r\n\r\n"));
    raw_answer a = raw_read(&c, false, 0);
    assert_int_equal(a.status, 100);
    raw_free(&a);
    assert_true(raw_text(&c, "0123456789"));
    a = raw_read(&c, false, 0);
    assert_answer(&a, 200, "10");
    assert_true(raw_now_ms() - began < 900);
    raw_free(&a);
    assert_usable(&c);
    raw_close(&c);
    for (size_t i = 0; i < COUNT(refused); i++) {
        char request[256];
        (void)snprintf(request, sizeof request,
                       "%s HTTP/1.1\r\n" HOST "%sExpect: 100-continue\r\n\r\n", refused[i].line,
                       refused[i].fields);
        /* No 100 before it. */
        refuses_or_library(request, refused[i].status, refused[i].code, false);
    }
}

/* libmicrohttpd 0.9.75 would take the second request for the body of the first. */
static void expect_without_a_body_swallows_no_request(void **state)
{
    (void)state;
    static const struct {
        const char *line, *fields;
        int status;
        const char *body;
    } first[] = {{"GET /echo/one", "", 200, "one"},
                 {"GET /echo/one", "Content-Length: 0\r\n", 200, "one"},
                 {"POST /count", "Content-Length: 0\r\n", 200, "0"},
                 {"GET /wait/3", "", 200, "worked"},
                 {"GET /stream/10", "", 200, "abcdefghij"},
                 {"GET /nothing", "", 404, NULL},
                 {"GET /both", "Host: twice\r\n", 400, NULL}};
    for (size_t i = 0; i < COUNT(first); i++) {
        raw_conn c;
        raw_open(&c, app.url);
        assert_true(raw_text(&c,
                             "%s HTTP/1.1\r\n" HOST "%sExpect: 100-continue\r\n\r\n"
                             "GET /echo/two HTTP/1.1\r\n" HOST "\r\n",
                             first[i].line, first[i].fields));
        raw_answer a = raw_read(&c, false, 0);
        assert_answer(&a, first[i].status, first[i].body);
        const char *connection = raw_header(&a, "Connection");
        bool closed = connection != NULL && strcmp(connection, "close") == 0;
        raw_free(&a);
        if (closed) { /* then the client knows that it has no answer to the second */
            assert_true(raw_is_closed(&c, 2000));
        } else {
            a = raw_read(&c, false, 0);
            assert_answer(&a, 200, "two");
            raw_free(&a);
        }
        raw_close(&c);
    }
}

/* --- Host and listening --- */

static void foreign_hosts_are_refused_on_loopback(void **state)
{
    (void)state;
    static const char *const good[] = {"localhost",      "LocalHost:99", "127.0.0.1",
                                       "127.0.0.1:8080", "[::1]",        "[::1]:80"};
    static const char *const bad[] = {"evil.example",
                                      "localhost.evil.example",
                                      "127.0.0.1.nip.io",
                                      "127.0.0.2",
                                      "",
                                      "localhost:80x",
                                      "[::1",
                                      "[::2]",
                                      "@localhost"};
    char request[128];
    for (size_t i = 0; i < COUNT(good); i++) {
        (void)snprintf(request, sizeof request, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", good[i]);
        raw_answer a = raw_once(app.url, request);
        assert_answer(&a, 200, "root");
        raw_free(&a);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        (void)snprintf(request, sizeof request, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", bad[i]);
        refuses(request, 403, "host_not_allowed", true);
    }
    refuses("GET http://evil.example/ HTTP/1.1\r\n" HOST "\r\n", 403, "host_not_allowed", true);
    raw_answer a = raw_once(app.url, "GET / HTTP/1.0\r\n\r\n");
    assert_answer(&a, 200, "root");
    raw_free(&a);
}

static void open_listeners_take_any_host(void **state)
{
    (void)state;
    static const struct {
        const char *listen, *url;
        int status;
    } table[] = {{"0.0.0.0:0", "http://0.0.0.0:", 200},
                 {"[::]:0", "http://[::]:", 200},
                 {"localhost:0", "http://", 403},
                 {"[::1]:0", "http://[::1]:", 403}};
    for (size_t i = 0; i < COUNT(table); i++) {
        http_app other;
        char url[64];
        bool wildcard = table[i].status == 200;
        if (table[i].listen[0] == '[' && access("/proc/net/if_inet6", F_OK) != 0) {
            (void)printf("skipped: listening on %s: no IPv6 here\n", table[i].listen);
            continue;
        }
        http_app_start(&other, (http_app_options){.listen = table[i].listen, .io_threads = 1});
        assert_memory_equal(other.url, table[i].url, strlen(table[i].url));
        const char *port = strrchr(other.url, ':');
        assert_true(atoi(port + 1) > 0);
        /* IPv4 reaches [::], too. */
        (void)snprintf(url, sizeof url, "%s%s", wildcard ? "http://127.0.0.1" : other.url,
                       wildcard ? port : "");
        raw_answer a = raw_once(url, "GET / HTTP/1.1\r\nHost: any.example\r\n\r\n");
        assert_int_equal(a.status, table[i].status);
        raw_free(&a);
        assert_int_equal(http_app_stop(&other, 1000), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_get_is_answered_on_a_kept_connection),
        cmocka_unit_test(pipelined_requests_are_answered_in_order),
        cmocka_unit_test(head_has_the_length_and_no_body),
        cmocka_unit_test(a_stream_arrives_whole_in_both_versions),
        cmocka_unit_test(request_ids_are_taken_or_made),
        cmocka_unit_test(every_failure_has_its_status),
        cmocka_unit_test(each_request_is_one_log_line),
        cmocka_unit_test(paths_match_exactly),
        cmocka_unit_test(odd_targets_are_refused),
        cmocka_unit_test(other_methods_are_told_what_is_allowed),
        cmocka_unit_test(options_lists_methods),
        cmocka_unit_test(media_types_are_negotiated),
        cmocka_unit_test(odd_lengths_close_the_connection),
        cmocka_unit_test(ambiguous_framing_is_refused),
        cmocka_unit_test(unknown_transfer_codings_are_refused),
        cmocka_unit_test(the_body_limit_is_exact),
        cmocka_unit_test(a_body_far_over_the_limit_is_cut_with_an_answer),
        cmocka_unit_test(a_body_broken_at_the_start_is_answered_at_its_end),
        cmocka_unit_test(expect_continue_is_answered_at_once),
        cmocka_unit_test(expect_without_a_body_swallows_no_request),
        cmocka_unit_test(foreign_hosts_are_refused_on_loopback),
        cmocka_unit_test(open_listeners_take_any_host),
    };
    srv_log_init(SRV_LOG_ERROR, true);
    return cmocka_run_group_tests(tests, start, stop);
}

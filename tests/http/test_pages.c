/* The files that the daemon carries within itself: the same bytes as in the tree, cached by their tag,
 * found by their exact name only, and switched off by their keys. */
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/rawhttp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/assets.h"

static test_daemon *daemon_;

static int start(void **state)
{
    (void)state;
    daemon_ = daemon_start(COMMAND("serve"));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_stop(daemon_);
    return 0;
}

static raw_answer ask(const test_daemon *d, const char *method, const char *path,
                      const char *header)
{
    char request[1024];
    raw_conn c;
    (void)snprintf(request, sizeof request, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", method,
                   path, header);
    raw_open(&c, daemon_url(d));
    assert_true(raw_send(&c, request, strlen(request)));
    raw_answer a =
        raw_read(&c, strcmp(method, "HEAD") == 0 || strncmp(header, "If-None", 7) == 0, 5000);
    raw_close(&c);
    return a;
}

static void every_file_is_served_as_it_stands_in_the_tree(void **state)
{
    size_t n = 0;
    (void)state;

    for (const srv_asset *a = srv_assets; a->path != NULL; a++, n++) {
        raw_answer r = ask(daemon_, "GET", a->path, "");
        if (r.status != 200)
            fail_msg("%s: %d", a->path, r.status);
        assert_non_null(srv_asset_type(a));
        assert_string_equal(raw_header(&r, "Content-Type"), srv_asset_type(a));
        assert_string_equal(raw_header(&r, "Cache-Control"), "no-cache");
        assert_string_equal(raw_header(&r, "X-Content-Type-Options"), "nosniff");
        const char *origin = raw_header(&r, "Access-Control-Allow-Origin");
        assert_int_equal(origin != NULL, strncmp(a->path, "/ui/", 4) == 0);
        FILE *f = fopen(a->file, "rb");
        char *bytes = malloc(r.body_bytes + 1);
        assert_true(f != NULL && bytes != NULL);
        assert_int_equal(fread(bytes, 1, r.body_bytes + 1, f), r.body_bytes);
        assert_memory_equal(bytes, r.body, r.body_bytes);
        free(bytes);
        (void)fclose(f);
        raw_free(&r);
    }
    assert_true(n >= 4);
}

static void a_client_that_takes_gzip_gets_the_copy_made_at_build(void **state)
{
    static const char *const refusals[] = {"", "Accept-Encoding: identity\r\n",
                                           "Accept-Encoding: gzip;q=0\r\n"};
    raw_answer packed = ask(daemon_, "GET", "/openapi.json", "Accept-Encoding: gzip, br\r\n");
    char tag[64];
    (void)state;

    (void)snprintf(tag, sizeof tag, "%s", raw_header(&packed, "ETag"));
    assert_int_equal(packed.status, 200);
    assert_string_equal(raw_header(&packed, "Content-Encoding"), "gzip");
    assert_string_equal(raw_header(&packed, "Vary"), "Accept-Encoding");
    assert_memory_equal(packed.body, "\x1f\x8b", 2);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        raw_answer plain = ask(daemon_, "GET", "/openapi.json", refusals[i]);
        assert_int_equal(plain.status, 200);
        assert_null(raw_header(&plain, "Content-Encoding"));
        assert_int_equal(plain.body[0], '{');
        assert_true(packed.body_bytes < plain.body_bytes);
        assert_string_not_equal(raw_header(&plain, "ETag"), tag);
        raw_free(&plain);
    }
    raw_free(&packed);
}

static void pages_may_load_nothing_from_elsewhere(void **state)
{
    static const char *const rules[] = {"default-src 'none'", "script-src 'self'",
                                        "style-src 'self'", "connect-src 'self'"};
    raw_answer r = ask(daemon_, "GET", "/docs", "");
    (void)state;

    const char *policy = raw_header(&r, "Content-Security-Policy");
    assert_non_null(policy);
    assert_null(strstr(policy, "unsafe"));
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        assert_non_null(strstr(policy, rules[i]));
    assert_string_equal(raw_header(&r, "Referrer-Policy"), "no-referrer");
    assert_null(strstr(r.body, "//"));   /* no address of another host */
    assert_null(strstr(r.body, "=\"/")); /* nor one that a path prefix would break */
    raw_free(&r);
}

static void a_tag_that_the_client_has_is_304(void **state)
{
    static const char *const lists[] = {"%s", "W/%s", "\"0\", %s", "*"};
    raw_answer whole = ask(daemon_, "GET", "/openapi.json", "");
    char tag[64], header[256], length[32];
    (void)state;

    (void)snprintf(tag, sizeof tag, "%s", raw_header(&whole, "ETag"));
    (void)snprintf(length, sizeof length, "%zu", whole.body_bytes);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char list[128];
        const char *hole = strstr(lists[i], "%s");
        (void)snprintf(list, sizeof list, "%.*s%s", (int)(hole != NULL ? hole - lists[i] : 9),
                       lists[i], hole != NULL ? tag : "");
        (void)snprintf(header, sizeof header, "If-None-Match: %s\r\n", list);
        raw_answer r = ask(daemon_, "GET", "/openapi.json", header);
        assert_int_equal(r.status, 304);
        assert_int_equal(r.body_bytes, 0);
        assert_string_equal(raw_header(&r, "ETag"), tag);
        assert_string_equal(raw_header(&r, "Content-Length"), length); /* RFC 9110, section 8.6 */
        raw_free(&r);
    }
    raw_answer other = ask(daemon_, "GET", "/openapi.json", "If-None-Match: \"0\"\r\n");
    assert_int_equal(other.status, 200);
    raw_free(&other);
    raw_answer head = ask(daemon_, "HEAD", "/openapi.json", "");
    assert_int_equal(head.status, 200);
    assert_string_equal(raw_header(&head, "Content-Length"), length);
    raw_free(&head);
    raw_free(&whole);
}

static void only_exact_names_are_found(void **state)
{
    static const char *const none[] = {"/docs/",
                                       "/docs/nope.js",
                                       "/docs/PAGE.JS",
                                       "/docs/page.js/",
                                       "/docs/page.j",
                                       "/docs/index.html",
                                       "/docs/..%2fdocs%2fpage.js",
                                       "/docs/../docs/page.js",
                                       "/docs//page.js",
                                       "/docs/%2e%2e/docs",
                                       "/ui/docs%2fpage.js",
                                       "/ui/docs%2Findex.html",
                                       "/ui/index.html",
                                       "/ui/openapi.json",
                                       "/ui/docs/page.js",
                                       "/ui/..%2f..%2fMakefile",
                                       "/docs/openapi.json",
                                       "/openapi.json/",
                                       "/Openapi.json",
                                       "/ui/%2fetc%2fpasswd"};
    (void)state;

    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        raw_answer r = ask(daemon_, "GET", none[i], "");
        if (r.status != 404)
            fail_msg("%s: %d", none[i], r.status);
        assert_null(raw_header(&r, "ETag"));
        raw_free(&r);
    }
    raw_answer r = ask(daemon_, "GET", "/docs/page%2Ejs", ""); /* the same name */
    assert_int_equal(r.status, 200);
    raw_free(&r);
}

static void expect(const test_daemon *d, const char *path, int status)
{
    raw_answer r = ask(d, "GET", path, "");
    if (r.status != status)
        fail_msg("%s: %d", path, r.status);
    raw_free(&r);
}

static void what_is_switched_off_is_404(void **state)
{
    int viewer = srv_asset_find("/") != NULL ? 200 : 404;
    (void)state;

    test_daemon *d = daemon_start(COMMAND("serve", "--set", "docs.enabled=false"));
    expect(d, "/docs", 404);
    expect(d, "/docs/page.js", 404);
    expect(d, "/openapi.json", 404);
    expect(d, "/", viewer);
    expect(d, "/metrics", 200);
    daemon_stop(d);
    d = daemon_start(
        COMMAND("serve", "--set", "ui.enabled=false", "--set", "metrics.enabled=false"));
    raw_answer post = ask(d, "POST", "/", "Content-Length: 0\r\n");
    assert_int_equal(post.status, 404); /* there is no such path: not 405 */
    raw_free(&post);
    expect(d, "/", 404);
    expect(d, "/ui/attention-map.js", 404);
    expect(d, "/metrics", 404);
    expect(d, "/docs", 200);
    expect(d, "/openapi.json", 200);
    daemon_stop(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_file_is_served_as_it_stands_in_the_tree),
        cmocka_unit_test(a_client_that_takes_gzip_gets_the_copy_made_at_build),
        cmocka_unit_test(pages_may_load_nothing_from_elsewhere),
        cmocka_unit_test(a_tag_that_the_client_has_is_304),
        cmocka_unit_test(only_exact_names_are_found),
        cmocka_unit_test(what_is_switched_off_is_404),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

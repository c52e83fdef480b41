/* https: what is spoken, how slow clients end, and certificates that are changed while it runs. */
#include "tests/certificates.h"
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/http_app.h"
#include "tests/rawhttp.h"
#include "tests/scratch.h"
#include "tests/watch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>

#include "server/access.h"
#include "server/log.h"
#include "server/tls.h"

#define GET "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

static int start(void **state)
{
    (void)signal(SIGPIPE, SIG_IGN);
    if (scratch_setup(state) != 0)
        return -1;
    certificate_make("one", "one", 30, NULL);
    certificate_make("two", "two", 30, NULL);
    return 0;
}

/* --- a client that shows what goes on ---------------------------------------------------------- */

typedef struct {
    raw_conn raw;
    gnutls_session_t session;
    gnutls_certificate_credentials_t trust;
} tls_conn;

/* "https://..." as rawhttp.h wants it. */
static const char *plain_url(const char *url)
{
    static _Thread_local char text[64];
    assert_memory_equal(url, "https://", 8);
    (void)snprintf(text, sizeof text, "http://%s", url + 8);
    return text;
}

/* The result of the handshake. */
static int tls_open(tls_conn *c, const char *url, const char *priorities)
{
    memset(c, 0, sizeof *c);
    raw_open(&c->raw, plain_url(url));
    assert_int_equal(fcntl(c->raw.fd, F_SETFL, 0), 0);
    const struct timeval limit = {.tv_sec = 20};
    assert_int_equal(setsockopt(c->raw.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    assert_int_equal(gnutls_certificate_allocate_credentials(&c->trust), 0);
    assert_int_equal(gnutls_init(&c->session, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL), 0);
    assert_int_equal(gnutls_priority_set_direct(c->session, priorities, NULL), 0);
    assert_int_equal(gnutls_credentials_set(c->session, GNUTLS_CRD_CERTIFICATE, c->trust), 0);
    gnutls_transport_set_int(c->session, c->raw.fd);
    return gnutls_handshake(c->session);
}

static void tls_close(tls_conn *c)
{
    gnutls_deinit(c->session);
    gnutls_certificate_free_credentials(c->trust);
    raw_close(&c->raw);
}

static void tls_send(tls_conn *c, const char *text)
{
    assert_int_equal(gnutls_record_send(c->session, text, strlen(text)), strlen(text));
}

/* Reads until `end` stands there, or the end; the text stays valid until the next call of the thread. */
static const char *tls_read(tls_conn *c, const char *end)
{
    static _Thread_local char text[20000];
    size_t n = 0;
    ssize_t got = 1;
    text[0] = '\0';
    while (strstr(text, end) == NULL && n + 1 < sizeof text &&
           (got = gnutls_record_recv(c->session, text + n, sizeof text - 1 - n)) > 0) {
        n += (size_t)got;
        text[n] = '\0';
    }
    return text;
}

/* The common name that the server showed. */
static void common_name(const tls_conn *c, char out[16])
{
    unsigned n = 0;
    gnutls_x509_crt_t crt;
    size_t size = 16;
    const gnutls_datum_t *list = gnutls_certificate_get_peers(c->session, &n);
    assert_true(list != NULL && n == 1);
    assert_int_equal(gnutls_x509_crt_init(&crt), 0);
    assert_int_equal(gnutls_x509_crt_import(crt, &list[0], GNUTLS_X509_FMT_DER), 0);
    assert_int_equal(
        gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, out, &size), 0);
    gnutls_x509_crt_deinit(crt);
}

static void assert_shown(const char *url, const char *name)
{
    tls_conn c;
    char shown[16];
    assert_int_equal(tls_open(&c, url, SRV_TLS_PRIORITIES), 0);
    common_name(&c, shown);
    assert_string_equal(shown, name);
    tls_send(&c, GET);
    assert_non_null(strstr(tls_read(&c, "root"), "HTTP/1.1 200"));
    tls_close(&c);
}

static srv_access *open_access(const char *name)
{
    char certificate[64], key[64];
    srv_access *a = NULL;
    attn_error err = {0};
    (void)snprintf(certificate, sizeof certificate, "%s.crt", name);
    (void)snprintf(key, sizeof key, "%s.key", name);
    const srv_access_options o = {.certificate_file = scratch_path(certificate),
                                  .key_file = scratch_path(key)};
    if (srv_access_new(&a, &o, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    assert_true(srv_access_is_secure(a));
    return a;
}

/* Puts what is called `from` in the place of what is called "now", file by file, as tools that renew do. */
static void become(const char *from, const char *ending)
{
    char name[64], temporary[64], text[16384];
    (void)snprintf(name, sizeof name, "%s.%s", from, ending);
    FILE *f = fopen(scratch_path(name), "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text, f);
    assert_int_equal(fclose(f), 0);
    (void)snprintf(temporary, sizeof temporary, "now.%s.new", ending);
    (void)scratch_write(temporary, text, n);
    (void)snprintf(name, sizeof name, "now.%s", ending);
    assert_int_equal(rename(scratch_path(temporary), scratch_path(name)), 0);
}

/* --- the daemon -------------------------------------------------------------------------------- */

static size_t count_bytes(char *data, size_t size, size_t n, void *arg)
{
    (void)data;
    *(size_t *)arg += size * n;
    return size * n;
}

static long curl_status(const char *url, const char *path, const char *body, long version,
                        size_t *bytes)
{
    char full[200];
    long status = 0;
    *bytes = 0;
    CURL *curl = curl_easy_init();
    assert_non_null(curl);
    (void)snprintf(full, sizeof full, "%s%s", url, path);
    curl_easy_setopt(curl, CURLOPT_URL, full);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_CAINFO, scratch_path("one.crt"));
    curl_easy_setopt(curl, CURLOPT_SSLVERSION, version);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, count_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, bytes);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 60L);
    struct curl_slist *fields = curl_slist_append(NULL, "Content-Type: application/json");
    if (body != NULL) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, fields);
    }
    CURLcode rc = curl_easy_perform(curl);
    if (rc == CURLE_OK)
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    else
        printf("%s: %s\n", full, curl_easy_strerror(rc));
    curl_slist_free_all(fields);
    curl_easy_cleanup(curl);
    return status;
}

static char *body_with_maps(void)
{
    enum { TOKENS = 750, TEXT = TOKENS * 16 * 2 / 3 * 4 }; /* of zeros as float16 in base64 */
    static const char head[] =
        "{\"inputs_embeds\":{\"shape\":[750,16],\"dtype\":\"float16\",\"data\":\"";
    static const char tail[] = "\"},\"return_attentions\":true,\"encoding_format\":\"base64\"}";
    char *body = malloc(sizeof head + TEXT + sizeof tail);
    assert_non_null(body);
    memcpy(body, head, sizeof head - 1);
    memset(body + sizeof head - 1, 'A', TEXT);
    memcpy(body + sizeof head - 1 + TEXT, tail, sizeof tail);
    return body;
}

static void the_daemon_speaks_https_only(void **state)
{
    (void)state;
    char local[200], url[64];
    size_t bytes = 0, streamed = 0;
    (void)snprintf(local, sizeof local, "unix:%s", scratch_path("tls.sock"));
    test_daemon *d = daemon_start(COMMAND(
        "serve", "--listen", "127.0.0.1:0", "--listen", local, "--set", certificate_option("one"),
        "--set", certificate_key_option("one"), "--set", "memory.budget=8MiB"));
    assert_memory_equal(daemon_url(d), "https://127.0.0.1:", 18);
    (void)snprintf(url, sizeof url, "%s", daemon_url(d));
    assert_int_equal(curl_status(url, "/v1/models", NULL, CURL_SSLVERSION_DEFAULT, &bytes), 200);
    assert_int_equal(curl_status(url, "/health/ready", NULL,
                                 CURL_SSLVERSION_TLSv1_2 | CURL_SSLVERSION_MAX_TLSv1_2, &bytes),
                     200);
    assert_int_equal(curl_status(url, "/health/ready", NULL, CURL_SSLVERSION_TLSv1_3, &bytes), 200);

    /* An answer in pieces is as long as without TLS. */
    char *body = body_with_maps();
    assert_int_equal(
        curl_status(url, "/v1/models/demo/attention", body, CURL_SSLVERSION_DEFAULT, &streamed),
        200);
    raw_conn c;
    raw_open(&c, local);
    assert_true(
        raw_text(&c,
                 "POST /v1/models/demo/attention HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                 "application/json\r\nContent-Length: %zu\r\n\r\n",
                 strlen(body)));
    assert_true(raw_send(&c, body, strlen(body)));
    raw_answer a = raw_read(&c, false, 30000);
    assert_int_equal(a.status, 200);
    assert_true(a.complete);
    assert_int_equal(a.body_bytes, streamed);
    raw_free(&a);
    raw_close(&c);
    free(body);

    /* What is no TLS gets no answer; nor do old versions of it. */
    a = raw_once(plain_url(url), GET);
    assert_int_equal(a.status, 0);
    raw_free(&a);
    tls_conn old;
    assert_int_not_equal(tls_open(&old, url, "NORMAL:-VERS-ALL:+VERS-TLS1.1:%COMPAT"), 0);
    tls_close(&old);

    test_command ok = command_succeed(COMMAND("healthcheck", "--url", url, "--insecure"));
    command_free(&ok);
    ok = command_succeed(COMMAND("healthcheck", "--url", local));
    command_free(&ok);
    ok =
        command_succeed(COMMAND("healthcheck", "--listen", url + 8, "--set",
                                certificate_option("one"), "--set", certificate_key_option("one")));
    command_free(&ok);
    command_refuse(COMMAND("healthcheck", "--url", url), 1, COMMAND("trusted"));
    command_refuse(COMMAND("healthcheck", "--url", plain_url(url)), 1, COMMAND("no answer"));
    daemon_stop(d);
}

static void files_that_do_not_fit_are_one_sentence(void **state)
{
    (void)state;
    certificate_make("locked", "locked", 30, "secret");
    (void)scratch_write("junk.crt", "no certificate", 14);
    (void)scratch_write("junk.key", "no key", 6);
    static const struct {
        const char *certificate, *key, *says;
    } table[] = {{"one", "two", "two.key is not the key of the first certificate"},
                 {"junk", "one", "no certificate in PEM form"},
                 {"one", "junk", "no private key in PEM form"},
                 {"locked", "locked", "without a password"},
                 {"absent", "one", "No such file"},
                 {"one", "absent", "No such file"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        command_refuse(COMMAND("serve", "--set", certificate_option(table[i].certificate), "--set",
                               certificate_key_option(table[i].key)),
                       1, COMMAND(table[i].says));
        command_refuse(COMMAND("check", "--set", certificate_option(table[i].certificate), "--set",
                               certificate_key_option(table[i].key)),
                       1, COMMAND(table[i].says));
    }
}

static void one_that_has_ended_is_told_and_shown(void **state)
{
    (void)state;
    certificate_make("ended", "ended", -2, NULL);
    test_daemon *d = daemon_start(COMMAND("serve", "--set", certificate_option("ended"), "--set",
                                          certificate_key_option("ended")));
    assert_true(watch_log_has(d, "the certificate has expired"));
    daemon_stop(d);
}

/* --- answers beside the library, and time ------------------------------------------------------ */

static void a_hopeless_upload_is_answered_through_tls(void **state)
{
    (void)state;
    http_app app;
    tls_conn c;
    srv_access *access = open_access("one");
    http_app_start(&app, (http_app_options){.access = access});
    assert_int_equal(tls_open(&c, app.url, SRV_TLS_PRIORITIES), 0);
    tls_send(&c,
             "POST /count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\nabc");
    const char *text = tls_read(&c, "}");
    assert_memory_equal(text, "HTTP/1.1 413 ", 13);
    assert_non_null(strstr(text, "limit_bytes"));
    assert_int_equal(gnutls_record_recv(c.session, &(char){0}, 1), 0); /* an end that was said */
    tls_close(&c);
    http_app_settle(&app);
    assert_int_equal(http_app_stop(&app, 1000), 0);
    srv_access_free(access);
}

static void slow_ones_are_closed_in_time(void **state)
{
    (void)state;
    enum { SILENT, DRIPPING, HEADER, BODY, WAYS };
    http_app app;
    tls_conn c[WAYS];
    srv_access *access = open_access("one");
    /* The beginning of a ClientHello, of which a byte comes now and then. */
    static const char hello[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    http_app_start(
        &app,
        (http_app_options){.access = access, .header_timeout_ms = 600, .request_timeout_ms = 600});
    long long begin = raw_now_ms();
    for (int i = HEADER; i < WAYS; i++)
        assert_int_equal(tls_open(&c[i], app.url, SRV_TLS_PRIORITIES), 0);
    tls_send(&c[HEADER], "GET / HTTP/1.1\r\nHost:");
    tls_send(&c[BODY], "POST /count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc");
    raw_open(&c[SILENT].raw, plain_url(app.url));
    raw_open(&c[DRIPPING].raw, plain_url(app.url));
    for (size_t i = 0; i < sizeof hello - 1; i++) {
        if (!raw_send(&c[DRIPPING].raw, hello + i, 1))
            break;
        (void)usleep(100000);
    }
    for (int i = 0; i < WAYS; i++) {
        if (i >=
            HEADER) /* not a byte of an answer in the clear: the session would call it broken */
            assert_true(gnutls_record_recv(c[i].session, &(char){0}, 1) <= 0);
        assert_true(raw_is_closed(&c[i].raw, 5000));
    }
    assert_in_range(raw_now_ms() - begin, 500, 4000);
    for (int i = 0; i < WAYS; i++) {
        if (i >= HEADER)
            tls_close(&c[i]);
        else
            raw_close(&c[i].raw);
    }
    http_app_settle(&app);
    assert_int_equal(atomic_load(&app.last_status), 408);
    assert_shown(app.url, "one"); /* it serves on */
    assert_int_equal(http_app_stop(&app, 1000), 0);
    srv_access_free(access);
}

static void kept_connections_and_waiting_ones_are_served(void **state)
{
    (void)state;
    http_app app;
    tls_conn c;
    srv_access *access = open_access("one");
    http_app_start(&app, (http_app_options){.access = access});
    assert_int_equal(tls_open(&c, app.url, SRV_TLS_PRIORITIES), 0);
    for (int i = 0; i < 3; i++) {
        tls_send(&c, "GET /wait/21 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_non_null(strstr(tls_read(&c, "worked"), "HTTP/1.1 200"));
    }
    /* Two at once, in one record. */
    tls_send(&c,
             "GET /wait/3 HTTP/1.1\r\nHost: localhost\r\n\r\nGET /echo/second HTTP/1.1\r\nHost: "
             "localhost\r\n\r\n");
    const char *text = tls_read(&c, "second");
    assert_non_null(strstr(text, "second"));
    tls_close(&c);
    assert_int_equal(http_app_stop(&app, 1000), 0);
    srv_access_free(access);
}

/* --- other certificates ------------------------------------------------------------------------ */

static void a_new_certificate_is_for_new_connections(void **state)
{
    (void)state;
    http_app app;
    tls_conn old;
    char shown[16];
    attn_error err = {0};
    become("one", "crt");
    become("one", "key");
    srv_access *access = open_access("now");
    http_app_start(&app, (http_app_options){.access = access});
    assert_int_equal(tls_open(&old, app.url, SRV_TLS_PRIORITIES), 0);
    assert_shown(app.url, "one");

    become("two", "crt"); /* the key does not follow yet */
    assert_int_equal(srv_access_reload(access, &err), ATTN_EFORMAT);
    assert_non_null(strstr(err.text, "is not the key"));
    assert_shown(app.url, "one");

    become("two", "key");
    assert_int_equal(srv_access_reload(access, NULL), ATTN_OK);
    assert_shown(app.url, "two");
    tls_send(&old, GET);
    assert_non_null(strstr(tls_read(&old, "root"), "HTTP/1.1 200"));
    common_name(&old, shown);
    assert_string_equal(shown, "one");
    tls_close(&old);
    assert_int_equal(http_app_stop(&app, 1000), 0);
    srv_access_free(access);
}

typedef struct {
    const char *url;
    atomic_int stop, seen[2];
} shaking;

static void *shake_hands(void *arg)
{
    shaking *s = arg;
    while (atomic_load(&s->stop) == 0) {
        tls_conn c;
        char shown[16];
        assert_int_equal(tls_open(&c, s->url, SRV_TLS_PRIORITIES), 0);
        common_name(&c, shown);
        atomic_fetch_add(&s->seen[strcmp(shown, "two") == 0], 1);
        tls_close(&c);
    }
    return NULL;
}

static void certificates_change_under_load(void **state)
{
    (void)state;
    http_app app;
    pthread_t thread[2];
    become("one", "crt");
    become("one", "key");
    srv_access *access = open_access("now");
    http_app_start(&app, (http_app_options){.access = access});
    shaking s = {.url = app.url};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, shake_hands, &s), 0);
    long long until = raw_now_ms() + 1500;
    for (int i = 0;
         raw_now_ms() < until || atomic_load(&s.seen[0]) < 5 || atomic_load(&s.seen[1]) < 5; i++) {
        become(i % 2 ? "one" : "two", "crt");
        become(i % 2 ? "one" : "two", "key");
        assert_int_equal(srv_access_reload(access, NULL), ATTN_OK);
        (void)usleep(5000);
        if (raw_now_ms() > until + 20000)
            fail_msg("one of the certificates was hardly seen");
    }
    atomic_store(&s.stop, 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(http_app_stop(&app, 1000), 0);
    srv_access_free(access);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_daemon_speaks_https_only),
        cmocka_unit_test(files_that_do_not_fit_are_one_sentence),
        cmocka_unit_test(one_that_has_ended_is_told_and_shown),
        cmocka_unit_test(a_hopeless_upload_is_answered_through_tls),
        cmocka_unit_test(slow_ones_are_closed_in_time),
        cmocka_unit_test(kept_connections_and_waiting_ones_are_served),
        cmocka_unit_test(a_new_certificate_is_for_new_connections),
        cmocka_unit_test(certificates_change_under_load),
    };
    srv_log_init(SRV_LOG_ERROR, true);
    return cmocka_run_group_tests(tests, start, scratch_teardown);
}

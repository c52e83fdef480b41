/* What no client library sends, over raw sockets against the daemon: whatever comes, an answer belongs to
 * its request, nothing hidden in one is taken for another, and the next client is served. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http.h"
#include "tests/daemon.h"
#include "tests/numbers.h"
#include "tests/rawhttp.h"
#include "tests/watch.h"

#define PATH     "/v1/scaled-dot-product-attention"
#define HOST     "Host: localhost\r\n"
#define TYPE     "Content-Type: application/json\r\n"
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static test_daemon *daemon_;

static int start(void **state)
{
    (void)state;
    daemon_ = daemon_start((const char *const[]){"--set", "log.level=error", NULL});
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_stop(daemon_);
    return 0;
}

/* One key: its value is the output, so that an answer tells which request it belongs to. */
static size_t make_body(char *out, size_t size, unsigned value)
{
    return (size_t)snprintf(out, size,
                            "{\"query\":[[[[1]]]],\"key\":[[[[1]]]],\"value\":[[[[%u]]]]}", value);
}

static bool answers(const raw_answer *a, unsigned value)
{
    char want[64];

    (void)snprintf(want, sizeof want, "\"outputs\":[[[[%u]]]]", value);
    return a->status == 200 && a->complete && strstr(a->body, want) != NULL;
}

/* The request with this value is answered rightly on c. */
static void assert_served_on(raw_conn *c, unsigned value)
{
    char body[128];
    size_t n = make_body(body, sizeof body, value);

    assert_true(raw_text(c, "POST " PATH " HTTP/1.1\r\n" HOST TYPE "Content-Length: %zu\r\n\r\n%s",
                         n, body));
    raw_answer a = raw_read(c, false, 0);
    if (!answers(&a, value))
        fail_msg("%d instead of the output %u: %s", a.status, value, a.status ? a.body : "");
    raw_free(&a);
}

static void assert_served(unsigned value)
{
    raw_conn c;

    raw_open(&c, daemon_url(daemon_));
    assert_served_on(&c, value);
    raw_close(&c);
}

/* The sum of what is reserved and of what runs or waits, once nobody is connected. */
static void assert_nothing_is_left(void)
{
    for (int tries = 0;; tries++) {
        scrape s = watch_metrics(daemon_);
        double left = scrape_value(&s, "attnd_memory_used_bytes") +
                      scrape_value(&s, "attnd_requests_waiting") +
                      scrape_value(&s, "attnd_requests_running");
        scrape_free(&s);
        if (left == 0.0)
            return;
        if (tries == 100)
            fail_msg("%.0f bytes and requests are left", left);
        (void)usleep(50000);
    }
}

static size_t below(uint64_t *seed, size_t n)
{
    return (size_t)(numbers_next(seed) % n);
}

/* --- one request in another -------------------------------------------------------------------- */

/* Sends `text` and reads until the connection is closed or silent. How many final answers came; *last is the status of
 * the last of them, *closed whether the server ended the connection. */
static int count_answers(const char *text, size_t n, int *last, bool *closed)
{
    raw_conn c;
    int answers_seen = 0;

    *last = 0;
    raw_open(&c, daemon_url(daemon_));
    (void)raw_send(&c, text, n);
    for (;;) {
        raw_answer a = raw_read(&c, false, 400);
        int status = a.status;
        raw_free(&a);
        if (status == 0)
            break;
        *last = status;
        answers_seen += status >= 200;
    }
    *closed = raw_is_closed(&c, 1);
    raw_close(&c);
    return answers_seen;
}

#define HIDDEN "GET /health/live HTTP/1.1\r\n" HOST "\r\n"

static void nothing_hidden_in_a_request_is_answered(void **state)
{
    (void)state;
    /* Each could end at two places for two readers; what stands behind the first is HIDDEN. */
    static const char *const fields[] = {
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 0\r\nContent-Length: 44\r\n",
        "Content-Length: 44\r\nContent-Length: 0\r\n",
        "Content-Length: 0, 44\r\n",
        "Content-Length: 0\r\nContent-Length : 44\r\n",
        "Content-Length: +0\r\n",
        "Content-Length: 0x2c\r\n",
        "Content-Length: 4 4\r\n",
        "Content-Length: -44\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: chunked;a=b\r\n",
        "Transfer-Encoding: \013chunked\r\n",
        "X: y\nContent-Length: 44\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 0\r\nX-A: b\rContent-Length: 44\r\n",
    };
    char text[1024];

    for (size_t i = 0; i < COUNT(fields); i++) {
        int last = 0;
        bool closed = false;
        int n = snprintf(text, sizeof text,
                         "POST " PATH " HTTP/1.1\r\n" HOST TYPE "%s\r\n0\r\n\r\n" HIDDEN HIDDEN,
                         fields[i]);
        int seen = count_answers(text, (size_t)n, &last, &closed);
        if (seen > 1 || last == 200 || !closed)
            fail_msg("%d answers, the last %d, %s after: %s", seen, last,
                     closed ? "closed" : "open", fields[i]);
        assert_served((unsigned)i);
    }
}

/* A header line that begins with a blank continues the one above it for some readers only. */
static void folded_fields_hide_nothing(void **state)
{
    (void)state;
    static const char *const fields[] = {
        "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nX-A: b\r\n Transfer-Encoding: chunked\r\n",
        "Content-Length:\r\n 5\r\nX: y\r\n\tTransfer-Encoding: chunked\r\n",
        " Content-Length: 5\r\n",
        "\tTransfer-Encoding: chunked\r\n",
    };
    char text[1024];

    for (size_t i = 0; i < COUNT(fields); i++) {
        int last = 0;
        bool closed = false;
        int n =
            snprintf(text, sizeof text,
                     "POST " PATH " HTTP/1.1\r\n" HOST TYPE "%s\r\n0\r\n\r\n" HIDDEN, fields[i]);
        int seen = count_answers(text, (size_t)n, &last, &closed);
        /* Where the line is read as one with the line above, the five bytes are a body that is no JSON, and HIDDEN
         * is the next request of this client; whatever else ends the connection. */
        if (!(seen == 1 && last != 200 && closed) && !(seen == 2 && last == 200 && !closed))
            fail_msg("%d answers, the last %d, %s after: %s", seen, last,
                     closed ? "closed" : "open", fields[i]);
        assert_served((unsigned)i);
    }
}

/* --- chunks ------------------------------------------------------------------------------------ */

/* A request of one value in chunks of `piece` bytes, whose sizes stand between these texts. */
static raw_answer ask_in_chunks(raw_conn *c, const char *zeros, const char *extension,
                                unsigned piece)
{
    char body[128], head[64];
    size_t n = make_body(body, sizeof body, piece);
    bool sent =
        raw_text(c, "POST " PATH " HTTP/1.1\r\n" HOST TYPE "Transfer-Encoding: chunked\r\n\r\n");

    for (size_t at = 0; sent && at < n; at += piece) {
        size_t take = n - at < piece ? n - at : piece;
        int length = snprintf(head, sizeof head, *zeros ? "%s%zX%s\r\n" : "%s%zx%s\r\n", zeros,
                              take, extension);
        sent = raw_send(c, head, (size_t)length) && raw_send(c, body + at, take) &&
               raw_send(c, "\r\n", 2);
    }
    if (sent)
        (void)raw_text(c, "0\r\n\r\n");
    return raw_read(c, false, 0);
}

static void chunks_may_have_any_size(void **state)
{
    (void)state;
    raw_conn c;

    raw_open(&c, daemon_url(daemon_));
    for (unsigned piece = 1; piece < 80; piece += 7) {
        raw_answer a = ask_in_chunks(&c, piece % 2 ? "" : "000", "", piece);
        assert_true(answers(&a, piece));
        raw_free(&a);
    }
    raw_close(&c);
}

/* libmicrohttpd 1.0.1 takes a chunk with an extension for none; it then says so, and closes. */
static void chunks_may_have_extensions(void **state)
{
    (void)state;
    for (unsigned piece = 1; piece < 80; piece += 7) {
        raw_conn c;
        raw_open(&c, daemon_url(daemon_));
        raw_answer a = ask_in_chunks(&c, "", ";name=\"a value\"", piece);
        if (srv_http_library_version()[0] != '0' && a.status == 400)
            assert_true(raw_is_closed(&c, 2000));
        else
            assert_true(answers(&a, piece));
        raw_free(&a);
        raw_close(&c);
    }
}

static void chunks_that_are_none_end_the_connection(void **state)
{
    (void)state;
    static const char *const chunks[] = {
        "-3\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "zz\r\nabc\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcdef\r\n0\r\n\r\n",
        ";a=b\r\nabc\r\n0\r\n\r\n",
        "\r\n\r\n",
    };
    char text[1024];

    for (size_t i = 0; i < COUNT(chunks); i++) {
        int last = 0;
        bool closed = false;
        int n = snprintf(text, sizeof text,
                         "POST " PATH " HTTP/1.1\r\n" HOST TYPE "Transfer-Encoding: chunked\r\n\r\n"
                         "%s" HIDDEN,
                         chunks[i]);
        int seen = count_answers(text, (size_t)n, &last, &closed);
        if (seen > 1 || last == 200)
            fail_msg("%d answers, the last %d after: %s", seen, last, chunks[i]);
        assert_served((unsigned)i);
    }
}

/* --- requests one after the other -------------------------------------------------------------- */

/* Many requests are sent at once, cut anywhere; some are wrong, some are chunked. The n-th answer is that of the n-th
 * request, by what it computed and by its id. */
static void pipelined_answers_belong_to_their_requests(void **state)
{
    (void)state;
    enum { REQUESTS = 40, ROUNDS = 25 };
    static char text[REQUESTS * 512];
    uint64_t seed = 11;

    for (int round = 0; round < ROUNDS; round++) {
        size_t used = 0;
        int kind[REQUESTS];
        for (int i = 0; i < REQUESTS; i++) {
            char body[128];
            size_t n = make_body(body, sizeof body, (unsigned)(round * REQUESTS + i));
            kind[i] = (int)below(&seed, 4);
            used += (size_t)snprintf(
                text + used, sizeof text - used,
                kind[i] == 3 ? "GET /nothing HTTP/1.1\r\n" HOST "X-Request-Id: r%d-%d\r\n\r\n"
                             : "POST " PATH " HTTP/1.1\r\n" HOST TYPE "X-Request-Id: r%d-%d\r\n",
                round, i);
            if (kind[i] == 0)
                used += (size_t)snprintf(text + used, sizeof text - used,
                                         "Content-Length: %zu\r\n\r\n%s", n, body);
            else if (kind[i] == 1)
                used += (size_t)snprintf(text + used, sizeof text - used,
                                         "Transfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n0\r\n\r\n",
                                         n, body);
            else if (kind[i] == 2) /* cut off: not JSON */
                used +=
                    (size_t)snprintf(text + used, sizeof text - used,
                                     "Content-Length: %zu\r\n\r\n%.*s", n - 1, (int)n - 1, body);
        }
        raw_conn c;
        raw_open(&c, daemon_url(daemon_));
        for (size_t at = 0; at < used;) {
            size_t take = 1 + below(&seed, 2000);
            take = take > used - at ? used - at : take;
            assert_true(raw_send(&c, text + at, take));
            at += take;
        }
        for (int i = 0; i < REQUESTS; i++) {
            char id[32];
            raw_answer a = raw_read(&c, false, 0);
            (void)snprintf(id, sizeof id, "r%d-%d", round, i);
            assert_int_equal(a.status, kind[i] < 2 ? 200 : kind[i] == 2 ? 400 : 404);
            assert_string_equal(raw_header(&a, "X-Request-Id"), id);
            if (kind[i] < 2)
                assert_true(answers(&a, (unsigned)(round * REQUESTS + i)));
            raw_free(&a);
        }
        raw_close(&c);
    }
}

/* --- clients that leave ------------------------------------------------------------------------ */

static void set_reset(int fd)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

static size_t open_files(void)
{
    char path[64];
    size_t n = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)daemon_pid(daemon_));
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        n++;
    (void)closedir(dir);
    return n;
}

/* At every byte of a request, by closing, by resetting and by ending its side. */
static void a_client_may_leave_at_any_byte(void **state)
{
    (void)state;
    char text[512], body[128];
    size_t b = make_body(body, sizeof body, 7);
    int n =
        snprintf(text, sizeof text,
                 "POST " PATH " HTTP/1.1\r\n" HOST TYPE "Content-Length: %zu\r\n\r\n%s", b, body);

    assert_served(1);
    assert_nothing_is_left();
    size_t before = open_files();
    for (int at = 0; at <= n; at++) {
        for (int how = 0; how < 3; how++) {
            raw_conn c;
            raw_open(&c, daemon_url(daemon_));
            assert_true(raw_send(&c, text, (size_t)at));
            if (how == 1)
                set_reset(c.fd);
            if (how == 2) {
                (void)shutdown(c.fd, SHUT_WR);
                assert_true(raw_is_closed(&c, 5000)); /* nobody waits for what cannot come */
            }
            raw_close(&c);
        }
    }
    assert_served(2);
    assert_nothing_is_left();
    for (int tries = 0; tries < 100 && open_files() > before; tries++)
        (void)usleep(50000);
    assert_in_range(open_files(), 1, before);
}

/* --- sizes ------------------------------------------------------------------------------------- */

static void headers_beyond_all_bounds_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after;
        size_t letters; /* between them */
        int status;
    } big[] = {
        {"GET /health/live HTTP/1.1\r\n" HOST "X-Long: ", "\r\n\r\n", 16000, 200},
        {"GET /health/live HTTP/1.1\r\n" HOST "X-Long: ", "\r\n\r\n", 200000, 431},
        {"GET /health/live HTTP/1.1\r\n" HOST "X-Long: ", "\r\n\r\n", 4000000, 431},
        {"GET /", " HTTP/1.1\r\n" HOST "\r\n", 200000, 414},
        {"GET /", " HTTP/1.1\r\n" HOST "\r\n", 4000000, 414},
        {"", " / HTTP/1.1\r\n" HOST "\r\n", 200000, 414},
    };

    for (size_t i = 0; i < COUNT(big); i++) {
        raw_conn c;
        char *letters = malloc(big[i].letters);
        assert_non_null(letters);
        memset(letters, 'a', big[i].letters);
        raw_open(&c, daemon_url(daemon_));
        (void)(raw_send(&c, big[i].before, strlen(big[i].before)) &&
               raw_send(&c, letters, big[i].letters) &&
               raw_send(&c, big[i].after, strlen(big[i].after)));
        raw_answer a = raw_read(&c, false, 0);
        /* A client that still sends when it is refused may see the end of the connection alone. */
        if (a.status != 0 || big[i].status == 200)
            assert_int_equal(a.status, big[i].status);
        raw_free(&a);
        raw_close(&c);
        free(letters);
        assert_served((unsigned)i);
    }
    /* Two thousand fields. */
    static char text[2000 * 12 + 128];
    size_t used = (size_t)snprintf(text, sizeof text, "GET /health/live HTTP/1.1\r\n" HOST);
    for (int i = 0; i < 2000; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "x%d:\r\n", i);
    used += (size_t)snprintf(text + used, sizeof text - used, "\r\n");
    int last = 0;
    bool closed = false;
    assert_in_range(count_answers(text, used, &last, &closed), 0, 1);
    assert_true(last == 431 || last == 0);
    assert_served(3);
}

/* --- at random --------------------------------------------------------------------------------- */

/* A good request with bytes changed, taken out, put in, or doubled. No answer says 200 to what was not asked; and others
 * are served between. C20: 10,000 of them. */
static void ten_thousand_damaged_requests_do_no_harm(void **state)
{
    (void)state;
    enum { REQUESTS = 10000, MOST = 2048 };
    uint64_t seed = 20;
    char good[512], body[128], text[MOST];
    size_t b = make_body(body, sizeof body, 5);
    const size_t n =
        (size_t)snprintf(good, sizeof good,
                         "POST " PATH " HTTP/1.1\r\n" HOST TYPE "Accept-Encoding: gzip;q=0\r\n"
                         "Transfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n0\r\n\r\n",
                         b, body);
    static const char odd[] = "\0\r\n :;,\"%\t\x7f\x80\xff/0[{";

    for (int i = 0; i < REQUESTS; i++) {
        size_t used = n;
        memcpy(text, good, n);
        for (size_t edits = 1 + below(&seed, 4); edits > 0; edits--) {
            size_t at = below(&seed, used);
            char byte =
                below(&seed, 2) ? odd[below(&seed, sizeof odd - 1)] : (char)below(&seed, 256);
            size_t span = 1 + below(&seed, 16);
            switch (below(&seed, 4)) {
            case 0:
                text[at] = byte;
                break;
            case 1:
                memmove(text + at + 1, text + at, used - at);
                text[at] = byte;
                used++;
                break;
            case 2:
                span = span > used - at ? used - at : span;
                memmove(text + at, text + at + span, used - at - span);
                used -= span;
                break;
            default:
                span = span > used - at ? used - at : span;
                memmove(text + at + span, text + at, used - at);
                used += span;
            }
            if (used == 0 || used > MOST - 64)
                break;
        }
        raw_conn c;
        raw_open(&c, daemon_url(daemon_));
        (void)raw_send(&c, text, used);
        (void)shutdown(c.fd, SHUT_WR); /* what is not complete will not be */
        raw_answer a = raw_read(&c, false, 5000);
        if (a.status == 200 && a.complete && strstr(a.body, "\"outputs\"") == NULL &&
            strstr(text, "/health") == NULL)
            fail_msg("200 with something else: %s", a.body);
        raw_free(&a);
        raw_close(&c);
        if (i % 500 == 0)
            assert_served((unsigned)i);
    }
    assert_nothing_is_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_hidden_in_a_request_is_answered),
        cmocka_unit_test(folded_fields_hide_nothing),
        cmocka_unit_test(chunks_may_have_any_size),
        cmocka_unit_test(chunks_may_have_extensions),
        cmocka_unit_test(chunks_that_are_none_end_the_connection),
        cmocka_unit_test(pipelined_answers_belong_to_their_requests),
        cmocka_unit_test(a_client_may_leave_at_any_byte),
        cmocka_unit_test(headers_beyond_all_bounds_are_refused),
        cmocka_unit_test(ten_thousand_damaged_requests_do_no_harm),
    };
    return cmocka_run_group_tests_name("raw_http", tests, start, stop);
}

/* The daemon when what it calls fails: memory, threads, disk, network, its log. Whatever fails, there is a clear error or
 * a right answer, nothing is lost for good, and the next request is served. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon.h"
#include "tests/faults.h"
#include "tests/formats.h"
#include "tests/rawhttp.h"
#include "tests/scratch.h"
#include "tests/walk.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define DEMO     "/v1/models/demo/attention"
#define SDPA     "/v1/scaled-dot-product-attention"

static fault_page *faults;
static const char *folder; /* the demo model's */

static int open_all(void **state)
{
    (void)scratch_setup(state);
    folder = scratch_path("demo");
    char *err = NULL;
    assert_int_equal(daemon_run((const char *const[]){"demo", folder, NULL}, NULL, &err), 0);
    free(err);
    faults = faults_open();
    if (faults == NULL)
        printf("skipped: faults: the library that makes calls fail is not part of this build\n");
    return 0;
}

static int close_all(void **state)
{
    faults_close();
    return scratch_teardown(state);
}

#define NEED_FAULTS()                                                                              \
    if (faults == NULL)                                                                            \
    return

/* --- starting and ending ----------------------------------------------------------------------- */

static void a_load_survives_every_failed_allocation(void **state)
{
    (void)state;
    NEED_FAULTS();
    assert_true(walk_check(faults, FAULT_ALLOC, folder, NULL) > 100);
}

static void a_disk_error_while_loading_names_the_file(void **state)
{
    (void)state;
    NEED_FAULTS();
    assert_true(walk_check(faults, FAULT_READ, folder, folder) > 3);
    /* Bytes that come one by one, and calls that are interrupted, are no errors. */
    atomic_store(&faults->interrupt, 1);
    char *out = NULL;
    int code = daemon_run((const char *const[]){"check", "--model", folder, NULL}, &out, NULL);
    atomic_store(&faults->interrupt, 0);
    assert_int_equal(code, 0);
    assert_non_null(strstr(out, "layer 0"));
    free(out);
}

static void a_start_without_threads_or_memory_is_one_sentence(void **state)
{
    (void)state;
    NEED_FAULTS();
    static const struct {
        fault_kind kind;
        long least;
    } kinds[] = {{FAULT_THREAD, 3}, {FAULT_ALLOC, 100}};

    for (size_t k = 0; k < COUNT(kinds); k++) {
        long n = 0, hits = 0;
        do {
            int code = 0;
            char *err = NULL;
            faults_set(faults, kinds[k].kind, n, false, EAGAIN);
            test_daemon *d = daemon_try(
                (const char *const[]){"serve", "--model", folder, "--set", "log.level=error", NULL},
                &code, &err);
            hits = faults_clear(faults);
            if (d != NULL)
                daemon_stop(d); /* it could do without */
            else if (code != 1)
                fail_msg("kind %d: call %ld failed, and serve ended with %d: %s", kinds[k].kind, n,
                         code, err);
            else
                walk_assert_one_sentence(err, n);
            free(err);
            n = walk_next(n);
        } while (hits != 0);
        assert_true(n > kinds[k].least);
    }
}

static void a_shutdown_survives_every_failed_allocation(void **state)
{
    (void)state;
    NEED_FAULTS();
    long hits = 0;

    for (long n = 0; n == 0 || hits != 0; n++) {
        test_daemon *d = daemon_start((const char *const[]){NULL});
        faults_set(faults, FAULT_ALLOC, n, false, ENOMEM);
        (void)kill(daemon_pid(d), SIGTERM);
        int code = daemon_wait(d, 10000, NULL);
        hits = faults_clear(faults);
        assert_int_equal(code, 0);
    }
}

/* --- requests ---------------------------------------------------------------------------------- */

static char *example(const test_daemon *d, const char *more)
{
    test_reply r =
        daemon_request(d, "GET", "/v1/models/demo/examples/1-cat-on-the-mat", NULL, NULL, 0);
    char *end = strrchr(r.body, '}');
    char *text = malloc(r.body_bytes + strlen(more) + 2);

    assert_int_equal(r.status, 200);
    assert_true(end != NULL && text != NULL);
    (void)sprintf(text, "%.*s%s}", (int)(end - r.body), r.body, more);
    reply_free(&r);
    return text;
}

#define NUMBERS4 "[1,0.5,-1,2]"

static void a_request_survives_every_failed_allocation(void **state)
{
    (void)state;
    NEED_FAULTS();
    static const char sdpa[] =
        "{\"query\":[[[" NUMBERS4 "," NUMBERS4 "]]],\"key\":[[[" NUMBERS4 "," NUMBERS4 "]]],"
        "\"value\":[[[" NUMBERS4 "," NUMBERS4 "]]],\"attention_mask\":[[1,0]],"
        "\"return_attentions\":{\"heads\":[0],\"stage\":\"scores\"},"
        "\"return_intermediates\":[\"query\",\"logsumexp\"],\"encoding_format\":\"base64\"}";
    static const char oip[] = "{\"id\":\"a\",\"inputs\":[{\"name\":\"hidden_states\",\"datatype\":"
                              "\"FP32\",\"shape\":[1,1,16],"
                              "\"data\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16] }]}";
    test_daemon *d = daemon_start((const char *const[]){"--set", "log.level=error", NULL});
    float x[2 * 16];
    for (size_t i = 0; i < COUNT(x); i++)
        x[i] = (float)i / 8;
    char *json = example(d, ",\"return_intermediates\":[\"key\",\"context\"]");
    blob npy = format_npy(x, 3, (const size_t[]){1, 2, 16});
    blob st = format_safetensors(&(st_entry){.name = "inputs_embeds",
                                             .dtype = "F32",
                                             .rank = 3,
                                             .dim = {1, 2, 16},
                                             .data = x,
                                             .bytes = sizeof x},
                                 1, NULL);
    blob gzip = format_gzip(json, strlen(json));
    const asked q[] = {
        {"/health/ready", NULL, NULL, NULL, 0, NULL, true},
        {"/v1/models", NULL, NULL, NULL, 0, NULL, true},
        {"/v1/models/demo/examples", NULL, NULL, NULL, 0, NULL, true},
        {"/", NULL, NULL, NULL, 0, NULL, true},
        {"/metrics", NULL, NULL, NULL, 0, NULL, false},
        {"/v2/models/demo", NULL, NULL, NULL, 0, NULL, true},
        {DEMO, FORMAT_JSON, FORMAT_JSON, json, strlen(json), NULL, true},
        {DEMO, FORMAT_JSON, FORMAT_SAFETENSORS, json, strlen(json), NULL, true},
        {DEMO, FORMAT_JSON, FORMAT_PNG, json, strlen(json), NULL, true},
        {DEMO, FORMAT_JSON, FORMAT_JSON, gzip.at, gzip.n, "gzip", true},
        {DEMO, FORMAT_NPY, FORMAT_NPY, npy.at, npy.n, NULL, true},
        {DEMO, FORMAT_SAFETENSORS, FORMAT_JSON, st.at, st.n, NULL, true},
        {DEMO "/estimate", FORMAT_JSON, FORMAT_JSON, "{\"shape\":[1,9,16]}", 18, NULL, true},
        {SDPA, FORMAT_JSON, FORMAT_JSON, sdpa, sizeof sdpa - 1, NULL, true},
        {"/v2/models/demo/infer", FORMAT_JSON, FORMAT_JSON, oip, sizeof oip - 1, NULL, true},
    };

    for (size_t i = 0; i < COUNT(q); i++)
        walk_request_without_loss(faults, d, &q[i], NULL);
    free(json);
    blob_free(&npy);
    blob_free(&st);
    blob_free(&gzip);
    daemon_stop(d);
}

/* --- network and log --------------------------------------------------------------------------- */

static const asked question = {
    SDPA,
    FORMAT_JSON,
    FORMAT_JSON,
    "{\"query\":[[[[1]]]],\"key\":[[[[1]]]],\"value\":[[[[3]]]]}",
    sizeof "{\"query\":[[[[1]]]],\"key\":[[[[1]]]],\"value\":[[[[3]]]]}" - 1,
    NULL,
    true};

static void assert_answered(const test_daemon *d)
{
    raw_answer a = walk_ask(d, &question);

    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.body, "\"outputs\":[[[[3]]]]"));
    raw_free(&a);
}

static void bytes_may_come_and_go_one_by_one(void **state)
{
    (void)state;
    NEED_FAULTS();
    test_daemon *d = daemon_start((const char *const[]){NULL});
    char *json = example(d, "");
    const asked q = {DEMO, FORMAT_JSON, FORMAT_JSON, json, strlen(json), NULL, true};
    raw_answer right = walk_ask(d, &q);

    assert_int_equal(right.status, 200);
    for (int how = 1; how < 4; how++) { /* short, interrupted, both */
        atomic_store(&faults->shorten, how & 1);
        atomic_store(&faults->interrupt, how >> 1);
        raw_answer a = walk_ask(d, &q);
        atomic_store(&faults->shorten, 0);
        atomic_store(&faults->interrupt, 0);
        if (a.status != 200)
            fail_msg("%d: %s", a.status, a.status != 0 ? a.body : "");
        assert_true(walk_same_body(&a, &right));
        raw_free(&a);
    }
    raw_free(&right);
    free(json);
    daemon_stop(d);
}

static void a_connection_that_fails_is_the_only_one_lost(void **state)
{
    (void)state;
    NEED_FAULTS();
    static const int errors[] = {ECONNRESET, EPIPE, ENOBUFS, ETIMEDOUT};
    test_daemon *d = daemon_start((const char *const[]){NULL});

    assert_answered(d);
    long before = walk_blocks_at_rest(faults);
    for (size_t i = 0; i < COUNT(errors); i++) {
        for (int kind = FAULT_RECV; kind <= FAULT_SEND; kind++) {
            long n = 0, hits = 1;
            for (; hits > 0 && n < 20; n++) {
                faults_set(faults, (fault_kind)kind, n, false, errors[i]);
                raw_answer a = walk_ask(d, &question);
                hits = faults_clear(faults);
                assert_true(a.status == 0 || a.status == 200);
                raw_free(&a);
            }
            assert_true(n > 1);
            assert_answered(d);
        }
    }
    assert_true(walk_blocks_at_rest(faults) <= before);
    daemon_stop(d);
}

/* libmicrohttpd closes a connection for which it has no memory, and tells nobody. */
static void a_connection_without_memory_keeps_no_place(void **state)
{
    enum { MOST = 4, FAULTS = 3 * MOST };
    (void)state;
    NEED_FAULTS();
    raw_conn c[MOST];
    test_daemon *d = daemon_start((const char *const[]){"--set", "server.max_connections=4", NULL});

    for (long n = 0; n < FAULTS; n++) {
        faults_set(faults, FAULT_ALLOC, n, false, ENOMEM);
        raw_answer a = walk_ask(d, &question);
        (void)faults_clear(faults);
        raw_free(&a);
    }
    for (size_t i = 0; i < MOST; i++) { /* all places are free */
        raw_open(&c[i], daemon_url(d));
        assert_true(raw_text(&c[i], "GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        raw_answer a = raw_read(&c[i], false, 5000);
        assert_int_equal(a.status, 200);
        raw_free(&a);
    }
    for (size_t i = 0; i < MOST; i++)
        raw_close(&c[i]);
    long long begin = raw_now_ms();
    daemon_stop(d); /* it waits for nobody */
    assert_in_range(raw_now_ms() - begin, 0, 10000);
}

static void when_nobody_can_be_accepted_it_waits_without_spinning(void **state)
{
    (void)state;
    NEED_FAULTS();
    static const int errors[] = {EMFILE, ENFILE, ENOBUFS, ENOMEM};
    test_daemon *d = daemon_start((const char *const[]){NULL});

    for (size_t i = 0; i < COUNT(errors); i++) {
        raw_conn c;
        faults_set(faults, FAULT_ACCEPT, 0, true, errors[i]);
        raw_open(&c, daemon_url(d)); /* the system lets it wait */
        assert_true(raw_text(&c, "GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        raw_answer a = raw_read(&c, false, 500);
        assert_int_equal(a.status, 0);
        raw_free(&a);
        assert_in_range(faults_clear(faults), 1, 100);
        a = raw_read(&c, false, 5000);
        assert_int_equal(a.status, 200);
        raw_free(&a);
        raw_close(&c);
    }
    daemon_stop(d);
}

static void a_log_that_takes_nothing_stops_nothing(void **state)
{
    (void)state;
    NEED_FAULTS();
    static const int errors[] = {ENOSPC, EAGAIN, EPIPE, EIO};
    test_daemon *d = daemon_start((const char *const[]){NULL});

    for (size_t i = 0; i < COUNT(errors); i++) {
        faults_set(faults, FAULT_LOG, 0, true, errors[i]);
        for (int n = 0; n < 5; n++)
            assert_answered(d);
        assert_true(faults_clear(faults) > 0);
        assert_answered(d);
    }
    faults_set(faults, FAULT_LOG, 0, true, ENOSPC);
    daemon_stop(d); /* nor does it hinder the end */
    (void)faults_clear(faults);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_load_survives_every_failed_allocation),
        cmocka_unit_test(a_disk_error_while_loading_names_the_file),
        cmocka_unit_test(a_start_without_threads_or_memory_is_one_sentence),
        cmocka_unit_test(a_shutdown_survives_every_failed_allocation),
        cmocka_unit_test(a_request_survives_every_failed_allocation),
        cmocka_unit_test(bytes_may_come_and_go_one_by_one),
        cmocka_unit_test(a_connection_that_fails_is_the_only_one_lost),
        cmocka_unit_test(a_connection_without_memory_keeps_no_place),
        cmocka_unit_test(when_nobody_can_be_accepted_it_waits_without_spinning),
        cmocka_unit_test(a_log_that_takes_nothing_stops_nothing),
    };
    return cmocka_run_group_tests_name("faults", tests, open_all, close_all);
}

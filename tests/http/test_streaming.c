/* Answers that are larger than the memory budget: they leave in pieces, with the bits of those that need no
 * pieces; slow readers, readers that leave, and what goes wrong on the way. */
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/asking.h"
#include "tests/body.h"
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/inflight.h"
#include "tests/st.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

enum { D = 96, HEADS = 12, LONG = 640, MIB = 1 << 20 }; /* maps of LONG are 19 MiB */

#define WIDE  "/v1/models/wide/attention"
#define STEEP "/v1/models/steep/attention"

static const asking_model ASKING[] = {
    {.d_model = D, .num_heads = HEADS, .num_kv_heads = 4, .head_dim = 8, .v_head_dim = 8},
    {.d_model = 0, .num_heads = 6, .num_kv_heads = 3, .head_dim = 16, .v_head_dim = 8}};
static const char *const PATHS[] = {WIDE, INFLIGHT_SDPA};

static char *folder_, *wide_, *steep_;

/* "steep": values are the tokens themselves, and outputs are 1e36 times the context. */
static void write_steep(const char *dir)
{
    static float identity[64 * 64], steep[64 * 64];
    const st_native m = {.d_model = 64,
                         .num_heads = 1,
                         .num_kv_heads = 1,
                         .head_dim = 64,
                         .weight = {identity, identity, identity, steep}};

    for (size_t i = 0; i < 64; i++) {
        identity[i * 64 + i] = 1;
        steep[i * 64 + i] = 1e36F;
    }
    st_write_native(dir, &m);
}

static int start(void **state)
{
    static const st_native wide = {
        .d_model = D, .num_heads = HEADS, .num_kv_heads = 4, .head_dim = 8};
    (void)state;
    folder_ = st_temp_dir();
    char *dir = st_path("%s/wide", folder_);
    st_write_random(dir, &wide, 5);
    wide_ = st_path("wide=%s", dir);
    free(dir);
    dir = st_path("%s/steep", folder_);
    write_steep(dir);
    steep_ = st_path("steep=%s", dir);
    free(dir);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    free(wide_);
    free(steep_);
    st_remove_dir(folder_);
    return 0;
}

static test_daemon *serve(size_t budget, const char *setting)
{
    char *memory = st_path("memory.budget=%zuB", budget);
    test_daemon *d = daemon_start(COMMAND("serve", "--model", wide_, "--model", steep_, "--set",
                                          memory, "--set", "compute.threads=2", "--set",
                                          setting != NULL ? setting : "log.level=info"));
    free(memory);
    return d;
}

static float *random_floats(size_t n)
{
    uint32_t seed = 7;
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    st_random(&seed, x, n);
    return x;
}

/* One sequence, whose maps are asked for. */
static char *ask_maps(size_t tokens)
{
    float *x = random_floats(tokens * D);
    test_body b;

    body_init(&b, true);
    body_floats(&b, "inputs_embeds", x, DIMS(1, tokens, D));
    body_raw(&b, "return_attentions", "true");
    free(x);
    return (char *)(uintptr_t)body_text(&b);
}

static long status_kib(const test_daemon *d, const char *name)
{
    char *path = st_path("/proc/%d/status", (int)daemon_pid(d)), line[256];
    FILE *f = fopen(path, "r");
    long kib = -1;

    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtol(line + strlen(name) + 1, NULL, 10);
    }
    (void)fclose(f);
    free(path);
    assert_true(kib >= 0);
    return kib;
}

/* Seconds of processor time that the daemon has used. */
static double cpu_seconds(const test_daemon *d)
{
    char *path = st_path("/proc/%d/stat", (int)daemon_pid(d)), text[1024] = "";
    FILE *f = fopen(path, "r");
    unsigned long user = 0, kernel = 0;

    assert_non_null(f);
    (void)!fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    free(path);
    const char *at = strrchr(text, ')');
    assert_non_null(at);
    assert_int_equal(
        sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel), 2);
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

static size_t integer(json_t *root, const char *path)
{
    const json_t *v = answer_get(root, path);
    if (!json_is_integer(v))
        fail_msg("there is no integer %s", path);
    return (size_t)json_integer_value(v);
}

static json_t *usage_of(const test_reply *r)
{
    const char *usage = NULL;
    for (const char *at = r->body; (at = strstr(at, "\"usage\":")) != NULL; at++)
        usage = at;
    assert_non_null(usage);
    char *text = st_path("{%s", usage);
    json_t *root = answer_parse(text, strlen(text));
    free(text);
    return root;
}

/* --- the bits ------------------------------------------------------------------------------------ */

static void answers_in_pieces_have_the_bits_of_whole_ones(void **state)
{
    enum { CASES = 60, SMALL = 5 * MIB / 2 };
    test_daemon *large = serve((size_t)1 << 30, NULL), *small = serve(SMALL, NULL);
    uint32_t seed = 4;
    size_t streamed = 0, answered = 0;
    (void)state;

    for (size_t i = 0; i < CASES; i++) {
        char *body = asking_random(&ASKING[i % 2], 600, &seed);
        test_reply whole = daemon_post(large, PATHS[i % 2], body, 200);
        test_reply pieces = daemon_request(small, "POST", PATHS[i % 2],
                                           (const char *[]){"Content-Type: application/json", NULL},
                                           body, strlen(body));
        if (pieces.status != 413) { /* the inputs alone may be too large */
            json_t *a = usage_of(&whole), *b = usage_of(&pieces);
            assert_int_equal(pieces.status, 200);
            size_t same = (size_t)(strstr(whole.body, "\"usage\":") - whole.body);
            if (strncmp(whole.body, pieces.body, same + 8) != 0)
                fail_msg("case %zu: other bits\n%.3000s", i, body);
            assert_int_equal(integer(a, "usage.fully_masked_rows"),
                             integer(b, "usage.fully_masked_rows"));
            assert_true(integer(b, "usage.peak_bytes") <= SMALL);
            streamed += integer(b, "usage.micro_batches") > integer(b, "usage.sequences");
            answered++;
            json_decref(a);
            json_decref(b);
        }
        reply_free(&whole);
        reply_free(&pieces);
        free(body);
    }
    printf("%zu answered in 2.5 MiB, %zu of them in pieces\n", answered, streamed);
    assert_true(answered > CASES / 2);
    assert_true(streamed > 3);
    daemon_stop(large);
    daemon_stop(small);
}

static void maps_of_48_mib_leave_through_16(void **state)
{
    test_daemon *d = serve((size_t)16 * MIB, NULL);
    char *body = ask_maps(1024);
    long before = status_kib(d, "VmHWM:");
    test_reply r = daemon_post(d, WIDE, body, 200);
    json_t *usage = usage_of(&r);
    (void)state;

    assert_true(r.body_bytes > (size_t)HEADS * 1024 * 1024 * 4 / 3 * 4);
    assert_true(integer(usage, "usage.peak_bytes") <= 16 * MIB);
    assert_true(integer(usage, "usage.micro_batches") >= HEADS);
    long grown = status_kib(d, "VmHWM:") - before;
    printf("%ld KiB more at the peak\n", grown);
    assert_true(SANITIZED || grown < 24 * 1024);
    json_decref(usage);
    reply_free(&r);
    daemon_stop(d);
    free(body);
}

/* --- readers ------------------------------------------------------------------------------------- */

/* Sends the request and reads the first bytes of its answer. */
static void begin_reading(raw_conn *c, const test_daemon *d, const char *body)
{
    char some[4096];
    int small = 64 * 1024; /* so that the kernel does not take it all */
    inflight_open(c, d);
    (void)setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_true(inflight_post(c, WIDE, body, 0));
    assert_int_equal(poll(&(struct pollfd){.fd = c->fd, .events = POLLIN}, 1, 30000), 1);
    assert_true(recv(c->fd, some, sizeof some, MSG_PEEK) > 12);
    assert_memory_equal(some, "HTTP/1.1 200", 12);
}

/* A request that fits only when nothing else is held must fit again. */
static void fits_again(const test_daemon *d, const char *body)
{
    test_reply r = {0};
    for (int i = 0; i < 300 && r.status != 200; i++) {
        reply_free(&r);
        r = daemon_request(d, "POST", WIDE,
                           (const char *[]){"Content-Type: application/json", NULL}, body,
                           strlen(body));
        if (r.status != 200)
            usleep(20000);
    }
    if (r.status != 200)
        fail_msg("there is still %ld: %s", r.status, r.body);
    reply_free(&r);
}

/* Outputs alone, whose inputs take most of a budget. */
static char *ask_most_of(size_t budget)
{
    size_t tokens = budget / 2 / D / sizeof(float) / 3;
    float *x = random_floats(2 * tokens * D);
    test_body b;

    body_init(&b, true);
    body_floats(&b, "inputs_embeds", x, DIMS(2, tokens, D));
    body_raw(&b, "return_outputs", "false");
    free(x);
    return (char *)(uintptr_t)body_text(&b);
}

static void a_slow_reader_holds_pieces_and_nobody_up(void **state)
{
    test_daemon *d = serve((size_t)24 * MIB, NULL);
    char *body = ask_maps(LONG), *other = ask_maps(40);
    raw_conn slow[2];
    (void)state;

    for (int i = 0; i < 2; i++)
        begin_reading(&slow[i], d, body);
    for (int i = 0; i < 20; i++) {
        test_reply r = daemon_post(d, WIDE, other, 200);
        assert_true(SANITIZED || r.seconds < 1);
        reply_free(&r);
    }
    usleep(300000);
    double began = cpu_seconds(d);
    usleep(500000);
    assert_true(cpu_seconds(d) - began < 0.1); /* nobody spins */
    for (int i = 0; i < 2; i++) {              /* both get all of it at last */
        raw_answer a = raw_read(&slow[i], false, 60000);
        assert_int_equal(a.status, 200);
        assert_true(a.chunked);
        assert_true(a.complete);
        assert_int_equal(a.body[a.body_bytes - 1], '}');
        raw_free(&a);
        raw_close(&slow[i]);
    }
    daemon_stop(d);
    free(body);
    free(other);
}

static void a_reader_that_leaves_gives_everything_back(void **state)
{
    test_daemon *d = serve((size_t)16 * MIB, NULL);
    char *body = ask_maps(LONG), *most = ask_most_of(16 * MIB);
    (void)state;

    fits_again(d, most);
    for (int i = 0; i < 6; i++) {
        raw_conn c;
        begin_reading(&c, d, body);
        usleep((useconds_t)i * 5000);
        raw_close(&c);
        fits_again(d, most);
    }
    daemon_stop(d);
    free(body);
    free(most);
}

static void a_reader_that_takes_nothing_is_cut_off(void **state)
{
    test_daemon *d = serve((size_t)16 * MIB, "server.request_timeout=1s");
    char *body = ask_maps(LONG), *most = ask_most_of(16 * MIB);
    raw_conn c;
    (void)state;

    begin_reading(&c, d, body);
    usleep(1500000);
    fits_again(d, most);
    raw_answer a = raw_read(&c, false, 30000); /* what the kernel holds, and no end */
    assert_false(a.complete);
    raw_free(&a);
    raw_close(&c);
    daemon_stop(d);
    free(body);
    free(most);
}

static void shutdown_does_not_wait_for_a_reader_for_ever(void **state)
{
    test_daemon *d = serve((size_t)16 * MIB, "server.shutdown_timeout=300ms");
    char *body = ask_maps(LONG);
    raw_conn slow, gone;
    (void)state;

    begin_reading(&slow, d, body);
    begin_reading(&gone, d, body);
    raw_close(&gone);
    daemon_stop(d); /* exits 0, in time */
    raw_close(&slow);
    free(body);
}

static void shutdown_lets_a_reader_finish(void **state)
{
    test_daemon *d = serve((size_t)16 * MIB, NULL);
    char *body = ask_maps(LONG);
    raw_conn c;
    (void)state;

    begin_reading(&c, d, body);
    assert_int_equal(kill(daemon_pid(d), SIGTERM), 0);
    raw_answer a = raw_read(&c, false, 60000);
    assert_int_equal(a.status, 200);
    assert_true(a.complete);
    raw_free(&a);
    raw_close(&c);
    assert_int_equal(daemon_wait(d, 10000, NULL), 0);
    free(body);
}

/* --- what goes wrong ----------------------------------------------------------------------------- */

/* B sequences for "steep", every token 1 but for one number. */
static char *ask_steep(size_t batch, size_t tokens, size_t b, size_t token, float odd)
{
    float *x = malloc(batch * tokens * 64 * sizeof *x);
    test_body body;

    assert_non_null(x);
    for (size_t i = 0; i < batch * tokens * 64; i++)
        x[i] = 1;
    x[(b * tokens + token) * 64] = odd;
    body_init(&body, true);
    body_floats(&body, "inputs_embeds", x, DIMS(batch, tokens, 64));
    body_raw(&body, "return_attentions", "true");
    body_raw(&body, "is_causal", "true");
    free(x);
    return (char *)(uintptr_t)body_text(&body);
}

static void what_is_no_number_is_refused_before_the_first_byte(void **state)
{
    test_daemon *d = serve((size_t)12 * MIB, NULL);
    (void)state;

    for (int i = 0; i < 3; i++) {
        char *body = ask_steep(3, 1000, 2, 990, i == 0 ? NAN : i == 1 ? INFINITY : 1e37F);
        test_reply r = daemon_post(d, STEEP, body, 422);
        json_t *root = answer_parse(r.body, r.body_bytes);
        assert_string_equal(json_string_value(answer_get(root, "code")), "not_finite");
        assert_non_null(strstr(r.body, "sequence 2"));
        json_decref(root);
        reply_free(&r);
        free(body);
    }
    char *fine = ask_steep(3, 1000, 2, 990, 2);
    test_reply r = daemon_post(d, STEEP, fine, 200);
    json_t *usage = usage_of(&r);
    assert_true(integer(usage, "usage.micro_batches") > 3); /* it was in pieces */
    json_decref(usage);
    reply_free(&r);
    daemon_stop(d);
    free(fine);
}

static void an_answer_that_fails_on_its_way_has_no_end(void **state)
{
    test_daemon *d = serve((size_t)6 * MIB, NULL);
    char *body = ask_steep(1, 3000, 0, 2999, 4000); /* 4e39 in the last row of the outputs */
    raw_conn c;
    (void)state;

    inflight_open(&c, d);
    assert_true(inflight_post(&c, STEEP, body, 0));
    raw_answer a = raw_read(&c, false, 30000);
    assert_int_equal(a.status, 200);
    assert_true(a.chunked);
    assert_false(a.complete);
    raw_free(&a);
    assert_true(raw_is_closed(&c, 5000));
    raw_close(&c);
    free(body);
    body = ask_steep(1, 3000, 0, 2999, 4);
    test_reply r = daemon_post(d, STEEP, body, 200);
    reply_free(&r);
    char *log = daemon_log(d);
    assert_non_null(strstr(log, "an answer was broken off"));
    assert_non_null(strstr(log, "token 2999: the result overflows float32"));
    free(log);
    daemon_stop(d);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_in_pieces_have_the_bits_of_whole_ones),
        cmocka_unit_test(maps_of_48_mib_leave_through_16),
        cmocka_unit_test(a_slow_reader_holds_pieces_and_nobody_up),
        cmocka_unit_test(a_reader_that_leaves_gives_everything_back),
        cmocka_unit_test(a_reader_that_takes_nothing_is_cut_off),
        cmocka_unit_test(shutdown_does_not_wait_for_a_reader_for_ever),
        cmocka_unit_test(shutdown_lets_a_reader_finish),
        cmocka_unit_test(what_is_no_number_is_refused_before_the_first_byte),
        cmocka_unit_test(an_answer_that_fails_on_its_way_has_no_end),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

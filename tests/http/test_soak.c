/* A storm: small, large, slow, leaving, late and malformed clients at once, in a small budget. Every answer must be
 * right to the bit or a clean refusal, and afterwards all is as before. SOAK_SECONDS says how long (make soak);
 * by default it is a short form. */
#include "tests/body.h"
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/rawhttp.h"
#include "tests/scrape.h"
#include "tests/st.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define SDPA "/v1/scaled-dot-product-attention"

enum { CLIENTS = 8, BUDGET_MIB = 64, SMALL = 12, LARGE = 4, BODIES = SMALL + LARGE };

typedef struct {
    const char *path;
    char *text;
    size_t n;
    uint64_t right; /* fingerprint of the answer */
} storm_body;

static storm_body bodies[BODIES];
static test_daemon *daemon_;
static char *folder_, *model_;
static atomic_bool over;
static atomic_size_t right, refused, late, left, malformed;

/* The first thing that went wrong, for the thread that may fail the test. */
static pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
static char wrong[512];

__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)pthread_mutex_lock(&lock_);
    if (wrong[0] == '\0')
        (void)vsnprintf(wrong, sizeof wrong, format, args);
    (void)pthread_mutex_unlock(&lock_);
    va_end(args);
    atomic_store(&over, true);
}

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005U + 1442695040888963407U;
    return *seed >> 33;
}

/* FNV-1a of all but the usage, which tells how the work was cut. */
static uint64_t fingerprint(const char *text, size_t n)
{
    uint64_t h = 14695981039346656037U;
    const char *end = text + n;

    for (size_t i = n > 512 ? n - 512 : 0; i + 8 < n; i++) {
        if (memcmp(text + i, "\"usage\":", 8) == 0)
            end = text + i;
    }
    for (const char *p = text; p < end; p++)
        h = (h ^ (unsigned char)*p) * 1099511628211U;
    return h;
}

/* --- requests -------------------------------------------------------------------------------------- */

static void add_tensor(test_body *b, const char *key, uint64_t *seed, size_t heads, size_t t,
                       size_t d)
{
    float *x = malloc(heads * t * d * sizeof *x);
    for (size_t i = 0; i < heads * t * d; i++)
        x[i] = (float)next(seed) / 536870912.0F - 2.0F;
    if (heads == 1)
        body_floats(b, key, x, DIMS(1, t, d));
    else
        body_floats(b, key, x, DIMS(1, heads, t, d));
    free(x);
}

static void make_body(storm_body *s, size_t i)
{
    static const size_t large[LARGE][2] = {{4, 400}, {2, 900}, {8, 300}, {12, 700}};
    uint64_t seed = i + 1;
    test_body b;

    body_init(&b, i % 3 == 2);
    if (i < SMALL / 2) {
        s->path = "/v1/models/storm/attention";
        add_tensor(&b, "inputs_embeds", &seed, 1, 1 + next(&seed) % 60, 64);
    } else {
        size_t heads = i < SMALL ? 2 : large[i - SMALL][0];
        size_t t = i < SMALL ? 2 + next(&seed) % 90 : large[i - SMALL][1];
        s->path = SDPA;
        add_tensor(&b, "query", &seed, heads, t, 16);
        add_tensor(&b, "key", &seed, heads, t, 16);
        add_tensor(&b, "value", &seed, heads, t, 16);
    }
    body_raw(&b, "return_attentions", i % 4 != 1 ? "true" : "false");
    s->text = strdup(body_text(&b));
    s->n = strlen(s->text);
    body_free(&b);
}

/* --- one client ------------------------------------------------------------------------------------ */

static bool open_quietly(raw_conn *c)
{
    raw_open(c, daemon_url(daemon_)); /* its backlog is larger than the number of clients */
    return true;
}

static bool send_head(raw_conn *c, const char *path, size_t n)
{
    char head[256];
    int len = snprintf(head, sizeof head,
                       "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                       path, n);
    return raw_send(c, head, (size_t)len);
}

static bool is_refusal(const raw_answer *a)
{
    return (a->status == 413 || a->status == 503 || a->status == 504) && a->complete &&
           strstr(a->body, "\"code\"") != NULL;
}

/* An answer to a good request: right, or refused, or, when the client is too slow, cut. */
static void judge(const storm_body *s, const raw_answer *a)
{
    if (a->status == 200 && a->complete) {
        if (fingerprint(a->body, a->body_bytes) != s->right)
            complain("%s of %zu bytes: a wrong answer of %zu bytes", s->path, s->n, a->body_bytes);
        atomic_fetch_add(&right, 1);
    } else if (is_refusal(a)) {
        atomic_fetch_add(a->status == 504 ? &late : &refused, 1);
    } else {
        complain("%s of %zu bytes: status %d, %s: %.200s", s->path, s->n, a->status,
                 a->complete ? "complete" : "cut", a->body == NULL ? "" : a->body);
    }
}

static void ask(const storm_body *s, uint64_t *seed, bool slowly)
{
    raw_conn c;

    if (!open_quietly(&c))
        return;
    if (send_head(&c, s->path, s->n)) {
        size_t cut = next(seed) % s->n;
        (void)raw_send(&c, s->text, cut);
        if (slowly)
            (void)usleep(50000);
        (void)raw_send(&c, s->text + cut, s->n - cut);
    }
    if (slowly)
        (void)usleep(300000); /* the answer must wait in pieces */
    raw_answer a = raw_read(&c, false, 60000);
    judge(s, &a);
    raw_free(&a);
    raw_close(&c);
}

/* Goes in the middle of sending, or of receiving. */
static void leave(const storm_body *s, uint64_t *seed, bool while_sending)
{
    raw_conn c;
    char some[4096];

    if (!open_quietly(&c))
        return;
    size_t n = while_sending ? next(seed) % s->n : s->n;
    if (send_head(&c, s->path, s->n) && raw_send(&c, s->text, n) && !while_sending) {
        struct pollfd p = {.fd = c.fd, .events = POLLIN};
        for (int reads = (int)(next(seed) % 6); reads > 0 && poll(&p, 1, 200) > 0; reads--) {
            if (recv(c.fd, some, sizeof some, 0) <= 0)
                break;
        }
    }
    if (next(seed) % 2 == 0) { /* at once, with a reset */
        struct linger at_once = {1, 0};
        (void)setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    raw_close(&c);
    atomic_fetch_add(&left, 1);
}

static void send_nonsense(const storm_body *s, uint64_t *seed)
{
    static const char odd[] = "{}[],:\"\\e-+.0xn\001";
    char *text = strdup(s->text);
    raw_conn c;

    for (int i = 0; i < 3; i++)
        text[next(seed) % s->n] = odd[next(seed) % (sizeof odd - 1)];
    if (open_quietly(&c) && send_head(&c, s->path, s->n))
        (void)raw_send(&c, text, s->n);
    raw_answer a = raw_read(&c, false, 60000);
    if (!(a.status == 200 || a.status == 400 || a.status == 422 || a.status == 413 ||
          a.status == 503))
        complain("nonsense is answered with status %d: %.200s", a.status,
                 a.body == NULL ? "" : a.body);
    atomic_fetch_add(&malformed, 1);
    raw_free(&a);
    raw_close(&c);
    free(text);
}

static void be_late(const storm_body *s)
{
    storm_body hurried = *s;
    size_t n = s->n + 20;

    hurried.text = malloc(n);
    hurried.n = (size_t)snprintf(hurried.text, n, "{\"timeout_ms\":1,%s", s->text + 1);
    uint64_t seed = 1;
    ask(&hurried, &seed, false);
    free(hurried.text);
}

static void *client(void *arg)
{
    uint64_t seed = (uint64_t)(uintptr_t)arg * 7919;

    while (!atomic_load(&over)) {
        uint64_t what = next(&seed) % 100;
        const storm_body *small = &bodies[next(&seed) % SMALL],
                         *large = &bodies[SMALL + next(&seed) % LARGE];
        if (what < 60)
            ask(small, &seed, false);
        else if (what < 68)
            ask(large, &seed, false);
        else if (what < 74)
            ask(next(&seed) % 2 == 0 ? large : small, &seed, true);
        else if (what < 81)
            leave(next(&seed) % 2 == 0 ? large : small, &seed, true);
        else if (what < 88)
            leave(next(&seed) % 2 == 0 ? large : small, &seed, false);
        else if (what < 96)
            send_nonsense(next(&seed) % 4 == 0 ? large : small, &seed);
        else
            be_late(next(&seed) % 2 == 0 ? large : small);
    }
    return NULL;
}

/* --- the storm ------------------------------------------------------------------------------------- */

static double metric(const char *name)
{
    test_reply r = daemon_request(daemon_, "GET", "/metrics", NULL, NULL, 0);
    scrape s = scrape_read(r.body, r.body_bytes);
    double v = scrape_value(&s, name);
    scrape_free(&s);
    reply_free(&r);
    return v;
}

static size_t status_kib(const char *field)
{
    char path[64], line[128];
    size_t kib = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)daemon_pid(daemon_));
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, field, strlen(field)) == 0)
            kib = strtoul(line + strlen(field) + 1, NULL, 10);
    }
    if (f != NULL)
        (void)fclose(f);
    return kib;
}

static size_t descriptors(void)
{
    char path[64];
    size_t n = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)daemon_pid(daemon_));
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}

static test_daemon *serve(const char *budget)
{
    return daemon_start(COMMAND("serve", "--model", model_, "--set", budget, "--set",
                                "queue.max_requests=3", "--set", "log.level=error"));
}

static void every_answer_is_right_or_refused_and_nothing_is_left_behind(void **state)
{
    const char *seconds = getenv("SOAK_SECONDS");
    pthread_t threads[CLIENTS];

    (void)state;
    for (size_t i = 0; i < BODIES; i++)
        make_body(&bodies[i], i);
    daemon_ = serve("memory.budget=2GiB"); /* the right answers, in calm */
    for (size_t i = 0; i < BODIES; i++) {
        test_reply r = daemon_post(daemon_, bodies[i].path, bodies[i].text, 200);
        bodies[i].right = fingerprint(r.body, r.body_bytes);
        reply_free(&r);
    }
    daemon_stop(daemon_);

    daemon_ = serve("memory.budget=64MiB");
    for (size_t i = 0; i < SMALL; i++)
        ask(&bodies[i], &(uint64_t){1}, false);
    size_t open = descriptors();
    for (size_t i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, client, (void *)(uintptr_t)(i + 1)), 0);
    long long until = raw_now_ms() + (seconds != NULL ? atoll(seconds) : 10) * 1000;
    while (raw_now_ms() < until && !atomic_load(&over))
        (void)usleep(100000);
    atomic_store(&over, true);
    for (size_t i = 0; i < CLIENTS; i++)
        (void)pthread_join(threads[i], NULL);
    if (wrong[0] != '\0') {
        daemon_show_log(daemon_);
        fail_msg("%s", wrong);
    }
    printf("%zu right, %zu refused, %zu late, %zu left, %zu nonsense\n", (size_t)right,
           (size_t)refused, (size_t)late, (size_t)left, (size_t)malformed);

    until = raw_now_ms() + 10000; /* those who left may still be noticed */
    while (metric("attnd_memory_used_bytes") != 0.0 && raw_now_ms() < until)
        (void)usleep(50000);
    assert_true(metric("attnd_memory_used_bytes") == 0.0);
    assert_true(metric("attnd_requests_waiting") == 0.0);
    size_t before = right;
    for (size_t i = 0; i < BODIES; i++) /* what fits a calm daemon fits again */
        ask(&bodies[i], &(uint64_t){1}, false);
    if (wrong[0] != '\0')
        fail_msg("%s", wrong);
    assert_int_equal(right - before, BODIES);
    assert_in_range(descriptors(), 1, open + 2); /* a connection may be closing */
    size_t weights = (size_t)metric("attnd_weights_bytes") >> 10, peak = status_kib("VmHWM:");
    printf("peak resident %zu KiB, now %zu KiB, weights %zu KiB, budget %d MiB\n", peak,
           status_kib("VmRSS:"), weights, BUDGET_MIB);
#if defined(__has_feature) /* clang, which the sanitizers' targets use */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif
#ifdef SANITIZED
    printf("skipped: resident memory: a sanitizer's own is counted with it\n");
#else
    assert_in_range(peak, 1, weights + (BUDGET_MIB + 32) * 1024);
#endif
}

static int start(void **state)
{
    static const st_native spec = {
        .d_model = 64, .num_heads = 4, .num_kv_heads = 2, .head_dim = 16};
    (void)state;
    folder_ = st_temp_dir();
    char *dir = st_path("%s/storm", folder_);
    st_write_random(dir, &spec, 5);
    model_ = st_path("storm=%s", dir);
    free(dir);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_stop(daemon_);
    for (size_t i = 0; i < BODIES; i++)
        free(bodies[i].text);
    free(model_);
    st_remove_dir(folder_);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_answer_is_right_or_refused_and_nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

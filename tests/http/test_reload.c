/* Weights are replaced, taken away and brought back while requests compute: each answer belongs wholly to one set of
 * them. RELOAD_SECONDS says how long the storm lasts, 4 without it. */
#include "tests/body.h"
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/inflight.h"
#include "tests/scratch.h"
#include "tests/st.h"
#include "tests/tiny_encoder.h"
#include "tests/watch.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define ATTENTION "/v1/models/m/attention"
/* A request to change a model. */
#define CHANGE                                                                                     \
    "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"                    \
    "Content-Length: 2\r\n\r\n{}"
#define LOAD      "/v2/repository/models/m/load"
#define UNLOAD    "/v2/repository/models/m/unload"
#define FOLLOWS   "another load is under way, the reload follows it"
#define SUCCESSES "attnd_reloads_total{result=\"success\"}"
#define FAILURES  "attnd_reloads_total{result=\"failure\"}"

static const st_native small = {.d_model = 64, .num_heads = 4, .num_kv_heads = 4, .head_dim = 16};
static const st_native large = {
    .d_model = 768, .num_heads = 12, .num_kv_heads = 12, .head_dim = 64}; /* 9 MB */

/* --- models: folders, and a link to one of them, which is what is served --- */

static char *folder(const char *name, const st_native *shape, uint32_t seed)
{
    char *path = strdup(scratch_path(name));
    assert_non_null(path);
    st_write_random(path, shape, seed);
    return path;
}

/* Its weights are cut off in the middle. */
static char *damaged(const char *name, const st_native *shape)
{
    char *path = folder(name, shape, 9);
    char *file = st_path("%s/model.safetensors", path);
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(truncate(file, st.st_size / 2), 0);
    free(file);
    return path;
}

/* In one step, so that there is always one. */
static const char *serve_this(const char *target)
{
    const char *link = scratch_path("served"), *next = scratch_path("served.new");
    (void)unlink(next);
    assert_int_equal(symlink(target, next), 0);
    assert_int_equal(rename(next, link), 0);
    return link;
}

static test_daemon *start(const char *path, const char *const *more)
{
    const char *args[16] = {"serve", "--set", "admin.enabled=true", "--model"};
    char *model = st_path("m=%s", path);
    size_t n = 4;
    args[n++] = model;
    while (more != NULL && *more != NULL)
        args[n++] = *more++;
    test_daemon *d = daemon_start(args);
    free(model);
    return d;
}

/* --- asking --- */

static void post(const test_daemon *d, const char *path, long status, const char *code)
{
    test_reply r = daemon_post(d, path, "{}", status);
    json_t *root = answer_parse(r.body, r.body_bytes);
    if (code != NULL)
        assert_string_equal(json_string_value(json_object_get(root, "code")), code);
    if (status == 503)
        assert_non_null(strcasestr(r.headers, "\nRetry-After: "));
    json_decref(root);
    reply_free(&r);
}

static void get(const test_daemon *d, const char *path, long status, const char *code)
{
    test_reply r = daemon_request(d, "GET", path, NULL, NULL, 0);
    assert_int_equal(r.status, status);
    json_t *root = answer_parse(r.body, r.body_bytes);
    if (code != NULL)
        assert_string_equal(json_string_value(json_object_get(root, "code")), code);
    json_decref(root);
    reply_free(&r);
}

static int log_count(const test_daemon *d, const char *text)
{
    char *log = daemon_log(d);
    int n = 0;
    for (const char *p = log; (p = strstr(p, text)) != NULL; p++)
        n++;
    free(log);
    return n;
}

/* What the index says of the model: "READY loaded" and so on; the caller frees. */
static char *index_entry(const test_daemon *d, const char *body)
{
    test_reply r = daemon_post(d, "/v2/repository/index", body, 200);
    json_t *root = answer_parse(r.body, r.body_bytes);
    const json_t *entry = json_array_get(root, 0);
    char *text = entry == NULL
                     ? strdup("")
                     : st_path("%s %s %s", json_string_value(json_object_get(entry, "name")),
                               json_string_value(json_object_get(entry, "state")),
                               json_string_value(json_object_get(entry, "reason")));
    json_decref(root);
    reply_free(&r);
    return text;
}

static void expect_index(const test_daemon *d, const char *body, const char *begin)
{
    char *text = index_entry(d, body);
    if (strncmp(text, begin, strlen(begin)) != 0)
        fail_msg("the index says \"%s\", not \"%s\"", text, begin);
    free(text);
}

static char *request(size_t batch, size_t tokens, size_t d, bool maps)
{
    uint32_t state = 77;
    float *x = calloc(batch * tokens * d, sizeof *x);
    test_body b;
    assert_non_null(x);
    st_random(&state, x, batch * tokens * d);
    body_init(&b, true);
    body_floats(&b, "inputs_embeds", x, DIMS(batch, tokens, d));
    if (maps)
        body_raw(&b, "return_attentions", "true");
    char *text = strdup(body_text(&b));
    assert_non_null(text);
    body_free(&b);
    free(x);
    return text;
}

/* An answer without its usage, whose figures depend on the company. The caller frees. */
static char *numbers_of(const char *body)
{
    const char *usage = strstr(body, "\"usage\":");
    return usage != NULL ? strndup(body, (size_t)(usage - body)) : strdup("");
}

static char *ask(const test_daemon *d, const char *json)
{
    test_reply r = daemon_post(d, ATTENTION, json, 200);
    char *text = numbers_of(r.body);
    reply_free(&r);
    return text;
}

static void expect_answer(const test_daemon *d, const char *json, const char *numbers)
{
    char *text = ask(d, json);
    assert_string_equal(text, numbers);
    free(text);
}

/* --- the storm --- */

enum { CLIENTS = 4, KINDS = 3 };

typedef struct {
    const test_daemon *d;
    const char *json;
    char *numbers[2]; /* of either set */
    pthread_t thread;
    atomic_bool *stop;
    atomic_size_t answers[2];
    char wrong[256]; /* what was; "" = nothing */
} client;

static void *run(void *arg)
{
    client *c = arg;
    raw_conn conn;

    raw_open(&conn, daemon_url(c->d));
    while (!atomic_load(c->stop) && c->wrong[0] == '\0') {
        bool sent = inflight_post(&conn, ATTENTION, c->json, 0);
        raw_answer a = raw_read(&conn, false, 60000);
        char *text = numbers_of(a.body != NULL ? a.body : "");
        int which = strcmp(text, c->numbers[0]) == 0   ? 0
                    : strcmp(text, c->numbers[1]) == 0 ? 1
                                                       : -1;
        if (!sent || a.status != 200 || !a.complete || which < 0)
            (void)snprintf(c->wrong, sizeof c->wrong, "status %d, %scomplete, %.180s", a.status,
                           a.complete ? "" : "not ", a.body != NULL ? a.body : "nothing");
        else
            atomic_fetch_add(&c->answers[which], 1);
        free(text);
        raw_free(&a);
    }
    raw_close(&conn);
    return NULL;
}

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void every_answer_belongs_wholly_to_one_set_of_weights(void **state)
{
    const char *seconds = getenv("RELOAD_SECONDS");
    double until = now_s() + (seconds != NULL ? atof(seconds) : 4), at_last = until + 120;
    char *set[2] = {folder("a", &small, 1), folder("b", &small, 2)};
    char *broken = damaged("broken", &small);
    char *json[KINDS] = {request(1, 3, 64, false), request(5, 40, 64, true),
                         request(1, 1200, 64, true)}; /* joined with others; whole; in pieces */
    test_daemon *d = start(serve_this(set[0]),
                           COMMAND("--set", "memory.budget=48MiB", "--set", "log.level=warn"));
    double weights = watch_metric(d, "attnd_weights_bytes");
    atomic_bool stop = false;
    client c[CLIENTS];
    size_t reloads = 0, failures = 0, answers[2] = {0};
    (void)state;

    for (size_t i = 0; i < CLIENTS; i++) {
        c[i] = (client){.d = d, .json = json[i % KINDS], .stop = &stop};
        c[i].numbers[0] = ask(d, c[i].json);
    }
    serve_this(set[1]);
    post(d, LOAD, 200, NULL);
    for (size_t i = 0; i < CLIENTS; i++) {
        c[i].numbers[1] = ask(d, c[i].json);
        assert_string_not_equal(c[i].numbers[0], c[i].numbers[1]);
        assert_int_equal(pthread_create(&c[i].thread, NULL, run, &c[i]), 0);
    }
    for (size_t turn = 0; now_s() < until || (turn < 20 && now_s() < at_last); turn++) {
        if (turn % 8 == 7) {
            serve_this(broken);
            post(d, LOAD, 500, "load_failed");
            failures++;
            continue;
        }
        serve_this(set[turn % 2]);
        if (turn % 3 == 0) { /* whoever asks in between is told that there is one already */
            kill(daemon_pid(d), SIGHUP);
            reloads++;
            watch_until(d, SUCCESSES, (double)(1 + reloads));
        } else {
            post(d, LOAD, 200, NULL);
            reloads++;
        }
        usleep(2000);
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_join(c[i].thread, NULL), 0);
        if (c[i].wrong[0] != '\0')
            fail_msg("client %zu: %s", i, c[i].wrong);
        answers[0] += atomic_load(&c[i].answers[0]);
        answers[1] += atomic_load(&c[i].answers[1]);
        free(c[i].numbers[0]);
        free(c[i].numbers[1]);
    }
    printf("%zu reloads, %zu failed ones, %zu and %zu answers\n", reloads, failures, answers[0],
           answers[1]);
    assert_true(reloads > 5 && answers[0] > 0 && answers[1] > 0);
    assert_true(watch_metric(d, FAILURES) == (double)failures);
    watch_until(d, "attnd_weights_bytes", weights); /* every old set is gone */
    watch_until(d, "attnd_memory_used_bytes", 0);
    assert_true(watch_metric(d, "attnd_models_loaded") == 1);
    daemon_stop(d);
    for (size_t i = 0; i < KINDS; i++)
        free(json[i]);
    free(set[0]);
    free(set[1]);
    free(broken);
}

/* --- one thing after the other --- */

static void a_failed_load_keeps_the_old_weights(void **state)
{
    char *good = folder("good", &small, 3), *broken = damaged("bad", &small);
    char *json = request(1, 3, 64, false);
    test_daemon *d = start(serve_this(good), NULL);
    char *numbers = ask(d, json);
    (void)state;

    serve_this(broken);
    kill(daemon_pid(d), SIGHUP);
    watch_until(d, FAILURES, 1);
    expect_answer(d, json, numbers);
    assert_true(watch_log_has(d, "\"msg\":\"the old weights stay: "));
    assert_true(watch_log_has(d, "safetensors")); /* the reason names the file */
    expect_index(d, "", "m READY ");
    char *reason = index_entry(d, "");
    assert_non_null(strstr(reason, "safetensors"));
    free(reason);

    serve_this("/nowhere");
    test_reply r = daemon_post(d, LOAD, "{}", 500);
    assert_non_null(strstr(r.body, "its old weights stay"));
    assert_non_null(strstr(r.body, "served"));
    reply_free(&r);
    watch_until(d, FAILURES, 2);
    expect_answer(d, json, numbers);
    get(d, "/health/ready", 200, NULL);

    serve_this(good);
    kill(daemon_pid(d), SIGHUP);
    watch_until(d, SUCCESSES, 1);
    expect_index(d, "", "m READY ");
    expect_answer(d, json, numbers);
    daemon_stop(d);
    free(numbers);
    free(json);
    free(good);
    free(broken);
}

/* A tokeniser that is being copied, say. */
static void a_damaged_tokeniser_keeps_the_old_one(void **state)
{
    char *dir = strdup(scratch_path("tiny")), *vocabulary = st_path("%s/vocab.txt", dir);
    char *option = st_path("m=%s", dir);
    (void)state;

    tiny_encoder_write(dir, 3, 1, NULL);
    test_daemon *d = daemon_start(COMMAND("serve", "--model", option));
    st_write_text(vocabulary, "[PAD]\n[UNK]\n");
    kill(daemon_pid(d), SIGHUP);
    watch_until(d, FAILURES, 1);
    watch_log_until(d, "\"msg\":\"the old weights stay: ");
    test_reply r = daemon_post(d, "/v1/models/m/encode", "{\"inputs\":\"the cat\"}", 200);
    reply_free(&r);
    assert_int_equal(unlink(vocabulary), 0);
    kill(daemon_pid(d), SIGHUP);
    watch_until(d, FAILURES, 2);
    r = daemon_post(d, "/embed", "{\"inputs\":\"the cat\"}", 200);
    reply_free(&r);
    daemon_stop(d);
    free(dir);
    free(vocabulary);
    free(option);
}

static void an_unloaded_model_is_not_there_until_it_is_loaded(void **state)
{
    char *good = folder("good2", &small, 4), *broken = damaged("bad2", &small);
    char *json = request(1, 3, 64, false);
    test_daemon *d = start(serve_this(good), NULL);
    char *numbers = ask(d, json);
    double weights = watch_metric(d, "attnd_weights_bytes");
    (void)state;

    expect_index(d, "{\"ready\":true}", "m READY ");
    for (int i = 0; i < 2; i++) { /* again is harmless */
        post(d, UNLOAD, 200, NULL);
        expect_index(d, "", "m UNAVAILABLE unloaded");
        expect_index(d, "{\"ready\":true}", "");
    }
    post(d, ATTENTION, 503, "model_not_loaded");
    post(d, "/v2/models/m/infer", 503, "model_not_loaded");
    get(d, "/v1/models/m", 503, "model_not_loaded");
    get(d, "/v2/models/m", 503, "model_not_loaded");
    get(d, "/v2/models/m/ready", 503, "model_not_loaded");
    get(d, "/v2/health/ready", 503, "model_not_loaded");
    get(d, "/health/ready", 503, "model_not_loaded");
    get(d, "/health/live", 200, NULL);
    get(d, "/v1/models/n", 404, "model_not_found");
    test_reply r = daemon_request(d, "GET", "/v1/models", NULL, NULL, 0);
    assert_string_equal(r.body, "{\"models\":[]}");
    reply_free(&r);
    r = daemon_post(d, INFLIGHT_SDPA, "{\"query\":[[[[1]]]],\"key\":[[[[1]]]],\"value\":[[[[1]]]]}",
                    200); /* needs no model */
    reply_free(&r);
    watch_until(d, "attnd_weights_bytes", 0);
    assert_true(watch_metric(d, "attnd_models_loaded") == 0);
    assert_true(watch_metric(d, "attnd_ready") == 0);

    kill(daemon_pid(d), SIGHUP); /* loads what is there: nothing */
    usleep(100000);
    get(d, "/v1/models/m", 503, "model_not_loaded");
    serve_this(broken);
    post(d, LOAD, 500, "load_failed");
    expect_index(d, "", "m UNAVAILABLE ");
    assert_true(watch_log_has(d, "\"msg\":\"the model stays unloaded: "));
    serve_this(good);
    post(d, LOAD, 200, NULL);
    expect_index(d, "", "m READY ");
    expect_answer(d, json, numbers);
    get(d, "/health/ready", 200, NULL);
    assert_true(watch_metric(d, "attnd_weights_bytes") == weights);
    assert_true(watch_metric(d, "attnd_models_loaded") == 1);
    daemon_stop(d);
    free(numbers);
    free(json);
    free(good);
    free(broken);
}

static void requests_under_way_keep_their_weights(void **state)
{
    char *good = folder("good3", &small, 5);
    test_daemon *d = start(serve_this(good), COMMAND("--set", "compute.threads=1", "--set",
                                                     "server.shutdown_timeout=60s"));
    char *json = request(1, 12000, 64, false); /* a second or so */
    double weights = watch_metric(d, "attnd_weights_bytes");
    raw_conn c;
    (void)state;

    inflight_open(&c, d);
    assert_true(inflight_post(&c, ATTENTION, json, 0));
    watch_until(d, "attnd_requests_running", 1);
    post(d, UNLOAD, 200, NULL);
    assert_true(watch_metric(d, "attnd_models_loaded") == 0);
    assert_true(watch_metric(d, "attnd_weights_bytes") == weights); /* still held */
    post(d, LOAD, 200, NULL);
    assert_true(watch_metric(d, "attnd_weights_bytes") == 2 * weights);
    raw_answer a = raw_read(&c, false, 120000);
    assert_int_equal(a.status, 200);
    assert_true(a.complete);
    watch_until(d, "attnd_weights_bytes", weights);
    raw_free(&a);
    raw_close(&c);
    daemon_stop(d);
    free(json);
    free(good);
}

static void a_second_load_at_once_is_refused_and_a_second_signal_is_not_lost(void **state)
{
    char *good = folder("large", &large, 6);
    test_daemon *d = start(serve_this(good), NULL);
    double reloads = 0;
    bool refused = false, refused_unload = false;
    raw_conn first, second;
    (void)state;

    inflight_open(&first, d);
    inflight_open(&second, d);
    for (int i = 0; i < 1000 && !(refused && refused_unload); i++) {
        /* In one packet each, and the second when the load, which takes some milliseconds, is under way. */
        assert_true(raw_text(&first, CHANGE, LOAD));
        usleep(1000 + 100 * (useconds_t)(i % 20));
        assert_true(raw_text(&second, CHANGE, i % 2 == 0 ? LOAD : UNLOAD));
        raw_answer r = raw_read(&second, false, 60000);
        assert_true(r.status == 200 || r.status == 409);
        if (r.status == 409) {
            assert_non_null(strstr(r.body, "\"code\":\"load_under_way\""));
            *(i % 2 == 0 ? &refused : &refused_unload) = true;
        }
        reloads += 1 + (i % 2 == 0 && r.status == 200);
        raw_free(&r);
        raw_answer a = raw_read(&first, false, 60000);
        /* The other one may have come first. */
        assert_true(a.status == 200 || a.status == 409);
        reloads -= a.status == 409;
        raw_free(&a);
    }
    assert_true(refused && refused_unload);
    watch_until(d, SUCCESSES, reloads);
    if (watch_metric(d, "attnd_models_loaded") == 0) {
        post(d, LOAD, 200, NULL);
        reloads++;
    }

    /* Signals that come before the first is seen are one; so it is tried until one was seen during a reload. */
    for (int i = 0; i < 1000 && log_count(d, FOLLOWS) == 0; i++) {
        kill(daemon_pid(d), SIGHUP);
        usleep(1000 + 100 * (useconds_t)(i % 20));
        kill(daemon_pid(d), SIGHUP);
        usleep(10000);
    }
    usleep(300000);
    double seen = log_count(d, "SIGHUP: reloading"), follow = log_count(d, FOLLOWS);
    assert_true(follow > 0);
    /* Each that was seen began a reload, but those that came during one may share the next. */
    double least = reloads + seen - follow + 1;
    for (int i = 0; i < 5000 && watch_metric(d, SUCCESSES) < least; i++)
        usleep(2000);
    usleep(300000);
    assert_in_range((uintmax_t)watch_metric(d, SUCCESSES), (uintmax_t)least,
                    (uintmax_t)(reloads + seen));
    raw_close(&second);
    raw_close(&first);
    daemon_stop(d);
    free(good);
}

static void a_model_is_loaded_as_it_is_configured(void **state)
{
    char *good = folder("good4", &small, 7);
    test_daemon *d = start(serve_this(good), NULL);
    static const char *const bad[][2] = {
        {"[]", ""},
        {"{\"parameters\":1}", "/parameters"},
        {"{\"parameters\":{\"config\":\"{}\"}}", "/parameters/config"},
        {"{", ""},
    };
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        test_reply r = daemon_post(d, LOAD, bad[i][0], 400);
        json_t *root = answer_parse(r.body, r.body_bytes);
        const char *pointer = json_string_value(json_object_get(root, "pointer"));
        assert_string_equal(pointer != NULL ? pointer : "", bad[i][1]);
        json_decref(root);
        reply_free(&r);
    }
    test_reply r = daemon_post(d, UNLOAD, "{\"parameters\":{\"unload_dependents\":false}}", 200);
    reply_free(&r);
    r = daemon_request(d, "POST", LOAD, NULL, NULL, 0); /* no body at all */
    assert_int_equal(r.status, 200);
    reply_free(&r);
    post(d, "/v2/repository/models/n/load", 404, "model_not_found");
    r = daemon_request(d, "POST", UNLOAD, COMMAND("Sec-Fetch-Site: cross-site"), NULL, 0);
    assert_int_equal(r.status, 403);
    assert_non_null(strstr(r.body, "\"code\":\"cross_site\""));
    reply_free(&r);
    r = daemon_request(d, "POST", UNLOAD, COMMAND("Sec-Fetch-Site: same-origin"), NULL, 0);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    assert_true(watch_metric(d, SUCCESSES) == 1);
    daemon_stop(d);
    free(good);
}

static void without_admin_models_stay_as_they_are(void **state)
{
    test_daemon *d = daemon_start(COMMAND("serve"));
    (void)state;

    post(d, "/v2/repository/models/demo/load", 403, "admin_disabled");
    post(d, "/v2/repository/models/demo/unload", 403, "admin_disabled");
    post(d, "/v2/repository/models/nope/load", 403, "admin_disabled");
    get(d, "/health/ready", 200, NULL);
    test_reply r = daemon_request(d, "GET", "/v2", NULL, NULL, 0);
    assert_null(strstr(r.body, "model_repository"));
    reply_free(&r);
    kill(daemon_pid(d), SIGHUP); /* that is the operator */
    watch_until(d, SUCCESSES, 1);
    daemon_stop(d);
}

/* --- files that change under the loader --- */

typedef struct {
    const char *path;
    off_t bytes;
    atomic_bool stop;
} spoiler;

static void *spoil(void *arg)
{
    spoiler *s = arg;
    for (int i = 0; !atomic_load(&s->stop); i++) {
        (void)!truncate(s->path, i % 2 == 0 ? s->bytes / 3 : s->bytes);
        usleep(1500);
    }
    return NULL;
}

static void a_file_that_changes_while_it_is_read_fails_or_loads(void **state)
{
    char *good = folder("changing", &large, 8), *same = folder("same", &large, 8);
    char *file = st_path("%s/model.safetensors", good);
    char *other = st_path("%s/model.safetensors", same);
    char *json = request(1, 2, 768, false);
    test_daemon *d = start(good, NULL);
    char *numbers = ask(d, json);
    struct stat st;
    size_t failed = 0;
    (void)state;

    assert_int_equal(stat(file, &st), 0);
    spoiler s = {.path = file, .bytes = st.st_size};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, spoil, &s), 0);
    for (int i = 0; i < 20 || failed == 0; i++) {
        assert_true(i < 200);
        test_reply r = daemon_request(d, "POST", LOAD, NULL, NULL, 0);
        assert_true(r.status == 200 || r.status == 500);
        failed += r.status == 500;
        reply_free(&r);
    }
    atomic_store(&s.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    get(d, "/health/ready", 200, NULL);
    assert_int_equal(rename(other, file), 0);
    post(d, LOAD, 200, NULL);
    expect_answer(d, json, numbers);
    daemon_stop(d);
    free(numbers);
    free(json);
    free(other);
    free(same);
    free(file);
    free(good);
}

static void a_load_under_way_does_not_hold_up_the_end(void **state)
{
    char *good = folder("large2", &large, 10);
    test_daemon *d = start(good, NULL);
    raw_conn c;
    (void)state;

    inflight_open(&c, d);
    assert_true(inflight_post(&c, LOAD, "{}", 0));
    kill(daemon_pid(d), SIGTERM);
    raw_answer a = raw_read(&c, false, 10000);
    assert_true(a.status == 200 || a.status == 503);
    raw_free(&a);
    raw_close(&c);
    assert_int_equal(daemon_wait(d, 60000, NULL), 0);
    free(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_answer_belongs_wholly_to_one_set_of_weights),
        cmocka_unit_test(a_failed_load_keeps_the_old_weights),
        cmocka_unit_test(a_damaged_tokeniser_keeps_the_old_one),
        cmocka_unit_test(an_unloaded_model_is_not_there_until_it_is_loaded),
        cmocka_unit_test(requests_under_way_keep_their_weights),
        cmocka_unit_test(a_second_load_at_once_is_refused_and_a_second_signal_is_not_lost),
        cmocka_unit_test(a_model_is_loaded_as_it_is_configured),
        cmocka_unit_test(without_admin_models_stay_as_they_are),
        cmocka_unit_test(a_file_that_changes_while_it_is_read_fails_or_loads),
        cmocka_unit_test(a_load_under_way_does_not_hold_up_the_end),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

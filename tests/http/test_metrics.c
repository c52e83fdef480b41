/* GET /metrics of the real daemon, and Server-Timing: what they say after requests whose numbers are
 * known, and that no client can make them say more or wait. */
#include "tests/body.h"
#include "tests/command.h"
#include "tests/daemon.h"
#include "tests/inflight.h"
#include "tests/st.h"
#include "tests/watch.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define DEMO     "/v1/models/demo/attention"
#define ESTIMATE DEMO "/estimate"
#define SMALL    "{\"query\":[[[[1],[2],[3]]]],\"key\":[[[[1],[0]]]],\"value\":[[[[4],[5]]]]}"

static const char *const JSON_TYPE[] = {"Content-Type: application/json", NULL};

static test_daemon *serve(const char *setting)
{
    return daemon_start(COMMAND("serve", "--set", "compute.threads=2", "--set",
                                setting != NULL ? setting : "log.level=info"));
}

static scrape scrape_now(const test_daemon *d)
{
    test_reply r = daemon_request(d, "GET", "/metrics", NULL, NULL, 0);
    char *type = reply_header(&r, "Content-Type");
    assert_string_equal(type, "text/plain; version=0.0.4; charset=utf-8");
    free(type);
    reply_free(&r);
    return watch_metrics(d);
}

/* The series of answered requests, in a buffer of its own. */
static const char *answered(const char *method, const char *route, int status)
{
    static char series[512];
    (void)snprintf(series, sizeof series,
                   "http_server_request_duration_seconds_count{http_request_method=\"%s\","
                   "http_route=\"%s\",http_response_status_code=\"%d\"}",
                   method, route, status);
    return series;
}

static const char *rejected(const char *reason)
{
    static char series[128];
    (void)snprintf(series, sizeof series, "attnd_rejected_total{reason=\"%s\"}", reason);
    return series;
}

static const char *stage(const char *what, const char *name)
{
    static char series[128];
    (void)snprintf(series, sizeof series, "attnd_stage_duration_seconds_%s{stage=\"%s\"}", what,
                   name);
    return series;
}

static void post(const test_daemon *d, const char *path, const char *json, long status)
{
    test_reply r = daemon_post(d, path, json, status);
    reply_free(&r);
}

/* --- the text --- */

static void exactly_the_metrics_of_the_contract_are_there(void **state)
{
    static const char *const FAMILY[][2] = {
        {"attnd_build_info", "gauge"},
        {"attnd_ready", "gauge"},
        {"attnd_models_loaded", "gauge"},
        {"attnd_reloads_total", "counter"}, /* beside it */
        {"attnd_compute_threads", "gauge"},
        {"http_server_request_duration_seconds", "histogram"},
        {"attnd_stage_duration_seconds", "histogram"},
        {"attnd_requests_waiting", "gauge"},
        {"attnd_requests_running", "gauge"},
        {"attnd_rejected_total", "counter"},
        {"attnd_cancelled_total", "counter"},
        {"attnd_broken_answers_total", "counter"}, /* beside it */
        {"attnd_sequences_total", "counter"},
        {"attnd_tokens_total", "counter"},
        {"attnd_micro_batches_total", "counter"},
        {"attnd_shared_requests_total", "counter"}, /* beside it */
        {"attnd_memory_budget_bytes", "gauge"},
        {"attnd_memory_used_bytes", "gauge"},
        {"attnd_weights_bytes", "gauge"},
        {"attnd_log_lines_lost_total", "counter"}, /* beside it */
        {"process_resident_memory_bytes", "gauge"},
        {"process_cpu_seconds_total", "counter"},
        {"process_open_fds", "gauge"},
        {"process_start_time_seconds", "gauge"},
    };
    enum { N = sizeof FAMILY / sizeof *FAMILY };
    test_daemon *d = serve("memory.budget=64MiB");
    (void)state;

    post(d, INFLIGHT_SDPA, SMALL, 200);
    post(d, INFLIGHT_SDPA, "{}", 400);
    scrape s = scrape_now(d);
    for (size_t i = 0; i < N; i++) {
        const char *type = scrape_type(&s, FAMILY[i][0]);
        if (type == NULL)
            fail_msg("there is no %s", FAMILY[i][0]);
        assert_string_equal(type, FAMILY[i][1]);
    }
    assert_int_equal(s.num_families, N);
    assert_true(scrape_value(&s, "attnd_ready") == 1);
    assert_true(scrape_value(&s, "attnd_models_loaded") == 1);
    assert_true(scrape_value(&s, "attnd_compute_threads") == 2);
    assert_true(scrape_value(&s, "attnd_memory_budget_bytes") == 64 << 20);
    assert_true(scrape_value(&s, "attnd_weights_bytes") > 0);
    size_t builds = 0;
    for (size_t i = 0; i < s.num_samples; i++) {
        if (strncmp(s.sample[i].series, "attnd_build_info{", 17) == 0) {
            assert_non_null(strstr(s.sample[i].series, "{version=\""));
            assert_true(s.sample[i].value == 1);
            builds++;
        }
    }
    assert_int_equal(builds, 1);
    scrape_free(&s);
    daemon_stop(d);
}

static void promtool_has_nothing_to_say(void **state)
{
    static const char *const places[] = {"promtool", "build/promtool/usr/bin/promtool"};
    const char *promtool = NULL;
    (void)state;

    for (size_t i = 0; i < 2 && promtool == NULL; i++) {
        char *look = st_path("command -v %s >/dev/null", places[i]);
        promtool = system(look) == 0 ? places[i] : NULL;
        free(look);
    }
    if (promtool == NULL) {
        printf("skipped: promtool: it is neither installed nor could prometheus be downloaded\n");
        skip();
    }
    test_daemon *d = serve("memory.budget=64MiB");
    char *dir = st_temp_dir(), *file = st_path("%s/metrics", dir);
    post(d, INFLIGHT_SDPA, SMALL, 200);
    post(d, INFLIGHT_SDPA, "{}", 400);
    test_reply r = daemon_request(d, "GET", "/metrics", NULL, NULL, 0);
    assert_int_equal(r.status, 200);
    st_write_text(file, r.body);
    char *check = st_path("%s check metrics --extended <%s >%s/said 2>&1", promtool, file, dir);
    if (system(check) != 0) {
        char *show = st_path("cat %s/said", dir);
        fflush(stdout);
        (void)!system(show);
        free(show);
        fail_msg("promtool finds fault with the metrics");
    }
    free(check);
    reply_free(&r);
    daemon_stop(d);
    free(file);
    st_remove_dir(dir);
}

static void the_process_is_the_daemon(void **state)
{
    test_daemon *d = serve(NULL);
    char *path = st_path("/proc/%ld/fd", (long)daemon_pid(d));
    size_t fds = 0;
    (void)state;

    scrape s = scrape_now(d);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        fds += e->d_name[0] != '.';
    closedir(dir);
    double open_fds = scrape_value(&s, "process_open_fds"); /* curl's connection may come and go */
    assert_true(fabs(open_fds - (double)fds) <= 2);
    double age = difftime(time(NULL), 0) - scrape_value(&s, "process_start_time_seconds");
    assert_true(age > -2 && age < 120);
    double resident = scrape_value(&s, "process_resident_memory_bytes");
    assert_true(resident > 1e6 && resident < 1e12);
    double cpu = scrape_value(&s, "process_cpu_seconds_total");
    scrape_free(&s);
    char *heavy = inflight_heavy(20000, 0);
    post(d, INFLIGHT_SDPA, heavy, 200);
    assert_true(watch_metric(d, "process_cpu_seconds_total") > cpu + 0.005);
    free(heavy);
    free(path);
    daemon_stop(d);
}

static void head_is_get_without_its_body(void **state)
{
    test_daemon *d = serve(NULL);
    raw_conn c;
    (void)state;

    inflight_open(&c, d);
    assert_true(raw_text(&c, "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    raw_answer a = raw_read(&c, true, 5000);
    assert_int_equal(a.status, 200);
    assert_string_equal(raw_header(&a, "Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
    assert_true(strtoul(raw_header(&a, "Content-Length"), NULL, 10) > 1000);
    raw_free(&a);
    a = inflight_get(&c, "/metrics"); /* the connection goes on */
    assert_int_equal(a.status, 200);
    scrape s = scrape_read(a.body, a.body_bytes);
    assert_true(scrape_value(&s, answered("HEAD", "/metrics", 200)) == 1);
    scrape_free(&s);
    raw_free(&a);
    raw_close(&c);
    test_reply r = daemon_request(d, "DELETE", "/metrics", NULL, NULL, 0);
    assert_int_equal(r.status, 405);
    reply_free(&r);
    daemon_stop(d);
}

static void switched_off_there_is_nothing(void **state)
{
    static const char *const METHOD[] = {"GET", "HEAD", "POST"};
    test_daemon *d = serve("metrics.enabled=false");
    (void)state;

    for (size_t i = 0; i < 3; i++) {
        test_reply r = daemon_request(d, METHOD[i], "/metrics", NULL, i == 2 ? "" : NULL, 0);
        assert_int_equal(r.status, 404);
        reply_free(&r);
    }
    post(d, INFLIGHT_SDPA, SMALL, 200);
    daemon_stop(d);
}

/* --- counting --- */

static void counters_move_by_what_was_computed(void **state)
{
    static const char *const STAGE[] = {"recv", "parse", "queue", "compute", "serialize"};
    test_daemon *d = serve(NULL);
    float x[2 * 3 * 16] = {1, 2, 3};
    test_body b;
    (void)state;

    body_init(&b, false);
    body_floats(&b, "inputs_embeds", x, DIMS(2, 3, 16));
    body_raw(&b, "lengths", "[3,1]");
    test_reply r = daemon_post(d, DEMO, body_text(&b), 200);
    json_t *root = answer_parse(r.body, r.body_bytes);
    double micro_batches = json_number_value(answer_get(root, "usage.micro_batches"));
    json_decref(root);
    reply_free(&r);
    post(d, ESTIMATE, "{\"shape\":[2,3,16]}", 200); /* computes nothing */
    post(d, DEMO, "{\"inputs_embeds\":[[[1,2]]]}", 422);
    post(d, DEMO, "{", 400);
    r = daemon_request(d, "POST", DEMO, NULL, NULL, 0);
    assert_int_equal(r.status, 400);
    reply_free(&r);
    r = daemon_request(d, "GET", "/v1/models/none", NULL, NULL, 0);
    assert_int_equal(r.status, 404);
    reply_free(&r);
    watch_until(d, answered("GET", "/v1/models/{model}", 404), 1);
    watch_until(d, answered("POST", "/v1/models/{model}/attention", 200), 1);
    watch_until(d, answered("POST", "/v1/models/{model}/attention", 422), 1);
    watch_until(d, answered("POST", "/v1/models/{model}/attention", 400), 2);
    watch_until(d, answered("POST", "/v1/models/{model}/attention/estimate", 200), 1);

    scrape s = scrape_now(d);
    assert_true(scrape_value(&s, "attnd_sequences_total") == 2);
    assert_true(scrape_value(&s, "attnd_tokens_total") == 4);
    assert_true(micro_batches >= 1);
    assert_true(scrape_value(&s, "attnd_micro_batches_total") == micro_batches);
    assert_true(scrape_value(&s, "attnd_cancelled_total") == 0);
    for (size_t i = 0; i < 5; i++) { /* four bodies were received, five parsed, one computed */
        double n = scrape_value(&s, stage("count", STAGE[i])), expected[] = {4, 5, 1, 1, 1};
        if (n != expected[i])
            fail_msg("%g requests came through %s", n, STAGE[i]);
    }
    for (size_t i = 0; i < s.num_samples; i++) {
        if (strncmp(s.sample[i].series, "attnd_rejected_total", 20) == 0)
            assert_true(s.sample[i].value == 0);
    }
    scrape_free(&s);
    body_free(&b);
    daemon_stop(d);
}

static void the_label_is_the_code_of_the_problem(const test_daemon *d, test_reply *r, double count)
{
    json_t *root = answer_parse(r->body, r->body_bytes);
    const char *code = json_string_value(json_object_get(root, "code"));
    assert_non_null(code);
    watch_until(d, rejected(code), count);
    json_decref(root);
    reply_free(r);
}

/* A request that fits into 12 MiB alone, but not twice: its inputs are more than the half of it. */
static char *half_of_the_budget(void)
{
    enum { B = 270, T = 400, D = 16 };
    float *x = calloc((size_t)B * T * D, sizeof *x);
    test_body b;

    assert_non_null(x);
    body_init(&b, true);
    body_floats(&b, "inputs_embeds", x, DIMS(B, T, D));
    body_raw(&b, "return_outputs", "false");
    body_raw(&b, "return_intermediates", "[\"logsumexp\"]");
    char *text = strdup(body_text(&b));
    assert_non_null(text);
    body_free(&b);
    free(x);
    return text;
}

static void rejections_are_counted_by_their_code(void **state)
{
    test_daemon *d =
        daemon_start(COMMAND("serve", "--set", "memory.budget=12MiB", "--set",
                             "server.max_body=16MiB", "--set", "queue.max_requests=1"));
    static const char *const HUGE_BODY[] = {"Content-Type: application/json",
                                            "Content-Length: 100000000", NULL};
    char *late = inflight_heavy(20000, 1), *large = half_of_the_budget();
    raw_conn c;
    (void)state;

    test_reply r = daemon_post(d, INFLIGHT_SDPA, late, 504);
    the_label_is_the_code_of_the_problem(d, &r, 1);
    assert_true(watch_metric(d, rejected("deadline")) == 1);
    r = daemon_request(d, "POST", INFLIGHT_SDPA, HUGE_BODY, "{}", 2);
    assert_int_equal(r.status, 413);
    the_label_is_the_code_of_the_problem(d, &r, 1);
    assert_true(watch_metric(d, rejected("too_large")) == 1);
    inflight_open(&c, d);
    assert_true(inflight_post(&c, DEMO, large, 1));
    for (int i = 0; i < 500 && watch_metric(d, "attnd_memory_used_bytes") < 6.9e6; i++)
        usleep(10000);
    r = daemon_request(d, "POST", DEMO, JSON_TYPE, large, strlen(large));
    assert_int_equal(r.status, 503);
    the_label_is_the_code_of_the_problem(d, &r, 1);
    raw_close(&c);
    watch_until(d, "attnd_cancelled_total", 1);
    watch_until(d, "attnd_memory_used_bytes", 0);
    r = daemon_request(d, "POST", DEMO, JSON_TYPE, large, strlen(large)); /* now it fits */
    assert_int_equal(r.status, 200);
    reply_free(&r);
    free(large);
    free(late);
    daemon_stop(d);
}

static void those_who_may_not_are_counted_by_what_they_lack(void **state)
{
    static const char *const KEY[] = {"Authorization: Bearer sesame", NULL};
    static const char *const ELSEWHERE[] = {"Authorization: Bearer sesame", "Host: example.com",
                                            NULL};
    static const struct {
        const char *method, *path, *code;
        const char *const *headers;
    } turned_away[] = {
        {"GET", "/v1/models", "unauthorized", NULL},
        {"GET", "/v1/models", "host_not_allowed", ELSEWHERE},
        {"POST", "/v2/repository/models/demo/load", "admin_disabled", KEY},
    };
    char *dir = st_temp_dir(), *file = st_path("%s/keys", dir);
    char *option = st_path("auth.keys_file=%s", file);
    (void)state;

    st_write_text(file, "sesame\n");
    test_daemon *d =
        daemon_start(COMMAND("serve", "--set", option, "--set", "auth.protect_metrics=false"));
    for (size_t i = 0; i < sizeof turned_away / sizeof *turned_away; i++) {
        test_reply r = daemon_request(d, turned_away[i].method, turned_away[i].path,
                                      turned_away[i].headers, NULL, 0);
        assert_true(r.status == 401 || r.status == 403);
        the_label_is_the_code_of_the_problem(d, &r, 1);
        assert_true(watch_metric(d, rejected(turned_away[i].code)) == 1);
    }
    daemon_stop(d);
    st_remove_dir(dir);
    free(file);
    free(option);
}

static void a_full_queue_counts_those_it_refused(void **state)
{
    enum { N = 6 };
    test_daemon *d = serve("queue.max_requests=1");
    char *heavy = inflight_heavy(24000, 0);
    raw_conn c[N];
    double refused = 0, served = 0;
    (void)state;

    for (size_t i = 0; i < N; i++)
        inflight_open(&c[i], d);
    for (size_t i = 0; i < N; i++)
        assert_true(inflight_post(&c[i], INFLIGHT_SDPA, heavy, 0));
    for (size_t i = 0; i < N; i++) {
        raw_answer a = raw_read(&c[i], false, 60000);
        assert_true(a.status == 200 || a.status == 503);
        refused += a.status == 503;
        served += a.status == 200;
        raw_free(&a);
        raw_close(&c[i]);
    }
    assert_true(refused >= 1);
    watch_until(d, rejected("queue_full"), refused);
    watch_until(d, "attnd_sequences_total", served);
    watch_until(d, answered("POST", INFLIGHT_SDPA, 200), served);
    watch_until(d, answered("POST", INFLIGHT_SDPA, 503), refused);
    daemon_stop(d);
    free(heavy);
}

/* --- the ledger --- */

static void the_ledger_is_at_zero_whatever_ended_a_request(void **state)
{
    test_daemon *d = serve(NULL);
    char *text = inflight_heavy(12000, 0), *late = inflight_heavy(12000, 1);
    size_t n = strlen(text);
    raw_conn c;
    (void)state;

    watch_until(d, "attnd_memory_used_bytes", 0);
    for (int i = 0; i < 2; i++) {
        post(d, INFLIGHT_SDPA, text, 200);
        watch_until(d, "attnd_memory_used_bytes", 0);
        text[n - 1] = ']';
        post(d, INFLIGHT_SDPA, text, 400);
        text[n - 1] = '}';
        post(d, INFLIGHT_SDPA, late, 504);
        watch_until(d, "attnd_memory_used_bytes", 0);

        inflight_open(&c, d); /* leaves in the middle of its body */
        assert_true(inflight_post(&c, INFLIGHT_SDPA, text, n / 3));
        double used = 0;
        for (int k = 0; k < 500 && used == 0; k++) {
            usleep(10000);
            used = watch_metric(d, "attnd_memory_used_bytes");
        }
        assert_true(used > 12000);
        raw_close(&c);
        watch_until(d, "attnd_memory_used_bytes", 0);
        watch_until(d, "attnd_cancelled_total", 2 * i + 1);

        inflight_open(&c, d); /* leaves before its answer */
        assert_true(inflight_post(&c, INFLIGHT_SDPA, text, 0));
        raw_close(&c);
        watch_until(d, "attnd_cancelled_total", 2 * i + 2);
        watch_until(d, "attnd_memory_used_bytes", 0);
    }
    daemon_stop(d);
    free(text);
    free(late);
}

/* --- what clients cannot do --- */

static size_t lines_of(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += *text == '\n';
    return n;
}

static void strange_requests(raw_conn *c, int from, int n)
{
    for (int i = from; i < from + n; i++) {
        assert_true(raw_text(c,
                             "GET /random/%d%%22%%5C HTTP/1.1\r\nHost: localhost\r\n\r\n"
                             "POST /v1/models/m%d/attention HTTP/1.1\r\nHost: localhost\r\n"
                             "Content-Length: 0\r\n\r\n"
                             "M%d /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
                             "GET /v1/models/demo/examples/e%d HTTP/1.1\r\nHost: localhost\r\n\r\n",
                             i, i, i, i));
        for (int k = 0; k < 4; k++) {
            raw_answer a = raw_read(c, false, 10000);
            assert_true(a.status == 404 || a.status == 405);
            raw_free(&a);
        }
    }
}

static void clients_cannot_make_series(void **state)
{
    enum { N = 1000 };
    test_daemon *d = serve("log.level=error");
    raw_conn c;
    (void)state;

    inflight_open(&c, d);
    strange_requests(&c, 0, 2); /* these make theirs */
    raw_answer a = inflight_get(&c, "/metrics");
    raw_free(&a);
    raw_answer before = inflight_get(&c, "/metrics");
    strange_requests(&c, 2, N);
    raw_answer after = inflight_get(&c, "/metrics");
    assert_int_equal(lines_of(after.body), lines_of(before.body));
    scrape s = scrape_read(after.body, after.body_bytes);
    assert_true(scrape_value(&s, answered("GET", "other", 404)) == N + 2);
    assert_true(scrape_value(&s, answered("POST", "/v1/models/{model}/attention", 404)) == N + 2);
    assert_true(scrape_value(&s, answered("_OTHER", "other", 405)) == N + 2);
    assert_null(strstr(after.body, "random"));
    scrape_free(&s);
    raw_free(&before);
    raw_free(&after);
    raw_close(&c);
    daemon_stop(d);
}

static void a_scrape_sees_what_runs_and_does_not_wait_for_it(void **state)
{
    enum { N = 3 };
    test_daemon *d = serve(NULL);
    char *heavy = inflight_heavy(60000, 0);
    raw_conn c[N], own;
    bool seen = false;
    (void)state;

    for (size_t i = 0; i < N; i++)
        inflight_open(&c[i], d);
    inflight_open(&own, d);
    for (size_t i = 0; i < N; i++)
        assert_true(inflight_post(&c[i], INFLIGHT_SDPA, heavy, 0));
    for (int i = 0; i < 500 && !seen; i++) {
        long long begin = raw_now_ms();
        raw_answer a = inflight_get(&own, "/metrics");
        assert_true(raw_now_ms() - begin < 2000);
        scrape s = scrape_read(a.body, a.body_bytes);
        double waiting = scrape_value(&s, "attnd_requests_waiting");
        double running = scrape_value(&s, "attnd_requests_running");
        assert_true(waiting + running <= N);
        seen = running >= 1 && waiting + running == N;
        if (seen)
            assert_true(scrape_value(&s, "attnd_memory_used_bytes") > 60000);
        scrape_free(&s);
        raw_free(&a);
        usleep(2000);
    }
    assert_true(seen);
    for (size_t i = 0; i < N; i++) {
        raw_answer a = raw_read(&c[i], false, 60000);
        assert_int_equal(a.status, 200);
        raw_free(&a);
        raw_close(&c[i]);
    }
    raw_close(&own);
    watch_until(d, "attnd_requests_running", 0);
    watch_until(d, "attnd_requests_waiting", 0);
    daemon_stop(d);
    free(heavy);
}

/* --- Server-Timing --- */

/* Milliseconds of "name;dur=..." in the field; -1 = not there. */
static double duration(const char *timing, const char *name)
{
    char *pattern = st_path("%s;dur=", name), *end = NULL;
    const char *at = timing != NULL ? strstr(timing, pattern) : NULL;
    double ms = -1;

    if (at != NULL) {
        assert_true(at == timing || (at[-1] == ' ' && at[-2] == ','));
        ms = strtod(at + strlen(pattern), &end);
        assert_true(*end == '\0' || *end == ',');
        assert_true(ms >= 0);
    }
    free(pattern);
    return ms;
}

static void server_timing_tells_where_the_time_went(void **state)
{
    static const char *const STAGE[] = {"recv", "parse", "queue", "compute"};
    test_daemon *d = serve(NULL);
    char *heavy = inflight_heavy(20000, 0);
    (void)state;

    test_reply r = daemon_post(d, INFLIGHT_SDPA, heavy, 200);
    char *timing = reply_header(&r, "Server-Timing");
    double sum = 0;
    for (size_t i = 0; i < 4; i++) {
        double ms = duration(timing, STAGE[i]);
        if (ms < 0)
            fail_msg("no %s in %s", STAGE[i], timing);
        sum += ms;
    }
    assert_true(strncmp(timing, "recv;dur=", 9) == 0);
    assert_true(duration(timing, "parse") > 0 && duration(timing, "compute") > 0);
    assert_true(sum > 0 && sum <= r.seconds * 1000);
    assert_true(duration(timing, "serialize") < 0); /* not known when the header leaves */
    reply_free(&r);
    free(timing);

    r = daemon_post(d, ESTIMATE, "{\"shape\":[1,2,16]}", 200);
    timing = reply_header(&r, "Server-Timing");
    assert_true(duration(timing, "recv") >= 0 && duration(timing, "parse") >= 0);
    assert_true(duration(timing, "queue") < 0 && duration(timing, "compute") < 0);
    reply_free(&r);
    free(timing);

    r = daemon_post(d, DEMO, "{\"x\":1}", 400); /* as far as it came */
    timing = reply_header(&r, "Server-Timing");
    assert_true(duration(timing, "parse") >= 0 && duration(timing, "compute") < 0);
    reply_free(&r);
    free(timing);

    r = daemon_request(d, "GET", "/v1/models", NULL, NULL, 0);
    timing = reply_header(&r, "Server-Timing");
    assert_null(timing);
    reply_free(&r);
    free(heavy);
    daemon_stop(d);
}

/* The field of the log line of the request `id`. */
static double logged(const test_daemon *d, const char *id, const char *field)
{
    char *text = NULL, *mark = st_path("\"request_id\":\"%s\"", id);
    double value = -1;

    for (int i = 0; i < 500 && value < 0; i++) {
        text = daemon_log(d);
        char *line = strstr(text, mark);
        if (line != NULL && strchr(line, '\n') != NULL) {
            while (line > text && line[-1] != '\n')
                line--;
            *strchr(line, '\n') = '\0';
            json_t *root = answer_parse(line, strlen(line));
            json_t *number = json_object_get(root, field);
            assert_true(json_is_number(number));
            value = json_number_value(number);
            json_decref(root);
        } else {
            usleep(10000);
        }
        free(text);
    }
    assert_true(value >= 0);
    free(mark);
    return value;
}

static void a_slow_body_is_time_to_receive_and_not_to_parse(void **state)
{
    const size_t n = strlen(SMALL);
    test_daemon *d = serve("log.format=json");
    raw_conn c;
    (void)state;

    inflight_open(&c, d);
    assert_true(raw_text(&c,
                         "POST %s HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: slow-1\r\n"
                         "Content-Length: %zu\r\n\r\n",
                         INFLIGHT_SDPA, n) &&
                raw_send(&c, SMALL, n / 2));
    usleep(300000);
    assert_true(raw_send(&c, &SMALL[n / 2], n - n / 2));
    raw_answer a = raw_read(&c, false, 10000);
    assert_int_equal(a.status, 200);
    const char *timing = raw_header(&a, "Server-Timing");
    double recv = duration(timing, "recv"), parse = duration(timing, "parse");
    double queue = duration(timing, "queue"), compute = duration(timing, "compute");
    assert_true(recv > 200 && parse < 200);
    raw_free(&a);
    raw_close(&c);
    /* The same numbers in the log, rounded to microseconds here and there. */
    assert_true(fabs(logged(d, "slow-1", "recv_s") * 1000 - recv) < 0.002);
    assert_true(fabs(logged(d, "slow-1", "parse_s") * 1000 - parse) < 0.002);
    assert_true(fabs(logged(d, "slow-1", "queue_s") * 1000 - queue) < 0.002);
    assert_true(fabs(logged(d, "slow-1", "compute_s") * 1000 - compute) < 0.002);
    assert_true(logged(d, "slow-1", "serialize_s") > 0);
    /* And in the histograms. */
    scrape s = scrape_now(d);
    assert_true(fabs(scrape_value(&s, stage("sum", "recv")) * 1000 - recv) < 0.002);
    assert_true(fabs(scrape_value(&s, stage("sum", "compute")) * 1000 - compute) < 0.002);
    assert_true(scrape_value(&s, stage("sum", "serialize")) > 0);
    scrape_free(&s);
    daemon_stop(d);
}

static void probes_and_scrapes_are_no_lines_at_info(void **state)
{
    test_daemon *d = serve("log.format=json");
    test_reply r;
    (void)state;

    scrape s = scrape_now(d);
    scrape_free(&s);
    r = daemon_request(d, "GET", "/v1/models", JSON_TYPE, NULL, 0);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    watch_until(d, answered("GET", "/v1/models", 200), 1);
    char *log = daemon_log(d);
    assert_non_null(strstr(log, "\"route\":\"/v1/models\""));
    assert_null(strstr(log, "\"route\":\"/metrics\""));
    free(log);
    daemon_stop(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exactly_the_metrics_of_the_contract_are_there),
        cmocka_unit_test(promtool_has_nothing_to_say),
        cmocka_unit_test(the_process_is_the_daemon),
        cmocka_unit_test(head_is_get_without_its_body),
        cmocka_unit_test(switched_off_there_is_nothing),
        cmocka_unit_test(counters_move_by_what_was_computed),
        cmocka_unit_test(rejections_are_counted_by_their_code),
        cmocka_unit_test(those_who_may_not_are_counted_by_what_they_lack),
        cmocka_unit_test(a_full_queue_counts_those_it_refused),
        cmocka_unit_test(the_ledger_is_at_zero_whatever_ended_a_request),
        cmocka_unit_test(clients_cannot_make_series),
        cmocka_unit_test(a_scrape_sees_what_runs_and_does_not_wait_for_it),
        cmocka_unit_test(server_timing_tells_where_the_time_went),
        cmocka_unit_test(a_slow_body_is_time_to_receive_and_not_to_parse),
        cmocka_unit_test(probes_and_scrapes_are_no_lines_at_info),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

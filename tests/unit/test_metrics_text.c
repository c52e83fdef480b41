/* The registry behind /metrics, in this process: what is counted, and its text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/metrics.h"
#include "server/process.h"
#include "tests/scrape.h"

static void nothing(srv_exchange *x)
{
    (void)x;
}

static const srv_route routes[] = {
    {.method = "GET", .path = "/a/{b}", .finish = nothing},
    {.method = "POST", .path = "/work", .body = true, .finish = nothing},
    {.method = "GET", .path = "/probe", .quiet = true, .finish = nothing},
};

static const srv_metrics_label build[] = {{"version", "1.0"}, {"odd", "a\"b\\c\nd\t\xC3\xA9"}};

static attn_budget budget;

static srv_metrics *start(void)
{
    const srv_metrics_options o = {routes, 3, &budget, 3, build, 2};
    srv_metrics *m = NULL;

    attn_budget_init(&budget, 1000);
    assert_int_equal(srv_metrics_new(&m, &o, NULL), ATTN_OK);
    return m;
}

static char *print(const srv_metrics *m, size_t *n)
{
    const srv_metrics_now now = {.ready = true,
                                 .waiting = 5,
                                 .running = 1,
                                 .shared = 6,
                                 .models = 2,
                                 .weights_bytes = 4096,
                                 .reloads = 7,
                                 .failed_reloads = 3,
                                 .lost_log_lines = 9};
    char *text = srv_metrics_print(m, &now, n);
    assert_non_null(text);
    return text;
}

static scrape read_all(const srv_metrics *m)
{
    size_t n = 0;
    char *text = print(m, &n);
    scrape s = scrape_read(text, n);
    free(text);
    return s;
}

static void expect(const srv_metrics *m, const char *series, double value)
{
    scrape s = read_all(m);
    if (scrape_value(&s, series) != value)
        fail_msg("%s is %g", series, scrape_value(&s, series));
    scrape_free(&s);
}

static void labels_are_escaped(void **state)
{
    srv_metrics *m = start();
    (void)state;
    expect(m, "attnd_build_info{version=\"1.0\",odd=\"a\\\"b\\\\c\\nd\t\xC3\xA9\"}", 1);
    srv_metrics_free(m);
    srv_metrics_free(NULL);
}

static void gauges_are_read_when_they_are_printed(void **state)
{
    srv_metrics *m = start();
    (void)state;
    expect(m, "attnd_ready", 1);
    expect(m, "attnd_models_loaded", 2);
    expect(m, "attnd_compute_threads", 3);
    expect(m, "attnd_requests_waiting", 5);
    expect(m, "attnd_requests_running", 1);
    expect(m, "attnd_shared_requests_total", 6);
    expect(m, "attnd_weights_bytes", 4096);
    expect(m, "attnd_reloads_total{result=\"success\"}", 7);
    expect(m, "attnd_reloads_total{result=\"failure\"}", 3);
    expect(m, "attnd_log_lines_lost_total", 9);
    expect(m, "attnd_memory_budget_bytes", 1000);
    expect(m, "attnd_memory_used_bytes", 0);
    assert_int_equal(attn_budget_reserve(&budget, 17, NULL), ATTN_OK);
    expect(m, "attnd_memory_used_bytes", 17);
    attn_budget_release(&budget, 17);
    expect(m, "attnd_memory_used_bytes", 0);
    srv_metrics_free(m);
}

static void an_answer_falls_into_every_bucket_from_its_time_on(void **state)
{
#define HTTP_TIME "http_server_request_duration_seconds"
#define OF_A      "{http_request_method=\"GET\",http_route=\"/a/{b}\",http_response_status_code=\"200\""
    srv_metrics *m = start();
    srv_outcome e = {.method = "GET", .route = &routes[0], .status = 200, .taken = true};
    static const double seconds[] = {0.25, 0.2500001, 11.5, 0};
    (void)state;

    for (size_t i = 0; i < 4; i++) {
        e.seconds = seconds[i];
        srv_metrics_exchange(m, &e);
    }
    expect(m, HTTP_TIME "_bucket" OF_A ",le=\"0.005\"}", 1);
    expect(m, HTTP_TIME "_bucket" OF_A ",le=\"0.1\"}", 1);
    expect(m, HTTP_TIME "_bucket" OF_A ",le=\"0.25\"}", 2); /* the bound is inside */
    expect(m, HTTP_TIME "_bucket" OF_A ",le=\"0.5\"}", 3);
    expect(m, HTTP_TIME "_bucket" OF_A ",le=\"10\"}", 3);
    expect(m, HTTP_TIME "_bucket" OF_A ",le=\"+Inf\"}", 4);
    expect(m, HTTP_TIME "_count" OF_A "}", 4);
    expect(m, HTTP_TIME "_sum" OF_A "}", 12.0000001);
    srv_metrics_free(m);
}

static void unknown_methods_routes_and_reasons_share_a_label(void **state)
{
    srv_metrics *m = start();
    char method[32], reason[32];
    (void)state;

    for (int i = 0; i < 100; i++) {
        (void)snprintf(method, sizeof method, "M%d", i);
        (void)snprintf(reason, sizeof reason, "reason_%d", i);
        const srv_outcome e = {
            .method = method, .status = 503, .code = reason, .taken = true, .seconds = 1};
        srv_metrics_exchange(m, &e);
    }
    expect(m,
           HTTP_TIME "_count{http_request_method=\"_OTHER\",http_route=\"other\","
                     "http_response_status_code=\"503\"}",
           100);
    expect(m, "attnd_rejected_total{reason=\"other\"}", 100);
    scrape s = read_all(m);
    size_t counts = 0;
    for (size_t i = 0; i < s.num_samples; i++)
        counts += strncmp(s.sample[i].series, HTTP_TIME "_count", strlen(HTTP_TIME "_count")) == 0;
    assert_int_equal(counts, 1);
    scrape_free(&s);
    srv_metrics_free(m);
}

static void rejections_are_counted_by_their_code_and_probes_are_none(void **state)
{
    static const int STATUS[] = {200, 400, 404, 408, 413, 422, 500, 503, 504};
    srv_metrics *m = start();
    srv_outcome e = {.method = "POST", .route = &routes[1], .taken = true};
    (void)state;

    for (size_t i = 0; i < sizeof STATUS / sizeof *STATUS; i++) {
        e.status = STATUS[i];
        e.code = "queue_full";
        srv_metrics_exchange(m, &e);
    }
    expect(m, "attnd_rejected_total{reason=\"queue_full\"}", 4);
    e = (srv_outcome){.method = "GET", .route = &routes[2], .status = 503, .code = "busy"};
    srv_metrics_exchange(m, &e);
    expect(m, "attnd_rejected_total{reason=\"busy\"}", 0);
    expect(m, "attnd_rejected_total{reason=\"other\"}", 0);
    srv_metrics_free(m);
}

static void who_left_is_cancelled_and_without_an_answer_has_no_status(void **state)
{
    srv_metrics *m = start();
    srv_outcome e = {.method = "GET", .route = &routes[0]};
    (void)state;

    srv_metrics_exchange(m, &e); /* before an answer */
    scrape s = read_all(m);
    for (size_t i = 0; i < s.num_samples; i++)
        assert_null(strstr(s.sample[i].series, HTTP_TIME));
    scrape_free(&s);
    expect(m, "attnd_cancelled_total", 1);
    e.status = 200;
    srv_metrics_exchange(m, &e); /* in the middle of it */
    expect(m, "attnd_cancelled_total", 2);
    expect(m, HTTP_TIME "_count" OF_A "}", 1);
    e.taken = true;
    srv_metrics_exchange(m, &e);
    expect(m, "attnd_cancelled_total", 2);
    srv_metrics_free(m);
}

static void only_the_stages_that_were_reached_count(void **state)
{
#define STAGE(what, name) "attnd_stage_duration_seconds_" what "{stage=\"" name "\"}"
    srv_metrics *m = start();
    srv_outcome e = {.method = "POST",
                     .route = &routes[1],
                     .status = 400,
                     .stages = 1u << SRV_STAGE_RECV | 1u << SRV_STAGE_PARSE,
                     .stage_s = {[SRV_STAGE_RECV] = 0.5, [SRV_STAGE_PARSE] = 0.000125}};
    (void)state;

    srv_metrics_exchange(m, &e);
    expect(m, STAGE("count", "recv"), 1);
    expect(m, STAGE("sum", "recv"), 0.5);
    expect(m, STAGE("sum", "parse"), 0.000125);
    expect(m, STAGE("count", "queue"), 0);
    expect(m, STAGE("count", "compute"), 0);
    expect(m, STAGE("count", "serialize"), 0);
    e.route = &routes[0]; /* no body: no stages */
    srv_metrics_exchange(m, &e);
    expect(m, STAGE("count", "recv"), 1);
    srv_metrics_computed(m, 2, 30, 4);
    srv_metrics_computed(m, 1, 5, 1);
    expect(m, "attnd_sequences_total", 3);
    expect(m, "attnd_tokens_total", 35);
    expect(m, "attnd_micro_batches_total", 5);
    srv_metrics_free(m);
}

enum { THREADS = 4, EACH = 2000 };

static void *count_many(void *arg)
{
    static const char *const METHOD[] = {"GET", "HEAD", "PUT", "ODD"};
    srv_metrics *m = arg;

    for (int i = 0; i < EACH; i++) { /* all meet in series that are not there yet */
        const srv_outcome e = {
            .method = METHOD[i % 4], .status = 400 + i % 32, .taken = true, .seconds = 0.001};
        srv_metrics_exchange(m, &e);
        srv_metrics_computed(m, 1, 2, 3);
    }
    return NULL;
}

static void nothing_is_lost_between_threads(void **state)
{
    srv_metrics *m = start();
    pthread_t thread[THREADS];
    double count = 0;
    size_t series = 0;
    (void)state;

    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, count_many, m), 0);
    for (int i = 0; i < 20; i++) { /* well-formed at any moment */
        scrape s = read_all(m);
        scrape_free(&s);
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    scrape s = read_all(m);
    for (size_t i = 0; i < s.num_samples; i++) {
        if (strncmp(s.sample[i].series, HTTP_TIME "_count", strlen(HTTP_TIME "_count")) == 0) {
            series++;
            count += s.sample[i].value;
        }
    }
    assert_int_equal(series, 32);
    assert_true(count == THREADS * EACH);
    scrape_free(&s);
    expect(m, "attnd_tokens_total", 2.0 * THREADS * EACH);
    srv_metrics_free(m);
}

static void the_text_does_not_follow_the_locale(void **state)
{
    const char *was = setlocale(LC_ALL, NULL);
    srv_metrics *m = start();
    (void)state;

    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL && setlocale(LC_ALL, "fr_FR.UTF-8") == NULL)
        printf("skipped: a locale with a decimal comma: none is installed\n");
    const srv_outcome e = {
        .method = "GET", .route = &routes[0], .status = 200, .taken = true, .seconds = 1.5};
    srv_metrics_exchange(m, &e);
    size_t n = 0;
    char *text = print(m, &n);
    assert_non_null(strstr(text, HTTP_TIME "_sum" OF_A "} 1.500000000\n"));
    (void)setlocale(LC_ALL, was);
    free(text);
    srv_metrics_free(m);
}

static void the_process_is_this_one(void **state)
{
    uint64_t bytes = 0, fds = 0, more = 0, cpu = srv_process_cpu_ns();
    int64_t ms = 0;
    struct timespec now;
    (void)state;

    assert_true(srv_process_resident_bytes(&bytes));
    assert_in_range(bytes, 100000, (uint64_t)1 << 40);
    assert_true(srv_process_open_fds(&fds));
    int fd = dup(STDOUT_FILENO);
    assert_true(fd >= 0);
    assert_true(srv_process_open_fds(&more));
    assert_int_equal(more, fds + 1);
    (void)close(fd);
    assert_true(srv_process_started_ms(&ms));
    (void)clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 - ms;
    assert_true(age > -1000 && age < 3600 * 1000); /* the ticks are coarse */
    for (volatile int i = 0; i < 20000000; i++)
        ;
    assert_true(srv_process_cpu_ns() > cpu + 1000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(gauges_are_read_when_they_are_printed),
        cmocka_unit_test(an_answer_falls_into_every_bucket_from_its_time_on),
        cmocka_unit_test(unknown_methods_routes_and_reasons_share_a_label),
        cmocka_unit_test(rejections_are_counted_by_their_code_and_probes_are_none),
        cmocka_unit_test(who_left_is_cancelled_and_without_an_answer_has_no_status),
        cmocka_unit_test(only_the_stages_that_were_reached_count),
        cmocka_unit_test(nothing_is_lost_between_threads),
        cmocka_unit_test(the_text_does_not_follow_the_locale),
        cmocka_unit_test(the_process_is_this_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

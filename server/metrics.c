#include "server/metrics.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/process.h"

/* --- histograms --- */

typedef struct {
    const char *text; /* as it is printed */
    uint64_t ns;
} bound;

/* Those of OpenTelemetry for http.server.request.duration. */
static const bound http_bounds[] = {{"0.005", 5000000},   {"0.01", 10000000},  {"0.025", 25000000},
                                    {"0.05", 50000000},   {"0.075", 75000000}, {"0.1", 100000000},
                                    {"0.25", 250000000},  {"0.5", 500000000},  {"0.75", 750000000},
                                    {"1", 1000000000},    {"2.5", 2500000000}, {"5", 5000000000},
                                    {"7.5", 7500000000u}, {"10", 10000000000}};

/* A stage of a small request takes microseconds. */
static const bound stage_bounds[] = {
    {"0.00001", 10000},   {"0.000025", 25000}, {"0.00005", 50000},  {"0.0001", 100000},
    {"0.00025", 250000},  {"0.0005", 500000},  {"0.001", 1000000},  {"0.0025", 2500000},
    {"0.005", 5000000},   {"0.01", 10000000},  {"0.025", 25000000}, {"0.05", 50000000},
    {"0.1", 100000000},   {"0.25", 250000000}, {"0.5", 500000000},  {"1", 1000000000},
    {"2.5", 2500000000u}, {"10", 10000000000u}};

#define COUNT(list) (sizeof(list) / sizeof *(list))

enum { MAX_BOUNDS = 18 };
_Static_assert(COUNT(http_bounds) <= MAX_BOUNDS && COUNT(stage_bounds) <= MAX_BOUNDS,
               "a histogram has room for its buckets");

typedef struct {
    _Atomic uint64_t bucket[MAX_BOUNDS + 1]; /* each for itself; behind the last bound, the rest */
    _Atomic uint64_t sum_ns;
} histogram;

static void add(_Atomic uint64_t *counter, uint64_t n)
{
    (void)atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void observe(histogram *h, const bound *bounds, size_t n, double seconds)
{
    uint64_t ns = seconds > 0 ? (uint64_t)(seconds * 1e9 + 0.5) : 0;
    size_t i = 0;

    while (i < n && ns > bounds[i].ns)
        i++;
    add(&h->bucket[i], 1);
    add(&h->sum_ns, ns);
}

/* --- what is counted --- */

/* A method that no specification knows must not make a series of its own. */
static const char *const methods[] = {"GET",     "HEAD",    "POST",  "PUT",   "DELETE",
                                      "CONNECT", "OPTIONS", "TRACE", "PATCH", "_OTHER"};

/* `code` of the problems that say: not you, not at all, not now, too late. */
static const char *const reasons[] = {
    "admin_disabled",   "busy",      "canceled",         "cross_site", "deadline",
    "host_not_allowed", "loading",   "model_not_loaded", "queue_full", "request_timeout",
    "stopping",         "too_large", "unauthorized",     "other"};

/* One method and status of a route. Never removed. */
typedef struct series {
    struct series *next; /* written before others see it */
    size_t method;
    int status;
    histogram seconds;
} series;

struct srv_metrics {
    srv_metrics_options o;
    bool started_known;
    int64_t started_ms;
    _Atomic(series *) *answered; /* a list for each route, the last for what has none */
    histogram stage[SRV_STAGES];
    _Atomic uint64_t rejected[COUNT(reasons)];
    _Atomic uint64_t cancelled, broken, sequences, tokens, micro_batches;
};

attn_status srv_metrics_new(srv_metrics **out, const srv_metrics_options *o, attn_error *err)
{
    srv_metrics *m = calloc(1, sizeof *m);

    *out = NULL;
    if (m != NULL)
        m->answered = calloc(o->num_routes + 1, sizeof *m->answered);
    if (m == NULL || m->answered == NULL) {
        free(m);
        return attn_fail(err, ATTN_ENOMEM, "no memory for the metrics");
    }
    m->o = *o;
    m->started_known = srv_process_started_ms(&m->started_ms);
    *out = m;
    return ATTN_OK;
}

void srv_metrics_free(srv_metrics *m)
{
    if (m == NULL)
        return;
    for (size_t i = 0; i <= m->o.num_routes; i++) {
        for (series *s = atomic_load(&m->answered[i]), *next; s != NULL; s = next) {
            next = s->next;
            free(s);
        }
    }
    free(m->answered);
    free(m);
}

/* The place of `text` in a list whose last entry stands for all others. */
static size_t place(const char *const *list, size_t n, const char *text)
{
    size_t i = 0;

    while (i < n - 1 && (text == NULL || strcmp(list[i], text) != 0))
        i++;
    return i;
}

static series *find(series *from, size_t method, int status)
{
    while (from != NULL && (from->method != method || from->status != status))
        from = from->next;
    return from;
}

/* Finds the series, or makes it; NULL: no memory. */
static series *series_of(_Atomic(series *) *list, size_t method, int status)
{
    series *head = atomic_load(list), *found = find(head, method, status);

    if (found != NULL)
        return found;
    series *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    made->method = method;
    made->status = status;
    made->next = head;
    while (!atomic_compare_exchange_weak(list, &made->next, made)) {
        found = find(made->next, method, status);
        if (found != NULL) { /* another thread was faster */
            free(made);
            return found;
        }
    }
    return made;
}

static bool is_rejection(int status)
{
    return status == 401 || status == 403 || status == 408 || status == 413 || status == 503 ||
           status == 504;
}

void srv_metrics_exchange(srv_metrics *m, const srv_outcome *e)
{
    size_t route = e->route != NULL ? (size_t)(e->route - m->o.routes) : m->o.num_routes;

    if (!e->taken)
        add(&m->cancelled, 1);
    if (e->status != 0) {
        series *s =
            series_of(&m->answered[route], place(methods, COUNT(methods), e->method), e->status);
        if (s != NULL)
            observe(&s->seconds, http_bounds, COUNT(http_bounds), e->seconds);
    }
    if (is_rejection(e->status) && (e->route == NULL || !e->route->quiet))
        add(&m->rejected[place(reasons, COUNT(reasons), e->code)], 1);
    if (e->route == NULL || !e->route->body)
        return;
    for (unsigned i = 0; i < SRV_STAGES; i++) {
        if (e->stages & 1u << i)
            observe(&m->stage[i], stage_bounds, COUNT(stage_bounds), e->stage_s[i]);
    }
}

void srv_metrics_broken(srv_metrics *m)
{
    add(&m->broken, 1);
}

void srv_metrics_computed(srv_metrics *m, size_t sequences, size_t tokens, size_t micro_batches)
{
    add(&m->sequences, sequences);
    add(&m->tokens, tokens);
    add(&m->micro_batches, micro_batches);
}

/* --- the text: Prometheus' exposition format, version 0.0.4. Whole numbers only go through the C
 * library, whose decimal point follows the locale. --- */

static void head(FILE *f, const char *name, const char *type, const char *help)
{
    (void)fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void gauge(FILE *f, const char *name, const char *help, uint64_t value)
{
    head(f, name, "gauge", help);
    (void)fprintf(f, "%s %" PRIu64 "\n", name, value);
}

static void counter(FILE *f, const char *name, const char *help, uint64_t value)
{
    head(f, name, "counter", help);
    (void)fprintf(f, "%s %" PRIu64 "\n", name, value);
}

static void put_seconds(FILE *f, uint64_t ns)
{
    (void)fprintf(f, "%" PRIu64 ".%09" PRIu64 "\n", ns / 1000000000u, ns % 1000000000u);
}

static void put_label(FILE *f, const char *name, const char *value)
{
    (void)fprintf(f, "%s=\"", name);
    for (; *value != '\0'; value++) {
        if (*value == '\n')
            (void)fputs("\\n", f);
        else if (*value == '\\' || *value == '"')
            (void)fprintf(f, "\\%c", *value);
        else
            (void)fputc(*value, f);
    }
    (void)fputc('"', f);
}

/* `labels` are as they stand between the braces. */
static void put_histogram(FILE *f, const char *name, const char *labels, const histogram *h,
                          const bound *bounds, size_t n)
{
    uint64_t sum_ns = get(&h->sum_ns), count = 0;

    for (size_t i = 0; i <= n; i++) {
        count += get(&h->bucket[i]);
        (void)fprintf(f, "%s_bucket{%s,le=\"%s\"} %" PRIu64 "\n", name, labels,
                      i < n ? bounds[i].text : "+Inf", count);
    }
    (void)fprintf(f, "%s_sum{%s} ", name, labels);
    put_seconds(f, sum_ns);
    (void)fprintf(f, "%s_count{%s} %" PRIu64 "\n", name, labels, count);
}

static void put_build(FILE *f, const srv_metrics *m)
{
    head(f, "attnd_build_info", "gauge", "Version, libraries and kernels; always 1.");
    (void)fputs("attnd_build_info{", f);
    for (size_t i = 0; i < m->o.num_build; i++) {
        if (i != 0)
            (void)fputc(',', f);
        put_label(f, m->o.build[i].name, m->o.build[i].value);
    }
    (void)fputs("} 1\n", f);
}

static void put_answered(FILE *f, const srv_metrics *m)
{
    static const char name[] = "http_server_request_duration_seconds";
    char labels[512];

    head(f, name, "histogram",
         "Time from a request's first line to the end of its answer. Not those that left before "
         "one.");
    for (size_t i = 0; i <= m->o.num_routes; i++) {
        /* A template holds nothing that would have to be escaped. */
        const char *route = i < m->o.num_routes ? m->o.routes[i].path : SRV_NO_ROUTE;
        for (const series *s = atomic_load(&m->answered[i]); s != NULL; s = s->next) {
            (void)snprintf(labels, sizeof labels,
                           "http_request_method=\"%s\",http_route=\"%s\","
                           "http_response_status_code=\"%d\"",
                           methods[s->method], route, s->status);
            put_histogram(f, name, labels, &s->seconds, http_bounds, COUNT(http_bounds));
        }
    }
}

static void put_stages(FILE *f, const srv_metrics *m)
{
    static const char name[] = "attnd_stage_duration_seconds";
    char labels[64];

    head(f, name, "histogram",
         "Time that requests with a body spent in each stage that they reached.");
    for (size_t i = 0; i < SRV_STAGES; i++) {
        (void)snprintf(labels, sizeof labels, "stage=\"%s\"", srv_stage_names[i]);
        put_histogram(f, name, labels, &m->stage[i], stage_bounds, COUNT(stage_bounds));
    }
}

static void put_work(FILE *f, const srv_metrics *m, const srv_metrics_now *now)
{
    gauge(f, "attnd_requests_waiting", "Requests in the queue.", now->waiting);
    gauge(f, "attnd_requests_running", "Requests that are being computed.", now->running);
    head(f, "attnd_rejected_total", "counter",
         "Requests answered with 401, 403, 408, 413, 503 or 504, by the code of the problem.");
    for (size_t i = 0; i < COUNT(reasons); i++)
        (void)fprintf(f, "attnd_rejected_total{reason=\"%s\"} %" PRIu64 "\n", reasons[i],
                      get(&m->rejected[i]));
    counter(f, "attnd_cancelled_total",
            "Requests whose client left before it had all of the answer.", get(&m->cancelled));
    counter(f, "attnd_broken_answers_total", "Answers that failed after they had begun.",
            get(&m->broken));
    counter(f, "attnd_sequences_total", "Sequences computed.", get(&m->sequences));
    counter(f, "attnd_tokens_total", "Query tokens computed, padding left out.", get(&m->tokens));
    counter(f, "attnd_micro_batches_total", "Micro-batches computed.", get(&m->micro_batches));
    counter(f, "attnd_shared_requests_total",
            "Requests that were computed in one call together with others.", now->shared);
}

static void put_process(FILE *f, const srv_metrics *m)
{
    uint64_t value = 0;

    if (srv_process_resident_bytes(&value))
        gauge(f, "process_resident_memory_bytes", "Resident memory size in bytes.", value);
    head(f, "process_cpu_seconds_total", "counter",
         "Total user and system CPU time spent in seconds.");
    (void)fputs("process_cpu_seconds_total ", f);
    put_seconds(f, srv_process_cpu_ns());
    if (srv_process_open_fds(&value))
        gauge(f, "process_open_fds", "Number of open file descriptors.", value);
    if (m->started_known) {
        head(f, "process_start_time_seconds", "gauge",
             "Start time of the process since unix epoch in seconds.");
        (void)fprintf(f, "process_start_time_seconds %" PRId64 ".%03" PRId64 "\n",
                      m->started_ms / 1000, m->started_ms % 1000);
    }
}

char *srv_metrics_print(const srv_metrics *m, const srv_metrics_now *now, size_t *n)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, n);

    if (f == NULL)
        return NULL;
    put_build(f, m);
    gauge(f, "attnd_ready",
          "1 while all models are loaded and the daemon does not shut down, else 0.",
          now->ready ? 1 : 0);
    gauge(f, "attnd_models_loaded", "Models that are served.", now->models);
    head(f, "attnd_reloads_total", "counter",
         "Models loaded since the start, and loads that failed.");
    (void)fprintf(f, "attnd_reloads_total{result=\"success\"} %" PRIu64 "\n", now->reloads);
    (void)fprintf(f, "attnd_reloads_total{result=\"failure\"} %" PRIu64 "\n", now->failed_reloads);
    gauge(f, "attnd_compute_threads", "Threads that compute.", m->o.compute_threads);
    put_answered(f, m);
    put_stages(f, m);
    put_work(f, m, now);
    gauge(f, "attnd_memory_budget_bytes", "Bytes that all requests together may take.",
          m->o.budget->limit);
    gauge(f, "attnd_memory_used_bytes", "Bytes of the budget that requests have reserved.",
          atomic_load(&m->o.budget->used));
    gauge(
        f, "attnd_weights_bytes",
        "Bytes of the models' weights, beside the budget; old ones until their last request ends.",
        now->weights_bytes);
    counter(f, "attnd_log_lines_lost_total", "Log lines that nobody took: a full pipe or disk.",
            now->lost_log_lines);
    put_process(f, m);
    bool failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

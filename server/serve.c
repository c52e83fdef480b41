#include "server/serve.h"

#include <errno.h>
#include <inttypes.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/cpu.h"
#include "core/gemm.h"
#include "core/kern.h"
#include "server/app.h"
#include "server/blas_start.h"
#include "server/demo.h"
#include "server/log.h"
#include "server/serve.h"

/* Everything between configuration and listening. */
typedef struct {
    srv_app app;
    attn_pool *pool;
    attn_limits limits;
    attn_blas_info blas;
    size_t weights_bytes;
    srv_metrics_label build[6];
    srv_route_table table;
    srv_access *access;
} loaded;

static void unload(loaded *l)
{
    attn_pool_free(l->pool);
    for (size_t i = 0; i < l->app.num_models; i++) {
        attn_model_free(l->app.models[i].model);
        srv_examples_free(l->app.models[i].examples);
        free(l->app.models[i].stats);
    }
    free(l->app.models);
    srv_access_free(l->access);
}

static attn_status load_demo(srv_served *served, attn_error *err)
{
    attn_layer **layers = NULL;
    size_t n = 0;

    ATTN_TRY(srv_demo_layers(&layers, &n, err));
    ATTN_TRY(attn_model_take_layers(&served->model, "demo", "attnd", layers, n, err));
    return srv_examples_demo(&served->examples, err);
}

static attn_status load_models(loaded *l, const cfg_config *c, attn_error *err)
{
    size_t n = c->num_models == 0 ? 1 : c->num_models;

    l->app.models = calloc(n, sizeof *l->app.models);
    if (l->app.models == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %zu models", n);
    l->app.num_models = n;
    if (c->num_models == 0)
        ATTN_TRY(load_demo(&l->app.models[0], err));
    for (size_t i = 0; i < c->num_models; i++) {
        const cfg_model *m = &c->models[i];
        attn_model_options o = {m->name, m->path, m->layout, m->all_layers ? NULL : m->layers,
                                m->num_layers};
        ATTN_TRY(attn_model_load(&l->app.models[i].model, &o, err));
        ATTN_TRY(srv_examples_load(&l->app.models[i].examples, m->path, err));
    }
    for (size_t i = 0; i < n; i++) {
        l->app.models[i].stats = calloc(1, sizeof(srv_model_stats));
        if (l->app.models[i].stats == NULL)
            return attn_fail(err, ATTN_ENOMEM, "no memory for %zu models", n);
        l->weights_bytes += attn_model_weights_bytes(l->app.models[i].model);
    }
    return ATTN_OK;
}

static attn_status load(loaded *l, const cfg_config *c, attn_error *err)
{
    const srv_access_options access = {.keys_file = c->auth.keys_file,
                                       .certificate_file = c->tls.certificate_file,
                                       .key_file = c->tls.key_file};

    ATTN_TRY(srv_access_new(&l->access, &access, err));
    attn_limits_read(&l->limits, "");
    l->app.workers = c->threads > 0 ? (size_t)c->threads : l->limits.threads;
    l->app.request_timeout_ms = c->server.request_timeout_ms;
    uint64_t budget = c->budget_bytes > 0 ? c->budget_bytes : l->limits.memory / 2;
    attn_budget_init(&l->app.budget, budget > SIZE_MAX ? SIZE_MAX : (size_t)budget);

    ATTN_TRY(attn_kern_init(getenv("ATTND_ISA"), err));
    ATTN_TRY(attn_blas_prepare(l->app.workers, err));
    attn_blas_get_info(&l->blas);
    ATTN_TRY(attn_blas_self_test(err));
    return load_models(l, c, err);
}

/* What a container should be allowed: weights, what requests may take, and what no budget counts: the process
 * itself (40 MiB at the most, measured under a mixture of requests), and the library's memory for a connection
 * that is sending, of which half is in use at a time. */
static uint64_t memory_to_give(const loaded *l, const cfg_config *c)
{
    enum { PROCESS_BYTES = 48 << 20, SENDING_BYTES = 64 << 10 };
    return (uint64_t)l->weights_bytes + l->app.budget.limit + PROCESS_BYTES +
           (uint64_t)c->server.max_connections * SENDING_BYTES;
}

static void log_start(const loaded *l, const cfg_config *c)
{
    const char *was = srv_blas_repaired_from();

    if (memory_to_give(l, c) > l->limits.memory)
        srv_log(SRV_LOG_WARN, "memory",
                "weights, budget and connections may take more memory than there is: set a smaller "
                "memory.budget",
                (srv_log_field[]){SRV_INT("may_take_bytes", memory_to_give(l, c)),
                                  SRV_INT("limit_bytes", l->limits.memory),
                                  SRV_INT("memory_budget_bytes", l->app.budget.limit),
                                  SRV_INT("weights_bytes", l->weights_bytes)},
                4);

    for (size_t i = 0; i < cfg_warning_count(c); i++)
        srv_log(SRV_LOG_WARN, "config", cfg_warning(c, i), NULL, 0);
    if (was != NULL)
        srv_log(SRV_LOG_WARN, "blas_core",
                "OpenBLAS did not know this processor; better kernels were chosen for it",
                (srv_log_field[]){SRV_STR("found", was), SRV_STR("chosen", l->blas.core)}, 2);
    else if (attn_blas_better_core(attn_cpu_flags(), l->blas.core) != NULL)
        srv_log(SRV_LOG_WARN, "blas_core",
                "OpenBLAS runs on kernels below what this processor can do",
                (srv_log_field[]){SRV_STR("core", l->blas.core)}, 1);
    for (size_t i = 0; i < l->app.num_models; i++) {
        const attn_model *m = l->app.models[i].model;
        srv_log(SRV_LOG_INFO, "model", "model loaded",
                (srv_log_field[]){SRV_STR("model", attn_model_name(m)),
                                  SRV_STR("family", attn_model_family(m)),
                                  SRV_INT("layers", attn_model_layer_count(m)),
                                  SRV_INT("weights_bytes", attn_model_weights_bytes(m))},
                4);
        for (size_t w = 0; w < attn_model_warning_count(m); w++)
            srv_log(SRV_LOG_WARN, "model", attn_model_warning(m, w),
                    (srv_log_field[]){SRV_STR("model", attn_model_name(m))}, 1);
    }
}

static void log_ready(const loaded *l, const cfg_config *c, const srv_http *http)
{
    const char *url;

    for (size_t i = 1; (url = srv_http_url(http, i)) != NULL; i++)
        srv_log(SRV_LOG_INFO, "listen", "listening here, too",
                (srv_log_field[]){SRV_STR("url", url)}, 1);
    srv_log(SRV_LOG_INFO, "ready", "serving",
            (srv_log_field[]){SRV_STR("url", srv_http_url(http, 0)),
                              SRV_STR("version", ATTND_VERSION), SRV_INT("threads", l->app.workers),
                              SRV_STR("pinned", c->pin ? "yes" : "no"),
                              SRV_STR("kernels", attn_kernels.isa), SRV_STR("blas", l->blas.config),
                              SRV_STR("blas_core", l->blas.core),
                              SRV_STR("libmicrohttpd", srv_http_library_version()),
                              SRV_STR("jansson", attn_json_library_version()),
                              SRV_INT("memory_budget_bytes", l->app.budget.limit),
                              SRV_INT("weights_bytes", l->weights_bytes)},
            11);
}

static void observe(void *app, const srv_outcome *outcome)
{
    srv_metrics_exchange(((srv_app *)app)->metrics, outcome);
}

static attn_status start_metrics(loaded *l, const srv_http_options *http, attn_error *err)
{
    const srv_metrics_label build[] = {{"version", ATTND_VERSION},
                                       {"kernels", attn_kernels.isa},
                                       {"blas", l->blas.config},
                                       {"blas_core", l->blas.core},
                                       {"libmicrohttpd", srv_http_library_version()},
                                       {"jansson", attn_json_library_version()}};
    _Static_assert(sizeof build == sizeof l->build, "every label has its place");
    const srv_metrics_options o = {.routes = http->routes,
                                   .num_routes = http->num_routes,
                                   .budget = &l->app.budget,
                                   .models = l->app.num_models,
                                   .weights_bytes = l->weights_bytes,
                                   .compute_threads = l->app.workers,
                                   .build = l->build,
                                   .num_build = sizeof build / sizeof *build};

    memcpy(l->build, build, sizeof build);
    return srv_metrics_new(&l->app.metrics, &o, err);
}

static int complain(const attn_error *err)
{
    (void)fprintf(stderr, "attnd: %s\n", err->text);
    return 1;
}

/* A handler can only reach what is global. It and not sigwait(), because OpenBLAS has started threads before
 * main() could block anything, and a signal may go to one of them. */
static sem_t told_to_stop;
static atomic_int signals_seen, first_signal;

static void on_signal(int sig)
{
    int none = 0;

    if (atomic_fetch_add(&signals_seen, 1) > 0)
        _exit(128 + sig); /* the second one */
    (void)atomic_compare_exchange_strong(&first_signal, &none, sig);
    (void)sem_post(&told_to_stop);
}

static attn_status handle_signals(attn_error *err)
{
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    (void)sigemptyset(&act.sa_mask);
    if (sem_init(&told_to_stop, 0, 0) != 0 || sigaction(SIGTERM, &act, NULL) != 0 ||
        sigaction(SIGINT, &act, NULL) != 0)
        return attn_fail(err, ATTN_EIO, "cannot handle signals");
    return ATTN_OK;
}

/* --- memory that is not in use ------------------------------------------------------------------ */

/* The largest blocks come from the system and go back to it as soon as they are free. What is smaller stays
 * with malloc for the next request; in few arenas, so that one does not keep what another lacks. */
static void tame_malloc(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 4 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 8 << 20);
    (void)mallopt(M_ARENA_MAX, 2);
#endif
}

/* Called once a second: gives back what malloc kept, once nothing was reserved for a second. */
static void trim_when_idle(attn_budget *budget, bool *kept)
{
    bool busy = atomic_exchange(&budget->peak, 0) > 0 || atomic_load(&budget->used) > 0;

#ifdef __GLIBC__
    if (*kept && !busy)
        (void)malloc_trim(0);
#endif
    *kept = busy;
}

/* Waits for the first signal, then drains: no new connection, what runs may finish. */
static void wait_and_drain(loaded *l, const cfg_config *c, srv_http *http)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL); /* this thread is one that takes them */
    struct timespec until;
    bool kept = false;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    for (until.tv_sec++; sem_timedwait(&told_to_stop, &until) != 0;) {
        if (errno != ETIMEDOUT)
            continue; /* interrupted */
        trim_when_idle(&l->app.budget, &kept);
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
    }
    srv_log(SRV_LOG_INFO, "stopping",
            atomic_load(&first_signal) == SIGTERM ? "SIGTERM: finishing what runs"
                                                  : "SIGINT: finishing what runs",
            (srv_log_field[]){SRV_INT("active", srv_http_active(http))}, 1);
    srv_http_quiesce(http);
    if (srv_http_wait(http, c->server.shutdown_timeout_ms) != 0)
        srv_infer_cancel(l->app.infer);
    size_t cut = srv_http_stop(http, 1000);
    srv_log(SRV_LOG_INFO, "stopped", "stopped", (srv_log_field[]){SRV_INT("cut", cut)}, 1);
}

int srv_serve(const cfg_config *c)
{
    attn_error err = {0};
    loaded l = {0};
    srv_http *http = NULL;
    int code = 1;
    bool json = c->log.format == CFG_LOG_JSON || (c->log.format == CFG_LOG_AUTO && !isatty(2));

    tame_malloc();
    srv_log_init((srv_log_level)c->log.level, json);
    if (handle_signals(&err) != ATTN_OK || load(&l, c, &err) != ATTN_OK)
        goto done;
    log_start(&l, c);
    if (attn_pool_new(&l.pool, l.app.workers, c->pin, &err) != ATTN_OK ||
        srv_infer_start(&l.app.infer, l.pool, (size_t)c->queue_max_requests, &err) != ATTN_OK)
        goto done;
    srv_routes(&l.table, (srv_parts){.metrics = c->metrics,
                                     .docs = c->docs,
                                     .ui = c->ui,
                                     .open_metrics = !c->auth.protect_metrics});
    srv_http_options o = {
        .listen = (const char *const *)c->server.listen.item,
        .num_listen = c->server.listen.n,
        .io_threads = (unsigned)c->server.io_threads,
        .max_connections = (unsigned)c->server.max_connections,
        .max_body_bytes = c->server.max_body_bytes,
        .header_timeout_ms = c->server.header_timeout_ms,
        .request_timeout_ms = c->server.request_timeout_ms,
        .base_path = c->server.base_path,
        .hosts = (const char *const *)c->server.allowed_hosts.item,
        .num_hosts = c->server.allowed_hosts.n,
        .origins = (const char *const *)c->cors.allow_origins.item,
        .num_origins = c->cors.allow_origins.n,
        .routes = l.table.routes,
        .num_routes = l.table.n,
        .access = l.access,
        .app = &l.app,
        .observe = observe,
        .retry_after_s = srv_app_retry_after_s,
    };
    if (start_metrics(&l, &o, &err) != ATTN_OK || srv_http_start(&http, &o, &err) != ATTN_OK)
        goto done;
    log_ready(&l, c, http);
    (void)printf("attnd ready on %s\n",
                 srv_http_url(http, 0)); /* this line is promised, and one only */
    (void)fflush(stdout);
    wait_and_drain(&l, c, http);
    code = 0;
done:
    srv_http_free(http);
    srv_infer_free(l.app.infer);
    srv_metrics_free(l.app.metrics);
    unload(&l);
    return code == 0 ? 0 : complain(&err);
}

/* --- check ------------------------------------------------------------------------------------- */

static void print_model(const attn_model *m)
{
    (void)printf("model %s: %s, %zu layers, %.1f MiB of weights (%s)\n", attn_model_name(m),
                 attn_model_family(m), attn_model_layer_count(m),
                 (double)attn_model_weights_bytes(m) / 1048576.0, attn_model_path(m));
    for (size_t i = 0; i < attn_model_layer_count(m); i++) {
        const attn_layer_spec *s = attn_layer_get_spec(attn_model_layer(m, i));
        (void)printf(
            "  layer %zu: d_model %zu, %zu heads of %zu, %zu key heads, %s%s, position %s (%s)\n",
            i, s->d_model, s->num_heads, s->head_dim, s->num_kv_heads,
            s->is_causal ? "causal" : "not causal", s->cross ? ", cross" : "",
            attn_model_layer_position(m, i), attn_model_layer_source(m, i));
    }
    for (size_t i = 0; i < attn_model_warning_count(m); i++)
        (void)printf("  warning: %s\n", attn_model_warning(m, i));
}

int srv_check_config(const cfg_config *c)
{
    attn_error err = {0};
    loaded l = {0};
    attn_status rc = load(&l, c, &err);

    if (rc == ATTN_OK) {
        for (size_t i = 0; i < l.app.num_models; i++)
            print_model(l.app.models[i].model);
        char *listen = cfg_list_text(&c->server.listen);
        (void)printf("listen: %s, bodies up to %" PRIu64 " bytes, %" PRId64 " connections, %" PRId64
                     " requests in the queue\n",
                     listen != NULL ? listen : "?", c->server.max_body_bytes,
                     c->server.max_connections, c->queue_max_requests);
        free(listen);
        (void)printf("threads: %zu (%zu CPUs by affinity, cgroup quota %s), %s\n", l.app.workers,
                     l.limits.affinity, l.limits.quota > 0.0 ? "set" : "none",
                     c->pin ? "pinned" : "not pinned");
        (void)printf("kernels: %s, OpenBLAS %s (%s)\n", attn_kernels.isa, l.blas.core,
                     l.blas.config);
        (void)printf(
            "memory: %.1f MiB for requests (memory.budget), %.1f MiB of weights, %.1f MiB on "
            "this machine\n",
            (double)l.app.budget.limit / 1048576.0, (double)l.weights_bytes / 1048576.0,
            (double)l.limits.memory / 1048576.0);
        (void)printf(
            "memory limit to give: %" PRIu64 " MiB (weights, budget, process and connections)%s\n",
            (memory_to_give(&l, c) >> 20) + 1,
            memory_to_give(&l, c) > l.limits.memory ? "; there is less: set a smaller memory.budget"
                                                    : "");
        for (size_t i = 0; i < cfg_warning_count(c); i++)
            (void)printf("warning: %s\n", cfg_warning(c, i));
    }
    unload(&l);
    return rc == ATTN_OK ? 0 : complain(&err);
}

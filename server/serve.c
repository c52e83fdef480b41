#include "server/serve.h"

#include <inttypes.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
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
#include "server/access.h"
#include "server/app.h"
#include "server/blas_start.h"
#include "server/clock.h"
#include "server/log.h"
#include "server/notify.h"
#include "server/sandbox.h"
#include "server/signals.h"

/* Everything between configuration and listening. */
typedef struct {
    srv_app app;
    attn_pool *pool;
    attn_limits limits;
    attn_blas_info blas;
    srv_metrics_label build[6];
    srv_route_table table;
    srv_access *access;
    bool sandboxed;
    atomic_bool refused; /* keys or certificate, at the last reload */
} loaded;

static void unload(loaded *l)
{
    attn_pool_free(l->pool);
    srv_models_free(l->app.models);
    srv_access_free(l->access);
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
    return srv_models_new(&l->app.models, c->models, c->num_models, &srv_signals_end, err);
}

static size_t weights_bytes(const loaded *l)
{
    return srv_models_get_figures(l->app.models).weights_bytes;
}

/* What a container should be allowed: weights, what requests may take, and what no budget counts: the process
 * itself (40 MiB at the most, measured under a mixture of requests), and the library's memory for a connection
 * that is sending, of which half is in use at a time. */
static uint64_t memory_to_give(const loaded *l, const cfg_config *c)
{
    enum { PROCESS_BYTES = 48 << 20, SENDING_BYTES = 64 << 10 };
    return weights_bytes(l) + l->app.budget.limit + PROCESS_BYTES +
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
                                  SRV_INT("weights_bytes", weights_bytes(l))},
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
}

static void log_ready(const loaded *l, const cfg_config *c, const srv_http *http)
{
    const char *url;

    for (size_t i = 1; (url = srv_http_url(http, i)) != NULL; i++)
        srv_log(SRV_LOG_INFO, "listen", "listening here, too",
                (srv_log_field[]){SRV_STR("url", url)}, 1);
    srv_log(SRV_LOG_INFO, "ready", "serving",
            (srv_log_field[]){
                SRV_STR("url", srv_http_url(http, 0)), SRV_STR("version", ATTND_VERSION),
                SRV_INT("threads", l->app.workers), SRV_STR("pinned", c->pin ? "yes" : "no"),
                SRV_STR("kernels", attn_kernels.isa),
                SRV_STR("sandboxed", l->sandboxed ? "yes" : "no"), SRV_STR("blas", l->blas.config),
                SRV_STR("blas_core", l->blas.core),
                SRV_STR("libmicrohttpd", srv_http_library_version()),
                SRV_STR("jansson", attn_json_library_version()),
                SRV_INT("memory_budget_bytes", l->app.budget.limit),
                SRV_INT("weights_bytes", srv_models_get_figures(l->app.models).weights_bytes)},
            12);
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

/* --- reload -------------------------------------------------------------------------------------- */

/* On the thread of the models. */
static void reloaded(void *arg, attn_status rc, const attn_error *err)
{
    const loaded *l = arg;
    char status[sizeof err->text + 64];
    bool all = rc == ATTN_OK && !atomic_load(&l->refused);

    (void)snprintf(status, sizeof status, "serving%s%s", all ? "" : "; not reloaded: ",
                   all             ? ""
                   : rc != ATTN_OK ? err->text
                                   : "keys or certificate, the log says why");
    srv_log(all ? SRV_LOG_INFO : SRV_LOG_ERROR, "reload",
            all ? "reloaded" : "not everything was reloaded", NULL, 0);
    srv_notify("READY=1", status);
}

static void reload(loaded *l)
{
    srv_log(SRV_LOG_INFO, "reload", "SIGHUP: reloading", NULL, 0);
    srv_notify_reloading();
    atomic_store(&l->refused, srv_access_reload(l->access, NULL) != ATTN_OK);
    if (!srv_models_reload(l->app.models, reloaded, l))
        srv_log(SRV_LOG_INFO, "reload", "another load is under way, the reload follows it", NULL,
                0);
}

/* --- from ready to the end ------------------------------------------------------------------------ */

/* A manager that watches us hears nothing while the compute thread hangs. */
static void tell_alive(const loaded *l, int64_t watchdog_ms)
{
    if (srv_infer_stuck_s(l->app.infer) * 1000 < (double)watchdog_ms)
        srv_notify("WATCHDOG=1", NULL);
}

static void serve_until_told(loaded *l)
{
    enum { SECOND_MS = 1000 };
    int64_t watchdog_ms = srv_notify_watchdog_ms(), now = srv_now_ms();
    int64_t trim_at = now + SECOND_MS, tell_at = watchdog_ms > 0 ? now : INT64_MAX;
    bool kept = false;

    for (;;) {
        int64_t next = trim_at < tell_at ? trim_at : tell_at;
        unsigned told = srv_signals_wait(next > now ? next - now : 0);
        if (told & SRV_TOLD_END)
            return;
        if (told & SRV_TOLD_RELOAD)
            reload(l);
        now = srv_now_ms();
        if (now >= trim_at) {
            trim_when_idle(&l->app.budget, &kept);
            trim_at = now + SECOND_MS;
        }
        if (now >= tell_at) {
            tell_alive(l, watchdog_ms);
            tell_at = now + watchdog_ms;
        }
    }
}

/* Not ready at once, so that nobody is sent here any more; who comes nevertheless is served for the delay. Then no new
 * connection; what runs may finish. A second signal ends all this. */
static void drain(loaded *l, const cfg_config *c, srv_http *http)
{
    int64_t delay_ms = c->server.shutdown_delay_ms;
    struct timespec delay = {.tv_sec = delay_ms / 1000, .tv_nsec = delay_ms % 1000 * 1000000};

    srv_http_drain(http);
    srv_notify("STOPPING=1", "finishing what runs");
    srv_log(SRV_LOG_INFO, "stopping",
            srv_signals_first() == SIGTERM ? "SIGTERM: finishing what runs"
                                           : "SIGINT: finishing what runs",
            (srv_log_field[]){SRV_INT("active", srv_http_active(http))}, 1);
    while (nanosleep(&delay, &delay) != 0) /* interrupted, by SIGHUP */
        ;
    srv_http_quiesce(http);
    if (srv_http_wait(http, c->server.shutdown_timeout_ms) != 0)
        srv_infer_cancel(l->app.infer);
    size_t cut = srv_http_stop(http, 1000);
    srv_log(SRV_LOG_INFO, "stopped", "stopped", (srv_log_field[]){SRV_INT("cut", cut)}, 1);
}

/* All threads are made in here, with the signals blocked: this thread alone takes them. */
static attn_status start(loaded *l, const cfg_config *c, srv_http **http, attn_error *err)
{
    int passed = 0;
    size_t num_passed = srv_notify_sockets(&passed);

    ATTN_TRY(attn_pool_new(&l->pool, l->app.workers, c->pin, err));
    ATTN_TRY(srv_infer_start(&l->app.infer, l->pool, (size_t)c->queue_max_requests, err));
    ATTN_TRY(srv_models_start(l->app.models, err));
    l->app.admin = c->admin;
    srv_routes(&l->table, (srv_parts){.metrics = c->metrics,
                                      .docs = c->docs,
                                      .ui = c->ui,
                                      .open_metrics = !c->auth.protect_metrics});
    const srv_http_options o = {
        .passed = passed,
        .num_passed = num_passed,
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
        .routes = l->table.routes,
        .num_routes = l->table.n,
        .access = l->access,
        .app = &l->app,
        .observe = observe,
        .retry_after_s = srv_app_retry_after_s,
    };
    ATTN_TRY(start_metrics(l, &o, err));
    return srv_http_start(http, &o, err);
}

static bool enter_sandbox(const cfg_config *c)
{
    enum { FIXED = 3 };
    const cfg_list *listen = &c->server.listen;
    const char **names = calloc(FIXED + c->num_models + listen->n, sizeof *names);

    if (names == NULL)
        return false;
    const char **sockets = names + FIXED + c->num_models;
    names[0] = c->auth.keys_file;
    names[1] = c->tls.certificate_file;
    names[2] = c->tls.key_file;
    for (size_t i = 0; i < c->num_models; i++)
        names[FIXED + i] = c->models[i].path;
    for (size_t i = 0; i < listen->n; i++)
        sockets[i] = strncmp(listen->item[i], "unix:", 5) == 0 ? listen->item[i] + 5 : NULL;
    bool entered = srv_sandbox_enter(&(srv_sandbox_options){.files = names,
                                                            .num_files = FIXED + c->num_models,
                                                            .sockets = sockets,
                                                            .num_sockets = listen->n});
    free(names);
    return entered;
}

static void say_ready(const loaded *l, const cfg_config *c, const srv_http *http)
{
    char status[512];

    log_ready(l, c, http);
    (void)printf("attnd ready on %s\n",
                 srv_http_url(http, 0)); /* this line is promised, and one only */
    (void)fflush(stdout);
    (void)snprintf(status, sizeof status, "serving on %s", srv_http_url(http, 0));
    srv_notify("READY=1", status);
}

int srv_serve(const cfg_config *c)
{
    attn_error err = {0};
    loaded l = {0};
    srv_http *http = NULL;
    bool json = c->log.format == CFG_LOG_JSON || (c->log.format == CFG_LOG_AUTO && !isatty(2));

    tame_malloc();
    srv_log_init((srv_log_level)c->log.level, json);
    attn_status rc = srv_signals_handle(&err);
    if (rc == ATTN_OK) {
        srv_notify(NULL, "loading models");
        rc = load(&l, c, &err);
    }
    if (rc == ATTN_OK) {
        log_start(&l, c);
        l.sandboxed = c->sandbox && enter_sandbox(c);
        srv_signals_block();
        rc = start(&l, c, &http, &err);
        srv_signals_unblock();
    }
    if (rc == ATTN_OK) {
        say_ready(&l, c, http);
        serve_until_told(&l);
        drain(&l, c, http);
    }
    srv_http_free(http);
    srv_infer_free(l.app.infer);
    srv_metrics_free(l.app.metrics);
    unload(&l);
    if (rc == ATTN_ECANCELED) /* told to end while it was loading */
        srv_log(SRV_LOG_INFO, "stopped", "stopped before it was ready", NULL, 0);
    return rc == ATTN_OK || rc == ATTN_ECANCELED ? 0 : complain(&err);
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
        for (size_t i = 0; i < srv_models_count(l.app.models); i++) {
            const srv_served *served = srv_models_acquire(l.app.models, i);
            print_model(served->model);
            srv_models_release(l.app.models, served);
        }
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
            (double)l.app.budget.limit / 1048576.0,
            (double)srv_models_get_figures(l.app.models).weights_bytes / 1048576.0,
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

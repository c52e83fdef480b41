#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/decimal.h"
#include "core/nearest.h"
#include "server/app.h"
#include "server/assets.h"
#include "server/call.h"
#include "server/encode.h"
#include "server/log.h"
#include "server/oip.h"

/* --- small answers ----------------------------------------------------------------------------- */

void srv_app_reply_json(srv_exchange *x, srv_json_writer *w)
{
    char *text = NULL;
    size_t used = 0, room = 0;

    if (w == NULL || srv_json_writer_status(w) != ATTN_OK)
        goto no_memory;
    for (;;) {
        if (room - used < 4096) {
            char *more = realloc(text, room + (room >> 1) + 8192);
            if (more == NULL)
                goto no_memory;
            text = more;
            room += (room >> 1) + 8192;
        }
        size_t n = srv_json_writer_read(w, text + used, room - used);
        if (n == 0)
            break;
        used += n;
    }
    srv_http_reply_text(x, 200, "application/json", text, used);
    free(text);
    srv_json_writer_free(w);
    return;
no_memory:
    free(text);
    srv_json_writer_free(w);
    attn_error err = {0};
    (void)attn_fail(&err, ATTN_ENOMEM, "no memory for the answer");
    srv_http_reply_problem(x, &err, NULL);
}

/* --- models ------------------------------------------------------------------------------------- */

attn_status srv_app_find_named(const srv_app *app, const char *name, size_t *i, attn_error *err)
{
    size_t n = srv_models_count(app->models);

    *i = srv_models_find(app->models, name);
    if (*i != SIZE_MAX)
        return ATTN_OK;
    const char **names = calloc(n, sizeof *names);
    const char *near = NULL;
    for (size_t k = 0; k < n && names != NULL; k++)
        names[k] = srv_models_name(app->models, k);
    if (names != NULL)
        near = attn_nearest(name, names, n);
    free(names);
    return attn_fail(err, ATTN_ENOTFOUND, "there is no model \"%.64s\"%s%s%s", name,
                     near != NULL ? "; did you mean \"" : "; GET /v1/models lists them",
                     near != NULL ? near : "", near != NULL ? "\"?" : "");
}

bool srv_app_find(srv_exchange *x, size_t *i)
{
    attn_error err = {0};

    if (srv_app_find_named(srv_http_app(x), srv_http_param(x, "model"), i, &err) == ATTN_OK)
        return true;
    srv_http_reply_problem(x, &err, "model_not_found");
    return false;
}

void srv_app_reply_models(srv_exchange *x, const char *member,
                          void (*write)(srv_json_writer *w, const srv_served *served))
{
    const srv_app *app = srv_http_app(x);
    srv_json_writer *w = srv_json_writer_new();
    size_t n = 0;

    if (w != NULL)
        srv_json_writer_format(w, "{\"%s\":[", member);
    for (size_t i = 0; w != NULL && i < srv_models_count(app->models); i++) {
        const srv_served *served = srv_models_acquire(app->models, i);
        if (served == NULL)
            continue;
        if (n++ > 0)
            srv_json_writer_raw(w, ",", 1);
        write(w, served);
        srv_models_release(app->models, served);
    }
    if (w != NULL)
        srv_json_writer_raw(w, "]}", 2);
    srv_app_reply_json(x, w);
}

/* Says why requests for a model cannot be answered now; returns the code. */
static const char *say_not_loaded(srv_models *m, size_t i, attn_error *err)
{
    bool loading = srv_models_state(m, i, NULL) == SRV_MODEL_LOADING;

    (void)attn_fail(err, ATTN_EBUSY, "model \"%s\" is %s", srv_models_name(m, i),
                    loading ? "being loaded" : "not loaded");
    return loading ? "loading" : "model_not_loaded";
}

const srv_served *srv_app_acquire(srv_exchange *x)
{
    const srv_app *app = srv_http_app(x);
    attn_error err = {0};
    size_t i = 0;

    if (!srv_app_find(x, &i))
        return NULL;
    const srv_served *served = srv_models_acquire(app->models, i);
    if (served == NULL) {
        const char *code = say_not_loaded(app->models, i, &err);
        srv_http_reply_problem(x, &err, code);
    }
    return served;
}

void srv_app_release(srv_exchange *x, const srv_served *served)
{
    srv_models_release(((srv_app *)srv_http_app(x))->models, served);
}

const char *srv_app_not_ready(srv_exchange *x, attn_error *err)
{
    const srv_app *app = srv_http_app(x);

    if (srv_http_draining(x)) {
        (void)attn_fail(err, ATTN_EBUSY, "the daemon is shutting down");
        return "draining";
    }
    for (size_t i = 0; i < srv_models_count(app->models); i++) {
        if (srv_models_state(app->models, i, NULL) != SRV_MODEL_READY)
            return say_not_loaded(app->models, i, err);
    }
    return NULL;
}

static void write_float(srv_json_writer *w, float value)
{
    char text[ATTN_F32_CHARS];
    srv_json_writer_raw(w, text, attn_f32_print(text, value));
}

static void write_layer(srv_json_writer *w, const attn_model *m, size_t i)
{
    const attn_layer_spec *s = attn_layer_get_spec(attn_model_layer(m, i));

    srv_json_writer_format(w, "{\"layer\":%zu,\"source\":", i);
    srv_json_writer_string(w, attn_model_layer_source(m, i));
    srv_json_writer_format(
        w,
        ",\"d_model\":%zu,\"num_heads\":%zu,\"num_kv_heads\":%zu,\"head_dim\":%zu,"
        "\"v_head_dim\":%zu,\"d_out\":%zu,\"scale\":",
        s->d_model, s->num_heads, s->num_kv_heads, s->head_dim, s->v_head_dim, s->d_out);
    write_float(w, s->scale);
    srv_json_writer_format(
        w, ",\"is_causal\":%s,\"window\":{\"left\":%lld,\"right\":%lld},\"softcap\":",
        s->is_causal ? "true" : "false", (long long)s->window.left, (long long)s->window.right);
    write_float(w, s->softcap);
    bool cross = s->cross || s->d_kv != s->d_model;
    srv_json_writer_format(w, ",\"position\":\"%s\",\"cross\":%s,\"d_kv\":%zu}",
                           attn_model_layer_position(m, i), cross ? "true" : "false", s->d_kv);
}

/* Of those around one text, `one` of them, and those around a pair. */
static uint32_t special_at(const attn_tokenizer *t, size_t one, size_t i)
{
    return attn_tokenizer_special(t, i >= one, i >= one ? i - one : i);
}

/* What is put around texts and pairs, each once. */
static void write_special_tokens(srv_json_writer *w, const attn_tokenizer *t)
{
    size_t one = t != NULL ? attn_tokenizer_specials(t, false) : 0;
    size_t n = t != NULL ? one + attn_tokenizer_specials(t, true) : 0;

    srv_json_writer_raw(w, "[", 1);
    for (size_t i = 0, written = 0; i < n; i++) {
        uint32_t id = special_at(t, one, i);
        size_t k = 0;
        while (k < i && special_at(t, one, k) != id)
            k++;
        const char *token = attn_tokenizer_token(t, id);
        if (k < i || token == NULL)
            continue;
        if (written++ > 0)
            srv_json_writer_raw(w, ",", 1);
        srv_json_writer_string(w, token);
    }
    srv_json_writer_raw(w, "]", 1);
}

/* What a whole encoder takes and gives. */
static void write_encoder(srv_json_writer *w, const srv_served *served)
{
    static const char *const poolings[] = {"none", "mean", "cls", "max", "mean_sqrt_len"};
    const attn_encoder *e = attn_model_encoder(served->model, NULL);
    const attn_tokenizer *t = served->tokenizer;

    if (e == NULL)
        return;
    const attn_encoder_info *info = attn_encoder_get_info(e);
    srv_json_writer_format(
        w, ",\"encoder\":{\"tokenizer\":%s%s%s,\"special_tokens\":", t != NULL ? "\"" : "",
        t != NULL ? attn_tokenizer_kind(t) : "null", t != NULL ? "\"" : "");
    write_special_tokens(w, t);
    srv_json_writer_format(w,
                           ",\"max_tokens\":%zu,\"d_model\":%zu,\"num_layers\":%zu,"
                           "\"pooling\":\"%s\",\"normalize\":%s}",
                           srv_encode_text_tokens(info, t), info->d_model, info->num_layers,
                           poolings[info->pooling], info->normalize ? "true" : "false");
}

static void write_model(srv_json_writer *w, const srv_served *served)
{
    const attn_model *m = served->model;

    srv_json_writer_raw(w, "{\"name\":", 8);
    srv_json_writer_string(w, attn_model_name(m));
    srv_json_writer_raw(w, ",\"family\":", 10);
    srv_json_writer_string(w, attn_model_family(m));
    srv_json_writer_format(w, ",\"weights_bytes\":%zu,\"layers\":[", attn_model_weights_bytes(m));
    for (size_t i = 0; i < attn_model_layer_count(m); i++) {
        if (i != 0)
            srv_json_writer_raw(w, ",", 1);
        write_layer(w, m, i);
    }
    srv_json_writer_raw(w, "]", 1);
    write_encoder(w, served);
    srv_json_writer_raw(w, "}", 1);
}

static void get_models(srv_exchange *x)
{
    srv_app_reply_models(x, "models", write_model);
}

static void get_model(srv_exchange *x)
{
    const srv_served *served = srv_app_acquire(x);

    if (served == NULL)
        return;
    srv_json_writer *w = srv_json_writer_new();
    if (w != NULL)
        write_model(w, served);
    srv_app_release(x, served);
    srv_app_reply_json(x, w);
}

static void get_examples(srv_exchange *x)
{
    const srv_served *served = srv_app_acquire(x);

    if (served == NULL)
        return;
    srv_json_writer *w = srv_json_writer_new();
    if (w != NULL) {
        srv_json_writer_raw(w, "{\"examples\":[", 13);
        for (size_t i = 0; i < srv_examples_count(served->examples); i++) {
            if (i != 0)
                srv_json_writer_raw(w, ",", 1);
            srv_json_writer_string(w, srv_examples_name(served->examples, i));
        }
        srv_json_writer_raw(w, "]}", 2);
    }
    srv_app_release(x, served);
    srv_app_reply_json(x, w);
}

static void reply_example(srv_exchange *x, const srv_served *served)
{
    const char *name = srv_http_param(x, "name");
    attn_error err = {0};

    for (size_t i = 0; i < srv_examples_count(served->examples); i++) {
        if (strcmp(srv_examples_name(served->examples, i), name) == 0) {
            size_t n = 0;
            const char *body = srv_examples_body(served->examples, i, &n);
            srv_http_reply_text(x, 200, "application/json", body, n);
            return;
        }
    }
    (void)attn_fail(&err, ATTN_ENOTFOUND, "model \"%s\" has no example \"%.64s\"",
                    attn_model_name(served->model), name);
    srv_http_reply_problem(x, &err, "example_not_found");
}

static void get_example(srv_exchange *x)
{
    const srv_served *served = srv_app_acquire(x);

    if (served == NULL)
        return;
    reply_example(x, served);
    srv_app_release(x, served);
}

static void get_live(srv_exchange *x)
{
    static const char text[] = "{\"status\":\"live\"}";
    srv_http_reply_text(x, 200, "application/json", text, sizeof text - 1);
}

static void get_ready(srv_exchange *x)
{
    static const char text[] = "{\"status\":\"ready\"}";
    attn_error err = {0};
    const char *code = srv_app_not_ready(x, &err);

    if (code == NULL)
        srv_http_reply_text(x, 200, "application/json", text, sizeof text - 1);
    else
        srv_http_reply_problem(x, &err, code);
}

static void get_metrics(srv_exchange *x)
{
    const srv_app *app = srv_http_app(x);
    srv_infer_stats queue;
    attn_error err = {0};
    size_t n = 0;

    srv_infer_get_stats(app->infer, &queue);
    const srv_models_figures models = srv_models_get_figures(app->models);
    const srv_metrics_now now = {.ready = srv_app_not_ready(x, NULL) == NULL,
                                 .waiting = queue.waiting,
                                 .running = queue.running,
                                 .shared = queue.shared,
                                 .models = models.ready,
                                 .weights_bytes = models.weights_bytes,
                                 .reloads = models.loads,
                                 .failed_reloads = models.fails,
                                 .lost_log_lines = srv_log_lost()};
    char *text = srv_metrics_print(app->metrics, &now, &n);
    if (text != NULL) {
        srv_http_reply_text(x, 200, SRV_METRICS_TYPE, text, n);
    } else {
        (void)attn_fail(&err, ATTN_ENOMEM, "no memory for the metrics");
        srv_http_reply_problem(x, &err, NULL);
    }
    free(text);
}

unsigned srv_app_retry_after_s(void *app)
{
    return srv_infer_retry_after_s(((srv_app *)app)->infer);
}

/* --- the table --------------------------------------------------------------------------------- */

static const srv_route api_routes[] = {
    {.method = "GET", .path = "/health/live", .quiet = true, .open = true, .finish = get_live},
    {.method = "GET", .path = "/health/ready", .quiet = true, .open = true, .finish = get_ready},
    {.method = "GET", .path = "/v1/models", .finish = get_models},
    {.method = "GET", .path = "/v1/models/{model}", .finish = get_model},
    {.method = "GET", .path = "/v1/models/{model}/examples", .finish = get_examples},
    {.method = "GET", .path = "/v1/models/{model}/examples/{name}", .finish = get_example},
};

static const srv_route metrics_routes[] = {
    {.method = "GET", .path = "/metrics", .quiet = true, .finish = get_metrics},
};

static void add_routes(srv_route_table *t, const srv_route *routes, size_t n, bool open)
{
    assert(n <= SRV_MAX_ROUTES - t->n);
    memcpy(t->routes + t->n, routes, n * sizeof *routes);
    for (size_t i = 0; i < n && open; i++)
        t->routes[t->n + i].open = true;
    t->n += n;
}

void srv_routes(srv_route_table *t, srv_parts parts)
{
    t->n = 0;
    add_routes(t, api_routes, sizeof api_routes / sizeof *api_routes, false);
    add_routes(t, srv_call_routes, srv_num_call_routes, false);
    add_routes(t, srv_oip_routes, srv_num_oip_routes, false);
    add_routes(t, srv_repository_routes, srv_num_repository_routes, false);
    if (parts.metrics)
        add_routes(t, metrics_routes, sizeof metrics_routes / sizeof *metrics_routes,
                   parts.open_metrics);
    if (parts.docs)
        add_routes(t, srv_docs_routes, srv_num_docs_routes, true);
    if (parts.ui)
        add_routes(t, srv_ui_routes, srv_num_ui_routes, true);
}
